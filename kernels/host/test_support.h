#ifndef HA_KERNELS_HOST_TEST_SUPPORT_H
#define HA_KERNELS_HOST_TEST_SUPPORT_H

/* What the tests of a device share. Those of memory, moves, streams, launches, graphs and the random ones name no
 * device: the same objects are linked with the embedded one, which computes with the portable kernels (test_support.c),
 * and with the emulated CUDA device (kernels/cuda/test_support.c). What is particular to the embedded one is in
 * test_host.c. */

#include "harness/api/device.h"
#include "harness/base/test.h"

#include <pthread.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)

/* The device that the test is linked with, what it is given, and whether it is the embedded one, which does more than
 * is asked of a device: it nests graphs, and looks at indices and guards. */
extern const struct ha_device_api *const api;
extern const struct ha_kernels test_kernels;
extern const bool embedded;

static struct ha_why why; /* what was said last */

/* What a test has of its devices, for device_release and device_close. */
enum device_thing { DEVICE_STREAM, DEVICE_EVENT, DEVICE_MEMORY, DEVICE_THINGS };
enum { DEVICE_OWN_MAX = 1024 };
static struct {
    struct ha_device *dev;
    enum device_thing thing;
    enum ha_memory kind;
    void *at;
} device_own[DEVICE_OWN_MAX];
static size_t device_owned;

static inline void *device_keep(struct ha_device *dev, enum device_thing thing, enum ha_memory kind, void *at)
{
    if (device_owned == DEVICE_OWN_MAX) return at; /* then device_close says so */
    device_own[device_owned].dev = dev;
    device_own[device_owned].thing = thing;
    device_own[device_owned].kind = kind;
    return device_own[device_owned++].at = at;
}

static inline struct ha_device *device_open(uint64_t wait_limit_ns)
{
    struct ha_device *dev;
    struct ha_device_config config = { &test_kernels, wait_limit_ns };
    if (api->open(&dev, &config, &why) != HA_OK) fail_msg("%s", why.text);
    /* of one that was at this address and that the test closed by itself */
    for (size_t i = device_owned; i-- > 0;)
        if (device_own[i].dev == dev) device_own[i] = device_own[--device_owned];
    return dev;
}

static inline void *device_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes)
{
    void *ptr;
    if (api->mem_alloc(dev, kind, bytes, &ptr, &why) != HA_OK) fail_msg("%s", why.text);
    return device_keep(dev, DEVICE_MEMORY, kind, ptr);
}

static inline struct ha_stream *device_stream(struct ha_device *dev, const char *name)
{
    struct ha_stream *s;
    if (api->stream_create(dev, name, &s, &why) != HA_OK) fail_msg("%s", why.text);
    return device_keep(dev, DEVICE_STREAM, HA_MEM_DEVICE, s);
}

static inline struct ha_event *device_event(struct ha_device *dev)
{
    struct ha_event *e;
    if (api->event_create(dev, &e, &why) != HA_OK) fail_msg("%s", why.text);
    return device_keep(dev, DEVICE_EVENT, HA_MEM_DEVICE, e);
}

static inline void device_release_at(size_t i)
{
    struct ha_device *dev = device_own[i].dev;
    void *at = device_own[i].at;
    switch (device_own[i].thing) {
    case DEVICE_STREAM: api->stream_destroy(at); break;
    case DEVICE_EVENT: api->event_destroy(at); break;
    default: api->mem_free(dev, device_own[i].kind, at); break;
    }
    device_own[i] = device_own[--device_owned];
}

/* A stream, an event or memory, before the device is closed. */
static inline void device_release(const void *at)
{
    for (size_t i = 0; i < device_owned; i++)
        if (device_own[i].at == at) {
            device_release_at(i);
            return;
        }
    fail_msg("%p is nothing that was made of a device here", at);
}

/* A device that hangs is a failed test, not a stopped build. */
__attribute__((constructor)) static void device_test_begin(void) { alarm(300); }

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

/* Releases what the test has of the device: streams first, which may still be at work. Then the device has failed with
 * these words, or not at all where they are NULL; and is closed. */
static inline void device_close(struct ha_device *dev, const char *failure)
{
    assert_true(device_owned < DEVICE_OWN_MAX);
    for (int thing = 0; thing < DEVICE_THINGS; thing++)
        for (size_t i = device_owned; i-- > 0;)
            if (device_own[i].dev == dev && device_own[i].thing == (enum device_thing)thing) device_release_at(i);
    if (failure) assert_failure_has(dev, failure);
    else assert_no_failure(dev);
    api->close(dev);
}

#endif
