/* What selects keys: digests, choices and what a cache has of them exactly, scores and rotated queries within the bound
 * that follows from the sums that the contract allows, NaN where a NaN is read, and nothing is written beside the
 * results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *floats(char *at) { return (float *)(void *)at; }
static uint32_t *words(char *at) { return (uint32_t *)(void *)at; }

/* ---- digest ------------------------------------------------------------------------------------------------------ */

/* Arguments as the device has them, and as the images do. */
struct digest_problem {
    struct ha_device_digest_seq there[HA_OP_BATCH], here[HA_OP_BATCH], seqs[HA_OP_BATCH];
};

/* Blocks [first, end) of a head and what is zeros behind them: judged, and then put back. */
static enum ha_status judge_digest_head(struct ha_op_stage *s, const struct ha_op_case *c,
                                        const struct ha_device_digest_seq *m, size_t b, size_t h, const char *before,
                                        const struct ha_op_block *out)
{
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    char *const at = (char *)m->digests + h * m->head_bytes;
    struct ha_digest one = { .kind = (enum ha_digest_kind)c->digest,
                             .digests = at,
                             .first = m->first,
                             .blocks = m->blocks,
                             .unit = c->block,
                             .rows = m->rows,
                             .head_dim = c->head_dim,
                             .dtype = dtype };
    one.rows.k = (const char *)one.rows.k + h * m->k_head_bytes;
    s->cases++;
    const double ratio = ha_ref_judge_digest(&one);
    if (!(ratio <= 1))
        return ha_op_wrong(s,
                           "digest of %s, %zu keys in blocks of %zu, head_dim %zu: sequence %zu, KV head %zu: %zu "
                           "blocks behind %zu: error/bound %.3g",
                           ha_dtype_name(dtype), m->rows.keys, c->block, c->head_dim, b, h, m->blocks, m->first, ratio);
    const size_t e = ha_dtype_bytes(dtype), end = m->first + m->blocks,
                 last = (end + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS;
    for (size_t i = m->first; i < last; i++)
        for (size_t d = 0; d < 2 * c->head_dim; d++) {
            char *x = at + ha_ref_digest(c->head_dim, i, d / 2, d % 2) * e;
            if (i >= end && ha_load(x, 0, dtype) != 0)
                return ha_op_wrong(
                    s, "digest of %s, sequence %zu, KV head %zu: behind the last block there is %.9g, want 0",
                    ha_dtype_name(dtype), b, h, (double)ha_load(x, 0, dtype));
            memcpy(x, before + (x - out->image), e);
        }
    return HA_OK;
}

static enum ha_status digest_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct digest_problem *const p = s->scratch;
    HA_OP_FITS(sizeof *p);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t e = ha_dtype_bytes(dtype), row = c->head_dim * e, heads = c->kv_heads;
    const bool by_head = c->layout != HA_OP_TOKENS, indexed = c->src_index != HA_OP_NO_INDEX;
    const size_t stride = (by_head ? 1 : heads) * row + c->pad / e * e;
    size_t in = 0, names = 0, out = 0, k_at[HA_OP_BATCH], index_at[HA_OP_BATCH], out_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b), pool = indexed ? 2 * keys : keys;
        struct ha_device_digest_seq *t = &p->there[b];
        *t = (struct ha_device_digest_seq){
            .first = c->first + b % 3 * 11,
            .blocks = (keys + c->block - 1) / c->block + b % 2, /* or a block more than there are keys for */
            .rows = { .k_stride_bytes = stride, .keys = keys },
            .k_head_bytes = by_head ? pool * stride : row,
        };
        t->head_bytes = ha_digest_bytes(t->first + t->blocks, c->head_dim, dtype) + b % 2 * 64;
        k_at[b] = ha_op_room(&in, (by_head ? heads : 1) * pool * stride, c->src_at / e * e);
        index_at[b] = ha_op_room(&names, indexed ? keys * sizeof(uint32_t) : 0, c->q_at / 4 * 4);
        out_at[b] = ha_op_room(&out, heads * t->head_bytes, 0);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, HA_OP_DEVICE, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] && indexed
                    ? ha_op_block(s, c->src_index == HA_OP_MAPPED_INDEX ? HA_OP_MAPPED : HA_OP_DEVICE, names)
                    : NULL;
    if (!blocks[0] || (indexed && !blocks[1])) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in); /* NaN where no key is */
    if (indexed) memset(blocks[1]->image, 0, names);
    const size_t odd = ha_op_draw(s, c->batch);
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_digest_seq *t = &p->there[b], *m = &p->here[b];
        char *const k = blocks[0]->image + k_at[b];
        uint32_t *index = indexed ? words(blocks[1]->image + index_at[b]) : NULL;
        const size_t keys = t->rows.keys;
        *m = *t;
        t->digests = made->at + out_at[b];
        m->digests = made->image + out_at[b];
        t->rows.k = blocks[0]->at + k_at[b];
        m->rows.k = k;
        t->rows.index = indexed ? words(blocks[1]->at + index_at[b]) : NULL;
        m->rows.index = index;
        if (index) ha_op_index(s, index, keys);
        for (size_t h = 0; h < (by_head ? heads : 1); h++)
            for (size_t i = 0; i < keys; i++) {
                char *const at = k + h * m->k_head_bytes + (index ? index[i] : i) * stride;
                ha_op_numbers(s, at, (by_head ? 1 : heads) * c->head_dim, dtype);
                ha_op_reshape(s, at, (by_head ? 1 : heads) * c->head_dim, dtype, c->numbers);
            }
        if (!c->special || b != odd || keys == 0) continue;
        const size_t i = ha_op_draw(s, keys), h = ha_op_draw(s, heads), d = ha_op_draw(s, c->head_dim);
        ha_store(k + h * m->k_head_bytes + (index ? index[i] : i) * stride, d, dtype, ha_op_odd(s, c));
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    struct ha_device_digest_seq *const seqs = p->seqs;
    memcpy(seqs, p->there, c->batch * sizeof *seqs);
    struct ha_device_digest args = {
        c->batch, heads, c->head_dim, c->block, (enum ha_digest_kind)c->digest, dtype, seqs
    };
    HA_TRY(ha_op_arrive(s, blocks, indexed ? 2 : 1, made));
    const enum ha_status asked = s->api->digest(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "digest", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++) HA_TRY(judge_digest_head(s, c, &p->here[b], b, h, before, made));
    return ha_op_beside(s, "digest", before, made);
}

