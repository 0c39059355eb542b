/* When a recall is due and what it is of: the steps are counted by hand; the blocks that a
 * step wants are the best by brute force, of scores that the test writes; and they are resident from when they have
 * landed, in the lists of all residents, too. What a cache holds byte for byte is test_recall.c's. */

#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "suites/block_sparse/recall.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { LAYERS = 3, SEQS = 2, Q_HEADS = 4, HEADS = 2, Q_LEN = 2, UNIT = 8, SLOTS = 4, LIST_MAX = 3, STEPS = 64 };
enum { UNITS = SEQS * HEADS, BLOCKS_MAX = 18, ROWS = Q_HEADS * Q_LEN };

static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = Q_LEN,
                                       .layers = LAYERS,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = HEADS,
                                       .head_dim = 4,
                                       .dtype = HA_F32,
                                       .scale = 1,
                                       .steps = 40,
                                       .ctx = { 64, 17 } };

static struct {
    struct ha_device_api api;
    struct ha_recall r;
    struct ha_device_choice choice;
    struct ha_digests digests[SEQS];
    struct ha_layer *layer;
    enum ha_group group;
    bool waits;
    size_t blocks[SEQS];                 /* now */
    float score[SEQS][ROWS][BLOCKS_MAX]; /* [q_heads][q_len] */
    float *q;
    uint32_t *gate, turn; /* mapped; recalls wait for it to be turn */
} w;

/* the scores stay as the test has written them */
static enum ha_status digest_score(struct ha_stream *stream, const struct ha_device_digest_score *d) { return HA_OK; }

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.layer = first;
    HA_TRY(ha_recall_create(&w.r, first, UNIT, SLOTS, w.waits, HA_FETCH_PIECES, because));
    HA_TRY(ha_recall_list_all(&w.r, because));
    return ha_device_choice_create(&w.choice, first->ctx, w.group, HA_DIGEST_RANGE, UNIT, LIST_MAX, because);
}
static const struct ha_rule rule = { .share = share };

static void open_recall(enum ha_group group, bool waits)
{
    memset(&w, 0, sizeof w);
    w.group = group;
    w.waits = waits;
    w.api = ha_device_host;
    w.api.digest_score = digest_score;
    open_context(&w.api, &shape, &rule);
    ok(make_instance());
    assert_int_equal(w.choice.blocks_max, BLOCKS_MAX);
    assert_int_equal(w.r.slots, SLOTS);
    w.q = memory_of(HA_MEM_DEVICE, SEQS * ROWS * shape.head_dim * sizeof *w.q);
    for (size_t b = 0; b < SEQS; b++) ok(ha_digests_create(&mine.ctx, HA_MEM_DEVICE, UNIT, b, &w.digests[b], &why));
    w.gate = memory_of(HA_MEM_MAPPED, sizeof *w.gate);
    __atomic_store_n(w.gate, 0, __ATOMIC_RELEASE);
}

/* Recalls that are issued from now on do not arrive until they are let go; of these all have. */
static void hold(void) { ok(ha_device_host.flag_wait(w.r.stream, w.gate, ++w.turn)); }
static void let_go(void)
{
    __atomic_store_n(w.gate, w.turn, __ATOMIC_RELEASE);
    ok(ha_device_host.stream_sync(w.r.stream));
}

/* ---- by brute force -----------------------------------------------------------------------------------------------
 */

/* The blocks of a sequence that are among the best of these query heads: before them stand fewer, of larger score for
 * any head and token, or of the same and earlier. */
static void best(size_t b, size_t from, size_t heads, size_t count, bool is[BLOCKS_MAX])
{
    float most[BLOCKS_MAX];
    for (size_t i = 0; i < BLOCKS_MAX; i++) {
        is[i] = false;
        most[i] = -HUGE_VALF;
        for (size_t row = from * Q_LEN; row < (from + heads) * Q_LEN; row++)
            most[i] = fmaxf(most[i], w.score[b][row][i]);
    }
    for (size_t i = 0; i < w.blocks[b]; i++) {
        size_t better = 0;
        for (size_t j = 0; j < w.blocks[b]; j++) better += most[j] > most[i] || (j < i && most[j] == most[i]);
        is[i] = better < count;
    }
}

