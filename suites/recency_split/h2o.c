/* Heavy hitters: each query head keeps its recent tokens and those with the largest attention
 * weight accumulated so far; the others are evicted for good. The device holds each query head's
 * own tokens; the host keeps their positions and weights and decides. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "suites/parts/kv.h"
#include "suites/parts/needs.h"
#include "suites/parts/observe.h"
#include "harness/base/try.h"

#include <stdlib.h>

enum { HEAVY, RECENT };
static const struct ha_param params[] = {
    [HEAVY] = { "heavy", 0.10, 0, 1, "share of the context that is kept for its weight", false },
    [RECENT] = { "recent", 0.10, 0, 1, "share of the context that is kept as most recent", false },
};

struct entry {
    uint32_t token;
    double weight; /* accumulated */
};

struct sequence {
    unsigned char *k, *v; /* device: [q_heads][cap][head_dim] */
    struct entry *entry;  /* [q_heads][cap], by slot */
    size_t cap, kept;     /* the same number in every head */
    size_t tokens;        /* of the sequence so far */
    size_t heavy, recent;
    float *weights; /* pinned: [q_heads][cap], of the last step */
    float *weights_device;
    uint32_t *used; /* [q_heads][cap], for selection() */
    size_t used_count;
};

struct ha_instance {
    struct ha_context ctx;
    struct sequence *seq;         /* [layers][batch] */
    struct ha_device_seq *device; /* [batch] */
    struct entry *order;          /* the entries of one head, for the ranking */
    struct ha_event *weighed;
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D);
}

static size_t share(double part, size_t tokens)
{
    size_t n = (size_t)(part * (double)tokens);
    return n ? n : 1;
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t count = s->layers * s->batch, longest = 0;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx };
    *out = self;
    self->seq = ha_alloc(ctx->arena, count * sizeof *self->seq, HA_TAG_META, why);
    self->device = ha_alloc(ctx->arena, s->batch * sizeof *self->device, HA_TAG_META, why);
    if (!self->seq || !self->device) return HA_ERROR;
    HA_TRY(ctx->api->event_create(ctx->device, &self->weighed, why));
    for (size_t i = 0; i < count; i++) {
        struct sequence *seq = &self->seq[i];
        size_t n = s->ctx[i % s->batch];
        *seq = (struct sequence){ .heavy = share(ctx->param[HEAVY], n), .recent = share(ctx->param[RECENT], n) };
        seq->cap = seq->heavy + seq->recent + s->q_len;
        longest = seq->cap > longest ? seq->cap : longest;
        size_t rows = s->q_heads * seq->cap, bytes = rows * ha_kv_head_bytes(s);
        seq->k = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
        seq->v = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
        seq->weights_device = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, rows * sizeof(float), HA_TAG_META, why);
        seq->weights = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, rows * sizeof(float), HA_TAG_META, why);
        seq->entry = ha_alloc(ctx->arena, rows * sizeof *seq->entry, HA_TAG_META, why);
        seq->used = ha_alloc(ctx->arena, rows * sizeof *seq->used, HA_TAG_SCRATCH, why);
        if (!seq->k || !seq->v || !seq->weights_device || !seq->weights || !seq->entry || !seq->used) return HA_ERROR;
    }
    self->order = ha_alloc(ctx->arena, longest * sizeof *self->order, HA_TAG_SCRATCH, why);
    return self->order ? HA_OK : HA_ERROR;
}

/* heavier first; of equals the lower position */
static int by_weight(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->weight > y->weight) return -1;
    if (x->weight < y->weight) return 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Does an entry stay when `tokens` tokens have been seen? Recent ones do; of the others the
 * `heavy` with the largest weight, of which `last` is the least. */
static bool stays(const struct sequence *seq, const struct entry *e, const struct entry *last)
{
    return e->token + seq->recent >= seq->tokens || (last && by_weight(e, last) <= 0);
}

/* the least of the `heavy` heaviest among the older of `count` entries, or NULL if there are none */
static const struct entry *least_heavy(const struct sequence *seq, struct entry *order, const struct entry *entry,
                                       size_t count)
{
    size_t older = 0;
    for (size_t i = 0; i < count; i++)
        if (entry[i].token + seq->recent < seq->tokens) order[older++] = entry[i];
    qsort(order, older, sizeof *order, by_weight);
    return older ? &order[(older < seq->heavy ? older : seq->heavy) - 1] : NULL;
}

static enum ha_status keep(struct ha_instance *self, struct sequence *seq, size_t q_head, const struct ha_prefill *in,
                           size_t b, const float *weights, struct entry *entry, struct entry *order)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    size_t n = seq->tokens, row = ha_kv_head_bytes(s), from = q_head / ha_shape_group(s) * n, kept = 0;
    double observed = (double)(s->observed < n ? s->observed : n);
    for (size_t t = 0; t < n; t++) entry[t] = (struct entry){ (uint32_t)t, (double)weights[t] * observed };
    const struct entry *last = least_heavy(seq, order, entry, n);
    for (size_t t = 0; t < n; t++) {
        if (!stays(seq, &entry[t], last)) continue;
        size_t slot = q_head * seq->cap + kept++;
        seq->entry[slot] = entry[t];
        HA_TRY(ctx->api->copy(ctx->stream, seq->k + slot * row, (const unsigned char *)in->k[b] + (from + t) * row, row,
                              HA_H2D));
        HA_TRY(ctx->api->copy(ctx->stream, seq->v + slot * row, (const unsigned char *)in->v[b] + (from + t) * row, row,
                              HA_H2D));
    }
    seq->kept = kept;
    return HA_OK;
}

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[layer * s->batch + b];
        size_t n = seq->tokens = s->ctx[b];
        float *weights = ha_alloc(ctx->arena, s->q_heads * n * sizeof *weights, HA_TAG_SCRATCH, why);
        struct entry *entry = ha_alloc(ctx->arena, n * sizeof *entry, HA_TAG_SCRATCH, why);
        struct entry *order = ha_alloc(ctx->arena, n * sizeof *order, HA_TAG_SCRATCH, why);
        if (!weights || !entry || !order) return HA_ERROR;
        HA_TRY(ha_observe(ctx, in, b, 0, n, weights, n, why));
        for (size_t h = 0; h < s->q_heads; h++) HA_TRY(keep(self, seq, h, in, b, weights + h * n, entry, order));
        /* the copies read the caller's memory, which is only valid until prefill returns */
        HA_TRY(ctx->api->stream_sync(ctx->stream));
        ha_free(ctx->arena, weights);
        ha_free(ctx->arena, entry);
        ha_free(ctx->arena, order);
    }
    return HA_OK;
}

