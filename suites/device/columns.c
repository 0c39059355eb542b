/* Rows made shorter, and scores of rows: within the bound of sums of binary32 in any order; a NaN or an infinity where
 * binary64 has one, and nowhere else; and nothing is written beside the results. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

static float *floats(char *at) { return (float *)(void *)at; }

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static enum ha_status columns_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_columns_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                        *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype x_type = (enum ha_dtype)c->dtype, y_type = (enum ha_dtype)c->y_type;
    const size_t xe = ha_dtype_bytes(x_type), ye = ha_dtype_bytes(y_type), f = sizeof(float), dim = c->head_dim,
                 heads = c->kv_heads * c->group, row = c->n + c->dst_gap;
    size_t in = 0, matrices = 0, out = 0, x_at[HA_OP_BATCH], y_at[HA_OP_BATCH];
    const size_t a_count = c->kv_heads * c->n * dim, a_at = ha_op_room(&matrices, a_count * f, c->q_at / f * f);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t tokens = ha_op_length(c, b);
        there[b] = (struct ha_device_columns_seq){ .tokens = tokens,
                                                   .y_token_stride = c->layout == HA_OP_TOKENS ? heads * row : row,
                                                   .y_head_stride = c->layout == HA_OP_TOKENS ? row : tokens * row };
        x_at[b] = ha_op_room(&in, tokens * heads * dim * xe, c->src_at / xe * xe);
        y_at[b] = ha_op_room(&out, tokens * heads * row * ye, c->dst_at / ye * ye);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), matrices) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, matrices);
    ha_op_numbers(s, blocks[1]->image + a_at, a_count, HA_F32);
    ha_op_scale(blocks[1]->image + a_at, a_count, HA_F32, c->scale);
    for (size_t b = 0; b < c->batch; b++) {
        here[b] = there[b];
        there[b].x = blocks[0]->at + x_at[b];
        here[b].x = blocks[0]->image + x_at[b];
        there[b].y = made->at + y_at[b];
        here[b].y = made->image + y_at[b];
        ha_op_numbers(s, blocks[0]->image + x_at[b], here[b].tokens * heads * dim, x_type);
        ha_op_scale(blocks[0]->image + x_at[b], here[b].tokens * heads * dim, x_type, c->scale);
    }
    const size_t odd = ha_op_draw(s, c->batch), all = here[odd].tokens * heads * dim;
    if (c->special && all) ha_store(blocks[0]->image + x_at[odd], ha_op_draw(s, all), x_type, ha_op_odd(s, c));
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_columns args = { .batch = c->batch,
                                      .heads = heads,
                                      .kv_heads = c->kv_heads,
                                      .head_dim = dim,
                                      .columns = c->n,
                                      .x_type = x_type,
                                      .y_type = y_type,
                                      .a = floats(blocks[1]->at + a_at),
                                      .seqs = seqs },
                             kept = args;
    kept.a = floats(blocks[1]->image + a_at);
    kept.seqs = here;
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->columns(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "columns", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++) {
            s->cases++;
            const double ratio = ha_ref_judge_columns(&kept, b, h, c->special && b == odd ? NULL : &held);
            if (!(ratio <= 1))
                return ha_op_wrong(s,
                                   "columns, %zu of rows of %zu, %s to %s: sequence %zu, %zu tokens, head %zu of %zu: "
                                   "error/bound %.3g",
                                   c->n, dim, ha_dtype_name(x_type), ha_dtype_name(y_type), b, here[b].tokens, h, heads,
                                   ratio);
            for (size_t t = 0; t < here[b].tokens; t++)
                ha_op_put_back(made, before,
                               (char *)here[b].y + (t * here[b].y_token_stride + h * here[b].y_head_stride) * ye,
                               c->n * ye);
        }
    ha_suspect_add(&s->suspect, &held, "columns of %s to %s, head_dim %zu", ha_dtype_name(x_type),
                   ha_dtype_name(y_type), dim);
    return ha_op_beside(s, "columns", before, made);
}

static enum ha_status judge_columns(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (1024 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .kv_heads = 4,
                                .group = 2,
                                .head_dim = 128,
                                .n = 26,
                                .keys = 300,
                                .dtype = t,
                                .y_type = (t + 1) % HA_DTYPE_COUNT,
                                .scale = 1 };
        if (c.keys > most) c.keys = most;
        HA_TRY(columns_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_columns(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "columns are of rows x";
    return ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_columns = {
    .name = "columns",
    .doc = "rows times the matrix of their head",
    .needs = { HA_OP_ENTRY(columns) },
    .judge = judge_columns,
    .keys = "dst src dst_at src_at q_at dtype y_type batch kv_heads group head_dim keys n dst_gap layout empty scale "
            "special",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nsrc_at = 0 4 40\nq_at = 0 4 40\n"
             "dtype = f32 f16 bf16\ny_type = f32 f16 bf16\nbatch = 1 3 33\nkeys = 1 2 17 70\nkv_heads = 1..4 7 8\n"
             "group = 1..8 16\nhead_dim = 8 33 64 80 96 112 128 192 256\nn = 1 7 26 32 33 128\ndst_gap = 0 3\n"
             "layout = tokens heads\nempty = no yes\nscale = 1 100 0.001\nspecial = none nan_key low_key high_key\n",
    .values = HA_OP_SCALES,
    .once = columns_once,
    .unfit = unfit_columns,
};

/* ---- score ------------------------------------------------------------------------------------------------------- */

