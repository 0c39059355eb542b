#include "suites/block_sparse/features.h"

#include "harness/base/arena.h"
#include "harness/base/device_arena.h"
#include "harness/base/numeric.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"
#include "suites/parts/cpu_attend.h"

#include <math.h>
#include <string.h>

enum { SINK, LOCAL };

static size_t known_bytes(const struct ha_shape *s) { return s->q_heads * HA_FEATURES * sizeof(float); }
static size_t anchor_bytes(const struct ha_shape *s) { return s->q_heads * s->head_dim * sizeof(float); }
static size_t mean_bytes(const struct ha_shape *s) { return s->kv_heads * s->head_dim * sizeof(float); }

/* ---- making ------------------------------------------------------------------------------------------------------ */

static enum ha_status make_work(const struct ha_labels *l, struct ha_features_work *w, struct ha_arena *arena,
                                size_t tokens_max, struct ha_why *why)
{
    const struct ha_shape *s = l->shape;
    const struct ha_rows run = { .keys = tokens_max };
    float none = 0; /* no pointer is read for the room */
    const struct ha_attend worst = ha_cpu_attend_unit(s, 0, ha_shape_group(s), 1, false, &none, &none, &none, &run);
    w->x = ha_alloc(arena, tokens_max * sizeof *w->x, HA_TAG_SCRATCH, why);
    w->score = w->x ? ha_alloc(arena, tokens_max * sizeof *w->score, HA_TAG_SCRATCH, why) : NULL;
    if (!w->score) return HA_ERROR;
    for (size_t i = 0; i < 2; i++) {
        w->mean[i] = ha_alloc(arena, s->head_dim * sizeof *w->mean[i], HA_TAG_SCRATCH, why);
        if (!w->mean[i]) return HA_ERROR;
    }
    w->attend = ha_alloc(arena, l->kernels->attend_scratch_bytes(&worst), HA_TAG_SCRATCH, why);
    return w->attend ? HA_OK : HA_ERROR;
}

static enum ha_status make_digests(struct ha_features *f, struct ha_arena *arena, struct ha_why *why)
{
    const struct ha_labels *l = f->labels;
    for (size_t i = 1; i < HA_LABEL_SIZES; i++) {
        /* a multiple of 64 bytes, as every head must begin at one */
        const size_t bytes = ha_digest_bytes(l->host_max / ha_label_size(i), l->shape->head_dim, l->shape->dtype);
        f->digest_bytes[i] = (bytes + 63) / 64 * 64;
        f->digest[i] = ha_alloc(arena, l->shape->kv_heads * f->digest_bytes[i], HA_TAG_SCRATCH, why);
        if (!f->digest[i]) return HA_ERROR;
    }
    return HA_OK;
}

/* all but known and mean_k */
static enum ha_status make(struct ha_features *f, const struct ha_labels *labels, struct ha_arena *arena,
                           size_t tokens_max, struct ha_why *why)
{
    const struct ha_shape *s = labels->shape;
    const size_t threads = ha_pool_threads(labels->pool), heads = s->q_heads;
    *f = (struct ha_features){ .labels = labels };
    HA_TRY(make_digests(f, arena, why));
    f->unit = ha_alloc(arena, heads * sizeof *f->unit, HA_TAG_SCRATCH, why);
    f->label = f->unit ? ha_alloc(arena, heads * sizeof *f->label, HA_TAG_SCRATCH, why) : NULL;
    f->o = f->label ? ha_alloc(arena, 2 * anchor_bytes(s), HA_TAG_SCRATCH, why) : NULL;
    f->lse = f->o ? ha_alloc(arena, 2 * heads * sizeof *f->lse, HA_TAG_SCRATCH, why) : NULL;
    f->finite = f->lse ? ha_alloc(arena, s->kv_heads * sizeof *f->finite, HA_TAG_SCRATCH, why) : NULL;
    f->work = f->finite ? ha_alloc(arena, threads * sizeof *f->work, HA_TAG_SCRATCH, why) : NULL;
    if (!f->work) return HA_ERROR;
    for (size_t i = 0; i < threads; i++) HA_TRY(make_work(labels, &f->work[i], arena, tokens_max, why));
    return HA_OK;
}

