/* One case of an operation: what can be asked, what is drawn, and the smallest that fails. */

#include "harness/base/registry.h"
#include "harness/base/thread.h"
#include "harness/engine/machine.h"
#include "harness/engine/point.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "suites/device/point.h"
#include "suites/device/timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ha_suite ha_suite_device;

static bool measures;

static enum ha_status drive(const char *words)
{
    struct ha_machine *machine;
    assert_int_equal(ha_machine_create(&machine, NULL, &why), HA_OK);
    ha_driven_free(&driven);
    const enum ha_status status = ha_drive(
        &(struct ha_drive){ .words = words, .config = { .machine = machine, .measure = measures } }, &driven, &why);
    ha_machine_destroy(machine);
    return status;
}

TEST_WITH(what_cannot_be_asked_is_said, NULL, driven_end)
{
    static const char *const each[][2] = {
        { "device:op=copy,cases=one,dst=mapped,src=pinned", "one side of a copy is the device" },
        { "device:op=move,cases=one,dst=pinned", "a kernel reads and writes device and mapped memory" },
        { "device:op=alloc,cases=one,dst=pageable", "pageable memory is no device's" },
        { "device:op=meters,cases=one", "there is nothing to choose" },
        { "device:op=blend,cases=one,rows=16777216,width=16777216", "such a case takes" },
        { "device:op=copy,cases=one,rows=3", "no key 'rows' with these values of the others; it has with op=copy_2d" },
        { "device:op=copy,size=3", "no key 'size' with these values of the others" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        assert_int_equal(drive(each[i][0]), HA_ERROR);
        assert_contains(why.text, each[i][1]);
    }
}

/* The least of everything, and the largest numbers where an operation takes none. */
TEST_WITH(the_smallest_cases_pass, NULL, driven_end)
{
    assert_int_equal(drive("device:op=*,cases=one"), HA_OK);
    size_t chosen = 0; /* there is no single case of meters, say */
    for (size_t i = 0; i < ha_ops_count; i++) chosen += ha_ops[i]->keys != NULL;
    assert_true(chosen > 20);
    counted(chosen, 0, 0, 0);
    for (size_t i = 0; i < driven.results.entries; i++) assert_true(number(i, "comparisons") > 0);
}

/* ---- timed ------------------------------------------------------------------------------------------------------- */

enum { CALL_NS = 3000000 };
static size_t called, waiting; /* waiting: calls that the next sync does */
static bool lazy;
static enum ha_status slow_sync(struct ha_stream *stream)
{
    ha_sleep_ns(waiting * CALL_NS);
    waiting = 0;
    return HA_OK;
}
static enum ha_status slow_blend(struct ha_stream *stream, const struct ha_device_blend *args)
{
    called++;
    if (lazy) waiting++;
    else ha_sleep_ns(CALL_NS);
    return HA_OK;
}

/* Whether the device works in the call or when it is synced. */
TEST(a_call_takes_as_long_as_it_takes)
{
    static float y[4][8], x[4][8];
    const struct ha_device_blend args = { y[0], x[0], 4, 6, 8, 8, 1, 1 };
    const struct ha_device_api slow = { .blend = slow_blend, .stream_sync = slow_sync };
    for (size_t i = 0; i < 2; i++) {
        struct ha_op_stage stage = { .api = &slow, .why = &why };
        struct ha_op_timing timing = { .cap_ns = 60000000 };
        lazy = i;
        called = 0;
        stage.gate = &stage.lock;
        const struct ha_device_api *timed = ha_timed(&stage, "blend", &timing);
        assert_non_null(timed);
        assert_int_equal(timed->blend(NULL, &args), HA_OK);
        assert_true(timing.ns.count > 0 && timing.ns.count <= called);
        for (size_t s = 0; s < timing.ns.count; s++) assert_true(timing.ns.x[s] >= CALL_NS);
        assert_int_equal((size_t)timing.bytes, 4 * 6 * sizeof(float) * 2);
        ha_series_free(&timing.ns);
        assert_null(ha_timed(&stage, "copy", &timing));
    }
}

/* Of each operation that computes or gathers; what copies is the suite link's. */
TEST_WITH(a_single_case_is_timed, NULL, driven_end)
{
    size_t timed = 0;
    measures = true;
    const enum ha_status status = drive("device:op=*,cases=one");
    measures = false;
    assert_int_equal(status, HA_OK);
    for (size_t i = 0; i < driven.results.entries; i++) {
        const char *name = ha_ops[((const struct ha_op_point *)entry(i)->point)->op]->needs[0].name;
        bool computes = false;
#define COMPUTES(entry, type) computes |= name && !strcmp(name, #entry);
        HA_DEVICE_OPERATIONS(COMPUTES)
        if (computes != (number(i, "call_ns") > 0)) fail_msg("%s: %g ns", entry(i)->id, number(i, "call_ns"));
        timed += computes;
    }
    assert_true(timed > 20);
}

static struct ha_plan plan;
static int plan_end(void **state)
{
    ha_plan_free(&plan);
    return driven_end(state);
}

TEST_WITH(what_is_drawn_passes, NULL, plan_end)
{
    enum { DRAWN = HA_SANITIZED ? 40 : 400, AT_ONCE = 1800 }; /* bytes of words */
    static char all[] = "device";
    char words[2048];
    char *const word[] = { all };
    struct ha_draw draw = { .seed = 4 };
    const struct ha_plan_options from = { .words = word, .words_count = 1 };
    bool seen[64] = { false };
    size_t n = 0, ops = 0;
    assert_int_equal(ha_plan_draw(&plan, &from, &draw, DRAWN, &why), HA_OK);
    for (size_t i = 0; i < plan.entries; i++) {
        const struct ha_op_point *p = plan.entry[i].point;
        assert_int_equal(p->one, 1);
        assert_true(ha_op_cost(p) <= 1);
        ops += !seen[p->op];
        seen[p->op] = true;
        if (ha_op_cost(p) < 0.02 && n + strlen(plan.entry[i].id) < AT_ONCE)
            n += (size_t)snprintf(words + n, sizeof words - n, "%s ", plan.entry[i].id);
    }
    assert_true(ops > (HA_SANITIZED ? 5 : 15));
    if (drive(words) != HA_OK) fail_msg("%s", why.text);
    assert_true(driven.results.entries > 5);
    for (size_t i = 0; i < driven.results.entries; i++)
        if (ha_result_in(entry(i)->row)->verdict != HA_PASS)
            fail_msg("%s: %s", entry(i)->id, ha_result_in(entry(i)->row)->reason);
}

static bool above_a_limit(void *arg, const void *point)
{
    const struct ha_op_case *c = &((const struct ha_op_point *)point)->of;
    ++*(size_t *)arg;
    return c->rows > 65536 && c->width % 4 == 3;
}

TEST(what_fails_shrinks_to_what_matters)
{
    static const char drawn[] =
        "device:op=move,cases=one,seed=77,dst=mapped,src=mapped,dst_at=9,rows=100001,width=4095,"
        "src_gap=12,dst_index=mapped,pattern=shuffled,spread=2";
    static struct ha_op_point point;
    const struct ha_suite *suite;
    char id[HA_ID_MAX];
    size_t tries = 0;
    if (ha_id_parse(drawn, &suite, &point, sizeof point, &why) != HA_OK) fail_msg("%s", why.text);
    assert_true(ha_shrink(suite, &point, 400, above_a_limit, &tries));
    ha_point_print(suite, &point, id, sizeof id);
    assert_string_equal(id, "device:op=move,cases=one,seed=0,rows=65537,width=3");
    assert_true(tries < 200);
}
