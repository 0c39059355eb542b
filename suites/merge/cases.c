#include "suites/merge/fills.h"

/* The cases and their rows; those of planted errors are in fill_planted.c. */

/* ---- answers that are known to the bit -------------------------------------------------------------------------- */

/* The largest power of two of the states hold 2^k keys each, scores 0, and integers; the others hold no keys. A
 * sum over all states, and over any of them, stays within 256, and so within the 8 bits of bf16. */
static void fill_equal_scores(struct ha_merge_row *row)
{
    size_t used = 1;
    while (used * 2 <= row->states) used *= 2;
    const size_t most = used >= 32 ? 256 / used : 8;
    const size_t keys = (size_t)1 << ha_draw_below(row, HA_DRAW_CHOICE, 0, 8);
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = 0;
    for (size_t m = 0; m < row->states; m++) {
        ha_row_keys(row, m, m < used ? keys : 0);
        for (size_t i = 0; m < used && i < row->dim; i++) {
            const double v = (double)ha_draw_below(row, HA_DRAW_VALUE, m * HA_DRAW_ROW + i, 2 * most + 1)
                             - (double)most;
            row->o[m * row->dim + i] = v;
            row->whole_o[i] += v / (double)used;
        }
    }
    row->whole_lse = log((double)(keys * used));
    row->whole = true;
}

/* Row 2i + 1 holds the states of row 2i in another order; empty ones stay where they are. */
static void fill_permuted(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    fill_equal_scores(row);
    size_t used = 0;
    while (used < row->states && row->lse[used] > -HUGE_VAL) used++;
    for (size_t m = used; index % 2 && m > 1; m--) ha_row_swap(row, m - 1, ha_draw_below(row, HA_DRAW_CHOICE, m, m));
    row->index = index;
}

/* LSEs and values of every magnitude that a state copied may have */
static void any_state(struct ha_merge_row *row, size_t m)
{
    static const double lse[] = { 3, -2.5, 0, 1e4, -1e4, 1e-7, 88.7, -104, 1e-40, -0.0, 3e38, -3e38 },
                        scale[] = { 1, 1e-3, 1e3, 1e-6, 1e-40 }; /* subnormal ones, too */
    ha_row_state(row, m, lse[row->index % 12] * (1 + ha_draw_uniform(row, HA_DRAW_LSE, 0) / 16));
    ha_row_values(row, m, scale[row->index % 5]);
}

/* or values that no merge makes, which are copied all the same */
static void copied_state(struct ha_merge_row *row, size_t m)
{
    const double odd[] = { HUGE_VAL, -HUGE_VAL, (double)NAN };
    any_state(row, m);
    if (row->index % 2 == 0) row->o[m * row->dim + ha_draw_below(row, HA_DRAW_CHOICE, 1, row->dim)] = -0.0;
    if (row->index % 4 == 3)
        row->o[m * row->dim + ha_draw_below(row, HA_DRAW_CHOICE, 0, row->dim)] = odd[row->index / 4 % 3];
}

static void fill_one_state(struct ha_merge_row *row) { copied_state(row, 0); }

static void fill_empty_and_state(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, 0);
    copied_state(row, row->index % row->states);
}

/* The o of an empty state must not be read, so it may hold anything. */
static void fill_all_empty(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, row->index % 2 ? 1e3 : 0);
}

/* ---- empty states, NaN, zeros ----------------------------------------------------------------------------------- */

static void plain(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, 2 * ha_draw_normal(row, HA_DRAW_LSE, m));
}

/* One or two tokens in each state. Every second or third state has none, but for one, another in each row, that always
 * has some. */
