#include "suites/block_sparse/label_fit.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/block_sparse/features.h"
#include "suites/parts/cpu_attend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = HA_LABEL_FIT_SPAN, STEPS = SPAN - 1, LABELS = HA_LABEL_FIT_LABELS };
enum { BYTES_MAX = 60000000 };
enum { SINK, LOCAL };
enum { R2, STREAMS, LSE_ERROR, NORMAL, FIGURES };

/* A decode step of a span: its query, and the states of the device's keys. */
struct fitting {
    const struct ha_fit_input *in;
    struct ha_labels labels;
    struct ha_features features;
    struct ha_features_of of; /* the span's prefill */
    const float *q;           /* [steps][q_heads][head_dim] of the span */
    size_t steps;
    float *o, *lse;             /* [2][STEPS][q_heads][head_dim], [2][STEPS][q_heads] */
    struct ha_label_unit *unit; /* [STEPS][q_heads] */
    struct ha_label *label;     /* [STEPS][q_heads] */
    void **attend;              /* [threads] of the kernels */
    float **score;              /* [threads][host_max] */
    double *figure;             /* [STEPS][q_heads][FIGURES] of the span */
    double *sum, *count;        /* [layers][q_heads][FIGURES] */
    float *feature, *out;       /* [samples][HA_FEATURES], [samples][LABELS] */
    size_t samples;
};

static size_t observed(const struct ha_shape *s, size_t b) { return ha_least(s->observed, s->ctx[b]); }
static size_t steps_of(size_t queries, size_t first) { return ha_least(queries - first, SPAN) - 1; }
static size_t tokens_of(const struct ha_shape *s, size_t b, size_t first)
{
    return s->ctx[b] - observed(s, b) + first + 1;
}

/* How many samples there are, each layer having as many; and the longest host segment. */
static size_t count_samples(const struct ha_shape *s, const struct ha_label_fit *of, size_t *host_max)
{
    size_t queries = 0;
    *host_max = 0;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t first = 0; first < observed(s, b); first += SPAN) {
            const size_t host = ha_label_host(tokens_of(s, b, first), of->sink, of->recent);
            *host_max = ha_most(*host_max, host);
            queries += host ? steps_of(observed(s, b), first) : 0;
        }
    return s->layers * s->q_heads * queries;
}

static enum ha_status check_samples(const struct ha_shape *s, size_t samples, struct ha_why *why)
{
    const double bytes = (double)samples * (HA_FEATURES + LABELS) * sizeof(float);
    if (samples == 0)
        return ha_why(why, HA_ERROR,
                      "no decode step with keys in host memory: a context longer than sink + recent + 128, and "
                      "observed=64, say");
    if (bytes > BYTES_MAX)
        return ha_why(why, HA_ERROR, "%zu samples take %.0f MB, %d at most: observed=%zu, say", samples, bytes / 1e6,
                      BYTES_MAX / 1000000, (size_t)((double)s->observed * BYTES_MAX / bytes) / SPAN * SPAN);
    return HA_OK;
}

static struct ha_rows rows_of(const struct fitting *f, size_t head, size_t first, size_t count)
{
    const struct ha_shape *s = f->in->shape;
    const size_t row = s->head_dim * ha_dtype_bytes(s->dtype), at = (head * f->of.cap + first) * row;
    return (struct ha_rows){ .k = (const char *)f->of.k + at,
                             .v = (const char *)f->of.v + at,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row,
                             .keys = count };
}

/* A KV head in a decode step: attention over sink and local, and what the labels are asked of. */
static void attend_task(void *arg, size_t task, size_t worker)
{
    struct fitting *f = arg;
    const struct ha_shape *s = f->in->shape;
    const struct ha_features_of *of = &f->of;
    const size_t step = task / s->kv_heads, head = task % s->kv_heads, group = ha_shape_group(s),
                 first = step * s->q_heads + head * group, local = of->sinks + of->host;
    const struct ha_rows run[] = {
        [SINK] = rows_of(f, head, 0, of->sinks), [LOCAL] = rows_of(f, head, local, of->tokens + 1 + step - local)
    };
    for (size_t i = 0; i < 2; i++) {
        const size_t at = i * STEPS * s->q_heads + first;
        struct ha_attend a = ha_cpu_attend_unit(s, 0, ha_shape_group(s), 1, false, f->q + first * s->head_dim,
                                                f->o + at * s->head_dim, f->lse + at, &run[i]);
        a.scratch = f->attend[worker];
        f->in->kernels->attend(f->in->kernels, &a);
    }
    for (size_t u = first; u < first + group; u++) {
        struct ha_label_unit *unit = &f->unit[u];
        *unit = (struct ha_label_unit){ .q = f->q + u * s->head_dim, .host = rows_of(f, head, of->sinks, of->host) };
        for (size_t i = 0; i < 2; i++) {
            unit->o[i] = f->o + (i * STEPS * s->q_heads + u) * s->head_dim;
            unit->lse[i] = f->lse[i * STEPS * s->q_heads + u];
        }
        for (size_t i = 1; i < HA_LABEL_SIZES; i++)
            unit->digest[i] = f->features.digest[i] + head * f->features.digest_bytes[i];
    }
}

