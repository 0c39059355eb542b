/* The embedded device as a plugin that does one thing wrong: HA_WRONG names it when the device is opened,
 * test_wrong.def lists them. Without it the device is sound. */

#include "harness/api/device.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct ha_device_api ha_device_host;
#define HOST ha_device_host

__attribute__((visibility("default"))) extern struct ha_device_api ha_device_api;
struct ha_device_api ha_device_api;

static char wrong[64]; /* what is done wrong */
#define IS(name) (!strcmp(wrong, #name))

static struct ha_device *device;         /* the one that was opened last */
static struct ha_stream *beside, *first; /* beside: of our own, made when it is needed; first: that was created */
static struct ha_stream *capturing, *captor;
static bool refused, launched;
static unsigned calls, said;
static void *gate; /* the first word in mapped memory is the suite's, which must hold */
static struct ha_stream *gone[256];
static size_t gone_count;

static struct ha_stream *own(void)
{
    struct ha_why why;
    if (!beside && HOST.stream_create(device, "wrong", &beside, &why) != HA_OK) abort();
    return beside;
}

/* What is to run on a stream later; they are never given back. */
struct later {
    void (*run)(struct later *later);
    union {
        struct ha_device_blend blend;
        struct ha_device_move move;
        struct ha_device_product product;
        struct ha_device_pieces pieces;
        struct {
            float *x;
            size_t n;
            enum ha_dtype dtype;
        } array;
        uint32_t *word;
    } u;
};
enum { LATERS = 1 << 14 };
static struct later laters[LATERS];
static unsigned laters_used;
static struct later *later(void (*run)(struct later *later))
{
    struct later *l = &laters[laters_used++ % LATERS];
    *l = (struct later){ .run = run };
    return l;
}
static void run_later(void *arg)
{
    struct later *l = arg;
    l->run(l);
}
static enum ha_status on(struct ha_stream *stream, struct later *l) { return HOST.host_fn(stream, run_later, l); }

/* ---- the device -------------------------------------------------------------------------------------------------- */

static enum ha_status wrong_open(struct ha_device **dev, const struct ha_device_config *config, struct ha_why *why)
{
    const char *asked = getenv("HA_WRONG");
    struct ha_device_config mine = *config;
    strncpy(wrong, asked ? asked : "", sizeof wrong - 1);
    if (IS(stream_serial) || IS(event_sync_stream)) mine.wait_limit_ns = 300000000;
    const enum ha_status status = HOST.open(dev, &mine, why);
    device = *dev;
    beside = first = capturing = captor = NULL;
    refused = launched = false;
    calls = said = 0;
    gate = NULL;
    return status;
}

static void wrong_close(struct ha_device *dev)
{
    if (beside) HOST.stream_destroy(beside);
    while (gone_count) HOST.stream_destroy(gone[--gone_count]);
    beside = NULL;
    HOST.close(dev);
}

static const char *wrong_failure(struct ha_device *dev)
{
    const char *text = HOST.failure(dev);
    if (IS(alloc_fails_device) && refused) return "out of memory";
    if (text && IS(failure_forgotten) && said++) return NULL;
    if (text && IS(failure_words)) return "unspecified error";
    return text;
}

static const struct ha_span_sink *sink;
static void lose_spans(void *self, const struct ha_span *span)
{
    struct ha_span mine = *span;
    if (IS(trace_lost) && __atomic_add_fetch(&calls, 1, __ATOMIC_ACQ_REL) % 5 == 0) return;
    if (IS(trace_bytes)) mine.bytes = 0;
    sink->span(sink->self, &mine);
}
static void wrong_trace(struct ha_device *dev, const struct ha_span_sink *to)
{
    static const struct ha_span_sink mine = { NULL, lose_spans };
    if (to) sink = to;
    HOST.trace(dev, to ? &mine : NULL);
}

static void wrong_meters(struct ha_device *dev, struct ha_device_meters *out)
{
    *out = ha_device_meters_none(out->want_link_GBps);
    if (IS(meters_nonsense)) out->power_W = -1;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static char *large, *within;

static enum ha_status wrong_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                  struct ha_why *why)
{
    const bool much = bytes > (size_t)1 << 40;
    if (IS(alloc_overlap) && kind == HA_MEM_DEVICE && bytes == 4097 && large) {
        *ptr = within = large + 64;
        return HA_OK;
    }
    const enum ha_status status = HOST.mem_alloc(dev, kind, IS(alloc_too_much) && much ? 64 : bytes + 64, ptr, why);
    if (kind == HA_MEM_MAPPED && bytes == 4 && !gate) gate = *ptr;
    refused |= status != HA_OK;
    if (status != HA_OK && IS(alloc_silent)) *why->text = 0;
    if (status == HA_OK && IS(alloc_misaligned) && bytes == 200) *ptr = (char *)*ptr + 32;
    if (status == HA_OK && kind == HA_MEM_DEVICE && bytes == 4096) large = *ptr;
    return status;
}
static void wrong_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (ptr && ptr == within) {
        within = NULL;
        return;
    }
    if (ptr && ptr == large) large = NULL;
    for (size_t i = 0; i < gone_count; i++) HOST.stream_sync(gone[i]); /* it is to be wrong, not to crash */
    HOST.mem_free(dev, kind, (char *)ptr - (uintptr_t)ptr % 64);
}

