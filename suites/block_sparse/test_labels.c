/* Labels by the CPU's kernels: by hand, and against the rule in binary64. */

#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "reference/labels.h"
#include "suites/block_sparse/labels.h"

#include <math.h>

enum { TOKENS = 420, DIM = 32, HEADS_MAX = 4, GROUPS = 3 };

extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

/* K and V of all KV heads as a variant keeps them, token by token; and once more head by head. */
static struct {
    struct ha_shape shape;
    size_t tokens, first, host, dim;
    unsigned char *k, *v;       /* [tokens][kv_heads][dim] */
    unsigned char *k_of, *v_of; /* [kv_heads][tokens][dim] */
    float q[GROUPS * HEADS_MAX * DIM];
    struct ha_arena *arena;
    struct ha_labels labels;
    struct ha_label_unit unit[GROUPS * HEADS_MAX];
    struct ha_label label[GROUPS * HEADS_MAX];
    float o[2][GROUPS * HEADS_MAX][DIM], lse[2][GROUPS * HEADS_MAX];
} w;

static void *room(size_t bytes)
{
    void *at = ha_alloc(w.arena, bytes, HA_TAG_SCRATCH, &why);
    if (!at) fail_msg("%s", why.text);
    return at;
}

static void begin(struct ha_shape shape, size_t tokens, size_t first, size_t host)
{
    const size_t bytes = tokens * shape.kv_heads * shape.head_dim * ha_dtype_bytes(shape.dtype);
    memset(&w, 0, sizeof w);
    w.shape = shape;
    w.tokens = tokens;
    w.first = first;
    w.host = host;
    ok(ha_arena_create(&w.arena, true, &why));
    w.k = room(bytes);
    w.v = room(bytes);
    w.k_of = room(bytes);
    w.v_of = room(bytes);
    w.labels = (struct ha_labels){ .shape = &w.shape, .kernels = &ha_kernels_c, .tau = 0.1 };
    ok(ha_pool_create(&w.labels.pool, HA_TEAM_DEFAULT, 2, &why));
}

static void end(void)
{
    ha_pool_destroy(w.labels.pool);
    ok(ha_arena_check(w.arena, &why));
    ha_arena_destroy(w.arena);
}

static void set(size_t token, size_t head, size_t d, float k, float v)
{
    const size_t dim = w.shape.head_dim, at = (token * w.shape.kv_heads + head) * dim + d,
                 of = (head * w.tokens + token) * dim + d;
    ha_store(w.k, at, w.shape.dtype, k);
    ha_store(w.v, at, w.shape.dtype, v);
    ha_store(w.k_of, of, w.shape.dtype, k);
    ha_store(w.v_of, of, w.shape.dtype, v);
}

static struct ha_rows rows_of(size_t head, size_t first, size_t count)
{
    const size_t row = w.shape.head_dim * ha_dtype_bytes(w.shape.dtype), token = w.shape.kv_heads * row;
    return (struct ha_rows){ .k = w.k + first * token + head * row,
                             .v = w.v + first * token + head * row,
                             .k_stride_bytes = token,
                             .v_stride_bytes = token,
                             .keys = count };
}

/* the state of a query over [first, first + count) */
static void attend(const float *q, size_t head, size_t first, size_t count, float *o, float *lse)
{
    const struct ha_rows run = rows_of(head, first, count);
    struct ha_attend a = { .q = q,
                           .q_len = 1,
                           .group = 1,
                           .head_dim = w.shape.head_dim,
                           .runs = &run,
                           .runs_count = 1,
                           .dtype = w.shape.dtype,
                           .scale = w.shape.scale,
                           .o = o,
                           .lse = lse };
    a.scratch = room(ha_kernels_c.attend_scratch_bytes(&a));
    ha_kernels_c.attend(&ha_kernels_c, &a);
}

