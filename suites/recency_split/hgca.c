/* HGCA: the recent tokens in a ring on the device with dense attention, everything older in host
 * memory with sparse attention over the entries that each query head found salient; both at once,
 * merged on the device from their log-sum-exps. Algorithms 1 and 2 of the paper.
 *
 * Of the paper: the eviction count is printed with its sign reversed (ha_ring_evict_count); the
 * merge is printed without the max-shift and overflows for LSE > 88.7; "renormalise MAW" feeds no
 * equation and is left out.
 *
 * On the critical path: q down; device attention over ring + new tokens beside CPU tasks over
 * KV_ctx (decode) or all of KV_cpu (append); join; merge with a zero-copy read of the CPU's part.
 * Off it: MAW, eviction and selection, on a stream and a background thread of their own, in place
 * before the layer's next step. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/recency_split/context_cache.h"
#include "suites/parts/frame.h"
#include "suites/parts/observe.h"
#include "suites/parts/places.h"
#include "suites/parts/ring.h"

#include <math.h>

enum { ALPHA, BETA, BLK_SIZE, BLK_NUM, HEADS_PER_TASK, LAYOUT };
static const struct ha_param params[] = {
    [ALPHA] = { "alpha", 0.25, 0, 1, "weight of the newest attention in the moving average (MAW)",
                .draw = "0 0.25 0.5 1" },
    [BETA] = { "beta", 1, -1, 1e6, "an entry is salient iff its weight > beta / entries; negative: all are",
               .draw = "-1 0 0.25 1 4 1000000" },
    [BLK_SIZE] = { "blk_size", 32, 1, 1 << 20, "tokens in a block of the ring", .whole = true, .draw = "1..128" },
    [BLK_NUM] = { "blk_num", 32, 1, 1 << 20, "blocks in the ring", .whole = true, .draw = "1..64" },
    [HEADS_PER_TASK] = { "heads_per_task", 0, 0, 1 << 20,
                         "query heads in a CPU task, padded to equal counts; 0: no tasks, no padding", .whole = true,
                         .draw = "0 0..16" },
    [LAYOUT] = HA_KV_LAYOUT("KV_ctx", HA_KV_PLANNED),
};

struct sequence {
    struct ha_ring ring;
    float *maw;                   /* device: [q_heads][ring.kv.cap], by slot */
    float *weights;               /* device: [q_heads][ring.kv.cap], by position from ring.first */
    struct ha_kv store;           /* KV_cpu, pinned: token p in row p */
    size_t stored;                /* tokens of KV_cpu that the next step may read */
    struct ha_context_head *head; /* KV_ctx: [q_heads] */

    /* for the background: what the last step left to do */
    size_t evicted, entries; /* tokens evicted; |A_gpu|, device entries before that */
    float *maw_evicted;      /* pinned: [q_heads][ring.kv.cap] */
    float *weights_cpu;      /* A_cpu of an append: [q_heads][store.cap], or NULL */

    /* what the prefill found, for rewind_layer */
    float *maw_first;    /* pinned: [q_heads][ring.kv.cap] */
    size_t *first_count; /* [q_heads] */
    uint32_t *first;     /* one head's entries after the other's */
};

static size_t option(const struct ha_layer *l, int i) { return (size_t)l->ctx->param[i]; }
static bool is_append(const struct ha_layer *l) { return l->ctx->shape->q_len > 1; }
static bool is_decode(const struct ha_context *ctx) { return ctx->shape->q_len == 1; }
static size_t evict_count(const struct ha_layer *l, size_t entries)
{
    return ha_ring_evict_count(entries, option(l, BLK_SIZE), option(l, BLK_NUM));
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    const struct ha_shape *s = l->ctx->shape;
    return ha_least(option(l, BLK_SIZE) * option(l, BLK_NUM) + s->q_len, ha_kv_max_tokens(s, b));
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    return ha_ring_place(l->ctx->shape, &((const struct sequence *)l->own + b)->ring, position);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + b;
    const size_t most = ha_kv_max_tokens(s, b), bytes = s->q_heads * rows(l, b, 0) * sizeof(float);
    l->heads_per_task = option(l, HEADS_PER_TASK);
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->ring.kv, why));
    HA_TRY(ha_kv_create(ctx, HA_MEM_PINNED, most, &seq->store, why));
    seq->maw = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    seq->weights = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    seq->maw_evicted = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_META, why);
    seq->head = ha_alloc(ctx->arena, s->q_heads * sizeof *seq->head, HA_TAG_META, why);
    if (!seq->maw || !seq->weights || !seq->maw_evicted || !seq->head) return HA_ERROR;
    const bool packed = ha_kv_is_packed(ctx, option(l, LAYOUT)) && ha_packs(s->head_dim);
    for (size_t h = 0; h < s->q_heads; h++) seq->head[h] = (struct ha_context_head){ .packed = packed };
    if (!is_append(l)) return HA_OK;
    seq->weights_cpu = ha_alloc(ctx->arena, s->q_heads * most * sizeof(float), HA_TAG_META, why);
    return seq->weights_cpu ? HA_OK : HA_ERROR;
}

