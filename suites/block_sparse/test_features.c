/* The features of a prefill by the CPU, against binary64; and that they get to the device. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "reference/features.h"
#include "suites/block_sparse/features.h"
#include "suites/parts/test_instance.h"

#include <math.h>

enum { DIM = 24, BATCH = 2, KV_HEADS_MAX = 4, OBSERVED = 3 };

static struct {
    struct ha_shape shape;
    size_t cap;
    unsigned char *k[BATCH], *v[BATCH]; /* [kv_heads][cap][head_dim] */
    float *q[BATCH];
    const void *k_in[BATCH], *v_in[BATCH];
    const float *q_in[BATCH];
    struct ha_prefill in;
    struct ha_labels labels;
    struct ha_features features;
} w;

static const struct ha_rule rule = { .seq_bytes = 0 };

static void fill(size_t b, uint64_t seed)
{
    const struct ha_shape *s = &w.shape;
    const size_t numbers = s->kv_heads * w.cap * DIM, bytes = numbers * ha_dtype_bytes(s->dtype),
                 queries = ha_least(s->observed, s->ctx[b]) * s->q_heads * DIM;
    w.k[b] = malloc(bytes);
    w.v[b] = malloc(bytes);
    w.q[b] = malloc(queries * sizeof(float) + 1);
    for (size_t i = 0; i < numbers; i++) {
        const bool there = i / DIM % w.cap < s->ctx[b];
        ha_store(w.k[b], i, s->dtype, there ? ha_rng_normal(seed + b, 1, i) * (i / DIM % 3 ? 1 : 1.5f) : NAN);
        ha_store(w.v[b], i, s->dtype, there ? ha_rng_normal(seed + b, 2, i) + (i % 7 == 0) : NAN);
    }
    for (size_t i = 0; i < queries; i++) w.q[b][i] = 2 * ha_rng_normal(seed + b, 3, i);
    w.k_in[b] = w.k[b];
    w.v_in[b] = w.v[b];
    w.q_in[b] = w.q[b];
}

static void begin(size_t q_heads, size_t kv_heads, enum ha_dtype type, size_t observed, uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = 1,
                                 .batch = BATCH,
                                 .q_heads = q_heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = DIM,
                                 .dtype = type,
                                 .scale = 0.2f,
                                 .ctx = { 430, 331 },
                                 .q_len = 1,
                                 .steps = 1,
                                 .observed = observed };
    w.cap = 440;
    open_instance(&w.shape, &rule);
    for (size_t b = 0; b < BATCH; b++) fill(b, seed);
    w.in = (struct ha_prefill){ .k = w.k_in, .v = w.v_in, .cap = w.cap, .q = w.q_in };
    w.labels = (struct ha_labels){ .shape = &w.shape,
                                   .kernels = &ha_kernels_c,
                                   .pool = mine.ctx.pool,
                                   .digest = seed % 2 ? HA_DIGEST_MEAN : HA_DIGEST_RANGE,
                                   .criterion = (enum ha_criterion)(seed % 3),
                                   .tau = 0.2 };
    mine.ctx.record_selection = true;
    ok(ha_labels_create(&w.labels, mine.ctx.arena, 384, q_heads, &why));
    ok(ha_features_share(&w.features, &w.labels, &mine.ctx, &why));
}

static void end(void)
{
    close_instance();
    for (size_t b = 0; b < BATCH; b++) free(w.k[b]), free(w.v[b]), free(w.q[b]);
}

