/* The attention of all our kernels and of the host device passes every case; each broken one fails the case that is
 * there for it. */

#include "suites/merge/attention.h"

#include "harness/api/reference.h"
#include "harness/api/shape.h"
#include "harness/base/clock.h"
#include "harness/base/registry.h"
#include "harness/base/seq_attend.h"
#include "harness/base/test.h"
#include "suites/merge/point.h"

#include <math.h>

static struct ha_why why;
static const struct ha_attention_shape usual = {
    .dim = 64, .q_heads = 4, .kv_heads = 2, .batch = 2, .q_len = 1, .ctx = 33, .runs = 1
};

static size_t case_named(const char *name)
{
    for (size_t i = 0; i < ha_attention_cases_count; i++)
        if (!strcmp(ha_attention_cases[i].name, name)) return i;
    fail_msg("no case %s", name);
    return 0;
}

/* ---- what is right passes. In release t/merge.log asks every case of all who merge, with the same seed: here these
 * take one case each, another than the one before, and so do all where the sanitizers make it slow. */

static size_t share = HA_SANITIZED ? 3 : 0; /* behind the case of all pairs, which none then meets */

static void passes(const struct ha_attention_subject *subject, const char *waived)
{
    const bool some = test_small || ha_merge_is_ours(subject->name);
    const uint64_t begin = ha_now_ns();
    uint64_t rows = 0;
    double worst = 0;
    for (size_t i = 0; i < ha_attention_cases_count; i++) {
        struct ha_attention_result r;
        if (some && (i + share) % ha_attention_cases_count) continue;
        const enum ha_status status = ha_attention_check(subject, i, 1, &usual, &r, &why);
        if (waived && !strcmp(waived, ha_attention_cases[i].name)) {
            assert_int_equal(status, HA_WAIVED);
            continue;
        }
        if (status != HA_OK) fail_msg("%s: %s", subject->name, why.text);
        assert_true(r.rows > 0 && r.ratio >= 0 && r.ratio <= 1);
        printf("%s %-16s %6llu rows, worst error / bound %.3f\n", subject->name, ha_attention_cases[i].name,
               (unsigned long long)r.rows, r.ratio);
        rows += r.rows;
        worst = r.ratio > worst ? r.ratio : worst;
    }
    printf("%s: %llu rows, worst error / bound %.3f, %.2f s\n", subject->name, (unsigned long long)rows, worst,
           (double)(ha_now_ns() - begin) * 1e-9);
    share++;
}

TEST(kernels_pass)
{
    if (HA_TSAN) skip(); /* one thread, as below wherever no device is */
    for (size_t i = 0; i < ha_kernels_count; i++) {
        struct ha_kernels k;
        if (!ha_kernels_all[i]->attend_chunk && !ha_kernels_all[i]->absent) continue; /* another table's */
        if (ha_kernels_resolve(ha_kernels_all[i]->name, &k, &why) != HA_OK) {
            printf("not tested: %s\n", why.text);
            continue;
        }
        passes(&(struct ha_attention_subject){ .name = k.name, .kernels = &k }, NULL);
    }
}

static struct ha_kernels best_kernels(void)
{
    struct ha_kernels k;
    if (ha_kernels_resolve(NULL, &k, &why) != HA_OK) fail_msg("%s", why.text);
    return k;
}

static struct ha_device *opened(const struct ha_device_api *api)
{
    static struct ha_kernels kernels;
    struct ha_device *device;
    kernels = best_kernels();
    if (api->open(&device, &(struct ha_device_config){ .kernels = &kernels }, &why) != HA_OK) fail_msg("%s", why.text);
    return device;
}

TEST(host_device_passes)
{
    const struct ha_device_api *api = ha_devices_all[0];
    struct ha_device *device = opened(api);
    passes(&(struct ha_attention_subject){ .name = api->name, .api = api, .device = device }, NULL);
    api->close(device);
}

/* ---- a library that only attends, in host memory */

static void library_info(struct ha_device *device, struct ha_device_info *info)
{
    assert_null(device);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) info->profile[t] = best_kernels().profile;
}

