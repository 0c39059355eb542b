#ifndef HA_PARTS_BLOCK_STORE_H
#define HA_PARTS_BLOCK_STORE_H

/* Whole blocks of tokens of one sequence and layer in host memory, and their digests on the device. A token stays on
 * the device until its block is whole; then the block gets its digest there, and leaves. */

#include "suites/parts/device_choice.h"
#include "suites/parts/tail.h"

struct ha_block_store {
    struct ha_kv kv; /* token p in row p */
    struct ha_tail tail;
    struct ha_digests digests;
};

/* kv: natural rows in host memory, with room for all whole blocks that sequence b can have; the caller's. */
enum ha_status ha_block_store_create(const struct ha_context *ctx, size_t unit, size_t b, const struct ha_kv *kv,
                                     struct ha_block_store *store, struct ha_why *why);
/* K and V of a prefill. The context's digests are the caller's to make. */
enum ha_status ha_block_store_load(const struct ha_context *ctx, struct ha_block_store *store,
                                   const struct ha_prefill *in, size_t b);
/* Enqueues on the main stream the new tokens of a step, all rows of fresh; and for the sequences of a layer what closes
 * the blocks that are whole with `tokens`, one of each sequence at a time. */
enum ha_status ha_block_store_append(const struct ha_context *ctx, struct ha_block_store *store,
                                     const struct ha_kv *fresh);
enum ha_status ha_block_store_close(const struct ha_device_choice *c, struct ha_block_store *store,
                                    const size_t *tokens);
/* What a device reads beside its blocks, and what that is: the tail, and the step's own tokens, from `fresh`. */
void ha_block_store_device(const struct ha_shape *shape, const struct ha_block_store *store, const struct ha_kv *fresh,
                           struct ha_device_seq *d);
enum ha_status ha_block_store_use(const struct ha_context *ctx, const struct ha_block_store *store,
                                  struct ha_positions *used, struct ha_why *why);
/* as it was with so many tokens */
enum ha_status ha_block_store_rewind(const struct ha_context *ctx, struct ha_block_store *store, size_t tokens);

#endif
