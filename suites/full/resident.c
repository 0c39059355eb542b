/* All KV on the device: the reference for quality and the ideal for latency. `bmm` is the same with attention made of
 * the vendor library's products, what a fast kernel is compared with. The arm `device_only` attends over one layer's
 * KV in every layer: the device's share of `offload`, and nothing else. */

#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/places.h"

static size_t rows(const struct ha_layer *l, size_t b, size_t piece) { return ha_kv_max_tokens(l->ctx->shape, b); }

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *kv = l->own;
    return ha_places_open(l, b, 1, rows, &kv[b], why);
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct ha_kv *kv = l->own;
    return kv[b].k + position * ha_kv_token_bytes(l->ctx->shape);
}

static enum ha_status resident_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_kv *kv = l->own;
    return ha_kv_load(l->ctx, &kv[b], 0, in, b, 0, l->ctx->shape->ctx[b]);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct ha_kv *kv = l->own;
    return l->placed ? HA_OK : ha_kv_copy(l->ctx, l->ctx->stream, &kv[b], l->tokens[b], fresh, 0, fresh->cap);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_kv *kv = l->own;
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &kv[b], 0, 0, l->tokens[b] + step->q_len);
}

/* the arm's: the KV of layer 0 in every layer */
static enum ha_status open_first(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *kv = l->own;
    const struct ha_layer *first = l - l->layer;
    if (l->layer == 0) return open(l, b, why);
    kv[b] = ((const struct ha_kv *)first->own)[b];
    l->rows = first->rows;
    return HA_OK;
}

static enum ha_status prefill_first(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    return l->layer == 0 ? resident_prefill(l, b, in, why) : HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct ha_kv),
    .open = open,
    .prefill = resident_prefill,
    .append = append,
    .place = place,
    .device = device,
};
static const struct ha_rule rule_of_arm = {
    .seq_bytes = sizeof(struct ha_kv),
    .open = open_first,
    .prefill = prefill_first,
    .append = append,
    .place = place,
    .device = device,
};

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
