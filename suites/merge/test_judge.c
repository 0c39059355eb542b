/* Right merges pass; each kind of wrong one fails, at the row and element that is wrong, however small the error. */

#include "suites/merge/test_trial.h"

#include "harness/base/numeric.h"
#include "kernels/states.h"

#include <float.h>
#include <math.h>

enum { STATES = 3, TOKENS = 2, HEADS = 3, DIM = 20, ROWS = TOKENS * HEADS, LAST = DIM - 1, LSE = DIM };
static const struct ha_merge_traits two_pass = { .exp_eps = 0x1p-22, .log_eps = 0x1p-22, .commutes = true };

/* ---- rows -------------------------------------------------------------------------------- */

static void nan_component(struct ha_merge_row *row) { near_rows(row), row->o[row->dim + 5] = (double)NAN; }
static void inf_component(struct ha_merge_row *row) { near_rows(row), row->o[row->dim + 5] = HUGE_VAL; }
static void nan_lse(struct ha_merge_row *row) { near_rows(row), row->lse[1] = (double)NAN; }
static void empty(struct ha_merge_row *row)
{
    near_rows(row);
    for (size_t m = 0; m < row->states; m++) row->lse[m] = -HUGE_VAL;
}
static void equal(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) {
        row->lse[m] = 1;
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = (double)(m + i);
    }
}
/* one state with keys, and -0 in all that it has */
static void negative_zero(struct ha_merge_row *row)
{
    empty(row);
    row->lse[1] = -0.0;
    row->sum[1] = 1;
    for (size_t i = 0; i < row->dim; i++) row->o[row->dim + i] = -0.0;
}
static void in_pairs(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    near_rows(row);
    row->index = index;
}
/* so far from 0 that in a long chain no weight is known; all values positive */
static void far(struct ha_merge_row *row)
{
    near_rows(row);
    for (size_t m = 0; m < row->states; m++) row->lse[m] += 3e6;
    for (size_t i = 0; i < row->states * row->dim; i++)
        row->o[i] = (double)(2 + ha_round((float)row->o[i], HA_F16) / 8);
}
/* states of one value, which attention over all tokens has too, or something else */
static void with_whole(struct ha_merge_row *row, double o, double lse, double slack)
{
    for (size_t m = 0; m < row->states; m++) {
        row->lse[m] = -log((double)row->states);
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = 1;
    }
    for (size_t i = 0; i < row->dim; i++) {
        row->whole_o[i] = 1 + (i == LAST ? o : 0);
        row->full_o[i] = 1.5;
        row->full_slack[i] = 0.5 + (i == LAST ? slack : 0);
    }
    row->whole_lse = lse;
    row->whole = row->full = true;
}
static void whole(struct ha_merge_row *row) { with_whole(row, 0, 0, 1e-9); }
static void whole_o_differs(struct ha_merge_row *row) { with_whole(row, 1e-5, 0, 0); }
static void whole_lse_differs(struct ha_merge_row *row) { with_whole(row, 0, 1e-5, 0); }
static void full_too_far(struct ha_merge_row *row) { with_whole(row, 0, 0, -1e-3); }

static void one_state_swapped(struct ha_merge_row *handed, const struct ha_merge_row *other)
{
    handed->lse[0] = other->lse[0];
}

/* ---- a batch, merged --------------------------------------------------------------------- */

static struct ha_merge_trial on;

static void open_merged(const struct ha_merge_shape *shape, ha_merge_fill *fill)
{
    on = trial_open(NULL, shape, fill);
    trial_merge(&on);
}

static struct ha_judgement judged(enum ha_must must, const struct ha_merge_traits *traits)
{
    return ha_merge_trial_judge(&on, must, traits);
}

static float *lse_of(float *lse, size_t r)
{
    return lse + ha_merge_at(&on.batch->out, r / on.batch->shape.heads, r % on.batch->shape.heads);
}
static void *element(size_t r, size_t i)
{
    const size_t heads = on.batch->shape.heads;
    return i == LSE ? lse_of(on.batch->out.lse, r)
                    : ha_merge_o(on.batch->calls, &on.batch->out, r / heads, r % heads, i);
}
static enum ha_dtype type_of(size_t i) { return i == LSE ? HA_F32 : on.batch->shape.dtype; }
static float get(size_t r, size_t i) { return ha_load(element(r, i), 0, type_of(i)); }
static void put(size_t r, size_t i, float x) { ha_store(element(r, i), 0, type_of(i), x); }