enum ha_status ha_features_create(struct ha_features *f, const struct ha_labels *labels, struct ha_arena *arena,
                                  size_t tokens_max, struct ha_why *why)
{
    HA_TRY(make(f, labels, arena, tokens_max, why));
    f->known = ha_alloc(arena, known_bytes(labels->shape), HA_TAG_SCRATCH, why);
    f->mean_k = f->known ? ha_alloc(arena, mean_bytes(labels->shape), HA_TAG_SCRATCH, why) : NULL;
    return f->mean_k ? HA_OK : HA_ERROR;
}

/* ---- of one KV head ---------------------------------------------------------------------------------------------- */

struct learning {
    struct ha_features *f;
    const struct ha_features_of *of;
};

static struct ha_rows rows_of(const struct learning *l, size_t head, size_t first, size_t count)
{
    const struct ha_shape *s = l->f->labels->shape;
    const size_t row = s->head_dim * ha_dtype_bytes(s->dtype), at = (head * l->of->cap + first) * row;
    return (struct ha_rows){ .k = (const char *)l->of->k + at,
                             .v = (const char *)l->of->v + at,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row,
                             .keys = count };
}

/* mean, variance, skewness and kurtosis */
static void moments(const double *x, size_t n, float *out)
{
    double mean = 0, m2 = 0, m3 = 0, m4 = 0;
    for (size_t i = 0; i < n; i++) mean += x[i];
    if (n) mean /= (double)n;
    for (size_t i = 0; i < n; i++) {
        const double off = x[i] - mean, square = off * off;
        m2 += square;
        m3 += square * off;
        m4 += square * square;
    }
    if (n) m2 /= (double)n, m3 /= (double)n, m4 /= (double)n;
    out[0] = (float)mean;
    out[1] = (float)m2;
    out[2] = m2 > 0 ? (float)(m3 / (m2 * sqrt(m2))) : 0;
    out[3] = m2 > 0 ? (float)(m4 / (m2 * m2)) : 0;
}

/* The norms of `count` rows one row length apart, to x; their sum to sum, or NULL. false: one is not finite. */
static bool norms(const struct ha_shape *s, const void *rows, size_t count, double *x, double *sum)
{
    enum { ROW_MAX = 1024 };
    float part[ROW_MAX];
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        double squares = 0;
        for (size_t first = 0, n; first < s->head_dim; first += n) {
            n = ha_least(s->head_dim - first, ROW_MAX);
            ha_load_row((const char *)rows + (i * s->head_dim + first) * ha_dtype_bytes(s->dtype), n, s->dtype, part);
            for (size_t d = 0; d < n; d++) squares += (double)part[d] * (double)part[d];
            for (size_t d = 0; d < n && sum; d++) sum[first + d] += (double)part[d];
        }
        x[i] = sqrt(squares);
        finite = finite && isfinite(x[i]);
    }
    return finite;
}

static double length(const double *x, size_t dim)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++) sum += x[d] * x[d];
    return sqrt(sum);
}
static double length_of(const float *x, size_t dim)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++) sum += (double)x[d] * (double)x[d];
    return sqrt(sum);
}

/* What K, where `at` is 0, or V has of features, to the first query head's row. */
static bool learn_rows(const struct learning *l, const void *rows, size_t at, struct ha_features_work *w, float *row)
{
    const struct ha_shape *s = l->f->labels->shape;
    const struct ha_features_of *of = l->of;
    const size_t bytes = s->head_dim * ha_dtype_bytes(s->dtype), local = of->sinks + of->host;
    const char *from = rows;
    double *mean = w->mean[at];
    float some[4];
    for (size_t d = 0; d < s->head_dim; d++) mean[d] = 0;
    bool finite = norms(s, from, of->sinks, w->x, NULL);
    moments(w->x, of->sinks, some);
    row[HA_FEATURE_K_NORM_SINK + at] = some[0];
    finite = norms(s, from + local * bytes, of->tokens - local, w->x, NULL) && finite;
    finite = norms(s, from + of->sinks * bytes, of->host, w->x, mean) && finite;
    moments(w->x, of->host, row + (at ? HA_FEATURE_V_NORM_MEAN : HA_FEATURE_K_NORM_MEAN));
    for (size_t d = 0; d < s->head_dim && of->host; d++) mean[d] /= (double)of->host;
    row[HA_FEATURE_K_MEAN_NORM + at] = (float)length(mean, s->head_dim);
    return finite;
}

