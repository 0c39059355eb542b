/* Planted in lru_blocks: in its lists, in what the device is told of them, and in what moves. */

#include "suites/variants/planted.h"

#include "harness/base/block_list.h"
#include "harness/base/why.h"

#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static void promote_not(struct ha_block_list *list, uint32_t slot) {}

#define FORGETS(of)                                        \
    {                                                      \
        promote_not, of##_insert, of##_remove, of##_victim \
    }
static void lru_insert(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LRU].insert(l, slot); }
static void lru_promote(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LRU].promote(l, slot); }
static void lru_remove(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LRU].remove(l, slot); }
static uint32_t lru_victim(const struct ha_block_list *l, uint32_t from)
{
    return ha_block_policy[HA_BLOCK_LRU].victim(l, from);
}
static void lfu_insert(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LFU].insert(l, slot); }
static void lfu_promote(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LFU].promote(l, slot); }
static void lfu_remove(struct ha_block_list *l, uint32_t slot) { ha_block_policy[HA_BLOCK_LFU].remove(l, slot); }
static uint32_t lfu_victim(const struct ha_block_list *l, uint32_t from)
{
    return ha_block_policy[HA_BLOCK_LFU].victim(l, from);
}
static const struct ha_block_policy forgets_promotion[] = { FORGETS(lru), FORGETS(lfu) };

/* the first of the list, whatever it is */
static uint32_t any_victim(const struct ha_block_list *list, uint32_t from) { return from; }
static const struct ha_block_policy replaces_chosen[] = { { lru_promote, lru_insert, lru_remove, any_victim },
                                                          { lfu_promote, lfu_insert, lfu_remove, any_victim } };

/* that which is replaced last */
static uint32_t most_recent(const struct ha_block_list *l, uint32_t from)
{
    uint32_t slot = l->last;
    while (slot != HA_SLOT_NONE && l->entry[slot].chosen) slot = l->entry[slot].before;
    return slot;
}
static const struct ha_block_policy replaces_last[] = { { lru_promote, lru_insert, lru_remove, most_recent },
                                                        { lfu_promote, lfu_insert, lfu_remove, most_recent } };

/* A new block has the number of uses that the block had which it replaces. */
static void insert_with_count_of_slot(struct ha_block_list *l, uint32_t slot)
{
    const uint32_t count = l->entry[slot].count;
    lfu_insert(l, slot);
    for (uint32_t i = 1; i < count; i++) lfu_promote(l, slot);
}
static const struct ha_block_policy counts_of_slots[] = { { lru_promote, lru_insert, lru_remove, lru_victim },
                                                          { lfu_promote, insert_with_count_of_slot, lfu_remove,
                                                            lfu_victim } };

/* A block that was there before has the number of uses that it had then. */
enum { LISTS = 8, BLOCKS = 64 };
static struct {
    const struct ha_block_list *of;
    uint32_t count[BLOCKS];
} before[LISTS];
static void forget_counts(void) { memset(before, 0, sizeof before); }

static uint32_t *count_before(const struct ha_block_list *l, uint32_t slot)
{
    static uint32_t none;
    size_t i = 0;
    while (i < LISTS && before[i].of && before[i].of != l) i++;
    if (i == LISTS || l->entry[slot].block >= BLOCKS) return &none;
    before[i].of = l;
    return &before[i].count[l->entry[slot].block];
}
static void remove_and_keep_count(struct ha_block_list *l, uint32_t slot)
{
    *count_before(l, slot) = l->entry[slot].count;
    lfu_remove(l, slot);
}
static void insert_with_count(struct ha_block_list *l, uint32_t slot)
{
    lfu_insert(l, slot);
    for (uint32_t i = *count_before(l, slot); i > 0; i--) lfu_promote(l, slot);
}
static const struct ha_block_policy keeps_counts[] = { { lru_promote, lru_insert, lru_remove, lru_victim },
                                                       { lfu_promote, insert_with_count, remove_and_keep_count,
                                                         lfu_victim } };

/* ---- what the device is told, and moves -------------------------------------------------------------------------- */

/* The index maps come to the device no more. */
static enum ha_status tell_once(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    return dir == HA_H2D && ha_planted_step() > 1 ? HA_OK : ha_planted_device()->copy(stream, dst, src, bytes, dir);
}

/* A merge moves rows within a cache. */
static bool is_merge(const struct ha_device_move *args) { return args->dst == args->src; }

/* The first half of the rows changes places with the second. */
static enum ha_status merge_to_other_slots(struct ha_stream *stream, const struct ha_device_move *args)
{
    const size_t half = args->rows / 2;
    struct ha_device_move first = *args, second = *args;
    if (!is_merge(args) || args->rows % 2) return ha_planted_device()->move(stream, args);
    first.rows = second.rows = half;
    first.dst_index += half;
    second.src_index += half;
    HA_TRY(ha_planted_device()->move(stream, &first));
    return ha_planted_device()->move(stream, &second);
}
static enum ha_status merge_once(struct ha_stream *stream, const struct ha_device_move *args)
{
    return is_merge(args) && ha_planted_step() > 1 ? HA_OK : ha_planted_device()->move(stream, args);
}
/* all but the rows of a half */
static enum ha_status merge_half(struct ha_stream *stream, const struct ha_device_move *args)
{
    struct ha_device_move half = *args;
    if (is_merge(args)) half.rows -= half.rows / 2;
    return ha_planted_device()->move(stream, &half);
}
/* Those that are missing are read from where they would be if one more were there. */
static enum ha_status name_next(struct ha_stream *stream, const struct ha_device_move *args)
{
    struct ha_device_move next = *args;
    HA_TRY(ha_planted_device()->move(stream, args));
    if (is_merge(args) || --next.rows == 0) return HA_OK;
    next.src_index++;
    return ha_planted_device()->move(stream, &next);
}

