/* Labels by hand. Of random heads `habench check` judges them, of fluxion with predict=oracle. */

#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/test.h"
#include "suites/block_sparse/labels.h"

#include <math.h>

enum { DIM = 32 };

extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

/* One query head; K and V as a variant keeps them, token by token. */
static struct {
    struct ha_shape shape;
    size_t tokens, first, host;
    unsigned char *k, *v; /* [tokens][kv_heads][dim] */
    float q[DIM];
    struct ha_arena *arena;
    struct ha_labels labels;
    struct ha_label_unit unit;
    struct ha_label label;
    float o[2][DIM], lse[2];
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
    const size_t at = (token * w.shape.kv_heads + head) * w.shape.head_dim + d;
    ha_store(w.k, at, w.shape.dtype, k);
    ha_store(w.v, at, w.shape.dtype, v);
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

/* The label of the head, with digests of its own. */
static void run(void)
{
    const size_t dim = w.shape.head_dim, local = w.first + w.host;
    w.unit = (struct ha_label_unit){ .q = w.q, .host = rows_of(0, w.first, w.host) };
    for (size_t i = 1; i < HA_LABEL_SIZES && w.host; i++) {
        const size_t blocks = w.host / ha_label_size(i);
        void *digest = room(ha_digest_bytes(blocks, dim, w.shape.dtype));
        ha_kernels_c.digest(&(struct ha_digest){ .kind = w.labels.digest,
                                                 .digests = digest,
                                                 .blocks = blocks,
                                                 .unit = ha_label_size(i),
                                                 .rows = w.unit.host,
                                                 .head_dim = dim,
                                                 .dtype = w.shape.dtype });
        w.unit.digest[i] = digest;
    }
    attend(w.q, 0, 0, w.first, w.o[0], &w.lse[0]);
    attend(w.q, 0, local, w.tokens - local, w.o[1], &w.lse[1]);
    for (size_t i = 0; i < 2; i++) w.unit.o[i] = w.o[i], w.unit.lse[i] = w.lse[i];
    ok(ha_labels_create(&w.labels, w.arena, w.host, 1, &why));
    memset(&w.label, 0xFF, sizeof w.label);
    ha_labels_run(&w.labels, &w.unit, 1, 1, &w.label);
}

static void is(float one, float b16, float b32, float b64, float b128)
{
    const float want[HA_LABEL_SIZES] = { one, b16, b32, b64, b128 };
    for (size_t i = 0; i < HA_LABEL_SIZES; i++)
        if (w.label.budget[i] != want[i])
            fail_msg("budget(%zu) is %.9g, not %.9g", ha_label_size(i), (double)w.label.budget[i], (double)want[i]);
    assert_true(w.label.bgt0 == one && w.label.streaming == (one == 0));
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
    run();
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    assert_true(fabs(w.label.o_norm - 0.4) < 1e-6 && fabs(w.label.host_norm - 0.5) < 1e-6
                && fabs(w.label.host_lse - log(4)) < 1e-6);
    end();
    two_keys(3, 1, 1, -1, 0.9); /* of the largest output, which is this head's */
    run();
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    assert_true(fabs((double)w.label.k - 1482. / (126 * 128)) < 1e-7);
    assert_true(fabs((double)w.label.r2 - 0.6202136) < 1e-5);
    w.labels.criterion = HA_CRITERION_SCORE; /* 1/5 and 4/5 of the mass are less than 0.95 */
    run();
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    end();
    two_keys(1, 0, 1, 2, 0.9); /* of equal scores the first, which is none the better */
    run();
    is(2.f / 128, 2.f / 8, 2.f / 4, 1, 1);
    end();
    two_keys(1, 2, 1, 0, 0.9);
    run();
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    end();
    two_keys(1, 1, 1, -1, 0.01); /* nothing is 0 off */
    run();
    is(0, 0, 0, 0, 0);
    assert_true(!(fabsf(w.label.k) > 0) && isnan(w.label.r2));
    end();
}

/* The device's weights are 0 beside those of the host: its own attention is what counts, while nothing else is used. */
TEST(far_below)
{
    begin((struct ha_shape){ .q_heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1 }, 129, 0, 128);
    for (size_t i = 0; i < 128; i++) set(i, 0, 0, i == 9 ? 2000 : -200, 1);
    set(128, 0, 0, 0, 1.05f);
    w.q[0] = 1;
    run();
    is(0, 0, 0, 0, 0);
    w.labels.tau = 0.01;
    run();
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    w.labels.criterion = HA_CRITERION_SCORE;
    run();
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    end();
}

TEST(no_keys)
{
    two_keys(1, 1, 1, 1, 0.1);
    w.first = 128, w.host = 0; /* none on the host */
    run();
    is(0, 0, 0, 0, 0);
    assert_true(w.label.host_lse == -HUGE_VAL && !(w.label.host_norm > 0));
    end();
    two_keys(1, 1, 1, 1, 0.1);
    w.tokens = 128; /* none on the device: attention over none is 0 */
    run();
    is(1.f / 128, 1.f / 8, 1.f / 4, 1.f / 2, 1);
    w.labels.tau = 1;
    run();
    is(0, 0, 0, 0, 0);
    w.labels.criterion = HA_CRITERION_SCORE;
    run();
    assert_false(w.label.streaming);
    end();
}

TEST(not_finite)
{
    for (size_t what = 0; what < 3; what++) {
        two_keys(3, 1, 1, -1, 0.8);
        if (what == 0) w.q[0] = NAN;
        if (what == 1) set(70, 0, 0, NAN, 1);
        if (what == 2) set(70, 0, 0, 0, NAN);
        run();
        is(1, 1, 1, 1, 1);
        end();
    }
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