static void some_empty(struct ha_merge_row *row, double garbage)
{
    struct ha_tokens t;
    const size_t kept = row->index % row->states, every = 2 + row->index % 2;
    size_t end = 0;
    ha_tokens_make(&t, row, 0, HA_CUT_RANDOM);
    for (size_t m = 0; m < row->states; m++) {
        if (m % every != 1 || m == kept) end += 1 + ha_draw_below(row, HA_DRAW_CUT, m, 2);
        t.end[m] = end;
    }
    t.count = end;
    ha_tokens_fill(&t, row);
    for (size_t m = 0; m < row->states; m++)
        if (row->lse[m] == -HUGE_VAL) ha_row_empty(row, m, garbage);
}

static void fill_empty_with_nan(struct ha_merge_row *row)
{
    const double garbage[] = { (double)NAN, HUGE_VAL, -HUGE_VAL };
    some_empty(row, garbage[row->index % 3]);
}

/* and rows of which no state has keys */
static void fill_plus_inf_empty(struct ha_merge_row *row)
{
    if (row->index % 4 < 3) fill_empty_with_nan(row);
    else fill_all_empty(row);
}

/* With other states, and with empty ones alone. An infinity above 0 that does not mean "no keys" is no number, either.
 */
static void fill_nan_lse(struct ha_merge_row *row)
{
    const double odd[] = { (double)NAN, HUGE_VAL, copysign((double)NAN, -1) };
    plain(row);
    if (row->index % 4 == 3)
        for (size_t m = 0; m < row->states; m++) ha_row_empty(row, m, 0);
    const size_t m = row->index % row->states;
    ha_row_state(row, m, odd[row->index / 2 % 3]);
}

static void fill_nan_component(struct ha_merge_row *row)
{
    plain(row);
    row->o[row->index % row->states * row->dim + ha_draw_below(row, HA_DRAW_CHOICE, 0, row->dim)] = (double)NAN;
}

/* L = 0 in one state and in all; with one key, so that the maximum is 0 too */
static void fill_zero_lse(struct ha_merge_row *row)
{
    plain(row);
    for (size_t m = 0; m < row->states; m++)
        if (row->index % 2 || m == row->index / 2 % row->states) {
            row->lse[m] = 0;
            row->sum[m] = 1;
        }
}

static void fill_tiny_lse(struct ha_merge_row *row)
{
    static const double tiny[] = { -0.0, 1e-7, -1e-7, 9e-7, 1e-30 };
    plain(row);
    for (size_t m = 0; m < row->states; m++)
        if (row->index % 3 == 2 || m % 2 == row->index % 2) {
            row->lse[m] = tiny[(m / 2 + row->index) % 5];
            row->sum[m] = 1;
        }
}

/* Every third state, and every third token of the others, is masked; what is there scores -2e4 and less. */
static void fill_below_mask(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0, HA_CUT_EVEN);
    for (size_t j = 0, m = 0; j < t.count; j++) {
        while (j >= t.end[m]) m++;
        const bool masked = row->states > 1 && (m + row->index) % 3 == 1;
        t.score[j] = masked || j % 3 == 2 ? -HUGE_VAL : t.score[j] - 2e4 - 100 * (double)(row->index % 4);
    }
    ha_tokens_fill(&t, row);
    for (size_t m = 0; m < row->states; m++)
        if (row->lse[m] == -HUGE_VAL) ha_row_empty(row, m, 1e3);
}

/* ---- LSEs far from 0 and from each other ------------------------------------------------------------------------ */

/* The states take the two LSEs in turn; rows go through the pairs, each both ways round. */
static void in_turn(struct ha_merge_row *row, const double pair[][2], size_t count)
{
    const double *two = pair[row->index % count];
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, two[(m + row->index / count) % 2]);
}

static void fill_large_lse(struct ha_merge_row *row)
{
    static const double pair[][2] = { { 100, 99 }, { 1000, 999 } };
    in_turn(row, pair, 2);
}

static void fill_negative_lse(struct ha_merge_row *row)
{
    static const double pair[][2] = { { -120, -121 }, { -1000, -1001 } };
    in_turn(row, pair, 2);
}