static void make_digests_of(const struct learning *l, size_t head)
{
    const struct ha_features *f = l->f;
    for (size_t i = 1; i < HA_LABEL_SIZES && l->of->host; i++)
        f->labels->kernels->digest(&(struct ha_digest){ .kind = f->labels->digest,
                                                        .digests = f->digest[i] + head * f->digest_bytes[i],
                                                        .blocks = l->of->host / ha_label_size(i),
                                                        .unit = ha_label_size(i),
                                                        .rows = rows_of(l, head, l->of->sinks, l->of->host),
                                                        .head_dim = f->labels->shape->head_dim,
                                                        .dtype = f->labels->shape->dtype });
}

/* z of the anchor, and its norm */
static void learn_scores(const struct learning *l, size_t head, size_t q_head, struct ha_features_work *w, float *row)
{
    const struct ha_labels *labels = l->f->labels;
    const struct ha_shape *s = labels->shape;
    const float *q = l->of->anchor + q_head * s->head_dim;
    const double norm = length_of(q, s->head_dim);
    if (l->of->host)
        labels->kernels->score(&(struct ha_score){ .q = q,
                                                   .head_dim = s->head_dim,
                                                   .rows = rows_of(l, head, l->of->sinks, l->of->host),
                                                   .dtype = s->dtype,
                                                   .scale = s->scale,
                                                   .s = w->score });
    for (size_t i = 0; i < l->of->host; i++) w->x[i] = norm > 0 ? (double)w->score[i] / norm : 0;
    moments(w->x, l->of->host, row + HA_FEATURE_ANCHOR_SCORE_MEAN);
    row[HA_FEATURE_ANCHOR_Q_NORM] = (float)norm;
}

/* The anchor's attention over sink and local, and what the labels are asked of. */
static void learn_states(const struct learning *l, size_t head, struct ha_features_work *w)
{
    const struct ha_features *f = l->f;
    const struct ha_shape *s = f->labels->shape;
    const struct ha_features_of *of = l->of;
    const size_t group = ha_shape_group(s), first = head * group, local = of->sinks + of->host;
    const struct ha_rows run[] = {
        [SINK] = rows_of(l, head, 0, of->sinks), [LOCAL] = rows_of(l, head, local, of->tokens - local)
    };
    for (size_t i = 0; i < 2; i++) {
        struct ha_attend a = ha_cpu_attend_unit(s, first, ha_shape_group(s), 1, false, of->anchor,
                                                f->o + i * s->q_heads * s->head_dim, f->lse + i * s->q_heads, &run[i]);
        a.scratch = w->attend;
        f->labels->kernels->attend(f->labels->kernels, &a);
    }
    for (size_t h = first; h < first + group; h++) {
        struct ha_label_unit *unit = &f->unit[h];
        *unit = (struct ha_label_unit){ .q = of->anchor + h * s->head_dim,
                                        .host = rows_of(l, head, of->sinks, of->host) };
        for (size_t i = 0; i < 2; i++) {
            unit->o[i] = f->o + (i * s->q_heads + h) * s->head_dim;
            unit->lse[i] = f->lse[i * s->q_heads + h];
        }
        for (size_t i = 1; i < HA_LABEL_SIZES; i++) unit->digest[i] = f->digest[i] + head * f->digest_bytes[i];
    }
}

