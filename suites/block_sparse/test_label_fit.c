/* What a predictor of budgets is fitted on: the samples are the decode steps of the observed queries, each with the
 * features and labels that binary64 has. */

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "reference/features.h"
#include "suites/block_sparse/label_fit.h"

#include <math.h>

enum { DIM = 16, BATCH = 2, LAYERS = 2, CAP = 400, HEADS_MAX = 4, SPAN = HA_LABEL_FIT_SPAN };

extern const struct ha_kernels ha_kernels_c;

static struct ha_why why;
static void ok(enum ha_status status)
{
    if (status != HA_OK) fail_msg("%s", why.text);
}

static struct {
    struct ha_shape shape;
    struct ha_prefill layer[LAYERS];
    unsigned char *k[LAYERS][BATCH], *v[LAYERS][BATCH];
    float *q[LAYERS][BATCH];
    const void *k_in[LAYERS][BATCH], *v_in[LAYERS][BATCH];
    const float *q_in[LAYERS][BATCH];
    struct ha_fit_input in;
    struct ha_label_fit of;
    struct ha_fit_writer out;
} w;

static size_t observed(size_t b) { return ha_least(w.shape.observed, w.shape.ctx[b]); }

static void fill(size_t layer, size_t b, uint64_t seed)
{
    const struct ha_shape *s = &w.shape;
    const size_t numbers = s->kv_heads * CAP * DIM, bytes = numbers * ha_dtype_bytes(s->dtype),
                 queries = observed(b) * s->q_heads * DIM, stream = 10 * (layer * BATCH + b);
    w.k_in[layer][b] = w.k[layer][b] = malloc(bytes);
    w.v_in[layer][b] = w.v[layer][b] = malloc(bytes);
    w.q_in[layer][b] = w.q[layer][b] = malloc(queries * sizeof(float) + 1);
    for (size_t i = 0; i < numbers; i++) {
        const bool there = i / DIM % CAP < s->ctx[b];
        ha_store(w.k[layer][b], i, s->dtype, there ? ha_rng_normal(seed, stream, i) : NAN);
        ha_store(w.v[layer][b], i, s->dtype, there ? ha_rng_normal(seed, stream + 1, i) + (i % 7 == 0) : NAN);
    }
    for (size_t i = 0; i < queries; i++)
        w.q[layer][b][i] = ha_rng_normal(seed, stream + 2, i) * (i / DIM % s->q_heads ? 2.5f : 0.3f);
}

static void begin(size_t q_heads, size_t kv_heads, size_t queries, uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = q_heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = DIM,
                                 .dtype = (enum ha_dtype)(seed % 3),
                                 .scale = 0.25f,
                                 .ctx = { 390, 217 },
                                 .q_len = 1,
                                 .steps = 1,
                                 .observed = queries };
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t b = 0; b < BATCH; b++) fill(l, b, seed);
        w.layer[l] = (struct ha_prefill){ .k = w.k_in[l], .v = w.v_in[l], .cap = CAP, .q = w.q_in[l] };
    }
    w.in = (struct ha_fit_input){ .shape = &w.shape, .layer = w.layer, .kernels = &ha_kernels_c };
    w.of = (struct ha_label_fit){ .sink = 5,
                                  .recent = 40,
                                  .digest = seed % 2 ? HA_DIGEST_MEAN : HA_DIGEST_RANGE,
                                  .criterion = (enum ha_criterion)(seed % 3),
                                  .tau = 0.2 };
    ok(ha_pool_create(&w.in.pool, HA_TEAM_DEFAULT, 2, &why));
    ok(ha_arena_create(&w.in.arena, true, &why));
}

static void end(void)
{
    ha_fit_writer_free(&w.out);
    ok(ha_arena_check(w.in.arena, &why));
    ha_arena_destroy(w.in.arena);
    ha_pool_destroy(w.in.pool);
    for (size_t i = 0; i < LAYERS * BATCH; i++) {
        free(w.k[i / BATCH][i % BATCH]);
        free(w.v[i / BATCH][i % BATCH]);
        free(w.q[i / BATCH][i % BATCH]);
    }
}

