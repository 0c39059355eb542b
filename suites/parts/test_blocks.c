/* Blocks are the rows that they are to be, the ragged last one too; blocks and slots stay one to one against a model
 * through whatever is placed and evicted; the snapshot of a step does not change while the next one's is made. */

#include "harness/base/arena.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/base/thread.h"
#include "suites/parts/blocks.h"

enum { LAYERS = 2, BATCH = 2, HEADS = 2, SLOTS = 6, BLOCKS = 20 };

static struct ha_why why;
static const struct ha_shape shape = {
    .layers = LAYERS, .batch = BATCH, .q_heads = 4, .kv_heads = HEADS, .head_dim = 4, .dtype = HA_F16
};
static struct ha_context ctx = { .shape = &shape };
static struct ha_residency r;

static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static int set_up(void **state)
{
    ok(ha_arena_create(&ctx.arena, true, &why));
    ok(ha_residency_create(&r, &ctx, SLOTS, &why));
    return 0;
}

static int tear_down(void **state)
{
    ok(ha_arena_check(ctx.arena, &why));
    ha_arena_destroy(ctx.arena);
    return 0;
}
#define RESIDENCY_TEST(name) TEST_WITH(name, set_up, tear_down)

/* ---- blocks ------------------------------------------------------------------------------------- */

TEST(test_units)
{
    static const size_t good[] = { 16, 32, 64, 128 }, bad[] = { 0, 1, 24, 256, SIZE_MAX };
    for (int layout = 0; layout < 2; layout++) {
        for (size_t i = 0; i < COUNT(good); i++) ok(ha_block_check(good[i], (enum ha_kv_layout)layout, &why));
        for (size_t i = 0; i < COUNT(bad); i++)
            assert_int_equal(ha_block_check(bad[i], (enum ha_kv_layout)layout, &why), HA_ERROR);
    }
    ok(ha_block_check(8, HA_KV_NATURAL, &why));
    assert_int_equal(ha_block_check(8, HA_KV_PACKED, &why), HA_ERROR);
    assert_string_equal(why.text, "blocks of 8 tokens: 16, 32, 64 or 128 where layout=packed");
}

/* Token by token: each is in one block, at its place. */
TEST(test_rows_of_a_block)
{
    enum { CAP = 70 };
    static unsigned char k[CAP * HEADS * 4 * 2], v[sizeof k];
    const struct ha_kv kv = { .k = k, .v = v, .cap = CAP };
    for (size_t unit = 8; unit <= 128; unit *= 2)
        for (size_t tokens = 0; tokens <= CAP; tokens++) {
            uint32_t list[CAP];
            size_t token = 0;
            for (size_t i = 0; i < ha_block_count(unit, tokens); i++) {
                const size_t count = ha_block_tokens(unit, tokens, i);
                assert_in_range(count, 1, unit);
                for (size_t h = 0; h < HEADS; h++) {
                    const struct ha_rows rows = ha_block_rows(&shape, &kv, h, unit, i, count);
                    assert_int_equal(rows.keys, count);
                    assert_int_equal(rows.k_stride_bytes, HEADS * 4 * 2);
                    assert_int_equal(rows.v_stride_bytes, HEADS * 4 * 2);
                    assert_ptr_equal(rows.k, k + (token * HEADS + h) * 4 * 2);
                    assert_ptr_equal(rows.v, v + (token * HEADS + h) * 4 * 2);
                }
                token += count;
                list[i] = (uint32_t)i;
                assert_int_equal(ha_block_list_tokens(unit, tokens, list, i + 1), token);
                /* the last one alone, after another */
                const uint32_t two[] = { 0, list[i] };
                if (i) assert_int_equal(ha_block_list_tokens(unit, tokens, two, 2), unit + count);
            }
            assert_int_equal(token, tokens);
            assert_int_equal(ha_block_tokens(unit, tokens, ha_block_count(unit, tokens)), 0);
            assert_int_equal(ha_block_list_tokens(unit, tokens, list, 0), 0);
        }
}

