#include "harness/base/pool.h"
#include "harness/base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const size_t team_sizes[] = { 1, 2, 5, 8 };
enum { TEAMS = sizeof team_sizes / sizeof *team_sizes, TASKS = 3000 };

static enum ha_team team;
static cpu_set_t mask_at_start;

static int keep_mask(void **state)
{
    (void)state;
    return sched_getaffinity(0, sizeof mask_at_start, &mask_at_start);
}

/* Whatever a pool did, the thread that used it may run where it could before. */
static void assert_mask_kept(void)
{
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &mask_at_start));
}

static struct ha_pool *make(size_t threads)
{
    struct ha_pool *pool;
    struct ha_why why;
    assert_int_equal(ha_pool_create(&pool, team, threads, &why), HA_OK);
    return pool;
}

static void pause_ms(long ms)
{
    struct timespec t = { .tv_nsec = ms * 1000000 };
    nanosleep(&t, NULL);
}

/* Plain memory on purpose: a run must order it before what follows. */
struct work {
    size_t threads, sum[8], times[TASKS];
};

static void count(void *arg, size_t task, size_t worker)
{
    struct work *w = arg;
    if (worker >= w->threads) abort();
    w->sum[worker] += task;
    w->times[task]++;
}

static void every_task_runs_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEAMS; i++) {
        struct ha_pool *pool = make(team_sizes[i]);
        assert_int_equal(ha_pool_threads(pool), team_sizes[i]);
        struct work w = { .threads = team_sizes[i] };
        for (size_t run = 1; run <= 5; run++) {
            ha_pool_run(pool, "count", TASKS, count, &w);
            for (size_t t = 0; t < TASKS; t++) assert_int_equal(w.times[t], run);
        }
        size_t sum = 0;
        for (size_t t = 0; t < 8; t++) sum += w.sum[t];
        assert_int_equal(sum, (size_t)5 * TASKS * (TASKS - 1) / 2);
        ha_pool_run(pool, "none", 0, count, NULL);
        ha_pool_run(pool, "one", 1, count, &w);
        assert_int_equal(w.times[0], 6);
        ha_pool_destroy(pool);
        assert_mask_kept();
    }
    ha_pool_destroy(NULL);
}

static void order(void *arg, size_t task, size_t worker)
{
    size_t *next = arg;
    assert_int_equal(worker, 0);
    assert_int_equal(task, *next);
    ++*next;
}

static void tasks_are_pulled_lowest_first(void **state)
{
    (void)state;
    struct ha_pool *pool = make(1);
    size_t next = 0;
    ha_pool_run(pool, "order", 100, order, &next);
    assert_int_equal(next, 100);
    ha_pool_destroy(pool);
}

/* Each task waits for the others: the run ends only if as many workers take part at once. */
static void meet(void *arg, size_t task, size_t worker)
{
    (void)task;
    (void)worker;
    pthread_barrier_wait(arg);
}

static void workers_run_at_the_same_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEAMS; i++) {
        struct ha_pool *pool = make(team_sizes[i]);
        pthread_barrier_t all;
        pthread_barrier_init(&all, NULL, (unsigned)team_sizes[i]);
        ha_pool_run(pool, "meet", team_sizes[i], meet, &all);
        pthread_barrier_destroy(&all);
        ha_pool_destroy(pool);
    }
}

struct places {
    pthread_barrier_t all;
    cpu_set_t of[8];
    int caller_cpu;
};

static void look(void *arg, size_t task, size_t worker)
{
    (void)task;
    struct places *p = arg;
    sched_getaffinity(0, sizeof p->of[worker], &p->of[worker]);
    if (worker == 0) p->caller_cpu = sched_getcpu();
    pthread_barrier_wait(&p->all);
}

static void look_at_places(size_t threads, struct places *p)
{
    struct ha_pool *pool = make(threads);
    pthread_barrier_init(&p->all, NULL, (unsigned)threads);
    ha_pool_run(pool, "look", threads, look, p);
    pthread_barrier_destroy(&p->all);
    ha_pool_destroy(pool);
}

