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
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/context_cache.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/needs.h"
#include "suites/parts/observe.h"
#include "suites/parts/ring.h"
#include "suites/parts/tokens.h"
#include "harness/base/try.h"

enum { ALPHA, BETA, BLK_SIZE, BLK_NUM, HEADS_PER_TASK, LAYOUT };
static const struct ha_param params[] = {
    [ALPHA] = { "alpha", 0.25, 0, 1, "weight of the newest attention in the moving average (MAW)", false },
    [BETA] = { "beta", 1, -1, 1e6, "an entry is salient iff its weight > beta / entries; negative: all are", false },
    [BLK_SIZE] = { "blk_size", 32, 1, 1 << 20, "tokens in a block of the ring", true },
    [BLK_NUM] = { "blk_num", 32, 1, 1 << 20, "blocks in the ring", true },
    [HEADS_PER_TASK] = { "heads_per_task", 0, 0, 1 << 20,
                         "query heads in a CPU task, padded to equal counts; 0: no tasks, no padding", true },
    [LAYOUT] = { "layout", 1, 0, 1,
                 "of KV_ctx: 0 natural rows, 1 packed where head_dim is a multiple of 8, at most 256", true },
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

    /* what the prefill found, for rewind_all */
    float *maw_first;    /* pinned: [q_heads][ring.kv.cap] */
    size_t *first_count; /* [q_heads] */
    uint32_t *first;     /* one head's entries after the other's */

    struct ha_tokens on_device, *on_cpu; /* for selection(); [q_heads] */
    size_t *padding;                     /* [q_heads] */
};

struct layer {
    struct ha_instance *owner;
    struct sequence *seq;                /* [batch] */
    struct ha_event *attended, *settled; /* main stream: ring and weights are ready; post stream: all is over */
    uint64_t ticket;                     /* of the background job, 0: none */
    bool append;
    enum ha_status status; /* of that job */
    struct ha_why why;
};

struct ha_instance {
    struct ha_context ctx;
    float alpha;
    double beta;
    size_t blk_size, blk_num, heads_per_task;
    bool packed;         /* KV_ctx */
    struct layer *layer; /* [layers] */
    struct ha_stream *post;
    struct ha_event *arrived;
    struct ha_device_seq *device; /* [batch] */
    struct ha_cpu_attend cpu;
    struct ha_rows *runs;   /* [batch * q_heads] */
    float *q;               /* pinned */
    float *o_cpu, *lse_cpu; /* mapped: the device reads them in the merge */
    float *o_gpu, *lse_gpu; /* device */
    struct ha_counters counters;
    double steps, keys_cpu, keys_all;
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND | HA_NEEDS_MERGE | HA_NEEDS_BLEND | HA_NEEDS_COPY_2D);
}

/* ---- memory --------------------------------------------------------------------------- */

