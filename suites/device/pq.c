/* Attention over keys that are codes: codes exactly, tables and scores within the bound of sums of binary32 in any
 * order; and nothing is written beside the results, neither the bits of other keys. */

#include "suites/device/stage.h"

#include "harness/base/numeric.h"
#include "harness/base/pq.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

enum { F = sizeof(float) };

static float *floats(char *at) { return (float *)(void *)at; }

/* codes and tables of a head begin at multiples of 64 bytes */
static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static struct ha_pq pq_of(const struct ha_op_case *c)
{
    return (struct ha_pq){ .groups = c->groups,
                           .dims = c->dims,
                           .count = c->centroids,
                           .books = c->separate ? c->groups : 1,
                           .bits = c->code_bits };
}
static struct ha_pq book_of(const struct ha_pq *pq, size_t head)
{
    struct ha_pq own = *pq;
    own.centroid += head * ha_pq_book_floats(pq);
    return own;
}

/* Of each book some centroids have a number that is none, or infinite: the first ones, any, or all. Half of what is
 * special is among keys or queries alone. */
static bool make_odd_books(struct ha_op_stage *s, const struct ha_op_case *c, float *at, size_t heads)
{
    const struct ha_pq pq = pq_of(c);
    if (!c->special || ha_op_draw(s, 2)) return false;
    for (size_t i = 0; i < heads * pq.books; i++) {
        float *const book = at + i * pq.dims * pq.count;
        const size_t all = ha_op_draw(s, 4), first = ha_op_draw(s, 3) ? ha_op_draw(s, pq.count) : 0;
        for (size_t j = 0; j < pq.dims * pq.count && all == 0; j++) book[j] = ha_op_odd(s, c);
        for (size_t j = 0; j < pq.count; j++)
            if (j < first || ha_op_draw(s, 8) == 0) book[ha_op_draw(s, pq.dims) * pq.count + j] = ha_op_odd(s, c);
    }
    return true;
}

/* Half of all cases have numbers of few values, so that distances are equal; elsewhere centroids are. */
static void make_books(struct ha_op_stage *s, const struct ha_pq *pq, float *at, size_t heads, bool coarse)
{
    const size_t n = heads * ha_pq_book_floats(pq);
    ha_op_numbers(s, at, n, HA_F32);
    for (size_t i = 0; i < n && coarse; i++) at[i] = rintf(2 * at[i]) / 2;
    for (size_t i = 0; i < n / pq->count; i++)
        for (size_t j = 5; j < pq->count; j += 8) at[i * pq->count + j] = at[i * pq->count + j - 3];
}

/* ---- pq_encode --------------------------------------------------------------------------------------------------- */

/* A head's codes: judged, and then put back, bit by bit. */
static enum ha_status judge_codes(struct ha_op_stage *s, const struct ha_op_case *c, const struct ha_pq *pq, size_t b,
                                  size_t h, const struct ha_device_pq_encode_seq *m, const char *before,
                                  const struct ha_op_block *out)
{
    struct ha_pq_encode one = { book_of(pq, h), m->rows, (enum ha_dtype)c->dtype,
                                (char *)m->codes + h * m->code_head_bytes, m->first };
    one.rows.k = (const char *)one.rows.k + h * m->k_head_bytes;
    s->cases++;
    if (!(ha_ref_judge_pq_encode(&one) <= 1))
        return ha_op_wrong(s,
                           "pq_encode of %zu keys, %zu groups of %zu, %zu centroids in %zu bits, %s: sequence %zu, KV "
                           "head %zu of %zu, keys from %zu on: not those codes",
                           m->rows.keys, pq->groups, pq->dims, pq->count, pq->bits, ha_dtype_name(one.dtype), b, h,
                           c->kv_heads, m->first);
    for (size_t i = 0; i < m->rows.keys * pq->groups; i++) {
        const size_t key = m->first + i / pq->groups;
        unsigned char *const at = (unsigned char *)one.codes + key / HA_PQ_KEYS * ha_pq_block_bytes(pq)
                                  + i % pq->groups * ha_pq_group_bytes(pq);
        const unsigned char *was = (const unsigned char *)before + ((char *)at - out->image);
        ha_pq_put(at, pq->bits, key % HA_PQ_KEYS, ha_pq_code(was, pq->bits, key % HA_PQ_KEYS));
    }
    return HA_OK;
}

