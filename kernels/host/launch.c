/* Copies, host functions, kernels and graphs: each checks its operands, is queued, and runs on its stream's thread. */

#include "harness/base/seq_attend.h"
#include "kernels/host/host.h"

#include <string.h>

/* bytes from the first element of the first row to the last of the last */
static size_t extent(size_t rows, size_t stride, size_t row_bytes)
{
    return rows ? (rows - 1) * stride + row_bytes : 0;
}

/* ---- copies */

static void run_copy(struct ha_stream *s, const struct ha_host_op *op, const void *array)
{
    (void)s, (void)array;
    char *dst = op->u.copy.dst;
    const char *src = op->u.copy.src;
    for (size_t row = 0; row < op->u.copy.rows; row++) {
        memcpy(dst, src, op->u.copy.row_bytes);
        dst += op->u.copy.dst_stride;
        src += op->u.copy.src_stride;
    }
}

static enum ha_status copy(struct ha_stream *s, const struct ha_host_verb *verb, void *dst, size_t dst_stride,
                           const void *src, size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    const unsigned host = HA_AT_PINNED | HA_AT_MAPPED | HA_AT_PAGEABLE;
    size_t dst_bytes = extent(rows, dst_stride, row_bytes), src_bytes = extent(rows, src_stride, row_bytes);
    if (!ha_host_operand(s, verb->name, "destination", dst, dst_bytes, dir == HA_D2H ? host : HA_AT_DEVICE)
        || !ha_host_operand(s, verb->name, "source", src, src_bytes, dir == HA_H2D ? host : HA_AT_DEVICE))
        return HA_ERROR;
    if (dir == HA_D2D && rows == 1 && (uintptr_t)dst < (uintptr_t)src + row_bytes
        && (uintptr_t)src < (uintptr_t)dst + row_bytes && row_bytes)
        return ha_host_fail(s->device, "%s on %s: source %p and destination %p overlap", verb->name, s->lane, src, dst);
    if (rows && dst_stride == row_bytes && src_stride == row_bytes) {
        row_bytes *= rows;
        rows = 1;
    }
    struct ha_host_op op = { .verb = verb,
                             .bytes = row_bytes * rows,
                             .u.copy = { dst, src, dst_stride, src_stride, row_bytes, rows } };
    return ha_host_enqueue(s, &op, NULL, 0);
}

enum ha_status ha_host_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    static const struct ha_host_verb verb[] = {
        [HA_H2D] = { .name = "copy H2D", .kind = HA_SPAN_H2D, .on_link = true, .run = run_copy },
        [HA_D2H] = { .name = "copy D2H", .kind = HA_SPAN_D2H, .on_link = true, .run = run_copy },
        [HA_D2D] = { .name = "copy D2D", .kind = HA_SPAN_D2D, .run = run_copy },
    };
    return copy(s, &verb[dir], dst, bytes, src, bytes, bytes, 1, dir);
}

enum ha_status ha_host_copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                               size_t row_bytes, size_t rows, enum ha_direction dir)
{
    static const struct ha_host_verb verb[] = {
        [HA_H2D] = { .name = "copy_2d H2D", .kind = HA_SPAN_H2D, .on_link = true, .run = run_copy },
        [HA_D2H] = { .name = "copy_2d D2H", .kind = HA_SPAN_D2H, .on_link = true, .run = run_copy },
        [HA_D2D] = { .name = "copy_2d D2D", .kind = HA_SPAN_D2D, .run = run_copy },
    };
    if (rows > 1 && (dst_stride < row_bytes || src_stride < row_bytes))
        return ha_host_fail(s->device, "%s on %s: rows of %zu bytes at strides %zu and %zu overlap", verb[dir].name,
                            s->lane, row_bytes, dst_stride, src_stride);
    return copy(s, &verb[dir], dst, dst_stride, src, src_stride, row_bytes, rows, dir);
}

/* ---- host functions */

static void run_host(struct ha_stream *s, const struct ha_host_op *op, const void *array)
{
    (void)s, (void)array;
    op->u.host.fn(op->u.host.arg);
}

enum ha_status ha_host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    static const struct ha_host_verb verb = { .name = "host_fn", .kind = HA_SPAN_CPU, .run = run_host };
    struct ha_host_op op = { .verb = &verb, .u.host = { fn, arg } };
    return ha_host_enqueue(s, &op, NULL, 0);
}

/* ---- kernels: operands in device or mapped memory */

/* True if the kernel may use [ptr, ptr+bytes), of which it reads `read_bytes`: over the link, where that is
 * mapped memory. */
