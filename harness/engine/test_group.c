/* What is read of the machine beside a measurement: right before and right after, once for a group, of what has been
 * measured, and at nobody's cost. */

#include "harness/engine/group.h"

#include "harness/base/registry.h"
#include "harness/base/stop.h"
#include "harness/base/test.h"
#include "harness/base/why.h"
#include "harness/report/row.h"

#include <math.h>
#include <signal.h>

extern const struct ha_device_api ha_device_host;

enum { GROUP = 3 };
static struct ha_machine *machine;
static struct ha_device_api api;
static struct ha_why why;
static bool copy_fails, stops, lost_device;
static size_t measured;

static struct ha_ceilings ceilings_of(double read)
{
    struct ha_ceilings c;
    for (size_t i = 0; i < HA_CEILINGS; i++) c.of[i].median = (double)NAN;
    c.of[HA_CEIL_READ_ALL].median = read;
    c.of[HA_CEIL_LAUNCH].median = 1000 * read;
    return c;
}

/* ---- a device that fails in a copy, when it is told to ----------------------------------------------------------- */

static bool failed;

static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (!copy_fails) return ha_device_host.copy(stream, dst, src, bytes, dir);
    failed = true;
    return HA_ERROR;
}
static const char *failure(struct ha_device *device) { return failed ? "lost" : NULL; }

/* ---- a suite whose second case is measured and comes to nothing -------------------------------------------------- */

static enum ha_status check(void *run, struct ha_group *group, struct ha_why *said)
{
    for (size_t i = 0; i < group->count; i++) group->right[i] = true;
    return HA_OK;
}

static enum ha_status measure(void *run, struct ha_group *group, struct ha_why *said)
{
    const struct ha_ceilings slower = ceilings_of(30);
    if (api.copy != copy) ha_machine_give(machine, "fake", &api, &slower);
    for (size_t i = 0; i < group->count; i++)
        if (i != 1) ha_result_of(group->row[i])->samples = 10;
    measured++;
    copy_fails = api.copy == copy;
    failed = lost_device;
    if (stops) ha_stop = SIGINT;
    return HA_OK;
}

static struct ha_suite suite = {
    .name = "s", .row_bytes = sizeof(struct ha_result), .check = check, .measure = measure
};
static struct ha_group_rows rows;

static int begin(void **state)
{
    const struct ha_ceilings before = ceilings_of(50);
    const struct ha_device_api *of;
    struct ha_device *device;
    api = ha_device_host;
    copy_fails = stops = lost_device = failed = false;
    measured = 0;
    if (ha_machine_create(&machine, NULL, &why) != HA_OK) fail_msg("%s", why.text);
    ha_machine_give(machine, "fake", &api, &before);
    if (ha_machine_device(machine, "fake", NULL, &of, &device, &why) != HA_OK) fail_msg("%s", why.text);
    return 0;
}

static int end(void **state)
{
    ha_group_free(&rows);
    ha_machine_destroy(machine);
    ha_stop = 0;
    return 0;
}

static void run_group(bool measures, uint64_t deadline_ns)
{
    static char id[GROUP][2] = { "a", "b", "c" };
    static const size_t index[GROUP] = { 0, 1, 2 };
    struct ha_plan_entry entry[GROUP];
    for (size_t i = 0; i < GROUP; i++)
        entry[i] = (struct ha_plan_entry){ .suite = &suite, .point = id[i], .id = id[i] };
    const struct ha_plan plan = { .entry = entry, .entries = GROUP };
    if (ha_group_make(&rows, &plan, index, GROUP, &why) != HA_OK) fail_msg("%s", why.text);
    rows.machine = machine;
    rows.of.deadline_ns = deadline_ns;
    ha_group_run(&rows, &suite, NULL, measures);
}

/* Of three cases found right with outputs, one then fails. */
static enum ha_status check_outputs(void *run, struct ha_group *group, struct ha_why *said)
{
    for (size_t i = 0; i < group->count; i++) strcpy(ha_result_of(group->row[i])->outputs, "0123456789abcdef");
    return check(run, group, said);
}
static enum ha_status measure_wrong(void *run, struct ha_group *group, struct ha_why *said)
{
    ha_result_set(group, 1, ha_why(said, HA_FAIL, "wrong"), said);
    return HA_OK;
}

TEST_WITH(what_did_not_pass_has_no_digest, begin, end)
{
    suite.check = check_outputs;
    suite.measure = measure_wrong;
    run_group(true, 0);
    suite.check = check;
    suite.measure = measure;
    for (size_t i = 0; i < GROUP; i++) {
        assert_int_equal(ha_result_in(rows.row[i])->verdict, i == 1 ? HA_VERDICT_FAIL : HA_PASS);
        assert_string_equal(ha_result_in(rows.row[i])->outputs, i == 1 ? "" : "0123456789abcdef");
    }
}

static const double *beside(size_t i) { return ha_result_in(rows.row[i])->beside; }

static void assert_nothing_beside(size_t i)
{
    for (size_t k = 0; k < HA_BESIDES; k++) assert_true(isnan(beside(i)[k]));
}

TEST_WITH(the_mean_of_before_and_after, begin, end)
{
    run_group(true, 0);
    assert_int_equal(measured, 1);
    for (size_t i = 0; i < GROUP; i += 2) {
        assert_int_equal(ha_result_in(rows.row[i])->verdict, HA_PASS);
        assert_true(beside(i)[HA_BESIDE_READ] == 40 && beside(i)[HA_BESIDE_LAUNCH] == 40000);
        assert_true(beside(i)[HA_BESIDE_APART] == 0.5 && isnan(beside(i)[HA_BESIDE_FLOPS]));
    }
    assert_nothing_beside(1); /* which was not measured */
}

TEST_WITH(what_is_only_checked_has_nothing_beside_it, begin, end)
{
    run_group(false, 0);
    assert_int_equal(measured, 0);
    for (size_t i = 0; i < GROUP; i++) assert_nothing_beside(i);
}

/* A device that was lost while a case was measured is not asked again. */
TEST_WITH(nothing_is_read_of_a_lost_device, begin, end)
{
    lost_device = true;
    api.failure = failure;
    run_group(true, 0);
    for (size_t i = 0; i < GROUP; i++) assert_nothing_beside(i);
    assert_false(rows.failed_beside);
    failed = false;
}

/* One that is lost by the reading after it costs the case nothing: its row says what was measured. */
TEST_WITH(a_device_that_is_lost_by_the_reading, begin, end)
{
    const struct ha_device_api *of;
    struct ha_device *device;
    api.copy = copy;
    api.failure = failure;
    ha_machine_give(machine, "fake", &api, NULL);
    assert_int_equal(ha_machine_device(machine, "fake", "c", &of, &device, &why), HA_OK);
    run_group(true, 0);
    assert_true(rows.failed_beside && ha_machine_failed(machine, &why));
    assert_string_equal(why.text, "device fake: lost");
    for (size_t i = 0; i < GROUP; i++) assert_int_equal(ha_result_in(rows.row[i])->verdict, HA_PASS);
    assert_true(isnan(beside(0)[HA_BESIDE_H2D]) && beside(0)[HA_BESIDE_FLOPS] > 0);
}

TEST_WITH(the_time_is_over, begin, end)
{
    ha_machine_give(machine, "fake", &api, NULL);
    api.copy = copy; /* so that ceilings stay as they are: not given */
    run_group(true, 1);
    assert_int_equal(measured, 1);
    for (size_t i = 0; i < GROUP; i++) assert_nothing_beside(i);
    copy_fails = false;
}
