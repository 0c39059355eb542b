#include "harness/measure/paired.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/text.h"
#include "harness/base/sanitizer.h"
#include "harness/base/why.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A block is a huge page. Each worker has PARTS x blocks of them; a reading takes one part of every worker's, the next
 * one the other, so that what caches hold is never what a reading begins with. */
enum { BLOCK_BYTES = 2 << 20, PARTS = 2, BLOCKS_LEAST = 4, LINE = 64 };

/* Another one takes its place where a program is linked for rehearsals. */
__attribute__((weak)) size_t ha_measure_share(size_t bytes) { return bytes; }

static size_t reading_bytes(void) { return ha_measure_share((size_t)128 << 20); }

struct turn {
    _Alignas(LINE) atomic_size_t next; /* block to be read of a worker's part */
};

struct ha_paired {
    struct ha_pool *pool;
    uint64_t (*read)(const void *p, size_t bytes);
    struct ha_arena *arena;
    unsigned char *bytes; /* [workers][PARTS][blocks][BLOCK_BYTES] */
    size_t workers, blocks, part;
    struct turn *turn; /* [workers] */
};

static unsigned char *block(const struct ha_paired *p, size_t worker, size_t part, size_t i)
{
    return p->bytes + ((worker * PARTS + part) * p->blocks + i) * BLOCK_BYTES;
}

static void fill(void *arg, size_t task, size_t worker)
{
    struct ha_paired *p = arg;
    /* untouched pages are all one zero page, which sits in cache */
    memset(block(p, worker, 0, 0), 1, PARTS * p->blocks * BLOCK_BYTES);
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

/* a worker's own blocks, then what others have left */
static void read_blocks(void *arg, size_t task, size_t worker)
{
    struct ha_paired *p = arg;
    for (size_t v = 0; v < p->workers; v++) {
        size_t whose = (worker + v) % p->workers, i;
        while ((i = atomic_fetch_add_explicit(&p->turn[whose].next, 1, memory_order_relaxed)) < p->blocks)
            p->read(block(p, whose, p->part, i), BLOCK_BYTES);
    }
}

double ha_paired_read_all(struct ha_paired *p)
{
    for (size_t w = 0; w < p->workers; w++) atomic_store_explicit(&p->turn[w].next, 0, memory_order_relaxed);
    ha_pool_each(p->pool, "ceiling", nothing, NULL); /* awake */
    const uint64_t begin_ns = ha_now_ns();
    ha_pool_each(p->pool, "ceiling", read_blocks, p);
    const uint64_t ns = ha_now_ns() - begin_ns;
    p->part = (p->part + 1) % PARTS;
    return (double)(p->workers * p->blocks * BLOCK_BYTES) / (double)ns;
}

/* The first workers' blocks are the nearest, where memory is in several places. */
double ha_paired_read_alone(struct ha_paired *p)
{
    size_t bytes = 0;
    const uint64_t begin_ns = ha_now_ns();
    const size_t enough = reading_bytes();
    for (size_t w = 0; w < p->workers && bytes < enough; w++)
        for (size_t i = 0; i < p->blocks && bytes < enough; i++, bytes += BLOCK_BYTES)
            p->read(block(p, w, p->part, i), BLOCK_BYTES);
    const uint64_t ns = ha_now_ns() - begin_ns;
    p->part = (p->part + 1) % PARTS;
    return (double)bytes / (double)ns;
}

void ha_paired_read(struct ha_paired *p, struct ha_paired_sample *sample)
{
    sample->GBps = ha_paired_read_all(p);
    sample->GBps_1 = p->workers > 1 ? ha_paired_read_alone(p) : sample->GBps;
    sample->scale = sample->GBps / ((double)p->workers * sample->GBps_1);
}

/* What sysconf says is ten times as much on some virtual machines. */
static size_t last_cache_bytes(void)
{
    char KiB[64];
    ha_text_line("/sys/devices/system/cpu/cpu0/cache/index3/size", "", KiB, sizeof KiB);
    return (size_t)strtoull(KiB, NULL, 10) << 10;
}

static size_t blocks_for(size_t workers)
{
    const size_t far = HA_SANITIZED ? 0 : ha_measure_share(2 * last_cache_bytes()), least = reading_bytes(),
                 all = far > least ? far : least;
    const size_t blocks = (all / BLOCK_BYTES + workers - 1) / workers;
    return blocks > BLOCKS_LEAST ? blocks : BLOCKS_LEAST;
}

enum ha_status ha_paired_create(struct ha_paired **out, struct ha_pool *pool, const struct ha_kernels *kernels,
                                struct ha_why *why)
{
    struct ha_paired *p = *out = calloc(1, sizeof *p);
    if (!p) return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    p->pool = pool;
    p->read = kernels->read;
    p->workers = ha_pool_threads(pool);
    p->blocks = blocks_for(p->workers);
    enum ha_status status = ha_arena_create(&p->arena, false, why);
    if (status == HA_OK) {
        p->turn = ha_alloc(p->arena, p->workers * sizeof *p->turn, HA_TAG_SCRATCH, why);
        p->bytes = ha_alloc(p->arena, p->workers * PARTS * p->blocks * BLOCK_BYTES, HA_TAG_SCRATCH, why);
        status = p->turn && p->bytes ? HA_OK : HA_ERROR;
    }
    if (status == HA_OK) {
        ha_pool_each(pool, "ceiling", fill, p);
        return HA_OK;
    }
    ha_paired_destroy(p);
    *out = NULL;
    return status;
}

void ha_paired_destroy(struct ha_paired *p)
{
    if (!p) return;
    ha_arena_destroy(p->arena);
    free(p);
}
