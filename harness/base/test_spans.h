#ifndef HA_BASE_TEST_SPANS_H
#define HA_BASE_TEST_SPANS_H

/* A sink that keeps what comes, from any thread. */

#include "harness/api/device.h"
#include "harness/base/test.h"

#include <pthread.h>

struct test_spans {
    pthread_mutex_t lock;
    size_t count;
    struct ha_span span[8192];
};

static inline void test_spans_add(void *self, const struct ha_span *span)
{
    struct test_spans *s = self;
    pthread_mutex_lock(&s->lock);
    if (s->count < COUNT(s->span)) s->span[s->count++] = *span;
    pthread_mutex_unlock(&s->lock);
}

static struct test_spans spans = { .lock = PTHREAD_MUTEX_INITIALIZER };
static const struct ha_span_sink sink = { &spans, test_spans_add };

#endif
