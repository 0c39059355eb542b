/* What query heads are said to be like: by a net, what plain loops make of its tensors and of the features in binary64;
 * as it is, the labels in binary64; or what is asked for. Of two sequences, of which one has nothing in host memory,
 * and of the last of two query tokens. */

#include "harness/base/fit.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "reference/features.h"
#include "suites/block_sparse/properties.h"
#include "suites/parts/test_instance.h"

#include <math.h>
#include <unistd.h>

enum { SEQS = 2, Q_HEADS = 4, KV_HEADS = 2, DIM = 8, Q_LEN = 2, STEPS = 2, CAP = 320, SINK = 4, RECENT = 20 };
enum { HEADS = SEQS * Q_HEADS, UNITS = 312, OUTPUTS = 3, OBSERVED = 3 };
static const struct ha_shape shape = { .batch = SEQS,
                                       .q_len = Q_LEN,
                                       .layers = 1,
                                       .q_heads = Q_HEADS,
                                       .kv_heads = KV_HEADS,
                                       .head_dim = DIM,
                                       .dtype = HA_F32,
                                       .scale = 0.6f,
                                       .steps = STEPS,
                                       .observed = OBSERVED,
                                       .ctx = { 300, 40 } };
static const double tau = 0.8;

/* As they lie in a fit. */
static struct {
    float mean[HA_FEATURES], inv[HA_FEATURES];
    float w0[HA_FEATURES][UNITS], b0[UNITS], w1[UNITS][UNITS], b1[UNITS], w2[UNITS][OUTPUTS], b2[OUTPUTS];
} net;

struct sequence {
    struct ha_segments segments;
    struct ha_features_kept kept;
};

static struct {
    float k[SEQS][KV_HEADS][CAP][DIM], v[SEQS][KV_HEADS][CAP][DIM];
    float q[SEQS][OBSERVED][Q_HEADS][DIM]; /* of the prefill */
    float step_q[STEPS][SEQS][Q_LEN][Q_HEADS][DIM];
    enum ha_property_by by;
    struct ha_property fixed;
    struct ha_labels labels;
    const struct ha_layer *layer;
    struct ha_properties properties;
    struct ha_property of[HEADS]; /* as they were when the CPU side ran */
} w;

/* ---- a rule that does nothing but ask ---------------------------------------------------------------------------- */

static struct sequence *sequence(const struct ha_layer *l, size_t b) { return (struct sequence *)l->own + b; }

static enum ha_status share(struct ha_layer *first, struct ha_why *because)
{
    w.layer = first;
    return ha_properties_create(&w.properties, first, w.by, &w.fixed, &w.labels, 256, because);
}
static void end(struct ha_layer *first) { ha_properties_end(&w.properties); }
static enum ha_status open(struct ha_layer *l, size_t b, struct ha_why *because)
{
    const size_t rows = ha_segments_rows(l->ctx->shape, b, SINK, RECENT);
    HA_TRY(ha_kv_create(l->ctx, HA_MEM_DEVICE, rows, &sequence(l, b)->segments.device, because));
    HA_TRY(ha_segments_open(l->ctx, b, SINK, RECENT, HA_MEM_PINNED, &sequence(l, b)->segments, because));
    return ha_features_open(l->ctx, &sequence(l, b)->kept, because);
}
static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *because)
{
    struct ha_segments *seg = &sequence(l, b)->segments;
    HA_TRY(ha_segments_prefill(l->ctx, b, in, w.labels.digest, seg, because));
    if (w.by != HA_PROPERTY_NET) return HA_OK;
    return ha_features_prefill(&w.properties.features, l->ctx, 0, b, in, seg->sinks, seg->host, &sequence(l, b)->kept,
                               because);
}
static enum ha_status append(struct ha_layer *l, size_t b, const struct ha_kv *fresh)
{
    return ha_segments_append(l->ctx, &sequence(l, b)->segments, l->tokens[b], fresh);
}
static void sink(struct ha_layer *l, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_segments_sink(&shape, &sequence(l, b)->segments);
}
static void local(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    d->runs[d->runs_count++] = ha_segments_local(&shape, &sequence(l, b)->segments, l->tokens[b] + Q_LEN);
}

