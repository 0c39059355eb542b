/* The verdicts on the papers' claims, and what stands in the way of one, from rows made up here. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/report/row.h"
#include "suites/variants/claims.h"
#include "suites/variants/fill.h"

#include <math.h>

enum { ROWS_MAX = 16 };
static struct ha_row row[ROWS_MAX];
static struct ha_case point[ROWS_MAX];
static struct ha_entry entry[ROWS_MAX];
static size_t listed[ROWS_MAX];
static struct ha_section section = { .name = "made", .entry = listed };
static struct ha_results results = { .entry = entry, .section = &section, .sections = 1, .measured = true };
static struct ha_judgement said;

static void begin(void) { section.count = results.entries = 0; }

static struct ha_row *put(const char *variant, size_t ctx, size_t batch, double step_ns)
{
    const size_t i = results.entries++;
    struct ha_row *r = &row[i];
    assert_true(i < ROWS_MAX);
    ha_fields_clear(&ha_suite_variants, r);
    r->head.verdict = HA_PASS;
    snprintf(r->variant, sizeof r->variant, "%s", variant);
    snprintf(r->device, sizeof r->device, "cuda");
    snprintf(r->device_kind, sizeof r->device_kind, "cuda");
    snprintf(r->ctx_len, sizeof r->ctx_len, "%zu", ctx);
    snprintf(r->dataset, sizeof r->dataset, "iid");
    r->batch = (double)batch;
    r->step_ns = step_ns;
    snprintf(point[i].device, sizeof point[i].device, "cuda");
    entry[i] = (struct ha_entry){ &point[i], r, "id" };
    listed[section.count++] = i;
    return r;
}

/* points of a speedup of b over a */
static void put_speedup(size_t ctx, size_t batch, double speedup)
{
    put("b", ctx, batch, 10);
    put("a", ctx, batch, 10 * speedup);
}

static void judged(const struct ha_claim *c, enum ha_claim_verdict want, const char *words)
{
    ha_claim_judge(c, &results, "cuda", &said);
    if (said.verdict != want)
        fail_msg("%s%s (%s): %s, want %s", said.figures, said.reason, said.rule, ha_claim_verdict_name(said.verdict),
                 ha_claim_verdict_name(want));
    if (want != HA_CLAIM_NOT_APPLICABLE) assert_string_equal(said.reason, "");
    assert_contains(*said.reason ? said.reason : said.figures, words);
}

static const struct ha_claim grows = { .section = "made",
                                       .cases = 4,
                                       .variant = "b",
                                       .over = "a",
                                       .column = "step_ns",
                                       .axis = { "ctx_len", "batch" },
                                       .scale = 1,
                                       .unit = "x",
                                       .needs_link = true,
                                       .form = ha_claim_grows,
                                       .holds = { 1 },
                                       .in_shape = { 1 } };