static enum ha_status judge_digest(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (64 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .kv_heads = 1,
                                .head_dim = 64,
                                .keys = 20000,
                                .block = 16,
                                .dtype = t,
                                .first = 40,
                                .digest = t % 2 };
        if (c.keys > most) c.keys = most;
        HA_TRY(digest_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_digest(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "a digest is of keys";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_digest = {
    .name = "digest",
    .doc = "minima and maxima, or means, of blocks of keys",
    .needs = { HA_OP_ENTRY(digest) },
    .judge = judge_digest,
    .keys = "src src_at q_at dtype batch kv_heads head_dim keys block pad layout empty special numbers src_index first "
            "digest",
    .pairs = "dtype = f32 f16 bf16\ndigest = range mean\nsrc = device mapped\n"
             "src_at = 0 4 24\nq_at = 0 4 40\nsrc_index = none device mapped\n"
             "batch = 1 3 33\nkv_heads = 1..4 7 8\nhead_dim = 8 33 64 80 96 112 128 192 256\nkeys = 1 16 31 100 257\n"
             "block = 1 16 32 5 64\npad = 0 4 16\nlayout = tokens heads\nfirst = 0 1 31 64\nempty = no yes\n"
             "special = none nan_key low_key high_key\nnumbers = bell close tiny wide\n",
    .once = digest_once,
    .unfit = unfit_digest,
};

/* ---- digest_score ------------------------------------------------------------------------------------------------ */

struct score_problem {
    struct ha_device_score_seq there[HA_OP_BATCH], here[HA_OP_BATCH], seqs[HA_OP_BATCH];
    size_t seq, head, block, dim; /* where the number is that is none, or is infinite */
    bool odd[2];                  /* of the lower bound, of the upper one */
};

static struct ha_digest_score score_of(const struct ha_op_case *c, const struct ha_device_score_seq *m, size_t head)
{
    const size_t heads = c->kv_heads * c->group;
    return (struct ha_digest_score){ .q = m->q + head * c->head_dim,
                                     .q_rows = c->q_len,
                                     .q_stride = heads * c->head_dim,
                                     .head_dim = c->head_dim,
                                     .digests = (const char *)m->digests + head / c->group * m->head_bytes,
                                     .blocks = m->blocks,
                                     .dtype = (enum ha_dtype)c->dtype,
                                     .scale = (float)c->scale / sqrtf((float)c->head_dim),
                                     .s = m->s + head * c->q_len * m->s_stride,
                                     .s_stride = m->s_stride };
}

/* The score of what is no number must be none, or infinite where that is what is meant; for the rest of the judgement
 * it is then what the reference has. */
static enum ha_status judge_odd_score(struct ha_op_stage *s, const struct ha_op_case *c, const struct score_problem *p,
                                      const struct ha_digest_score *one, size_t head)
{
    for (size_t r = 0; r < one->q_rows; r++) {
        const float *q = one->q + r * one->q_stride;
        float *got = one->s + r * one->s_stride + p->block;
        const bool nan = c->special == HA_OP_NAN_KEY,
                   infinite = (p->odd[1] && q[p->dim] > 0) || (p->odd[0] && q[p->dim] < 0);
        double want = 0;
        if (!nan && !infinite) continue;
        if (nan ? !isnan(*got) : *got != INFINITY)
            return ha_op_wrong(s,
                               "digest_score: the score of block %zu, which holds %s, by token %zu of head %zu is %.9g",
                               p->block, nan ? "a NaN" : "an infinity", r, head, (double)*got);
        for (size_t d = 0; d < c->head_dim; d++)
            want += (double)q[d]
                    * (double)ha_load(one->digests, ha_ref_digest(c->head_dim, p->block, d, !(q[d] < 0)), one->dtype);
        *got = (float)((double)one->scale * want);
    }
    return HA_OK;
}

static enum ha_status digest_score_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct score_problem *const p = s->scratch;
    HA_OP_FITS(sizeof *p);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t heads = c->kv_heads * c->group, rows = heads * c->q_len, e = ha_dtype_bytes(dtype), f = sizeof(float);
    size_t in = 0, queries = 0, out = 0, q_at[HA_OP_BATCH], digests_at[HA_OP_BATCH], out_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_score_seq *t = &p->there[b];
        *t = (struct ha_device_score_seq){ .blocks = ha_op_length(c, b), .s_stride = ha_op_length(c, b) + c->dst_gap };
        t->head_bytes = ha_digest_bytes(t->blocks, c->head_dim, dtype) + b % 2 * 64;
        q_at[b] = ha_op_room(&queries, rows * c->head_dim * f, c->q_at / f * f);
        digests_at[b] = ha_op_room(&in, c->kv_heads * t->head_bytes, 0);
        out_at[b] = ha_op_room(&out, rows * t->s_stride * f, c->dst_at / f * f);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, HA_OP_DEVICE, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, (enum ha_op_place)c->src, queries) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, queries);
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_score_seq *t = &p->there[b], *m = &p->here[b];
        float *const q = floats(blocks[1]->image + q_at[b]), x[2 * HA_PACK_KEYS];
        *m = *t;
        t->q = floats(blocks[1]->at + q_at[b]);
        m->q = q;
        t->digests = blocks[0]->at + digests_at[b];
        m->digests = blocks[0]->image + digests_at[b];
        t->s = floats(made->at + out_at[b]);
        m->s = floats(made->image + out_at[b]);
        ha_op_numbers(s, q, rows * c->head_dim, HA_F32);
        for (size_t h = 0; h < c->kv_heads; h++)
            for (size_t i = 0; i < (t->blocks + HA_PACK_KEYS - 1) / HA_PACK_KEYS * c->head_dim; i++) {
                char *at = blocks[0]->image + digests_at[b] + h * t->head_bytes + i * 2 * HA_PACK_KEYS * e;
                ha_op_numbers(s, x, 2 * HA_PACK_KEYS, HA_F32);
                for (size_t j = 0; j < HA_PACK_KEYS; j++) { /* what lies behind the last block is not read */
                    ha_store(at, j, dtype, fminf(x[j], x[j + HA_PACK_KEYS]));
                    ha_store(at, j + HA_PACK_KEYS, dtype, fmaxf(x[j], x[j + HA_PACK_KEYS]));
                }
            }
    }
    /* of the queries that meet an infinity, the first is 0 */
    char *odd[2] = { NULL }, clean[2][sizeof(float)];
    const bool both = ha_op_draw(s, 2); /* bounds are infinite, or one of them */
    p->seq = ha_op_draw(s, c->batch);
    const struct ha_device_score_seq *m = &p->here[p->seq];
    if (c->special && m->blocks) {
        p->head = ha_op_draw(s, c->kv_heads);
        p->block = ha_op_draw(s, m->blocks);
        p->dim = ha_op_draw(s, c->head_dim);
        char *const at = blocks[0]->image + digests_at[p->seq] + p->head * m->head_bytes;
        for (size_t i = 0; i < 2; i++) {
            p->odd[i] = c->special == HA_OP_NAN_KEY || both || i == (c->special == HA_OP_HIGH_KEY);
            if (!p->odd[i]) continue;
            odd[i] = at + ha_ref_digest(c->head_dim, p->block, p->dim, i) * e;
            memcpy(clean[i], odd[i], e);
            ha_store(odd[i], 0, dtype, c->special == HA_OP_NAN_KEY ? NAN : i ? INFINITY : -INFINITY);
        }
        floats(blocks[1]->image + q_at[p->seq])[p->head * c->group * c->head_dim + p->dim] = ha_op_draw(s, 2) ? -0.0f
                                                                                                              : 0;
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    struct ha_device_score_seq *const seqs = p->seqs;
    memcpy(seqs, p->there, c->batch * sizeof *seqs);
    const float scale = (float)c->scale / sqrtf((float)c->head_dim);
    struct ha_device_digest_score args = { c->batch, c->q_len, heads, c->kv_heads, c->head_dim, dtype, scale, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    for (size_t i = 0; i < 2; i++)
        if (odd[i]) memcpy(odd[i], clean[i], e);
    const enum ha_status asked = s->api->digest_score(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "digest_score", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++) {
            const struct ha_digest_score one = score_of(c, &p->here[b], h);
            const bool special = (odd[0] || odd[1]) && b == p->seq && h / c->group == p->head;
            if (special) HA_TRY(judge_odd_score(s, c, p, &one, h));
            s->cases++;
            const double ratio = ha_ref_judge_digest_score(&one, special ? NULL : &held);
            if (!(ratio <= 1))
                return ha_op_wrong(
                    s,
                    "digest_score of %s, head_dim %zu, %zu blocks: sequence %zu, query head %zu: error/bound "
                    "%.3g",
                    ha_dtype_name(dtype), c->head_dim, one.blocks, b, h, ratio);
            for (size_t r = 0; r < c->q_len; r++) {
                float *at = one.s + r * one.s_stride;
                memcpy(at, before + ((char *)at - made->image), one.blocks * f);
            }
        }
    ha_suspect_add(&s->suspect, &held, "digest_score of %s, head_dim %zu", ha_dtype_name(dtype), c->head_dim);
    return ha_op_beside(s, "digest_score", before, made);
}

static enum ha_status judge_digest_score(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (128 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = {
            .batch = 1, .q_len = 1, .kv_heads = 1, .group = 4, .head_dim = 128, .keys = 5000, .dtype = t, .scale = 1
        };
        if (c.keys > most) c.keys = most;
        HA_TRY(digest_score_once(s, &c));
    }
    return HA_OK;
}

const struct ha_op ha_op_digest_score = {
    .name = "digest_score",
    .whole = true,
    .doc = "scores of blocks by their digests",
    .needs = { HA_OP_ENTRY(digest_score) },
    .judge = judge_digest_score,
    .keys = "dst src dst_at q_at dtype batch q_len kv_heads group head_dim keys dst_gap empty scale special",
    .pairs = "dtype = f32 f16 bf16\ndst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nq_at = 0 4 40\n"
             "batch = 1 3 33\nq_len = 1..8 16\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 8 33 64 80 96 112 128 "
             "192 256\n"
             "keys = 1 16 31 33 130 257\ndst_gap = 0 3\nempty = no yes\nscale = 1 0.25 3\n"
             "special = none nan_key low_key high_key\n",
    .once = digest_score_once,
    .unfit = unfit_digest,
};

/* ---- topk -------------------------------------------------------------------------------------------------------- */

/* nan_value: no number at all; nan_key, low_key, high_key: a third of them is none, or infinite. comb: that of all rows
 * of a list */
static void make_list(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_op_comb *comb, float *x,
                      size_t n)
{
    ha_op_numbers(s, x, n, HA_F32);
    ha_op_reshape(s, x, n, HA_F32, c->numbers);
    const float low = c->pattern == HA_OP_REPEATS ? -(float)(ha_op_draw(s, 3) / 2 * 3) : 0; /* or -3 is the largest */
    for (size_t i = 0; i < n && !c->numbers; i++) {
        if (c->pattern == HA_OP_ASCENDING) x[i] = (float)i - (float)(n / 2);
        if (c->pattern == HA_OP_DESCENDING) x[i] = (float)(n / 2) - (float)i;
        if (c->pattern == HA_OP_REPEATS) { /* zeros of both signs are the largest */
            x[i] = rintf(2 * x[i]);
            x[i] = (x[i] > 0 ? -x[i] : x[i]) + low;
        }
        if (c->pattern == HA_OP_COMB && ha_op_lifts(comb, i)) x[i] += 16;
    }
    for (size_t i = 0; i < n; i++) {
        const bool odd = c->special && (c->special == HA_OP_NAN_VALUE || ha_op_draw(s, 3) == 0);
        if (odd) x[i] = ha_op_odd(s, c);
    }
}

/* One number of a list is what binary32 has for the largest less `within`. */
static void put_at_edge(struct ha_op_stage *s, const struct ha_op_case *c, float *x, const struct ha_device_topk_seq *m)
{
    float largest = -INFINITY;
    size_t of = 0;
    for (size_t i = 0; i < c->group * m->n; i++) {
        const float one = x[i / m->n * m->stride + i % m->n];
        if (!(one > largest)) continue;
        largest = one;
        of = i % m->n;
    }
    const size_t at = m->n ? ha_op_draw(s, m->n) : 0;
    for (size_t r = 0; r < c->group && m->n && at != of && isfinite(largest); r++)
        x[r * m->stride + at] = largest - m->within;
}

static enum ha_status judge_list(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_device_topk_seq *m,
                                 size_t b, size_t l, float *most, uint32_t *index)
{
    size_t chosen = m->k < m->n ? m->k : m->n, close = 0;
    const uint32_t *got = m->index + l * m->index_stride;
    float largest = NAN;
    for (size_t i = 0; i < m->n; i++) {
        most[i] = NAN;
        for (size_t r = 0; r < c->group; r++) most[i] = fmaxf(most[i], m->x[(l * c->group + r) * m->stride + i]);
        largest = fmaxf(largest, most[i]);
    }
    s->cases++;
    const size_t unit = m->keys_unit ? m->keys_unit : 1;
    for (size_t i = 0; m->keys && i < m->n; i++)
        if (!isnan(most[i]) && !(most[i] < largest - m->within)) index[close++] = (uint32_t)i;
    if (m->keys && close < chosen) chosen = close;
    if (m->keys && m->keys[l] != chosen * unit)
        return ha_op_wrong(s,
                           "topk, the %zu largest of %zu, of %zu rows each, %zu within %g of %g: list %zu of sequence "
                           "%zu: %u are counted, in units of %zu",
                           m->k, m->n, c->group, close, (double)m->within, (double)largest, l, b, (unsigned)m->keys[l],
                           unit);
    for (size_t i = 0; m->keys && i < chosen && close == chosen; i++)
        if (got[i] - m->first != index[i])
            return ha_op_wrong(s, "topk, within %g of %g: list %zu of sequence %zu: number %zu is not of %u, but %u",
                               (double)m->within, (double)largest, l, b, i, (unsigned)(index[i] + m->first),
                               (unsigned)got[i]);
    if (m->keys && close == chosen) return HA_OK;
    for (size_t i = 0; i < chosen; i++) index[i] = got[i] - m->first;
    return ha_ref_judge_topk(&(struct ha_topk){ most, m->n, m->k, index }) <= 1
               ? HA_OK
               : ha_op_wrong(
                   s,
                   "topk, the %zu largest of %zu, of %zu rows each: list %zu of sequence %zu: not those, or not "
                   "in rising order, or not %u on",
                   m->k, m->n, c->group, l, b, (unsigned)m->first);
}

static enum ha_status topk_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_topk_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                     *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const size_t f = sizeof(float), rows = c->kv_heads * c->group;
    static const float about_1[] = { 1, 0.7f, 3.3f };
    const float within[] = { NAN, 0, about_1[ha_op_draw(s, 3)], INFINITY };
    size_t in = 0, out = 0, x_at[HA_OP_BATCH], out_at[HA_OP_BATCH], keys_at[HA_OP_BATCH], only_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t n = ha_op_length(c, b), chosen = c->chosen < n ? c->chosen : n;
        there[b] = (struct ha_device_topk_seq){ .n = n,
                                                .k = c->chosen,
                                                .stride = n + c->src_gap,
                                                .first = (uint32_t)(c->first + b % 2 * 1000),
                                                .index_stride = chosen + c->dst_gap,
                                                .within = within[c->within],
                                                .keys_unit = c->block > 1 ? c->block : 0 };
        x_at[b] = ha_op_room(&in, rows * there[b].stride * f, c->src_at / f * f);
        only_at[b] = ha_op_room(&in, c->kv_heads * f, c->src_at / f * f);
        out_at[b] = ha_op_room(&out, c->kv_heads * there[b].index_stride * f, c->dst_at / f * f);
        keys_at[b] = ha_op_room(&out, c->kv_heads * f, c->dst_at / f * f);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out),
                       *lists = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    if (!lists) return HA_ERROR;
    for (size_t i = 0; i + f <= in; i += f)
        *floats(lists->image + i) = INFINITY; /* beside the lists is what is larger */
    for (size_t b = 0; b < c->batch; b++) {
        here[b] = there[b];
        there[b].x = floats(lists->at + x_at[b]);
        here[b].x = floats(lists->image + x_at[b]);
        there[b].index = words(made->at + out_at[b]);
        here[b].index = words(made->image + out_at[b]);
        there[b].keys = c->within && b % 4 < 3 ? words(made->at + keys_at[b]) : NULL; /* or not asked, of some */
        here[b].keys = there[b].keys ? words(made->image + keys_at[b]) : NULL;
        struct ha_op_comb comb = { .step = 1 };
        for (size_t r = 0; r < rows; r++) {
            if (r % c->group == 0) comb = ha_op_comb(s, here[b].n);
            make_list(s, c, &comb, floats(lists->image + x_at[b]) + r * here[b].stride, here[b].n);
        }
        for (size_t l = 0; c->within == HA_OP_WITHIN_1 && l < c->kv_heads; l++)
            put_at_edge(s, c, floats(lists->image + x_at[b]) + l * c->group * here[b].stride, &here[b]);
        there[b].only = c->only ? words(lists->at + only_at[b]) : NULL;
        here[b].only = c->only ? ha_op_only(s, lists->image + only_at[b], c->kv_heads) : NULL;
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_topk args = { c->batch, c->kv_heads, c->group, seqs };
    HA_TRY(ha_op_arrive(s, &lists, 1, made));
    const enum ha_status asked = s->api->topk(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "topk", asked, made, &before));
    float *most = malloc(2 * (c->keys + 1) * f);
    if (!most) return ha_why(s->why, HA_ERROR, "out of memory");
    enum ha_status status = HA_OK;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t l = 0; l < c->kv_heads && status == HA_OK; l++) {
            struct ha_device_topk_seq *m = &here[b];
            if (m->only && !m->only[l]) continue;
            status = judge_list(s, c, m, b, l, most, (uint32_t *)(void *)(most + c->keys + 1));
            char *at = (char *)(m->index + l * m->index_stride);
            memcpy(at, before + (at - made->image), (m->k < m->n ? m->k : m->n) * sizeof *m->index);
            if (m->keys) memcpy(m->keys + l, before + ((char *)(m->keys + l) - made->image), sizeof *m->keys);
        }
    free(most);
    return status == HA_OK ? ha_op_beside(s, "topk", before, made) : status;
}

