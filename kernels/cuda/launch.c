/* Copies, host functions, kernels and graphs: each checks its operands and enqueues. */

#include "kernels/cuda/operand.h"

#include "harness/base/seq_attend.h"
#include "harness/base/why.h"

#include <limits.h>

/* ---- copies */

static const enum ha_span_kind copy_kind[] = { [HA_H2D] = HA_SPAN_H2D, [HA_D2H] = HA_SPAN_D2H, [HA_D2D] = HA_SPAN_D2D };
enum { COPY, COPY_2D, COPY_PIECES };
static const char *const copy_name[][3] = {
    [COPY] = { [HA_H2D] = "copy H2D", [HA_D2H] = "copy D2H", [HA_D2D] = "copy D2D" },
    [COPY_2D] = { [HA_H2D] = "copy_2d H2D", [HA_D2H] = "copy_2d D2H", [HA_D2D] = "copy_2d D2D" },
    [COPY_PIECES] = { [HA_H2D] = "copy_pieces H2D", [HA_D2H] = "copy_pieces D2H", [HA_D2D] = "copy_pieces D2D" },
};

static bool copy_fits(struct ha_stream *s, const char *name, const void *dst, size_t dst_bytes, const void *src,
                      size_t src_bytes, enum ha_direction dir)
{
    const unsigned host = HA_AT_PINNED | HA_AT_MAPPED | HA_AT_PAGEABLE;
    return !ha_cuda_failed(s->device)
           && ha_cuda_operand(s, name, "destination", dst, dst_bytes, dir == HA_D2H ? host : HA_AT_DEVICE)
           && ha_cuda_operand(s, name, "source", src, src_bytes, dir == HA_H2D ? host : HA_AT_DEVICE);
}

static bool overlap(const void *a, const void *b, size_t bytes)
{
    return (uintptr_t)a < (uintptr_t)b + bytes && (uintptr_t)b < (uintptr_t)a + bytes;
}

static enum ha_status copy_row(struct ha_stream *s, const char *name, void *dst, const void *src, size_t bytes,
                               enum ha_direction dir)
{
    const struct ha_cuda_span span = { .kind = copy_kind[dir], .name = name, .bytes = bytes };
    if (!copy_fits(s, name, dst, bytes, src, bytes, dir)) return HA_ERROR;
    if (bytes == 0) return HA_OK;
    if (dir == HA_D2D && overlap(dst, src, bytes))
        return ha_cuda_fail_on(s, name, "source %p and destination %p overlap", src, dst);
    HA_CUDA_ENQUEUE(s, &span, cudaMemcpyAsync(dst, src, bytes, ha_cuda_kind(dir), s->cuda));
}

enum ha_status ha_cuda_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return copy_row(s, copy_name[COPY][dir], dst, src, bytes, dir);
}

enum ha_status ha_cuda_copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                               size_t row_bytes, size_t rows, enum ha_direction dir)
{
    const struct ha_cuda_span span = { .kind = copy_kind[dir],
                                       .name = copy_name[COPY_2D][dir],
                                       .bytes = row_bytes * rows };
    if (rows > 1 && (dst_stride < row_bytes || src_stride < row_bytes))
        return ha_cuda_fail_on(s, span.name, "rows of %zu bytes at strides %zu and %zu overlap", row_bytes, dst_stride,
                               src_stride);
    if (!copy_fits(s, span.name, dst, extent(rows, dst_stride, row_bytes), src, extent(rows, src_stride, row_bytes),
                   dir))
        return HA_ERROR;
    if (rows == 0 || row_bytes == 0) return HA_OK;
    if (rows == 1 || (dst_stride == row_bytes && src_stride == row_bytes))
        return copy_row(s, span.name, dst, src, row_bytes * rows, dir);
    if (dst_stride <= INT_MAX && src_stride <= INT_MAX) /* the largest pitch there is */
        HA_CUDA_ENQUEUE(
            s, &span, cudaMemcpy2DAsync(dst, dst_stride, src, src_stride, row_bytes, rows, ha_cuda_kind(dir), s->cuda));
    for (size_t r = 0; r < rows; r++)
        HA_TRY(
            copy_row(s, span.name, (char *)dst + r * dst_stride, (const char *)src + r * src_stride, row_bytes, dir));
    return HA_OK;
}