/* Puts the caller on a CPU, and lets it go again. */
static void go_to(size_t cpu, const cpu_set_t *mask)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(sched_setaffinity(0, sizeof *mask, mask), 0);
}

/* As many workers as cores: each on its own. The caller, wherever it was, goes to the one that is
 * left, keeping its mask. A pool with more workers than cores lets go of them again. */
static void workers_are_pinned_apart(void **state)
{
    (void)state;
    enum { RUNS = 15 };
    const cpu_set_t before = mask_at_start;
    struct ha_pool *pool = make(0);
    size_t cores = ha_pool_threads(pool), apart = 0;
    ha_pool_destroy(pool);
    assert_true(cores >= 1 && cores <= (size_t)CPU_COUNT(&before));
    if (cores < 2 || cores >= 8) skip();

    struct places p;
    for (size_t run = 0; run < RUNS; run++) {
        size_t from = run;
        while (!CPU_ISSET(from % CPU_SETSIZE, &before)) from++;
        go_to(from % CPU_SETSIZE, &before);
        look_at_places(cores, &p);
        assert_true(CPU_EQUAL(&p.of[0], &before));
        bool alone = true;
        for (size_t a = 1; a < cores; a++) {
            cpu_set_t both;
            CPU_AND(&both, &p.of[a], &before);
            assert_true(CPU_EQUAL(&both, &p.of[a]));
            assert_true(CPU_COUNT(&p.of[a]) < CPU_COUNT(&before));
            for (size_t b = a + 1; b < cores; b++) {
                CPU_AND(&both, &p.of[a], &p.of[b]);
                assert_int_equal(CPU_COUNT(&both), 0);
            }
            alone = alone && !CPU_ISSET((size_t)p.caller_cpu, &p.of[a]);
        }
        apart += alone;
    }
    /* on a busy machine the scheduler may move the caller in between, now and then */
    assert_true(apart > RUNS / 2);

    look_at_places(cores + 1, &p);
    for (size_t a = 0; a <= cores; a++) assert_true(CPU_EQUAL(&p.of[a], &before));
}

/* In a process that is held on one CPU, no worker leaves it. */
static void a_restriction_is_respected(void **state)
{
    (void)state;
    const cpu_set_t before = mask_at_start;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = CPU_SETSIZE; cpu-- > 0 && CPU_COUNT(&one) == 0;)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct ha_pool *pool = make(0);
    size_t cores = ha_pool_threads(pool);
    ha_pool_destroy(pool);
    struct places p;
    look_at_places(3, &p);
    sched_setaffinity(0, sizeof before, &before);
    assert_int_equal(cores, 1);
    for (size_t a = 0; a < 3; a++) assert_true(CPU_EQUAL(&p.of[a], &one));
}

static void nap(void *arg, size_t task, size_t worker)
{
    (void)arg;
    (void)task;
    (void)worker;
    pause_ms(4);
}

static void busy_time_is_the_sum_over_workers(void **state)
{
    (void)state;
    struct ha_pool *pool = make(4);
    assert_int_equal(ha_pool_busy_ns(pool), 0);
    uint64_t begin = ha_now_ns();
    ha_pool_run(pool, "nap", 8, nap, NULL);
    uint64_t wall = ha_now_ns() - begin, busy = ha_pool_busy_ns(pool);
    assert_true(busy >= 8 * 3900000);
    assert_true(busy <= 4 * wall);
    assert_int_equal(ha_pool_busy_ns(pool), 0);
    /* who has nothing to do is not busy */
    begin = ha_now_ns();
    ha_pool_run(pool, "nap", 1, nap, NULL);
    wall = ha_now_ns() - begin;
    busy = ha_pool_busy_ns(pool);
    assert_true(busy >= 3900000 && busy <= wall);
    ha_pool_destroy(pool);
}

static struct {
    pthread_mutex_t lock;
    size_t count;
    struct ha_span span[64];
} trace = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep(void *self, const struct ha_span *span)
{
    (void)self;
    pthread_mutex_lock(&trace.lock);
    trace.span[trace.count++] = *span;
    pthread_mutex_unlock(&trace.lock);
}

