#ifndef HA_COMPARE_FLEET_SHIFT_H
#define HA_COMPARE_FLEET_SHIFT_H

/* A fleet beside itself: what each machine, and each figure of all machines, has moved by since. Logarithms, in which
 * more is worse. */

#include "harness/compare/fleet.h"

struct ha_fleet_moved {
    const struct ha_fleet_machine *machine; /* as it is now */
    double by, sigmas, p;                   /* by: the median of its times and rates */
    bool called;                            /* worse, and apart from how the others have moved */
};

struct ha_fleet_figure_moved {
    const struct ha_fleet_figure *figure;
    size_t machines;
    double by, lo, hi, p; /* the median of the machines', and its 95% interval */
    bool called;          /* worse by more than 1.5% */
};

struct ha_fleet_shift {
    const struct ha_fleet *before, *now;
    struct ha_fleet_moved *machine; /* [machines] of both; the farthest first */
    size_t machines, gone, added;
    double by, lo, hi, least;             /* of the fleet; least: from which on one machine would have been noticed */
    struct ha_fleet_figure_moved *figure; /* [figures] of both; the farthest first */
    size_t figures;
};

/* HA_ERROR: no memory, or no machine is in both. Both are judged; freed also after a failure. */
enum ha_status ha_fleet_shift(struct ha_fleet_shift *shift, const struct ha_fleet *before, const struct ha_fleet *now,
                              struct ha_why *why);
void ha_fleet_shift_free(struct ha_fleet_shift *shift);
enum ha_exit ha_fleet_shift_exit(const struct ha_fleet_shift *shift);

#endif
