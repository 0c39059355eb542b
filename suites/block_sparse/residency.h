#ifndef HA_BLOCK_SPARSE_RESIDENCY_H
#define HA_BLOCK_SPARSE_RESIDENCY_H

/* Which blocks of each layer, sequence and KV head have which of `slots` slots of a cache on the device. Twice: as the
 * step under way reads it, a snapshot that stays as it is, and as it will be for the next step, which alone is changed.
 * Nothing is allocated after create. Different layers may be used by different threads; of one layer one thread changes
 * what is next while any read what is now, and turn is called when neither is at work. */

#include "harness/base/block_list.h"
#include "suites/parts/kv.h"

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

/* the slot's block, or HA_BLOCK_NONE */
uint32_t ha_resident_block(struct ha_resident_set set, uint32_t slot);
/* The slot that the block has from now on, or has already; HA_SLOT_NONE: all are taken. The snapshot may still have
 * another block there (ha_resident_block of now): then its bytes are overwritten behind what reads them. */
uint32_t ha_resident_place(struct ha_resident_set set, uint32_t block);
/* its slot, free now, or HA_SLOT_NONE: it is not resident */
uint32_t ha_resident_evict(struct ha_resident_set set, uint32_t block);
/* Of a rising list of blocks the slots of the resident ones, and the others, both in order; each array has room for
 * count. The number of resident ones; the others are the rest. */
size_t ha_resident_split(struct ha_resident_set set, const uint32_t *block, size_t count, uint32_t *slot,
                         uint32_t *missing);

#endif
