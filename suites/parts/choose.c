#include "suites/parts/choose.h"

#include "harness/base/arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"

#include <math.h>
#include <string.h>

/* keys that are scored for one query row after the other: they stay in a core's cache */
enum { CHUNK_BYTES = 1 << 18 };

HA_SHARED_WORDS(ha_group_word, [HA_GROUP_HEAD] = "head", [HA_GROUP_MAX] = "max", [HA_GROUP_UNION] = "union")

const char *ha_group_of_device_word(size_t i) { return i < HA_GROUP_UNION ? ha_group_word(i) : NULL; }

/* query rows of a KV head: of its query heads one after the other, each with its tokens */
static size_t rows_of(const struct ha_choose *c) { return ha_shape_group(c->ctx->shape) * c->ctx->shape->q_len; }

/* By the quotient: 0.07 of 100 is 7, though 0.07 * 100 > 7 in binary64. */
size_t ha_share_of(double share, size_t n)
{
    size_t k = ha_least((size_t)(share * (double)n) + 1, n);
    while (k > 1 && (double)(k - 1) / (double)n >= share) k--;
    return k;
}

enum ha_status ha_choose_create(struct ha_choose *c, const struct ha_context *ctx, enum ha_group group, size_t k,
                                size_t candidates, struct ha_why *why)
{
    const size_t threads = ha_pool_threads(ctx->pool), heads = ha_shape_group(ctx->shape);
    *c = (struct ha_choose){ .ctx = ctx, .group = group, .k = ha_least(k, candidates), .candidates = candidates };
    c->lists = group == HA_GROUP_HEAD ? heads : 1;
    c->list_max = group == HA_GROUP_UNION ? ha_least(heads * c->k, candidates) : c->k;
    c->score = ha_alloc(ctx->arena, threads * rows_of(c) * candidates * sizeof *c->score, HA_TAG_SCRATCH, why);
    c->chosen = c->score ? ha_alloc(ctx->arena, threads * c->k * sizeof *c->chosen, HA_TAG_SCRATCH, why) : NULL;
    c->mark = c->chosen ? ha_alloc(ctx->arena, threads * candidates, HA_TAG_SCRATCH, why) : NULL;
    return c->mark ? HA_OK : HA_ERROR;
}

static float *scores(const struct ha_choose *c, size_t worker)
{
    return c->score + worker * rows_of(c) * c->candidates;
}

/* The first of several rows becomes the largest of each candidate; a NaN only where all are. */
static void largest(float *score, size_t rows, size_t stride, size_t n)
{
    for (size_t r = 1; r < rows; r++)
        for (size_t i = 0; i < n; i++) score[i] = fmaxf(score[i], score[r * stride + i]);
}

void ha_choose_best(const struct ha_context *ctx, float *score, size_t rows, size_t stride, size_t n, size_t k,
                    uint32_t *index)
{
    largest(score, rows, stride, n);
    ctx->kernels->topk(&(struct ha_topk){ .x = score, .n = n, .k = k, .index = index });
}

static void choose(const struct ha_choose *c, size_t worker, size_t n, uint32_t *index, uint32_t *count)
{
    const size_t heads = ha_shape_group(c->ctx->shape), q_len = c->ctx->shape->q_len,
                 k = c->share > 0 ? ha_share_of(c->share, n) : ha_least(c->k, n),
                 deciders = c->group == HA_GROUP_MAX ? 1 : heads, rows = heads / deciders * q_len;
    uint32_t *own = c->chosen + worker * c->k;
    unsigned char *mark = c->mark + worker * c->candidates;
    if (c->group == HA_GROUP_UNION) memset(mark, 0, n);
    for (size_t l = 0; l < deciders; l++) {
        float *score = scores(c, worker) + l * rows * c->candidates;
        uint32_t *to = c->group == HA_GROUP_UNION ? own : index + l * c->list_max;
        ha_choose_best(c->ctx, score, rows, c->candidates, n, k, to);
        if (c->group != HA_GROUP_UNION) count[l] = (uint32_t)k;
        else
            for (size_t i = 0; i < k; i++) mark[own[i]] = 1;
    }
    if (c->group != HA_GROUP_UNION) return;
    *count = 0;
    for (size_t i = 0; i < n; i++)
        if (mark[i]) index[(*count)++] = (uint32_t)i;
}

