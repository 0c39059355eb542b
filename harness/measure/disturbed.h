#ifndef HA_DISTURBED_H
#define HA_DISTURBED_H

/* Whether something else used the cores of this process while it measured: from counters of the system, read before and
 * after. */

#include "harness/api/base.h"

/* Sums over the cores that this process may run on, since some time in the past; NaN: cannot be read. */
struct ha_core_counts {
    double wall_ns, cores;
    double busy_ns;     /* all that ran there, this process and the kernel too */
    double steal_ns;    /* other guests of the machine ran instead */
    double own_ns;      /* this process */
    double lost_cores;  /* involuntary context switches of its threads */
    double throttled;   /* events */
    double fastest_MHz; /* of these cores, now */
};

/* root: "" for the system's own files; tests have others. */
void ha_core_counts_read(const char *root, struct ha_core_counts *out);

enum { HA_CORES_MOST = 1024 };
/* Which cores this process may run on; false: the system does not say. */
bool ha_cores_mine(bool core[HA_CORES_MOST]);
/* The same of other cores: wall_ns, cores, busy_ns, steal_ns, and NaN for all else. */
void ha_core_counts_of(const char *root, const bool core[HA_CORES_MOST], struct ha_core_counts *out);

enum { HA_DISTURBED_MAX = 48 };
/* The causes, comma separated, or "":
 *   load       others used more than 5% of the cores' time; or 1%, and the process lost a core more than 100 times a
 *              second and core
 *   steal      other guests took more than 2% of it
 *   throttled  a core was throttled, the fastest is 15% slower than before, or the device was: any reason of
 *              device_throttle but "none" and "application clocks"
 *   shared     in more than a quarter of the looks a core took instructions at less than 0.85 of its best (speed.h):
 *              `slow` of `looks`
 * Times below 30 ms count for nothing: the system counts in ticks. */
void ha_disturbed_judge(const struct ha_core_counts *before, const struct ha_core_counts *after, size_t slow,
                        size_t looks, const char *device_throttle, char out[HA_DISTURBED_MAX]);

/* This process is known to have had its cores to itself: others took at most 5% of their time, other guests 2%, over a
 * fifth of a second or longer, as of less ticks say nothing. How often its threads lost a core does not count: they
 * take cores from one another. */
bool ha_had_cores_alone(const struct ha_core_counts *before, const struct ha_core_counts *after);

/* The same in numbers, as shares; NaN: cannot be read. */
struct ha_disturbed_shares {
    double load, steal; /* of the cores' time */
    double slow;        /* of the looks */
};
struct ha_disturbed_shares ha_disturbed_shares(const struct ha_core_counts *before, const struct ha_core_counts *after,
                                               size_t slow, size_t looks);

#endif
