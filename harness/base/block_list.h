#ifndef HA_BASE_BLOCK_LIST_H
#define HA_BASE_BLOCK_LIST_H

/* Which blocks a cache has, in which slots, and who is replaced next: an index map and a linked list of the slots. What
 * is to move is the plan that an update makes. Lists are independent: different ones may be used by different threads.
 */

#include "harness/api/device.h"

struct ha_block_list;

/* Who is replaced. All are called by ha_block_list_use alone, of a slot that has a block. */
struct ha_block_policy {
    /* The block of the slot is used again, or has come. The slot is in the list at the place that it had; or in none.
     */
    void (*promote)(struct ha_block_list *list, uint32_t slot);
    void (*insert)(struct ha_block_list *list, uint32_t slot);
    /* It is replaced: the slot leaves the list. */
    void (*remove)(struct ha_block_list *list, uint32_t slot);
    /* The slot that is replaced next, of those in the list from `from` on; HA_SLOT_NONE: there is none. */
    uint32_t (*victim)(const struct ha_block_list *list, uint32_t from);
};

/* Least recently used: each use makes a block the most recent. Least frequently used: of the least number of uses since
 * it came, and of equals the one used longest ago. Neither replaces what the update itself is of. */
enum { HA_BLOCK_LRU, HA_BLOCK_LFU, HA_BLOCK_POLICIES };
extern const struct ha_block_policy ha_block_policy[HA_BLOCK_POLICIES];
/* For planted defects (suites/variants/mutants.h): from now on ha_block_policy_of has these, [HA_BLOCK_POLICIES], in
 * place of the policies above. NULL: no more. */
void ha_block_policy_plant(const struct ha_block_policy *of);
const struct ha_block_policy *ha_block_policy_of(size_t policy);

#define HA_BLOCK_NONE UINT32_MAX /* of a slot that is free */

struct ha_block_list {
    const struct ha_block_policy *policy;
    size_t blocks, slots, used; /* used: slots [0, used) have a block */
    uint32_t *slot;             /* [blocks] the index map: the slot of each block, or HA_SLOT_NONE */
    struct ha_block_entry {
        uint32_t block, count; /* count: uses since it came, of LFU */
        uint32_t before, next; /* in the order in which they are replaced, or HA_SLOT_NONE */
        bool chosen;           /* within an update: it is of the blocks of that */
    } * entry;                 /* [slots] */
    uint32_t first, last;      /* replaced first, and last; or HA_SLOT_NONE */
    uint32_t *last_of;         /* [counts + 1] of LFU: of those with so many uses the last, or HA_SLOT_NONE */
    size_t counts;             /* uses are counted no further */
};

/* Takes the slot out of the order, or puts it behind `before` (HA_SLOT_NONE: ahead of all): for policies. */
void ha_block_list_unlink(struct ha_block_list *list, uint32_t slot);
void ha_block_list_link(struct ha_block_list *list, uint32_t slot, uint32_t before);

/* The look-up of a rising list of blocks. place: [count] the slot of each; of those that are missing `slots` and
 * on: they are temporary blocks, behind the slots. missing: which these are, rising, with room for count. The number
 * of missing ones. */
size_t ha_block_list_find(const struct ha_block_list *list, const uint32_t *block, size_t count, uint32_t *place,
                          uint32_t *missing);
/* The update after these blocks, a rising list, were used. Of those that are not there, one after the other, each
 * gets a slot: the smallest that is free, else that of a block which is replaced. Then all are promoted or inserted, in
 * their order. to: [count] the slot to which a block has to be brought; HA_SLOT_NONE: it was there, or there is no room
 * for it. The number of blocks that were replaced. */
size_t ha_block_list_use(struct ha_block_list *list, const uint32_t *block, size_t count, uint32_t *to);

#endif
