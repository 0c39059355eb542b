/* Wrong merges are outside the bound; it holds for honest ones in test_alarms.c and test_forms.c. */

#include "reference/rows.h"
#include "reference/test_fp32.h"

enum { STATES_MAX = 33, KEYS_MAX = 4096 };
static const struct ha_test_merge_method way = { "natural", HA_FORM_NATURAL, HA_TEST_QUOTIENT, true, 0 };

/* States over the parts of a row, in binary32 and as the oracle has them. */
struct split {
    size_t count, dim;
    struct ha_test_stored got[STATES_MAX];
    struct ha_ref_state want[STATES_MAX];
};

static void split_make(struct split *s, const struct ha_test_input *in, const struct ha_test_method *m,
                       const size_t *end, size_t count)
{
    static uint32_t order[KEYS_MAX];
    for (size_t j = 0; j < in->keys; j++) order[j] = (uint32_t)j;
    s->count = count;
    s->dim = in->dim;
    for (size_t k = 0; k < count; k++) {
        const size_t first = k ? end[k - 1] : 0, n = end[k] - first;
        struct ha_rows rows = in->rows;
        rows.index = order + first;
        rows.keys = n;
        const struct ha_bound b = ha_bound_attend(&m->profile, in->dim, n, 1);
        s->want[k] = ha_test_attend(in, &rows, &b);
        s->got[k] = (struct ha_test_stored){ .lse = -INFINITY };
        if (n > 0) s->got[k].lse = ha_test_fp32_attend(m, in, order + first, &n, 1, s->got[k].o);
    }
}

static double merged_ratio(const struct split *s, const struct ha_test_stored *got)
{
    const struct ha_merge_bound bound = ha_test_merge_bound(&way, HA_F32);
    struct ha_ref_state want = ha_test_state(s->dim);
    ha_ref_merge(s->want, s->count, &bound, &want);
    return ha_ref_ratio(got->o, got->lse, &want, NULL);
}

static double flat_ratio(const struct split *s)
{
    struct ha_test_stored got;
    ha_test_fp32_merge(&way, s->got, s->count, s->dim, HA_F32, NULL, &got);
    return merged_ratio(s, &got);
}

TEST(test_wrong_merges)
{
    static struct split s;
    const struct ha_test_input in = ha_test_input(0, 4096, 64, HA_F16, 3);
    split_make(&s, &in, &ha_test_method[2], (const size_t[]){ 1500, 3000, 3050, 4096 }, 4);
    assert_true(flat_ratio(&s) <= 1);
    struct ha_test_stored kept[STATES_MAX], got;
    memcpy(kept, s.got, sizeof kept);
    for (size_t wrong = 0; wrong < 4; wrong++) {
        memcpy(s.got, kept, sizeof kept);
        if (wrong == 0) s.got[2].lse = -INFINITY; /* a split dropped */
        if (wrong == 1) s.got[0] = kept[1];       /* a stale part */
        for (size_t k = 0; k < 4 && wrong > 1; k++)
            s.got[k].lse = wrong == 2 ? ha_round(kept[k].lse, HA_BF16) : (float)((double)kept[k].lse / log(2));
        if (!(flat_ratio(&s) > 2)) fail_msg("wrong merge %zu: ratio %g", wrong, flat_ratio(&s));
    }
    memcpy(s.got, kept, sizeof kept);
    ha_test_fp32_merge(&way, s.got, 4, s.dim, HA_F32, NULL, &got);
    for (size_t i = 0; i < s.dim; i++) { /* the mean of the states */
        got.o[i] = 0;
        for (size_t k = 0; k < 4; k++) got.o[i] += kept[k].o[i] / 4;
    }
    assert_true(merged_ratio(&s, &got) > 2);
}

static bool just(double x, double low, double high) { return x >= low && x <= high; }

/* weights that are not known: the result lies between the values, and L is off by no more than a state's */
TEST(test_unknown_weights)
{
    double o[2] = { 1, 3 }, bound[2] = { HUGE_VAL, 0 }, lo[2] = { -1, 2 }, hi[2] = { 2, 4 };
    const struct ha_merge_bound f32 = ha_test_merge_bound(&way, HA_F32);
    struct ha_ref_state part[2], out = ha_test_state(1);
    for (size_t k = 0; k < 2; k++)
        part[k] = (struct ha_ref_state){
            .o = o + k, .bound = bound + k, .v_min = lo + k, .v_max = hi + k, .dim = 1, .keys = 5
        };
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(out.o[0] == 2 && out.bound[0] == HUGE_VAL && out.keys == 10);
    assert_true(just(-out.v_min[0], 1, 1.00001) && just(out.v_max[0], 4, 4.00001) && out.lse_bound < 1e-6);
    bound[0] = 0;
    part[1].lse_bound = 1; /* theta = (e - 1) / 2 */
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(just(out.lse_bound, 1, 1.00001)); /* less than -ln(1 - theta) */
    part[0].lse_bound = 1;
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(just(out.bound[0], 3, 3.00001) && just(out.lse_bound, 1, 1.00001));
    /* beside an L of 0 that is off by 1, one of -200 and 45 weighs nothing, and one of -148 may */
    part[1].lse_bound = 45;
    part[1].lse = -200;
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(just(out.lse_bound, 1, 1.0001) && just(-out.v_min[0], 1, 1.00001) && just(out.v_max[0], 2, 2.00001));
    part[1].lse = -148;
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(just(out.lse_bound, 45, 45.001) && just(out.v_max[0], 4, 4.00001));
    part[1].lse_bound = (double)NAN;
    ha_ref_merge(part, 2, &f32, &out);
    assert_true(isnan(out.lse_bound));
}

/* the bound of L grows by what each merge adds, not as exp of it */
TEST(test_long_chain)
{
    const struct ha_merge_bound f32 = ha_test_merge_bound(&way, HA_F32);
    struct ha_ref_state pair[2] = { ha_test_state(1), ha_test_state(1) }, out = ha_test_state(1);
    for (size_t k = 0; k < 2; k++) {
        pair[k].lse = 3e6;
        pair[k].lse_bound = pair[k].o[0] = pair[k].bound[0] = 0;
        pair[k].v_min[0] = pair[k].v_max[0] = 0;
        pair[k].keys = 1;
    }
    const double each = 0x1p-24 * 3e6;
    for (size_t n = 1; n <= 500; n++) {
        ha_ref_merge(pair, 2, &f32, &out);
        assert_true(just(out.lse_bound, each, (double)(n + 4) * each));
        assert_true(out.bound[0] < 1e-30);
        const struct ha_ref_state swap = pair[0];
        pair[0] = out;
        out = swap;
    }
}
