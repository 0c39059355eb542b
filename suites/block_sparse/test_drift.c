/* The intervals of recalls, and the curves that they come from, against brute force in binary64: keys and queries are
 * small whole numbers, so that every score is exact and ties are ties. */

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/block_sparse/drift.h"

#include <math.h>

extern const struct ha_kernels ha_kernels_c;

enum { LAYERS = 2, BLOCKS_MAX = 24, SEQS_MAX = 10 };

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

/* ---- a context --------------------------------------------------------------------------------------------------- */

static struct {
    struct ha_shape shape;
    struct ha_drift of;
    size_t cap;
    void *k[LAYERS][SEQS_MAX];  /* [kv_heads][cap][head_dim] */
    float *q[LAYERS][SEQS_MAX]; /* [observed_b][q_heads][head_dim] */
} w;

static size_t observed(size_t b) { return ha_least(w.shape.observed, w.shape.ctx[b]); }
static size_t replayed(void)
{
    size_t n = w.shape.observed;
    for (size_t b = 0; b < w.shape.batch; b++) n = ha_least(n, observed(b));
    return n;
}

static float key(size_t layer, size_t b, size_t head, size_t token, size_t d)
{
    return ha_load(w.k[layer][b], (head * w.cap + token) * w.shape.head_dim + d, w.shape.dtype);
}
/* of the replayed queries */
static float query(size_t layer, size_t b, size_t head, size_t t, size_t d)
{
    const size_t row = (observed(b) - replayed() + t) * w.shape.q_heads + head;
    return w.q[layer][b][row * w.shape.head_dim + d];
}

typedef float number(size_t layer, size_t b, size_t head, size_t token, size_t d);

static void open_context(struct ha_shape shape, struct ha_drift of, number *k, number *q)
{
    w.shape = shape;
    w.of = of;
    w.cap = 0;
    for (size_t b = 0; b < shape.batch; b++) w.cap = ha_most(w.cap, shape.ctx[b]);
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t b = 0; b < shape.batch; b++) {
            const size_t dim = shape.head_dim, keys = shape.kv_heads * w.cap, rows = observed(b) * shape.q_heads;
            w.k[layer][b] = malloc(keys * dim * ha_dtype_bytes(shape.dtype));
            w.q[layer][b] = malloc(rows * dim * sizeof(float) + 1);
            for (size_t i = 0; i < keys * dim; i++)
                ha_store(w.k[layer][b], i, shape.dtype, k(layer, b, i / dim / w.cap, i / dim % w.cap, i % dim));
            for (size_t i = 0; i < rows * dim; i++)
                w.q[layer][b][i] = q(layer, b, i / dim % shape.q_heads, i / dim / shape.q_heads, i % dim);
        }
}

static void close_context(void)
{
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (size_t b = 0; b < w.shape.batch; b++) {
            free(w.k[layer][b]);
            free(w.q[layer][b]);
        }
}

static enum ha_status fit(struct ha_fit_writer *out)
{
    struct ha_prefill layer[LAYERS];
    struct ha_fit_input in = { .shape = &w.shape, .layer = layer, .kernels = &ha_kernels_c };
    ok(ha_arena_create(&in.arena, true, &why));
    for (size_t i = 0; i < LAYERS; i++)
        layer[i] = (struct ha_prefill){ .k = (const void *const *)w.k[i],
                                        .cap = w.cap,
                                        .q = (const float *const *)w.q[i] };
    const enum ha_status status = ha_drift_fit(&in, &w.of, out, &why);
    if (ha_arena_check(in.arena, &(struct ha_why){ "" }) != HA_OK) fail_msg("wrote beside what it has");
    ha_arena_destroy(in.arena);
    return status;
}

/* ---- by brute force ---------------------------------------------------------------------------------------------- */

static double score(size_t layer, size_t b, size_t q_head, size_t t, size_t block)
{
    const size_t head = q_head / ha_shape_group(&w.shape);
    double sum = 0;
    for (size_t d = 0; d < w.shape.head_dim; d++) {
        const double x = (double)query(layer, b, q_head, t, d);
        double least = HUGE_VAL, most = -HUGE_VAL, mean = 0;
        for (size_t i = block * w.of.block; i < (block + 1) * w.of.block; i++) {
            const double y = (double)key(layer, b, head, i, d);
            least = fmin(least, y);
            most = fmax(most, y);
            mean += y / (double)w.of.block;
        }
        sum += w.of.digest == HA_DIGEST_MEAN ? x * mean : fmax(x * least, x * most);
    }
    return sum;
}

