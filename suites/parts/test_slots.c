/* Caches of blocks on the device: where a step reads each block of its lists there are its keys and values, whoever
 * looks up and whichever way they come; what is missing are those that a plain search of the cache's lists does not
 * find; and after an update each slot has the block that the index map says, on the device as well. */

#include "harness/base/rng.h"
#include "suites/parts/slots.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { LAYERS = 2, BATCH = 2, HEADS = 2, LISTS = BATCH * HEADS, DIM = 8, UNIT = 8, BLOCKS = 12, STEPS = 40 };
enum { TOKENS = UNIT * BLOCKS, LEAST = 5 };

static struct ha_shape shape;
static struct ha_slots slots;
static struct ha_slots_rule asked;
static struct ha_kv store[LAYERS][BATCH];
static uint64_t drawn;
static size_t below(size_t n) { return ha_rng_below(31, 0, drawn++, n); }
static uint32_t *chosen; /* device: [LISTS][list_max] */

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    return ha_slots_create(&slots, first, &asked, because);
}
static enum ha_status open_sequence(struct ha_layer *l, size_t b, struct ha_why *because)
{
    return ha_slots_open(&slots, l, b, &store[l->layer][b], because);
}
static const struct ha_rule rule = { .share = share, .open = open_sequence };

static float key(size_t layer, size_t b, size_t head, size_t token, size_t d)
{
    return (float)((((layer * BATCH + b) * HEADS + head) * TOKENS + token) * DIM + d);
}

static void begin(bool by_device, size_t policy, enum ha_fetch_way way, const size_t *most, const size_t *has)
{
    shape = (struct ha_shape){ .layers = LAYERS,
                               .batch = BATCH,
                               .q_heads = HEADS,
                               .kv_heads = HEADS,
                               .head_dim = DIM,
                               .dtype = HA_F32,
                               .scale = 1,
                               .ctx = { TOKENS, TOKENS },
                               .q_len = 1,
                               .steps = STEPS };
    asked = (struct ha_slots_rule){ by_device, policy, UNIT, has, most, BLOCKS, way };
    open_context(&ha_device_host, &shape, &rule);
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        struct ha_kv *kv = &store[i / BATCH][i % BATCH];
        ok(ha_kv_create(&mine.ctx, HA_MEM_MAPPED, TOKENS, kv, &why));
        float *k = (float *)(void *)kv->k, *v = (float *)(void *)kv->v;
        for (size_t j = 0; j < TOKENS * HEADS * DIM; j++) {
            k[j] = key(i / BATCH, i % BATCH, j / DIM % HEADS, j / DIM / HEADS, j % DIM);
            v[j] = -k[j];
        }
    }
    ok(make_instance());
    assert_int_equal(slots.list_max, ha_most(ha_most(most[0], most[1]), 1));
    chosen = memory_of(HA_MEM_DEVICE, LISTS * slots.list_max * sizeof *chosen);
}

/* A random rising list of `count` of the first `end` blocks. */
static void draw(uint32_t *list, size_t count, size_t end)
{
    size_t left = count;
    for (size_t block = 0; block < end; block++)
        if (below(end - block) < left) list[count - left--] = (uint32_t)block;
    assert_int_equal(left, 0);
}

/* Block `block` of a KV head in block `at` of its cache. */
static void assert_block(const struct ha_layer *l, size_t list, size_t at, size_t block)
{
    const struct ha_kv *kv = &slots.layer[l->layer].kv[list / HEADS];
    float k[UNIT][HEADS][DIM], v[UNIT][HEADS][DIM];
    assert_true((at + 1) * UNIT <= kv->cap);
    move(k, kv->k + at * sizeof k, sizeof k, HA_D2H);
    move(v, kv->v + at * sizeof v, sizeof v, HA_D2H);
    for (size_t i = 0; i < UNIT * DIM; i++) {
        const float is = key(l->layer, list / HEADS, list % HEADS, block * UNIT + i / DIM, i % DIM);
        if (k[i / DIM][list % HEADS][i % DIM] != is || v[i / DIM][list % HEADS][i % DIM] != -is)
            fail_msg("layer %zu, list %zu: block %zu is not at %zu", l->layer, list, block, at);
    }
}

