/* Token omission via attention: a layer keeps so many tokens, the same ones for all heads. When there are more, those
 * that the newest query weighs least, in the mean over the query heads, are dropped for good. The device holds the
 * tokens; the host keeps their positions and decides. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/observe.h"
#include "suites/parts/places.h"

#include <stdlib.h>

enum { BUDGET };
static const struct ha_param params[] = {
    [BUDGET] = { "budget", 0.5, 0, 2, "tokens that stay, as a share of the context; above 1: of the steps', too",
                 .draw = "0 0.1 0.5 1 2" },
};

struct entry {
    uint32_t token;
    size_t slot;
    double weight; /* of the newest query, the sum over the query heads */
};

struct sequence {
    struct ha_kv kv;     /* device: [cap], in any order but for a step's own tokens, which come last */
    uint32_t *token;     /* [cap] their positions */
    size_t room, kept;   /* tokens that stay; that there are */
    struct entry *entry; /* [cap], for the choice */
    float *weights;      /* pinned: [q_heads][cap], of the last step */
    float *weights_device;
};

static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

static size_t room(const struct ha_layer *l, size_t b)
{
    return ha_most((size_t)(l->ctx->param[BUDGET] * (double)l->ctx->shape->ctx[b]), 1);
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    return ha_least(room(l, b) + l->ctx->shape->q_len, ha_kv_max_tokens(l->ctx->shape, b));
}

/* Behind those that stay: before every step as many as there were tokens, or as there is room for. */
static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct ha_shape *s = l->ctx->shape;
    const size_t at = (position - s->ctx[b]) % s->q_len, row = ha_least(room(l, b), position - at) + at;
    return sequence(l, b)->kv.k + row * ha_kv_token_bytes(s);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = sequence(l, b);
    seq->room = room(l, b);
    const size_t cap = rows(l, b, 0), bytes = s->q_heads * cap * sizeof(float);
    HA_TRY(ha_places_open(l, b, 1, rows, &seq->kv, why));
    seq->weights_device = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    seq->weights = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_META, why);
    seq->token = ha_alloc(ctx->arena, cap * sizeof *seq->token, HA_TAG_META, why);
    seq->entry = ha_alloc(ctx->arena, cap * sizeof *seq->entry, HA_TAG_SCRATCH, why);
    return seq->weights_device && seq->weights && seq->token && seq->entry ? HA_OK : HA_ERROR;
}

/* lightest first; of equals the older */
static int by_weight(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}
static int by_slot(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* The first of the `count` entries become those that are dropped, the `room` last ones those that stay, either by slot.
 * weights: [q_heads][stride], by slot. Returns how many are dropped. */
static size_t choose(const struct ha_shape *s, struct entry *entry, size_t count, size_t room, const float *weights,
                     size_t stride)
{
    const size_t gone = count - ha_least(count, room);
    for (size_t i = 0; i < count; i++) {
        entry[i].weight = 0;
        for (size_t h = 0; h < s->q_heads; h++) entry[i].weight += (double)weights[h * stride + entry[i].slot];
    }
    if (gone) qsort(entry, count, sizeof *entry, by_weight);
    qsort(entry, gone, sizeof *entry, by_slot);
    qsort(entry + gone, count - gone, sizeof *entry, by_slot);
    return gone;
}

/* What the last of the observed queries says, alone. */
static enum ha_status observe_last(const struct ha_context *ctx, const struct ha_prefill *in, size_t b, float *weights,
                                   struct ha_why *why)
{
    const size_t n = ctx->shape->ctx[b], observed = ha_least(ctx->shape->observed, n);
    struct ha_shape shape = *ctx->shape;
    struct ha_context of_one = *ctx;
    const float *last[HA_BATCH_MAX];
    struct ha_prefill newest = *in;
    shape.observed = ha_least(observed, 1);
    of_one.shape = &shape;
    last[b] = observed ? in->q[b] + (observed - 1) * shape.q_heads * shape.head_dim : NULL;
    newest.q = last;
    return ha_observe(&of_one, &newest, b, 0, n, weights, n, why);
}

static enum ha_status tova_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct sequence *seq = sequence(l, b);
    const size_t n = s->ctx[b];
    float *weights = ha_alloc(ctx->arena, s->q_heads * n * sizeof *weights, HA_TAG_SCRATCH, why);
    struct entry *entry = ha_alloc(ctx->arena, n * sizeof *entry, HA_TAG_SCRATCH, why);
    if (!weights || !entry) return HA_ERROR;
    HA_TRY(observe_last(ctx, in, b, weights, why));
    for (size_t t = 0; t < n; t++) entry[t] = (struct entry){ .token = (uint32_t)t, .slot = t };
    const size_t gone = choose(s, entry, n, seq->room, weights, n);
    seq->kept = n - gone;
    for (size_t i = 0; i < seq->kept; i++) seq->token[i] = entry[gone + i].token;
    for (size_t i = 0, run; i < seq->kept; i += run) {
        for (run = 1; i + run < seq->kept && seq->token[i + run] == seq->token[i] + run;) run++;
        HA_TRY(ha_kv_load(ctx, &seq->kv, i, in, b, seq->token[i], run));
    }
    ha_free(ctx->arena, weights);
    ha_free(ctx->arena, entry);
    return HA_OK;
}

