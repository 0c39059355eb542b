#include "suites/codebook_keys/least_prefix.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

#include <math.h>

static const struct ha_shape *shape(const struct ha_prefix *p) { return p->ctx->shape; }
static size_t w_bytes(const struct ha_prefix *p) { return ha_dtype_bytes(p->w_type); }
static size_t lists(const struct ha_prefix *p) { return shape(p)->batch * shape(p)->q_heads; }
static size_t of_head(const struct ha_prefix *p, size_t b, size_t q_head) { return b * shape(p)->q_heads + q_head; }

/* ---- create ------------------------------------------------------------------------------------------------------ */

static void *alloc(const struct ha_prefix *p, enum ha_memory memory, size_t bytes, struct ha_why *why)
{
    return ha_device_alloc(p->ctx->device_arena, memory, bytes, HA_TAG_SCRATCH, why);
}

static enum ha_status create_arrays(struct ha_prefix *p, struct ha_why *why)
{
    const struct ha_shape *s = shape(p);
    const size_t all = lists(p), ids = all * p->stride, rows = all * s->q_len, w = rows * p->stride * w_bytes(p);
    const struct {
        void **to;
        enum ha_memory memory;
        size_t bytes;
    } arrays[] = {
        { (void **)&p->x, HA_MEM_DEVICE, rows * p->stride * sizeof *p->x },
        { (void **)&p->lse, HA_MEM_DEVICE, rows * sizeof *p->lse },
        { (void **)&p->keys, HA_MEM_DEVICE, all * sizeof *p->keys },
        { (void **)&p->index, HA_MEM_DEVICE, ids * sizeof *p->index },
        { (void **)&p->w, HA_MEM_DEVICE, w },
        { (void **)&p->lse_down, HA_MEM_PINNED, rows * sizeof *p->lse },
        { (void **)&p->keys_down, HA_MEM_PINNED, all * sizeof *p->keys },
        { (void **)&p->index_down, HA_MEM_PINNED, ids * sizeof *p->index },
        { (void **)&p->w_down, HA_MEM_PINNED, w },
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!(*arrays[i].to = alloc(p, arrays[i].memory, arrays[i].bytes, why))) return HA_ERROR;
    return HA_OK;
}

enum ha_status ha_prefix_create(struct ha_prefix *p, const struct ha_layer *first, double tau, bool renorm,
                                enum ha_dtype w_type, size_t keys_max, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    *p = (struct ha_prefix){
        .ctx = ctx, .tau = tau, .renorm = renorm, .w_type = w_type, .stride = ha_most(16, (keys_max + 15) / 16 * 16)
    };
    const size_t all = lists(p), pieces = all * (1 + s->q_len);
    if (s->q_len > HA_TOPP_ROWS_MAX)
        return ha_why(why, HA_ERROR, "steps of %zu tokens; weights are chosen for at most %d", s->q_len,
                      HA_TOPP_ROWS_MAX);
    HA_TRY(create_arrays(p, why));
    HA_TRY(ha_frame_stream(first, "down", &p->down, why));
    HA_TRY(ha_device_event(ctx->device_arena, &p->came, why));
    p->chosen = ha_alloc(ctx->arena, s->kv_heads * sizeof *p->chosen, HA_TAG_SCRATCH, why);
    for (size_t i = 0; p->chosen && i < s->kv_heads; i++)
        HA_TRY(ha_device_event(ctx->device_arena, &p->chosen[i], why));
    p->count = p->chosen ? ha_alloc(ctx->arena, all * sizeof *p->count, HA_TAG_SCRATCH, why) : NULL;
    p->mass = p->count ? ha_alloc(ctx->arena, all * sizeof *p->mass, HA_TAG_SCRATCH, why) : NULL;
    p->least_mass = p->mass ? ha_alloc(ctx->arena, all * sizeof *p->least_mass, HA_TAG_SCRATCH, why) : NULL;
    p->softmax = p->least_mass ? ha_alloc(ctx->arena, s->batch * sizeof *p->softmax, HA_TAG_SCRATCH, why) : NULL;
    p->topp = p->softmax ? ha_alloc(ctx->arena, s->batch * sizeof *p->topp, HA_TAG_SCRATCH, why) : NULL;
    p->sum = p->topp ? ha_alloc(ctx->arena, s->batch * sizeof *p->sum, HA_TAG_SCRATCH, why) : NULL;
    p->dst = p->sum ? ha_alloc(ctx->arena, pieces * sizeof *p->dst, HA_TAG_SCRATCH, why) : NULL;
    p->src = p->dst ? ha_alloc(ctx->arena, pieces * sizeof *p->src, HA_TAG_SCRATCH, why) : NULL;
    p->bytes = p->src ? ha_alloc(ctx->arena, pieces * sizeof *p->bytes, HA_TAG_SCRATCH, why) : NULL;
    return p->bytes ? HA_OK : HA_ERROR;
}

