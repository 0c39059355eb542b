/* Caches of blocks behave as a plain simulation that keeps a time and a number of uses for each block and searches all
 * of them: through random choices of few and of many blocks, of caches without room, with just enough, with too little
 * and with more than there are blocks. The list is whole from either end after each update. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/parts/block_cache.h"
#include "suites/parts/test_memory.h"

enum { LAYERS = 2, BATCH = 2, HEADS = 2, BLOCKS = 40, STEPS = 400 };

static struct ha_why why;
static const struct ha_shape shape = { .layers = LAYERS, .batch = BATCH, .q_heads = 4, .kv_heads = HEADS };
static struct ha_context ctx = { .shape = &shape, .api = &memory };
static struct ha_block_cache cache;

static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static int set_up(void **state)
{
    ok(ha_arena_create(&ctx.arena, true, &why));
    ok(ha_device_arena_create(&ctx.device_arena, &memory, NULL, &why));
    return 0;
}

static int tear_down(void **state)
{
    ok(ha_arena_check(ctx.arena, &why));
    ha_arena_destroy(ctx.arena);
    ha_device_arena_destroy(ctx.device_arena);
    return 0;
}
#define CACHE_TEST(name) TEST_WITH(name, set_up, tear_down)

/* ---- the simulation ---------------------------------------------------------------------------------------------- */

struct plain {
    bool counts;
    size_t slots, uses; /* uses are counted no further */
    struct {
        bool here, chosen;
        size_t slot, count, time;
    } of[BLOCKS];
    size_t time;
};

static bool sooner(const struct plain *p, size_t a, size_t b)
{
    if (p->counts && p->of[a].count != p->of[b].count) return p->of[a].count < p->of[b].count;
    return p->of[a].time < p->of[b].time;
}

/* the smallest slot that no block has, or SIZE_MAX */
static size_t free_slot(const struct plain *p)
{
    for (size_t slot = 0; slot < p->slots; slot++) {
        bool taken = false;
        for (size_t x = 0; x < BLOCKS; x++) taken |= p->of[x].here && p->of[x].slot == slot;
        if (!taken) return slot;
    }
    return SIZE_MAX;
}

static size_t plain_use(struct plain *p, const uint32_t *block, size_t count, uint32_t *to)
{
    size_t replaced = 0;
    bool came[BLOCKS] = { false };
    for (size_t x = 0; x < BLOCKS; x++) p->of[x].chosen = false;
    for (size_t i = 0; i < count; i++) p->of[block[i]].chosen = true;
    for (size_t i = 0; i < count; i++) {
        to[i] = HA_SLOT_NONE;
        if (p->of[block[i]].here) continue;
        if (free_slot(p) == SIZE_MAX) {
            size_t victim = BLOCKS;
            for (size_t x = 0; x < BLOCKS; x++)
                if (p->of[x].here && !p->of[x].chosen && (victim == BLOCKS || sooner(p, x, victim))) victim = x;
            if (victim == BLOCKS) continue;
            p->of[victim].here = false;
            replaced++;
        }
        to[i] = (uint32_t)free_slot(p);
        p->of[block[i]].here = came[block[i]] = true;
        p->of[block[i]].slot = to[i];
    }
    for (size_t i = 0; i < count; i++) {
        const size_t x = block[i];
        p->of[x].time = ++p->time;
        p->of[x].count = came[x] ? 1 : ha_least(p->of[x].count + 1, p->uses);
    }
    return replaced;
}

/* ---- both, step by step ------------------------------------------------------------------------------------------ */

/* The list is all that is here, in the order in which it would be replaced; the map and the slots say the same. */
static void compare(const struct ha_block_list *l, const struct plain *p)
{
    size_t here = 0, walked = 0;
    uint32_t last = HA_SLOT_NONE;
    for (size_t x = 0; x < BLOCKS; x++) {
        here += p->of[x].here;
        assert_int_equal(l->slot[x], p->of[x].here ? p->of[x].slot : HA_SLOT_NONE);
        if (p->of[x].here) assert_int_equal(l->entry[l->slot[x]].block, x);
    }
    assert_int_equal(l->used, here);
    for (uint32_t s = l->first; s != HA_SLOT_NONE; last = s, s = l->entry[s].next, walked++) {
        assert_in_range(s, 0, l->slots - 1);
        assert_true(walked < here);
        assert_int_equal(l->entry[s].before, last);
        assert_false(l->entry[s].chosen);
        if (p->counts) assert_int_equal(l->entry[s].count, p->of[l->entry[s].block].count);
        if (last != HA_SLOT_NONE) assert_true(sooner(p, l->entry[last].block, l->entry[s].block));
    }
    assert_int_equal(walked, here);
    assert_int_equal(l->last, last);
}

