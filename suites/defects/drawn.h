#ifndef HA_DEFECTS_DRAWN_H
#define HA_DEFECTS_DRAWN_H

/* The part of the plugin that has faults (fault.h). */

#include "suites/defects/fault.h"

/* Stands before the entries of the table; what they are now is called where nothing is drawn. */
void ha_drawn_wrap(struct ha_device_api *api);
/* When the device has been opened; NULL: there is no fault. */
void ha_drawn_begin(const struct ha_fault *fault);
void ha_drawn_end(void); /* before it is closed */
void ha_drawn_allocated(enum ha_memory kind, void *at, size_t bytes);
void ha_drawn_freed(const void *at);

#endif
