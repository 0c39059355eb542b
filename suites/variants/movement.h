#ifndef HA_MOVEMENT_H
#define HA_MOVEMENT_H

/* Defects of movement: waits that are left out, events that are recorded too early or in the wrong place, buffers that
 * are used again too soon, layers that are mixed up. Each is a shim over the table of the device that a variant gets.
 */

#include "harness/api/device.h"

/* Events are bits, in the order in which the variant makes them. What is zero is left as it is. */
struct ha_movement {
    unsigned unwaited, unsynced; /* waits of a stream, of the host, that are left out */
    size_t from_step;            /* they are, from this step on */
    size_t left_out, for_event;  /* this wait alone is, from 1, of all for this event, from 0 */
    unsigned waits_on_main;      /* the main stream waits in place of the one that should */
    unsigned records_on_main;    /* recorded there in place of the stream that does the work */
    unsigned records_early;      /* ahead of the last copy that they stand for */
    bool offloads_twice;         /* what goes down goes to the same place on the main stream, too */
    bool reuses_staging;         /* rows go up through one pinned buffer, which is filled again at once */
    bool loads_other_layer, stores_other_layer; /* of two */
};

/* Valid until the next call. */
const struct ha_device_api *ha_movement_wrap(const struct ha_movement *movement, const struct ha_device_api *api);
/* Waits of streams and of the host since, for this event, from 0; SIZE_MAX: there is no such event. */
size_t ha_movement_waits(size_t event);
/* the step that runs next */
void ha_movement_step(size_t step);

#endif
