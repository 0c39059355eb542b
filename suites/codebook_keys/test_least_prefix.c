/* The fewest keys of largest weight that reach tau, and sums of their values: by the CPU, head by head or at once, and
 * by the device, beside binary64 and the rule as it is written, of the weights that the device made. */

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

/* ---- what has to come out ------------------------------------------------------------------------------------- */

static int by_weight(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    if (x[0] != y[0]) return x[0] > y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : 1;
}

/* by the weights that the device has made: how many a list takes, and which */
static size_t prefix_of(size_t list, size_t keys, bool *taken)
{
    static float w[Q_MOST][KEYS_MOST];
    static uint64_t sorted[KEYS_MOST][2];
    const size_t q_len = now.shape.q_len;
    for (size_t t = 0; t < q_len && keys; t++)
        move(w[t], p->x + (list * q_len + t) * p->stride, keys * sizeof(float), HA_D2H);
    for (size_t i = 0; i < keys; i++) {
        sorted[i][0] = 0, sorted[i][1] = i;
        for (size_t t = 0; t < q_len; t++) sorted[i][0] += (uint64_t)floor(ldexp((double)w[t][i], HA_TOPP_BITS));
    }
    qsort(sorted, keys, sizeof *sorted, by_weight);
    memset(taken, 0, KEYS_MOST);
    size_t n = 0;
    const uint64_t enough = (uint64_t)ceil((double)q_len * now.tau * 0x1p52);
    for (uint64_t sum = 0; n < keys && sum < enough; n++) {
        sum += sorted[n][0];
        taken[sorted[n][1]] = true;
    }
    return n;
}

static float value_of(size_t b, size_t kv, size_t key, size_t d)
{
    float x[DIM];
    const unsigned char *at = values[b].at + kv * values[b].head_bytes + key * ha_kv_head_bytes(&now.shape);
    if (values[b].memory == HA_MEM_DEVICE) {
        unsigned char row[DIM * sizeof(float)];
        move(row, at, ha_kv_head_bytes(&now.shape), HA_D2H);
        ha_load_row(row, DIM, now.shape.dtype, x);
    } else {
        ha_load_row(at, DIM, now.shape.dtype, x);
    }
    return x[d];
}

/* The state of a query head and token, by binary64. Returns what its chosen weights add up to. */
static double expect_state(size_t b, size_t head, size_t t, const bool *taken, const struct ha_state *got)
{
    const size_t list = b * Q_HEADS + head, row = (b * now.shape.q_len + t) * Q_HEADS + head, n = seqs[b].keys;
    const float *s = score[list * now.shape.q_len + t];
    const double near = now.w_type == HA_F16 ? 2e-3 : 1e-5;
    double sum = 0, mass = 0, o[DIM] = { 0 };
    for (size_t i = 0; i < n; i++) sum += exp((double)s[i]);
    for (size_t i = 0; i < n; i++) {
        const double w = taken[i] ? exp((double)s[i]) / sum : 0;
        mass += w;
        for (size_t d = 0; d < DIM && taken[i]; d++) o[d] += w * (double)value_of(b, head / GROUP, i, d);
    }
    const double lse = n ? log(sum) + (now.renorm ? log(mass) : 0) : -HUGE_VAL;
    if (!(n ? fabs((double)got->lse[row] - lse) <= near : (double)got->lse[row] == lse))
        fail_msg("seq %zu head %zu token %zu: LSE %g, not %g", b, head, t, (double)got->lse[row], lse);
    for (size_t d = 0; d < DIM; d++) {
        const double want = now.renorm && n ? o[d] / mass : o[d];
        if (!(fabs((double)got->o[row * DIM + d] - want) <= 4 * near))
            fail_msg("seq %zu head %zu token %zu: o[%zu] %g, not %g", b, head, t, d, (double)got->o[row * DIM + d],
                     want);
    }
    return mass;
}

