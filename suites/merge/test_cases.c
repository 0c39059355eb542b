/* The table is complete, every row is what its case says, and the outcomes that the cases demand are those of a
 * merge that is right: the plain one of kernels/c, judged here by the oracle alone. */

#include "harness/api/kernels.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "suites/merge/cases.h"
#include "suites/merge/defects.h"
#include "suites/merge/fills.h"
#include "suites/merge/tokens.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct ha_merge_suite ha_merge_suite;
extern const struct ha_kernels ha_kernels_c;

enum { STATES_MAX = 512, DIM_MAX = 256, NODES = 2 * STATES_MAX, ROWS = 12, SEED = 7 };
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

static const char *name_of(const struct point *p) { return p->c ? p->c->name : "random"; }

#define expect(ok, point, row, ...)                                                                                \
    do {                                                                                                           \
        if (!(ok)) {                                                                                               \
            print_error("%s, %s, %s, %zu states, dim %zu, seed %llu, row %zu: ", name_of(point),                   \
                        ha_form_name((point)->form), ha_dtype_name((point)->dtype), (point)->states, (point)->dim, \
                        (unsigned long long)(point)->seed, row);                                                   \
            fail_msg(__VA_ARGS__);                                                                                 \
        }                                                                                                          \
    } while (0)

static struct ha_merge_row row_make(const struct point *p, size_t index)
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
    return r;
}

static struct ha_merge_row row_filled(const struct point *p, size_t index)
{
    struct ha_merge_row r = row_make(p, index);
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

/* ---- one row stored, merged in an order, judged ----------------------------------------------------------------- */

struct stored {
    unsigned char *o; /* [nodes][dim] */
    float lse[NODES], sum[NODES];
};

static const double LN2 = 0.693147180559945309417;

static float encode(enum ha_form form, double lse, double sum)
{
    const double x = form == HA_FORM_BASE2 ? lse / LN2 : form == HA_FORM_MAX_SUM ? lse - log(sum) : lse;
    return isfinite(x) ? (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, x)) : (float)x;
}

static size_t row_bytes(const struct point *p) { return p->dim * ha_dtype_bytes(p->dtype); }

static void store(struct stored *s, const struct point *p, const struct ha_merge_row *r)
{
    float o[DIM_MAX];
    for (size_t m = 0; m < p->states; m++) {
        for (size_t i = 0; i < p->dim; i++) o[i] = (float)r->o[m * p->dim + i];
        ha_store_row(s->o + m * row_bytes(p), p->dim, p->dtype, o);
        s->lse[m] = encode(p->form, r->lse[m], r->sum[m]);
        s->sum[m] = (float)r->sum[m];
    }
}

static struct ha_merge_state state_at(struct stored *s, const struct point *p, size_t node)
{
    float *sum = p->form == HA_FORM_MAX_SUM ? s->sum + node : NULL;
    return (struct ha_merge_state){ s->o + node * row_bytes(p), s->lse + node, sum, p->dim, p->dim, 1, 1 };
}

/* the two nodes that make node states + i */
static void pair_of(enum ha_order order, size_t states, size_t i, size_t pair[2])
{
    pair[0] = order == HA_ORDER_TREE ? 2 * i : i ? states + i - 1 : 0;
    pair[1] = order == HA_ORDER_TREE ? 2 * i + 1 : i + 1;
}

static bool at_once(const struct point *p, enum ha_order order) { return order == HA_ORDER_FLAT || p->states < 2; }

/* returns the node that holds the result */
static size_t merge(struct stored *s, const struct point *p, enum ha_order order)
{
    static struct ha_merge_state state[STATES_MAX];
    struct ha_merge args = {
        .form = p->form, .dtype = p->dtype, .states = state, .tokens = 1, .heads = 1, .dim = p->dim
    };
    if (at_once(p, order)) {
        for (size_t m = 0; m < p->states; m++) state[m] = state_at(s, p, m);
        args.states_count = p->states;
        args.out = state_at(s, p, p->states);
        ha_kernels_c.merge(&args);
        return p->states;
    }
    args.states_count = 2;
    for (size_t i = 0; i + 1 < p->states; i++) {
        size_t pair[2];
        pair_of(order, p->states, i, pair);
        for (size_t k = 0; k < 2; k++) state[k] = state_at(s, p, pair[k]);
        args.out = state_at(s, p, p->states + i);
        ha_kernels_c.merge(&args);
    }
    return 2 * p->states - 2;
}

struct oracle {
    struct ha_ref_state node[NODES];
    double *memory;
};