/* ---- on the device ----------------------------------------------------------------------------------------------- */

enum ha_status ha_prefix_choose(struct ha_prefix *p, const struct ha_prefix_seq *seqs, size_t first, size_t heads)
{
    const struct ha_device_api *api = p->ctx->api;
    const struct ha_shape *s = shape(p);
    const size_t group = ha_shape_group(s), q_first = first * group, q_heads = heads * group;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t list = of_head(p, b, q_first), row = list * s->q_len;
        p->softmax[b] = (struct ha_device_softmax_seq){ .x = p->x + row * p->stride,
                                                        .n = seqs[b].keys,
                                                        .stride = p->stride,
                                                        .lse = p->lse + b * s->q_len * s->q_heads + q_first,
                                                        .lse_stride = s->q_heads };
        p->topp[b] = (struct ha_device_topp_seq){ .x = p->x + row * p->stride,
                                                  .n = seqs[b].keys,
                                                  .stride = p->stride,
                                                  .keys = p->keys + list,
                                                  .index = p->index + list * p->stride,
                                                  .w = p->w + row * p->stride * w_bytes(p),
                                                  .index_stride = p->stride,
                                                  .w_stride = p->stride };
    }
    HA_TRY(api->softmax(p->ctx->stream, &(struct ha_device_softmax){ s->batch, q_heads, s->q_len, p->softmax }));
    HA_TRY(
        api->topp(p->ctx->stream, &(struct ha_device_topp){ s->batch, q_heads, s->q_len, p->tau, p->w_type, p->topp }));
    for (size_t b = 0; b < s->batch; b++) {
        const size_t list = of_head(p, b, q_first);
        HA_TRY(api->copy(p->ctx->stream, p->keys_down + list, p->keys + list, q_heads * sizeof *p->keys, HA_D2H));
    }
    const size_t heads_bytes = s->q_heads * sizeof *p->lse;
    HA_TRY(api->copy_2d(p->ctx->stream, p->lse_down + q_first, heads_bytes, p->lse + q_first, heads_bytes,
                        q_heads * sizeof *p->lse, s->batch * s->q_len, HA_D2H));
    return api->event_record(p->chosen[first], p->ctx->stream);
}

enum ha_status ha_prefix_sum_there(struct ha_prefix *p, const struct ha_prefix_seq *seqs, const struct ha_state *to)
{
    const struct ha_shape *s = shape(p);
    const size_t rows = s->q_len * s->q_heads;
    for (size_t b = 0; b < s->batch; b++)
        p->sum[b] = (struct ha_device_weighted_sum_seq){
            .v = seqs[b].values->at,
            .v_stride_bytes = ha_kv_head_bytes(s),
            .v_head_bytes = seqs[b].values->head_bytes,
            .keys = p->keys + of_head(p, b, 0),
            .index = p->index + of_head(p, b, 0) * p->stride,
            .w = p->w + of_head(p, b, 0) * s->q_len * p->stride * w_bytes(p),
            .index_stride = p->stride,
            .w_stride = p->stride,
            .o = to->o + b * rows * s->head_dim,
        };
    HA_TRY(p->ctx->api->weighted_sum(p->ctx->stream,
                                     &(struct ha_device_weighted_sum){ s->batch, s->q_len, s->q_heads, s->kv_heads,
                                                                       s->head_dim, s->dtype, p->w_type, p->sum }));
    return p->ctx->api->copy(p->ctx->stream, to->lse, p->lse, s->batch * rows * sizeof *p->lse, HA_D2D);
}

/* ---- in host memory ---------------------------------------------------------------------------------------------- */

