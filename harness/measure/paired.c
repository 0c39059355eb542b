#include "harness/measure/paired.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/fastest_read.h"
#include "harness/base/text.h"
#include "harness/base/sanitizer.h"
#include "harness/base/why.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A block is a huge page. Each worker has parts x blocks of them; a reading takes one part of every worker's, the next
 * one another, so that what caches hold is never what a reading begins with. */
enum { BLOCK_BYTES = 2 << 20, BLOCKS_LEAST = 4, LINE = 64 };

/* Another one takes its place where a program is linked for rehearsals. */
__attribute__((weak)) size_t ha_measure_share(size_t bytes) { return bytes; }

struct turn {
    _Alignas(LINE) atomic_size_t next; /* block to be read of a worker's part */
};

struct ha_paired_memory {
    struct ha_arena *arena;
    unsigned char *bytes; /* [workers][parts][blocks][BLOCK_BYTES] */
    size_t workers, parts, blocks;
    size_t alone_bytes; /* what one thread reads at once */
    struct shared {
        atomic_size_t part; /* the next to be read */
        atomic_int order;   /* of reading, once one process has found it */
    } * shared;             /* in memory that processes share once they are forked */
};
enum order { UNKNOWN, BY_LINES, IN_STREAMS };

struct ha_paired {
    struct ha_pool *pool;
    ha_read *read;
    struct ha_paired_memory *memory, *own; /* own: NULL, or the same, to be destroyed with this */
    size_t part, end;                      /* that is being read, and how many of its blocks */
    struct turn *turn;                     /* [workers] */
};

static unsigned char *block(const struct ha_paired_memory *m, size_t worker, size_t part, size_t i)
{
    return m->bytes + ((worker * m->parts + part) * m->blocks + i) * BLOCK_BYTES;
}

static void fill(void *arg, size_t task, size_t worker)
{
    struct ha_paired_memory *m = arg;
    /* untouched pages are all one zero page, which sits in cache */
    memset(block(m, worker, 0, 0), 1, m->parts * m->blocks * BLOCK_BYTES);
}

