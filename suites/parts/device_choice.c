#include "suites/parts/device_choice.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

size_t ha_device_choice_blocks(const struct ha_shape *shape, size_t unit) { return ha_kv_longest(shape) / unit; }

enum ha_status ha_device_choice_create(struct ha_device_choice *c, const struct ha_context *ctx, enum ha_group group,
                                       enum ha_digest_kind kind, size_t unit, size_t list_max, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    *c = (struct ha_device_choice){ .ctx = ctx,
                                    .kind = kind,
                                    .unit = unit,
                                    .lists = group == HA_GROUP_HEAD ? s->q_heads : s->kv_heads,
                                    .list_max = list_max,
                                    .blocks_max = ha_device_choice_blocks(s, unit) };
    const size_t scores = s->batch * s->q_heads * s->q_len * c->blocks_max * sizeof *c->score,
                 entries = s->batch * c->lists * c->list_max * sizeof *c->index;
    c->score = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, scores, HA_TAG_SCRATCH, why);
    c->index = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, entries, HA_TAG_SCRATCH, why);
    c->known = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, entries, HA_TAG_SCRATCH, why);
    c->digest = ha_alloc(ctx->arena, s->batch * sizeof *c->digest, HA_TAG_SCRATCH, why);
    c->by = ha_alloc(ctx->arena, s->batch * sizeof *c->by, HA_TAG_SCRATCH, why);
    c->most = ha_alloc(ctx->arena, s->batch * sizeof *c->most, HA_TAG_SCRATCH, why);
    if (!c->score || !c->index || !c->known || !c->digest || !c->by || !c->most) return HA_ERROR;
    return ha_device_event(ctx->device_arena, &c->down, why);
}

enum ha_status ha_device_choice_digest(const struct ha_device_choice *c, bool *any)
{
    const struct ha_shape *s = c->ctx->shape;
    *any = false;
    for (size_t b = 0; b < s->batch; b++) *any |= c->digest[b].blocks > 0;
    if (!*any) return HA_OK;
    return c->ctx->api->digest(c->ctx->stream, &(struct ha_device_digest){ .batch = s->batch,
                                                                           .kv_heads = s->kv_heads,
                                                                           .head_dim = s->head_dim,
                                                                           .unit = c->unit,
                                                                           .kind = c->kind,
                                                                           .dtype = s->dtype,
                                                                           .seqs = c->digest });
}

void ha_device_choice_ask(const struct ha_device_choice *c, size_t b, const float *q, const struct ha_digests *digests,
                          size_t count)
{
    const struct ha_shape *s = c->ctx->shape;
    const size_t rows = s->q_heads * s->q_len;
    float *score = c->score + b * rows * c->blocks_max;
    c->by[b] = (struct ha_device_score_seq){ .q = q + b * rows * s->head_dim,
                                             .digests = digests->bytes,
                                             .head_bytes = digests->head_bytes,
                                             .blocks = digests->blocks,
                                             .s = score,
                                             .s_stride = c->blocks_max };
    c->most[b] = (struct ha_device_topk_seq){ .x = score,
                                              .n = digests->blocks,
                                              .k = ha_least(count, digests->blocks),
                                              .stride = c->blocks_max,
                                              .index = c->index + b * c->lists * c->list_max,
                                              .index_stride = c->list_max };
}

/* Of each of so many lists of a sequence what c->most says. */
static enum ha_status choose(const struct ha_device_choice *c, size_t lists)
{
    const struct ha_shape *s = c->ctx->shape;
    return c->ctx->api->topk(c->ctx->stream, &(struct ha_device_topk){ .batch = s->batch,
                                                                       .lists = lists,
                                                                       .rows = s->q_heads / lists * s->q_len,
                                                                       .seqs = c->most });
}

enum ha_status ha_device_choice_run(const struct ha_device_choice *c)
{
    const struct ha_context *ctx = c->ctx;
    const struct ha_shape *s = ctx->shape;
    HA_TRY(ctx->api->digest_score(ctx->stream, &(struct ha_device_digest_score){ .batch = s->batch,
                                                                                 .q_len = s->q_len,
                                                                                 .q_heads = s->q_heads,
                                                                                 .kv_heads = s->kv_heads,
                                                                                 .head_dim = s->head_dim,
                                                                                 .dtype = s->dtype,
                                                                                 .scale = s->scale,
                                                                                 .seqs = c->by }));
    return choose(c, c->lists);
}

enum ha_status ha_device_choice_again(const struct ha_device_choice *c, size_t lists, size_t count, uint32_t *index)
{
    for (size_t b = 0; b < c->ctx->shape->batch; b++) {
        c->most[b].k = ha_least(count, c->most[b].n);
        c->most[b].index = index + b * lists * count;
        c->most[b].index_stride = count;
    }
    return choose(c, lists);
}

enum ha_status ha_device_choice_down(const struct ha_device_choice *c)
{
    const struct ha_context *ctx = c->ctx;
    const size_t bytes = ctx->shape->batch * c->lists * c->list_max * sizeof *c->known;
    if (!bytes) return HA_OK;
    HA_TRY(ctx->api->copy(ctx->stream, c->known, c->index, bytes, HA_D2H));
    HA_TRY(ctx->api->event_record(c->down, ctx->stream));
    return ctx->api->event_sync(c->down);
}

enum ha_status ha_device_choice_use(const struct ha_device_choice *c, size_t b, size_t q_head, size_t count,
                                    struct ha_positions *used, struct ha_why *why)
{
    const size_t list = b * c->lists + q_head * c->lists / c->ctx->shape->q_heads;
    const uint32_t *block = c->known + list * c->list_max;
    HA_TRY(ha_list_check(c->ctx, "blocks that the device chose", block, count, c->list_max, c->blocks_max, why));
    return ha_positions_add_blocks(c->ctx, used, 0, c->unit, block, count, why);
}