/* Ids and weights of what query heads [first, first + count) of all sequences have chosen, which is known. */
static enum ha_status bring(struct ha_prefix *p, const struct ha_prefix_seq *seqs, size_t first, size_t count,
                            struct ha_why *why)
{
    const struct ha_device_api *api = p->ctx->api;
    const struct ha_shape *s = shape(p);
    size_t n = 0;
    for (size_t i = 0; i < s->batch * count; i++) {
        const size_t b = i / count, list = of_head(p, b, first + i % count), keys = p->keys_down[list];
        ha_order_thread_access("down", "keys", HA_READ, p->keys_down + list, 1, 0, sizeof *p->keys_down);
        p->count[list] = keys;
        if (keys > seqs[b].keys) return ha_list_refuse(p->ctx, why, "%zu keys chosen of %zu", keys, seqs[b].keys);
        for (size_t t = 0; keys && t <= s->q_len; t++, n++) {
            const size_t at = t ? (list * s->q_len + t - 1) * p->stride * w_bytes(p) : list * p->stride;
            p->dst[n] = t ? (void *)(p->w_down + at) : p->index_down + at;
            p->src[n] = t ? (const void *)(p->w + at) : p->index + at;
            p->bytes[n] = keys * (t ? w_bytes(p) : sizeof *p->index);
        }
    }
    if (n && api->copy_pieces)
        HA_TRY(api->copy_pieces(p->down, &(struct ha_device_pieces){ p->dst, p->src, p->bytes, n }, HA_D2H));
    for (size_t i = 0; i < n && !api->copy_pieces; i++)
        HA_TRY(api->copy(p->down, p->dst[i], p->src[i], p->bytes[i], HA_D2H));
    HA_TRY(api->event_record(p->came, p->down));
    HA_TRY(api->event_sync(p->came));
    for (size_t i = 0; i < s->batch * count; i++) {
        const size_t b = i / count, list = of_head(p, b, first + i % count);
        HA_TRY(ha_list_check(p->ctx, "keys that the device chose", p->index_down + list * p->stride, p->count[list],
                             seqs[b].keys, seqs[b].keys, why));
    }
    return HA_OK;
}

struct summing {
    const struct ha_prefix *p;
    const struct ha_prefix_seq *seqs;
    size_t first, count; /* query heads of a sequence */
    const struct ha_state *to;
};

static double mass_of(const struct ha_prefix *p, size_t list, size_t t)
{
    const unsigned char *w = p->w_down + (list * shape(p)->q_len + t) * p->stride * w_bytes(p);
    double sum = 0;
    for (size_t i = 0; i < p->count[list]; i++) sum += (double)ha_load(w, i, p->w_type);
    return sum;
}

static double add_mass(const struct ha_prefix *p, size_t list, size_t t)
{
    const double mass = mass_of(p, list, t);
    p->mass[list] = (t ? p->mass[list] : 0) + mass / (double)shape(p)->q_len;
    p->least_mass[list] = t ? fmin(p->least_mass[list], mass) : mass;
    return mass;
}

/* The state of a token: its LSE, and where it is to be renormalised, that of the chosen keys. */
static void finish(const struct summing *a, size_t b, size_t q_head, size_t t, double mass)
{
    const struct ha_shape *s = shape(a->p);
    const size_t row = (b * s->q_len + t) * s->q_heads + q_head;
    float *o = a->to->o + row * s->head_dim;
    a->to->lse[row] = a->p->lse_down[row];
    if (!a->p->renorm || !(mass > 0)) return;
    for (size_t d = 0; d < s->head_dim; d++) o[d] = (float)((double)o[d] / mass);
    a->to->lse[row] = (float)((double)a->p->lse_down[row] + log(mass));
}

