#ifndef HA_LIST_H
#define HA_LIST_H

#include "harness/program/options.h"

/* What can be listed; NULL behind the last. */
const char *ha_list_name(size_t i);

/* `habench list WHAT ...` on stdout; the exit code of the program. */
enum ha_exit ha_list(const struct ha_options *o, struct ha_why *why);

#endif