static enum ha_status judge_topk(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 1 << 20, .chosen = 1 << 16, .pattern = HA_OP_SHUFFLED },
        { .batch = 1, .kv_heads = 2, .group = 1, .keys = 40000, .chosen = 2048, .pattern = HA_OP_SHUFFLED },
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 20000, .chosen = 2048, .numbers = HA_OP_CLOSE },
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 30000, .chosen = 700, .numbers = HA_OP_WIDE },
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 10000, .chosen = 5000, .pattern = HA_OP_SHUFFLED },
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 5000, .chosen = 16, .pattern = HA_OP_SHUFFLED },
        { .batch = 33, .kv_heads = 4, .group = 1, .keys = 2100, .chosen = 100, .pattern = HA_OP_COMB },
        { .batch = 33, .kv_heads = 4, .group = 1, .keys = 2360, .chosen = 1200, .pattern = HA_OP_COMB },
        { .batch = 13, .kv_heads = 8, .group = 1, .keys = 600, .chosen = 40, .pattern = HA_OP_COMB },
        { .batch = 1, .kv_heads = 24, .group = 1, .keys = 1 << 16, .chosen = 2048, .pattern = HA_OP_COMB },
        { .batch = 2, .kv_heads = 12, .group = 1, .keys = 20000, .chosen = 6000, .pattern = HA_OP_COMB },
        { .batch = 1, .kv_heads = 1, .group = 2, .keys = 70000, .chosen = 66000, .pattern = HA_OP_REPEATS, .first = 5 },
        { .batch = 1,
          .kv_heads = 2,
          .group = 1,
          .keys = 70000,
          .chosen = 40000,
          .pattern = HA_OP_SHUFFLED,
          .within = HA_OP_WITHIN_1 },
        /* of which many are the largest */
        { .batch = 7,
          .kv_heads = 3,
          .group = 1,
          .keys = 1000,
          .chosen = 300,
          .pattern = HA_OP_REPEATS,
          .within = HA_OP_WITHIN_0 },
        /* whose largest is that of any of their rows */
        { .batch = 1,
          .kv_heads = 8,
          .group = 4,
          .keys = 1000,
          .chosen = 100,
          .pattern = HA_OP_SHUFFLED,
          .within = HA_OP_WITHIN_0 },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct ha_op_case c = large[i];
        const size_t most = s->most / sizeof(float);
        if (c.keys > most) c.keys = most;
        HA_TRY(topk_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_topk(const struct ha_op_case *c)
{
    return c->special == HA_OP_NAN_QUERY ? "a list has no query" : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_topk = {
    .name = "topk",
    .doc = "the largest of lists, in order",
    .needs = { HA_OP_ENTRY(topk) },
    .judge = judge_topk,
    .keys =
        "dst src dst_at src_at batch kv_heads group keys dst_gap src_gap pattern empty special numbers first chosen "
        "within block only",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\n"
             "within = any 0 1 inf\nblock = 1 16\nonly = no yes\nbatch = 1 3 33\nkv_heads = 1..4 7 8\ngroup = 1..8 "
             "16\nkeys = "
             "1 31 32 33 100 257 1000 2100\n"
             "chosen = 0 1 16 33 100 1000 5000\ndst_gap = 0 3\nsrc_gap = 0 3\nfirst = 0 7\nempty = no yes\n"
             "pattern = ascending descending shuffled repeats comb\nspecial = none nan_key nan_value low_key high_key\n"
             "numbers = bell close tiny wide\n",
    .once = topk_once,
    .unfit = unfit_topk,
};

/* ---- split ------------------------------------------------------------------------------------------------------- */

struct split_problem {
    struct ha_device_split_seq there[HA_OP_BATCH], here[HA_OP_BATCH], seqs[HA_OP_BATCH];
};

/* Small numbers, 0 and those from 2^31 on are slots, too. */
static uint32_t draw_slot(struct ha_op_stage *s, const struct ha_op_case *c)
{
    if (c->cached == HA_OP_NONE_CACHED || (c->cached == HA_OP_SOME_CACHED && ha_op_draw(s, 2))) return HA_SLOT_NONE;
    return (uint32_t)ha_op_draw(s, ha_op_draw(s, 3) ? UINT32_MAX : 4);
}

static void make_split(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_device_split_seq *m,
                       size_t lists, uint32_t *index, uint32_t *slot)
{
    for (size_t t = 0; t < c->kv_heads; t++)
        for (size_t i = 0; i < m->blocks; i++) slot[t * m->slot_stride + i] = draw_slot(s, c);
    for (size_t l = 0; l < lists; l++)
        for (size_t i = 0; i < m->count; i++) {
            const size_t any = ha_op_draw(s, c->spread), up = i * c->spread + any;
            index[l * m->index_stride + i] = (uint32_t)(c->pattern == HA_OP_ASCENDING    ? up
                                                        : c->pattern == HA_OP_DESCENDING ? m->blocks - 1 - up
                                                                                         : ha_op_draw(s, m->blocks));
        }
}

/* List l of all: judged, and then put back. */
static enum ha_status judge_parts(struct ha_op_stage *s, const struct ha_op_case *c,
                                  const struct ha_device_split_seq *m, size_t b, size_t l, size_t all,
                                  const char *before, const struct ha_op_block *out)
{
    const uint32_t *slot = m->slot + l * c->kv_heads / all * m->slot_stride;
    uint32_t *const lists[] = { m->here + l * m->out_stride, m->missing ? m->missing + l * m->out_stride : NULL },
                    *const counts[] = { m->here_count + l, m->missing_count ? m->missing_count + l : NULL };
    static const char *const name[] = { "here", "missing" };
    size_t count[2] = { 0 };
    s->cases++;
    for (size_t i = 0; i < m->count; i++) {
        const uint32_t of = m->index[l * m->index_stride + i];
        const size_t to = slot[of] == HA_SLOT_NONE, n = count[to]++;
        const uint32_t want = to ? of : slot[of];
        if (lists[to] && lists[to][n] != want)
            return ha_op_wrong(s, "split of %zu blocks: list %zu of sequence %zu: number %zu of %s is %u, want %u",
                               m->count, l, b, n, name[to], (unsigned)lists[to][n], (unsigned)want);
    }
    for (size_t to = 0; to < 2; to++) {
        const size_t want = count[to] * (to == 0 && m->here_unit ? m->here_unit : 1);
        if (counts[to] && *counts[to] != want)
            return ha_op_wrong(s, "split of %zu blocks: list %zu of sequence %zu: %u are %s, want %zu", m->count, l, b,
                               (unsigned)*counts[to], name[to], want);
        if (lists[to]) memcpy(lists[to], before + ((char *)lists[to] - out->image), m->count * sizeof *lists[to]);
        if (counts[to]) memcpy(counts[to], before + ((char *)counts[to] - out->image), sizeof *counts[to]);
    }
    return HA_OK;
}

static enum ha_status split_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct split_problem *const p = s->scratch;
    HA_OP_FITS(sizeof *p);
    /* some tables have a list more than others */
    const size_t w = sizeof(uint32_t), lists = c->kv_heads * c->group + ha_op_draw(s, 2) * ha_op_draw(s, c->kv_heads),
                 shift = c->dst_at / w * w;
    const bool missing = c->missing == HA_OP_MISSING_BOTH || c->missing == HA_OP_MISSING_LIST,
               counted = c->missing == HA_OP_MISSING_BOTH || c->missing == HA_OP_MISSING_COUNT;
    size_t names = 0, in = 0, out = 0, index_at[HA_OP_BATCH], slot_at[HA_OP_BATCH], out_at[HA_OP_BATCH][4];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t count = ha_op_length(c, b), blocks = count * c->spread;
        struct ha_device_split_seq *t = &p->there[b];
        *t = (struct ha_device_split_seq){ .count = count,
                                           .index_stride = count + c->src_gap,
                                           .blocks = blocks,
                                           .slot_stride = blocks + c->src_gap,
                                           .out_stride = count + c->dst_gap,
                                           .here_unit = c->block };
        index_at[b] = ha_op_room(&names, lists * t->index_stride * w, c->q_at / w * w);
        slot_at[b] = ha_op_room(&in, c->kv_heads * t->slot_stride * w, c->src_at / w * w);
        for (size_t i = 0; i < 4; i++) out_at[b][i] = ha_op_room(&out, lists * (i % 2 ? 1 : t->out_stride) * w, shift);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, c->src_index == HA_OP_MAPPED_INDEX ? HA_OP_MAPPED : HA_OP_DEVICE, names)
                          : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0, in); /* beside the lists is block 0, beside the tables slot 0 */
    memset(blocks[1]->image, 0, names);
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_split_seq *t = &p->there[b];
        p->here[b] = *t;
        for (size_t i = 0; i < 2; i++) {
            struct ha_device_split_seq *m = i ? &p->here[b] : t;
            char *const to = i ? made->image : made->at;
            m->index = words((i ? blocks[1]->image : blocks[1]->at) + index_at[b]);
            m->slot = words((i ? blocks[0]->image : blocks[0]->at) + slot_at[b]);
            m->here = words(to + out_at[b][0]);
            m->here_count = words(to + out_at[b][1]);
            m->missing = missing ? words(to + out_at[b][2]) : NULL;
            m->missing_count = counted ? words(to + out_at[b][3]) : NULL;
        }
        make_split(s, c, t, lists, words(blocks[1]->image + index_at[b]), words(blocks[0]->image + slot_at[b]));
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    struct ha_device_split_seq *const seqs = p->seqs;
    memcpy(seqs, p->there, c->batch * sizeof *seqs);
    struct ha_device_split args = { c->batch, lists, c->kv_heads, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->split(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "split", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t l = 0; l < lists; l++) HA_TRY(judge_parts(s, c, &p->here[b], b, l, lists, before, made));
    return ha_op_beside(s, "split", before, made);
}

