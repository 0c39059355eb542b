#ifndef HA_DEVICE_SUITE_CAPTURED_H
#define HA_DEVICE_SUITE_CAPTURED_H

/* An operation of a device that takes graphs, each call captured as a graph of its own. */

#include "harness/api/device.h"

/* It may load its kernels in its first call, and wait for all that is enqueued. */
bool ha_calls_library(const char *entry);
/* The device with this entry captured, one at a time. NULL: it takes no graphs, there is no such entry, or it calls a
 * library. */
const struct ha_device_api *ha_captured(const struct ha_device_api *api, const char *entry);
/* The stream that captures what this thread calls from now on, which other threads may name, too; NULL: the call's. */
void ha_captured_by(struct ha_stream *stream);
/* Has this thread graphs that such a stream captured, and none was launched? Waits for another thread that has, too,
 * for a while, unless this one is said to be alone. */
bool ha_captured_meets(void);
void ha_captured_meet(void);
void ha_captured_alone(bool is);
/* Launches the graphs of this thread that are not yet launched, one behind the other; nothing where there are none. */
enum ha_status ha_captured_launch(struct ha_stream *stream);
/* Has this thread graphs that were not launched? Launches all of its graphs, launched before or not. */
bool ha_captured_any(void);
enum ha_status ha_captured_again(struct ha_stream *stream);
/* Destroys the graphs of this thread; what was launched is done. */
void ha_captured_clear(void);

#endif