/* ---- selection, off the critical path --------------------------------------------------- */

/* weights of consecutive positions from `first`: those above beta / entries are salient */
static enum ha_status select_entries(const struct ha_layer *l, struct ha_context_head *head, const float *weights,
                                     size_t first, size_t count, size_t entries, struct ha_why *why)
{
    double threshold = l->ctx->param[BETA] / (double)entries;
    ha_order_thread_access("select", "weights", HA_READ, weights, 1, 0, count * sizeof *weights);
    for (size_t j = 0; j < count; j++)
        if ((double)weights[j] > threshold) HA_TRY(ha_context_add(l->ctx, head, (uint32_t)(first + j), why));
    return HA_OK;
}

/* Adjacent heads form a task and are padded to its largest count; without tasks none is. */
static enum ha_status pad_tasks(const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct sequence *seq = l->own;
    size_t units = s->batch * s->q_heads;
    for (size_t first = 0; l->heads_per_task && first < units; first += l->heads_per_task) {
        size_t last = ha_least(first + l->heads_per_task, units), largest = 0;
        for (size_t u = first; u < last; u++)
            largest = ha_most(largest, seq[u / s->q_heads].head[u % s->q_heads].selected);
        for (size_t u = first; u < last; u++)
            HA_TRY(ha_context_pad(l->ctx, &seq[u / s->q_heads].head[u % s->q_heads], seq[u / s->q_heads].stored,
                                  largest, why));
    }
    return HA_OK;
}

/* the entries of a head that were named, out of KV_cpu; unit: sequence * q_heads + head */
static enum ha_status copy_entries(const struct ha_layer *l, size_t unit, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + unit / s->q_heads;
    size_t h = unit % s->q_heads;
    struct ha_rows rows = ha_kv_rows(s, &seq->store, h / ha_shape_group(s), 0, seq->stored);
    return ha_context_copy(l->ctx, &seq->head[h], &rows, why);
}

/* For heads whose memory is reserved: nothing is allocated, so that nothing fails. */
static void copy_task(void *arg, size_t task, size_t worker) { copy_entries(arg, task, NULL); }

static enum ha_status settle(struct ha_layer *l, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = (struct sequence *)l->own + b;
        for (size_t h = 0; h < s->q_heads; h++) {
            struct ha_context_head *head = &seq->head[h];
            if (is_append(l)) {
                ha_context_clear(head);
                HA_TRY(
                    select_entries(l, head, seq->weights_cpu + h * seq->store.cap, 0, seq->stored, seq->stored, why));
            }
            HA_TRY(select_entries(l, head, seq->maw_evicted + h * seq->ring.kv.cap, seq->stored, seq->evicted,
                                  seq->entries, why));
        }
        seq->stored += seq->evicted;
    }
    HA_TRY(pad_tasks(l, why));
    for (size_t u = 0; u < s->batch * s->q_heads; u++) HA_TRY(copy_entries(l, u, why));
    return HA_OK;
}

/* ---- prefill ---------------------------------------------------------------------------- */

static enum ha_status remember(const struct ha_context *ctx, struct sequence *seq, struct ha_why *why)
{
    const size_t heads = ctx->shape->q_heads, bytes = heads * seq->ring.kv.cap * sizeof(float);
    size_t count = 0;
    for (size_t h = 0; h < heads; h++) count += seq->head[h].selected;
    seq->maw_first = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why);
    seq->first_count = ha_alloc(ctx->arena, heads * sizeof *seq->first_count, HA_TAG_SCRATCH, why);
    seq->first = ha_alloc(ctx->arena, count * sizeof *seq->first, HA_TAG_SCRATCH, why);
    if (!seq->maw_first || !seq->first_count || !seq->first) return HA_ERROR;
    uint32_t *to = seq->first;
    for (size_t h = 0; h < heads; h++) {
        seq->first_count[h] = seq->head[h].selected;
        for (size_t i = 0; i < seq->first_count[h]; i++) *to++ = seq->head[h].token[i];
    }
    return ctx->api->copy(ctx->stream, seq->maw_first, seq->maw, bytes, HA_D2H);
}

/* MAW starts as the attention of the observed queries over the ring; KV_ctx is what their attention
 * over KV_cpu finds salient (the re-evaluation of Algorithm 1, line 21). */
