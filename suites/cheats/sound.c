/* The embedded device as a plugin: what cheats stand around (kit.h). */

#include "harness/api/device.h"

extern const struct ha_device_api ha_sound_host; /* the embedded device, by the name that the build gives it here */

__attribute__((visibility("default"))) struct ha_device_api ha_device_api;

__attribute__((constructor)) static void begin(void)
{
    ha_device_api = ha_sound_host;
    ha_device_api.name = "sound";
    ha_device_api.kind = "plugin";
}
