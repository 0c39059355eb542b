#ifndef HA_FLEET_MOVE_H
#define HA_FLEET_MOVE_H

#include "harness/api/base.h"

/* The folder `from` and all that is in it becomes INTO/NAME, at once and whole: a copy beside it, INTO/.NAME.part, is
 * on the disk before it takes the name. `from` stays. HA_ERROR: it cannot be written, or has what is neither file nor
 * folder, or INTO/NAME is there and not empty; then nothing of it is left. name: safe (ha_rank_safe). */
enum ha_status ha_move_copy(const char *from, const char *into, const char *name, struct ha_why *why);

/* Removes the folder and all that is in it, links as links; what is not there is no failure. */
enum ha_status ha_move_remove(const char *path, struct ha_why *why);

#endif