static enum ha_status create_sequence(struct ha_instance *self, struct sequence *seq, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t most = ha_kv_max_tokens(s, b), cap = self->blk_size * self->blk_num + s->q_len;
    cap = cap < most ? cap : most;
    *seq = (struct sequence){ .stored = 0 };
    HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, cap, &seq->ring.kv, why));
    HA_TRY(ha_kv_create(ctx, HA_MEM_PINNED, most, &seq->store, why));
    size_t bytes = s->q_heads * cap * sizeof(float);
    seq->maw = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    seq->weights = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    seq->maw_evicted = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_META, why);
    seq->head = ha_alloc(ctx->arena, s->q_heads * sizeof *seq->head, HA_TAG_META, why);
    if (!seq->maw || !seq->weights || !seq->maw_evicted || !seq->head) return HA_ERROR;
    for (size_t h = 0; h < s->q_heads; h++) seq->head[h] = (struct ha_context_head){ .packed = self->packed };
    if (s->q_len > 1) {
        seq->weights_cpu = ha_alloc(ctx->arena, s->q_heads * most * sizeof(float), HA_TAG_META, why);
        if (!seq->weights_cpu) return HA_ERROR;
    }
    if (!ctx->record_selection) return HA_OK;
    HA_TRY(ha_tokens_create(ctx, cap, &seq->on_device, why));
    seq->on_cpu = ha_alloc(ctx->arena, s->q_heads * sizeof *seq->on_cpu, HA_TAG_SCRATCH, why);
    seq->padding = ha_alloc(ctx->arena, s->q_heads * sizeof *seq->padding, HA_TAG_SCRATCH, why);
    if (!seq->on_cpu || !seq->padding) return HA_ERROR;
    for (size_t h = 0; h < s->q_heads; h++) HA_TRY(ha_tokens_create(ctx, most, &seq->on_cpu[h], why));
    return HA_OK;
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const struct ha_device_api *api = ctx->api;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){
        .ctx = *ctx,
        .alpha = (float)ctx->param[ALPHA],
        .beta = ctx->param[BETA],
        .blk_size = (size_t)ctx->param[BLK_SIZE],
        .blk_num = (size_t)ctx->param[BLK_NUM],
        .heads_per_task = (size_t)ctx->param[HEADS_PER_TASK],
        .packed = ctx->param[LAYOUT] > 0 && ha_packs(s->head_dim),
    };
    *out = self;

    size_t rows = s->batch * s->q_len * s->q_heads, o_bytes = rows * s->head_dim * sizeof(float), longest = 0;
    struct layer *layer = ha_alloc(ctx->arena, s->layers * sizeof *layer, HA_TAG_META, why);
    self->device = ha_alloc(ctx->arena, s->batch * sizeof *self->device, HA_TAG_META, why);
    self->runs = ha_alloc(ctx->arena, s->batch * s->q_heads * sizeof *self->runs, HA_TAG_META, why);
    self->q = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, o_bytes, HA_TAG_SCRATCH, why);
    self->o_cpu = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, o_bytes, HA_TAG_SCRATCH, why);
    self->lse_cpu = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, rows * sizeof(float), HA_TAG_SCRATCH, why);
    self->o_gpu = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, o_bytes, HA_TAG_SCRATCH, why);
    self->lse_gpu = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, rows * sizeof(float), HA_TAG_SCRATCH, why);
    if (!layer || !self->device || !self->runs || !self->q || !self->o_cpu || !self->lse_cpu || !self->o_gpu
        || !self->lse_gpu)
        return HA_ERROR;
    for (size_t l = 0; l < s->layers; l++) layer[l] = (struct layer){ .owner = self };
    self->layer = layer;
    HA_TRY(api->stream_create(ctx->device, "post", &self->post, why));
    HA_TRY(api->event_create(ctx->device, &self->arrived, why));
    for (size_t l = 0; l < s->layers; l++) {
        HA_TRY(api->event_create(ctx->device, &layer[l].attended, why));
        HA_TRY(api->event_create(ctx->device, &layer[l].settled, why));
        layer[l].seq = ha_alloc(ctx->arena, s->batch * sizeof *layer[l].seq, HA_TAG_META, why);
        if (!layer[l].seq) return HA_ERROR;
        for (size_t b = 0; b < s->batch; b++) HA_TRY(create_sequence(self, &layer[l].seq[b], b, why));
    }
    for (size_t b = 0; b < s->batch; b++) longest = ha_kv_max_tokens(s, b) > longest ? ha_kv_max_tokens(s, b) : longest;
    struct ha_rows run = { .keys = longest };
    struct ha_attend worst = ha_cpu_attend_head(s, 0, s->q_len, false, self->q, self->o_cpu, self->lse_cpu, &run, 1);
    if (s->q_len > 1)
        worst = ha_cpu_attend_group(s, 0, s->q_len, false, self->q, self->o_cpu, self->lse_cpu, &run, 1,
                                    layer[0].seq[0].weights_cpu, longest);
    else if (self->packed) {
        worst.packed.keys = longest;
        worst.runs_count = 0;
    }
    return ha_cpu_attend_create(&self->cpu, ctx, s->batch * s->q_heads, &worst, why);
}

/* ---- selection, off the critical path --------------------------------------------------- */

/* weights of consecutive positions from `first`: those above beta / entries are salient */
static enum ha_status select_entries(struct ha_instance *self, struct sequence *seq, size_t q_head,
                                     const float *weights, size_t first, size_t count, size_t entries,
                                     struct ha_why *why)
{
    double threshold = self->beta / (double)entries;
    for (size_t j = 0; j < count; j++)
        if ((double)weights[j] > threshold)
            HA_TRY(ha_context_add(&self->ctx, &seq->head[q_head], (uint32_t)(first + j), why));
    return HA_OK;
}

