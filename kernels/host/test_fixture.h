#ifndef HA_KERNELS_HOST_TEST_FIXTURE_H
#define HA_KERNELS_HOST_TEST_FIXTURE_H

/* What most tests of a device begin with: one that is open, and a stream of it; and tests that use it wrongly. */

#include "kernels/host/test_support.h"

#include <time.h>

static struct ha_device *dev;
static struct ha_stream *stream; /* "main" */
static const char *failure;      /* that the test ends with; NULL: none */

static inline int device_begin(void **state)
{
    dev = device_open(0);
    stream = device_stream(dev, "main");
    failure = NULL;
    return 0;
}

static inline int device_end(void **state)
{
    device_close(dev, failure);
    return 0;
}

/* What the stream has captured. */
static inline struct ha_graph *graph_of(struct ha_stream *on)
{
    struct ha_graph *graph;
    if (api->graph_end(on, &graph, &why) != HA_OK) fail_msg("%s", why.text);
    return graph;
}

static inline void nap(long ns) { nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL); }

#define DEVICE_TEST(name) TEST_WITH(name, device_begin, device_end)

/* A test whose body does one wrong thing and gives what the call gave; caught(body, words) judges it. */
#define WRONG_USE(name, words, setup, teardown, caught)               \
    static enum ha_status wrong_##name(void);                         \
    TEST_WITH(name, setup, teardown) { caught(wrong_##name, words); } \
    static enum ha_status wrong_##name(void)

/* The same of a body that is one call, where WRONG(name, words) says how it is judged. */
#define WRONG_CALL(name, words, call) \
    WRONG(name, words) { return call; }

static inline void never_called(void *arg) { *(bool *)arg = true; }

/* It has failed with these words, and stays so, whatever comes. */
static inline void assert_failed(const char *words)
{
    bool called = false;
    failure = words;
    assert_failure_has(dev, words);
    assert_int_equal(api->flag_write(stream, NULL, 1), HA_ERROR);
    assert_int_equal(api->host_fn(stream, never_called, &called), HA_ERROR);
    assert_int_equal(api->stream_sync(stream), HA_ERROR);
    assert_false(called);
}

/* the call refuses it */
static inline void refused(enum ha_status (*wrong)(void), const char *words)
{
    assert_no_failure(dev);
    assert_int_equal(wrong(), HA_ERROR);
    assert_failed(words);
}

#endif