/* the next number of the type away from 0 */
static float beyond(float x, enum ha_dtype t)
{
    unsigned char bits[4] = { 0 };
    ha_store(bits, 0, t, x);
    for (size_t b = 0; ++bits[b] == 0;) b++;
    return ha_load(bits, 0, t);
}

/* the worst element is this one, and wrong */
static struct ha_judgement fails_at(size_t r, size_t i)
{
    const struct ha_judgement j = judged(HA_MUST_BOUND, &two_pass);
    assert_int_equal(j.status, HA_FAIL);
    assert_int_equal(j.row, r);
    assert_int_equal(j.element, i);
    return j;
}

static struct ha_merge_shape shape_of(enum ha_form form, enum ha_dtype dtype)
{
    return (struct ha_merge_shape){
        .states = STATES, .tokens = TOKENS, .heads = HEADS, .dim = DIM, .form = form, .dtype = dtype
    };
}

/* ---- to the bound, and one number beyond --------------------------------------------------- */

static void last_within(enum ha_form form, enum ha_dtype dtype, size_t r, size_t i)
{
    const struct ha_merge_shape s = shape_of(form, dtype);
    open_merged(&s, near_rows);
    struct ha_judgement j = judged(HA_MUST_BOUND, &two_pass);
    assert_int_equal(j.status, HA_OK);
    assert_int_equal(j.rows, ROWS);
    assert_true(j.exact == ROWS || (j.ratio > 0 && j.ratio <= 1));

    put(r, i, get(r, i) + 1);
    j = fails_at(r, i);
    const double scale = i == LSE ? ha_form_decode(form, 1, 1) : 1, want = j.want / scale, bound = j.bound / scale;
    float x = ha_round((float)want, type_of(i));
    for (int away = 0; away < 4 && fabs((double)x) < fabs(want); away++) x = beyond(x, type_of(i));
    while (fabs((double)x - want) <= bound * (1 - 1e-12)) {
        put(r, i, x);
        assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, HA_OK);
        x = beyond(x, type_of(i));
    }
    put(r, i, x);
    j = fails_at(r, i);
    assert_true(j.ratio > 1 && j.ratio < 2.5);
    assert_int_equal(j.rows, ROWS);
    uint64_t counted = j.exact;
    for (size_t k = 0; k < HA_RATIO_BINS; k++) counted += j.bin[k];
    assert_int_equal(counted, ROWS - 1);
    ha_merge_trial_close(&on);
}

TEST(the_bound_is_the_limit)
{
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            for (size_t r = 0; r < ROWS; r += ROWS - 1)
                for (size_t i = 0; i <= (form == HA_FORM_MAX_SUM ? LAST : LSE); i++)
                    if (i == 0 || i >= LAST) last_within((enum ha_form)form, (enum ha_dtype)dtype, r, i);
}

/* ---- wrong in one way --------------------------------------------------------------------- */