static bool operand(struct ha_stream *s, struct ha_host_op *op, const char *role, const void *ptr, size_t bytes,
                    size_t read_bytes)
{
    enum ha_place place = ha_host_operand(s, op->verb->name, role, ptr, bytes, HA_AT_DEVICE | HA_AT_MAPPED);
    if (place == HA_AT_MAPPED) op->zero_copy_bytes += read_bytes;
    return place != 0;
}

static void run_attend(struct ha_stream *s, const struct ha_host_op *op, const void *array)
{
    const struct ha_kernels *kernels = &s->device->kernels;
    const struct ha_device_attend *a = &op->u.attend;
    const struct ha_device_seq *seqs = array;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t head = 0; head < a->kv_heads; head++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend part = ha_seq_attend(a, &seqs[b], head, runs);
            part.scratch = op->scratch;
            kernels->attend(kernels, &part);
        }
}

static bool seq_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_device_attend *a,
                     const struct ha_device_seq *seq)
{
    const size_t key_bytes = a->head_dim * ha_dtype_bytes(a->dtype), heads = a->kv_heads;
    const size_t rows = a->q_len * a->q_heads, q_bytes = rows * a->head_dim * sizeof(float);
    size_t keys = 0;
    if (seq->runs_count > HA_RUNS_MAX) {
        ha_host_fail(s->device, "%s on %s: %zu runs, at most %d", op->verb->name, s->lane, seq->runs_count,
                     HA_RUNS_MAX);
        return false;
    }
    for (size_t r = 0; r < seq->runs_count; r++) {
        const struct ha_rows *run = &seq->runs[r];
        const size_t read = heads * run->keys * key_bytes;
        keys += run->keys;
        if (run->index) {
            ha_host_fail(s->device, "%s on %s: run %zu has an index, which a device does not follow", op->verb->name,
                         s->lane, r);
            return false;
        }
        if (run->keys == 0) continue;
        if (!operand(s, op, "K", run->k,
                     extent(heads, seq->k_head_bytes, extent(run->keys, run->k_stride_bytes, key_bytes)), read)
            || !operand(s, op, "V", run->v,
                        extent(heads, seq->v_head_bytes, extent(run->keys, run->v_stride_bytes, key_bytes)), read))
            return false;
    }
    if (a->causal && (seq->runs_count == 0 || seq->runs[seq->runs_count - 1].keys < a->q_len)) {
        ha_host_fail(s->device, "%s on %s: causal, and the last run is shorter than the %zu query tokens",
                     op->verb->name, s->lane, a->q_len);
        return false;
    }
    return operand(s, op, "q", seq->q, q_bytes, q_bytes) && operand(s, op, "o", seq->o, q_bytes, 0)
           && operand(s, op, "lse", seq->lse, rows * sizeof(float), 0)
           && (!seq->weights
               || operand(s, op, "weights", seq->weights, sizeof(float) * extent(a->q_heads, seq->weights_stride, keys),
                          0));
}

bool ha_host_attend_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_device_attend *args)
{
    if (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0) {
        ha_host_fail(s->device, "%s on %s: %zu query heads are no multiple of %zu KV heads", op->verb->name, s->lane,
                     args->q_heads, args->kv_heads);
        return false;
    }
    for (size_t b = 0; b < args->batch; b++)
        if (!seq_fits(s, op, args, &args->seqs[b])) return false;
    return true;
}

enum ha_status ha_host_attend(struct ha_stream *s, const struct ha_device_attend *args)
{
    static const struct ha_host_verb verb = { .name = "attend", .kind = HA_SPAN_KERNEL, .run = run_attend };
    struct ha_host_op op = { .verb = &verb, .scratch_bytes = 1, .u.attend = *args };
    if (!ha_host_attend_fits(s, &op, args)) return HA_ERROR;
    for (size_t b = 0; b < args->batch; b++) {
        struct ha_rows runs[HA_RUNS_MAX];
        struct ha_attend part = ha_seq_attend(args, &args->seqs[b], 0, runs);
        size_t bytes = s->device->kernels.attend_scratch_bytes(&part);
        if (bytes > op.scratch_bytes) op.scratch_bytes = bytes;
    }
    op.u.attend.seqs = NULL; /* run_attend gets the copy */
    return ha_host_enqueue(s, &op, args->seqs, args->batch * sizeof *args->seqs);
}

static void run_merge(struct ha_stream *s, const struct ha_host_op *op, const void *array)
{
    struct ha_merge merge = op->u.merge;
    merge.states = array;
    s->device->kernels.merge(&merge);
}