/* The oracle's merge of the states of a row as they are stored (from != NULL), or in binary64 with the rounding of
 * storage for their bounds. */
static const struct ha_ref_state *ask(struct oracle *w, const struct point *p, enum ha_order order,
                                      const struct ha_merge_row *r, const struct stored *from)
{
    const struct ha_merge_bound b = ha_bound_merge(&ha_kernels_c.traits, p->form, p->dtype);
    const double u_o = p->dtype == HA_F32 ? 0x1.001p-24 : 1.001 * ha_dtype_unit(p->dtype);
    const double eta = p->dtype == HA_F32 ? 0x1p-149 : 1.001 * ha_dtype_eta(p->dtype);
    double *at = w->memory;
    for (size_t m = 0; m < 2 * p->states; m++, at += 2 * p->dim) {
        struct ha_ref_state *x = &w->node[m];
        *x = (struct ha_ref_state){ .o = at, .bound = at + p->dim, .dim = p->dim, .keys = 1 };
        if (m >= p->states) continue;
        for (size_t i = 0; i < p->dim; i++) {
            x->o[i] = from ? (double)ha_load(from->o + m * row_bytes(p), i, p->dtype) : r->o[m * p->dim + i];
            x->bound[i] = from ? 0 : u_o * fabs(x->o[i]) + eta;
        }
        x->max = from ? (double)from->lse[m] : r->lse[m] - log(r->sum[m]);
        x->sum = from ? (double)from->sum[m] : r->sum[m];
        x->lse = !from                        ? r->lse[m]
                 : p->form == HA_FORM_BASE2   ? x->max * LN2
                 : p->form == HA_FORM_MAX_SUM ? x->max + log(x->sum)
                                              : x->max;
        if (!from)
            x->lse_bound = p->form == HA_FORM_MAX_SUM ? 0x1.001p-24 * (fabs(x->max) + 1)
                                                      : 0x1.001p-24 * fabs(x->lse) + 0x1p-149;
    }
    if (at_once(p, order)) {
        ha_ref_merge(w->node, p->states, &b, &w->node[p->states]);
        return &w->node[p->states];
    }
    for (size_t i = 0; i + 1 < p->states; i++) {
        size_t pair[2];
        pair_of(order, p->states, i, pair);
        const struct ha_ref_state two[2] = { w->node[pair[0]], w->node[pair[1]] };
        ha_ref_merge(two, 2, &b, &w->node[p->states + i]);
    }
    return &w->node[2 * p->states - 2];
}

static double ratio_of(double got, double want, double bound)
{
    if (isnan(want)) return isnan(got) ? 0 : HUGE_VAL;
    if (isnan(got) || isnan(bound)) return HUGE_VAL;
    if (got == want) return 0;
    return bound == HUGE_VAL ? 0 : fabs(got - want) / bound;
}

static double lse_ratio(const struct stored *s, const struct point *p, size_t at, const struct ha_ref_state *want)
{
    if (p->form != HA_FORM_MAX_SUM)
        return ratio_of((double)s->lse[at] * (p->form == HA_FORM_BASE2 ? LN2 : 1), want->lse, want->lse_bound);
    if (want->lse == -HUGE_VAL) return s->lse[at] == -INFINITY ? 0 : HUGE_VAL;
    return ratio_of((double)s->lse[at] - want->max + log((double)s->sum[at] / want->sum),
                    isnan(want->lse) ? (double)NAN : 0, want->lse_bound);
}

static double o_ratio(const struct stored *s, const struct point *p, size_t at, const struct ha_ref_state *want,
                      const double *slack)
{
    double worst = 0;
    for (size_t i = 0; i < p->dim; i++) {
        const double x = ratio_of((double)ha_load(s->o + at * row_bytes(p), i, p->dtype), want->o[i],
                                  want->bound[i] + (slack ? slack[i] : 0));
        worst = x > worst || isnan(x) ? x : worst;
    }
    return worst;
}

/* ---- a case at a point ------------------------------------------------------------------------------------------- */

struct bench {
    struct stored s;
    struct oracle oracle;
    double least_planted, worst;
    unsigned char *before; /* a COMMUTE pair's first result */
};

static struct bench *bench_make(void)
{
    struct bench *b = make(1, sizeof *b);
    b->s.o = make(NODES * DIM_MAX, sizeof(float));
    b->oracle.memory = make(2 * NODES * DIM_MAX, sizeof(double));
    b->before = make(DIM_MAX, sizeof(float));
    b->least_planted = HUGE_VAL;
    return b;
}

