#ifndef HA_PARTS_DIGESTS_H
#define HA_PARTS_DIGESTS_H

/* Digests (struct ha_digest) of the whole blocks of one layer of one sequence, kept up as tokens come. What lies behind
 * the last whole block has none. */

#include "suites/parts/store.h"

struct ha_digests {
    unsigned char *bytes; /* [kv_heads][head_bytes] */
    size_t head_bytes;
    size_t unit;        /* tokens of a block */
    size_t blocks;      /* whole blocks that they are of */
    unsigned char *row; /* host memory: K and V of a block of one KV head, as a store gives them back */
};

/* An option `digest` of variants: ha_digest_kind by its name. */
const char *ha_digest_word(size_t i);
#define HA_DIGEST_KIND                                                                                            \
    {                                                                                                             \
        "digest", HA_DIGEST_RANGE, .word = ha_digest_word, .fitted = true,                                        \
                                   .doc = "of a block: smallest and largest value of each dimension, or the mean" \
    }

/* for all that sequence b can reach; device memory, or host memory of any kind */
enum ha_status ha_digests_create(const struct ha_context *ctx, enum ha_memory memory, size_t unit, size_t b,
                                 struct ha_digests *d, struct ha_why *why);
/* What makes the digests of those whole blocks among the first `tokens` tokens of kv that have none yet: from now on
 * they count as made. On a device, for ha_device_digest; at once, by the CPU, for a KV head. */
struct ha_device_digest_seq ha_digests_due(const struct ha_shape *shape, struct ha_digests *d, const struct ha_kv *kv,
                                           size_t tokens);
/* The same of a store, packed or not, at once. */
void ha_digests_of_store(const struct ha_context *ctx, enum ha_digest_kind kind, struct ha_digests *d,
                         const struct ha_kv_store *store);
void ha_digests_make(const struct ha_context *ctx, enum ha_digest_kind kind, const struct ha_digests *d,
                     const struct ha_device_digest_seq *due, size_t head);

#endif
