#ifndef HA_PROGRAM_NIGHT_CAUSES_H
#define HA_PROGRAM_NIGHT_CAUSES_H

/* What disturbed a night, by the column `disturbed` of its rows and by what the system counted while they were
 * measured, and what would help. */

#include "harness/measure/disturbed.h"
#include "harness/program/night.h"

enum { HA_NIGHT_PROGRAMS = 512 };

/* The processor time of the processes that the system shows, on cores of ours. */
struct ha_night_programs {
    struct ha_night_program {
        long pid;
        double started, cpu_ns;
        char name[32];
    } of[HA_NIGHT_PROGRAMS];
    size_t count;
};

/* Sums over the steps that were watched. */
struct ha_night_watch {
    const char *root; /* "", or for tests a folder with proc */
    struct ha_core_counts before;
    struct ha_night_programs first, by_name; /* by_name: what each name took meanwhile */
    double own_before_ns, span_ns, others_ns, steal_ns, throttled;
};

/* Around a step, which is a child of this process that has ended at the second. */
void ha_night_watch_begin(struct ha_night_watch *watch);
void ha_night_watch_end(struct ha_night_watch *watch);

/* A note for each cause that at least a tenth of the rows of these steps have, or that the watch itself has seen: in
 * how many rows, how much, by whom, and what would help. Returns whether load, steal or a shared core is among them. */
bool ha_night_causes_note(struct ha_night_log *log, const struct ha_night_watch *watch);

#endif