/* ---- the features of a step -------------------------------------------------------------------------------------- */

static double dot(const float *a, const float *b, size_t dim)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

static double merged_norm(const struct ha_label_unit *unit, size_t dim)
{
    const double most = (double)fmaxf(unit->lse[SINK], unit->lse[LOCAL]), a = exp((double)unit->lse[SINK] - most),
                 b = exp((double)unit->lse[LOCAL] - most);
    double squares = 0;
    for (size_t d = 0; d < dim; d++) {
        const double o = (a * (double)unit->o[SINK][d] + b * (double)unit->o[LOCAL][d]) / (a + b);
        squares += o * o;
    }
    return sqrt(squares);
}

static float lse_or_empty(float lse) { return lse == -HUGE_VALF ? HA_LABEL_FIT_EMPTY : lse; }

/* The row of a query head of a step, but for O_NORM_MAX. */
static void fill_features(const struct fitting *f, size_t step, size_t q_head, float *row)
{
    const struct ha_shape *s = f->in->shape;
    const struct ha_label_unit *unit = &f->unit[step * s->q_heads + q_head];
    const size_t dim = s->head_dim, head = q_head / ha_shape_group(s);
    const float *anchor = f->of.anchor + q_head * dim;
    memcpy(row, f->features.known + q_head * HA_FEATURES, HA_FEATURES * sizeof *row);
    const double norm = sqrt(dot(unit->q, unit->q, dim)), norms = norm * sqrt(dot(anchor, anchor, dim)),
                 product = dot(unit->q, f->features.mean_k + head * dim, dim) * (double)s->scale,
                 mean = norm > 0 ? product / norm : 0, variance = (double)row[HA_FEATURE_ANCHOR_SCORE_VARIANCE];
    row[HA_FEATURE_DEVICE_KEYS] = (float)(f->of.tokens + 1 + step - f->of.host);
    row[HA_FEATURE_SCORE_MEAN] = (float)mean;
    row[HA_FEATURE_LSE_SINK] = unit->lse[SINK];
    row[HA_FEATURE_LSE_HOST] = (float)(log((double)f->of.host) + norm * mean + 0.5 * norm * norm * variance);
    row[HA_FEATURE_LSE_LOCAL] = unit->lse[LOCAL];
    row[HA_FEATURE_O_NORM_SINK] = (float)sqrt(dot(unit->o[SINK], unit->o[SINK], dim));
    row[HA_FEATURE_O_NORM_LOCAL] = (float)sqrt(dot(unit->o[LOCAL], unit->o[LOCAL], dim));
    row[HA_FEATURE_Q_NORM] = (float)norm;
    row[HA_FEATURE_Q_COSINE] = norms > 0 ? (float)(dot(unit->q, anchor, dim) / norms) : 0;
    static const enum ha_feature lses[] = { HA_FEATURE_LSE_SINK, HA_FEATURE_ANCHOR_LSE_SINK,
                                            HA_FEATURE_ANCHOR_LSE_LOCAL };
    for (size_t i = 0; i < sizeof lses / sizeof *lses; i++) row[lses[i]] = lse_or_empty(row[lses[i]]);
}

