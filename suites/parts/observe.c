#include "suites/parts/observe.h"

#include "harness/base/arena.h"
#include "harness/base/why.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/kv.h"

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