/* one query head of a sequence */
static void sum_up(void *arg, size_t task, size_t worker)
{
    const struct summing *a = arg;
    const struct ha_prefix *p = a->p;
    const struct ha_shape *s = shape(p);
    const size_t b = task / a->count, q_head = a->first + task % a->count, list = of_head(p, b, q_head);
    const struct ha_head_rows *values = a->seqs[b].values;
    p->ctx->kernels->weighted_sum(
        &(struct ha_weighted_sum){ .rows = { .v = values->at + q_head / ha_shape_group(s) * values->head_bytes,
                                             .v_stride_bytes = ha_kv_head_bytes(s),
                                             .index = p->index_down + list * p->stride,
                                             .keys = p->count[list] },
                                   .head_dim = s->head_dim,
                                   .dtype = s->dtype,
                                   .w = p->w_down + list * s->q_len * p->stride * w_bytes(p),
                                   .w_type = p->w_type,
                                   .q_rows = s->q_len,
                                   .w_stride = p->stride,
                                   .o = a->to->o + (b * s->q_len * s->q_heads + q_head) * s->head_dim,
                                   .o_stride = s->q_heads * s->head_dim });
    for (size_t t = 0; t < s->q_len; t++) finish(a, b, q_head, t, add_mass(p, list, t));
}

/* A query head chooses for all tokens of a step: of keys that weigh nothing in one of them there is nothing to divide.
 * In the mean they weigh tau and more, less what f16 rounds off; a device that brings less down has lost them. */
static enum ha_status refuse_weightless(const struct summing *a, struct ha_why *why)
{
    const struct ha_prefix *p = a->p;
    for (size_t i = 0; p->renorm && i < shape(p)->batch * a->count; i++) {
        const size_t q_head = a->first + i % a->count, list = of_head(p, i / a->count, q_head), keys = p->count[list];
        if (!keys || p->least_mass[list] > 0) continue;
        if (!(p->mass[list] >= p->tau / 2 - (double)keys * 0x1p-24))
            return ha_list_refuse(p->ctx, why, "weights of %zu chosen keys add up to %g, where tau is %g", keys,
                                  p->mass[list], p->tau);
        return ha_why(why, HA_WAIVED,
                      "renorm=1: the %zu keys that query head %zu chose weigh nothing in one of the step's tokens; "
                      "renorm=0 or q_len=1 divides by no such sum",
                      keys, q_head);
    }
    return HA_OK;
}

enum ha_status ha_prefix_sum_here(struct ha_prefix *p, const struct ha_prefix_seq *seqs, size_t first, size_t heads,
                                  const struct ha_state *to, struct ha_why *why)
{
    const struct ha_shape *s = shape(p);
    const size_t group = ha_shape_group(s);
    struct summing a = { p, seqs, first * group, heads * group, to };
    HA_TRY(p->ctx->api->event_sync(p->chosen[first]));
    HA_TRY(bring(p, seqs, a.first, a.count, why));
    ha_pool_run(p->ctx->pool, "weighted_sum", s->batch * a.count, sum_up, &a);
    return refuse_weightless(&a, why);
}

const uint32_t *ha_prefix_list(const struct ha_prefix *p, size_t b, size_t q_head, size_t *count)
{
    *count = p->count[of_head(p, b, q_head)];
    return p->index_down + of_head(p, b, q_head) * p->stride;
}

void ha_prefix_claim(const struct ha_prefix *p, size_t b, size_t q_head, struct ha_profile *profile)
{
    /* Sums of HA_SUM_KEYS keys one after the other, then of these, which no two numbers are scaled for: no path of
     * softmax is longer, either. */
    profile->sum_lanes = 1;
    profile->sum_extra = 0;
    profile->join_keys = HA_SUM_KEYS;
    profile->joins_max = 0;
    profile->exact_joins = true;
    profile->sum_rounded = p->renorm;
    profile->weight_type = p->w_type;
    profile->sum_least = p->renorm ? p->least_mass[of_head(p, b, q_head)] * (1 - 0x1p-9) : 1;
}

size_t ha_prefix_chosen(const struct ha_prefix *p)
{
    size_t keys = 0;
    for (size_t list = 0; list < lists(p); list++) keys += p->count[list];
    return keys;
}

size_t ha_prefix_key_bytes(const struct ha_prefix *p) { return sizeof *p->index + shape(p)->q_len * w_bytes(p); }

enum ha_status ha_prefix_learn(struct ha_prefix *p, const struct ha_prefix_seq *seqs, struct ha_why *why)
{
    HA_TRY(p->ctx->api->stream_sync(p->ctx->stream));
    HA_TRY(bring(p, seqs, 0, shape(p)->q_heads, why));
    for (size_t i = 0; i < lists(p) * shape(p)->q_len; i++) add_mass(p, i / shape(p)->q_len, i % shape(p)->q_len);
    return HA_OK;
}
