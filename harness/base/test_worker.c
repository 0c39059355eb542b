#include "harness/base/worker.h"
#include "harness/base/clock.h"
#include "harness/base/stores.h"
#include "harness/base/test_spans.h"

#include <stdatomic.h>
#include <unistd.h>

static struct ha_worker *worker;

/* Not atomic on purpose: the queue must order all of it. */
static struct {
    size_t count, log[4000];
} done;

static int start(void **state)
{
    struct ha_why why;
    done.count = 0;
    return ha_worker_create(&worker, &why) != HA_OK;
}

static int finish(void **state)
{
    ha_worker_destroy(worker);
    worker = NULL; /* which is destroyed, too */
    return 0;
}

static void add(void *arg) { done.log[done.count++] = (size_t)(uintptr_t)arg; }

static void nap(void *arg)
{
    usleep(5000);
    add(arg);
}

TEST_WITH(jobs_run_in_order, start, finish)
{
    ha_worker_wait(worker, 0);
    uint64_t ticket = 0;
    for (uintptr_t i = 0; i < 3000; i++) {
        ticket = ha_worker_submit(worker, "add", add, (void *)i);
        assert_int_equal(ticket, i + 1);
    }
    ha_worker_wait(worker, ticket);
    assert_int_equal(done.count, 3000);
    for (size_t i = 0; i < 3000; i++) assert_int_equal(done.log[i], i);
}

TEST_WITH(wait_covers_all_earlier_jobs, start, finish)
{
    ha_worker_submit(worker, "nap", nap, (void *)1);
    uint64_t ticket = ha_worker_submit(worker, "nap", nap, (void *)2);
    ha_worker_wait(worker, ticket);
    assert_int_equal(done.count, 2);
    ha_worker_wait(worker, 1);
}

TEST_WITH(destroy_finishes_the_queue, start, finish)
{
    for (uintptr_t i = 0; i < 5; i++) ha_worker_submit(worker, "nap", nap, (void *)i);
    finish(NULL);
    assert_int_equal(done.count, 5);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void pass_the_gate(void *arg)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static atomic_uint queued;

static void *fill(void *unused)
{
    for (uintptr_t i = 0; i < 1100; i++) {
        ha_worker_submit(worker, "add", add, (void *)i);
        atomic_fetch_add(&queued, 1);
    }
    return NULL;
}

/* Behind a job that hangs, exactly 1024 are taken without blocking. */
TEST_WITH(only_a_full_queue_blocks, start, finish)
{
    pthread_t filler;
    pthread_mutex_lock(&gate);
    ha_worker_submit(worker, "gate", pass_the_gate, NULL);
    usleep(20000);
    assert_int_equal(pthread_create(&filler, NULL, fill, NULL), 0);
    for (int i = 0; i < 1000 && atomic_load(&queued) < 1024; i++) usleep(2000);
    usleep(20000);
    assert_int_equal(atomic_load(&queued), 1024);
    pthread_mutex_unlock(&gate);
    pthread_join(filler, NULL);
    finish(NULL);
    assert_int_equal(done.count, 1100);
}

TEST_WITH(spans_tell_what_ran, start, finish)
{
    spans.count = 0;
    ha_worker_submit(worker, "before", add, NULL);
    ha_worker_wait(worker, 1);
    ha_worker_trace(worker, &sink);
    uint64_t begin = ha_now_ns();
    ha_worker_submit(worker, "nap", nap, NULL);
    ha_worker_wait(worker, ha_worker_submit(worker, "add", add, NULL));
    uint64_t end = ha_now_ns();
    ha_worker_trace(worker, NULL);
    assert_int_equal(spans.count, 2);
    ha_worker_wait(worker, ha_worker_submit(worker, "after", add, NULL));
    assert_int_equal(spans.count, 2);
    assert_string_equal(spans.span[0].name, "nap");
    assert_string_equal(spans.span[1].name, "add");
    assert_string_equal(spans.span[0].lane, "background");
    assert_int_equal(spans.span[0].kind, HA_SPAN_CPU);
    assert_true(spans.span[0].begin_ns >= begin && spans.span[1].end_ns <= end);
    assert_true(spans.span[0].end_ns - spans.span[0].begin_ns >= 4900000);
    assert_true(spans.span[1].begin_ns >= spans.span[0].end_ns);
}

static void store_behind_the_gate(void *arg)
{
    const uint64_t begun = ha_stores_begin();
    pass_the_gate(arg);
    ha_stores_end(begun, 5);
}

TEST_WITH(stores_cut_the_span_of_a_job, start, finish)
{
    spans.count = 0;
    ha_stores_take();
    ha_worker_trace(worker, &sink);
    ha_worker_wait(worker, ha_worker_submit(worker, "put", store_behind_the_gate, NULL));
    ha_worker_trace(worker, NULL);
    assert_int_equal(ha_stores_take(), 5);
    /* the job's own, if it took a moment until it stored, the store, and the job's rest */
    assert_true(spans.count == 2 || spans.count == 3);
    const struct ha_span *stored = &spans.span[spans.count - 2], *rest = stored + 1;
    assert_int_equal(stored->kind, HA_SPAN_H2D);
    assert_int_equal(stored->bytes, 5);
    assert_string_equal(stored->lane, "background");
    assert_int_equal(rest->kind, HA_SPAN_CPU);
    assert_string_equal(rest->name, "put");
    assert_int_equal(rest->begin_ns, stored->end_ns);
}

/* Not even the span of the job that is running comes after tracing has ended. */
TEST_WITH(ended_tracing_is_silent, start, finish)
{
    spans.count = 0;
    ha_stores_take();
    pthread_mutex_lock(&gate);
    ha_worker_trace(worker, &sink);
    uint64_t ticket = ha_worker_submit(worker, "gate", store_behind_the_gate, NULL);
    usleep(20000);
    ha_worker_trace(worker, NULL);
    pthread_mutex_unlock(&gate);
    ha_worker_wait(worker, ticket);
    assert_int_equal(spans.count, 0);
    assert_int_equal(ha_stores_take(), 5);
}
