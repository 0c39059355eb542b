#include "suites/block_sparse/compare.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

static size_t numbers(const struct ha_shape *s) { return s->batch * s->q_heads * s->q_len * s->head_dim; }

static enum ha_status make_layer(const struct ha_compare *c, size_t layer, struct ha_why *why)
{
    struct ha_arena *arena = c->ctx->arena;
    const size_t lists = c->ctx->shape->batch * c->lists;
    struct ha_compare_layer *l = &c->layer[layer];
    *l = (struct ha_compare_layer){
        .predicted = ha_alloc(arena, numbers(c->ctx->shape) * sizeof *l->predicted, HA_TAG_SCRATCH, why),
        .before = ha_alloc(arena, lists * c->list_max * sizeof *l->before, HA_TAG_SCRATCH, why),
        .count = ha_alloc(arena, lists * sizeof *l->count, HA_TAG_SCRATCH, why),
    };
    return l->predicted && l->before && l->count ? HA_OK : HA_ERROR;
}

enum ha_status ha_compare_create(struct ha_compare *c, const struct ha_context *ctx, size_t lists, size_t list_max,
                                 struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *c = (struct ha_compare){ .ctx = ctx, .lists = lists, .list_max = list_max };
    c->q = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, numbers(s) * sizeof *c->q, HA_TAG_SCRATCH, why);
    c->layer = c->q ? ha_alloc(ctx->arena, s->layers * sizeof *c->layer, HA_TAG_SCRATCH, why) : NULL;
    if (!c->layer) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) {
        HA_TRY(make_layer(c, i, why));
        ha_compare_reset(c, i);
    }
    return HA_OK;
}

void ha_compare_reset(struct ha_compare *c, size_t layer)
{
    if (!c->layer) return;
    struct ha_compare_layer *l = &c->layer[layer];
    memset(l->count, 0, c->ctx->shape->batch * c->lists * sizeof *l->count);
    l->cosine = l->cosines = l->changed = l->changes = 0;
}

enum ha_status ha_compare_down(const struct ha_compare *c, const struct ha_step *step)
{
    const struct ha_context *ctx = c->ctx;
    HA_TRY(ctx->api->copy(ctx->stream, c->q, step->q, numbers(ctx->shape) * sizeof *c->q, HA_D2H));
    return ctx->api->stream_sync(ctx->stream);
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static float *predicted_of(const struct ha_compare *c, size_t layer, size_t b, size_t q_head)
{
    const struct ha_shape *s = c->ctx->shape;
    return c->layer[layer].predicted + (b * s->q_heads + q_head) * s->q_len * s->head_dim;
}
const float *ha_compare_predicted(const struct ha_compare *c, size_t layer, size_t b, size_t q_head)
{
    return predicted_of(c, layer, b, q_head);
}

void ha_compare_query(const struct ha_compare *c, size_t layer, size_t b, size_t q_head, const float *predicted)
{
    const struct ha_shape *s = c->ctx->shape;
    struct ha_compare_layer *l = &c->layer[layer];
    float *to = predicted_of(c, layer, b, q_head);
    for (size_t t = 0; t < s->q_len; t++, to += s->head_dim) {
        const size_t at = ((b * s->q_len + t) * s->q_heads + q_head) * s->head_dim;
        memcpy(to, predicted + at, s->head_dim * sizeof *to);
        l->cosine += cosine(to, c->q + at, s->head_dim);
        l->cosines++;
    }
}

void ha_compare_choice(const struct ha_compare *c, size_t layer, size_t b, size_t q_head,
                       const struct ha_device_choice *choice)
{
    const size_t heads = c->ctx->shape->q_heads / c->lists, list = b * c->lists + q_head / heads,
                 count = ha_least(c->list_max, choice->by[b].blocks);
    const uint32_t *block = choice->known + list * c->list_max;
    struct ha_compare_layer *l = &c->layer[layer];
    uint32_t *before = l->before + list * c->list_max;
    const size_t then = l->count[list];
    if (q_head % heads) return; /* the list's first head has said it */
    for (size_t i = 0, j = 0; then && i < count; i++) {
        while (j < then && before[j] < block[i]) j++;
        l->changed += j == then || before[j] != block[i];
        l->changes++;
    }
    memcpy(before, block, count * sizeof *before);
    l->count[list] = count;
}

void ha_compare_count(const struct ha_compare *c, size_t layer, ha_count *say, void *arg)
{
    if (!c->layer) return;
    const struct ha_compare_layer *l = &c->layer[layer];
    if (l->cosines > 0) say(arg, "cosine", layer, l->cosine / l->cosines);
    if (l->changes > 0) say(arg, "changed", layer, l->changed / l->changes);
}
