/* Caches of blocks against a model: what is resident in each step, at slots of its own, with the bytes of the store;
 * what a recall drops and when what it brings is there; that nothing waits for one whose stream is held back; and what
 * cannot be. The history of the process (harness/base/order.h) says what is not ordered, whenever it ran. */

#include "harness/base/rng.h"
#include "suites/block_sparse/recall.h"
#include "suites/parts/test_instance.h"

enum { WAYS = HA_FETCH_GATHER + 1, LAYERS = 3, SEQS = 2, HEADS = 2, UNITS = SEQS * HEADS, UNIT = 8, SLOTS = 4 };
enum { STEPS = 48, CACHE_BYTES = SLOTS * UNIT * HEADS * 4 * sizeof(float) };
static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = 1,
                                       .layers = LAYERS,
                                       .q_heads = HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = 4,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .steps = STEPS,
                                       .ctx = { 64, 7 } };

/* ---- a device whose recalls are held back, and who waits for one --------------------------------------------------
 */

static struct {
    struct ha_stream *main, *recall; /* by their names */
    bool is_held;
    uint32_t *gate, turn;                /* mapped; the stream waits for it to be turn */
    struct ha_event *behind[3 * LAYERS]; /* recorded there since */
    size_t behind_count;
    size_t awaited; /* by the main stream */
} held;

static bool is_behind(const struct ha_event *event)
{
    for (size_t i = 0; i < held.behind_count; i++)
        if (held.behind[i] == event) return true;
    return false;
}
static enum ha_status stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                    struct ha_why *because)
{
    const enum ha_status status = ha_device_host.stream_create(dev, name, stream, because);
    *(strcmp(name, "recall") ? &held.main : &held.recall) = *stream;
    return status;
}
static enum ha_status event_record(struct ha_event *event, struct ha_stream *s)
{
    for (size_t i = 0; i < held.behind_count; i++)
        if (held.behind[i] == event) held.behind[i] = held.behind[--held.behind_count];
    if (held.is_held && s == held.recall) {
        assert_in_range(held.behind_count, 0, COUNT(held.behind) - 1);
        held.behind[held.behind_count++] = event;
    }
    return ha_device_host.event_record(event, s);
}
static enum ha_status event_sync(struct ha_event *event)
{
    if (is_behind(event)) fail_msg("the host waits for a recall");
    return ha_device_host.event_sync(event);
}
static enum ha_status stream_sync(struct ha_stream *s)
{
    if (held.is_held && s == held.recall) fail_msg("the host waits for all recalls");
    return ha_device_host.stream_sync(s);
}
static enum ha_status stream_wait(struct ha_stream *s, struct ha_event *event)
{
    held.awaited += s == held.main && is_behind(event);
    return ha_device_host.stream_wait(s, event);
}

static void hold(void)
{
    ok(ha_device_host.flag_wait(held.recall, held.gate, ++held.turn));
    held.is_held = true;
    held.awaited = 0;
}
static void let_go(void)
{
    held.is_held = false;
    held.behind_count = 0;
    __atomic_store_n(held.gate, held.turn, __ATOMIC_RELEASE);
}

/* ---- an instance with nothing but a recall ------------------------------------------------------------------------
 */

static struct {
    struct ha_device_api api;
    struct ha_recall *r;
    unsigned char *down; /* pinned: K and V of UNIT rows of a head */
    uint32_t *table;     /* pinned: of a layer */
    enum ha_fetch_way way;
    bool waits;
} w;

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.r = first->shared;
    return ha_recall_create(w.r, first, UNIT, SLOTS, w.waits, w.way, because);
}
static const struct ha_rule rule = { .shared_bytes = sizeof(struct ha_recall), .share = share };

static void fill_stores(void)
{
    for (size_t i = 0; i < LAYERS * SEQS; i++) {
        const struct ha_kv *store = &w.r->layer[i / SEQS].store[i % SEQS];
        for (size_t x = 0; x < store->cap * ha_kv_token_bytes(&shape); x++) {
            store->k[x] = (unsigned char)ha_rng_bits(1, 2 * i, x);
            store->v[x] = (unsigned char)ha_rng_bits(1, 2 * i + 1, x);
        }
    }
}

