/* What begins ends: also what could not begin. */
#include "harness/engine/serve.h"

#include "harness/base/why.h"
#include "harness/base/test.h"

/* Of a suite: how its begin goes, and what was called. */
struct calls {
    enum ha_status begins;
    bool makes; /* begin leaves something in *run */
    size_t begun, ended, checked, alive;
};
static struct calls first, second;

static enum ha_status begin(struct calls *c, void **run, struct ha_why *why)
{
    c->begun++;
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
    return begin(&first, run, why);
}

static enum ha_status begin_second(void **run, const struct ha_suite_config *config, const struct ha_results *before,
                                   struct ha_why *why)
{
    return begin(&second, run, why);
}

static enum ha_status check(void *run, struct ha_group *group, struct ha_why *why)
{
    (*(struct calls **)run)->checked++;
    return HA_OK;
}

static void end(void *run)
{
    struct calls *c = *(struct calls **)run;
    c->ended++;
    c->alive--;
    free(run);
}

struct row {
    struct ha_result head;
};
static const struct ha_suite suites[2] = {
    { .name = "first", .row_bytes = sizeof(struct row), .begin = begin_first, .check = check, .end = end },
    { .name = "second", .row_bytes = sizeof(struct row), .begin = begin_second, .check = check, .end = end },
};

static struct ha_results none_before(void *arg, const struct ha_suite *suite)
{
    return (struct ha_results){ .entries = 0 };
}
static void forked(void *arg) {}

/* in place of what goes to the parent */
static struct ha_result said;
static size_t rows;
void __wrap_ha_child_say(unsigned kind, const void *bytes, size_t size);
void __wrap_ha_child_say(unsigned kind, const void *bytes, size_t size)
{
    assert_int_equal(kind, HA_SAID_ROW);
    assert_int_equal(size, sizeof(struct ha_said_head) + sizeof(struct row));
    memcpy(&said, (const char *)bytes + sizeof(struct ha_said_head), sizeof said);
    rows++;
}

/* The verdict of case i. Case 0 is of the first suite, 1 of the second. */
static enum ha_verdict serve(size_t i)
{
    static char point, id[] = "x";
    static struct ha_plan_entry entry[2] = { { .suite = &suites[0], .point = &point, .id = id },
                                             { .suite = &suites[1], .point = &point, .id = id } };
    static const struct ha_plan plan = { .entry = entry, .entries = 2 };
    static const struct ha_run_options options = { .quiet = true };
    static struct ha_serve self = { .plan = &plan, .options = &options, .before = none_before, .forked = forked };
    struct ha_job *job = calloc(1, sizeof *job + sizeof job->entry[0]);
    struct ha_why why = { "" };
    assert_non_null(job);
    job->count = 1;
    job->entry[0] = i;
    rows = 0;
    if (ha_serve(&self, job, &why) != HA_OK) fail_msg("%s", why.text);
    free(job);
    assert_int_equal(rows, 1);
    return said.verdict;
}

static void suites_begin_once_and_end(void **state)
{
    first = second = (struct calls){ .begins = HA_OK, .makes = true };
    assert_int_equal(serve(0), HA_PASS);
    assert_int_equal(serve(0), HA_PASS);
    assert_true(first.begun == 1 && first.checked == 2 && first.ended == 0);
    assert_int_equal(serve(1), HA_PASS);
    assert_true(first.ended == 1 && first.alive == 0 && second.begun == 1 && second.alive == 1);
}

static void what_a_failed_begin_left_is_ended(void **state)
{
    first = (struct calls){ .begins = HA_ERROR, .makes = true };
    second.ended = 0;
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(serve(0), HA_VERDICT_ERROR);
        assert_string_equal(said.reason, "it cannot begin");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suites_begin_once_and_end),
        cmocka_unit_test(what_a_failed_begin_left_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