/* ---- residency ------------------------------------------------------------------------------------ */

/* what is where, by block */
struct model {
    uint32_t slot[BLOCKS];
    size_t count;
};

static void assert_like(struct ha_resident_set set, const struct model *m)
{
    bool used[SLOTS] = { false };
    uint32_t all[BLOCKS], resident[BLOCKS], slot[BLOCKS], missing[BLOCKS];
    size_t here = 0, gone = 0;
    assert_int_equal(*set.count, m->count);
    for (size_t i = 0; i < SLOTS; i++) { /* each slot once, rising blocks before what is free */
        assert_in_range(set.entry[i].slot, 0, SLOTS - 1);
        assert_false(used[set.entry[i].slot]);
        used[set.entry[i].slot] = true;
        assert_int_equal(set.entry[i].block == HA_BLOCK_NONE, i >= m->count);
        assert_int_equal(ha_resident_block(set, set.entry[i].slot), set.entry[i].block);
        if (i && i < m->count) assert_true(set.entry[i - 1].block < set.entry[i].block);
    }
    for (uint32_t x = 0; x < BLOCKS; x++) {
        all[x] = x;
        assert_int_equal(ha_resident_find(set, x), m->slot[x]);
    }
    /* every block, every second one, none */
    for (size_t step = 1; step <= BLOCKS + 1; step += step == 1 ? 1 : BLOCKS - 1) {
        size_t count = 0;
        for (uint32_t x = 0; x < BLOCKS && step <= BLOCKS; x += (uint32_t)step) all[count++] = x;
        const size_t n = ha_resident_split(set, all, count, resident, slot, missing);
        here = gone = 0;
        for (size_t i = 0; i < count; i++) {
            if (m->slot[all[i]] == HA_SLOT_NONE) assert_int_equal(missing[gone++], all[i]);
            else {
                assert_int_equal(resident[here], all[i]);
                assert_int_equal(slot[here++], m->slot[all[i]]);
            }
        }
        assert_int_equal(n, here);
        memset(slot, 0xFF, sizeof slot);
        assert_int_equal(ha_resident_split(set, all, count, NULL, slot, missing), n);
        for (size_t i = 0; i < n; i++) assert_int_equal(slot[i], m->slot[resident[i]]);
    }
}

static struct model models[LAYERS][BATCH][HEADS];

static void forget(size_t layer)
{
    for (size_t i = 0; i < BATCH * HEADS; i++) {
        struct model *m = &models[layer][i / HEADS][i % HEADS];
        for (size_t x = 0; x < BLOCKS; x++) m->slot[x] = HA_SLOT_NONE;
        m->count = 0;
    }
}

static void assert_all(size_t layer, const struct model (*want)[HEADS], bool next)
{
    for (size_t b = 0; b < BATCH; b++)
        for (size_t h = 0; h < HEADS; h++)
            assert_like(next ? ha_residency_next(&r, layer, b, h) : ha_residency_now(&r, layer, b, h), &want[b][h]);
}

/* A block comes, or goes, of one head; what was free has no other block. */
static void change(struct model *m, struct ha_resident_set set, uint32_t block, bool place)
{
    const uint32_t had = m->slot[block];
    if (!place) {
        assert_int_equal(ha_resident_evict(set, block), had);
        m->count -= had != HA_SLOT_NONE;
        m->slot[block] = HA_SLOT_NONE;
        return;
    }
    const bool full = had == HA_SLOT_NONE && m->count == SLOTS;
    const uint32_t slot = ha_resident_place(set, block);
    assert_int_equal(slot == HA_SLOT_NONE, full);
    if (had != HA_SLOT_NONE) assert_int_equal(slot, had);
    if (full || had != HA_SLOT_NONE) return;
    for (size_t x = 0; x < BLOCKS; x++) assert_true(m->slot[x] != slot);
    m->slot[block] = slot;
    m->count++;
}

