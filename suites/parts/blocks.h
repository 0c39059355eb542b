#ifndef HA_PARTS_BLOCKS_H
#define HA_PARTS_BLOCKS_H

/* Logical blocks: `unit` tokens each, the last one of a sequence as many as there are. They are a way to name rows of
 * what is there, struct ha_kv on either side (on the device of a cache, whose slots are its blocks), or packed keys
 * (struct ha_packed); and which of them the device's cache has, at which slot. */

#include "suites/parts/kv.h"

/* HA_ERROR with words unless it is 16, 32, 64 or 128 tokens, or, of natural rows, 8. */
enum ha_status ha_block_check(size_t unit, enum ha_kv_layout layout, struct ha_why *why);
static inline size_t ha_block_count(size_t unit, size_t tokens) { return (tokens + unit - 1) / unit; }
/* tokens of a block, of a sequence that has so many; 0 behind its end */
size_t ha_block_tokens(size_t unit, size_t tokens, size_t block);
/* tokens of a rising list of blocks */
size_t ha_block_list_tokens(size_t unit, size_t tokens, const uint32_t *block, size_t count);
/* The rows of KV head `head` that are block `at` of kv: of a store, or slot `at` of a cache. count: ha_block_tokens. */
struct ha_rows ha_block_rows(const struct ha_shape *shape, const struct ha_kv *kv, size_t head, size_t unit, size_t at,
                             size_t count);

/* ---- residency -------------------------------------------------------------------------------------------------- */

/* Of each layer, sequence and KV head: which blocks have which of `slots` slots. Twice: as the step under way reads it,
 * a snapshot that stays as it is, and as it will be for the next step, which alone is changed. Nothing is allocated
 * after create. Different layers may be used by different threads; of one layer one thread changes what is next while
 * any read what is now, and turn is called when neither is at work. */

#define HA_BLOCK_NONE UINT32_MAX

struct ha_resident {
    uint32_t block, slot; /* HA_BLOCK_NONE: the slot is free */
};
/* Of one head: residents [0, count) by rising block, then the free slots, first that which has been free the longest.
 * Each slot stands there once. */
struct ha_resident_set {
    struct ha_resident *entry; /* [slots] */
    size_t *count, slots;
};

struct ha_residency {
    const struct ha_shape *shape;
    size_t slots;
    struct ha_resident *entry[2]; /* [layers][batch][kv_heads][slots] */
    size_t *count[2];             /* [layers][batch][kv_heads] */
    uint64_t *generation;         /* [layers] of the snapshot: so many turns; its parity says which is now */
};

enum ha_status ha_residency_create(struct ha_residency *r, const struct ha_context *ctx, size_t slots,
                                   struct ha_why *why);
void ha_residency_clear(struct ha_residency *r, size_t layer); /* now and next: nothing is resident; generation 0 */
/* what the step reads, not to be changed; what the next one will */
struct ha_resident_set ha_residency_now(const struct ha_residency *r, size_t layer, size_t b, size_t head);
struct ha_resident_set ha_residency_next(struct ha_residency *r, size_t layer, size_t b, size_t head);
/* next becomes now, and what comes after it begins the same */
void ha_residency_turn(struct ha_residency *r, size_t layer);

/* the block's slot, or HA_SLOT_NONE; the slot's block, or HA_BLOCK_NONE */
uint32_t ha_resident_find(struct ha_resident_set set, uint32_t block);
uint32_t ha_resident_block(struct ha_resident_set set, uint32_t slot);
/* The slot that the block has from now on, or has already; HA_SLOT_NONE: all are taken. The snapshot may still have
 * another block there (ha_resident_block of now): then its bytes are overwritten behind what reads them. */
uint32_t ha_resident_place(struct ha_resident_set set, uint32_t block);
/* its slot, free now, or HA_SLOT_NONE: it is not resident */
uint32_t ha_resident_evict(struct ha_resident_set set, uint32_t block);
/* Of a rising list of blocks the resident ones with their slots, and the others, both rising; each array has room for
 * count. resident may be NULL. The number of resident ones; the others are the rest. */
size_t ha_resident_split(struct ha_resident_set set, const uint32_t *block, size_t count, uint32_t *resident,
                         uint32_t *slot, uint32_t *missing);

#endif
