#ifndef HA_LIST_H
#define HA_LIST_H

#include "harness/program/options.h"

/* `habench list WHAT ...` on stdout; the exit code of the program. */
enum ha_exit ha_list(const struct ha_options *o, struct ha_why *why);

#endif
