#include "suites/parts/fetch.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <string.h>

const char *ha_fetch_word(size_t i)
{
    static const char *const word[] = {
        [HA_FETCH_PIECES] = "pieces", [HA_FETCH_MOVE] = "move", [HA_FETCH_GATHER] = "gather"
    };
    return i < sizeof word / sizeof *word ? word[i] : NULL;
}

enum ha_memory ha_fetch_memory(enum ha_fetch_way way) { return way == HA_FETCH_MOVE ? HA_MEM_MAPPED : HA_MEM_PINNED; }

enum ha_status ha_fetch_create(struct ha_fetch *f, const struct ha_layer *l, enum ha_fetch_way way, size_t rows_max,
                               size_t bytes_max, struct ha_why *why)
{
    const struct ha_context *ctx = l->ctx;
    *f = (struct ha_fetch){ .ctx = ctx, .way = way, .rows_max = rows_max };
    if (way == HA_FETCH_PIECES && !ctx->api->copy_pieces)
        return ha_why(why, HA_WAIVED, "the device has no operation copy_pieces; fetch=gather needs none");
    if (way == HA_FETCH_MOVE && !ctx->api->move)
        return ha_why(why, HA_WAIVED, "the device has no operation move; fetch=gather needs none");
    for (size_t i = 0; i < HA_FETCH_SLOTS; i++) {
        struct ha_fetch_slot *slot = &f->slot[i];
        HA_TRY(ha_device_event(ctx->device_arena, &slot->done, why));
        if (way == HA_FETCH_MOVE) {
            const size_t bytes = 2 * rows_max * sizeof *slot->row;
            slot->row = ha_device_alloc(ctx->device_arena, HA_MEM_MAPPED, bytes, HA_TAG_SCRATCH, why);
            if (!slot->row) return HA_ERROR;
        }
        if (way == HA_FETCH_GATHER) {
            slot->k = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, 2 * bytes_max, HA_TAG_SCRATCH, why);
            if (!slot->k) return HA_ERROR;
            slot->v = slot->k + bytes_max;
        }
    }
    if (way != HA_FETCH_PIECES) return HA_OK;
    f->dst = ha_alloc(ctx->arena, 2 * rows_max * sizeof *f->dst, HA_TAG_SCRATCH, why);
    f->src = f->dst ? ha_alloc(ctx->arena, 2 * rows_max * sizeof *f->src, HA_TAG_SCRATCH, why) : NULL;
    f->bytes = f->src ? ha_alloc(ctx->arena, 2 * rows_max * sizeof *f->bytes, HA_TAG_SCRATCH, why) : NULL;
    return f->bytes ? HA_OK : HA_ERROR;
}

static bool all_heads(const struct ha_fetch_list *list) { return list->head == HA_FETCH_ALL_HEADS; }
static size_t row_bytes(const struct ha_shape *s, const struct ha_fetch_list *list)
{
    return all_heads(list) ? ha_kv_token_bytes(s) : ha_kv_head_bytes(s);
}
/* where a token's row begins */
static size_t place(const struct ha_shape *s, const struct ha_fetch_list *list, size_t token)
{
    return token * ha_kv_token_bytes(s) + (all_heads(list) ? 0 : list->head * ha_kv_head_bytes(s));
}
static size_t rows(const struct ha_fetch_list *list) { return list->count * list->unit; }
/* the token that row i of a list is */
static size_t token(const struct ha_fetch_list *list, size_t i)
{
    return list->index[i / list->unit] * list->unit + i % list->unit;
}
static bool same(const struct ha_fetch_list *a, const struct ha_fetch_list *b)
{
    return a->from == b->from && a->to == b->to;
}

/* ---- pieces: rows that lie behind each other on both sides are one */

static enum ha_status run_pieces(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                                 size_t count)
{
    const struct ha_shape *s = f->ctx->shape;
    size_t n = 0;
    for (size_t l = 0; l < count; l++, list++) {
        const size_t each = row_bytes(s, list);
        const bool dense = each == ha_kv_token_bytes(s);
        for (int v = 0; v < 2; v++) {
            const unsigned char *from = v ? list->from->v : list->from->k;
            unsigned char *to = v ? list->to->v : list->to->k;
            for (size_t i = 0; i < rows(list); i++) {
                const bool follows = dense && i > 0 && token(list, i) == token(list, i - 1) + 1;
                if (follows) {
                    f->bytes[n - 1] += each;
                    continue;
                }
                f->src[n] = from + place(s, list, token(list, i));
                f->dst[n] = to + place(s, list, list->at + i);
                f->bytes[n++] = each;
            }
        }
    }
    return f->ctx->api->copy_pieces(stream, &(struct ha_device_pieces){ f->dst, f->src, f->bytes, n }, HA_H2D);
}