static enum ha_status library_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    assert_null(stream);
    const struct ha_kernels k = best_kernels();
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend one = ha_seq_attend(a, &a->seqs[b], h, runs);
            for (size_t r = 0; r < one.runs_count; r++) assert_null(runs[r].index);
            one.scratch = aligned_alloc(64, k.attend_scratch_bytes(&one) + 64);
            assert_non_null(one.scratch);
            k.attend(&k, &one);
            free(one.scratch);
        }
    return HA_OK;
}

static const struct ha_device_api library = {
    .abi = HA_DEVICE_ABI,
    .struct_bytes = sizeof library,
    .name = "library",
    .info = library_info,
    .attend = library_attend,
};

TEST(library_passes)
{
    if (HA_TSAN) skip();
    passes(&(struct ha_attention_subject){ .name = "library", .api = &library }, "split_and_merge");
}

TEST(what_cannot_be_judged_says_so)
{
    struct ha_device_api api = library;
    const struct ha_attention_subject subject = { .name = "mine", .api = &api };
    struct ha_attention_result r;
    api.attend = NULL;
    assert_int_equal(ha_attention_check(&subject, 0, 1, &usual, &r, &why), HA_WAIVED);
    assert_string_equal(why.text, "mine: attend is not offered");
}

/* ---- what is broken is caught: the best kernels' attend, with other arguments, other results, or both */

static struct ha_kernels right;

struct broken {
    const char *name, *finder;
    void (*ask)(struct ha_attend *a, struct ha_rows *runs); /* a->runs, which may be changed */
    void (*row)(const struct ha_attend *a, float *o, float *lse);
    void (*all)(const struct ha_attend *a);
    void (*attend)(const struct ha_attend *a); /* in place of ours */
    void (*merge)(const struct ha_merge *args);
};

static void attend_right(const struct ha_attend *a) { right.attend(&right, a); }

static float *o_of(const struct ha_attend *a, size_t t, size_t g)
{
    return a->o + t * a->q_token_stride + g * a->q_head_stride;
}
static float *lse_of(const struct ha_attend *a, size_t t, size_t g)
{
    return a->lse + t * a->lse_token_stride + g * a->lse_head_stride;
}
static float *last_o(const struct ha_attend *a) { return o_of(a, a->q_len - 1, a->group - 1); }

#define FOR_ROWS(a, t, g)                   \
    for (size_t t = 0; t < (a)->q_len; t++) \
        for (size_t g = 0; g < (a)->group; g++)

static size_t keys_of(const struct ha_attend *a)
{
    size_t keys = 0;
    for (size_t r = 0; r < a->runs_count; r++) keys += a->runs[r].keys;
    return keys;
}

static const struct broken *broken;

static void attend_broken(const struct ha_kernels *self, const struct ha_attend *a)
{
    struct ha_rows runs[HA_RUNS_MAX];
    struct ha_attend asked = *a;
    memcpy(runs, a->runs, a->runs_count * sizeof *runs);
    asked.runs = runs;
    if (broken->ask) broken->ask(&asked, runs);
    (broken->attend ? broken->attend : attend_right)(&asked);
    if (broken->row) FOR_ROWS(a, t, g) broken->row(a, o_of(a, t, g), lse_of(a, t, g));
    if (broken->all) broken->all(a);
}

/* ---- other arguments */

static void dropped_token(struct ha_attend *a, struct ha_rows *runs)
{
    for (size_t r = 0; r < a->runs_count; r++)
        if (runs[r].keys > 1 && !(a->causal && r + 1 == a->runs_count && runs[r].keys <= a->q_len)) {
            runs[r].keys--;
            runs[r].index = runs[r].index ? runs[r].index + 1 : NULL;
            if (!runs[r].index) {
                runs[r].k = (const char *)runs[r].k + runs[r].k_stride_bytes;
                runs[r].v = (const char *)runs[r].v + runs[r].v_stride_bytes;
            }
            break;
        }
}