/* One step of a layer, whose lists are random, against what a plain search says of the cache before it. */
static size_t step(const struct ha_layer *l)
{
    const struct ha_slots_layer *of = &slots.layer[l->layer];
    uint32_t list[LISTS][BLOCKS], flat[LISTS * BLOCKS] = { 0 }, place[LISTS * BLOCKS];
    size_t came = 0;
    for (size_t i = 0; i < LISTS; i++) {
        const size_t b = i / HEADS;
        if (i % HEADS == 0) of->end[b] = LEAST + below(BLOCKS - LEAST + 1);
        of->count[b] = ha_least(asked.most[b], of->end[b]);
        draw(list[i], of->count[b], of->end[b]);
        memcpy(flat + i * slots.list_max, list[i], of->count[b] * sizeof *flat);
    }
    bool has[LISTS][BLOCKS];
    size_t before[LISTS] = { 0 }, after[LISTS] = { 0 };
    for (size_t i = 0; i < LISTS * BLOCKS; i++) {
        const struct ha_block_list *cache = ha_block_list_of(&slots.cache, l->layer, i / BLOCKS / HEADS,
                                                             i / BLOCKS % HEADS);
        bool there = false;
        for (size_t slot = 0; slot < cache->used; slot++) there |= cache->entry[slot].block == i % BLOCKS;
        has[i / BLOCKS][i % BLOCKS] = there;
        before[i / BLOCKS] += there;
    }
    move(chosen, flat, LISTS * slots.list_max * sizeof *flat, HA_H2D);
    ok(ha_slots_ask(&slots, l, chosen));
    ok(ha_slots_look_up(&slots, l, &why));
    ok(ha_slots_fetch(&slots, l, &why));

    /* in place, by what attention reads by: who is there, and then who came */
    for (size_t b = 0; b < BATCH; b++) {
        struct ha_device_seq d = { .runs_count = 1 };
        ha_slots_device(&slots, l, b, &d);
        assert_true(d.runs_count == 2 && d.list_stride == slots.list_max && d.runs[1].k == of->kv[b].k);
        assert_int_equal(d.runs[1].keys, of->count[b] * UNIT);
        move(place + b * HEADS * slots.list_max, d.runs[1].index, HEADS * slots.list_max * sizeof *place, HA_D2H);
    }
    for (size_t i = 0; i < LISTS; i++) {
        size_t hits = 0, seen[BLOCKS] = { 0 };
        for (size_t j = 0; j < of->count[i / HEADS]; j++) hits += has[i][list[i][j]];
        assert_int_equal(of->hits[i], hits);
        came += of->count[i / HEADS] - hits;
        for (size_t j = 0; j < of->count[i / HEADS]; j++) {
            /* one of the list's blocks, each once, in whatever order */
            size_t found = BLOCKS;
            for (size_t k = 0; k < of->count[i / HEADS]; k++) {
                float first;
                const struct ha_kv *kv = &of->kv[i / HEADS];
                move(&first, kv->k + ((place[i * slots.list_max + j] * UNIT) * HEADS + i % HEADS) * DIM * sizeof first,
                     sizeof first, HA_D2H);
                if (first == key(l->layer, i / HEADS, i % HEADS, list[i][k] * UNIT, 0)) found = list[i][k];
            }
            assert_true(found < BLOCKS && !seen[found]++);
            assert_block(l, i, place[i * slots.list_max + j], found);
            assert_true((place[i * slots.list_max + j] < asked.slots[i / HEADS]) == has[i][found]);
        }
    }
    ok(ha_slots_attended(&slots, l));
    assert_int_equal(ha_slots_update(&slots, l), came > 0);
    if (came) ok(ha_slots_merge(&slots, l));

    for (size_t i = 0; i < LISTS; i++) {
        const struct ha_block_list *cache = ha_block_list_of(&slots.cache, l->layer, i / HEADS, i % HEADS);
        uint32_t map[BLOCKS];
        if (asked.by_device) move(map, of->map + i * BLOCKS, sizeof map, HA_D2H);
        for (size_t block = 0; block < BLOCKS; block++) {
            if (asked.by_device) assert_int_equal(map[block], cache->slot[block]);
            after[i] += cache->slot[block] != HA_SLOT_NONE;
            if (cache->slot[block] != HA_SLOT_NONE) assert_block(l, i, cache->slot[block], block);
        }
        for (size_t j = 0; j < of->count[i / HEADS]; j++) assert_true(cache->slot[list[i][j]] != HA_SLOT_NONE);
        assert_int_equal(before[i] + of->count[i / HEADS] - of->hits[i] - of->replaced[i], after[i]);
    }
    return came;
}

