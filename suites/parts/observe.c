#include "suites/parts/observe.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/cpu_attend.h"

#include <math.h>

/* ---- weights of keys -------------------------------------------------------------------------------------------- */

/* a block of consecutive observed queries that see the keys in the same way */
struct block {
    size_t first, count;
    bool causal; /* the queries are the last of the keys; else they come after all of them */
};

static enum ha_status weigh(const struct ha_context *ctx, const struct ha_prefill *in, size_t b,
                            const struct ha_rows *run, struct block block, float *weights, size_t stride,
                            struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t rows = block.count * s->q_heads, group = ha_shape_group(s);
    const float *q = in->q[b] + block.first * s->q_heads * s->head_dim;
    float *o = ha_alloc(ctx->arena, rows * s->head_dim * sizeof *o, HA_TAG_SCRATCH, why);
    float *lse = ha_alloc(ctx->arena, rows * sizeof *lse, HA_TAG_SCRATCH, why);
    struct ha_cpu_attend cpu;
    if (!o || !lse) return HA_ERROR;
    struct ha_attend worst = ha_cpu_attend_unit(s, 0, group, block.count, block.causal, q, o, lse, run);
    worst.weights = weights;
    worst.weights_stride = stride;
    HA_TRY(ha_cpu_attend_create(&cpu, ctx, s->kv_heads, &worst, why));
    for (size_t h = 0; h < s->kv_heads; h++) {
        struct ha_attend *unit = &cpu.unit[cpu.units++];
        *unit = ha_cpu_attend_unit(s, h * group, group, block.count, block.causal, q, o, lse, run + h);
        unit->weights = weights + h * group * stride;
        unit->weights_stride = stride;
    }
    ha_cpu_attend_run(&cpu, "observe");
    ha_cpu_attend_release(&cpu);
    ha_free(ctx->arena, o);
    ha_free(ctx->arena, lse);
    return HA_OK;
}

enum ha_status ha_observe(const struct ha_context *ctx, const struct ha_prefill *in, size_t b, size_t first,
                          size_t count, float *weights, size_t weights_stride, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t n = s->ctx[b], end = first + count, observed = ha_least(s->observed, n), row = ha_kv_head_bytes(s);
    for (size_t h = 0; h < s->q_heads; h++)
        for (size_t j = 0; j < count; j++) weights[h * weights_stride + j] = 0.0f;
    if (!count || !observed) return HA_OK;

    /* queries at [n - observed, first) see no key, those below `end` see some, the later ones all */
    size_t oldest = n - observed, inside_first = ha_most(oldest, first);
    size_t inside = end > inside_first ? end - inside_first : 0, after = ha_least(observed, n - end);
    struct block block[2] = { { inside_first - oldest, inside, true }, { observed - after, after, false } };

    struct ha_rows *run = ha_alloc(ctx->arena, s->kv_heads * sizeof *run, HA_TAG_SCRATCH, why);
    float *part = ha_alloc(ctx->arena, s->q_heads * count * sizeof *part, HA_TAG_SCRATCH, why);
    if (!run || !part) return HA_ERROR;
    for (size_t h = 0; h < s->kv_heads; h++)
        run[h] = (struct ha_rows){ .k = (const unsigned char *)in->k[b] + (h * in->cap + first) * row,
                                   .v = (const unsigned char *)in->v[b] + (h * in->cap + first) * row,
                                   .k_stride_bytes = row,
                                   .v_stride_bytes = row,
                                   .keys = count };
    for (size_t i = 0; i < 2; i++) {
        if (!block[i].count) continue;
        HA_TRY(weigh(ctx, in, b, run, block[i], part, count, why));
        float share = (float)block[i].count / (float)observed;
        for (size_t h = 0; h < s->q_heads; h++)
            for (size_t j = 0; j < count; j++) weights[h * weights_stride + j] += share * part[h * count + j];
    }
    ha_free(ctx->arena, run);
    ha_free(ctx->arena, part);
    return HA_OK;
}

