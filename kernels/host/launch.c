/* Copies, host functions, kernels and graphs: each checks its operands, is queued, and runs on its stream's thread. */

#include "harness/base/seq_attend.h"
#include "harness/base/why.h"
#include "kernels/host/host.h"

#include <string.h>

/* ---- copies */

static void run_copy(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_host_copy *c = &op->u.copy;
    for (size_t r = 0; r < c->rows; r++) memcpy(c->dst + r * c->dst_stride, c->src + r * c->src_stride, c->row_bytes);
}

enum ha_status ha_host_copy_fits(struct ha_stream *s, const char *operation, const struct ha_host_copy *c,
                                 enum ha_direction dir)
{
    const unsigned host = HA_AT_PINNED | HA_AT_MAPPED | HA_AT_PAGEABLE;
    const size_t dst_bytes = ha_host_extent(c->rows, c->dst_stride, c->row_bytes),
                 src_bytes = ha_host_extent(c->rows, c->src_stride, c->row_bytes);
    if (!ha_host_operand(s, operation, "destination", c->dst, dst_bytes, dir == HA_D2H ? host : HA_AT_DEVICE)
        || !ha_host_operand(s, operation, "source", c->src, src_bytes, dir == HA_H2D ? host : HA_AT_DEVICE))
        return HA_ERROR;
    if (c->rows == 1 && ha_host_overlap(c->dst, c->src, c->row_bytes))
        return ha_host_fail(s->device, "%s on %s: source %p and destination %p overlap", operation, s->lane,
                            (const void *)c->src, (void *)c->dst);
    return HA_OK;
}

static enum ha_status copy(struct ha_stream *s, const struct ha_host_verb *verb, struct ha_host_copy c,
                           enum ha_direction dir)
{
    HA_TRY(ha_host_copy_fits(s, verb->name, &c, dir));
    if (c.rows && c.dst_stride == c.row_bytes && c.src_stride == c.row_bytes) {
        c.row_bytes *= c.rows;
        c.rows = 1;
    }
    struct ha_host_op op = { .verb = verb, .bytes = c.row_bytes * c.rows, .u.copy = c };
    return ha_host_enqueue(s, &op);
}

enum ha_status ha_host_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    static const struct ha_host_verb verb[] = HA_HOST_COPIES("copy", run_copy);
    return copy(s, &verb[dir], (struct ha_host_copy){ dst, src, bytes, bytes, bytes, 1 }, dir);
}

enum ha_status ha_host_copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                               size_t row_bytes, size_t rows, enum ha_direction dir)
{
    static const struct ha_host_verb verb[] = HA_HOST_COPIES("copy_2d", run_copy);
    if (rows > 1 && (dst_stride < row_bytes || src_stride < row_bytes))
        return ha_host_fail(s->device, "%s on %s: rows of %zu bytes at strides %zu and %zu overlap", verb[dir].name,
                            s->lane, row_bytes, dst_stride, src_stride);
    return copy(s, &verb[dir], (struct ha_host_copy){ dst, src, dst_stride, src_stride, row_bytes, rows }, dir);
}

/* ---- host functions */

static void run_host(struct ha_stream *s, const struct ha_host_op *op) { op->u.host.fn(op->u.host.arg); }

enum ha_status ha_host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    static const struct ha_host_verb verb = { .name = "host_fn", .kind = HA_SPAN_CPU, .run = run_host };
    struct ha_host_op op = { .verb = &verb, .u.host = { fn, arg } };
    return ha_host_enqueue(s, &op);
}

/* ---- kernels */

enum ha_place ha_host_kernel_operand(struct ha_stream *s, struct ha_host_op *op, const char *role, const void *ptr,
                                     size_t bytes, size_t read_bytes)
{
    enum ha_place place = ha_host_operand(s, op->verb->name, role, ptr, bytes, HA_AT_DEVICE | HA_AT_MAPPED);
    if (place == HA_AT_MAPPED) op->zero_copy_bytes += read_bytes;
    return place;
}

static void run_attend(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_kernels *kernels = &s->device->kernels;
    const struct ha_device_attend *a = &op->u.attend;
    const struct ha_device_seq *seqs = op->array;
    for (size_t b = 0; b < a->batch; b++)
        for (size_t unit = 0; unit < ha_seq_units(a); unit++) {
            struct ha_rows runs[HA_RUNS_MAX];
            struct ha_attend part = ha_seq_attend(a, &seqs[b], unit, runs);
            part.scratch = op->scratch;
            kernels->attend(kernels, &part);
        }
}