/* Those of sequence b in binary64. */
static void expect(size_t b, size_t layer, size_t sinks, size_t host, struct ha_ref_score *want,
                   const struct ha_profile *profile, struct ha_def_features *of)
{
    static const void *k[KV_HEADS_MAX], *v[KV_HEADS_MAX];
    const size_t bytes = w.cap * DIM * ha_dtype_bytes(w.shape.dtype),
                 observed = ha_least(w.shape.observed, w.shape.ctx[b]);
    for (size_t h = 0; h < w.shape.kv_heads; h++) k[h] = w.k[b] + h * bytes, v[h] = w.v[b] + h * bytes;
    *of = (struct ha_def_features){ .shape = &w.shape,
                                    .layer = layer,
                                    .sinks = sinks,
                                    .host = host,
                                    .prefill = w.shape.ctx[b],
                                    .tokens = w.shape.ctx[b],
                                    .k = k,
                                    .v = v,
                                    .anchor = w.q[b] + (observed - 1) * w.shape.q_heads * DIM,
                                    .cpu = profile,
                                    .device = profile,
                                    .criterion = (enum ha_def_criterion)w.labels.criterion,
                                    .tau = w.labels.tau,
                                    .mean = w.labels.digest == HA_DIGEST_MEAN };
    ok(ha_def_features_known(of, want, &why));
}

static bool is_budget(size_t i) { return i >= HA_FEATURE_ANCHOR_BUDGET_16 && i <= HA_FEATURE_ANCHOR_BUDGET_128; }

static void check_budget(const struct ha_def_features *of, size_t head, size_t i, double got)
{
    const size_t size = i - HA_FEATURE_ANCHOR_BUDGET_16 + 1, blocks = of->host / ha_def_size(size);
    const double m = got * (double)blocks;
    uint8_t met[8 * (384 / 16 + 1)];
    if (blocks == 0) return;
    ok(ha_def_features_met(of, size, met, &why));
    if (fabs(m - round(m)) > 1e-4 || !ha_def_label_may(met + head * (blocks + 1), blocks, (size_t)round(m)))
        fail_msg("head %zu: %s is %g of %zu blocks", head, ha_feature_name(i), m, blocks);
}

static void check(size_t b, size_t layer, size_t sinks, size_t host, const struct ha_features_kept *kept)
{
    const size_t q_heads = w.shape.q_heads;
    const struct ha_profile profile = ha_profile_attend(&ha_kernels_c, w.shape.dtype);
    struct ha_def_features of;
    struct ha_ref_score *want = calloc(q_heads * HA_FEATURES, sizeof *want);
    float *known = calloc(q_heads * HA_FEATURES, sizeof *known), *anchor = calloc(q_heads * DIM, sizeof *anchor),
          *mean = calloc(w.shape.kv_heads * DIM, sizeof *mean);
    move(known, kept->known, q_heads * HA_FEATURES * sizeof *known, HA_D2H);
    move(anchor, kept->anchor, q_heads * DIM * sizeof *anchor, HA_D2H);
    move(mean, kept->mean_k, w.shape.kv_heads * DIM * sizeof *mean, HA_D2H);
    expect(b, layer, sinks, host, want, &profile, &of);
    for (size_t i = 0; i < q_heads * HA_FEATURES; i++) {
        const size_t head = i / HA_FEATURES, at = i % HA_FEATURES;
        const double got = (double)known[i];
        if (ha_feature_online(at)) continue;
        if (is_budget(at)) check_budget(&of, head, at, got);
        else if (!(got >= want[i].low && got <= want[i].high))
            fail_msg("seq %zu head %zu: %s is %.9g, not %.9g in [%.9g, %.9g]", b, head, ha_feature_name(at), got,
                     want[i].value, want[i].low, want[i].high);
        assert_true(kept->learnt[i] == got);
    }
    assert_memory_equal(anchor, of.anchor, q_heads * DIM * sizeof *anchor);
    for (size_t i = 0; i < w.shape.kv_heads * DIM; i++) {
        double sum = 0;
        for (size_t t = sinks; t < sinks + host; t++)
            sum += (double)ha_load(of.k[i / DIM], t * DIM + i % DIM, w.shape.dtype);
        assert_true(fabs((double)mean[i] - (host ? sum / (double)host : 0)) < 1e-6);
    }
    free(want);
    free(known);
    free(anchor);
    free(mean);
}