static void look_up(const struct ha_block_list *l, const struct plain *p, const uint32_t *block, size_t count)
{
    uint32_t place[BLOCKS], missing[BLOCKS];
    const size_t absent = ha_block_list_find(l, block, count, place, missing);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (p->of[block[i]].here) {
            assert_int_equal(place[i], p->of[block[i]].slot);
            continue;
        }
        assert_int_equal(place[i], p->slots + at);
        assert_true(at < absent);
        assert_int_equal(missing[at++], block[i]);
    }
    assert_int_equal(at, absent);
}

/* A rising list of blocks below `end`, of which some are chosen more often than others. */
static size_t draw(uint64_t seed, uint64_t step, size_t end, size_t most, uint32_t *block)
{
    size_t count = 0;
    for (size_t x = 0; x < end && count < most; x++) {
        const bool favourite = x % 5 == step / 50 % 5;
        if (ha_rng_below(seed, step, x, 100) < (favourite ? 70u : 20u)) block[count++] = (uint32_t)x;
    }
    return count;
}

static void run(size_t policy, const size_t slots[BATCH], size_t most, size_t uses, uint64_t seed)
{
    static struct plain plain[LAYERS * BATCH * HEADS];
    ok(ha_block_cache_create(&cache, &ctx, policy, slots, BLOCKS, uses, &why));
    for (int again = 0; again < 2; again++) { /* cleared, it begins anew */
        for (size_t i = 0; i < LAYERS * BATCH * HEADS; i++)
            plain[i] = (struct plain){ .counts = policy == HA_BLOCK_LFU,
                                       .slots = slots[i / HEADS % BATCH],
                                       .uses = ha_most(uses, 1) };
        for (size_t step = 0; step < STEPS; step++)
            for (size_t i = 0; i < LAYERS * BATCH * HEADS; i++) {
                struct ha_block_list *l = ha_block_list_of(&cache, i / (BATCH * HEADS), i / HEADS % BATCH, i % HEADS);
                struct plain *p = &plain[i];
                uint32_t block[BLOCKS], to[BLOCKS], want[BLOCKS];
                const size_t end = ha_least(BLOCKS, 10 + step / 8),
                             count = draw(seed + i, step + (size_t)again * STEPS, end, most, block);
                look_up(l, p, block, count);
                const size_t replaced = plain_use(p, block, count, want);
                assert_int_equal(ha_block_list_use(l, block, count, to), replaced);
                for (size_t n = 0; n < count; n++) assert_int_equal(to[n], want[n]);
                compare(l, p);
            }
        for (size_t layer = 0; layer < LAYERS; layer++) ha_block_cache_clear(&cache, layer);
    }
}

CACHE_TEST(as_the_simulation)
{
    static const size_t slots[][BATCH] = { { 0, 1 }, { 6, 6 }, { 6, 18 }, { 13, 39 }, { 40, 41 }, { 100, 3 } };
    for (size_t policy = 0; policy < HA_BLOCK_POLICIES; policy++)
        for (size_t i = 0; i < COUNT(slots); i++) {
            run(policy, slots[i], 6, STEPS, 10 * i + policy);
            run(policy, slots[i], BLOCKS, STEPS, 10 * i + policy + 5);
        }
    run(HA_BLOCK_LFU, slots[2], 6, 3, 77); /* uses that are counted no further */
    run(HA_BLOCK_LFU, slots[2], 6, 0, 78);
}

/* Of each policy alone, by hand: 3 slots. */
CACHE_TEST(who_is_replaced)
{
    static const size_t slots[BATCH] = { 3, 3 };
    static const uint32_t first[] = { 1, 2, 3 }, again[] = { 1 }, fourth[] = { 4 }, fifth[] = { 2, 5 };
    uint32_t to[3];
    for (size_t policy = 0; policy < HA_BLOCK_POLICIES; policy++) {
        ok(ha_block_cache_create(&cache, &ctx, policy, slots, BLOCKS, 10, &why));
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
}

/* The maps of a layer are one table, as a device's split wants it. */
CACHE_TEST(maps_are_a_table)
{
    static const size_t slots[BATCH] = { 2, 3 };
    static const uint32_t block[] = { 7 };
    uint32_t to[1];
    ok(ha_block_cache_create(&cache, &ctx, HA_BLOCK_LRU, slots, BLOCKS, 1, &why));
    ha_block_list_use(ha_block_list_of(&cache, 1, 1, 0), block, 1, to);
    const uint32_t *map = ha_block_map_of(&cache, 1);
    for (size_t i = 0; i < BATCH * HEADS * BLOCKS; i++)
        assert_int_equal(map[i], i == (1 * HEADS + 0) * BLOCKS + 7 ? 0 : HA_SLOT_NONE);
    assert_ptr_equal(ha_block_map_of(&cache, 0) + BATCH * HEADS * BLOCKS, map);
    ha_block_cache_clear(&cache, 1);
    assert_int_equal(map[(1 * HEADS + 0) * BLOCKS + 7], HA_SLOT_NONE);
}