/* around the smallest normal, the smallest subnormal, and 0 */
static void fill_gaps(struct ha_merge_row *row)
{
    static const double pair[][2] = { { 0, -88 }, { 0, -94 }, { 0, -104 }, { 0, -150 } };
    in_turn(row, pair, 4);
}

/* Only one state has the largest LSE: so far from 0 the ln 2 that a second one adds would be lost in rounding. */
static void fill_extreme_lse(struct ha_merge_row *row)
{
    const double far = row->index % 2 ? 1e30 : (double)FLT_MAX;
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, m == row->index / 2 % row->states ? far : -far);
        row->sum[m] = 1;
    }
}

static void fill_both_low(struct ha_merge_row *row)
{
    static const double pair[][2] = { { -6e4, -6e4 }, { -1e5, -1e5 }, { -6e4, -60001 }, { -1e5, -100002 } };
    in_turn(row, pair, 4);
}

/* scores in steps of 2^-fraction, which binary32 holds with the offset too */
static void offset_scores(struct ha_merge_row *row, double offset, int fraction)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0, HA_CUT_RANDOM);
    for (size_t j = 0; j < t.count; j++) t.score[j] = ldexp(rint(ldexp(t.score[j], fraction)), -fraction) + offset;
    ha_tokens_fill(&t, row);
}

static void fill_common_offset(struct ha_merge_row *row) { offset_scores(row, row->index % 2 ? -3e5 : 3e5, 5); }

/* rows 2i and 2i + 1 are the same but for the offset */
static void fill_offset_or_none(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    offset_scores(row, index % 2 ? 1e4 : 0, 10);
    row->index = index;
}

/* One token at 20.1 in the first state (or the last); 10^6 at 0 shared by the others. Each side holds one value. */
static void fill_sink(struct ha_merge_row *row)
{
    const size_t sink = row->index % 2 ? row->states - 1 : 0, others = row->states - 1, tokens = 1000000;
    const double weight = exp(20.1), all = weight + (double)tokens;
    float v[2][HA_REF_DIM_MAX];
    for (size_t side = 0; side < 2; side++) ha_draw_values(row, side, v[side]);
    for (size_t m = 0; m < row->states; m++) {
        const size_t k = m - (m > sink), keys = m == sink ? 1 : tokens * (k + 1) / others - tokens * k / others;
        ha_row_keys(row, m, keys);
        if (m == sink) row->lse[m] = 20.1;
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = (double)v[m == sink][i];
    }
    for (size_t i = 0; i < row->dim; i++)
        row->whole_o[i] = (weight * (double)v[1][i] + (double)tokens * (double)v[0][i]) / all;
    row->whole_lse = log(all);
    row->whole = true;
}

static void fill_dominant_token(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t n = ha_tokens_enough(row->states), others = row->states - 1;
    const bool last = row->index % 2;
    ha_tokens_make(&t, row, n, HA_CUT_RANDOM);
    for (size_t m = 0; m < row->states; m++)
        t.end[m] = last ? (m < others ? (n - 1) * (m + 1) / others : n) : 1 + (n - 1) * m / others;
    t.score[last ? n - 1 : 0] += 12 + 4 * (double)(row->index / 2 % 3);
    ha_tokens_fill(&t, row);
}

static void fill_increasing(struct ha_merge_row *row)
{
    static const double step[] = { 0.25, 3, 1e-3, 40 };
    const double by = step[row->index / 2 % 4] * (row->index % 2 ? -1 : 1);
    for (size_t m = 0; m < row->states; m++) ha_row_state(row, m, by * (double)m);
}

/* ---- values that cancel, are huge, tiny, or all the same -------------------------------------------------------- */

/* Token j has a 1 in component j and scores 0: o of a state is 1/n_m in its own components. Unequal parts. */
static void fill_one_hot(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t part[] = { 1, 2, 5 }, n = row->dim / part[row->index % 3];
    ha_tokens_make(&t, row, n ? n : 1, HA_CUT_RANDOM);
    for (size_t m = 0; m < row->states; m++) {
        const size_t first = m ? t.end[m - 1] : 0, keys = t.end[m] - first;
        ha_row_keys(row, m, keys);
        for (size_t j = first; j < t.end[m]; j++) row->o[m * row->dim + j] = 1 / (double)keys;
    }
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = i < t.count ? 1 / (double)t.count : 0;
    row->whole_lse = log((double)t.count);
    row->whole = true;
}

