/* Chosen blocks divided by residency, against the plainest look at both lists: every chosen block is on one side, in
 * the order of its list, those of the cache by their slots; what either side reads of them, and what is said to be
 * used. */

#include "harness/base/rng.h"
#include "suites/block_sparse/divide.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { LAYERS = 4, SEQS = 4, Q_HEADS = 4, KV_HEADS = 2, UNIT = 8, SLOTS = 5, BLOCKS_MAX = 12, LIST_MAX = 4 };
enum { BUDGET = LIST_MAX * UNIT };
/* more blocks than a cache or a list has, more than a list, fewer than either, none */
static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = 1,
                                       .layers = LAYERS,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = 4,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .steps = 1,
                                       .ctx = { 95, 41, 17, 7 } };

struct list {
    uint32_t block[SLOTS];
    size_t count;
};

static struct {
    struct ha_recall recall;
    struct ha_device_choice choice;
    struct ha_divide divide;
    enum ha_group group;
    bool all;
    struct list resident[LAYERS][SEQS][KV_HEADS];
    struct list missing[LAYERS][SEQS][Q_HEADS]; /* what the CPU is to read */
    struct list chosen[SEQS][Q_HEADS];          /* as the last division had them */
    double cpu_tokens[LAYERS], steps[LAYERS];
} w;

static size_t blocks_of(size_t b) { return shape.ctx[b] / UNIT; }
static size_t kv_head(size_t list) { return list * KV_HEADS / w.choice.lists; }
static bool has(const struct list *of, uint32_t block)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->block[i] == block) return true;
    return false;
}

/* `most` of n blocks, each set as likely as any other, rising */
static struct list draw(size_t n, size_t most, uint64_t seed, uint64_t stream)
{
    struct list to = { .count = 0 };
    for (size_t i = 0; i < n; i++)
        if (ha_rng_below(seed, stream, i, n - i) < ha_least(most, n) - to.count) to.block[to.count++] = (uint32_t)i;
    return to;
}

/* ---- an instance with a cache and a choice ------------------------------------------------------------------------
 */

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    ok(ha_recall_create(&w.recall, first, UNIT, SLOTS, false, HA_FETCH_PIECES, because));
    if (w.all) ok(ha_recall_list_all(&w.recall, because));
    ok(ha_device_choice_create(&w.choice, first->ctx, w.group, HA_DIGEST_RANGE, UNIT, LIST_MAX, because));
    return ha_divide_create(&w.divide, &w.choice, &w.recall, BUDGET, because);
}
static const struct ha_rule rule = { .share = share };

static void load(size_t layer)
{
    uint32_t first[SEQS][KV_HEADS][SLOTS];
    size_t blocks[SEQS];
    for (size_t b = 0; b < SEQS; b++) {
        blocks[b] = blocks_of(b);
        for (size_t h = 0; h < KV_HEADS; h++) {
            w.resident[layer][b][h] = draw(blocks[b], SLOTS, 1, (layer * SEQS + b) * KV_HEADS + h);
            memcpy(first[b][h], w.resident[layer][b][h].block, sizeof first[b][h]);
        }
    }
    ok(ha_recall_load(&w.recall, layer, first[0][0], blocks, &why));
}

static void open_divide(enum ha_group group, bool all)
{
    memset(&w, 0, sizeof w);
    w.group = group;
    w.all = all;
    open_instance(&shape, &rule);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        ha_divide_reset(&w.divide, layer);
        load(layer);
    }
}

/* Blocks that a run of the choice would have found, drawn; and their division. */
static void divide(size_t layer, bool missing, uint64_t seed)
{
    uint32_t index[SEQS * Q_HEADS * LIST_MAX];
    for (size_t b = 0; b < SEQS; b++) {
        w.choice.by[b].blocks = blocks_of(b);
        w.choice.most[b].k = ha_least(LIST_MAX, blocks_of(b));
        for (size_t u = 0; u < w.choice.lists; u++) {
            const struct list *resident = &w.resident[layer][b][kv_head(u)];
            struct list *to = &w.chosen[b][u];
            *to = draw(blocks_of(b), LIST_MAX, seed, b * Q_HEADS + u);
            memcpy(index + (b * w.choice.lists + u) * LIST_MAX, to->block, LIST_MAX * sizeof *index);
            if (!missing) continue;
            struct list *left = &w.missing[layer][b][u];
            left->count = 0;
            for (size_t i = 0; i < to->count; i++)
                if (!has(resident, to->block[i])) left->block[left->count++] = to->block[i];
        }
    }
    move(w.choice.index, index, SEQS * w.choice.lists * LIST_MAX * sizeof *index, HA_H2D);
    ok(ha_divide_run(&w.divide, layer, missing));
    ok(ha_divide_down(&w.divide));
    w.steps[layer] += missing;
}

/* ---- what is read, and used ---------------------------------------------------------------------------------------
 */

