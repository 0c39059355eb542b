/* The embedded device as a plugin, so that a whole device can be judged in a process of its own. */

#include "harness/api/device.h"

extern const struct ha_device_api ha_device_host;

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = ha_device_host;
    ha_device_api.name = "guest";
    ha_device_api.kind = "plugin";
}