/* Where the rows of an index lie is known when the kernel runs: of them, the first possible one is looked at. */
static enum ha_status run_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_device_attend *a,
                               const struct ha_device_seq *seq, const struct ha_rows *run)
{
    const bool lists = a->lists && run == seq->runs;
    const size_t key_bytes = a->head_dim * ha_dtype_bytes(a->dtype), heads = a->kv_heads, units = ha_seq_units(a),
                 read = units * run->keys * key_bytes, rows = run->index ? 1 : run->keys,
                 block = a->block ? a->block : 1, entries = (run->keys + block - 1) / block,
                 index = ha_host_extent(lists ? units : 1, seq->list_stride, entries) * sizeof *run->index;
    const size_t k_bytes = ha_host_extent(heads, seq->k_head_bytes,
                                          ha_host_extent(rows, run->k_stride_bytes, key_bytes)),
                 v_bytes = ha_host_extent(heads, seq->v_head_bytes,
                                          ha_host_extent(rows, run->v_stride_bytes, key_bytes));
    return ha_host_kernel_operand(s, op, "K", run->k, k_bytes, read)
                   && ha_host_kernel_operand(s, op, "V", run->v, v_bytes, read)
                   && (!run->index
                       || ha_host_kernel_operand(s, op, "index", run->index, index,
                                                 units * entries * sizeof *run->index))
               ? HA_OK
               : HA_ERROR;
}

static enum ha_status seq_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_device_attend *a,
                               const struct ha_device_seq *seq)
{
    const size_t rows = a->q_len * a->q_heads, read = rows * a->head_dim * sizeof(float),
                 q_bytes = ha_host_extent(a->q_len, ha_seq_token_stride(a),
                                          ha_host_extent(a->q_heads, ha_seq_head_stride(a), a->head_dim))
                           * sizeof(float),
                 listed = seq->list_keys ? a->lists * sizeof *seq->list_keys : 0;
    size_t keys = 0;
    if (seq->runs_count > HA_RUNS_MAX)
        return ha_host_fail(s->device, "%s on %s: %zu runs, at most %d", op->verb->name, s->lane, seq->runs_count,
                            HA_RUNS_MAX);
    if (a->lists && (seq->runs_count < 1 + (size_t)a->causal || !seq->runs[0].index))
        return ha_host_fail(s->device, "%s on %s: lists, and the first run %s", op->verb->name, s->lane,
                            seq->runs_count && !seq->runs[0].index ? "has no index" : "is the last, or none");
    if (a->lists && seq->list_keys && seq->weights)
        return ha_host_fail(s->device, "%s on %s: no weights where list_keys says how many keys there are",
                            op->verb->name, s->lane);
    for (size_t r = 0; r < seq->runs_count; r++) {
        keys += seq->runs[r].keys;
        if (seq->runs[r].keys) HA_TRY(run_fits(s, op, a, seq, &seq->runs[r]));
    }
    if (a->causal && (seq->runs_count == 0 || seq->runs[seq->runs_count - 1].keys < a->q_len))
        return ha_host_fail(s->device, "%s on %s: causal, and the last run is shorter than the %zu query tokens",
                            op->verb->name, s->lane, a->q_len);
    const size_t weights_bytes = seq->weights ? sizeof(float) * ha_host_extent(a->q_heads, seq->weights_stride, keys)
                                              : 0;
    return ha_host_kernel_operand(s, op, "q", seq->q, rows ? q_bytes : 0, read)
                   && ha_host_kernel_operand(s, op, "o", seq->o, rows ? q_bytes : 0, 0)
                   && ha_host_kernel_operand(s, op, "lse", seq->lse, rows * sizeof(float), 0)
                   && ha_host_kernel_operand(s, op, "weights", seq->weights, weights_bytes, 0)
                   && ha_host_kernel_operand(s, op, "list_keys", seq->list_keys, a->lists ? listed : 0, listed)
               ? HA_OK
               : HA_ERROR;
}

enum ha_status ha_host_attend_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_device_attend *args)
{
    if (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0)
        return ha_host_fail(s->device, "%s on %s: %zu query heads are no multiple of %zu KV heads", op->verb->name,
                            s->lane, args->q_heads, args->kv_heads);
    if (args->lists && args->lists != args->kv_heads && args->lists != args->q_heads)
        return ha_host_fail(s->device, "%s on %s: %zu lists, for %zu KV heads and %zu query heads", op->verb->name,
                            s->lane, args->lists, args->kv_heads, args->q_heads);
    for (size_t b = 0; b < args->batch; b++) HA_TRY(seq_fits(s, op, args, &args->seqs[b]));
    return HA_OK;
}

enum ha_status ha_host_attend(struct ha_stream *s, const struct ha_device_attend *args)
{
    static const struct ha_host_verb verb = { .name = "attend", .kind = HA_SPAN_KERNEL, .run = run_attend };
    struct ha_host_op op = { .verb = &verb,
                             .array = args->seqs,
                             .array_bytes = args->batch * sizeof *args->seqs,
                             .scratch_bytes = 1,
                             .u.attend = *args };
    HA_TRY(ha_host_attend_fits(s, &op, args));
    for (size_t b = 0; b < args->batch; b++) {
        struct ha_rows runs[HA_RUNS_MAX];
        struct ha_device_seq longest = args->seqs[b];
        longest.list_keys = NULL; /* it is read when the kernel runs */
        struct ha_attend part = ha_seq_attend(args, &longest, 0, runs);
        size_t bytes = s->device->kernels.attend_scratch_bytes(&part);
        if (bytes > op.scratch_bytes) op.scratch_bytes = bytes;
    }
    return ha_host_enqueue(s, &op);
}

