#include "harness/base/gather.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { LINE = 64 };

static void copy(unsigned char *dst, const unsigned char *src, size_t bytes) { memcpy(dst, src, bytes); }

static void store(unsigned char *dst, const unsigned char *src, size_t bytes)
{
#if defined(__x86_64__)
    if ((((uintptr_t)dst) | bytes) % sizeof(__m128i) == 0) {
        size_t i = 0;
        for (; i + LINE <= bytes; i += LINE) {
            __m128i x[4];
            for (size_t j = 0; j < 4; j++) x[j] = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16 * j));
            for (size_t j = 0; j < 4; j++) _mm_stream_si128((__m128i *)(void *)(dst + i + 16 * j), x[j]);
        }
        for (; i < bytes; i += 16)
            _mm_stream_si128((__m128i *)(void *)(dst + i), _mm_loadu_si128((const __m128i *)(const void *)(src + i)));
        return;
    }
#endif
    memcpy(dst, src, bytes);
}

void ha_gather_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

void ha_gather_arrived(const void *mapped) { (void)*(const volatile unsigned char *)mapped; }

/* Row i of what an index names. */
struct at {
    size_t entry, within;
};
static inline void next(struct at *at, size_t unit)
{
    if (++at->within < unit) return;
    at->within = 0;
    at->entry++;
}
static inline size_t row(const uint32_t *index, struct at at, size_t unit)
{
    return index[at.entry] * unit + at.within;
}

/* Later rows are somewhere else, where no hardware looks ahead; of a long one it does after the first lines. */
static inline void prefetch(const unsigned char *src, size_t bytes)
{
    enum { LINES = 8 };
    for (size_t i = 0; i < bytes && i < LINES * LINE; i += LINE) __builtin_prefetch(src + i, 0, 1);
}

void ha_gather_rows(const struct ha_gather *g, enum ha_gather_by by, size_t first, size_t end)
{
    enum { AHEAD = 4 }; /* rows */
    void (*const put)(unsigned char *, const unsigned char *, size_t) = by == HA_GATHER_STORE ? store : copy;
    struct at now = { first / g->unit, first % g->unit },
              ahead = { (first + AHEAD) / g->unit, (first + AHEAD) % g->unit };
    for (size_t i = first; i < end; i++, next(&now, g->unit), next(&ahead, g->unit)) {
        const size_t from = row(g->index, now, g->unit), to = g->slot ? row(g->slot, now, g->unit) : i;
        if (i + AHEAD < end) prefetch(g->src + row(g->index, ahead, g->unit) * g->src_stride_bytes, g->row_bytes);
        put(g->dst + to * g->dst_stride_bytes, g->src + from * g->src_stride_bytes, g->row_bytes);
    }
}
