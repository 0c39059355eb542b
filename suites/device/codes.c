/* What finds keys by codes, and a cache that is labelled with queries: a bit or a norm within the bound of sums of
 * binary32 in any order, scores exactly; similarities within the bound that follows from those sums, 1 of a query that
 * equals its label, hits and misses where no rounding decides them, and what the labels then are; and nothing is
 * written beside the results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

enum { F = sizeof(float) };

static float *floats(char *at) { return (float *)(void *)at; }
static uint32_t *words(char *at) { return (uint32_t *)(void *)at; }

/* ---- hash -------------------------------------------------------------------------------------------------------- */

/* One head's rows of a token: judged, and then put back. */
static enum ha_status judge_codes(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_device_hash *d,
                                  size_t b, size_t h, size_t t, const char *before, const struct ha_op_block *out)
{
    const struct ha_device_hash_seq *m = &d->seqs[b];
    const size_t e = ha_dtype_bytes(d->dtype), words_count = d->bits / 32 + 1;
    const struct ha_hash one = { .a = d->a + h * d->bits * d->head_dim,
                                 .bits = d->bits,
                                 .rows = { .k = (const char *)m->x
                                                + (t * m->token_stride + h * d->group * d->head_dim) * e,
                                           .k_stride_bytes = d->head_dim * e,
                                           .keys = d->group },
                                 .head_dim = d->head_dim,
                                 .dtype = d->dtype,
                                 .codes = (char *)m->codes + h * m->code_head_bytes,
                                 .first = m->first + t * d->group };
    const double ratio = ha_ref_judge_hash(&one);
    if (!(ratio <= 1))
        return ha_op_wrong(
            s,
            "hash to %zu bits of rows of %zu, %s: sequence %zu, token %zu of %zu, KV head %zu of %zu, rows "
            "%zu to %zu: error/bound %.3g",
            d->bits, d->head_dim, ha_dtype_name(d->dtype), b, t, m->tokens, h, c->kv_heads, one.first,
            one.first + d->group - 1, ratio);
    for (size_t i = 0; i < d->group * words_count; i++)
        ha_op_put_back(out, before,
                       (uint32_t *)one.codes + ha_ref_code(d->bits, one.first + i / words_count, i % words_count),
                       sizeof(uint32_t));
    return HA_OK;
}

static enum ha_status hash_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_hash_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                     *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t e = ha_dtype_bytes(dtype), dim = c->head_dim, row = c->kv_heads * c->group * dim,
                 a_count = c->kv_heads * c->bits * dim;
    size_t in = 0, matrices = 0, out = 0, x_at[HA_OP_BATCH], codes_at[HA_OP_BATCH];
    const size_t a_at = ha_op_room(&matrices, a_count * F, c->q_at / F * F);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t tokens = ha_op_length(c, b), first = c->first + b % 3;
        there[b] = (struct ha_device_hash_seq){ .tokens = tokens,
                                                .token_stride = row + c->src_gap,
                                                .code_head_bytes = ha_code_bytes(first + tokens * c->group, c->bits)
                                                                   + c->dst_gap * 64,
                                                .first = first };
        x_at[b] = ha_op_room(&in, tokens * there[b].token_stride * e, c->src_at / e * e);
        codes_at[b] = ha_op_room(&out, c->kv_heads * there[b].code_head_bytes, 0);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), matrices) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, matrices);
    ha_op_numbers(s, blocks[1]->image + a_at, a_count, HA_F32);
    for (size_t b = 0; b < c->batch; b++) {
        char *const x = blocks[0]->image + x_at[b];
        here[b] = there[b];
        there[b].x = blocks[0]->at + x_at[b];
        here[b].x = x;
        there[b].codes = made->at + codes_at[b];
        here[b].codes = made->image + codes_at[b];
        for (size_t t = 0; t < here[b].tokens; t++) ha_op_numbers(s, x + t * here[b].token_stride * e, row, dtype);
        if (here[b].tokens > 1) /* sums of exactly 0 */
            memset(x + (here[b].token_stride + ha_op_draw(s, c->kv_heads * c->group) * dim) * e, 0, dim * e);
        if (c->special && here[b].tokens && ha_op_draw(s, 2))
            ha_store(x + ha_op_draw(s, here[b].tokens) * here[b].token_stride * e, ha_op_draw(s, row), dtype,
                     ha_op_odd(s, c));
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_hash args = { .batch = c->batch,
                                   .kv_heads = c->kv_heads,
                                   .group = c->group,
                                   .head_dim = dim,
                                   .bits = c->bits,
                                   .dtype = dtype,
                                   .a = floats(blocks[1]->at + a_at),
                                   .seqs = seqs },
                          kept = args;
    kept.a = floats(blocks[1]->image + a_at);
    kept.seqs = here;
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->hash(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "hash", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->kv_heads; h++) {
            s->cases++;
            for (size_t t = 0; t < here[b].tokens; t++) HA_TRY(judge_codes(s, c, &kept, b, h, t, before, made));
        }
    return ha_op_beside(s, "hash", before, made);
}

