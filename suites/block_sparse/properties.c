#include "suites/block_sparse/properties.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/fit.h"
#include "harness/base/order.h"
#include "harness/base/why.h"

#include <string.h>

enum { WIDTH = 312, OUTPUTS = 3, NET_LAYERS = 3 };
_Static_assert(sizeof(struct ha_property) == OUTPUTS * sizeof(float), "a row that the net makes is a property");

HA_SHARED_WORDS(
    ha_property_word, [HA_PROPERTY_NET] = "net", [HA_PROPERTY_ORACLE] = "oracle", [HA_PROPERTY_FIXED] = "fixed")

static float *floats(const struct ha_properties *p, enum ha_memory memory, size_t count, struct ha_why *why)
{
    return ha_device_alloc(p->ctx->device_arena, memory, count * sizeof(float), HA_TAG_META, why);
}

static size_t heads(const struct ha_properties *p) { return p->ctx->shape->batch * p->ctx->shape->q_heads; }

/* ---- the net ----------------------------------------------------------------------------------------------------- */

/* A tensor of the fit to device memory. */
static enum ha_status upload(const struct ha_properties *p, const char *name, size_t rows, size_t columns, float *to,
                             struct ha_why *why)
{
    struct ha_tensor t = {
        .name = name, .type = HA_T_F32, .dims = rows ? 2 : 1, .dim = { rows ? rows : columns, rows ? columns : 0 }
    };
    HA_TRY(ha_fit_get(p->ctx->fit, &t, why));
    return p->ctx->api->copy(p->ctx->stream, to, t.data, t.bytes, HA_H2D);
}

static enum ha_status upload_net(struct ha_properties *p, struct ha_why *why)
{
    static const char *const weight[] = { "w0", "w1", "w2" }, *const bias[] = { "b0", "b1", "b2" };
    const size_t *width = p->net.width;
    HA_TRY(upload(p, "mean", 0, HA_FEATURES, p->mean, why));
    HA_TRY(upload(p, "inv", 0, HA_FEATURES, p->inv, why));
    for (size_t i = 0, at = 0; i < NET_LAYERS; i++) {
        HA_TRY(upload(p, weight[i], width[i], width[i + 1], p->w + at, why));
        at += width[i] * width[i + 1];
        HA_TRY(upload(p, bias[i], 0, width[i + 1], p->w + at, why));
        at += width[i + 1];
    }
    return p->ctx->api->stream_sync(p->ctx->stream);
}

/* What the net is asked never changes, but for the numbers. */
static enum ha_status keep_net(struct ha_properties *p, struct ha_why *why)
{
    const struct ha_device_api *api = p->ctx->api;
    if (!api->graph_begin) return HA_OK;
    HA_TRY(api->graph_begin(p->ctx->stream));
    const enum ha_status status = api->net(p->ctx->stream, &p->net);
    const enum ha_status ended = api->graph_end(p->ctx->stream, &p->graph, why);
    return status == HA_OK ? ended : status;
}

static enum ha_status create_net(struct ha_properties *p, struct ha_why *why)
{
    const struct ha_context *ctx = p->ctx;
    if (!ctx->fit)
        return ha_why(why, HA_WAIVED,
                      "predict=net reads a net: fit=small with dataset=trace/english or trace/code, fit=deep with "
                      "trace/deep, fit=walk with walk, or one of your own (docs/variants/fluxion.md); predict=oracle "
                      "and predict=fixed need none");
    if (ha_fit_has(ctx->fit, "labels"))
        return ha_why(why, HA_ERROR,
                      "the fit has features and labels, by which scripts/train_fluxion.py trains a net, and no net");
    if (!ctx->api->features || !ctx->api->net)
        return ha_why(why, HA_WAIVED, "the device has no operation %s; another predict= needs none",
                      ctx->api->features ? "net" : "features");
    p->net = (struct ha_net){ .rows = heads(p), .layers = NET_LAYERS, .width = { HA_FEATURES, WIDTH, WIDTH, OUTPUTS } };
    p->mean = floats(p, HA_MEM_DEVICE, HA_FEATURES, why);
    p->inv = p->mean ? floats(p, HA_MEM_DEVICE, HA_FEATURES, why) : NULL;
    p->w = p->inv ? floats(p, HA_MEM_DEVICE, ha_net_weights(&p->net), why) : NULL;
    p->x = p->w ? floats(p, HA_MEM_DEVICE, heads(p) * HA_FEATURES, why) : NULL;
    p->ask = p->x ? ha_alloc(ctx->arena, ctx->shape->batch * sizeof *p->ask, HA_TAG_SCRATCH, why) : NULL;
    if (!p->ask) return HA_ERROR;
    p->net.w = p->w;
    p->net.x = p->x;
    p->net.y = &p->of->bgt0;
    HA_TRY(upload_net(p, why));
    HA_TRY(ha_features_share(&p->features, &p->labels, ctx, why));
    return keep_net(p, why);
}

static enum ha_status ask_net(struct ha_properties *p, const struct ha_layer *l, const struct ha_step *step,
                              const struct ha_property_seq *seq)
{
    const struct ha_context *ctx = p->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct ha_state sink = ha_frame_state(l, HA_FRAME_SINK), local = ha_frame_state(l, HA_FRAME_DEVICE);
    for (size_t b = 0; b < s->batch; b++) {
        const size_t row = (b * s->q_len + s->q_len - 1) * s->q_heads, at = row * s->head_dim;
        struct ha_device_features_seq *ask = &p->ask[b];
        *ask = ha_features_seq(seq[b].kept);
        ask->q = step->q + at;
        ask->o[0] = sink.o + at;
        ask->o[1] = local.o + at;
        ask->lse[0] = sink.lse + row;
        ask->lse[1] = local.lse + row;
        ask->device_keys = seq[b].device_keys;
        ask->x = p->x + b * s->q_heads * HA_FEATURES;
    }
    HA_TRY(ctx->api->features(ctx->stream, &(struct ha_device_features){ .batch = s->batch,
                                                                         .q_heads = s->q_heads,
                                                                         .kv_heads = s->kv_heads,
                                                                         .head_dim = s->head_dim,
                                                                         .scale = s->scale,
                                                                         .mean = p->mean,
                                                                         .inv = p->inv,
                                                                         .seqs = p->ask }));
    return p->graph ? ctx->api->graph_launch(p->graph, ctx->stream) : ctx->api->net(ctx->stream, &p->net);
}

