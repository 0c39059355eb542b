#include "suites/link/bench.h"

#include "harness/base/gather.h"
#include "harness/base/order.h"
#include "harness/base/stores.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>

/* bytes that a CPU thread takes at a time; a larger piece is a multiple of them */
enum { CHUNK = 256 << 10 };

/* ---- the device moves ------------------------------------------------------------------------- */

static char *host_piece(const struct ha_link_plan *p, size_t i)
{
    return p->host + (size_t)p->slot[i] * p->piece_bytes;
}

/* one call for each piece */
static enum ha_status copies(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    for (size_t i = 0; i < p->pieces; i++) {
        char *const host = host_piece(p, i), *const there = b->memory + i * p->piece_bytes;
        HA_TRY(m->dir == HA_H2D ? b->api->copy(b->stream, there, host, p->piece_bytes, HA_H2D)
                                : b->api->copy(b->stream, host, there, p->piece_bytes, HA_D2H));
    }
    return b->api->stream_sync(b->stream);
}

/* one call for all; its arrays are written here, as whoever has a list of pieces would */
static enum ha_status pieces(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    for (size_t i = 0; i < p->pieces; i++) {
        char *const host = host_piece(p, i), *const there = b->memory + i * p->piece_bytes;
        b->list.dst[i] = m->dir == HA_H2D ? there : host;
        b->list.src[i] = m->dir == HA_H2D ? host : there;
        b->list.bytes[i] = p->piece_bytes;
    }
    HA_TRY(b->api->copy_pieces(
        b->stream, &(struct ha_device_pieces){ b->list.dst, b->list.src, b->list.bytes, p->pieces }, m->dir));
    return b->api->stream_sync(b->stream);
}

static enum ha_status kernel(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    const bool up = m->dir == HA_H2D;
    char *const host = p->device_slot ? p->host : host_piece(p, 0);
    const struct ha_device_move move = {
        .dst = up ? b->memory : host,
        .src = up ? host : b->memory,
        .dst_index = up ? NULL : p->device_slot,
        .src_index = up ? p->device_slot : NULL,
        .rows = p->pieces,
        .row_bytes = p->piece_bytes,
        .dst_stride_bytes = p->piece_bytes,
        .src_stride_bytes = p->piece_bytes,
    };
    HA_TRY(b->api->move(b->stream, &move));
    return b->api->stream_sync(b->stream);
}

/* ---- the CPU's threads do ------------------------------------------------------------------------ */

/* Rows are pieces, or parts of one where it is more than a thread takes at a time. */
struct gather {
    struct ha_gather of;
    enum ha_gather_by by;
    size_t rows, each; /* each: rows of a task */
};

static void gather_chunk(void *arg, size_t task, size_t worker)
{
    const struct gather *g = arg;
    const size_t first = task * g->each, left = g->rows - first, count = left < g->each ? left : g->each,
                 bytes = count * g->of.row_bytes;
    const uint64_t begun = g->by == HA_GATHER_STORE ? ha_stores_begin() : 0;
    ha_order_thread_access("gather", "its pieces together", HA_WRITE, g->of.dst + first * g->of.row_bytes, 1, 0, bytes);
    ha_gather_rows(&g->of, g->by, first, first + count);
    if (g->by != HA_GATHER_STORE) return;
    ha_gather_fence();
    ha_stores_end(begun, bytes);
}

static enum ha_status by_threads(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p,
                                 char *dst, enum ha_gather_by by)
{
    const size_t bytes = p->piece_bytes < CHUNK ? p->piece_bytes : CHUNK, unit = p->piece_bytes / bytes;
    struct gather g = { .of = { .dst = (unsigned char *)dst,
                                .src = (const unsigned char *)p->host,
                                .index = p->slot,
                                .unit = unit,
                                .row_bytes = bytes,
                                .dst_stride_bytes = bytes,
                                .src_stride_bytes = bytes },
                        .by = by,
                        .rows = p->pieces * unit,
                        .each = CHUNK / bytes };
    struct ha_pool *team = ha_link_bench_team(b, m->threads, NULL);
    if (!team) return HA_ERROR;
    ha_pool_run(team, m->name, (g.rows + g.each - 1) / g.each, gather_chunk, &g);
    return HA_OK;
}