static void lost_tail(struct ha_attend *a, struct ha_rows *runs)
{
    for (size_t r = 0; r < a->runs_count && !a->causal; r++)
        if (runs[r].keys > 4096) runs[r].keys = 4096;
}

static void scale_off(struct ha_attend *a, struct ha_rows *runs) { a->scale *= 1.01f; }

static void runs_after_the_first_lost(struct ha_attend *a, struct ha_rows *runs)
{
    if (a->runs_count > 1 && !a->causal && !a->weights) a->runs_count = 1;
}

static void index_ignored(struct ha_attend *a, struct ha_rows *runs)
{
    for (size_t r = 0; r < a->runs_count; r++) runs[r].index = NULL;
}

/* Sizes that tables of cases forget. Of a group its last head is wrong, of keys their number. */
static bool size_is(const struct ha_attend *a, bool is) { return is && a->group > 1; }
static void last_head(const struct ha_attend *a, bool wrong)
{
    if (size_is(a, wrong)) memcpy(last_o(a), o_of(a, a->q_len - 1, 0), a->head_dim * sizeof(float));
}
static void group_of_3(const struct ha_attend *a) { last_head(a, a->group == 3); }
static void group_of_5(const struct ha_attend *a) { last_head(a, a->group == 5); }
static void group_of_7(const struct ha_attend *a) { last_head(a, a->group == 7); }
static void group_of_13(const struct ha_attend *a) { last_head(a, a->group == 13); }
static void dim_8_of_16(const struct ha_attend *a) { last_head(a, a->head_dim % 16 == 8); }
static void dim_160(const struct ha_attend *a) { last_head(a, a->head_dim == 160); }
static void dim_192(const struct ha_attend *a) { last_head(a, a->head_dim == 192); }
static void dim_576(const struct ha_attend *a) { last_head(a, a->head_dim == 576); }
static void group_of_5_of_96(const struct ha_attend *a) { last_head(a, a->group == 5 && a->head_dim == 96); }
static void group_of_7_in_runs(const struct ha_attend *a) { last_head(a, a->group == 7 && a->runs_count == 3); }
static void f32_of_80_with_weights(const struct ha_attend *a)
{
    last_head(a, a->dtype == HA_F32 && a->head_dim == 80 && a->weights);
}
static void from_4100_keys(struct ha_attend *a, struct ha_rows *runs)
{
    if (keys_of(a) >= 4100 && !a->causal) runs[a->runs_count - 1].keys -= runs[a->runs_count - 1].keys > 0;
}
static void index_of_16_bits(struct ha_attend *a, struct ha_rows *runs)
{
    static uint32_t index[1 << 17];
    size_t n = 0;
    for (size_t r = 0; r < a->runs_count; r++) {
        if (!runs[r].index) continue;
        for (size_t i = 0; i < runs[r].keys; i++) index[n + i] = runs[r].index[i] & 0xFFFF;
        runs[r].index = index + n;
        n += runs[r].keys;
    }
}

static void lse_packed(struct ha_attend *a, struct ha_rows *runs)
{
    a->lse_head_stride = 1;
    a->lse_token_stride = a->group;
}

/* each token by itself, over one key more or less than it may see */
static void shifted_mask(const struct ha_attend *a, ptrdiff_t by)
{
    if (!a->causal || a->weights) {
        attend_right(a);
        return;
    }
    for (size_t t = 0; t < a->q_len; t++) {
        struct ha_rows runs[HA_RUNS_MAX];
        struct ha_attend x = *a;
        const ptrdiff_t less = (ptrdiff_t)(a->q_len - 1 - t) - by;
        memcpy(runs, a->runs, a->runs_count * sizeof *runs);
        runs[a->runs_count - 1].keys -= (size_t)(less < 0 ? 0 : less);
        x.runs = runs;
        x.q_len = 1;
        x.causal = false;
        x.q += t * a->q_token_stride;
        x.o += t * a->q_token_stride;
        x.lse += t * a->lse_token_stride;
        attend_right(&x);
    }
}
static void mask_sees_next(const struct ha_attend *a) { shifted_mask(a, 1); }
static void mask_hides_self(const struct ha_attend *a) { shifted_mask(a, -1); }

