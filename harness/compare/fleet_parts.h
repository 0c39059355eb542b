#ifndef HA_COMPARE_FLEET_PARTS_H
#define HA_COMPARE_FLEET_PARTS_H

/* What the files of a fleet's verdict have between them (fleet.h). */

#include "harness/compare/fleet.h"

/* Room to work in, for so many machines and figures. */
struct ha_fleet_room {
    double *x, *best, *work;
    size_t *next;
};

/* Machines of one kind by their facts, and by what they do where a track has two kinds of them; their columns and
 * tracks with spreads, whose tails are not known yet. */
enum ha_status ha_fleet_group(struct ha_fleet *fleet, struct ha_why *why);
/* What machines that are alike have as outputs: fills in who disagrees. */
enum ha_status ha_fleet_outputs(struct ha_fleet *fleet, struct ha_why *why);

/* "": it is not said */
const char *ha_fleet_fact_of(const struct ha_fleet_machine *machine, size_t fact);
/* out: room for it; the name may be another text */
const char *ha_fleet_track_name(const struct ha_fleet_track *track, char out[200]);

#endif
