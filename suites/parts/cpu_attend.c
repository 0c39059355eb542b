#include "suites/parts/cpu_attend.h"
#include "suites/parts/kv.h"

#include "harness/base/arena.h"
#include "harness/base/pool.h"

static enum ha_status make_groups(struct ha_cpu_attend *c, size_t groups, struct ha_why *why)
{
    c->group = ha_alloc(c->ctx->arena, groups * sizeof *c->group, HA_TAG_SCRATCH, why);
    c->share = c->group ? ha_alloc(c->ctx->arena, groups * sizeof *c->share, HA_TAG_SCRATCH, why) : NULL;
    return c->share ? HA_OK : HA_ERROR;
}

enum ha_status ha_cpu_attend_create(struct ha_cpu_attend *c, const struct ha_context *ctx, size_t units_max,
                                    const struct ha_attend *worst, struct ha_why *why)
{
    const struct ha_kernels *kernels = ctx->kernels;
    size_t threads = ha_pool_threads(ctx->pool), scratch = (kernels->attend_scratch_bytes(worst) + 63) / 64 * 64;
    size_t all = kernels->attend_all_bytes(worst, units_max, threads);
    *c = (struct ha_cpu_attend){ .ctx = ctx, .units_max = units_max, .scratch_bytes = scratch };
    c->unit = ha_alloc(ctx->arena, units_max * sizeof *c->unit, HA_TAG_META, why);
    c->work = c->unit ? ha_alloc(ctx->arena, ha_most(all, threads * scratch), HA_TAG_SCRATCH, why) : NULL;
    return c->work ? make_groups(c, 1, why) : HA_ERROR;
}

enum ha_status ha_cpu_attend_in_groups(struct ha_cpu_attend *c, size_t units_per_group, struct ha_why *why)
{
    c->units_per_group = units_per_group;
    ha_free(c->ctx->arena, c->group);
    ha_free(c->ctx->arena, c->share);
    return make_groups(c, (c->units_max + units_per_group - 1) / units_per_group, why);
}

void ha_cpu_attend_release(struct ha_cpu_attend *c)
{
    ha_free(c->ctx->arena, c->unit);
    ha_free(c->ctx->arena, c->work);
    ha_free(c->ctx->arena, c->group);
    ha_free(c->ctx->arena, c->share);
}

static size_t per_task(const struct ha_cpu_attend *c) { return ha_most(c->units_per_task, 1); }

static void run_task(void *arg, size_t task, size_t worker)
{
    const struct ha_cpu_share *s = arg;
    const struct ha_cpu_attend *c = s->cpu;
    const struct ha_kernels *kernels = c->ctx->kernels;
    const size_t first = s->first + task * per_task(c), end = ha_least(first + per_task(c), s->end);
    for (size_t i = first; i < end; i++) {
        struct ha_attend a = c->unit[i];
        a.scratch = c->work + worker * c->scratch_bytes;
        kernels->attend(kernels, &a);
    }
}

/* The units from first on, count of them at most, as tasks of a group. */
static struct ha_pool_group tasks_of(struct ha_cpu_attend *c, struct ha_cpu_share *share, size_t first, size_t count)
{
    *share = (struct ha_cpu_share){ .cpu = c, .first = first, .end = ha_least(first + count, c->units) };
    return (struct ha_pool_group){ .tasks = (share->end - first + per_task(c) - 1) / per_task(c),
                                   .fn = run_task,
                                   .arg = share };
}

/* The units as sets of tasks; how many sets. */
static size_t groups_of(struct ha_cpu_attend *c)
{
    const size_t each = c->units_per_group ? c->units_per_group : ha_most(c->units, 1);
    size_t groups = 0;
    for (size_t first = 0; first < c->units; first += each, groups++)
        c->group[groups] = tasks_of(c, &c->share[groups], first, each);
    return groups;
}

void ha_cpu_attend_run(struct ha_cpu_attend *c, const char *name)
{
    const struct ha_kernels *kernels = c->ctx->kernels;
    if (c->units_per_group || c->units_per_task) {
        const size_t groups = groups_of(c);
        ha_pool_run_groups(c->ctx->pool, name, c->group, groups);
    } else {
        kernels->attend_all(
            kernels, &(struct ha_attend_all){
                         .units = c->unit, .count = c->units, .pool = c->ctx->pool, .name = name, .work = c->work });
    }
}

void ha_cpu_attend_start(struct ha_cpu_attend *c, const char *name)
{
    const size_t groups = groups_of(c);
    ha_pool_start_groups(c->ctx->pool, name, c->group, groups);
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
