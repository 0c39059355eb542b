#ifndef HA_BASE_ORDER_API_H
#define HA_BASE_ORDER_API_H

/* The table of a device, and that of CPU kernels, that tell the history of this process (ha_order_begin) what they do
 * before they do it. docs/order.md says what they cannot see. */

#include "harness/api/device.h"
#include "harness/base/order.h"

/* Valid until the next call; between ha_order_begin and ha_order_end. */
const struct ha_device_api *ha_order_wrap(const struct ha_device_api *api);
void ha_order_wrap_cpu(struct ha_kernels *kernels);

/* What a move that is enqueued next on a stream of that table writes through its index, a row at a time: whoever knows
 * says it. Only where there is a history (ha_order_now). */
void ha_order_moves_to(struct ha_stream *stream, const char *role, const void *at, size_t bytes);

#endif
