#ifndef HA_BLOCK_SPARSE_SELECTOR_H
#define HA_BLOCK_SPARSE_SELECTOR_H

/* The block size of a KV head's query heads, and how much each of them reads (Fluxion, section 5.3). */

#include "harness/api/variant.h"

/* What a query head is like (equation 1): of blocks of `block` keys it reads bgt0 + k log2 block of all in host memory;
 * s > 0: what is on the device is enough for it, it streams. */
struct ha_property {
    float bgt0, k, s;
};

/* Block sizes: each of them, the smallest first, or one alone. An option `granularity` of variants. */
enum { HA_GRANULARITIES = 4, HA_GRANULARITY_LEAST = 16, HA_GRANULARITY_MOST = 128 };
enum ha_granularity {
    HA_GRANULARITY_DYNAMIC,
    HA_GRANULARITY_16,
    HA_GRANULARITY_32,
    HA_GRANULARITY_64,
    HA_GRANULARITY_128
};
const char *ha_granularity_word(size_t i);
#define HA_GRANULARITY                                                                                               \
    {                                                                                                                \
        "granularity", HA_GRANULARITY_DYNAMIC, .word = ha_granularity_word,                                          \
                                               .doc = "tokens of a block: what reads least for each KV head, or one" \
    }
static inline size_t ha_granularity_block(size_t i) { return (size_t)HA_GRANULARITY_LEAST << i; }

struct ha_selector {
    enum ha_granularity granularity;
    bool skips; /* heads that stream read nothing */
};
bool ha_selector_reads(const struct ha_selector *s, const struct ha_property *head);
/* the share of the keys in host memory that a head reads in such blocks: 0 to 1 */
double ha_selector_budget(const struct ha_property *head, size_t block);

/* V(blk) of equation 3: in vectors of head_dim, the digests and the chosen K and V; which, as heads may choose alike,
 * are at most all of them. */
double ha_selector_volume(const struct ha_selector *s, const struct ha_property *head, size_t heads, size_t keys,
                          size_t block);
/* The size of least volume, the smaller of two, and that volume. 0: no head reads, or there is nothing to read. */
size_t ha_selector_block(const struct ha_selector *s, const struct ha_property *head, size_t heads, size_t keys,
                         double *volume);

#endif