/* Which k blocks before query t give query heads [from, to) the largest scores, ties to the first. */
static void choose(size_t layer, size_t b, size_t from, size_t to, size_t t, size_t k, bool *is)
{
    const size_t whole = (w.shape.ctx[b] - replayed() + t) / w.of.block;
    double best[BLOCKS_MAX];
    assert_true(whole <= BLOCKS_MAX);
    for (size_t i = 0; i < whole; i++) {
        is[i] = false;
        best[i] = -HUGE_VAL;
        for (size_t g = from; g < to; g++) best[i] = fmax(best[i], score(layer, b, g, t, i));
    }
    for (size_t n = 0; n < k && n < whole; n++) {
        size_t most = whole;
        for (size_t i = 0; i < whole; i++)
            if (!is[i] && (most == whole || best[i] > best[most])) most = i;
        is[most] = true;
    }
}

/* Of all lists of a layer, those chosen by query t that a cache lacks which query `filler` filled. */
static size_t lacking(size_t layer, size_t filler, size_t t)
{
    const size_t group = ha_shape_group(&w.shape), each = w.shape.q_heads / w.of.lists;
    size_t n = 0;
    for (size_t b = 0; b < w.shape.batch; b++)
        for (size_t h = 0; h < w.shape.q_heads; h += each) {
            bool there[BLOCKS_MAX] = { false }, chosen[BLOCKS_MAX] = { false };
            choose(layer, b, h / group * group, h / group * group + group, filler, w.of.slots, there);
            choose(layer, b, h, h + each, t, w.of.k, chosen);
            for (size_t i = 0; i < BLOCKS_MAX; i++) n += chosen[i] && !there[i];
        }
    return n;
}

static void assert_fit(void)
{
    const size_t steps = replayed() - 1;
    const double budget = (double)(w.shape.batch * w.of.lists * w.of.k);
    struct ha_fit_writer out = { .count = 0 };
    ok(fit(&out));
    assert_int_equal(out.count, 3);
    static const char *const names[] = { "interval", "drift", "kept" };
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(out.tensor[i].name, names[i]);
        assert_int_equal(out.tensor[i].bytes, LAYERS * (i ? steps : 1) * sizeof(float));
    }
    const float *interval = out.tensor[0].data, *drift = out.tensor[1].data, *kept = out.tensor[2].data;
    for (size_t layer = 0; layer < LAYERS; layer++, drift += steps, kept += steps) {
        size_t longest = 1;
        double sum = 0;
        for (size_t j = 0; j < steps; j++) {
            size_t n = 0;
            for (size_t filler = 0; filler + j < steps; filler++) n += lacking(layer, filler, filler + j + 1);
            const double mean = (double)n / (budget * (double)(steps - j));
            if (drift[j] != (float)mean)
                fail_msg("layer %zu, %zu steps later: %g, not %g", layer, j + 1, (double)drift[j], mean);
            sum += mean;
            if (sum <= w.of.ratio * (double)(j + 1)) longest = j + 1;
        }
        assert_true(interval[layer] == (float)longest);
        for (size_t j = 0; j < steps; j++)
            assert_true(kept[j] == (float)((double)lacking(layer, j / longest * longest, j + 1) / budget));
    }
    ha_fit_writer_free(&out);
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

/* a head's queries change in one dimension from one to the next */
static float some_key(size_t layer, size_t b, size_t head, size_t token, size_t d)
{
    return (float)ha_rng_below(layer, 8 * b + head, 16 * token + d, 7) - 3;
}
static float some_query(size_t layer, size_t b, size_t head, size_t t, size_t d)
{
    return (float)ha_rng_below(100 + layer, 8 * b + head, (t + 3 - d) / 4 * 16 + d, 5) - 2;
}