enum ha_status ha_cuda_copy_pieces_enqueue(struct ha_stream *s, const struct ha_device_pieces *pieces,
                                           enum ha_direction dir)
{
    struct ha_cuda_span span = { .kind = copy_kind[dir], .name = copy_name[COPY_PIECES][dir] };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    for (size_t i = 0; i < pieces->count; i++) {
        if (!copy_fits(s, span.name, pieces->dst[i], pieces->bytes[i], pieces->src[i], pieces->bytes[i], dir))
            return HA_ERROR;
        if (dir == HA_D2D && pieces->bytes[i] && overlap(pieces->dst[i], pieces->src[i], pieces->bytes[i]))
            return ha_cuda_fail_on(s, span.name, "source %p and destination %p overlap", pieces->src[i],
                                   pieces->dst[i]);
        span.bytes += pieces->bytes[i];
    }
    if (span.bytes == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_copy_pieces(s->cuda, pieces, dir));
}

/* ---- host functions */

enum ha_status ha_cuda_host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    static const struct ha_cuda_span span = { .kind = HA_SPAN_CPU, .name = "host_fn" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    struct ha_cuda_call *call = ha_cuda_call_take(s, fn, arg);
    if (!call) return ha_cuda_fail_on(s, span.name, "no host memory");
    HA_CUDA_ENQUEUE(s, &span, cudaLaunchHostFunc(s->cuda, ha_cuda_call_run, call));
}

/* ---- kernels: operands in device or mapped memory */

enum { DIM_STEP = 8, DIM_MAX = HA_CUDA_DIM_MAX };

/* Where the rows of an index lie is known to the kernel alone: of them, the first possible one is looked at. */
static enum ha_status check_run(struct ha_stream *s, struct ha_cuda_span *span, const struct ha_device_attend *a,
                                const struct ha_device_seq *seq, const struct ha_rows *run)
{
    const size_t key_bytes = a->head_dim * ha_dtype_bytes(a->dtype), heads = a->kv_heads, units = ha_seq_units(a),
                 read = units * run->keys * key_bytes;
    const size_t block = a->block ? a->block : 1, indices = (run->keys + block - 1) / block,
                 lists = a->lists && run == seq->runs ? units : 1, rows = run->index ? 1 : run->keys;
    HA_TRY(operand(s, span, "K", run->k, extent(heads, seq->k_head_bytes, extent(rows, run->k_stride_bytes, key_bytes)),
                   read));
    HA_TRY(operand(s, span, "V", run->v, extent(heads, seq->v_head_bytes, extent(rows, run->v_stride_bytes, key_bytes)),
                   read));
    if (!run->index) return HA_OK;
    return operand(s, span, "index", run->index, times(extent(lists, seq->list_stride, indices), sizeof *run->index),
                   units * indices * sizeof *run->index);
}

