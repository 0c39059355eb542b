#ifndef HA_KERNELS_HOST_TEST_SUPPORT_H
#define HA_KERNELS_HOST_TEST_SUPPORT_H

/* What the tests of a device share. Those of memory, moves, streams, launches, graphs and the random ones name no
 * device: the same objects are linked with the embedded one, which computes with the plainest kernels (test_support.c),
 * and with the emulated CUDA device (kernels/cuda/test_support.c). What is particular to the embedded one is in
 * test_host.c. */

#include "harness/api/device.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The device that the test is linked with, what it is given, and whether it is the embedded one, which does more than
 * is asked of a device: it nests graphs, and looks at indices and guards. */
extern const struct ha_device_api *const api;
extern const struct ha_kernels test_kernels;
extern const bool embedded;

static inline struct ha_device *device_open(uint64_t wait_limit_ns)
{
    struct ha_device *dev;
    struct ha_why why;
    struct ha_device_config config = { &test_kernels, wait_limit_ns };
    if (api->open(&dev, &config, &why) != HA_OK) fail_msg("%s", why.text);
    return dev;
}

static inline void *device_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes)
{
    void *ptr;
    struct ha_why why;
    if (api->mem_alloc(dev, kind, bytes, &ptr, &why) != HA_OK) fail_msg("%s", why.text);
    return ptr;
}

static inline struct ha_stream *device_stream(struct ha_device *dev, const char *name)
{
    struct ha_stream *s;
    struct ha_why why;
    if (api->stream_create(dev, name, &s, &why) != HA_OK) fail_msg("%s", why.text);
    return s;
}

static inline struct ha_event *device_event(struct ha_device *dev)
{
    struct ha_event *e;
    struct ha_why why;
    if (api->event_create(dev, &e, &why) != HA_OK) fail_msg("%s", why.text);
    return e;
}

/* A device that hangs is a failed test, not a stopped build. */
static inline void device_test_begin(void) { alarm(300); }

#define ok(call) assert_int_equal((call), HA_OK)

static inline void assert_no_failure(struct ha_device *dev)
{
    if (api->failure(dev)) fail_msg("%s", api->failure(dev));
}

static inline void assert_failure_has(struct ha_device *dev, const char *words)
{
    const char *text = api->failure(dev);
    if (!text) fail_msg("no failure, wanted one with '%s'", words);
    else if (!strstr(text, words)) fail_msg("failure '%s' lacks '%s'", text, words);
}

#endif
