/* Each task is taken once, in order, by a side that may take it; by both sides at once, too, and where one of them is
 * slow the other takes the rest. Nothing here hangs on a clock. */

#include "harness/base/arena.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"
#include "suites/block_sparse/tasks.h"

#include <math.h>
#include <sched.h>

enum { MOST = 200, MANY = HA_SANITIZED ? 4000 : 40000, WORKERS = 3 };

static struct ha_why why;
static struct ha_context ctx;
static struct ha_tasks t;

static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static int set_up(void **state)
{
    ok(ha_arena_create(&ctx.arena, true, &why));
    ok(ha_pool_create(&ctx.pool, HA_TEAM_OWN, WORKERS, &why));
    ok(ha_pool_background(ctx.pool, &why));
    ok(ha_tasks_create(&t, &ctx, MANY, &why));
    return 0;
}

static int tear_down(void **state)
{
    ha_pool_destroy(ctx.pool);
    ok(ha_arena_check(ctx.arena, &why));
    ha_arena_destroy(ctx.arena);
    return 0;
}

static void assert_empty(void)
{
    size_t task;
    for (int side = 0; side < 2; side++) assert_false(ha_tasks_take(&t, side, &task));
}

/* ---- order ------------------------------------------------------------------------------------- */

TEST_WITH(test_order, set_up, tear_down)
{
    static const float value[] = { 2, -1, 5, NAN, 5, 0, -INFINITY, -0.0f, INFINITY, 2 };
    static const size_t largest[] = { 8, 2, 4, 0, 9, 5, 7, 1, 6, 3 };
    for (int order = 0; order < 2; order++) {
        size_t task;
        ok(ha_tasks_fill(&t, (enum ha_tasks_order)order, order ? value : NULL, COUNT(value), &why));
        for (size_t i = 0; i < COUNT(value); i++) {
            assert_true(ha_tasks_take(&t, i % 3 == 0, &task)); /* whichever side asks */
            assert_int_equal(task, order ? largest[i] : i);
            assert_int_equal(ha_tasks_taker(&t, task), i % 3 ? HA_TAKEN_BY_HOST : HA_TAKEN_BY_DEVICE);
        }
        assert_empty();
    }
}

/* of any number, against the definition; of no task, and of one too many */
TEST_WITH(test_sizes, set_up, tear_down)
{
    float value[MOST];
    for (size_t count = 0; count <= MOST; count++) {
        size_t last = 0, task;
        for (size_t i = 0; i < count; i++) value[i] = (float)(i * 7919 % 31);
        ok(ha_tasks_fill(&t, HA_TASKS_LARGEST, value, count, &why));
        for (size_t i = 0; i < count; i++, last = task) {
            assert_true(ha_tasks_take(&t, false, &task));
            if (i) assert_true(value[last] > value[task] || (value[last] == value[task] && last < task));
        }
        assert_empty();
    }
    assert_int_equal(ha_tasks_fill(&t, HA_TASKS_GIVEN, NULL, MANY + 1, &why), HA_ERROR);
    assert_contains(why.text, "1 tasks, with room for ");
}

/* ---- sides ---------------------------------------------------------------------------------------- */

/* the device none of 0, 3, 6, ..., the host none of 1, 4, 7, ... */
static bool may(const void *arg, bool device_side, size_t task) { return task % 3 != (device_side ? 0 : 1); }

TEST_WITH(test_who_may, set_up, tear_down)
{
    size_t task, want = 0;
    t.may = may;
    ok(ha_tasks_fill(&t, HA_TASKS_GIVEN, NULL, MOST, &why));
    while (ha_tasks_take(&t, true, &task)) {
        want += want % 3 == 0;
        assert_int_equal(task, want++);
    }
    assert_int_equal(want, MOST);
    want = 0;
    while (ha_tasks_take(&t, false, &task)) {
        assert_int_equal(task, want);
        want += 3;
    }
    assert_true(want >= MOST);
    assert_empty();
}

static struct {
    _Atomic size_t taken[MANY], host, wrong, ready;
    _Atomic bool device_is_done;
    bool host_waits;
} seen;

static void take_as(bool device_side)
{
    size_t task;
    seen.ready++;
    while (seen.ready <= WORKERS) sched_yield(); /* all begin at once; of a slow side each takes one first */
    while (device_side && seen.host_waits && seen.host < WORKERS) sched_yield();
    while (ha_tasks_take(&t, device_side, &task)) {
        seen.wrong += t.may && !t.may(NULL, device_side, task);
        seen.taken[task]++;
        if (device_side) continue;
        seen.host++;
        while (seen.host_waits && !seen.device_is_done) sched_yield();
    }
}
static void host_takes(void *arg, size_t task, size_t worker) { take_as(false); }

static void both_take(bool host_waits, size_t count)
{
    memset(&seen, 0, sizeof seen);
    seen.host_waits = host_waits;
    ok(ha_tasks_fill(&t, HA_TASKS_GIVEN, NULL, count, &why));
    ha_pool_start(ctx.pool, "tasks", WORKERS, host_takes, NULL);
    take_as(true);
    seen.device_is_done = true;
    ha_pool_wait(ctx.pool);
    size_t host = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(seen.taken[i], 1);
        assert_true(ha_tasks_taker(&t, i) != HA_TAKEN_BY_NONE);
        host += ha_tasks_taker(&t, i) == HA_TAKEN_BY_HOST;
    }
    assert_int_equal(host, seen.host);
    assert_int_equal(seen.wrong, 0);
    assert_empty();
}

TEST_WITH(test_both, set_up, tear_down)
{
    static const size_t counts[] = { MANY, 0, 1, WORKERS, MOST, MANY, MANY };
    for (size_t turn = 0; turn < 2 * COUNT(counts); turn++) {
        t.may = turn % 2 ? may : NULL;
        both_take(false, counts[turn / 2]);
    }
}

/* Each worker sits on its first task until the device has taken what is left. */
TEST_WITH(test_a_slow_side_takes_fewer, set_up, tear_down)
{
    both_take(true, MOST);
    assert_int_equal(seen.host, WORKERS);
}
