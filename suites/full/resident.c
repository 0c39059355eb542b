/* All KV on the device: the reference for quality and the ideal for latency. `bmm` is the same with attention made of
 * the vendor library's products, what a fast kernel is compared with. */

#include "harness/base/arena.h"
#include "suites/parts/kv.h"
#include "suites/parts/needs.h"
#include "suites/parts/tokens.h"
#include "harness/base/try.h"

struct ha_instance {
    struct ha_context ctx;
    bool products;             /* attention by attend_products */
    struct ha_kv *kv;          /* [layers][batch] */
    size_t *tokens;            /* [layers][batch] */
    struct ha_device_seq *seq; /* [batch] */
    struct ha_tokens all;
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D);
}

static const char *unsupported_bmm(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_PRODUCTS | HA_NEEDS_COPY_2D);
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx };
    *out = self;
    self->kv = ha_alloc(ctx->arena, s->layers * s->batch * sizeof *self->kv, HA_TAG_META, why);
    self->tokens = ha_alloc(ctx->arena, s->layers * s->batch * sizeof *self->tokens, HA_TAG_META, why);
    self->seq = ha_alloc(ctx->arena, s->batch * sizeof *self->seq, HA_TAG_META, why);
    if (!self->kv || !self->tokens || !self->seq) return HA_ERROR;
    size_t longest = 0;
    for (size_t i = 0; i < s->layers * s->batch; i++) {
        size_t cap = ha_kv_max_tokens(s, i % s->batch);
        longest = cap > longest ? cap : longest;
        HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, cap, &self->kv[i], why));
    }
    return ctx->record_selection ? ha_tokens_create(ctx, longest, &self->all, why) : HA_OK;
}

static enum ha_status create_bmm(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    HA_TRY(create(out, ctx, why));
    (*out)->products = true;
    return HA_OK;
}

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    (void)why;
    const struct ha_shape *s = self->ctx.shape;
    for (size_t b = 0; b < s->batch; b++) {
        size_t i = layer * s->batch + b;
        HA_TRY(ha_kv_load(&self->ctx, HA_MEM_DEVICE, &self->kv[i], 0, in, b, 0, s->ctx[b]));
        self->tokens[i] = s->ctx[b];
    }
    return HA_OK;
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        size_t i = step->layer * s->batch + b;
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &self->kv[i], self->tokens[i], &fresh, 0, step->q_len, HA_D2D));
        self->tokens[i] += step->q_len;
        self->seq[b] = ha_kv_device_seq(s, step, b, step->o, step->lse);
        self->seq[b].runs[self->seq[b].runs_count++] = ha_kv_rows(s, &self->kv[i], 0, 0, self->tokens[i]);
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->seq);
    return (self->products ? ctx->api->attend_products : ctx->api->attend)(ctx->stream, &args);
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out)
{
    (void)q_head;
    ha_tokens_select_all(&self->all, self->tokens[layer * self->ctx.shape->batch + seq], true, out);
}

static enum ha_status rewind_tokens(struct ha_instance *self, struct ha_why *why)
{
    (void)why;
    const struct ha_shape *s = self->ctx.shape;
    for (size_t i = 0; i < s->layers * s->batch; i++) self->tokens[i] = s->ctx[i % s->batch];
    return HA_OK;
}

static void destroy(struct ha_instance *self) { (void)self; }

extern const struct ha_variant ha_variant_resident;
const struct ha_variant ha_variant_resident = {
    .name = "resident",
    .family = "full",
    .doc = "all KV on the device: the reference for quality, the ideal for latency",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .checked = true,
    .unsupported = unsupported,
    .create = create,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
    .rewind = rewind_tokens,
};

extern const struct ha_variant ha_variant_bmm;
const struct ha_variant ha_variant_bmm = {
    .name = "bmm",
    .family = "full",
    .doc = "all KV on the device, attention as batched products with a softmax between, by the vendor's library",
    .source = "Vaswani et al. 2017, section 3.2.1",
    .contract = HA_EXACT,
    .products = true,
    .checked = true,
    .unsupported = unsupported_bmm,
    .create = create_bmm,
    .prefill = prefill,
    .attend = attend,
    .selection = selection,
    .destroy = destroy,
    .rewind = rewind_tokens,
};