/* ---- another result in a row */

static void base2_lse(const struct ha_attend *a, float *o, float *lse) { *lse *= 1.44269504f; }

static void swallowed_nan(const struct ha_attend *a, float *o, float *lse)
{
    for (size_t d = 0; d < a->head_dim; d++)
        if (isnan(o[d])) o[d] = 0;
    if (isnan(*lse)) *lse = -INFINITY;
}

static void empty_lse_zero(const struct ha_attend *a, float *o, float *lse)
{
    if (*lse == -INFINITY) *lse = 0;
}

static void empty_lse_finite(const struct ha_attend *a, float *o, float *lse)
{
    if (*lse == -INFINITY) *lse = -1e30f;
}

static void empty_o_unwritten(const struct ha_attend *a, float *o, float *lse)
{
    if (*lse == -INFINITY) memset(o, 0xFF, a->head_dim * sizeof *o);
}

/* only where scores are -inf, not where there is no key: exp(-inf - -inf) */
static void masked_nan(const struct ha_attend *a, float *o, float *lse)
{
    if (keys_of(a) > 0 && *lse == -INFINITY) *lse = NAN;
}

static void sentinel(const struct ha_attend *a, float *o, float *lse)
{
    if (!(*lse < -5e4f)) return;
    *lse = -INFINITY;
    memset(o, 0, a->head_dim * sizeof *o);
}

/* ---- other results among all */

static void leaking_nan(const struct ha_attend *a)
{
    bool any = false;
    FOR_ROWS(a, t, g) any = any || isnan(o_of(a, t, g)[0]);
    FOR_ROWS(a, t, g)
    if (any) o_of(a, t, g)[0] = NAN;
}

static void lse_of_head_0(const struct ha_attend *a) { FOR_ROWS(a, t, g) * lse_of(a, t, g) = *lse_of(a, t, 0); }

static void weights_summed(const struct ha_attend *a)
{
    for (size_t g = 0; a->weights && g < a->group; g++)
        for (size_t j = 0; j < keys_of(a); j++) a->weights[g * a->weights_stride + j] *= (float)a->q_len;
}

static void writes_behind(const struct ha_attend *a) { last_o(a)[a->head_dim] = 0; }

static void last_row_forgotten(const struct ha_attend *a) { memset(last_o(a), 0xFF, a->head_dim * sizeof(float)); }

static void writes_q(const struct ha_attend *a)
{
    union {
        const float *from;
        float *to;
    } q = { .from = a->q };
    q.to[0] *= 0.5f;
}

/* ---- ten times the rounding errors, and scores in 20 bits; contexts of 4096 keys and more only, one run */

static bool is_long(const struct ha_attend *a)
{
    return a->runs_count == 1 && a->runs[0].keys >= 4096 && a->runs[0].keys < 10000 && !a->causal;
}

static void tenfold(const struct ha_attend *a, bool of_o, bool of_lse)
{
    static double o[HA_REF_DIM_MAX], bound[HA_REF_DIM_MAX], lo[HA_REF_DIM_MAX], hi[HA_REF_DIM_MAX], work[2 * 10000];
    if (!is_long(a)) return;
    const struct ha_bound b = ha_bound_attend(&right.profile, a->head_dim, a->runs[0].keys, 1);
    FOR_ROWS(a, t, g)
    {
        struct ha_ref_state want = { .o = o, .bound = bound, .v_min = lo, .v_max = hi, .dim = a->head_dim };
        ha_ref_attend(a->q + t * a->q_token_stride + g * a->q_head_stride, a->head_dim, (double)a->scale, &a->runs[0],
                      a->dtype, &b, work, &want);
        float *row = o_of(a, t, g), *lse = lse_of(a, t, g);
        for (size_t d = 0; of_o && d < a->head_dim; d++) row[d] = (float)(o[d] + 10 * ((double)row[d] - o[d]));
        if (of_lse) *lse = (float)(want.lse + 10 * ((double)*lse - want.lse));
    }
}
static void tenfold_o(const struct ha_attend *a) { tenfold(a, true, false); }
static void tenfold_lse(const struct ha_attend *a) { tenfold(a, false, true); }