static struct ha_property_seq of_seq[SEQS];
static enum ha_status ask(struct ha_layer *l, const struct ha_step *step, struct ha_why *because)
{
    for (size_t b = 0; b < SEQS; b++) {
        const struct sequence *seq = sequence(l, b);
        of_seq[b] = (struct ha_property_seq){ &seq->segments, l->tokens[b] + Q_LEN - seq->segments.host, &seq->kept };
    }
    return ha_properties_ask(&w.properties, l, step, of_seq);
}
static enum ha_status work(struct ha_layer *l, const struct ha_step *step, const float *q, const struct ha_state *host,
                           const struct ha_state *device, struct ha_why *because)
{
    ha_properties_ready(&w.properties, q, of_seq);
    memcpy(w.of, w.properties.of, sizeof w.of);
    return HA_OK;
}
static const struct ha_rule rule = { .seq_bytes = sizeof(struct sequence),
                                     .share = share,
                                     .end = end,
                                     .open = open,
                                     .prefill = prefill,
                                     .append = append,
                                     .device = local,
                                     .sink = sink,
                                     .ask = ask,
                                     .work = work };

/* ---- numbers, and a fit ------------------------------------------------------------------------------------------ */

static void fill(float *x, size_t count, uint64_t stream, double size)
{
    for (size_t i = 0; i < count; i++) x[i] = (float)(size * (double)ha_rng_normal(9, stream, i));
}
#define FILL(x, stream, size) fill((float *)(x), sizeof(x) / sizeof(float), stream, size)

static void make_numbers(void)
{
    memset(&w, 0, sizeof w);
    FILL(w.k, 1, 1);
    FILL(w.v, 2, 1);
    FILL(w.q, 3, 2);
    FILL(w.step_q, 4, 2);
    FILL(net.mean, 5, 1);
    FILL(net.w0, 6, 0.2);
    FILL(net.b0, 7, 0.2);
    FILL(net.w1, 8, 0.1);
    FILL(net.b1, 9, 0.2);
    FILL(net.w2, 10, 0.1);
    FILL(net.b2, 11, 0.2);
    for (size_t i = 0; i < HA_FEATURES; i++) net.inv[i] = i % 5 ? 0.5f : i % 10 ? 20 : 0; /* some are limited, or off */
    w.labels = (struct ha_labels){ .digest = HA_DIGEST_RANGE, .criterion = HA_CRITERION_OUTPUT, .tau = tau };
}

