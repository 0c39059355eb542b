#ifndef HA_LIST_DEVICES_H
#define HA_LIST_DEVICES_H

#include "harness/program/options.h"

/* `habench list devices`: the built-in ones and the plugins beside the program, and whether each opens here. */
enum ha_exit ha_list_devices(const struct ha_options *o, struct ha_why *why);

#endif
