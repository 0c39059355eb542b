/* Sections with `cover`, over fake_suites.c, and the count of what they have. */
#include "harness/base/test.h"
#include "harness/base/why.h"
#include "harness/engine/fake_suites.h"
#include "harness/engine/point.h"
#include "harness/engine/suite_file.h"

static struct ha_why why;

static struct ha_coverage coverage(const char *text)
{
    struct ha_coverage c;
    if (ha_coverage_parse("x.suite", text, test_print(), &c, &why) != HA_OK) fail_msg("%s: %s", text, why.text);
    test_printed();
    return c;
}

static void printed(const char *words)
{
    if (!strstr(test_print_text, words)) fail_msg("'%s' is not in\n%s", words, test_print_text);
}

static struct ha_plan plan_of(const char *text, struct ha_plan_options o)
{
    struct ha_plan plan = { 0 };
    if (ha_plan_parse(&plan, &o, "x.suite", text, &why) != HA_OK) fail_msg("%s: %s", text, why.text);
    return plan;
}

#define FOUR                                                                              \
    "[a]\ncover = pairs\nkind = circle\nsize = 10 2 3 4\ncolor = *\ngrid = 1 2 5 / 1 8\n" \
    "threads = all 1\nsteps = 3\n"

/* 5 axes: size, colour, how many times, of what, threads; steps has one value, kind too */
TEST(every_two_values_meet)
{
    const struct ha_coverage c = coverage(FOUR);
    assert_true(c.axes == 0 && c.pairs == 4 * 3 + (4 + 3) * 3 + (4 + 3 + 3) * 2 + (4 + 3 + 3 + 2) * 2);
    assert_true(c.met == c.pairs && !c.excluded && !c.missing);
    assert_true(c.points >= 12 && c.points <= 16);
    printed("    grid (times): 1 2 5\n    grid (second): 1 8\n");
    struct ha_plan plan = plan_of(FOUR, (struct ha_plan_options){ 0 });
    assert_int_equal(plan.entries, c.points);
    bool all = false;
    for (size_t i = 0; i < plan.entries; i++) {
        const struct fake_point *p = plan.entry[i].point;
        assert_true(p->grid[0] % p->grid[1] == 0 && p->steps > 2.9);
        all |= p->grid[0] == 40;
    }
    assert_true(all);
    ha_plan_free(&plan);
}

/* What -f leaves, what an option sets, what is only judged, and that nothing is made small. */
TEST(as_any_other_section)
{
    const struct ha_override one = { "threads", "7" };
    struct ha_plan plan = plan_of(FOUR, (struct ha_plan_options){ .filter = "color=blue", .small = true });
    assert_true(plan.entries >= 4 && plan.entries < 12);
    size_t large = 0;
    for (size_t i = 0; i < plan.entries; i++) large += ((const struct fake_point *)plan.entry[i].point)->size == 10;
    assert_true(large > 0);
    ha_plan_free(&plan);
    plan = plan_of(FOUR, (struct ha_plan_options){ .override = &one, .overrides = 1 });
    assert_true(plan.entries >= 12 && plan.entries <= 16);
    for (size_t i = 0; i < plan.entries; i++) assert_non_null(strstr(plan.entry[i].id, "threads=7"));
    ha_plan_free(&plan);
    plan = plan_of("[b]\nsize = 5\n" FOUR, (struct ha_plan_options){ .measured = true });
    assert_true(plan.entries == 1 && plan.sections == 1);
    ha_plan_free(&plan);
}

/* A square above 90 is no case, a side is a square's. */
TEST(what_there_is_not_is_excluded_with_a_reason)
{
    struct ha_coverage c = coverage(
        "[a]\ncover = pairs\nkind = circle square\nsize = 1 91\ncolor = red blue\nside = 3\n");
    assert_true(c.excluded == 1 && c.missing == 0 && c.met == c.pairs - 1);
    printed("    excluded kind=square with size=91: there is no such case\n");
    printed("x.suite: 12 pairs: 11 met, 1 excluded, 0 missing; 5 cases\n");
    c = coverage("[a]\nsize = 1 2\n");
    assert_true(c.pairs == 0);
}

/* Each point but one: what that one had alone is missing. */
static size_t left_out, at;
static enum ha_status note_but_one(void *arg, const struct ha_suite *s, void *point, struct ha_why *unused)
{
    if (at++ != left_out) ha_covering_note(arg, point);
    return HA_OK;
}

static enum ha_status drop_one(void *arg, const struct ha_file_section *f, struct ha_why *w)
{
    struct ha_covering *made, *seen;
    size_t found = 0;
    for (left_out = 0, at = 1; left_out < at; left_out++) {
        assert_int_equal(ha_covering_create(&made, &fake_shapes, &f->keys, w), HA_OK);
        assert_int_equal(ha_covering_create(&seen, &fake_shapes, &f->keys, w), HA_OK);
        at = 0;
        assert_int_equal(ha_covering_expand(made, note_but_one, seen, w), HA_OK);
        const struct ha_coverage c = ha_covering_count(seen, test_print());
        assert_true((strstr(test_printed(), "MISSING") != NULL) == (c.missing > 0));
        assert_true(c.met + c.missing == c.pairs && c.points + (left_out < at) == at);
        found += c.missing > 0;
        ha_covering_destroy(made);
        ha_covering_destroy(seen);
    }
    *(size_t *)arg = found;
    return HA_OK;
}

