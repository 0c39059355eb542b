#ifndef HA_LIST_KERNELS_H
#define HA_LIST_KERNELS_H

#include "harness/program/options.h"

/* `habench list kernels`: each table, whether it is used here, and what the one used by default takes from those below
 * it. */
enum ha_exit ha_list_kernels(const struct ha_options *o, struct ha_why *why);

#endif
