#include "harness/measure/timeline.h"
#include "harness/base/test.h"

#include <math.h>

/* ---- intervals --------------------------------------------------------------------------- */

/* Against counting moments one by one, and where a stretch of them begins. */
TEST(intervals_agree_with_counting)
{
    unsigned seed = 7;
    for (int round = 0; round < 200; round++) {
        struct ha_interval x[2][8];
        unsigned char in[2][128] = { { 0 } };
        uint64_t length[2] = { 0 }, common = 0;
        size_t n[2];
        for (int s = 0; s < 2; s++) {
            for (int i = 0; i < 8; i++) {
                seed = seed * 1664525u + 1013904223u;
                /* some are empty, or end before they begin: none of these is in the union */
                const uint64_t begin = 3 + (seed >> 8 & 63), end = begin + (seed >> 20 & 31) - (seed >> 25 & 3);
                x[s][i] = (struct ha_interval){ begin, end };
                for (uint64_t t = begin; t < end; t++) in[s][t] = 1;
            }
            size_t stretches = 0;
            for (int t = 0; t < 128; t++) stretches += in[s][t] && (!t || !in[s][t - 1]);
            n[s] = ha_interval_union(x[s], 8);
            assert_int_equal(n[s], stretches);
        }
        for (int t = 0; t < 128; t++) {
            length[0] += in[0][t];
            length[1] += in[1][t];
            common += in[0][t] & in[1][t];
        }
        assert_int_equal(ha_interval_length(x[0], n[0]), length[0]);
        assert_int_equal(ha_interval_length(x[1], n[1]), length[1]);
        assert_int_equal(ha_interval_common(x[0], n[0], x[1], n[1]), common);
        assert_int_equal(ha_interval_common(x[1], n[1], x[0], n[0]), common);
        assert_int_equal(ha_interval_common(x[0], n[0], x[1], 0), 0);
    }
}

/* ---- spans ------------------------------------------------------------------------------- */

static struct ha_timeline *timeline;

static int open_timeline(void **state) { return ha_timeline_create(&timeline, NULL) != HA_OK; }
static int close_timeline(void **state)
{
    ha_timeline_destroy(timeline);
    return 0;
}

static const char *name = "b"; /* of what is put */
static void put(enum ha_origin origin, enum ha_span_kind kind, uint64_t begin, uint64_t end, uint64_t bytes)
{
    const struct ha_span_sink *sink = ha_timeline_sink(timeline, origin);
    sink->span(
        sink->self,
        &(struct ha_span){ .begin_ns = begin, .end_ns = end, .bytes = bytes, .kind = kind, .lane = "a", .name = name });
}

/* W = [1000, 2000): kernels 1100-1300 and 1200-1500 on two streams, a copy up 1400-1600, one down 1900-2100 (half of it
 * inside), polling 1600-1900, CPU work of two threads 1250-1450; selection in the background, 1700-1750, is no
 * attention. */
TEST_WITH(a_step_by_hand, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 1100, 1300, 0);
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 1200, 1500, 0);
    put(HA_FROM_DEVICE, HA_SPAN_H2D, 1400, 1600, 4000);
    put(HA_FROM_DEVICE, HA_SPAN_D2H, 1900, 2100, 1000);
    put(HA_FROM_DEVICE, HA_SPAN_WAIT, 1600, 1900, 0);
    put(HA_FROM_DEVICE, HA_SPAN_LAUNCH, 1000, 2000, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 1250, 1450, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 1300, 1400, 0);
    put(HA_FROM_WORKER, HA_SPAN_CPU, 1700, 1750, 0);
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 500, 900, 0); /* of the step before */
    assert_int_equal(ha_timeline_measure(timeline, (struct ha_interval){ 1000, 2000 }, &u, NULL), HA_OK);
    assert_int_equal(u.wall_ns, 1000);
    assert_int_equal(u.kernel_ns, 400);
    assert_int_equal(u.copy_ns, 300);
    assert_int_equal(u.device_ns, 600);
    assert_int_equal(u.cpu_ns, 200);
    assert_int_equal(u.overlap_ns, 200);
    assert_int_equal(u.pool_ns, 300);
    assert_near(u.h2d_bytes, 4000, 1e-9);
    assert_near(u.d2h_bytes, 500, 1e-9);
    assert_int_equal(u.windows, 1);
    struct ha_ratios r = ha_usage_ratios(&u, 2);
    assert_near(r.gpu_kernel_idle, 0.6, 1e-12);
    assert_near(r.gpu_idle, 0.4, 1e-12);
    assert_near(r.cpu_idle, 1 - 300.0 / 2000, 1e-12);
    assert_near(r.overlap, 200.0 / 200, 1e-12);
    assert_near(r.h2d_link_GBps, 4000.0 / 200, 1e-12);
    assert_near(r.d2h_link_GBps, 500.0 / 100, 1e-12);
}