/* The units, [groups][q_heads], with digests of their own. */
static void make_units(size_t groups)
{
    const size_t dim = w.shape.head_dim, local = w.first + w.host;
    void *digest[HEADS_MAX][HA_LABEL_SIZES] = { { NULL } };
    for (size_t h = 0; h < w.shape.kv_heads; h++)
        for (size_t i = 1; i < HA_LABEL_SIZES && w.host; i++) {
            const size_t blocks = w.host / ha_label_size(i);
            digest[h][i] = room(ha_digest_bytes(blocks, dim, w.shape.dtype));
            ha_kernels_c.digest(&(struct ha_digest){ .kind = w.labels.digest,
                                                     .digests = digest[h][i],
                                                     .blocks = blocks,
                                                     .unit = ha_label_size(i),
                                                     .rows = rows_of(h, w.first, w.host),
                                                     .head_dim = dim,
                                                     .dtype = w.shape.dtype });
        }
    for (size_t u = 0; u < groups * w.shape.q_heads; u++) {
        const size_t head = u % w.shape.q_heads / ha_shape_group(&w.shape);
        struct ha_label_unit *unit = &w.unit[u];
        *unit = (struct ha_label_unit){ .q = w.q + u * dim, .host = rows_of(head, w.first, w.host) };
        attend(unit->q, head, 0, w.first, w.o[0][u], &w.lse[0][u]);
        attend(unit->q, head, local, w.tokens - local, w.o[1][u], &w.lse[1][u]);
        for (size_t i = 0; i < 2; i++) unit->o[i] = w.o[i][u], unit->lse[i] = w.lse[i][u];
        for (size_t i = 1; i < HA_LABEL_SIZES; i++) unit->digest[i] = digest[head][i];
    }
}

static void run(size_t groups)
{
    make_units(groups);
    ok(ha_labels_create(&w.labels, w.arena, w.host, groups * w.shape.q_heads, &why));
    memset(w.label, 0xFF, sizeof w.label);
    ha_labels_run(&w.labels, w.unit, groups, w.shape.q_heads, w.label);
}