/* Adjacent heads form a task and are padded to its largest count; without tasks none is. */
static enum ha_status pad_tasks(struct ha_instance *self, struct layer *layer, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    size_t units = s->batch * s->q_heads;
    for (size_t first = 0; self->heads_per_task && first < units; first += self->heads_per_task) {
        size_t last = first + self->heads_per_task < units ? first + self->heads_per_task : units, largest = 0;
        for (size_t u = first; u < last; u++) {
            size_t count = layer->seq[u / s->q_heads].head[u % s->q_heads].selected;
            largest = count > largest ? count : largest;
        }
        for (size_t u = first; u < last; u++) {
            struct sequence *seq = &layer->seq[u / s->q_heads];
            HA_TRY(ha_context_pad(&self->ctx, &seq->head[u % s->q_heads], seq->stored, largest, why));
        }
    }
    return HA_OK;
}

/* the entries of a head that were named, out of KV_cpu; unit: sequence * q_heads + head */
static enum ha_status copy_entries(struct layer *layer, size_t unit, struct ha_why *why)
{
    const struct ha_context *ctx = &layer->owner->ctx;
    struct sequence *seq = &layer->seq[unit / ctx->shape->q_heads];
    size_t h = unit % ctx->shape->q_heads;
    struct ha_rows rows = ha_kv_rows(ctx->shape, &seq->store, h / ha_shape_group(ctx->shape), 0, seq->stored);
    return ha_context_copy(ctx, &seq->head[h], &rows, why);
}

/* for heads that have the memory */
static void copy_task(void *arg, size_t task, size_t worker)
{
    (void)worker;
    copy_entries(arg, task, NULL);
}

static enum ha_status settle(struct ha_instance *self, struct layer *layer, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &layer->seq[b];
        for (size_t h = 0; h < s->q_heads; h++) {
            if (layer->append) {
                ha_context_clear(&seq->head[h]);
                if (seq->stored)
                    HA_TRY(select_entries(self, seq, h, seq->weights_cpu + h * seq->store.cap, 0, seq->stored,
                                          seq->stored, why));
            }
            if (seq->evicted)
                HA_TRY(select_entries(self, seq, h, seq->maw_evicted + h * seq->ring.kv.cap, seq->stored, seq->evicted,
                                      seq->entries, why));
        }
        seq->stored += seq->evicted;
    }
    HA_TRY(pad_tasks(self, layer, why));
    for (size_t u = 0; u < s->batch * s->q_heads; u++) HA_TRY(copy_entries(layer, u, why));
    return HA_OK;
}

static void settle_job(void *arg)
{
    struct layer *layer = arg;
    struct ha_instance *self = layer->owner;
    layer->status = self->ctx.api->event_sync(layer->settled);
    uint64_t begin = ha_now_ns();
    if (layer->status == HA_OK) layer->status = settle(self, layer, &layer->why);
    self->counters.select_ns += (double)(ha_now_ns() - begin);
}

/* ---- prefill ---------------------------------------------------------------------------- */

/* MAW starts as the attention of the observed queries over the ring; KV_ctx is what their attention
 * over KV_cpu finds salient (the re-evaluation of Algorithm 1, line 21). */
static enum ha_status prefill_sequence(struct ha_instance *self, struct sequence *seq, const struct ha_prefill *in,
                                       size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t n = s->ctx[b], first = ha_ring_evict_count(n, self->blk_size, self->blk_num), cap = seq->ring.kv.cap;
    HA_TRY(ha_kv_load(ctx, HA_MEM_PINNED, &seq->store, 0, in, b, 0, first));
    HA_TRY(ha_ring_load(ctx, &seq->ring, in, b, first));
    seq->stored = first;

    size_t widest = first > cap ? first : cap;
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
    for (size_t h = 0; h < s->q_heads && first; h++)
        HA_TRY(select_entries(self, seq, h, weights + h * widest, 0, first, first, why));
    ha_free(ctx->arena, weights);
    return HA_OK;
}

