/* Weights of keys and what is made of them: softmax within what the device claims of exp, the least prefix exactly, and
 * sums of V by lists within the bound of sums of binary32; and nothing is written beside the results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { F = sizeof(float) };

static float *floats(char *at) { return (float *)(void *)at; }
static uint32_t *words(char *at) { return (uint32_t *)(void *)at; }

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* Of a row that was `from`: judged, NaN and zeros where they are asked for. */
static double judge_row(const struct ha_softmax *one, const float *from, double eps, bool *any)
{
    bool none = false, finite = false;
    for (size_t i = 0; i < one->n; i++) {
        none |= isnan(from[i]) || from[i] == INFINITY;
        finite |= from[i] > -INFINITY;
    }
    *any = finite && !none;
    for (size_t i = 0; i < one->n && !none; i++)
        if (signbit(one->x[i])) return HUGE_VAL; /* no weight is -0 */
    if (*any) return ha_ref_judge_softmax(one, from, eps);
    for (size_t i = 0; i < one->n; i++)
        if (none ? !isnan(one->x[i]) : one->x[i] != 0) return HUGE_VAL;
    if (!one->lse) return 0;
    return (none ? isnan(*one->lse) : *one->lse == -INFINITY) ? 0 : HUGE_VAL;
}

/* Rising or falling scores; or one value for all but one, so that each rounding of a sum has one sign. */
static void make_slope(const struct ha_op_case *c, float *x, size_t n, size_t largest, float shift)
{
    const float less = 0.3f + fabsf(x[0] - shift) / 4;
    for (size_t i = 0; i < n; i++) {
        const float slope = 200 * (float)i / (float)n;
        x[i] = c->pattern == HA_OP_REPEATS      ? shift - (i == largest ? 0 : less)
               : c->pattern == HA_OP_DESCENDING ? x[i] - slope
                                                : x[i] + slope;
    }
}