/* ---- as it is ---------------------------------------------------------------------------------------------------- */

static enum ha_status create_oracle(struct ha_properties *p, struct ha_why *why)
{
    const size_t rows = heads(p) * p->ctx->shape->q_len;
    for (size_t i = 0; i < HA_FRAME_STATES; i++) {
        p->down[i].o = floats(p, HA_MEM_PINNED, rows * p->ctx->shape->head_dim, why);
        p->down[i].lse = p->down[i].o ? floats(p, HA_MEM_PINNED, rows, why) : NULL;
        if (!p->down[i].lse) return HA_ERROR;
    }
    p->unit = ha_alloc(p->ctx->arena, heads(p) * sizeof *p->unit, HA_TAG_SCRATCH, why);
    p->label = p->unit ? ha_alloc(p->ctx->arena, heads(p) * sizeof *p->label, HA_TAG_SCRATCH, why) : NULL;
    return p->label ? HA_OK : HA_ERROR;
}

static enum ha_status ask_oracle(const struct ha_properties *p, const struct ha_layer *l)
{
    const struct ha_context *ctx = p->ctx;
    const size_t rows = heads(p) * ctx->shape->q_len;
    for (size_t i = 0; i < HA_FRAME_STATES; i++) {
        const struct ha_state state = ha_frame_state(l, i);
        HA_TRY(ctx->api->copy(ctx->stream, p->down[i].o, state.o, rows * ctx->shape->head_dim * sizeof(float), HA_D2H));
        HA_TRY(ctx->api->copy(ctx->stream, p->down[i].lse, state.lse, rows * sizeof(float), HA_D2H));
    }
    return HA_OK;
}

static struct ha_label_unit unit_of(const struct ha_properties *p, const float *q, const struct ha_property_seq *seq,
                                    size_t b, size_t head)
{
    const struct ha_shape *s = p->ctx->shape;
    const struct ha_segments *seg = seq[b].segments;
    const size_t row = (b * s->q_len + s->q_len - 1) * s->q_heads + head, at = row * s->head_dim,
                 kv_head = head / ha_shape_group(s);
    struct ha_label_unit unit = { .q = q + at, .host = ha_kv_rows(s, &seg->store, kv_head, 0, seg->host) };
    for (size_t i = 0; i < HA_FRAME_STATES; i++) {
        unit.o[i] = p->down[i].o + at;
        unit.lse[i] = p->down[i].lse[row];
    }
    for (size_t i = 0; i < HA_GRANULARITIES; i++)
        unit.digest[i + 1] = seg->digests[i].bytes + kv_head * seg->digests[i].head_bytes;
    return unit;
}

static void find_out(struct ha_properties *p, const float *q, const struct ha_property_seq *seq)
{
    const struct ha_shape *s = p->ctx->shape;
    for (size_t i = 0; i < heads(p); i++) p->unit[i] = unit_of(p, q, seq, i / s->q_heads, i % s->q_heads);
    ha_labels_run(&p->labels, p->unit, s->batch, s->q_heads, p->label);
    for (size_t i = 0; i < heads(p); i++)
        p->of[i] = (struct ha_property){ p->label[i].bgt0, p->label[i].k, p->label[i].streaming };
}

/* ---- whichever it is --------------------------------------------------------------------------------------------- */

enum ha_status ha_properties_create(struct ha_properties *p, const struct ha_layer *first, enum ha_property_by by,
                                    const struct ha_property *fixed, const struct ha_labels *labels, size_t host_max,
                                    struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    *p = (struct ha_properties){ .ctx = ctx, .by = by, .labels = *labels };
    void *of = floats(p, HA_MEM_MAPPED, heads(p) * OUTPUTS, why);
    if (!of) return HA_ERROR;
    p->of = of;
    for (size_t i = 0; i < heads(p); i++) p->of[i] = *fixed;
    if (by == HA_PROPERTY_FIXED) return HA_OK;
    p->labels.shape = ctx->shape;
    p->labels.kernels = ctx->kernels;
    p->labels.pool = ctx->pool;
    HA_TRY(ha_labels_create(&p->labels, ctx->arena, host_max, heads(p), why));
    return by == HA_PROPERTY_NET ? create_net(p, why) : create_oracle(p, why);
}

void ha_properties_end(struct ha_properties *p)
{
    if (p->graph) p->ctx->api->graph_destroy(p->graph);
    p->graph = NULL;
}

enum ha_status ha_properties_ask(struct ha_properties *p, const struct ha_layer *l, const struct ha_step *step,
                                 const struct ha_property_seq *seq)
{
    return p->by == HA_PROPERTY_NET ? ask_net(p, l, step, seq) : p->by == HA_PROPERTY_ORACLE ? ask_oracle(p, l) : HA_OK;
}

void ha_properties_ready(struct ha_properties *p, const float *q, const struct ha_property_seq *seq)
{
    if (p->by == HA_PROPERTY_ORACLE) find_out(p, q, seq);
    ha_order_thread_access("select", "properties", HA_READ, p->of, 1, 0, heads(p) * sizeof *p->of);
}