/* ---- scores of blocks ------------------------------------------------------------------------------------------- */

struct scored {
    const struct ha_context *ctx;
    const struct ha_prefill *in;
    size_t b, observed;
    enum ha_digest_kind kind;
    struct ha_digests digests; /* pinned */
    struct ha_device_digest_seq due;
    float *score; /* [kv_heads][observed + 1][blocks] */
    size_t count, stride;
    uint32_t *best;
};

/* One KV head: its digests, and the blocks of the largest score that any of its observed queries gives. */
static void score_task(void *arg, size_t head, size_t worker)
{
    const struct scored *o = arg;
    const struct ha_context *ctx = o->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t group = ha_shape_group(s), blocks = o->digests.blocks;
    float *best = o->score + head * (o->observed + 1) * blocks, *score = best + blocks;
    unsigned char *digests = o->digests.bytes + head * o->digests.head_bytes;
    ha_order_thread_access("observe", "digests", HA_WRITE, digests, 1, 0, o->digests.head_bytes);
    ha_digests_make(ctx, o->kind, &o->digests, &o->due, head);
    for (size_t i = 0; i < blocks; i++) best[i] = o->observed ? -HUGE_VALF : (float)i;
    for (size_t g = 0; g < group && o->observed; g++) {
        ctx->kernels->digest_score(&(struct ha_digest_score){ .q = o->in->q[o->b] + (head * group + g) * s->head_dim,
                                                              .q_rows = o->observed,
                                                              .q_stride = s->q_heads * s->head_dim,
                                                              .head_dim = s->head_dim,
                                                              .digests = digests,
                                                              .blocks = blocks,
                                                              .dtype = s->dtype,
                                                              .scale = s->scale,
                                                              .s = score,
                                                              .s_stride = blocks,
                                                              .streams = ha_reads_in_streams(ctx->kernels, s->dtype) });
        for (size_t i = 0; i < o->observed * blocks; i++) best[i % blocks] = fmaxf(best[i % blocks], score[i]);
    }
    ctx->kernels->topk(&(struct ha_topk){
        .x = best, .n = blocks, .k = ha_least(o->count, blocks), .index = o->best + head * o->stride });
}

enum ha_status ha_observe_blocks(const struct ha_context *ctx, const struct ha_prefill *in, size_t b,
                                 enum ha_digest_kind kind, struct ha_digests *d, size_t count, uint32_t *best,
                                 size_t stride, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t row = ha_kv_head_bytes(s), blocks = s->ctx[b] / d->unit;
    struct scored o = { .ctx = ctx,
                        .in = in,
                        .b = b,
                        .observed = ha_least(s->observed, s->ctx[b]),
                        .kind = kind,
                        .due = { .blocks = blocks, .k_head_bytes = in->cap * row },
                        .count = count,
                        .stride = stride,
                        .best = best };
    o.due.rows = (struct ha_rows){ .k = in->k[b], .k_stride_bytes = row, .keys = blocks * d->unit };
    d->blocks = blocks;
    if (!blocks) return HA_OK;
    HA_TRY(ha_digests_create(ctx, HA_MEM_PINNED, d->unit, b, &o.digests, why));
    o.digests.blocks = blocks;
    o.score = ha_alloc(ctx->arena, s->kv_heads * (o.observed + 1) * blocks * sizeof *o.score, HA_TAG_SCRATCH, why);
    if (!o.score) return HA_ERROR;
    ha_pool_run(ctx->pool, "observe", s->kv_heads, score_task, &o);
    HA_TRY(ctx->api->copy(ctx->stream, d->bytes, o.digests.bytes, s->kv_heads * d->head_bytes, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_free(ctx->arena, o.score);
    ha_free(ctx->arena, o.digests.row);
    ha_device_free(ctx->device_arena, o.digests.bytes);
    return HA_OK;
}