static enum ha_status wrong_map(struct ha_device *dev, void *ptr, size_t bytes, void **host, struct ha_why *why)
{
    if (!IS(map_elsewhere)) return HOST.map_device(dev, ptr, bytes, host, why);
    *host = malloc(bytes);
    return *host ? HA_OK : HA_ERROR;
}
static void wrong_unmap(struct ha_device *dev, void *host)
{
    if (IS(map_elsewhere)) free(host);
    else HOST.unmap_device(dev, host);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static enum ha_status wrong_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    if (IS(copy_tail_1M) && bytes > 1 << 20) bytes &= ~(size_t)4095;
    if (IS(copy_odd_tail) && bytes > 64) bytes &= ~(size_t)3;
    if (IS(copy_d2d_small) && dir == HA_D2D && bytes < 16) bytes = 0;
    if (IS(copy_misaligned)) dst = (char *)dst - (uintptr_t)dst % 4;
    if (IS(copy_beside) && dir == HA_D2H && bytes > 100 && (uintptr_t)src % 64) bytes |= 1;
    if (IS(copy_16M) && bytes > 16 << 20) bytes -= 64;
    if (IS(copy_back_64K) && dir == HA_D2H && bytes > 65536) {
        const enum ha_status status = HOST.copy(s, (char *)dst + 65536, src, bytes - 65536, dir);
        return status == HA_OK ? HOST.copy(s, dst, src, 65536, dir) : status;
    }
    if (IS(stream_engines) && dir == HA_D2H) {
        const enum ha_status status = HOST.copy(own(), dst, src, bytes, dir);
        return status == HA_OK ? HOST.stream_sync(own()) : status;
    }
    if (IS(graph_old_data) && s == capturing && dir == HA_H2D) {
        static char *old; /* one block is enough */
        free(old);
        old = malloc(bytes);
        if (!old) return HA_ERROR;
        src = memcpy(old, src, bytes);
    }
    if (IS(graph_runs) && s == capturing) memcpy(dst, src, bytes);
    return HOST.copy(s, dst, src, bytes, dir);
}

static enum ha_status wrong_copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src,
                                    size_t src_stride, size_t row_bytes, size_t rows, enum ha_direction dir)
{
    if (IS(copy_2d_last_row) && rows > 1) rows--;
    if (IS(copy_2d_rows_16)) rows &= 0xffff;
    if (IS(copy_2d_dense) && dst_stride == src_stride && rows > 1) {
        row_bytes += (rows - 1) * dst_stride;
        rows = 1;
    }
    const bool swap = IS(copy_2d_pitch);
    return HOST.copy_2d(s, dst, swap ? src_stride : dst_stride, src, swap ? dst_stride : src_stride, row_bytes, rows,
                        dir);
}

static void pieces_later(struct later *l)
{
    const struct ha_device_pieces *p = &l->u.pieces;
    for (size_t i = 0; i < p->count; i++)
        if (p->bytes[i] && p->dst[i] && p->src[i]) memcpy(p->dst[i], p->src[i], p->bytes[i]);
}
static enum ha_status wrong_pieces(struct ha_stream *s, const struct ha_device_pieces *pieces, enum ha_direction dir)
{
    struct ha_device_pieces mine = *pieces;
    size_t *bytes = NULL;
    if (IS(pieces_last) && mine.count) mine.count--;
    if (IS(pieces_arguments)) {
        struct later *l = later(pieces_later);
        l->u.pieces = mine;
        return on(s, l);
    }
    if (IS(pieces_64K) && mine.count) {
        bytes = malloc(mine.count * sizeof *bytes);
        if (!bytes) return HA_ERROR;
        for (size_t i = 0; i < mine.count; i++) bytes[i] = mine.bytes[i] < 65536 ? mine.bytes[i] : 65536;
        mine.bytes = bytes;
    }
    const enum ha_status status = HOST.copy_pieces(s, &mine, dir);
    free(bytes);
    return status;
}

