/* Each task of a run is done once, by one of the crew, the caller among them, and all are done when the run returns;
 * what they have written is there; and spans of the threads go where the caller's go. */

#include "harness/base/stores.h"
#include "harness/base/test.h"
#include "suites/parts/crew.h"

#include <pthread.h>

enum { TASKS_MAX = 1000, RUNS = 50 };
static struct ha_why why;
static struct ha_crew crew;

static void open_crew(size_t threads)
{
    if (ha_crew_create(&crew, threads, &why) != HA_OK) fail_msg("%s", why.text);
}

static struct {
    pthread_t caller;
    unsigned done[TASKS_MAX];
    size_t threads;
    uint32_t here, wrong, all; /* atomic */
} run;

static void task_of(void *arg, size_t task, size_t worker)
{
    const bool is_caller = pthread_equal(pthread_self(), run.caller);
    if (arg != &run || worker >= run.threads || is_caller != (worker == 0))
        __atomic_fetch_add(&run.wrong, 1, __ATOMIC_RELAXED);
    run.done[task]++; /* nobody else's */
}

TEST(each_task_is_done_once)
{
    static const size_t tasks[] = { 0, 1, 2, 3, 7, 8, 9, TASKS_MAX };
    run.caller = pthread_self();
    for (size_t threads = 1; threads <= HA_CREW_MAX; threads++) {
        open_crew(threads);
        run.threads = threads;
        for (size_t r = 0; r < RUNS; r++)
            for (size_t n = 0; n < COUNT(tasks); n++) {
                memset(run.done, 0, sizeof run.done);
                ha_crew_run(&crew, "test", tasks[n], task_of, &run);
                for (size_t i = 0; i < TASKS_MAX; i++) assert_int_equal(run.done[i], i < tasks[n]);
            }
        assert_int_equal(run.wrong, 0);
        ha_crew_end(&crew);
        ha_crew_end(&crew); /* of what is ended, too */
    }
}

/* As many tasks as threads, none of which ends before all have begun: nobody is left out. */
static void meet(void *arg, size_t task, size_t worker)
{
    __atomic_fetch_or(&run.here, 1U << worker, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&run.here, __ATOMIC_ACQUIRE) != run.all) continue;
}

TEST(all_threads_work_at_once)
{
    for (size_t threads = 1; threads <= HA_CREW_MAX; threads++) {
        open_crew(threads);
        for (size_t tasks = 1; tasks <= threads; tasks++) {
            run.here = 0;
            run.all = (1U << tasks) - 1;
            ha_crew_run(&crew, "meet", tasks, meet, NULL);
            assert_int_equal(run.here, run.all);
        }
        ha_crew_end(&crew);
    }
}

/* ---- spans ------------------------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    size_t spans, stores, wrong;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void span(void *self, const struct ha_span *s)
{
    pthread_mutex_lock(&seen.lock);
    const bool is_store = s->kind == HA_SPAN_H2D;
    seen.stores += is_store;
    seen.spans += !is_store;
    seen.wrong += self != &seen || s->end_ns < s->begin_ns || (is_store && s->bytes != 64);
    if (!is_store && strcmp(s->name, "meet") != 0) seen.wrong += strcmp(s->name, "caller") != 0;
    pthread_mutex_unlock(&seen.lock);
}

static void meet_and_store(void *arg, size_t task, size_t worker)
{
    const uint64_t begun = ha_stores_begin();
    meet(arg, task, worker);
    ha_stores_end(begun, 64);
}

TEST(spans_go_where_the_callers_go)
{
    enum { THREADS = 3 };
    const struct ha_span_sink sink = { .self = &seen, .span = span };
    struct ha_span own = { .kind = HA_SPAN_CPU, .lane = "caller", .name = "caller" };
    open_crew(THREADS);
    run.all = (1U << THREADS) - 1;
    run.here = 0;
    ha_stores_take();
    const struct ha_stores_lane outer = ha_stores_within((struct ha_stores_lane){ &sink, &own });
    ha_crew_run(&crew, "meet", THREADS, meet_and_store, NULL);
    ha_stores_within(outer);
    assert_int_equal(seen.stores, THREADS);
    assert_true(seen.spans >= THREADS - 1); /* a thread's own, which stores cut */
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(ha_stores_take(), THREADS * 64);

    /* a caller that has none: nobody has */
    seen.stores = seen.spans = 0;
    run.here = 0;
    ha_crew_run(&crew, "meet", THREADS, meet_and_store, NULL);
    assert_int_equal(seen.stores + seen.spans, 0);
    assert_int_equal(ha_stores_take(), THREADS * 64);
    ha_crew_end(&crew);
}

TEST(too_many_or_none_are_refused)
{
    static const size_t threads[] = { 0, HA_CREW_MAX + 1, SIZE_MAX };
    for (size_t i = 0; i < COUNT(threads); i++) {
        char words[64];
        snprintf(words, sizeof words, "%zu threads: 1 to 8", threads[i]);
        assert_int_equal(ha_crew_create(&crew, threads[i], &why), HA_ERROR);
        assert_string_equal(why.text, words);
        ha_crew_end(&crew);
    }
}