static enum ha_status try_open(enum ha_fetch_way way, bool waits, bool has_flags)
{
    memset(&held, 0, sizeof held);
    memset(&w, 0, sizeof w);
    w.way = way;
    w.waits = waits;
    w.api = ha_device_host;
    w.api.stream_create = stream_create;
    w.api.event_record = event_record;
    w.api.event_sync = event_sync;
    w.api.stream_sync = stream_sync;
    w.api.stream_wait = stream_wait;
    if (!has_flags) w.api.flag_write = NULL;
    open_context(&w.api, &shape, &rule);
    held.gate = memory_of(HA_MEM_MAPPED, sizeof *held.gate);
    __atomic_store_n(held.gate, 0, __ATOMIC_RELEASE);
    return make_instance();
}

static void open_recall(enum ha_fetch_way way, bool waits)
{
    ok(try_open(way, waits, true));
    w.down = memory_of(HA_MEM_PINNED, 2 * UNIT * ha_kv_head_bytes(&shape));
    w.table = memory_of(HA_MEM_PINNED, UNITS * w.r->blocks_max * sizeof *w.table);
    assert_int_equal(w.r->slots, SLOTS);
    fill_stores();
}

/* ---- lists of blocks, and what is resident ------------------------------------------------------------------------
 */

struct lists {
    uint32_t block[UNITS][SLOTS];
    size_t count[UNITS];
};

static bool has(const struct lists *x, size_t u, uint32_t block)
{
    for (size_t i = 0; i < x->count[u]; i++)
        if (x->block[u][i] == block) return true;
    return false;
}

/* as many as a cache has of so many, each set as likely as any other */
static void draw(struct lists *to, const size_t *blocks, uint64_t seed)
{
    memset(to->block, 0xFF, sizeof to->block);
    for (size_t u = 0; u < UNITS; u++) {
        const size_t n = blocks[u / HEADS], held_blocks = n < SLOTS ? n : SLOTS;
        assert_int_equal(ha_recall_held(w.r, n), held_blocks);
        to->count[u] = 0;
        for (size_t i = 0; i < n; i++)
            if (ha_rng_below(seed, u, i, n - i) < held_blocks - to->count[u])
                to->block[u][to->count[u]++] = (uint32_t)i;
    }
}

/* those of a that b has, too; the number of those of b that a has not */
static size_t keep(struct lists *to, const struct lists *a, const struct lists *b)
{
    size_t others = 0;
    for (size_t u = 0; u < UNITS; u++) {
        to->count[u] = 0;
        for (size_t i = 0; i < a->count[u]; i++)
            if (has(b, u, a->block[u][i])) to->block[u][to->count[u]++] = a->block[u][i];
        others += b->count[u] - to->count[u];
    }
    return others;
}

/* what a KV head has in a slot, K and V, read by the main stream, which reads nothing beside it */
static void read_slot(size_t layer, size_t u, uint32_t slot)
{
    const struct ha_kv *cache = &w.r->layer[layer].cache[u / HEADS];
    const size_t row = ha_kv_head_bytes(&shape), token = ha_kv_token_bytes(&shape);
    const size_t at = slot * UNIT * token + u % HEADS * row;
    for (size_t v = 0; v < 2; v++)
        ok(mine.ctx.api->copy_2d(mine.ctx.stream, w.down + v * UNIT * row, row, (v ? cache->v : cache->k) + at, token,
                                 row, UNIT, HA_D2H));
}

/* as the layer's attention does, and nobody waits for it */
static void read_residents(size_t layer)
{
    for (size_t u = 0; u < UNITS; u++) {
        const struct ha_resident_set now = ha_residency_now(&w.r->resident, layer, u / HEADS, u % HEADS);
        for (size_t i = 0; i < *now.count; i++) read_slot(layer, u, now.entry[i].slot);
    }
}

static void assert_bytes(size_t layer, size_t u, uint32_t block, uint32_t slot)
{
    const struct ha_kv *store = &w.r->layer[layer].store[u / HEADS];
    const size_t row = ha_kv_head_bytes(&shape), token = ha_kv_token_bytes(&shape), head = u % HEADS * row;
    read_slot(layer, u, slot);
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t i = 0; i < 2 * UNIT; i++)
        if (memcmp(w.down + i * row, (i < UNIT ? store->k : store->v) + (block * UNIT + i % UNIT) * token + head, row))
            fail_msg("fetch=%s, %s of row %zu of block %u of layer %zu, unit %zu", ha_fetch_word(w.way),
                     i < UNIT ? "K" : "V", i % UNIT, block, layer, u);
}