static enum ha_status judge_hash(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (1024 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .kv_heads = 2,
                                .group = t == HA_F32 ? 4 : 1,
                                .head_dim = 128,
                                .bits = 256,
                                .keys = t == HA_F32 ? 5 : 300,
                                .first = 37,
                                .dtype = t };
        if (c.keys > most) c.keys = most;
        HA_TRY(hash_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_hash(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "codes are of rows x";
    if (c->bits % 32) return "codes are whole words";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_hash = {
    .name = "hash",
    .doc = "codes of rows by the matrix of their head, and their norms",
    .needs = { HA_OP_ENTRY(hash) },
    .judge = judge_hash,
    .keys = "dst src src_at q_at dtype batch kv_heads group head_dim keys src_gap dst_gap first bits empty special",
    .pairs = "dst = device mapped\nsrc = device mapped\nsrc_at = 0 4 40\nq_at = 0 4 40\ndtype = f32 f16 bf16\n"
             "batch = 1 3 33\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 8 33 64 80 96 112 128 192 256\nkeys = 1 "
             "2 17 40 70\n"
             "src_gap = 0 3\ndst_gap = 0 3\nfirst = 0 1 16 31\nbits = 32 64 96 256\nempty = no yes\n"
             "special = none nan_key low_key high_key\n",
    .values = "keys = 1..200 207..1600:7 255 257 511..513 1023..1025 2047..2049 4095..4097 8191..8193 16385 32769 "
              "65535..65537\n",
    .once = hash_once,
    .unfit = unfit_hash,
};

/* ---- hamming ----------------------------------------------------------------------------------------------------- */

/* Codes and norms. Some keys have all bits of a query, some none. Norms of queries are not read. */
static void make_codes(struct ha_op_stage *s, const struct ha_op_case *c, uint32_t *q, uint32_t *codes, size_t keys)
{
    const size_t count = c->bits / 32, rows = c->q_len * c->group;
    for (size_t r = 0; r < rows; r++) {
        for (size_t w = 0; w < count; w++) q[ha_ref_code(c->bits, r, w)] = (uint32_t)ha_op_draw(s, SIZE_MAX);
        ((float *)q)[ha_ref_code(c->bits, r, count)] = NAN;
    }
    for (size_t i = 0; i < keys; i++) {
        const size_t like = ha_op_draw(s, rows);
        float norm;
        for (size_t w = 0; w < count; w++) {
            const uint32_t of = q[ha_ref_code(c->bits, like, w)];
            codes[ha_ref_code(c->bits, i, w)] = i % 7 == 1 ? of : i % 7 == 4 ? ~of : (uint32_t)ha_op_draw(s, SIZE_MAX);
        }
        ha_op_numbers(s, &norm, 1, HA_F32);
        ((float *)codes)[ha_ref_code(c->bits, i, count)] = fabsf(norm);
    }
    if (c->special && keys)
        ((float *)codes)[ha_ref_code(c->bits, ha_op_draw(s, keys), count)] = c->special == HA_OP_HIGH_KEY ? INFINITY
                                                                                                          : NAN;
}

static enum ha_status hamming_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_hamming_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                        *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const size_t rows = c->q_len * c->group, q_bytes = ha_code_bytes(rows, c->bits) + c->src_gap * 64;
    size_t in = 0, queries = 0, out = 0, codes_at[HA_OP_BATCH], q_at[HA_OP_BATCH], s_at[HA_OP_BATCH],
           only_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b);
        there[b] = (struct ha_device_hamming_seq){ .q_head_bytes = q_bytes,
                                                   .code_head_bytes = ha_code_bytes(keys, c->bits) + c->src_gap * 64,
                                                   .keys = keys,
                                                   .s_stride = keys + c->dst_gap };
        codes_at[b] = ha_op_room(&in, c->kv_heads * there[b].code_head_bytes, 0);
        only_at[b] = ha_op_room(&in, c->kv_heads * F, c->q_at / F * F);
        q_at[b] = ha_op_room(&queries, c->kv_heads * q_bytes, 0);
        s_at[b] = ha_op_room(&out, c->kv_heads * rows * there[b].s_stride * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), queries) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, queries);
    for (size_t b = 0; b < c->batch; b++) {
        here[b] = there[b];
        for (size_t i = 0; i < 2; i++) {
            struct ha_device_hamming_seq *m = i ? &here[b] : &there[b];
            char *const from = i ? blocks[0]->image : blocks[0]->at;
            m->codes = from + codes_at[b];
            m->only = c->only ? words(from + only_at[b]) : NULL;
            m->q = (i ? blocks[1]->image : blocks[1]->at) + q_at[b];
            m->s = floats((i ? made->image : made->at) + s_at[b]);
        }
        for (size_t h = 0; h < c->kv_heads; h++)
            make_codes(s, c, words(blocks[1]->image + q_at[b] + h * q_bytes),
                       words(blocks[0]->image + codes_at[b] + h * here[b].code_head_bytes), here[b].keys);
        if (c->only) ha_op_only(s, blocks[0]->image + only_at[b], c->kv_heads);
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_hamming args = { c->batch, c->kv_heads, rows, c->bits, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->hamming(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "hamming", asked, made, &before));
    for (size_t n = 0; n < c->batch * c->kv_heads; n++) {
        const size_t b = n / c->kv_heads, h = n % c->kv_heads;
        const struct ha_device_hamming_seq *m = &here[b];
        const struct ha_hamming one = { .q = (const char *)m->q + h * m->q_head_bytes,
                                        .q_rows = rows,
                                        .bits = c->bits,
                                        .codes = (const char *)m->codes + h * m->code_head_bytes,
                                        .keys = m->keys,
                                        .s = m->s + h * rows * m->s_stride,
                                        .s_stride = m->s_stride };
        if (m->only && !m->only[h]) continue;
        s->cases++;
        if (!(ha_ref_judge_hamming(&one) <= 1))
            return ha_op_wrong(s,
                               "hamming, %zu rows of %zu bits, %zu keys: sequence %zu, KV head %zu: not those scores",
                               rows, c->bits, m->keys, b, h);
        for (size_t r = 0; r < rows; r++) ha_op_put_back(made, before, one.s + r * m->s_stride, m->keys * F);
    }
    return ha_op_beside(s, "hamming", before, made);
}

