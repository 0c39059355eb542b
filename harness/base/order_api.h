#ifndef HA_BASE_ORDER_API_H
#define HA_BASE_ORDER_API_H

/* The table of a device, and that of CPU kernels, that tell the history of this process (ha_order_begin) what they do
 * before they do it. docs/order.md says what they cannot see. */

#include "harness/api/device.h"
#include "harness/base/order.h"

/* Valid until the next call; between ha_order_begin and ha_order_end. */
const struct ha_device_api *ha_order_wrap(const struct ha_device_api *api);
void ha_order_wrap_cpu(struct ha_kernels *kernels);

#endif
