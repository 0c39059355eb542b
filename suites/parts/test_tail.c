/* The tail against a model: which tokens are on the device and which have left, step after step, at their places, in
 * natural rows or in a store with digests; and all of it again after a rewind. */

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "suites/parts/digests.h"
#include "suites/parts/tail.h"
#include "suites/parts/test_memory.h"

#include <math.h>

enum { HEADS = 2, DIM = 2, SINKS = 3, STEPS = 30 };

extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static struct ha_pool *pool; /* loads contexts */

/* ---- tokens that say which they are */

static float number(size_t token, size_t head, size_t d) { return (float)(token * 8 + head * DIM + d); }

/* rows of KV head 0 are those of these tokens, of K; and V is the negative */
static void assert_tokens(const struct ha_shape *s, struct ha_rows rows, size_t first)
{
    for (size_t i = 0; i < rows.keys; i++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t d = 0; d < DIM; d++) {
                const float *k = (const void *)((const char *)rows.k + i * rows.k_stride_bytes),
                            *v = (const void *)((const char *)rows.v + i * rows.v_stride_bytes);
                assert_true(k[h * DIM + d] == number(first + i, h, d));
                assert_true(v[h * DIM + d] == -number(first + i, h, d));
            }
    assert_int_equal(rows.k_stride_bytes, ha_kv_token_bytes(s));
}

static void assert_tail(const struct ha_shape *s, const struct ha_tail *tail, const struct ha_kv *store, size_t tokens)
{
    struct ha_rows runs[2];
    const size_t gone = tokens > tail->keep ? (tokens - tail->keep) / tail->unit * tail->unit : 0,
                 n = ha_ring_runs(s, &tail->ring, runs);
    assert_int_equal(ha_tail_gone(tail, tokens) * tail->unit, gone);
    assert_int_equal(tail->ring.first, gone);
    assert_int_equal(tail->ring.end, tokens);
    size_t at = SINKS + gone;
    for (size_t i = 0; i < n; i++) {
        assert_tokens(s, runs[i], at);
        at += runs[i].keys;
    }
    assert_int_equal(at, SINKS + tokens);
    assert_tokens(s, ha_kv_rows(s, store, 0, 0, gone), SINKS);
    for (size_t b = gone / tail->unit; (b + 1) * tail->unit <= tokens; b++)
        assert_tokens(s, ha_tail_block(s, tail, b), SINKS + b * tail->unit);
}

static void step(const struct ha_context *ctx, struct ha_tail *tail, const struct ha_kv *store, size_t tokens)
{
    const struct ha_shape *s = ctx->shape;
    float k[16 * HEADS * DIM], v[16 * HEADS * DIM];
    const struct ha_kv fresh = { HA_MEM_DEVICE, (unsigned char *)k, (unsigned char *)v, s->q_len };
    size_t gone;
    for (size_t i = 0; i < s->q_len * HEADS * DIM; i++) {
        k[i] = number(SINKS + tokens + i / (HEADS * DIM), i / DIM % HEADS, i % DIM);
        v[i] = -k[i];
    }
    if (ha_ring_append(ctx, NULL, &tail->ring, &fresh, 0, s->q_len) != HA_OK) fail();
    if (ha_tail_leave(ctx, NULL, tail, store, &gone) != HA_OK) fail();
    assert_int_equal(gone, ha_tail_gone(tail, tokens + s->q_len) - ha_tail_gone(tail, tokens));
    assert_tail(s, tail, store, tokens + s->q_len);
}

static struct ha_tail tail_create(const struct ha_context *ctx, size_t unit, size_t keep, size_t most)
{
    struct ha_kv kv;
    const size_t rows = ha_tail_rows(ctx->shape, unit, keep, most);
    assert_int_equal(ha_kv_create(ctx, HA_MEM_DEVICE, rows, &kv, &why), HA_OK);
    return ha_tail_of(unit, keep, &kv);
}