static float in_20_bits(float x)
{
    int e;
    const float m = frexpf(x, &e);
    return ldexpf(rintf(m * 0x1p20f), e - 20);
}

static float dot_20_bits(const struct ha_attend *a, const float *q, size_t j)
{
    const float *k = (const float *)(const void *)((const char *)a->runs[0].k + j * a->runs[0].k_stride_bytes);
    float s = 0;
    for (size_t d = 0; d < a->head_dim; d++) s = in_20_bits(s + in_20_bits(q[d] * k[d]));
    return s * a->scale;
}

/* the LSE alone, in f32 */
static void scores_in_20_bits(const struct ha_attend *a)
{
    static double s[10000];
    if (!is_long(a) || a->dtype != HA_F32) return;
    FOR_ROWS(a, t, g)
    {
        double max = -HUGE_VAL, sum = 0;
        for (size_t j = 0; j < a->runs[0].keys; j++) {
            s[j] = (double)dot_20_bits(a, a->q + t * a->q_token_stride + g * a->q_head_stride, j);
            max = fmax(max, s[j]);
        }
        for (size_t j = 0; j < a->runs[0].keys; j++) sum += exp(s[j] - max);
        *lse_of(a, t, g) = (float)(max + log(sum));
    }
}

static void natural_for_base2(const struct ha_merge *args)
{
    struct ha_merge x = *args;
    x.form = x.form == HA_FORM_BASE2 ? HA_FORM_NATURAL : x.form;
    right.merge(&x);
}

static const struct broken all_broken[] = {
    { "base-2 LSE", "one_key", .row = base2_lse },
    { "a token dropped", "boundaries", .ask = dropped_token },
    { "keys after 4096 dropped", "boundaries", .ask = lost_tail },
    { "NaN swallowed", "nan_key", .row = swallowed_nan },
    { "NaN leaks to other rows", "nan_key", .all = leaking_nan },
    { "LSE of no keys 0", "no_keys", .row = empty_lse_zero },
    { "LSE of no keys -1e30", "no_keys", .row = empty_lse_finite },
    { "o of no keys not written", "no_keys", .row = empty_o_unwritten },
    { "NaN where all is masked", "all_minus_inf", .row = masked_nan },
    { "scores below -5e4 taken for none", "low_scores", .row = sentinel },
    { "mask off by one: sees the next token", "causal_append", .attend = mask_sees_next },
    { "mask off by one: does not see itself", "causal_append", .attend = mask_hides_self },
    { "LSE of head 0 for all heads", "one_key", .all = lse_of_head_0 },
    { "scale off by 1%", "equal_scores", .ask = scale_off },
    { "weights summed, not averaged", "weights", .all = weights_summed },
    { "runs after the first lost", "runs", .ask = runs_after_the_first_lost },
    { "index not followed", "runs", .ask = index_ignored },
    { "LSE written packed", "strides", .ask = lse_packed },
    { "a float behind o written", "poisoned_output", .all = writes_behind },
    { "last row of o not written", "poisoned_output", .all = last_row_forgotten },
    { "q written", "poisoned_output", .all = writes_q },
    { "ten times the error of o", "one_sign", .all = tenfold_o },
    { "ten times the error of LSE", "one_sign", .all = tenfold_lse },
    { "scores in 20 bits", "offset", .all = scores_in_20_bits },
    { "base-2 merged as natural", "split_and_merge", .merge = natural_for_base2 },
    { "wrong in groups of 3", "pairs", .all = group_of_3 },
    { "wrong in groups of 5", "pairs", .all = group_of_5 },
    { "wrong in groups of 7", "pairs", .all = group_of_7 },
    { "wrong in groups of 13", "pairs", .all = group_of_13 },
    { "wrong in head dimensions of 8 modulo 16", "pairs", .all = dim_8_of_16 },
    { "wrong in a head dimension of 160", "pairs", .all = dim_160 },
    { "wrong in a head dimension of 192", "pairs", .all = dim_192 },
    { "wrong in a head dimension of 576", "pairs", .all = dim_576 },
    { "wrong in groups of 5 of 96", "pairs", .all = group_of_5_of_96 },
    { "wrong in groups of 7 in three runs", "pairs", .all = group_of_7_in_runs },
    { "wrong in f32 of 80 with weights", "pairs", .all = f32_of_80_with_weights },
    { "a key lost from 4,100 on", "pairs", .ask = from_4100_keys },
    { "an index of 16 bits", "pairs", .ask = index_of_16_bits },
};

