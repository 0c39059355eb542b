/* The table is complete and docs/merging.md says the same, every row is what its case says, and the outcomes that the
 * cases demand are those of a merge that is right: the plain one of kernels/c. */

#include "harness/api/kernels.h"
#include "harness/base/numeric.h"
#include "harness/base/registry.h"
#include "suites/merge/fills.h"
#include "suites/merge/judge.h"
#include "suites/merge/tokens.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct ha_kernels ha_kernels_c;

enum { STATES_MAX = 512, ROWS = 12, SEED = 7 };
static bool reduced;

static void *make(size_t count, size_t bytes)
{
    void *p = calloc(count, bytes);
    if (!p) abort();
    return p;
}

/* ---- rows: each array a block of its own, so that a write past its end is seen by the sanitizer ---------------- */

struct point {
    const struct ha_merge_case *c; /* NULL: random */
    enum ha_form form;
    enum ha_dtype dtype;
    size_t states, dim;
    uint64_t seed;
};

#define expect(ok, point, row, ...)                                                                                \
    do {                                                                                                           \
        if (!(ok)) {                                                                                               \
            print_error(                                                                                           \
                "%s, %s, %s, %zu states, dim %zu, seed %llu, row %zu: ", (point)->c ? (point)->c->name : "random", \
                ha_form_name((point)->form), ha_dtype_name((point)->dtype), (point)->states, (point)->dim,         \
                (unsigned long long)(point)->seed, row);                                                           \
            fail_msg(__VA_ARGS__);                                                                                 \
        }                                                                                                          \
    } while (0)

static struct ha_merge_row row_filled(const struct point *p, size_t index)
{
    struct ha_merge_row r = {
        .states = p->states, .dim = p->dim, .form = p->form, .dtype = p->dtype, .seed = p->seed, .index = index
    };
    r.o = make(p->states * p->dim, sizeof *r.o);
    r.lse = make(p->states, sizeof *r.lse);
    r.sum = make(p->states, sizeof *r.sum);
    r.whole_o = make(p->dim, sizeof *r.whole_o);
    r.full_o = make(p->dim, sizeof *r.full_o);
    r.full_slack = make(p->dim, sizeof *r.full_slack);
    for (size_t m = 0; m < p->states; m++) r.sum[m] = 1;
    (p->c ? p->c->fill : ha_random_fill)(&r);
    return r;
}

static void row_free(struct ha_merge_row *r)
{
    free(r->o);
    free(r->lse);
    free(r->sum);
    free(r->whole_o);
    free(r->full_o);
    free(r->full_slack);
}

/* ---- rows merged by kernels/c and judged ------------------------------------------------------------------------- */

/* The worst err/bound of the rows seen since it was set to 0, and the least of those with a planted error. */
static double worst, least_planted;

static void judge_rows(const struct point *p, enum ha_order order, size_t count, bool planted)
{
    const struct ha_merge_shape shape = {
        .states = p->states,
        .tokens = 1,
        .heads = count,
        .dim = p->dim,
        .form = p->form,
        .dtype = p->dtype,
        .order = order,
        .plus_inf = p->c && p->c->plus_inf,
    };
    const enum ha_must must = !p->c || (p->c->must == HA_MUST_FAIL && !planted) ? HA_MUST_BOUND : p->c->must;
    struct ha_room room;
    struct ha_merge_rows rows;
    struct ha_why why;
    assert_int_equal(ha_room_map(ha_batch_bytes(&shape), &room, &why), HA_OK);
    assert_int_equal(ha_merge_rows_make(&rows, &shape, &why), HA_OK);
    struct ha_batch *batch = ha_batch_make(&room, &shape);
    assert_non_null(batch);
    ha_merge_rows_fill(&rows, batch, p->seed, p->c ? p->c->fill : ha_random_fill, planted ? p->c->plant : NULL);
    for (size_t i = 0; i < batch->calls_count; i++) ha_kernels_c.merge(&batch->calls[i]);
    for (size_t r = 0; r < count; r++) {
        struct ha_judgement j = { .status = HA_OK };
        ha_judge_row(&j, batch, &rows, r, must, &ha_kernels_c.traits);
        if (planted) {
            expect(j.ratio >= 2, p, r, "the planted error shows at a ratio of %g only", j.ratio);
            least_planted = fmin(least_planted, j.ratio);
        } else {
            expect(j.status == HA_OK, p, r, "order %d: ratio %g to %s", (int)order, j.ratio, j.against);
            worst = fmax(worst, j.ratio);
        }
    }
    ha_batch_free(batch);
    ha_merge_rows_free(&rows);
    ha_room_unmap(&room);
}