/* two kernels that merge, one across the window's edge, one that attends, two that predict, 20 ns of them at once,
 * and one that looks up; what else is called that is none */
TEST_WITH(kernels_have_shares_of_the_step_by_name, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 0, 500, 0);
    name = "merge";
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 600, 650, 0);
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 950, 1200, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 300, 0);
    name = "attend";
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 625, 825, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 300, 0);
    name = "features";
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 100, 170, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 300, 0);
    name = "net";
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 150, 250, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 300, 0);
    name = "similarity";
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 900, 930, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 300, 0);
    name = "b";
    ha_timeline_measure(timeline, (struct ha_interval){ 0, 1000 }, &u, NULL);
    assert_near(ha_usage_ratios(&u, 1).merge_share, 0.1, 1e-12);
    assert_near(ha_usage_ratios(&u, 1).attend_share, 0.2, 1e-12);
    assert_near(ha_usage_ratios(&u, 1).predict_share, 0.15, 1e-12);
    assert_near(ha_usage_ratios(&u, 1).lookup_share, 0.03, 1e-12);
}

/* the link is the device's side as well */
TEST_WITH(work_beside_a_copy_overlaps, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_D2H, 100, 200, 64);
    put(HA_FROM_POOL, HA_SPAN_CPU, 150, 350, 0);
    ha_timeline_measure(timeline, (struct ha_interval){ 0, 1000 }, &u, NULL);
    assert_int_equal(u.kernel_ns, 0);
    assert_int_equal(u.overlap_ns, 50);
    assert_near(ha_usage_ratios(&u, 1).overlap, 0.5, 1e-12);
}

/* Two threads, 0-400 each: one works, stores 200 bytes in 100-300, works; the other works in 0-200 and stores 100 bytes
 * in 200-400. So P = 0-200 and 300-400, C = 100-400, and they meet in 100-200 and 300-400. */
TEST_WITH(what_threads_store_is_time_of_the_link, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 100, 0);
    put(HA_FROM_POOL, HA_SPAN_H2D, 100, 300, 200);
    put(HA_FROM_POOL, HA_SPAN_CPU, 300, 400, 0);
    put(HA_FROM_POOL, HA_SPAN_CPU, 0, 200, 0);
    put(HA_FROM_POOL, HA_SPAN_H2D, 200, 400, 100);
    ha_timeline_measure(timeline, (struct ha_interval){ 0, 1000 }, &u, NULL);
    assert_int_equal(u.cpu_ns, 300);
    assert_int_equal(u.copy_ns, 300);
    assert_int_equal(u.h2d_ns, 300);
    assert_int_equal(u.overlap_ns, 200);
    assert_int_equal(u.pool_ns, 800);
    assert_near(u.h2d_bytes, 300, 1e-9);
    struct ha_ratios r = ha_usage_ratios(&u, 2);
    assert_near(r.h2d_link_GBps, 1, 1e-12);
    assert_near(r.overlap, 2.0 / 3, 1e-12);
    assert_near(r.gpu_idle, 0.7, 1e-12);
    assert_near(r.cpu_idle, 0.6, 1e-12);
}

static void enqueued(uint64_t enqueue, uint64_t begin, uint64_t end, enum ha_span_kind kind)
{
    const struct ha_span_sink *sink = ha_timeline_sink(timeline, HA_FROM_DEVICE);
    sink->span(sink->self,
               &(struct ha_span){
                   .begin_ns = begin, .end_ns = end, .kind = kind, .lane = "a", .name = "b", .enqueue_ns = enqueue });
}

static double gap_of(uint64_t begin, uint64_t end)
{
    struct ha_usage u = { .steps = 4 };
    assert_int_equal(ha_timeline_measure(timeline, (struct ha_interval){ begin, end }, &u, NULL), HA_OK);
    const double gap = ha_usage_ratios(&u, 1).launch_gap_ns;
    assert_true(isnan(gap) == isnan(u.launch_gap_ns) && (isnan(gap) || fabs(4 * gap - u.launch_gap_ns) < 1e-9));
    return u.launch_gap_ns;
}

/* W = [1000, 2000). The device is idle in
 *   1000-1100  until a kernel that was enqueued at 1040: 40
 *   1300-1400  until a copy of 1250, long there; beside it a kernel of the same begin, of 1390: 0
 *   1500-1700  until a kernel whose call returned at 1720, when it ran: all 200; a wait of 1550 is no work
 *   1800-2000  with nothing behind it: 0 */