static enum ha_status softmax_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_softmax_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                        *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const size_t heads = c->kv_heads * c->group, rows = heads * c->q_len;
    struct ha_device_info info = { .name = "" };
    size_t out = 0, x_at[HA_OP_BATCH], lse_at[HA_OP_BATCH];
    s->api->info(s->device, &info);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = ha_op_length(c, b), lse_stride = heads + c->dst_gap;
        there[b] = (struct ha_device_softmax_seq){ .n = n, .stride = n + c->dst_gap, .lse_stride = lse_stride };
        x_at[b] = ha_op_room(&out, rows * there[b].stride * F, c->dst_at / F * F);
        lse_at[b] = ha_op_room(&out, c->q_len * lse_stride * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out);
    if (!made) return HA_ERROR;
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_softmax_seq *m = &here[b];
        *m = there[b];
        there[b].x = floats(made->at + x_at[b]);
        m->x = floats(made->image + x_at[b]);
        there[b].lse = b % 4 < 3 ? floats(made->at + lse_at[b]) : NULL; /* or not asked, of some */
        m->lse = b % 4 < 3 ? floats(made->image + lse_at[b]) : NULL;
        for (size_t r = 0; r < rows; r++) {
            float *const x = m->x + r * m->stride;
            ha_op_numbers(s, x, m->n, HA_F32);
            const float shift = (float)ha_op_draw(s, 200) - 100;
            const float spread = (float)c->scale
                                 * (ha_op_draw(s, 2) ? 4 : 0.125f); /* or weights that are about the same */
            for (size_t i = 0; i < m->n; i++) x[i] = spread * x[i] + shift;
            if (c->pattern != HA_OP_SHUFFLED && m->n) make_slope(c, x, m->n, ha_op_draw(s, m->n), shift);
            ha_op_reshape(s, x, m->n, HA_F32, c->numbers);
            const size_t kind = c->special ? ha_op_draw(s, 4) : 0;
            const size_t first = ha_op_draw(s, m->n + 1), behind = first + ha_op_draw(s, m->n + 1 - first);
            for (size_t i = 0; i < m->n && kind && c->special == HA_OP_LOW_KEY;
                 i++) /* all, half, or those of a stretch */
                if (kind == 1 || (kind == 2 ? i >= first && i <= behind : ha_op_draw(s, 2))) x[i] = -INFINITY;
            if (m->n && kind == 1 && c->special != HA_OP_LOW_KEY) x[ha_op_draw(s, m->n)] = ha_op_odd(s, c);
        }
    }
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_softmax args = { c->batch, heads, c->q_len, seqs };
    HA_TRY(ha_op_arrive(s, &made, 1, made));
    const enum ha_status asked = s->api->softmax(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "softmax", asked, made, &before));
    const double eps = info.profile[HA_F32].exp_eps;
    struct ha_chances held = { 0 };
    float *work = malloc((2 * c->keys + 1) * sizeof *work);
    enum ha_status status = work ? HA_OK : ha_why(s->why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < c->batch * rows && status == HA_OK; i++) {
        const struct ha_device_softmax_seq *m = &here[i / rows];
        const size_t row = i % rows;
        float *const at = m->x + row * m->stride,
                     *lse = m->lse ? m->lse + row % c->q_len * m->lse_stride + row / c->q_len : NULL;
        const struct ha_softmax one = { at, 1, m->n, m->n, lse };
        const float *from = (const float *)(const void *)(before + ((char *)at - made->image));
        bool any;
        const double ratio = judge_row(&one, from, eps, &any);
        s->cases++;
        if (!(ratio <= 1))
            status = ha_op_wrong(s,
                                 "softmax of %zu numbers: sequence %zu, row %zu of %zu heads and %zu tokens: "
                                 "error/bound %.3g",
                                 m->n, i / rows, row, heads, c->q_len, ratio);
        if (any && lse && c->pattern != HA_OP_REPEATS) ha_ref_hold_softmax(&one, from, eps, 1, work, &held);
        ha_op_put_back(made, before, at, m->n * F);
        if (lse) ha_op_put_back(made, before, lse, F);
    }
    free(work);
    HA_TRY(status);
    ha_suspect_add(&s->suspect, &held, "softmax of %zu numbers", c->keys);
    return ha_op_beside(s, "softmax", before, made);
}