static enum ha_status score_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_rows_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                     *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t e = ha_dtype_bytes(dtype), f = sizeof(float), row = c->head_dim * e, heads = c->kv_heads * c->group,
                 queries = heads * c->q_len;
    const bool by_head = c->layout != HA_OP_TOKENS, indexed = c->src_index != HA_OP_NO_INDEX;
    const size_t stride = (by_head ? 1 : c->kv_heads) * row + c->pad / e * e;
    size_t in = 0, asks = 0, names = 0, out = 0, k_at[HA_OP_BATCH], q_at[HA_OP_BATCH], index_at[HA_OP_BATCH],
           s_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b), pool = indexed ? 2 * keys : keys;
        there[b] = (struct ha_device_rows_seq){ .rows = { .k_stride_bytes = stride, .keys = keys },
                                                .k_head_bytes = by_head ? pool * stride : row,
                                                .s_stride = keys + c->dst_gap };
        k_at[b] = ha_op_room(&in, (by_head ? c->kv_heads : 1) * pool * stride, c->src_at / e * e);
        q_at[b] = ha_op_room(&asks, queries * c->head_dim * f, c->q_at / f * f);
        index_at[b] = ha_op_room(&names, indexed ? keys * f : 0, c->q_at / f * f);
        s_at[b] = ha_op_room(&out, queries * there[b].s_stride * f, c->dst_at / f * f);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, HA_OP_DEVICE, out), *blocks[3];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, HA_OP_DEVICE, asks) : NULL;
    blocks[2] = blocks[1] && indexed
                    ? ha_op_block(s, c->src_index == HA_OP_MAPPED_INDEX ? HA_OP_MAPPED : HA_OP_DEVICE, names)
                    : NULL;
    if (!blocks[1] || (indexed && !blocks[2])) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in); /* NaN where no key is */
    memset(blocks[1]->image, 0xFF, asks);
    if (indexed) memset(blocks[2]->image, 0, names);
    const size_t odd = ha_op_draw(s, c->batch);
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_rows_seq *t = &there[b], *m = &here[b];
        char *const k = blocks[0]->image + k_at[b];
        float *const q = floats(blocks[1]->image + q_at[b]);
        uint32_t *index = indexed ? (uint32_t *)(void *)(blocks[2]->image + index_at[b]) : NULL;
        const size_t keys = t->rows.keys;
        *m = *t;
        t->rows.k = blocks[0]->at + k_at[b];
        m->rows.k = k;
        t->rows.index = indexed ? (uint32_t *)(void *)(blocks[2]->at + index_at[b]) : NULL;
        m->rows.index = index;
        t->q = floats(blocks[1]->at + q_at[b]);
        m->q = q;
        t->s = floats(made->at + s_at[b]);
        m->s = floats(made->image + s_at[b]);
        if (index) ha_op_index(s, index, keys);
        for (size_t h = 0; h < (by_head ? c->kv_heads : 1); h++)
            for (size_t i = 0; i < keys; i++)
                ha_op_numbers(s, k + h * m->k_head_bytes + (index ? index[i] : i) * stride,
                              (by_head ? 1 : c->kv_heads) * c->head_dim, dtype);
        ha_op_numbers(s, q, queries * c->head_dim, HA_F32);
        if (!c->special || b != odd || keys == 0) continue;
        /* a query of 0 meets it, too */
        const size_t i = ha_op_draw(s, keys), h = ha_op_draw(s, c->kv_heads), d = ha_op_draw(s, c->head_dim);
        if (c->special == HA_OP_NAN_QUERY) q[ha_op_draw(s, queries) * c->head_dim + d] = ha_op_odd(s, c);
        else ha_store(k + h * m->k_head_bytes + (index ? index[i] : i) * stride, d, dtype, ha_op_odd(s, c));
        if (c->special != HA_OP_NAN_QUERY) q[h * c->group * c->head_dim + d] = 0;
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_score args = { .batch = c->batch,
                                    .q_len = c->q_len,
                                    .q_heads = heads,
                                    .kv_heads = c->kv_heads,
                                    .head_dim = c->head_dim,
                                    .dtype = dtype,
                                    .scale = (float)c->scale / sqrtf((float)c->head_dim),
                                    .seqs = seqs },
                           kept = args;
    kept.seqs = here;
    HA_TRY(ha_op_arrive(s, blocks, indexed ? 3 : 2, made));
    const enum ha_status asked = s->api->score(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "score", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < heads; h++) {
            s->cases++;
            const double ratio = ha_ref_judge_rows(&kept, b, h, c->special && b == odd ? NULL : &held);
            if (!(ratio <= 1))
                return ha_op_wrong(s,
                                   "score of rows of %zu, %s: sequence %zu, %zu keys at a stride of %zu bytes, query "
                                   "head %zu of %zu: error/bound %.3g",
                                   c->head_dim, ha_dtype_name(dtype), b, here[b].rows.keys, stride, h, heads, ratio);
            for (size_t r = h * c->q_len; r < (h + 1) * c->q_len; r++)
                ha_op_put_back(made, before, here[b].s + r * here[b].s_stride, here[b].rows.keys * f);
        }
    ha_suspect_add(&s->suspect, &held, "score of %s, head_dim %zu", ha_dtype_name(dtype), c->head_dim);
    return ha_op_beside(s, "score", before, made);
}