static bool allows(unsigned bits, unsigned i) { return bits == 0 || bits >> i & 1u; }

/* f for every form, type and some numbers of states that a case allows */
static void each_point(const struct ha_merge_case *c, void (*f)(const struct point *))
{
    static const size_t counts[] = { 1, 2, 3, 5, 7, 16, 33, 133, 512 };
    static const size_t dims[] = { 64, 128, 80, 256 };
    const size_t low = c->states_min ? c->states_min : 1, high = c->states_max ? c->states_max : STATES_MAX;
    size_t turn = 0;
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned type = 0; type < HA_DTYPE_COUNT; type++) {
            if (!allows(c->forms, form) || !allows(c->dtypes, type)) continue;
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                if (counts[k] < low || counts[k] > high || (reduced && counts[k] > 16 && counts[k] != low)) continue;
                turn++;
                if (reduced && turn % 3) continue;
                /* the many states by turns only: they cost the most */
                if (counts[k] > 100 && (form + type) % 4 != (counts[k] > 200)) continue;
                f(&(struct point){ c, (enum ha_form)form, (enum ha_dtype)type, counts[k], dims[turn % 4],
                                   SEED + turn });
            }
        }
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void test_table(void **unused)
{
    (void)unused;
    unsigned seen[46] = { 0 };
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) {
        const struct ha_merge_case *c = &ha_merge_suite.cases[i];
        assert_true(c->number >= 1 && c->number <= 45);
        seen[c->number]++;
        assert_true(c->name && c->name[0]
                    && strspn(c->name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(c->name));
        assert_true(c->why && c->why[0] && !strchr(c->why, '\n'));
        assert_non_null(c->fill);
        assert_true((c->must == HA_MUST_FAIL) == (c->plant != NULL));
        assert_true(c->states_min <= c->states_max && c->states_max <= STATES_MAX
                    && (c->states_min > 0) == (c->states_max > 0));
        assert_true(i == 0 || c->number >= c[-1].number);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(c->name, ha_merge_suite.cases[k].name);
    }
    for (unsigned n = 1; n <= 45; n++) assert_true(seen[n] > 0);
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        assert_true(d->does[0] && d->finder[0] && d->merge && d->seen);
        assert_true(d->forms < 1u << HA_FORM_COUNT && d->dtypes < 1u << HA_DTYPE_COUNT);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(d->name, ha_merge_suite.defects[k].name);
    }
}

static void test_finders(void **unused)
{
    (void)unused;
    for (size_t d = 0; d < ha_merge_suite.defects_count; d++) {
        const char *finder = ha_merge_suite.defects[d].finder;
        size_t i = 0;
        while (i < ha_merge_suite.cases_count && strcmp(finder, ha_merge_suite.cases[i].name) != 0) i++;
        if (i == ha_merge_suite.cases_count)
            fail_msg("%s is to be found by %s: no such case", ha_merge_suite.defects[d].name, finder);
    }
}

/* ---- the tables of docs/merging.md, where | is written \\| */