/* The new tokens behind the kept ones. */
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct sequence *seq = sequence(l, b);
    if (!l->placed) HA_TRY(ha_kv_copy(l->ctx, l->ctx->stream, &seq->kv, seq->kept, fresh, 0, fresh->cap));
    for (size_t t = 0; t < fresh->cap; t++) seq->token[seq->kept++] = (uint32_t)(l->tokens[b] + t);
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    return ha_positions_add(l->ctx, &used->device, sequence(l, b)->token, sequence(l, b)->kept, why);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct sequence *seq = sequence(l, b);
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &seq->kv, 0, 0, seq->kept);
    d->weights = seq->weights_device;
    d->weights_stride = seq->kv.cap;
}

/* Drops the lightest tokens; the last slots move into the holes. */
static enum ha_status evict(const struct ha_context *ctx, struct sequence *seq)
{
    for (size_t i = 0; i < seq->kept; i++) seq->entry[i] = (struct entry){ .token = seq->token[i], .slot = i };
    const size_t gone = choose(ctx->shape, seq->entry, seq->kept, seq->room, seq->weights, seq->kv.cap),
                 stay = seq->kept - gone;
    const struct entry *hole = seq->entry, *from = seq->entry + seq->kept;
    for (; hole < seq->entry + gone && hole->slot < stay; hole++) {
        from--;
        seq->token[hole->slot] = from->token;
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->kv, hole->slot, &seq->kv, from->slot, 1));
    }
    seq->kept = stay;
    return HA_OK;
}

static enum ha_status evict_all(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++)
        HA_TRY(ctx->api->copy(ctx->stream, sequence(l, b)->weights, sequence(l, b)->weights_device,
                              s->q_heads * sequence(l, b)->kv.cap * sizeof(float), HA_D2H));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    for (size_t b = 0; b < s->batch; b++) HA_TRY(evict(ctx, sequence(l, b)));
    return HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .open = open,
    .prefill = tova_prefill,
    .append = append,
    .place = place,
    .use = use,
    .device = device,
    .after = evict_all,
};

extern const struct ha_variant ha_variant_tova;
const struct ha_variant ha_variant_tova = {
    .name = "tova",
    .family = "recency_split",
    .doc = "a layer keeps the tokens that the newest query weighs most, the same for all heads, the rest dropped",
    .source = "TOVA (Oren et al. 2024), section 3.2",
    .contract = HA_STATISTICAL,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    HA_FRAME(rule),
};
