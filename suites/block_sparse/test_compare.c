/* What is said of predicted queries and of chosen blocks, against sums and sets by hand. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/rng.h"
#include "suites/block_sparse/compare.h"
#include "suites/parts/test_memory.h"

#include <math.h>

enum { LAYERS = 2, SEQS = 2, Q_LEN = 2, HEADS = 4, DIM = 3, NUMBERS = SEQS * Q_LEN * HEADS * DIM };

static const struct ha_shape shape = {
    .layers = LAYERS, .batch = SEQS, .q_len = Q_LEN, .q_heads = HEADS, .kv_heads = 2, .head_dim = DIM, .dtype = HA_F32
};
static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static struct {
    struct ha_context ctx;
    struct ha_compare c;
} w;

static void open_compare(size_t lists, size_t list_max)
{
    w.ctx = (struct ha_context){ .shape = &shape, .api = &memory };
    ok(ha_arena_create(&w.ctx.arena, true, &why));
    ok(ha_device_arena_create(&w.ctx.device_arena, &memory, NULL, &why));
    ok(ha_compare_create(&w.c, &w.ctx, lists, list_max, &why));
}
static void close_compare(void)
{
    ha_device_arena_destroy(w.ctx.device_arena);
    ok(ha_arena_check(w.ctx.arena, &why));
    ha_arena_destroy(w.ctx.arena);
}

/* What is said of a layer; NaN: nothing. */
struct said {
    double cosine, changed;
    size_t layer;
};
static void hear(void *arg, const char *name, size_t layer, double value)
{
    struct said *said = arg;
    double *to = strcmp(name, "cosine") ? &said->changed : &said->cosine;
    assert_true(!strcmp(name, "cosine") || !strcmp(name, "changed"));
    assert_int_equal(layer, said->layer);
    assert_true(isnan(*to));
    *to = value;
}
static struct said said_of(size_t layer)
{
    struct said said = { (double)NAN, (double)NAN, layer };
    ha_compare_count(&w.c, layer, hear, &said);
    return said;
}
static void assert_said(double said, double sum, double of)
{
    if (of > 0) assert_near(said, sum / of, 1e-14);
    else assert_true(isnan(said));
}

/* ---- queries ------------------------------------------------------------------------------------------------------
 */

