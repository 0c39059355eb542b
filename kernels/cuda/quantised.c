/* Attention over keys that are codes: each checks its operands and enqueues. */

#include "kernels/cuda/operand.h"

#include "harness/base/why.h"

static enum ha_status check_heads(struct ha_stream *s, const char *operation, size_t q_heads, size_t kv_heads)
{
    return kv_heads && q_heads && q_heads % kv_heads == 0
               ? HA_OK
               : ha_cuda_fail_on(s, operation, "%zu query heads are no multiple of %zu KV heads", q_heads, kv_heads);
}

/* of a table, of weights */
static enum ha_status check_half(struct ha_stream *s, const char *operation, enum ha_dtype type)
{
    return type == HA_F32 || type == HA_F16
               ? HA_OK
               : ha_cuda_fail_on(s, operation, "numbers of type %d, not of single or half precision", (int)type);
}

static enum ha_status check_pq(struct ha_stream *s, struct ha_cuda_span *span, const struct ha_pq *pq, size_t kv_heads,
                               bool codes, bool book)
{
    const char *name = span->name;
    if (!pq->groups || !pq->dims || !pq->count)
        return ha_cuda_fail_on(s, name, "%zu groups of %zu dimensions, %zu centroids", pq->groups, pq->dims, pq->count);
    if (pq->books != 1 && pq->books != pq->groups)
        return ha_cuda_fail_on(s, name, "%zu books for %zu groups, not 1 or as many", pq->books, pq->groups);
    if (codes && (pq->bits < 1 || pq->bits > HA_PQ_BITS_MAX || pq->count > (size_t)1 << pq->bits))
        return ha_cuda_fail_on(s, name, "%zu centroids in codes of %zu bits", pq->count, pq->bits);
    if (pq->count > UINT32_MAX || pq->dims > UINT32_MAX || pq->groups > INT32_MAX)
        return ha_cuda_fail_on(s, name, "%zu groups of %zu dimensions, %zu centroids", pq->groups, pq->dims, pq->count);
    const size_t bytes = times(kv_heads, ha_pq_book_floats(pq) * sizeof(float));
    return book ? operand(s, span, "centroids", pq->centroid, bytes, bytes) : HA_OK;
}

enum ha_status ha_cuda_pq_encode_enqueue(struct ha_stream *s, const struct ha_device_pq_encode *e)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "pq_encode" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)e->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "rows of an unknown type");
    HA_TRY(check_pq(s, &span, &e->pq, e->kv_heads, true, true));
    const size_t row = e->pq.groups * e->pq.dims * ha_dtype_bytes(e->dtype);
    for (size_t b = 0; b < e->batch; b++) {
        const struct ha_device_pq_encode_seq *seq = &e->seqs[b];
        const size_t keys = seq->rows.keys, names = keys * sizeof *seq->rows.index,
                     k = extent(e->kv_heads, seq->k_head_bytes,
                                extent(seq->rows.index && keys ? 1 : keys, seq->rows.k_stride_bytes, row)),
                     codes = extent(e->kv_heads, seq->code_head_bytes, ha_pq_code_bytes(&e->pq, seq->first + keys));
        HA_TRY(operand(s, &span, "K", seq->rows.k, keys ? k : 0, e->kv_heads * keys * row));
        if (seq->rows.index) HA_TRY(operand(s, &span, "index", seq->rows.index, names, names));
        HA_TRY(operand(s, &span, "codes", seq->codes, keys ? codes : 0, 0));
    }
    if (e->batch * e->kv_heads == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_pq_encode(s->cuda, e));
}

enum ha_status ha_cuda_pq_table_enqueue(struct ha_stream *s, const struct ha_device_pq_table *t)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "pq_table" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_TRY(check_heads(s, span.name, t->q_heads, t->kv_heads));
    HA_TRY(check_half(s, span.name, t->type));
    HA_TRY(check_pq(s, &span, &t->pq, t->kv_heads, false, true));
    const size_t rows = t->q_len * t->q_heads, q = times(rows, t->pq.groups * t->pq.dims * sizeof(float)),
                 table = ha_pq_table_bytes(&t->pq, rows / t->kv_heads, t->type);
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_pq_table_seq *seq = &t->seqs[b];
        HA_TRY(operand(s, &span, "q", seq->q, q, q));
        HA_TRY(operand(s, &span, "table", seq->table, extent(t->kv_heads, seq->table_head_bytes, table), 0));
    }
    if (t->batch * t->q_len == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_pq_table(s->cuda, t));
}