static enum ha_status gather(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    HA_TRY(by_threads(b, m, p, b->staging, HA_GATHER_COPY));
    HA_TRY(b->api->copy(b->stream, b->memory, b->staging, p->pieces * p->piece_bytes, HA_H2D));
    return b->api->stream_sync(b->stream);
}

static enum ha_status stores(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p)
{
    HA_TRY(by_threads(b, m, p, b->window, HA_GATHER_STORE));
    ha_gather_arrived(b->window + p->pieces * p->piece_bytes - 1);
    return HA_OK;
}

/* ---- the table ------------------------------------------------------------------------------------- */

#define GATHER(name, threads, who)                                                                                    \
    {                                                                                                                 \
        name, "CPU gather into pinned memory by " who ", then one copy", HA_H2D, HA_LINK_PAGEABLE, threads, 0, gather \
    }
#define STORES(name, threads, who)                                                                                     \
    {                                                                                                                  \
        name, "CPU stores into device memory by " who, HA_H2D, HA_LINK_PAGEABLE, threads, HA_LINK_NEEDS_WINDOW, stores \
    }

const struct ha_link_method ha_link_methods[] = {
    { "pageable", "a copy for each piece, from pageable memory", HA_H2D, HA_LINK_PAGEABLE, 0, 0, copies },
    { "pinned", "a copy for each piece, from pinned memory", HA_H2D, HA_LINK_PINNED, 0, 0, copies },
    { "pieces", "the copies of all pieces handed over in one call", HA_H2D, HA_LINK_PINNED, 0, HA_LINK_NEEDS_PIECES,
      pieces },
    GATHER("gather_1", 1, "1 thread"),
    GATHER("gather_2", 2, "2 threads"),
    GATHER("gather_4", 4, "4 threads"),
    GATHER("gather_all", HA_LINK_ALL, "all threads"),
    { "kernel", "a kernel of the device reads mapped memory", HA_H2D, HA_LINK_MAPPED, 0, HA_LINK_NEEDS_MOVE, kernel },
    STORES("stores_1", 1, "1 thread"),
    STORES("stores_2", 2, "2 threads"),
    STORES("stores_4", 4, "4 threads"),
    STORES("stores_all", HA_LINK_ALL, "all threads"),
    { "pinned_d2h", "a copy for each piece, to pinned memory", HA_D2H, HA_LINK_PINNED, 0, 0, copies },
    { "pieces_d2h", "the copies of all pieces handed over in one call", HA_D2H, HA_LINK_PINNED, 0, HA_LINK_NEEDS_PIECES,
      pieces },
    { "kernel_d2h", "a kernel of the device writes mapped memory (eviction)", HA_D2H, HA_LINK_MAPPED, 0,
      HA_LINK_NEEDS_MOVE, kernel },
};
const size_t ha_link_methods_count = sizeof ha_link_methods / sizeof *ha_link_methods;

const struct ha_link_method *ha_link_method_find(const char *name)
{
    for (size_t i = 0; i < ha_link_methods_count; i++)
        if (!strcmp(ha_link_methods[i].name, name)) return &ha_link_methods[i];
    return NULL;
}

const char *ha_link_method_lacks(const struct ha_link_method *m, const struct ha_link_bench *b, char text[512])
{
    if (m->needs & HA_LINK_NEEDS_PIECES && !b->api->copy_pieces) return "the device has no operation copy_pieces";
    if (m->needs & HA_LINK_NEEDS_MOVE && !b->api->move) return "the device has no operation move";
    if (m->needs & HA_LINK_NEEDS_WINDOW && !b->window) return b->no_window;
    if (!b->source[m->pool]) return b->no_mapped;
    const bool all = m->threads == HA_LINK_ALL, few = b->cores == 1 || b->cores == 2 || b->cores == 4;
    if (all && few) snprintf(text, 512, "all threads are %zu here, which has a row of its own", b->cores);
    else if (!all && m->threads > b->cores)
        snprintf(text, 512, "%u threads: this process has %zu core%s", m->threads, b->cores, b->cores == 1 ? "" : "s");
    else return NULL;
    return text;
}