/* One state, or where the result goes: read is then false. */
static bool state_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_merge *m,
                       const struct ha_merge_state *state, bool read)
{
    static const char *const role[2][3] = { { "o", "lse", "sum" },
                                            { "o of a state", "lse of a state", "sum of a state" } };
    const size_t rows = m->tokens * m->heads, element = ha_dtype_bytes(m->dtype), f = sizeof(float);
    const size_t o = extent(m->tokens, state->o_token_stride, extent(m->heads, state->o_head_stride, m->dim)) * element;
    const size_t lse = extent(m->tokens, state->lse_token_stride, extent(m->heads, state->lse_head_stride, 1)) * f;
    return operand(s, op, role[read][0], state->o, rows && m->dim ? o : 0, read ? rows * m->dim * element : 0)
           && operand(s, op, role[read][1], state->lse, rows ? lse : 0, read ? rows * f : 0)
           && (m->form != HA_FORM_MAX_SUM
               || operand(s, op, role[read][2], state->sum, rows ? lse : 0, read ? rows * f : 0));
}

enum ha_status ha_host_merge(struct ha_stream *s, const struct ha_merge *args)
{
    static const struct ha_host_verb verb = { .name = "merge", .kind = HA_SPAN_KERNEL, .run = run_merge };
    const struct ha_merge_traits *traits = &s->device->kernels.traits;
    struct ha_host_op op = { .verb = &verb, .u.merge = *args };
    if (args->states_count > HA_HOST_STATES_MAX)
        return ha_host_fail(s->device, "merge on %s: %zu states, at most %d", s->lane, args->states_count,
                            HA_HOST_STATES_MAX);
    if ((unsigned)args->form >= HA_FORM_COUNT || (unsigned)args->dtype >= HA_DTYPE_COUNT
        || !(traits->forms >> args->form & 1) || !(traits->dtypes >> args->dtype & 1))
        return ha_host_fail(s->device, "merge on %s: the kernels do not merge form %d of type %d", s->lane,
                            (int)args->form, (int)args->dtype);
    for (size_t i = 0; i < args->states_count; i++)
        if (!state_fits(s, &op, args, &args->states[i], true)) return HA_ERROR;
    if (!state_fits(s, &op, args, &args->out, false)) return HA_ERROR;
    op.u.merge.states = NULL; /* run_merge gets the copy */
    return ha_host_enqueue(s, &op, args->states, args->states_count * sizeof *args->states);
}

static void run_blend(struct ha_stream *s, const struct ha_host_op *op, const void *array)
{
    (void)s, (void)array;
    const struct ha_device_blend *b = &op->u.blend;
    for (size_t row = 0; row < b->rows; row++) {
        float *y = b->y + row * b->y_stride;
        const float *x = b->x + row * b->x_stride;
        if (b->a != 0.0f)
            for (size_t i = 0; i < b->cols; i++) y[i] = b->a * y[i] + b->b * x[i];
        else
            for (size_t i = 0; i < b->cols; i++) y[i] = b->b * x[i];
    }
}

enum ha_status ha_host_blend(struct ha_stream *s, const struct ha_device_blend *args)
{
    static const struct ha_host_verb verb = { .name = "blend", .kind = HA_SPAN_KERNEL, .run = run_blend };
    struct ha_host_op op = { .verb = &verb, .u.blend = *args };
    const size_t f = sizeof(float);
    const size_t bytes = args->rows * args->cols * f;
    if (!operand(s, &op, "y", args->y, extent(args->rows, args->y_stride, args->cols) * f, args->a != 0.0f ? bytes : 0)
        || !operand(s, &op, "x", args->x, extent(args->rows, args->x_stride, args->cols) * f, bytes))
        return HA_ERROR;
    return ha_host_enqueue(s, &op, NULL, 0);
}

/* ---- graphs */

enum ha_status ha_host_graph_launch(struct ha_graph *g, struct ha_stream *s)
{
    if (g->device != s->device)
        return ha_host_fail(s->device, "graph_launch on %s: a graph of another device", s->lane);
    if (!__atomic_load_n(&g->live, __ATOMIC_ACQUIRE))
        return ha_host_fail(s->device, "graph_launch on %s: the graph was destroyed", s->lane);
    for (const struct ha_host_kept *k = g->head; k; k = k->next) {
        enum ha_status status = ha_host_enqueue(s, &k->op, k->array, k->array_bytes);
        if (status != HA_OK) return status;
    }
    return ha_host_failed(s->device) ? HA_ERROR : HA_OK;
}
