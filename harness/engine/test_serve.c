/* What begins ends: also what could not begin. What was found right is measured, and nothing else. */
#include "harness/engine/serve.h"

#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/base/test.h"

#include <signal.h>

/* Of a suite: how its begin goes, and what was called. */
struct calls {
    enum ha_status begins;
    bool makes; /* begin leaves something in *run */
    size_t begun, ended, checked, closed, alive;
};
static struct calls first, second;

static const struct ha_run_options options = { .quiet = true,
                                               .measure = true,
                                               .seed = 7,
                                               .out_dir = "out",
                                               .dump_dir = "dump",
                                               .exec = "command",
                                               .exhaustive = true };
enum { CAP_NS = 11, DEADLINE_NS = 12 };

/* What the command line says, and what time there is, reaches the suite. */
static enum ha_status begin(struct calls *c, void **run, const struct ha_suite_config *config, struct ha_why *why)
{
    c->begun++;
    assert_true(config->machine && config->measure && config->seed == 7 && config->exhaustive);
    assert_string_equal(config->out_dir, "out");
    assert_string_equal(config->dump_dir, "dump");
    assert_string_equal(config->exec, "command");
    if (c->makes) {
        struct calls **made = *run = malloc(sizeof *made);
        assert_non_null(made);
        *made = c;
        c->alive++;
    }
    return c->begins == HA_OK ? HA_OK : ha_why(why, c->begins, "it cannot begin");
}

static enum ha_status begin_first(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                                  struct ha_why *why)
{
    return begin(&first, run, config, why);
}

static enum ha_status begin_second(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                                   struct ha_why *why)
{
    return begin(&second, run, config, why);
}

struct row {
    struct ha_result head;
};

/* by entry: what check says of it, and whether it forgets to; how often it was measured; and how often anything was */
static enum ha_verdict found[4];
static bool forgotten[4];
static const char *found_why[4];
static size_t measured[4], measurements;
static enum ha_status check_says;
static bool stops; /* a signal comes while check is at work */

static size_t entry_of(const struct ha_group *group, size_t i) { return (size_t)(*group->id[i] - 'a'); }
static struct ha_result *head_of(const struct ha_group *group, size_t i)
{
    return &((struct row *)group->row[i])->head;
}

static enum ha_status check(void *run, struct ha_group *group, struct ha_why *why)
{
    assert_true(group->cap_ns == CAP_NS && group->deadline_ns == DEADLINE_NS);
    for (size_t i = 0; i < group->count; i++) {
        const size_t entry = entry_of(group, i);
        head_of(group, i)->verdict = found[entry];
        group->right[i] = !found[entry] && !forgotten[entry];
        if (found_why[entry]) strcpy(head_of(group, i)->reason, found_why[entry]);
    }
    (*(struct calls **)run)->checked++;
    if (stops) ha_stop = SIGINT;
    return check_says == HA_OK ? HA_OK : ha_why(why, check_says, "it says so");
}

static enum ha_status measure(void *run, struct ha_group *group, struct ha_why *why)
{
    measurements++;
    for (size_t i = 0; i < group->count; i++) {
        const size_t entry = entry_of(group, i);
        assert_ptr_equal(group->point[i], group->id[i]);
        assert_int_equal(head_of(group, i)->verdict, found[entry]);
        measured[entry]++;
    }
    return HA_OK;
}

static void close_group(void *run, struct ha_group *group) { (*(struct calls **)run)->closed++; }

static void end(void *run)
{
    struct calls *c = *(struct calls **)run;
    c->ended++;
    c->alive--;
    free(run);
}

static const struct ha_suite suites[2] = {
    { .name = "first",
      .row_bytes = sizeof(struct row),
      .begin = begin_first,
      .check = check,
      .measure = measure,
      .close = close_group,
      .end = end },
    { .name = "second",
      .row_bytes = sizeof(struct row),
      .begin = begin_second,
      .check = check,
      .measure = measure,
      .close = close_group,
      .end = end },
};

static struct ha_results none_before(void *arg, const struct ha_suite *suite)
{
    return (struct ha_results){ .entries = 0 };
}

/* in place of what goes to the parent */
static struct ha_result said[4]; /* by entry */
static size_t rows;
void __wrap_ha_child_say(unsigned kind, const void *bytes, size_t size);
void __wrap_ha_child_say(unsigned kind, const void *bytes, size_t size)
{
    struct ha_said_head head;
    assert_int_equal(kind, HA_SAID_ROW);
    assert_int_equal(size, sizeof head + sizeof(struct row));
    memcpy(&head, bytes, sizeof head);
    memcpy(&said[head.entry], (const char *)bytes + sizeof head, sizeof *said);
    rows++;
}

static struct ha_serve self = { .options = &options, .before = none_before };

/* Entries from the first on as one group. Entry 0, and those behind 1, are of the first suite, 1 is of the second. */
static void serve_group(const size_t *index, size_t count)
{
    static char id[4][2] = { "a", "b", "c", "d" };
    static struct ha_plan_entry entry[4] = { { .suite = &suites[0], .point = id[0], .id = id[0] },
                                             { .suite = &suites[1], .point = id[1], .id = id[1] },
                                             { .suite = &suites[0], .point = id[2], .id = id[2] },
                                             { .suite = &suites[0], .point = id[3], .id = id[3] } };
    static const struct ha_plan plan = { .entry = entry, .entries = 4 };
    struct ha_job *job = calloc(1, sizeof *job + count * sizeof job->entry[0]);
    struct ha_why why = { "" };
    assert_non_null(job);
    self.plan = &plan;
    job->count = count;
    job->cap_ns = CAP_NS;
    job->deadline_ns = DEADLINE_NS;
    memcpy(job->entry, index, count * sizeof *index);
    rows = 0;
    if (ha_serve(&self, job, &why) != HA_OK) fail_msg("%s", why.text);
    free(job);
}

