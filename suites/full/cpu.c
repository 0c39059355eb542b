/* All KV in host memory, all attention on the CPU: queries and new KV come down, outputs go up. The arm `cpu_only`
 * attends over the context alone, with a query that is always the same: the CPU's share, nothing over the link. */

#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/store.h"

enum { LAYOUT };
static const struct ha_param params[] = {
    [LAYOUT] = HA_KV_LAYOUT("K and V", HA_KV_PLANNED),
};

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv_store *store = l->own;
    bool is_packed = ha_kv_is_packed(l->ctx,
                                     l->ctx->variant->params_count ? (size_t)l->ctx->param[LAYOUT] : HA_KV_PLANNED);
    return ha_kv_store_create(l->ctx, is_packed, b, &store[b], why);
}

static enum ha_status cpu_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    struct ha_kv_store *store = l->own;
    return ha_kv_store_load(l->ctx, &store[b], in, b);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct ha_kv_store *store = l->own;
    return ha_kv_store_append(l->ctx, l->ctx->stream, &store[b], fresh, 0, fresh->cap);
}

static void cpu(struct ha_layer *l, size_t b, size_t kv_head, struct ha_attend *a, struct ha_rows *run)
{
    const struct ha_kv_store *store = l->own;
    a->packed = ha_kv_store_packed(&store[b], kv_head);
    *run = ha_kv_store_open(l->ctx->shape, &store[b], kv_head);
}

static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_kv_store *store = l->own;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) l->due |= ha_kv_store_due(&store[b]);
    return HA_OK;
}

static enum ha_status pack(struct ha_layer *l, struct ha_why *why)
{
    struct ha_kv_store *store = l->own;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) ha_kv_store_pack(l->ctx, &store[b]);
    return HA_OK;
}

static enum ha_status rewind_store(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv_store *store = l->own;
    ha_kv_store_rewind(l->ctx, &store[b], l->ctx->shape->ctx[b]);
    return HA_OK;
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct ha_kv_store),
    .open = open,
    .prefill = cpu_prefill,
    .append = append,
    .cpu = cpu,
    .after = after,
    .settle = pack,
    .rewind = rewind_store,
    .cpu_name = "attend",
    .settle_name = "pack",
};
/* The stores stay as they are. */
static const struct ha_rule rule_of_arm = {
    .seq_bytes = sizeof(struct ha_kv_store),
    .open = open,
    .prefill = cpu_prefill,
    .cpu = cpu,
    .cpu_name = "attend",
    .unlinked = true,
};

extern const struct ha_variant ha_variant_cpu, ha_variant_cpu_only;

const struct ha_variant ha_variant_cpu = {
    .name = "cpu",
    .family = "full",
    .doc = "all KV in host memory, all attention on the CPU",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .checked = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .counters = ha_frame_counters,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
const struct ha_variant ha_variant_cpu_only = {
    .name = "cpu_only",
    .family = "full",
    .doc = "bracketing arm: CPU attention, nothing over the link; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule_of_arm),
};