/* a choice that is under way */
struct work {
    const struct ha_choose *c;
    const float *q;
    const unsigned char *from; /* a struct ha_kv for each sequence, or where tokens is NULL a struct ha_digests */
    size_t stride;
    const size_t *tokens;
    uint32_t *index, *count;
};

static void score_keys(const struct ha_choose *c, float *score, const float *q, size_t head, const struct ha_kv *store,
                       size_t tokens)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t heads = ha_shape_group(s), at_once = ha_most(CHUNK_BYTES / ha_kv_head_bytes(s), 1);
    for (size_t first = 0; first < tokens; first += at_once) {
        const struct ha_rows some = ha_kv_rows(s, store, head, first, ha_least(at_once, tokens - first));
        for (size_t g = 0; g < heads; g++)
            for (size_t t = 0; t < s->q_len; t++)
                c->ctx->kernels->score(&(struct ha_score){ .q = q + (t * s->q_heads + head * heads + g) * s->head_dim,
                                                           .head_dim = s->head_dim,
                                                           .rows = some,
                                                           .dtype = s->dtype,
                                                           .scale = s->scale,
                                                           .s = score + (g * s->q_len + t) * c->candidates + first });
    }
}

static void score_blocks(const struct ha_choose *c, float *score, const float *q, size_t head,
                         const struct ha_digests *digests)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t heads = ha_shape_group(s);
    for (size_t g = 0; g < heads; g++)
        c->ctx->kernels->digest_score(
            &(struct ha_digest_score){ .q = q + (head * heads + g) * s->head_dim,
                                       .q_rows = s->q_len,
                                       .q_stride = s->q_heads * s->head_dim,
                                       .head_dim = s->head_dim,
                                       .digests = digests->bytes + head * digests->head_bytes,
                                       .blocks = digests->blocks,
                                       .dtype = s->dtype,
                                       .scale = s->scale,
                                       .s = score + g * s->q_len * c->candidates,
                                       .s_stride = c->candidates,
                                       .streams = ha_reads_in_streams(c->ctx->kernels, s->dtype) });
}

/* One KV head of a sequence. */
static void choose_task(void *arg, size_t task, size_t worker)
{
    const struct work *w = arg;
    const struct ha_choose *c = w->c;
    const struct ha_shape *s = c->ctx->shape;
    const size_t b = task / s->kv_heads, head = task % s->kv_heads;
    const float *q = w->q + b * s->q_len * s->q_heads * s->head_dim;
    const void *from = w->from + b * w->stride;
    uint32_t *index = w->index + task * c->lists * c->list_max, *count = w->count + task * c->lists;
    ha_order_thread_access("choose", "count", HA_WRITE, count, 1, 0, c->lists * sizeof *count);
    ha_order_thread_access("choose", "index", HA_WRITE, index, 1, 0, c->lists * c->list_max * sizeof *index);
    if (w->tokens) {
        score_keys(c, scores(c, worker), q, head, from, w->tokens[b]);
        choose(c, worker, w->tokens[b], index, count);
    } else {
        const struct ha_digests *digests = from;
        score_blocks(c, scores(c, worker), q, head, digests);
        choose(c, worker, digests->blocks, index, count);
    }
}

static void run(struct work *w)
{
    const struct ha_context *ctx = w->c->ctx;
    ha_pool_run(ctx->pool, "choose", ctx->shape->batch * ctx->shape->kv_heads, choose_task, w);
}

void ha_choose_keys(const struct ha_choose *c, const float *q, const struct ha_kv *store, size_t stride,
                    const size_t *tokens, uint32_t *index, uint32_t *count)
{
    run(&(struct work){ c, q, (const unsigned char *)store, stride, tokens, index, count });
}

void ha_choose_blocks(const struct ha_choose *c, const float *q, const struct ha_digests *digests, size_t stride,
                      uint32_t *index, uint32_t *count)
{
    run(&(struct work){ c, q, (const unsigned char *)digests, stride, NULL, index, count });
}