static enum ha_status judge_split(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .batch = 1, .kv_heads = 1, .group = 1, .keys = 70000, .spread = 2, .pattern = HA_OP_SHUFFLED },
        { .batch = 2, .kv_heads = 8, .group = 4, .keys = 500, .spread = 8, .pattern = HA_OP_ASCENDING },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct ha_op_case c = large[i];
        const size_t most = s->most / (c.spread * c.kv_heads * sizeof(uint32_t));
        if (c.keys > most) c.keys = most;
        HA_TRY(split_once(s, &c));
    }
    return HA_OK;
}

const struct ha_op ha_op_split = {
    .name = "split",
    .whole = true,
    .doc = "of lists of blocks the slots of those that a cache has, and the others, in order",
    .needs = { HA_OP_ENTRY(split) },
    .judge = judge_split,
    .keys = "dst src dst_at src_at q_at batch kv_heads group keys dst_gap src_gap src_index pattern spread empty "
            "cached missing block",
    .pairs = "dst = device mapped\nsrc = device mapped\nsrc_index = device mapped\ndst_at = 0 4 24\n"
             "src_at = 0 4 40\nq_at = 0 4 40\nbatch = 1 3 33\nkv_heads = 1..4 7 8\ngroup = 1..8 16\n"
             "keys = 1 31 32 33 100 257 1000\ndst_gap = 0 3\nsrc_gap = 0 3\npattern = ascending descending shuffled\n"
             "spread = 1 4\nempty = no yes\ncached = some none all\nmissing = both none list count\nblock = 1 8 128\n",
    .once = split_once,
    .unfit = ha_op_unfit_kernel,
};