/* Steps of random changes to every head of every layer, each layer turned on its own; after each step the snapshot is
 * what was next when the layer was turned last. */
RESIDENCY_TEST(test_against_a_model)
{
    static struct model now[LAYERS][BATCH][HEADS];
    size_t full = 0;
    for (size_t l = 0; l < LAYERS; l++) forget(l);
    memcpy(now, models, sizeof now);
    for (size_t step = 0; step < 60; step++) {
        for (size_t n = 0; n < 40; n++) {
            const uint64_t x = ha_rng_bits(3, step, n);
            const size_t l = x % LAYERS, b = x / 8 % BATCH, h = x / 64 % HEADS;
            struct model *m = &models[l][b][h];
            change(m, ha_residency_next(&r, l, b, h), (uint32_t)(x / 512 % BLOCKS), x / 65536 % 3 > 0);
            full += m->count == SLOTS;
        }
        for (size_t l = 0; l < LAYERS; l++) {
            assert_all(l, (const struct model(*)[HEADS])now[l], false);
            assert_all(l, (const struct model(*)[HEADS])models[l], true);
            if ((step + l) % 3 == 0) continue;
            const uint64_t before = r.generation[l];
            ha_residency_turn(&r, l);
            assert_int_equal(r.generation[l], before + 1);
            memcpy(now[l], models[l], sizeof now[l]);
            assert_all(l, (const struct model(*)[HEADS])now[l], false);
        }
    }
    assert_true(full > 0);
    ha_residency_clear(&r, 1);
    forget(1);
    assert_all(1, (const struct model(*)[HEADS])models[1], false);
    assert_all(1, (const struct model(*)[HEADS])models[1], true);
    assert_all(0, (const struct model(*)[HEADS])models[0], true);
}

/* A slot that a step still reads is handed out last. */
RESIDENCY_TEST(test_slots_wait_their_turn)
{
    struct ha_resident_set next = ha_residency_next(&r, 0, 0, 0);
    for (uint32_t x = 0; x < SLOTS - 2; x++) assert_int_equal(ha_resident_place(next, x), x);
    ha_residency_turn(&r, 0);
    const struct ha_resident_set now = ha_residency_now(&r, 0, 0, 0);
    next = ha_residency_next(&r, 0, 0, 0);
    const uint32_t evicted = ha_resident_evict(next, 1);
    assert_int_equal(evicted, 1);
    for (uint32_t x = 10; x < 12; x++)
        assert_int_equal(ha_resident_block(now, ha_resident_place(next, x)), HA_BLOCK_NONE);
    assert_int_equal(ha_resident_place(next, 12), evicted);
    assert_int_equal(ha_resident_block(now, evicted), 1);
    assert_int_equal(ha_resident_place(next, 13), HA_SLOT_NONE);
}

/* ---- a step reads while the next one is made ------------------------------------------------------ */

static void *make_next(void *arg)
{
    for (uint32_t n = 0; n < 200; n++)
        for (size_t h = 0; h < HEADS; h++) {
            struct ha_resident_set next = ha_residency_next(&r, 1, 0, h);
            ha_resident_evict(next, n * 7 % BLOCKS);
            ha_resident_place(next, n % BLOCKS);
        }
    return NULL;
}

RESIDENCY_TEST(test_reads_beside_changes)
{
    struct model m = { .count = 3 };
    pthread_t thread;
    for (size_t x = 0; x < BLOCKS; x++) m.slot[x] = HA_SLOT_NONE;
    for (uint32_t x = 4; x < 7; x++) m.slot[x] = ha_resident_place(ha_residency_next(&r, 1, 0, 0), x);
    ha_residency_turn(&r, 1);
    assert_int_equal(ha_thread_start(&thread, make_next, NULL), 0);
    for (size_t n = 0; n < 20; n++) assert_like(ha_residency_now(&r, 1, 0, 0), &m);
    pthread_join(thread, NULL);
    assert_like(ha_residency_now(&r, 1, 0, 0), &m);
}
