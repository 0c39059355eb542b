/* Heavy hitters: each query head keeps its recent tokens and those with the largest attention
 * weight accumulated so far; the others are evicted for good. The device holds each query head's
 * own tokens; the host keeps their positions and weights and decides. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/observe.h"

#include <stdlib.h>

enum { HEAVY, RECENT };
static const struct ha_param params[] = {
    [HEAVY] = { "heavy", 0.10, 0, 1, "share of the context that is kept for its weight", .draw = "0 0.1 0.5 1" },
    [RECENT] = { "recent", 0.10, 0, 1, "share of the context that is kept as most recent", .draw = "0 0.1 0.5 1" },
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
    struct entry *order; /* [cap], for the ranking of a head */
};

static size_t share(double part, size_t tokens) { return ha_most((size_t)(part * (double)tokens), 1); }

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + b;
    seq->heavy = share(ctx->param[HEAVY], s->ctx[b]);
    seq->recent = share(ctx->param[RECENT], s->ctx[b]);
    seq->cap = seq->heavy + seq->recent + s->q_len;
    size_t rows = s->q_heads * seq->cap, bytes = rows * ha_kv_head_bytes(s);
    seq->k = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
    seq->v = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_KV, why);
    seq->weights_device = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, rows * sizeof(float), HA_TAG_META, why);
    seq->weights = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, rows * sizeof(float), HA_TAG_META, why);
    seq->entry = ha_alloc(ctx->arena, rows * sizeof *seq->entry, HA_TAG_META, why);
    seq->order = ha_alloc(ctx->arena, seq->cap * sizeof *seq->order, HA_TAG_SCRATCH, why);
    return seq->k && seq->v && seq->weights_device && seq->weights && seq->entry && seq->order ? HA_OK : HA_ERROR;
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
    return older ? &order[ha_least(older, seq->heavy) - 1] : NULL;
}

static enum ha_status keep(const struct ha_context *ctx, struct sequence *seq, size_t q_head,
                           const struct ha_prefill *in, size_t b, const float *weights, struct entry *entry,
                           struct entry *order)
{
    const struct ha_shape *s = ctx->shape;
    size_t n = seq->tokens, row = ha_kv_head_bytes(s), from = q_head / ha_shape_group(s) * in->cap, kept = 0;
    double observed = (double)ha_least(s->observed, n);
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

static enum ha_status h2o_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + b;
    size_t n = seq->tokens = s->ctx[b];
    float *weights = ha_alloc(ctx->arena, s->q_heads * n * sizeof *weights, HA_TAG_SCRATCH, why);
    struct entry *entry = ha_alloc(ctx->arena, 2 * n * sizeof *entry, HA_TAG_SCRATCH, why);
    if (!weights || !entry) return HA_ERROR;
    HA_TRY(ha_observe(ctx, in, b, 0, n, weights, n, why));
    for (size_t h = 0; h < s->q_heads; h++) HA_TRY(keep(ctx, seq, h, in, b, weights + h * n, entry, entry + n));
    /* the copies read the caller's memory, which is only valid until prefill returns */
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_free(ctx->arena, weights);
    ha_free(ctx->arena, entry);
    return HA_OK;
}

/* The new tokens behind the kept ones, in every head. */
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = (struct sequence *)l->own + b;
    size_t head = ha_kv_head_bytes(s), token = ha_kv_token_bytes(s), count = fresh->cap;
    for (size_t h = 0; h < s->q_heads; h++) {
        size_t slot = h * seq->cap + seq->kept, from = h / ha_shape_group(s) * head;
        HA_TRY(ctx->api->copy_2d(ctx->stream, seq->k + slot * head, head, fresh->k + from, token, head, count, HA_D2D));
        HA_TRY(ctx->api->copy_2d(ctx->stream, seq->v + slot * head, head, fresh->v + from, token, head, count, HA_D2D));
        for (size_t t = 0; t < count; t++) seq->entry[slot + t] = (struct entry){ (uint32_t)(seq->tokens + t), 0.0 };
    }
    seq->kept += count;
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    for (size_t i = 0; i < seq->kept; i++)
        HA_TRY(ha_positions_add(l->ctx, &used->device, &seq->entry[q_head * seq->cap + i].token, 1, why));
    return HA_OK;
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    size_t head = ha_kv_head_bytes(l->ctx->shape);
    d->runs[d->runs_count++] = (struct ha_rows){
        .k = seq->k, .v = seq->v, .k_stride_bytes = head, .v_stride_bytes = head, .keys = seq->kept
    };
    d->k_head_bytes = d->v_head_bytes = seq->cap * head;
    d->weights = seq->weights_device;
    d->weights_stride = seq->cap;
}

/* Removes the entries that do not stay from one head; the last slots move into the holes. *stay: how many do. */
static enum ha_status evict(const struct ha_context *ctx, const struct sequence *seq, size_t q_head, size_t *stay)
{
    size_t head = ha_kv_head_bytes(ctx->shape), base = q_head * seq->cap, end = seq->kept;
    struct entry *entry = seq->entry + base;
    const struct entry *last = least_heavy(seq, seq->order, entry, end);
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
    *stay = end;
    return HA_OK;
}

static enum ha_status evict_all(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *all = l->own;
    for (size_t b = 0; b < s->batch; b++)
        HA_TRY(ctx->api->copy(ctx->stream, all[b].weights, all[b].weights_device,
                              s->q_heads * all[b].cap * sizeof(float), HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &all[b];
        size_t stay = 0;
        seq->tokens += step->q_len;
        for (size_t h = 0; h < s->q_heads; h++) {
            for (size_t i = 0; i < seq->kept; i++)
                seq->entry[h * seq->cap + i].weight += (double)seq->weights[h * seq->cap + i];
            HA_TRY(evict(ctx, seq, h, &stay));
        }
        seq->kept = stay;
    }
    return HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .open = open,
    .prefill = h2o_prefill,
    .append = append,
    .use = use,
    .device = device,
    .after = evict_all,
    .own_heads = true,
};

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
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    HA_FRAME(rule),
};