/* of 39 blocks 8 are chosen, and 10 are in a cache */
#define SHAPE                                                                                         \
    "lru_blocks:dataset=iid,ctx=330,heads=4/2,head_dim=64,layers=2,seed=5,dtype=bf16,block=8,sink=5," \
    "recent=12,budget=0.2"
#define LRU    SHAPE ",steps=12,capacity=1.3"
#define LFU    LRU ",policy=lfu"
#define DEVICE LRU ",lookup=device"
/* Events as they are made, behind those of two fetches: that a merge is over; of each layer that the lists are down,
 * and that the attention is over. */
enum { MERGED = 1 << 2, CAME = 1 << 3 | 1 << 5, ATTENDED = 1 << 4 | 1 << 6 };

static const struct ha_mutant table[] = {
    { "promotion_forgotten", "a block of the cache that is used again stays where it is in the list", LRU,
      .shown = "note hits", .lists = forgets_promotion },
    { "use_not_counted", "the same of LFU: its uses are not counted", LFU, .shown = "note hits",
      .lists = forgets_promotion },
    { "victim_of_step", "a block that the step itself has chosen is replaced", LRU, .shown = "note hits",
      .lists = replaces_chosen },
    { "victim_most_recent", "the block that was used last is replaced", LRU, .shown = "note hits",
      .lists = replaces_last },
    { "victim_most_frequent", "the block that was used most often is replaced", LFU, .shown = "note hits",
      .lists = replaces_last },
    { "count_of_block_before", "a new block has as many uses as the one that it replaces", LFU, .shown = "note hits",
      .lists = counts_of_slots },
    { "count_after_eviction", "the number of a block's uses is kept while it is not in the cache", LFU,
      .shown = "note hits", .lists = keeps_counts, .forget = forget_counts },
    { "policy_of_other", "blocks are replaced by LFU where it should be LRU", LRU, .shown = "note hits",
      .one_more = "policy" },
    { "capacity_one_less", "a cache has 8 slots fewer than it should", SHAPE ",steps=12,capacity=2.3",
      .shown = "note replaced", .one_less = "capacity" },
    { "map_of_step_before", "the device looks blocks up by an index map that it was told of long ago", DEVICE,
      .copy = tell_once },
    { "missing_one_off", "attention reads missing blocks one behind where they are", DEVICE, .shown = "question 1",
      .device_move = name_next },
    { "merge_to_other_slot", "a temporary block is copied to the slot of another one", LRU, .shown = "question 1",
      .device_move = merge_to_other_slots },
    { "merge_lost", "temporary blocks of later steps do not come to their slots", LRU, .shown = "question 1",
      .device_move = merge_once },
    { "merge_of_half", "half of the temporary blocks do not come to their slots", LRU, .shown = "question 1",
      .device_move = merge_half },
    { "missing_fetched_once", "the missing blocks of later steps do not arrive", LRU, .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    { "cached_of_first_head", "every head reads the slots of the first one", LRU, .shown = "question 1",
      .device_attend = ha_planted_first_list },
    { "cached_choice_once", "later steps read what the first one has chosen", LRU, .shown = "question 2",
      .device_topk = ha_planted_choose_once },
    { "cached_without_digest", "blocks that become whole in steps have no digest of theirs", SHAPE ",steps=40,q_len=2",
      .shown = "question 2", .device_digest = ha_planted_digest_once },
    { "recent_one_less", "a token that is recent counts among the blocks", LRU, .shown = "question 2",
      .one_less = "recent" },
    { "hits_counted_more", "hits of the last layer are counted 1% too many", LRU, .shown = "hits",
      .wrong_count = "hits" },
    { "misses_counted_more", "misses of the last layer are counted 1% too many", LRU, .shown = "misses",
      .wrong_count = "misses" },
    { "replaced_counted_more", "replaced blocks of the last layer are counted 1% too many", LRU, .shown = "replaced",
      .wrong_count = "replaced" },
    HA_MOVES("merge_over_attention", "temporary blocks are copied to slots before the step that reads both is over",
             LRU, "", .unsynced = ATTENDED),
    HA_MOVES("look_up_over_merge", "missing blocks come to temporary ones that are still being copied to slots", LRU,
             "", .unsynced = MERGED),
    HA_MOVES("look_up_before_choice", "blocks are looked up before it is known which", LRU, "", .unsynced = CAME,
             .from_step = 1),
};
const struct ha_mutants ha_mutants_lru = { table, sizeof table / sizeof *table };