static void bench_free(struct bench *b)
{
    free(b->s.o);
    free(b->oracle.memory);
    free(b->before);
    free(b);
}

static void check_whole(struct bench *b, const struct point *p, enum ha_order order, const struct ha_merge_row *r,
                        size_t at)
{
    struct ha_ref_state want = *ask(&b->oracle, p, order, r, NULL);
    double o[DIM_MAX];
    memcpy(o, r->whole_o, p->dim * sizeof *o);
    want.o = o;
    want.max += r->whole_lse - want.lse;
    want.lse = r->whole_lse;
    const double x = fmax(o_ratio(&b->s, p, at, &want, NULL), lse_ratio(&b->s, p, at, &want));
    expect(x <= 1, p, (size_t)r->index, "order %d against the whole: ratio %g", (int)order, x);
    if (!r->full) return;
    memcpy(o, r->full_o, p->dim * sizeof *o);
    const double y = o_ratio(&b->s, p, at, &want, r->full_slack);
    expect(y <= 1, p, (size_t)r->index, "order %d against full attention: ratio %g", (int)order, y);
}

static void check_exact(struct bench *b, const struct point *p, const struct ha_merge_row *r, size_t at)
{
    for (size_t i = 0; i < p->dim; i++)
        expect((double)ha_load(b->s.o + at * row_bytes(p), i, p->dtype) == r->whole_o[i], p, (size_t)r->index,
               "component %zu is not exact", i);
}

static void check_copy(struct bench *b, const struct point *p, const struct ha_merge_row *r, size_t at)
{
    size_t k = 0;
    while (k + 1 < p->states && r->lse[k] == -HUGE_VAL) k++;
    expect(memcmp(b->s.o + at * row_bytes(p), b->s.o + k * row_bytes(p), row_bytes(p)) == 0, p, (size_t)r->index,
           "o is no copy of state %zu", k);
    expect(memcmp(&b->s.lse[at], &b->s.lse[k], sizeof(float)) == 0, p, (size_t)r->index,
           "the LSE is no copy of state %zu's", k);
}

static void check_row(struct bench *b, const struct point *p, enum ha_order order, const struct ha_merge_row *r)
{
    const enum ha_must must = p->c ? p->c->must : HA_MUST_BOUND;
    store(&b->s, p, r);
    const size_t at = merge(&b->s, p, order);
    const struct ha_ref_state *want = ask(&b->oracle, p, order, r, &b->s);
    const double x = fmax(o_ratio(&b->s, p, at, want, NULL), lse_ratio(&b->s, p, at, want));
    expect(x <= 1, p, (size_t)r->index, "order %d: ratio %g", (int)order, x);
    b->worst = fmax(b->worst, x);
    if (must == HA_MUST_EXACT) check_exact(b, p, r, at);
    if (must == HA_MUST_COPY) check_copy(b, p, r, at);
    if (must == HA_MUST_COMMUTE) {
        expect(r->index % 2 == 0 || memcmp(b->before, b->s.o + at * row_bytes(p), row_bytes(p)) == 0, p,
               (size_t)r->index, "does not commute");
        memcpy(b->before, b->s.o + at * row_bytes(p), row_bytes(p));
    }
    if (r->whole) check_whole(b, p, order, r, at);
}

/* what is handed over is wrong, the truth is the row */
static void check_planted(struct bench *b, const struct point *p, const struct ha_merge_row *r,
                          const struct ha_merge_row *next)
{
    struct ha_merge_row handed = row_filled(p, (size_t)r->index);
    p->c->plant(&handed, next);
    store(&b->s, p, &handed);
    const size_t at = merge(&b->s, p, HA_ORDER_FLAT);
    const struct ha_ref_state *want = ask(&b->oracle, p, HA_ORDER_FLAT, r, NULL);
    const double x = fmax(o_ratio(&b->s, p, at, want, NULL), lse_ratio(&b->s, p, at, want));
    expect(x >= 2, p, (size_t)r->index, "the planted error shows at a ratio of %g only", x);
    b->least_planted = fmin(b->least_planted, x);
    row_free(&handed);
}

static bool allows(unsigned bits, unsigned i) { return bits == 0 || bits >> i & 1u; }

