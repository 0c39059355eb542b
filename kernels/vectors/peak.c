/* The kernels that ceilings are measured with, in terms of vectors. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)

/* A register of 64-bit words; NEON's vec is two registers. More chains than multiply-adds are under way at once: on
 * x86-64 two ports times a latency of five, and with the factor and the addend they take 14 of AVX2's 16 registers; on
 * AArch64 four pipes times a latency of four, in 20 registers. */
#if defined(HA_FOR_NEON)
enum { REGISTER_BYTES = sizeof(vec) / 2, CHAINS = 10 };
#elif defined(HA_FOR_AVX2)
enum { REGISTER_BYTES = sizeof(vec), CHAINS = 12 };
#elif defined(HA_FOR_AVX512)
enum { REGISTER_BYTES = sizeof(vec), CHAINS = 16 };
#else
enum { REGISTER_BYTES = sizeof(vec), CHAINS = 20 };
#endif
enum {
    PAGE = 4096,
    PAGES = 8,
    LINE = 64,
    AHEAD_BYTES = 4096,
    PARTS = LINE / REGISTER_BYTES,
    PART_WORDS = REGISTER_BYTES / sizeof(uint64_t)
};

typedef uint64_t words __attribute__((vector_size(REGISTER_BYTES), aligned(sizeof(uint64_t)), may_alias));

static inline void add_line(words *sum, const char *line)
{
    for (size_t j = 0; j < PARTS; j++) sum[j] += *(const words *)(const void *)(line + j * REGISTER_BYTES);
}

static inline uint64_t sum_of(const words *sum)
{
    uint64_t all = 0;
    for (size_t j = 0; j < PARTS; j++)
        for (size_t w = 0; w < PART_WORDS; w++) all += sum[j][w];
    return all;
}

/* The last prefetches run past the end. */
uint64_t HA_KERNEL(read)(const void *p, size_t bytes)
{
    const char *at = p;
    words sum[PARTS] = { { 0 } };
    for (size_t i = 0; i < bytes; i += LINE) {
        __builtin_prefetch(at + i + AHEAD_BYTES, 0, 2);
        add_line(sum, at + i);
    }
    return sum_of(sum);
}

/* Of the next eight pages a line each, while eight of these are read. */
uint64_t HA_KERNEL(read_streams)(const void *p, size_t bytes)
{
    const char *at = p;
    words sum[PARTS] = { { 0 } };
    size_t done = 0;
    for (; done + PAGES * PAGE <= bytes; done += PAGES * PAGE)
        for (size_t i = 0; i < PAGE; i += LINE)
            for (size_t j = 0; j < PAGES; j++) {
                __builtin_prefetch(at + done + (PAGES + j) * PAGE + i, 0, 3);
                add_line(sum, at + done + i * PAGES + j * LINE);
            }
    for (; done < bytes; done += LINE) add_line(sum, at + done);
    return sum_of(sum);
}

double HA_KERNEL(flops)(size_t rounds)
{
    volatile float half = 0.5f, keep;
    const vec a = v_set(half), b = v_add(a, a);
    vec x[CHAINS];

    for (size_t j = 0; j < CHAINS; j++) x[j] = v_set((float)j);
    for (size_t i = 0; i < rounds; i++)
        for (size_t j = 0; j < CHAINS; j++) x[j] = v_fma(x[j], a, b);
    for (size_t j = 1; j < CHAINS; j++) x[0] = v_add(x[0], x[j]);
    keep = v_sum_lanes(x[0]);
    (void)keep;
    return 2.0 * CHAINS * LANES * (double)rounds;
}
#endif