/* each component a constant of its own, under every pattern of scores */
static void fill_constant_v(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0, HA_CUT_RANDOM);
    ha_tokens_scores(&t, row->index);
    ha_tokens_fill(&t, row);
    for (size_t i = 0; i < row->dim; i++) {
        row->whole_o[i] = ha_draw_value(row, HA_TOKENS_MAX, i);
        for (size_t m = 0; m < row->states; m++)
            if (row->lse[m] > -HUGE_VAL) row->o[m * row->dim + i] = row->whole_o[i];
    }
}

/* o and -o in turn at equal LSE; an odd one out is 0 */
static void fill_cancellation(struct ha_merge_row *row)
{
    const double scale = row->dtype == HA_F16 ? 1e4
                         : row->index % 2     ? 1e30
                                              : 1e4,
                 lse = ha_draw_normal(row, HA_DRAW_LSE, 0);
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, lse);
        row->sum[m] = 1;
        const double sign = m % 2 ? -scale : m + 1 == row->states ? 0 : scale;
        float v[HA_REF_DIM_MAX];
        ha_draw_values(row, m / 2, v);
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = sign * (double)v[i];
    }
}

/* One state has ordinary values and nearly all the weight; the values of the others are so large that they still count.
 */
static void fill_huge_in_light_state(struct ha_merge_row *row)
{
    const double below = row->dtype == HA_F16 ? 8 : 60, huge = row->dtype == HA_F16 ? 1.3e4 : 1e30,
                 plain = row->dtype == HA_F16 ? 1 : 1e3;
    for (size_t m = 0; m < row->states; m++) {
        const bool light = m != row->index % row->states;
        ha_row_state(row, m, light ? -below : 0);
        ha_row_values(row, m, light ? huge : plain);
    }
}

/* 65504 is taken to the last bit: what rounding adds in binary32 is less than binary16 can tell. */
static void fill_near_max(struct ha_merge_row *row)
{
    const double top = ha_draw_largest(row->dtype);
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, row->index % 2 ? ha_draw_normal(row, HA_DRAW_LSE, m) : 0);
        for (size_t i = 0; i < row->dim; i++) row->o[m * row->dim + i] = i % 2 && m % 2 ? -top : top;
    }
}

/* of either size around the smallest normal of binary16, 2^-14 */
static void fill_subnormal(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) {
        ha_row_state(row, m, ha_draw_normal(row, HA_DRAW_LSE, m));
        ha_row_values(row, m, row->index % 2 ? 0x1p-14 : 0x1p-20);
    }
}

/* n equal scores and one value everywhere, cut into parts at random; computed without a loop over n */
static void same_everywhere(struct ha_merge_row *row, size_t n, double v)
{
    struct ha_tokens t = { .row = row, .count = n };
    ha_tokens_cut(&t, HA_CUT_RANDOM);
    for (size_t m = 0; m < row->states; m++) {
        const size_t keys = t.end[m] - (m ? t.end[m - 1] : 0);
        ha_row_keys(row, m, keys);
        if (keys > 0) ha_row_constant(row, m, v);
    }
    for (size_t i = 0; i < row->dim; i++) row->whole_o[i] = v;
    row->whole_lse = log((double)n);
    row->whole = true;
}

static void fill_million_ties(struct ha_merge_row *row) { same_everywhere(row, 1000000, 0.1); }

static void fill_many_terms(struct ha_merge_row *row)
{
    same_everywhere(row, row->index % 2 ? 1000 : 4096, row->index % 2 ? 100 : 1);
}

