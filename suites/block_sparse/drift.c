/* The observed queries of a prefill are replayed as steps. What share of the chosen blocks a cache does not have grows
 * with the steps since it was filled; the interval is the longest for which it is on average no more than `ratio`. */

#include "suites/block_sparse/drift.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

/* One KV head of one sequence of a layer. */
struct replay {
    const struct ha_fit_input *in;
    const struct ha_drift *of;
    size_t lists;                  /* of the KV head */
    size_t blocks, first, queries; /* at the end; position of the first query, and how many there are */
    unsigned char *digests;
    float *score;                   /* [query heads of the KV head][queries][blocks] */
    uint32_t *list;                 /* [blocks] */
    unsigned char *chosen, *filled; /* [lists][queries][blocks], [queries][blocks]: marks */
    size_t *missing;                /* [queries - 1] */
};

static size_t whole(const struct replay *r, size_t query) { return (r->first + query) / r->of->block; }

/* Marks the k blocks of largest score among rows [from, to) of heads, of those before the query. */
static void mark(const struct replay *r, size_t from, size_t to, size_t query, size_t k, unsigned char *marks)
{
    const size_t n = whole(r, query);
    float *best = r->score + (from * r->queries + query) * r->blocks;
    for (size_t g = from + 1; g < to; g++)
        for (size_t i = 0; i < n; i++) best[i] = fmaxf(best[i], r->score[(g * r->queries + query) * r->blocks + i]);
    k = ha_least(k, n);
    r->in->kernels->topk(&(struct ha_topk){ .x = best, .n = n, .k = k, .index = r->list });
    memset(marks, 0, r->blocks);
    for (size_t i = 0; i < k; i++) marks[r->list[i]] = 1;
}

/* What each query chooses, and what the cache would be filled with by it. */
static void score(struct replay *r, const struct ha_prefill *p, size_t b, size_t head)
{
    const struct ha_shape *s = r->in->shape;
    const size_t group = ha_shape_group(s), row = ha_kv_head_bytes(s), at = r->queries * r->blocks;
    r->in->kernels->digest(&(struct ha_digest){ .kind = r->of->digest,
                                                .digests = r->digests,
                                                .blocks = r->blocks,
                                                .unit = r->of->block,
                                                .rows = { .k = (const unsigned char *)p->k[b] + head * p->cap * row,
                                                          .k_stride_bytes = row,
                                                          .keys = r->blocks * r->of->block },
                                                .head_dim = s->head_dim,
                                                .dtype = s->dtype });
    const size_t skipped = ha_least(s->observed, s->ctx[b]) - r->queries;
    for (size_t g = 0; g < group; g++)
        r->in->kernels->digest_score(
            &(struct ha_digest_score){ .q = p->q[b] + (skipped * s->q_heads + head * group + g) * s->head_dim,
                                       .q_rows = r->queries,
                                       .q_stride = s->q_heads * s->head_dim,
                                       .head_dim = s->head_dim,
                                       .digests = r->digests,
                                       .blocks = r->blocks,
                                       .dtype = s->dtype,
                                       .scale = s->scale,
                                       .s = r->score + g * at,
                                       .s_stride = r->blocks,
                                       .streams = ha_reads_in_streams(r->in->kernels, s->dtype) });
    for (size_t t = 0; t < r->queries; t++) {
        for (size_t l = 0; l < r->lists; l++)
            mark(r, l * group / r->lists, (l + 1) * group / r->lists, t, r->of->k, r->chosen + l * at + t * r->blocks);
        mark(r, 0, group, t, r->of->slots, r->filled + t * r->blocks);
    }
}

/* What a query chooses, in all lists, that the cache does not have when an earlier one filled it. */
static size_t absent(const struct replay *r, size_t filled, size_t query)
{
    const unsigned char *has = r->filled + filled * r->blocks;
    size_t missing = 0;
    for (size_t l = 0; l < r->lists; l++) {
        const unsigned char *chosen = r->chosen + (l * r->queries + query) * r->blocks;
        for (size_t i = 0; i < whole(r, query); i++) missing += chosen[i] && !has[i];
    }
    return missing;
}

static enum ha_status make(struct replay *r, const struct ha_fit_input *in, size_t longest, struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    const size_t group = ha_shape_group(s), blocks = ha_most(longest / r->of->block, 1), all = r->queries * blocks;
    r->digests = ha_alloc(in->arena, (ha_digest_bytes(blocks, s->head_dim, s->dtype) + 63) / 64 * 64, HA_TAG_SCRATCH,
                          why);
    r->score = r->digests ? ha_alloc(in->arena, group * all * sizeof *r->score, HA_TAG_SCRATCH, why) : NULL;
    r->list = r->score ? ha_alloc(in->arena, blocks * sizeof *r->list, HA_TAG_SCRATCH, why) : NULL;
    r->chosen = r->list ? ha_alloc(in->arena, r->lists * all, HA_TAG_SCRATCH, why) : NULL;
    r->filled = r->chosen ? ha_alloc(in->arena, all, HA_TAG_SCRATCH, why) : NULL;
    r->missing = r->filled ? ha_alloc(in->arena, r->queries * sizeof *r->missing, HA_TAG_SCRATCH, why) : NULL;
    return r->missing ? HA_OK : HA_ERROR;
}