static uint32_t *indices; /* as they were */
static size_t row_of(const uint32_t *index, const uint32_t *was, size_t i)
{
    return !index ? i : IS(move_index_16) ? index[i] & 0xffff : was[i];
}
static void move_later(struct later *l)
{
    const struct ha_device_move *m = &l->u.move;
    for (size_t i = 0; i < m->rows; i++)
        memcpy((char *)m->dst + row_of(m->dst_index, indices, i) * m->dst_stride_bytes,
               (const char *)m->src + row_of(m->src_index, indices + m->rows, i) * m->src_stride_bytes, m->row_bytes);
}
static enum ha_status wrong_move(struct ha_stream *s, const struct ha_device_move *args)
{
    struct ha_device_move m = *args;
    if (IS(move_last_index) && m.rows) m.rows--;
    if (IS(move_16)) m.rows &= 0xffff;
    if (IS(move_words)) m.row_bytes &= ~(size_t)3;
    if (!IS(move_index_early) && !IS(move_index_16)) return HOST.move(s, &m);
    free(indices);
    indices = malloc((2 * m.rows + 1) * sizeof *indices);
    if (!indices) return HA_ERROR;
    if (m.dst_index) memcpy(indices, m.dst_index, m.rows * sizeof *indices);
    if (m.src_index) memcpy(indices + m.rows, m.src_index, m.rows * sizeof *indices);
    struct later *l = later(move_later);
    l->u.move = m;
    return on(s, l);
}

static void clear_later(struct later *l) { *l->u.word = 0; }
static enum ha_status wrong_read(struct ha_stream *s, const void *ptr, size_t bytes, uint32_t *sum)
{
    if (IS(read_tail)) bytes &= ~(size_t)15;
    if (IS(read_sets)) {
        struct later *l = later(clear_later);
        l->u.word = sum;
        if (on(s, l) != HA_OK) return HA_ERROR;
    }
    return HOST.read(s, ptr, bytes, sum);
}

static enum ha_status wrong_spin(struct ha_stream *s, uint64_t ns) { return HOST.spin(s, IS(spin_short) ? 0 : ns); }

/* ---- order ------------------------------------------------------------------------------------------------------- */

static enum ha_status wrong_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                   struct ha_why *why)
{
    if (IS(stream_serial) && first) {
        *stream = first;
        return HA_OK;
    }
    const enum ha_status status = HOST.stream_create(dev, name, stream, why);
    if (!first) first = *stream;
    return status;
}
static void wrong_destroy(struct ha_stream *s)
{
    if (IS(stream_serial)) {
        if (first) HOST.stream_destroy(first);
        first = NULL;
    } else if (IS(destroy_early) && gone_count < sizeof gone / sizeof *gone) gone[gone_count++] = s;
    else HOST.stream_destroy(s);
}
static enum ha_status wrong_sync(struct ha_stream *s)
{
    if (IS(sync_early)) return HA_OK;
    const enum ha_status status = HOST.stream_sync(s);
    return IS(failure_sync) && status != HA_OK && said++ ? HA_OK : status;
}

static struct ha_event *recorded;
static struct ha_stream *recorded_on;
static enum ha_status wrong_record(struct ha_event *e, struct ha_stream *s)
{
    if (IS(event_first) && recorded == e) return HA_OK;
    recorded = e;
    recorded_on = s;
    return HOST.event_record(e, IS(event_early) ? own() : s);
}
static void wrong_event_destroy(struct ha_event *e)
{
    recorded = NULL;
    HOST.event_destroy(e);
}
static enum ha_status wrong_wait(struct ha_stream *s, struct ha_event *e)
{
    return IS(wait_ignored) ? HA_OK : HOST.stream_wait(s, e);
}
static enum ha_status wrong_event_sync(struct ha_event *e)
{
    if (IS(event_sync_early)) return HA_OK;
    return IS(event_sync_stream) && recorded == e ? HOST.stream_sync(recorded_on) : HOST.event_sync(e);
}

static enum ha_status wrong_flag_write(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    if (IS(flag_31)) value &= 0x7fffffff;
    if (!IS(flag_early)) return HOST.flag_write(s, flag, value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    return HA_OK;
}
static enum ha_status wrong_flag_wait(struct ha_stream *s, const uint32_t *flag, uint32_t at_least)
{
    const bool is_gate = flag == gate;
    if (IS(flag_wait_ignored) && !is_gate) return HA_OK;
    if (IS(flag_wait_any) && !is_gate) at_least = 1;
    if (IS(flag_wait_16) && !is_gate) at_least &= 0xffff;
    return HOST.flag_wait(s, flag, at_least);
}

static enum ha_status wrong_host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    if (IS(host_fn_early)) {
        fn(arg);
        return HA_OK;
    }
    if (IS(host_fn_lost) && ++calls % 7 == 0) return HA_OK;
    if (IS(host_fn_twice) && HOST.host_fn(s, fn, arg) != HA_OK) return HA_ERROR;
    return HOST.host_fn(s, fn, arg);
}