/* ---- partitions, orders, selections ----------------------------------------------------------------------------- */

void ha_fill_tokens(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 0, HA_CUT_RANDOM);
    ha_tokens_fill(&t, row);
}

static void fill_splits(struct ha_merge_row *row)
{
    struct ha_tokens t;
    const size_t m = row->states, n = ha_tokens_enough(m);
    const struct {
        size_t count;
        enum ha_cut cut;
    } split[] = {
        { n, HA_CUT_EDGE },                         /* {0, 1, n - 1} */
        { m, HA_CUT_ONES },                         /* {1, 1, ...} */
        { m > 1 ? n / m * m + 1 : n, HA_CUT_EVEN }, /* does not divide n */
        { (m + 1) / 2, HA_CUT_EVEN },               /* more states than tokens */
        { n, HA_CUT_RANDOM },
    };
    ha_tokens_make(&t, row, split[row->index % 5].count, split[row->index % 5].cut);
    ha_tokens_fill(&t, row);
}

/* rows 6i .. 6i + 5: the six orders of three states */
static void fill_orders_of_three(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 6;
    ha_fill_tokens(row);
    ha_row_swap(row, 0, index % 3);
    if (index / 3 % 2) ha_row_swap(row, 1, 2);
    row->index = index;
}

/* rows 2i and 2i + 1: two states in either order */
static void fill_either_order(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index /= 2;
    ha_fill_tokens(row);
    if (index % 2) ha_row_swap(row, 0, 1);
    row->index = index;
}

static void fill_single_tokens(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, row->states, HA_CUT_ONES);
    ha_tokens_fill(&t, row);
}

/* The first state selects all of its tokens, the others those with the larger scores. */
static void fill_sparse_union(struct ha_merge_row *row)
{
    struct ha_tokens t;
    ha_tokens_make(&t, row, 2 * ha_tokens_enough(row->states), HA_CUT_EVEN);
    for (size_t j = t.end[0]; j < t.count; j++) t.dropped[j] = t.score[j] < 0.5 * (double)(row->index % 4) - 0.5;
    ha_tokens_fill(&t, row);

    double lse, sum;
    float v[HA_REF_DIM_MAX];
    ha_tokens_attend(&t, 0, t.count, true, row->full_o, &lse, &sum);
    const double lost = -expm1(row->whole_lse - lse);
    for (size_t i = 0; i < row->dim; i++) row->full_slack[i] = 0;
    for (size_t j = 0; j < t.count; j++) {
        if (!t.dropped[j]) continue;
        ha_draw_values(row, j, v);
        for (size_t i = 0; i < row->dim; i++)
            row->full_slack[i] = fmax(row->full_slack[i], lost * fabs((double)v[i] - row->whole_o[i]));
    }
    row->full = true;
}

/* Scores are q.k; the first half of the states takes the query itself, the others the one predicted for them, both
 * from the same input by the same map. */
static void fill_predicted_query(struct ha_merge_row *row)
{
    enum { DIM = 32, INPUT = 8, QUERY = 1 << 20 };
    struct ha_tokens t;
    double q[2][DIM] = { { 0 } };
    float k[DIM];
    for (size_t side = 0; side < 2; side++)
        for (size_t i = 0; i < DIM; i++)
            for (size_t l = 0; l < INPUT; l++)
                q[side][i] += ha_draw_normal(row, HA_DRAW_CHOICE, QUERY + l)
                              * ha_draw_normal(row, HA_DRAW_CHOICE, QUERY + INPUT * (i + 1) + l);
    ha_tokens_make(&t, row, 0, HA_CUT_RANDOM);
    for (size_t j = 0, m = 0; j < t.count; j++) {
        while (j >= t.end[m]) m++;
        t.score[j] = 0;
        ha_rng_normals(row->seed, ha_draw_stream(row->index, HA_DRAW_SCORE), j * HA_DRAW_ROW, DIM, k);
        for (size_t i = 0; i < DIM; i++)
            t.score[j] += q[m >= (row->states + 1) / 2][i] * (double)k[i] / sqrt(INPUT * DIM);
    }
    ha_tokens_fill(&t, row);
}