static void run_merge(struct ha_stream *s, const struct ha_host_op *op)
{
    struct ha_merge merge = op->u.merge;
    merge.states = op->array;
    s->device->kernels.merge(&merge);
}

/* One state, or where the result goes: read is then false. */
static bool state_fits(struct ha_stream *s, struct ha_host_op *op, const struct ha_merge *m,
                       const struct ha_merge_state *state, bool read)
{
    static const char *const role[2][3] = { { "o", "lse", "sum" },
                                            { "o of a state", "lse of a state", "sum of a state" } };
    const size_t rows = m->tokens * m->heads, element = ha_merge_o_bytes(m, !read), f = sizeof(float);
    const size_t o = ha_host_extent(m->tokens, state->o_token_stride,
                                    ha_host_extent(m->heads, state->o_head_stride, m->dim))
                     * element;
    const size_t lse = ha_host_extent(m->tokens, state->lse_token_stride,
                                      ha_host_extent(m->heads, state->lse_head_stride, 1))
                       * f;
    const size_t o_read = read ? rows * m->dim * element : 0, lse_read = read ? rows * f : 0;
    return ha_host_kernel_operand(s, op, role[read][0], state->o, rows && m->dim ? o : 0, o_read)
           && ha_host_kernel_operand(s, op, role[read][1], state->lse, rows ? lse : 0, lse_read)
           && (m->form != HA_FORM_MAX_SUM
               || ha_host_kernel_operand(s, op, role[read][2], state->sum, rows ? lse : 0, lse_read));
}

enum ha_status ha_host_merge(struct ha_stream *s, const struct ha_merge *args)
{
    static const struct ha_host_verb verb = { .name = "merge", .kind = HA_SPAN_KERNEL, .run = run_merge };
    const struct ha_merge_traits *traits = &s->device->kernels.traits;
    struct ha_host_op op = {
        .verb = &verb, .array = args->states, .array_bytes = args->states_count * sizeof *args->states, .u.merge = *args
    };
    if (args->states_count > HA_HOST_STATES_MAX)
        return ha_host_fail(s->device, "merge on %s: %zu states, at most %d", s->lane, args->states_count,
                            HA_HOST_STATES_MAX);
    if ((unsigned)args->form >= HA_FORM_COUNT || (unsigned)args->dtype >= HA_DTYPE_COUNT
        || !(traits->forms >> args->form & 1) || !(traits->dtypes >> args->dtype & 1))
        return ha_host_fail(s->device, "merge on %s: the kernels do not merge form %d of type %d", s->lane,
                            (int)args->form, (int)args->dtype);
    if (args->fp8 && ((unsigned)args->fp8 >= HA_FP8_COUNT || !(traits->fp8 >> args->fp8 & 1) || !(args->fp8_scale > 0)))
        return ha_host_fail(s->device, "merge on %s: the kernels do not make fp8 of type %d and scale %g", s->lane,
                            (int)args->fp8, (double)args->fp8_scale);
    for (size_t i = 0; i < args->states_count; i++)
        if (!state_fits(s, &op, args, &args->states[i], true)) return HA_ERROR;
    if (!state_fits(s, &op, args, &args->out, false)) return HA_ERROR;
    return ha_host_enqueue(s, &op);
}

static void run_blend(struct ha_stream *s, const struct ha_host_op *op)
{
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
    const size_t f = sizeof(float), bytes = args->rows * args->cols * f,
                 y_bytes = ha_host_extent(args->rows, args->y_stride, args->cols) * f,
                 x_bytes = ha_host_extent(args->rows, args->x_stride, args->cols) * f;
    if (!ha_host_kernel_operand(s, &op, "y", args->y, y_bytes, args->a != 0.0f ? bytes : 0)
        || !ha_host_kernel_operand(s, &op, "x", args->x, x_bytes, bytes))
        return HA_ERROR;
    return ha_host_enqueue(s, &op);
}

/* ---- graphs */

/* Behind the launch before, on whichever stream. */
static enum ha_status launch_in_turn(struct ha_graph *g, struct ha_stream *s)
{
    if (g->last && g->last != s && !s->capture) HA_TRY(ha_host_stream_follow(s, g->last, g->ticket));
    for (const struct ha_host_kept *k = g->head; k; k = k->next) HA_TRY(ha_host_enqueue(s, &k->op));
    if (s->capture) return HA_OK;
    g->last = s;
    g->ticket = ha_host_stream_enqueued(s);
    return HA_OK;
}

enum ha_status ha_host_graph_launch(struct ha_graph *g, struct ha_stream *s)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* several threads may launch one */
    if (g->device != s->device)
        return ha_host_fail(s->device, "graph_launch on %s: a graph of another device", s->lane);
    if (!__atomic_load_n(&g->live, __ATOMIC_ACQUIRE))
        return ha_host_fail(s->device, "graph_launch on %s: the graph was destroyed", s->lane);
    pthread_mutex_lock(&lock);
    const enum ha_status status = launch_in_turn(g, s);
    pthread_mutex_unlock(&lock);
    return ha_host_failed(s->device) ? HA_ERROR : status;
}
