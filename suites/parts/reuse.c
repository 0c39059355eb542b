#include "suites/parts/reuse.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/cpu_attend.h"
#include "suites/parts/kv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float importance_least = 0x1p-10f; /* of a query head, in the harmonic mean */
static const char *const similarity_name[] = {
    [HA_SIMILAR_HARMONIC] = "similarity", [HA_SIMILAR_LEAST] = "similarity_min"
};

/* ---- what a case makes of it ------------------------------------------------------------------------------------- */

/* A tensor of the fit, of two dimensions or one; *x: NULL where the fit has none. */
static enum ha_status get(const struct ha_fit *fit, const char *name, size_t rows, size_t columns, double least,
                          double most, const float **x, struct ha_why *why)
{
    struct ha_tensor t = { .name = name, .type = HA_T_F32, .dims = columns ? 2 : 1, .dim = { rows, columns } };
    *x = NULL;
    if (!fit || !ha_fit_has(fit, name)) return HA_OK;
    HA_TRY(ha_fit_get(fit, &t, why));
    *x = (const float *)t.data;
    for (size_t i = 0; i < t.bytes / sizeof **x; i++) {
        const double value = (double)(*x)[i];
        if (value >= least && value <= most) continue;
        const size_t at[] = { columns ? i / columns : i, columns ? i % columns : 0 };
        return ha_why(why, HA_ERROR,
                      "the fit's tensor %s has %g at %s, and %g to %g is wanted: `habench fit CASE -o FILE` makes "
                      "another",
                      name, value, ha_tensor_place(at, t.dims).text, least, most);
    }
    return HA_OK;
}

static double threshold(const struct ha_reuse_rule *rule, double importance)
{
    const double lambda = rule->adaptive ? pow(importance, rule->p) : 1;
    return lambda == 1 ? rule->eta : cos(lambda * acos(rule->eta) + (1 - lambda) * M_PI);
}

struct hard {
    double difficulty;
    size_t head; /* layer * kv_heads + KV head */
};

static int hardest_first(const void *a, const void *b)
{
    const struct hard *x = a, *y = b;
    if (x->difficulty != y->difficulty) return x->difficulty > y->difficulty ? -1 : 1;
    return (x->head > y->head) - (x->head < y->head);
}

/* How many of a layer's heads can be prefetched while it computes. */
static size_t prefetched(const struct ha_reuse_rule *rule, const float *pace, size_t kv_heads)
{
    if (!pace) return 0;
    const double heads = floor((double)pace[0] * (double)pace[1] / rule->buffer_bytes);
    return heads < (double)kv_heads ? (size_t)heads : kv_heads;
}

/* hard: [count], those of D > 0. The hardest of all come first; each layer wants as many as cannot be prefetched. */
static enum ha_status choose(struct ha_reuse *r, const struct ha_context *ctx, const struct ha_reuse_rule *rule,
                             struct hard *hard, size_t count, size_t prefetchable, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t *wanted = ha_alloc(ctx->arena, s->layers * sizeof *wanted, HA_TAG_META, why);
    double bytes = (double)s->kv_heads * rule->whole_bytes;
    if (!wanted) return HA_ERROR;
    memset(wanted, 0, s->layers * sizeof *wanted);
    for (size_t i = 0; i < count; i++) wanted[hard[i].head / s->kv_heads]++;
    for (size_t l = 0; l < s->layers; l++) wanted[l] -= ha_least(wanted[l], prefetchable);
    qsort(hard, count, sizeof *hard, hardest_first);
    for (size_t i = 0; i < count; i++) {
        size_t *left = &wanted[hard[i].head / s->kv_heads];
        if (*left == 0) continue;
        bytes += rule->whole_bytes;
        if (rule->budget_bytes > 0 && bytes > rule->budget_bytes) break;
        r->persistent[hard[i].head] = true;
        (*left)--;
    }
    return HA_OK;
}

