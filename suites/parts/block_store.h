#ifndef HA_PARTS_BLOCK_STORE_H
#define HA_PARTS_BLOCK_STORE_H

/* Whole blocks of tokens of one sequence and layer in host memory, and their digests on the device. A token stays on
 * the device until its block is whole; then the block gets its digest there, and leaves. For rules whose sequences are
 * these. */

#include "suites/parts/device_choice.h"
#include "suites/parts/tail.h"

struct ha_block_store {
    struct ha_kv kv; /* token p in row p */
    struct ha_tail tail;
    struct ha_digests digests;
};
static inline struct ha_block_store *ha_block_store_of(const struct ha_layer *l, size_t b)
{
    return (struct ha_block_store *)l->own + b;
}

/* From a rule's open. kv: natural rows in host memory, with room for all whole blocks that the sequence can have; the
 * caller's. */
enum ha_status ha_block_store_open(struct ha_layer *l, size_t b, size_t unit, const struct ha_kv *kv,
                                   struct ha_why *why);
/* In hooks of a rule: K and V of a prefill, whose digests are the caller's to make; what a device reads beside its
 * blocks, the tail and the step's own tokens; which tokens these are; and for all sequences of the layer what closes
 * the blocks that the step has made whole, on the main stream. */
enum ha_status ha_block_store_prefill(const struct ha_layer *l, size_t b, const struct ha_prefill *in);
void ha_block_store_device(const struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d);
enum ha_status ha_block_store_use(const struct ha_layer *l, size_t b, struct ha_positions *used, struct ha_why *why);
enum ha_status ha_block_store_close(const struct ha_layer *l, const struct ha_device_choice *c);

/* hooks of a rule */
enum ha_status ha_block_store_append(struct ha_layer *l, size_t b, const struct ha_kv *fresh);
const unsigned char *ha_block_store_place(const struct ha_layer *l, size_t b, size_t position);
enum ha_status ha_block_store_rewind(struct ha_layer *l, size_t b, struct ha_why *why);
#define HA_BLOCK_STORE_HOOKS                                                                                    \
    .seq_bytes = sizeof(struct ha_block_store), .append = ha_block_store_append, .place = ha_block_store_place, \
    .appends_last = true, .rewind = ha_block_store_rewind

#endif