/* One pair of queries for all heads and tokens, and what its cosine is. */
TEST(test_cosine)
{
    static const struct {
        float is[DIM], predicted[DIM];
        double cosine;
    } cases[] = {
        { { 3, 4, 0 }, { 4, 3, 0 }, 0.96 },      { { 3, 4, 0 }, { 0, 0, 7 }, 0 },
        { { 1, 2, 2 }, { -2, -4, -4 }, -1 },     { { 1, 2, 2 }, { 100, 200, 200 }, 1 },
        { { 0, 0, 0 }, { 1, 0, 0 }, 0 },         { { 0, 0, 0 }, { 0, 0, 0 }, 0 },
        { { 2, 3, 6 }, { 2, -3, 6 }, 31. / 49 }, { { 1e30F, 0, 0 }, { 1e30F, 1e30F, 0 }, 0.70710678118654752 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        float q[NUMBERS], predicted[NUMBERS];
        for (size_t x = 0; x < NUMBERS; x++) {
            q[x] = cases[i].is[x % DIM];
            predicted[x] = cases[i].predicted[x % DIM];
        }
        open_compare(HEADS, 1);
        ok(ha_compare_down(&w.c, &(struct ha_step){ .q = q }));
        for (size_t b = 0; b < SEQS; b++)
            for (size_t h = 0; h < HEADS; h++) ha_compare_query(&w.c, 1, b, h, predicted);
        assert_near(said_of(1).cosine, cases[i].cosine, 1e-14);
        assert_true(isnan(said_of(0).cosine));
        close_compare();
    }
}

static double cosine_at(const float *a, const float *b, size_t at)
{
    double sum[3] = { 0 };
    for (size_t i = at * DIM; i < (at + 1) * DIM; i++) {
        sum[0] += (double)(a[i] * b[i]);
        sum[1] += (double)(a[i] * a[i]);
        sum[2] += (double)(b[i] * b[i]);
    }
    return sum[1] > 0 && sum[2] > 0 ? sum[0] / (sqrt(sum[1]) * sqrt(sum[2])) : 0;
}

/* Small whole numbers, others in each step: the mean over heads, tokens and steps since a reset, of each layer alone.
 * What was predicted is kept, head by head. */
TEST(test_queries)
{
    double sum[LAYERS] = { 0 }, of[LAYERS] = { 0 };
    open_compare(HEADS, 1);
    for (size_t step = 0; step < 12; step++) {
        const size_t layer = step % 3 % LAYERS;
        float q[NUMBERS], predicted[NUMBERS];
        for (size_t i = 0; i < NUMBERS; i++) {
            q[i] = (float)ha_rng_below(step, 0, i, 5) - 1;
            predicted[i] = (float)ha_rng_below(step, 1, i, 5) - 2;
        }
        ok(ha_compare_down(&w.c, &(struct ha_step){ .q = q }));
        for (size_t b = 0; b < SEQS; b++)
            for (size_t h = 0; h < HEADS; h++) {
                float given[NUMBERS]; /* and gone when it returns */
                memcpy(given, predicted, sizeof given);
                ha_compare_query(&w.c, layer, b, h, given);
                memset(given, 0xFF, sizeof given);
            }
        for (size_t at = 0; at < NUMBERS / DIM; at++) {
            const size_t b = at / HEADS / Q_LEN, t = at / HEADS % Q_LEN, h = at % HEADS;
            sum[layer] += cosine_at(q, predicted, at);
            of[layer]++;
            assert_memory_equal(ha_compare_predicted(&w.c, layer, b, h) + t * DIM, predicted + at * DIM,
                                DIM * sizeof *predicted);
        }
        for (size_t i = 0; i < LAYERS; i++) assert_said(said_of(i).cosine, sum[i], of[i]);
        if (step != 6) continue;
        ha_compare_reset(&w.c, 0);
        sum[0] = of[0] = 0;
        for (size_t i = 0; i < LAYERS; i++) assert_said(said_of(i).cosine, sum[i], of[i]);
    }
    close_compare();
}

/* ---- choices ------------------------------------------------------------------------------------------------------
 */

enum { BLOCKS_MAX = 20, LIST_MAX = 5, STEPS = 24 };

/* Of n blocks that are left, with so many to choose: at random, or as early as can be, or as late. */
static bool takes(size_t kind, uint64_t stream, size_t at, size_t n, size_t most)
{
    return kind == 0 ? most > 0 : kind == 1 ? n == most : ha_rng_below(1, stream, at, n) < most;
}

/* Lists of the larger sequence and of one that grows to a full list; of each step those that the step before lacks. One
 * goes from the first blocks to the last ones, which the list behind it has had. */
static void changes(size_t lists)
{
    static bool before[LAYERS][SEQS][HEADS][BLOCKS_MAX];
    bool known[LAYERS] = { false };
    double changed[LAYERS] = { 0 }, of[LAYERS] = { 0 };
    uint32_t block[SEQS * HEADS * LIST_MAX];
    struct ha_device_score_seq by[SEQS];
    const struct ha_device_choice choice = { .lists = lists, .list_max = LIST_MAX, .known = block, .by = by };
    open_compare(lists, LIST_MAX);
    for (size_t step = 0; step < STEPS; step++) {
        const size_t layer = step % 3 % LAYERS, blocks[SEQS] = { BLOCKS_MAX, step / 3 };
        memset(block, 0xFF, sizeof block);
        for (size_t b = 0; b < SEQS; b++) {
            by[b].blocks = blocks[b];
            for (size_t list = 0; list < lists; list++) {
                bool *then = before[layer][b][list], now[BLOCKS_MAX] = { false };
                const size_t most = ha_least(LIST_MAX, blocks[b]);
                bool any = false;
                for (size_t i = 0; i < BLOCKS_MAX; i++) any |= known[layer] && then[i];
                for (size_t i = 0, n = 0; i < blocks[b]; i++) {
                    if (!takes((step / 3 + list) % 4, 4 * step + list, b * BLOCKS_MAX + i, blocks[b] - i, most - n))
                        continue;
                    block[(b * lists + list) * LIST_MAX + n++] = (uint32_t)i;
                    now[i] = true;
                    changed[layer] += any && !then[i];
                    of[layer] += any;
                }
                memcpy(then, now, sizeof now);
            }
            for (size_t h = 0; h < HEADS; h++) ha_compare_choice(&w.c, layer, b, h, &choice);
        }
        known[layer] = true;
        for (size_t i = 0; i < LAYERS; i++) assert_said(said_of(i).changed, changed[i], of[i]);
        if (step != STEPS / 2) continue;
        ha_compare_reset(&w.c, layer);
        known[layer] = false;
        changed[layer] = of[layer] = 0;
        for (size_t i = 0; i < LAYERS; i++) assert_said(said_of(i).changed, changed[i], of[i]);
    }
    assert_true(changed[0] > 0 && changed[0] < of[0] && changed[1] > 0);
    close_compare();
}

TEST(test_lists_of_query_heads) { changes(HEADS); }
TEST(test_lists_of_kv_heads) { changes(HEADS / 2); }

TEST(test_nothing_made)
{
    w.c = (struct ha_compare){ .ctx = NULL };
    ha_compare_reset(&w.c, 1);
    assert_true(isnan(said_of(1).cosine) && isnan(said_of(1).changed));
}
