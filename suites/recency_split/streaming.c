/* Attention sinks and a recent window; everything else is lost for good. With N tokens, the new
 * ones included, and W = max(window, q_len), a step uses {j < sink} and {j >= N - W}. */

#include "harness/base/arena.h"
#include "suites/parts/needs.h"
#include "suites/parts/ring.h"
#include "suites/parts/tokens.h"
#include "harness/base/try.h"

enum { SINK, WINDOW };
static const struct ha_param params[] = {
    [SINK] = { "sink", 4, 0, 1 << 20, "first tokens that stay", true },
    [WINDOW] = { "window", 1020, 1, 1 << 30, "last tokens that stay, new ones included", true },
};

struct sequence {
    struct ha_kv sink;
    struct ha_ring recent; /* of the tokens from position `sinks` on */
};

struct ha_instance {
    struct ha_context ctx;
    size_t sinks, window;
    struct sequence *seq;         /* [layers][batch] */
    struct ha_device_seq *device; /* [batch] */
    struct ha_tokens *used;       /* [layers][batch] */
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D);
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t count = s->layers * s->batch, window = (size_t)ctx->param[WINDOW];
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx,
                                  .sinks = (size_t)ctx->param[SINK],
                                  .window = window > s->q_len ? window : s->q_len };
    *out = self;
    self->seq = ha_alloc(ctx->arena, count * sizeof *self->seq, HA_TAG_META, why);
    self->device = ha_alloc(ctx->arena, s->batch * sizeof *self->device, HA_TAG_META, why);
    self->used = ha_alloc(ctx->arena, count * sizeof *self->used, HA_TAG_META, why);
    if (!self->seq || !self->device || !self->used) return HA_ERROR;
    for (size_t i = 0; i < count; i++) {
        struct sequence *seq = &self->seq[i];
        size_t most = ha_kv_max_tokens(s, i % s->batch), sinks = self->sinks < most ? self->sinks : most;
        size_t cap = self->window + s->q_len < most ? self->window + s->q_len : most;
        *seq = (struct sequence){ .recent = { .first = 0 } };
        HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, sinks, &seq->sink, why));
        HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, cap, &seq->recent.kv, why));
        if (ctx->record_selection) HA_TRY(ha_tokens_create(ctx, most, &self->used[i], why));
    }
    return HA_OK;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    (void)why;
    const struct ha_shape *s = self->ctx.shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[layer * s->batch + b];
        size_t n = s->ctx[b], sinks = least(self->sinks, n), recent = least(self->window, n - sinks);
        HA_TRY(ha_kv_load(&self->ctx, HA_MEM_DEVICE, &seq->sink, 0, in, b, 0, sinks));
        HA_TRY(ha_ring_load(&self->ctx, &seq->recent, in, b, n - recent));
    }
    return HA_OK;
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    const struct ha_context *ctx = &self->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[step->layer * s->batch + b];
        struct ha_tokens *used = &self->used[step->layer * s->batch + b];
        size_t old = seq->recent.end, now = old + step->q_len;
        size_t sinks = least(self->sinks, old), edge = most(now - least(self->window, now), sinks);
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        struct ha_device_seq *d = &self->device[b];

        seq->recent.first = most(seq->recent.first, least(edge, old));
        *d = ha_kv_device_seq(s, step, b, step->o, step->lse);
        if (sinks) d->runs[d->runs_count++] = ha_kv_rows(s, &seq->sink, 0, 0, sinks);
        d->runs_count += ha_ring_runs(s, &seq->recent, d->runs + d->runs_count);
        d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);

        if (ctx->record_selection) {
            used->count = 0;
            ha_tokens_add_range(used, 0, sinks);
            ha_tokens_add_range(used, seq->recent.first, now);
        }
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->device);
    HA_TRY(ctx->api->attend(ctx->stream, &args));

    for (size_t b = 0; b < s->batch; b++) {
        struct sequence *seq = &self->seq[step->layer * s->batch + b];
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        size_t old = seq->recent.end, to_sink = least(step->q_len, self->sinks - least(self->sinks, old));
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->sink, old, &fresh, 0, to_sink, HA_D2D));
        seq->recent.end += to_sink;
        if (to_sink) seq->recent.first = seq->recent.end;
        HA_TRY(ha_ring_append(ctx, ctx->stream, &seq->recent, &fresh, to_sink, step->q_len - to_sink));
    }
    return HA_OK;
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out)
{
    (void)q_head;
    const struct ha_tokens *used = &self->used[layer * self->ctx.shape->batch + seq];
    *out = (struct ha_selection){ .parts = 1,
                                  .part = { { .token = used->token, .count = used->count, .on_device = true } } };
}

static void destroy(struct ha_instance *self) { (void)self; }

extern const struct ha_variant ha_variant_streaming;
const struct ha_variant ha_variant_streaming = {
    .name = "streaming",
    .family = "recency_split",
    .doc = "attention sinks and a recent window on the device, the rest dropped",
    .source = "StreamingLLM (Xiao et al. 2024), section 3",
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
