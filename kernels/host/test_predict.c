/* What predicts budgets on a device: features of query heads and a net, against the reference; what lies beside the
 * results does not change. */

#include "kernels/host/test_blocks.h"

#include "harness/api/reference.h"

#include <math.h>

enum { BATCH_MAX = 70, FLOATS = sizeof(float), BESIDE = 64 };

static float *floats(size_t n) { return block(n * FLOATS); }
static float *drawn(size_t n, uint64_t seed)
{
    float *x = floats(n);
    normals(x, n, HA_F32, seed);
    return x;
}

/* ---- features */

struct heads {
    size_t batch, kv_heads, group, dim;
    bool empty; /* some heads have no keys in sink, some none in local, some neither; o is NaN there */
    bool zero;  /* some queries and anchors are 0 */
    size_t odd; /* a NaN, 1: in q; 2: in o of the first state; 3: in an LSE; 4: in a known feature; 0: none */
};

static struct ha_device_features_seq make_heads(const struct heads *c, size_t b)
{
    const size_t heads = c->kv_heads * c->group, n = heads * c->dim;
    float *q = drawn(n, 10 * b + 1), *anchor = drawn(n, 10 * b + 2), *known = floats(heads * HA_FEATURES), *o[2],
          *lse[2];
    for (size_t i = 0; i < heads * HA_FEATURES; i++)
        if (!ha_feature_online(i % HA_FEATURES)) known[i] = fabsf(ha_rng_normal(10 * b + 3, 0, i));
    for (size_t h = 0; h < heads; h++) known[h * HA_FEATURES + HA_FEATURE_HOST_KEYS] = (float)(b % 4 * 128);
    for (size_t i = 0; i < 2; i++) {
        o[i] = drawn(n, 10 * b + 4 + i);
        lse[i] = drawn(heads, 10 * b + 6 + i);
        for (size_t h = 0; h < heads; h++) lse[i][h] *= h % 3 == 1 ? 80 : 3;
    }
    for (size_t h = 0; h < heads; h++) {
        for (size_t i = 0; c->empty && i < 2; i++)
            if ((h + b) % 4 == 1 + i || (h + b) % 4 == 3) {
                lse[i][h] = -INFINITY;
                memset(o[i] + h * c->dim, POISON, c->dim * FLOATS);
            }
        if (c->zero && h % 2 == 0) memset((h % 4 ? q : anchor) + h * c->dim, 0, c->dim * FLOATS);
    }
    const size_t at = (b + 1) % heads;
    if (c->odd == 1) q[at * c->dim] = NAN;
    if (c->odd == 2) o[0][at * c->dim + c->dim / 2] = NAN;
    if (c->odd == 3) lse[1][at] = NAN;
    if (c->odd == 4) known[at * HA_FEATURES + HA_FEATURE_ANCHOR_SCORE_VARIANCE] = NAN;
    return (struct ha_device_features_seq){ .q = q,
                                            .known = known,
                                            .anchor = anchor,
                                            .mean_k = drawn(c->kv_heads * c->dim, 10 * b + 8),
                                            .o = { o[0], o[1] },
                                            .lse = { lse[0], lse[1] },
                                            .device_keys = 300 + b,
                                            .x = block(heads * HA_FEATURES * FLOATS + BESIDE) };
}

static void features(const struct heads *c)
{
    const size_t heads = c->kv_heads * c->group;
    struct ha_device_features_seq seq[BATCH_MAX], copy[BATCH_MAX];
    float *mean = drawn(HA_FEATURES, 5), *inv = floats(HA_FEATURES);
    for (size_t i = 0; i < HA_FEATURES; i++) inv[i] = i % 5 == 4 ? 0 : fabsf(ha_rng_normal(6, 0, i));
    for (size_t b = 0; b < c->batch; b++) seq[b] = make_heads(c, b);
    memcpy(copy, seq, sizeof seq);
    struct ha_device_features args = { c->batch, heads, c->kv_heads, c->dim, 0.3f, mean, inv, copy };
    struct ha_device_features kept = args;
    kept.seqs = seq;
    ok(api->features(stream, &args));
    memset(copy, 0, sizeof copy);
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t b = 0; b < c->batch; b++) {
        size_t head = 0, feature = 0;
        const double ratio = ha_ref_judge_features(&kept, b, &head, &feature);
        if (!(ratio <= 1))
            fail_msg("%zu heads of %zu, sequence %zu, head %zu: %s is %g, error/bound %g", heads, c->dim, b, head,
                     ha_feature_name(feature), (double)seq[b].x[head * HA_FEATURES + feature], ratio);
        assert_true(poisoned(seq[b].x + heads * HA_FEATURES, BESIDE));
    }
    release_memory();
}