TEST_WITH(a_launch_gap_is_what_the_host_was_late, open_timeline, close_timeline)
{
    enqueued(1390, 1400, 1450, HA_SPAN_KERNEL);
    enqueued(1720, 1700, 1800, HA_SPAN_KERNEL);
    enqueued(1040, 1100, 1300, HA_SPAN_KERNEL);
    enqueued(1280, 1150, 1200, HA_SPAN_D2H); /* within the kernel's */
    enqueued(1250, 1400, 1500, HA_SPAN_H2D);
    enqueued(1550, 1550, 1690, HA_SPAN_WAIT);
    enqueued(2100, 2150, 2200, HA_SPAN_KERNEL);    /* of the step after */
    put(HA_FROM_POOL, HA_SPAN_H2D, 1500, 1600, 8); /* what a thread stores is no operation of the device */
    assert_near(gap_of(1000, 2000), 240, 1e-9);
    assert_near(gap_of(1050, 1300), 0, 1e-9); /* it was enqueued before */
    assert_near(gap_of(1200, 1300), 0, 1e-9); /* and runs as the window begins */
    assert_near(gap_of(1800, 2160), 300, 1e-9);
    assert_true(isnan(gap_of(1810, 2000))); /* nothing ran */
}

TEST_WITH(a_launch_gap_of_an_unknown_moment_is_unknown, open_timeline, close_timeline)
{
    enqueued(1000, 1100, 1200, HA_SPAN_KERNEL);
    enqueued(0, 1150, 1300, HA_SPAN_KERNEL); /* which ends no gap */
    assert_near(gap_of(1000, 1500), 0, 1e-9);
    enqueued(0, 1400, 1450, HA_SPAN_KERNEL);
    assert_true(isnan(gap_of(1000, 1500)));
}

TEST_WITH(windows_add_up, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 0, 100, 0);
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 200, 250, 0);
    ha_timeline_measure(timeline, (struct ha_interval){ 0, 100 }, &u, NULL);
    ha_timeline_measure(timeline, (struct ha_interval){ 200, 300 }, &u, NULL);
    assert_int_equal(u.windows, 2);
    assert_near(ha_usage_ratios(&u, 1).gpu_kernel_idle, 0.25, 1e-12);
}

/* A coarse clock gives short copies no length: each has its bytes, in one window. */
TEST_WITH(an_instant_has_its_bytes, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_H2D, 100, 100, 30);
    put(HA_FROM_DEVICE, HA_SPAN_H2D, 200, 200, 5);
    put(HA_FROM_DEVICE, HA_SPAN_H2D, 300, 300, 7);
    ha_timeline_measure(timeline, (struct ha_interval){ 100, 200 }, &u, NULL);
    assert_near(u.h2d_bytes, 30, 0);
    assert_int_equal(u.h2d_ns, 0);
    ha_timeline_measure(timeline, (struct ha_interval){ 200, 300 }, &u, NULL);
    assert_near(u.h2d_bytes, 35, 0);
}

/* What did not run has no ratio: empty, not 0. */
TEST_WITH(nothing_is_not_zero, open_timeline, close_timeline)
{
    struct ha_usage u = { 0 };
    put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 10, 20, 0);
    ha_timeline_measure(timeline, (struct ha_interval){ 0, 100 }, &u, NULL);
    struct ha_ratios r = ha_usage_ratios(&u, 1);
    assert_true(isnan(r.overlap));
    assert_true(isnan(r.h2d_link_GBps));
    assert_near(r.cpu_idle, 1, 0);
}

TEST(one_long_step_does_not_speak_for_all)
{
    const struct ha_usage steps[] = {
        { .wall_ns = 100, .kernel_ns = 50, .device_ns = 50, .h2d_ns = 10, .h2d_bytes = 40 },
        { .wall_ns = 100, .kernel_ns = 60, .device_ns = 60 },
        { .wall_ns = 100000, .kernel_ns = 70, .device_ns = 70 }
    };
    struct ha_ratios r;
    assert_int_equal(ha_usage_medians(steps, 3, 1, &r, NULL), HA_OK);
    assert_near(r.gpu_kernel_idle, 0.5, 1e-12);
    assert_near(r.h2d_link_GBps, 4, 1e-12);
    assert_true(isnan(r.d2h_link_GBps) && isnan(r.overlap));
    assert_int_equal(ha_usage_medians(steps, 0, 1, &r, NULL), HA_OK);
    assert_true(isnan(r.gpu_idle));
}

TEST_WITH(clear_forgets, open_timeline, close_timeline)
{
    for (int i = 0; i < 10000; i++) put(HA_FROM_DEVICE, HA_SPAN_KERNEL, 0, 1, 0);
    assert_int_equal(ha_timeline_count(timeline), 10000);
    assert_int_equal(ha_timeline_dropped(timeline), 0);
    ha_timeline_clear(timeline);
    assert_int_equal(ha_timeline_count(timeline), 0);
}
