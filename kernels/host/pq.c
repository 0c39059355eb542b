/* Attention over keys that are codes, by the CPU's kernels: product quantisation, weights, and their sums of V. */

#include "harness/base/why.h"
#include "kernels/host/host.h"

static bool heads_share(size_t q_heads, size_t kv_heads) { return kv_heads && q_heads && q_heads % kv_heads == 0; }

static enum ha_status heads_fit(struct ha_stream *s, const char *operation, size_t q_heads, size_t kv_heads)
{
    if (heads_share(q_heads, kv_heads)) return HA_OK;
    return ha_host_fail(s->device, "%s on %s: %zu query heads are no multiple of %zu KV heads", operation, s->lane,
                        q_heads, kv_heads);
}

/* codes: whether they are read or written */
static enum ha_status pq_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_pq *pq, size_t kv_heads,
                              bool codes)
{
    const char *name = op->verb->name;
    if (!pq->groups || !pq->dims || !pq->count)
        return ha_host_fail(s->device, "%s on %s: %zu groups of %zu dimensions, %zu centroids", name, s->lane,
                            pq->groups, pq->dims, pq->count);
    if (pq->books != 1 && pq->books != pq->groups)
        return ha_host_fail(s->device, "%s on %s: %zu books for %zu groups, not 1 or as many", name, s->lane, pq->books,
                            pq->groups);
    if (codes && (pq->bits < 1 || pq->bits > HA_PQ_BITS_MAX || pq->count > (size_t)1 << pq->bits))
        return ha_host_fail(s->device, "%s on %s: %zu centroids in codes of %zu bits", name, s->lane, pq->count,
                            pq->bits);
    const size_t bytes = kv_heads * ha_pq_book_floats(pq) * sizeof(float);
    if (op->verb->kind != HA_SPAN_KERNEL || !pq->centroid) return HA_OK;
    return ha_host_kernel_operand(s, op, "centroids", pq->centroid, bytes, bytes) ? HA_OK : HA_ERROR;
}