/* Every form, type and some numbers of states that a case allows: f(bench, point). */
static void each_point(const struct ha_merge_case *c, struct bench *b, void (*f)(struct bench *, const struct point *))
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
                f(b, &(struct point){ c, (enum ha_form)form, (enum ha_dtype)type, counts[k], dims[turn % 4],
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
    assert_int_equal(ha_merge_suite.defects_count, ha_lse_merge_defects_count);
    assert_ptr_equal(ha_merge_suite.defects, ha_lse_merge_defects);
}

/* a defect is found by a case that there is, or by random rows */
static void test_finders(void **unused)
{
    (void)unused;
    for (size_t d = 0; d < ha_merge_suite.defects_count; d++) {
        const char *finder = ha_merge_suite.defects[d].finder;
        bool found = strcmp(finder, "random") == 0;
        for (size_t i = 0; i < ha_merge_suite.cases_count; i++)
            found = found || strcmp(finder, ha_merge_suite.cases[i].name) == 0;
        if (!found) fail_msg("%s is to be found by %s: no such case", ha_merge_suite.defects[d].name, finder);
    }
}

/* two tokens of weight 1 and 3, one that is masked, one that is not selected */
static void test_tokens(void **unused)
{
    (void)unused;
    enum { DIM = 5 };
    const struct point p = { NULL, HA_FORM_NATURAL, HA_F32, 2, DIM, SEED };
    struct ha_merge_row r = row_make(&p, 3);
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
    row_free(&r);
}

/* the parts that a cut makes of n tokens */
static void test_cuts(void **unused)
{
    (void)unused;
    static struct ha_tokens t;
    for (size_t states = 1; states <= 40; states++) {
        const struct point p = { NULL, HA_FORM_NATURAL, HA_F32, states, 1, SEED };
        struct ha_merge_row r = row_make(&p, states);
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
        row_free(&r);
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
        expect(isfinite(l) || l == -HUGE_VAL || (isnan(l) && p->c && p->c->number == 10), p, (size_t)r->index,
               "LSE of state %zu is %g", m, l);
        expect(fabs(l) <= (double)FLT_MAX || !isfinite(l), p, (size_t)r->index, "LSE of state %zu is %g", m, l);
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

static void rows_at(struct bench *b, const struct point *p)
{
    (void)b;
    for (size_t i = 0; i < rows_of(p->c, p->states); i++) {
        struct ha_merge_row r = row_filled(p, i);
        check_range(p, &r);
        check_again(p, &r);
        if (r.whole) check_identity(p, &r);
        row_free(&r);
    }
}

static void test_rows(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) each_point(&ha_merge_suite.cases[i], NULL, rows_at);
}

static void outcomes_at(struct bench *b, const struct point *p)
{
    const size_t rows = rows_of(p->c, p->states);
    struct ha_merge_row r[ROWS];
    for (size_t i = 0; i < rows; i++) r[i] = row_filled(p, i);
    for (unsigned order = 0; order < HA_ORDER_COUNT; order++) {
        if (!allows(p->c->orders, order) || (order != HA_ORDER_FLAT && p->states < 2)) continue;
        for (size_t i = 0; i < rows; i++) check_row(b, p, (enum ha_order)order, &r[i]);
    }
    for (size_t i = 0; i < rows && p->c->plant; i++) check_planted(b, p, &r[i], &r[(i + 1) % rows]);
    for (size_t i = 0; i < rows; i++) row_free(&r[i]);
}

static void test_outcomes(void **unused)
{
    (void)unused;
    struct bench *b = bench_make();
    for (size_t i = 0; i < ha_merge_suite.cases_count; i++) {
        const struct ha_merge_case *c = &ha_merge_suite.cases[i];
        b->worst = 0;
        b->least_planted = HUGE_VAL;
        each_point(c, b, outcomes_at);
        if (c->plant)
            print_message("%2u %-20s err/bound %.3g, planted %.3g\n", c->number, c->name, b->worst, b->least_planted);
        else print_message("%2u %-20s err/bound %.3g\n", c->number, c->name, b->worst);
    }
    bench_free(b);
}

static void test_random(void **unused)
{
    (void)unused;
    struct bench *b = bench_make();
    double total = 0;
    size_t special[3] = { 0 };
    const size_t batches = reduced ? 400 : 4000;
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
            check_row(b, &p, (enum ha_order)(k / 12 % HA_ORDER_COUNT), &r);
            row_free(&r);
        }
    }
    print_message(
        "random rows: err/bound %.3g, %.2f states on average, %zu with empty states, %zu of them with no other\n",
        b->worst, total / (double)batches, special[0], special[1]);
    assert_true(total / (double)batches < 7 && special[0] > 0 && special[1] > 0 && special[2] > 0);
    bench_free(b);
}

int main(int argc, char **argv)
{
    reduced = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),  cmocka_unit_test(test_finders), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_cuts),   cmocka_unit_test(test_rows),    cmocka_unit_test(test_outcomes),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