enum ha_status ha_reuse_create(struct ha_reuse *r, const struct ha_context *ctx, const struct ha_reuse_rule *rule,
                               struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t heads = s->layers * s->kv_heads, queries = s->layers * s->q_heads;
    const float *of_query, *of_kv, *similarity, *pace;
    HA_TRY(get(ctx->fit, "importance_q", s->layers, s->q_heads, 0, 1, &of_query, why));
    HA_TRY(get(ctx->fit, "importance_kv", s->layers, s->kv_heads, 0, 1, &of_kv, why));
    HA_TRY(get(ctx->fit, similarity_name[rule->group], s->layers, s->kv_heads, -1, 1, &similarity, why));
    HA_TRY(get(ctx->fit, "pace", 2, 0, 0, HUGE_VAL, &pace, why));
    if (rule->budget_bytes > 0 && (double)s->kv_heads * rule->whole_bytes > rule->budget_bytes)
        return ha_why(why, HA_ERROR,
                      "keys and values of the first layer stay on the device: %.3f MB, of which device_budget_MB "
                      "allows %.3f: raise it",
                      (double)s->kv_heads * rule->whole_bytes / 1e6, rule->budget_bytes / 1e6);

    r->threshold = ha_alloc(ctx->arena, heads * sizeof *r->threshold, HA_TAG_META, why);
    r->importance = r->threshold ? ha_alloc(ctx->arena, queries * sizeof *r->importance, HA_TAG_META, why) : NULL;
    r->persistent = r->importance ? ha_alloc(ctx->arena, heads * sizeof *r->persistent, HA_TAG_META, why) : NULL;
    struct hard *hard = r->persistent ? ha_alloc(ctx->arena, heads * sizeof *hard, HA_TAG_META, why) : NULL;
    if (!hard) return HA_ERROR;

    size_t count = 0;
    for (size_t i = 0; i < queries; i++) r->importance[i] = of_query ? fmaxf(of_query[i], importance_least) : 1;
    for (size_t i = 0; i < heads; i++) {
        const double tau = threshold(rule, of_kv ? (double)of_kv[i] : 1);
        r->threshold[i] = (float)tau;
        r->persistent[i] = i < s->kv_heads;
        if (r->persistent[i] || !similarity || !rule->hard) continue;
        const double difficulty = tau - ((double)similarity[i] - rule->eps);
        if (difficulty > 0) hard[count++] = (struct hard){ difficulty, i };
    }
    return choose(r, ctx, rule, hard, count, prefetched(rule, pace, s->kv_heads), why);
}

/* ---- what is learnt ---------------------------------------------------------------------------------------------- */

enum { FULL, STREAM };    /* attention over all keys; over sinks, the recent ones and the query's own */
enum { OF_QUERY, OF_KV }; /* heads */

struct learning {
    const struct ha_fit_input *in;
    size_t sink, recent;
    size_t layer, b, queries;        /* of the sequence */
    float *o[2], *lse;               /* [observed][q_heads][head_dim], [observed][q_heads] */
    void **attend;                   /* [threads] of the kernels */
    double *deviation[2], *count[2]; /* [layers][q_heads], [layers][kv_heads]: sums, later means; of so many */
    float *importance[2];            /* the same shapes, as they are written */
    float *similarity[2];            /* [layers][kv_heads] by enum ha_similar */
};

static size_t observed(const struct ha_shape *s, size_t b) { return ha_least(s->observed, s->ctx[b]); }

static const float *query(const struct learning *l, size_t layer, size_t b, size_t i)
{
    return l->in->layer[layer].q[b] + i * l->in->shape->q_heads * l->in->shape->head_dim;
}

static struct ha_rows rows_of(const struct learning *l, size_t head, size_t first, size_t count)
{
    const struct ha_shape *s = l->in->shape;
    const struct ha_prefill *p = &l->in->layer[l->layer];
    const size_t row = s->head_dim * ha_dtype_bytes(s->dtype), at = (head * p->cap + first) * row;
    return (struct ha_rows){ .k = (const char *)p->k[l->b] + at,
                             .v = (const char *)p->v[l->b] + at,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row,
                             .keys = count };
}

/* Both attentions of a query of a KV head. */
static void attend_task(void *arg, size_t task, size_t worker)
{
    struct learning *l = arg;
    const struct ha_shape *s = l->in->shape;
    const size_t i = task / s->kv_heads, head = task % s->kv_heads, group = ha_shape_group(s),
                 first = i * s->q_heads + head * group, before = s->ctx[l->b] - l->queries + i,
                 sinks = ha_least(l->sink, before), recent = ha_most(sinks, before - ha_least(before, l->recent));
    const struct ha_rows all = rows_of(l, head, 0, before + 1);
    const struct ha_rows kept[] = { rows_of(l, head, 0, sinks), rows_of(l, head, recent, before + 1 - recent) };
    for (size_t side = FULL; side <= STREAM; side++) {
        struct ha_attend a = ha_cpu_attend_unit(
            s, 0, group, 1, false, query(l, l->layer, l->b, i) + head * group * s->head_dim,
            l->o[side] + first * s->head_dim, l->lse + first, side == FULL ? &all : kept);
        a.runs_count = side == FULL ? 1 : 2;
        a.scratch = l->attend[worker];
        l->in->kernels->attend(l->in->kernels, &a);
    }
}

