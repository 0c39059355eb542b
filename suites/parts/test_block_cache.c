/* Which block of a cache is replaced, by hand. Of random choices `habench check` judges it, of lru_blocks and pqcache.
 */

#include "suites/parts/block_cache.h"
#include "suites/parts/test_instance.h"

enum { BLOCKS = 40 };
static const struct ha_shape shape = { .layers = 2, .batch = 2, .q_heads = 4, .kv_heads = 2 };
static const struct ha_rule nothing = { .seq_bytes = 0 };

/* Of each policy alone, by hand: 3 slots. */
TEST(who_is_replaced)
{
    struct ha_block_cache cache;
    static const size_t slots[] = { 3, 3 };
    static const uint32_t first[] = { 1, 2, 3 }, again[] = { 1 }, fourth[] = { 4 }, fifth[] = { 2, 5 };
    uint32_t to[3];
    open_context(&ha_device_host, &shape, &nothing);
    for (size_t policy = 0; policy < HA_BLOCK_POLICIES; policy++) {
        ok(ha_block_cache_create(&cache, &mine.ctx, policy, slots, BLOCKS, 10, &why));
        struct ha_block_list *l = ha_block_list_of(&cache, 1, 1, 1);
        assert_int_equal(ha_block_list_use(l, first, 3, to), 0);
        for (uint32_t i = 0; i < 3; i++) assert_int_equal(to[i], i);
        for (int i = 0; i < 2; i++) assert_int_equal(ha_block_list_use(l, again, 1, to), 0);
        assert_int_equal(to[0], HA_SLOT_NONE);
        /* 2 is the one used longest ago, and the least often */
        assert_int_equal(ha_block_list_use(l, fourth, 1, to), 1);
        assert_int_equal(to[0], 1);
        assert_int_equal(l->slot[2], HA_SLOT_NONE);
        /* 2 comes to where 3 was; then of 1 and 4 LRU has 1 go, which was used before 4, LFU 4, which was used less */
        assert_int_equal(ha_block_list_use(l, fifth, 2, to), 2);
        assert_int_equal(to[0], 2);
        assert_int_equal(to[1], policy == HA_BLOCK_LRU ? 0 : 1);
        assert_int_equal(l->slot[1], policy == HA_BLOCK_LRU ? HA_SLOT_NONE : 0);
        /* what was replaced begins anew: 2 and 5 have one use each */
        for (uint32_t x = 2; policy == HA_BLOCK_LFU && x <= 5; x += 3) assert_int_equal(l->entry[l->slot[x]].count, 1);
    }
    close_instance();
}
