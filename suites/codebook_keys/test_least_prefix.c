/* The fewest keys of largest weight that reach tau, by hand, and what is refused. Of random scores `habench check`
 * judges them, of hcattention. */

#include "suites/codebook_keys/least_prefix.h"
#include "suites/parts/test_instance.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>

enum { BATCH = 2, Q_HEADS = 4, KV_HEADS = 2, GROUP = 2, DIM = 8, Q_MOST = 3, KEYS_MOST = 704, LISTS = BATCH * Q_HEADS };

static struct {
    struct ha_shape shape;
    double tau;
    bool renorm;
    enum ha_dtype w_type;
    size_t keys_max;
} now;

static struct ha_prefix *p;
static struct ha_head_rows values[BATCH];
static struct ha_prefix_seq seqs[BATCH];
static float score[LISTS * Q_MOST][KEYS_MOST]; /* of row [b][head][token] */

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    p = first->shared;
    return ha_prefix_create(p, first, now.tau, now.renorm, now.w_type, now.keys_max, because);
}

static const struct ha_rule rule = { .shared_bytes = sizeof(struct ha_prefix), .share = share };

static size_t rows(void) { return LISTS * now.shape.q_len; }

static void begin(const size_t *keys, enum ha_dtype type, size_t q_len, enum ha_memory memory)
{
    now.keys_max = ha_most(keys[0], keys[1]);
    now.shape = (struct ha_shape){ .layers = 1,
                                   .batch = BATCH,
                                   .q_heads = Q_HEADS,
                                   .kv_heads = KV_HEADS,
                                   .head_dim = DIM,
                                   .dtype = type,
                                   .ctx = { keys[0], keys[1] },
                                   .q_len = q_len,
                                   .steps = 1 };
    open_instance(&now.shape, &rule);
    for (size_t b = 0; b < BATCH; b++) {
        unsigned char *v = malloc(KV_HEADS * (keys[b] + 1) * DIM * sizeof(float));
        for (size_t i = 0; i < KV_HEADS * keys[b] * DIM; i++) ha_store(v, i, type, ha_rng_normal(3, b, i));
        ok(ha_head_rows_create(&mine.ctx, memory, b, &values[b], &why));
        ok(ha_head_rows_load(&mine.ctx, &values[b], 0, v, keys[b], 0, keys[b]));
        free(v);
        seqs[b] = (struct ha_prefix_seq){ keys[b], &values[b] };
    }
}

static void put_scores(void)
{
    for (size_t i = 0; i < rows(); i++) move(p->x + i * p->stride, score[i], p->stride * sizeof(float), HA_H2D);
}