DEVICE_TEST(features_of_every_shape)
{
    static const size_t dims[] = { 128, 64, 33, 1, 80, 256 }, groups[] = { 1, 4, 2, 7 };
    for (size_t i = 0; i < 24; i++)
        if (!HA_SANITIZED || i % 4 == 3)
            features(&(struct heads){ .batch = 1 + i % 5,
                                      .kv_heads = 1 + i % 3 * 4,
                                      .group = groups[i % COUNT(groups)],
                                      .dim = dims[i % COUNT(dims)],
                                      .empty = i % 2,
                                      .zero = i % 3 == 2 });
}

/* A NaN is met by what is made of it, and the largest norm of all heads by any. */
DEVICE_TEST(features_of_no_number)
{
    for (size_t odd = 1; odd <= 4; odd++)
        features(&(struct heads){ .batch = 2, .kv_heads = 2, .group = 3, .dim = 48, .empty = odd % 2, .odd = odd });
}

DEVICE_TEST(features_of_a_large_batch)
{
    features(&(struct heads){ .batch = BATCH_MAX, .kv_heads = 1, .group = 2, .dim = 16, .empty = true });
    ok(api->features(
        stream,
        &(struct ha_device_features){
            .q_heads = 1, .kv_heads = 1, .head_dim = 1, .mean = floats(HA_FEATURES), .inv = floats(HA_FEATURES) }));
}

/* numbers that are worked out by hand */
DEVICE_TEST(features_by_hand)
{
    static const float q[] = { 3, 4 }, anchor[] = { 4, 3 }, mean_k[] = { 1, 2 }, sink[] = { 5, 0 }, local[] = { 0, 12 },
                       lse = 1;
    float *in[8], *known = floats(HA_FEATURES), *mean = floats(HA_FEATURES), *inv = floats(HA_FEATURES);
    const float *const from[] = { q, anchor, mean_k, sink, local };
    for (size_t i = 0; i < COUNT(from); i++) memcpy(in[i] = floats(2), from[i], 2 * FLOATS);
    for (size_t i = 5; i < 7; i++) *(in[i] = floats(1)) = lse;
    for (size_t i = 0; i < HA_FEATURES; i++) known[i] = (float)i, mean[i] = 0, inv[i] = 1;
    known[HA_FEATURE_HOST_KEYS] = 1;
    known[HA_FEATURE_ANCHOR_SCORE_VARIANCE] = 0.5f;
    mean[HA_FEATURE_ANCHOR_O_NORM_MAX] = 39; /* 40 - 39 */
    inv[HA_FEATURE_V_NORM_MEAN] = 0;
    const struct ha_device_features_seq seq = {
        in[0], known, in[1], in[2], { in[3], in[4] }, { in[5], in[6] }, 7, in[7] = floats(HA_FEATURES)
    };
    ok(api->features(stream, &(struct ha_device_features){ 1, 1, 1, 2, 0.5f, mean, inv, &seq }));
    ok(api->stream_sync(stream));
    static const struct {
        enum ha_feature of;
        float is;
    } want[] = {
        { HA_FEATURE_V_NORM_MEAN, 0 },       { HA_FEATURE_HEAD, 1 },
        { HA_FEATURE_DEVICE_KEYS, 7 },       { HA_FEATURE_SCORE_MEAN, 1.1f },
        { HA_FEATURE_LSE_SINK, 1 },          { HA_FEATURE_LSE_HOST, 10 }, /* 11.75 */
        { HA_FEATURE_LSE_LOCAL, 1 },         { HA_FEATURE_O_NORM_SINK, 5 },
        { HA_FEATURE_O_NORM_LOCAL, 10 },     { HA_FEATURE_Q_NORM, 5 },
        { HA_FEATURE_Q_COSINE, 0.96f },      { HA_FEATURE_O_NORM_MAX, 6.5f },
        { HA_FEATURE_K_NORM_SINK, 4 },       { HA_FEATURE_V_NORM_KURTOSIS, 10 },
        { HA_FEATURE_ANCHOR_O_NORM_MAX, 1 },
    };
    for (size_t i = 0; i < COUNT(want); i++)
        if (!(fabsf(seq.x[want[i].of] - want[i].is) <= 1e-6f))
            fail_msg("%s: %g, not %g", ha_feature_name(want[i].of), (double)seq.x[want[i].of], (double)want[i].is);
    release_memory();
}

