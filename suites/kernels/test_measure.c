/* Samples count where cores and memory kept their pace; others are taken again. */

#include "suites/kernels/measure.h"

#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/engine/plan.h"

static struct ha_why why;
static const uint64_t cap_ns = 20000000;
static struct ha_cpu_teams teams;
static struct ha_cpu_team *team;
static struct ha_cpu_store store;
static struct ha_kernels kernels;

static int open_all(void **state)
{
    if (ha_kernels_resolve(NULL, &kernels, &why) != HA_OK) return -1;
    if (ha_cpu_teams_open(&teams, &why) != HA_OK || ha_cpu_teams_get(&teams, HA_TEAM_DEFAULT, 1, &team, &why) != HA_OK)
        return -1;
    return ha_cpu_store_open(&store, 1, &why) == HA_OK && ha_cpu_team_ready(team, &kernels, &why) == HA_OK ? 0 : -1;
}

static int close_all(void **state)
{
    ha_cpu_store_close(&store);
    ha_cpu_teams_close(&teams);
    return 0;
}

/* Reads half of the memory of a ceiling much faster than the other half: readings take turns with them. It knows the
 * halves after two. */
static uint64_t uneven(const void *p, size_t bytes)
{
    static const void *first;
    static size_t calls, all;
    if (!first) first = p;
    if (p == first) calls = 0;
    const uint64_t begin = ha_now_ns(), ns = 2 * calls++ < all ? 2000 : 40000;
    while (ha_now_ns() - begin < ns) (void)bytes;
    all = calls > all ? calls : all;
    return 0;
}

/* Counts what is read of memory. */
static size_t reads;
static uint64_t counted(const void *p, size_t bytes)
{
    reads++;
    return 0;
}

static struct ha_cpu_row measure(const char *point)
{
    struct ha_cpu_row r = { 0 };
    struct ha_cpu_work work;
    char id[256];
    struct ha_cpu_point p;
    const struct ha_suite *suite;
    snprintf(id, sizeof id, "cpu_kernels:%s", point);
    assert_int_equal(ha_id_parse(id, &suite, &p, sizeof p, &why), HA_OK);
    assert_int_equal(ha_cpu_work_open(&work, &p, &kernels, NULL, team->pool, &store, &why), HA_OK);
    assert_int_equal(ha_cpu_measure(&work, team, cap_ns, 0, NULL, &r, &why), HA_OK);
    ha_cpu_work_close(&work);
    return r;
}

static bool disturbed(const struct ha_cpu_row *r) { return !strcmp(r->disturbed, "load"); }

TEST(speed_is_a_share_of_the_best)
{
    double best = 0;
    team->rate[0] = 0;
    for (int i = 0; i < 200; i++) {
        const double x = ha_cpu_team_speed(team);
        assert_true(x > 0 && x <= 1);
        best = x > best ? x : best;
    }
    assert_true(best == 1 && team->rate[0] > 0);

    team->rate[0] *= 1000; /* a host may become several times as fast meanwhile */
    for (int i = 0; i < 20; i++) assert_true(ha_cpu_team_speed(team) < 0.3);
}

/* A team of 0 threads is one of all. The scale is a median of quotients, here held against the quotient of medians:
 * where other work makes them differ, another try tells. */
TEST(scale_is_that_of_the_threads)
{
    struct ha_cpu_team *before = team;
    assert_int_equal(ha_cpu_teams_get(&teams, HA_TEAM_DEFAULT, 0, &team, &why), HA_OK);
    assert_int_equal(ha_cpu_team_ready(team, &kernels, &why), HA_OK);
    bool right = false;
    for (int i = 0; i < 20 && !right; i++) {
        const struct ha_cpu_row r = measure("kernel=softmax,ctx=300,heads=2/1,threads=all");
        const double scale = r.ceiling_GBps / ((double)ha_pool_threads(team->pool) * r.ceiling_1_GBps);
        print_message("scale %.2f, of the medians %.2f\n", r.scale, scale);
        right = r.scale > 0.7 * scale && r.scale < 1.4 * scale;
    }
    team = before;
    assert_true(right);
}

TEST(slow_samples_are_taken_again_and_named)
{
    team->rate[0] = 1e9;
    const struct ha_cpu_row r = measure("kernel=softmax,ctx=300,heads=2/1,threads=1");
    assert_true(disturbed(&r) && r.retried > 0 && r.head.samples == r.retried);
}

/* with a team whose memory is read so; `one`: calls of a reading, of which two were before */
static struct ha_cpu_row measure_reading(uint64_t (*read)(const void *, size_t), const char *point, size_t *one)
{
    struct ha_cpu_teams own;
    struct ha_cpu_team *before = team;
    struct ha_kernels k = kernels;
    k.read = read;
    k.read_streams = NULL;
    assert_int_equal(ha_cpu_teams_open(&own, &why), HA_OK);
    assert_int_equal(ha_cpu_teams_get(&own, HA_TEAM_DEFAULT, 1, &team, &why), HA_OK);
    assert_int_equal(ha_cpu_team_ready(team, &k, &why), HA_OK);
    reads = 0;
    for (int i = 0; i < 2; i++) ha_paired_read_all(team->paired);
    *one = reads / 2;
    reads = 0;
    const struct ha_cpu_row r = measure(point);
    team = before;
    ha_cpu_teams_close(&own);
    return r;
}

TEST(samples_between_ceilings_that_differ_too)
{
    size_t one;
    const struct ha_cpu_row r = measure_reading(uneven, "kernel=softmax,ctx=300,heads=2/1,threads=1", &one);
    assert_true(disturbed(&r)
                && r.retried > r.head.samples / 2); /* not of all: a host that stops for a while makes readings alike */
}

TEST(readings_take_as_long_as_a_sample)
{
    assert_int_equal(ha_cpu_readings_for(38e6, 4e6), 5);
    assert_int_equal(ha_cpu_readings_for(10e6, 4e6), 1);
    assert_int_equal(ha_cpu_readings_for(1e3, 4e6), 1);
    assert_int_equal(ha_cpu_readings_for(1e9, 4e6), 8);
}

TEST(memory_is_read_so_often)
{
    size_t one;
    const struct ha_cpu_row r = measure_reading(counted, "kernel=softmax,ctx=200000,heads=32/8,threads=1", &one);
    const double taken = disturbed(&r) ? r.head.samples : r.head.samples + r.retried;
    assert_true(r.readings == 8); /* they take no time */
    assert_true(one > 0 && (double)reads == (double)one * (HA_CPU_FIRST_READINGS + (1 + taken) * r.readings));
}

TEST_MAIN { return test_all("tests", open_all, close_all); }
