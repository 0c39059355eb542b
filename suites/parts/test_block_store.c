/* Blocks of sequences that grow: after every step each token is in the store or in the tail, at its place, and each
 * whole block has the digest that its keys give from scratch; what a device reads beside blocks; and all of it again
 * after a rewind, with other tokens. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "suites/parts/block_store.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { LAYERS = 2, SEQS = 3, HEADS = 2, DIM = 4, ROW = HEADS * DIM, Q_MAX = 3 };

static struct {
    struct ha_shape shape;
    size_t unit, round; /* tokens behind the context are others in each */
    enum ha_digest_kind kind;
    struct ha_device_choice choice;
    struct ha_layer *layer;
    float *k, *v; /* device: of a step */
} w;

static float number(size_t layer, size_t b, size_t token, size_t i)
{
    const size_t round = token < w.shape.ctx[b] ? 0 : w.round;
    return (float)ha_rng_below(16 * round + layer, b, token * ROW + i, 61) - 30;
}

/* ---- a rule with nothing but a store ------------------------------------------------------------------------------
 */

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.layer = first;
    return ha_device_choice_create(&w.choice, first->ctx, HA_GROUP_MAX, w.kind, w.unit, 1, because);
}
static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *because)
{
    struct ha_kv kv;
    HA_TRY(ha_kv_create(l->ctx, HA_MEM_MAPPED, ha_kv_max_tokens(l->ctx->shape, b) / w.unit * w.unit, &kv, because));
    return ha_block_store_open(l, b, w.unit, &kv, because);
}
static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *because)
{
    return ha_block_store_prefill(l, b, in);
}
/* The digests of the context, once; after a rewind they are there. */
static enum ha_status ready(struct ha_layer *l, struct ha_why *because)
{
    bool any;
    for (size_t b = 0; b < SEQS; b++) {
        struct ha_block_store *store = ha_block_store_of(l, b);
        w.choice.digest[b] = ha_digests_due(l->ctx->shape, &store->digests, &store->kv, l->tokens[b]);
    }
    const enum ha_status status = ha_device_choice_digest(&w.choice, &any);
    assert_int_equal(any, w.round == 0);
    return status;
}
static const struct ha_rule rule = {
    .share = share, .open = open, .prefill = prefill, .ready = ready, HA_BLOCK_STORE_HOOKS
};

static void fill_context(size_t layer)
{
    size_t cap = 0;
    for (size_t b = 0; b < SEQS; b++) cap = ha_most(cap, w.shape.ctx[b]);
    float *kv[2][SEQS];
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) {
            kv[v][b] = calloc(HEADS * cap * DIM, sizeof(float));
            for (size_t i = 0; i < HEADS * w.shape.ctx[b] * DIM; i++) {
                const size_t head = i % ROW / DIM, token = i / ROW, d = i % DIM;
                const float x = number(layer, b, token, head * DIM + d);
                kv[v][b][(head * cap + token) * DIM + d] = v ? -x : x;
            }
        }
    const struct ha_prefill in = { .k = (const void *const *)kv[0], .v = (const void *const *)kv[1], .cap = cap };
    ok(ha_frame_prefill(mine.frame, layer, &in, &why));
    for (size_t b = 0; b < SEQS; b++)
        for (int v = 0; v < 2; v++) free(kv[v][b]);
}

/* ---- what is where ------------------------------------------------------------------------------------------------
 */

/* K is what the tokens are, V the negative. */
static void assert_rows(size_t layer, size_t b, struct ha_rows rows, size_t first, const char *where)
{
    assert_int_equal(rows.k_stride_bytes, ROW * sizeof(float));
    assert_int_equal(rows.v_stride_bytes, ROW * sizeof(float));
    for (size_t i = 0; i < rows.keys * ROW; i++) {
        const float x = number(layer, b, first + i / ROW, i % ROW);
        if (((const float *)rows.k)[i] != x || ((const float *)rows.v)[i] != -x)
            fail_msg("token %zu of sequence %zu, %s", first + i / ROW, b, where);
    }
}

static void assert_digest(const struct ha_digests *d, size_t layer, size_t b, size_t block)
{
    for (size_t i = 0; i < ROW; i++) {
        float low = HUGE_VALF, high = -HUGE_VALF, sum = 0;
        for (size_t t = block * w.unit; t < (block + 1) * w.unit; t++) {
            const float x = number(layer, b, t, i);
            low = fminf(low, x);
            high = fmaxf(high, x);
            sum += x;
        }
        const float *of = (const float *)(const void *)(d->bytes + i / DIM * d->head_bytes), mean = sum / (float)w.unit;
        for (int most = 0; most < 2; most++) {
            const float want = w.kind == HA_DIGEST_MEAN ? mean
                               : most                   ? high
                                                        : low,
                        got = of[digest_at(block, i % DIM, DIM, most)];
            if (got != want)
                fail_msg("block %zu of sequence %zu, layer %zu: %g, not %g", block, b, layer, (double)got,
                         (double)want);
        }
    }
}

