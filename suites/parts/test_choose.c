/* What chooses on the CPU: digests of whole blocks as tokens come, and the candidates of largest score, which are found
 * here by counting how many are before each. Keys and queries are small whole numbers: scores are exact, and many
 * equal. */

#include "harness/api/reference.h"
#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/parts/choose.h"
#include "suites/parts/digests.h"

#include <math.h>

enum { DIM = 8, KV_HEADS = 2, GROUP = 3, TOKENS = 150, Q_LEN = 3, BATCH = 2 };

static struct ha_why why;
extern const struct ha_kernels ha_kernels_c;
extern const struct ha_device_api ha_device_host;

static struct world {
    struct ha_shape shape;
    struct ha_context ctx;
    struct ha_kv kv;
    float q[BATCH * Q_LEN * KV_HEADS * GROUP * DIM];
} w;

#define assert_ok(call)                                           \
    do {                                                          \
        if ((call) != HA_OK) fail_msg("%s: %s", #call, why.text); \
    } while (0)

static float drawn(uint64_t seed, size_t i) { return (float)ha_rng_below(seed, 1, i, 5) - 2; }

static void begin(size_t q_len, enum ha_dtype dtype, uint64_t seed)
{
    w = (struct world){ .shape = { .batch = BATCH,
                                   .q_len = q_len,
                                   .layers = 1,
                                   .q_heads = KV_HEADS * GROUP,
                                   .kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .dtype = dtype,
                                   .scale = 0.5f,
                                   .ctx = { TOKENS, TOKENS } } };
    w.ctx = (struct ha_context){ .shape = &w.shape, .kernels = &ha_kernels_c, .api = &ha_device_host };
    assert_ok(ha_arena_create(&w.ctx.arena, true, &why));
    assert_ok(ha_pool_create(&w.ctx.pool, HA_TEAM_OWN, 2, &why));
    assert_ok(ha_device_host.open(&w.ctx.device, &(struct ha_device_config){ .kernels = &ha_kernels_c }, &why));
    assert_ok(ha_device_arena_create(&w.ctx.device_arena, w.ctx.api, w.ctx.device, &why));
    assert_ok(ha_kv_create(&w.ctx, HA_MEM_PINNED, TOKENS, &w.kv, &why));
    for (size_t i = 0; i < TOKENS * KV_HEADS * DIM; i++) ha_store(w.kv.k, i, dtype, drawn(seed, i));
    for (size_t i = 0; i < BATCH * q_len * KV_HEADS * GROUP * DIM; i++) w.q[i] = drawn(seed + 1, i);
}

static void end(void)
{
    ha_device_arena_destroy(w.ctx.device_arena);
    ha_device_host.close(w.ctx.device);
    ha_pool_destroy(w.ctx.pool);
    ha_arena_destroy(w.ctx.arena);
}

static double key(size_t head, size_t token, size_t d)
{
    return (double)ha_load(w.kv.k, (token * KV_HEADS + head) * DIM + d, w.shape.dtype);
}

/* of a block of so many tokens, 1: of a key; by its digest */
static double score(size_t b, size_t q_head, size_t t, size_t unit, size_t block, enum ha_digest_kind kind)
{
    const float *q = w.q + ((b * w.shape.q_len + t) * KV_HEADS * GROUP + q_head) * DIM;
    double sum = 0;
    for (size_t d = 0; d < DIM; d++) {
        double low = HUGE_VAL, high = -HUGE_VAL, mean = 0;
        for (size_t i = block * unit; i < (block + 1) * unit; i++) {
            const double x = key(q_head / GROUP, i, d);
            low = fmin(low, x);
            high = fmax(high, x);
            mean += x / (double)unit;
        }
        if (kind == HA_DIGEST_MEAN) low = high = mean;
        sum += fmax((double)q[d] * low, (double)q[d] * high);
    }
    return sum;
}

/* whether query head h chooses candidate i, of n: fewer than k are before it. whole: h stands for its group. */
static bool chooses(size_t b, size_t h, bool whole, size_t unit, size_t n, size_t k, size_t i, enum ha_digest_kind kind)
{
    double most[TOKENS];
    size_t before = 0;
    for (size_t c = 0; c < n; c++) {
        most[c] = -HUGE_VAL;
        for (size_t g = whole ? h / GROUP * GROUP : h; g <= (whole ? h / GROUP * GROUP + GROUP - 1 : h); g++)
            for (size_t t = 0; t < w.shape.q_len; t++) most[c] = fmax(most[c], score(b, g, t, unit, c, kind));
    }
    for (size_t c = 0; c < n; c++) before += most[c] > most[i] || (most[c] == most[i] && c < i);
    return before < k;
}

static void make_digests(enum ha_digest_kind kind, const struct ha_digests *d, const struct ha_device_digest_seq *due)
{
    for (size_t head = 0; head < KV_HEADS; head++) ha_digests_make(&w.ctx, kind, d, due, head);
}

/* of the first n blocks, as they become whole */
static void digest(size_t unit, size_t n, enum ha_digest_kind kind, struct ha_digests *digests)
{
    assert_ok(ha_digests_create(&w.ctx, HA_MEM_PINNED, unit, 0, digests, &why));
    for (size_t tokens = 1; tokens <= n * unit + unit - 1; tokens += 7) {
        const struct ha_device_digest_seq due = ha_digests_due(&w.shape, digests, &w.kv, tokens);
        make_digests(kind, digests, &due);
    }
    const struct ha_device_digest_seq due = ha_digests_due(&w.shape, digests, &w.kv, n * unit + unit - 1);
    make_digests(kind, digests, &due);
    assert_int_equal(digests->blocks, n);
}

static void check(enum ha_group group, size_t unit, size_t n, size_t k, enum ha_digest_kind kind)
{
    struct ha_choose c;
    struct {
        struct ha_kv kv;
        struct ha_digests digests;
    } seq[BATCH];
    const size_t candidates[BATCH] = { n / 2, n }; /* of each sequence */
    assert_ok(ha_choose_create(&c, &w.ctx, group, k, TOKENS, &why));
    uint32_t *index = calloc(BATCH * KV_HEADS * c.lists * c.list_max + 1, sizeof *index);
    uint32_t count[BATCH * KV_HEADS * GROUP];
    for (size_t b = 0; b < BATCH; b++) {
        seq[b].kv = w.kv;
        if (unit > 1) digest(unit, candidates[b], kind, &seq[b].digests);
    }
    if (unit > 1) ha_choose_blocks(&c, w.q, &seq->digests, sizeof *seq, index, count);
    else ha_choose_keys(&c, w.q, &seq->kv, sizeof *seq, candidates, index, count);
    for (size_t list = 0; list < BATCH * KV_HEADS * c.lists; list++) {
        const size_t l = list % c.lists, head = list / c.lists % KV_HEADS, b = list / c.lists / KV_HEADS,
                     all = candidates[b];
        size_t next = 0;
        assert_true(count[list] <= c.list_max);
        for (size_t i = 0; i < all; i++) {
            bool want = false;
            if (group == HA_GROUP_UNION)
                for (size_t g = 0; g < GROUP; g++) want |= chooses(b, head * GROUP + g, false, unit, all, k, i, kind);
            else want = chooses(b, head * GROUP + l, group == HA_GROUP_MAX, unit, all, k, i, kind);
            const bool got = next < count[list] && index[list * c.list_max + next] == i;
            next += got;
            if (got != want)
                fail_msg("group %d, blocks of %zu, %zu of %zu: candidate %zu of list %zu is %s", (int)group, unit, k,
                         all, i, list, got ? "chosen" : "not chosen");
        }
        assert_int_equal(next, count[list]);
    }
    free(index);
}

TEST(choices_are_exact)
{
    static const struct {
        size_t unit, n, k;
    } cases[] = { { 1, 0, 3 },  { 1, 1, 3 },  { 1, 40, 1 }, { 1, 40, 7 }, { 1, 40, 40 }, { 1, 39, 100 },
                  { 16, 9, 2 }, { 16, 0, 2 }, { 32, 4, 3 }, { 8, 18, 5 }, { 16, 8, 8 } };
    for (size_t q_len = 1; q_len <= Q_LEN; q_len += Q_LEN - 1)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            begin(q_len, (enum ha_dtype)dtype, 7 + q_len);
            for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (int g = HA_GROUP_HEAD; g <= HA_GROUP_UNION; g++)
                    for (int kind = HA_DIGEST_RANGE; kind <= (cases[i].unit > 1 ? HA_DIGEST_MEAN : HA_DIGEST_RANGE);
                         kind++)
                        check((enum ha_group)g, cases[i].unit, cases[i].n, cases[i].k, (enum ha_digest_kind)kind);
            end();
        }
}

