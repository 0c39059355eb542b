/* Points that are drawn, and the smallest that fails like one of them: a suite that is wrong exactly where the test
 * says. */
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"
#include "harness/engine/test_run.h"
#include "harness/report/row.h"

#include <math.h>

/* ---- the suite --------------------------------------------------------------------------------------------------- */

enum { PARTS_MAX = 8 };
struct lump {
    uint64_t size, grid[2], step, color, other, part[PARTS_MAX], parts;
    double ratio;
};
struct row {
    struct ha_result head;
};

static const char *color_word(size_t i)
{
    static const char *const color[] = { "red", "green", "blue", NULL };
    return color[i];
}

static enum ha_status set_parts(void *point, const struct ha_key *key, const char *value, struct ha_why *why)
{
    struct lump *p = point;
    memset(p->part, 0, sizeof p->part);
    for (p->parts = 0; p->parts < PARTS_MAX; value++) {
        if (!ha_whole_parse(value, &p->part[p->parts++], &value)) break;
        if (!*value) return HA_OK;
    }
    return ha_why(why, HA_ERROR, "parts: no");
}

static void print_parts(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX])
{
    const struct lump *p = point;
    for (size_t i = 0, n = 0; i < p->parts; i++)
        n += (size_t)snprintf(out + n, HA_VALUE_MAX - n, "%s%llu", i ? "+" : "", (unsigned long long)p->part[i]);
}

#define AT(member) .offset = offsetof(struct lump, member)
static const struct ha_key keys[] = {
    { "size", "100", "", HA_KEY_NUMBER, AT(size), .max = 1 << 30, .draw = "1..1000000" },
    { "grid", "1/1", "", HA_KEY_PAIR, AT(grid), .min = 1, .max = 1024, .draw = "1..16:1/1..8" },
    { "step", "64", "", HA_KEY_NUMBER, AT(step), .min = 8, .max = 256, .draw = "8..256:8" },
    { "color", "red", "", HA_KEY_WORD, AT(color), .word = color_word, .draw = "*" },
    { "other", "red", "", HA_KEY_WORD, AT(other), .word = color_word },
    { "parts", "0", "", HA_KEY_NUMBER, AT(parts), .max = 1000, .set = set_parts, .print = print_parts,
      .draw = "0 0..99+0..99+0..99 0..99+0..99+0..99+0..99+0..99" },
    { "ratio", "0.5", "", HA_KEY_REAL, AT(ratio), .least = -1, .most = 9, .draw = "-1 0.25 9" },
};

static double cost(const void *point) { return (double)((const struct lump *)point)->size / 100000; }
static enum ha_status settle(void *point, struct ha_why *why)
{
    return ((const struct lump *)point)->size % 3 == 1 ? HA_WAIVED : HA_OK;
}

static bool (*wrong)(const struct lump *p), (*dies)(const struct lump *p);
static double unlikely;    /* p of every case, where it is not 0 */
static uint64_t only_step; /* of those of this step alone, where it is not 0 */

static enum ha_status check(void *run, struct ha_group *g, struct ha_why *why)
{
    const struct lump *p = g->point[0];
    if (dies && dies(p)) _exit(3);
    if (wrong && wrong(p)) return ha_why(why, HA_FAIL, "it is wrong");
    if (unlikely > 0 && (!only_step || p->step == only_step)) ha_result_of(g->row[0])->p = unlikely;
    g->right[0] = true;
    return HA_OK;
}

static const struct ha_suite lumps = TEST_SUITE("lumps", struct lump, struct row, .key = keys, .keys = COUNT(keys),
                                                .class_key = "color", .file = { "lumps.csv" }, .settle = settle,
                                                .cost = cost, .check = check);
const struct ha_suite *const ha_suites_all[] = { &lumps, NULL };
const size_t ha_suites_count = 1;

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static char word[64];
static char *const words[] = { word };

static struct ha_plan_options of(const char *text)
{
    snprintf(word, sizeof word, "%s", text);
    return (struct ha_plan_options){ .words = words, .words_count = 1 };
}

static struct ha_plan draw(struct ha_plan_options o, uint64_t seed, size_t count)
{
    struct ha_plan plan = { 0 };
    struct ha_draw d = { .seed = seed };
    struct ha_why why;
    if (ha_plan_draw(&plan, &o, &d, count, &why) != HA_OK) fail_msg("%s", why.text);
    return plan;
}