static enum ha_verdict serve(size_t entry)
{
    memset(found, 0, sizeof found);
    serve_group(&entry, 1);
    assert_int_equal(rows, 1);
    return said[entry].verdict;
}

TEST(suites_begin_once_and_end)
{
    first = second = (struct calls){ .begins = HA_OK, .makes = true };
    assert_int_equal(serve(0), HA_PASS);
    assert_int_equal(serve(0), HA_PASS);
    assert_true(first.begun == 1 && first.checked == 2 && first.ended == 0);
    assert_int_equal(serve(1), HA_PASS);
    assert_true(first.ended == 1 && first.alive == 0 && second.begun == 1 && second.alive == 1);
}

TEST(what_a_failed_begin_left_is_ended)
{
    first = (struct calls){ .begins = HA_ERROR, .makes = true };
    second.ended = 0;
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(serve(0), HA_VERDICT_ERROR);
        assert_string_equal(said[0].reason, "it cannot begin");
        assert_true(first.begun == i && first.ended == i && first.alive == 0 && first.checked == 0);
    }
    assert_true(second.ended == 1 && second.alive == 0);
    first = (struct calls){ .begins = HA_WAIVED, .makes = false };
    assert_int_equal(serve(0), HA_VERDICT_WAIVED);
    assert_true(first.begun == 1 && first.ended == 0); /* there is nothing to end */
    second = (struct calls){ .begins = HA_OK, .makes = true };
    assert_int_equal(serve(1), HA_PASS);
    assert_true(first.ended == 0 && second.begun == 1);
    first = (struct calls){ .begins = HA_OK, .makes = true };
    assert_int_equal(serve(0), HA_PASS);
    assert_true(second.alive == 0 && first.begun == 1 && first.checked == 1);
    second = (struct calls){ .begins = HA_ERROR, .makes = false };
    assert_int_equal(serve(1), HA_VERDICT_ERROR);
    assert_true(first.alive == 0 && first.ended == 1);
}

TEST(what_was_found_right_is_measured)
{
    static const size_t group[] = { 0, 2, 3 };
    first = (struct calls){ .begins = HA_OK, .makes = true };
    memset(measured, 0, sizeof measured);
    found[0] = HA_VERDICT_FAIL;
    found[2] = HA_NOT_RUN;
    found[3] = HA_UNCHECKED;
    serve_group(group, 3);
    assert_int_equal(rows, 3);
    assert_true(said[0].verdict == HA_VERDICT_FAIL && said[2].verdict == HA_PASS && said[3].verdict == HA_UNCHECKED);
    assert_true(measured[0] == 0 && measured[1] == 0 && measured[2] == 1 && measured[3] == 1);

    measurements = 0;
    serve_group(group, 1);
    assert_int_equal(measurements, 0); /* of nothing */

    found_why[2] = "the time is over"; /* a reason and no verdict: not run to its end */
    serve_group(group + 1, 1);
    found_why[2] = NULL;
    assert_int_equal(rows, 0);
}

/* Half a case is no row, whether check gave up or what comes behind it was not done; what has its verdict has its row.
 */
TEST(a_stop_leaves_no_row)
{
    static const size_t group[] = { 0, 2, 3 };
    static const enum ha_status says[] = { HA_OK, HA_WAIVED };
    for (size_t i = 0; i < 2; i++) {
        memset(found, 0, sizeof found);
        found[2] = HA_VERDICT_FAIL;
        found[3] = HA_UNCHECKED;
        check_says = says[i];
        stops = true;
        measurements = 0;
        serve_group(group, 3);
        ha_stop = 0;
        stops = false;
        check_says = HA_OK;
        assert_true(rows == 1 && said[2].verdict == HA_VERDICT_FAIL && measurements == 0);
    }
    check_says = HA_WAIVED;
    assert_int_equal(serve(0), HA_VERDICT_WAIVED);
    check_says = HA_OK;
    assert_int_equal(first.closed, first.checked); /* whatever came of it */
}

TEST(a_verdict_that_was_forgotten_is_no_pass)
{
    static const size_t group[] = { 2, 3 };
    memset(found, 0, sizeof found);
    memset(measured, 0, sizeof measured);
    forgotten[2] = true;
    serve_group(group, 2);
    assert_true(said[2].verdict == HA_VERDICT_ERROR && said[3].verdict == HA_PASS);
    assert_string_equal(said[2].reason, "its suite gave it no verdict");
    assert_true(measured[2] == 0 && measured[3] == 1);
}

/* The last test: it is the end. */
TEST(a_process_ends_its_suite)
{
    second = (struct calls){ .begins = HA_OK, .makes = true };
    assert_int_equal(serve(1), HA_PASS);
    assert_true(second.begun == 1 && second.ended == 0);
    ha_serve_end(&self);
    assert_true(second.ended == 1 && second.alive == 0);
    ha_serve_end(&self); /* nothing has been ordered since */
}