/* Of the newest tokens, or of all. */
static void assert_state(const struct ha_layer *l, bool all)
{
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t b = 0; b < SEQS; b++) {
        const struct ha_block_store *store = ha_block_store_of(l, b);
        const size_t blocks = l->tokens[b] / w.unit, from = all || blocks < 2 ? 0 : blocks - 2;
        struct ha_rows run[2];
        assert_int_equal(store->digests.blocks, blocks);
        assert_rows(l->layer, b, ha_kv_rows(&w.shape, &store->kv, 0, from * w.unit, (blocks - from) * w.unit),
                    from * w.unit, "in the store");
        size_t token = blocks * w.unit;
        for (size_t i = 0, runs = ha_ring_runs(&w.shape, &store->tail.ring, run); i < runs; token += run[i++].keys)
            assert_rows(l->layer, b, run[i], token, "in the tail");
        assert_int_equal(token, l->tokens[b]);
        for (size_t i = from; i < blocks; i++) assert_digest(&store->digests, l->layer, b, i);
    }
}

/* What the device reads of a step, besides blocks, and what it says that it reads: all from the last whole block on. */
static void assert_read(const struct ha_layer *l, const struct ha_step *step, size_t b)
{
    struct ha_device_seq d = { .runs_count = 1 }; /* the blocks, which are the caller's */
    struct ha_positions used = { .count = 0 };
    const size_t first = l->tokens[b] / w.unit * w.unit;
    ha_block_store_device(l, step, b, &d);
    ok(ha_block_store_use(l, b, &used, &why));
    size_t token = first;
    for (size_t i = 1; i < d.runs_count; token += d.runs[i++].keys)
        assert_rows(l->layer, b, d.runs[i], token, "that the device reads");
    assert_int_equal(token, l->tokens[b] + step->q_len);
    assert_int_equal(used.count, token - first);
    for (size_t i = 0; i < used.count; i++) assert_int_equal(used.token[i], first + i);
    if (used.token) ha_free(l->ctx->arena, used.token);
}

/* as the frame does it */
static void take_step(struct ha_layer *l)
{
    const size_t q_len = w.shape.q_len, numbers = SEQS * q_len * ROW;
    const struct ha_step step = { .layer = l->layer, .q_len = q_len, .k = w.k, .v = w.v };
    float k[SEQS * Q_MAX * ROW], v[SEQS * Q_MAX * ROW];
    for (size_t i = 0; i < numbers; i++) {
        const size_t b = i / ROW / q_len;
        v[i] = -(k[i] = number(l->layer, b, l->tokens[b] + i / ROW % q_len, i % ROW));
    }
    move(w.k, k, numbers * sizeof *k, HA_H2D);
    move(w.v, v, numbers * sizeof *v, HA_H2D);
    for (size_t b = 0; b < SEQS; b++) {
        const struct ha_kv fresh = ha_kv_of_step(&w.shape, &step, b);
        assert_read(l, &step, b);
        ok(ha_block_store_append(l, b, &fresh));
        l->tokens[b] += q_len;
    }
    ok(ha_block_store_close(l, &w.choice));
}

static void goes(size_t unit, size_t q_len, enum ha_digest_kind kind, size_t steps)
{
    const size_t rounds[] = { steps, 0, 1, 2 * unit / q_len, steps };
    memset(&w, 0, sizeof w);
    w.unit = unit;
    w.kind = kind;
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = SEQS,
                                 .q_heads = HEADS,
                                 .kv_heads = HEADS,
                                 .head_dim = DIM,
                                 .dtype = HA_F32,
                                 .q_len = q_len,
                                 .steps = steps,
                                 .ctx = { 3 * unit + 5, unit - 1, 2 * unit } };
    open_instance(&w.shape, &rule);
    w.k = memory_of(HA_MEM_DEVICE, SEQS * q_len * ROW * sizeof *w.k);
    w.v = memory_of(HA_MEM_DEVICE, SEQS * q_len * ROW * sizeof *w.v);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        fill_context(layer);
        assert_state(&w.layer[layer], true);
    }
    for (w.round = 1; w.round <= COUNT(rounds); w.round++) {
        for (size_t i = 0; i < rounds[w.round - 1]; i++)
            for (size_t layer = 0; layer < LAYERS; layer++) {
                take_step(&w.layer[layer]);
                assert_state(&w.layer[layer], i % 61 == 60 || i + 1 == steps);
            }
        ok(ha_frame_drain(mine.frame, &why));
        ok(ha_frame_rewind(mine.frame, &why));
        for (size_t layer = 0; layer < LAYERS; layer++) assert_state(&w.layer[layer], true);
    }
    close_instance();
}

/* A step closes no block, or one, or of small blocks and several tokens of some sequences more than one at once. */
TEST(test_one_token) { goes(16, 1, HA_DIGEST_RANGE, 300); }
TEST(test_three_tokens) { goes(8, 3, HA_DIGEST_MEAN, 200); }
TEST(test_several_blocks) { goes(1, 3, HA_DIGEST_RANGE, 100); }