/* ---- the net */

static struct ha_net make_net(size_t rows, size_t layers, const size_t *width, uint64_t seed)
{
    struct ha_net n = { .rows = rows, .layers = layers };
    memcpy(n.width, width, (layers + 1) * sizeof *width);
    n.w = drawn(ha_net_weights(&n), seed);
    n.x = drawn(rows * width[0], seed + 1);
    n.y = block(rows * width[layers] * FLOATS + BESIDE);
    return n;
}

static void net(const struct ha_net *kept)
{
    struct ha_net args = *kept;
    ok(api->net(stream, &args));
    memset(&args, 0, sizeof args);
    ok(api->stream_sync(stream));
    for (size_t r = 0; r < kept->rows; r++) {
        const double ratio = ha_ref_judge_net(kept, r);
        if (!(ratio <= 1))
            fail_msg("%zu layers, %zu to %zu, row %zu of %zu: error/bound %g", kept->layers, kept->width[0],
                     kept->width[kept->layers], r, kept->rows, ratio);
    }
    assert_true(poisoned(kept->y + kept->rows * kept->width[kept->layers], BESIDE));
    release_memory();
}

DEVICE_TEST(nets_of_every_shape)
{
    static const struct {
        size_t layers, width[HA_NET_LAYERS_MAX + 1];
    } nets[] = {
        { 3, { 41, 312, 312, 3 } }, { 1, { 1, 1 } },      { 4, { 9, 33, 7, 1, 2 } }, { 2, { 2, 1024, 31 } },
        { 2, { 128, 96, 48 } },     { 1, { 300, 1024 } }, { 2, { 1024, 65, 40 } },
    };
    static const size_t rows[] = { 1, 4, 33, 7 };
    for (size_t i = 0; i < COUNT(nets); i++)
        for (size_t r = 0; r < COUNT(rows); r++) {
            if (HA_SANITIZED && (i + r) % 4) continue;
            const struct ha_net n = make_net(rows[r], nets[i].layers, nets[i].width, 10 * i + r);
            net(&n);
        }
    ok(api->net(stream, &(struct ha_net){ .layers = 1, .width = { 1, 1 }, .w = drawn(2, 1) }));
}

/* A NaN goes through relu, into its own row alone. */
DEVICE_TEST(nets_of_no_number)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    static const size_t width[] = { 41, 70, 3 };
    for (size_t i = 0; i < COUNT(odd); i++) {
        const struct ha_net n = make_net(9, 2, width, i);
        float *x = (float *)(uintptr_t)n.x;
        x[5 * 41 + 7] = odd[i];
        net(&n);
    }
}

/* ---- wrong use */

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(features_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->features(stream, &(struct ha_device_features){ .q_heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(nets_have_layers, "1 to 4 layers of 1 to 1024 numbers", api->net(stream, &(struct ha_net){ .rows = 1 }))
WRONG_CALL(nets_have_few_layers, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 5, .width = { 1, 1, 1, 1, 1 } }))
WRONG_CALL(nets_are_not_wide, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 1, .width = { 1025, 1 } }))
WRONG_CALL(layers_have_numbers, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 2, .width = { 1, 0, 1 } }))
