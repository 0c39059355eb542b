#include "harness/base/arena.h"
#include "harness/base/fence.h"
#include "harness/base/order.h"
#include "harness/base/tally.h"
#include "harness/base/why.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, PAGE = 4096, GUARD_BYTE = 0xa5, POISON_BYTE = 0xff };
#define HUGE_BYTES ((size_t)2 << 20)

/* A mapping is [front guard][bytes][back guard]; what is known about it lies elsewhere, where an
 * overrun cannot reach it. */
struct block {
    struct block *next;
    char *map, *ptr; /* ptr = map + the front guard */
    size_t map_bytes, bytes;
    size_t order; /* which ha_alloc of its arena made it, from 1 */
    enum ha_tag tag;
    bool mapped; /* by mmap, not aligned_alloc */
};

struct ha_arena {
    pthread_mutex_t lock;
    struct block *blocks; /* newest first */
    size_t orders;
    struct ha_tally tally;
    bool checks;
    unsigned char poison;
    bool broken; /* a block was found damaged, or a pointer unknown, when it was freed */
    struct ha_why broken_why;
};

enum ha_status ha_arena_create(struct ha_arena **arena, bool checks, struct ha_why *why)
{
    *arena = calloc(1, sizeof **arena);
    if (!*arena) return ha_why(why, HA_ERROR, "arena: out of memory");
    (*arena)->checks = checks;
    (*arena)->poison = POISON_BYTE;
    pthread_mutex_init(&(*arena)->lock, NULL);
    return HA_OK;
}

void ha_arena_poison(struct ha_arena *arena, unsigned char byte) { arena->poison = byte; }

static size_t front_bytes(size_t bytes) { return bytes >= HUGE_BYTES ? PAGE : ALIGN; }

/* Finds the memory of a block whose bytes are set; false, with errno, if there is none. */
static bool block_map(struct block *b)
{
    size_t front = front_bytes(b->bytes), slack = b->bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    if (b->bytes > SIZE_MAX / 2 - slack - PAGE - 2 * ALIGN) {
        errno = ENOMEM;
        return false;
    }
    b->map_bytes = (front + b->bytes + 2 * ALIGN - 1) / ALIGN * ALIGN + slack;
    b->mapped = b->bytes >= HUGE_BYTES;
    if (!b->mapped) {
        b->map = aligned_alloc(ALIGN, b->map_bytes);
        if (!b->map) return false;
        memset(b->map, 0, b->map_bytes);
        b->ptr = b->map + front;
        return true;
    }
    /* fresh pages are zero, and belong to the NUMA node of the thread that first writes them */
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) return false;
    char *aligned = b->map + (HUGE_BYTES - (uintptr_t)b->map % HUGE_BYTES) % HUGE_BYTES;
    madvise(aligned, b->map_bytes - (size_t)(aligned - b->map), MADV_HUGEPAGE);
    b->ptr = aligned + front;
    return true;
}

static char *back_end(const struct block *b) { return b->ptr + (b->bytes + 2 * ALIGN - 1) / ALIGN * ALIGN; }

static void block_unmap(struct block *b)
{
    ha_order_thread_freed(b->ptr);
    HA_UNFENCE(b->ptr - ALIGN, (size_t)(back_end(b) - b->ptr) + ALIGN);
    if (b->mapped) munmap(b->map, b->map_bytes);
    else free(b->map);
    free(b);
}

/* The first byte of [from, to) that is not guard, or NULL. It reads what is fenced off. */
__attribute__((no_sanitize("address"))) static const char *guard_damage(const char *from, const char *to)
{
    for (uint64_t word, whole; to - from >= (ptrdiff_t)sizeof word; from += sizeof word) {
        memset(&whole, GUARD_BYTE, sizeof whole);
        memcpy(&word, from, sizeof word);
        if (word != whole) break;
    }
    for (; from < to; from++)
        if ((unsigned char)*from != GUARD_BYTE) return from;
    return NULL;
}

static enum ha_status block_check(const struct block *b, struct ha_why *why)
{
    const char *below = guard_damage(b->ptr - ALIGN, b->ptr), *above = guard_damage(b->ptr + b->bytes, back_end(b));
    if (!below && !above) return HA_OK;
    return ha_why(why, HA_FAIL, "block %zu of the arena (%s, %zu bytes) was overrun %s: at byte %td", b->order,
                  ha_tag_name(b->tag), b->bytes, below ? "before its start" : "after its end",
                  (below ? below : above) - b->ptr);
}

/* The link that points at the block of ptr, or NULL. */
static struct block **block_find(struct ha_arena *arena, const void *ptr)
{
    for (struct block **b = &arena->blocks; *b; b = &(*b)->next)
        if ((*b)->ptr == ptr) return b;
    return NULL;
}

