#include "suites/link/bench.h"

#include "harness/base/clock.h"
#include "harness/base/order.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <string.h>

enum { FILL_BLOCK = 1 << 20, POISON = 0xA5 };

/* of a move in pieces of that size */
static size_t move_bytes(const struct ha_link_limits *limits, size_t piece_bytes)
{
    const size_t most = limits->pieces * piece_bytes;
    return most < limits->move_bytes ? most : limits->move_bytes;
}

/* ---- memory ----------------------------------------------------------------------------------- */

static const size_t team_threads[HA_LINK_TEAMS] = { 1, 2, 4, HA_LINK_ALL };

struct ha_pool *ha_link_bench_team(struct ha_link_bench *b, size_t threads, struct ha_why *why)
{
    size_t i = 0;
    while (i + 1 < HA_LINK_TEAMS && team_threads[i] != threads) i++;
    if (!b->team[i])
        ha_pool_create(&b->team[i], HA_TEAM_DEFAULT, team_threads[i] == HA_LINK_ALL ? b->limits.cores : team_threads[i],
                       why);
    return b->team[i];
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

/* A team that is asked for after one of another size starts threads or ends some: not what is timed. */
static void wake(struct ha_link_bench *b, const struct ha_link_method *m)
{
    struct ha_pool *team = m->threads ? ha_link_bench_team(b, m->threads, NULL) : NULL;
    if (team) ha_pool_run(team, "link", ha_pool_threads(team), nothing, NULL);
}

/* Word i of filling `fill`; no two are the same, so that no piece looks like another one or like what lay there before.
 */
static uint64_t word(size_t fill, size_t i)
{
    const uint64_t x = (((uint64_t)fill + 1) << 32 ^ (uint64_t)i) * UINT64_C(0x9E3779B97F4A7C15);
    return x ^ x >> 32;
}

struct fill {
    const struct ha_link_bench *bench;
    size_t kind;
};

static void fill_block(void *arg, size_t task, size_t worker)
{
    const struct fill *f = arg;
    const size_t bytes = f->bench->limits.source_bytes, block = bytes < FILL_BLOCK ? bytes : FILL_BLOCK;
    uint64_t *words = (uint64_t *)(void *)f->bench->source[f->kind];
    for (size_t i = task * (block / 8); i < (task + 1) * (block / 8); i++) words[i] = word(f->kind, i);
}

static enum ha_status open_sources(struct ha_link_bench *b, struct ha_why *why)
{
    const size_t bytes = b->limits.source_bytes;
    struct ha_why less = { "" };
    b->source[HA_LINK_PAGEABLE] = ha_alloc(b->arena, bytes, HA_TAG_SCRATCH, why);
    b->source[HA_LINK_PINNED] = ha_device_alloc(b->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why);
    if (!b->source[HA_LINK_PAGEABLE] || !b->source[HA_LINK_PINNED]) return HA_ERROR;
    b->source[HA_LINK_MAPPED] = ha_device_alloc(b->device_arena, HA_MEM_MAPPED, bytes, HA_TAG_SCRATCH, &less);
    if (!b->source[HA_LINK_MAPPED]) snprintf(b->no_mapped, sizeof b->no_mapped, "no mapped memory: %.200s", less.text);
    for (size_t kind = 0; kind < HA_LINK_POOLS; kind++)
        if (b->source[kind])
            ha_pool_run(ha_link_bench_team(b, HA_LINK_ALL, NULL), "fill", bytes < FILL_BLOCK ? 1 : bytes / FILL_BLOCK,
                        fill_block, &(struct fill){ b, kind });
    return HA_OK;
}

static void open_window(struct ha_link_bench *b)
{
    struct ha_why less = { "" };
    void *window = NULL;
    if (!b->api->map_device || !b->api->unmap_device)
        snprintf(b->no_window, sizeof b->no_window, "the device has no operation map_device");
    else if (b->api->map_device(b->device, b->memory, b->limits.move_bytes, &window, &less) == HA_OK)
        b->window = window;
    else snprintf(b->no_window, sizeof b->no_window, "%.255s", less.text);
}

static enum ha_status open_bench(struct ha_link_bench *b, struct ha_why *why)
{
    const size_t move = b->limits.move_bytes, slots = b->limits.source_bytes / HA_LINK_PIECE_LEAST;
    HA_TRY(ha_arena_create(&b->arena, false, why));
    HA_TRY(ha_device_arena_create(&b->device_arena, b->api, b->device, why));
    if (!ha_link_bench_team(b, HA_LINK_ALL, why)) return HA_ERROR;
    b->cores = ha_pool_threads(ha_link_bench_team(b, HA_LINK_ALL, why));
    HA_TRY(b->api->stream_create(b->device, "link", &b->stream, why));
    HA_TRY(open_sources(b, why));
    b->slot = ha_alloc(b->arena, slots * sizeof *b->slot, HA_TAG_SCRATCH, why);
    b->list.dst = ha_alloc(b->arena, b->limits.pieces * sizeof *b->list.dst, HA_TAG_SCRATCH, why);
    b->list.src = ha_alloc(b->arena, b->limits.pieces * sizeof *b->list.src, HA_TAG_SCRATCH, why);
    b->list.bytes = ha_alloc(b->arena, b->limits.pieces * sizeof *b->list.bytes, HA_TAG_SCRATCH, why);
    if (!b->slot || !b->list.dst || !b->list.src || !b->list.bytes) return HA_ERROR;
    b->staging = ha_device_alloc(b->device_arena, HA_MEM_PINNED, move, HA_TAG_SCRATCH, why);
    b->check = ha_device_alloc(b->device_arena, HA_MEM_PINNED, move, HA_TAG_SCRATCH, why);
    b->memory = ha_device_alloc(b->device_arena, HA_MEM_DEVICE, move, HA_TAG_SCRATCH, why);
    b->device_slot = ha_device_alloc(b->device_arena, HA_MEM_DEVICE, slots * sizeof *b->slot, HA_TAG_SCRATCH, why);
    if (!b->staging || !b->check || !b->memory || !b->device_slot) return HA_ERROR;
    memset(b->staging, 0, move);
    open_window(b);
    return HA_OK;
}

enum ha_status ha_link_bench_open(struct ha_link_bench *b, const struct ha_device_api *api, struct ha_device *device,
                                  const struct ha_link_limits *limits, struct ha_why *why)
{
    *b = (struct ha_link_bench){ .api = api, .device = device, .limits = *limits };
    const enum ha_status status = open_bench(b, why);
    if (status != HA_OK) ha_link_bench_close(b);
    return status;
}

void ha_link_bench_close(struct ha_link_bench *b)
{
    if (b->window) b->api->unmap_device(b->device, b->window);
    if (b->stream) b->api->stream_destroy(b->stream);
    ha_device_arena_destroy(b->device_arena);
    ha_arena_destroy(b->arena);
    for (size_t i = 0; i < HA_LINK_TEAMS; i++) ha_pool_destroy(b->team[i]);
    *b = (struct ha_link_bench){ 0 };
}

/* ---- plans -------------------------------------------------------------------------------------- */

static enum ha_status failed(const struct ha_link_bench *b, const char *what, struct ha_why *why)
{
    const char *failure = b->api->failure(b->device);
    return ha_why(why, HA_ERROR, "%s: %s", what, failure ? failure : "the device refused it and gave no reason");
}

enum ha_status ha_link_bench_lay(struct ha_link_bench *b, size_t piece_bytes, bool scattered, uint64_t seed,
                                 struct ha_why *why)
{
    b->piece_bytes = piece_bytes;
    b->scattered = scattered;
    b->slots = b->limits.source_bytes / piece_bytes;
    if (b->limits.move_bytes < piece_bytes || b->slots == 0)
        return ha_why(why, HA_ERROR, "link: pieces of %zu bytes, moves of at most %zu out of %zu", piece_bytes,
                      b->limits.move_bytes, b->limits.source_bytes);
    for (size_t i = 0; i < b->slots; i++) b->slot[i] = (uint32_t)i;
    if (!scattered) return HA_OK;
    for (size_t i = b->slots; i > 1; i--) {
        const size_t j = (size_t)ha_rng_below(seed, piece_bytes, i, i);
        const uint32_t other = b->slot[j];
        b->slot[j] = b->slot[i - 1];
        b->slot[i - 1] = other;
    }
    if (b->api->copy(b->stream, b->device_slot, b->slot, b->slots * sizeof *b->slot, HA_H2D) != HA_OK
        || b->api->stream_sync(b->stream) != HA_OK)
        return failed(b, "the list of pieces could not be copied", why);
    return HA_OK;
}

struct ha_link_plan ha_link_bench_plan(const struct ha_link_bench *b, enum ha_link_pool pool, size_t turn)
{
    const size_t pieces = move_bytes(&b->limits, b->piece_bytes) / b->piece_bytes;
    const size_t first = turn % (b->slots / pieces) * pieces;
    return (struct ha_link_plan){ .host = b->source[pool],
                                  .slot = b->slot + first,
                                  .device_slot = b->scattered ? b->device_slot + first : NULL,
                                  .pieces = pieces,
                                  .piece_bytes = b->piece_bytes };
}

/* ---- one move ------------------------------------------------------------------------------------- */

static enum ha_status run(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p,
                          struct ha_why *why)
{
    const enum ha_status status = m->move(b, m, p);
    return status == HA_OK && !b->api->failure(b->device) ? HA_OK : failed(b, m->name, why);
}

static enum ha_status across(struct ha_link_bench *b, enum ha_direction dir, size_t bytes, struct ha_why *why)
{
    const enum ha_status status = dir == HA_H2D ? b->api->copy(b->stream, b->memory, b->check, bytes, dir)
                                                : b->api->copy(b->stream, b->check, b->memory, bytes, dir);
    if (status != HA_OK || b->api->stream_sync(b->stream) != HA_OK)
        return failed(b, "the copy for the comparison", why);
    return HA_OK;
}

/* check holds what lies, or should lie, on the device. */
static enum ha_status compare(const struct ha_link_bench *b, const struct ha_link_plan *p, struct ha_why *why)
{
    for (size_t i = 0; i < p->pieces; i++) {
        const unsigned char *host = (const unsigned char *)p->host + (size_t)p->slot[i] * p->piece_bytes;
        const unsigned char *there = (const unsigned char *)b->check + i * p->piece_bytes;
        ha_order_thread_access("compare", "a piece", HA_READ, host, 1, 0, p->piece_bytes);
        ha_order_thread_access("compare", "what is compared", HA_READ, there, 1, 0, p->piece_bytes);
        if (!memcmp(host, there, p->piece_bytes)) continue;
        size_t at = 0;
        while (host[at] == there[at]) at++;
        return ha_why(why, HA_FAIL,
                      "wrong bytes: piece %zu of %zu, byte %zu of %zu: 0x%02x on the host, 0x%02x on the device", i,
                      p->pieces, at, p->piece_bytes, host[at], there[at]);
    }
    return HA_OK;
}

/* The sources are written anew: moves down may have overwritten them. */
static enum ha_status verify_up(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p,
                                size_t bytes, struct ha_why *why)
{
    const size_t fill = HA_LINK_POOLS + b->fills++, words = p->piece_bytes / 8;
    for (size_t i = 0; i < p->pieces; i++) {
        uint64_t *piece = (uint64_t *)(void *)(p->host + (size_t)p->slot[i] * p->piece_bytes);
        for (size_t j = 0; j < words; j++) piece[j] = word(fill, i * words + j);
        ha_order_thread_access("fill", "a piece", HA_WRITE, piece, 1, 0, p->piece_bytes);
    }
    memset(b->check, POISON, bytes);
    HA_TRY(across(b, HA_H2D, bytes, why));
    memset(b->staging, POISON, bytes);
    HA_TRY(run(b, m, p, why));
    memset(b->check, ~POISON & 0xFF, bytes);
    HA_TRY(across(b, HA_D2H, bytes, why));
    return compare(b, p, why);
}

static enum ha_status verify_down(struct ha_link_bench *b, const struct ha_link_method *m, const struct ha_link_plan *p,
                                  size_t bytes, struct ha_why *why)
{
    const size_t fill = HA_LINK_POOLS + b->fills++;
    uint64_t *words = (uint64_t *)(void *)b->check;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = word(fill, i);
    HA_TRY(across(b, HA_H2D, bytes, why));
    for (size_t i = 0; i < p->pieces; i++)
        memset(p->host + (size_t)p->slot[i] * p->piece_bytes, POISON, p->piece_bytes);
    ha_order_thread_access("fill", "what is compared", HA_WRITE, b->check, 1, 0, bytes);
    HA_TRY(run(b, m, p, why));
    return compare(b, p, why);
}

enum ha_status ha_link_bench_verify(struct ha_link_bench *b, const struct ha_link_method *m, size_t turn,
                                    size_t *verified_bytes, struct ha_why *why)
{
    const struct ha_link_plan p = ha_link_bench_plan(b, m->pool, turn);
    const size_t bytes = p.pieces * p.piece_bytes;
    wake(b, m);
    HA_TRY((m->dir == HA_H2D ? verify_up : verify_down)(b, m, &p, bytes, why));
    *verified_bytes = bytes;
    return HA_OK;
}

enum ha_status ha_link_bench_time(struct ha_link_bench *b, const struct ha_link_method *m, size_t turn, double *GBps,
                                  struct ha_why *why)
{
    const struct ha_link_plan p = ha_link_bench_plan(b, m->pool, turn);
    wake(b, m);
    const uint64_t begin = ha_now_ns();
    HA_TRY(run(b, m, &p, why));
    *GBps = (double)(p.pieces * p.piece_bytes) / (double)(ha_now_ns() - begin);
    return HA_OK;
}
