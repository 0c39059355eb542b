#define _GNU_SOURCE /* sched_getaffinity */
#include "harness/measure/disturbed.h"

#include "harness/base/clock.h"
#include "harness/base/text.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const double load_most = 0.05, load_noticed = 0.01, lost_most = 100, steal_most = 0.02, slower_most = 0.15,
                    slow_most = 0.25, ticks_ns = 30e6;

static void read_stat(const char *root, const bool mine[HA_CORES_MOST], struct ha_core_counts *out)
{
    char path[512], line[512];
    const double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
    double busy = 0, steal = 0;
    snprintf(path, sizeof path, "%s/proc/stat", root);
    FILE *f = fopen(path, "re");
    if (!f) return;
    out->cores = 0;
    while (fgets(line, sizeof line, f)) {
        int core;
        double user, nice, system, idle, wait, irq, softirq, stolen = 0;
        if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &core, &user, &nice, &system, &idle, &wait, &irq,
                   &softirq, &stolen)
                < 8
            || core < 0 || core >= HA_CORES_MOST || !mine[core])
            continue;
        out->cores++;
        busy += user + nice + system + irq + softirq;
        steal += stolen;
    }
    fclose(f);
    if (!(out->cores > 0)) return;
    out->busy_ns = busy * tick_ns;
    out->steal_ns = steal * tick_ns;
}

static double read_number(const char *root, int core, const char *file)
{
    const double most = 0x1p63;
    char path[512], text[64];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/%s", root, core, file);
    ha_text_line(path, "", text, sizeof text);
    const double x = strtod(text, NULL);
    return *text && !text[strspn(text, "0123456789")] && x < most ? x : (double)NAN;
}

bool ha_cores_mine(bool core[HA_CORES_MOST])
{
    cpu_set_t mine;
    memset(core, 0, HA_CORES_MOST * sizeof *core);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
    for (size_t i = 0; i < HA_CORES_MOST && i < CPU_SETSIZE; i++) core[i] = CPU_ISSET(i, &mine);
    return true;
}

void ha_core_counts_of(const char *root, const bool core[HA_CORES_MOST], struct ha_core_counts *out)
{
    const double nan = (double)NAN;
    *out = (struct ha_core_counts){ (double)ha_now_ns(), nan, nan, nan, nan, nan, nan, nan };
    read_stat(root, core, out);
}

void ha_core_counts_read(const char *root, struct ha_core_counts *out)
{
    struct timespec own;
    struct rusage use;
    bool mine[HA_CORES_MOST];
    const bool known = ha_cores_mine(mine);
    ha_core_counts_of(root, mine, out);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0)
        out->own_ns = (double)own.tv_sec * 1e9 + (double)own.tv_nsec;
    if (getrusage(RUSAGE_SELF, &use) == 0) out->lost_cores = (double)use.ru_nivcsw;
    if (!known) return;
    for (int core = 0; core < HA_CORES_MOST; core++) {
        if (!mine[core]) continue;
        const double events = read_number(root, core, "thermal_throttle/core_throttle_count"),
                     kHz = read_number(root, core, "cpufreq/scaling_cur_freq");
        if (!isnan(events)) out->throttled = isnan(out->throttled) ? events : out->throttled + events;
        out->fastest_MHz = fmax(out->fastest_MHz, kHz / 1000);
    }
}

static bool device_throttled(const char *reasons)
{
    static const char *const harmless[] = { "none", "application clocks" };
    while (*reasons) {
        const size_t length = strcspn(reasons, ",");
        bool known = length == 0;
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            known |= strlen(harmless[i]) == length && !strncmp(reasons, harmless[i], length);
        if (!known) return true;
        reasons += length;
        reasons += strspn(reasons, ", ");
    }
    return false;
}

static double others(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    return after->busy_ns - before->busy_ns - (after->own_ns - before->own_ns);
}

static double all(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    return (after->wall_ns - before->wall_ns) * after->cores;
}

static bool loaded(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    const double load = others(before, after) / all(before, after),
                 lost = (after->lost_cores - before->lost_cores) / (all(before, after) / 1e9);
    return load > load_most || (load > load_noticed && lost > lost_most);
}

static bool stolen(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    return after->steal_ns - before->steal_ns > steal_most * all(before, after);
}

bool ha_had_cores_alone(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    static const double least_ns = 200e6;
    return after->wall_ns - before->wall_ns >= least_ns && others(before, after) <= load_most * all(before, after)
           && !stolen(before, after);
}

/* A NaN on either side is no cause. Another one takes its place where a program is linked for rehearsals. */
__attribute__((weak)) void ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after,
                                              size_t slow, size_t looks, const char *device_throttle,
                                              char out[HA_DISTURBED_MAX])
{
    const struct {
        const char *name;
        bool is;
    } causes[] = {
        { "load", others(before, after) > ticks_ns && loaded(before, after) },
        { "steal", after->steal_ns - before->steal_ns > ticks_ns && stolen(before, after) },
        { "throttled", after->throttled > before->throttled
                           || after->fastest_MHz < (1 - slower_most) * before->fastest_MHz
                           || device_throttled(device_throttle) },
        { "shared", (double)slow > slow_most * (double)looks },
    };
    out[0] = 0;
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        if (!causes[i].is) continue;
        if (*out) strcat(out, ", ");
        strcat(out, causes[i].name);
    }
}

struct ha_disturbed_shares ha_disturbed_shares(const struct ha_core_counts *before, const struct ha_core_counts *after,
                                               size_t slow, size_t looks)
{
    const double all_ns = all(before, after), others_ns = others(before, after);
    return (struct ha_disturbed_shares){ .load = isnan(others_ns) ? others_ns : fmax(0, others_ns / all_ns),
                                         .steal = (after->steal_ns - before->steal_ns) / all_ns,
                                         .slow = looks ? (double)slow / (double)looks : (double)NAN };
}