static enum ha_status remember(struct ha_instance *self, struct sequence *seq, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
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

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    struct layer *to = &self->layer[layer];
    for (size_t b = 0; b < s->batch; b++) {
        HA_TRY(prefill_sequence(self, &to->seq[b], in, b, why));
        if (!self->ctx.record_selection) HA_TRY(remember(self, &to->seq[b], why));
    }
    HA_TRY(pad_tasks(self, to, why));
    /* room for all that decode steps can evict, which may all be salient */
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->q_heads; h++) {
            struct ha_context_head *head = &to->seq[b].head[h];
            size_t count = head->selected + head->padding + s->steps * s->q_len + self->blk_size,
                   most = ha_kv_max_tokens(s, b);
            HA_TRY(ha_context_reserve(&self->ctx, head, count < most ? count : most, why));
        }
    ha_pool_run(self->ctx.pool, "copy", s->batch * s->q_heads, copy_task, to);
    return HA_OK;
}

/* ---- one step --------------------------------------------------------------------------- */

static void record(struct ha_instance *self, const struct layer *layer, size_t b, size_t q_len)
{
    struct sequence *seq = &layer->seq[b];
    seq->on_device.count = 0;
    ha_tokens_add_range(&seq->on_device, seq->ring.first, seq->ring.end + q_len);
    for (size_t h = 0; h < self->ctx.shape->q_heads; h++) {
        struct ha_tokens *list = &seq->on_cpu[h];
        const struct ha_context_head *head = &seq->head[h];
        list->count = seq->padding[h] = 0;
        if (layer->append) {
            ha_tokens_add_range(list, 0, seq->stored);
            continue;
        }
        for (size_t i = 0; i < head->selected + head->padding; i++) list->token[list->count++] = head->token[i];
        seq->padding[h] = head->padding;
    }
}

/* dense attention over ring + new tokens; the new tokens then enter the ring */
static enum ha_status attend_device(struct ha_instance *self, struct layer *layer, const struct ha_step *step)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &layer->seq[b];
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        struct ha_device_seq *d = &self->device[b];
        *d = ha_kv_device_seq(s, step, b, self->o_gpu, self->lse_gpu);
        d->runs_count = ha_ring_runs(s, &seq->ring, d->runs);
        d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
        d->weights = seq->weights;
        d->weights_stride = seq->ring.kv.cap;
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->device);
    return ctx->api->attend(ctx->stream, &args);
}

static void attend_cpu(struct ha_instance *self, struct layer *layer, const struct ha_step *step)
{
    const struct ha_shape *s = self->ctx.shape;
    size_t per_seq = step->q_len * s->q_heads;
    self->cpu.units = 0;
    self->cpu.units_per_task = layer->append ? 0 : self->heads_per_task;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &layer->seq[b];
        const float *q = self->q + b * per_seq * s->head_dim;
        float *o = self->o_cpu + b * per_seq * s->head_dim, *lse = self->lse_cpu + b * per_seq;
        for (size_t h = 0; h < (layer->append ? s->kv_heads : s->q_heads); h++) {
            struct ha_rows *run = &self->runs[self->cpu.units];
            *run = layer->append ? ha_kv_rows(s, &seq->store, h, 0, seq->stored)
                                 : ha_context_rows(&self->ctx, &seq->head[h]);
            struct ha_attend *unit = &self->cpu.unit[self->cpu.units++];
            *unit = layer->append ? ha_cpu_attend_group(s, h, step->q_len, false, q, o, lse, run, 1, seq->weights_cpu,
                                                        seq->store.cap)
                                  : ha_cpu_attend_head(s, h, step->q_len, false, q, o, lse, run, 1);
            if (!layer->append) unit->packed = ha_context_packed(&seq->head[h]);
            self->keys_cpu += (double)((unit->packed.keys + run->keys) * unit->group);
        }
        self->keys_all += (double)((seq->ring.end + step->q_len - seq->ring.first) * s->q_heads);
    }
    ha_cpu_attend_run(&self->cpu, "sparse attend");
}

/* new = a * old + b * weights for the positions [first, first + count) */
static enum ha_status blend(struct ha_instance *self, struct sequence *seq, size_t origin, size_t first, size_t count,
                            float a, float b)
{
    const struct ha_context *ctx = &self->ctx;
    struct ha_stretch part[2];
    size_t parts = ha_ring_stretches(&seq->ring, first, count, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ctx->api->blend(self->post, &(struct ha_device_blend){ .y = seq->maw + part[i].slot,
                                                                      .x = seq->weights + part[i].position - origin,
                                                                      .rows = ctx->shape->q_heads,
                                                                      .cols = part[i].count,
                                                                      .y_stride = seq->ring.kv.cap,
                                                                      .x_stride = seq->ring.kv.cap,
                                                                      .a = a,
                                                                      .b = b }));
    return HA_OK;
}

