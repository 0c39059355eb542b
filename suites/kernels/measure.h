#ifndef HA_CPU_MEASURE_H
#define HA_CPU_MEASURE_H

#include "harness/measure/counters.h"
#include "harness/measure/paired.h"
#include "suites/kernels/work.h"

/* Threads, and what is measured of them once: pools by their number and kind, each with its ceiling. (team.c) */

enum { HA_CPU_TEAMS = 8, HA_CPU_PEAKS = 16 };

struct ha_cpu_team {
    enum ha_team kind;
    size_t threads; /* as asked for: 0, all */
    struct ha_pool *pool;
    struct ha_paired *paired;                  /* NULL until something is measured */
    const struct ha_counters_system *counters; /* whose they are; a test sets another */
    double wake_ns;                            /* median of empty runs; NaN until then */
    struct {
        double (*flops)(size_t rounds);
        double GFLOPps;
    } peak[HA_CPU_PEAKS];
    double rate[HA_POOL_THREADS_MAX]; /* the best of each thread that ha_cpu_team_speed saw */
};

struct ha_cpu_teams {
    struct ha_cpu_team team[HA_CPU_TEAMS];
    size_t count, cores; /* cores: of a pool of all */
};

enum ha_status ha_cpu_teams_open(struct ha_cpu_teams *teams, struct ha_why *why);
void ha_cpu_teams_close(struct ha_cpu_teams *teams);
/* HA_WAIVED: more threads than the process has cores. */
enum ha_status ha_cpu_teams_get(struct ha_cpu_teams *teams, enum ha_team kind, size_t threads,
                                struct ha_cpu_team **team, struct ha_why *why);
/* Its ceiling, by the best kernels of this CPU whatever is measured against it, and its wake-up. */
enum ha_status ha_cpu_team_ready(struct ha_cpu_team *team, const struct ha_kernels *best, struct ha_why *why);
/* Multiply-adds in registers on all threads, by flops or flops_bf16 of a table; NaN for NULL. */
double ha_cpu_team_peak(struct ha_cpu_team *team, double (*flops)(size_t rounds));
/* ha_speed_least of its threads: the slowest, as a share of its best. */
double ha_cpu_team_speed(struct ha_cpu_team *team);

/* Samples of one point: each is runs of the kernel, between two readings of the ceiling. What counts is their ratio.
 * Fills in the figures of what was checked. Until the ratio is known to 1%, or cap_ns are over, at least 15 samples
 * where four times as long suffices; behind deadline_ns (0: none) one is enough. Samples in which a thread lost its
 * core are taken again, those after which one has lost half of it (see ha_cpu_team_speed), and those whose two readings
 * differ by more than a tenth. HA_WAIVED: stopped before there were enough. */
enum ha_status ha_cpu_measure(struct ha_cpu_work *work, struct ha_cpu_team *team, uint64_t cap_ns, uint64_t deadline_ns,
                              const struct ha_meeting *meeting, struct ha_cpu_row *row, struct ha_why *why);

/* Memory is read 1 to 8 times before each sample and after it, together for as long as the sample takes: another
 * program that takes half of a core for moments then slows both alike. Samples are dropped where a core was lost, so
 * that short readings would come from undisturbed moments alone. */
enum { HA_CPU_FIRST_READINGS = 3 }; /* that tell how long one takes */
size_t ha_cpu_readings_for(double sample_ns, double reading_ns);

#endif
