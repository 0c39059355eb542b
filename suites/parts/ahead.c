#include "suites/parts/ahead.h"

#include "harness/api/dataset.h"
#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/rotate.h"
#include "harness/base/why.h"

HA_SHARED_WORDS(ha_ahead_word, [HA_AHEAD_DEVICE] = "device", [HA_AHEAD_CPU] = "cpu")

static size_t width(const struct ha_shape *s) { return s->q_heads * s->head_dim; }
static size_t rows(const struct ha_shape *s) { return s->batch * s->q_len; }

/* W_Q, bias and norm of a layer to the device, in this order; what is not there takes no room. */
static enum ha_status upload(struct ha_ahead *a, size_t layer, struct ha_why *why)
{
    const struct ha_shape *s = a->ctx->shape;
    const struct ha_projection *p = &a->ctx->projection[layer];
    const struct {
        const float *from;
        size_t count;
    } part[] = { { p->wq, width(s) * s->model_dim },
                 { p->bias, p->bias ? width(s) : 0 },
                 { p->norm, p->norm ? s->head_dim : 0 } };
    size_t all = 0, at = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) all += part[i].count;
    a->w[layer] = ha_device_alloc(a->ctx->device_arena, HA_MEM_DEVICE, all * sizeof(float), HA_TAG_SCRATCH, why);
    if (!a->w[layer]) return HA_ERROR;
    for (size_t i = 0; i < sizeof part / sizeof *part; at += part[i++].count)
        if (part[i].count)
            HA_TRY(a->ctx->api->copy(a->ctx->stream, a->w[layer] + at, part[i].from, part[i].count * sizeof(float),
                                     HA_H2D));
    return HA_OK;
}

static float *floats(const struct ha_ahead *a, enum ha_memory memory, size_t count, struct ha_why *why)
{
    return ha_device_alloc(a->ctx->device_arena, memory, count * sizeof(float), HA_TAG_SCRATCH, why);
}

/* W_Q and what belongs to it, where the device computes. */
static enum ha_status create_device(struct ha_ahead *a, struct ha_why *why)
{
    const struct ha_context *ctx = a->ctx;
    struct ha_device_info info;
    ctx->api->info(ctx->device, &info);
    if (!ctx->api->product || !ctx->api->rotate)
        return ha_why(why, HA_WAIVED, "the device has no operation %s; another predict= needs none",
                      ctx->api->product ? "rotate" : "product");
    if (*info.no_products) return ha_why(why, HA_WAIVED, "%s; another predict= needs none", info.no_products);
    a->y = floats(a, HA_MEM_DEVICE, rows(ctx->shape) * width(ctx->shape), why);
    a->w = a->y ? ha_alloc(ctx->arena, ctx->shape->layers * sizeof *a->w, HA_TAG_SCRATCH, why) : NULL;
    if (!a->w) return HA_ERROR;
    a->q_device = a->y;
    for (size_t i = 1; i < ctx->shape->layers; i++) HA_TRY(upload(a, i, why)); /* the first is not predicted */
    return ctx->api->stream_sync(ctx->stream);
}

enum ha_status ha_ahead_create(struct ha_ahead *a, const struct ha_layer *l, enum ha_ahead_side side, bool down,
                               struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    *a = (struct ha_ahead){ .ctx = ctx, .side = side, .down = down };
    if (s->follows && side == HA_AHEAD_ORACLE)
        return ha_why(why, HA_WAIVED,
                      "the model has not made the next layer's query yet: none but predicted ones are known");
    if (!ctx->projection && side != HA_AHEAD_ORACLE)
        return ha_why(why, HA_WAIVED,
                      "the dataset has no layer inputs to predict from: take dataset=walk, dataset=residual or "
                      "dataset=trace/english (any trace with x)");
    for (int i = 0; i < 2; i++) {
        a->q_of[i] = floats(a, HA_MEM_PINNED, rows(s) * width(s), why);
        if (!a->q_of[i]) return HA_ERROR;
        HA_TRY(ha_device_event(ctx->device_arena, &a->came_of[i], why));
    }
    if (side == HA_AHEAD_ORACLE) return HA_OK;
    size_t rotary = 0;
    for (size_t i = 0; i < s->layers; i++)
        rotary = ha_most(rotary, ctx->projection[i].inv_freq ? ctx->projection[i].rotary : 0);
    for (int i = 0; i < 2; i++)
        if (!(a->turn_of[i] = floats(a, HA_MEM_MAPPED, rows(s) * rotary, why))) return HA_ERROR;
    if (side == HA_AHEAD_DEVICE) return create_device(a, why);
    a->x = floats(a, HA_MEM_PINNED, rows(s) * s->model_dim, why);
    return a->x ? HA_OK : HA_ERROR;
}