static enum ha_status check_seq(struct ha_stream *s, struct ha_cuda_span *span, const struct ha_device_attend *a,
                                const struct ha_device_seq *seq)
{
    const size_t rows = a->q_len * a->q_heads, q_read = rows * a->head_dim * sizeof(float),
                 q_head = extent(a->q_heads, ha_seq_head_stride(a), a->head_dim),
                 q_bytes = rows ? times(extent(a->q_len, ha_seq_token_stride(a), q_head), sizeof(float)) : 0,
                 listed = a->lists && seq->list_keys ? a->lists * sizeof *seq->list_keys : 0;
    size_t keys = 0;
    if (seq->runs_count > HA_RUNS_MAX)
        return ha_cuda_fail_on(s, span->name, "%zu runs, at most %d", seq->runs_count, HA_RUNS_MAX);
    if (a->lists && (seq->runs_count < 1 + (size_t)a->causal || !seq->runs[0].index))
        return ha_cuda_fail_on(s, span->name, "lists, and the first run %s",
                               seq->runs_count && !seq->runs[0].index ? "has no index" : "is the last, or none");
    if (listed && seq->weights)
        return ha_cuda_fail_on(s, span->name, "no weights where list_keys says how many keys there are");
    for (size_t r = 0; r < seq->runs_count; r++) {
        keys += seq->runs[r].keys;
        if (seq->runs[r].keys) HA_TRY(check_run(s, span, a, seq, &seq->runs[r]));
    }
    if (a->causal && (seq->runs_count == 0 || seq->runs[seq->runs_count - 1].keys < a->q_len))
        return ha_cuda_fail_on(s, span->name, "causal, and the last run is shorter than the %zu query tokens",
                               a->q_len);
    if (seq->weights && seq->weights_stride < keys)
        return ha_cuda_fail_on(s, span->name, "the weights of a head are further apart than weights_stride");
    HA_TRY(operand(s, span, "q", seq->q, q_bytes, q_read));
    HA_TRY(operand(s, span, "o", seq->o, q_bytes, 0));
    HA_TRY(operand(s, span, "lse", seq->lse, rows * sizeof(float), 0));
    HA_TRY(operand(s, span, "list_keys", seq->list_keys, listed, listed));
    if (!seq->weights) return HA_OK;
    return operand(s, span, "weights", seq->weights,
                   times(extent(a->q_heads, seq->weights_stride, keys), sizeof(float)), 0);
}

static enum ha_status check_attend(struct ha_stream *s, struct ha_cuda_span *span, const struct ha_device_attend *a)
{
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (a->kv_heads == 0 || a->q_heads % a->kv_heads != 0)
        return ha_cuda_fail_on(s, span->name, "%zu query heads are no multiple of %zu KV heads", a->q_heads,
                               a->kv_heads);
    if (a->lists && a->lists != a->kv_heads && a->lists != a->q_heads)
        return ha_cuda_fail_on(s, span->name, "%zu lists, for %zu KV heads and %zu query heads", a->lists, a->kv_heads,
                               a->q_heads);
    if ((unsigned)a->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span->name, "K and V of an unknown type");
    if (a->head_dim == 0 || a->head_dim > DIM_MAX || a->head_dim % DIM_STEP)
        return ha_cuda_fail_on(s, span->name, "heads of %zu elements; the kernels take multiples of %d, up to %d",
                               a->head_dim, DIM_STEP, DIM_MAX);
    for (size_t b = 0; b < a->batch; b++) HA_TRY(check_seq(s, span, a, &a->seqs[b]));
    return HA_OK;
}

enum ha_status ha_cuda_attend_enqueue(struct ha_stream *s, const struct ha_device_attend *args)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "attend" };
    const unsigned multiprocessors = s->device->multiprocessors;
    HA_TRY(check_attend(s, &span, args));
    if (args->batch * args->q_len * args->q_heads == 0) return HA_OK;
    ha_cuda_enter();
    const size_t bytes = ha_cuda_attend_workspace(multiprocessors, args);
    void *workspace = ha_cuda_workspace(s, bytes);
    if (!workspace) return HA_ERROR;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_attend(multiprocessors, s->cuda, args, workspace, 0));
}

enum ha_status ha_cuda_attend_products_enqueue(struct ha_stream *s, const struct ha_device_attend *args)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "attend_products", .library = true };
    HA_TRY(check_attend(s, &span, args));
    if (args->batch * args->q_len * args->q_heads == 0) return HA_OK;
    void *ticket = ha_cuda_begin(s, &span);
    enum ha_status status = ha_cuda_attend_products(s, args);
    ha_cuda_end(s, ticket, cudaSuccess, "", &span);
    return status;
}