enum ha_status ha_cuda_pq_score_enqueue(struct ha_stream *s, const struct ha_device_pq_score *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "pq_score" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_TRY(check_half(s, span.name, d->type));
    HA_TRY(check_pq(s, &span, &d->pq, d->kv_heads, true, false));
    const size_t heads = d->kv_heads, table = ha_pq_table_bytes(&d->pq, d->rows, d->type), rows = times(heads, d->rows);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_pq_score_seq *seq = &d->seqs[b];
        const bool any = rows && seq->keys;
        const size_t codes = ha_pq_code_bytes(&d->pq, seq->keys),
                     scores = times(extent(rows, seq->s_stride, seq->keys), sizeof *seq->s);
        HA_TRY(operand(s, &span, "table", seq->table, any ? extent(heads, seq->table_head_bytes, table) : 0,
                       heads * table));
        HA_TRY(operand(s, &span, "codes", seq->codes, any ? extent(heads, seq->code_head_bytes, codes) : 0,
                       heads * codes));
        HA_TRY(operand(s, &span, "scores", seq->s, any ? scores : 0, 0));
    }
    if (d->batch * rows == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_pq_score(s->cuda, d));
}

enum ha_status ha_cuda_softmax_enqueue(struct ha_stream *s, const struct ha_device_softmax *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "softmax" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    const size_t rows = times(d->heads, d->q_len), f = sizeof(float);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_softmax_seq *seq = &d->seqs[b];
        HA_TRY(operand(s, &span, "scores", seq->x, seq->n ? times(extent(rows, seq->stride, seq->n), f) : 0,
                       rows * seq->n * f));
        if (seq->lse)
            HA_TRY(operand(s, &span, "LSE", seq->lse, times(extent(d->q_len, seq->lse_stride, d->heads), f), 0));
    }
    if (d->batch * rows == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_softmax_rows(s->cuda, d));
}

enum ha_status ha_cuda_topp_enqueue(struct ha_stream *s, const struct ha_device_topp *t)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "topp" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (!(t->p > 0 && t->p <= 1) || t->rows < 1 || t->rows > HA_TOPP_ROWS_MAX)
        return ha_cuda_fail_on(s, span.name, "p of %g, %zu rows of a list, not above 0 to 1, 1 to %d", t->p, t->rows,
                               HA_TOPP_ROWS_MAX);
    HA_TRY(check_half(s, span.name, t->w_type));
    const size_t rows = times(t->lists, t->rows), f = sizeof(float), w = ha_dtype_bytes(t->w_type);
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topp_seq *seq = &t->seqs[b];
        const size_t n = seq->n;
        if (seq->index_stride < n || seq->w_stride < n)
            return ha_cuda_fail_on(s, span.name, "lists of %zu, %zu apart, with weights %zu apart", n,
                                   seq->index_stride, seq->w_stride);
        HA_TRY(operand(s, &span, "weights", seq->x, n ? times(extent(rows, seq->stride, n), f) : 0, rows * n * f));
        HA_TRY(operand(s, &span, "keys", seq->keys, t->lists * sizeof *seq->keys, 0));
        HA_TRY(operand(s, &span, "index", seq->index, n ? times(extent(t->lists, seq->index_stride, n), f) : 0, 0));
        HA_TRY(operand(s, &span, "chosen weights", seq->w, n ? times(extent(rows, seq->w_stride, n), w) : 0, 0));
    }
    if (t->batch * t->lists == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_topp(s->cuda, t));
}

/* How many rows are read is known when the kernel runs: of lists, the places of their beginnings are looked at. */
enum ha_status ha_cuda_weighted_sum_enqueue(struct ha_stream *s, const struct ha_device_weighted_sum *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "weighted_sum" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)d->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "V of an unknown type");
    HA_TRY(check_heads(s, span.name, d->q_heads, d->kv_heads));
    HA_TRY(check_half(s, span.name, d->w_type));
    const size_t row = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->q_heads, rows = times(d->q_len, heads),
                 keys = heads * sizeof(uint32_t), o = times(rows, d->head_dim * sizeof(float));
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_weighted_sum_seq *seq = &d->seqs[b];
        HA_TRY(operand(s, &span, "V", seq->v, extent(d->kv_heads, seq->v_head_bytes, row), 0));
        HA_TRY(operand(s, &span, "keys", seq->keys, keys, keys));
        HA_TRY(
            operand(s, &span, "index", seq->index, times(extent(heads, seq->index_stride, 1), sizeof *seq->index), 0));
        HA_TRY(
            operand(s, &span, "weights", seq->w, times(extent(rows, seq->w_stride, 1), ha_dtype_bytes(d->w_type)), 0));
        HA_TRY(operand(s, &span, "o", seq->o, o, 0));
    }
    if (d->batch * rows * d->head_dim == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_weighted_sum(s->cuda, d));
}