void *ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    struct block *b = calloc(1, sizeof *b);
    if (b) {
        b->bytes = bytes;
        b->tag = tag;
    }
    if (!b || !block_map(b)) {
        ha_why(why, HA_ERROR, "out of host memory: %zu bytes (%s): %s", bytes, ha_tag_name(tag), strerror(errno));
        free(b);
        return NULL;
    }
    memset(b->ptr - ALIGN, GUARD_BYTE, ALIGN);
    memset(b->ptr + bytes, GUARD_BYTE, (size_t)(back_end(b) - b->ptr) - bytes);
    if (arena->checks) memset(b->ptr, arena->poison, bytes);
    HA_FENCE(b->ptr - ALIGN, ALIGN);
    HA_FENCE(b->ptr + bytes, (size_t)(back_end(b) - b->ptr) - bytes);
    void *ptr = b->ptr;

    pthread_mutex_lock(&arena->lock);
    b->order = ++arena->orders;
    b->next = arena->blocks;
    arena->blocks = b;
    ha_tally_add(&arena->tally, tag, bytes);
    pthread_mutex_unlock(&arena->lock);
    ha_order_thread_memory(ptr, bytes);
    return ptr;
}

void ha_free(struct ha_arena *arena, void *ptr)
{
    if (!ptr) return;
    pthread_mutex_lock(&arena->lock);
    struct ha_why why;
    struct block **link = block_find(arena, ptr), *b = link ? *link : NULL;
    enum ha_status status = b ? block_check(b, &why)
                              : ha_why(&why, HA_FAIL, "ha_free of %p, which is no block of this arena", ptr);
    if (status != HA_OK && !arena->broken) {
        arena->broken = true;
        arena->broken_why = why;
    }
    if (b) {
        *link = b->next;
        ha_tally_sub(&arena->tally, b->tag, b->bytes);
    }
    pthread_mutex_unlock(&arena->lock);
    if (b) block_unmap(b);
}

void *ha_grow(struct ha_arena *arena, void *ptr, size_t keep, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    size_t had = 0;
    if (ptr) {
        pthread_mutex_lock(&arena->lock);
        struct block **link = block_find(arena, ptr);
        had = link ? (*link)->bytes : 0;
        pthread_mutex_unlock(&arena->lock);
        if (!link) {
            ha_why(why, HA_ERROR, "ha_grow of %p, which is no block of this arena", ptr);
            return NULL;
        }
        if (bytes <= had) return ptr;
    }
    void *next = ha_alloc(arena, bytes, tag, why);
    if (!next) return NULL;
    if (ptr) memcpy(next, ptr, keep < had ? keep : had);
    ha_free(arena, ptr);
    return next;
}

enum ha_status ha_arena_check(struct ha_arena *arena, struct ha_why *why)
{
    pthread_mutex_lock(&arena->lock);
    enum ha_status status = HA_OK;
    if (arena->broken) status = ha_why(why, HA_FAIL, "%s", arena->broken_why.text);
    for (const struct block *b = arena->blocks; b && status == HA_OK; b = b->next) status = block_check(b, why);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

size_t ha_arena_peak_bytes(struct ha_arena *arena, enum ha_tag tag)
{
    pthread_mutex_lock(&arena->lock);
    size_t peak = arena->tally.peak[tag];
    pthread_mutex_unlock(&arena->lock);
    return peak;
}

void ha_arena_destroy(struct ha_arena *arena)
{
    if (!arena) return;
    for (struct block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        block_unmap(b);
    }
    pthread_mutex_destroy(&arena->lock);
    free(arena);
}

/* What follows the key in the first line of a file that begins with it; 0: there is none. */
static uint64_t number_in(const char *root, const char *path, const char *key)
{
    char line[4096];
    const size_t n = strlen(key);
    uint64_t number = 0;
    snprintf(line, sizeof line, "%s%s", root, path);
    FILE *f = fopen(line, "re");
    for (bool found = false; f && !found && fgets(line, sizeof line, f);)
        if ((found = !strncmp(line, key, n))) number = strtoull(line + n, NULL, 10); /* "max" is 0: no limit */
    if (f) fclose(f);
    return number;
}

struct ha_memory_size ha_memory_size(const char *root)
{
    struct ha_memory_size size = { number_in(root, "/proc/meminfo", "MemTotal:") * 1024,
                                   number_in(root, "/proc/meminfo", "MemAvailable:") * 1024 };
    const uint64_t limit = number_in(root, "/sys/fs/cgroup/memory.max", ""),
                   current = number_in(root, "/sys/fs/cgroup/memory.current", ""),
                   files = number_in(root, "/sys/fs/cgroup/memory.stat", "inactive_file "),
                   used = current > files ? current - files : 0;
    if (limit && limit < size.available_bytes + used) size.available_bytes = limit > used ? limit - used : 1;
    return size;
}

uint64_t ha_memory_available(void)
{
    const char *how = getenv("HABENCH_MEMORY");
    return how && !strcmp(how, "unchecked") ? 0 : ha_memory_size("").available_bytes;
}

enum ha_status ha_memory_fits(const char *where, double need, uint64_t have, const char *lower, struct ha_why *why)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    if (!have || need <= (double)have) return HA_OK;
    return ha_why(
        why, HA_ERROR, "needs %.2f GiB of %s memory, has %.2f GiB: lower %s%s", need / gib, where, (double)have / gib,
        lower, strcmp(where, "host") ? "" : ", or set " HA_MEMORY_UNCHECKED " where the system gives more as needed");
}