/* ---- the cases -------------------------------------------------------------------------------------------------- */

/* Elements of each exponent that 8 bits have. A row in four has one state with keys, and its elements lie in the middle
 * between two numbers; in one of eight some are no numbers. */
static void fill_fp8(struct ha_merge_row *row)
{
    const bool alone = row->index % 4 == 3, odd = row->index % 8 == 5;
    for (size_t m = 0; m < row->states; m++) {
        double *o = row->o + m * row->dim;
        ha_row_state(row, m, ha_draw_normal(row, HA_DRAW_LSE, m));
        for (size_t i = 0; i < row->dim; i++) {
            const int exponent = -(int)(i % 16);
            if (odd && i % 32 == 7) o[i] = i % 3 ? copysign(HUGE_VAL, o[i]) : (double)NAN;
            else o[i] = ldexp(alone ? copysign(9 + 2 * (double)(i / 2 % 12), o[i]) : o[i], exponent);
        }
        if (alone && m != row->index / 4 % row->states) ha_row_empty(row, m, (double)NAN);
    }
}

/* Bits of a case's limits. EXACT where two equal weights are exactly 1/2 each: not where weights are
 * exp(L_k - L) with L rounded, and not in a chain, whose shares are thirds, fifths, ... */
enum {
    RENORMALISED = 1u << HA_FORM_NATURAL | 1u << HA_FORM_BASE2 | 1u << HA_FORM_MAX_SUM,
    F16 = 1u << HA_F16,
    FLAT = 1u << HA_ORDER_FLAT,
    CHAIN = 1u << HA_ORDER_CHAIN,
    TREE = 1u << HA_ORDER_TREE,
    APART = 1u << HA_ALIAS_NONE,
    IN_PLACE = 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST,
    PACKED = 1u << HA_LAYOUT_PACKED,
    PADDED = 1u << HA_LAYOUT_PADDED,
};
/* A planted error shows in every order and layout, so one of each is enough. */
#define ONE_WAY .orders = FLAT, .aliases = APART, .layouts = PACKED