static int rising(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The largest distance of a distribution from the normal one of its mean and variance; x is sorted. */
static double distance_from_normal(float *x, size_t n)
{
    double mean = 0, variance = 0, most = 0;
    for (size_t i = 0; i < n; i++) mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    if (!(variance > 0)) return 0.5; /* of a single point */
    qsort(x, n, sizeof *x, rising);
    for (size_t i = 0; i < n; i++) {
        const double p = 0.5 * erfc((mean - (double)x[i]) / sqrt(2 * variance));
        most = fmax(most, fmax(p - (double)i / (double)n, (double)(i + 1) / (double)n - p));
    }
    return most;
}

/* A query head of a step: its sample and figures. */
static void fill_task(void *arg, size_t task, size_t worker)
{
    struct fitting *f = arg;
    const struct ha_shape *s = f->in->shape;
    const struct ha_label *label = &f->label[task];
    const struct ha_label_unit *unit = &f->unit[task];
    float *row = f->feature + (f->samples + task) * HA_FEATURES, *out = f->out + (f->samples + task) * LABELS;
    double *figure = f->figure + task * FIGURES;
    fill_features(f, task / s->q_heads, task % s->q_heads, row);
    out[0] = label->bgt0;
    out[1] = label->k;
    out[2] = label->streaming ? 1 : 0;
    for (size_t i = 0; i < HA_LABEL_SIZES; i++) out[3 + i] = label->budget[i];
    f->in->kernels->score(&(struct ha_score){ .q = unit->q,
                                              .head_dim = s->head_dim,
                                              .rows = unit->host,
                                              .dtype = s->dtype,
                                              .scale = s->scale,
                                              .s = f->score[worker] });
    figure[R2] = (double)label->r2;
    figure[STREAMS] = label->streaming;
    figure[LSE_ERROR] = fabs((double)row[HA_FEATURE_LSE_HOST] - label->host_lse);
    figure[NORMAL] = distance_from_normal(f->score[worker], unit->host.keys);
}

/* ---- a span ------------------------------------------------------------------------------------------------------ */

static void add_figures(struct fitting *f)
{
    const size_t heads = f->in->shape->q_heads;
    for (size_t i = 0; i < f->steps * heads * FIGURES; i++) {
        const size_t at = f->of.layer * heads * FIGURES + i % (heads * FIGURES);
        if (isnan(f->figure[i])) continue;
        f->sum[at] += f->figure[i];
        f->count[at]++;
    }
}

/* the largest |O~| of a step's query heads, to all of them */
static void fill_most(struct fitting *f)
{
    const struct ha_shape *s = f->in->shape;
    for (size_t step = 0; step < f->steps; step++) {
        double most = 0;
        float *row = f->feature + (f->samples + step * s->q_heads) * HA_FEATURES;
        for (size_t h = 0; h < s->q_heads; h++)
            most = fmax(most, merged_norm(&f->unit[step * s->q_heads + h], s->head_dim));
        for (size_t h = 0; h < s->q_heads; h++) row[h * HA_FEATURES + HA_FEATURE_O_NORM_MAX] = (float)most;
    }
}

static enum ha_status fit_span(struct fitting *f, size_t layer, size_t b, size_t first, const struct ha_label_fit *of,
                               struct ha_why *why)
{
    const struct ha_shape *s = f->in->shape;
    const struct ha_prefill *in = &f->in->layer[layer];
    const size_t tokens = tokens_of(s, b, first), row = s->q_heads * s->head_dim;
    f->of = (struct ha_features_of){ .layer = layer,
                                     .sinks = ha_least(of->sink, tokens),
                                     .host = ha_label_host(tokens, of->sink, of->recent),
                                     .tokens = tokens,
                                     .k = in->k[b],
                                     .v = in->v[b],
                                     .cap = in->cap,
                                     .anchor = in->q[b] + first * row };
    f->steps = steps_of(observed(s, b), first);
    f->q = f->of.anchor + row;
    if (f->of.host == 0 || f->steps == 0) return HA_OK;
    for (size_t i = 0; i < (f->steps + 1) * row; i++)
        if (!isfinite(f->of.anchor[i]))
            return ha_why(why, HA_ERROR, "layer %zu seq %zu: an observed query is not finite", layer, b);
    HA_TRY(ha_features_learn(&f->features, &f->of, why));
    ha_pool_run(f->in->pool, "fit", f->steps * s->kv_heads, attend_task, f);
    ha_labels_run(&f->labels, f->unit, f->steps, s->q_heads, f->label);
    ha_pool_run(f->in->pool, "fit", f->steps * s->q_heads, fill_task, f);
    fill_most(f);
    add_figures(f);
    f->samples += f->steps * s->q_heads;
    return HA_OK;
}

/* ---- the fit ----------------------------------------------------------------------------------------------------- */

static void *room(const struct fitting *f, size_t bytes, struct ha_why *why)
{
    void *at = ha_alloc(f->in->arena, bytes, HA_TAG_SCRATCH, why);
    if (at) memset(at, 0, bytes);
    return at;
}

static enum ha_status make_rooms(struct fitting *f, size_t samples, size_t host_max, size_t tokens_max,
                                 struct ha_why *why)
{
    const struct ha_shape *s = f->in->shape;
    const size_t units = STEPS * s->q_heads, threads = ha_pool_threads(f->in->pool),
                 figures = s->layers * s->q_heads * FIGURES;
    const struct ha_rows run = { .keys = tokens_max };
    float none = 0; /* no pointer is read for the room */
    const struct ha_attend worst = ha_cpu_attend_unit(s, 0, ha_shape_group(s), 1, false, &none, &none, &none, &run);
    const struct {
        void *at;
        size_t bytes;
    } part[] = {
        { &f->o, 2 * units * s->head_dim * sizeof *f->o },
        { &f->lse, 2 * units * sizeof *f->lse },
        { &f->unit, units * sizeof *f->unit },
        { &f->label, units * sizeof *f->label },
        { &f->figure, units * FIGURES * sizeof *f->figure },
        { &f->sum, figures * sizeof *f->sum },
        { &f->count, figures * sizeof *f->count },
        { &f->feature, samples * HA_FEATURES * sizeof *f->feature },
        { &f->out, samples * LABELS * sizeof *f->out },
        { &f->attend, threads * sizeof *f->attend },
        { &f->score, threads * sizeof *f->score },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        void *at = room(f, part[i].bytes, why);
        if (!at) return HA_ERROR;
        memcpy(part[i].at, &at, sizeof at);
    }
    for (size_t i = 0; i < threads; i++) {
        f->attend[i] = room(f, f->in->kernels->attend_scratch_bytes(&worst), why);
        f->score[i] = f->attend[i] ? room(f, host_max * sizeof **f->score, why) : NULL;
        if (!f->score[i]) return HA_ERROR;
    }
    return HA_OK;
}

static enum ha_status put(struct fitting *f, struct ha_fit_writer *out, struct ha_why *why)
{
    const struct ha_shape *s = f->in->shape;
    const size_t figures = s->layers * s->q_heads * FIGURES;
    float *mean = room(f, figures * sizeof *mean, why);
    if (!mean) return HA_ERROR;
    for (size_t i = 0; i < figures; i++) mean[i] = f->count[i] > 0 ? (float)(f->sum[i] / f->count[i]) : 0;
    const struct ha_tensor tensor[] = {
        { .name = "features", .type = HA_T_F32, .dims = 2, .dim = { f->samples, HA_FEATURES }, .data = f->feature },
        { .name = "labels", .type = HA_T_F32, .dims = 2, .dim = { f->samples, LABELS }, .data = f->out },
        { .name = "fit", .type = HA_T_F32, .dims = 3, .dim = { s->layers, s->q_heads, FIGURES }, .data = mean },
    };
    for (size_t i = 0; i < sizeof tensor / sizeof *tensor; i++) HA_TRY(ha_fit_put(out, &tensor[i], why));
    return HA_OK;
}

enum ha_status ha_label_fit(const struct ha_fit_input *in, const struct ha_label_fit *of, struct ha_fit_writer *out,
                            struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    struct fitting f = { .in = in,
                         .labels = { .shape = s,
                                     .kernels = in->kernels,
                                     .pool = in->pool,
                                     .digest = of->digest,
                                     .criterion = of->criterion,
                                     .tau = of->tau } };
    size_t host_max, tokens_max = 0;
    const size_t samples = count_samples(s, of, &host_max);
    for (size_t b = 0; b < s->batch; b++) tokens_max = ha_most(tokens_max, s->ctx[b]);
    HA_TRY(check_samples(s, samples, why));
    HA_TRY(ha_labels_create(&f.labels, in->arena, host_max, STEPS * s->q_heads, why));
    HA_TRY(ha_features_create(&f.features, &f.labels, in->arena, tokens_max, why));
    HA_TRY(make_rooms(&f, samples, host_max, tokens_max, why));
    for (size_t layer = 0; layer < s->layers; layer++)
        for (size_t b = 0; b < s->batch; b++)
            for (size_t first = 0; first < observed(s, b); first += SPAN)
                HA_TRY(fit_span(&f, layer, b, first, of, why));
    return put(&f, out, why);
}