/* Where the sanitizers make it slow, of those that the covering list finds every fourth. */
TEST(broken_are_caught)
{
    if (HA_TSAN) skip();
    right = best_kernels();
    for (size_t i = 0; i < COUNT(all_broken); i++) {
        broken = &all_broken[i];
        if (HA_SANITIZED && i % 4 && !strcmp(broken->finder, "pairs")) continue;
        struct ha_kernels k = right;
        k.attend = attend_broken;
        if (broken->merge) k.merge = broken->merge;
        const struct ha_attention_subject subject = { .name = "broken", .kernels = &k };
        struct ha_attention_result r;
        const enum ha_status status = ha_attention_check(&subject, case_named(broken->finder), 1, &usual, &r, &why);
        if (status != HA_FAIL) fail_msg("%s: not caught by %s", broken->name, broken->finder);
        printf("%s: %s\n", broken->name, why.text);
    }
}

/* A profile that claims half the depth of its sums is found out: the bound is tight enough to say so. */
TEST(half_the_depth_is_caught)
{
    if (HA_TSAN) skip();
    for (size_t i = 0; i < ha_kernels_count; i++) {
        struct ha_kernels k;
        struct ha_attention_result r;
        if (!ha_kernels_all[i]->attend_chunk || ha_kernels_resolve(ha_kernels_all[i]->name, &k, &why) != HA_OK)
            continue;
        k.profile.sum_lanes *= 2;
        k.profile.sum_extra /= 2;
        const struct ha_attention_subject subject = { .name = k.name, .kernels = &k };
        assert_int_equal(ha_attention_check(&subject, case_named("one_sign"), 1, &usual, &r, &why), HA_FAIL);
        printf("%s, half the depth: ratio %.2f\n", k.name, r.ratio);
    }
}

/* ---- a device that mixes up what only a device has: sequences and KV heads */

static void first_sequence(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    for (size_t b = 1; b < a->batch; b++) {
        memcpy(seqs[b].runs, seqs[0].runs, sizeof seqs[b].runs);
        seqs[b].runs_count = seqs[0].runs_count;
    }
}

static void first_head(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    for (size_t b = 0; b < a->batch; b++) seqs[b].k_head_bytes = 0;
}

static void uncausal(struct ha_device_seq *seqs, struct ha_device_attend *a) { a->causal = false; }

static void batch_from_65(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    for (size_t b = 64; b < a->batch; b++) seqs[b].o = seqs[b - 64].o;
}

static void batch_from_16(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    for (size_t b = 15; b < a->batch; b++) seqs[b].runs_count -= seqs[b].runs_count > 0;
}

/* KV heads of the 17th query head and those behind it */
static void heads_from_17(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    for (size_t b = 0; b < a->batch && a->q_heads > 16; b++) seqs[b].k_head_bytes = 0;
}

/* As a kernel that takes a group to be a power of two: other KV heads are read. */
static void groups_of_powers(struct ha_device_seq *seqs, struct ha_device_attend *a)
{
    const size_t group = a->q_heads / a->kv_heads;
    for (size_t b = 0; b < a->batch && (group & (group - 1)); b++) seqs[b].v_head_bytes = 0;
}

static void (*confuse)(struct ha_device_seq *seqs, struct ha_device_attend *a);

static enum ha_status confused_attend(struct ha_stream *stream, const struct ha_device_attend *a)
{
    static struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend x = *a;
    assert_true(a->batch <= HA_BATCH_MAX);
    memcpy(seqs, a->seqs, a->batch * sizeof *seqs);
    x.seqs = seqs;
    confuse(seqs, &x);
    return ha_devices_all[0]->attend(stream, &x);
}

