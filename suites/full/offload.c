/* All KV in host memory, all attention on the device: while one layer computes, the next one is
 * loaded into the other of two buffers. 2 * tokens * kv_heads * head_dim * bytes for each layer. The arm `copy_only`
 * loads the context of each layer and does nothing else. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/places.h"

enum { BUFFERS = 2 };

struct buffer {
    struct ha_kv *kv, rows;         /* [batch], device; all of them */
    struct ha_event *loaded, *used; /* the layer has arrived; its attention is over */
};

struct loader {
    struct buffer buffer[BUFFERS];
    struct ha_stream *link;
    struct ha_event **stored; /* [layers]: the new tokens have reached the store */
    size_t next;              /* the buffer that the next request fills */
    size_t requested;         /* the layer that is on its way, or layers */
};

static size_t rows(const struct ha_layer *l, size_t b, size_t piece) { return ha_kv_max_tokens(l->ctx->shape, b); }

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct loader *loader = l->shared;
    return loader->buffer[loader->next].kv[b].k + position * ha_kv_token_bytes(l->ctx->shape);
}

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    struct loader *loader = first->shared;
    loader->requested = s->layers;
    HA_TRY(ha_frame_stream(first, "load", &loader->link, why));
    loader->stored = ha_alloc(ctx->arena, s->layers * sizeof *loader->stored, HA_TAG_META, why);
    if (!loader->stored) return HA_ERROR;
    for (size_t l = 0; l < s->layers; l++) HA_TRY(ha_device_event(ctx->device_arena, &loader->stored[l], why));
    for (size_t i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = &loader->buffer[i];
        buffer->kv = ha_alloc(ctx->arena, s->batch * sizeof *buffer->kv, HA_TAG_META, why);
        if (!buffer->kv) return HA_ERROR;
        for (size_t b = 0; b < s->batch; b++) HA_TRY(ha_places_open(first, b, 1, rows, &buffer->kv[b], why));
        buffer->rows = first->rows;
        HA_TRY(ha_device_event(ctx->device_arena, &buffer->loaded, why));
        HA_TRY(ha_device_event(ctx->device_arena, &buffer->used, why));
    }
    first->rows = loader->buffer[0].rows;
    return HA_OK;
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct ha_kv *store = l->own;
    return ha_kv_create(l->ctx, HA_MEM_PINNED, ha_kv_max_tokens(l->ctx->shape, b), &store[b], why);
}

static enum ha_status offload_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_kv *store = l->own;
    return ha_kv_load(l->ctx, &store[b], 0, in, b, 0, l->ctx->shape->ctx[b]);
}

/* The first tokens[b] of each sequence of a layer to a buffer. */
static enum ha_status load(const struct ha_layer *l, const struct buffer *buffer, const size_t *tokens)
{
    const struct ha_context *ctx = l->ctx;
    const struct loader *loader = l->shared;
    const struct ha_kv *store = l->own;
    for (size_t b = 0; b < ctx->shape->batch; b++)
        HA_TRY(ha_kv_copy(ctx, loader->link, &buffer->kv[b], 0, &store[b], 0, tokens[b]));
    return ctx->api->event_record(buffer->loaded, loader->link);
}

/* Loads a layer into the next buffer: after that buffer's last use, and after the layer's own
 * newest tokens have reached the store. */
static enum ha_status request(const struct ha_layer *l)
{
    const struct ha_device_api *api = l->ctx->api;
    struct loader *loader = l->shared;
    struct buffer *buffer = &loader->buffer[loader->next];
    HA_TRY(api->stream_wait(loader->link, buffer->used));
    HA_TRY(api->stream_wait(loader->link, loader->stored[l->layer]));
    loader->requested = l->layer;
    return load(l, buffer, l->tokens);
}

/* The new tokens behind those in the store. */
static enum ha_status store(const struct ha_layer *l, const struct ha_step *step)
{
    const struct ha_kv *kv = l->own;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        struct ha_kv fresh = ha_kv_of_step(l->ctx->shape, step, b);
        HA_TRY(ha_kv_copy(l->ctx, l->ctx->stream, &kv[b], l->tokens[b], &fresh, 0, step->q_len));
    }
    return HA_OK;
}

/* And behind those in the buffer, where they are left out of the load. */
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct loader *loader = l->shared;
    if (l->placed) return HA_OK;
    return ha_kv_copy(l->ctx, l->ctx->stream, &loader->buffer[loader->next].kv[b], l->tokens[b], fresh, 0, fresh->cap);
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct loader *loader = l->shared;
    if (loader->requested != l->layer) HA_TRY(request(l));
    const struct buffer *buffer = &loader->buffer[loader->next];
    HA_TRY(store(l, step));
    HA_TRY(ctx->api->event_record(loader->stored[l->layer], ctx->stream));
    l->rows = buffer->rows;
    return ctx->api->stream_wait(ctx->stream, buffer->loaded);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct loader *loader = l->shared;
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &loader->buffer[loader->next].kv[b], 0, 0,
                                          l->tokens[b] + step->q_len);
}

static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct loader *loader = l->shared;
    HA_TRY(l->ctx->api->event_record(loader->buffer[loader->next].used, l->ctx->stream));
    loader->next = (loader->next + 1) % BUFFERS;
    return request(l->layer + 1 < l->ctx->shape->layers ? l + 1 : l - l->layer);
}

static enum ha_status rewind_requests(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct loader *loader = l->shared;
    loader->requested = l->ctx->shape->layers;
    return l->ctx->api->stream_sync(loader->link);
}

/* the arm's step */
static enum ha_status copy_alone(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct loader *loader = l->shared;
    const struct buffer *buffer = &loader->buffer[loader->next];
    loader->next = (loader->next + 1) % BUFFERS;
    HA_TRY(load(l, buffer, l->ctx->shape->ctx));
    return l->ctx->api->stream_wait(l->ctx->stream, buffer->loaded);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct ha_kv),
    .shared_bytes = sizeof(struct loader),
    .share = share,
    .open = open,
    .prefill = offload_prefill,
    .before = before,
    .append = append,
    .place = place,
    .device = device,
    .after = after,
    .rewind = rewind_requests,
};
static const struct ha_rule rule_of_arm = {
    .seq_bytes = sizeof(struct ha_kv),
    .shared_bytes = sizeof(struct loader),
    .share = share,
    .open = open,
    .prefill = offload_prefill,
    .before = copy_alone,
    .rewind = rewind_requests,
};

extern const struct ha_variant ha_variant_offload, ha_variant_copy_only;

const struct ha_variant ha_variant_offload = {
    .name = "offload",
    .family = "full",
    .doc = "all KV in host memory, each layer loaded to the device while the layer before it computes",
    .source = "FlexGen (Sheng et al. 2023), section 4",
    .contract = HA_EXACT,
    .checked = true,
    .needs = HA_NEEDS_ATTEND,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule),
};
const struct ha_variant ha_variant_copy_only = {
    .name = "copy_only",
    .family = "full",
    .doc = "bracketing arm: the loads of offload, no attention; output not checked",
    .source = "bracketing arm",
    .contract = HA_EXACT,
    .checked = false,
    .rewind = ha_frame_rewind,
    HA_FRAME(rule_of_arm),
};
