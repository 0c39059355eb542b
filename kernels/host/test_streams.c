/* Order, independence, events, flags, deadlocks. */

#include "kernels/host/test_fixture.h"

#include "harness/base/clock.h"

/* A bell between a host function and the test. `given_up` ends a wait that a broken device would hang in. */
struct bell {
    uint32_t rung, given_up;
    struct bell *other;
};

static void bell_ring(void *arg) { __atomic_store_n(&((struct bell *)arg)->rung, 1, __ATOMIC_RELEASE); }

static void bell_await(void *arg)
{
    struct bell *b = arg;
    for (uint64_t end = ha_now_ns() + 10 * SECOND; !__atomic_load_n(&b->rung, __ATOMIC_ACQUIRE); nap(20000))
        if (ha_now_ns() > end) {
            __atomic_store_n(&b->given_up, 1, __ATOMIC_RELEASE);
            return;
        }
}

/* What host functions of a test left behind, in order. A test begins with an empty one. */
static struct {
    size_t count;
    int entry[1024];
} noted;

static int begin(void **state)
{
    noted.count = 0;
    return device_begin(state);
}

static void note(void *arg) { noted.entry[noted.count++] = *(int *)arg; }

TEST_WITH(a_stream_keeps_order, begin, device_end)
{
    enum { N = 1000 };
    static int number[N];
    for (int i = 0; i < N; i++) {
        number[i] = i;
        ok(api->host_fn(stream, note, &number[i]));
    }
    ok(api->stream_sync(stream));
    assert_int_equal(noted.count, N);
    for (int i = 0; i < N; i++) assert_int_equal(noted.entry[i], i);
}

static void await_then_ring_other(void *arg)
{
    struct bell *b = arg;
    bell_ring(b->other);
    bell_await(b);
}

/* Each waits, inside its operation, for the other to have begun: only side by side do both end. */
TEST_WITH(two_streams_run_side_by_side, begin, device_end)
{
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
    struct bell bell[2] = { { .other = &bell[1] }, { .other = &bell[0] } };
    ok(api->host_fn(a, await_then_ring_other, &bell[0]));
    ok(api->host_fn(b, await_then_ring_other, &bell[1]));
    ok(api->stream_sync(a));
    ok(api->stream_sync(b));
    assert_int_equal(bell[0].given_up + bell[1].given_up, 0);
}

TEST_WITH(a_copy_overlaps_a_busy_stream, begin, device_end)
{
    struct ha_stream *busy = device_stream(dev, "busy"), *link = device_stream(dev, "copy");
    float *d = device_alloc(dev, HA_MEM_DEVICE, 4096), *h = device_alloc(dev, HA_MEM_PINNED, 4096);
    struct bell bell = { 0 };
    h[7] = 7.0f;
    ok(api->host_fn(busy, bell_await, &bell));
    ok(api->copy(link, d, h, 4096, HA_H2D));
    ok(api->host_fn(link, bell_ring, &bell));
    ok(api->stream_sync(busy));
    assert_int_equal(bell.given_up, 0);
    assert_true(d[7] == 7.0f);
}

TEST_WITH(an_event_orders_two_streams, begin, device_end)
{
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
    struct ha_event *e = device_event(dev);
    struct bell go = { 0 };
    int number[] = { 0, 1, 2 };
    ok(api->stream_wait(b, e)); /* never recorded: no wait */
    ok(api->host_fn(b, note, &number[0]));
    ok(api->stream_sync(b));
    assert_int_equal(noted.count, 1);

    ok(api->host_fn(a, bell_await, &go));
    ok(api->host_fn(a, note, &number[1]));
    ok(api->event_record(e, a));
    ok(api->host_fn(a, note, &number[2]));
    ok(api->stream_wait(a, e)); /* of its own past: no wait */
    ok(api->stream_sync(b));
    ok(api->stream_wait(b, e));
    struct bell late = { 0 };
    ok(api->host_fn(b, bell_ring, &late));
    nap(3000000);
    assert_int_equal(__atomic_load_n(&late.rung, __ATOMIC_ACQUIRE), 0);
    bell_ring(&go);
    ok(api->event_sync(e));
    assert_int_equal(noted.entry[1], 1);
    ok(api->stream_sync(b));
    assert_int_equal(late.rung, 1);
    ok(api->stream_sync(a));
    assert_int_equal(noted.count, 3);
    assert_int_equal(go.given_up, 0);
}

/* The wait holds what was recorded before it: a later record, in a stream that is held up, does not delay it,
 * and one in a stream that is ready does not release it early. */
TEST_WITH(a_wait_takes_the_latest_record_before_it, begin, device_end)
{
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b"), *c = device_stream(dev, "c");
    struct ha_event *e = device_event(dev);
    struct bell go_a = { 0 }, go_c = { 0 }, passed = { 0 };
    ok(api->event_record(e, b)); /* done at once */
    ok(api->stream_wait(b, e));
    ok(api->host_fn(a, bell_await, &go_a));
    ok(api->event_record(e, a)); /* later and held up */
    ok(api->stream_sync(b));     /* does not wait for it */

    ok(api->stream_wait(b, e));
    ok(api->host_fn(b, bell_ring, &passed));
    ok(api->event_record(e, c)); /* later still and done: releases nobody */
    ok(api->event_sync(e));
    nap(3000000);
    assert_int_equal(__atomic_load_n(&passed.rung, __ATOMIC_ACQUIRE), 0);
    bell_ring(&go_a);
    ok(api->stream_sync(b));
    assert_int_equal(passed.rung, 1);

    /* an event may be destroyed, and its stream too, while a wait for it is queued or it is still waited for */
    ok(api->host_fn(c, bell_await, &go_c));
    ok(api->event_record(e, c));
    ok(api->stream_wait(b, e));
    bell_ring(&go_c);
    device_release(c);
    ok(api->event_sync(e));
    device_release(e);
    ok(api->stream_sync(b));
    assert_int_equal(go_a.given_up + go_c.given_up, 0);
}