static void draw_scores(float size)
{
    for (size_t i = 0; i < COUNT(score) * KEYS_MOST; i++)
        score[i / KEYS_MOST][i % KEYS_MOST] = size * ha_rng_normal(5, i / KEYS_MOST, i % KEYS_MOST);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static struct ha_state blank(void)
{
    static float o[LISTS * Q_MOST * DIM], lse[LISTS * Q_MOST];
    for (size_t i = 0; i < COUNT(o); i++) o[i] = NAN;
    for (size_t i = 0; i < COUNT(lse); i++) lse[i] = NAN;
    return (struct ha_state){ o, lse };
}

static void sum_here(void)
{
    const struct ha_state got = blank();
    ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
    ok(ha_prefix_sum_here(p, seqs, 0, KV_HEADS, &got, &why));
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Weights that are exact, and that add up to what is asked for exactly: of equals the first, and no key more. */
TEST(ties)
{
    static const struct {
        double tau;
        size_t keys, chosen;
    } of[] = { { 0.5, 8, 4 },   { 0.5 + 0x1p-50, 8, 5 }, { 1, 8, 8 },     { 0x1p-50, 8, 1 },
               { 0.125, 8, 1 }, { 0.126, 8, 2 },         { 1, 256, 256 }, { 0.25, 256, 64 } };
    for (size_t i = 0; i < COUNT(of); i++) {
        const size_t keys[] = { of[i].keys, of[i].keys };
        now.tau = of[i].tau, now.renorm = false, now.w_type = HA_F32;
        begin(keys, HA_F32, 1 + i % 2, HA_MEM_PINNED);
        draw_scores(0);
        put_scores();
        sum_here();
        for (size_t list = 0; list < LISTS; list++) {
            size_t count;
            const uint32_t *index = ha_prefix_list(p, list / Q_HEADS, list % Q_HEADS, &count);
            assert_int_equal(count, of[i].chosen);
            for (size_t j = 0; j < count; j++) assert_int_equal(index[j], j);
        }
        close_instance();
    }
}

/* With tau = 1 keys that weigh nothing are not needed; where the rounded weights do not add up to 1 all are taken. */
TEST(all_of_the_weight)
{
    static const size_t keys[] = { 20, 3 };
    now.tau = 1, now.renorm = false, now.w_type = HA_F32;
    begin(keys, HA_F16, 1, HA_MEM_PINNED);
    draw_scores(0);
    for (size_t i = 0; i < LISTS; i++)
        for (size_t j = 0; j < 20; j++) score[i][j] = i < Q_HEADS && j != 4 && j != 19 ? -1e4f : 0;
    put_scores();
    sum_here();
    for (size_t list = 0; list < LISTS; list++) {
        size_t count;
        const uint32_t *index = ha_prefix_list(p, list / Q_HEADS, list % Q_HEADS, &count);
        assert_int_equal(count, list < Q_HEADS ? 2 : 3);
        if (list < Q_HEADS) assert_true(index[0] == 4 && index[1] == 19);
    }
    close_instance();
}

/* Two tokens that want other keys: with tau below half the first one's alone are chosen, and weigh nothing in the
 * other. */
TEST(keys_without_weight)
{
    static const size_t keys[] = { 9, 4 };
    now.tau = 0.3, now.w_type = HA_F32;
    for (size_t i = 0; i < 2; i++) {
        now.renorm = i;
        begin(keys, HA_F32, 2, HA_MEM_PINNED);
        for (size_t row = 0; row < LISTS * 2; row++)
            for (size_t j = 0; j < 9; j++) score[row][j] = j == row % 2 ? 0 : -1e4f;
        put_scores();
        const struct ha_state got = blank();
        ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
        assert_int_equal(ha_prefix_sum_here(p, seqs, 0, KV_HEADS, &got, &why), i ? HA_WAIVED : HA_OK);
        if (i) assert_non_null(strstr(why.text, "the 1 keys that query head 0 chose weigh nothing"));
        close_instance();
    }
}

/* Weights that did not arrive are no weights of nothing. */
TEST(weights_that_are_lost)
{
    static const size_t keys[] = { 9, 4 };
    now.tau = 0.3, now.w_type = HA_F32, now.renorm = true;
    begin(keys, HA_F32, 1, HA_MEM_PINNED);
    draw_scores(1);
    put_scores();
    const struct ha_state got = blank();
    ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    static const float nothing[KEYS_MOST];
    move(p->w, nothing, 9 * sizeof(float), HA_H2D);
    assert_int_equal(ha_prefix_sum_here(p, seqs, 0, KV_HEADS, &got, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "chosen keys add up to 0, where tau is 0.3"));
    close_instance();
}

/* More tokens of a step than a choice can be of are refused before anything is allocated. */
TEST(steps_that_are_too_long)
{
    now.shape = (struct ha_shape){ .layers = 1,
                                   .batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .head_dim = 1,
                                   .dtype = HA_F32,
                                   .q_len = HA_TOPP_ROWS_MAX + 1,
                                   .steps = 1 };
    now.keys_max = 1;
    open_context(&ha_device_host, &now.shape, &rule);
    assert_int_equal(make_instance(), HA_ERROR);
    assert_non_null(strstr(why.text, "steps of 1025 tokens; weights are chosen for at most 1024"));
    close_instance();
}