static enum ha_status judge_softmax(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .kv_heads = 1, .group = 1, .keys = 270001, .pattern = HA_OP_ASCENDING },
        { .kv_heads = 1, .group = 2, .keys = 270001, .pattern = HA_OP_SHUFFLED, .special = HA_OP_LOW_KEY },
        { .kv_heads = 8, .group = 4, .keys = 20000, .pattern = HA_OP_SHUFFLED, .special = HA_OP_LOW_KEY },
        { .kv_heads = 1, .group = 1, .keys = (1 << 20) + 3, .pattern = HA_OP_REPEATS },
        { .kv_heads = 4, .group = 2, .keys = 5000, .pattern = HA_OP_SHUFFLED },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct ha_op_case c = large[i];
        c.batch = c.q_len = 1;
        c.scale = 1;
        const size_t most = s->most / (c.q_len * c.kv_heads * c.group * F);
        if (c.keys > most) c.keys = most;
        HA_TRY(softmax_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_softmax(const struct ha_op_case *c)
{
    return c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_KEY ? "it is of numbers" : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_softmax = {
    .name = "softmax",
    .doc = "scores to weights, in place",
    .needs = { HA_OP_ENTRY(softmax) },
    .judge = judge_softmax,
    .in_place = true,
    .keys = "dst dst_at batch q_len kv_heads group keys dst_gap empty scale special numbers pattern",
    .pairs =
        "dst = device mapped\ndst_at = 0 4 24\nbatch = 1 3 33\nq_len = 1..8 16\nkv_heads = 1..4 7 8\ngroup = 1..8 16\n"
        "keys = 1 2 33 256 257 1100\ndst_gap = 0 3\nempty = no yes\nscale = 1 0.25 3\n"
        "special = none nan_value low_key high_key\nnumbers = bell close tiny wide\n"
        "pattern = shuffled ascending descending repeats\n",
    .once = softmax_once,
    .unfit = unfit_softmax,
};

/* ---- topp -------------------------------------------------------------------------------------------------------- */

/* Around 2^-29, below which weights are cut to a multiple of a unit; of few units, halves among them, and subnormal
 * ones, beside one of nearly 1 or not; of every magnitude. */
static void make_odd_weights(struct ha_op_stage *s, const struct ha_op_case *c, float *x, size_t n)
{
    double sum = 1;
    for (size_t i = 0; i < n; i++) {
        const float any = 1 + (float)ha_op_draw(s, 1 << 23) * 0x1p-23f;
        const size_t few = ha_op_draw(s, ha_op_draw(s, 2) ? 8 : 256);
        x[i] = c->numbers == HA_OP_CLOSE  ? ldexpf(any, -30 + (int)ha_op_draw(s, 2))
               : c->numbers == HA_OP_WIDE ? ldexpf(any, -1 - (int)ha_op_draw(s, 60))
               : ha_op_draw(s, 3)         ? ldexpf((float)few, -53)
                                          : ldexpf((float)ha_op_draw(s, 1 << 20), -149);
        sum += (double)x[i];
    }
    for (size_t i = 0; i < n && c->numbers == HA_OP_WIDE; i++) x[i] = (float)((double)x[i] / sum);
    if (n && c->numbers == HA_OP_TINY && ha_op_draw(s, 2))
        x[ha_op_draw(s, n)] = 1 - ldexpf(1, -1 - (int)ha_op_draw(s, 23));
}

/* A row's weights: of few values, rising, falling, some above all others, or any; they add up to 1 nearly. */
static void make_weights(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_op_comb *comb, float *x,
                         size_t n)
{
    double sum = 0;
    if (c->numbers) make_odd_weights(s, c, x, n);
    else ha_op_numbers(s, x, n, HA_F32);
    for (size_t i = 0; i < n && !c->numbers; i++) {
        const float z = c->pattern == HA_OP_REPEATS ? rintf(x[i]) : 3 * x[i];
        x[i] = c->pattern == HA_OP_ASCENDING    ? (float)(i + 1)
               : c->pattern == HA_OP_DESCENDING ? (float)(n - i)
               : c->pattern == HA_OP_COMB       ? expf(x[i] + (ha_op_lifts(comb, i) ? 8 : 0))
                                                : expf(z);
        sum += (double)x[i];
    }
    for (size_t i = 0; i < n && !c->numbers; i++) x[i] = (float)((double)x[i] / sum);
    for (size_t i = 0; i < n && c->special == HA_OP_LOW_KEY; i++)
        if (ha_op_draw(s, 2)) x[i] = 0; /* what has no weight, and p is not reached */
    if (c->special == HA_OP_NAN_VALUE && n && ha_op_draw(s, 3) == 0) x[ha_op_draw(s, n)] = ha_op_odd(s, c);
    if (c->special == HA_OP_HIGH_KEY && n) { /* one of them has it all */
        memset(x, 0, n * sizeof *x);
        x[ha_op_draw(s, n)] = 1;
    }
}

static int by_weight(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : x < y;
}

/* The share that some of the largest of a list have, or half a unit of 2^-HA_TOPP_BITS beside it, where their rows, a
 * power of two, divide it exactly. 0: out of memory */
static double share_at_edge(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_device_topp_seq *m)
{
    static const double beside[] = { [HA_OP_AT_EDGE] = 0, [HA_OP_ABOVE_EDGE] = 0.5, [HA_OP_BELOW_EDGE] = -0.5 };
    const size_t list = ha_op_draw(s, c->kv_heads * c->group), some = m->n ? 1 + ha_op_draw(s, m->n) : 0;
    uint64_t *w = calloc(m->n + 1, sizeof *w), sum = 0;
    if (!w) return 0;
    for (size_t i = 0; i < m->n; i++)
        for (size_t r = 0; r < c->q_len; r++) {
            const float x = m->x[(list * c->q_len + r) * m->stride + i];
            w[i] += isnan(x) ? 0 : (uint64_t)ldexp((double)x, HA_TOPP_BITS);
        }
    qsort(w, m->n, sizeof *w, by_weight);
    for (size_t i = 0; i < some; i++) sum += w[i];
    free(w);
    const double p = ldexp(((double)sum + beside[c->edge]) / (double)c->q_len, -HA_TOPP_BITS);
    return p > 0 && p <= 1 ? p : c->p;
}

static enum ha_status topp_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_topp_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                     *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype w_type = (enum ha_dtype)c->w_type;
    const size_t lists = c->kv_heads * c->group, rows = lists * c->q_len, e = ha_dtype_bytes(w_type);
    size_t in = 0, out = 0, x_at[HA_OP_BATCH], keys_at[HA_OP_BATCH], index_at[HA_OP_BATCH], w_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = ha_op_length(c, b);
        there[b] = (struct ha_device_topp_seq){
            .n = n, .stride = n + c->src_gap, .index_stride = n + c->dst_gap, .w_stride = n + 2 * c->dst_gap
        };
        x_at[b] = ha_op_room(&in, rows * there[b].stride * F, c->src_at / F * F);
        keys_at[b] = ha_op_room(&out, lists * F, c->dst_at / F * F);
        index_at[b] = ha_op_room(&out, lists * there[b].index_stride * F, c->dst_at / F * F);
        w_at[b] = ha_op_room(&out, rows * there[b].w_stride * e, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out),
                       *from = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    if (!from) return HA_ERROR;
    for (size_t i = 0; i + F <= in; i += F) *floats(from->image + i) = 1; /* beside the rows is what is larger */
    for (size_t b = 0; b < c->batch; b++) {
        here[b] = there[b];
        for (size_t i = 0; i < 2; i++) {
            struct ha_device_topp_seq *m = i ? &here[b] : &there[b];
            char *const to = i ? made->image : made->at;
            m->x = floats((i ? from->image : from->at) + x_at[b]);
            m->keys = words(to + keys_at[b]);
            m->index = words(to + index_at[b]);
            m->w = to + w_at[b];
        }
        struct ha_op_comb comb = { .step = 1 };
        for (size_t r = 0; r < rows; r++) {
            if (r % c->q_len == 0) comb = ha_op_comb(s, here[b].n);
            make_weights(s, c, &comb, floats(from->image + x_at[b]) + r * here[b].stride, here[b].n);
        }
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    const double p = c->edge ? share_at_edge(s, c, &here[ha_op_draw(s, c->batch)]) : c->p;
    if (!(p > 0)) return ha_why(s->why, HA_ERROR, "out of memory");
    struct ha_device_topp args = { c->batch, lists, c->q_len, p, w_type, seqs };
    HA_TRY(ha_op_arrive(s, &from, 1, made));
    const enum ha_status asked = s->api->topp(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "topp", asked, made, &before));
    for (size_t i = 0; i < c->batch * lists; i++) {
        const struct ha_device_topp_seq *m = &here[i / lists];
        const size_t list = i % lists;
        const struct ha_topp one = { .x = m->x + list * c->q_len * m->stride,
                                     .rows = c->q_len,
                                     .n = m->n,
                                     .stride = m->stride,
                                     .p = p,
                                     .index = m->index + list * m->index_stride,
                                     .w = (char *)m->w + list * c->q_len * m->w_stride * e,
                                     .w_type = w_type,
                                     .w_stride = m->w_stride,
                                     .keys = m->keys + list };
        s->cases++;
        if (!(ha_ref_judge_topp(&one) <= 1))
            return ha_op_wrong(
                s,
                "topp, %.17g of the weights of %zu, %zu rows, to %s: sequence %zu, list %zu of %zu: %u are "
                "chosen, or not the largest, or their weights are others",
                p, m->n, c->q_len, ha_dtype_name(w_type), i / lists, list, lists, *one.keys);
        ha_op_put_back(made, before, one.keys, F);
        ha_op_put_back(made, before, one.index, m->n * F);
        for (size_t r = 0; r < c->q_len; r++)
            ha_op_put_back(made, before, (char *)one.w + r * m->w_stride * e, m->n * e);
    }
    return ha_op_beside(s, "topp", before, made);
}

static enum ha_status judge_topp(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .q_len = 1, .keys = 200000, .p = 0.9, .pattern = HA_OP_SHUFFLED },
        { .q_len = 2, .keys = 70000, .p = 0.999, .pattern = HA_OP_REPEATS, .w_type = HA_F16 },
        { .q_len = 1, .keys = 5000, .p = 1, .pattern = HA_OP_ASCENDING },
        { .q_len = 1, .keys = 2360, .p = 0.9, .pattern = HA_OP_COMB, .batch = 33, .kv_heads = 4 },
        { .q_len = 1, .keys = 2360, .p = 0.999, .pattern = HA_OP_COMB, .batch = 33, .kv_heads = 4 },
        { .q_len = 1, .keys = 1 << 16, .p = 0.7, .pattern = HA_OP_COMB, .kv_heads = 16 },
        { .q_len = 1, .keys = 1 << 16, .p = 0.9999, .pattern = HA_OP_COMB, .kv_heads = 16 },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct ha_op_case c = large[i];
        const size_t most = s->most / (c.q_len * 2 * F);
        c.group = 1;
        if (!c.batch) c.batch = 1;
        if (!c.kv_heads) c.kv_heads = 2;
        if (c.keys > most) c.keys = most;
        HA_TRY(topp_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_topp(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_KEY) return "a list is of weights";
    if (c->edge && (c->q_len & (c->q_len - 1))) return "a sum of so many rows is no share exactly";
    if (c->q_len > HA_TOPP_ROWS_MAX) return "a list has at most 1024 rows";
    if (!(c->p > 0)) return "something is asked for";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_topp = {
    .name = "topp",
    .whole = true,
    .doc = "the fewest of each list whose weights reach a share",
    .needs = { HA_OP_ENTRY(topp) },
    .judge = judge_topp,
    .keys = "dst src dst_at src_at batch q_len kv_heads group keys src_gap dst_gap w_type p pattern empty special "
            "numbers edge",
    .pairs =
        "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\nbatch = 1 3 33\n"
        "q_len = 1..5 8 16\nkv_heads = 1..4 7 8\ngroup = 1..4 7 8\nkeys = 1 2 33 256 257 1100\nsrc_gap = 0 3\ndst_gap "
        "= 0 3\n"
        "w_type = f32 f16\np = 1 0.9 0.5 1e-09\npattern = ascending descending shuffled repeats comb\nempty = no yes\n"
        "special = none nan_value low_key high_key\nnumbers = bell close tiny wide\nedge = none at above below\n",
    .values = "q_len = 1..70 96 97 127..129 192 255..257 300 511..513 1023 1024\n",
    .once = topp_once,
    .unfit = unfit_topp,
};

/* ---- weighted_sum ------------------------------------------------------------------------------------------------ */

/* all of them, half, none, one: head by head; the first of the sequence in the middle has all */
static size_t listed(const struct ha_op_case *c, size_t most, size_t b, size_t head)
{
    const size_t of[] = { most, most / 2, 0, most ? 1 : 0 };
    return of[(4 * c->batch + b - c->batch / 2 + head) % 4];
}

static enum ha_status weighted_sum_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_weighted_sum_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                             *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype, w_type = (enum ha_dtype)c->w_type;
    const size_t heads = c->kv_heads * c->group, rows = c->q_len * heads, dim = c->head_dim, e = ha_dtype_bytes(dtype),
                 we = ha_dtype_bytes(w_type), row = dim * e;
    const bool by_head = c->layout != HA_OP_TOKENS;
    const size_t stride = (by_head ? 1 : c->kv_heads) * row + c->v_pad / e * e;
    size_t in = 0, lists = 0, out = 0, v_at[HA_OP_BATCH], keys_at[HA_OP_BATCH], index_at[HA_OP_BATCH],
           w_at[HA_OP_BATCH], o_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b), pool = 2 * keys + 1; /* a head has a row, whatever is listed */
        there[b] = (struct ha_device_weighted_sum_seq){ .v_stride_bytes = stride,
                                                        .v_head_bytes = by_head ? pool * stride : row,
                                                        .index_stride = keys + c->src_gap,
                                                        .w_stride = keys + 2 * c->src_gap };
        v_at[b] = ha_op_room(&in, (by_head ? c->kv_heads : 1) * pool * stride, c->v_at / e * e);
        keys_at[b] = ha_op_room(&lists, heads * F, c->q_at / F * F);
        index_at[b] = ha_op_room(&lists, heads * there[b].index_stride * F, c->q_at / F * F);
        w_at[b] = ha_op_room(&lists, rows * there[b].w_stride * we, c->q_at / F * F);
        o_at[b] = ha_op_room(&out, rows * dim * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, ha_op_any_place(s), in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, (enum ha_op_place)c->src, lists) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in); /* NaN where no key is that a list names */
    memset(blocks[1]->image, 0, lists);
    const size_t odd = ha_op_draw(s, c->batch);
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_weighted_sum_seq *m = &here[b];
        char *const v = blocks[0]->image + v_at[b], *w = blocks[1]->image + w_at[b];
        uint32_t *const keys = words(blocks[1]->image + keys_at[b]), *const index = words(blocks[1]->image
                                                                                          + index_at[b]);
        const size_t most = ha_op_length(c, b);
        *m = there[b];
        there[b].v = blocks[0]->at + v_at[b];
        m->v = v;
        there[b].keys = words(blocks[1]->at + keys_at[b]);
        m->keys = keys;
        there[b].index = words(blocks[1]->at + index_at[b]);
        m->index = index;
        there[b].w = blocks[1]->at + w_at[b];
        m->w = w;
        there[b].o = floats(made->at + o_at[b]);
        m->o = floats(made->image + o_at[b]);
        for (size_t h = 0; h < heads; h++) {
            const bool any = h % c->group == 0;
            keys[h] = (uint32_t)listed(c, most, b, h);
            for (size_t i = 0; i < most; i++)
                index[h * m->index_stride + i] = any ? (uint32_t)(2 * i + ha_op_draw(s, 2))
                                                     : index[(h - 1) * m->index_stride + i];
            char *const v_head = v + h / c->group * m->v_head_bytes;
            for (size_t i = 0; i < most && any; i++) {
                char *const at = v_head + index[h * m->index_stride + i] * stride;
                if (c->pattern == HA_OP_REPEATS && i) memcpy(at, v_head + index[h * m->index_stride] * stride, row);
                else ha_op_numbers(s, at, dim, dtype);
            }
        }
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < m->w_stride; i++) {
                if (c->pattern != HA_OP_REPEATS || i == 0)
                    ha_store(w, r * m->w_stride + i, w_type,
                             (float)(1 + ha_op_draw(s, 4000)) / (4000 * (float)(most + 1)));
                else memcpy(w + (r * m->w_stride + i) * we, w + r * m->w_stride * we, we);
            }
        if (!c->special || b != odd || most == 0) continue;
        const size_t h = ha_op_draw(s, c->kv_heads) * c->group, key = ha_op_draw(s, most);
        ha_store(v + h / c->group * m->v_head_bytes + index[h * m->index_stride + key] * stride, ha_op_draw(s, dim),
                 dtype, ha_op_odd(s, c));
        for (size_t r = h * c->q_len; r < (h + c->group) * c->q_len; r++) /* a weight of 0 does not hide it */
            if (ha_op_draw(s, 2)) ha_store(w, r * m->w_stride + key, w_type, 0);
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_weighted_sum args = { c->batch, c->q_len, heads, c->kv_heads, dim, dtype, w_type, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->weighted_sum(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "weighted_sum", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t i = 0; i < c->batch * heads; i++) {
        const size_t b = i / heads, h = i % heads;
        const struct ha_device_weighted_sum_seq *m = &here[b];
        const struct ha_weighted_sum one = { .rows = { .v = (const char *)m->v + h / c->group * m->v_head_bytes,
                                                       .v_stride_bytes = stride,
                                                       .index = m->index + h * m->index_stride,
                                                       .keys = m->keys[h] },
                                             .head_dim = dim,
                                             .dtype = dtype,
                                             .w = (const char *)m->w + h * c->q_len * m->w_stride * we,
                                             .w_type = w_type,
                                             .q_rows = c->q_len,
                                             .w_stride = m->w_stride,
                                             .o = m->o + h * dim,
                                             .o_stride = heads * dim };
        const bool chance = !(c->special && b == odd) && c->pattern != HA_OP_REPEATS; /* of independent roundings */
        const double ratio = ha_ref_judge_weighted_sum(&one, chance ? &held : NULL);
        s->cases++;
        if (!(ratio <= 1))
            return ha_op_wrong(s,
                               "weighted_sum of %zu rows of V of %zu, %s, weights %s: sequence %zu, query head %zu, "
                               "%zu to a KV head: error/bound %.3g",
                               one.rows.keys, dim, ha_dtype_name(dtype), ha_dtype_name(w_type), b, h, c->group, ratio);
        for (size_t t = 0; t < c->q_len; t++) ha_op_put_back(made, before, one.o + t * one.o_stride, dim * F);
    }
    ha_suspect_add(&s->suspect, &held, "weighted_sum of %s, weights %s", ha_dtype_name(dtype), ha_dtype_name(w_type));
    return ha_op_beside(s, "weighted_sum", before, made);
}

