/* The lists of lru_blocks and pqcache, by hand. What else its definition says is in suites/variants/test_spoiled.c. */

#include "reference/definitions.h"

#include "harness/base/test.h"

/* Six blocks, of which two are chosen in each step; a cache has three places. */
TEST(lists_by_hand)
{
    static const struct {
        unsigned chosen[2];
        double hits[2], replaced[2]; /* by LRU, by LFU */
    } step[] = {
        { { 0, 1 }, { 0, 0 }, { 0, 0 } }, /* two are there */
        { { 1, 2 }, { 1, 1 }, { 0, 0 } }, /* and 2 */
        { { 2, 3 }, { 1, 1 }, { 1, 1 } }, /* 3 for 0 by either: it is the oldest, and used once */
        { { 0, 1 }, { 1, 1 }, { 1, 1 } }, /* 0 for 2, used before 3; by LFU for 3, used once, as 2 is twice */
        { { 2, 3 }, { 1, 1 }, { 1, 1 } }, /* 2 for 0, and 3 is there; by LFU 3 for 0, used once */
        { { 0, 5 }, { 0, 0 }, { 2, 2 } }, /* for 1 and 2; by LFU for 3 and 1 or 2, of which 1 is older */
        { { 1, 3 }, { 1, 0 }, { 1, 2 } }, /* LRU has 3 still; LFU kept 2, used three times */
    };
    const struct ha_shape shape = { .layers = 1, .batch = 1, .q_heads = 1, .kv_heads = 1 };
    for (size_t lfu = 0; lfu < 2; lfu++) {
        struct ha_def_caches caches;
        struct ha_why why = { "" };
        assert_int_equal(ha_def_caches_create(&caches, &shape, lfu, &why), HA_OK);
        for (size_t i = 0; i < COUNT(step); i++) {
            const struct ha_selection said = {
                .note = { { "hits", step[i].hits[lfu] }, { "replaced", step[i].replaced[lfu] } }, .notes = 2
            };
            const struct ha_def_head h = { .variant = "lru_blocks", .chosen = &said };
            bool chosen[6] = { false };
            for (size_t j = 0; j < 2; j++) chosen[step[i].chosen[j]] = true;
            if (ha_def_caches_judge(&caches, &h, chosen, 6, 3, &why) != HA_OK)
                fail_msg("%s, step %zu: %s", lfu ? "LFU" : "LRU", i, why.text);
        }
        ha_def_caches_end(&caches);
    }
}