static void is(float one, float b16, float b32, float b64, float b128)
{
    const float want[HA_LABEL_SIZES] = { one, b16, b32, b64, b128 };
    for (size_t i = 0; i < HA_LABEL_SIZES; i++)
        if (w.label[0].budget[i] != want[i])
            fail_msg("budget(%zu) is %.9g, not %.9g", ha_label_size(i), (double)w.label[0].budget[i], (double)want[i]);
    assert_true(w.label[0].bgt0 == one && w.label[0].streaming == (one == 0));
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* A key of weight 1 and value 0 at the end, on the device; on the host 128 that weigh nothing, but for two. */
static void two_keys(double weight5, float value5, double weight70, float value70, double tau)
{
    begin((struct ha_shape){ .q_heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1 }, 129, 0, 128);
    for (size_t i = 0; i < 128; i++) set(i, 0, 0, -200, 0);
    set(128, 0, 0, 0, 0);
    set(5, 0, 0, (float)log(weight5), value5);
    set(70, 0, 0, (float)log(weight70), value70);
    w.q[0] = 1;
    w.labels.tau = tau;
}

TEST(by_hand)
{
    two_keys(3, 1, 1, -1, 0.8); /* o = 2/5, of the device 0, with key 5 3/4: 7/20 off */
    run(1);
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    assert_true(fabs(w.label[0].o_norm - 0.4) < 1e-6 && fabs(w.label[0].host_norm - 0.5) < 1e-6
                && fabs(w.label[0].host_lse - log(4)) < 1e-6);
    end();
    two_keys(3, 1, 1, -1, 0.9); /* of the largest output, which is this head's */
    run(1);
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    assert_true(fabs((double)w.label[0].k - 1482. / (126 * 128)) < 1e-7);
    assert_true(fabs((double)w.label[0].r2 - 0.6202136) < 1e-5);
    w.labels.criterion = HA_CRITERION_SCORE; /* 1/5 and 4/5 of the mass are less than 0.95 */
    run(1);
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    end();
    two_keys(1, 0, 1, 2, 0.9); /* of equal scores the first, which is none the better */
    run(1);
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    end();
    two_keys(1, 2, 1, 0, 0.9);
    run(1);
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    end();
    two_keys(1, 1, 1, -1, 0.01); /* nothing is 0 off */
    run(1);
    is(0, 0, 0, 0, 0);
    assert_true(!(fabsf(w.label[0].k) > 0) && isnan(w.label[0].r2));
    end();
}

/* The device's weights are 0 beside those of the host: its own attention is what counts, while nothing else is used. */
TEST(far_below)
{
    begin((struct ha_shape){ .q_heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1 }, 129, 0, 128);
    for (size_t i = 0; i < 128; i++) set(i, 0, 0, i == 9 ? 2000 : -200, 1);
    set(128, 0, 0, 0, 1.05f);
    w.q[0] = 1;
    run(1);
    is(0, 0, 0, 0, 0);
    w.labels.tau = 0.01;
    run(1);
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    w.labels.criterion = HA_CRITERION_SCORE;
    run(1);
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    end();
}

TEST(no_keys)
{
    two_keys(1, 1, 1, 1, 0.1);
    w.first = 128, w.host = 0; /* none on the host */
    run(1);
    is(0, 0, 0, 0, 0);
    assert_true(w.label[0].host_lse == -HUGE_VAL && !(w.label[0].host_norm > 0));
    end();
    two_keys(1, 1, 1, 1, 0.1);
    w.tokens = 128; /* none on the device: attention over none is 0 */
    run(1);
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    w.labels.tau = 1;
    run(1);
    is(0, 0, 0, 0, 0);
    w.labels.criterion = HA_CRITERION_SCORE;
    run(1);
    assert_false(w.label[0].streaming);
    end();
}

TEST(not_finite)
{
    for (size_t what = 0; what < 3; what++) {
        two_keys(3, 1, 1, -1, 0.8);
        if (what == 0) w.q[0] = NAN;
        if (what == 1) set(70, 0, 0, NAN, 1);
        if (what == 2) set(70, 0, 0, 0, NAN);
        run(1);
        is(1, 1, 1, 1, 1);
        end();
    }
}

/* ---- against binary64 -------------------------------------------------------------------------------------------- */

static const struct shape {
    size_t q_heads, kv_heads, tokens, first, host;
} shapes[] = { { 4, 2, 411, 7, 384 }, { 4, 4, 300, 0, 256 }, { 3, 1, 140, 3, 128 } };

static void random_world(const struct shape *of, enum ha_dtype type, uint64_t seed)
{
    begin(
        (struct ha_shape){
            .q_heads = of->q_heads, .kv_heads = of->kv_heads, .head_dim = DIM, .dtype = type, .scale = 0.17f },
        of->tokens, of->first, of->host);
    for (size_t i = 0; i < GROUPS * of->q_heads * DIM; i++)
        w.q[i] = ha_rng_normal(seed, 0, i) * (i / DIM % 3 ? 2 : 0.5f);
    for (size_t i = 0; i < of->tokens * of->kv_heads * DIM; i++) {
        const size_t token = i / DIM / of->kv_heads, head = i / DIM % of->kv_heads, d = i % DIM;
        const bool device = token < of->first || token >= of->first + of->host;
        set(token, head, d, ha_rng_normal(seed, 1, i) + (device && head == 0 ? 0.5f * w.q[d] : 0),
            ha_rng_normal(seed, 2, i) + (d < 8));
    }
}

static struct ha_def_labelled labelled(size_t unit, const struct ha_profile *profile)
{
    const size_t bytes = w.tokens * DIM * ha_dtype_bytes(w.shape.dtype),
                 head = unit % w.shape.q_heads / ha_shape_group(&w.shape);
    return (struct ha_def_labelled){ .shape = &w.shape,
                                     .q = w.q + unit * DIM,
                                     .k = w.k_of + head * bytes,
                                     .v = w.v_of + head * bytes,
                                     .tokens = w.tokens,
                                     .first = w.first,
                                     .host = w.host,
                                     .criterion = (enum ha_def_criterion)w.labels.criterion,
                                     .tau = w.labels.tau,
                                     .mean = w.labels.digest == HA_DIGEST_MEAN,
                                     .profile = profile };
}

static struct {
    size_t labels, same, streaming, full;
} seen;

static void check_unit(size_t unit, struct ha_ref_score most, const struct ha_profile *profile)
{
    static uint8_t met[TOKENS];
    struct ha_def_labelled of = labelled(unit, profile);
    const struct ha_label *got = &w.label[unit];
    struct ha_def_labels want;
    of.most = most;
    ok(ha_def_label(&of, &want, &why));
    double budget[HA_DEF_SIZES];
    bool same = true;
    for (size_t i = 0; i < HA_LABEL_SIZES; i++) {
        const size_t blocks = w.host / ha_label_size(i);
        const double m = (double)got->budget[i] * (double)blocks;
        budget[i] = (double)got->budget[i];
        ok(ha_def_label_met(&of, i, met, &why));
        if (!(fabs(m - round(m)) < 1e-4) || !ha_def_label_may(met, blocks, (size_t)round(m)))
            fail_msg("unit %zu, criterion %d: %.9g of %zu blocks of %zu, %.9g in binary64", unit,
                     (int)w.labels.criterion, m, blocks, ha_label_size(i), want.budget[i] * (double)blocks);
        same = same && fabs(want.budget[i] - budget[i]) < 1e-6;
        seen.full += i == 1 && round(m) == (double)blocks;
    }
    assert_true(got->streaming == (got->budget[0] == 0) && got->bgt0 == got->budget[0]);
    assert_true(fabs((double)got->k - ha_def_slope(budget)) < 1e-6);
    const double line = ha_def_line(budget);
    if (isnan(line) != isnan(got->r2) || fabs(line - (double)got->r2) > 1e-4)
        fail_msg("R2 %g, not %g", (double)got->r2, line);
    seen.labels++;
    seen.same += same;
    seen.streaming += got->streaming;
}

static void check_norms(size_t unit)
{
    static double p[TOKENS];
    double o[DIM] = { 0 }, squares = 0;
    const size_t head = unit % w.shape.q_heads / ha_shape_group(&w.shape);
    const struct ha_rows rows = rows_of(head, w.first, w.host);
    const double lse = ha_ref_weights(w.q + unit * DIM, DIM, (double)w.shape.scale, &rows, w.shape.dtype, p);
    for (size_t i = 0; i < w.host * DIM; i++)
        o[i % DIM] += p[i / DIM]
                      * (double)ha_load((const char *)rows.v + i / DIM * rows.v_stride_bytes, i % DIM, w.shape.dtype);
    for (size_t d = 0; d < DIM; d++) squares += o[d] * o[d];
    assert_true(fabs(w.label[unit].host_lse - lse) < 1e-5);
    assert_true(fabs(w.label[unit].host_norm - sqrt(squares)) < 1e-5);
}

static void check_world(void)
{
    const struct ha_profile profile = ha_profile_attend(&ha_kernels_c, w.shape.dtype);
    for (size_t g = 0; g < GROUPS; g++) {
        struct ha_ref_score most = { 0, 0, 0 };
        for (size_t h = 0; h < w.shape.q_heads; h++) {
            const size_t unit = g * w.shape.q_heads + h;
            const struct ha_def_labelled of = labelled(unit, &profile);
            struct ha_ref_score norm;
            ok(ha_def_label_norm(&of, &norm, &why));
            if (!(w.label[unit].o_norm >= norm.low && w.label[unit].o_norm <= norm.high))
                fail_msg("unit %zu: |o| is %.9g, not %.9g", unit, w.label[unit].o_norm, norm.value);
            most = (struct ha_ref_score){ fmax(most.value, norm.value), fmax(most.low, norm.low),
                                          fmax(most.high, norm.high) };
            check_norms(unit);
        }
        for (size_t h = 0; h < w.shape.q_heads; h++) check_unit(g * w.shape.q_heads + h, most, &profile);
    }
}

TEST(against_binary64)
{
    uint64_t seed = 0;
    memset(&seen, 0, sizeof seen);
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int criterion = 0; criterion < 3; criterion++)
            for (int type = 0; type < HA_DTYPE_COUNT; type++)
                for (int mean = 0; mean < 2; mean++, seed++) {
                    if (HA_SANITIZED && seed % 5) continue;
                    random_world(&shapes[i], (enum ha_dtype)type, seed);
                    w.labels.criterion = (enum ha_criterion)criterion;
                    w.labels.digest = mean ? HA_DIGEST_MEAN : HA_DIGEST_RANGE;
                    w.labels.tau = seed % 2 ? 0.1 : 0.3;
                    run(GROUPS);
                    check_world();
                    end();
                }
    if (seen.same * 20 < seen.labels * 19) fail_msg("%zu of %zu labels are those of binary64", seen.same, seen.labels);
    assert_true(seen.streaming * 50 > seen.labels && seen.streaming * 2 < seen.labels);
    assert_true(seen.full * 2 < seen.labels);
}