enum ha_status ha_cuda_product_enqueue(struct ha_stream *s, const struct ha_device_product *p)
{
    static const struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "product", .library = true };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)p->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "an unknown type");
    const size_t e = ha_dtype_bytes(p->dtype);
    if (!ha_cuda_operand(s, span.name, "y", p->y, p->m * p->n * e, HA_AT_DEVICE)
        || !ha_cuda_operand(s, span.name, "x", p->x, p->m * p->k * e, HA_AT_DEVICE)
        || !ha_cuda_operand(s, span.name, "w", p->w, p->n * p->k * e, HA_AT_DEVICE))
        return HA_ERROR;
    if (p->m * p->n == 0) return HA_OK;
    void *ticket = ha_cuda_begin(s, &span);
    enum ha_status status = ha_cuda_product(s, p);
    ha_cuda_end(s, ticket, cudaSuccess, "", &span);
    return status;
}

/* One state, or where the result goes: read is then false. */
static enum ha_status check_state(struct ha_stream *s, struct ha_cuda_span *span, const struct ha_merge *m,
                                  const struct ha_merge_state *state, bool read)
{
    static const char *const role[2][3] = { { "o", "lse", "sum" },
                                            { "o of a state", "lse of a state", "sum of a state" } };
    const size_t rows = m->tokens * m->heads, element = ha_dtype_bytes(m->dtype), f = sizeof(float);
    const size_t o = times(extent(m->tokens, state->o_token_stride, extent(m->heads, state->o_head_stride, m->dim)),
                           element);
    const size_t lse = times(extent(m->tokens, state->lse_token_stride, extent(m->heads, state->lse_head_stride, 1)),
                             f);
    HA_TRY(operand(s, span, role[read][0], state->o, rows && m->dim ? o : 0, read ? rows * m->dim * element : 0));
    HA_TRY(operand(s, span, role[read][1], state->lse, rows ? lse : 0, read ? rows * f : 0));
    if (m->form != HA_FORM_MAX_SUM) return HA_OK;
    return operand(s, span, role[read][2], state->sum, rows ? lse : 0, read ? rows * f : 0);
}

enum ha_status ha_cuda_merge_enqueue(struct ha_stream *s, const struct ha_merge *m)
{
    const struct ha_merge_traits traits = ha_cuda_merge_traits();
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "merge" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (m->states_count > HA_CUDA_STATES_MAX)
        return ha_cuda_fail_on(s, span.name, "%zu states, at most %d", m->states_count, HA_CUDA_STATES_MAX);
    if ((unsigned)m->form >= HA_FORM_COUNT || (unsigned)m->dtype >= HA_DTYPE_COUNT || !(traits.forms >> m->form & 1)
        || !(traits.dtypes >> m->dtype & 1))
        return ha_cuda_fail_on(s, span.name, "the kernels do not merge form %d of type %d", (int)m->form,
                               (int)m->dtype);
    if (m->fp8) return ha_cuda_fail_on(s, span.name, "the kernels do not make fp8 of type %d", (int)m->fp8);
    for (size_t i = 0; i < m->states_count; i++) HA_TRY(check_state(s, &span, m, &m->states[i], true));
    HA_TRY(check_state(s, &span, m, &m->out, false));
    if (m->tokens * m->heads == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_merge(s->cuda, m));
}

enum ha_status ha_cuda_blend_enqueue(struct ha_stream *s, const struct ha_device_blend *b)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "blend" };
    const size_t f = sizeof(float), bytes = b->rows * b->cols * f;
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_TRY(operand(s, &span, "y", b->y, bytes ? times(extent(b->rows, b->y_stride, b->cols), f) : 0,
                   b->a != 0.0f ? bytes : 0));
    HA_TRY(operand(s, &span, "x", b->x, bytes ? times(extent(b->rows, b->x_stride, b->cols), f) : 0, bytes));
    if (bytes == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_blend(s->cuda, b));
}