static void learn_task(void *arg, size_t head, size_t worker)
{
    const struct learning *l = arg;
    const struct ha_features *f = l->f;
    const struct ha_shape *s = f->labels->shape;
    const size_t group = ha_shape_group(s), first = head * group;
    const struct ha_rows all = rows_of(l, head, 0, l->of->tokens);
    struct ha_features_work *w = &f->work[worker];
    float *row = f->known + first * HA_FEATURES;
    memset(row, 0, group * HA_FEATURES * sizeof *row);
    f->finite[head] = learn_rows(l, all.k, 0, w, row);
    f->finite[head] = learn_rows(l, all.v, 1, w, row) && f->finite[head];
    for (size_t d = 0; d < s->head_dim; d++) f->mean_k[head * s->head_dim + d] = (float)w->mean[0][d];
    if (!f->finite[head]) return;
    for (size_t g = 1; g < group; g++) memcpy(row + g * HA_FEATURES, row, HA_FEATURES * sizeof *row);
    for (size_t g = 0; g < group; g++) learn_scores(l, head, first + g, w, row + g * HA_FEATURES);
    make_digests_of(l, head);
    learn_states(l, head, w);
}

/* ---- of all heads ------------------------------------------------------------------------------------------------ */

/* |o| over sink and local together */
static double device_norm(const struct ha_features *f, size_t q_head)
{
    const struct ha_shape *s = f->labels->shape;
    const struct ha_label_unit *unit = &f->unit[q_head];
    const double most = (double)fmaxf(unit->lse[SINK], unit->lse[LOCAL]);
    if (most == -HUGE_VAL) return 0;
    const double a = exp((double)unit->lse[SINK] - most), b = exp((double)unit->lse[LOCAL] - most);
    double squares = 0;
    for (size_t d = 0; d < s->head_dim; d++) {
        const double o = ((a > 0 ? a * (double)unit->o[SINK][d] : 0) + (b > 0 ? b * (double)unit->o[LOCAL][d] : 0))
                         / (a + b);
        squares += o * o;
    }
    return sqrt(squares);
}

static void fill_head(struct ha_features *f, const struct ha_features_of *of, size_t q_head, double most)
{
    const size_t dim = f->labels->shape->head_dim;
    const struct ha_label_unit *unit = &f->unit[q_head];
    const struct ha_label *label = &f->label[q_head];
    float *row = f->known + q_head * HA_FEATURES;
    row[HA_FEATURE_LAYER] = (float)of->layer;
    row[HA_FEATURE_HEAD] = (float)q_head;
    row[HA_FEATURE_HOST_KEYS] = (float)of->host;
    row[HA_FEATURE_ANCHOR_LSE_SINK] = unit->lse[SINK];
    row[HA_FEATURE_ANCHOR_LSE_HOST] = (float)label->host_lse;
    row[HA_FEATURE_ANCHOR_LSE_LOCAL] = unit->lse[LOCAL];
    row[HA_FEATURE_ANCHOR_O_NORM_SINK] = (float)length_of(unit->o[SINK], dim);
    row[HA_FEATURE_ANCHOR_O_NORM_HOST] = (float)label->host_norm;
    row[HA_FEATURE_ANCHOR_O_NORM_LOCAL] = (float)length_of(unit->o[LOCAL], dim);
    for (size_t i = 1; i < HA_LABEL_SIZES; i++) row[HA_FEATURE_ANCHOR_BUDGET_16 + i - 1] = label->budget[i];
    row[HA_FEATURE_ANCHOR_O_NORM_MAX] = (float)most;
}

enum ha_status ha_features_learn(struct ha_features *f, const struct ha_features_of *of, struct ha_why *why)
{
    const struct ha_shape *s = f->labels->shape;
    double most = 0;
    ha_pool_run(f->labels->pool, "features", s->kv_heads, learn_task, &(struct learning){ f, of });
    for (size_t h = 0; h < s->kv_heads; h++)
        if (!f->finite[h])
            return ha_why(why, HA_ERROR, "layer %zu KV head %zu: K or V of the context is not finite", of->layer, h);
    ha_labels_run(f->labels, f->unit, 1, s->q_heads, f->label);
    for (size_t h = 0; h < s->q_heads; h++) most = fmax(most, device_norm(f, h));
    for (size_t h = 0; h < s->q_heads; h++) fill_head(f, of, h, most);
    return HA_OK;
}

