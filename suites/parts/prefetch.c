#include "suites/parts/prefetch.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"
#include "suites/parts/places.h"

static size_t lists(const struct ha_prefetch *p, const struct ha_shape *s) { return s->kv_heads * p->lists; }

struct ha_prefetch_buffer *ha_prefetch_of(struct ha_prefetch *p, const struct ha_layer *l)
{
    return &p->buffer[l->layer % HA_PREFETCH_BUFFERS];
}

static size_t rows(const struct ha_layer *l, size_t b, size_t piece)
{
    const struct ha_prefetch *p = l->shared;
    return p->lists * p->list_max + l->ctx->shape->q_len;
}

static enum ha_status make_buffer(const struct ha_prefetch *p, struct ha_layer *first, struct ha_prefetch_buffer *to,
                                  struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t all = s->batch * lists(p, s);
    to->kv = ha_alloc(ctx->arena, s->batch * sizeof *to->kv, HA_TAG_META, why);
    to->index = to->kv ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, all * p->list_max * sizeof *to->index,
                                         HA_TAG_META, why)
                       : NULL;
    to->count = to->index ? ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, all * sizeof *to->count, HA_TAG_META, why)
                          : NULL;
    if (!to->count) return HA_ERROR;
    for (size_t b = 0; b < s->batch; b++) HA_TRY(ha_places_open(first, b, 1, rows, &to->kv[b], why));
    to->rows = first->rows;
    return ha_device_event(ctx->device_arena, &to->loaded, why);
}

enum ha_status ha_prefetch_create(struct ha_prefetch *p, struct ha_layer *first, enum ha_fetch_way way,
                                  size_t lists_of_head, size_t list_max, bool varies, struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    *p = (struct ha_prefetch){ .lists = lists_of_head, .list_max = list_max, .varies = varies };
    const size_t all = s->batch * lists(p, s);
    HA_TRY(ha_fetch_create(&p->fetch, ctx, way, HA_PREFETCH_BUFFERS, all, all * list_max,
                           s->batch * p->lists * list_max * ha_kv_token_bytes(s), why));
    p->list = ha_alloc(ctx->arena, all * sizeof *p->list, HA_TAG_SCRATCH, why);
    if (!p->list) return HA_ERROR;
    HA_TRY(ha_frame_stream(first, "fetch", &p->link, why));
    for (size_t i = 0; i < HA_PREFETCH_BUFFERS; i++) HA_TRY(make_buffer(p, first, &p->buffer[i], why));
    first->rows = p->buffer[0].rows;
    return ha_fetch_name_rows(ctx, (p->lists > 1 ? s->kv_heads : 1) * p->lists * list_max, p->lists * list_max, &p->row,
                              why);
}

enum ha_status ha_prefetch_run(struct ha_prefetch *p, const struct ha_layer *l, const struct ha_kv *store,
                               size_t stride, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    const struct ha_shape *s = ctx->shape;
    struct ha_prefetch_buffer *to = ha_prefetch_of(p, l);
    const size_t all = s->batch * lists(p, s);
    ha_order_thread_access("fetch", "count", HA_READ, to->count, 1, 0, all * sizeof *to->count);
    ha_order_thread_access("fetch", "index", HA_READ, to->index, 1, 0, all * p->list_max * sizeof *to->index);
    for (size_t i = 0; i < all; i++) {
        const size_t b = i / lists(p, s), head = i % lists(p, s) / p->lists, list = i % p->lists;
        HA_TRY(ha_list_check(ctx, "keys that are sent for", to->index + i * p->list_max, to->count[i], p->list_max,
                             l->tokens[b], why));
        p->list[i] = (struct ha_fetch_list){ .from = (const void *)((const char *)store + b * stride),
                                             .to = &to->kv[b],
                                             .head = head,
                                             .index = to->index + i * p->list_max,
                                             .count = to->count[i],
                                             .unit = 1,
                                             .at = list * p->list_max };
    }
    HA_TRY(ha_fetch_run(&p->fetch, p->link, p->list, all, why));
    return ctx->api->event_record(to->loaded, p->link);
}

enum ha_status ha_prefetch_wait(struct ha_prefetch *p, struct ha_layer *l)
{
    l->rows = ha_prefetch_of(p, l)->rows;
    return l->ctx->api->stream_wait(l->ctx->stream, ha_prefetch_of(p, l)->loaded);
}

const unsigned char *ha_prefetch_place(const struct ha_layer *l, size_t b, size_t position)
{
    struct ha_prefetch *p = l->shared;
    const struct ha_shape *s = l->ctx->shape;
    const size_t row = p->lists * p->list_max + (position - s->ctx[b]) % s->q_len;
    return ha_prefetch_of(p, l)->kv[b].k + row * ha_kv_token_bytes(s);
}

enum ha_status ha_prefetch_append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    struct ha_prefetch *p = l->shared;
    if (l->placed) return HA_OK;
    return ha_kv_copy(l->ctx, l->ctx->stream, &ha_prefetch_of(p, l)->kv[b], p->lists * p->list_max, fresh, 0,
                      fresh->cap);
}

void ha_prefetch_device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    struct ha_prefetch *p = l->shared;
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_prefetch_buffer *from = ha_prefetch_of(p, l);
    const uint32_t *count = from->count + b * lists(p, s);
    d->runs[0] = ha_kv_rows(s, &from->kv[b], 0, 0, p->varies ? p->list_max : *count);
    d->runs[0].index = p->row;
    d->runs[1] = ha_kv_rows(s, &from->kv[b], 0, p->lists * p->list_max, s->q_len);
    d->runs_count = 2;
    d->list_stride = p->lists > 1 ? p->list_max : 0;
    d->list_keys = p->varies ? count : NULL;
}

enum ha_status ha_prefetch_use(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used,
                               struct ha_why *why)
{
    struct ha_prefetch *p = l->shared;
    const struct ha_shape *s = l->ctx->shape;
    const struct ha_prefetch_buffer *from = ha_prefetch_of(p, l);
    const size_t list = b * lists(p, s) + q_head * lists(p, s) / s->q_heads;
    HA_TRY(ha_positions_add(l->ctx, &used->device, from->index + list * p->list_max, from->count[list], why));
    return ha_positions_add_range(l->ctx, &used->device, l->tokens[b], l->tokens[b] + s->q_len, why);
}