static const struct ha_tensor *tensor(const char *name, size_t dims)
{
    for (size_t i = 0; i < w.out.count; i++)
        if (!strcmp(w.out.tensor[i].name, name)) {
            assert_true(w.out.tensor[i].dims == dims && w.out.tensor[i].type == HA_T_F32);
            return &w.out.tensor[i];
        }
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* A query: token of its sequence, and the span's first one. */
struct step {
    size_t layer, b, query, anchor;
};

static struct ha_def_features facts(const struct step *at, const struct ha_profile *profile)
{
    static const void *k[HEADS_MAX], *v[HEADS_MAX];
    const size_t bytes = CAP * DIM * ha_dtype_bytes(w.shape.dtype), row = w.shape.q_heads * DIM,
                 before = w.shape.ctx[at->b] - observed(at->b), prefill = before + at->anchor + 1;
    for (size_t h = 0; h < w.shape.kv_heads; h++) {
        k[h] = w.k[at->layer][at->b] + h * bytes;
        v[h] = w.v[at->layer][at->b] + h * bytes;
    }
    return (struct ha_def_features){ .shape = &w.shape,
                                     .layer = at->layer,
                                     .sinks = ha_least(w.of.sink, prefill),
                                     .host = prefill > 45 ? (prefill - 45) / 128 * 128 : 0,
                                     .prefill = prefill,
                                     .tokens = before + at->query + 1,
                                     .k = k,
                                     .v = v,
                                     .q = w.q[at->layer][at->b] + at->query * row,
                                     .anchor = w.q[at->layer][at->b] + at->anchor * row,
                                     .cpu = profile,
                                     .device = profile,
                                     .criterion = (enum ha_def_criterion)w.of.criterion,
                                     .tau = w.of.tau,
                                     .mean = w.of.digest == HA_DIGEST_MEAN };
}

static bool is_budget(size_t i) { return i >= HA_FEATURE_ANCHOR_BUDGET_16 && i <= HA_FEATURE_ANCHOR_BUDGET_128; }

/* got: [q_heads][HA_FEATURES] */
static void check_features(const struct ha_def_features *of, const float *got)
{
    const size_t numbers = w.shape.q_heads * HA_FEATURES;
    struct ha_ref_score want[HEADS_MAX * HA_FEATURES];
    double known[HEADS_MAX * HA_FEATURES];
    for (size_t i = 0; i < numbers; i++) known[i] = (double)got[i];
    ok(ha_def_features_known(of, want, &why));
    ok(ha_def_features_online(of, known, want, &why));
    for (size_t i = 0; i < numbers; i++) {
        const bool empty = isinf(want[i].value);
        /* which budgets may be the check of fluxion asks */
        const double slack = is_budget(i % HA_FEATURES) ? 1e-6 : 0;
        if (empty ? got[i] != HA_LABEL_FIT_EMPTY
                  : !((double)got[i] >= want[i].low - slack && (double)got[i] <= want[i].high + slack))
            fail_msg("head %zu: %s is %.9g, not %.9g", i / HA_FEATURES, ha_feature_name(i % HA_FEATURES),
                     (double)got[i], want[i].value);
    }
}

static struct ha_def_labelled labelled(const struct ha_def_features *of, size_t head, struct ha_ref_score most)
{
    const size_t kv = head / ha_shape_group(&w.shape);
    return (struct ha_def_labelled){ .shape = &w.shape,
                                     .q = of->q + head * DIM,
                                     .k = of->k[kv],
                                     .v = of->v[kv],
                                     .tokens = of->tokens,
                                     .first = of->sinks,
                                     .host = of->host,
                                     .criterion = of->criterion,
                                     .tau = of->tau,
                                     .mean = of->mean,
                                     .most = most,
                                     .profile = of->cpu };
}

static void check_labels(const struct ha_def_features *of, const float *got)
{
    struct ha_ref_score most = { 0, 0, 0 }, norm;
    uint8_t met[CAP];
    for (size_t h = 0; h < w.shape.q_heads; h++) {
        const struct ha_def_labelled query = labelled(of, h, most);
        ok(ha_def_label_norm(&query, &norm, &why));
        most = (struct ha_ref_score){ fmax(most.value, norm.value), fmax(most.low, norm.low),
                                      fmax(most.high, norm.high) };
    }
    for (size_t h = 0; h < w.shape.q_heads; h++, got += HA_LABEL_FIT_LABELS) {
        const struct ha_def_labelled query = labelled(of, h, most);
        double budget[HA_DEF_SIZES];
        for (size_t i = 0; i < HA_DEF_SIZES; i++) {
            const size_t blocks = of->host / ha_def_size(i);
            const double m = (double)got[3 + i] * (double)blocks;
            budget[i] = (double)got[3 + i];
            ok(ha_def_label_met(&query, i, met, &why));
            if (fabs(m - round(m)) > 1e-4 || !ha_def_label_may(met, blocks, (size_t)round(m)))
                fail_msg("head %zu: %g of %zu blocks of %zu", h, m, blocks, ha_def_size(i));
        }
        assert_true(got[0] == got[3] && got[2] == (got[3] > 0 ? 0 : 1));
        assert_true(fabs((double)got[1] - ha_def_slope(budget)) < 1e-6);
    }
}

/* The largest distance of z(q) from the normal distribution, at the points where it is taken. */
static double distance(const struct ha_def_features *of, size_t head)
{
    double z[CAP], mean = 0, variance = 0, most = 0;
    const size_t kv = head / ha_shape_group(&w.shape);
    for (size_t i = 0; i < of->host; i++) {
        z[i] = 0;
        for (size_t d = 0; d < DIM; d++)
            z[i] += (double)of->q[head * DIM + d]
                    * (double)ha_load(of->k[kv], (of->sinks + i) * DIM + d, w.shape.dtype);
        mean += z[i] / (double)of->host;
    }
    for (size_t i = 0; i < of->host; i++) variance += (z[i] - mean) * (z[i] - mean) / (double)of->host;
    for (size_t i = 0; i < of->host; i++) {
        double below = 0, up_to = 0;
        for (size_t j = 0; j < of->host; j++) below += z[j] < z[i], up_to += z[j] <= z[i];
        const double p = 0.5 * (1 + erf((z[i] - mean) / sqrt(2 * variance)));
        most = fmax(most, fmax(fabs(below / (double)of->host - p), fabs(up_to / (double)of->host - p)));
    }
    return most;
}

/* The LSE of the host segment by moments less the true one. */
static double lse_error(const struct ha_def_features *of, size_t head, double by_moments)
{
    double p[CAP];
    const size_t kv = head / ha_shape_group(&w.shape), row = DIM * ha_dtype_bytes(w.shape.dtype);
    const struct ha_rows rows = { .k = (const char *)of->k[kv] + of->sinks * row,
                                  .k_stride_bytes = row,
                                  .keys = of->host };
    return fabs(by_moments - ha_ref_weights(of->q + head * DIM, DIM, (double)w.shape.scale, &rows, w.shape.dtype, p));
}

static void add_figures(const struct ha_def_features *of, const float *feature, const float *label, double *sum,
                        double *lines)
{
    for (size_t h = 0; h < w.shape.q_heads; h++, sum += 4, lines++, label += HA_LABEL_FIT_LABELS) {
        double budget[HA_DEF_SIZES];
        for (size_t i = 0; i < HA_DEF_SIZES; i++) budget[i] = (double)label[3 + i];
        const double line = ha_def_line(budget);
        if (!(label[2] > 0) && !isnan(line)) sum[0] += line, *lines += 1;
        sum[1] += (double)label[2];
        sum[2] += lse_error(of, h, (double)feature[h * HA_FEATURES + HA_FEATURE_LSE_HOST]);
        sum[3] += distance(of, h);
    }
}

static void check_fit(void)
{
    const struct ha_profile profile = ha_profile_attend(&ha_kernels_c, w.shape.dtype);
    const struct ha_tensor *feature = tensor("features", 2), *label = tensor("labels", 2), *figure = tensor("fit", 3);
    const size_t heads = w.shape.q_heads;
    size_t sample = 0;
    for (size_t l = 0; l < LAYERS; l++) {
        double sum[HEADS_MAX * 4] = { 0 }, lines[HEADS_MAX] = { 0 };
        const size_t before = sample;
        for (size_t b = 0; b < BATCH; b++)
            for (size_t query = 0; query < observed(b); query++) {
                const struct step at = { l, b, query, query / SPAN * SPAN };
                const struct ha_def_features of = facts(&at, &profile);
                if (query == at.anchor || of.host == 0) continue;
                const float *row = (const float *)feature->data + sample * HA_FEATURES,
                            *out = (const float *)label->data + sample * HA_LABEL_FIT_LABELS;
                assert_true(sample + heads <= feature->dim[0]);
                if (query % (HA_SANITIZED ? 15 : 5) == 1) check_features(&of, row), check_labels(&of, out);
                add_figures(&of, row, out, sum, lines);
                sample += heads;
            }
        const double samples = (double)(sample - before) / (double)heads;
        for (size_t i = 0; i < heads * 4; i++) {
            const double n = i % 4 ? samples : lines[i / 4], want = n > 0 ? sum[i] / n : 0,
                         got = (double)((const float *)figure->data)[l * heads * 4 + i];
            if (!(fabs(got - want) < 1e-4))
                fail_msg("layer %zu head %zu: figure %zu is %g, not %g", l, i / 4, i % 4, got, want);
        }
    }
    assert_true(sample > 0 && feature->dim[0] == sample && label->dim[0] == sample);
    assert_true(feature->dim[1] == HA_FEATURES && label->dim[1] == 8);
    assert_true(figure->dim[0] == LAYERS && figure->dim[1] == heads && figure->dim[2] == 4);
}

TEST(samples)
{
    static const size_t heads[][2] = { { 4, 2 }, { 3, 3 }, { 4, 1 } };
    for (uint64_t seed = 0; seed < 3; seed++) {
        /* spans of 32, and a last one of some: in sequence 1 the first of them have no host segment */
        begin(heads[seed][0], heads[seed][1], 75 - seed, seed);
        ok(ha_label_fit(&w.in, &w.of, &w.out, &why));
        check_fit();
        end();
    }
}

TEST(empty_segments)
{
    begin(2, 1, 40, 0);
    w.of.sink = 0;
    w.of.recent = 45;
    ok(ha_label_fit(&w.in, &w.of, &w.out, &why));
    check_fit();
    const float *row = tensor("features", 2)->data;
    assert_true(row[HA_FEATURE_LSE_SINK] == HA_LABEL_FIT_EMPTY
                && row[HA_FEATURE_ANCHOR_LSE_SINK] == HA_LABEL_FIT_EMPTY);
    end();
}

TEST(words)
{
    begin(2, 1, 1, 0); /* an anchor, and no step */
    assert_int_equal(ha_label_fit(&w.in, &w.of, &w.out, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no decode step"));
    end();
    begin(2, 1, 40, 0);
    w.of.recent = 1000;
    assert_int_equal(ha_label_fit(&w.in, &w.of, &w.out, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "no decode step"));
    w.of.recent = 40;
    w.shape.layers = 100000; /* asked before anything is read */
    assert_int_equal(ha_label_fit(&w.in, &w.of, &w.out, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "60 at most"));
    w.shape.layers = LAYERS;
    w.q[1][1][35 * 2 * DIM + 3] = NAN;
    assert_int_equal(ha_label_fit(&w.in, &w.of, &w.out, &why), HA_ERROR);
    assert_string_equal(why.text, "layer 1 seq 1: an observed query is not finite");
    w.q[1][1][35 * 2 * DIM + 3] = 1;
    ha_store(w.v[0][1], 7 * DIM, w.shape.dtype, NAN);
    assert_int_equal(ha_label_fit(&w.in, &w.of, &w.out, &why), HA_ERROR);
    assert_string_equal(why.text, "layer 0 KV head 0: K or V of the context is not finite");
    assert_int_equal(w.out.count, 0);
    end();
}