/* MAW and eviction of one sequence on the post stream; the new tokens are in the ring already */
static enum ha_status age(struct ha_instance *self, struct sequence *seq, size_t q_len, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    struct ha_ring *ring = &seq->ring;
    size_t first = ring->first, fresh = ring->end - q_len, cap = ring->kv.cap;
    HA_TRY(blend(self, seq, first, first, fresh - first, 1.0f - self->alpha, self->alpha));
    HA_TRY(blend(self, seq, first, fresh, q_len, 0.0f, 1.0f));

    size_t l_max = self->blk_size * self->blk_num;
    seq->entries = ring->end - first;
    seq->evicted = ha_ring_evict_count(seq->entries, self->blk_size, self->blk_num);
    size_t left = seq->entries - seq->evicted;
    if (!(left < l_max && (seq->evicted == 0 || left + self->blk_size >= l_max)))
        return ha_why(why, HA_FAIL, "hgca: the ring holds %zu tokens after eviction, want %zu to %zu", left,
                      l_max - self->blk_size, l_max - 1);

    struct ha_stretch part[2];
    size_t parts = ha_ring_stretches(ring, first, seq->evicted, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ctx->api->copy_2d(self->post, seq->maw_evicted + part[i].position - first, cap * sizeof(float),
                                 seq->maw + part[i].slot, cap * sizeof(float), part[i].count * sizeof(float),
                                 ctx->shape->q_heads, HA_D2H));
    return ha_ring_evict(ctx, self->post, ring, &seq->store, first, seq->evicted);
}

static struct ha_merge_state packed(float *o, float *lse, size_t dim)
{
    return (struct ha_merge_state){
        .o = o, .lse = lse, .o_token_stride = dim, .o_head_stride = dim, .lse_token_stride = 1, .lse_head_stride = 1
    };
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_device_api *api = ctx->api;
    const struct ha_shape *s = ctx->shape;
    struct layer *layer = &self->layer[step->layer];
    size_t rows = s->batch * step->q_len * s->q_heads;

    ha_worker_wait(ctx->worker, layer->ticket);
    if (layer->status != HA_OK) return ha_why(why, layer->status, "%s", layer->why.text);
    layer->append = step->q_len > 1;
    for (size_t b = 0; ctx->record_selection && b < s->batch; b++) record(self, layer, b, step->q_len);

    HA_TRY(api->copy(ctx->stream, self->q, step->q, rows * s->head_dim * sizeof(float), HA_D2H));
    HA_TRY(api->event_record(self->arrived, ctx->stream));
    HA_TRY(api->stream_wait(ctx->stream, layer->settled));
    HA_TRY(attend_device(self, layer, step));

    HA_TRY(api->event_sync(self->arrived));
    attend_cpu(self, layer, step);

    const struct ha_merge_state state[2] = { packed(self->o_gpu, self->lse_gpu, s->head_dim),
                                             packed(self->o_cpu, self->lse_cpu, s->head_dim) };
    HA_TRY(api->merge(ctx->stream, &(struct ha_merge){ .form = HA_FORM_NATURAL,
                                                       .dtype = HA_F32,
                                                       .states = state,
                                                       .states_count = 2,
                                                       .tokens = rows,
                                                       .heads = 1,
                                                       .dim = s->head_dim,
                                                       .out = packed(step->o, step->lse, s->head_dim) }));
    self->counters.zero_copy_bytes += rows * (s->head_dim + 1) * sizeof(float);

    bool work = layer->append;
    for (size_t b = 0; b < s->batch; b++) {
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_ring_append(ctx, ctx->stream, &layer->seq[b].ring, &fresh, 0, step->q_len));
    }
    HA_TRY(api->event_record(layer->attended, ctx->stream));
    HA_TRY(api->stream_wait(self->post, layer->attended));
    for (size_t b = 0; b < s->batch; b++) {
        HA_TRY(age(self, &layer->seq[b], step->q_len, why));
        work |= layer->seq[b].evicted > 0;
    }
    HA_TRY(api->event_record(layer->settled, self->post));
    layer->ticket = work ? ha_worker_submit(ctx->worker, "select", settle_job, layer) : 0;
    self->steps += 1;
    return HA_OK;
}