TEST(a_seed_is_its_points)
{
    enum { MANY = 300 };
    struct ha_plan a = draw(of("lumps"), 7, MANY), b = draw(of("lumps"), 7, MANY), other = draw(of("lumps"), 8, MANY);
    size_t same = 0;
    assert_true(a.entries == MANY && b.entries == MANY && other.entries == MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_string_equal(a.entry[i].id, b.entry[i].id);
        same += !strcmp(a.entry[i].id, other.entry[i].id);
    }
    assert_true(same < MANY / 10);
    ha_plan_free(&a), ha_plan_free(&b), ha_plan_free(&other);
}

/* Every step and word, powers of two and their neighbours, numbers of any magnitude; nothing outside, nothing that
 * there is not, nothing too dear, and cheap ones so much more often that both cost as much in all. */
TEST(draws_are_of_the_whole_range)
{
    enum { MANY = 40000 };
    if (HA_SANITIZED) skip(); /* the draws above are made as these are */
    const double cheap = 0x1p-12;
    double spent = 0, on_dear = 0;
    struct ha_plan plan = draw(of("lumps"), 1, MANY);
    bool step[33] = { 0 }, color[3] = { 0 }, times[17] = { 0 }, parts[PARTS_MAX + 1] = { 0 };
    size_t near = 0, small = 0, magnitude[20] = { 0 };
    for (size_t i = 0; i < plan.entries; i++) {
        const struct lump *p = plan.entry[i].point;
        assert_true(p->size >= 1 && p->size <= 100000 && p->size % 3 != 1);
        assert_true(p->step % 8 == 0 && p->grid[0] % p->grid[1] == 0 && p->other == 0);
        assert_true(p->ratio < 0 || p->ratio > 8 || fabs(p->ratio - 0.25) < 1e-9);
        step[p->step / 8] = color[p->color] = times[p->grid[0] / p->grid[1]] = parts[p->parts] = true;
        size_t bits = 0;
        while (p->size >> bits) bits++;
        magnitude[bits]++;
        for (uint64_t power = 1; power < 1 << 17; power *= 2) near += p->size + 1 >= power && p->size <= power + 1;
        small += p->size < 300;
        spent += fmax(cost(p), cheap);
        on_dear += cost(p) > cheap ? cost(p) : 0;
    }
    for (size_t i = 1; i <= 32; i++) assert_true(step[i]);
    for (size_t i = 1; i <= 16; i++) assert_true(times[i]);
    for (size_t i = 2; i <= 16; i++) assert_true(magnitude[i] > (i < 10 ? 20 : 0));
    assert_true(color[0] && color[1] && color[2] && parts[1] && parts[3] && parts[5] && !parts[2]);
    assert_true(near > MANY / 3 && small > MANY / 2);
    assert_true(on_dear > 0.35 * spent && on_dear < 0.65 * spent);
    ha_plan_free(&plan);
}

/* Words have their turns. */
TEST(every_word_has_its_share)
{
    static char even[] = "lumps:step=8", odd[] = "lumps:step=16";
    char *const both_words[] = { even, odd };
    struct ha_plan plan = draw((struct ha_plan_options){ .words = both_words, .words_count = 2 }, 1, 256);
    size_t first = 0;
    for (size_t i = 0; i < plan.entries; i++) first += ((const struct lump *)plan.entry[i].point)->step == 8;
    assert_true(plan.entries == 256 && first == 128);
    ha_plan_free(&plan);
}

/* What an id, an option or -f says stays; another key is drawn all the same. */
TEST(what_is_said_is_not_drawn)
{
    const struct ha_override given[] = { { "color", "blue" } };
    struct ha_plan_options o = of("lumps:step=64");
    o.override = given;
    o.overrides = 1;
    o.filter = "ratio=9";
    struct ha_plan plan = draw(o, 1, 100);
    size_t larger = 0;
    for (size_t i = 0; i < plan.entries; i++) {
        const struct lump *p = plan.entry[i].point;
        assert_true(p->step == 64 && p->color == 2 && p->ratio > 8.9);
        larger += p->grid[0] > 8;
    }
    assert_true(plan.entries == 100 && larger > 10);
    ha_plan_free(&plan);
}