const struct ha_merge_case ha_merge_cases[] = {
    { 1, "equal_scores", "weights that are not exactly equal where the LSEs are", HA_MUST_EXACT, .forms = RENORMALISED,
      .states_max = 256, .states_min = 1, .orders = FLAT, .fill = fill_equal_scores },
    { 2, "permuted", "an answer that depends on the order of the states", HA_MUST_EXACT, .forms = RENORMALISED,
      .states_min = 2, .states_max = 256, .orders = FLAT, .fill = fill_permuted },
    { 2, "tree", "merged states that do not weigh what their parts did", HA_MUST_EXACT, .forms = RENORMALISED,
      .states_min = 16, .states_max = 16, .orders = TREE, .fill = fill_equal_scores },
    { 3, "one_hot", "a token dropped or counted twice, whatever n", HA_MUST_BOUND, .fill = fill_one_hot },
    { 4, "constant_v", "weights that do not add up to 1", HA_MUST_BOUND, .fill = fill_constant_v },
    { 5, "one_state", "a state alone that is computed anew instead of copied", HA_MUST_COPY, .states_min = 1,
      .states_max = 1, .fill = fill_one_state },
    { 6, "empty_and_state", "an empty state that changes the only one with keys", HA_MUST_COPY, .states_min = 2,
      .states_max = 512, .fill = fill_empty_and_state },
    { 7, "all_empty", "-inf - -inf: NaN where no state has keys", HA_MUST_BOUND, .states_min = 2, .states_max = 512,
      .fill = fill_all_empty },
    { 8, "empty_with_nan", "0 * NaN: what an empty state's o holds leaks", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_empty_with_nan },
    { 9, "plus_inf_empty",
      "+inf, or -inf beside it, for no keys: it takes all the weight, turns into NaN, or its o leaks", HA_MUST_BOUND,
      .states_min = 1, .states_max = 512, .plus_inf = true, .may_reject = true, .fill = fill_plus_inf_empty },
    { 10, "nan_lse",
      "an LSE of NaN, or of +inf that does not mean \"no keys\", that loses every comparison and is dropped",
      HA_MUST_BOUND, .may_reject = true, .fill = fill_nan_lse },
    { 11, "nan_component", "a NaN that is hidden, or that spreads to other components", HA_MUST_BOUND,
      .fill = fill_nan_component },
    { 12, "zero_lse", "L = 0 taken for no keys", HA_MUST_BOUND, .fill = fill_zero_lse },
    { 13, "tiny_lse", "|L| < 1e-6, or -0, taken for no keys", HA_MUST_BOUND, .fill = fill_tiny_lse },
    { 14, "large_lse", "exp(L) without a shift overflows", HA_MUST_BOUND, .states_min = 2, .states_max = 512,
      .fill = fill_large_lse },
    { 15, "negative_lse", "exp(L) without a shift underflows", HA_MUST_BOUND, .states_min = 2, .states_max = 512,
      .fill = fill_negative_lse },
    { 16, "gaps", "weights around the smallest floats become NaN, negative or large", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_gaps },
    { 17, "extreme_lse", "a difference of LSEs that overflows gives NaN", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_extreme_lse },
    { 18, "both_low", "a finite stand-in for -inf, such as -5e4, swallows real scores", HA_MUST_BOUND,
      .fill = fill_both_low },
    { 19, "below_mask", "masked tokens get weight beside valid ones that score less than the mask's stand-in",
      HA_MUST_BOUND, .fill = fill_below_mask },
    { 20, "common_offset", "an offset of all scores costs more than the rounding of L, or costs (max, sum) anything",
      HA_MUST_BOUND, .fill = fill_common_offset },
    { 21, "offset_or_none", "an answer that depends on an offset of all scores", HA_MUST_BOUND,
      .fill = fill_offset_or_none },
    { 22, "base_mix", "log2 LSEs handed to a merge in natural logs, or the reverse", HA_MUST_FAIL, .states_min = 2,
      .states_max = 8, ONE_WAY, .fill = ha_fill_positive_lse, .plant = ha_plant_base_mix },
    { 23, "lse_bf16", "LSEs that passed through bf16", HA_MUST_FAIL, .states_min = 2, .states_max = 8, ONE_WAY,
      .rows = 2, .fill = ha_fill_lse_bf16, .plant = ha_plant_lse_bf16 },
    { 24, "cancellation", "more error than large values of opposite sign allow", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_cancellation },
    { 25, "huge_in_light_state", "small weights flushed although their values are huge", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_huge_in_light_state },
    { 26, "near_max", "a sum before the division, or a difference of values, overflows", HA_MUST_BOUND,
      .fill = fill_near_max },
    { 27, "subnormal", "subnormal results in binary16 flushed to 0", HA_MUST_BOUND, .dtypes = F16,
      .fill = fill_subnormal },
    { 28, "sink", "the mass of 10^6 tokens beside one sink is lost, or the sink's", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .fill = fill_sink },
    { 29, "dominant_token", "the first or the last part left out, where nearly all the weight is", HA_MUST_BOUND,
      .states_min = 2, .states_max = 512, .rows = 16, .fill = fill_dominant_token },
    { 30, "splits", "sizes that divide nothing, parts without tokens, more parts than tokens", HA_MUST_BOUND,
      .rows = 16, .fill = fill_splits },
    { 31, "increasing", "the running maximum is not applied to what came before", HA_MUST_BOUND,
      .fill = fill_increasing },
    { 32, "orders_of_three", "an order of three states that is worse than another", HA_MUST_BOUND, .states_min = 3,
      .states_max = 3, .fill = fill_orders_of_three },
    { 32, "either_order", "a, b and b, a differ in their last bits", HA_MUST_COMMUTE, .states_min = 2, .states_max = 2,
      .fill = fill_either_order },
    { 33, "many_merges", "errors that grow faster than one rounding for each of 512 merges", HA_MUST_BOUND,
      .states_min = 512, .states_max = 512, .orders = CHAIN, .rows = 16, .fill = fill_single_tokens },
    { 34, "boundary_token", "the token at the boundary is in both states", HA_MUST_FAIL, .states_min = 2,
      .states_max = 64, ONE_WAY, .rows = 16, .fill = ha_fill_boundary_token, .plant = ha_plant_boundary_token },
    { 35, "million_ties", "10^6 equal weights that do not add up", HA_MUST_BOUND, .fill = fill_million_ties },
    { 36, "many_terms", "sums in binary16 stop at 2048, or overflow", HA_MUST_BOUND, .fill = fill_many_terms },
    { 37, "gqa_empty_head", "LSE [heads][tokens] read as [tokens][heads], in a group of which one head has no keys",
      HA_MUST_FAIL, .states_min = 2, .states_max = 8, ONE_WAY, .fill = ha_fill_group, .plant = ha_plant_swapped_heads },
    { 38, "strided", "one state's strides used for another, or dim taken for the stride", HA_MUST_BOUND,
      .layouts = PADDED, .rows = 16, .fill = ha_fill_tokens },
    { 39, "huge", "an index in 32 bits, signed or not", HA_MUST_BOUND, HA_STAGE_HUGE, .states_min = 2, .states_max = 2,
      ONE_WAY, .rows = 16, .fill = ha_fill_tokens },
    { 40, "in_place", "an input overwritten before it is read, or masked rows touched", HA_MUST_BOUND,
      .aliases = IN_PLACE, .rows = 16, .fill = ha_fill_tokens },
    { 41, "stream_and_graph", "a merge that does not wait for its input, or a graph that keeps the first one",
      HA_MUST_BOUND, HA_STAGE_STREAM, .states_min = 2, .states_max = 8, ONE_WAY, .rows = 16, .fill = ha_fill_tokens },
    { 42, "flag_before_data", "a CPU state announced before it is written, or by a flag that a graph did not reset",
      HA_MUST_BOUND, HA_STAGE_FLAG, .states_min = 2, .states_max = 8, ONE_WAY, .rows = 16, .fill = ha_fill_tokens },
    { 43, "stale_partial", "a state of the last step merged again", HA_MUST_FAIL, .states_min = 2, .states_max = 8,
      ONE_WAY, .fill = ha_fill_group, .plant = ha_plant_stale },
    { 44, "sparse_union", "a merge of selections that is not attention over their union", HA_MUST_BOUND, .rows = 16,
      .fill = fill_sparse_union },
    { 45, "predicted_query", "a merge that corrects for a prediction that was right", HA_MUST_BOUND, .states_min = 2,
      .states_max = 512, .rows = 16, .fill = fill_predicted_query },
    { 46, "device_splits", "splits merged before they are written, again, or not at all", HA_MUST_BOUND, HA_STAGE_SPLIT,
      .states_min = 2, .states_max = 8, .forms = 1u << HA_FORM_NATURAL | 1u << HA_FORM_DIRECT | 1u << HA_FORM_MAX_SUM,
      .dtypes = 1u << HA_F32, ONE_WAY, .rows = 16, .fill = fill_splits },
    { 47, "fp8_e4m3", "a result in 8 bits that is not o / scale, cut off, rounded twice, or NaN where it saturates",
      HA_MUST_BOUND, .fp8 = HA_FP8_E4M3, .orders = FLAT, .aliases = APART, .fill = fill_fp8 },
    { 47, "fp8_e5m2", "the same, or infinite", HA_MUST_BOUND, .fp8 = HA_FP8_E5M2, .orders = FLAT, .aliases = APART,
      .fill = fill_fp8 },
};
