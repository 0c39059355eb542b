#include "suites/parts/fetch.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/gather.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/stores.h"
#include "harness/base/why.h"
#include "suites/parts/listed.h"

HA_SHARED_WORDS(ha_fetch_word, [HA_FETCH_PIECES] = "pieces", [HA_FETCH_MOVE] = "move", [HA_FETCH_GATHER] = "gather")

enum ha_memory ha_fetch_memory(enum ha_fetch_way way) { return way == HA_FETCH_MOVE ? HA_MEM_MAPPED : HA_MEM_PINNED; }

enum ha_status ha_fetch_create(struct ha_fetch *f, const struct ha_context *ctx, enum ha_fetch_way way, size_t slots,
                               size_t lists_max, size_t rows_max, size_t bytes_max, struct ha_why *why)
{
    *f = (struct ha_fetch){
        .ctx = ctx, .way = way, .slots = slots, .lists_max = lists_max, .rows_max = rows_max, .bytes_max = bytes_max
    };
    if (way == HA_FETCH_PIECES && !ctx->api->copy_pieces)
        return ha_why(why, HA_WAIVED, "the device has no operation copy_pieces; another fetch needs none");
    if (way == HA_FETCH_MOVE && !ctx->api->move)
        return ha_why(why, HA_WAIVED, "the device has no operation move; another fetch needs none");
    if (way == HA_FETCH_STORES) return HA_OK;
    f->slot = ha_alloc(ctx->arena, slots * sizeof *f->slot, HA_TAG_SCRATCH, why);
    if (!f->slot) return HA_ERROR;
    for (size_t i = 0; i < slots; i++) {
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
    if (way == HA_FETCH_GATHER) {
        f->image = ha_alloc(ctx->arena, lists_max * sizeof *f->image, HA_TAG_SCRATCH, why);
        return f->image ? HA_OK : HA_ERROR;
    }
    if (way == HA_FETCH_MOVE) return HA_OK;
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
/* the same of `to` */
static size_t place_to(const struct ha_shape *s, const struct ha_fetch_list *list, size_t row)
{
    return list->vectors ? row * ha_kv_head_bytes(s) : place(s, list, row);
}
static size_t rows(const struct ha_fetch_list *list) { return list->count * list->unit; }
/* the token that row i of a list is, and the row of `to` that it becomes */
static size_t token(const struct ha_fetch_list *list, size_t i)
{
    return list->index[i / list->unit] * list->unit + i % list->unit;
}
static size_t target(const struct ha_fetch_list *list, size_t i)
{
    return list->at + (list->slot ? list->slot[i / list->unit] * list->unit + i % list->unit : i);
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
                if (dense && i > 0 && token(list, i) == token(list, i - 1) + 1
                    && target(list, i) == target(list, i - 1) + 1) {
                    f->bytes[n - 1] += each;
                    continue;
                }
                f->src[n] = from + place(s, list, token(list, i));
                f->dst[n] = to + place_to(s, list, target(list, i));
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
                to[n] = (uint32_t)(place_to(s, &list[l], target(&list[l], i)) / each);
            }
        if (!n) continue;
        ha_order_thread_access("fetch", "index", HA_WRITE, from, 2, f->rows_max * sizeof *from, n * sizeof *from);
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

/* ---- what the CPU moves, by itself or for one copy */

/* K or V of a list: from its store to dst, rows apart_bytes from each other */
static struct ha_gather half(const struct ha_shape *s, const struct ha_fetch_list *list, int v, unsigned char *dst,
                             size_t apart_bytes)
{
    return (struct ha_gather){ .dst = dst,
                               .src = (v ? list->from->v : list->from->k) + place(s, list, 0),
                               .index = list->index,
                               .unit = list->unit,
                               .row_bytes = row_bytes(s, list),
                               .dst_stride_bytes = apart_bytes,
                               .src_stride_bytes = ha_kv_token_bytes(s) };
}

/* To the history: rows [first, end) of it. to: where dst is in memory that the history knows. */
static void tell(const struct ha_gather *g, int v, const char *name, const char *role, const unsigned char *to,
                 size_t first, size_t end)
{
    for (size_t i = first; i < end && ha_order_now(); i++) {
        const size_t within = i % g->unit, from = g->index[i / g->unit] * g->unit + within,
                     row = g->slot ? g->slot[i / g->unit] * g->unit + within : i;
        ha_order_thread_access(name, v ? "V" : "K", HA_READ, g->src + from * g->src_stride_bytes, 1, 0, g->row_bytes);
        ha_order_thread_access(name, role, HA_WRITE, to + row * g->dst_stride_bytes, 1, 0, g->row_bytes);
    }
}

/* ---- gather: images of what is copied, one after the other in the slot: of the rows of a store from the first to the
 * last of its lists; of a list with slots or of vectors, of its rows one after the other */

static bool by_rows(const struct ha_fetch_list *list) { return list->slot || list->vectors; }

struct image {
    size_t begin, end;      /* lists */
    size_t first, rows, at; /* row 0 is row `first` of `to`, and lies there in the slot */
};

/* from a row of an image to the next: all heads; by rows no more than the list is of */
static size_t apart(const struct ha_shape *s, const struct ha_fetch_list *list)
{
    return by_rows(list) ? row_bytes(s, list) : ha_kv_token_bytes(s);
}

/* the one behind m; false: there is none, and all take m->at bytes */
static bool next_image(const struct ha_shape *s, const struct ha_fetch_list *list, size_t count, struct image *m)
{
    size_t first = SIZE_MAX, last = 0, l = m->end;
    *m = (struct image){ .begin = l, .at = m->at + (m->rows ? m->rows * apart(s, &list[m->begin]) : 0) };
    for (; l < count
           && (l == m->begin || (same(&list[l], &list[m->begin]) && !by_rows(&list[l - 1]) && !by_rows(&list[l])));
         l++) {
        const size_t at = by_rows(&list[l]) ? 0 : list[l].at, n = rows(&list[l]);
        first = n ? ha_least(first, at) : first;
        last = n ? ha_most(last, at + n) : last;
    }
    m->end = l;
    if (last) m->first = first;
    if (last) m->rows = last - first;
    return m->begin < count;
}

static void gather(void *arg, size_t task, size_t worker)
{
    const struct ha_fetch *f = arg;
    const struct ha_shape *s = f->ctx->shape;
    const struct ha_fetch_list *list = &f->list[task];
    if (!rows(list)) return; /* it has no place in an image */
    const size_t begin = f->image[task] + (by_rows(list) ? 0 : place(s, list, 0));
    for (int v = 0; v < 2; v++) {
        const struct ha_gather g = half(s, list, v, (v ? f->to->v : f->to->k) + begin, apart(s, list));
        tell(&g, v, "gather", "staging", g.dst, 0, rows(list));
        ha_gather_rows(&g, HA_GATHER_COPY, 0, rows(list));
    }
}

/* n rows of an image, one behind the other, of all heads or of one, to rows `apart` bytes from each other */
static enum ha_status upload(struct ha_fetch *f, struct ha_stream *stream, const struct ha_kv *kv, size_t to,
                             size_t from, size_t width, size_t apart_bytes, size_t n)
{
    for (int v = 0; v < 2; v++) {
        unsigned char *dst = (v ? kv->v : kv->k) + to;
        const unsigned char *src = (v ? f->to->v : f->to->k) + from;
        if (width == apart_bytes || n == 1) HA_TRY(f->ctx->api->copy(stream, dst, src, n * width, HA_H2D));
        else HA_TRY(f->ctx->api->copy_2d(stream, dst, apart_bytes, src, width, width, n, HA_H2D));
    }
    return HA_OK;
}

static enum ha_status run_gather(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                                 size_t count)
{
    const struct ha_shape *s = f->ctx->shape;
    f->list = list;
    for (struct image m = { 0 }; next_image(s, list, count, &m);)
        for (size_t l = m.begin; l < m.end; l++)
            f->image[l] = m.at + (by_rows(&list[l]) ? 0 : list[l].at - m.first) * ha_kv_token_bytes(s);
    if (f->crew) ha_crew_run(f->crew, "gather", count, gather, f);
    else ha_pool_run(f->ctx->pool, "gather", count, gather, f);
    for (struct image m = { 0 }; next_image(s, list, count, &m);) {
        const struct ha_fetch_list *l = &list[m.begin];
        const size_t all = ha_kv_token_bytes(s), each = row_bytes(s, l), apart_bytes = l->vectors ? each : all;
        if (!by_rows(l) && m.rows) HA_TRY(upload(f, stream, l->to, m.first * all, m.at, all, all, m.rows));
        for (size_t i = 0, n; by_rows(l) && i < m.rows; i += n) {
            n = 1;
            if (each == apart_bytes || f->ctx->api->copy_2d)
                while (i + n < m.rows && target(l, i + n) == target(l, i) + n) n++;
            HA_TRY(upload(f, stream, l->to, place_to(s, l, target(l, i)), m.at + i * each, each, apart_bytes, n));
        }
    }
    return HA_OK;
}

/* ---- stores: each K or V vector by one of the crew */

enum { STORE_ROWS = 256 }; /* of a task */

struct storing {
    const struct ha_shape *shape;
    const struct ha_fetch_list *list;
    size_t count;
};

static void store_rows(const struct ha_shape *s, const struct ha_fetch_list *l, size_t first, size_t end)
{
    const size_t at = place_to(s, l, l->at), apart_bytes = l->vectors ? row_bytes(s, l) : ha_kv_token_bytes(s);
    for (int v = 0; v < 2; v++) {
        struct ha_gather g = half(s, l, v, (v ? l->v : l->k) + at, apart_bytes);
        g.slot = l->slot;
        tell(&g, v, "store", v ? "V" : "K", (v ? l->to->v : l->to->k) + at, first, end);
        ha_gather_rows(&g, HA_GATHER_STORE, first, end);
    }
}

/* rows [first, first + STORE_ROWS) of all lists together */
static void store(void *arg, size_t task, size_t worker)
{
    const struct storing *st = (const struct storing *)arg;
    size_t at = task * STORE_ROWS, left = STORE_ROWS, bytes = 0;
    const uint64_t begun = ha_stores_begin();
    for (const struct ha_fetch_list *l = st->list; l < st->list + st->count && left; l++) {
        const size_t all = rows(l), n = at < all ? ha_least(all - at, left) : 0;
        if (n) store_rows(st->shape, l, at, at + n);
        bytes += 2 * n * row_bytes(st->shape, l);
        left -= n;
        at = at < all ? 0 : at - all;
    }
    ha_gather_fence();
    ha_stores_end(begun, bytes);
}

static enum ha_status run_stores(const struct ha_fetch *f, const struct ha_fetch_list *list, size_t count)
{
    const struct ha_fetch_list *last = list;
    size_t all = 0;
    for (size_t l = 0; l < count; l++) {
        all += rows(&list[l]);
        if (rows(&list[l])) last = &list[l];
    }
    struct storing storing = { f->ctx->shape, list, count };
    const size_t tasks = (all + STORE_ROWS - 1) / STORE_ROWS;
    if (f->crew) ha_crew_run(f->crew, "stores", tasks, store, &storing);
    else ha_pool_run(f->ctx->pool, "stores", tasks, store, &storing);
    ha_gather_arrived(last->k + place_to(f->ctx->shape, last, target(last, 0)));
    return HA_OK;
}

/* ---- what is asked for is there, and there is room for it */

static size_t largest(const uint32_t *x, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* On the caller's way to its keys: of each list the furthest row alone is looked at. */
static enum ha_status check(const struct ha_fetch *f, const struct ha_fetch_list *list, size_t count, size_t *all,
                            struct ha_why *why)
{
    struct image m = { 0 };
    *all = 0;
    if (count > f->lists_max) return ha_why(why, HA_ERROR, "fetch: %zu lists, with room for %zu", count, f->lists_max);
    for (size_t l = 0; l < count; *all += rows(&list[l++])) {
        const size_t n = list[l].count, unit = list[l].unit;
        if (!n) continue;
        if (!unit) return ha_why(why, HA_ERROR, "fetch: list %zu has blocks of 0 tokens", l);
        if (n > f->rows_max)
            return ha_list_refuse(f->ctx, why, "fetch: %zu rows, with room for %zu", n * unit, f->rows_max);
        ha_order_thread_access("fetch", "the list", HA_READ, list[l].index, 1, 0, n * sizeof *list[l].index);
        const size_t from = (largest(list[l].index, n) + 1) * unit,
                     to = list[l].at + (list[l].slot ? largest(list[l].slot, n) + 1 : n) * unit;
        if (from > list[l].from->cap || to > list[l].to->cap)
            return ha_list_refuse(f->ctx, why, "fetch: list %zu is of rows up to %zu of %zu, to rows up to %zu of %zu",
                                  l, from, list[l].from->cap, to, list[l].to->cap);
    }
    if (*all > f->rows_max) return ha_list_refuse(f->ctx, why, "fetch: %zu rows, with room for %zu", *all, f->rows_max);
    if (f->way != HA_FETCH_GATHER) return HA_OK;
    while (next_image(f->ctx->shape, list, count, &m)) continue;
    if (m.at <= f->bytes_max) return HA_OK;
    return ha_why(why, HA_ERROR, "fetch=gather: %zu bytes, with room for %zu", m.at, f->bytes_max);
}

enum ha_status ha_fetch_run(struct ha_fetch *f, struct ha_stream *stream, const struct ha_fetch_list *list,
                            size_t count, struct ha_why *why)
{
    static enum ha_status (*const run[])(
        struct ha_fetch *, struct ha_stream *, const struct ha_fetch_list *,
        size_t) = { [HA_FETCH_PIECES] = run_pieces, [HA_FETCH_MOVE] = run_move, [HA_FETCH_GATHER] = run_gather };
    size_t all;
    HA_TRY(check(f, list, count, &all, why));
    if (!all) return HA_OK;
    if (f->way == HA_FETCH_STORES) return run_stores(f, list, count);
    f->to = &f->slot[f->next++ % f->slots];
    /* of pieces nothing is read after the call that hands them over */
    if (f->way != HA_FETCH_PIECES) HA_TRY(f->ctx->api->event_sync(f->to->done));
    HA_TRY(run[f->way](f, stream, list, count));
    return f->ctx->api->event_record(f->to->done, stream);
}

enum ha_status ha_fetch_name_rows(const struct ha_context *ctx, size_t entries, size_t each, uint32_t **row,
                                  struct ha_why *why)
{
    const size_t bytes = entries * sizeof **row;
    *row = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
    uint32_t *name = *row ? ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why) : NULL;
    if (!name) return HA_ERROR;
    for (size_t i = 0; i < entries; i++) name[i] = (uint32_t)(i % each);
    if (entries) HA_TRY(ctx->api->copy(ctx->stream, *row, name, bytes, HA_H2D));
    HA_TRY(ctx->api->stream_sync(ctx->stream));
    ha_device_free(ctx->device_arena, name);
    return HA_OK;
}