static void spans_tell_who_ran_what(void **state)
{
    (void)state;
    static const struct ha_span_sink sink = { NULL, keep };
    static const char *const lanes[] = { "cpu 0", "cpu 1", "cpu 2" };
    struct ha_pool *pool = make(3);
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 3);
    ha_pool_run(pool, "before", 3, meet, &all);
    ha_pool_busy_ns(pool);
    ha_pool_trace(pool, &sink);
    uint64_t begin = ha_now_ns();
    ha_pool_run(pool, "meet", 3, meet, &all);
    ha_pool_run(pool, "one", 1, nap, NULL);
    uint64_t end = ha_now_ns(), busy = ha_pool_busy_ns(pool), sum = 0;
    ha_pool_trace(pool, NULL);
    ha_pool_run(pool, "after", 3, meet, &all);
    pthread_barrier_destroy(&all);
    ha_pool_destroy(pool);

    assert_int_equal(trace.count, 4);
    size_t seen[3] = { 0 };
    for (size_t i = 0; i < 4; i++) {
        const struct ha_span *s = &trace.span[i];
        assert_int_equal(s->kind, HA_SPAN_CPU);
        assert_string_equal(s->name, i < 3 ? "meet" : "one");
        assert_true(s->begin_ns >= begin && s->end_ns <= end && s->end_ns > s->begin_ns);
        sum += s->end_ns - s->begin_ns;
        for (size_t l = 0; l < 3; l++) seen[l] += i < 3 && strcmp(s->lane, lanes[l]) == 0;
    }
    assert_true(seen[0] == 1 && seen[1] == 1 && seen[2] == 1);
    assert_true(sum == busy);
}

/* ---- start and join --------------------------------------------------------------------------- */

/* Runs as small as there can be: a wake-up that was lost would hang, a worker that came late would be missed in the
 * sum. */
static void tiny_runs(struct ha_pool *pool, size_t runs, struct work *w)
{
    memset(w, 0, sizeof *w);
    w->threads = ha_pool_threads(pool);
    for (size_t run = 1; run <= runs; run++) {
        const size_t tasks = run % 4;
        ha_pool_run(pool, "tiny", tasks, count, w);
    }
    for (size_t t = 0; t < 3; t++) assert_int_equal(w->times[t], runs / 4 * (3 - t));
}

static void thousands_of_tiny_runs(void **state)
{
    static const size_t teams[] = { 2, 3, 8 };
    (void)state;
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        struct ha_pool *pool = make(teams[i]);
        struct work w;
        tiny_runs(pool, teams[i] > 2 ? 400 : 8000, &w);
        ha_pool_share(pool); /* now every run finds the workers asleep, or on their way */
        tiny_runs(pool, 400, &w);
        ha_pool_destroy(pool);
    }
}

/* Pauses around the time that workers stay awake: runs come while they go to sleep, and long after. */
static void runs_after_pauses(void **state)
{
    (void)state;
    struct ha_pool *pool = make(2);
    struct work w = { .threads = 2 };
    size_t runs = 0;
    for (uint64_t pause_ns = 90000; pause_ns < 115000; pause_ns += 100, runs++) {
        const uint64_t begin = ha_now_ns();
        while (ha_now_ns() - begin < pause_ns) continue;
        ha_pool_run(pool, "late", 2, count, &w);
    }
    pause_ms(20);
    ha_pool_run(pool, "late", 2, count, &w);
    assert_true(w.times[0] == runs + 1 && w.times[1] == runs + 1);
    ha_pool_destroy(pool);
    ha_pool_destroy(make(8)); /* that never ran */
}

/* One caller at a time, each another thread, on several pools that take turns. */
struct turns {
    struct ha_pool *pool[3];
    struct work work;
};

static void *call(void *arg)
{
    struct turns *t = arg;
    for (size_t i = 0; i < 30; i++) ha_pool_run(t->pool[i % 3], "turn", 3, count, &t->work);
    return NULL;
}