/* ---- move: one for K and one for V of each store */

static enum ha_status run_move(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                               size_t count)
{
    const struct ha_shape *s = f->ctx->shape;
    uint32_t *from = f->to->row, *to = f->to->row + f->rows_max;
    for (size_t l = 0; l < count;) {
        const struct ha_fetch_list *first = &list[l];
        const size_t each = row_bytes(s, first);
        size_t n = 0;
        for (; l < count && same(&list[l], first) && row_bytes(s, &list[l]) == each; l++)
            for (size_t i = 0; i < rows(&list[l]); i++, n++) {
                from[n] = (uint32_t)(place(s, &list[l], token(&list[l], i)) / each);
                to[n] = (uint32_t)(place(s, &list[l], list[l].at + i) / each);
            }
        struct ha_device_move move = { .dst_index = to,
                                       .src_index = from,
                                       .rows = n,
                                       .row_bytes = each,
                                       .dst_stride_bytes = each,
                                       .src_stride_bytes = each };
        for (int v = 0; v < 2; v++) {
            move.src = v ? first->from->v : first->from->k;
            move.dst = v ? first->to->v : first->to->k;
            HA_TRY(f->ctx->api->move(stream, &move));
        }
        from += n;
        to += n;
    }
    return HA_OK;
}

/* ---- gather: the rows as they will lie on the device, then one copy for K and one for V of each store */

/* of all lists of this one's store */
static size_t rows_reached(const struct ha_fetch_list *list, size_t count)
{
    size_t end = 0;
    for (size_t l = 0; l < count && same(&list[l], list); l++) end = ha_most(end, list[l].at + rows(&list[l]));
    return end;
}

/* where a list's store begins in the slot */
static size_t begins(const struct ha_shape *s, const struct ha_fetch_list *list, size_t l)
{
    size_t at = 0;
    for (size_t i = 0; i < l;) {
        size_t n = i;
        while (n < l && same(&list[n], &list[i])) n++;
        if (n == l && same(&list[l], &list[i])) return at;
        at += rows_reached(&list[i], n - i) * ha_kv_token_bytes(s);
        i = n;
    }
    return at;
}

static void gather(void *arg, size_t task, size_t worker)
{
    const struct ha_fetch *f = arg;
    const struct ha_shape *s = f->ctx->shape;
    const struct ha_fetch_list *list = &f->list[task];
    const size_t each = row_bytes(s, list), at = begins(s, f->list, task);
    for (size_t i = 0; i < rows(list); i++) {
        const size_t from = place(s, list, token(list, i)), to = at + place(s, list, list->at + i);
        ha_order_thread_access("gather", "K", HA_READ, list->from->k + from, 1, 0, each);
        ha_order_thread_access("gather", "V", HA_READ, list->from->v + from, 1, 0, each);
        ha_order_thread_access("gather", "staging", HA_WRITE, f->to->k + to, 1, 0, each);
        ha_order_thread_access("gather", "staging", HA_WRITE, f->to->v + to, 1, 0, each);
        memcpy(f->to->k + to, list->from->k + from, each);
        memcpy(f->to->v + to, list->from->v + from, each);
    }
}

static enum ha_status run_gather(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                                 size_t count)
{
    const struct ha_shape *s = f->ctx->shape;
    f->list = list;
    ha_pool_run(f->ctx->pool, "gather", count, gather, f);
    for (size_t l = 0, at = 0; l < count;) {
        const size_t bytes = rows_reached(&list[l], count - l) * ha_kv_token_bytes(s);
        HA_TRY(f->ctx->api->copy(stream, list[l].to->k, f->to->k + at, bytes, HA_H2D));
        HA_TRY(f->ctx->api->copy(stream, list[l].to->v, f->to->v + at, bytes, HA_H2D));
        at += bytes;
        for (const struct ha_fetch_list *first = &list[l]; l < count && same(&list[l], first);) l++;
    }
    return HA_OK;
}

enum ha_status ha_fetch_run(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                            size_t count)
{
    static enum ha_status (*const run[])(
        struct ha_fetch *, struct ha_stream *, const struct ha_fetch_list *,
        size_t) = { [HA_FETCH_PIECES] = run_pieces, [HA_FETCH_MOVE] = run_move, [HA_FETCH_GATHER] = run_gather };
    f->to = &f->slot[f->next++ % HA_FETCH_SLOTS];
    HA_TRY(f->ctx->api->event_sync(f->to->done));
    HA_TRY(run[f->way](f, stream, list, count));
    return f->ctx->api->event_record(f->to->done, stream);
}