TEST_WITH(flags_pass_data_both_ways, begin, device_end)
{
    enum { ROUNDS = 200 };
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, 2 * sizeof *flag);
    float *in = device_alloc(dev, HA_MEM_MAPPED, sizeof *in), *out = device_alloc(dev, HA_MEM_MAPPED, sizeof *out);
    flag[0] = flag[1] = 0;
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        ok(api->flag_wait(stream, &flag[0], i));
        ok(api->blend(stream, &(struct ha_device_blend){ .y = out, .x = in, .rows = 1, .cols = 1, .a = 0, .b = 2 }));
        ok(api->flag_write(stream, &flag[1], i));
    }
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        *in = (float)i;
        __atomic_store_n(&flag[0], i, __ATOMIC_RELEASE);
        for (uint64_t end = ha_now_ns() + 10 * SECOND; __atomic_load_n(&flag[1], __ATOMIC_ACQUIRE) < i;) {
            assert_true(ha_now_ns() < end);
            nap(1000);
        }
        assert_true(*out == 2 * (float)i);
    }
    ok(api->stream_sync(stream));
}

TEST_WITH(a_flag_releases_another_stream, begin, device_end)
{
    struct ha_stream *a = device_stream(dev, "a"), *b = device_stream(dev, "b");
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    *flag = 0;
    int number[] = { 0, 1 };
    ok(api->flag_wait(a, flag, 3));
    ok(api->host_fn(a, note, &number[1]));
    ok(api->host_fn(b, note, &number[0]));
    ok(api->flag_write(b, flag, 4));
    ok(api->stream_sync(a));
    assert_int_equal(noted.entry[0], 0);
    assert_int_equal(noted.entry[1], 1);
}

TEST(a_deadlock_is_named_and_ends)
{
    for (int again = 0; again < 2; again++) {
        dev = device_open(150000000);
        struct ha_stream *a = device_stream(dev, "alpha"), *b = device_stream(dev, "beta"),
                         *c = device_stream(dev, "gamma");
        uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, 2 * sizeof *flag);
        struct ha_event *e = device_event(dev);
        struct bell bell = { 0 };
        flag[0] = 2, flag[1] = 0;
        uint64_t begin = ha_now_ns();
        ok(api->flag_wait(a, &flag[0], 5));
        ok(api->flag_write(a, &flag[1], 1));
        ok(api->event_record(e, a));
        ok(api->flag_wait(b, &flag[1], 1));
        ok(api->flag_write(b, &flag[0], 5));
        ok(api->stream_wait(c, e));
        ok(api->host_fn(c, bell_ring, &bell));
        assert_int_equal(api->stream_sync(c), HA_ERROR);
        assert_int_equal(api->stream_sync(a), HA_ERROR);
        assert_int_equal(api->stream_sync(b), HA_ERROR);
        assert_int_equal(api->event_sync(e), HA_ERROR);
        assert_true(ha_now_ns() - begin < 10 * SECOND);
        assert_failure_has(dev, "stream alpha: flag_wait");
        assert_failure_has(dev, "at least 5, which is 2");
        assert_failure_has(dev, "stream beta: flag_wait");
        assert_failure_has(dev, "at least 1, which is 0");
        assert_failure_has(dev, "stream gamma: stream_wait for ");
        assert_null(strchr(api->failure(dev), '\n'));
        /* nothing behind the failure ran, and nothing more is taken */
        assert_int_equal(bell.rung, 0);
        assert_int_equal(api->host_fn(c, bell_ring, &bell), HA_ERROR);
        assert_int_equal(api->event_record(e, c), HA_ERROR);
        assert_int_equal(api->stream_wait(a, e), HA_ERROR);
        device_close(dev, "150 ms");
    }
}

TEST_WITH(destroy_finishes_queued_work, begin, device_end)
{
    enum { N = 500 };
    int number = 1;
    struct bell go = { 0 };
    ok(api->host_fn(stream, bell_await, &go));
    for (int i = 0; i < N; i++) ok(api->host_fn(stream, note, &number));
    bell_ring(&go);
    device_release(stream);
    assert_int_equal(noted.count, N);
    api->stream_destroy(NULL);
    api->event_destroy(NULL);
}

TEST(destroy_of_a_deadlocked_stream_returns)
{
    dev = device_open(20000000);
    stream = device_stream(dev, "main");
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    *flag = 0;
    ok(api->flag_wait(stream, flag, 1));
    device_release(stream);
    device_close(dev, "stream main: flag_wait");
}

TEST_WITH(streams_come_and_go, begin, device_end)
{
    struct ha_device_info info;
    int number = 1;
    for (int i = 0; i < 20; i++) {
        struct ha_stream *a = device_stream(dev, "same"), *b = device_stream(dev, "same");
        api->info(dev, &info);
        assert_int_equal(info.compute_threads, 3);
        ok(api->host_fn(a, note, &number));
        ok(api->stream_sync(a));
        ok(api->host_fn(b, note, &number));
        device_release(a);
        api->info(dev, &info);
        assert_int_equal(info.compute_threads, 2);
        device_release(b);
    }
    assert_int_equal(noted.count, 40);
}