/* Blocks missing in all sequences and KV heads 1, 2, ... steps later. interval 0: without recall, over all queries that
 * may fill the cache; else with one every `interval` steps, from the first query on. */
static void drift_count(struct replay *r, size_t layer, size_t interval)
{
    const struct ha_shape *s = r->in->shape;
    const size_t steps = r->queries - 1;
    memset(r->missing, 0, steps * sizeof *r->missing);
    for (size_t u = 0; u < s->batch * s->kv_heads; u++) {
        const size_t b = u / s->kv_heads;
        r->blocks = s->ctx[b] / r->of->block;
        r->first = s->ctx[b] - r->queries;
        score(r, &r->in->layer[layer], b, u % s->kv_heads);
        for (size_t j = 0; j < steps; j++) {
            if (interval) r->missing[j] += absent(r, j / interval * interval, j + 1);
            for (size_t from = 0; !interval && from + j < steps; from++) r->missing[j] += absent(r, from, from + j + 1);
        }
    }
}

/* The curves of one layer, [queries - 1], shares of the budget of all its lists: none is more than 1. The interval. */
static size_t learn_layer(struct replay *r, size_t layer, float *drift, float *kept)
{
    const size_t steps = r->queries - 1;
    const double budget = (double)(r->in->shape->batch * r->of->lists * r->of->k);
    size_t interval = 1;
    double sum = 0;
    drift_count(r, layer, 0);
    for (size_t j = 0; j < steps; j++) {
        const double mean = (double)r->missing[j] / (budget * (double)(steps - j));
        drift[j] = (float)mean;
        sum += mean;
        if (sum <= r->of->ratio * (double)(j + 1)) interval = j + 1;
    }
    drift_count(r, layer, interval);
    for (size_t j = 0; j < steps; j++) kept[j] = (float)((double)r->missing[j] / budget);
    return interval;
}

enum ha_status ha_drift_fit(const struct ha_fit_input *in, const struct ha_drift *of, struct ha_fit_writer *out,
                            struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    struct replay r = { .in = in, .of = of, .lists = of->lists / s->kv_heads };
    size_t longest = s->ctx[0], shortest = s->ctx[0];
    for (size_t b = 1; b < s->batch; b++) {
        longest = ha_most(longest, s->ctx[b]);
        shortest = ha_least(shortest, s->ctx[b]);
    }
    r.queries = ha_least(s->observed, shortest);
    if (s->observed < 2)
        return ha_why(why, HA_ERROR, "drift is learnt from one query to the next, of %zu: observed=64, say", r.queries);
    if (r.queries < 2)
        return ha_why(why, HA_ERROR, "drift is learnt from one query to the next, a sequence has ctx=%zu: raise it",
                      shortest);
    if (longest < of->block)
        return ha_why(why, HA_ERROR, "drift is learnt from whole blocks: raise ctx, %zu, above block, %zu", longest,
                      of->block);
    const size_t steps = r.queries - 1;
    float *interval = ha_alloc(in->arena, s->layers * sizeof *interval, HA_TAG_SCRATCH, why);
    float *drift = interval ? ha_alloc(in->arena, s->layers * steps * sizeof *drift, HA_TAG_SCRATCH, why) : NULL;
    float *kept = drift ? ha_alloc(in->arena, s->layers * steps * sizeof *kept, HA_TAG_SCRATCH, why) : NULL;
    if (!kept) return HA_ERROR;
    HA_TRY(make(&r, in, longest, why));
    for (size_t i = 0; i < s->layers; i++) interval[i] = (float)learn_layer(&r, i, drift + i * steps, kept + i * steps);
    const struct ha_tensor tensor[] = {
        { .name = "interval", .type = HA_T_F32, .dims = 1, .dim = { s->layers }, .data = interval },
        { .name = "drift", .type = HA_T_F32, .dims = 2, .dim = { s->layers, steps }, .data = drift },
        { .name = "kept", .type = HA_T_F32, .dims = 2, .dim = { s->layers, steps }, .data = kept },
    };
    for (size_t i = 0; i < sizeof tensor / sizeof *tensor; i++) HA_TRY(ha_fit_put(out, &tensor[i], why));
    return HA_OK;
}