/* Where the rows of an index lie is known to the kernel alone: of them, the first possible one is looked at. */
enum ha_status ha_cuda_move_enqueue(struct ha_stream *s, const struct ha_device_move *m)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "move" };
    const size_t bytes = times(m->rows, m->row_bytes), index_bytes = times(m->rows, sizeof *m->dst_index);
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (bytes == 0) return HA_OK;
    if (bytes == SIZE_MAX) return ha_cuda_fail_on(s, span.name, "%zu rows of %zu bytes", m->rows, m->row_bytes);
    if (m->dst_index) HA_TRY(operand(s, &span, "destination index", m->dst_index, index_bytes, index_bytes));
    if (m->src_index) HA_TRY(operand(s, &span, "source index", m->src_index, index_bytes, index_bytes));
    HA_TRY(operand(s, &span, "destination", m->dst,
                   extent(m->dst_index ? 1 : m->rows, m->dst_stride_bytes, m->row_bytes), bytes));
    HA_TRY(operand(s, &span, "source", m->src, extent(m->src_index ? 1 : m->rows, m->src_stride_bytes, m->row_bytes),
                   bytes));
    if (m->rows > 1 && m->dst_stride_bytes < m->row_bytes)
        return ha_cuda_fail_on(s, span.name, "rows of %zu bytes at stride %zu overlap", m->row_bytes,
                               m->dst_stride_bytes);
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_move(s->device->multiprocessors, s->cuda, m));
}

/* ---- what selects keys */

/* As in check_run, of the rows of an index the first possible one is looked at. */
enum ha_status ha_cuda_digest_enqueue(struct ha_stream *s, const struct ha_device_digest *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "digest" };
    const size_t key = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->kv_heads;
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)d->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "K of an unknown type");
    if (d->unit == 0) return ha_cuda_fail_on(s, span.name, "blocks of 0 rows");
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_digest_seq *seq = &d->seqs[b];
        const size_t bytes = ha_digest_bytes(seq->first + seq->blocks, d->head_dim, d->dtype), keys = seq->rows.keys,
                     k = extent(heads, seq->k_head_bytes,
                                extent(seq->rows.index ? 1 : keys, seq->rows.k_stride_bytes, key));
        HA_TRY(operand(s, &span, "digests", seq->digests, bytes ? extent(heads, seq->head_bytes, bytes) : 0, 0));
        HA_TRY(operand(s, &span, "K", seq->rows.k, keys ? k : 0, heads * keys * key));
        if (seq->rows.index)
            HA_TRY(
                operand(s, &span, "index", seq->rows.index, keys * sizeof(uint32_t), heads * keys * sizeof(uint32_t)));
    }
    if (d->batch * heads == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_digest(s->cuda, d));
}

enum ha_status ha_cuda_digest_score_enqueue(struct ha_stream *s, const struct ha_device_digest_score *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "digest_score" };
    const size_t rows = d->q_len * d->q_heads, q = rows * d->head_dim * sizeof(float), heads = d->kv_heads;
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)d->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "digests of an unknown type");
    if (heads == 0 || d->q_heads % heads != 0)
        return ha_cuda_fail_on(s, span.name, "%zu query heads are no multiple of %zu KV heads", d->q_heads, heads);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_score_seq *seq = &d->seqs[b];
        const size_t digests = ha_digest_bytes(seq->blocks, d->head_dim, d->dtype),
                     scores = times(extent(rows, seq->s_stride, seq->blocks), sizeof(float));
        HA_TRY(operand(s, &span, "q", seq->q, q, q));
        HA_TRY(operand(s, &span, "digests", seq->digests, digests ? extent(heads, seq->head_bytes, digests) : 0,
                       heads * digests));
        HA_TRY(operand(s, &span, "scores", seq->s, seq->blocks ? scores : 0, 0));
    }
    if (d->batch * rows == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_digest_score(s->cuda, d));
}