/* These are resident, each at a slot of its own, and on the device no others have one. */
static void assert_resident(size_t layer, const struct lists *want)
{
    const size_t most = w.r->blocks_max;
    ok(mine.ctx.api->copy(mine.ctx.stream, w.table, w.r->layer[layer].slot_device, UNITS * most * sizeof *w.table,
                          HA_D2H));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t u = 0; u < UNITS; u++) {
        const struct ha_resident_set now = ha_residency_now(&w.r->resident, layer, u / HEADS, u % HEADS);
        unsigned taken = 0;
        assert_int_equal(*now.count, want->count[u]);
        for (uint32_t b = 0; b < most; b++) {
            const uint32_t slot = ha_resident_find(now, b);
            assert_int_equal(w.table[u * most + b], slot);
            assert_int_equal(slot != HA_SLOT_NONE, has(want, u, b));
            if (slot == HA_SLOT_NONE) continue;
            assert_true(slot < SLOTS && !(taken & 1U << slot));
            taken |= 1U << slot;
            assert_bytes(layer, u, b, slot);
        }
    }
}

static void snapshot(size_t layer, bool landed, const struct lists *want)
{
    ok(ha_recall_snapshot(w.r, layer, &why));
    assert_int_equal(w.r->layer[layer].landed, landed);
    assert_resident(layer, want);
}

static void load(size_t layer, const struct lists *want, const size_t *blocks)
{
    ok(ha_recall_load(w.r, layer, want->block[0], blocks, &why));
    assert_resident(layer, want);
    snapshot(layer, false, want);
}

static size_t issue(size_t layer, const struct lists *want, const size_t *blocks)
{
    struct lists told = *want; /* and gone when it returns */
    const double before = w.r->layer[layer].recalled;
    ok(ha_recall_issue(w.r, layer, told.block[0], blocks, &why));
    memset(&told, 0, sizeof told);
    return (size_t)(w.r->layer[layer].recalled - before);
}

/* The copies of all recalls are done, and the device has said so; of the host's wait the history knows nothing. */
static void arrive(void)
{
    let_go();
    ok(ha_device_host.stream_sync(w.r->stream));
}

/* All that the caches of a layer hold, which are host memory of the embedded device. */
static void look(size_t layer, unsigned char held_bytes[2 * SEQS][CACHE_BYTES])
{
    for (size_t i = 0; i < 2 * SEQS; i++) {
        const struct ha_kv *cache = &w.r->layer[layer].cache[i / 2];
        assert_int_equal(cache->cap * ha_kv_token_bytes(&shape), CACHE_BYTES);
        memcpy(held_bytes[i], i % 2 ? cache->v : cache->k, CACHE_BYTES);
    }
}

/* ---- the tests ----------------------------------------------------------------------------------------------------
 */

/* Of what was there before nothing is left, and what was under way does not land. */
TEST(test_load)
{
    static const size_t blocks[][SEQS] = { { 8, 0 }, { 3, 1 }, { 14, 6 }, { 0, 0 }, { 4, 5 } };
    for (int way = 0; way < WAYS; way++) {
        open_recall((enum ha_fetch_way)way, false);
        for (size_t i = 0; i < COUNT(blocks); i++)
            for (size_t layer = 0; layer < LAYERS; layer++) {
                struct lists first, then;
                draw(&first, blocks[i], 10 * i + layer);
                draw(&then, blocks[i], 100 + 10 * i + layer);
                load(layer, &first, blocks[i]);
                issue(layer, &then, blocks[i]);
                ok(ha_frame_drain(mine.frame, &why));
                load(layer, &then, blocks[i]);
            }
        close_instance();
    }
}

/* All layers are due in one step, and the link stands still: no host thread and no main stream waits. What a recall
 * drops is gone from the next snapshot, what it brings there from the first one after it has arrived. */
TEST(test_recalls)
{
    enum { ROUNDS = 8 };
    for (int way = 0; way < WAYS; way++) {
        struct lists now[LAYERS], want[LAYERS], kept[LAYERS];
        static unsigned char before[LAYERS][2 * SEQS][CACHE_BYTES], after[2 * SEQS][CACHE_BYTES];
        size_t blocks[SEQS] = { 8, 0 };
        open_recall((enum ha_fetch_way)way, false);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            draw(&now[layer], blocks, layer);
            load(layer, &now[layer], blocks);
        }
        for (size_t round = 0; round < ROUNDS; round++) {
            for (size_t b = 0; b < SEQS; b++) blocks[b] += round % 3 == 2;
            hold();
            for (size_t layer = 0; layer < LAYERS; layer++) {
                look(layer, before[layer]);
                if (round == 4) want[layer] = now[layer]; /* nothing comes */
                else draw(&want[layer], blocks, 100 + 10 * round + layer);
                const size_t coming = keep(&kept[layer], &now[layer], &want[layer]);
                read_residents(layer);
                assert_int_equal(issue(layer, &want[layer], blocks), coming);
            }
            for (int again = 0; again < 2; again++)
                for (size_t layer = 0; layer < LAYERS; layer++) {
                    snapshot(layer, false, &kept[layer]);
                    look(layer, after);
                    assert_memory_equal(before[layer], after, sizeof after);
                }
            assert_int_equal(held.awaited, 0);
            arrive();
            for (size_t layer = 0; layer < LAYERS; layer++) {
                assert_resident(layer, &kept[layer]);
                if (round % 2) { /* or else the next recall follows at once */
                    snapshot(layer, true, &want[layer]);
                    snapshot(layer, false, &want[layer]);
                } else {
                    ok(ha_recall_snapshot(w.r, layer, &why));
                    assert_true(w.r->layer[layer].landed);
                }
                now[layer] = want[layer];
            }
        }
        close_instance();
    }
}

