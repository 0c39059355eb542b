#define _GNU_SOURCE /* sched_setaffinity, gettid */
#include "harness/base/pool.h"
#include "harness/base/clock.h"
#include "harness/base/delays.h"
#include "harness/base/stores.h"
#include "harness/base/test_spans.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const size_t team_sizes[] = { 1, 2, 5, 8 };
enum { TEAMS = COUNT(team_sizes), TASKS = 3000 };

static enum ha_team team;
static cpu_set_t mask_at_start;

static int keep_mask(void **state) { return sched_getaffinity(0, sizeof mask_at_start, &mask_at_start); }

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

TEST(every_task_runs_once)
{
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

TEST(tasks_are_pulled_lowest_first)
{
    struct ha_pool *pool = make(1);
    size_t next = 0;
    ha_pool_run(pool, "order", 100, order, &next);
    assert_int_equal(next, 100);
    ha_pool_destroy(pool);
}

/* of LLVM's runtime: how long the calling thread stays awake; it has a clock of its own */
extern int kmp_get_blocktime(void) __attribute__((weak));

/* Of each worker: where it may run, who it is, how long it stays awake. */
struct crowd {
    pthread_barrier_t all;
    cpu_set_t place[8];
    pid_t thread[8];
    int awake_ms[8];
};

/* Each task waits for the others: the run ends only if as many workers take part at once. */
static void meet(void *arg, size_t task, size_t worker) { pthread_barrier_wait(arg); }

static void tell(void *arg, size_t task, size_t worker)
{
    struct crowd *c = arg;
    sched_getaffinity(0, sizeof c->place[worker], &c->place[worker]);
    c->thread[worker] = gettid();
    if (kmp_get_blocktime) c->awake_ms[worker] = kmp_get_blocktime();
    meet(&c->all, task, worker);
}

static void ask(struct ha_pool *pool, struct crowd *c)
{
    pthread_barrier_init(&c->all, NULL, (unsigned)ha_pool_threads(pool));
    ha_pool_run(pool, "tell", ha_pool_threads(pool), tell, c);
    pthread_barrier_destroy(&c->all);
}

TEST(workers_run_at_the_same_time)
{
    for (size_t i = 0; i < TEAMS; i++) {
        struct ha_pool *pool = make(team_sizes[i]);
        struct crowd c;
        ask(pool, &c);
        ha_pool_destroy(pool);
    }
}

static bool apart(const cpu_set_t *a, const cpu_set_t *b)
{
    cpu_set_t both;
    CPU_AND(&both, a, b);
    return CPU_COUNT(&both) == 0;
}

/* A core's part of what this process may use. */
static void assert_core(const cpu_set_t *place)
{
    cpu_set_t both;
    CPU_AND(&both, place, &mask_at_start);
    assert_true(CPU_EQUAL(&both, place));
    assert_true(CPU_COUNT(place) > 0 && CPU_COUNT(place) < CPU_COUNT(&mask_at_start));
}

/* As many workers as cores: each on its own, and the caller is held nowhere. A pool with more workers than cores lets
 * go of them again. */
TEST(workers_are_pinned_apart)
{
    struct ha_pool *pool = make(0);
    const size_t cores = ha_pool_threads(pool);
    assert_true(cores >= 1 && cores <= (size_t)CPU_COUNT(&mask_at_start));
    struct crowd p;
    if (cores > 1 && cores < 8) {
        ask(pool, &p);
        assert_true(CPU_EQUAL(&p.place[0], &mask_at_start));
        for (size_t a = 1; a < cores; a++) {
            assert_core(&p.place[a]);
            for (size_t b = a + 1; b < cores; b++) assert_true(apart(&p.place[a], &p.place[b]));
        }
    }
    ha_pool_destroy(pool);
    if (cores < 2 || cores >= 8) skip();

    struct ha_pool *more = make(cores + 1);
    ask(more, &p);
    ha_pool_destroy(more);
    for (size_t a = 0; a <= cores; a++) assert_true(CPU_EQUAL(&p.place[a], &mask_at_start));
}

/* Masks that this thread was given, by hwloc too. */
static struct {
    size_t count;
    cpu_set_t mask[8];
} given;

__attribute__((visibility("default"))) int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
    if (gettid() == getpid() && given.count < 8) memcpy(&given.mask[given.count++], mask, size);
    return (int)syscall(SYS_sched_setaffinity, pid, size, mask);
}

