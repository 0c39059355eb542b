#ifndef HA_PROGRAM_TOGETHER_H
#define HA_PROGRAM_TOGETHER_H

/* `habench run --together`: ranks of a job run the same cases alone, in turns, and then at once. */

#include "harness/engine/loop.h"
#include "harness/program/options.h"

struct ha_together;

/* NULL behind the last */
extern const char *const ha_together_words[];

/* Meets the other ranks. HA_EXIT_USAGE: this is no rank, or there are none to meet; HA_EXIT_ENVIRONMENT: they cannot
 * meet here. */
enum ha_exit ha_together_open(struct ha_together **together, const struct ha_options *options, struct ha_why *why);
/* What no two ranks of a host are to do at once, before they run: await, do it, done. NULL: at once. */
void ha_together_await(struct ha_together *together);
void ha_together_done(struct ha_together *together);
/* Runs the plan as often as it takes. Records: OUT/alone, OUT/together, or OUT/pairs/RANK of each other rank. */
enum ha_exit ha_together_run(struct ha_together *together, const struct ha_plan *plan,
                             const struct ha_run_options *options, struct ha_why *why);
void ha_together_close(struct ha_together *together);

#endif