TEST(confused_devices_are_caught)
{
    static const struct {
        const char *name, *finder;
        void (*confuse)(struct ha_device_seq *, struct ha_device_attend *);
    } devices[] = {
        { "keys of the first sequence for all", "boundaries", first_sequence },
        { "keys of the first KV head for all", "boundaries", first_head },
        { "no mask", "causal_append", uncausal },
        { "sequences from the 65th on", "pairs", batch_from_65 },
        { "sequences from the 16th on", "pairs", batch_from_16 },
        { "heads from the 17th on", "pairs", heads_from_17 },
        { "groups that are no power of two", "pairs", groups_of_powers },
    };
    struct ha_device_api api = *ha_devices_all[0];
    struct ha_device *device = opened(&api);
    struct ha_attention_result r;
    api.attend = confused_attend;
    for (size_t i = 0; i < COUNT(devices); i++) {
        confuse = devices[i].confuse;
        const struct ha_attention_subject subject = { .name = "confused", .api = &api, .device = device };
        if (ha_attention_check(&subject, case_named(devices[i].finder), 1, &usual, &r, &why) != HA_FAIL)
            fail_msg("not caught: %s", devices[i].name);
        printf("%s: %s\n", devices[i].name, why.text);
    }
    api.close(device);
}

/* ---- the covering list ------------------------------------------------------------------------------------------- */

enum { MEMBERS = sizeof(struct ha_attention_shape) / sizeof(size_t), VALUES = 32, Q_HEADS = 2, KV_HEADS };

/* the group in place of query heads */
static size_t member(const struct ha_attention_shape *s, size_t m)
{
    size_t value[MEMBERS];
    memcpy(value, s, sizeof value);
    return m == Q_HEADS ? value[Q_HEADS] / value[KV_HEADS] : value[m];
}

/* Each two values of two members meet, unless the cheapest shape with both costs more than any in the list. */
TEST(pairs_meet)
{
    if (HA_TSAN) skip();
    static size_t value[MEMBERS][VALUES], count[MEMBERS];
    struct ha_attention_shape *s;
    size_t n, missing = 0, pairs = 0;
    double most = 0;
    assert_int_equal(ha_attention_pairs(&s, &n, &why), HA_OK);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, ha_attention_cost(&s[i]));
        for (size_t m = 0; m < MEMBERS; m++) {
            size_t k = 0;
            while (k < count[m] && value[m][k] != member(&s[i], m)) k++;
            assert_true(k < VALUES);
            value[m][k] = member(&s[i], m);
            if (k == count[m]) count[m]++;
        }
    }
    assert_true(count[Q_HEADS] == 16 && n < 600);
    for (size_t a = 0; a < MEMBERS; a++)
        for (size_t b = 0; b < a; b++)
            for (size_t x = 0; x < count[a]; x++)
                for (size_t y = 0; y < count[b]; y++) {
                    bool met = false;
                    for (size_t i = 0; i < n; i++)
                        met |= member(&s[i], a) == value[a][x] && member(&s[i], b) == value[b][y];
                    size_t least[MEMBERS] = {
                        [1] = 8, [Q_HEADS] = 1, [KV_HEADS] = 1, [4] = 1, [5] = 1, [6] = 2, [7] = 1
                    };
                    struct ha_attention_shape cheapest;
                    least[a] = value[a][x];
                    least[b] = value[b][y];
                    least[Q_HEADS] *= least[KV_HEADS];
                    memcpy(&cheapest, least, sizeof least);
                    pairs++;
                    missing += !met;
                    if (!met && ha_attention_cost(&cheapest) <= most)
                        fail_msg("member %zu at %zu, %zu at %zu", a, value[a][x], b, value[b][y]);
                }
    printf("%zu pairs, %zu of them too dear, in %zu shapes\n", pairs, missing, n);
    assert_true(pairs > 2000 && 30 * missing < pairs);
    free(s);
}
