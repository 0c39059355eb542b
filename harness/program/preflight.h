#ifndef HA_PREFLIGHT_H
#define HA_PREFLIGHT_H

#include "harness/api/exit.h"
#include "harness/engine/plan.h"

/* Asked before anything runs, and said once, not once a case: is there a device of that name, are the files there that
 * points name? HA_EXIT_USAGE: a name of nothing. HA_EXIT_MISSING: a file that is damaged. HA_EXIT_ENVIRONMENT: a device
 * of ours that was not built. */
enum ha_exit ha_preflight(const struct ha_plan *plan, struct ha_why *why);
/* the same of one device */
enum ha_exit ha_preflight_device(const char *name, struct ha_why *why);

#endif