static enum ha_status hgca_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + b;
    size_t n = s->ctx[b], first = evict_count(l, n), cap = seq->ring.kv.cap, widest = ha_most(first, cap);
    HA_TRY(ha_kv_load(ctx, &seq->store, 0, in, b, 0, first));
    HA_TRY(ha_ring_load(ctx, &seq->ring, in, b, first));
    seq->stored = first;

    float *weights = ha_alloc(ctx->arena, s->q_heads * widest * sizeof *weights, HA_TAG_SCRATCH, why);
    if (!weights) return HA_ERROR;
    HA_TRY(ha_observe(ctx, in, b, first, n - first, weights, widest, why));
    struct ha_stretch part[2];
    size_t parts = ha_ring_stretches(&seq->ring, first, n - first, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ctx->api->copy_2d(ctx->stream, seq->maw + part[i].slot, cap * sizeof(float),
                                 weights + part[i].position - first, widest * sizeof(float),
                                 part[i].count * sizeof(float), s->q_heads, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));

    HA_TRY(ha_observe(ctx, in, b, 0, first, weights, widest, why));
    for (size_t h = 0; h < s->q_heads; h++)
        HA_TRY(select_entries(l, &seq->head[h], weights + h * widest, 0, first, first, why));
    ha_free(ctx->arena, weights);
    return ctx->record_selection ? HA_OK : remember(ctx, seq, why);
}

/* KV_ctx of all sequences: a task may span two of them. */
static enum ha_status fill_context(struct ha_layer *l, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t heads = s->batch * s->q_heads;
    HA_TRY(pad_tasks(l, why));
    /* room for all that decode steps can evict, which may all be salient */
    for (size_t u = 0; u < heads; u++) {
        struct sequence *seq = (struct sequence *)l->own + u / s->q_heads;
        struct ha_context_head *head = &seq->head[u % s->q_heads];
        size_t count = head->selected + head->padding + s->steps * s->q_len + option(l, BLK_SIZE);
        HA_TRY(ha_context_reserve(ctx, head, ha_least(count, seq->store.cap), why));
    }
    ha_pool_run(ctx->pool, "copy", heads, copy_task, l);
    return HA_OK;
}

/* What was evicted since the prefill is in KV_cpu, and goes back to its slots. */
static enum ha_status rewind_sequence(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = (struct sequence *)l->own + b;
    struct ha_ring *ring = &seq->ring;
    const size_t n = ctx->shape->ctx[b], heads = ctx->shape->q_heads, first = evict_count(l, n),
                 end = ha_least(ring->first, n);
    HA_TRY(ha_ring_copy(ctx, ctx->stream, ring, first, end - first, &seq->store, first, true));
    HA_TRY(ctx->api->copy(ctx->stream, seq->maw, seq->maw_first, heads * ring->kv.cap * sizeof(float), HA_H2D));
    ring->first = seq->stored = first;
    ring->end = n;
    seq->evicted = 0;
    const uint32_t *token = seq->first;
    for (size_t h = 0; h < heads; h++) {
        ha_context_clear(&seq->head[h]);
        for (size_t i = 0; i < seq->first_count[h]; i++) HA_TRY(ha_context_add(ctx, &seq->head[h], *token++, why));
    }
    return HA_OK;
}

/* ---- one step --------------------------------------------------------------------------- */

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    const struct ha_context_head *head = &seq->head[q_head];
    HA_TRY(ha_positions_add_range(ctx, &used->device, seq->ring.first, seq->ring.end + ctx->shape->q_len, why));
    if (is_append(l)) return ha_positions_add_range(ctx, &used->host, 0, seq->stored, why);
    used->padding = head->padding;
    return ha_positions_add(ctx, &used->host, head->token, head->selected + head->padding, why);
}

/* dense attention over ring + new tokens */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    struct ha_kv fresh = ha_kv_of_step(s, step, b);
    d->runs_count = ha_ring_runs(s, &seq->ring, d->runs);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
    d->weights = seq->weights;
    d->weights_stride = seq->ring.kv.cap;
}

/* sparse attention over KV_ctx of query head u, or dense over KV_cpu of KV head u */
static void cpu(struct ha_layer *l, size_t b, size_t u, struct ha_attend *a, struct ha_rows *run)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    if (!is_append(l)) {
        a->packed = ha_context_packed(&seq->head[u]);
        *run = ha_context_rows(l->ctx, &seq->head[u]);
        return;
    }
    *run = ha_kv_rows(s, &seq->store, u, 0, seq->stored);
    a->weights = seq->weights_cpu + u * ha_shape_group(s) * seq->store.cap;
    a->weights_stride = seq->store.cap;
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    if (!l->placed) return ha_ring_append(l->ctx, l->ctx->stream, &seq->ring, fresh, 0, fresh->cap);
    seq->ring.end += fresh->cap;
    return HA_OK;
}

