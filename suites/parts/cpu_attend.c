#include "suites/parts/cpu_attend.h"
#include "suites/parts/kv.h"

#include "harness/base/arena.h"
#include "harness/base/pool.h"

enum ha_status ha_cpu_attend_create(struct ha_cpu_attend *c, const struct ha_context *ctx, size_t units_max,
                                    const struct ha_attend *worst, struct ha_why *why)
{
    const struct ha_kernels *kernels = ctx->kernels;
    size_t threads = ha_pool_threads(ctx->pool), scratch = (kernels->attend_scratch_bytes(worst) + 63) / 64 * 64;
    size_t all = kernels->attend_all_bytes(worst, units_max, threads);
    *c = (struct ha_cpu_attend){ .ctx = ctx, .units_max = units_max, .scratch_bytes = scratch };
    c->unit = ha_alloc(ctx->arena, units_max * sizeof *c->unit, HA_TAG_META, why);
    c->work = c->unit ? ha_alloc(ctx->arena, ha_most(all, threads * scratch), HA_TAG_SCRATCH, why) : NULL;
    return c->work ? HA_OK : HA_ERROR;
}

void ha_cpu_attend_release(struct ha_cpu_attend *c)
{
    ha_free(c->ctx->arena, c->unit);
    ha_free(c->ctx->arena, c->work);
}

static void run_task(void *arg, size_t task, size_t worker)
{
    struct ha_cpu_attend *c = arg;
    const struct ha_kernels *kernels = c->ctx->kernels;
    size_t first = task * c->units_per_task, last = first + c->units_per_task;
    for (size_t i = first; i < last && i < c->units; i++) {
        struct ha_attend a = c->unit[i];
        a.scratch = c->work + worker * c->scratch_bytes;
        kernels->attend(kernels, &a);
    }
}

void ha_cpu_attend_run(struct ha_cpu_attend *c, const char *name)
{
    const struct ha_kernels *kernels = c->ctx->kernels;
    if (c->units_per_task)
        ha_pool_run(c->ctx->pool, name, (c->units + c->units_per_task - 1) / c->units_per_task, run_task, c);
    else
        kernels->attend_all(
            kernels, &(struct ha_attend_all){
                         .units = c->unit, .count = c->units, .pool = c->ctx->pool, .name = name, .work = c->work });
}

struct ha_attend ha_cpu_attend_unit(const struct ha_shape *s, size_t q_head, size_t heads, size_t q_len, bool causal,
                                    const float *q, float *o, float *lse, const struct ha_rows *run)
{
    return (struct ha_attend){
        .q = q + q_head * s->head_dim,
        .q_len = q_len,
        .group = heads,
        .head_dim = s->head_dim,
        .q_token_stride = s->q_heads * s->head_dim,
        .q_head_stride = s->head_dim,
        .runs = run,
        .runs_count = 1,
        .dtype = s->dtype,
        .scale = s->scale,
        .causal = causal,
        .o = o + q_head * s->head_dim,
        .lse = lse + q_head,
        .lse_token_stride = s->q_heads,
        .lse_head_stride = 1,
    };
}
