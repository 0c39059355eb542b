/* What a prefill's last queries say about blocks, against brute force: keys and queries are small whole numbers, so
 * that every score is exact and ties are ties. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "suites/parts/observe.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { BLOCKS_MAX = 32, COUNT_MAX = 40 };

static struct {
    struct ha_shape shape;
    size_t unit, cap;
    enum ha_digest_kind kind;
    struct ha_digests digests;
    void *k;  /* of the sequence: [kv_heads][cap][head_dim] */
    float *q; /* [observed][q_heads][head_dim] */
} w;

static size_t observed(size_t b) { return ha_least(w.shape.observed, w.shape.ctx[b]); }
static size_t blocks_of(size_t b) { return w.shape.ctx[b] / w.unit; }

static float key(size_t head, size_t token, size_t d)
{
    return ha_load(w.k, (head * w.cap + token) * w.shape.head_dim + d, w.shape.dtype);
}

static void fill(size_t b)
{
    const size_t keys = w.shape.kv_heads * w.cap * w.shape.head_dim,
                 queries = observed(b) * w.shape.q_heads * w.shape.head_dim;
    w.k = calloc(keys, sizeof(float));
    w.q = calloc(w.shape.observed * w.shape.q_heads * w.shape.head_dim + 1, sizeof *w.q);
    for (size_t i = 0; i < keys; i++)
        ha_store(w.k, i, w.shape.dtype,
                 i / w.shape.head_dim % w.cap < w.shape.ctx[b] ? (float)ha_rng_below(b, 0, i, 9) - 4 : NAN);
    for (size_t i = 0; i < w.shape.observed * w.shape.q_heads * w.shape.head_dim; i++)
        w.q[i] = i < queries ? (float)ha_rng_below(b, 1, i, 5) - 2 : 1000; /* of tokens that there are not */
}

/* ---- by brute force -----------------------------------------------------------------------------------------------
 */

/* smallest and largest of a dimension, or both the mean */
static void digest(size_t head, size_t block, size_t d, double of[2])
{
    double low = HUGE_VAL, high = -HUGE_VAL, sum = 0;
    for (size_t t = block * w.unit; t < (block + 1) * w.unit; t++) {
        const double x = (double)key(head, t, d);
        low = fmin(low, x);
        high = fmax(high, x);
        sum += x / (double)w.unit;
    }
    of[0] = w.kind == HA_DIGEST_MEAN ? sum : low;
    of[1] = w.kind == HA_DIGEST_MEAN ? sum : high;
}

/* the largest that any observed query of the group gives; without one the newest is the largest */
static double score(size_t b, size_t head, size_t block)
{
    const size_t group = ha_shape_group(&w.shape), dim = w.shape.head_dim;
    double most = observed(b) ? -HUGE_VAL : (double)block;
    for (size_t t = 0; t < observed(b); t++)
        for (size_t h = head * group; h < (head + 1) * group; h++) {
            double sum = 0;
            for (size_t d = 0; d < dim; d++) {
                const double q = (double)w.q[(t * w.shape.q_heads + h) * dim + d];
                double of[2];
                digest(head, block, d, of);
                sum += fmax(q * of[0], q * of[1]);
            }
            most = fmax(most, sum * (double)w.shape.scale);
        }
    return most;
}

/* Those before which fewer than `count` stand: of larger score, or of the same and earlier. How many are tied with the
 * last that is taken, and left. */
static size_t assert_best(size_t b, size_t head, size_t count, const uint32_t *best, size_t stride)
{
    double of[BLOCKS_MAX];
    size_t n = 0, tied = 0;
    for (size_t i = 0; i < blocks_of(b); i++) of[i] = score(b, head, i);
    for (size_t i = 0; i < blocks_of(b); i++) {
        size_t larger = 0, equal = 0;
        for (size_t j = 0; j < blocks_of(b); j++) {
            larger += of[j] > of[i];
            equal += j < i && of[j] == of[i];
        }
        tied += larger < count && larger + equal >= count;
        if (larger + equal >= count) continue;
        if (best[n] != i) fail_msg("head %zu: entry %zu is %u, not %zu", head, n, best[n], i);
        n++;
    }
    assert_int_equal(n, ha_least(count, blocks_of(b)));
    for (; n < stride; n++) assert_int_equal(best[n], 0xEEEEEEEE);
    return tied;
}