/* The caller, where another worker's core is, is moved to the one that is left, and may leave it again. */
TEST(the_caller_is_moved_and_let_go)
{
    struct ha_pool *pool = make(0);
    const size_t cores = ha_pool_threads(pool);
    struct crowd p;
    if (cores > 1 && cores < 8) {
        ask(pool, &p);
        const cpu_set_t other = p.place[1];
        assert_int_equal(sched_setaffinity(0, sizeof other, &other), 0);
        given.count = 0;
        ask(pool, &p);
        assert_int_equal(given.count, 2);
        assert_core(&given.mask[0]);
        for (size_t w = 1; w < cores; w++) assert_true(apart(&given.mask[0], &p.place[w]));
        assert_true(CPU_EQUAL(&given.mask[1], &mask_at_start));
        assert_mask_kept();

        const cpu_set_t own = given.mask[0];
        assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
        given.count = 0;
        ask(pool, &p);
        assert_int_equal(given.count, 0); /* it is there */
        assert_int_equal(sched_setaffinity(0, sizeof mask_at_start, &mask_at_start), 0);
    }
    ha_pool_destroy(pool);
    if (cores < 2 || cores >= 8) skip();
}

/* In a process that is held on one CPU, no worker leaves it. */
TEST(a_restriction_is_respected)
{
    const cpu_set_t before = mask_at_start;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t cpu = CPU_SETSIZE; cpu-- > 0 && CPU_COUNT(&one) == 0;)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    struct ha_pool *pool = make(0);
    size_t cores = ha_pool_threads(pool);
    ha_pool_destroy(pool);
    struct ha_pool *three = make(3);
    struct crowd p;
    ask(three, &p);
    ha_pool_destroy(three);
    sched_setaffinity(0, sizeof before, &before);
    assert_int_equal(cores, 1);
    for (size_t a = 0; a < 3; a++) assert_true(CPU_EQUAL(&p.place[a], &one));
}

static void nap(void *arg, size_t task, size_t worker) { usleep(4000); }

TEST(spans_tell_who_ran_what)
{
    static const char *const lanes[] = { "cpu 0", "cpu 1", "cpu 2" };
    struct ha_pool *pool = make(3);
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, 3);
    ha_pool_run(pool, "before", 3, meet, &all);
    spans.count = 0;
    ha_pool_trace(pool, &sink);
    uint64_t begin = ha_now_ns();
    ha_pool_run(pool, "meet", 3, meet, &all);
    ha_pool_run(pool, "one", 1, nap, NULL);
    uint64_t end = ha_now_ns();
    ha_pool_trace(pool, NULL);
    ha_pool_run(pool, "after", 3, meet, &all);
    pthread_barrier_destroy(&all);
    ha_pool_destroy(pool);

    assert_int_equal(spans.count, 4);
    size_t seen[3] = { 0 };
    for (size_t i = 0; i < 4; i++) {
        const struct ha_span *s = &spans.span[i];
        assert_int_equal(s->kind, HA_SPAN_CPU);
        assert_string_equal(s->name, i < 3 ? "meet" : "one");
        assert_true(s->begin_ns >= begin && s->end_ns <= end && s->end_ns > s->begin_ns);
        for (size_t l = 0; l < 3; l++) seen[l] += i < 3 && strcmp(s->lane, lanes[l]) == 0;
    }
    assert_true(seen[0] == 1 && seen[1] == 1 && seen[2] == 1);
    assert_true(spans.span[3].end_ns - spans.span[3].begin_ns >= 3900000); /* the nap */
}

