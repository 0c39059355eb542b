/* The embedded device as a plugin whose attention scales its scores by 1% too much: what a check must fail. */

#include "harness/api/device.h"

extern const struct ha_device_api ha_device_host;

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_attend a = *args;
    a.scale *= 1.01f;
    return ha_device_host.attend(stream, &a);
}

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = ha_device_host;
    ha_device_api.name = "wrong_scale";
    ha_device_api.attend = attend;
}