static enum ha_status pq_encode_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_pq_encode_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                          *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype dtype = (enum ha_dtype)c->dtype;
    const size_t e = ha_dtype_bytes(dtype), dim = c->groups * c->dims, row = dim * e;
    const bool by_head = c->layout != HA_OP_TOKENS, indexed = c->src_index != HA_OP_NO_INDEX,
               coarse = ha_op_draw(s, 2) != 0;
    const float far = !c->special && ha_op_draw(s, 4) == 0 ? 1000 : 0; /* keys and centroids are close together there */
    const size_t stride = (by_head ? 1 : c->kv_heads) * row + c->pad / e * e;
    struct ha_pq pq = pq_of(c), kept = pq;
    const size_t books = c->kv_heads * ha_pq_book_floats(&pq);
    size_t in = 0, names = 0, out = 0, all = 0, k_at[HA_OP_BATCH], index_at[HA_OP_BATCH], codes_at[HA_OP_BATCH];
    const size_t books_at = ha_op_room(&all, books * F, c->q_at / F * F);
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b), pool = indexed ? 2 * keys : keys, first = c->first + b % 3 * 11;
        there[b] = (struct ha_device_pq_encode_seq){ .rows = { .k_stride_bytes = stride, .keys = keys },
                                                     .k_head_bytes = by_head ? pool * stride : row,
                                                     .code_head_bytes = lines(ha_pq_code_bytes(&pq, first + keys))
                                                                        + c->dst_gap * 64,
                                                     .first = first };
        k_at[b] = ha_op_room(&in, (by_head ? c->kv_heads : 1) * pool * stride, c->src_at / e * e);
        index_at[b] = ha_op_room(&names, indexed ? keys * F : 0, c->q_at / F * F);
        codes_at[b] = ha_op_room(&out, c->kv_heads * there[b].code_head_bytes, 0);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[3];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), all) : NULL;
    blocks[2] = blocks[1] && indexed
                    ? ha_op_block(s, c->src_index == HA_OP_MAPPED_INDEX ? HA_OP_MAPPED : HA_OP_DEVICE, names)
                    : NULL;
    if (!blocks[1] || (indexed && !blocks[2])) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, all);
    if (indexed) memset(blocks[2]->image, 0, names);
    make_books(s, &pq, floats(blocks[1]->image + books_at), c->kv_heads, coarse);
    make_odd_books(s, c, floats(blocks[1]->image + books_at), c->kv_heads);
    for (size_t i = 0; i < books && far > 0; i++) floats(blocks[1]->image + books_at)[i] += far;
    for (size_t b = 0; b < c->batch; b++) {
        struct ha_device_pq_encode_seq *m = &here[b];
        char *const k = blocks[0]->image + k_at[b];
        uint32_t *index = indexed ? (uint32_t *)(void *)(blocks[2]->image + index_at[b]) : NULL;
        const size_t keys = there[b].rows.keys;
        *m = there[b];
        there[b].rows.k = blocks[0]->at + k_at[b];
        m->rows.k = k;
        there[b].rows.index = indexed ? (uint32_t *)(void *)(blocks[2]->at + index_at[b]) : NULL;
        m->rows.index = index;
        there[b].codes = made->at + codes_at[b];
        m->codes = made->image + codes_at[b];
        if (index) ha_op_index(s, index, keys);
        for (size_t i = 0; i < keys * c->kv_heads; i++) {
            char *const at = k + i % c->kv_heads * m->k_head_bytes
                             + (index ? index[i / c->kv_heads] : i / c->kv_heads) * stride;
            ha_op_numbers(s, at, dim, dtype);
            for (size_t d = 0; d < dim && coarse; d++) ha_store(at, d, dtype, rintf(4 * ha_load(at, d, dtype)) / 4);
            for (size_t d = 0; d < dim && far > 0; d++) ha_store(at, d, dtype, far + ha_load(at, d, dtype));
            if (c->special && ha_op_draw(s, 4) == 0) ha_store(at, ha_op_draw(s, dim), dtype, ha_op_odd(s, c));
        }
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    pq.centroid = floats(blocks[1]->at + books_at);
    kept.centroid = floats(blocks[1]->image + books_at);
    struct ha_device_pq_encode args = { c->batch, c->kv_heads, pq, dtype, seqs };
    HA_TRY(ha_op_arrive(s, blocks, indexed ? 3 : 2, made));
    const enum ha_status asked = s->api->pq_encode(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "pq_encode", asked, made, &before));
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->kv_heads; h++) HA_TRY(judge_codes(s, c, &kept, b, h, &here[b], before, made));
    return ha_op_beside(s, "pq_encode", before, made);
}