static const float nan_ = (float)NAN, inf = INFINITY;
enum how { AS_IT_IS, SET, NEXT, SUM, SCALED_SUM, NOT_WRITTEN };
static const struct {
    const char *name;
    ha_merge_fill *fill;
    enum ha_must must;
    enum ha_form form;
    enum ha_dtype dtype;
    size_t states;
    enum ha_order order;
    enum how how;
    size_t row, at;
    float to;
    enum ha_status is;
} wrongs[] = {
    { "NaN lost", nan_component, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 4, 5, 1, HA_FAIL },
    { "NaN kept", nan_component, HA_MUST_BOUND, 0, HA_F16, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "NaN spread", nan_component, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 4, 6, nan_, HA_FAIL },
    { "NaN of an LSE lost in o", nan_lse, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 5, LAST, 1, HA_FAIL },
    { "NaN of an LSE lost in LSE", nan_lse, HA_MUST_BOUND, HA_FORM_BASE2, HA_F32, 3, 0, SET, 5, LSE, 1, HA_FAIL },
    { "NaN of an LSE kept", nan_lse, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "NaN in the first", near_rows, HA_MUST_BOUND, 0, HA_BF16, 3, 0, SET, 0, 0, nan_, HA_FAIL },
    { "NaN in the last", near_rows, HA_MUST_BOUND, HA_FORM_DIRECT, HA_F16, 3, 0, SET, ROWS - 1, LAST, nan_, HA_FAIL },
    { "NaN in the LSE", near_rows, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, ROWS - 1, LSE, nan_, HA_FAIL },
    { "inf", near_rows, HA_MUST_BOUND, 0, HA_F16, 3, 0, SET, 2, 3, inf, HA_FAIL },
    { "-inf in the LSE", near_rows, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SET, 2, LSE, -inf, HA_FAIL },
    { "inf kept", inf_component, HA_MUST_BOUND, 0, HA_F32, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "inf lost", inf_component, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 1, 5, 1, HA_FAIL },
    { "inf of the other sign", inf_component, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 1, 5, -inf, HA_FAIL },
    { "no keys", empty, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "no keys, and o", empty, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 1, LAST, FLT_TRUE_MIN, HA_FAIL },
    { "no keys, and a finite LSE", empty, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 1, LSE, -FLT_MAX, HA_FAIL },
    { "no keys, and LSE = inf", empty, HA_MUST_BOUND, HA_FORM_BASE2, HA_F32, 3, 0, SET, 1, LSE, inf, HA_FAIL },
    { "no keys, and NaN", empty, HA_MUST_BOUND, 0, HA_F32, 3, 0, SET, 1, LSE, nan_, HA_FAIL },
    { "no keys, and a sum", empty, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SUM, 1, LSE, 1, HA_FAIL },
    { "sum", near_rows, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SCALED_SUM, 4, LSE, 1.0001f, HA_FAIL },
    { "sum of 0", near_rows, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SUM, 4, LSE, 0, HA_FAIL },
    { "sum below 0", near_rows, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SUM, 4, LSE, -1, HA_FAIL },
    { "sum of NaN", near_rows, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, SUM, 4, LSE, nan_, HA_FAIL },
    { "not written", near_rows, HA_MUST_BOUND, 0, HA_BF16, 3, 0, NOT_WRITTEN, 3, 0, 0, HA_FAIL },
    { "exact", equal, HA_MUST_EXACT, 0, HA_F32, 4, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "one off where exact", equal, HA_MUST_EXACT, 0, HA_F32, 4, 0, NEXT, 5, LAST, 0, HA_FAIL },
    { "NaN where exact", equal, HA_MUST_EXACT, HA_FORM_BASE2, HA_F16, 4, 0, SET, 5, LAST, nan_, HA_FAIL },
    { "copied", negative_zero, HA_MUST_COPY, 0, HA_F16, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "-0 copied as 0", negative_zero, HA_MUST_COPY, 0, HA_F16, 3, 0, SET, 2, LAST, 0, HA_FAIL },
    { "-0 in the LSE copied as 0", negative_zero, HA_MUST_COPY, 0, HA_F32, 3, 0, SET, 2, LSE, 0, HA_FAIL },
    { "sum not copied", negative_zero, HA_MUST_COPY, HA_FORM_MAX_SUM, HA_F32, 3, 0, SUM, 2, LSE, 1.0000001f, HA_FAIL },
    { "commutes", in_pairs, HA_MUST_COMMUTE, 0, HA_F32, 2, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "o of a pair differs", in_pairs, HA_MUST_COMMUTE, 0, HA_F32, 2, 0, NEXT, 3, LAST, 0, HA_FAIL },
    { "LSE of a pair differs", in_pairs, HA_MUST_COMMUTE, 0, HA_F16, 2, 0, NEXT, 3, LSE, 0, HA_FAIL },
    { "whole", whole, HA_MUST_BOUND, 0, HA_F32, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "whole, (max, sum)", whole, HA_MUST_BOUND, HA_FORM_MAX_SUM, HA_F32, 3, 0, AS_IT_IS, 0, 0, 0, HA_OK },
    { "not the tokens' o", whole_o_differs, HA_MUST_BOUND, 0, HA_F32, 3, 0, AS_IT_IS, 0, LAST, 0, HA_FAIL },
    { "not the tokens' LSE", whole_lse_differs, HA_MUST_BOUND, 0, HA_F32, 3, 0, AS_IT_IS, 0, LSE, 0, HA_FAIL },
    { "beyond the certificate", full_too_far, HA_MUST_BOUND, 0, HA_F32, 3, 0, AS_IT_IS, 0, LAST, 0, HA_FAIL },
    { "no bound, in the range", far, HA_MUST_BOUND, 0, HA_F32, 40, HA_ORDER_CHAIN, AS_IT_IS, 0, 0, 0, HA_OK },
    { "no bound, above the range", far, HA_MUST_BOUND, 0, HA_F32, 40, HA_ORDER_CHAIN, SET, 2, LAST, 3, HA_FAIL },
    { "no bound, below the range", far, HA_MUST_BOUND, HA_FORM_BASE2, HA_F16, 40, HA_ORDER_CHAIN, SET, 2, 0, 1,
      HA_FAIL },
    { "no bound, infinite", far, HA_MUST_BOUND, HA_FORM_DIRECT, HA_F32, 40, HA_ORDER_CHAIN, SET, 2, LAST, inf,
      HA_FAIL },
    { "no bound, an LSE of 0", far, HA_MUST_BOUND, 0, HA_F32, 40, HA_ORDER_CHAIN, SET, 2, LSE, 0, HA_FAIL },
    { "no bound, the LSE plus 1000", far, HA_MUST_BOUND, 0, HA_F32, 40, HA_ORDER_CHAIN, SET, 2, LSE, 3001000, HA_FAIL },
    { "no bound, infinite LSE", far, HA_MUST_BOUND, 0, HA_F32, 40, HA_ORDER_CHAIN, SET, 2, LSE, -inf, HA_FAIL },
};