/* that of a KV head */
static struct ha_pq book_of(const struct ha_pq *pq, size_t head)
{
    struct ha_pq own = *pq;
    if (own.centroid) own.centroid += head * ha_pq_book_floats(pq);
    return own;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static void run_encode(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_pq_encode *e = &op->u.pq_encode;
    const struct ha_device_pq_encode_seq *seqs = op->array;
    for (size_t b = 0; b < e->batch; b++)
        for (size_t head = 0; head < e->kv_heads; head++) {
            struct ha_pq_encode one = { .pq = book_of(&e->pq, head),
                                        .rows = seqs[b].rows,
                                        .dtype = e->dtype,
                                        .codes = (char *)seqs[b].codes + head * seqs[b].code_head_bytes,
                                        .first = seqs[b].first };
            one.rows.k = (const char *)one.rows.k + head * seqs[b].k_head_bytes;
            s->device->kernels.pq_encode(&one);
        }
}

enum ha_status ha_host_pq_encode(struct ha_stream *s, const struct ha_device_pq_encode *args)
{
    static const struct ha_host_verb verb = { .name = "pq_encode", .kind = HA_SPAN_KERNEL, .run = run_encode };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.pq_encode = *args
    };
    const struct ha_pq *pq = &args->pq;
    HA_TRY(pq_fits(s, &op, pq, args->kv_heads, true));
    const size_t key = pq->groups * pq->dims * ha_dtype_bytes(args->dtype);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_pq_encode_seq *seq = &args->seqs[b];
        const size_t keys = seq->rows.keys, rows = seq->rows.index && keys ? 1 : keys,
                     x = ha_host_extent(args->kv_heads, seq->k_head_bytes,
                                        ha_host_extent(rows, seq->rows.k_stride_bytes, key)),
                     bytes = keys ? ha_pq_code_bytes(pq, seq->first + keys) : 0, names = keys * sizeof *seq->rows.index;
        if (!ha_host_kernel_operand(s, &op, "K", seq->rows.k, keys ? x : 0, args->kv_heads * keys * key)
            || (seq->rows.index && !ha_host_kernel_operand(s, &op, "index", seq->rows.index, names, names))
            || !ha_host_kernel_operand(s, &op, "codes", seq->codes,
                                       keys ? ha_host_extent(args->kv_heads, seq->code_head_bytes, bytes) : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

static void run_table(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_pq_table *t = &op->u.pq_table;
    const struct ha_device_pq_table_seq *seqs = op->array;
    const size_t group = t->q_heads / t->kv_heads, dim = t->pq.groups * t->pq.dims;
    for (size_t b = 0; b < t->batch; b++)
        for (size_t head = 0; head < t->kv_heads; head++)
            s->device->kernels.pq_table(
                &(struct ha_pq_table){ .pq = book_of(&t->pq, head),
                                       .q = seqs[b].q + head * group * dim,
                                       .q_len = t->q_len,
                                       .group = group,
                                       .q_token_stride = t->q_heads * dim,
                                       .q_head_stride = dim,
                                       .type = t->type,
                                       .table = (char *)seqs[b].table + head * seqs[b].table_head_bytes });
}

enum ha_status ha_host_pq_table(struct ha_stream *s, const struct ha_device_pq_table *args)
{
    static const struct ha_host_verb verb = { .name = "pq_table", .kind = HA_SPAN_KERNEL, .run = run_table };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.pq_table = *args
    };
    HA_TRY(heads_fit(s, verb.name, args->q_heads, args->kv_heads));
    HA_TRY(pq_fits(s, &op, &args->pq, args->kv_heads, false));
    const size_t q = args->q_len * args->q_heads * args->pq.groups * args->pq.dims * sizeof(float),
                 table = ha_pq_table_bytes(&args->pq, args->q_len * args->q_heads / args->kv_heads, args->type);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_pq_table_seq *seq = &args->seqs[b];
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, q, q)
            || !ha_host_kernel_operand(s, &op, "table", seq->table,
                                       ha_host_extent(args->kv_heads, seq->table_head_bytes, table), 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

static void run_score(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_pq_score *a = &op->u.pq_score;
    const struct ha_device_pq_score_seq *seqs = op->array;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t head = 0; head < a->kv_heads; head++)
            s->device->kernels.pq_score(
                &(struct ha_pq_score){ .pq = a->pq,
                                       .table = (const char *)seqs[b].table + head * seqs[b].table_head_bytes,
                                       .type = a->type,
                                       .rows = a->rows,
                                       .codes = (const char *)seqs[b].codes + head * seqs[b].code_head_bytes,
                                       .keys = seqs[b].keys,
                                       .scale = a->scale,
                                       .s = seqs[b].s + head * a->rows * seqs[b].s_stride,
                                       .s_stride = seqs[b].s_stride });
}

enum ha_status ha_host_pq_score(struct ha_stream *s, const struct ha_device_pq_score *args)
{
    static const struct ha_host_verb verb = { .name = "pq_score", .kind = HA_SPAN_KERNEL, .run = run_score };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.pq_score = *args
    };
    op.u.pq_score.pq.centroid = NULL;
    HA_TRY(pq_fits(s, &op, &op.u.pq_score.pq, args->kv_heads, true));
    const size_t heads = args->kv_heads, table = ha_pq_table_bytes(&args->pq, args->rows, args->type);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_pq_score_seq *seq = &args->seqs[b];
        const bool any = heads && args->rows && seq->keys;
        const size_t codes = ha_pq_code_bytes(&args->pq, seq->keys),
                     scores = ha_host_extent(heads * args->rows, seq->s_stride, seq->keys) * sizeof *seq->s;
        if (!ha_host_kernel_operand(s, &op, "table", seq->table,
                                    any ? ha_host_extent(heads, seq->table_head_bytes, table) : 0, heads * table)
            || !ha_host_kernel_operand(s, &op, "codes", seq->codes,
                                       any ? ha_host_extent(heads, seq->code_head_bytes, codes) : 0, heads * codes)
            || !ha_host_kernel_operand(s, &op, "scores", seq->s, any ? scores : 0, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void run_softmax(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_softmax *a = &op->u.softmax;
    const struct ha_device_softmax_seq *seqs = op->array;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t row = 0; row < a->heads * a->q_len; row++) {
            float lse;
            s->device->kernels.softmax(&(struct ha_softmax){
                .x = seqs[b].x + row * seqs[b].stride, .rows = 1, .n = seqs[b].n, .stride = seqs[b].n, .lse = &lse });
            if (seqs[b].lse) seqs[b].lse[row % a->q_len * seqs[b].lse_stride + row / a->q_len] = lse;
        }
}

enum ha_status ha_host_softmax(struct ha_stream *s, const struct ha_device_softmax *args)
{
    static const struct ha_host_verb verb = { .name = "softmax", .kind = HA_SPAN_KERNEL, .run = run_softmax };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.softmax = *args
    };
    const size_t rows = args->heads * args->q_len, f = sizeof(float);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_softmax_seq *seq = &args->seqs[b];
        if (!ha_host_kernel_operand(s, &op, "scores", seq->x, ha_host_extent(rows, seq->stride, seq->n) * f,
                                    rows * seq->n * f)
            || (seq->lse
                && !ha_host_kernel_operand(s, &op, "LSE", seq->lse,
                                           ha_host_extent(args->q_len, seq->lse_stride, args->heads) * f, 0)))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

static void run_topp(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_topp *a = &op->u.topp;
    const struct ha_device_topp_seq *seqs = op->array;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t list = 0; list < a->lists; list++)
            s->device->kernels.topp(&(struct ha_topp){
                .x = seqs[b].x + list * a->rows * seqs[b].stride,
                .rows = a->rows,
                .n = seqs[b].n,
                .stride = seqs[b].stride,
                .p = a->p,
                .index = seqs[b].index + list * seqs[b].index_stride,
                .w = (char *)seqs[b].w + list * a->rows * seqs[b].w_stride * ha_dtype_bytes(a->w_type),
                .w_type = a->w_type,
                .w_stride = seqs[b].w_stride,
                .keys = seqs[b].keys + list });
}

enum ha_status ha_host_topp(struct ha_stream *s, const struct ha_device_topp *args)
{
    static const struct ha_host_verb verb = { .name = "topp", .kind = HA_SPAN_KERNEL, .run = run_topp };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.topp = *args
    };
    const size_t rows = args->lists * args->rows, f = sizeof(float), w = ha_dtype_bytes(args->w_type);
    if (!(args->p > 0 && args->p <= 1) || args->rows < 1 || args->rows > HA_TOPP_ROWS_MAX)
        return ha_host_fail(s->device, "topp on %s: p of %g, %zu rows of a list, not above 0 to 1, 1 to %d", s->lane,
                            args->p, args->rows, HA_TOPP_ROWS_MAX);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_topp_seq *seq = &args->seqs[b];
        if (seq->index_stride < seq->n || seq->w_stride < seq->n)
            return ha_host_fail(s->device, "topp on %s: lists of %zu, %zu apart, with weights %zu apart", s->lane,
                                seq->n, seq->index_stride, seq->w_stride);
        if (!ha_host_kernel_operand(s, &op, "weights", seq->x, ha_host_extent(rows, seq->stride, seq->n) * f,
                                    rows * seq->n * f)
            || !ha_host_kernel_operand(s, &op, "keys", seq->keys, args->lists * sizeof *seq->keys, 0)
            || !ha_host_kernel_operand(s, &op, "index", seq->index,
                                       ha_host_extent(args->lists, seq->index_stride, seq->n) * sizeof *seq->index, 0)
            || !ha_host_kernel_operand(s, &op, "chosen weights", seq->w,
                                       ha_host_extent(rows, seq->w_stride, seq->n) * w, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- sums of V --------------------------------------------------------------------------------------------------- */

static void run_weighted_sum(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_weighted_sum *a = &op->u.weighted_sum;
    const struct ha_device_weighted_sum_seq *seqs = op->array;
    const size_t group = a->q_heads / a->kv_heads, w = ha_dtype_bytes(a->w_type);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t head = 0; head < a->q_heads; head++)
            s->device->kernels.weighted_sum(
                &(struct ha_weighted_sum){ .rows = { .v = (const char *)seqs[b].v + head / group * seqs[b].v_head_bytes,
                                                     .v_stride_bytes = seqs[b].v_stride_bytes,
                                                     .index = seqs[b].index + head * seqs[b].index_stride,
                                                     .keys = seqs[b].keys[head] },
                                           .head_dim = a->head_dim,
                                           .dtype = a->dtype,
                                           .w = (const char *)seqs[b].w + head * a->q_len * seqs[b].w_stride * w,
                                           .w_type = a->w_type,
                                           .q_rows = a->q_len,
                                           .w_stride = seqs[b].w_stride,
                                           .o = seqs[b].o + head * a->head_dim,
                                           .o_stride = a->q_heads * a->head_dim });
}

/* How many rows are read is known when the kernel runs: of lists, the places of their beginnings are looked at. */
enum ha_status ha_host_weighted_sum(struct ha_stream *s, const struct ha_device_weighted_sum *args)
{
    static const struct ha_host_verb verb = { .name = "weighted_sum", .kind = HA_SPAN_KERNEL, .run = run_weighted_sum };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.weighted_sum = *args
    };
    HA_TRY(heads_fit(s, verb.name, args->q_heads, args->kv_heads));
    const size_t key = args->head_dim * ha_dtype_bytes(args->dtype), w = ha_dtype_bytes(args->w_type);
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_weighted_sum_seq *seq = &args->seqs[b];
        const size_t o = args->q_len * args->q_heads * args->head_dim * sizeof *seq->o,
                     keys = args->q_heads * sizeof *seq->keys;
        if (!ha_host_kernel_operand(s, &op, "V", seq->v, ha_host_extent(args->kv_heads, seq->v_head_bytes, key), 0)
            || !ha_host_kernel_operand(s, &op, "keys", seq->keys, keys, keys)
            || !ha_host_kernel_operand(s, &op, "index", seq->index,
                                       ha_host_extent(args->q_heads, seq->index_stride, 1) * sizeof *seq->index, 0)
            || !ha_host_kernel_operand(s, &op, "weights", seq->w,
                                       ha_host_extent(args->q_heads * args->q_len, seq->w_stride, 1) * w, 0)
            || !ha_host_kernel_operand(s, &op, "o", seq->o, o, 0))
            return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}