static enum ha_status judge_hamming(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .batch = 1, .q_len = 1, .kv_heads = 1, .group = 4, .bits = 128, .keys = 70000 },
        { .batch = 2, .q_len = 3, .kv_heads = 8, .group = 8, .bits = 256, .keys = 1000, .only = 1 },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct ha_op_case c = large[i];
        const size_t most = s->most / (c.kv_heads * (c.group * c.q_len * F + c.bits / 8 + F));
        if (c.keys > most) c.keys = most;
        HA_TRY(hamming_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_hamming(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "of a key a norm is read";
    if (c->special == HA_OP_LOW_KEY) return "a norm is not negative";
    if (c->bits % 32) return "codes are whole words";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_hamming = {
    .name = "hamming",
    .doc = "scores of keys by their codes",
    .needs = { HA_OP_ENTRY(hamming) },
    .judge = judge_hamming,
    .keys = "dst src dst_at q_at batch q_len kv_heads group keys src_gap dst_gap bits only empty special",
    .pairs =
        "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nq_at = 0 4 40\nbatch = 1 3 33\nq_len = 1..8 16\n"
        "kv_heads = 1..4 7 8\ngroup = 1..8 16\nkeys = 1 15 16 33 130 257\nsrc_gap = 0 3\ndst_gap = 0 3\n"
        "bits = 32 64 96 256\nonly = no yes\nempty = no yes\nspecial = none nan_key high_key\n",
    .once = hamming_once,
    .unfit = unfit_hamming,
};

/* ---- similarity -------------------------------------------------------------------------------------------------- */

/* Of a KV head: queries that are their labels, in all bits or but for their length; no label; the labels turned away;
 * all near them, or all but one; and any. */
enum kind { EQUAL, LONGER, NO_LABEL, OPPOSITE, NEAR, ONE_AWAY, ANY, ORTHOGONAL, ONE_ORTHOGONAL, KINDS };

static void make_heads(struct ha_op_stage *s, const struct ha_op_case *c, size_t kv_head, float *q, float *label)
{
    const size_t heads = c->kv_heads * c->group, dim = c->head_dim, kind = ha_op_draw(s, KINDS),
                 any = ha_op_draw(s, c->group);
    const int power = 40 * (int)ha_op_draw(s, 3) - 40; /* squares whose product binary32 does not have, too */
    const float step = 0.1f * (float)(1 + ha_op_draw(s, 8));
    for (size_t h = kv_head * c->group; h < (kv_head + 1) * c->group; h++) {
        float *const of = label + h * dim;
        ha_op_numbers(s, of, dim, HA_F32);
        /* a label of odd dimensions, queries of even ones: 0 is their product, and exact */
        const bool across = kind == ORTHOGONAL || (kind == ONE_ORTHOGONAL && h % c->group == any);
        for (size_t d = 0; d < dim && across; d += 2) of[d] = 0;
        for (size_t t = 0; t < c->q_len; t++) {
            float *const at = q + (t * heads + h) * dim;
            ha_op_numbers(s, at, dim, HA_F32);
            for (size_t d = 0; d < dim; d++) {
                const bool away = kind == OPPOSITE || (kind == ONE_AWAY && h % c->group == any);
                const float near = of[d] + step * (float)(t + 1) * at[d];
                at[d] = kind == EQUAL ? of[d] : kind == LONGER ? 3 * of[d] : away ? -near : kind == ANY ? at[d] : near;
                if (across) at[d] = d % 2 ? 0 : near;
                at[d] = ldexpf(at[d], power);
            }
        }
        for (size_t d = 0; d < dim; d++) of[d] = kind == NO_LABEL ? 0 : ldexpf(of[d], power);
    }
}

static enum ha_status similarity_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_similarity_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                           *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    enum { THRESHOLDS = 11 };
    static const float thresholds[THRESHOLDS] = { 0.5f, 0.9f, 1, 0.8f, -2, 0, 0.95f, -1, -0.5f, -INFINITY, 0.7f };
    const size_t heads = c->kv_heads * c->group, n = heads * c->head_dim;
    size_t step = 0, kept = 0, out = 0, q_at[HA_OP_BATCH], label_at[HA_OP_BATCH], similar_at[HA_OP_BATCH],
           missed_at[HA_OP_BATCH];
    const size_t importance = ha_op_room(&kept, heads * F, c->q_at / F * F),
                 threshold = ha_op_room(&kept, c->kv_heads * F, c->q_at / F * F);
    for (size_t b = 0; b < c->batch; b++) {
        q_at[b] = ha_op_room(&step, c->q_len * n * F, c->src_at / F * F);
        label_at[b] = ha_op_room(&out, n * F, c->dst_at / F * F);
        similar_at[b] = ha_op_room(&out, c->kv_heads * F, c->dst_at / F * F);
        missed_at[b] = ha_op_room(&out, c->kv_heads * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *blocks[3], *made = blocks[0] = ha_op_block(s, (enum ha_op_place)c->dst, out);
    blocks[1] = made ? ha_op_block(s, (enum ha_op_place)c->src, step) : NULL;
    blocks[2] = blocks[1] ? ha_op_block(s, ha_op_any_place(s), kept) : NULL;
    if (!blocks[2]) return HA_ERROR;
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memset(blocks[1]->image, 0xFF, step);
    memset(blocks[2]->image, 0xFF, kept);
    for (size_t h = 0; h < heads; h++)
        floats(blocks[2]->image + importance)[h] = ldexpf((float)(1 + ha_op_draw(s, 1024)), -10);
    const size_t begin = ha_op_draw(s, THRESHOLDS);
    for (size_t h = 0; h < c->kv_heads; h++)
        floats(blocks[2]->image + threshold)[h] = thresholds[(begin + h) % THRESHOLDS];
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t i = 0; i < 2; i++)
            *(i ? &here[b] : &there[b]) = (struct ha_device_similarity_seq){
                .q = floats((i ? blocks[1]->image : blocks[1]->at) + q_at[b]),
                .label = floats((i ? made->image : made->at) + label_at[b]),
                .similarity = floats((i ? made->image : made->at) + similar_at[b]),
                .missed = words((i ? made->image : made->at) + missed_at[b])
            };
        float *const q = floats(blocks[1]->image + q_at[b]), *const label = here[b].label;
        for (size_t h = 0; h < c->kv_heads; h++) make_heads(s, c, h, q, label);
        if (!c->special || ha_op_draw(s, 2)) continue;
        if (c->special == HA_OP_NAN_QUERY) q[ha_op_draw(s, c->q_len * n)] = NAN;
        else
            label[ha_op_draw(s, n)] = c->special == HA_OP_NAN_KEY   ? NAN
                                      : c->special == HA_OP_LOW_KEY ? -INFINITY
                                                                    : INFINITY;
    }
    memcpy(seqs, there, c->batch * sizeof *seqs);
    const bool harmonic = c->similar == HA_SIMILAR_HARMONIC;
    struct ha_device_similarity args = { .batch = c->batch,
                                         .q_len = c->q_len,
                                         .q_heads = heads,
                                         .kv_heads = c->kv_heads,
                                         .head_dim = c->head_dim,
                                         .group = (enum ha_similar)c->similar,
                                         .importance = harmonic ? floats(blocks[2]->at + importance) : NULL,
                                         .threshold = floats(blocks[2]->at + threshold),
                                         .seqs = seqs },
                                kept_args = args;
    kept_args.importance = floats(blocks[2]->image + importance);
    kept_args.threshold = floats(blocks[2]->image + threshold);
    kept_args.seqs = here;
    HA_TRY(ha_op_arrive(s, blocks, 3, made));
    const enum ha_status asked = s->api->similarity(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "similarity", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++) {
        const float *const labels = (const float *)(const void *)(before + label_at[b]);
        for (size_t h = 0; h < c->kv_heads; h++) {
            s->cases++;
            const double ratio = ha_ref_judge_similarity(&kept_args, b, h, labels);
            if (!(ratio <= 1))
                return ha_op_wrong(
                    s,
                    "similarity of %zu tokens, heads of %zu: sequence %zu, KV head %zu of %zu, %zu query "
                    "heads: similarity %g, threshold %g, missed %u: error/bound %.3g",
                    c->q_len, c->head_dim, b, h, c->kv_heads, c->group, (double)here[b].similarity[h],
                    (double)kept_args.threshold[h], (unsigned)here[b].missed[h], ratio);
        }
        ha_op_put_back(made, before, here[b].label, n * F);
        ha_op_put_back(made, before, here[b].similarity, c->kv_heads * F);
        ha_op_put_back(made, before, here[b].missed, c->kv_heads * F);
    }
    return ha_op_beside(s, "similarity", before, made);
}

static enum ha_status judge_similarity(struct ha_op_stage *s)
{
    for (size_t similar = 0; similar < 2; similar++)
        HA_TRY(similarity_once(
            s,
            &(struct ha_op_case){
                .batch = 16, .q_len = 1 + similar, .kv_heads = 8, .group = 8, .head_dim = 128, .similar = similar }));
    return HA_OK;
}

static const char *unfit_similarity(const struct ha_op_case *c)
{
    return c->special == HA_OP_NAN_VALUE ? "labels are queries" : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_similarity = {
    .name = "similarity",
    .whole = true,
    .doc = "how similar queries are to the labels of a cache, which change where they are not",
    .needs = { HA_OP_ENTRY(similarity) },
    .judge = judge_similarity,
    .in_place = true,
    .keys = "dst src dst_at src_at q_at batch q_len kv_heads group head_dim similar special",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\nq_at = 0 4 40\n"
             "batch = 1 3 33\nq_len = 1..8 16\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 8 33 64 80 96 112 128 "
             "192 256\n"
             "similar = least harmonic\nspecial = none nan_query nan_key low_key high_key\n",
    .once = similarity_once,
    .unfit = unfit_similarity,
};
