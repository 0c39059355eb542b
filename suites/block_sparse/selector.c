#include "suites/block_sparse/selector.h"

#include <math.h>

HA_SHARED_WORDS(ha_granularity_word, [HA_GRANULARITY_DYNAMIC] = "dynamic", [HA_GRANULARITY_16] = "16",
                [HA_GRANULARITY_32] = "32", [HA_GRANULARITY_64] = "64", [HA_GRANULARITY_128] = "128")

bool ha_selector_reads(const struct ha_selector *s, const struct ha_property *head)
{
    return !s->skips || !(head->s > 0);
}

double ha_selector_budget(const struct ha_property *head, size_t block)
{
    return fmin(fmax((double)head->bgt0 + (double)head->k * log2((double)block), 0), 1);
}

double ha_selector_volume(const struct ha_selector *s, const struct ha_property *head, size_t heads, size_t keys,
                          size_t block)
{
    double budget = 0;
    for (size_t h = 0; h < heads; h++)
        if (ha_selector_reads(s, &head[h])) budget += ha_selector_budget(&head[h], block);
    return 2 * (double)keys / (double)block + 2 * (double)keys * fmin(budget, 1);
}

size_t ha_selector_block(const struct ha_selector *s, const struct ha_property *head, size_t heads, size_t keys,
                         double *volume)
{
    size_t readers = 0, best = 0;
    for (size_t h = 0; h < heads; h++) readers += ha_selector_reads(s, &head[h]);
    *volume = 0;
    for (size_t i = 0; readers && keys && i < HA_GRANULARITIES; i++) {
        const size_t block = ha_granularity_block(i);
        if (s->granularity != HA_GRANULARITY_DYNAMIC && s->granularity != i + HA_GRANULARITY_16) continue;
        const double v = ha_selector_volume(s, head, heads, keys, block);
        if (best && !(v < *volume)) continue;
        best = block;
        *volume = v;
    }
    return best;
}