static void read_page(char *page, size_t room)
{
    FILE *f = fopen("docs/merging.md", "r");
    assert_non_null(f);
    size_t n = 0;
    for (int c; (c = fgetc(f)) != EOF;) {
        if (c == '\\') continue;
        assert_true(n + 1 < room);
        page[n++] = (char)c;
    }
    page[n] = '\0';
    fclose(f);
}

/* The line of the page that begins so. */
static void find_line(const char *page, const char *begin, char *line, size_t room)
{
    const char *at = strstr(page, begin);
    if (!at) fail_msg("docs/merging.md has no line '%s'", begin);
    else snprintf(line, room, "%.*s", (int)strcspn(at, "\n"), at);
}

static void test_page(void **unused)
{
    (void)unused;
    static const char *const must[] = { "bound", "exact", "copy", "commute", "must fail" };
    static char page[1 << 16], begin[512], line[2048], end[128], seen[256];
    read_page(page, sizeof page);
    for (size_t i = 0; i < ha_merge_suite.defects_count; i++) {
        const struct ha_merge_defect *d = &ha_merge_suite.defects[i];
        snprintf(begin, sizeof begin, "\n| `%s` | %s | ", d->name, d->does);
        find_line(page, begin + 1, line, sizeof line);
        snprintf(end, sizeof end, " | `%s` |", d->finder);
        if (!strstr(line, end)) fail_msg("docs/merging.md does not say that %s finds %s", d->finder, d->name);
        snprintf(seen, sizeof seen, "%s", d->seen);
        for (char *rest = seen, *one; (one = strsep(&rest, ", ")) != NULL;)
            if (!strstr(line, one)) fail_msg("docs/merging.md does not say that %s was seen in %s", d->name, one);
    }
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) {
        const struct ha_merge_case *c = &ha_merge_suite.cases[i];
        snprintf(begin, sizeof begin, "| %u | `%s` | %s | %s |", c->number, c->name, must[c->must], c->why);
        find_line(page, begin, line, sizeof line);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* two tokens of weight 1 and 3, one that is masked, one that is not selected */
static void test_tokens(void **unused)
{
    (void)unused;
    enum { DIM = 5 };
    const struct ha_merge_row r = { .states = 2, .dim = DIM, .seed = SEED, .index = 3 };
    static struct ha_tokens t;
    double o[DIM], v[4][DIM], lse, sum;
    ha_tokens_make(&t, &r, 4);
    for (size_t j = 0; j < 4; j++) {
        t.score[j] = 0;
        ha_tokens_attend(&t, j, j + 1, false, v[j], &lse, &sum);
        assert_true(lse == 0 && sum == 1);
    }
    t.score[1] = log(3);
    t.score[2] = -HUGE_VAL;
    t.dropped[3] = true;
    ha_tokens_attend(&t, 0, 4, false, o, &lse, &sum);
    assert_true(fabs(lse - log(4)) < 1e-15 && fabs(sum - 4.0 / 3) < 1e-15);
    for (size_t i = 0; i < DIM; i++) assert_true(fabs(o[i] - (v[0][i] + 3 * v[1][i]) / 4) < 1e-15);
    ha_tokens_attend(&t, 0, 4, true, o, &lse, &sum);
    assert_true(fabs(lse - log(5)) < 1e-15);
    for (size_t i = 0; i < DIM; i++) assert_true(fabs(o[i] - (v[0][i] + 3 * v[1][i] + v[3][i]) / 5) < 1e-15);
    ha_tokens_attend(&t, 2, 4, false, o, &lse, &sum);
    assert_true(lse == -HUGE_VAL && sum == 1);
    for (size_t i = 0; i < DIM; i++) assert_true(o[i] == 0);
}

/* the parts that a cut makes of n tokens */
static void test_cuts(void **unused)
{
    (void)unused;
    static struct ha_tokens t;
    for (size_t states = 1; states <= 40; states++) {
        const struct ha_merge_row r = { .states = states, .dim = 1, .seed = SEED, .index = states };
        for (size_t n = 1; n < 90; n += 4)
            for (int cut = HA_CUT_EVEN; cut <= HA_CUT_EDGE; cut++) {
                ha_tokens_make(&t, &r, n);
                ha_tokens_cut(&t, (enum ha_cut)cut);
                for (size_t m = 1; m < states; m++) assert_true(t.end[m - 1] <= t.end[m]);
                assert_int_equal(t.end[states - 1], n);
                if (cut == HA_CUT_ONES)
                    for (size_t m = 0; m + 1 < states && m < n; m++) assert_int_equal(t.end[m], m + 1);
                if (cut == HA_CUT_EDGE && states > 2) assert_true(t.end[0] == 0 && t.end[1] == 1 && t.end[2] == n);
            }
    }
}

/* May the row hold o = x? NaN and inf only where no keys are, or where the case says so. */
static bool fits(const struct point *p, const struct ha_merge_row *r, size_t m, double x)
{
    if (r->lse[m] == -HUGE_VAL) return true;
    return fabs(x) <= (p->dtype == HA_F16 ? 65504 : (double)FLT_MAX) || (isnan(x) && p->c && p->c->number == 11);
}

static void check_range(const struct point *p, const struct ha_merge_row *r)
{
    for (size_t m = 0; m < p->states; m++) {
        const double l = r->lse[m];
        expect(fabs(l) <= (double)FLT_MAX || l == -HUGE_VAL || (isnan(l) && p->c && p->c->number == 10), p,
               (size_t)r->index, "LSE of state %zu is %g", m, l);
        expect(r->sum[m] >= 1 && r->sum[m] <= 0x1p24, p, (size_t)r->index, "sum of state %zu is %g", m, r->sum[m]);
        for (size_t i = 0; i < p->dim; i++)
            expect(fits(p, r, m, r->o[m * p->dim + i]), p, (size_t)r->index, "o[%zu] of state %zu is %g", i, m,
                   r->o[m * p->dim + i]);
    }
}

static bool same(const double *a, const double *b, size_t n) { return memcmp(a, b, n * sizeof *a) == 0; }

static void check_again(const struct point *p, const struct ha_merge_row *r)
{
    struct ha_merge_row again = row_filled(p, (size_t)r->index);
    expect(same(r->o, again.o, p->states * p->dim) && same(r->lse, again.lse, p->states)
               && same(r->sum, again.sum, p->states) && same(r->whole_o, again.whole_o, p->dim)
               && same(r->full_o, again.full_o, p->dim) && same(r->full_slack, again.full_slack, p->dim)
               && r->index == again.index,
           p, (size_t)r->index, "the row is another the second time");
    row_free(&again);
}

/* the states merged in binary64 are the whole, and the whole is within the certificate of full attention */
static void check_identity(const struct point *p, const struct ha_merge_row *r)
{
    double max = -HUGE_VAL, sum = 0, most = 1;
    for (size_t m = 0; m < p->states; m++) max = fmax(max, r->lse[m]);
    for (size_t m = 0; m < p->states; m++) sum += exp(r->lse[m] - max);
    const double lse = max + log(sum);
    expect(fabs(lse - r->whole_lse) <= 1e-12 * fmax(1, fabs(lse)), p, (size_t)r->index, "LSE %.17g, whole %.17g", lse,
           r->whole_lse);
    for (size_t i = 0; i < p->dim; i++) {
        double o = 0;
        for (size_t m = 0; m < p->states; m++)
            if (r->lse[m] > -HUGE_VAL) {
                o += exp(r->lse[m] - max) / sum * r->o[m * p->dim + i];
                most = fmax(most, fabs(r->o[m * p->dim + i]));
            }
        /* what exp makes of a rounding of the LSE, too */
        expect(fabs(o - r->whole_o[i]) <= 1e-12 * most * fmax(1, fabs(lse)), p, (size_t)r->index,
               "o[%zu] %.17g, whole %.17g", i, o, r->whole_o[i]);
        if (r->full)
            expect(fabs(r->whole_o[i] - r->full_o[i]) <= r->full_slack[i] + 1e-12, p, (size_t)r->index,
                   "o[%zu] is outside the certificate", i);
    }
}

static size_t rows_of(const struct ha_merge_case *c, size_t states)
{
    const size_t rows = states > 100 ? 2 : reduced ? ROWS / 2 : ROWS;
    return c->rows && c->rows < rows ? c->rows : rows;
}

static void rows_at(const struct point *p)
{
    for (size_t i = 0; i < rows_of(p->c, p->states); i++) {
        struct ha_merge_row r = row_filled(p, i);
        check_range(p, &r);
        check_again(p, &r);
        if (r.whole) check_identity(p, &r);
        for (size_t k = 0; k < p->dim && p->c->must == HA_MUST_EXACT; k++)
            expect(r.whole_o[k] == (double)ha_round((float)r.whole_o[k], p->dtype), p, i,
                   "o[%zu] = %g is no number of the type", k, r.whole_o[k]);
        row_free(&r);
    }
}

static void test_rows(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) each_point(&ha_merge_suite.cases[i], rows_at);
}