/* 300 and 20 bytes; what is stored outside of a task, or untraced, has no span and counts all the same. */
static void store_twice(void *arg, size_t task, size_t worker)
{
    usleep(1000);
    for (size_t i = 0; i < 2; i++) {
        const uint64_t begun = ha_stores_begin();
        usleep(2000);
        ha_stores_end(begun, i ? 20 : 300);
    }
    usleep(1000);
}

TEST(stores_cut_the_span_of_their_thread)
{
    static const struct {
        enum ha_span_kind kind;
        uint64_t bytes, least_ns;
        const char *name;
    } want[] = { { HA_SPAN_CPU, 0, 900000, "put" },
                 { HA_SPAN_H2D, 300, 1900000, "store" },
                 { HA_SPAN_H2D, 20, 1900000, "store" },
                 { HA_SPAN_CPU, 0, 900000, "put" } };
    struct ha_pool *pool = make(2);
    ha_stores_take();
    spans.count = 0;
    ha_pool_run(pool, "put", 2, store_twice, NULL);
    assert_int_equal(ha_stores_take(), 640);
    ha_pool_trace(pool, &sink);
    ha_pool_run(pool, "put", 1, store_twice, NULL);
    ha_stores_end(ha_stores_begin(), 7);
    ha_pool_trace(pool, NULL);
    ha_pool_run(pool, "put", 1, store_twice, NULL);
    assert_int_equal(ha_stores_take(), 320 + 7 + 320);
    assert_int_equal(ha_stores_take(), 0);
    ha_pool_destroy(pool);

    size_t seen = 0;
    for (size_t i = 0; i < spans.count; i++) {
        const struct ha_span *s = &spans.span[i];
        assert_string_equal(s->lane, "cpu 0");
        if (i) assert_true(s->begin_ns >= spans.span[i - 1].end_ns);
        /* between the two stores there may be a moment of work */
        if (s->kind == HA_SPAN_CPU && seen == 2) continue;
        assert_true(seen < COUNT(want));
        assert_int_equal(s->kind, want[seen].kind);
        assert_int_equal(s->bytes, want[seen].bytes);
        assert_string_equal(s->name, want[seen].name);
        assert_true(s->end_ns - s->begin_ns >= want[seen].least_ns);
        seen++;
    }
    assert_int_equal(seen, COUNT(want));
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

TEST(thousands_of_tiny_runs)
{
    static const size_t teams[] = { 2, 3, 8 };
    for (size_t i = 0; i < COUNT(teams); i++) {
        struct ha_pool *pool = make(teams[i]);
        struct work w;
        tiny_runs(pool, teams[i] > 2 ? 400 : 8000, &w);
        ha_pool_share(pool); /* now every run finds the workers asleep, or on their way */
        tiny_runs(pool, 400, &w);
        ha_pool_rest(pool); /* and the workers find the caller asleep */
        tiny_runs(pool, 400, &w);
        ha_pool_destroy(pool);
    }
}

/* Pauses around the time that workers stay awake: runs come while they go to sleep, and long after. */
TEST(runs_after_pauses)
{
    struct ha_pool *pool = make(2);
    struct work w = { .threads = 2 };
    size_t runs = 0;
    for (uint64_t pause_ns = HA_POOL_AWAKE_NS - 100000; pause_ns < HA_POOL_AWAKE_NS + 150000;
         pause_ns += 1000, runs++) {
        const uint64_t begin = ha_now_ns();
        while (ha_now_ns() - begin < pause_ns) continue;
        ha_pool_run(pool, "late", 2, count, &w);
    }
    usleep(20000);
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

enum { TURNS = 90 };
static void *call(void *arg)
{
    struct turns *t = arg;
    for (size_t i = 0; i < TURNS; i++) ha_pool_run(t->pool[i % 3], "turn", 3, count, &t->work);
    return NULL;
}

TEST(callers_and_pools_take_turns)
{
    enum { CALLERS = 20 };
    struct turns t = { .pool = { make(2), make(3), make(8) }, .work = { .threads = 8 } };
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_t caller;
        assert_int_equal(pthread_create(&caller, NULL, call, &t), 0);
        pthread_join(caller, NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(t.work.times[i], CALLERS * TURNS);
        ha_pool_destroy(t.pool[i]);
    }
    assert_mask_kept();
}

TEST(many_pools_at_once)
{
    enum { CALLERS = 4 };
    static struct turns t[CALLERS];
    pthread_t caller[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        struct ha_pool *own = make(1 + i);
        t[i] = (struct turns){ .pool = { own, own, own }, .work = { .threads = 1 + i } };
        assert_int_equal(pthread_create(&caller[i], NULL, call, &t[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(caller[i], NULL);
        for (size_t task = 0; task < 3; task++) assert_int_equal(t[i].work.times[task], TURNS);
        ha_pool_destroy(t[i].pool[0]);
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

enum { GROUPS_MAX = 6, GROUP_TASKS = 200 };

/* Which groups each worker has, in its order, by hand: "01 2" is 0 and 1 of the first worker, 2 of the second. */
static const struct deal {
    size_t threads, groups;
    const char *of;
} deals[] = {
    { 1, 1, "0" },         { 1, 3, "012" },       { 2, 2, "0 1" },        { 2, 5, "01 234" },
    { 5, 1, "0 0 0 0 0" }, { 5, 2, "0 0 0 1 1" }, { 5, 6, "0 1 2 3 45" }, { 8, 3, "0 0 0 1 1 1 2 2" },
};

/* Of all groups of a run. */
struct dealt {
    const struct deal *deal;
    struct share {
        struct dealt *run;
        size_t group, workers, times[GROUP_TASKS];
    } share[GROUPS_MAX];
    size_t last[8]; /* the latest group of each worker */
    pthread_barrier_t all;
    struct ha_pool_group group[GROUPS_MAX];
};

static const char *groups_of(const struct deal *deal, size_t worker)
{
    const char *of = deal->of;
    while (worker-- > 0) of = strchr(of, ' ') + 1;
    return of;
}

static bool has_group(const struct deal *deal, size_t worker, size_t group)
{
    const char *of = groups_of(deal, worker), *found = strchr(of, '0' + (int)group);
    return found && found < of + strcspn(of, " ");
}

/* Plain memory on purpose, here too. */
static void share_task(void *arg, size_t task, size_t worker)
{
    struct share *s = arg;
    struct dealt *run = s->run;
    if (worker >= run->deal->threads || !has_group(run->deal, worker, s->group)) abort();
    if (s->group < run->last[worker]) abort();
    run->last[worker] = s->group;
    s->times[task]++;
}

/* A worker that took another task, too, would leave one waiting for ever. */
static void share_meets(void *arg, size_t task, size_t worker)
{
    share_task(arg, task, worker);
    meet(&((struct share *)arg)->run->all, task, worker);
}

static struct ha_pool_group *deal_out(struct dealt *d, const struct deal *deal,
                                      void (*fn)(void *arg, size_t task, size_t worker))
{
    *d = (struct dealt){ .deal = deal };
    for (size_t g = 0; g < deal->groups; g++) {
        struct share *s = &d->share[g];
        *s = (struct share){ .run = d, .group = g };
        for (size_t w = 0; w < deal->threads; w++) s->workers += has_group(deal, w, g);
        assert_true(s->workers > 0);
        d->group[g] = (struct ha_pool_group){ .fn = fn, .arg = s };
    }
    return d->group;
}

/* once more each task of each group, and nothing behind them */
static void assert_times(struct dealt *d, size_t times)
{
    for (size_t g = 0; g < GROUPS_MAX; g++)
        for (size_t t = 0; t < GROUP_TASKS; t++)
            assert_int_equal(d->share[g].times[t], t < d->group[g].tasks ? times : 0);
    memset(d->last, 0, sizeof d->last);
}

/* Every run of groups in its ways: called or started, of many tasks in each group, in some, in none. */
TEST(groups_keep_to_their_own_workers)
{
    static const size_t tasks[][GROUPS_MAX] = {
        { 3, 3, 3, 3, 3, 3 }, { 0, 1, 0, GROUP_TASKS, 0, 2 }, { GROUP_TASKS, 0, 7, 0, 1, 0 }, { 0, 0, 0, 0, 0, 0 }
    };
    struct ha_why why;
    struct dealt d;
    for (size_t i = 0; i < COUNT(deals); i++) {
        struct ha_pool *pool = make(deals[i].threads);
        assert_int_equal(ha_pool_background(pool, &why), HA_OK);
        ha_pool_run_groups(pool, "no group", NULL, 0);
        for (size_t k = 0; k < COUNT(tasks); k++) {
            struct ha_pool_group *group = deal_out(&d, &deals[i], share_task);
            for (size_t g = 0; g < deals[i].groups; g++) group[g].tasks = tasks[k][g];
            for (size_t run = 0; run < 20; run++) {
                ha_pool_run_groups(pool, "called", group, deals[i].groups);
                assert_times(&d, 2 * run + 1);
                ha_pool_start_groups(pool, "started", group, deals[i].groups);
                ha_pool_wait(pool);
                assert_times(&d, 2 * run + 2);
            }
        }
        ha_pool_destroy(pool);
        assert_mask_kept();
    }
}

/* As many tasks in each group as it has workers, all of which meet: the run ends only if every worker takes one. */
TEST(groups_run_side_by_side)
{
    struct dealt d;
    for (size_t i = 0; i < COUNT(deals); i++) {
        if (deals[i].groups > deals[i].threads) continue;
        struct ha_pool *pool = make(deals[i].threads);
        struct ha_pool_group *group = deal_out(&d, &deals[i], share_meets);
        for (size_t g = 0; g < deals[i].groups; g++) group[g].tasks = d.share[g].workers;
        pthread_barrier_init(&d.all, NULL, (unsigned)deals[i].threads);
        for (size_t run = 1; run <= 10; run++) {
            ha_pool_run_groups(pool, "meet", group, deals[i].groups);
            assert_times(&d, run);
        }
        pthread_barrier_destroy(&d.all);
        ha_pool_destroy(pool);
    }
}

static void nap_in_group(void *arg, size_t task, size_t worker)
{
    share_task(arg, task, worker);
    nap(NULL, task, worker);
}

/* A span for each worker that did work, whatever its group; a delay for each task. */
TEST(groups_are_traced_and_delayed)
{
    static const struct deal deal = { 3, 3, "0 1 2" };
    struct ha_delays delays = { .seed = 1, .one_in = 4 };
    struct ha_pool *pool = make(3);
    struct dealt d;
    struct ha_pool_group *group = deal_out(&d, &deal, nap_in_group);
    group[0].tasks = 2;
    group[2].tasks = 3;
    spans.count = 0;
    ha_pool_trace(pool, &sink);
    ha_pool_delay(pool, &delays);
    ha_pool_run_groups(pool, "grouped", group, 3);
    ha_pool_delay(pool, NULL);
    ha_pool_trace(pool, NULL);
    ha_pool_run_groups(pool, "unseen", group, 3);
    ha_pool_destroy(pool);
    assert_times(&d, 2);
    assert_int_equal(delays.drawn, 5);
    assert_int_equal(spans.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct ha_span *s = &spans.span[i];
        const bool is_first = strcmp(s->lane, "cpu 0") == 0;
        assert_string_equal(s->name, "grouped");
        assert_string_equal(s->lane, is_first ? "cpu 0" : "cpu 2");
        assert_true(s->end_ns - s->begin_ns >= (is_first ? 2 : 3) * UINT64_C(3900000));
        assert_true(i == 0 || strcmp(s->lane, spans.span[0].lane));
    }
}

/* ---- in the background ----------------------------------------------------------------------- */

struct started {
    atomic_bool go, seen; /* the caller is back; a task has seen that */
    uint64_t end_ns;      /* of all waiting */
    pthread_t caller;
    atomic_size_t of_caller; /* tasks that the caller ran itself */
    struct work work;
};

/* Each waits until the caller is back, all of them for ten seconds. */
static void await_caller(void *arg, size_t task, size_t worker)
{
    struct started *s = arg;
    while (!atomic_load(&s->go) && ha_now_ns() < s->end_ns) usleep(100);
    if (atomic_load(&s->go)) atomic_store(&s->seen, true);
    if (pthread_equal(pthread_self(), s->caller)) atomic_fetch_add(&s->of_caller, 1);
    count(&s->work, task, worker);
}

TEST(what_is_started_goes_on_without_the_caller)
{
    for (size_t i = 0; i < TEAMS; i++) {
        struct ha_pool *pool = make(team_sizes[i]);
        struct started s = { .caller = pthread_self(),
                             .end_ns = ha_now_ns() + UINT64_C(10000000000),
                             .work = { .threads = team_sizes[i] } };
        struct ha_why why;
        ha_pool_wait(pool); /* nothing was started */
        assert_int_equal(ha_pool_background(pool, &why), HA_OK);
        assert_int_equal(ha_pool_background(pool, &why), HA_OK);
        ha_pool_start(pool, "started", 8, await_caller, &s);
        atomic_store(&s.go, true);
        ha_pool_wait(pool);
        assert_true(atomic_load(&s.seen) && atomic_load(&s.of_caller) == 0);
        for (size_t t = 0; t < 8; t++) assert_int_equal(s.work.times[t], 1);
        ha_pool_wait(pool); /* again: nothing is left */
        ha_pool_destroy(pool);
        assert_mask_kept();
    }
}

/* Plain memory goes from the caller to the tasks and back, whoever calls them. */
TEST(started_and_called_runs_take_turns)
{
    struct ha_pool *pool = make(3);
    struct work w = { .threads = 3 };
    struct ha_why why;
    assert_int_equal(ha_pool_background(pool, &why), HA_OK);
    for (size_t i = 0; i < 300; i++) {
        ha_pool_start(pool, "started", 5, count, &w);
        if (i % 7 == 0) sched_yield();
        ha_pool_wait(pool);
        for (size_t t = 0; t < 5; t++) assert_int_equal(w.times[t], 2 * i + 1);
        ha_pool_run(pool, "called", 5, count, &w);
        for (size_t t = 0; t < 5; t++) assert_int_equal(w.times[t], 2 * i + 2);
    }
    ha_pool_start(pool, "left", 5, count, &w);
    ha_pool_destroy(pool); /* which waits for it */
    for (size_t t = 0; t < 5; t++) assert_int_equal(w.times[t], 601);
    assert_mask_kept();
}

static void count_late(void *arg, size_t task, size_t worker)
{
    usleep(500);
    count(arg, task, worker);
}

/* Nobody waits but the pool: the next run, called or started, finds all tasks of the one before done, and so does what
 * sets traces and delays. */
TEST(the_next_call_waits_for_what_was_started)
{
    struct ha_pool *pool = make(2);
    struct work w = { .threads = 2 };
    struct ha_pool_group each[3];
    struct ha_why why;
    for (size_t g = 0; g < 3; g++) each[g] = (struct ha_pool_group){ .tasks = 2 + g, .fn = count_late, .arg = &w };
    assert_int_equal(ha_pool_background(pool, &why), HA_OK);
    for (size_t i = 0; i < 5; i++) {
        for (size_t g = 0; g < 3; g++) ha_pool_start_groups(pool, "started", &each[g], 1);
        ha_pool_start(pool, "behind them", 2, count_late, &w);
        ha_pool_start(pool, "the last", 2, count_late, &w);
        ha_pool_run(pool, "called", 2, count, &w);
        assert_true(w.times[0] == 10 * i + 6 && w.times[1] == 10 * i + 6);
        assert_true(w.times[2] == 2 * (i + 1) && w.times[3] == i + 1);
        ha_pool_start(pool, "started", 2, count_late, &w);
        ha_pool_trace(pool, NULL);
        assert_true(w.times[0] == 10 * i + 7 && w.times[1] == 10 * i + 7);
        ha_pool_start(pool, "started", 2, count_late, &w);
        ha_pool_delay(pool, NULL);
        assert_true(w.times[0] == 10 * i + 8 && w.times[1] == 10 * i + 8);
        ha_pool_start(pool, "started", 2, count_late, &w);
        ha_pool_run_groups(pool, "called", each, 1);
        assert_true(w.times[0] == 10 * i + 10 && w.times[1] == 10 * i + 10);
    }
    ha_pool_destroy(pool);
}

/* Each worker once, whoever is slow. */
TEST(each_worker_once)
{
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

/* ---- awake and asleep -------------------------------------------------------------------------- */

/* The clock that the pool reads. */
static atomic_bool frozen;

uint64_t ha_now_ns(void)
{
    struct timespec now;
    if (atomic_load(&frozen)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool asleep(pid_t thread)
{
    char path[64], state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
    fclose(f);
    return state == 'S';
}

/* Returns when all but the caller do; the alarm rings where they never do. */
static void await_sleep(const struct crowd *c, size_t threads)
{
    for (size_t w = 1; w < threads; w++)
        while (!asleep(c->thread[w])) usleep(1000);
}

/* A worker with a core of its own is awake until its time is over: while the clock stands still it does not sleep. One
 * that shares its core, or has none, sleeps although the clock stands still. */
TEST(who_waits_sleeps)
{
    struct ha_pool *pool = make(0), *two = make(2), *eight = make(8);
    const size_t cores = ha_pool_threads(pool);
    const bool stops = team == HA_TEAM_OWN; /* its clock does */
    struct crowd c = { .awake_ms = { 0 } };
    ha_pool_destroy(pool);
    atomic_store(&frozen, stops);
    if (cores < 8) {
        ask(eight, &c);
        await_sleep(&c, 8);
        for (size_t w = 0; w < 8; w++) assert_int_equal(c.awake_ms[w], 0);
    }
    if (cores >= 2) {
        ask(two, &c);
        for (int i = 0; stops && i < 50; i++, usleep(1000)) assert_false(asleep(c.thread[1]));
        const int awake_ms = !stops && kmp_get_blocktime ? HA_POOL_AWAKE_NS / 1000000 : 0;
        assert_true(c.awake_ms[0] == awake_ms && c.awake_ms[1] == awake_ms);
        atomic_store(&frozen, false);
        await_sleep(&c, 2);
        atomic_store(&frozen, stops);
        ha_pool_share(two);
        ask(two, &c);
        await_sleep(&c, 2);
        assert_true(c.awake_ms[0] == awake_ms && c.awake_ms[1] == 0);
        ha_pool_rest(two);
        ask(two, &c);
        await_sleep(&c, 2);
        assert_true(c.awake_ms[0] == 0 && c.awake_ms[1] == 0);
    }
    atomic_store(&frozen, false);
    ha_pool_destroy(two);
    ha_pool_destroy(eight);
}

TEST(teams_have_names)
{
    struct ha_pool *pool = make(1);
    assert_int_equal(ha_pool_team(pool), team);
    ha_pool_destroy(pool);
    assert_string_equal(ha_team_name(HA_TEAM_OPENMP), "openmp");
    assert_string_equal(ha_team_name(HA_TEAM_OWN), "own");
    assert_null(ha_team_name(HA_TEAMS));
}

TEST(too_many_threads_are_refused)
{
    struct ha_pool *pool;
    struct ha_why why;
    assert_int_equal(ha_pool_create(&pool, team, HA_POOL_THREADS_MAX + 1, &why), HA_ERROR);
    assert_null(pool);
    assert_string_equal(why.text, "1025 threads: at most 1024");
}

TEST_MAIN
{
    alarm(300); /* a wake-up that is lost hangs */
    int failed = 0;
    for (team = 0; team < HA_TEAMS; team++) failed += test_all(ha_team_name(team), keep_mask, NULL);
    return failed;
}