TEST(a_speedup_that_grows)
{
    static const struct {
        double speedup[4]; /* at (ctx, batch) of (1, 1), (1, 2), (10, 1), (10, 2) */
        enum ha_claim_verdict want;
        const char *words;
    } table[] = {
        { { 1.5, 2, 3, 4 },
          HA_CLAIM_HOLDS,
          "4x (ctx_len 10, batch 2), 3x (ctx_len 10, batch 1), 2x (ctx_len 1, batch" },
        { { 1.5, 3, 2, 4 }, HA_CLAIM_HOLDS, "grows in 4 of 4 pairs" },
        { { 0.9, 2, 3, 4 }, HA_CLAIM_IN_SHAPE, "4 of 4 pairs" },
        { { 1.5, 1.4, 3, 4 }, HA_CLAIM_IN_SHAPE, "3 of 4 pairs" },
        { { 2, 3, 3, 1.9 }, HA_CLAIM_REFUTED, "2 of 4 pairs" },
        { { 0.2, 0.3, 0.4, 0.9 }, HA_CLAIM_REFUTED, "4 of 4 pairs" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        begin();
        for (size_t k = 4; k-- > 0;) put_speedup(k < 2 ? 1 : 10, 1 + k % 2, table[i].speedup[k]);
        judged(&grows, table[i].want, table[i].words);
    }
}

static const struct ha_claim most = { .section = "made",
                                      .cases = 2,
                                      .variant = "b",
                                      .column = "merge_share",
                                      .scale = 100,
                                      .unit = "%",
                                      .form = ha_claim_most,
                                      .holds = { 0.05 },
                                      .in_shape = { 0.1 } };

TEST(at_most)
{
    static const double share[] = { 0.05, 0.051, 0.1, 0.11 };
    static const enum ha_claim_verdict want[] = { HA_CLAIM_HOLDS, HA_CLAIM_IN_SHAPE, HA_CLAIM_IN_SHAPE,
                                                  HA_CLAIM_REFUTED };
    for (size_t i = 0; i < COUNT(share); i++) {
        begin();
        put("b", 1, 1, 1)->ratios.merge_share = share[i];
        put("b", 2, 1, 1)->ratios.merge_share = 0.01;
        put("a", 2, 1, 1)->ratios.merge_share = 0.9; /* another variant */
        judged(&most, want[i], "1% to ");
    }
}

static const struct ha_claim least = { .section = "made",
                                       .cases = 1,
                                       .variant = "quest",
                                       .over = "quest",
                                       .with = "group=max,block=32",
                                       .over_with = "block=16",
                                       .column = "step_ns",
                                       .scale = 1,
                                       .unit = "x",
                                       .form = ha_claim_least,
                                       .holds = { 2 },
                                       .in_shape = { 1 } };

/* One variant over itself, by its options; what a row does not say of them is the default. */
TEST(at_least_by_options)
{
    static const struct {
        double step_ns;
        const char *params, *over;
        enum ha_claim_verdict want;
    } table[] = {
        { 5, "block=32,group=max", "", HA_CLAIM_HOLDS },
        { 9, "block=32,group=max", "block=16", HA_CLAIM_IN_SHAPE },
        { 11, "block=32,budget=7,group=max", "group=max", HA_CLAIM_REFUTED },
        { 5, "block=32", "", HA_CLAIM_NOT_APPLICABLE },
        { 5, "block=32,group=maximum", "", HA_CLAIM_NOT_APPLICABLE },
        { 5, "group=max", "", HA_CLAIM_NOT_APPLICABLE },
        { 5, "block=32,group=max", "block=64", HA_CLAIM_NOT_APPLICABLE },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        begin();
        snprintf(put("quest", 1, 1, table[i].step_ns)->params, sizeof row->params, "%s", table[i].params);
        snprintf(put("quest", 1, 1, 10)->params, sizeof row->params, "%s", table[i].over);
        judged(&least, table[i].want, table[i].want == HA_CLAIM_NOT_APPLICABLE ? "0 of the 1 cases" : "x to ");
    }
}

/* The other variant's rows may stand in a section of their own, and then are not looked for in the claim's. */
TEST(at_least_beside_another_section)
{
    struct ha_section both[] = { { .name = "made", .entry = listed }, { .name = "beside", .entry = listed + 2 } };
    const struct ha_results of = { .entry = entry, .section = both, .sections = 2, .measured = true };
    struct ha_claim c = least;
    c.variant = "b";
    c.over = "a";
    c.with = c.over_with = NULL;
    c.over_section = "beside";
    begin();
    put("b", 1, 1, 10);
    put("a", 1, 1, 5);
    put("a", 1, 1, 30);
    both[0].count = 2;
    both[1].count = 1;
    ha_claim_judge(&c, &of, "cuda", &said);
    assert_int_equal(said.verdict, HA_CLAIM_HOLDS);
    assert_contains(said.figures, "3x to 3x");
    both[1].count = 0;
    ha_claim_judge(&c, &of, "cuda", &said);
    assert_int_equal(said.verdict, HA_CLAIM_NOT_APPLICABLE);
    assert_contains(said.reason, "0 of the 1 cases of section made, beside beside");
    c.over_section = NULL;
    ha_claim_judge(&c, &of, "cuda", &said);
    assert_int_equal(said.verdict, HA_CLAIM_REFUTED);
}

/* a column over another one of the same row */
TEST(at_least_of_another_column)
{
    static const struct ha_claim claim = { .section = "made",
                                           .cases = 1,
                                           .variant = "b",
                                           .over = "b",
                                           .column = "overlap_low",
                                           .over_column = "overlap_high",
                                           .scale = 1,
                                           .unit = "x",
                                           .form = ha_claim_least,
                                           .holds = { 1 },
                                           .in_shape = { 0.5 } };
    begin();
    struct ha_row *r = put("b", 1, 1, 1);
    r->overlap_low = 0.25;
    judged(&claim, HA_CLAIM_NOT_APPLICABLE, "0 of the 1 cases");
    r->overlap_high = 0.5;
    judged(&claim, HA_CLAIM_HOLDS, "2x to 2x");
    r->overlap_high = 0.15;
    judged(&claim, HA_CLAIM_IN_SHAPE, "0.6x to 0.6x");
}

TEST(within)
{
    static const double from[] = { 0.93, 0.92, 0.94, 0.79, 0.94 }, to[] = { 0.97, 0.97, 0.98, 0.9, 1.1 };
    static const enum ha_claim_verdict want[] = { HA_CLAIM_HOLDS, HA_CLAIM_IN_SHAPE, HA_CLAIM_IN_SHAPE,
                                                  HA_CLAIM_REFUTED, HA_CLAIM_REFUTED };
    const struct ha_claim within = { .section = "made",
                                     .cases = 2,
                                     .variant = "b",
                                     .column = "cosine",
                                     .scale = 1,
                                     .unit = "",
                                     .form = ha_claim_within,
                                     .holds = { 0.93, 0.97 },
                                     .in_shape = { 0.8, 1 } };
    for (size_t i = 0; i < COUNT(from); i++) {
        begin();
        put("b", 1, 1, 1)->cosine = to[i];
        put("b", 2, 1, 1)->cosine = from[i];
        judged(&within, want[i], " to ");
    }
}

/* along an option: 16 by default */
TEST(values_that_fall)
{
    static const struct {
        double speedup[3]; /* block 8, 16, 32 */
        enum ha_claim_verdict want;
        const char *words;
    } table[] = {
        { { 4, 3, 2 }, HA_CLAIM_HOLDS, "4x (block 8), 3x (block 16), 2x (block 32); falls in 3 of 3 pairs" },
        { { 4, 4.5, 2 }, HA_CLAIM_IN_SHAPE, "falls in 2 of 3 pairs" },
        { { 2, 3, 4 }, HA_CLAIM_REFUTED, "falls in 0 of 3 pairs" },
    };
    struct ha_claim falls = grows;
    falls.variant = "quest";
    falls.cases = 3;
    falls.axis[0] = "block";
    falls.axis[1] = NULL;
    falls.falls = true;
    for (size_t i = 0; i < COUNT(table); i++) {
        static const char *const params[] = { "block=8", "budget=64", "block=32" };
        begin();
        put("a", 1, 1, 12);
        for (size_t k = 0; k < 3; k++)
            snprintf(put("quest", 1, 1, 12 / table[i].speedup[k])->params, sizeof row->params, "%s", params[k]);
        judged(&falls, table[i].want, table[i].words);
    }
}

static const struct ha_claim crosses = { .section = "made",
                                         .cases = 3,
                                         .variant = "b",
                                         .over = "a",
                                         .column = "step_ns",
                                         .axis = { "q_len" },
                                         .scale = 1,
                                         .form = ha_claim_crosses,
                                         .unit = "",
                                         .holds = { 16, 64 },
                                         .in_shape = { 2, 512 } };

TEST(a_crossing)
{
    static const struct {
        double speedup[3]; /* at q_len 1, 16, 1024 */
        enum ha_claim_verdict want;
        const char *words;
    } table[] = {
        { { 4, 2, 0.0625 }, HA_CLAIM_HOLDS, "4 (q_len 1), 2 (q_len 16), 0.0625 (q_len 1024); passes 1 at q_len 36.8" },
        { { 4, 0.25, 0.125 }, HA_CLAIM_IN_SHAPE, "passes 1 at q_len 4" },
        { { 4, 3, 2 }, HA_CLAIM_REFUTED, "; at or above 1 up to q_len 1024" },
        { { 0.9, 0.8, 0.7 }, HA_CLAIM_REFUTED, "; below 1 up to q_len 1024" },
        { { 4, 0.5, 2 }, HA_CLAIM_REFUTED, "passes 1 at q_len 6.35" },
        { { 1.1, 0.01, 0.001 }, HA_CLAIM_REFUTED, "passes 1 at q_len 1.06" },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        static const double q_len[] = { 1, 16, 1024 };
        begin();
        for (size_t k = 3; k-- > 0;) {
            put("b", 1, 1, 10)->q_len = q_len[k];
            put("a", 1, 1, 10 * table[i].speedup[k])->q_len = q_len[k];
        }
        judged(&crosses, table[i].want, table[i].words);
    }
}

static const struct ha_claim range = { .section = "made",
                                       .cases = 2,
                                       .variant = "b",
                                       .column = "kept_least",
                                       .other = "kept_most",
                                       .scale = 100,
                                       .unit = "%",
                                       .form = ha_claim_range,
                                       .holds = { 0.01, 0.3 },
                                       .in_shape = { 10 } };

TEST(a_range)
{
    static const struct {
        double least, most;
        enum ha_claim_verdict want;
    } table[] = {
        { 0.01, 0.3, HA_CLAIM_HOLDS },    { 0, 0.6, HA_CLAIM_HOLDS },        { 0.001, 0.15, HA_CLAIM_HOLDS },
        { 0.02, 0.3, HA_CLAIM_IN_SHAPE }, { 0.001, 0.7, HA_CLAIM_IN_SHAPE }, { 0.001, 0.14, HA_CLAIM_IN_SHAPE },
        { 0.04, 0.39, HA_CLAIM_REFUTED }, { 0, 0, HA_CLAIM_REFUTED },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        begin();
        struct ha_row *r = put("b", 1, 1, 1); /* one has the least, the other the most */
        r->kept_least = table[i].least;
        r->kept_most = table[i].least;
        r = put("b", 2, 1, 1);
        r->kept_least = r->kept_most = table[i].most;
        judged(&range, table[i].want, "% to ");
    }
    row[1].kept_most = (double)NAN;
    judged(&range, HA_CLAIM_NOT_APPLICABLE, "1 of the 2 cases");
}

static const struct ha_claim spread = { .section = "made",
                                        .cases = 4,
                                        .variant = "b",
                                        .column = "rel_l2",
                                        .group = "dataset",
                                        .scale = 100,
                                        .unit = "%",
                                        .form = ha_claim_spread,
                                        .holds = { 0.05 },
                                        .in_shape = { 0.1 } };

TEST(a_spread_within_groups)
{
    static const double width[] = { 0.04, 0.06, 0.11 };
    static const enum ha_claim_verdict want[] = { HA_CLAIM_HOLDS, HA_CLAIM_IN_SHAPE, HA_CLAIM_REFUTED };
    for (size_t i = 0; i < COUNT(width); i++) {
        begin();
        for (size_t k = 0; k < 4; k++) {
            struct ha_row *r = put("b", k, 1, 1);
            snprintf(r->dataset, sizeof r->dataset, k % 2 ? "english" : "code");
            r->rel_l2 = (k % 2 ? 0.01 : 0.5) + (k == 2 ? width[i] : 0); /* groups are far apart */
        }
        judged(&spread, want[i], "; english 1% to 1%");
    }
}

/* What lacks a case is no verdict, for want of any of these. */
TEST(cases_that_are_missing)
{
    for (size_t wrong = 0; wrong < 7; wrong++) {
        begin();
        for (size_t k = 0; k < 4; k++) put_speedup(k < 2 ? 1 : 10, 1 + k % 2, 2 + (double)k);
        judged(&grows, HA_CLAIM_HOLDS, "5x");
        if (wrong == 0) row[0].head.verdict = HA_VERDICT_FAIL;
        if (wrong == 1) row[0].step_ns = (double)NAN;
        if (wrong == 2) entry[1].row = NULL;
        if (wrong == 3) section.count--; /* filtered away */
        if (wrong == 4) strcpy(row[3].device, "host");
        if (wrong == 5) strcpy(row[1].dataset, "sinks"); /* another workload */
        if (wrong == 6) strcpy(row[2].variant, "c");
        judged(&grows, HA_CLAIM_NOT_APPLICABLE, "3 of the 4 cases of section made");
        assert_string_equal(said.figures, "");
    }
    begin();
    judged(&grows, HA_CLAIM_NOT_APPLICABLE, "0 of the 4 cases");
    strcpy(section.name, "other");
    judged(&grows, HA_CLAIM_NOT_APPLICABLE, "0 of the 4 cases of section made");
    strcpy(section.name, "made");
}

/* The figures stand there all the same. */
TEST(without_a_link)
{
    static const char *const kinds[] = { "host", "emulated", "null" };
    for (size_t i = 0; i < COUNT(kinds); i++) {
        begin();
        for (size_t k = 0; k < 4; k++) put_speedup(k < 2 ? 1 : 10, 1 + k % 2, 2 + (double)k);
        for (size_t k = 0; k < 8; k++) strcpy(row[k].device_kind, kinds[i]);
        judged(&grows, HA_CLAIM_NOT_APPLICABLE, "there is no PCIe link here");
        assert_contains(said.figures, "5x (ctx_len 10, batch 2)");
    }
}

static const char *print(void)
{
    ha_claims_print(test_print(), &results);
    return test_printed();
}

/* Of a run that has a section of a claim; of a check nothing. Every column that a claim names is there. */
TEST(what_is_printed)
{
    begin();
    put_speedup(1, 1, 2);
    assert_string_equal(print(), "");
    strcpy(section.name, ha_claims[0].section);
    size_t rows = 0;
    for (const char *at = print(); (at = strstr(at, "\n  verdict:   not applicable: 0 of the ")); at++) rows++;
    size_t asked = 0;
    for (size_t i = 0; i < ha_claims_count; i++) asked += !strcmp(ha_claims[i].section, ha_claims[0].section);
    assert_int_equal(rows, asked);
    char more[64];
    snprintf(more, sizeof more, "\n%zu more claims are not asked: no case", ha_claims_count - asked);
    assert_contains(print(), more);
    assert_contains(print(), "\nclaims of the papers, device cuda:\n");
    results.measured = false;
    assert_string_equal(print(), "");
    results.measured = true;
    strcpy(section.name, "made");
    for (size_t i = 0; i < ha_claims_count; i++) {
        const struct ha_claim *c = &ha_claims[i];
        const char *const names[] = { c->column, c->other, c->over_column, c->axis[0], c->axis[1], c->group };
        for (size_t k = 0; k < COUNT(names); k++) {
            bool known = !names[k];
            for (size_t f = 0; f < ha_suite_variants.fields; f++)
                known = known || !strcmp(ha_suite_variants.field[f].name, names[k]);
            const struct ha_variant *v = ha_variant_find(c->variant);
            for (size_t p = 0; k > 2 && p < v->params_count; p++) known = known || !strcmp(v->params[p].name, names[k]);
            if (!known) fail_msg("claim %zu: no column %s", i, names[k]);
        }
    }
}