/* Lists, states, masses and claims of KV heads [first, first + heads). Returns how many keys were chosen. */
static size_t expect_choice(size_t first, size_t heads, const struct ha_state *got)
{
    const double near = now.w_type == HA_F16 ? 2e-3 : 1e-5;
    size_t all = 0;
    for (size_t i = 0; i < BATCH * heads * GROUP; i++) {
        const size_t b = i / (heads * GROUP), head = first * GROUP + i % (heads * GROUP), list = b * Q_HEADS + head;
        bool taken[KEYS_MOST];
        size_t count, j = 0;
        double mean = 0, least = 1;
        const size_t wanted = prefix_of(list, seqs[b].keys, taken);
        const uint32_t *index = ha_prefix_list(p, b, head, &count);
        assert_int_equal(count, wanted);
        for (size_t key = 0; key < seqs[b].keys; key++)
            if (taken[key]) assert_int_equal(index[j++], key);
        for (size_t t = 0; t < now.shape.q_len; t++) {
            const double mass = expect_state(b, head, t, taken, got);
            mean += mass / (double)now.shape.q_len;
            least = fmin(least, mass);
        }
        assert_true(fabs(p->mass[list] - mean) <= near);
        struct ha_profile claims = { .dot_lanes = 7 };
        ha_prefix_claim(p, b, head, &claims);
        assert_true(claims.sum_rounded == now.renorm && claims.weight_type == now.w_type && claims.dot_lanes == 7);
        if (now.renorm && wanted) assert_true(claims.sum_least <= least && claims.sum_least >= least * (1 - 0x1p-7));
        if (!now.renorm) assert_true(claims.sum_least == 1);
        all += count;
    }
    return all;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static struct ha_state blank(void)
{
    static float o[LISTS * Q_MOST * DIM], lse[LISTS * Q_MOST];
    for (size_t i = 0; i < COUNT(o); i++) o[i] = NAN;
    for (size_t i = 0; i < COUNT(lse); i++) lse[i] = NAN;
    return (struct ha_state){ o, lse };
}

static size_t sum_here(void)
{
    const struct ha_state got = blank();
    ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
    ok(ha_prefix_sum_here(p, seqs, 0, KV_HEADS, &got, &why));
    return expect_choice(0, KV_HEADS, &got);
}

static size_t sum_there(void)
{
    const size_t o_bytes = rows() * DIM * sizeof(float), lse_bytes = rows() * sizeof(float);
    const struct ha_state got = blank(),
                          to = { memory_of(HA_MEM_DEVICE, o_bytes), memory_of(HA_MEM_DEVICE, lse_bytes) };
    ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
    ok(ha_prefix_sum_there(p, seqs, &to));
    ok(ha_prefix_learn(p, seqs, &why));
    move(got.o, to.o, o_bytes, HA_D2H);
    move(got.lse, to.lse, lse_bytes, HA_D2H);
    return expect_choice(0, KV_HEADS, &got);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(every_type_and_every_end)
{
    static const size_t keys[][BATCH] = { { 0, 0 }, { 1, 0 }, { 15, 16 }, { 17, 64 }, { 700, 3 } };
    static const double taus[] = { 1e-6, 0.5, 0.9, 1 };
    for (size_t i = 0; i < COUNT(keys) * COUNT(taus) * 2; i++) {
        const bool there = i % 2;
        now.tau = taus[i / 2 % COUNT(taus)];
        now.renorm = !there && i / 4 % 2;
        now.w_type = i / 8 % 2 ? HA_F16 : HA_F32;
        begin(keys[i / 2 / COUNT(taus)], (enum ha_dtype)(i % 3), 1 + i % Q_MOST, there ? HA_MEM_DEVICE : HA_MEM_PINNED);
        draw_scores(i % 5 ? 2 : 0.1f);
        put_scores();
        const size_t all = there ? sum_there() : sum_here();
        assert_int_equal(ha_prefix_chosen(p), all);
        for (size_t b = 0, least = 0; b < BATCH; b++) assert_true(all >= (least += seqs[b].keys ? Q_HEADS : 0));
        assert_int_equal(ha_prefix_key_bytes(p), 4 + now.shape.q_len * (now.w_type == HA_F16 ? 2 : 4));
        close_instance();
    }
}

/* One KV head after the other, the later first: what is asked for alone is written. */
TEST(ranges_of_heads)
{
    static const size_t keys[] = { 60, 33 };
    now.tau = 0.8, now.renorm = false, now.w_type = HA_F32;
    begin(keys, HA_BF16, 2, HA_MEM_PINNED);
    draw_scores(2);
    put_scores();
    const struct ha_state got = blank();
    for (size_t head = KV_HEADS; head-- > 0;) {
        ok(ha_prefix_choose(p, seqs, head, 1));
        ok(ha_prefix_sum_here(p, seqs, head, 1, &got, &why));
        expect_choice(head, 1, &got);
        if (head == 0) continue;
        for (size_t i = 0; i < rows(); i++)
            assert_true(isnan(got.lse[i]) == (i % Q_HEADS < GROUP) && isnan(got.o[i * DIM]) == (i % Q_HEADS < GROUP));
    }
    close_instance();
}

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

/* Lists that no device can have made are read from no memory. */
TEST(lists_that_cannot_be)
{
    static const size_t keys[] = { 20, 7 };
    static const uint32_t behind = 7;
    now.tau = 1, now.renorm = false, now.w_type = HA_F32;
    for (size_t i = 0; i < 2; i++) {
        begin(keys, HA_F16, 1, HA_MEM_PINNED);
        draw_scores(0.1f);
        put_scores();
        const struct ha_state got = blank();
        ok(ha_prefix_choose(p, seqs, 0, KV_HEADS));
        ok(mine.ctx.api->stream_sync(mine.ctx.stream));
        const size_t list = Q_HEADS + 1;
        if (i) p->keys_down[list] = 8;
        else move(p->index + list * p->stride + 6, &behind, sizeof behind, HA_H2D);
        assert_int_equal(ha_prefix_sum_here(p, seqs, 0, KV_HEADS, &got, &why), HA_ERROR);
        assert_non_null(strstr(why.text, i ? "8 keys chosen of 7" : "keys that the device chose"));
        close_instance();
    }
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