static void goes(size_t unit, size_t keep, size_t q_len, size_t context)
{
    const struct ha_shape s = { .layers = 1,
                                .batch = 1,
                                .q_heads = HEADS,
                                .kv_heads = HEADS,
                                .head_dim = DIM,
                                .dtype = HA_F32,
                                .q_len = q_len,
                                .steps = STEPS,
                                .ctx = { SINKS + context } };
    struct ha_context ctx = { .shape = &s, .api = &memory, .pool = pool };
    const size_t most = context + STEPS * q_len;
    struct ha_tail tail;
    struct ha_kv store;
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    assert_int_equal(ha_device_arena_create(&ctx.device_arena, &memory, NULL, &why), HA_OK);
    tail = tail_create(&ctx, unit, keep, most);
    assert_int_equal(ha_kv_create(&ctx, HA_MEM_PINNED, most, &store, &why), HA_OK);
    assert_int_equal(tail.ring.kv.cap % unit, 0);

    float *k = calloc(2 * HEADS * (SINKS + context) * DIM, sizeof *k), *v = k + HEADS * (SINKS + context) * DIM;
    for (size_t h = 0; h < HEADS; h++)
        for (size_t t = 0; t < SINKS + context; t++)
            for (size_t d = 0; d < DIM; d++) {
                const size_t at = (h * (SINKS + context) + t) * DIM + d;
                v[at] = -(k[at] = number(t, h, d));
            }
    const struct ha_prefill in = { (const void *[]){ k }, (const void *[]){ v }, SINKS + context, NULL };
    assert_int_equal(ha_tail_load(&ctx, &tail, &in, 0, SINKS), HA_OK);
    /* what went before the first step is the caller's to store */
    for (size_t t = 0; t < context / unit * unit; t++)
        for (size_t i = 0; i < HEADS * DIM; i++) {
            ((float *)(void *)store.k)[t * HEADS * DIM + i] = number(SINKS + t, i / DIM, i % DIM);
            ((float *)(void *)store.v)[t * HEADS * DIM + i] = -number(SINKS + t, i / DIM, i % DIM);
        }
    assert_tail(&s, &tail, &store, context);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < (round ? STEPS : STEPS / 3); i++) step(&ctx, &tail, &store, context + i * q_len);
        assert_int_equal(ha_tail_rewind(&ctx, &tail, &store, context), HA_OK);
        assert_tail(&s, &tail, &store, context);
    }
    free(k);
    ha_device_arena_destroy(ctx.device_arena);
    ha_arena_destroy(ctx.arena);
}

TEST(test_tail)
{
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 2, &why), HA_OK);
    for (size_t unit = 1; unit <= 16; unit *= 4)
        for (size_t keep = 0; keep <= 21; keep += 7)
            for (size_t q_len = 1; q_len <= 16; q_len += 5)
                for (size_t context = 0; context <= 40; context += 13) goes(unit, keep, q_len, context);
    ha_pool_destroy(pool);
}

/* ---- to a store, packed or not, with digests --------------------------------------------------- */

enum { WIDE = 8, MANY = 400 };

static float scattered(size_t token, size_t i) { return (float)((token * 131 + i * 17) % 257) - 128; }

/* Every token once, on its side; and the digests are those of the tokens. */
static void assert_stored(const struct ha_context *ctx, const struct ha_tail *tail, const struct ha_kv_store *store,
                          const struct ha_digests *kept, size_t tokens)
{
    const struct ha_shape *s = ctx->shape;
    const size_t gone = ha_tail_gone(tail, tokens) * tail->unit;
    float row[2][WIDE];
    assert_int_equal(store->tokens, gone);
    assert_int_equal(kept->blocks * tail->unit, gone);
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < HEADS; h++) {
            const struct ha_rows on = ha_kv_rows(s, &tail->ring.kv, h, t % tail->ring.kv.cap, 1);
            if (t < gone) ha_kv_store_read(ctx, store, h, t, 1, row[0], row[1], sizeof row[0]);
            const float *k = t < gone ? row[0] : on.k, *v = t < gone ? row[1] : on.v;
            for (size_t d = 0; d < WIDE; d++)
                if (k[d] != scattered(t, h * WIDE + d) || v[d] != -k[d])
                    fail_msg("token %zu of %zu, %s the store", t, tokens, t < gone ? "in" : "beside");
        }
    for (size_t b = 0; b < kept->blocks; b++)
        for (size_t i = 0; i < HEADS * WIDE; i++) {
            float low = INFINITY, high = -INFINITY;
            for (size_t t = b * tail->unit; t < (b + 1) * tail->unit; t++) {
                low = fminf(low, scattered(t, i));
                high = fmaxf(high, scattered(t, i));
            }
            const float *of = (const void *)(kept->bytes + i / WIDE * kept->head_bytes);
            of += (b / HA_PACK_KEYS * WIDE + i % WIDE) * 2 * HA_PACK_KEYS + b % HA_PACK_KEYS;
            if (of[0] != low || of[HA_PACK_KEYS] != high) fail_msg("digest %zu of %zu", b, kept->blocks);
        }
}

