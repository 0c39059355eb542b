/* Attention sinks and a recent window; everything else is lost for good. With N tokens, the new
 * ones included, and W = max(window, q_len), a step uses {j < sink} and {j >= N - W}. */

#include "harness/base/why.h"
#include "suites/parts/frame.h"
#include "suites/parts/places.h"
#include "suites/parts/ring.h"

enum { SINK, WINDOW };
static const struct ha_param params[] = {
    [SINK] = { "sink", 4, 0, 1 << 20, "first tokens that stay", .whole = true, .draw = "0..512" },
    [WINDOW] = { "window", 1020, 1, 1 << 30, "last tokens that stay, new ones included", .whole = true,
                 .draw = "1..8192" },
};

struct sequence {
    struct ha_kv sink;
    struct ha_ring recent; /* of the tokens from position `sinks` on */
};

static size_t window(const struct ha_layer *l) { return ha_most((size_t)l->ctx->param[WINDOW], l->ctx->shape->q_len); }
/* of so many tokens those that are sinks */
static size_t sinks_of(const struct ha_layer *l, size_t tokens)
{
    return ha_least((size_t)l->ctx->param[SINK], tokens);
}

enum { SINKS, RECENT, PIECES };
static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    const size_t most = ha_kv_max_tokens(l->ctx->shape, b);
    return piece == SINKS ? sinks_of(l, most) : ha_least(window(l) + l->ctx->shape->q_len, most);
}

static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *why)
{
    struct sequence *seq = (struct sequence *)l->own + b;
    struct ha_kv piece[PIECES];
    HA_TRY(ha_places_open(l, b, PIECES, rows, piece, why));
    seq->sink = piece[SINKS];
    seq->recent.kv = piece[RECENT];
    return HA_OK;
}

static const unsigned char *place(const struct ha_layer *l, size_t b, size_t position)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    if (position < seq->sink.cap) return seq->sink.k + position * ha_kv_token_bytes(l->ctx->shape);
    return ha_ring_place(l->ctx->shape, &seq->recent, position);
}

static enum ha_status streaming_prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = (struct sequence *)l->own + b;
    size_t n = ctx->shape->ctx[b], sinks = sinks_of(l, n), recent = ha_least(window(l), n - sinks);
    HA_TRY(ha_kv_load(ctx, &seq->sink, 0, in, b, 0, sinks));
    return ha_ring_load(ctx, &seq->recent, in, b, n - recent);
}

/* What leaves the window is lost. */
static enum ha_status forget(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    struct sequence *seq = l->own;
    for (size_t b = 0; b < l->ctx->shape->batch; b++) {
        size_t old = l->tokens[b], now = old + step->q_len;
        size_t edge = ha_most(now - ha_least(window(l), now), sinks_of(l, old));
        seq[b].recent.first = ha_most(seq[b].recent.first, ha_least(edge, old));
    }
    return HA_OK;
}

static enum ha_status use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why)
{
    const struct sequence *seq = (const struct sequence *)l->own + b;
    HA_TRY(ha_positions_add_range(l->ctx, &used->device, 0, sinks_of(l, l->tokens[b]), why));
    return ha_positions_add_range(l->ctx, &used->device, seq->recent.first, l->tokens[b] + l->ctx->shape->q_len, why);
}

static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_shape *s = l->ctx->shape;
    const struct sequence *seq = (const struct sequence *)l->own + b;
    struct ha_kv fresh = ha_kv_of_step(s, step, b);
    size_t sinks = sinks_of(l, l->tokens[b]);
    if (sinks) d->runs[d->runs_count++] = ha_kv_rows(s, &seq->sink, 0, 0, sinks);
    d->runs_count += ha_ring_runs(s, &seq->recent, d->runs + d->runs_count);
    d->runs[d->runs_count++] = ha_kv_rows(s, &fresh, 0, 0, step->q_len);
}

static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    const struct ha_context *ctx = l->ctx;
    struct sequence *seq = (struct sequence *)l->own + b;
    size_t old = seq->recent.end, to_sink = ha_least(fresh->cap, (size_t)ctx->param[SINK] - sinks_of(l, old));
    if (to_sink) seq->recent.first = old + to_sink;
    seq->recent.end = old + fresh->cap;
    if (l->placed) return HA_OK;
    HA_TRY(ha_kv_copy(ctx, ctx->stream, &seq->sink, old, fresh, 0, to_sink));
    return ha_ring_copy(ctx, ctx->stream, &seq->recent, old + to_sink, fresh->cap - to_sink, fresh, to_sink, true);
}

static const struct ha_rule rule = {
    .seq_bytes = sizeof(struct sequence),
    .open = open,
    .prefill = streaming_prefill,
    .before = forget,
    .use = use,
    .device = device,
    .append = append,
    .place = place,
    .appends_last = true,
};

extern const struct ha_variant ha_variant_streaming;
const struct ha_variant ha_variant_streaming = {
    .name = "streaming",
    .family = "recency_split",
    .doc = "attention sinks and a recent window on the device, the rest dropped",
    .source = "StreamingLLM (Xiao et al. 2024), section 3",
    .contract = HA_STATISTICAL,
    .checked = true,
    .one_stream = true,
    .params = params,
    .params_count = sizeof params / sizeof *params,
    .needs = HA_NEEDS_ATTEND | HA_NEEDS_COPY_2D,
    HA_FRAME(rule),
};
