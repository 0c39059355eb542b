/* What selects keys: digests of blocks, their scores, the largest of these, which of them a cache has, and what a
 * predicted query takes besides its product. By the CPU's kernels, one sequence and head after the other. */

#include "harness/base/numeric.h"
#include "harness/base/rotate.h"
#include "harness/base/why.h"
#include "kernels/host/host.h"

#include <math.h>

static enum ha_status wants(struct ha_stream *s, const char *operation, bool kernel)
{
    return kernel
               ? HA_OK
               : ha_host_fail(s->device, "%s on %s: the kernels of this device have no such one", operation, s->lane);
}

/* ---- digests */

static void run_digest(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_digest *d = &op->u.digest;
    const struct ha_device_digest_seq *seqs = op->array;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->kv_heads; h++) {
            struct ha_digest one = { .kind = d->kind,
                                     .digests = (char *)seqs[b].digests + h * seqs[b].head_bytes,
                                     .first = seqs[b].first,
                                     .blocks = seqs[b].blocks,
                                     .unit = d->unit,
                                     .rows = seqs[b].rows,
                                     .head_dim = d->head_dim,
                                     .dtype = d->dtype };
            one.rows.k = (const char *)one.rows.k + h * seqs[b].k_head_bytes;
            s->device->kernels.digest(&one);
        }
}

enum ha_status ha_host_digest(struct ha_stream *s, const struct ha_device_digest *args)
{
    static const struct ha_host_verb verb = { .name = "digest", .kind = HA_SPAN_KERNEL, .run = run_digest };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.digest = *args
    };
    HA_TRY(wants(s, verb.name, s->device->kernels.digest));
    if (args->unit == 0) return ha_host_fail(s->device, "digest on %s: blocks of 0 rows", s->lane);
    const size_t key = args->head_dim * ha_dtype_bytes(args->dtype), heads = args->kv_heads;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_digest_seq *seq = &args->seqs[b];
        const size_t bytes = ha_digest_bytes(seq->first + seq->blocks, args->head_dim, args->dtype),
                     rows = seq->rows.index ? 1 : seq->rows.keys, index = seq->rows.keys * sizeof(uint32_t),
                     k = ha_host_extent(heads, seq->k_head_bytes, ha_host_extent(rows, seq->rows.k_stride_bytes, key));
        if (!ha_host_kernel_operand(s, &op, "digests", seq->digests, ha_host_extent(heads, seq->head_bytes, bytes), 0)
            || !ha_host_kernel_operand(s, &op, "K", seq->rows.k, seq->rows.keys ? k : 0, heads * seq->rows.keys * key)
            || !ha_host_kernel_operand(s, &op, "index", seq->rows.index, seq->rows.index ? index : 0, index))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- their scores */

static void run_digest_score(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_digest_score *d = &op->u.digest_score;
    const struct ha_device_score_seq *seqs = op->array;
    const size_t group = d->q_heads / d->kv_heads;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->q_heads; h++)
            s->device->kernels.digest_score(
                &(struct ha_digest_score){ .q = seqs[b].q + h * d->head_dim,
                                           .q_rows = d->q_len,
                                           .q_stride = d->q_heads * d->head_dim,
                                           .head_dim = d->head_dim,
                                           .digests = (const char *)seqs[b].digests + h / group * seqs[b].head_bytes,
                                           .blocks = seqs[b].blocks,
                                           .dtype = d->dtype,
                                           .scale = d->scale,
                                           .s = seqs[b].s + h * d->q_len * seqs[b].s_stride,
                                           .s_stride = seqs[b].s_stride,
                                           .streams = ha_reads_in_streams(&s->device->kernels, d->dtype) });
}

