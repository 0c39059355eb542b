/* All KV on the device: the reference for quality and the ideal for latency. `bmm` is the same with attention made of
 * the vendor library's products, what a fast kernel is compared with. The arm `device_only` attends over one layer's
 * KV in every layer: the device's share of `offload`, and nothing else. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"

/* The new tokens of all sequences go to their places by one move of K and one of V: two launches in a layer, and not
 * two copies for each sequence. */
struct places {
    uint32_t
        *row; /* device: [steps][batch][q_len] in the layer's rows, the same in all layers; NULL: there is no move */
};

static size_t fresh_rows(const struct ha_shape *s) { return s->batch * s->q_len; }

static size_t all_rows(const struct ha_shape *s)
{
    size_t rows = 0;
    for (size_t b = 0; b < s->batch; b++) rows += ha_kv_max_tokens(s, b);
    return rows;
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct places *places = first->shared;
    const size_t count = s->steps * fresh_rows(s), bytes = count * sizeof *places->row;
    if (!ctx->api->move || all_rows(s) > UINT32_MAX) return HA_OK;
    uint32_t *row = ha_alloc(ctx->arena, bytes, HA_TAG_SCRATCH, why);
    places->row = row ? ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!places->row) return HA_ERROR;
    for (size_t i = 0; i < count; i++) {
        const size_t b = i / s->q_len % s->batch;
        size_t at = s->ctx[b] + i / fresh_rows(s) * s->q_len + i % s->q_len;
        for (size_t before = 0; before < b; before++) at += ha_kv_max_tokens(s, before);
        row[i] = (uint32_t)at;
    }
    HA_TRY(ctx->api->copy(ctx->stream, places->row, row, bytes, HA_H2D));
    return ctx->api->stream_sync(ctx->stream);
}

/* All sequences of a layer lie one behind the other. */
static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct ha_kv *kv = l->own;
    if (b == 0) HA_TRY(ha_kv_create(l->ctx, HA_MEM_DEVICE, all_rows(s), &kv[0], why));
    else kv[b] = kv[b - 1];
    const size_t before = b ? kv[b].cap * ha_kv_token_bytes(s) : 0;
    kv[b].k += before;
    kv[b].v += before;
    kv[b].cap = ha_kv_max_tokens(s, b);
    return HA_OK;
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_kv *kv = l->own;
    return ha_kv_load(l->ctx, &kv[b], 0, in, b, 0, l->ctx->shape->ctx[b]);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct places *places = l->shared;
    const struct ha_kv *kv = l->own;
    if (!places->row) return ha_kv_copy(ctx, ctx->stream, &kv[b], l->tokens[b], fresh, 0, fresh->cap);
    if (b > 0) return HA_OK; /* they went with the first one */
    const size_t token = ha_kv_token_bytes(s), step = (l->tokens[0] - s->ctx[0]) / s->q_len;
    struct ha_device_move move = { .dst = kv->k,
                                   .src = fresh->k,
                                   .dst_index = places->row + step * fresh_rows(s),
                                   .rows = fresh_rows(s),
                                   .row_bytes = token,
                                   .dst_stride_bytes = token,
                                   .src_stride_bytes = token };
    HA_TRY(ctx->api->move(ctx->stream, &move));
    move.dst = kv->v;
    move.src = fresh->v;
    return ctx->api->move(ctx->stream, &move);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_kv *kv = l->own;
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &kv[b], 0, 0, l->tokens[b] + step->q_len);
}

/* the arm's: the KV of layer 0 in every layer */
static enum ha_status open_first(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *kv = l->own, *first = l[-(ptrdiff_t)l->layer].own;
    if (l->layer == 0) return open(l, b, why);
    kv[b] = first[b];
    return HA_OK;
}

static enum ha_status prefill_first(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    return l->layer == 0 ? prefill(l, b, in, why) : HA_OK;
}

static const struct ha_rule rule = { .shared_bytes = sizeof(struct places),
                                     .seq_bytes = sizeof(struct ha_kv),
                                     .share = share,
                                     .open = open,
                                     .prefill = prefill,
                                     .append = append,
                                     .device = device };
static const struct ha_rule rule_of_arm = { .shared_bytes = sizeof(struct places),
                                            .seq_bytes = sizeof(struct ha_kv),
                                            .share = share,
                                            .open = open_first,
                                            .prefill = prefill_first,
                                            .append = append,
                                            .device = device };

extern const struct ha_variant ha_variant_resident, ha_variant_bmm, ha_variant_device_only;

const struct ha_variant ha_variant_resident = {
    .name = "resident",
    .family = "full",
    .doc = "all KV on the device: the reference for quality, the ideal for latency",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .checked = true,
    .one_stream = true,
    .needs = HA_NEEDS_ATTEND,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
const struct ha_variant ha_variant_bmm = {
    .name = "bmm",
    .family = "full",
    .doc = "all KV on the device, attention as batched products with a softmax between, by the vendor's library",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .products = true,
    .checked = true,
    .one_stream = true,
    .needs = HA_NEEDS_PRODUCTS,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
const struct ha_variant ha_variant_device_only = {
    .name = "device_only",
    .family = "full",
    .doc = "bracketing arm: device attention over one resident layer, no loads; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .one_stream = true,
    .needs = HA_NEEDS_ATTEND,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule_of_arm),
};