static void outcomes_at(const struct point *p)
{
    const size_t rows = rows_of(p->c, p->states);
    for (unsigned order = 0; order < HA_ORDER_COUNT; order++)
        if (allows(p->c->orders, order) && (order == HA_ORDER_FLAT || p->states >= 2))
            judge_rows(p, (enum ha_order)order, rows, false);
    if (p->c->plant) judge_rows(p, HA_ORDER_FLAT, rows, true);
}

static void test_outcomes(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) {
        const struct ha_merge_case *c = &ha_merge_suite.cases[i];
        worst = 0;
        least_planted = HUGE_VAL;
        each_point(c, outcomes_at);
        print_message("%2u %-20s err/bound %.3g\n", c->number, c->name, worst);
        if (c->plant) print_message("   %-20s err/bound %.3g\n", "its planted error", least_planted);
    }
}

static void test_random(void **unused)
{
    (void)unused;
    double total = 0;
    size_t special[3] = { 0 };
    const size_t batches = reduced ? 400 : 4000;
    worst = 0;
    for (size_t k = 0; k < batches; k++) {
        const uint64_t seed = 1000 * (uint64_t)SEED + k;
        const struct point p = { NULL,
                                 (enum ha_form)(k % HA_FORM_COUNT),
                                 (enum ha_dtype)(k / HA_FORM_COUNT % HA_DTYPE_COUNT),
                                 ha_random_states(seed),
                                 k % 5 == 0 ? 80 : 64,
                                 seed };
        assert_true(p.states >= 1 && p.states <= STATES_MAX && ha_random_states(seed) == p.states);
        total += (double)p.states;
        for (size_t i = 0; i < 3; i++) {
            struct ha_merge_row r = row_filled(&p, i);
            size_t empty = 0;
            for (size_t m = 0; m < p.states; m++) empty += r.lse[m] == -HUGE_VAL;
            special[0] += empty > 0;
            special[1] += empty == p.states;
            for (size_t m = 0; m < p.states; m++) special[2] += fabs(r.lse[m]) < 1e-6;
            check_range(&p, &r);
            check_again(&p, &r);
            row_free(&r);
        }
        judge_rows(&p, (enum ha_order)(k / 12 % HA_ORDER_COUNT), 3, false);
    }
    print_message(
        "random rows: err/bound %.3g, %.2f states on average, %zu with empty states, %zu of them with no other\n",
        worst, total / (double)batches, special[0], special[1]);
    assert_true(total / (double)batches < 7 && special[0] > 0 && special[1] > 0 && special[2] > 0);
}

int main(int argc, char **argv)
{
    reduced = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_finders),  cmocka_unit_test(test_page),
        cmocka_unit_test(test_tokens), cmocka_unit_test(test_cuts),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_random), cmocka_unit_test(test_outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