#define SHAPE(q, kv, type, many, ...)                                                                        \
    {                                                                                                        \
        .batch = sizeof(size_t[]){ __VA_ARGS__ } / sizeof(size_t), .layers = LAYERS, .q_len = 1, .steps = 1, \
        .q_heads = q, .kv_heads = kv, .head_dim = 4, .dtype = type, .scale = 1, .observed = many, .ctx = {   \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

TEST(test_curves)
{
    static const struct {
        struct ha_shape shape;
        struct ha_drift of;
    } cases[] = {
        { SHAPE(1, 1, HA_F32, 12, 80), { .block = 8, .k = 2, .slots = 2, .lists = 1 } },
        { SHAPE(6, 3, HA_F32, 9, 90), { .block = 4, .k = 4, .slots = 4, .lists = 3 } },
        { SHAPE(6, 3, HA_F16, 9, 90), { .block = 4, .k = 3, .slots = 6, .lists = 6, .digest = HA_DIGEST_MEAN } },
        { SHAPE(4, 2, HA_BF16, 10, 40, 33, 64, 9, 50), { .block = 8, .k = 2, .slots = 3, .lists = 2 } },
        { SHAPE(4, 1, HA_F32, 30, 70, 8, 61, 62, 63, 64, 65), { .block = 8, .k = 3, .slots = 5, .lists = 4 } },
        { SHAPE(2, 2, HA_F32, 2, 31, 16), { .block = 16, .k = 4, .slots = 1, .lists = 2 } }, /* fewer than chosen */
    };
    static const double ratios[] = { 0, 0.12, 0.25, 0.4, 0.5, 0.75, 1 };
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t r = 0; r < COUNT(ratios); r++) {
            open_context(cases[i].shape, cases[i].of, some_key, some_query);
            w.of.ratio = ratios[r];
            assert_fit();
            close_context();
        }
}

/* Each query wants one block, that no other wants. */
static float block_key(size_t layer, size_t b, size_t head, size_t token, size_t d) { return token / 8 == d; }
static float block_query(size_t layer, size_t b, size_t head, size_t t, size_t d) { return t == d; }

/* All that is chosen is missing: its share is 1, however many it is the mean of, and no more than a ratio of 1. */
TEST(test_all_missing)
{
    enum { QUERIES = 9 };
    for (size_t batch = 1; batch <= SEQS_MAX; batch++) {
        struct ha_shape shape = { .batch = batch,
                                  .layers = LAYERS,
                                  .q_len = 1,
                                  .steps = 1,
                                  .q_heads = 1,
                                  .kv_heads = 1,
                                  .head_dim = QUERIES,
                                  .dtype = HA_F32,
                                  .scale = 1,
                                  .observed = QUERIES };
        for (size_t b = 0; b < batch; b++) shape.ctx[b] = 8 * QUERIES + QUERIES;
        for (int all = 0; all < 2; all++) {
            struct ha_fit_writer out = { .count = 0 };
            const struct ha_drift of = { .block = 8, .k = 1, .slots = 1, .lists = 1, .ratio = all ? 1 : 0.999 };
            open_context(shape, of, block_key, block_query);
            ok(fit(&out));
            for (size_t i = 0; i < LAYERS; i++)
                assert_true(((const float *)out.tensor[0].data)[i] == (float)(all ? QUERIES - 1 : 1));
            for (size_t i = 0; i < LAYERS * (QUERIES - 1); i++)
                assert_true(((const float *)out.tensor[1].data)[i] == 1);
            ha_fit_writer_free(&out);
            assert_fit();
            close_context();
        }
    }
}

TEST(test_refused)
{
    static const struct ha_shape shapes[] = { SHAPE(1, 1, HA_F32, 1, 80), SHAPE(1, 1, HA_F32, 12, 80, 1),
                                              SHAPE(1, 1, HA_F32, 0, 80), SHAPE(1, 1, HA_F32, 12, 0),
                                              SHAPE(1, 1, HA_F32, 4, 7, 5) };
    static const char *const words[] = {
        "drift is learnt from one query to the next, of 1: observed=64, say",
        "drift is learnt from one query to the next, a sequence has ctx=1: raise it",
        "drift is learnt from one query to the next, of 0: observed=64, say",
        "drift is learnt from one query to the next, a sequence has ctx=0: raise it",
        "drift is learnt from whole blocks: raise ctx, 7, above block, 8",
    };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct ha_fit_writer out = { .count = 0 };
        open_context(shapes[i], (struct ha_drift){ .block = 8, .k = 1, .slots = 1, .lists = 1 }, some_key, some_query);
        assert_int_equal(fit(&out), HA_ERROR);
        assert_string_equal(why.text, words[i]);
        assert_int_equal(out.count, 0);
        close_context();
    }
}