static enum ha_status judge_pq_encode(struct ha_op_stage *s)
{
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) {
        const size_t most = s->most / (1024 * ha_dtype_bytes((enum ha_dtype)t));
        struct ha_op_case c = { .batch = 1,
                                .kv_heads = 2,
                                .groups = 32,
                                .dims = 4,
                                .centroids = t == HA_F32 ? 256 : 1024,
                                .code_bits = t == HA_F32 ? 8 : 16,
                                .separate = t == HA_F16,
                                .keys = t == HA_F32 ? 300 : 70,
                                .first = 37,
                                .dtype = t };
        if (c.keys > most) c.keys = most;
        HA_TRY(pq_encode_once(s, &c));
    }
    static const struct ha_op_case all_codes = {
        .batch = 1, .kv_heads = 1, .groups = 2, .dims = 3, .centroids = 65536, .code_bits = 16, .keys = 20
    };
    return s->most < 1 << 20 ? HA_OK : pq_encode_once(s, &all_codes);
}

/* what no operation by groups can work on */
static const char *unfit_groups(const struct ha_op_case *c, bool codes)
{
    if (c->groups * c->dims > HA_REF_DIM_MAX) return "a key has at most 1024 numbers";
    if (codes && c->centroids > (size_t)1 << c->code_bits) return "codes have no bits for so many centroids";
    return ha_op_unfit_kernel(c);
}
static const char *unfit_pq_encode(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "codes are of keys";
    return unfit_groups(c, true);
}
const struct ha_op ha_op_pq_encode = {
    .name = "pq_encode",
    .doc = "codes of keys: of each group of dimensions the nearest centroid",
    .needs = { HA_OP_ENTRY(pq_encode) },
    .judge = judge_pq_encode,
    .keys = "dst src src_at q_at dtype batch kv_heads keys pad layout src_index dst_gap first groups dims centroids "
            "code_bits separate empty special",
    .pairs = "dst = device mapped\nsrc = device mapped\nsrc_at = 0 4 40\nq_at = 0 4 40\ndtype = f32 f16 bf16\n"
             "batch = 1 3 33\nkv_heads = 1..4 7 8\nkeys = 1 2 31 33 70\npad = 0 4 18\nlayout = tokens heads\n"
             "src_index = none device mapped\ndst_gap = 0 3\nfirst = 0 1 31 64\ngroups = 1 3 32\ndims = 1 2 4 7 16\n"
             "centroids = 1 3 16 100\ncode_bits = 2 4 7 8 16\nseparate = no yes\nempty = no yes\n"
             "special = none nan_key low_key high_key\n",
    .once = pq_encode_once,
    .unfit = unfit_pq_encode,
};

/* ---- pq_table ---------------------------------------------------------------------------------------------------- */