/* Digests of a store are those of the rows that it was made of, wherever packed blocks end; as it grows, too. */
TEST(digests_of_a_store)
{
    static const size_t units[] = { 8, 16, 32, 64, 128 };
    for (int packed = 0; packed < 2; packed++)
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            struct ha_digests of_rows, of_store;
            struct ha_kv_store store;
            begin(1, HA_F16, 11);
            w.shape.steps = 0;
            /* [kv_heads][cap][head_dim], as a prefill has it */
            uint16_t *k = malloc(KV_HEADS * TOKENS * DIM * sizeof *k);
            for (size_t h = 0; h < KV_HEADS; h++)
                for (size_t t = 0; t < TOKENS; t++)
                    memcpy(k + (h * TOKENS + t) * DIM, w.kv.k + (t * KV_HEADS + h) * DIM * sizeof *k, DIM * sizeof *k);
            const void *const all[] = { k };
            const struct ha_prefill in = { .k = all, .v = all, .cap = TOKENS };
            assert_ok(ha_kv_store_create(&w.ctx, packed, 0, &store, &why));
            assert_ok(ha_kv_store_load(&w.ctx, &store, &in, 0));
            assert_true(packed == (store.packed > 0));
            assert_ok(ha_digests_create(&w.ctx, HA_MEM_PINNED, units[u], 0, &of_rows, &why));
            assert_ok(ha_digests_create(&w.ctx, HA_MEM_PINNED, units[u], 0, &of_store, &why));
            for (int kind = HA_DIGEST_RANGE; kind <= HA_DIGEST_MEAN; kind++) {
                of_rows.blocks = of_store.blocks = 0;
                const struct ha_device_digest_seq due = ha_digests_due(&w.shape, &of_rows, &w.kv, TOKENS);
                make_digests((enum ha_digest_kind)kind, &of_rows, &due);
                for (size_t tokens = 1; tokens <= TOKENS; tokens += 37) {
                    struct ha_kv_store part = store;
                    part.tokens = tokens;
                    ha_digests_of_store(&w.ctx, (enum ha_digest_kind)kind, &of_store, &part);
                    assert_int_equal(of_store.blocks, tokens / units[u]);
                }
                ha_digests_of_store(&w.ctx, (enum ha_digest_kind)kind, &of_store, &store);
                assert_int_equal(of_store.blocks, TOKENS / units[u]);
                assert_memory_equal(of_store.bytes, of_rows.bytes, KV_HEADS * of_rows.head_bytes);
            }
            free(k);
            end();
        }
}

/* Counted in integers: so many hundredths of n candidates, rounded up. */
TEST(shares_are_rounded_up)
{
    for (size_t percent = 1; percent <= 100; percent++)
        for (size_t n = 0; n <= 1000; n++)
            assert_int_equal(ha_share_of((double)percent / 100, n), (percent * n + 99) / 100);
    assert_int_equal(ha_share_of(1e-6, 5), 1);
    assert_int_equal(ha_share_of(1e-6, 2000001), 3);
}
