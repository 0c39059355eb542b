/* Copies, host functions, kernels and graphs: each checks its operands and enqueues. */

#include "kernels/cuda/cuda.h"
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

static struct ha_cuda_check check_begin(struct ha_stream *s, const char *operation)
{
    return (struct ha_cuda_check){ .stream = s,
                                   .span = { .kind = HA_SPAN_KERNEL, .name = operation },
                                   .wrong = ha_cuda_failed(s->device) };
}

#define HA_CUDA_FILE(file)
#define HA_CUDA_OPERATION(name, arguments)                                                     \
    enum ha_status ha_cuda_##name##_enqueue(struct ha_stream *s, const struct arguments *args) \
    {                                                                                          \
        struct ha_cuda_check c = check_begin(s, #name);                                        \
        const bool any = !c.wrong && ha_cuda_##name##_check(&c, args);                         \
        if (c.wrong || !any) return c.wrong ? HA_ERROR : HA_OK;                                \
        HA_CUDA_ENQUEUE(s, &c.span, ha_cuda_##name(s->cuda, args));                            \
    }
#include "kernels/cuda/operations.def"

enum { DIM_STEP = 8, DIM_MAX = HA_CUDA_DIM_MAX };

static void takes_run(struct ha_cuda_check *c, const struct ha_device_attend *a, const struct ha_device_seq *seq,
                      const struct ha_rows *run)
{
    const size_t key_bytes = a->head_dim * ha_dtype_bytes(a->dtype), heads = a->kv_heads, units = ha_seq_units(a),
                 read = units * run->keys * key_bytes, block = a->block ? a->block : 1,
                 indices = (run->keys + block - 1) / block, lists = a->lists && run == seq->runs ? units : 1,
                 rows = run->index ? 1 : run->keys;
    ha_cuda_takes_rows(c, "K", run->k, run->index,
                       extent(heads, seq->k_head_bytes, extent(rows, run->k_stride_bytes, key_bytes)), read);
    ha_cuda_takes_rows(c, "V", run->v, run->index,
                       extent(heads, seq->v_head_bytes, extent(rows, run->v_stride_bytes, key_bytes)), read);
    if (run->index)
        ha_cuda_takes(c, "index", run->index, times(extent(lists, seq->list_stride, indices), sizeof *run->index),
                      units * indices * sizeof *run->index);
}

static bool check_seq(struct ha_cuda_check *c, const struct ha_device_attend *a, const struct ha_device_seq *seq)
{
    const size_t rows = a->q_len * a->q_heads, q_read = rows * a->head_dim * sizeof(float),
                 q_head = extent(a->q_heads, ha_seq_head_stride(a), a->head_dim),
                 q_bytes = rows ? times(extent(a->q_len, ha_seq_token_stride(a), q_head), sizeof(float)) : 0,
                 listed = a->lists && seq->list_keys ? a->lists * sizeof *seq->list_keys : 0;
    size_t keys = 0;
    if (seq->runs_count > HA_RUNS_MAX) return ha_cuda_refuse(c, "%zu runs, at most %d", seq->runs_count, HA_RUNS_MAX);
    if (a->lists && (seq->runs_count < 1 + (size_t)a->causal || !seq->runs[0].index))
        return ha_cuda_refuse(c, "lists, and the first run %s",
                              seq->runs_count && !seq->runs[0].index ? "has no index" : "is the last, or none");
    if (listed && seq->weights) return ha_cuda_refuse(c, "no weights where list_keys says how many keys there are");
    for (size_t r = 0; r < seq->runs_count; r++) {
        keys += seq->runs[r].keys;
        if (seq->runs[r].keys) takes_run(c, a, seq, &seq->runs[r]);
    }
    if (a->causal && (seq->runs_count == 0 || seq->runs[seq->runs_count - 1].keys < a->q_len))
        return ha_cuda_refuse(c, "causal, and the last run is shorter than the %zu query tokens", a->q_len);
    if (seq->weights && seq->weights_stride < keys)
        return ha_cuda_refuse(c, "the weights of a head are further apart than weights_stride");
    ha_cuda_takes(c, "q", seq->q, q_bytes, q_read);
    ha_cuda_takes(c, "o", seq->o, q_bytes, 0);
    ha_cuda_takes(c, "lse", seq->lse, rows * sizeof(float), 0);
    ha_cuda_takes(c, "list_keys", seq->list_keys, listed, listed);
    if (seq->weights)
        ha_cuda_takes(c, "weights", seq->weights, times(extent(a->q_heads, seq->weights_stride, keys), sizeof(float)),
                      0);
    return !c->wrong;
}

static bool check_attend(struct ha_cuda_check *c, const struct ha_device_attend *a)
{
    if (c->wrong || !ha_cuda_heads_fit(c, "query heads", a->q_heads, a->kv_heads)) return false;
    if (a->lists && a->lists != a->kv_heads && a->lists != a->q_heads)
        return ha_cuda_refuse(c, "%zu lists, for %zu KV heads and %zu query heads", a->lists, a->kv_heads, a->q_heads);
    if (!ha_cuda_type_fits(c, "K and V", a->dtype)) return false;
    if (a->head_dim == 0 || a->head_dim > DIM_MAX || a->head_dim % DIM_STEP)
        return ha_cuda_refuse(c, "heads of %zu elements; the kernels take multiples of %d, up to %d", a->head_dim,
                              DIM_STEP, DIM_MAX);
    for (size_t b = 0; b < a->batch; b++)
        if (!check_seq(c, a, &a->seqs[b])) return false;
    return true;
}

enum ha_status ha_cuda_attend_enqueue(struct ha_stream *s, const struct ha_device_attend *args)
{
    struct ha_cuda_check c = check_begin(s, "attend");
    const unsigned multiprocessors = s->device->multiprocessors;
    if (!check_attend(&c, args)) return HA_ERROR;
    if (args->batch * args->q_len * args->q_heads == 0) return HA_OK;
    ha_cuda_enter();
    const size_t bytes = ha_cuda_attend_workspace(multiprocessors, args);
    void *workspace = ha_cuda_workspace(s, bytes);
    if (!workspace) return HA_ERROR;
    HA_CUDA_ENQUEUE(s, &c.span, ha_cuda_attend(multiprocessors, s->cuda, args, workspace, 0));
}

enum ha_status ha_cuda_attend_products_enqueue(struct ha_stream *s, const struct ha_device_attend *args)
{
    struct ha_cuda_check c = check_begin(s, "attend_products");
    c.span.library = true;
    if (!check_attend(&c, args)) return HA_ERROR;
    if (args->batch * args->q_len * args->q_heads == 0) return HA_OK;
    void *ticket = ha_cuda_begin(s, &c.span);
    enum ha_status status = ha_cuda_attend_products(s, args);
    ha_cuda_end(s, ticket, cudaSuccess, "", &c.span);
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

enum ha_status ha_cuda_move_enqueue(struct ha_stream *s, const struct ha_device_move *m)
{
    struct ha_cuda_check c = check_begin(s, "move");
    const size_t bytes = times(m->rows, m->row_bytes), index_bytes = times(m->rows, sizeof *m->dst_index);
    if (c.wrong) return HA_ERROR;
    if (bytes == 0) return HA_OK;
    if (bytes == SIZE_MAX) ha_cuda_refuse(&c, "%zu rows of %zu bytes", m->rows, m->row_bytes);
    if (m->dst_index) ha_cuda_takes(&c, "destination index", m->dst_index, index_bytes, index_bytes);
    if (m->src_index) ha_cuda_takes(&c, "source index", m->src_index, index_bytes, index_bytes);
    ha_cuda_takes_rows(&c, "destination", m->dst, m->dst_index,
                       extent(m->dst_index ? 1 : m->rows, m->dst_stride_bytes, m->row_bytes), bytes);
    ha_cuda_takes_rows(&c, "source", m->src, m->src_index,
                       extent(m->src_index ? 1 : m->rows, m->src_stride_bytes, m->row_bytes), bytes);
    if (m->rows > 1 && m->dst_stride_bytes < m->row_bytes)
        ha_cuda_refuse(&c, "rows of %zu bytes at stride %zu overlap", m->row_bytes, m->dst_stride_bytes);
    if (c.wrong) return HA_ERROR;
    HA_CUDA_ENQUEUE(s, &c.span, ha_cuda_move(s->device->multiprocessors, s->cuda, m));
}

/* ---- measuring */

enum ha_status ha_cuda_read_enqueue(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    struct ha_cuda_check c = check_begin(s, "read");
    ha_cuda_takes(&c, "source", ptr, bytes, bytes);
    ha_cuda_takes(&c, "sum", sum, sizeof *sum, 0);
    if (bytes % sizeof(uint32_t) || (uintptr_t)ptr % sizeof(uint32_t))
        ha_cuda_refuse(&c, "%zu bytes at %p are no array of 32-bit words", bytes, ptr);
    if (c.wrong || bytes == 0) return c.wrong ? HA_ERROR : HA_OK;
    HA_CUDA_ENQUEUE(s, &c.span, ha_cuda_read(s->device->multiprocessors, s->cuda, ptr, bytes, sum));
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