static enum ha_status pq_table_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_pq_table_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                         *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype type = (enum ha_dtype)c->w_type;
    const size_t heads = c->kv_heads * c->group, dim = c->groups * c->dims, n = c->q_len * heads * dim;
    struct ha_pq pq = pq_of(c), kept = pq;
    const size_t books = c->kv_heads * ha_pq_book_floats(&pq),
                 bytes = ha_pq_table_bytes(&pq, c->q_len * c->group, type), step = lines(bytes) + c->dst_gap * 64;
    size_t in = 0, out = 0, all = 0, q_at[HA_OP_BATCH], table_at[HA_OP_BATCH];
    const size_t books_at = ha_op_room(&all, books * F, c->q_at / F * F);
    for (size_t b = 0; b < c->batch; b++) {
        q_at[b] = ha_op_room(&in, n * F, c->q_at / F * F);
        table_at[b] = ha_op_room(&out, c->kv_heads * step, 0);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), all) : NULL;
    if (!blocks[1]) return HA_ERROR;
    memset(blocks[0]->image, 0xFF, in);
    memset(blocks[1]->image, 0xFF, all);
    make_books(s, &pq, floats(blocks[1]->image + books_at), c->kv_heads, false);
    const bool odd_books = make_odd_books(s, c, floats(blocks[1]->image + books_at), c->kv_heads);
    const size_t odd = ha_op_draw(s, c->batch);
    for (size_t b = 0; b < c->batch; b++) {
        float *const q = floats(blocks[0]->image + q_at[b]);
        there[b] = (struct ha_device_pq_table_seq){ floats(blocks[0]->at + q_at[b]), made->at + table_at[b], step };
        here[b] = (struct ha_device_pq_table_seq){ q, made->image + table_at[b], step };
        ha_op_numbers(s, q, n, HA_F32);
        if (c->special && b == odd) q[ha_op_draw(s, n)] = ha_op_odd(s, c);
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    pq.centroid = floats(blocks[1]->at + books_at);
    kept.centroid = floats(blocks[1]->image + books_at);
    struct ha_device_pq_table args = { c->batch, c->q_len, heads, c->kv_heads, pq, type, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->pq_table(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "pq_table", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t i = 0; i < c->batch * c->kv_heads; i++) {
        const size_t b = i / c->kv_heads, h = i % c->kv_heads;
        const struct ha_pq_table one = { .pq = book_of(&kept, h),
                                         .q = here[b].q + h * c->group * dim,
                                         .q_len = c->q_len,
                                         .group = c->group,
                                         .q_token_stride = heads * dim,
                                         .q_head_stride = dim,
                                         .type = type,
                                         .table = (char *)here[b].table + h * step };
        const double ratio = ha_ref_judge_pq_table(&one, odd_books || (c->special && b == odd) ? NULL : &held);
        s->cases++;
        if (!(ratio <= 1))
            return ha_op_wrong(
                s,
                "pq_table of %s, %zu groups of %zu, %zu centroids: sequence %zu, KV head %zu of %zu, %zu "
                "tokens of %zu heads: error/bound %.3g",
                ha_dtype_name(type), c->groups, c->dims, c->centroids, b, h, c->kv_heads, c->q_len, c->group, ratio);
        ha_op_put_back(made, before, one.table, bytes);
    }
    ha_suspect_add(&s->suspect, &held, "pq_table of %s, groups of %zu", ha_dtype_name(type), c->dims);
    return ha_op_beside(s, "pq_table", before, made);
}

static enum ha_status judge_pq_table(struct ha_op_stage *s)
{
    for (size_t t = HA_F32; t <= HA_F16; t++)
        HA_TRY(pq_table_once(s, &(struct ha_op_case){ .batch = 1,
                                                      .q_len = 1,
                                                      .kv_heads = 2,
                                                      .group = 4 + t,
                                                      .groups = 32,
                                                      .dims = 4,
                                                      .centroids = s->most < 1 << 20 ? 256 : 2000,
                                                      .separate = t,
                                                      .w_type = t }));
    static const struct ha_op_case all_codes = {
        .batch = 1, .q_len = 1, .kv_heads = 1, .group = 1, .groups = 2, .dims = 2, .centroids = 65536
    };
    return s->most < 1 << 20 ? HA_OK : pq_table_once(s, &all_codes);
}

static const char *unfit_pq_table(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_KEY || c->special == HA_OP_NAN_VALUE) return "a table is of a query";
    return unfit_groups(c, false);
}
const struct ha_op ha_op_pq_table = {
    .name = "pq_table",
    .doc = "products of a query's groups and their centroids",
    .needs = { HA_OP_ENTRY(pq_table) },
    .judge = judge_pq_table,
    .keys = "dst src q_at batch q_len kv_heads group dst_gap groups dims centroids separate w_type special",
    .pairs = "dst = device mapped\nsrc = device mapped\nq_at = 0 4 40\nbatch = 1 3 33\nq_len = 1..8 16\nkv_heads = "
             "1..4 7 8\n"
             "group = 1..8 16\ndst_gap = 0 3\ngroups = 1 3 32\ndims = 1 2 4 7 31\ncentroids = 1 3 16 100\n"
             "separate = no yes\nw_type = f32 f16\nspecial = none nan_query low_key high_key\n",
    .once = pq_table_once,
    .unfit = unfit_pq_table,
};