/* ---- reports ---------------------------------------------------------------------------- */

static void selection(struct ha_instance *self, size_t layer, size_t b, size_t q_head, struct ha_selection *out)
{
    const struct sequence *seq = &self->layer[layer].seq[b];
    *out = (struct ha_selection){
        .parts = 2,
        .part = { { .token = seq->on_device.token, .count = seq->on_device.count, .on_device = true },
                  { .token = seq->on_cpu[q_head].token,
                    .count = seq->on_cpu[q_head].count,
                    .padding = seq->padding[q_head] } },
    };
}

/* returns when no job of any layer is left, whatever became of it; self may be half-made */
static void settle_all(struct ha_instance *self)
{
    for (size_t l = 0; self->layer && l < self->ctx.shape->layers; l++)
        ha_worker_wait(self->ctx.worker, self->layer[l].ticket);
}

static enum ha_status drain(struct ha_instance *self, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    settle_all(self);
    for (size_t l = 0; self->layer && l < ctx->shape->layers; l++)
        if (self->layer[l].status != HA_OK) return ha_why(why, self->layer[l].status, "%s", self->layer[l].why.text);
    return self->post ? ctx->api->stream_sync(self->post) : HA_OK;
}

/* What was evicted since the prefill is in KV_cpu, and goes back to its slots. */
static enum ha_status rewind_sequence(struct ha_instance *self, struct sequence *seq, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    struct ha_ring *ring = &seq->ring;
    const size_t n = ctx->shape->ctx[b], heads = ctx->shape->q_heads,
                 first = ha_ring_evict_count(n, self->blk_size, self->blk_num), end = ring->first < n ? ring->first : n;
    struct ha_stretch part[2];
    const size_t parts = ha_ring_stretches(ring, first, end - first, part);
    for (size_t i = 0; i < parts; i++)
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &ring->kv, part[i].slot, &seq->store, part[i].position, part[i].count,
                          HA_H2D));
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

static enum ha_status rewind_all(struct ha_instance *self, struct ha_why *why)
{
    const struct ha_shape *s = self->ctx.shape;
    for (size_t l = 0; l < s->layers; l++) {
        struct layer *layer = &self->layer[l];
        for (size_t b = 0; b < s->batch; b++) HA_TRY(rewind_sequence(self, &layer->seq[b], b, why));
        HA_TRY(pad_tasks(self, layer, why));
        ha_pool_run(self->ctx.pool, "copy", s->batch * s->q_heads, copy_task, layer);
    }
    self->counters = (struct ha_counters){ .select_ns = 0 };
    self->steps = self->keys_cpu = self->keys_all = 0;
    return self->ctx.api->stream_sync(self->ctx.stream);
}

static void counters(struct ha_instance *self, struct ha_counters *out)
{
    settle_all(self); /* the background counts too */
    double unmeasured = __builtin_nan(""), heads = (double)(self->ctx.shape->batch * self->ctx.shape->q_heads);
    *out = self->counters;
    out->hit_ratio = out->recalls = out->manage_ns = unmeasured;
    out->cpu_tokens = self->steps > 0 ? self->keys_cpu / (self->steps * heads) : unmeasured;
    out->cpu_ratio = self->steps > 0 ? self->keys_cpu / (self->keys_cpu + self->keys_all) : unmeasured;
}

static void destroy(struct ha_instance *self)
{
    if (!self) return;
    const struct ha_device_api *api = self->ctx.api;
    settle_all(self);
    if (self->post) api->stream_destroy(self->post);
    if (self->arrived) api->event_destroy(self->arrived);
    for (size_t l = 0; self->layer && l < self->ctx.shape->layers; l++) {
        if (self->layer[l].attended) api->event_destroy(self->layer[l].attended);
        if (self->layer[l].settled) api->event_destroy(self->layer[l].settled);
    }
}

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
    .unsupported = unsupported,
    .create = create,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .counters = counters,
    .drain = drain,
    .destroy = destroy,
    .rewind = rewind_all,
};