/* MAW = a * MAW + b * weights for the positions [first, first + count) of the ring */
static enum ha_status blend(const struct ha_context *ctx, struct ha_stream *post, const struct sequence *seq,
                            size_t first, size_t count, float a, float b)
{
    const size_t cap = seq->ring.kv.cap;
    struct ha_stretch part[2];
    size_t parts = ha_ring_stretches(&seq->ring, first, count, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ctx->api->blend(post, &(struct ha_device_blend){ .y = seq->maw + part[i].slot,
                                                                .x = seq->weights + part[i].position - seq->ring.first,
                                                                .rows = ctx->shape->q_heads,
                                                                .cols = part[i].count,
                                                                .y_stride = cap,
                                                                .x_stride = cap,
                                                                .a = a,
                                                                .b = b }));
    return HA_OK;
}

/* MAW and eviction of one sequence; the new tokens are in the ring already */
static enum ha_status age(const struct ha_layer *l, struct sequence *seq, struct ha_stream *post, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct ha_ring *ring = &seq->ring;
    const size_t first = ring->first, q_len = ctx->shape->q_len, fresh = ring->end - q_len, cap = ring->kv.cap,
                 block = option(l, BLK_SIZE), most = block * option(l, BLK_NUM);
    const float alpha = (float)ctx->param[ALPHA];
    HA_TRY(blend(ctx, post, seq, first, fresh - first, 1.0f - alpha, alpha));
    HA_TRY(blend(ctx, post, seq, fresh, q_len, 0.0f, 1.0f));

    seq->entries = ring->end - first;
    seq->evicted = evict_count(l, seq->entries);
    size_t left = seq->entries - seq->evicted;
    bool ok = left < most && (seq->evicted == 0 || left + block >= most);
    if (!ok)
        return ha_why(why, HA_FAIL, "hgca: the ring holds %zu tokens after eviction, want %zu to %zu", left,
                      most - block, most - 1);

    struct ha_stretch part[2];
    size_t parts = ha_ring_stretches(ring, first, seq->evicted, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ctx->api->copy_2d(post, seq->maw_evicted + part[i].position - first, cap * sizeof(float),
                                 seq->maw + part[i].slot, cap * sizeof(float), part[i].count * sizeof(float),
                                 ctx->shape->q_heads, HA_D2H));
    ring->first += seq->evicted;
    return ha_ring_copy(ctx, post, ring, first, seq->evicted, &seq->store, first, false);
}

static enum ha_status age_all(struct ha_layer *l, struct ha_stream *post, struct ha_why *why)
{
    struct sequence *seq = l->own;
    l->due = is_append(l);
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        HA_TRY(age(l, &seq[b], post, why));
        l->due |= seq[b].evicted > 0;
    }
    return HA_OK;
}

/* What beta keeps of what was evicted. */
static void hgca_count(const struct ha_layer *l, ha_count *say, void *arg)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = l->own;
    double stored = 0, salient = 0, least = 1, most = 0;
    for (size_t b = 0; b < s->batch; b++) {
        stored += (double)seq[b].stored;
        for (size_t h = 0; h < s->q_heads; h++) {
            const double entries = (double)seq[b].head[h].selected, share = entries / (double)seq[b].stored;
            salient += entries;
            least = fmin(least, share); /* NaN where nothing is stored: neither */
            most = fmax(most, share);
        }
    }
    say(arg, "kv_cpu_tokens", l->layer, stored / (double)s->batch);
    say(arg, "kv_ctx_tokens", l->layer, salient / (double)(s->batch * s->q_heads));
    if (stored <= 0) return;
    say(arg, "kept_least", l->layer, least);
    say(arg, "kept_most", l->layer, most);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .open = open,
    .prefill = hgca_prefill,
    .ready = fill_context,
    .use = use,
    .device = device,
    .cpu = cpu,
    .append = append,
    .place = place,
    .appends_last = true,
    .post = age_all,
    .settle = settle,
    .count = hgca_count,
    .rewind = rewind_sequence,
    .cpu_name = "sparse attend",
    .settle_name = "select",
    .weighs = true,
    .by_head = is_decode,
};

extern const struct ha_variant ha_variant_hgca;
const struct ha_variant ha_variant_hgca = {
    .name = "hgca",
    .family = "recency_split",
    .doc = "recent tokens on the device, salient older ones per head on the CPU, both at once, merged on the device",
    .source = "HGCA, algorithms 1 and 2, sections 3.2 and 3.3",
    .contract = HA_BOUNDED,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_BLEND | HA_NEEDS_COPY_2D,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