static double squares(const float *x, const float *less, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (less ? (double)less[i] : 0);
        sum += d * d;
    }
    return sum;
}

/* |o_stream - o_full| / |o_full| of n numbers; of an output of zeros there is none. */
static bool add_deviation(const struct learning *l, size_t first, size_t n, double *sum, double *count)
{
    const double all = squares(l->o[FULL] + first, NULL, n),
                 apart = squares(l->o[STREAM] + first, l->o[FULL] + first, n);
    if (!isfinite(all) || !isfinite(apart)) return false;
    if (all > 0) {
        *sum += sqrt(apart / all);
        (*count)++;
    }
    return true;
}

static enum ha_status add_deviations(struct learning *l, struct ha_why *why)
{
    const struct ha_shape *s = l->in->shape;
    const size_t group = ha_shape_group(s), dim = s->head_dim, queries = l->layer * s->q_heads,
                 heads = l->layer * s->kv_heads;
    bool finite = true;
    l->queries = observed(s, l->b);
    ha_pool_run(l->in->pool, "fit", l->queries * s->kv_heads, attend_task, l);
    for (size_t i = 0; i < l->queries; i++) {
        for (size_t h = 0; h < s->q_heads; h++)
            finite &= add_deviation(l, (i * s->q_heads + h) * dim, dim, &l->deviation[OF_QUERY][queries + h],
                                    &l->count[OF_QUERY][queries + h]);
        for (size_t h = 0; h < s->kv_heads; h++)
            finite &= add_deviation(l, (i * s->q_heads + h * group) * dim, group * dim, &l->deviation[OF_KV][heads + h],
                                    &l->count[OF_KV][heads + h]);
    }
    return finite ? HA_OK
                  : ha_why(why, HA_ERROR, "layer %zu seq %zu: K, V or an observed query is not finite", l->layer, l->b);
}

/* Means, so that the largest becomes 1 and the least 0; where they differ by what rounding makes of them, none is less
 * than another: 1. */
static void scale(double *sum, const double *count, size_t n, float *importance)
{
    double least = HUGE_VAL, most = 0;
    for (size_t i = 0; i < n; i++) {
        sum[i] = count[i] > 0 ? sum[i] / count[i] : 0;
        least = fmin(least, sum[i]);
        most = fmax(most, sum[i]);
    }
    const bool differ = most - least > 1e-6;
    for (size_t i = 0; i < n; i++) importance[i] = differ ? (float)((sum[i] - least) / (most - least)) : 1;
}

/* 0 where one of them is zeros */
static double cosine(const float *a, const float *b, size_t dim)
{
    double product = 0;
    for (size_t d = 0; d < dim; d++) product += (double)a[d] * (double)b[d];
    const double norms = sqrt(squares(a, NULL, dim) * squares(b, NULL, dim));
    return norms > 0 ? product / norms : 0;
}

/* How alike two queries of a KV head are: as `similarity` of harness/api/device.h has it. */
static double group_similarity(const float *a, const float *b, const float *importance, size_t group, size_t dim,
                               enum ha_similar rule)
{
    double least = 1, weights = 0, weighted = 0;
    for (size_t m = 0; m < group; m++) {
        const double cos = cosine(a + m * dim, b + m * dim, dim),
                     weight = (double)fmaxf(importance[m], importance_least);
        least = fmin(least, cos);
        weights += weight;
        weighted += weight / cos;
    }
    return rule == HA_SIMILAR_LEAST || !(least > 0) ? least : weights / weighted;
}

/* Means over all pairs of neighbours, of which there is one at least. */
static void learn_similarity(const struct learning *l, enum ha_similar rule, float *mean)
{
    const struct ha_shape *s = l->in->shape;
    const size_t group = ha_shape_group(s), dim = s->head_dim;
    for (size_t u = 0; u < s->layers * s->kv_heads; u++) {
        const size_t layer = u / s->kv_heads, head = u % s->kv_heads * group;
        double sum = 0;
        size_t pairs = 0;
        for (size_t b = 0; b < s->batch; b++)
            for (size_t i = 1; i < observed(s, b); i++, pairs++)
                sum += group_similarity(query(l, layer, b, i - 1) + head * dim, query(l, layer, b, i) + head * dim,
                                        l->importance[OF_QUERY] + layer * s->q_heads + head, group, dim, rule);
        mean[u] = (float)fmax(-1, fmin(1, sum / (double)pairs));
    }
}

static void *room(const struct learning *l, size_t bytes, struct ha_why *why)
{
    void *at = ha_alloc(l->in->arena, bytes, HA_TAG_SCRATCH, why);
    if (at) memset(at, 0, bytes);
    return at;
}