static void callers_and_pools_take_turns(void **state)
{
    (void)state;
    enum { CALLERS = 20 };
    struct turns t = { .pool = { make(2), make(3), make(8) }, .work = { .threads = 8 } };
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_t caller;
        assert_int_equal(pthread_create(&caller, NULL, call, &t), 0);
        pthread_join(caller, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(t.work.times[i], CALLERS * 30);
        ha_pool_destroy(t.pool[i]);
    }
    assert_mask_kept();
}

static void *run_own(void *arg)
{
    struct turns *t = arg;
    for (size_t i = 0; i < 100; i++) ha_pool_run(t->pool[0], "own", 3, count, &t->work);
    return NULL;
}

static void many_pools_at_once(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    static struct turns t[CALLERS];
    pthread_t caller[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        t[i] = (struct turns){ .pool = { make(1 + i) }, .work = { .threads = 1 + i } };
        assert_int_equal(pthread_create(&caller[i], NULL, run_own, &t[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(caller[i], NULL);
        for (size_t task = 0; task < 3; task++) assert_int_equal(t[i].work.times[task], 100);
        ha_pool_destroy(t[i].pool[0]);
    }
}

/* Each worker once, whoever is slow. */
static void each_worker_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEAMS; i++) {
        struct ha_pool *pool = make(team_sizes[i]);
        struct work w = { .threads = team_sizes[i] };
        for (size_t run = 0; run < 20; run++) ha_pool_each(pool, "each", count, &w);
        for (size_t t = 0; t < team_sizes[i]; t++) {
            assert_int_equal(w.times[t], 20);
            assert_int_equal(w.sum[t], 20 * t);
        }
        assert_int_equal(w.times[team_sizes[i]], 0);
        ha_pool_destroy(pool);
    }
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* what the process takes of the CPU around runs that are a moment apart */
static double taken_ns(struct ha_pool *pool)
{
    struct work w = { .threads = 8 };
    const double begin = cpu_ns();
    for (size_t i = 0; i < 50; i++) {
        ha_pool_run(pool, "count", 2, count, &w);
        nanosleep(&(struct timespec){ .tv_nsec = 250000 }, NULL);
    }
    return cpu_ns() - begin;
}

/* Workers stay awake for a moment, unless the cores are shared, and sleep after it. */
static void who_waits_sleeps(void **state)
{
    (void)state;
    struct ha_pool *pool = make(0), *two = make(2), *eight = make(8);
    const size_t cores = ha_pool_threads(pool);
    ha_pool_destroy(pool);
    const double many = taken_ns(eight), awake = taken_ns(two);
    pause_ms(2);
    const double begin = cpu_ns();
    pause_ms(40);
    const double idle = cpu_ns() - begin;
    ha_pool_share(two);
    const double asleep = taken_ns(two);
    ha_pool_destroy(two);
    ha_pool_destroy(eight);
    assert_true(idle < 10e6);
    if (cores < 2) skip();
    assert_true(asleep < 0.75 * awake);
    if (cores < 8) assert_true(many < awake);
}

static void too_many_threads_are_refused(void **state)
{
    (void)state;
    struct ha_pool *pool;
    struct ha_why why;
    assert_int_equal(ha_pool_create(&pool, team, HA_POOL_THREADS_MAX + 1, &why), HA_ERROR);
    assert_null(pool);
    assert_string_equal(why.text, "1025 threads: at most 1024");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(tasks_are_pulled_lowest_first),
        cmocka_unit_test(workers_run_at_the_same_time),
        cmocka_unit_test(workers_are_pinned_apart),
        cmocka_unit_test(a_restriction_is_respected),
        cmocka_unit_test(busy_time_is_the_sum_over_workers),
        cmocka_unit_test(spans_tell_who_ran_what),
        cmocka_unit_test(thousands_of_tiny_runs),
        cmocka_unit_test(runs_after_pauses),
        cmocka_unit_test(callers_and_pools_take_turns),
        cmocka_unit_test(many_pools_at_once),
        cmocka_unit_test(each_worker_once),
        cmocka_unit_test(who_waits_sleeps),
        cmocka_unit_test(too_many_threads_are_refused),
    };
    alarm(300); /* a wake-up that is lost hangs */
    return cmocka_run_group_tests(tests, keep_mask, NULL);
}