/* all: its net; else the tensor of this name alone, of so many numbers */
static struct ha_fit *fit_of(const char *alone, size_t numbers)
{
    static const struct ha_provenance origin = { "m", "a text", 1 };
    static const struct ha_fit_about about = { { "v", "a=1", "m", "1", "4", "2", "8", "0", "iid", "1", "c", "h" },
                                               &origin,
                                               1 };
    const struct ha_tensor all[] = {
        { "mean", HA_T_F32, 1, { HA_FEATURES }, net.mean, 0 },    { "inv", HA_T_F32, 1, { HA_FEATURES }, net.inv, 0 },
        { "w0", HA_T_F32, 2, { HA_FEATURES, UNITS }, net.w0, 0 }, { "b0", HA_T_F32, 1, { UNITS }, net.b0, 0 },
        { "w1", HA_T_F32, 2, { UNITS, UNITS }, net.w1, 0 },       { "b1", HA_T_F32, 1, { UNITS }, net.b1, 0 },
        { "w2", HA_T_F32, 2, { UNITS, OUTPUTS }, net.w2, 0 },     { "b2", HA_T_F32, 1, { OUTPUTS }, net.b2, 0 },
    };
    const struct ha_tensor one = { alone, HA_T_F32, 1, { numbers }, net.w1, 0 };
    struct ha_fit_writer writer = { .tensor = NULL };
    struct ha_fit *fit;
    char path[256];
    const int file = mkstemps(test_template(path, sizeof path, ".fit"), 4);
    assert_true(file >= 0);
    close(file);
    for (size_t i = 0; i < (alone ? 1 : COUNT(all)); i++) ok(ha_fit_put(&writer, alone ? &one : &all[i], &why));
    ok(ha_fit_write(&writer, path, &about, &why));
    ok(ha_fit_open(&fit, path, &why));
    unlink(path);
    ha_fit_writer_free(&writer);
    return fit;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void begin(enum ha_property_by by, const struct ha_device_api *api, const struct ha_fit *fit)
{
    const void *k[SEQS] = { w.k[0], w.k[1] }, *v[SEQS] = { w.v[0], w.v[1] };
    const float *q[SEQS] = { w.q[0][0][0], w.q[1][0][0] };
    w.by = by;
    open_context(api, &shape, &rule);
    mine.ctx.fit = fit;
    mine.ctx.record_selection = true; /* features are kept as they were learnt */
    ok(make_instance());
    ok(ha_frame_prefill(mine.frame, 0, &(struct ha_prefill){ .k = k, .v = v, .cap = CAP, .q = q }, &why));
}

static void step(size_t at)
{
    enum { NUMBERS = SEQS * Q_LEN * Q_HEADS * DIM, NEW = SEQS * Q_LEN * KV_HEADS * DIM };
    float k[NEW], v[NEW], *device = memory_of(HA_MEM_DEVICE, (2 * NUMBERS + 2 * NEW + HEADS * Q_LEN) * sizeof *device);
    for (size_t i = 0; i < NEW; i++) {
        const size_t d = i % DIM, head = i / DIM % KV_HEADS, t = i / DIM / KV_HEADS % Q_LEN, b = i / (NEW / SEQS);
        k[i] = w.k[b][head][shape.ctx[b] + at * Q_LEN + t][d];
        v[i] = w.v[b][head][shape.ctx[b] + at * Q_LEN + t][d];
    }
    move(device, w.step_q[at], NUMBERS * sizeof *device, HA_H2D);
    move(device + NUMBERS, k, sizeof k, HA_H2D);
    move(device + NUMBERS + NEW, v, sizeof v, HA_H2D);
    ok(ha_frame_attend(mine.frame,
                       &(struct ha_step){ .step = at,
                                          .q_len = Q_LEN,
                                          .q = device,
                                          .k = device + NUMBERS,
                                          .v = device + NUMBERS + NEW,
                                          .o = device + NUMBERS + 2 * NEW,
                                          .lse = device + 2 * NUMBERS + 2 * NEW },
                       &why));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
}

/* ---- by a net ---------------------------------------------------------------------------------------------------- */

static void layer(const double *x, size_t in, const float *weight, const float *bias, size_t out, bool relu, double *y)
{
    for (size_t o = 0; o < out; o++) {
        y[o] = (double)bias[o];
        for (size_t i = 0; i < in; i++) y[o] += x[i] * (double)weight[i * out + o];
        if (relu) y[o] = fmax(y[o], 0);
    }
}

static void answer(const double *feature, double out[OUTPUTS])
{
    double x[HA_FEATURES], a[UNITS], b[UNITS], y[OUTPUTS];
    for (size_t i = 0; i < HA_FEATURES; i++)
        x[i] = net.inv[i] > 0 ? fmin(fmax((feature[i] - (double)net.mean[i]) * (double)net.inv[i], -10), 10) : 0;
    layer(x, HA_FEATURES, net.w0[0], net.b0, UNITS, true, a);
    layer(a, UNITS, net.w1[0], net.b1, UNITS, true, b);
    layer(b, UNITS, net.w2[0], net.b2, OUTPUTS, false, y);
    memcpy(out, y, sizeof y);
}

static void check_net(size_t at)
{
    const struct ha_profile profile = ha_profile_attend(&ha_kernels_c, HA_F32);
    for (size_t b = 0; b < SEQS; b++) {
        const struct ha_segments *seg = &sequence(w.layer, b)->segments;
        const double *known = sequence(w.layer, b)->kept.learnt;
        const void *k[] = { w.k[b][0], w.k[b][1] }, *v[] = { w.v[b][0], w.v[b][1] };
        struct ha_ref_score feature[Q_HEADS * HA_FEATURES];
        const struct ha_def_features of = { .shape = &shape,
                                            .sinks = seg->sinks,
                                            .host = seg->host,
                                            .prefill = shape.ctx[b],
                                            .tokens = shape.ctx[b] + (at + 1) * Q_LEN,
                                            .k = k,
                                            .v = v,
                                            .q = w.step_q[at][b][Q_LEN - 1][0],
                                            .anchor = w.q[b][OBSERVED - 1][0],
                                            .cpu = &profile,
                                            .device = &profile,
                                            .criterion = HA_DEF_OUTPUT,
                                            .tau = tau };
        ok(ha_def_features_known(&of, feature, &why));
        ok(ha_def_features_online(&of, known, feature, &why));
        for (size_t h = 0; h < Q_HEADS; h++) {
            const struct ha_property *is = &w.of[b * Q_HEADS + h];
            double x[HA_FEATURES], want[OUTPUTS];
            for (size_t i = 0; i < HA_FEATURES; i++) x[i] = feature[h * HA_FEATURES + i].value;
            answer(x, want);
            assert_near((double)is->bgt0, want[0], 1e-3);
            assert_near((double)is->k, want[1], 1e-3);
            assert_near((double)is->s, want[2], 1e-3);
        }
    }
}

static void ask_net(const struct ha_device_api *api, struct ha_property out[STEPS][HEADS])
{
    struct ha_fit *fit = fit_of(NULL, 0);
    begin(HA_PROPERTY_NET, api, fit);
    for (size_t at = 0; at < STEPS; at++) {
        step(at);
        check_net(at);
        memcpy(out[at], w.of, sizeof w.of);
    }
    close_instance();
    ha_fit_close(fit);
}

/* Kept as a graph, or called each time. */
TEST(a_net_says_what_its_fit_and_the_features_make)
{
    struct ha_property of[2][STEPS][HEADS];
    struct ha_device_api without = ha_device_host;
    without.graph_begin = NULL;
    make_numbers();
    ask_net(&ha_device_host, of[0]);
    ask_net(&without, of[1]);
    assert_memory_equal(of[0], of[1], sizeof of[0]);
    for (size_t h = 1; h < HEADS; h++) assert_memory_not_equal(&of[0][0][0], &of[0][0][h], sizeof of[0][0][h]);
    assert_memory_not_equal(of[0][0], of[0][1], sizeof of[0][0]);
}

/* ---- as it is, and as it is asked for ---------------------------------------------------------------------------- */

/* |o| over all keys that the last query token of a step sees: the largest of a sequence's heads. */
static double largest(size_t at, size_t b)
{
    double most = 0;
    for (size_t h = 0; h < Q_HEADS; h++) {
        const size_t kv = h * KV_HEADS / Q_HEADS, tokens = shape.ctx[b] + (at + 1) * Q_LEN;
        double sum = 0, o[DIM] = { 0 }, square = 0;
        for (size_t j = 0; j < tokens; j++) {
            double score = 0;
            for (size_t d = 0; d < DIM; d++)
                score += (double)w.step_q[at][b][Q_LEN - 1][h][d] * (double)w.k[b][kv][j][d];
            const double weight = exp((double)shape.scale * score);
            sum += weight;
            for (size_t d = 0; d < DIM; d++) o[d] += weight * (double)w.v[b][kv][j][d];
        }
        for (size_t d = 0; d < DIM; d++) square += o[d] / sum * (o[d] / sum);
        most = fmax(most, sqrt(square));
    }
    return most;
}

static size_t check_labels(size_t at)
{
    const struct ha_profile profile = ha_profile_attend(&ha_kernels_c, HA_F32);
    size_t streaming = 0;
    for (size_t i = 0; i < HEADS; i++) {
        const size_t b = i / Q_HEADS, h = i % Q_HEADS, kv = h * KV_HEADS / Q_HEADS;
        const struct ha_segments *seg = &sequence(w.layer, b)->segments;
        const double most = largest(at, b);
        struct ha_def_labels want;
        const struct ha_def_labelled of = { .shape = &shape,
                                            .q = w.step_q[at][b][Q_LEN - 1][h],
                                            .k = w.k[b][kv],
                                            .v = w.v[b][kv],
                                            .tokens = shape.ctx[b] + (at + 1) * Q_LEN,
                                            .first = seg->sinks,
                                            .host = seg->host,
                                            .criterion = (enum ha_def_criterion)w.labels.criterion,
                                            .tau = tau,
                                            .mean = w.labels.digest == HA_DIGEST_MEAN,
                                            .most = { most, most, most },
                                            .profile = &profile };
        ok(ha_def_label(&of, &want, &why));
        assert_near((double)w.of[i].bgt0, want.budget[0], 1e-7);
        assert_near((double)w.of[i].k, want.k, 1e-6);
        assert_true(w.of[i].s == (want.s ? 1.0F : 0.0F));
        streaming += want.s;
    }
    return streaming;
}

TEST(as_it_is_is_what_the_labels_are)
{
    size_t streaming = 0;
    for (int criterion = HA_CRITERION_CONTRIBUTION; criterion <= HA_CRITERION_SCORE; criterion++)
        for (int digest = HA_DIGEST_RANGE; digest <= HA_DIGEST_MEAN; digest++) {
            make_numbers();
            w.labels.criterion = (enum ha_criterion)criterion;
            w.labels.digest = (enum ha_digest_kind)digest;
            begin(HA_PROPERTY_ORACLE, &ha_device_host, NULL);
            for (size_t at = 0; at < STEPS; at++) {
                step(at);
                streaming += check_labels(at);
            }
            close_instance();
        }
    /* those of the sequence that has nothing in host memory, and others, but not all */
    assert_in_range(streaming, 6 * STEPS * Q_HEADS + 1, 6 * STEPS * HEADS - 1);
}

TEST(fixed_is_the_same_for_all)
{
    make_numbers();
    w.fixed = (struct ha_property){ 0.25F, 0.5F, -1 };
    begin(HA_PROPERTY_FIXED, &ha_device_host, NULL);
    for (size_t at = 0; at < STEPS; at++) {
        step(at);
        for (size_t i = 0; i < HEADS; i++) assert_memory_equal(&w.of[i], &w.fixed, sizeof w.fixed);
    }
    close_instance();
}

/* ---- what is lacking --------------------------------------------------------------------------------------------- */

static void assert_ends(const struct ha_device_api *api, struct ha_fit *fit, enum ha_status status, const char *text)
{
    w.by = HA_PROPERTY_NET;
    open_context(api, &shape, &rule);
    mine.ctx.fit = fit;
    assert_int_equal(make_instance(), status);
    if (!strstr(why.text, text)) fail_msg("not '%s': %s", text, why.text);
    close_instance();
    ha_fit_close(fit);
}

TEST(what_is_lacking_is_said)
{
    struct ha_device_api without = ha_device_host;
    make_numbers();
    assert_ends(&ha_device_host, NULL, HA_WAIVED, "predict=net reads a net: fit=small with ");
    assert_ends(&ha_device_host, fit_of("labels", 8), HA_ERROR,
                "the fit has features and labels, by which scripts/train_fluxion.py trains a net, and no net");
    assert_ends(&ha_device_host, fit_of("mean", HA_FEATURES), HA_ERROR, "tensor inv is missing");
    assert_ends(&ha_device_host, fit_of("mean", HA_FEATURES - 1), HA_ERROR,
                "tensor mean has shape [40], and [41] is wanted");
    without.net = NULL;
    assert_ends(&without, fit_of(NULL, 0), HA_WAIVED, "the device has no operation net; another predict= needs none");
    without.features = NULL;
    assert_ends(&without, fit_of(NULL, 0), HA_WAIVED, "the device has no operation features; another predict= needs");
}
