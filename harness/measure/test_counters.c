/* Counters of a made-up system: on every thread, between two readings, and nothing left open. */

#include "harness/measure/counters.h"

#include "harness/base/test.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 2, MOST = 64 };

static struct ha_why why;
static struct ha_pool *pool;
static struct {
    uint64_t config[MOST];
    pthread_t thread[MOST];
    bool closed[MOST];
    atomic_int opened;
    uint64_t refused; /* a config; UINT64_MAX: none */
    size_t runs;
    bool all, idle, blind; /* all: nothing is opened; idle: no counter had a turn; blind: none is read */
} fake;

static int fake_open(uint32_t type, uint64_t config)
{
    if (fake.all || config == fake.refused) return -1;
    const int i = atomic_fetch_add(&fake.opened, 1);
    assert_true(i < MOST);
    fake.config[i] = config;
    fake.thread[i] = pthread_self();
    return i;
}

/* what was there before, and in a run 1000 times its config and one more, in half of the time */
static bool fake_read(int i, uint64_t value[3])
{
    assert_true(i >= 0 && i < fake.opened && !fake.closed[i]);
    value[0] = 77 + fake.runs * 1000 * (fake.config[i] + 1);
    value[1] = 500 + fake.runs * 100;
    value[2] = 400 + (fake.idle ? 0 : fake.runs * 50);
    return !fake.blind;
}

static void fake_close(int i)
{
    assert_true(i >= 0 && !fake.closed[i]);
    fake.closed[i] = true;
}

static const struct ha_counters_system made_up = { fake_open, fake_read, fake_close };
static void run(void *arg) { fake.runs++; }

static int begin(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.refused = UINT64_MAX;
    return ha_pool_create(&pool, HA_TEAM_OWN, THREADS, &why) == HA_OK ? 0 : -1;
}

static int end(void **state)
{
    for (int i = 0; i < fake.opened; i++) assert_true(fake.closed[i]);
    ha_pool_destroy(pool);
    return 0;
}

TEST_WITH(all_threads_count, begin, end)
{
    double count[HA_COUNTERS];
    ha_counters_take(&made_up, pool, run, NULL, count);
    assert_int_equal(fake.runs, 1);
    size_t own = 0;
    for (int i = 0; i < fake.opened; i++) own += pthread_equal(fake.thread[i], pthread_self()) != 0;
    assert_int_equal(fake.opened, 1 + THREADS * HA_COUNTERS); /* one to see whether there are any */
    assert_int_equal(own, 1 + HA_COUNTERS);
    assert_true(count[HA_COUNTER_CYCLES] == THREADS * 2000);
    for (size_t e = 1; e < HA_COUNTERS; e++) assert_true(count[e] > count[HA_COUNTER_CYCLES]);
}

TEST_WITH(an_event_that_is_not_there_is_nan, begin, end)
{
    double count[HA_COUNTERS];
    fake.refused = 8; /* stalled-cycles-backend */
    ha_counters_take(&made_up, pool, run, NULL, count);
    assert_true(isnan(count[HA_COUNTER_STALLS]));
    assert_true(count[HA_COUNTER_CYCLES] > 0 && count[HA_COUNTER_MISSES] > 0 && count[HA_COUNTER_WALKS] > 0);
}

TEST_WITH(counters_without_a_turn_or_a_reading_are_nan, begin, end)
{
    double count[HA_COUNTERS];
    fake.idle = true;
    ha_counters_take(&made_up, pool, run, NULL, count);
    for (size_t e = 0; e < HA_COUNTERS; e++) assert_true(isnan(count[e]));
    fake.idle = false;
    fake.blind = true;
    ha_counters_take(&made_up, pool, run, NULL, count);
    for (size_t e = 0; e < HA_COUNTERS; e++) assert_true(isnan(count[e]));
}

TEST_WITH(without_cycles_nothing_is_run, begin, end)
{
    double count[HA_COUNTERS] = { 0 };
    fake.all = true;
    ha_counters_take(&made_up, pool, run, NULL, count);
    for (size_t e = 0; e < HA_COUNTERS; e++) assert_true(isnan(count[e]));
    assert_true(fake.runs == 0 && fake.opened == 0);
}

/* The system's own either count, or say so. */
TEST_WITH(the_system_has_counters_or_none, begin, end)
{
    double count[HA_COUNTERS];
    ha_counters_take(&ha_counters_linux, pool, run, NULL, count);
    print_message("%zu runs, %.0f cycles\n", fake.runs, count[HA_COUNTER_CYCLES]);
    assert_true(fake.runs == 1 || isnan(count[HA_COUNTER_CYCLES]));
}