/* ---- rotate ------------------------------------------------------------------------------------------------------ */

static enum ha_status rotate_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    const size_t f = sizeof(float), dim = c->head_dim, heads = c->kv_heads * c->group, n = c->q_len * heads * dim,
                 q = c->dst_at / f * f;
    size_t in = 0;
    const size_t bias = ha_op_room(&in, heads * dim * f, c->q_at / f * f),
                 norm = ha_op_room(&in, dim * f, c->q_at / f * f),
                 turn = ha_op_room(&in, c->q_len * c->rotary * f, c->q_at / f * f);
    ha_op_clear(s);
    struct ha_op_block *blocks[2], *made = blocks[0] = ha_op_block(s, (enum ha_op_place)c->dst, q + n * f + 64);
    blocks[1] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(made->image, 0xFF, made->bytes);
    memset(blocks[1]->image, 0xFF, in);
    float *const qi = floats(made->image + q);
    ha_op_numbers(s, qi, n, HA_F32);
    ha_op_numbers(s, blocks[1]->image + bias, heads * dim, HA_F32);
    ha_op_numbers(s, blocks[1]->image + norm, dim, HA_F32);
    ha_op_numbers(s, blocks[1]->image + turn, c->q_len * c->rotary, HA_F32);
    if (c->special) qi[ha_op_draw(s, n)] = ha_op_odd(s, c);
    struct ha_device_rotate there[2]; /* in the device's memory, in the images */
    for (size_t i = 0; i < 2; i++) {
        char *const by = i ? blocks[1]->image : blocks[1]->at;
        there[i] = (struct ha_device_rotate){ .q = i ? qi : floats(made->at + q),
                                              .tokens = c->q_len,
                                              .heads = heads,
                                              .head_dim = dim,
                                              .bias = c->bias ? floats(by + bias) : NULL,
                                              .norm = c->norm ? floats(by + norm) : NULL,
                                              .norm_eps = (float)c->eps,
                                              .turn = c->rotary ? floats(by + turn) : NULL,
                                              .rotary = c->rotary,
                                              .adjacent = c->adjacent };
    }
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->rotate(s->stream[0], &there[0]);
    memset(&there[0], 0, sizeof there[0]);
    const char *before;
    HA_TRY(ha_op_follow(s, "rotate", asked, made, &before));
    s->cases++;
    const double ratio = ha_ref_judge_rotate(&there[1], (const float *)(const void *)(before + q));
    if (!(ratio <= 1))
        return ha_op_wrong(s, "rotate of %zu tokens of %zu heads of %zu, %zu of them turned: error/bound %.3g",
                           c->q_len, heads, dim, c->rotary, ratio);
    memcpy(qi, before + q, n * f);
    return ha_op_beside(s, "rotate", before, made);
}

