/* The bound of each merge form holds for honest merges in binary32, is not far above them, and ends before ten times
 * their error. States are drawn, not computed by attention: their own bounds are 0 and do not widen that of the merge.
 */

#include "reference/test_states.h"

#include <float.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum { DIM = 16, MOST = HA_TEST_MERGE_STATES };

/* ---- flat, chain and tree --------------------------------------------------------------------- */

enum shape { FLAT, CHAIN, TREE, SHAPES };
static const char *const shape_name[] = { "flat", "chain", "tree" };

struct pair {
    double o[2][DIM], bound[2][DIM]; /* the oracle's arrays: of a state, and of the merge that replaces it */
    struct ha_ref_state want;
    struct ha_test_stored got;
};
static struct pair node[MOST];

static void leaf(struct pair *p, const struct ha_test_stored *s, enum ha_form form)
{
    p->got = *s;
    p->want = ha_test_merge_state(s, form, DIM, p->o[0], p->bound[0]);
}

static bool flush; /* subnormal numbers are zero, as on devices */

static void honest(const struct ha_test_merge_method *way, const struct ha_test_stored *s, size_t count,
                   enum ha_dtype dtype, struct ha_test_stored *out)
{
#if defined(__SSE__)
    const unsigned mode = _mm_getcsr();
    if (flush) _mm_setcsr(mode | 0x8040u);
#endif
    ha_test_fp32_merge(way, s, count, DIM, dtype, NULL, out);
#if defined(__SSE__)
    _mm_setcsr(mode);
#endif
}

/* a becomes the merge of a and b */
static void join(const struct ha_test_merge_method *way, const struct ha_merge_bound *bound, enum ha_dtype dtype,
                 struct pair *a, const struct pair *b)
{
    const size_t to = a->want.o == a->o[0];
    struct ha_ref_state out = { .o = a->o[to], .bound = a->bound[to], .dim = DIM };
    ha_ref_merge((const struct ha_ref_state[]){ a->want, b->want }, 2, bound, &out);
    a->want = out;
    const struct ha_test_stored both[2] = { a->got, b->got };
    honest(way, both, 2, dtype, &a->got);
}

/* the oracle's merge of states that are exact as stored */
static struct ha_ref_state oracle(const struct ha_test_merge_method *way, const struct ha_test_stored *s, size_t count,
                                  enum ha_dtype dtype)
{
    static struct ha_ref_state state[MOST];
    static double o[DIM], own[DIM];
    const struct ha_merge_bound bound = ha_test_merge_bound(way, dtype);
    struct ha_ref_state out = { .o = o, .bound = own, .dim = DIM };
    for (size_t k = 0; k < count; k++) {
        leaf(&node[k], &s[k], way->form);
        state[k] = node[k].want;
    }
    ha_ref_merge(state, count, &bound, &out);
    return out;
}

static struct ha_test_ratio run(const struct ha_test_merge_method *way, const struct ha_test_stored *s, size_t count,
                                enum ha_dtype dtype, enum shape shape)
{
    const struct ha_merge_bound bound = ha_test_merge_bound(way, dtype);
    if (shape == FLAT) {
        const struct ha_ref_state want = oracle(way, s, count, dtype);
        struct ha_test_stored got;
        honest(way, s, count, dtype, &got);
        /* weights that are not divided by their sum may take o beyond the type: the least number that rounds to it */
        for (size_t i = 0; i < DIM && way->form == HA_FORM_DIRECT && dtype == HA_F16; i++)
            if (isinf(got.o[i])) got.o[i] = copysignf(65520, got.o[i]);
        return ha_test_merge_ratio(&got, way->form, &want);
    }
    for (size_t k = 0; k < count; k++) leaf(&node[k], &s[k], way->form);
    if (shape == CHAIN)
        for (size_t k = 1; k < count; k++) join(way, &bound, dtype, &node[0], &node[k]);
    else
        for (size_t step = 1; step < count; step *= 2)
            for (size_t k = 0; k + step < count; k += 2 * step) join(way, &bound, dtype, &node[k], &node[k + step]);
    /* nor is there a way back from infinity for the next merge */
    for (size_t i = 0; i < DIM && way->form == HA_FORM_DIRECT && dtype == HA_F16; i++)
        if (!isfinite(node[0].got.o[i])) node[0].got.o[i] = (float)node[0].want.o[i];
    return ha_test_merge_ratio(&node[0].got, way->form, &node[0].want);
}

/* ---- the tests ---------------------------------------------------------------------------------- */

static struct ha_test_ratio worst[HA_FORM_COUNT][HA_DTYPE_COUNT];

/* Where L says nothing of a weight in binary32, at any size: a direct merge is the sum of the states that have the
 * largest L, and is judged. */