static void assert_digests(size_t b)
{
    const struct ha_digests *d = &w.digests;
    const size_t dim = w.shape.head_dim;
    assert_int_equal(d->blocks, blocks_of(b));
    for (size_t i = 0; i < w.shape.kv_heads * blocks_of(b) * dim; i++) {
        const size_t head = i / dim / blocks_of(b), block = i / dim % blocks_of(b);
        double want[2];
        digest(head, block, i % dim, want);
        for (int most = 0; most < 2; most++) {
            const float got = ha_load(d->bytes + head * d->head_bytes, digest_at(block, i % dim, dim, most),
                                      w.shape.dtype);
            if ((double)got != want[most])
                fail_msg("head %zu, block %zu: %g, not %g", head, block, (double)got, want[most]);
        }
    }
}

/* ---- the test -----------------------------------------------------------------------------------------------------
 */

static const struct ha_rule rule = { .seq_bytes = 0 };

static size_t goes(const struct ha_shape *shape, size_t unit, enum ha_digest_kind kind)
{
    static const size_t counts[] = { 1, 3, 7, BLOCKS_MAX, COUNT_MAX };
    const void *k[HA_BATCH_MAX];
    const float *q[HA_BATCH_MAX];
    size_t tied = 0;
    memset(&w, 0, sizeof w);
    w.shape = *shape;
    w.unit = unit;
    w.kind = kind;
    for (size_t b = 0; b < shape->batch; b++) w.cap = ha_most(w.cap, shape->ctx[b] + 3);
    open_instance(&w.shape, &rule);
    for (size_t b = 0; b < shape->batch; b++) {
        fill(b);
        k[b] = w.k;
        q[b] = w.q;
        const struct ha_prefill in = { .k = k, .v = NULL, .cap = w.cap, .q = q };
        ok(ha_digests_create(&mine.ctx, HA_MEM_DEVICE, unit, b, &w.digests, &why));
        for (size_t i = 0; i < COUNT(counts); i++) {
            uint32_t best[8 * (COUNT_MAX + 1)];
            const size_t stride = counts[i] + i % 2;
            memset(best, 0xEE, sizeof best);
            w.digests.blocks = 1000; /* of what was there before */
            ok(ha_observe_blocks(&mine.ctx, &in, b, kind, &w.digests, counts[i], best, stride, &why));
            for (size_t h = 0; h < shape->kv_heads; h++)
                tied += assert_best(b, h, counts[i], best + h * stride, stride);
        }
        assert_digests(b);
        free(w.k);
        free(w.q);
    }
    close_instance();
    return tied;
}

#define SHAPE(q, kv, type, many, ...)                                                                                  \
    {                                                                                                                  \
        .batch = sizeof(size_t[]){ __VA_ARGS__ } / sizeof(size_t), .layers = 1, .q_len = 1, .steps = 20, .q_heads = q, \
        .kv_heads = kv, .head_dim = 4, .dtype = type, .scale = 0.5F, .observed = many, .ctx = {                        \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

/* Sequences of no block, one, and many, some shorter than what is observed. */
TEST(test_observed)
{
    static const struct ha_shape shapes[] = {
        SHAPE(1, 1, HA_F32, 1, 130),
        SHAPE(4, 2, HA_F32, 6, 200, 7, 8, 3),
        SHAPE(6, 3, HA_F16, 12, 90, 0, 177),
        SHAPE(8, 2, HA_BF16, 30, 29, 255),
    };
    size_t tied = 0;
    for (size_t i = 0; i < COUNT(shapes); i++) {
        tied += goes(&shapes[i], 8, HA_DIGEST_RANGE);
        tied += goes(&shapes[i], 16, HA_DIGEST_MEAN);
    }
    assert_true(tied > 0); /* else it does not tell which of equals is taken */
}

TEST(test_none_observed)
{
    static const struct ha_shape shape = SHAPE(4, 2, HA_F32, 0, 200, 7, 65);
    assert_int_equal(goes(&shape, 8, HA_DIGEST_RANGE), 0);
}
