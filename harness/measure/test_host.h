#ifndef HA_MEASURE_TEST_HOST_H
#define HA_MEASURE_TEST_HOST_H

/* The embedded device, open: a setup and a teardown. */

#include "harness/base/registry.h"
#include "harness/base/test.h"

static const struct ha_device_api *host;
static struct ha_device *device;
static struct ha_kernels kernels;
static struct ha_why why; /* what was said last */

static inline int open_host(void **state)
{
    for (size_t i = 0; i < ha_devices_count; i++)
        if (!strcmp(ha_devices_all[i]->name, "host")) host = ha_devices_all[i];
    if (ha_kernels_resolve(NULL, &kernels, &why) != HA_OK
        || host->open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why) != HA_OK)
        fail_msg("%s", why.text);
    return 0;
}

static inline int close_host(void **state)
{
    host->close(device);
    return 0;
}

#endif
