/* What this process may use: its control group and its limits. */

#include "harness/doctor/checks.h"

#include "harness/base/arena.h"
#include "harness/doctor/files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- control groups, both versions ------------------------------------------------------------------------------- */

/* Is the controller one of the line "N:a,b,c:PATH"? Of version 2 there is none: "0::PATH". */
static bool names(const char *controllers, size_t length, const char *controller)
{
    const size_t n = strlen(controller);
    for (const char *at = controllers, *end = controllers + length; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
        if ((size_t)(stop - at) == n && !memcmp(at, controller, n)) return true;
        at = stop + 1;
    }
    return false;
}

struct group {
    bool known, v1;           /* v1: this controller is of version 1 */
    char path[HA_FILES_LINE]; /* of this process, below the folder of the controller; "" is that */
};

static void find_group(const char *root, const char *controller, struct group *out)
{
    char path[HA_FILES_PATH], line[HA_FILES_LINE];
    *out = (struct group){ 0 };
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file) && !out->v1) {
        line[strcspn(line, "\n")] = 0;
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || second[1] != '/') continue;
        const bool v1 = names(first + 1, (size_t)(second - first - 1), controller);
        if (!v1 && second != first + 1) continue;
        *out = (struct group){ .known = true, .v1 = v1 };
        snprintf(out->path, sizeof out->path, "%s", second[2] ? second + 1 : "");
    }
    if (file) fclose(file);
}

/* To the group above; false: there is none. */
static bool go_up(struct group *g)
{
    char *slash = strrchr(g->path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

/* The cores' worth of time that this group may use; HUGE_VAL: no quota here; NaN: what is there is none. */
static double quota_of(const char *root, const struct group *g)
{
    char text[96], *blank;
    double quota, period;
    if (g->v1) {
        if (!ha_file_there(root, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", g->path)) return HUGE_VAL;
        if (!ha_file_number(&quota, root, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", g->path)
            || !ha_file_number(&period, root, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", g->path))
            return (double)NAN;
    } else {
        if (!ha_file_there(root, "/sys/fs/cgroup%s/cpu.max", g->path)) return HUGE_VAL;
        if (!ha_file_word(text, sizeof text, root, "/sys/fs/cgroup%s/cpu.max", g->path)) return (double)NAN;
        if (!(blank = strchr(text, ' ')) || !ha_text_number(&period, blank + 1, NULL)) return (double)NAN;
        *blank = 0;
        if (!strcmp(text, "max")) return HUGE_VAL;
        if (!ha_text_number(&quota, text, NULL)) return (double)NAN;
    }
    return quota < 0 ? HUGE_VAL : period > 0 ? quota / period : (double)NAN;
}

void ha_look_cpu_quota(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    struct group g;
    const double cores = (double)ha_list_count(s->mine);
    double least = HUGE_VAL;
    find_group(s->root, "cpu", &g);
    if (!g.known) {
        ha_found(f, HA_UNKNOWN, "/proc/self/cgroup does not say in which group we are");
        return;
    }
    do {
        const double quota = quota_of(s->root, &g);
        if (isnan(quota)) {
            ha_found(f, HA_UNKNOWN, "the quota of the group %.160s cannot be read", *g.path ? g.path : "/");
            return;
        }
        least = fmin(least, quota);
    } while (go_up(&g));
    if (isinf(least)) ha_found(f, HA_FIT, "none");
    else ha_found(f, least < cores ? HA_UNFIT : HA_FIT, "time of %.2f cores, and %.0f are ours", least, cores);
}

/* bytes; HUGE_VAL: no limit here; NaN: what is there is none. */
static double memory_limit_of(const char *root, const struct group *g, double *used)
{
    /* version 1 says "none" by nearly 2^63 */
    const double none = 0x1p60;
    const char *const folder = g->v1 ? "/memory" : "", *const limit = g->v1 ? "memory.limit_in_bytes" : "memory.max",
                      *const current = g->v1 ? "memory.usage_in_bytes" : "memory.current";
    char text[96];
    double bytes;
    *used = 0;
    if (!ha_file_there(root, "/sys/fs/cgroup%s%s/%s", folder, g->path, limit)) return HUGE_VAL;
    if (!ha_file_word(text, sizeof text, root, "/sys/fs/cgroup%s%s/%s", folder, g->path, limit)) return (double)NAN;
    if (!strcmp(text, "max")) return HUGE_VAL;
    if (!ha_text_number(&bytes, text, NULL) || bytes < 0) return (double)NAN;
    if (bytes >= none) return HUGE_VAL;
    return ha_file_number(used, root, "/sys/fs/cgroup%s%s/%s", folder, g->path, current) ? bytes : (double)NAN;
}

void ha_look_memory_limit(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const double least_left = 2 * 0x1p30;
    struct group g;
    double least = HUGE_VAL, left = HUGE_VAL, used;
    const double total = (double)ha_memory_size(s->root).total_bytes;
    find_group(s->root, "memory", &g);
    if (!g.known || !(total > 0)) {
        ha_found(f, HA_UNKNOWN, "/proc/self/cgroup or /proc/meminfo cannot be read");
        return;
    }
    do {
        const double limit = memory_limit_of(s->root, &g, &used);
        if (isnan(limit)) {
            ha_found(f, HA_UNKNOWN, "the limit of the group %.160s cannot be read", *g.path ? g.path : "/");
            return;
        }
        least = fmin(least, limit);
        left = fmin(left, limit - used);
    } while (go_up(&g));
    if (least >= total) ha_found(f, HA_FIT, "none below what the machine has");
    else
        ha_found(f, left < least_left ? HA_UNFIT : HA_WARNING, "%.1f GiB of the machine's %.1f, of which %.1f are left",
                 least / 0x1p30, total / 0x1p30, fmax(0, left) / 0x1p30);
}

/* ---- ulimit ------------------------------------------------------------------------------------------------------ */

void ha_look_limit(const struct ha_doctor_check *check, const struct ha_doctor_seen *s, struct ha_finding *f)
{
    const struct ha_limit *l = check->arg;
    char text[96];
    double x;
    const bool read = ha_file_field(text, sizeof text, l->line, s->root, "/proc/self/limits");
    if (read) text[strcspn(text, " \t")] = 0;
    if (read && !strcmp(text, "unlimited")) ha_found(f, HA_FIT, "unlimited");
    else if (!read || !ha_text_number(&x, text, NULL) || x < 0)
        ha_found(f, HA_UNKNOWN, "/proc/self/limits does not say '%s'", l->line);
    else
        ha_found(f,
                 x / l->divisor < l->unfit     ? HA_UNFIT
                 : x / l->divisor < l->warning ? HA_WARNING
                                               : HA_FIT,
                 "%.6g%s", x / l->divisor, l->unit);
}