enum ha_status ha_host_digest_score(struct ha_stream *s, const struct ha_device_digest_score *args)
{
    static const struct ha_host_verb verb = { .name = "digest_score", .kind = HA_SPAN_KERNEL, .run = run_digest_score };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.digest_score = *args
    };
    HA_TRY(wants(s, verb.name, s->device->kernels.digest_score));
    if (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0)
        return ha_host_fail(s->device, "digest_score on %s: %zu query heads are no multiple of %zu KV heads", s->lane,
                            args->q_heads, args->kv_heads);
    const size_t rows = args->q_len * args->q_heads, q = rows * args->head_dim * sizeof(float);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_score_seq *seq = &args->seqs[b];
        const size_t digests = ha_digest_bytes(seq->blocks, args->head_dim, args->dtype);
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, q, q)
            || !ha_host_kernel_operand(s, &op, "digests", seq->digests,
                                       digests ? ha_host_extent(args->kv_heads, seq->head_bytes, digests) : 0,
                                       args->kv_heads * digests)
            || !ha_host_kernel_operand(
                s, &op, "scores", seq->s,
                seq->blocks ? ha_host_extent(rows, seq->s_stride, seq->blocks) * sizeof(float) : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- scores of rows, and rows made shorter */

static enum ha_status groups(struct ha_stream *s, const char *operation, size_t heads, size_t kv_heads, size_t head_dim)
{
    if (kv_heads == 0 || heads % kv_heads != 0)
        return ha_host_fail(s->device, "%s on %s: %zu heads are no multiple of %zu KV heads", operation, s->lane, heads,
                            kv_heads);
    return head_dim ? HA_OK : ha_host_fail(s->device, "%s on %s: rows of no elements", operation, s->lane);
}

static void run_score(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_score *d = &op->u.score;
    const struct ha_device_rows_seq *seqs = op->array;
    const size_t group = d->q_heads / d->kv_heads;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t h = 0; h < d->q_heads; h++)
            for (size_t t = 0; t < d->q_len; t++) {
                struct ha_score one = { .q = seqs[b].q + (t * d->q_heads + h) * d->head_dim,
                                        .head_dim = d->head_dim,
                                        .rows = seqs[b].rows,
                                        .dtype = d->dtype,
                                        .scale = d->scale,
                                        .s = seqs[b].s + (h * d->q_len + t) * seqs[b].s_stride };
                one.rows.k = (const char *)one.rows.k + h / group * seqs[b].k_head_bytes;
                s->device->kernels.score(&one);
            }
}

enum ha_status ha_host_score(struct ha_stream *s, const struct ha_device_score *args)
{
    static const struct ha_host_verb verb = { .name = "score", .kind = HA_SPAN_KERNEL, .run = run_score };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.score = *args
    };
    HA_TRY(wants(s, verb.name, s->device->kernels.score));
    HA_TRY(groups(s, verb.name, args->q_heads, args->kv_heads, args->head_dim));
    const size_t queries = args->q_len * args->q_heads, q = queries * args->head_dim * sizeof(float),
                 key = args->head_dim * ha_dtype_bytes(args->dtype), heads = args->kv_heads;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_rows_seq *seq = &args->seqs[b];
        const size_t keys = seq->rows.keys, rows = seq->rows.index ? 1 : keys, index = keys * sizeof(uint32_t),
                     k = ha_host_extent(heads, seq->k_head_bytes, ha_host_extent(rows, seq->rows.k_stride_bytes, key)),
                     scores = ha_host_extent(queries, seq->s_stride, keys) * sizeof(float);
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, q, q)
            || !ha_host_kernel_operand(s, &op, "K", seq->rows.k, keys ? k : 0, heads * keys * key)
            || !ha_host_kernel_operand(s, &op, "index", seq->rows.index, seq->rows.index ? index : 0, index)
            || !ha_host_kernel_operand(s, &op, "scores", seq->s, keys ? scores : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* A row's columns are the scores of the matrix's rows by it. */
static void run_columns(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_columns *c = &op->u.columns;
    const struct ha_device_columns_seq *seqs = op->array;
    const size_t group = c->heads / c->kv_heads, dim = c->head_dim, e = ha_dtype_bytes(c->y_type);
    float *x = op->scratch, *y = x + dim;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t i = 0; i < seqs[b].tokens * c->heads; i++) {
            const size_t t = i / c->heads, h = i % c->heads;
            char *to = (char *)seqs[b].y + (t * seqs[b].y_token_stride + h * seqs[b].y_head_stride) * e;
            for (size_t d = 0; d < dim; d++) x[d] = ha_load(seqs[b].x, i * dim + d, c->x_type);
            s->device->kernels.score(&(struct ha_score){ .q = x,
                                                         .head_dim = dim,
                                                         .rows = { .k = c->a + h / group * c->columns * dim,
                                                                   .k_stride_bytes = dim * sizeof(float),
                                                                   .keys = c->columns },
                                                         .dtype = HA_F32,
                                                         .scale = 1,
                                                         .s = y });
            for (size_t j = 0; j < c->columns; j++) ha_store(to, j, c->y_type, y[j]);
        }
}