enum ha_status ha_cuda_topk_enqueue(struct ha_stream *s, const struct ha_device_topk *t)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "topk" };
    const size_t f = sizeof(float), rows = t->lists * t->rows;
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (t->rows == 0) return ha_cuda_fail_on(s, span.name, "lists of no rows");
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topk_seq *seq = &t->seqs[b];
        const size_t chosen = seq->k < seq->n ? seq->k : seq->n;
        if (seq->n > INT32_MAX)
            return ha_cuda_fail_on(s, span.name, "lists of %zu; the kernels take less than 2^31", seq->n);
        HA_TRY(operand(s, &span, "x", seq->x, seq->n ? times(extent(rows, seq->stride, seq->n), f) : 0,
                       rows * seq->n * f));
        HA_TRY(operand(s, &span, "index", seq->index,
                       chosen ? times(extent(t->lists, seq->index_stride, chosen), sizeof *seq->index) : 0, 0));
        if (seq->keys) HA_TRY(operand(s, &span, "keys", seq->keys, times(t->lists, sizeof *seq->keys), 0));
        if (seq->only)
            HA_TRY(
                operand(s, &span, "only", seq->only, times(t->lists, sizeof *seq->only), t->lists * sizeof *seq->only));
        if (seq->keys && !(seq->within >= 0))
            return ha_cuda_fail_on(s, span.name, "within %g of the largest", (double)seq->within);
    }
    if (t->batch * t->lists == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_topk(s->cuda, t));
}

enum ha_status ha_cuda_split_enqueue(struct ha_stream *s, const struct ha_device_split *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "split" };
    const size_t w = sizeof(uint32_t), counts = times(d->lists, w);
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (d->lists && d->tables == 0) return ha_cuda_fail_on(s, span.name, "lists of no table");
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_split_seq *seq = &d->seqs[b];
        const size_t listed = d->lists * seq->count * w,
                     index = listed ? times(extent(d->lists, seq->index_stride, seq->count), w) : 0,
                     slot = listed ? times(extent(d->tables, seq->slot_stride, seq->blocks), w) : 0,
                     out = listed ? times(extent(d->lists, seq->out_stride, seq->count), w) : 0;
        if (seq->count > INT32_MAX)
            return ha_cuda_fail_on(s, span.name, "lists of %zu; the kernel takes less than 2^31", seq->count);
        if (seq->out_stride < seq->count && d->lists > 1)
            return ha_cuda_fail_on(s, span.name, "rows of %zu for lists of %zu", seq->out_stride, seq->count);
        HA_TRY(operand(s, &span, "index", seq->index, index, listed));
        HA_TRY(operand(s, &span, "slot", seq->slot, slot, listed));
        HA_TRY(operand(s, &span, "here", seq->here, out, 0));
        HA_TRY(operand(s, &span, "here_count", seq->here_count, counts, 0));
        if (seq->missing) HA_TRY(operand(s, &span, "missing", seq->missing, out, 0));
        if (seq->missing_count) HA_TRY(operand(s, &span, "missing_count", seq->missing_count, counts, 0));
    }
    if (d->batch * d->lists == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_split(s->cuda, d));
}

enum ha_status ha_cuda_rotate_enqueue(struct ha_stream *s, const struct ha_device_rotate *r)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "rotate" };
    const size_t f = sizeof(float), row = r->heads * r->head_dim * f, q = times(r->tokens, row),
                 turn = r->tokens * r->rotary * f;
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (r->turn && (r->rotary > r->head_dim || r->rotary % 2))
        return ha_cuda_fail_on(s, span.name, "%zu of %zu dimensions are turned in pairs", r->rotary, r->head_dim);
    HA_TRY(operand(s, &span, "q", r->q, q, q));
    if (r->bias) HA_TRY(operand(s, &span, "bias", r->bias, row, row));
    if (r->norm) HA_TRY(operand(s, &span, "norm", r->norm, r->head_dim * f, r->head_dim * f));
    if (r->turn) HA_TRY(operand(s, &span, "turn", r->turn, turn, turn));
    if (q == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_rotate(s->cuda, r));
}

