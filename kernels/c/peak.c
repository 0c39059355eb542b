#include "kernels/c/ops.h"

#include <string.h>

/* A core sustains about ten lines in flight unless lines are asked for ahead of the loads. The last prefetches run past
 * the end. */
enum { AHEAD_BYTES = 4096, LINE_WORDS = 8 };

uint64_t ha_c_read(const void *p, size_t bytes)
{
    const uint64_t *word = p;
    uint64_t sum[LINE_WORDS] = { 0 }, all = 0;
    for (size_t i = 0; i < bytes / sizeof *word; i += LINE_WORDS) {
        __builtin_prefetch((const char *)(word + i) + AHEAD_BYTES, 0, 2);
        for (size_t j = 0; j < LINE_WORDS; j++) sum[j] += word[i + j];
    }
    for (size_t j = 0; j < LINE_WORDS; j++) all += sum[j];
    return all;
}

/* Of the next pages a line each, while as many of these are read. */
uint64_t ha_c_read_streams(const void *p, size_t bytes)
{
    enum { PAGE = 4096, PAGES = 8, LINE = 64, SPAN = PAGES * PAGE };
    const char *at = p;
    uint64_t all = 0;
    for (size_t done = 0; done < bytes; done += SPAN)
        for (size_t i = 0; i < SPAN && done + i < bytes; i += LINE) {
            uint64_t word[LINE_WORDS];
            __builtin_prefetch(at + done + SPAN + i / LINE % PAGES * PAGE + i / LINE / PAGES * LINE, 0, 3);
            memcpy(word, at + done + i, sizeof word);
            for (size_t j = 0; j < LINE_WORDS; j++) all += word[j];
        }
    return all;
}

/* Eight vectors of four floats, wherever the compiler knows such; without an instruction for both, a multiplication and
 * an addition. */
double ha_c_flops(size_t rounds)
{
    enum { CHAINS = 32 };
    volatile float half = 0.5f, keep;
    const float a = half, b = a + a;
    float x[CHAINS], sum = 0;

    for (size_t j = 0; j < CHAINS; j++) x[j] = (float)j;
    for (size_t i = 0; i < rounds; i++)
        for (size_t j = 0; j < CHAINS; j++) x[j] = x[j] * a + b;
    for (size_t j = 0; j < CHAINS; j++) sum += x[j];
    keep = sum;
    (void)keep;
    return 2.0 * CHAINS * (double)rounds;
}

double ha_c_flops_bf16(size_t rounds) { return ha_c_flops(rounds); }