/* On any number of threads the same bits; and one query by itself. */
TEST(the_same_alone)
{
    struct ha_label of[GROUPS * HEADS_MAX];
    random_world(&shapes[0], HA_F16, 77);
    run(GROUPS);
    memcpy(of, w.label, sizeof of);
    for (size_t u = 0; u < GROUPS * w.shape.q_heads; u++) {
        struct ha_label one;
        double o[DIM], most = 0;
        for (size_t h = 0; h < w.shape.q_heads; h++)
            most = fmax(most, of[u / w.shape.q_heads * w.shape.q_heads + h].o_norm);
        ha_label_attend(&w.labels, 1, &w.unit[u], o, &one);
        ha_label_find(&w.labels, 1, &w.unit[u], o, most, &one);
        assert_memory_equal(one.budget, of[u].budget, sizeof one.budget);
        assert_true(one.k == of[u].k && one.o_norm == of[u].o_norm);
    }
    end();
}

TEST(host_segment)
{
    assert_int_equal(ha_label_host(0, 64, 256), 0);
    assert_int_equal(ha_label_host(447, 64, 256), 0);
    assert_int_equal(ha_label_host(448, 64, 256), 128);
    assert_int_equal(ha_label_host(1000, 0, 0), 896);
    assert_string_equal(ha_criterion_word(HA_CRITERION_SCORE), "score");
    assert_null(ha_criterion_word(3));
}