struct set {
    bool is[UNITS][BLOCKS_MAX];
};

/* ---- a step -------------------------------------------------------------------------------------------------------
 */

/* Those are resident, and the device's lists have their slots. */
static void assert_resident(size_t layer, const struct set *want)
{
    const struct ha_recall_layer *l = &w.r.layer[layer];
    uint32_t all[UNITS][SLOTS], keys[UNITS];
    move(all, l->all_device, sizeof all, HA_D2H);
    move(keys, l->all_keys_device, sizeof keys, HA_D2H);
    for (size_t u = 0; u < UNITS; u++) {
        const struct ha_resident_set now = ha_residency_now(&w.r.resident, layer, u / HEADS, u % HEADS);
        size_t n = 0;
        for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
            const uint32_t slot = ha_resident_find(now, i);
            assert_int_equal(slot != HA_SLOT_NONE, want->is[u][i]);
            if (slot != HA_SLOT_NONE) assert_int_equal(all[u][n++], slot);
        }
        assert_int_equal(keys[u], n * UNIT);
    }
}

static void begin(size_t layer, struct set *now)
{
    memset(now, 0, sizeof *now);
    for (size_t u = 0; u < UNITS; u++) {
        const size_t blocks = shape.ctx[u / HEADS] / UNIT, held = ha_least(SLOTS, blocks);
        for (size_t i = 0; i < held; i++) {
            const size_t block = blocks - held + i;
            w.r.layer[layer].first[u * SLOTS + i] = (uint32_t)block;
            now->is[u][block] = true;
        }
    }
    ok(ha_recall_begin(&w.r, layer, &why));
    assert_resident(layer, now);
}

/* Chooses by scores of this seed, and refills: what is to be resident, and of what was what stays. How many come. */
static size_t refill(size_t layer, uint64_t seed, struct set *now, struct set *want)
{
    const size_t lists = w.choice.lists, each = Q_HEADS / lists;
    uint32_t index[SEQS * Q_HEADS * LIST_MAX];
    size_t coming = 0;
    for (size_t b = 0; b < SEQS; b++) {
        w.digests[b].blocks = w.blocks[b];
        for (size_t i = 0; i < ROWS * BLOCKS_MAX; i++)
            w.score[b][i / BLOCKS_MAX][i % BLOCKS_MAX] = (float)ha_rng_below(seed, b, i, 40) - 50;
        ha_device_choice_ask(&w.choice, b, w.q, &w.digests[b], LIST_MAX);
    }
    move(w.choice.score, w.score, sizeof w.score, HA_H2D);
    ok(ha_device_choice_run(&w.choice));
    ok(ha_recall_want(&w.r, &w.choice));
    ok(ha_recall_refill(&w.r, &w.layer[layer], &why));
    move(index, w.choice.index, SEQS * lists * LIST_MAX * sizeof *index, HA_D2H);
    for (size_t i = 0; i < SEQS * lists; i++) { /* as if nothing else had been wanted */
        bool is[BLOCKS_MAX];
        best(i / lists, i % lists * each, each, LIST_MAX, is);
        for (uint32_t x = 0, n = 0; x < BLOCKS_MAX; x++)
            if (is[x]) assert_int_equal(index[i * LIST_MAX + n++], x);
    }
    for (size_t u = 0; u < UNITS; u++) {
        best(u / HEADS, u % HEADS * Q_HEADS / HEADS, Q_HEADS / HEADS, SLOTS, want->is[u]);
        for (size_t i = 0; i < BLOCKS_MAX; i++) {
            coming += want->is[u][i] && !now->is[u][i];
            now->is[u][i] &= want->is[u][i];
        }
    }
    return coming;
}