TEST(each_wrong_is_seen)
{
    for (size_t k = 0; k < COUNT(wrongs); k++) {
        struct ha_merge_shape s = shape_of(wrongs[k].form, wrongs[k].dtype);
        s.states = wrongs[k].states;
        s.order = wrongs[k].order;
        open_merged(&s, wrongs[k].fill);
        const size_t r = wrongs[k].row, at = wrongs[k].at;
        switch (wrongs[k].how) {
        case AS_IT_IS: break;
        case SET: put(r, at, wrongs[k].to); break;
        case NEXT: put(r, at, beyond(get(r, at), type_of(at))); break;
        case SUM: *lse_of(on.batch->out.sum, r) = wrongs[k].to; break;
        case SCALED_SUM: *lse_of(on.batch->out.sum, r) *= wrongs[k].to; break;
        case NOT_WRITTEN:
            memcpy(element(r, 0), on.batch->snapshot + ((unsigned char *)element(r, 0) - on.batch->begin),
                   DIM * ha_dtype_bytes(s.dtype));
        }
        const struct ha_judgement j = judged(wrongs[k].must, &two_pass);
        if (j.status != wrongs[k].is) fail_msg("%s: %s", wrongs[k].name, j.status == HA_OK ? "passes" : j.against);
        if (j.status == HA_FAIL && (j.row != r || j.element != at || !(j.ratio > 1)))
            fail_msg("%s: seen in row %zu, element %zu, at %g", wrongs[k].name, j.row, j.element, j.ratio);
        ha_merge_trial_close(&on);
    }
}

/* ---- errors that are planted, answers that are kept, sums ------------------------------------ */

TEST(planted_errors_are_judged_by_the_truth)
{
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (int planted = 0; planted < 2; planted++) {
            const struct ha_merge_shape s = shape_of((enum ha_form)form, HA_F16);
            open_merged(&s, near_rows);
            ha_merge_trial_fill(&on, 7, near_rows, planted ? one_state_swapped : NULL);
            trial_merge(&on);
            assert_int_equal(judged(HA_MUST_FAIL, &two_pass).status, planted ? HA_FAIL : HA_OK);
            ha_merge_trial_close(&on);
        }
}

TEST(an_answer_holds_for_its_traits_and_rows)
{
    const struct ha_merge_shape s = shape_of(HA_FORM_NATURAL, HA_F32);
    struct ha_merge_traits loose = two_pass;
    loose.exp_eps = 1e-3;
    open_merged(&s, near_rows);
    put(1, LSE, get(1, LSE) + 1e-4f);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(judged(HA_MUST_BOUND, &loose).status, HA_OK);
        assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, HA_FAIL);
    }
    /* other rows in the same memory */
    ha_merge_trial_fill(&on, 8, near_rows, NULL);
    trial_merge(&on);
    assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, HA_OK);
    /* and part of them */
    ha_merge_rows_preset(&on.rows, 2, 3, 9, near_rows);
    ha_merge_rows_again(&on.rows, on.batch);
    trial_merge(&on);
    assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, HA_OK);
    assert_int_equal(on.rows.row[2].index, 0);
    ha_merge_trial_close(&on);
}

