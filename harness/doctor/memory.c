/* Host memory: how much, of what pages, where. */

#include "harness/doctor/checks.h"

#include "harness/base/arena.h"
#include "harness/doctor/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NODE "/sys/devices/system/node"

void ha_look_memory(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double least = 2 * 0x1p30, little = 0.1;
    const struct ha_memory_size m = ha_memory_size(s->root);
    const double total = (double)m.total_bytes, left = (double)m.available_bytes;
    if (!(total > 0 && left > 0 && left <= total))
        ha_found(f, HA_UNKNOWN, "/proc/meminfo does not say how much is left");
    else
        ha_found(f,
                 left < least            ? HA_UNFIT
                 : left < little * total ? HA_WARNING
                                         : HA_FIT,
                 "%.1f GiB of %.1f are left", left / 0x1p30, total / 0x1p30);
}

void ha_look_huge_pages(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    char line[96];
    const bool read = ha_file_word(line, sizeof line, s->root, "/sys/kernel/mm/transparent_hugepage/enabled");
    if (read && strstr(line, "[never]")) ha_found(f, HA_WARNING, "never: all pages are small");
    else if (read && strstr(line, "[madvise]")) ha_found(f, HA_FIT, "madvise, and we ask for them");
    else if (read && strstr(line, "[always]")) ha_found(f, HA_FIT, "always");
    else ha_found(f, HA_UNKNOWN, "the system does not say");
}

/* ---- swap -------------------------------------------------------------------------------------------------------- */

double ha_swapped_pages(const char *root)
{
    char in[64], out[64];
    double a, b;
    if (!ha_file_field(in, sizeof in, "pswpin ", root, "/proc/vmstat")
        || !ha_file_field(out, sizeof out, "pswpout ", root, "/proc/vmstat") || !ha_text_number(&a, in, NULL)
        || !ha_text_number(&b, out, NULL))
        return (double)NAN;
    return a + b;
}

static bool meminfo_KiB(const char *root, const char *key, double *out)
{
    char text[64];
    return ha_file_field(text, sizeof text, key, root, "/proc/meminfo") && ha_text_number(out, text, "kB") && *out >= 0;
}

void ha_look_swap(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double moved = s->load->swapped_after - s->load->swapped_before;
    double total_KiB, free_KiB;
    if (!meminfo_KiB(s->root, "SwapTotal", &total_KiB) || !meminfo_KiB(s->root, "SwapFree", &free_KiB)
        || free_KiB > total_KiB) {
        ha_found(f, HA_UNKNOWN, "/proc/meminfo does not say");
        return;
    }
    const double used_GiB = (total_KiB - free_KiB) / 0x1p20;
    if (!(total_KiB > 0)) ha_found(f, HA_FIT, "there is none");
    else if (isnan(moved)) ha_found(f, HA_UNKNOWN, "%.2f GiB are used; /proc/vmstat does not say what moves", used_GiB);
    else if (moved > 0) ha_found(f, HA_UNFIT, "%.0f pages moved in a second; %.2f GiB are used", moved, used_GiB);
    else ha_found(f, used_GiB > 0 ? HA_WARNING : HA_FIT, "%.2f GiB are used, and nothing moved in a second", used_GiB);
}

void ha_look_swappiness(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double most = 10;
    double total_KiB, swappiness;
    if (!meminfo_KiB(s->root, "SwapTotal", &total_KiB)
        || !ha_file_number(&swappiness, s->root, "/proc/sys/vm/swappiness") || swappiness < 0)
        ha_found(f, HA_UNKNOWN, "the system does not say");
    else if (!(total_KiB > 0)) ha_found(f, HA_FIT, "%.0f, and there is no swap", swappiness);
    else ha_found(f, swappiness > most ? HA_WARNING : HA_FIT, "%.0f, and there is swap", swappiness);
}

/* ---- NUMA -------------------------------------------------------------------------------------------------------- */

bool ha_nodes_of(const char *root, const bool mine[HA_CORES_MOST], bool out[HA_CORES_MOST], size_t *nodes)
{
    bool online[HA_CORES_MOST], cores[HA_CORES_MOST];
    memset(out, 0, HA_CORES_MOST * sizeof *out);
    if (!ha_file_list(online, root, NODE "/online")) return false;
    *nodes = ha_list_count(online);
    for (int node = 0; node < HA_CORES_MOST; node++) {
        if (!online[node]) continue;
        if (!ha_file_list(cores, root, NODE "/node%d/cpulist", node)) return false;
        for (size_t i = 0; i < HA_CORES_MOST; i++) out[node] |= cores[i] && mine[i];
    }
    return ha_list_count(out) > 0;
}