/* ---- pq_score ---------------------------------------------------------------------------------------------------- */

static enum ha_status pq_score_once(struct ha_op_stage *s, const struct ha_op_case *c)
{
    struct ha_device_pq_score_seq *const there = s->scratch, *const here = there + HA_OP_BATCH,
                                         *const seqs = here + HA_OP_BATCH;
    HA_OP_FITS(3 * HA_OP_BATCH * sizeof *there);
    const enum ha_dtype type = (enum ha_dtype)c->w_type;
    const struct ha_pq pq = pq_of(c);
    const size_t rows = c->q_len * c->group, bytes = ha_pq_table_bytes(&pq, rows, type), e = ha_dtype_bytes(type),
                 step = lines(bytes) + c->src_gap * 64;
    const float scale = (float)c->scale / sqrtf((float)(c->groups * c->dims));
    size_t in = 0, all = 0, out = 0, table_at[HA_OP_BATCH], codes_at[HA_OP_BATCH], s_at[HA_OP_BATCH];
    for (size_t b = 0; b < c->batch; b++) {
        const size_t keys = ha_op_length(c, b);
        there[b] = (struct ha_device_pq_score_seq){ .table_head_bytes = step,
                                                    .code_head_bytes = lines(ha_pq_code_bytes(&pq, keys))
                                                                       + c->src_gap * 64,
                                                    .keys = keys,
                                                    .s_stride = keys + c->dst_gap };
        table_at[b] = ha_op_room(&all, c->kv_heads * step, 0);
        codes_at[b] = ha_op_room(&in, c->kv_heads * there[b].code_head_bytes, 0);
        s_at[b] = ha_op_room(&out, c->kv_heads * rows * there[b].s_stride * F, c->dst_at / F * F);
    }
    ha_op_clear(s);
    struct ha_op_block *made = ha_op_block(s, (enum ha_op_place)c->dst, out), *blocks[2];
    blocks[0] = made ? ha_op_block(s, (enum ha_op_place)c->src, in) : NULL;
    blocks[1] = blocks[0] ? ha_op_block(s, ha_op_any_place(s), all) : NULL;
    if (!blocks[1]) return HA_ERROR;
    HA_TRY(ha_op_fill(s, blocks[0], 0, in)); /* any bits behind the last key, also of codes that no centroid has */
    memset(blocks[1]->image, 0xFF, all);
    const size_t odd = ha_op_draw(s, c->batch);
    for (size_t b = 0; b < c->batch; b++) {
        here[b] = there[b];
        for (size_t i = 0; i < 2; i++) {
            struct ha_device_pq_score_seq *m = i ? &here[b] : &there[b];
            m->table = (i ? blocks[1]->image : blocks[1]->at) + table_at[b];
            m->codes = (i ? blocks[0]->image : blocks[0]->at) + codes_at[b];
            m->s = floats((i ? made->image : made->at) + s_at[b]);
        }
        for (size_t h = 0; h < c->kv_heads; h++) {
            char *const table = blocks[1]->image + table_at[b] + h * step,
                        *codes = blocks[0]->image + codes_at[b] + h * here[b].code_head_bytes;
            ha_op_numbers(s, table, bytes / e, type);
            for (size_t i = 0; i < here[b].keys * pq.groups; i++) {
                unsigned char *const group = (unsigned char *)codes
                                             + i / pq.groups / HA_PQ_KEYS * ha_pq_block_bytes(&pq)
                                             + i % pq.groups * ha_pq_group_bytes(&pq);
                ha_pq_put(group, pq.bits, i / pq.groups % HA_PQ_KEYS, (uint32_t)ha_op_draw(s, pq.count));
            }
            if (c->special && b == odd) ha_store(table, ha_op_draw(s, bytes / e), type, ha_op_odd(s, c));
        }
    }
    HA_TRY(ha_op_fill(s, made, 0, made->bytes));
    memcpy(seqs, there, c->batch * sizeof *seqs);
    struct ha_device_pq_score args = { c->batch, c->kv_heads, rows, pq, type, scale, seqs };
    HA_TRY(ha_op_arrive(s, blocks, 2, made));
    const enum ha_status asked = s->api->pq_score(s->stream[0], &args);
    memset(seqs, 0, c->batch * sizeof *seqs);
    memset(&args, 0, sizeof args);
    const char *before;
    HA_TRY(ha_op_follow(s, "pq_score", asked, made, &before));
    struct ha_chances held = { 0 };
    for (size_t i = 0; i < c->batch * c->kv_heads; i++) {
        const size_t b = i / c->kv_heads, h = i % c->kv_heads;
        const struct ha_device_pq_score_seq *m = &here[b];
        const struct ha_pq_score one = { .pq = pq,
                                         .table = (const char *)m->table + h * step,
                                         .type = type,
                                         .rows = rows,
                                         .codes = (const char *)m->codes + h * m->code_head_bytes,
                                         .keys = m->keys,
                                         .scale = scale,
                                         .s = m->s + h * rows * m->s_stride,
                                         .s_stride = m->s_stride };
        const double ratio = ha_ref_judge_pq_score(&one, c->special && b == odd ? NULL : &held);
        s->cases++;
        if (!(ratio <= 1))
            return ha_op_wrong(s,
                               "pq_score by tables of %s, %zu groups, %zu centroids in %zu bits, %zu rows, %zu keys: "
                               "sequence %zu, KV head %zu of %zu: error/bound %.3g",
                               ha_dtype_name(type), pq.groups, pq.count, pq.bits, rows, m->keys, b, h, c->kv_heads,
                               ratio);
        for (size_t r = 0; r < rows; r++) ha_op_put_back(made, before, one.s + r * m->s_stride, m->keys * F);
    }
    ha_suspect_add(&s->suspect, &held, "pq_score of %s, %zu groups", ha_dtype_name(type), pq.groups);
    return ha_op_beside(s, "pq_score", before, made);
}