static enum ha_status judge_weighted_sum(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (256 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .q_len = 1,
                                .kv_heads = 1,
                                .group = 2 + t,
                                .head_dim = 128,
                                .keys = 5000,
                                .dtype = t,
                                .w_type = t == HA_F16 };
        if (c.keys > most) c.keys = most;
        HA_TRY(weighted_sum_once(s, &c));
        struct ha_op_case one = {
            .batch = 1, .q_len = 1, .kv_heads = 1, .group = 1, .head_dim = 20, .keys = t == HA_F32 ? 60001 : 20000
        };
        one.dtype = t;
        one.pattern = HA_OP_REPEATS;
        if (one.keys > 6 * most) one.keys = 6 * most;
        HA_TRY(weighted_sum_once(s, &one));
    }
    return HA_OK;
}

static const char *unfit_weighted_sum(const struct ha_op_case *c)
{
    return c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_KEY ? "a sum is of V" : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_weighted_sum = {
    .name = "weighted_sum",
    .doc = "sums of V by lists and their weights",
    .needs = { HA_OP_ENTRY(weighted_sum) },
    .judge = judge_weighted_sum,
    .keys = "dst src dst_at v_at q_at dtype batch q_len kv_heads group head_dim keys layout v_pad src_gap w_type empty "
            "special pattern",
    .pairs =
        "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nv_at = 0 4 40\nq_at = 0 4 40\n"
        "dtype = f32 f16 bf16\nbatch = 1 3 33\nq_len = 1..8 16\nkv_heads = 1..4 7 8\ngroup = 1..8 16\n"
        "head_dim = 1 8 33 64 80 96 112 128 192 256\nkeys = 1 2 33 70 256 257 600\nlayout = tokens heads\nv_pad = 0 4 "
        "18\nsrc_gap = "
        "0 3\n"
        "w_type = f32 f16\nempty = no yes\nspecial = none nan_value low_key high_key\npattern = shuffled repeats\n",
    .once = weighted_sum_once,
    .unfit = unfit_weighted_sum,
};
