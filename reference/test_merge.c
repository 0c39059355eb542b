/* The bound of a merge holds for honest merges in binary32, and wrong merges are outside it. */

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

/* part k as it is handed to a merge whose o is of a type */
static void store(const struct split *s, size_t k, enum ha_dtype dtype, struct ha_test_stored *got,
                  struct ha_ref_state *want)
{
    const struct ha_ref_state *from = &s->want[k];
    want->lse = from->lse;
    want->lse_bound = from->lse_bound;
    want->keys = from->keys;
    got->lse = s->got[k].lse;
    for (size_t i = 0; i < s->dim; i++) {
        got->o[i] = ha_round(s->got[k].o[i], dtype);
        want->o[i] = from->o[i];
        want->bound[i] = from->bound[i];
        if (from->bound[i] < HUGE_VAL)
            want->bound[i] = ha_ref_rounded(from->bound[i], from->o[i], ha_dtype_unit(dtype), ha_dtype_eta(dtype));
        want->v_min[i] = from->v_min[i] - ha_ref_overhang(from->v_min[i], ha_dtype_unit(dtype), ha_dtype_eta(dtype));
        want->v_max[i] = from->v_max[i] + ha_ref_overhang(from->v_max[i], ha_dtype_unit(dtype), ha_dtype_eta(dtype));
    }
}

/* one part after the other, each and each result stored in dtype */
static double chain_ratio(const struct split *s, enum ha_dtype dtype)
{
    const struct ha_merge_bound bound = ha_test_merge_bound(&way, dtype);
    struct ha_ref_state pair[2] = { ha_test_state(s->dim), ha_test_state(s->dim) }, want = ha_test_state(s->dim);
    struct ha_test_stored got[2] = { { .lse = -INFINITY } };
    ha_ref_merge(NULL, 0, &bound, &pair[0]);
    for (size_t k = 0; k < s->count; k++) {
        store(s, k, dtype, &got[1], &pair[1]);
        ha_test_fp32_merge(&way, got, 2, s->dim, dtype, NULL, &got[0]);
        ha_ref_merge(pair, 2, &bound, &want);
        const struct ha_ref_state swap = pair[0];
        pair[0] = want;
        want = swap;
    }
    return ha_ref_ratio(got[0].o, got[0].lse, &pair[0], NULL);
}

static void check(double ratio, const char *how, const struct ha_test_input *in, size_t states)
{
    if (!(ratio <= 1)) fail_msg("%s merge, %s, %zu states: ratio %g", how, ha_test_input_says(in), states, ratio);
}

TEST(test_bound_holds)
{
    static const struct {
        size_t keys, dim;
    } shape[] = { { 2, 16 }, { 40, 64 }, { 1000, 32 } };
    static const size_t counts[] = { 1, 2, 7, STATES_MAX };
    static struct split s;
    size_t cases = 0;
    for (size_t f = 0; f < ha_test_families; f++)
        for (size_t x = 0; x < (test_small ? 2 : 3); x++)
            for (enum ha_dtype type = 0; (int)type < HA_DTYPE_COUNT; type++)
                for (size_t c = 0; c < 4; c++)
                    for (size_t uneven = 0; uneven < 2; uneven++) {
                        const struct ha_test_input in = ha_test_input(f, shape[x].keys, shape[x].dim, type,
                                                                      17 * c + uneven);
                        size_t end[STATES_MAX];
                        for (size_t k = 0; k < counts[c]; k++)
                            end[k] = uneven ? in.keys - (k + 1 == counts[c] ? 0 : in.keys >> (k + 1 < 60 ? k + 1 : 60))
                                            : in.keys * (k + 1) / counts[c]; /* empty ones where n < M */
                        split_make(&s, &in, &ha_test_method[2 * (c % 2)], end, counts[c]);
                        check(flat_ratio(&s), "flat", &in, counts[c]);
                        check(chain_ratio(&s, HA_F32), "chain", &in, counts[c]);
                        check(chain_ratio(&s, in.dtype), "chain in the type of V", &in, counts[c]);
                        cases += 3;
                        ha_test_release();
                    }
    print_message("%zu cases\n", cases);
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
