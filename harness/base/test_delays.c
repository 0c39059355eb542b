#include "harness/base/thread.h"
#include "harness/base/delays.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"
#include "harness/base/worker.h"

#include <time.h>

TEST(delays_are_what_they_say)
{
    enum { DRAWN = 40000, ONE_IN = 4 };
    struct ha_delays d = { .seed = 3, .stream = 1, .one_in = ONE_IN }, again = d, other = d, seed = d;
    other.stream = 2;
    seed.seed = 4;
    size_t none = 0, longer = 0, differ = 0, differ_too = 0;
    for (size_t i = 0; i < DRAWN; i++) {
        const uint64_t ns = ha_delays_next(&d);
        assert_true(ns == 0 || (ns >= 1000 && ns <= 200000) || (ns >= 1000000 && ns <= 4000000));
        assert_true(ns == ha_delays_next(&again));
        differ += ns != ha_delays_next(&other);
        differ_too += ns != ha_delays_next(&seed);
        none += ns == 0;
        longer += ns > 200000;
    }
    assert_int_equal(d.drawn, DRAWN);
    assert_in_range(none, DRAWN * 3 / 4 - 600, DRAWN * 3 / 4 + 600);
    assert_in_range(longer, DRAWN / ONE_IN / 32 - 100, DRAWN / ONE_IN / 32 + 100);
    assert_true(differ > DRAWN / ONE_IN && differ_too > DRAWN / ONE_IN);
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }
static void no_job(void *arg) { (void)arg; }

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

TEST(a_sleep_is_no_shorter)
{
    const uint64_t begin = now_ns();
    ha_sleep_ns(2000000);
    assert_true(now_ns() - begin >= 2000000);
    ha_sleep_ns(0);
}

TEST(each_task_of_a_pool_is_delayed_until_it_is_ended)
{
    struct ha_delays d = { .one_in = 1 };
    struct ha_why why;
    for (enum ha_team team = 0; team < HA_TEAMS; team++) {
        struct ha_pool *pool;
        assert_int_equal(ha_pool_create(&pool, team, 2, &why), HA_OK);
        d.drawn = 0;
        ha_pool_delay(pool, &d);
        const uint64_t begin = now_ns();
        ha_pool_run(pool, "nothing", 1, nothing, NULL);
        assert_true(now_ns() - begin >= ha_delays_next(&(struct ha_delays){ .one_in = 1 }));
        ha_pool_run(pool, "nothing", 6, nothing, NULL);
        ha_pool_each(pool, "nothing", nothing, NULL);
        assert_int_equal(d.drawn, 1 + 6 + 2);
        ha_pool_delay(pool, NULL);
        ha_pool_run(pool, "nothing", 6, nothing, NULL);
        assert_int_equal(d.drawn, 1 + 6 + 2);
        ha_pool_destroy(pool);
    }
}

TEST(each_job_of_a_worker_is_delayed_until_it_is_ended)
{
    struct ha_delays d = { .one_in = 1 };
    struct ha_worker *worker;
    struct ha_why why;
    assert_int_equal(ha_worker_create(&worker, &why), HA_OK);
    ha_worker_delay(worker, &d);
    const uint64_t begin = now_ns();
    ha_worker_wait(worker, ha_worker_submit(worker, "nothing", no_job, NULL));
    assert_true(now_ns() - begin >= ha_delays_next(&(struct ha_delays){ .one_in = 1 }));
    ha_worker_wait(worker, ha_worker_submit(worker, "nothing", no_job, NULL));
    assert_int_equal(d.drawn, 2);
    ha_worker_delay(worker, NULL);
    ha_worker_wait(worker, ha_worker_submit(worker, "nothing", no_job, NULL));
    assert_int_equal(d.drawn, 2);
    ha_worker_destroy(worker);
}