static enum ha_status judge_pq_score(struct ha_op_stage *s)
{
    static const struct ha_op_case large[] = {
        { .q_len = 1, .group = 4, .keys = 9000, .groups = 32, .centroids = 256, .code_bits = 8, .w_type = HA_F32 },
        { .q_len = 3, .group = 3, .keys = 1000, .groups = 64, .centroids = 5000, .code_bits = 13, .w_type = HA_F16 },
        { .q_len = 1, .group = 7, .keys = 3000, .groups = 2, .centroids = 64, .code_bits = 6, .w_type = HA_F32 },
        { .q_len = 1, .group = 2, .keys = 70000, .groups = 3, .centroids = 100, .code_bits = 7, .w_type = HA_F32 },
        { .q_len = 1, .group = 1, .keys = 300, .groups = 3, .centroids = 65536, .code_bits = 16, .w_type = HA_F16 },
    };
    for (size_t i = 0; i < sizeof large / sizeof *large - (s->most < 1 << 20); i++) {
        struct ha_op_case c = large[i];
        const size_t most = s->most / (c.groups * 2 + c.group * c.q_len * F);
        c.batch = c.dims = c.separate = 1;
        c.kv_heads = 2;
        c.scale = 1;
        if (c.keys > most) c.keys = most;
        HA_TRY(pq_score_once(s, &c));
    }
    return HA_OK;
}

static const char *unfit_pq_score(const struct ha_op_case *c)
{
    if (c->special == HA_OP_NAN_QUERY || c->special == HA_OP_NAN_VALUE) return "scores are sums of a table's numbers";
    return unfit_groups(c, true);
}
const struct ha_op ha_op_pq_score = {
    .name = "pq_score",
    .doc = "scores of keys by their codes and a table",
    .needs = { HA_OP_ENTRY(pq_score) },
    .judge = judge_pq_score,
    .keys = "dst src dst_at batch q_len kv_heads group keys src_gap dst_gap groups centroids code_bits w_type empty "
            "scale special",
    .pairs = "dst = device mapped\nsrc = device mapped\ndst_at = 0 4 24\nbatch = 1 3 33\nq_len = 1..8 16\nkv_heads = "
             "1..4 7 8\n"
             "group = 1..8 16\nkeys = 1 31 32 70 257\nsrc_gap = 0 3\ndst_gap = 0 3\ngroups = 1 3 32 70\n"
             "centroids = 1 3 16 100\ncode_bits = 2 4 7 8 16\nw_type = f32 f16\nempty = no yes\nscale = 1 0.25 3\n"
             "special = none nan_key low_key high_key\n",
    .once = pq_score_once,
    .unfit = unfit_pq_score,
};