/* The device reads of each list the slots of these blocks, in this order; or, of each KV head, of all that it has. */
static void assert_device(size_t layer, size_t b)
{
    struct ha_device_seq d = { .runs_count = 0 };
    ha_divide_device(&w.divide, layer, b, blocks_of(b), &d);
    const struct ha_rows *run = &d.runs[0];
    const struct ha_kv *cache = &w.recall.layer[layer].cache[b];
    assert_int_equal(d.runs_count, 1);
    assert_ptr_equal(run->k, cache->k);
    assert_ptr_equal(run->v, cache->v);
    for (size_t u = 0; u < (w.all ? KV_HEADS : w.choice.lists); u++) {
        const size_t head = w.all ? u : kv_head(u);
        const struct ha_resident_set now = ha_residency_now(&w.recall.resident, layer, b, head);
        const struct list *resident = &w.resident[layer][b][head], *of = w.all ? resident : &w.chosen[b][u];
        uint32_t slot[SLOTS], keys;
        size_t n = 0;
        assert_true(run->keys <= d.list_stride * UNIT);
        move(slot, run->index + u * d.list_stride, run->keys / UNIT * sizeof *slot, HA_D2H);
        move(&keys, d.list_keys + u, sizeof keys, HA_D2H);
        for (size_t i = 0; i < of->count; i++) {
            if (!has(resident, of->block[i])) continue;
            assert_true((n + 1) * UNIT <= run->keys);
            assert_int_equal(slot[n++], ha_resident_find(now, of->block[i]));
        }
        assert_int_equal(keys, n * UNIT);
    }
}

static void assert_cpu(size_t layer, size_t b)
{
    for (size_t u = 0; u < w.choice.lists; u++) {
        const struct ha_kv *store = &w.recall.layer[layer].store[b];
        const struct list *want = &w.missing[layer][b][u];
        struct ha_rows run;
        ha_divide_cpu(&w.divide, layer, b, u, &run);
        assert_ptr_equal(run.k, store->k + kv_head(u) * ha_kv_head_bytes(&shape));
        assert_ptr_equal(run.v, store->v + kv_head(u) * ha_kv_head_bytes(&shape));
        assert_int_equal(run.keys, want->count * UNIT);
        assert_memory_equal(run.index, want->block, want->count * sizeof *want->block);
        w.cpu_tokens[layer] += (double)run.keys;
    }
}

/* These are the tokens of the blocks of a list, or of those of them that are in another. */
static void assert_tokens(const struct ha_positions *tokens, const struct list *of, const struct list *in)
{
    size_t n = 0;
    for (size_t i = 0; i < of->count; i++)
        for (size_t t = 0; t < UNIT && (!in || has(in, of->block[i])); t++, n++) {
            assert_true(n < tokens->count);
            assert_int_equal(tokens->token[n], of->block[i] * UNIT + t);
        }
    assert_int_equal(tokens->count, n);
}

static void assert_used(size_t layer, size_t b)
{
    for (size_t h = 0; h < Q_HEADS; h++) {
        const size_t u = h * w.choice.lists / Q_HEADS;
        const struct list *resident = &w.resident[layer][b][h * KV_HEADS / Q_HEADS];
        struct ha_used used = { .padding = 0 };
        ok(ha_divide_use(&w.divide, layer, b, h, &used, &why));
        assert_tokens(&used.device, w.all ? resident : &w.chosen[b][u], resident);
        assert_tokens(&used.host, &w.missing[layer][b][u], NULL);
    }
}

static void hear(void *arg, const char *name, size_t layer, double value)
{
    assert_string_equal(name, "cpu_of_budget");
    assert_near(value, w.cpu_tokens[layer] / (w.steps[layer] * SEQS * (double)w.choice.lists * BUDGET), 1e-14);
    ((size_t *)arg)[layer]++;
}
static void assert_counted(void)
{
    size_t said[LAYERS] = { 0 };
    for (size_t layer = 0; layer < LAYERS; layer++) ha_divide_count(&w.divide, layer, hear, said);
    for (size_t layer = 0; layer < LAYERS; layer++) assert_int_equal(said[layer], w.steps[layer] > 0);
}

/* The CPU's part of a layer is divided in the step of the layer before, as scout does it, or with the device's. */
static void goes(enum ha_group group, bool all)
{
    open_divide(group, all);
    assert_counted();
    for (uint64_t step = 0; step < 12; step++) {
        for (size_t layer = 0; layer < LAYERS; layer++) {
            const bool ahead = layer > 0 && step % 3 > 0;
            if (layer + 1 < LAYERS && step % 3 > 0) divide(layer + 1, true, 100 * step + 2 * layer);
            divide(layer, !ahead, 100 * step + 2 * layer + 1);
            for (size_t b = 0; b < SEQS; b++) {
                assert_device(layer, b);
                assert_cpu(layer, b);
                assert_used(layer, b);
            }
        }
        assert_counted();
        if (step != 7) continue;
        ha_divide_reset(&w.divide, 2);
        w.cpu_tokens[2] = w.steps[2] = 0;
        assert_counted();
    }
    close_instance();
}

TEST(test_lists_of_kv_heads) { goes(HA_GROUP_MAX, false); }
TEST(test_lists_of_query_heads) { goes(HA_GROUP_HEAD, false); }
TEST(test_all_residents_of_kv_heads) { goes(HA_GROUP_MAX, true); }
TEST(test_all_residents_of_query_heads) { goes(HA_GROUP_HEAD, true); }

/* What a device has written that is wrong is not looked up by. */
TEST(test_refused)
{
    struct ha_used used = { .padding = 0 };
    open_divide(HA_GROUP_HEAD, false);
    divide(1, true, 1);
    w.divide.here_keys_known[2] = (LIST_MAX + 1) * UNIT;
    assert_int_equal(ha_divide_use(&w.divide, 1, 0, 2, &used, &why), HA_ERROR);
    assert_string_equal(why.text, "blocks of the cache: a list of 5, of which there are at most 4");
    w.divide.here_keys_known[2] = UNIT;
    w.divide.here_known[2 * LIST_MAX] = SLOTS;
    assert_int_equal(ha_divide_use(&w.divide, 1, 0, 2, &used, &why), HA_ERROR);
    assert_string_equal(why.text, "blocks of the cache: slot 5 has none");
    close_instance();
}