static enum ha_status judge_rotate(struct ha_op_stage *s)
{
    static const struct ha_op_case large = {
        .q_len = 2100, .kv_heads = 8, .group = 4, .head_dim = 64, .bias = 1, .norm = 1, .rotary = 32, .eps = 1e-6
    };
    struct ha_op_case c = large;
    while (c.q_len > 1 && c.q_len * 32 * 64 * sizeof(float) > s->most) c.q_len /= 2;
    for (size_t rotary = 2; rotary < 64 && s->most >= 1 << 20; rotary += 2) { /* of one token: a step's queries */
        struct ha_op_case one = { .q_len = 1, .kv_heads = 2, .group = 2, .head_dim = 64, .rotary = rotary };
        for (one.adjacent = 0; one.adjacent < 2; one.adjacent++) HA_TRY(rotate_once(s, &one));
    }
    return rotate_once(s, &c);
}

static const char *unfit_rotate(const struct ha_op_case *c)
{
    if (c->special && c->special != HA_OP_NAN_QUERY) return "of what is rotated queries have a NaN";
    if (c->rotary > c->head_dim || c->rotary % 2) return "pairs of a head's dimensions are turned";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_rotate = {
    .name = "rotate",
    .doc = "bias, norm and rotary position of queries, in place",
    .needs = { HA_OP_ENTRY(rotate) },
    .judge = judge_rotate,
    .in_place = true,
    .keys = "dst src dst_at q_at q_len kv_heads group head_dim special bias norm rotary adjacent eps",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nq_at = 0 4 40\n"
             "q_len = 1..8 16 17\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 64 80 96 112 128 192 256 34\nrotary "
             "= 0 2 32 34 64\n"
             "bias = no yes\nnorm = no yes\nadjacent = no yes\neps = 0 1e-06 0.5\nspecial = none nan_query\n",
    .once = rotate_once,
    .unfit = unfit_rotate,
};
