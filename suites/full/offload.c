/* All KV in host memory; each layer's KV is loaded into one of two device buffers while the layer
 * before it computes (FlexGen). H2D: 2 * tokens * kv_heads * head_dim * bytes for each layer. */

#include "harness/base/arena.h"
#include "suites/parts/kv.h"
#include "suites/parts/needs.h"
#include "suites/parts/tokens.h"
#include "harness/base/try.h"

enum { BUFFERS = 2 };

struct buffer {
    struct ha_kv *kv;               /* [batch], device */
    struct ha_event *loaded, *used; /* the layer has arrived; its attention is over */
};

struct ha_instance {
    struct ha_context ctx;
    struct ha_kv *store; /* [layers][batch], pinned */
    size_t *tokens;      /* [layers][batch] */
    struct buffer buffer[BUFFERS];
    struct ha_stream *link;
    struct ha_event **stored;  /* [layers]: the new tokens have reached the store */
    size_t next;               /* the buffer that the next request fills */
    size_t requested;          /* the layer that is on its way, or layers */
    struct ha_device_seq *seq; /* [batch] */
    struct ha_tokens all;
};

static const char *unsupported(const struct ha_shape *shape, const double *param, const struct ha_device_api *api)
{
    (void)shape, (void)param;
    return ha_needs(api, HA_NEEDS_ATTEND);
}

static enum ha_status create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const struct ha_device_api *api = ctx->api;
    struct ha_instance *self = ha_alloc(ctx->arena, sizeof *self, HA_TAG_META, why);
    if (!self) return HA_ERROR;
    *self = (struct ha_instance){ .ctx = *ctx, .requested = s->layers };
    *out = self;
    self->store = ha_alloc(ctx->arena, s->layers * s->batch * sizeof *self->store, HA_TAG_META, why);
    self->tokens = ha_alloc(ctx->arena, s->layers * s->batch * sizeof *self->tokens, HA_TAG_META, why);
    self->seq = ha_alloc(ctx->arena, s->batch * sizeof *self->seq, HA_TAG_META, why);
    struct ha_event **stored = ha_alloc(ctx->arena, s->layers * sizeof *stored, HA_TAG_META, why);
    if (!self->store || !self->tokens || !self->seq || !stored) return HA_ERROR;
    for (size_t l = 0; l < s->layers; l++) stored[l] = NULL;
    self->stored = stored;
    HA_TRY(api->stream_create(ctx->device, "load", &self->link, why));
    for (size_t l = 0; l < s->layers; l++) HA_TRY(api->event_create(ctx->device, &stored[l], why));
    size_t longest = 0;
    for (size_t i = 0; i < s->layers * s->batch; i++) {
        size_t cap = ha_kv_max_tokens(s, i % s->batch);
        longest = cap > longest ? cap : longest;
        HA_TRY(ha_kv_create(ctx, HA_MEM_PINNED, cap, &self->store[i], why));
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &self->buffer[i];
        buffer->kv = ha_alloc(ctx->arena, s->batch * sizeof *buffer->kv, HA_TAG_META, why);
        if (!buffer->kv) return HA_ERROR;
        for (size_t b = 0; b < s->batch; b++)
            HA_TRY(ha_kv_create(ctx, HA_MEM_DEVICE, ha_kv_max_tokens(s, b), &buffer->kv[b], why));
        HA_TRY(api->event_create(ctx->device, &buffer->loaded, why));
        HA_TRY(api->event_create(ctx->device, &buffer->used, why));
    }
    return ctx->record_selection ? ha_tokens_create(ctx, longest, &self->all, why) : HA_OK;
}

static enum ha_status prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    (void)why;
    const struct ha_shape *s = self->ctx.shape;
    for (size_t b = 0; b < s->batch; b++) {
        size_t i = layer * s->batch + b;
        HA_TRY(ha_kv_load(&self->ctx, HA_MEM_PINNED, &self->store[i], 0, in, b, 0, s->ctx[b]));
        self->tokens[i] = s->ctx[b];
    }
    return HA_OK;
}

/* Loads a layer into the next buffer: after that buffer's last use, and after the layer's own
 * newest tokens have reached the store. */
static enum ha_status request(struct ha_instance *self, size_t layer)
{
    const struct ha_context *ctx = &self->ctx;
    struct buffer *buffer = &self->buffer[self->next];
    HA_TRY(ctx->api->stream_wait(self->link, buffer->used));
    HA_TRY(ctx->api->stream_wait(self->link, self->stored[layer]));
    for (size_t b = 0; b < ctx->shape->batch; b++) {
        size_t i = layer * ctx->shape->batch + b;
        HA_TRY(ha_kv_copy(ctx, self->link, &buffer->kv[b], 0, &self->store[i], 0, self->tokens[i], HA_H2D));
    }
    self->requested = layer;
    return ctx->api->event_record(buffer->loaded, self->link);
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    (void)why;
    const struct ha_context *ctx = &self->ctx;
    const struct ha_device_api *api = ctx->api;
    const struct ha_shape *s = ctx->shape;
    size_t layer = step->layer;
    if (self->requested != layer) HA_TRY(request(self, layer));
    struct buffer *buffer = &self->buffer[self->next];
    self->next = (self->next + 1) % BUFFERS;

    for (size_t b = 0; b < s->batch; b++) {
        size_t i = layer * s->batch + b;
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &self->store[i], self->tokens[i], &fresh, 0, step->q_len, HA_D2H));
    }
    HA_TRY(api->event_record(self->stored[layer], ctx->stream));

    HA_TRY(api->stream_wait(ctx->stream, buffer->loaded));
    for (size_t b = 0; b < s->batch; b++) {
        size_t i = layer * s->batch + b;
        struct ha_kv fresh = ha_kv_of_step(s, step, b);
        HA_TRY(ha_kv_copy(ctx, ctx->stream, &buffer->kv[b], self->tokens[i], &fresh, 0, step->q_len, HA_D2D));
        self->tokens[i] += step->q_len;
        self->seq[b] = ha_kv_device_seq(s, step, b, step->o, step->lse);
        self->seq[b].runs[self->seq[b].runs_count++] = ha_kv_rows(s, &buffer->kv[b], 0, 0, self->tokens[i]);
    }
    struct ha_device_attend args = ha_kv_device_attend(s, step->q_len, self->seq);
    HA_TRY(api->attend(ctx->stream, &args));
    HA_TRY(api->event_record(buffer->used, ctx->stream));
    return request(self, (layer + 1) % s->layers);
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
    self->requested = s->layers;
    return self->ctx.api->stream_sync(self->link);
}

static void destroy(struct ha_instance *self)
{
    if (!self) return;
    const struct ha_device_api *api = self->ctx.api;
    if (self->link) api->stream_destroy(self->link);
    for (size_t i = 0; i < BUFFERS; i++) {
        if (self->buffer[i].loaded) api->event_destroy(self->buffer[i].loaded);
        if (self->buffer[i].used) api->event_destroy(self->buffer[i].used);
    }
    for (size_t l = 0; self->stored && l < self->ctx.shape->layers; l++)
        if (self->stored[l]) api->event_destroy(self->stored[l]);
}

extern const struct ha_variant ha_variant_offload;
const struct ha_variant ha_variant_offload = {
    .name = "offload",
    .family = "full",
    .doc = "all KV in host memory, each layer loaded to the device while the layer before it computes",
    .source = "FlexGen (Sheng et al. 2023), section 4",
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