static void goes_to_store(bool packed, size_t unit, size_t keep, size_t q_len, size_t context)
{
    const size_t steps = MANY / q_len, most = context + steps * q_len;
    const struct ha_shape s = { .layers = 1,
                                .batch = 1,
                                .q_heads = HEADS,
                                .kv_heads = HEADS,
                                .head_dim = WIDE,
                                .dtype = HA_F32,
                                .q_len = q_len,
                                .steps = steps,
                                .ctx = { context } };
    struct ha_context ctx = { .shape = &s, .api = &memory, .kernels = &ha_kernels_c };
    struct ha_tail tail;
    struct ha_kv_store store;
    struct ha_digests kept;
    float *k = calloc(2 * HEADS * most * WIDE, sizeof *k), *v = k + HEADS * most * WIDE, *row = v;
    assert_int_equal(ha_arena_create(&ctx.arena, true, &why), HA_OK);
    assert_int_equal(ha_device_arena_create(&ctx.device_arena, &memory, NULL, &why), HA_OK);
    assert_int_equal(ha_pool_create(&ctx.pool, HA_TEAM_OWN, 1, &why), HA_OK);
    tail = tail_create(&ctx, unit, keep, most);
    assert_int_equal(ha_kv_store_create_for(&ctx, packed, most, q_len + unit - 1, &store, &why), HA_OK);
    assert_int_equal(ha_digests_create(&ctx, HA_MEM_PINNED, unit, 0, &kept, &why), HA_OK);
    for (size_t i = 0; i < HEADS * context * WIDE; i++)
        v[i] = -(k[i] = scattered(i / WIDE % context, i / WIDE / context * WIDE + i % WIDE));
    const struct ha_prefill in = { (const void *[]){ k }, (const void *[]){ v }, context, NULL };
    assert_int_equal(ha_tail_load(&ctx, &tail, &in, 0, 0), HA_OK);
    assert_int_equal(ha_kv_store_load_range(&ctx, &store, &in, 0, 0, tail.ring.first), HA_OK);
    ha_digests_of_store(&ctx, HA_DIGEST_RANGE, &kept, &store);
    assert_stored(&ctx, &tail, &store, &kept, context);
    for (int round = 0; round < 2; round++) {
        for (size_t tokens = context, i = 0; i < (round ? steps : steps / 3); i++, tokens += q_len) {
            size_t gone;
            for (size_t j = 0; j < q_len * HEADS * WIDE; j++)
                v[j] = -(k[j] = scattered(tokens + j / (HEADS * WIDE), j % (HEADS * WIDE)));
            const struct ha_kv fresh = { HA_MEM_DEVICE, (unsigned char *)k, (unsigned char *)v, q_len };
            assert_int_equal(ha_ring_append(&ctx, NULL, &tail.ring, &fresh, 0, q_len), HA_OK);
            assert_int_equal(ha_tail_leave_to_store(&ctx, NULL, &tail, &store, &gone), HA_OK);
            ha_kv_store_pack(&ctx, &store);
            ha_digests_of_store(&ctx, HA_DIGEST_RANGE, &kept, &store);
            if (i % 37 == 0 || i + 1 == steps) assert_stored(&ctx, &tail, &store, &kept, tokens + q_len);
        }
        assert_int_equal(ha_tail_rewind_from_store(&ctx, &tail, &store, (unsigned char *)row, context), HA_OK);
        ha_kv_store_rewind(&ctx, &store, tail.ring.first);
        kept.blocks = store.tokens / unit;
        assert_stored(&ctx, &tail, &store, &kept, context);
    }
    free(k);
    ha_pool_destroy(ctx.pool);
    ha_device_arena_destroy(ctx.device_arena);
    ha_arena_destroy(ctx.arena);
}

TEST(test_tail_to_a_store)
{
    for (int packed = 0; packed < 2; packed++)
        for (size_t unit = 16; unit <= 128; unit *= 2) {
            goes_to_store(packed, unit, 70, 1, 201);
            goes_to_store(packed, unit, 0, 150, 33);
        }
}