static enum ha_status judge_score(struct ha_op_stage *s)
{
    static const size_t dims[HA_DTYPE_COUNT] = { 26, 128, 26 };
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (dims[t] * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .q_len = 1,
                                .kv_heads = 1,
                                .group = 4,
                                .head_dim = dims[t],
                                .keys = 5000,
                                .dtype = t,
                                .scale = 1,
                                .layout = HA_OP_HEADS };
        if (c.keys > most) c.keys = most;
        HA_TRY(score_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_score(const struct ha_op_case *c)
{
    return c->special == HA_OP_NAN_VALUE ? "a score is of a query and a key" : ha_op_unfit_kernel(c);
}
const struct ha_op ha_op_score = {
    .name = "score",
    .doc = "scores of rows",
    .needs = { HA_OP_ENTRY(score) },
    .judge = judge_score,
    .keys = "src dst_at src_at q_at dtype batch q_len kv_heads group head_dim keys pad layout dst_gap src_index empty "
            "scale special",
    .pairs = "src = device mapped\ndst_at = 0 4 24\nsrc_at = 0 2 4 40\nq_at = 0 4 40\ndtype = f32 f16 bf16\n"
             "batch = 1 3 33\nq_len = 1..8 16\nkv_heads = 1..4 7 8\ngroup = 1..8 16\nhead_dim = 1 7 26 32 33 64 80 96 "
             "112 128 192 256\n"
             "keys = 1 16 31 33 130 257\npad = 0 4 18\nlayout = tokens heads\ndst_gap = 0 3\n"
             "src_index = none device mapped\nempty = no yes\nscale = 1 0.25 3\n"
             "special = none nan_query nan_key low_key high_key\n",
    .once = score_once,
    .unfit = unfit_score,
};