TEST(a_pair_that_is_missing_is_seen)
{
    size_t found = 0;
    assert_int_equal(ha_suite_file_parse("x.suite", FOUR, drop_one, &found, &why), HA_OK);
    assert_true(found >= 12); /* size and colour meet once */
}

/* Ranges among the values; each once, and what no case has is excluded, with the reason. */
TEST(every_value_is_there)
{
    struct ha_coverage c = coverage(
        "[a]\ncover = values\nkind = circle\nsize = 1..70 72..90:6\ncolor = *\ngrid = 1 2 / 1 8\n");
    assert_true(c.pairs == 74 + 3 + 2 + 2 && c.met == c.pairs);
    assert_int_equal(c.points, 74);
    printed("    size: 1 2 3 4");
    printed(" 70 72 78 84 90\n");
    struct ha_plan plan = plan_of("[a]\nkind = circle\nsize = 3..5 9\n", (struct ha_plan_options){ 0 });
    assert_int_equal(plan.entries, 4);
    ha_plan_free(&plan);
}

TEST(mistakes_are_named)
{
    static const struct {
        const char *text, *says;
    } table[] = {
        { "[a]\nsize = 1 2\ncover = pair\n", "x.suite:3: unknown cover 'pair'; did you mean 'pairs'?" },
        { "[a]\ncover = pairs\nsize = 1 2\n", "x.suite:1: pairs take two keys that have two values or more" },
        { "[a]\ncover = pairs\nsize = 1 2 1\ncolor = *\n", "x.suite:3: size: '1' is there twice" },
        { "[a]\ncover = pairs\nsize = 1 02\ncolor = *\n",
          "x.suite:3: size: no case has the value '02': size=02 is the same as 2" },
        { "[a]\ncover = pairs\nsize = 1 *\ncolor = *\n",
          "x.suite:3: size: '*' is every word of a key, and this one has none" },
        { "[a]\ncover = pairs\nsize = 1 101\ncolor = *\n", "x.suite:3: size: '101' is not a whole number" },
        { "[a]\ncover = pairs\ncount = 1 13\ncolor = *\n",
          "x.suite:3: count: no case has the value '13': count: 13 of them are too many" },
        { "[a]\ncover = pairs\ncount = 13\nsize = 1 2\ncolor = *\n", "x.suite:3: count: 13 of them are too many" },
        { "[a]\ncover = pairs\nkind = circle\nside = 1 2\ncolor = *\n",
          "x.suite:4: side: no case has the value '1': a point has no key 'side'" },
        { "[a]\ncover = pairs\nkind = circle\nside = 1\nsize = 1 2\ncolor = *\n",
          "x.suite:4: key 'side' belongs to none of the cases of [a]" },
        { "[a]\ncover = pairs\ngrid = 1 2 /\ncolor = *\n", "x.suite:3: grid: numbers stand on both sides of the '/'" },
        { "[a]\ncover = pairs\ngrid = 1 a / 1\ncolor = *\n",
          "x.suite:3: grid: no case has the value 'a': grid: 'a' and '1' are no pair of whole numbers" },
        { "[a]\ncover = pairs\nsise = 1 2\ncolor = *\n", "unknown key 'sise'; did you mean 'size'?" },
        { "[a]\ncover = pairs\nsize = 1 2\ncolor = *\nsise = 1\n",
          "x.suite:5: unknown key 'sise'; did you mean 'size'?" },
        { "[a]\ncost = 0.5\nsize = 1 2\ncolor = *\n", "x.suite:2: cost: goes with cover" },
        { "[a]\ncover = values\nsize = 1\ncolor = red\n", "x.suite:1: no key has two values or more" },
        { "[a]\nsize = 3..1\n", "x.suite:2: size: '3..1' is no range of 1 to 4096 numbers" },
        { "[a]\nsize = 1..9:0\n", "x.suite:2: size: '1..9:0' is no range of 1 to 4096 numbers" },
        { "[a]\nsize = 1..99999999\n", "x.suite:2: size: '1..99999999' is no range of 1 to 4096 numbers" },
        { "[a]\ncover = pairs\ncost = 2\nsize = 1 2\n", "x.suite:3: cost: '2' is not a number above 0, at most 1" },
        { "[a]\ncover = pairs\ncover = pairs\nsize = 1 2\n", "x.suite:3: key 'cover' is there twice; first in line 2" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct ha_plan plan = { 0 };
        const struct ha_plan_options o = { 0 };
        assert_int_equal(ha_plan_parse(&plan, &o, "x.suite", table[i].text, &why), HA_ERROR);
        if (!strstr(why.text, table[i].says)) fail_msg("%s: %s", table[i].text, why.text);
        ha_plan_free(&plan);
    }
}