TEST(commuting_is_asked_of_those_that_promise_it)
{
    struct ha_merge_shape s = shape_of(HA_FORM_NATURAL, HA_F32);
    struct ha_merge_traits never = two_pass;
    s.states = 2;
    never.commutes = false;
    open_merged(&s, in_pairs);
    put(3, 0, beyond(get(3, 0), HA_F32));
    assert_int_equal(judged(HA_MUST_COMMUTE, &never).status, HA_OK);
    assert_int_equal(judged(HA_MUST_COMMUTE, &two_pass).status, HA_FAIL);
    ha_merge_trial_close(&on);
}

/* two states near the top of binary16; far from 0 direct's weights add up to more than 1 by as much as L is rounded */
static void near_top(struct ha_merge_row *row)
{
    for (size_t m = 0; m < 2; m++) {
        row->lse[m] = m ? -268344.40625 : -268349;
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = m ? 65024 : 49152;
    }
}
static void near_top_at_zero(struct ha_merge_row *row)
{
    near_top(row);
    row->lse[0] = -4;
    row->lse[1] = 0;
}

TEST(infinity_is_within_some_bounds)
{
    static const struct {
        enum ha_form form;
        ha_merge_fill *fill;
        float got;
        enum ha_status status;
    } table[] = {
        { HA_FORM_DIRECT, near_top, INFINITY, HA_OK },     { HA_FORM_DIRECT, near_top, -INFINITY, HA_FAIL },
        { HA_FORM_DIRECT, near_top, (float)NAN, HA_FAIL }, { HA_FORM_DIRECT, near_top_at_zero, INFINITY, HA_FAIL },
        { HA_FORM_NATURAL, near_top, INFINITY, HA_FAIL },  { HA_FORM_BASE2, near_top, INFINITY, HA_FAIL },
    };
    for (size_t k = 0; k < COUNT(table); k++) {
        struct ha_merge_shape s = shape_of(table[k].form, HA_F16);
        s.states = 2;
        open_merged(&s, table[k].fill);
        assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, HA_OK);
        put(0, 0, table[k].got);
        assert_int_equal(judged(HA_MUST_BOUND, &two_pass).status, table[k].status);
        ha_merge_trial_close(&on);
    }
}

/* ---- what is derived of a ratio: its bin, what storage may add ----------------------------------------- */

/* two states of equal weight that cancel, stored as they are: o is 0 in every form of the sum */
static void cancelling(struct ha_merge_row *row)
{
    for (size_t m = 0; m < 2; m++) {
        row->lse[m] = 0;
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = m ? -1 : 1;
    }
}

/* The bin that one row has come into; SIZE_MAX: none. */
static size_t bin_of(const struct ha_judgement *j)
{
    size_t at = SIZE_MAX;
    for (size_t k = 0; k < HA_RATIO_BINS; k++)
        if (j->bin[k]) at = k;
    return at;
}

/* The least float that reaches a share of the bound, and the float below it. */
TEST(bins_begin_at_powers_of_two)
{
    struct ha_merge_shape s = shape_of(HA_FORM_MAX_SUM, HA_F32); /* the LSE is exact, too: 0 and 2 */
    s.states = 2;
    s.tokens = s.heads = 1;
    open_merged(&s, cancelling);
    struct ha_judgement j = judged(HA_MUST_BOUND, &two_pass);
    assert_true(j.exact == 1 && j.ratio == 0 && bin_of(&j) == SIZE_MAX);
    put(0, 3, 1);
    const double bound = judged(HA_MUST_BOUND, &two_pass).bound;
    for (int k = 0; k <= HA_RATIO_BINS + 4; k++) {
        const double border = ldexp(bound, -k);
        float x = (float)border;
        if ((double)x < border) x = nextafterf(x, 1);
        put(0, 3, x);
        j = judged(HA_MUST_BOUND, &two_pass);
        assert_true(j.rows == 1 && j.exact == 0);
        assert_int_equal(j.status, k ? HA_OK : HA_FAIL); /* above the bound there is no bin */
        assert_int_equal(bin_of(&j), k == 0 ? SIZE_MAX : k > HA_RATIO_BINS ? 0 : (size_t)(HA_RATIO_BINS - k));
        put(0, 3, nextafterf(x, 0));
        j = judged(HA_MUST_BOUND, &two_pass);
        assert_int_equal(bin_of(&j), k >= HA_RATIO_BINS ? 0 : (size_t)(HA_RATIO_BINS - k - 1));
    }
    ha_merge_trial_close(&on);
    /* what is worse than the states as stored, and only beside attention over all tokens, counts, too */
    s = shape_of(HA_FORM_MAX_SUM, HA_F32);
    open_merged(&s, whole);
    j = judged(HA_MUST_BOUND, &two_pass);
    uint64_t counted = 0;
    for (size_t k = 0; k < HA_RATIO_BINS; k++) counted += j.bin[k];
    assert_true(j.status == HA_OK && j.ratio > 0 && j.exact == 0 && counted == ROWS);
    ha_merge_trial_close(&on);
}