/* Removes the entries that do not stay from one head; the last slots move into the holes. */
static enum ha_status evict(struct ha_instance *self, struct sequence *seq, size_t q_head, size_t count)
{
    const struct ha_context *ctx = &self->ctx;
    size_t head = ha_kv_head_bytes(ctx->shape), base = q_head * seq->cap;
    struct entry *entry = seq->entry + base;
    const struct entry *last = least_heavy(seq, self->order, entry, count);
    size_t end = count;
    for (size_t i = 0; i < end;) {
        if (stays(seq, &entry[i], last)) {
            i++;
            continue;
        }
        size_t from = --end;
        if (from == i) break;
        entry[i] = entry[from];
        HA_TRY(ctx->api->copy(ctx->stream, seq->k + (base + i) * head, seq->k + (base + from) * head, head, HA_D2D));
        HA_TRY(ctx->api->copy(ctx->stream, seq->v + (base + i) * head, seq->v + (base + from) * head, head, HA_D2D));
    }
    seq->kept = end;
    return HA_OK;
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    const struct ha_context *ctx = &self->ctx;
    const struct ha_device_api *api = ctx->api;
    const struct ha_shape *s = ctx->shape;
    size_t head = ha_kv_head_bytes(s), token = ha_kv_token_bytes(s), group = ha_shape_group(s);

    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[step->layer * s->batch + b];
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        size_t count = seq->kept + step->q_len;
        for (size_t h = 0; h < s->q_heads; h++) {
            size_t to = (h * seq->cap + seq->kept) * head, from = h / group * head;
            HA_TRY(api->copy_2d(ctx->stream, seq->k + to, head, fresh.k + from, token, head, step->q_len, HA_D2D));
            HA_TRY(api->copy_2d(ctx->stream, seq->v + to, head, fresh.v + from, token, head, step->q_len, HA_D2D));
            for (size_t t = 0; t < step->q_len; t++)
                seq->entry[h * seq->cap + seq->kept + t] = (struct entry){ (uint32_t)(seq->tokens + t), 0.0 };
            if (ctx->record_selection)
                for (size_t i = 0; i < count; i++) seq->used[h * seq->cap + i] = seq->entry[h * seq->cap + i].token;
        }
        seq->used_count = count;
        struct ha_device_seq *d = &self->device[b];
        *d = ha_kv_device_seq(s, step, b, step->o, step->lse);
        d->runs[d->runs_count++] = (struct ha_rows){
            .k = seq->k, .v = seq->v, .k_stride_bytes = head, .v_stride_bytes = head, .keys = count
        };
        d->k_head_bytes = d->v_head_bytes = seq->cap * head;
        d->weights = seq->weights_device;
        d->weights_stride = seq->cap;
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->device);
    args.kv_heads = s->q_heads; /* each query head has tokens of its own */
    HA_TRY(api->attend(ctx->stream, &args));

    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[step->layer * s->batch + b];
        HA_TRY(
            api->copy(ctx->stream, seq->weights, seq->weights_device, s->q_heads * seq->cap * sizeof(float), HA_D2H));
    }
    HA_TRY(api->event_record(self->weighed, ctx->stream));
    HA_TRY(api->event_sync(self->weighed));
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[step->layer * s->batch + b];
        size_t count = seq->used_count;
        seq->tokens += step->q_len;
        for (size_t h = 0; h < s->q_heads; h++) {
            for (size_t i = 0; i < count; i++)
                seq->entry[h * seq->cap + i].weight += (double)seq->weights[h * seq->cap + i];
            HA_TRY(evict(self, seq, h, count));
        }
    }
    return HA_OK;
}

static void selection(struct ha_instance *self, size_t layer, size_t seq_index, size_t q_head, struct ha_selection *out)
{
    const struct sequence *seq = &self->seq[layer * self->ctx.shape->batch + seq_index];
    *out = (struct ha_selection){
        .parts = 1, .part = { { .token = seq->used + q_head * seq->cap, .count = seq->used_count, .on_device = true } }
    };
}

static void destroy(struct ha_instance *self)
{
    if (self && self->weighed) self->ctx.api->event_destroy(self->weighed);
}

extern const struct ha_variant ha_variant_h2o;
const struct ha_variant ha_variant_h2o = {
    .name = "h2o",
    .family = "recency_split",
    .doc = "each query head keeps its heaviest and its most recent tokens on the device, the rest dropped",
    .source = "H2O (Zhang et al. 2023), section 4",
    .contract = HA_STATISTICAL,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .unsupported = unsupported,
    .create = create,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
};