enum ha_status ha_host_columns(struct ha_stream *s, const struct ha_device_columns *args)
{
    static const struct ha_host_verb verb = { .name = "columns", .kind = HA_SPAN_KERNEL, .run = run_columns };
    struct ha_host_op op = { .verb = &verb,
                             .array = args->seqs,
                             .array_bytes = args->batch * sizeof *args->seqs,
                             .scratch_bytes = (args->head_dim + args->columns) * sizeof(float),
                             .u.columns = *args };
    HA_TRY(wants(s, verb.name, s->device->kernels.score));
    HA_TRY(groups(s, verb.name, args->heads, args->kv_heads, args->head_dim));
    const size_t a = args->kv_heads * args->columns * args->head_dim * sizeof(float), e = ha_dtype_bytes(args->y_type);
    if (!ha_host_kernel_operand(s, &op, "a", args->a, a, a)) return HA_ERROR;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_columns_seq *seq = &args->seqs[b];
        const size_t x = seq->tokens * args->heads * args->head_dim * ha_dtype_bytes(args->x_type),
                     heads = ha_host_extent(args->heads, seq->y_head_stride * e, args->columns * e),
                     y = ha_host_extent(seq->tokens, seq->y_token_stride * e, heads);
        if (!ha_host_kernel_operand(s, &op, "x", seq->x, x, x)
            || !ha_host_kernel_operand(s, &op, "y", seq->y, seq->tokens && args->columns ? y : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- the largest */

static size_t chosen(const struct ha_device_topk_seq *seq) { return seq->k < seq->n ? seq->k : seq->n; }

/* Of those that are chosen the ones that are not too far below the largest, and how many. */
static size_t keep_within(const struct ha_device_topk_seq *seq, const float *x, uint32_t *index)
{
    float largest = NAN;
    size_t kept = 0;
    for (size_t i = 0; i < chosen(seq); i++) largest = fmaxf(largest, x[index[i]]);
    const float least = largest - seq->within; /* an infinity less an infinity: nothing is below that */
    for (size_t i = 0; i < chosen(seq); i++)
        if (!isnan(x[index[i]]) && !(x[index[i]] < least)) index[kept++] = index[i];
    return kept;
}

static void run_topk(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_topk *t = &op->u.topk;
    const struct ha_device_topk_seq *seqs = op->array;
    float *most = op->scratch;
    for (size_t b = 0; b < t->batch; b++)
        for (size_t l = 0; l < t->lists; l++) {
            const struct ha_device_topk_seq *seq = &seqs[b];
            const float *x = seq->x + l * t->rows * seq->stride;
            if (seq->only && !seq->only[l]) continue;
            for (size_t i = 0; t->rows > 1 && i < seq->n; i++) {
                most[i] = x[i];
                for (size_t r = 1; r < t->rows; r++) most[i] = fmaxf(most[i], x[r * seq->stride + i]);
            }
            uint32_t *index = seq->index + l * seq->index_stride;
            s->device->kernels.topk(
                &(struct ha_topk){ .x = t->rows > 1 ? most : x, .n = seq->n, .k = seq->k, .index = index });
            const size_t kept = seq->keys ? keep_within(seq, t->rows > 1 ? most : x, index) : chosen(seq);
            if (seq->keys) seq->keys[l] = (uint32_t)(kept * (seq->keys_unit ? seq->keys_unit : 1));
            for (size_t i = 0; seq->first && i < kept; i++) index[i] += seq->first;
        }
}

enum ha_status ha_host_topk(struct ha_stream *s, const struct ha_device_topk *args)
{
    static const struct ha_host_verb verb = { .name = "topk", .kind = HA_SPAN_KERNEL, .run = run_topk };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.topk = *args
    };
    HA_TRY(wants(s, verb.name, s->device->kernels.topk));
    if (args->rows == 0) return ha_host_fail(s->device, "topk on %s: lists of no rows", s->lane);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_topk_seq *seq = &args->seqs[b];
        const size_t rows = args->lists * args->rows, all = chosen(seq),
                     x = ha_host_extent(rows, seq->stride, seq->n) * sizeof *seq->x,
                     index = ha_host_extent(args->lists, seq->index_stride, all) * sizeof *seq->index,
                     only = seq->only ? args->lists * sizeof *seq->only : 0;
        if (!ha_host_kernel_operand(s, &op, "x", seq->x, seq->n ? x : 0, rows * seq->n * sizeof *seq->x)
            || !ha_host_kernel_operand(s, &op, "index", seq->index, all ? index : 0, 0)
            || !ha_host_kernel_operand(s, &op, "keys", seq->keys, seq->keys ? args->lists * sizeof *seq->keys : 0, 0)
            || !ha_host_kernel_operand(s, &op, "only", seq->only, only, only))
            return HA_ERROR;
        if (seq->keys && !(seq->within >= 0))
            return ha_host_fail(s->device, "topk on %s: within %g of the largest", s->lane, (double)seq->within);
        if (args->rows > 1 && seq->n * sizeof(float) > op.scratch_bytes) op.scratch_bytes = seq->n * sizeof(float);
    }
    return ha_host_enqueue(s, &op);
}

/* ---- what a cache has of lists */

static void run_split(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_split *d = &op->u.split;
    const struct ha_device_split_seq *seqs = op->array;
    (void)s;
    for (size_t b = 0; b < d->batch; b++)
        for (size_t l = 0; l < d->lists; l++) {
            const struct ha_device_split_seq *seq = &seqs[b];
            const uint32_t *index = seq->index + l * seq->index_stride,
                           *slot = seq->slot + l * d->tables / d->lists * seq->slot_stride;
            size_t here = 0, missing = 0;
            for (size_t i = 0; i < seq->count; i++) {
                const uint32_t at = slot[index[i]];
                if (at != HA_SLOT_NONE) seq->here[l * seq->out_stride + here++] = at;
                else if (seq->missing) seq->missing[l * seq->out_stride + missing++] = index[i];
            }
            seq->here_count[l] = (uint32_t)(here * (seq->here_unit ? seq->here_unit : 1));
            if (seq->missing_count) seq->missing_count[l] = (uint32_t)(seq->count - here);
        }
}

enum ha_status ha_host_split(struct ha_stream *s, const struct ha_device_split *args)
{
    static const struct ha_host_verb verb = { .name = "split", .kind = HA_SPAN_KERNEL, .run = run_split };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.split = *args
    };
    const size_t w = sizeof(uint32_t), counts = args->lists * w;
    if (args->lists && args->tables == 0) return ha_host_fail(s->device, "split on %s: lists of no table", s->lane);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_split_seq *seq = &args->seqs[b];
        const size_t listed = args->lists * seq->count * w,
                     index = listed ? ha_host_extent(args->lists, seq->index_stride, seq->count) * w : 0,
                     slot = listed ? ha_host_extent(args->tables, seq->slot_stride, seq->blocks) * w : 0,
                     out = listed ? ha_host_extent(args->lists, seq->out_stride, seq->count) * w : 0;
        if (seq->out_stride < seq->count && args->lists > 1)
            return ha_host_fail(s->device, "split on %s: rows of %zu for lists of %zu", s->lane, seq->out_stride,
                                seq->count);
        if (!ha_host_kernel_operand(s, &op, "index", seq->index, index, listed)
            || !ha_host_kernel_operand(s, &op, "slot", seq->slot, slot, listed)
            || !ha_host_kernel_operand(s, &op, "here", seq->here, out, 0)
            || !ha_host_kernel_operand(s, &op, "here_count", seq->here_count, counts, 0)
            || !ha_host_kernel_operand(s, &op, "missing", seq->missing, seq->missing ? out : 0, 0)
            || !ha_host_kernel_operand(s, &op, "missing_count", seq->missing_count, seq->missing_count ? counts : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- a query from its product */

static void run_rotate(struct ha_stream *s, const struct ha_host_op *op)
{
    (void)s;
    ha_rotate(&op->u.rotate, 0, op->u.rotate.tokens);
}

enum ha_status ha_host_rotate(struct ha_stream *s, const struct ha_device_rotate *args)
{
    static const struct ha_host_verb verb = { .name = "rotate", .kind = HA_SPAN_KERNEL, .run = run_rotate };
    struct ha_host_op op = { .verb = &verb, .u.rotate = *args };
    const size_t f = sizeof(float), rows = args->heads * args->head_dim, q = args->tokens * rows * f,
                 bias = args->bias ? rows * f : 0, norm = args->norm ? args->head_dim * f : 0,
                 by = args->turn ? args->tokens * args->rotary * f : 0;
    if (args->turn && (args->rotary > args->head_dim || args->rotary % 2))
        return ha_host_fail(s->device, "rotate on %s: %zu of %zu dimensions are turned in pairs", s->lane, args->rotary,
                            args->head_dim);
    if (!ha_host_kernel_operand(s, &op, "q", args->q, q, q)
        || !ha_host_kernel_operand(s, &op, "bias", args->bias, bias, bias)
        || !ha_host_kernel_operand(s, &op, "norm", args->norm, norm, norm)
        || !ha_host_kernel_operand(s, &op, "turn", args->turn, by, by))
        return HA_ERROR;
    return ha_host_enqueue(s, &op);
}