/* A state that is not what any type holds: it is rounded to the type, and its LSE to binary32. */
static double stored_o;
static void one_state(struct ha_merge_row *row)
{
    row->lse[0] = -10.0 / 3;
    row->sum[0] = 5.0 / 3;
    for (size_t i = 0; i < row->dim; i++) row->o[i] = stored_o;
}

/* Beside the states as stored, the truth is given what storage rounds once, to the nearest, and no more. */
TEST(storage_rounds_once)
{
    static const struct {
        enum ha_dtype dtype;
        double half_ulp, half_least; /* of a number, of the least subnormals */
    } types[] = { { HA_F32, 0x1p-24, 0x1p-150 }, { HA_F16, 0x1p-11, 0x1p-25 }, { HA_BF16, 0x1p-8, 0x1p-134 } };
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int small = 0; small < 2; small++) {
                struct ha_merge_shape s = shape_of((enum ha_form)form, types[t].dtype);
                s.states = 1;
                stored_o = small ? types[t].half_least * 4 / 3 : 4.0 / 3;
                open_merged(&s, one_state);
                for (size_t i = LAST; i <= LSE; i++) {
                    const float right = get(2, i);
                    put(2, i, 1e3f);
                    const struct ha_judgement as_stored = judged(HA_MUST_BOUND, &two_pass),
                                              as_true = judged(HA_MUST_FAIL, &two_pass);
                    assert_true(as_stored.element == i && as_true.element == i);
                    const double added = as_true.bound - as_stored.bound,
                                 max = form == HA_FORM_MAX_SUM ? -10.0 / 3 - log(5.0 / 3) : -10.0 / 3,
                                 wanted = i == LSE ? 0x1p-24 * (fabs(max) + (form == HA_FORM_MAX_SUM))
                                          : small  ? types[t].half_least
                                                   : types[t].half_ulp * stored_o;
                    /* of subnormals in binary32 a whole ulp; the digits behind are what that does to other terms */
                    if (!(added >= wanted * 0.99 && added <= wanted * (small && i < LSE ? 2.02 : 1.02)))
                        fail_msg("form %u, %s, element %zu: %g where %g is rounded", form,
                                 ha_dtype_name(types[t].dtype), i, added, wanted);
                    put(2, i, right);
                }
                ha_merge_trial_close(&on);
            }
}

TEST(the_worse_is_kept)
{
    const struct ha_judgement none = { .status = HA_OK, .rows = 1, .exact = 1 };
    const struct ha_judgement good = { .ratio = 0.5, .row = 3, .against = "a", .rows = 2, .bin = { [22] = 2 } };
    const struct ha_judgement bad = {
        .status = HA_FAIL, .ratio = HUGE_VAL, .row = 4, .against = "b", .rows = 3, .bin = { [22] = 1 }
    };
    const struct ha_judgement *orders[][3] = { { &none, &good, &bad }, { &bad, &good, &none }, { &good, &bad, &none } };
    for (size_t k = 0; k < 3; k++) {
        struct ha_judgement j = { .status = HA_OK };
        for (size_t i = 0; i < 3; i++) ha_judgement_join(&j, orders[k][i]);
        assert_int_equal(j.status, HA_FAIL);
        assert_true(j.ratio == HUGE_VAL && j.row == 4);
        assert_int_equal(j.rows, 6);
        assert_int_equal(j.exact, 1);
        assert_int_equal(j.bin[22], 3);
    }
}
