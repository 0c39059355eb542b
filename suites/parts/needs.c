#include "suites/parts/needs.h"

const char *ha_needs(const struct ha_device_api *api, unsigned needs)
{
    if (needs & HA_NEEDS_ATTEND && !api->attend) return "the device has no operation attend";
    if (needs & HA_NEEDS_MERGE && !api->merge) return "the device has no operation merge";
    if (needs & HA_NEEDS_BLEND && !api->blend) return "the device has no operation blend";
    if (needs & HA_NEEDS_COPY_2D && !api->copy_2d) return "the device has no operation copy_2d";
    if (needs & HA_NEEDS_PRODUCTS && !api->attend_products) return "the device has no operation attend_products";
    return NULL;
}