static enum ha_status make_rooms(struct learning *l, size_t longest, struct ha_why *why)
{
    const struct ha_shape *s = l->in->shape;
    const size_t units = ha_least(s->observed, longest) * s->q_heads, queries = s->layers * s->q_heads,
                 heads = s->layers * s->kv_heads, threads = ha_pool_threads(l->in->pool);
    const struct ha_rows run = { .keys = longest };
    float none = 0; /* no pointer is read for the room */
    const struct ha_attend worst = ha_cpu_attend_unit(s, 0, ha_shape_group(s), 1, false, &none, &none, &none, &run);
    const struct {
        void *at;
        size_t bytes;
    } part[] = {
        { &l->o[FULL], units * s->head_dim * sizeof **l->o },
        { &l->o[STREAM], units * s->head_dim * sizeof **l->o },
        { &l->lse, units * sizeof *l->lse },
        { &l->attend, threads * sizeof *l->attend },
        { &l->similarity[HA_SIMILAR_LEAST], heads * sizeof **l->similarity },
        { &l->similarity[HA_SIMILAR_HARMONIC], heads * sizeof **l->similarity },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        void *at = room(l, part[i].bytes, why);
        if (!at) return HA_ERROR;
        memcpy(part[i].at, &at, sizeof at);
    }
    for (size_t i = OF_QUERY; i <= OF_KV; i++) {
        const size_t n = i == OF_QUERY ? queries : heads;
        l->deviation[i] = room(l, n * sizeof **l->deviation, why);
        l->count[i] = l->deviation[i] ? room(l, n * sizeof **l->count, why) : NULL;
        l->importance[i] = l->count[i] ? room(l, n * sizeof **l->importance, why) : NULL;
        if (!l->importance[i]) return HA_ERROR;
    }
    for (size_t i = 0; i < threads; i++)
        if (!(l->attend[i] = room(l, l->in->kernels->attend_scratch_bytes(&worst), why))) return HA_ERROR;
    return HA_OK;
}

enum ha_status ha_reuse_fit(const struct ha_fit_input *in, struct ha_fit_writer *out, size_t sink, size_t recent,
                            struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    struct learning l = { .in = in, .sink = sink, .recent = recent };
    size_t longest = 0;
    for (size_t b = 0; b < s->batch; b++) longest = ha_most(longest, s->ctx[b]);
    if (s->observed < 2)
        return ha_why(why, HA_ERROR, "reuse is learnt from one query to the next, of %zu: observed=256, say",
                      s->observed);
    if (longest <= sink + recent + 1)
        return ha_why(why, HA_ERROR, "no query has keys besides %zu sinks and %zu recent ones: raise ctx, %zu", sink,
                      recent, longest);
    HA_TRY(make_rooms(&l, longest, why));
    for (l.layer = 0; l.layer < s->layers; l.layer++)
        for (l.b = 0; l.b < s->batch; l.b++) HA_TRY(add_deviations(&l, why));
    scale(l.deviation[OF_QUERY], l.count[OF_QUERY], s->layers * s->q_heads, l.importance[OF_QUERY]);
    scale(l.deviation[OF_KV], l.count[OF_KV], s->layers * s->kv_heads, l.importance[OF_KV]);
    const struct {
        const char *name;
        size_t heads;
        const float *data;
    } learnt[] = { { "importance_q", s->q_heads, l.importance[OF_QUERY] },
                   { "importance_kv", s->kv_heads, l.importance[OF_KV] },
                   { similarity_name[HA_SIMILAR_HARMONIC], s->kv_heads, l.similarity[HA_SIMILAR_HARMONIC] },
                   { similarity_name[HA_SIMILAR_LEAST], s->kv_heads, l.similarity[HA_SIMILAR_LEAST] } };
    for (size_t i = HA_SIMILAR_LEAST; i <= HA_SIMILAR_HARMONIC; i++)
        learn_similarity(&l, (enum ha_similar)i, l.similarity[i]);
    for (size_t i = 0; i < sizeof learnt / sizeof *learnt; i++)
        HA_TRY(ha_fit_put(out,
                          &(struct ha_tensor){ .name = learnt[i].name,
                                               .type = HA_T_F32,
                                               .dims = 2,
                                               .dim = { s->layers, learnt[i].heads },
                                               .data = learnt[i].data },
                          why));
    if (!in->pace) return HA_OK;
    const float pace[2] = { (float)in->pace[0], (float)in->pace[1] };
    return ha_fit_put(out, &(struct ha_tensor){ "pace", HA_T_F32, 1, { 2 }, pace, sizeof pace }, why);
}