static void assert_reported(size_t layer, bool due, bool landed)
{
    struct ha_selection out = { .notes = 0 };
    ha_recall_report(&w.r, layer, &out);
    assert_int_equal(out.notes, 2);
    assert_true(!strcmp(out.note[0].name, "recall") && out.note[0].value == due);
    assert_true(!strcmp(out.note[1].name, "landed") && out.note[1].value == landed);
    assert_int_equal(w.r.layer[layer].due, due);
}

static void hear(void *arg, const char *name, size_t layer, double value)
{
    static const char *const names[] = { "recall_interval", "recalls", "recalled_blocks" };
    size_t i = 0;
    while (strcmp(name, names[i])) assert_in_range(++i, 1, 2);
    ((double *)arg)[i] = value;
}
static void assert_counted(size_t layer, size_t interval, double recalls, double blocks)
{
    double said[3] = { 0 };
    ha_recall_count(&w.r, layer, hear, said);
    assert_true(said[0] == (double)interval && said[1] == recalls && said[2] == blocks);
}

/* Layers of these intervals, 0: never; what they recall arrives some steps later, or is waited for. */
static void goes(const size_t interval[LAYERS])
{
    for (int round = 0; round < 2; round++) { /* and again from the prefill on */
        struct set now[LAYERS], want[LAYERS];
        size_t issued[LAYERS] = { 0 };
        double recalls[LAYERS] = { 0 }, recalled[LAYERS] = { 0 };
        bool under_way[LAYERS] = { false }, arrived[LAYERS] = { false };
        for (size_t b = 0; b < SEQS; b++) w.blocks[b] = shape.ctx[b] / UNIT;
        for (size_t i = 0; i < LAYERS; i++) begin(i, &now[i]);
        for (size_t step = 1; step <= STEPS; step++) {
            const bool arrives = !w.waits && ha_rng_below(step, 1, 0, 4) == 0;
            if (arrives) let_go();
            for (size_t i = 0; i < LAYERS; i++) {
                arrived[i] |= arrives;
                const bool landed = under_way[i] && (w.waits || arrived[i]);
                if (landed) {
                    now[i] = want[i];
                    under_way[i] = false;
                }
                const bool due = interval[i] && step - issued[i] >= interval[i] && !under_way[i];
                ok(ha_recall_snapshot(&w.r, i, &why));
                if (w.waits && landed) let_go(); /* or the main stream would wait for ever */
                assert_resident(i, &now[i]);
                assert_reported(i, due, landed);
                assert_counted(i, interval[i], recalls[i], recalled[i]);
                if (!due || ha_rng_below(step, 2, i, 8) == 0) continue; /* one that does not follow stays due */
                hold();
                recalled[i] += (double)refill(i, LAYERS * step + i, &now[i], &want[i]);
                recalls[i]++;
                issued[i] = step;
                under_way[i] = true;
                arrived[i] = false;
            }
            for (size_t b = 0; b < SEQS; b++) w.blocks[b] += step % 6 == 0 && w.blocks[b] < shape.ctx[b] / UNIT + 10;
        }
        let_go();
        ok(ha_frame_drain(mine.frame, &why));
    }
    close_instance();
}

TEST(test_intervals)
{
    static const size_t intervals[][LAYERS] = { { 1, 1, 1 }, { 3, 0, 11 }, { 0, 0, 0 } };
    for (size_t i = 0; i < COUNT(intervals); i++)
        for (int waits = 0; waits < 2; waits++) {
            open_recall(waits ? HA_GROUP_MAX : HA_GROUP_HEAD, waits);
            for (size_t x = 0; x < LAYERS; x++) w.r.layer[x].interval = intervals[i][x];
            goes(intervals[i]);
        }
}
