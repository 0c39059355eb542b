#ifndef HA_BASE_TEST_SPANS_H
#define HA_BASE_TEST_SPANS_H

/* A sink that keeps what comes, from any thread. */

#include "harness/api/device.h"
#include "harness/base/test.h"

#include <pthread.h>

static pthread_mutex_t test_spans_lock = PTHREAD_MUTEX_INITIALIZER;
struct test_spans {
    size_t count;
    struct ha_span span[8192];
};

static inline void test_spans_add(void *self, const struct ha_span *span)
{
    struct test_spans *s = (struct test_spans *)self;
    pthread_mutex_lock(&test_spans_lock);
    if (s->count < COUNT(s->span)) s->span[s->count++] = *span;
    pthread_mutex_unlock(&test_spans_lock);
}

static struct test_spans spans;
static const struct ha_span_sink sink = { &spans, test_spans_add };

#endif
