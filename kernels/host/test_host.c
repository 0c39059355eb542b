/* What is the embedded device's own: turns on its link, streams that stay, the kernels it is given, the guards. */

#include "kernels/host/host.h"
#include "kernels/host/test_fixture.h"

#include "harness/base/clock.h"

/* The test itself takes the link up: copies up wait for it, in the order in which they came; down goes on. */
DEVICE_TEST(copies_of_one_direction_take_turns)
{
    struct ha_stream *up[2] = { device_stream(dev, "up"), device_stream(dev, "up") },
                     *down = device_stream(dev, "down");
    char *d = device_alloc(dev, HA_MEM_DEVICE, 64), *h = device_alloc(dev, HA_MEM_PINNED, 64);
    memset(h, 1, 64);
    memset(d, 2, 64);
    ha_host_link_take(&dev->link[HA_H2D]);
    for (size_t i = 0; i < 2; i++) {
        h[i] = (char)(10 + i);
        ok(api->copy(up[i], d, h + i, 1, HA_H2D));
        for (uint64_t end = ha_now_ns() + 10 * SECOND, waiting = 0; waiting < 2 + i; nap(20000)) {
            assert_true(ha_now_ns() < end);
            pthread_mutex_lock(&dev->link[HA_H2D].lock);
            waiting = dev->link[HA_H2D].next - dev->link[HA_H2D].serving;
            pthread_mutex_unlock(&dev->link[HA_H2D].lock);
        }
    }
    ok(api->copy(down, h + 8, d + 8, 8, HA_D2H));
    ok(api->stream_sync(down));
    assert_int_equal(h[8], 2);
    nap(2000000);
    assert_int_equal(__atomic_load_n(&up[0]->done, __ATOMIC_ACQUIRE) + __atomic_load_n(&up[1]->done, __ATOMIC_ACQUIRE),
                     0);
    ha_host_link_give(&dev->link[HA_H2D]);
    ok(api->stream_sync(up[0]));
    ok(api->stream_sync(up[1]));
    assert_int_equal(d[0], 11);
}

DEVICE_TEST(streams_stay_for_the_next_of_their_name)
{
    size_t kept = 0;
    for (int i = 0; i < 20; i++) {
        struct ha_stream *a = device_stream(dev, "same"), *b = device_stream(dev, "same");
        assert_string_not_equal(a->lane, b->lane);
        device_release(a);
        device_release(b);
    }
    for (const struct ha_stream *s = dev->streams; s; s = s->next) kept++;
    assert_int_equal(kept, 3); /* with that of the test */
}

DEVICE_TEST(what_is_freed_is_forgotten)
{
    for (size_t i = 0; i < 3; i++) device_release(device_alloc(dev, (enum ha_memory)i, 64));
    assert_int_equal(dev->memory.regions.count, 0);
}

TEST(a_deadlock_says_how_far_a_stream_is)
{
    dev = device_open(20000000);
    struct ha_stream *a = device_stream(dev, "alpha"), *b = device_stream(dev, "beta");
    struct ha_event *e = device_event(dev);
    uint32_t *flag = device_alloc(dev, HA_MEM_MAPPED, sizeof *flag);
    *flag = 2;
    ok(api->flag_wait(a, flag, 5));
    ok(api->flag_write(a, flag, 9));
    ok(api->event_record(e, a));
    ok(api->stream_wait(b, e));
    assert_int_equal(api->stream_sync(b), HA_ERROR);
    assert_int_equal(api->stream_sync(a), HA_ERROR);
    assert_int_equal(*flag, 2); /* nothing behind the failure ran */
    device_close(dev, "stream beta: stream_wait for operation 2 of stream alpha, which has done 0");
}

TEST(a_device_without_kernels_is_refused)
{
    struct ha_kernels half = test_kernels;
    half.merge = NULL;
    assert_int_equal(api->open(&dev, &(struct ha_device_config){ NULL, 0 }, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no kernel table"));
    assert_int_equal(api->open(&dev, &(struct ha_device_config){ &half, 0 }, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no merge"));
}

DEVICE_TEST(info_is_that_of_the_kernels)
{
    struct ha_device_info info;
    device_release(stream);
    api->info(dev, &info);
    assert_int_equal(info.merge.states_max, HA_HOST_STATES_MAX);
    assert_non_null(strstr(info.name, "test"));
    assert_int_equal(info.compute_threads, 1);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++)
        assert_memory_equal(&info.profile[t], &test_kernels.profile, sizeof info.profile[t]);
    const struct ha_merge_traits *of = &test_kernels.traits, *merge = &info.merge;
    assert_true(merge->exp_eps == of->exp_eps && merge->log_eps == of->log_eps
                && merge->depth_extra == of->depth_extra);
    assert_true(merge->forms == of->forms && merge->dtypes == of->dtypes && merge->o_strides == of->o_strides);
}