struct counters {
    double hits, misses, replaced, manage_ns, parts_ns;
};
static void add(void *arg, const char *name, size_t layer, double value)
{
    struct counters *c = arg;
    if (!strcmp(name, "hits")) c->hits += value;
    else if (!strcmp(name, "misses")) c->misses += value;
    else if (!strcmp(name, "replaced")) c->replaced += value;
    else if (!strcmp(name, "manage_ns")) c->manage_ns += value;
    else c->parts_ns += value;
}

TEST(what_a_step_reads_and_an_update_leaves)
{
    static const size_t mosts[][BATCH] = { { 3, 5 }, { 4, 1 }, { 0, 3 } },
                        slots_of[][BATCH] = { { 3, 7 }, { 12, 2 }, { 0, 3 } };
    static const enum ha_fetch_way ways[] = { HA_FETCH_PIECES, HA_FETCH_MOVE, HA_FETCH_GATHER };
    for (size_t i = 0; i < COUNT(mosts) * 2 * HA_BLOCK_POLICIES; i++) {
        struct ha_layer layer[LAYERS];
        begin(i % 2, i / 2 % HA_BLOCK_POLICIES, ways[i % COUNT(ways)], mosts[i / 2 / HA_BLOCK_POLICIES],
              slots_of[i / 2 / HA_BLOCK_POLICIES]);
        for (int again = 0; again < 2; again++) {
            double all = 0, came = 0, replaced = 0;
            struct counters sum = { 0 };
            for (size_t j = 0; j < LAYERS; j++) {
                layer[j] = (struct ha_layer){ .ctx = &mine.ctx, .layer = j };
                ok(ha_slots_clear(&slots, &layer[j]));
            }
            for (size_t t = 0; t < STEPS * LAYERS; t++) {
                const struct ha_slots_layer *of = &slots.layer[t % LAYERS];
                came += (double)step(&layer[t % LAYERS]);
                for (size_t j = 0; j < LISTS; j++) all += (double)of->count[j / HEADS];
                for (size_t j = 0; j < LISTS; j++) replaced += of->replaced[j];
            }
            for (size_t j = 0; j < LAYERS; j++) ha_slots_count(&slots, &layer[j], add, &sum);
            assert_true(sum.misses == came && sum.hits == all - came && sum.replaced == replaced);
            assert_near(sum.manage_ns, sum.parts_ns, 0.5);
            assert_true(came > 0 && sum.parts_ns > 0);
        }
        close_instance();
    }
}

/* Nothing is read or written by a list that cannot be one. */
TEST(lists_that_are_none_are_refused)
{
    static const size_t most[BATCH] = { 3, 3 }, has[BATCH] = { 4, 4 };
    static const struct {
        uint32_t entry[3];
        const char *text;
    } of[] = { { { 1, 5, 12 }, "blocks that the device chose: entry 2 of a list is 12, of 12" },
               { { 4, 4, 6 }, "blocks that the device chose: a list does not rise: 4 behind 4" },
               { { 4, 3, 6 }, "blocks that the device chose: a list does not rise: 3 behind 4" } };
    begin(false, HA_BLOCK_LRU, HA_FETCH_PIECES, most, has);
    const struct ha_layer layer = { .ctx = &mine.ctx };
    ok(ha_slots_clear(&slots, &layer));
    for (size_t b = 0; b < BATCH; b++) slots.layer[0].count[b] = 3;
    for (size_t b = 0; b < BATCH; b++) slots.layer[0].end[b] = BLOCKS;
    for (size_t i = 0; i < COUNT(of) * LISTS; i++) {
        uint32_t list[LISTS][3];
        for (size_t j = 0; j < LISTS * 3; j++) list[j / 3][j % 3] = (uint32_t)(j % 3);
        memcpy(list[i % LISTS], of[i / LISTS].entry, sizeof *list);
        move(chosen, list, sizeof list, HA_H2D);
        ok(ha_slots_ask(&slots, &layer, chosen));
        assert_int_equal(ha_slots_look_up(&slots, &layer, &why), HA_ERROR);
        assert_string_equal(why.text, of[i / LISTS].text);
    }
    close_instance();
}