/* Both sequences, one right after the other. */
static void learn(size_t layer, size_t sinks, size_t recent)
{
    struct ha_features_kept kept[BATCH];
    for (size_t b = 0; b < BATCH; b++) {
        const size_t host = ha_label_host(w.shape.ctx[b], sinks, recent);
        ok(ha_features_open(&mine.ctx, &kept[b], &why));
        ok(ha_features_prefill(&w.features, &mine.ctx, layer, b, &w.in, sinks, host, &kept[b], &why));
    }
    for (size_t b = 0; b < BATCH; b++) check(b, layer, sinks, ha_label_host(w.shape.ctx[b], sinks, recent), &kept[b]);
}

TEST(against_binary64)
{
    static const size_t heads[][2] = { { 4, 2 }, { 4, 4 }, { 3, 1 } };
    for (uint64_t seed = 0; seed < (HA_SANITIZED ? 3 : 9); seed++) {
        begin(heads[seed % 3][0], heads[seed % 3][1], (enum ha_dtype)(seed / 3 % 3), OBSERVED, seed);
        learn(3, 5, 40);
        end();
    }
}

TEST(empty_segments)
{
    begin(4, 2, HA_F16, 1, 3);
    learn(0, 0, 20);   /* no sink */
    learn(0, 46, 0);   /* 384 tokens, and none that is local; 285, of which 29 are */
    learn(0, 4, 1000); /* nothing on the host */
    end();
    begin(4, 2, HA_F32, 1000, 4);                                                /* all queries are observed */
    memset(w.q[0], 0, ha_least(1000, w.shape.ctx[0]) * 4 * DIM * sizeof(float)); /* and are 0 */
    learn(0, 4, 20);
    end();
}

TEST(words)
{
    struct ha_features_kept kept;
    begin(4, 2, HA_BF16, OBSERVED, 1);
    ok(ha_features_open(&mine.ctx, &kept, &why));
    static const size_t tokens[] = { 2, 100, 429 }; /* sink, host, local */
    for (size_t i = 0; i < 6; i++) {
        unsigned char *rows = i % 2 ? w.v[0] : w.k[0];
        const size_t at = (w.cap + tokens[i / 2]) * DIM + 7; /* of KV head 1 */
        const float was = ha_load(rows, at, HA_BF16);
        ha_store(rows, at, HA_BF16, i % 3 ? NAN : -INFINITY);
        assert_int_equal(ha_features_prefill(&w.features, &mine.ctx, 5, 0, &w.in, 5, 256, &kept, &why), HA_ERROR);
        assert_string_equal(why.text, "mine: layer 5 KV head 1: K or V of the context is not finite");
        ha_store(rows, at, HA_BF16, was);
    }
    ok(ha_features_prefill(&w.features, &mine.ctx, 5, 0, &w.in, 5, 256, &kept, &why));
    w.shape.observed = 0;
    assert_int_equal(ha_features_prefill(&w.features, &mine.ctx, 5, 0, &w.in, 5, 256, &kept, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "mine: "));
    assert_non_null(strstr(why.text, "observed=1"));
    end();
}

/* Without a record nothing is kept for one; what a step hands to the device is what is kept. */
TEST(for_a_step)
{
    struct ha_features_kept kept;
    begin(4, 2, HA_F32, OBSERVED, 2);
    mine.ctx.record_selection = false;
    ok(ha_features_open(&mine.ctx, &kept, &why));
    assert_null(kept.learnt);
    ok(ha_features_prefill(&w.features, &mine.ctx, 0, 1, &w.in, 5, 256, &kept, &why));
    const struct ha_device_features_seq seq = ha_features_seq(&kept);
    assert_true(seq.known == kept.known && seq.anchor == kept.anchor && seq.mean_k == kept.mean_k && !seq.x);
    end();
}