static enum ha_status wrong_begin(struct ha_stream *s)
{
    capturing = captor = s;
    return HOST.graph_begin(s);
}
static enum ha_status wrong_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    capturing = NULL;
    return HOST.graph_end(s, graph, why);
}
static enum ha_status wrong_launch(struct ha_graph *graph, struct ha_stream *s)
{
    if (IS(graph_once) && launched) return HA_OK;
    launched = true;
    return HOST.graph_launch(graph, IS(graph_stream) ? captor : s);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static void blend_later(struct later *l)
{
    const struct ha_device_blend *b = &l->u.blend;
    for (size_t r = 0; r < b->rows; r++)
        for (size_t c = 0; c < b->cols; c++) {
            float *y = &b->y[r * b->y_stride + c];
            const float x = b->x[r * b->x_stride + c];
            if (IS(blend_reads_y)) *y = b->a * *y + b->b * x;
            else
                *y = ha_round((b->a != 0 ? ha_round(b->a * ha_round(*y, HA_F16), HA_F16) : 0)
                                  + ha_round(b->b * x, HA_F16),
                              HA_F16);
        }
}
static enum ha_status wrong_blend(struct ha_stream *s, const struct ha_device_blend *args)
{
    struct ha_device_blend b = *args;
    if (IS(blend_tail)) b.cols &= ~(size_t)3;
    if (IS(blend_strides)) {
        b.x_stride = args->y_stride;
        b.y_stride = args->x_stride;
    }
    if (!IS(blend_half) && !IS(blend_reads_y)) return HOST.blend(s, &b);
    struct later *l = later(blend_later);
    l->u.blend = b;
    return on(s, l);
}

static void round_later(struct later *l)
{
    for (size_t i = 0; i < l->u.array.n; i++) l->u.array.x[i] = ha_round(l->u.array.x[i], l->u.array.dtype);
}
static void scale_later(struct later *l)
{
    for (size_t i = 0; i < l->u.array.n; i++) l->u.array.x[i] *= IS(attend_base2) ? 1.44269504f : 1 + 0x1p-12f;
}
static enum ha_status change(struct ha_stream *s, void (*run)(struct later *l), float *x, size_t n, enum ha_dtype dtype)
{
    struct later *l = later(run);
    l->u.array.x = x;
    l->u.array.n = n;
    l->u.array.dtype = dtype;
    return on(s, l);
}

static enum ha_status wrong_product(struct ha_stream *s, const struct ha_device_product *p)
{
    const enum ha_status status = HOST.product(s, p);
    if (status != HA_OK || !IS(product_rounds) || p->dtype != HA_F32) return status;
    return change(s, round_later, p->y, p->m * p->n, HA_BF16);
}

static enum ha_status wrong_merge(struct ha_stream *s, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    if (IS(merge_states) && m.states_count > 1024) m.states_count = 1024;
    const enum ha_status status = HOST.merge(s, &m);
    if (status != HA_OK || !IS(merge_scale) || m.dtype != HA_F32) return status;
    return change(s, scale_later, m.out.o, m.tokens * m.heads * m.dim, HA_F32);
}

/* The embedded device follows no index: its keys are laid out for it, one after the other. They are given back with the
 * device. */
static void *dense(const void *rows, size_t stride, size_t row_bytes, const uint32_t *index, size_t keys, size_t block)
{
    void *out = NULL;
    struct ha_why why;
    if (HOST.mem_alloc(device, HA_MEM_DEVICE, keys * row_bytes, &out, &why) != HA_OK) abort();
    for (size_t i = 0; i < keys; i++) {
        const size_t named = IS(index_16) ? index[i / block] & 0xffff : index[i / block],
                     row = named * block + (IS(index_in_block) ? 0 : i % block);
        memcpy((char *)out + i * row_bytes, (const char *)rows + row * stride, row_bytes);
    }
    return out;
}
static void follow(struct ha_rows *run, const uint32_t *index, const struct ha_device_seq *seq,
                   const struct ha_device_attend *a)
{
    const size_t block = a->block ? a->block : 1, row = a->head_dim * ha_dtype_bytes(a->dtype),
                 k = (a->kv_heads - 1) * seq->k_head_bytes + row, v = (a->kv_heads - 1) * seq->v_head_bytes + row;
    run->k = dense(run->k, run->k_stride_bytes, k, index, run->keys, block);
    run->v = dense(run->v, run->v_stride_bytes, v, index, run->keys, block);
    run->k_stride_bytes = k;
    run->v_stride_bytes = v;
    run->index = NULL;
}

static enum ha_status wrong_products(struct ha_stream *s, const struct ha_device_attend *a)
{
    enum ha_status status = HOST.attend_products(s, a);
    for (size_t b = 0; IS(products_half) && b < a->batch && status == HA_OK; b++)
        status = change(s, round_later, a->seqs[b].o, a->q_len * a->q_heads * a->head_dim, HA_F16);
    return status;
}

static enum ha_status wrong_attend(struct ha_stream *s, const struct ha_device_attend *args)
{
    enum { SEQS = 64 };
    struct ha_device_attend a = *args;
    struct ha_device_seq seq[SEQS];
    if (a.batch > SEQS) return HA_ERROR;
    memcpy(seq, a.seqs, a.batch * sizeof *seq);
    a.seqs = seq;
    const size_t group = a.q_heads / a.kv_heads;
    for (size_t b = 0; b < a.batch; b++) {
        if (IS(attend_kv_head) && group % 2 && group > 1 && group < 8) seq[b].k_head_bytes = seq[b].v_head_bytes = 0;
        const uint32_t *const first_index = seq[b].runs[0].index;
        for (size_t r = 0; r < seq[b].runs_count; r++) {
            struct ha_rows *run = &seq[b].runs[r];
            if (run->index) follow(run, IS(index_of_first) ? first_index : run->index, &seq[b], &a);
            if (IS(attend_65536) && run->keys > 65536) run->keys = 65536;
            if (IS(attend_late) && run->keys > 2048) run->keys = 2048;
        }
    }
    if (IS(attend_dim) && a.head_dim % 16 == 8 && a.head_dim > 8) a.head_dim -= 8;
    if (IS(attend_batch) && a.batch > 16) a.batch = 16;
    if (IS(attend_causal)) a.causal = false;
    if (IS(attend_mean)) a.scale = 0;
    if (IS(attend_heads) && a.q_heads > 16 && group == 1 && a.q_len == 1) a.q_heads = a.kv_heads = 16;
    enum ha_status status = HOST.attend(s, &a);
    const size_t rows = a.q_len * a.q_heads;
    for (size_t b = 0; b < a.batch && status == HA_OK; b++) {
        if (IS(attend_base2)) status = change(s, scale_later, seq[b].lse, rows, HA_F32);
        if (IS(attend_half)) status = change(s, round_later, seq[b].o, rows * a.head_dim, HA_F16);
    }
    return status;
}

__attribute__((constructor)) static void fill_in(void)
{
    ha_device_api = HOST;
    ha_device_api.name = "wrong";
    ha_device_api.kind = "plugin";
    ha_device_api.open = wrong_open;
    ha_device_api.close = wrong_close;
    ha_device_api.failure = wrong_failure;
    ha_device_api.trace = wrong_trace;
    ha_device_api.meters = wrong_meters;
    ha_device_api.mem_alloc = wrong_alloc;
    ha_device_api.mem_free = wrong_free;
    ha_device_api.map_device = wrong_map;
    ha_device_api.unmap_device = wrong_unmap;
    ha_device_api.copy = wrong_copy;
    ha_device_api.copy_2d = wrong_copy_2d;
    ha_device_api.copy_pieces = wrong_pieces;
    ha_device_api.move = wrong_move;
    ha_device_api.read = wrong_read;
    ha_device_api.spin = wrong_spin;
    ha_device_api.stream_create = wrong_create;
    ha_device_api.stream_destroy = wrong_destroy;
    ha_device_api.stream_sync = wrong_sync;
    ha_device_api.event_record = wrong_record;
    ha_device_api.event_destroy = wrong_event_destroy;
    ha_device_api.stream_wait = wrong_wait;
    ha_device_api.event_sync = wrong_event_sync;
    ha_device_api.flag_write = wrong_flag_write;
    ha_device_api.flag_wait = wrong_flag_wait;
    ha_device_api.host_fn = wrong_host_fn;
    ha_device_api.graph_begin = wrong_begin;
    ha_device_api.graph_end = wrong_end;
    ha_device_api.graph_launch = wrong_launch;
    ha_device_api.blend = wrong_blend;
    ha_device_api.product = wrong_product;
    ha_device_api.merge = wrong_merge;
    ha_device_api.attend = wrong_attend;
    ha_device_api.attend_products = wrong_products;
}