/* The next snapshot has what was issued, arrived or not; the main stream waits for it, the host does not. */
TEST(test_waits)
{
    static const size_t blocks[SEQS] = { 14, 5 };
    for (int way = 0; way < WAYS; way++) {
        open_recall((enum ha_fetch_way)way, true);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            struct lists now, want;
            draw(&now, blocks, layer);
            draw(&want, blocks, 100 + layer);
            load(layer, &now, blocks);
            hold();
            assert_true(issue(layer, &want, blocks) > 0);
            ok(ha_recall_snapshot(w.r, layer, &why));
            assert_true(w.r->layer[layer].landed);
            assert_int_equal(held.awaited, 1);
            let_go();
            assert_resident(layer, &want);
            snapshot(layer, false, &want);
        }
        close_instance();
    }
}

/* What a device wrote that computes nothing, say. Nothing is changed by it. */
TEST(test_refused)
{
    static const size_t right[SEQS] = { 8, 5 };
    static const struct {
        size_t unit, at;
        uint32_t block; /* there instead of i + 1 */
        size_t blocks[SEQS];
        const char *words;
    } cases[] = {
        { 0, 3, 8, { 8, 5 }, "blocks to recall: entry 3 of a list is 8, of 8" },
        { 3, 3, 5, { 8, 5 }, "blocks to recall: entry 3 of a list is 5, of 5" },
        { 1, 0, UINT32_MAX, { 8, 5 }, "blocks to recall: entry 0 of a list is 4294967295, of 8" },
        { 2, 1, 1, { 8, 5 }, "blocks to recall: a list does not rise: 1 behind 1" },
        { 0, 2, 0, { 8, 5 }, "blocks to recall: a list does not rise: 0 behind 2" },
        { 0, 0, 1, { 15, 5 }, "recall: layer 1, sequence 0: 15 blocks, with room for 14" },
        { 0, 0, 1, { 8, 7 }, "recall: layer 1, sequence 1: 7 blocks, with room for 6" },
        { 0, 0, 1, { 8, SIZE_MAX }, "recall: layer 1, sequence 1: 18446744073709551615 blocks, with room for 6" },
    };
    struct lists now, next, kept, want;
    open_recall(HA_FETCH_PIECES, false);
    draw(&now, right, 1);
    draw(&next, right, 2);
    load(1, &now, right);
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t u = 0; u < UNITS; u++)
            for (uint32_t x = 0; x < SLOTS; x++) want.block[u][x] = x + 1;
        want.block[cases[i].unit][cases[i].at] = cases[i].block;
        assert_int_equal(ha_recall_issue(w.r, 1, want.block[0], cases[i].blocks, &why), HA_ERROR);
        assert_string_equal(why.text, cases[i].words);
        assert_int_equal(ha_recall_load(w.r, 1, want.block[0], cases[i].blocks, &why), HA_ERROR);
        assert_string_equal(why.text, cases[i].words);
        snapshot(1, false, &now);
    }
    keep(&kept, &now, &next);
    hold();
    issue(1, &next, right);
    assert_int_equal(ha_recall_issue(w.r, 1, now.block[0], right, &why), HA_ERROR);
    assert_string_equal(why.text, "recall: one of layer 1 is under way");
    snapshot(1, false, &kept);
    arrive();
    snapshot(1, true, &next);
    close_instance();
}

TEST(test_waived)
{
    assert_int_equal(try_open(HA_FETCH_GATHER, false, false), HA_WAIVED);
    assert_string_equal(why.text, "the device has no operation flag_write");
    close_instance();
}