static void next_part(struct ha_paired *p)
{
    p->part = atomic_fetch_add(&p->memory->shared->part, 1) % p->memory->parts;
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

/* a worker's own blocks, then what others have left */
static void read_blocks(void *arg, size_t task, size_t worker)
{
    struct ha_paired *p = arg;
    const struct ha_paired_memory *m = p->memory;
    for (size_t v = 0; v < m->workers; v++) {
        size_t whose = (worker + v) % m->workers, i;
        while ((i = atomic_fetch_add_explicit(&p->turn[whose].next, 1, memory_order_relaxed)) < p->end)
            p->read(block(m, whose, p->part, i), BLOCK_BYTES);
    }
}

/* blocks [first, end) of a part of every worker */
static double read_some(struct ha_paired *p, size_t first, size_t end)
{
    const struct ha_paired_memory *m = p->memory;
    p->end = end;
    for (size_t w = 0; w < m->workers; w++) atomic_store_explicit(&p->turn[w].next, first, memory_order_relaxed);
    ha_pool_each(p->pool, "ceiling", nothing, NULL); /* awake */
    const uint64_t begin_ns = ha_now_ns();
    ha_pool_each(p->pool, "ceiling", read_blocks, p);
    return (double)(m->workers * (end - first) * BLOCK_BYTES) / (double)(ha_now_ns() - begin_ns);
}

double ha_paired_read_all(struct ha_paired *p)
{
    next_part(p);
    return read_some(p, 0, p->memory->blocks);
}

/* A few blocks of all workers, the next ones each time. */
static double read_few(void *arg, ha_read *read)
{
    enum { FEW = BLOCKS_LEAST };
    struct ha_paired *p = arg;
    p->read = read;
    if (p->end + FEW > p->memory->blocks) {
        next_part(p);
        p->end = 0;
    }
    return read_some(p, p->end, p->end + FEW);
}

/* One process finds it, for all. */
static void find_order(struct ha_paired *p, const struct ha_kernels *kernels)
{
    atomic_int *order = &p->memory->shared->order;
    const int known = atomic_load(order);
    p->end = p->memory->blocks;
    p->read = known == BY_LINES     ? kernels->read
              : known == IN_STREAMS ? kernels->read_streams
                                    : ha_fastest_read(kernels, read_few, p);
    atomic_store(order, p->read == kernels->read ? BY_LINES : IN_STREAMS);
}

/* The first workers' blocks are the nearest, where memory is in several places. */
double ha_paired_read_alone(struct ha_paired *p)
{
    const struct ha_paired_memory *m = p->memory;
    size_t bytes = 0;
    next_part(p);
    const uint64_t begin_ns = ha_now_ns();
    for (size_t w = 0; w < m->workers && bytes < m->alone_bytes; w++)
        for (size_t i = 0; i < m->blocks && bytes < m->alone_bytes; i++, bytes += BLOCK_BYTES)
            p->read(block(m, w, p->part, i), BLOCK_BYTES);
    return (double)bytes / (double)(ha_now_ns() - begin_ns);
}

void ha_paired_read(struct ha_paired *p, struct ha_paired_sample *sample)
{
    sample->GBps = ha_paired_read_all(p);
    sample->GBps_1 = p->memory->workers > 1 ? ha_paired_read_alone(p) : sample->GBps;
    sample->scale = sample->GBps / ((double)p->memory->workers * sample->GBps_1);
}

/* What sysconf says is ten times as much on some virtual machines. */
static size_t last_cache_bytes(void)
{
    char KiB[64];
    ha_text_line("/sys/devices/system/cpu/cpu0/cache/index3/size", "", KiB, sizeof KiB);
    return (size_t)strtoull(KiB, NULL, 10) << 10;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* of readings that are paced: two parts, each far beyond the last cache */
static void lay_long(struct ha_paired_memory *m)
{
    const size_t far = HA_SANITIZED ? 0 : ha_measure_share(2 * last_cache_bytes()),
                 least = ha_measure_share((size_t)128 << 20), all = far > least ? far : least;
    const size_t blocks = (all / BLOCK_BYTES + m->workers - 1) / m->workers;
    m->blocks = blocks > BLOCKS_LEAST ? blocks : BLOCKS_LEAST;
    m->parts = 2;
    m->alone_bytes = least;
}

/* of short ones: as many parts as all others need to be far beyond it */
static void lay_short(struct ha_paired_memory *m)
{
    const size_t far = HA_SANITIZED ? 0 : ha_measure_share(2 * last_cache_bytes()),
                 least = ha_measure_share((size_t)64 << 20);
    const size_t blocks = (least / BLOCK_BYTES + m->workers - 1) / m->workers;
    m->blocks = blocks > BLOCKS_LEAST ? blocks : BLOCKS_LEAST;
    const size_t part_bytes = m->workers * m->blocks * BLOCK_BYTES, others = (far + part_bytes - 1) / part_bytes;
    m->parts = 1 + (others ? others : 1);
    m->alone_bytes = least / 2;
}

static size_t bytes_of(const struct ha_paired_memory *m) { return m->workers * m->parts * m->blocks * BLOCK_BYTES; }

static enum ha_status make_memory(struct ha_paired_memory *m, struct ha_pool *pool, struct ha_why *why)
{
    void *shared = mmap(NULL, sizeof *m->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    m->shared = shared;
    HA_TRY(ha_arena_create(&m->arena, false, why));
    m->bytes = ha_alloc(m->arena, bytes_of(m), HA_TAG_SCRATCH, why);
    if (!m->bytes) return HA_ERROR;
    ha_pool_each(pool, "ceiling", fill, m);
    return HA_OK;
}

void ha_paired_memory_destroy(struct ha_paired_memory *m)
{
    if (!m) return;
    ha_arena_destroy(m->arena);
    if (m->shared) munmap(m->shared, sizeof *m->shared);
    free(m);
}

enum ha_status ha_paired_memory_create(struct ha_paired_memory **out, struct ha_why *why)
{
    struct ha_pool *pool;
    struct ha_paired_memory *m = *out = calloc(1, sizeof *m);
    if (!m) return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    enum ha_status status = ha_pool_create(&pool, HA_TEAM_OWN, 0, why);
    if (status == HA_OK) {
        m->workers = ha_pool_threads(pool);
        lay_short(m);
        const uint64_t available = ha_memory_available();
        if (available && bytes_of(m) > available / 4)
            status = ha_why(why, HA_WAIVED, "memory ceiling: %zu MiB, and %llu MiB are left", bytes_of(m) >> 20,
                            (unsigned long long)available >> 20);
        else status = make_memory(m, pool, why);
        ha_pool_destroy(pool);
    }
    if (status == HA_OK) return HA_OK;
    ha_paired_memory_destroy(m);
    *out = NULL;
    return status;
}

/* ---- readings of it ---------------------------------------------------------------------------------------------- */

enum ha_status ha_paired_create_on(struct ha_paired **out, struct ha_pool *pool, const struct ha_kernels *kernels,
                                   struct ha_paired_memory *memory, struct ha_why *why)
{
    struct ha_paired *p = *out = calloc(1, sizeof *p);
    if (!p) return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    p->pool = pool;
    p->memory = memory;
    /* where a pool has fewer threads than the memory has shares, these read the rest */
    p->turn = aligned_alloc(LINE, memory->workers * sizeof *p->turn);
    if (!p->turn) {
        free(p);
        *out = NULL;
        return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    }
    find_order(p, kernels);
    return HA_OK;
}

enum ha_status ha_paired_create(struct ha_paired **out, struct ha_pool *pool, const struct ha_kernels *kernels,
                                struct ha_why *why)
{
    struct ha_paired_memory *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return ha_why(why, HA_ERROR, "memory ceiling: out of memory");
    m->workers = ha_pool_threads(pool);
    lay_long(m);
    enum ha_status status = make_memory(m, pool, why);
    if (status == HA_OK) status = ha_paired_create_on(out, pool, kernels, m, why);
    if (status == HA_OK) (*out)->own = m;
    else ha_paired_memory_destroy(m);
    return status;
}

void ha_paired_destroy(struct ha_paired *p)
{
    if (!p) return;
    ha_paired_memory_destroy(p->own);
    free(p->turn);
    free(p);
}