static int first_of(const bool in[HA_CORES_MOST])
{
    int i = 0;
    while (i + 1 < HA_CORES_MOST && !in[i]) i++;
    return i;
}

void ha_look_numa_cores(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    bool ours[HA_CORES_MOST];
    char list[64];
    size_t nodes;
    if (!ha_nodes_of(s->root, s->mine, ours, &nodes)) {
        ha_found(f, HA_UNKNOWN, "the system does not say of which nodes our cores are");
        return;
    }
    ha_list_text(list, sizeof list, ours);
    ha_mend(f, "numactl --cpunodebind=%d --membind=%d habench ...", first_of(ours), first_of(ours));
    if (ha_list_count(ours) > 1) ha_found(f, HA_WARNING, "our cores are of nodes %s of %zu", list, nodes);
    else
        ha_found(f, HA_FIT, nodes > 1 ? "all of our cores are of node %s of %zu" : "node %s is the only one", list,
                 nodes);
}

/* Pages of memory that has no file, by node. */
static bool count_pages(const char *root, double pages[HA_CORES_MOST])
{
    char path[HA_FILES_PATH], line[8192];
    double all = 0;
    memset(pages, 0, HA_CORES_MOST * sizeof *pages);
    snprintf(path, sizeof path, "%s/proc/self/numa_maps", root);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, " anon=")) continue;
        for (const char *at = strstr(line, " N"); at; at = strstr(at + 1, " N")) {
            unsigned node;
            unsigned long long count;
            if (sscanf(at, " N%u=%llu", &node, &count) != 2 || node >= HA_CORES_MOST) continue;
            pages[node] += (double)count;
            all += (double)count;
        }
    }
    fclose(file);
    return all > 0;
}

void ha_look_numa_memory(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double most = 0.25;
    bool ours[HA_CORES_MOST], allowed[HA_CORES_MOST];
    double pages[HA_CORES_MOST], all = 0, elsewhere = 0;
    char text[256], list[64];
    size_t nodes;
    if (!ha_nodes_of(s->root, s->mine, ours, &nodes)) {
        ha_found(f, HA_UNKNOWN, "the system does not say of which nodes our cores are");
        return;
    }
    if (nodes == 1) {
        ha_found(f, HA_FIT, "there is one node");
        return;
    }
    ha_list_text(list, sizeof list, ours);
    ha_mend(f, "numactl --cpunodebind=%d --membind=%d habench ...", first_of(ours), first_of(ours));
    if (!ha_file_field(text, sizeof text, "Mems_allowed_list", s->root, "/proc/self/status")
        || !ha_list_parse(text, allowed) || !count_pages(s->root, pages)) {
        ha_found(f, HA_UNKNOWN, "/proc/self/status and numa_maps do not say where our memory is");
        return;
    }
    for (size_t i = 0; i < HA_CORES_MOST; i++) {
        all += pages[i];
        if (!ours[i]) elsewhere += pages[i];
        if (!ours[i] || allowed[i]) continue;
        ha_found(f, HA_UNFIT, "our cores are of nodes %s, and memory of node %zu is not allowed", list, i);
        return;
    }
    ha_found(f, elsewhere > most * all ? HA_UNFIT : HA_FIT, "%.0f%% of our memory is not on the nodes of our cores, %s",
             100 * elsewhere / all, list);
}

void ha_look_numa_balancing(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    bool ours[HA_CORES_MOST];
    size_t nodes;
    double on;
    if (!ha_nodes_of(s->root, s->mine, ours, &nodes)) {
        ha_found(f, HA_UNKNOWN, "the system does not say how many nodes there are");
        return;
    }
    if (nodes == 1) ha_found(f, HA_FIT, "there is one node");
    else if (!ha_file_number(&on, s->root, "/proc/sys/kernel/numa_balancing") || on < 0)
        ha_found(f, HA_UNKNOWN, "the system does not say");
    else ha_found(f, on > 0 ? HA_WARNING : HA_FIT, "%s, on %zu nodes", on > 0 ? "on" : "off", nodes);
}