static enum ha_status check_groups(struct ha_stream *s, const char *operation, size_t heads, size_t kv_heads,
                                   size_t head_dim)
{
    if (kv_heads == 0 || heads % kv_heads != 0)
        return ha_cuda_fail_on(s, operation, "%zu heads are no multiple of %zu KV heads", heads, kv_heads);
    return head_dim ? HA_OK : ha_cuda_fail_on(s, operation, "rows of no elements");
}

enum ha_status ha_cuda_columns_enqueue(struct ha_stream *s, const struct ha_device_columns *c)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "columns" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)c->x_type >= HA_DTYPE_COUNT || (unsigned)c->y_type >= HA_DTYPE_COUNT)
        return ha_cuda_fail_on(s, span.name, "rows of an unknown type");
    HA_TRY(check_groups(s, span.name, c->heads, c->kv_heads, c->head_dim));
    const size_t e = ha_dtype_bytes(c->y_type), a = c->kv_heads * c->columns * c->head_dim * sizeof *c->a;
    HA_TRY(operand(s, &span, "a", c->a, a, a));
    for (size_t b = 0; b < c->batch; b++) {
        const struct ha_device_columns_seq *seq = &c->seqs[b];
        const size_t x = times(seq->tokens, c->heads * c->head_dim * ha_dtype_bytes(c->x_type)),
                     heads = extent(c->heads, times(seq->y_head_stride, e), c->columns * e);
        HA_TRY(operand(s, &span, "x", seq->x, x, x));
        HA_TRY(operand(s, &span, "y", seq->y,
                       c->columns ? extent(seq->tokens, times(seq->y_token_stride, e), heads) : 0, 0));
    }
    if (c->batch * c->heads * c->columns == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_columns(s->cuda, c));
}

enum ha_status ha_cuda_score_enqueue(struct ha_stream *s, const struct ha_device_score *d)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "score" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if ((unsigned)d->dtype >= HA_DTYPE_COUNT) return ha_cuda_fail_on(s, span.name, "rows of an unknown type");
    HA_TRY(check_groups(s, span.name, d->q_heads, d->kv_heads, d->head_dim));
    const size_t queries = d->q_len * d->q_heads, q = queries * d->head_dim * sizeof(float),
                 key = d->head_dim * ha_dtype_bytes(d->dtype), heads = d->kv_heads;
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_rows_seq *seq = &d->seqs[b];
        const size_t keys = seq->rows.keys, index = keys * sizeof(uint32_t),
                     k = extent(heads, seq->k_head_bytes,
                                extent(seq->rows.index ? 1 : keys, seq->rows.k_stride_bytes, key)),
                     scores = times(extent(queries, seq->s_stride, keys), sizeof(float));
        HA_TRY(operand(s, &span, "q", seq->q, q, q));
        HA_TRY(operand(s, &span, "K", seq->rows.k, keys ? k : 0, heads * keys * key));
        if (seq->rows.index) HA_TRY(operand(s, &span, "index", seq->rows.index, index, heads * index));
        HA_TRY(operand(s, &span, "scores", seq->s, keys ? scores : 0, 0));
    }
    if (d->batch * queries == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_score(s->cuda, d));
}