TEST(test_direct_at_huge_lse)
{
    static struct ha_test_stored s[MOST];
    static const float sizes[] = { 1e7f, 3e8f, 1e9f, 2e10f, 1e20f, FLT_MAX / 2 };
    const struct ha_test_merge_method *way = ha_test_merge_method;
    while (way->form != HA_FORM_DIRECT) way++;
    for (size_t x = 0; x < COUNT(sizes); x++)
        for (int down = 0; down < 2; down++)
            for (uint64_t seed = 0; seed < 8; seed++) {
                const size_t count = 2 + seed % 3;
                ha_test_states(s, count, DIM, way->form, HA_F32, ha_test_lse_named("close"), ha_test_o_named("any"),
                               seed);
                for (size_t k = 0; k < count; k++)
                    s[k].lse = (down ? -1 : 1) * sizes[x] * (1 - (seed % 2 ? (float)k * 0x1p-23f : 0));
                const struct ha_ref_state want = oracle(way, s, count, HA_F32);
                struct ha_test_stored got;
                honest(way, s, count, HA_F32, &got);
                struct ha_test_ratio r = ha_test_merge_ratio(&got, way->form, &want);
                if (!(r.o <= 1 && r.lse <= 1))
                    fail_msg("%g, seed %d: %g and %g", (double)sizes[x], (int)seed, r.o, r.lse);
                for (size_t i = 0; i < DIM; i++) {
                    assert_true(want.bound[i] < HUGE_VAL);
                    got.o[i] *= 1.2f * (float)count;
                }
                assert_true(ha_test_merge_ratio(&got, way->form, &want).o > 1);
                honest(way, s, count, HA_F32, &got);
                got.lse *= 1 - 0x1p-20f;
                assert_true(ha_test_merge_ratio(&got, way->form, &want).lse > 1);
            }
}

static size_t hold(size_t count, uint64_t seeds, size_t shapes)
{
    static struct ha_test_stored s[MOST];
    size_t cases = 0;
    for (size_t w = 0; w < ha_test_merge_methods; w++)
        for (enum ha_dtype type = 0; (int)type < HA_DTYPE_COUNT; type++)
            for (size_t l = 0; l < ha_test_lse_families; l++)
                for (size_t o = 0; o < ha_test_o_families; o++)
                    for (uint64_t seed = 0; seed < seeds; seed++) {
                        const struct ha_test_merge_method *way = &ha_test_merge_method[w];
                        if (ha_test_overflows(way, o, count, type)) continue;
                        ha_test_states(s, count, DIM, way->form, type, l, o, seed * 31 + count);
                        for (size_t shape = 0; shape < shapes; shape++) {
                            const struct ha_test_ratio r = run(way, s, count, type, (enum shape)shape);
                            const bool ok = r.o <= 1 && r.lse <= 1;
                            if (!ok)
                                fail_msg("%s, %s, %s LSE, %s o, %zu states, %s, seed %llu: ratio %g, of the LSE %g",
                                         way->name, shape_name[shape], ha_test_lse_family[l].name,
                                         ha_test_o_family[o].name, count, ha_dtype_name(type), (unsigned long long)seed,
                                         r.o, r.lse);
                            struct ha_test_ratio *most = &worst[way->form][type];
                            *most = (struct ha_test_ratio){ fmax(most->o, r.o), fmax(most->lse, r.lse) };
                            cases++;
                        }
                    }
    return cases;
}

TEST(test_bound_holds)
{
    flush = false;
    size_t cases = hold(2, test_small ? 2 : 30, SHAPES) + hold(3, test_small ? 1 : 10, SHAPES)
                   + hold(8, test_small ? 1 : 5, SHAPES);
    cases += hold(33, 2, SHAPES) + (test_small ? 0 : hold(MOST, 1, SHAPES));
    for (enum ha_form f = 0; (int)f < HA_FORM_COUNT; f++)
        for (enum ha_dtype type = 0; (int)type < HA_DTYPE_COUNT; type++) {
            const struct ha_test_ratio *most = &worst[f][type];
            print_message("%s %s: worst ratio of o %.3f, of the LSE %.3f\n", ha_form_name(f), ha_dtype_name(type),
                          most->o, most->lse);
            assert_true(test_small || (most->o > 0.5 && most->lse > 0.3)); /* half the bound would not do */
        }
    print_message("%zu cases\n", cases);
    flush = true;
    print_message("%zu cases with subnormal numbers flushed\n",
                  hold(2, test_small ? 2 : 20, SHAPES) + hold(8, test_small ? 1 : 5, SHAPES));
    flush = false;
}

/* Ten times the error that the arithmetic makes is outside. */
TEST(test_precision_lost)
{
    static const struct ha_test_flaw flaw[] = { { 10, 0 }, { -10, 0 }, { 0, 10 }, { 0, -10 } };
    struct ha_test_stored s[4], got;
    for (size_t w = 0; w < ha_test_merge_methods; w++) {
        const struct ha_test_merge_method *way = &ha_test_merge_method[w];
        if (way->way == HA_TEST_ONLINE) continue;
        for (size_t count = 2; count <= 4; count += 2)
            for (uint64_t seed = 0; seed < 20; seed++)
                for (size_t f = 0; f < 4; f++) {
                    ha_test_states(s, count, DIM, way->form, HA_F32, ha_test_lse_named("close"),
                                   ha_test_o_named(f < 2 ? "opposed" : "one value"), 2 * seed);
                    for (size_t k = 0; k < count; k++) s[k].lse *= 0.25f;
                    const struct ha_ref_state want = oracle(way, s, count, HA_F32);
                    ha_test_fp32_merge(way, s, count, DIM, HA_F32, &flaw[f], &got);
                    const struct ha_test_ratio r = ha_test_merge_ratio(&got, way->form, &want);
                    const bool out = fmax(r.o, r.lse) > 1;
                    if (!out)
                        fail_msg("%s, %zu states, seed %llu, flaw %zu: ratio %g, %g", way->name, count,
                                 (unsigned long long)seed, f, r.o, r.lse);
                }
    }
}
