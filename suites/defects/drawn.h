#ifndef HA_DEFECTS_DRAWN_H
#define HA_DEFECTS_DRAWN_H

/* The part of the plugin that has drawn faults. */

#include "harness/api/device.h"

/* Stands before the entries of the table; what they are now is called where nothing is drawn. */
void ha_drawn_wrap(struct ha_device_api *api);
/* When the device has been opened: is a fault drawn, and of which seed? */
void ha_drawn_begin(bool is_drawn, uint64_t seed);
void ha_drawn_end(void); /* before it is closed */
void ha_drawn_allocated(enum ha_memory kind, void *at, size_t bytes);
void ha_drawn_freed(const void *at);

#endif