enum ha_status ha_cuda_features_enqueue(struct ha_stream *s, const struct ha_device_features *f)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "features" };
    const size_t one = HA_FEATURES * sizeof(float), all = times(f->q_heads, one), lse = f->q_heads * sizeof(float),
                 row = f->head_dim * sizeof(float), q = times(f->q_heads, row), mean_k = times(f->kv_heads, row);
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (f->kv_heads == 0 || f->q_heads % f->kv_heads != 0)
        return ha_cuda_fail_on(s, span.name, "%zu query heads are no multiple of %zu KV heads", f->q_heads,
                               f->kv_heads);
    HA_TRY(operand(s, &span, "mean", f->mean, one, one));
    HA_TRY(operand(s, &span, "inv", f->inv, one, one));
    for (size_t b = 0; b < f->batch; b++) {
        const struct ha_device_features_seq *seq = &f->seqs[b];
        HA_TRY(operand(s, &span, "q", seq->q, q, q));
        HA_TRY(operand(s, &span, "known", seq->known, all, all));
        HA_TRY(operand(s, &span, "anchor", seq->anchor, q, q));
        HA_TRY(operand(s, &span, "mean of K", seq->mean_k, mean_k, mean_k));
        for (size_t i = 0; i < 2; i++) {
            HA_TRY(operand(s, &span, "o", seq->o[i], q, q));
            HA_TRY(operand(s, &span, "lse", seq->lse[i], lse, lse));
        }
        HA_TRY(operand(s, &span, "x", seq->x, all, 0));
    }
    if (f->batch * f->q_heads == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_features(s->cuda, f));
}

enum ha_status ha_cuda_net_enqueue(struct ha_stream *s, const struct ha_net *n)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "net" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (!ha_net_fits(n))
        return ha_cuda_fail_on(s, span.name, "1 to %d layers of 1 to %d numbers", HA_NET_LAYERS_MAX, HA_NET_WIDTH_MAX);
    const size_t w = ha_net_weights(n) * sizeof(float), x = times(n->rows, n->width[0] * sizeof(float)),
                 y = times(n->rows, n->width[n->layers] * sizeof(float));
    HA_TRY(operand(s, &span, "w", n->w, w, w));
    HA_TRY(operand(s, &span, "x", n->x, x, x));
    HA_TRY(operand(s, &span, "y", n->y, y, 0));
    if (n->rows == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_net(s->cuda, n));
}

/* ---- measuring */

enum ha_status ha_cuda_read_enqueue(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "read" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_TRY(operand(s, &span, "source", ptr, bytes, bytes));
    HA_TRY(operand(s, &span, "sum", sum, sizeof *sum, 0));
    if (bytes % sizeof(uint32_t) || (uintptr_t)ptr % sizeof(uint32_t))
        return ha_cuda_fail_on(s, span.name, "%zu bytes at %p are no array of 32-bit words", bytes, ptr);
    if (bytes == 0) return HA_OK;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_read(s->device->multiprocessors, s->cuda, ptr, bytes, sum));
}

enum ha_status ha_cuda_spin_enqueue(struct ha_stream *s, uint64_t ns)
{
    static const struct ha_cuda_span span = { .kind = HA_SPAN_KERNEL, .name = "spin" };
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    HA_CUDA_ENQUEUE(s, &span, ha_cuda_spin(s->cuda, ns));
}

/* ---- graphs */

enum ha_status ha_cuda_graph_launch(struct ha_graph *g, struct ha_stream *s)
{
    const struct ha_cuda_span span = {
        .kind = HA_SPAN_KERNEL, .name = "graph_launch", .zero_copy_bytes = g->zero_copy_bytes, .graph = g
    };
    if (g->device != s->device) return ha_cuda_fail_on(s, span.name, "a graph of another device");
    if (!__atomic_load_n(&g->live, __ATOMIC_ACQUIRE)) return ha_cuda_fail_on(s, span.name, "the graph was destroyed");
    if (ha_cuda_failed(s->device)) return HA_ERROR;
    if (s->graph)
        return ha_cuda_fail_on(s, span.name,
                               "between graph_begin and graph_end, and a graph of this device holds no other");
    ha_cuda_waits_launched(s->device, &g->waits, s);
    HA_CUDA_ENQUEUE(s, &span, cudaGraphLaunch(g->exec, s->cuda));
}