/* ---- for a variant ----------------------------------------------------------------------------------------------- */

static void *pinned(const struct ha_context *ctx, size_t bytes, struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, bytes, HA_TAG_SCRATCH, why);
}
static void *on_device(const struct ha_context *ctx, size_t bytes, struct ha_why *why)
{
    return ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, bytes, HA_TAG_META, why);
}

enum ha_status ha_features_share(struct ha_features *f, const struct ha_labels *labels, const struct ha_context *ctx,
                                 struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    size_t tokens_max = 0;
    for (size_t b = 0; b < s->batch; b++) tokens_max = ha_most(tokens_max, s->ctx[b]);
    HA_TRY(make(f, labels, ctx->arena, tokens_max, why));
    f->known = pinned(ctx, known_bytes(s), why);
    f->mean_k = f->known ? pinned(ctx, mean_bytes(s), why) : NULL;
    f->anchor = f->mean_k ? pinned(ctx, anchor_bytes(s), why) : NULL;
    return f->anchor ? HA_OK : HA_ERROR;
}

enum ha_status ha_features_open(const struct ha_context *ctx, struct ha_features_kept *kept, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t numbers = s->q_heads * HA_FEATURES;
    *kept = (struct ha_features_kept){ .known = on_device(ctx, known_bytes(s), why) };
    kept->anchor = kept->known ? on_device(ctx, anchor_bytes(s), why) : NULL;
    kept->mean_k = kept->anchor ? on_device(ctx, mean_bytes(s), why) : NULL;
    if (!kept->mean_k) return HA_ERROR;
    if (!ctx->record_selection) return HA_OK;
    kept->learnt = ha_alloc(ctx->arena, numbers * sizeof *kept->learnt, HA_TAG_META, why);
    return kept->learnt ? HA_OK : HA_ERROR;
}

static enum ha_status up(const struct ha_context *ctx, float *to, const float *from, size_t bytes, const char *name)
{
    ha_order_thread_access("features", name, HA_WRITE, from, 1, 0, bytes);
    return ctx->api->copy(ctx->stream, to, from, bytes, HA_H2D);
}

enum ha_status ha_features_prefill(struct ha_features *f, const struct ha_context *ctx, size_t layer, size_t b,
                                   const struct ha_prefill *in, size_t sinks, size_t host,
                                   struct ha_features_kept *kept, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t observed = ha_least(s->observed, s->ctx[b]), numbers = s->q_heads * HA_FEATURES;
    if (observed == 0 && s->ctx[b] > 0)
        return ha_why(why, HA_ERROR,
                      "%s: features are learnt from the last query of the context, and none is observed: "
                      "observed=1, say",
                      ctx->variant->name);
    const struct ha_features_of of = { .layer = layer,
                                       .sinks = sinks,
                                       .host = host,
                                       .tokens = s->ctx[b],
                                       .k = in->k[b],
                                       .v = in->v[b],
                                       .cap = in->cap,
                                       .anchor = f->anchor };
    HA_TRY(ctx->api->stream_sync(ctx->stream)); /* the prefill before has left what goes up */
    if (observed) memcpy(f->anchor, in->q[b] + (observed - 1) * s->q_heads * s->head_dim, anchor_bytes(s));
    else memset(f->anchor, 0, anchor_bytes(s)); /* no token, no query */
    const enum ha_status status = ha_features_learn(f, &of, why);
    if (status != HA_OK) return ha_why_prefix(why, status, "%s", ctx->variant->name);
    for (size_t i = 0; i < numbers && kept->learnt; i++) kept->learnt[i] = (double)f->known[i];
    HA_TRY(up(ctx, kept->known, f->known, known_bytes(s), "known"));
    HA_TRY(up(ctx, kept->mean_k, f->mean_k, mean_bytes(s), "mean of K"));
    return up(ctx, kept->anchor, f->anchor, anchor_bytes(s), "anchor");
}
