#include "harness/base/block_list.h"

/* ---- the list ---------------------------------------------------------------------------------------------------- */

void ha_block_list_unlink(struct ha_block_list *l, uint32_t slot)
{
    const struct ha_block_entry *e = &l->entry[slot];
    *(e->before == HA_SLOT_NONE ? &l->first : &l->entry[e->before].next) = e->next;
    *(e->next == HA_SLOT_NONE ? &l->last : &l->entry[e->next].before) = e->before;
}

void ha_block_list_link(struct ha_block_list *l, uint32_t slot, uint32_t before)
{
    struct ha_block_entry *e = &l->entry[slot];
    uint32_t *after = before == HA_SLOT_NONE ? &l->first : &l->entry[before].next;
    e->before = before;
    e->next = *after;
    *after = slot;
    *(e->next == HA_SLOT_NONE ? &l->last : &l->entry[e->next].before) = slot;
}

/* The first that the update is not of. */
static uint32_t first_victim(const struct ha_block_list *l, uint32_t from)
{
    while (from != HA_SLOT_NONE && l->entry[from].chosen) from = l->entry[from].next;
    return from;
}

/* ---- LRU: the order is that of the last use */

static void lru_insert(struct ha_block_list *l, uint32_t slot) { ha_block_list_link(l, slot, l->last); }
static void lru_promote(struct ha_block_list *l, uint32_t slot)
{
    ha_block_list_unlink(l, slot);
    lru_insert(l, slot);
}

/* ---- LFU: the order is that of the numbers of uses, and within one of the last use. Who is the last of each number is
 * known, so that nothing is searched. */

static void lfu_leave(struct ha_block_list *l, uint32_t slot)
{
    const struct ha_block_entry *e = &l->entry[slot];
    uint32_t *last = &l->last_of[e->count];
    const bool alone = e->before == HA_SLOT_NONE || l->entry[e->before].count != e->count;
    if (*last == slot) *last = alone ? HA_SLOT_NONE : e->before;
}

/* behind all that have `count` uses; there: the last that has not more */
static void lfu_join(struct ha_block_list *l, uint32_t slot, uint32_t count, uint32_t there)
{
    if (l->last_of[count] != HA_SLOT_NONE) there = l->last_of[count];
    ha_block_list_link(l, slot, there);
    l->entry[slot].count = count;
    l->last_of[count] = slot;
}

static void lfu_remove(struct ha_block_list *l, uint32_t slot)
{
    lfu_leave(l, slot);
    ha_block_list_unlink(l, slot);
}

static void lfu_insert(struct ha_block_list *l, uint32_t slot) { lfu_join(l, slot, 1, HA_SLOT_NONE); }

static void lfu_promote(struct ha_block_list *l, uint32_t slot)
{
    const uint32_t count = l->entry[slot].count;
    lfu_leave(l, slot);
    const uint32_t equal = l->last_of[count], there = equal != HA_SLOT_NONE ? equal : l->entry[slot].before;
    ha_block_list_unlink(l, slot);
    lfu_join(l, slot, count < l->counts ? count + 1 : count, there);
}

const struct ha_block_policy ha_block_policy[HA_BLOCK_POLICIES] = {
    [HA_BLOCK_LRU] = { lru_promote, lru_insert, ha_block_list_unlink, first_victim },
    [HA_BLOCK_LFU] = { lfu_promote, lfu_insert, lfu_remove, first_victim },
};

static const struct ha_block_policy *policies = ha_block_policy;
void ha_block_policy_plant(const struct ha_block_policy *of) { policies = of ? of : ha_block_policy; }
const struct ha_block_policy *ha_block_policy_of(size_t policy) { return &policies[policy]; }

/* ---- look-up and update ------------------------------------------------------------------------------------------ */

size_t ha_block_list_find(const struct ha_block_list *l, const uint32_t *block, size_t count, uint32_t *place,
                          uint32_t *missing)
{
    size_t absent = 0;
    for (size_t i = 0; i < count; i++) {
        place[i] = l->slot[block[i]];
        if (place[i] != HA_SLOT_NONE) continue;
        place[i] = (uint32_t)(l->slots + absent);
        missing[absent++] = block[i];
    }
    return absent;
}

/* The block leaves the slot that is replaced next, from `at` on. */
static uint32_t replace(struct ha_block_list *l, uint32_t *at)
{
    const uint32_t slot = l->policy->victim(l, *at);
    if (slot == HA_SLOT_NONE) return slot;
    *at = l->entry[slot].next;
    l->policy->remove(l, slot);
    l->slot[l->entry[slot].block] = HA_SLOT_NONE;
    return slot;
}

/* While slots are given out the order stays as it was, so that what was passed over once is not looked at again. */
size_t ha_block_list_use(struct ha_block_list *l, const uint32_t *block, size_t count, uint32_t *to)
{
    const uint32_t wanted = HA_SLOT_NONE - 1;
    size_t replaced = 0;
    uint32_t at = l->first;
    for (size_t i = 0; i < count; i++) {
        const uint32_t slot = l->slot[block[i]];
        to[i] = slot == HA_SLOT_NONE ? wanted : HA_SLOT_NONE;
        if (slot != HA_SLOT_NONE) l->entry[slot].chosen = true;
    }
    for (size_t i = 0; i < count; i++) {
        if (to[i] != wanted) continue;
        const bool is_free = l->used < l->slots;
        to[i] = is_free ? (uint32_t)l->used++ : replace(l, &at);
        replaced += !is_free && to[i] != HA_SLOT_NONE;
    }
    for (size_t i = 0; i < count; i++) {
        const bool came = to[i] != HA_SLOT_NONE;
        const uint32_t slot = came ? to[i] : l->slot[block[i]];
        if (slot == HA_SLOT_NONE) continue;
        l->entry[slot].chosen = false;
        if (came) {
            l->entry[slot].block = block[i];
            l->slot[block[i]] = slot;
        }
        (came ? l->policy->insert : l->policy->promote)(l, slot);
    }
    return replaced;
}