TEST(what_cannot_be_drawn_is_said)
{
    static const struct {
        const char *word, *says;
    } table[] = {
        { "lumsp", "did you mean 'lumps'" },
        { "lumps:stpe=8", "did you mean 'step'" },
        { "lumps:step=7", "step: '7' is not a whole number" },
        { "lumps:size=4", "nothing is left to draw" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct ha_plan_options o = of(table[i].word);
        struct ha_plan plan = { 0 };
        struct ha_draw d = { .seed = 1 };
        struct ha_why why = { "" };
        assert_int_equal(ha_plan_draw(&plan, &o, &d, 10, &why), HA_ERROR);
        if (!strstr(why.text, table[i].says)) fail_msg("%s: %s", table[i].word, why.text);
        ha_plan_free(&plan);
    }
}

/* ---- the smallest ------------------------------------------------------------------------------------------------ */

static bool from_17(const struct lump *p) { return p->size >= 17; }
static bool any_size(const struct lump *p) { return true; }
static bool group_of_5(const struct lump *p) { return p->grid[0] == 5 * p->grid[1]; }
static bool from_9_heads(const struct lump *p) { return p->grid[0] >= 9; }
static bool eight_of_16(const struct lump *p) { return p->step % 16 == 8 && p->step > 30; }
static bool blue(const struct lump *p) { return p->color == 2; }
static bool second_is_large(const struct lump *p) { return p->parts > 1 && p->part[1] >= 40; }
static bool both(const struct lump *p) { return p->step >= 72 && p->size >= 3000; }

static bool is_wrong(void *arg, const void *point)
{
    ++*(size_t *)arg;
    return wrong(point);
}

TEST(the_least_that_fails_is_found)
{
    static const char start[] = "lumps:size=99999,grid=40/8,step=200,color=blue,parts=7+63+0+12+9,ratio=9";
    static const struct {
        bool (*wrong)(const struct lump *p);
        const char *id;
    } table[] = {
        { any_size, "lumps:size=0,step=8" },
        { from_17, "lumps:size=17,step=8" },
        { group_of_5, "lumps:size=0,grid=5/1,step=8" },
        { eight_of_16, "lumps:size=0,step=40" },
        { blue, "lumps:size=0,step=8,color=blue" },
        { second_is_large, "lumps:size=0,step=8,parts=0+40" },
        { both, "lumps:size=3000,step=72" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        struct lump p;
        const struct ha_suite *suite;
        struct ha_why why;
        char id[HA_ID_MAX];
        size_t asked = 0;
        if (ha_id_parse(start, &suite, &p, sizeof p, &why) != HA_OK) fail_msg("%s", why.text);
        wrong = table[i].wrong;
        assert_true(wrong(&p) && ha_shrink(suite, &p, 400, is_wrong, &asked));
        ha_point_print(suite, &p, id, sizeof id);
        if (strcmp(id, table[i].id) != 0) fail_msg("%s, not %s, in %zu", id, table[i].id, asked);
        assert_true(asked <= 200);
        /* a few tries are a few */
        ha_id_parse(start, &suite, &p, sizeof p, &why);
        asked = 0;
        ha_shrink(suite, &p, 5, is_wrong, &asked);
        assert_true(asked <= 5 && wrong(&p));
    }
    wrong = NULL;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Runs until nothing new is left to draw: of 32 steps and 3 colours. What it says is in the file "printed". name NULL:
 * without a folder. */
static enum ha_exit run(const char *name, const char *text, struct ha_why *why)
{
    char out[TEST_PATH_MAX], printed[TEST_PATH_MAX];
    struct ha_plan plan = { 0 };
    struct ha_random random = { .time_ns = UINT64_MAX, .plan = &plan, .from = of(text), .draw = { .seed = 3 } };
    if (name) snprintf(out, sizeof out, "%s", test_path(name));
    snprintf(printed, sizeof printed, "%s", test_path("printed"));
    const struct ha_run_options options = { .out_dir = name ? out : NULL, .quiet = true, .random = &random };
    if (ha_plan_draw(&plan, &random.from, &random.draw, 5, why) != HA_OK) fail_msg("%s", why->text);
    test_print_to(printed, NULL);
    const enum ha_exit code = ha_run(&plan, &options, why);
    test_print_back();
    ha_plan_free(&plan);
    return code;
}

#define FEW "lumps:size=6,grid=10/2,parts=5,ratio=9"

TEST(a_run_goes_on_until_nothing_is_left)
{
    struct ha_why why = { "" };
    if (run("right", FEW, &why) != HA_EXIT_OK) fail_msg("%s", why.text);
    assert_int_equal(test_count(test_text("right/lumps.csv"), "pass"), 32 * 3);
}

/* Without a folder nothing is kept of what passes, but that it was there: none is run twice, and what is wrong is said.
 */
/* 12,288 of them; a sanitizer has the run above, of all that there is of fewer */
TEST(millions_need_no_memory)
{
    if (HA_SANITIZED) skip();
    enum { ALL = 16 * 8 * 32 * 3 };
    struct ha_why why = { "" };
    if (run(NULL, "lumps:size=6,parts=5,ratio=9", &why) != HA_EXIT_OK) fail_msg("%s", why.text);
    const char *passed = strstr(test_text("printed"), " passed, 0 failed, 0 skipped");
    assert_non_null(passed);
    while (passed[-1] >= '0' && passed[-1] <= '9') passed--;
    assert_in_range(atoi(passed), ALL - ALL / 100, ALL);
    wrong = group_of_5;
    assert_int_equal(run(NULL, "lumps:size=6,parts=5,ratio=9,color=red", &why), HA_EXIT_WRONG);
    wrong = NULL;
    assert_contains(test_text("printed"), "smallest: lumps:size=0,grid=5/1,step=8\n");
}

/* The point as drawn has its row, and so has the smallest, which no draw gives. */
TEST(the_smallest_is_a_row)
{
    struct ha_why why = { "" };
    wrong = group_of_5;
    const enum ha_exit code = run("wrong", FEW ",color=red", &why);
    wrong = NULL;
    assert_int_equal(code, HA_EXIT_WRONG);
    assert_int_equal(test_count(test_text("wrong/lumps.csv"), "fail"), 32 + 1);
    assert_int_equal(test_count(test_text("wrong/lumps.csv"), "\"lumps:size=0,grid=5/1,step=8\""), 1);
}

/* Each try has a process of its own. */
TEST(a_death_is_made_smaller)
{
    struct ha_why why = { "" };
    dies = from_9_heads;
    const enum ha_exit code = run("dead", FEW ",step=8,color=red", &why);
    dies = NULL;
    assert_int_equal(code, HA_EXIT_ENVIRONMENT);
    assert_int_equal(test_count(test_text("dead/lumps.csv"), "error"), 2);
    assert_int_equal(test_count(test_text("dead/lumps.csv"), "\"lumps:size=0,grid=10/2,step=8\"")
                         + test_count(test_text("dead/lumps.csv"), "\"lumps:size=0,grid=10/1,step=8\""),
                     1);
}

/* Of cases that are drawn until the time is over it takes the more to suspect one the later it comes. */
TEST(what_is_drawn_is_suspected_by_its_rank)
{
    enum { CASES = 32 * 3 };
    struct ha_why why = { "" };
    size_t suspects = 0;
    unlikely = 3e-13;
    for (double k = 1; k <= CASES; k++) suspects += unlikely * 2 * k * pow(1 + log(k), 2) < HA_SUSPECT_P;
    assert_true(suspects > 5 && suspects < CASES - 5);
    const enum ha_exit code = run("rank", FEW, &why);
    unlikely = 0;
    assert_int_equal(code, HA_EXIT_OK);
    assert_int_equal(test_count(test_text("rank/lumps.csv"), "\"suspect\""), suspects);
    assert_int_equal(test_count(test_text("rank/lumps.csv"), "\"pass\""), CASES - suspects);
}

/* That those before it were forgotten makes none suspect. */
TEST(the_rank_counts_what_was_forgotten)
{
    if (HA_SANITIZED) skip();
    struct ha_why why = { "" };
    unlikely = 1e-13;
    only_step = 8;
    const enum ha_exit kept = run("kept", "lumps:size=6,parts=5,ratio=9,color=red", &why);
    const size_t suspects = test_count(test_text("kept/lumps.csv"), "\"suspect\""),
                 said = test_count(test_text("printed"), "SUSPECT: ");
    const enum ha_exit forgotten = run(NULL, "lumps:size=6,parts=5,ratio=9,color=red", &why);
    unlikely = 0;
    only_step = 0;
    assert_true(kept == HA_EXIT_OK && forgotten == HA_EXIT_OK);
    assert_true(suspects > 0);
    assert_true(said > 0 && test_count(test_text("printed"), "SUSPECT: ") == said);
    print_message("%zu suspects, said in %zu places\n", suspects, said);
}

TEST_MAIN { return test_all("tests", test_folder_make, test_folder_remove); }