/* What follows W_Q x; the bias and the norm are behind W_Q, wherever that is. */
static struct ha_device_rotate rotation(const struct ha_ahead *a, float *q, const float *bias, const float *norm)
{
    const struct ha_shape *s = a->ctx->shape;
    const struct ha_projection *p = &a->ctx->projection[a->layer];
    return (struct ha_device_rotate){ .q = q,
                                      .tokens = rows(s),
                                      .heads = s->q_heads,
                                      .head_dim = s->head_dim,
                                      .bias = bias,
                                      .norm = norm,
                                      .norm_eps = p->norm_eps,
                                      .turn = p->inv_freq ? a->turn : NULL,
                                      .rotary = p->rotary,
                                      .adjacent = p->adjacent };
}

/* W_Q x and what follows it, on the device. */
static enum ha_status compute(struct ha_ahead *a, const struct ha_step *step)
{
    const struct ha_context *ctx = a->ctx;
    const struct ha_shape *s = ctx->shape;
    const struct ha_projection *p = &ctx->projection[a->layer];
    const float *w = a->w[a->layer], *bias = w + width(s) * s->model_dim, *norm = p->bias ? bias + width(s) : bias;
    const struct ha_device_rotate r = rotation(a, a->y, p->bias ? bias : NULL, p->norm ? norm : NULL);
    HA_TRY(ctx->api->product(
        ctx->stream,
        &(struct ha_device_product){
            .y = a->y, .x = step->x, .w = w, .m = rows(s), .n = width(s), .k = s->model_dim, .dtype = HA_F32 }));
    return r.bias || r.norm || r.turn ? ctx->api->rotate(ctx->stream, &r) : HA_OK;
}

/* The rotary positions of the step's tokens. */
static void turn(const struct ha_ahead *a, const size_t *tokens)
{
    const struct ha_shape *s = a->ctx->shape;
    const struct ha_projection *p = &a->ctx->projection[a->layer];
    if (!p->inv_freq) return;
    ha_order_thread_access("predict", "turn", HA_WRITE, a->turn, 1, 0, rows(s) * p->rotary * sizeof *a->turn);
    for (size_t i = 0; i < rows(s); i++)
        ha_rotate_turn(p, tokens[i / s->q_len] + i % s->q_len, a->turn + i * p->rotary);
}

enum ha_status ha_ahead_begin(struct ha_ahead *a, const struct ha_step *step, const size_t *tokens)
{
    const struct ha_context *ctx = a->ctx;
    const struct ha_shape *s = ctx->shape;
    a->layer = step->layer + 1;
    a->q = a->q_of[a->layer % 2];
    a->turn = a->turn_of[a->layer % 2];
    a->came = a->came_of[a->layer % 2];
    HA_TRY(ctx->api->event_sync(a->came));
    if (a->side != HA_AHEAD_ORACLE) turn(a, tokens);
    if (a->side == HA_AHEAD_DEVICE) HA_TRY(compute(a, step));
    if (a->side == HA_AHEAD_ORACLE) a->q_device = step->next_q;
    if (a->side == HA_AHEAD_CPU)
        HA_TRY(ctx->api->copy(ctx->stream, a->x, step->x, rows(s) * s->model_dim * sizeof *a->x, HA_D2H));
    else if (a->down) HA_TRY(ctx->api->copy(ctx->stream, a->q, a->q_device, rows(s) * width(s) * sizeof *a->q, HA_D2H));
    return ctx->api->event_record(a->came, ctx->stream);
}

/* One query head of all rows: W_Q's rows are read once. */
static void project(void *arg, size_t task, size_t worker)
{
    const struct ha_ahead *a = arg;
    const struct ha_shape *s = a->ctx->shape;
    const struct ha_projection *p = &a->ctx->projection[a->layer];
    const struct ha_rows w = { .k = p->wq + task * s->head_dim * s->model_dim,
                               .k_stride_bytes = s->model_dim * sizeof(float),
                               .keys = s->head_dim };
    for (size_t i = 0; i < rows(s); i++)
        a->ctx->kernels->score(&(struct ha_score){ .q = a->x + i * s->model_dim,
                                                   .head_dim = s->model_dim,
                                                   .rows = w,
                                                   .dtype = HA_F32,
                                                   .scale = 1,
                                                   .s = a->q + i * width(s) + task * s->head_dim });
}

enum ha_status ha_ahead_end(struct ha_ahead *a)
{
    const struct ha_shape *s = a->ctx->shape;
    HA_TRY(a->ctx->api->event_sync(a->came));
    if (a->side != HA_AHEAD_CPU) return HA_OK;
    const struct ha_projection *p = &a->ctx->projection[a->layer];
    ha_pool_run(a->ctx->pool, "predict", s->q_heads, project, a);
    const struct ha_device_rotate r = rotation(a, a->q, p->bias, p->norm);
    ha_rotate(&r, 0, rows(s));
    return HA_OK;
}
