/* The features of query heads, each by a function of its name; and what binary32 may make of it. */

#include "reference/features.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* Where a number is exact, and where binary32 may make something else of it. */
static struct ha_ref_score exactly(double x) { return (struct ha_ref_score){ x, x, x }; }
/* a number that binary32 holds, from one that is off by so much at most */
static struct ha_ref_score within(double x, double off)
{
    if (isinf(x)) return exactly(x);
    if (isnan(off)) off = HUGE_VAL; /* nothing is known of it */
    off += HA_REF_U * (fabs(x) + off) + HA_REF_ETA;
    return (struct ha_ref_score){ x, x - off, x + off };
}
static double off_of(struct ha_ref_score s) { return fmax(s.high - s.value, s.value - s.low); }

static double dot(const double *a, const double *b, size_t dim)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++) sum += a[d] * b[d];
    return sum;
}
static double length(const double *x, size_t dim) { return sqrt(dot(x, x, dim)); }
/* the relative error of a length in binary32: a sum of squares in any order, and a root */
static double length_off(size_t dim) { return ha_ref_gamma((double)dim + 3); }

/* ---- moments ----------------------------------------------------------------------------------------------------- */

struct moments {
    struct ha_ref_score mean, variance, skewness, kurtosis;
};

/* [low, high] of a / b^power, a within a_off and b within b_off, inside [least, most] */
static struct ha_ref_score ratio(double a, double a_off, double b, double b_off, double power, double least,
                                 double most)
{
    if (!(b > 0)) return b_off > 0 ? (struct ha_ref_score){ 0, least, most } : exactly(0);
    struct ha_ref_score out = { a / pow(b, power), least, most };
    if (!(b - b_off > 0)) return out;
    const double small = pow(b - b_off, power), large = pow(b + b_off, power), low = a - a_off, high = a + a_off;
    out.low = fmax(least, low / (low < 0 ? small : large));
    out.high = fmin(most, high / (high > 0 ? small : large));
    out.low -= HA_REF_U * fabs(out.low) + HA_REF_ETA;
    out.high += HA_REF_U * fabs(out.high) + HA_REF_ETA;
    return out;
}

/* Of numbers x, of which each may be off by so much: what each moment of x + h, |h| <= off, has beyond that of x. */
static struct moments moments_of(const double *x, const double *off, size_t n)
{
    struct moments none = { exactly(0), exactly(0), exactly(0), exactly(0) };
    const double count = (double)n, lost = 0x1p-40; /* what sums of binary64 lose */
    double mean = 0, mean_off = 0, m2 = 0, m3 = 0, m4 = 0, d2 = 0, d3 = 0, d4 = 0;
    if (n == 0) return none;
    for (size_t i = 0; i < n; i++) {
        mean += x[i] / count;
        mean_off += (off[i] + lost * fabs(x[i])) / count;
    }
    for (size_t i = 0; i < n; i++) {
        const double a = x[i] - mean, b = fabs(a), h = off[i] + mean_off + lost * b;
        m2 += a * a / count;
        m3 += a * a * a / count;
        m4 += a * a * a * a / count;
        d2 += (2 * b * h + h * h) / count;
        d3 += (3 * b * b * h + 3 * b * h * h + h * h * h) / count;
        d4 += (4 * b * b * b * h + 6 * b * b * h * h + 4 * b * h * h * h + h * h * h * h) / count;
    }
    /* skewness is at most sqrt(n), kurtosis n */
    return (struct moments){ within(mean, mean_off), within(m2, d2),
                             ratio(m3, d3, m2, d2, 1.5, -sqrt(count), sqrt(count)),
                             ratio(m4, d4, m2, d2, 2, 0, count) };
}

/* ---- what the features are made of ------------------------------------------------------------------------------- */

/* Attention over the tokens of a segment, with what its norm and LSE may be off by. */
struct segment {
    double o[HA_REF_DIM_MAX], norm, off, lse, lse_off; /* off: of o as a vector */
};
enum { SINK, HOST, LOCAL, SEGMENTS };

/* Of a KV head. */
struct keys {
    struct moments k, v;                                           /* norms of the host segment */
    double k_mean[HA_REF_DIM_MAX], v_mean[HA_REF_DIM_MAX];         /* of it */
    double k_mean_off[HA_REF_DIM_MAX], v_mean_off[HA_REF_DIM_MAX]; /* of the sums alone */
    struct ha_ref_score k_sink, v_sink;
};

/* Of a query head. */
struct facts {
    const struct ha_def_features *of;
    size_t dim, q_head;
    struct keys keys;
    double q[HA_REF_DIM_MAX], anchor[HA_REF_DIM_MAX];
    struct moments score;                         /* z of the anchor */
    struct segment now[SEGMENTS], then[SEGMENTS]; /* of q, without HOST; of the anchor */
    struct ha_ref_score most_now, most_then;      /* of all query heads */
    double anchor_variance;                       /* the known one that LSE_HOST is made of */
    struct ha_ref_score budget[HA_DEF_SIZES];
};

static struct ha_ref_score norm_of(const double *x, size_t dim)
{
    const double norm = length(x, dim);
    return within(norm, norm * length_off(dim));
}
static struct ha_ref_score mean_norm(const double *mean, const double *off, size_t dim)
{
    const double norm = length(mean, dim);
    return within(norm, norm * (length_off(dim) + HA_REF_U) + length(off, dim));
}
static struct ha_ref_score lse_of(const struct segment *s) { return within(s->lse, s->lse_off); }
static struct ha_ref_score o_norm_of(const struct facts *f, const struct segment *s)
{
    return within(s->norm, s->off + length_off(f->dim) * (s->norm + s->off));
}

/* ---- the features ------------------------------------------------------------------------------------------------ */

static struct ha_ref_score layer(const struct facts *f) { return exactly((double)f->of->layer); }
static struct ha_ref_score head(const struct facts *f) { return exactly((double)f->q_head); }
static struct ha_ref_score host_keys(const struct facts *f) { return exactly((double)f->of->host); }
static struct ha_ref_score device_keys(const struct facts *f) { return exactly((double)(f->of->tokens - f->of->host)); }

static struct ha_ref_score k_norm_sink(const struct facts *f) { return f->keys.k_sink; }
static struct ha_ref_score v_norm_sink(const struct facts *f) { return f->keys.v_sink; }
static struct ha_ref_score k_mean_norm(const struct facts *f)
{
    return mean_norm(f->keys.k_mean, f->keys.k_mean_off, f->dim);
}
static struct ha_ref_score v_mean_norm(const struct facts *f)
{
    return mean_norm(f->keys.v_mean, f->keys.v_mean_off, f->dim);
}
static struct ha_ref_score k_norm_mean(const struct facts *f) { return f->keys.k.mean; }
static struct ha_ref_score k_norm_variance(const struct facts *f) { return f->keys.k.variance; }
static struct ha_ref_score k_norm_skewness(const struct facts *f) { return f->keys.k.skewness; }
static struct ha_ref_score k_norm_kurtosis(const struct facts *f) { return f->keys.k.kurtosis; }
static struct ha_ref_score v_norm_mean(const struct facts *f) { return f->keys.v.mean; }
static struct ha_ref_score v_norm_variance(const struct facts *f) { return f->keys.v.variance; }
static struct ha_ref_score v_norm_skewness(const struct facts *f) { return f->keys.v.skewness; }
static struct ha_ref_score v_norm_kurtosis(const struct facts *f) { return f->keys.v.kurtosis; }

/* scale <q, mean of K> / |q|, from a mean in binary32 */
static struct ha_ref_score score_mean(const struct facts *f)
{
    const double scale = (double)f->of->shape->scale, norm = length(f->q, f->dim);
    double off[HA_REF_DIM_MAX] = { 0 };
    for (size_t d = 0; d < f->dim; d++) off[d] = f->keys.k_mean_off[d] + HA_REF_U * fabs(f->keys.k_mean[d]);
    const struct ha_ref_score s = ha_ref_score_dot(f->keys.k_mean, off, f->q, NULL, f->dim, scale);
    if (!(norm > 0)) return exactly(0);
    return within(s.value / norm,
                  off_of(s) / norm * (1 + 4 * HA_REF_U) + fabs(s.value) / norm * (length_off(f->dim) + 2 * HA_REF_U));
}
static struct ha_ref_score anchor_score_mean(const struct facts *f) { return f->score.mean; }
static struct ha_ref_score anchor_score_variance(const struct facts *f) { return f->score.variance; }
static struct ha_ref_score anchor_score_skewness(const struct facts *f) { return f->score.skewness; }
static struct ha_ref_score anchor_score_kurtosis(const struct facts *f) { return f->score.kurtosis; }

static struct ha_ref_score lse_sink(const struct facts *f) { return lse_of(&f->now[SINK]); }
/* by moments: ln H + |q| m + |q|^2 v / 2, all of it in binary32 */
static struct ha_ref_score lse_host(const struct facts *f)
{
    if (f->of->host == 0) return exactly(-HUGE_VAL);
    const double norm = length(f->q, f->dim), u = length_off(f->dim), keys = log((double)f->of->host);
    const struct ha_ref_score m = score_mean(f);
    const double first = norm * m.value, second = 0.5 * norm * norm * f->anchor_variance;
    const double off = keys * 0x1p-22 + norm * (1 + u) * off_of(m) + fabs(first) * u + second * (2 * u + u * u);
    return within(keys + first + second, off + ha_ref_gamma(8) * (keys + fabs(first) + second + off));
}
static struct ha_ref_score lse_local(const struct facts *f) { return lse_of(&f->now[LOCAL]); }
static struct ha_ref_score anchor_lse_sink(const struct facts *f) { return lse_of(&f->then[SINK]); }
static struct ha_ref_score anchor_lse_host(const struct facts *f) { return lse_of(&f->then[HOST]); }
static struct ha_ref_score anchor_lse_local(const struct facts *f) { return lse_of(&f->then[LOCAL]); }

static struct ha_ref_score o_norm_sink(const struct facts *f) { return o_norm_of(f, &f->now[SINK]); }
static struct ha_ref_score o_norm_local(const struct facts *f) { return o_norm_of(f, &f->now[LOCAL]); }
static struct ha_ref_score anchor_o_norm_sink(const struct facts *f) { return o_norm_of(f, &f->then[SINK]); }
static struct ha_ref_score anchor_o_norm_host(const struct facts *f) { return o_norm_of(f, &f->then[HOST]); }
static struct ha_ref_score anchor_o_norm_local(const struct facts *f) { return o_norm_of(f, &f->then[LOCAL]); }

static struct ha_ref_score q_norm(const struct facts *f) { return norm_of(f->q, f->dim); }
static struct ha_ref_score anchor_q_norm(const struct facts *f) { return norm_of(f->anchor, f->dim); }
static struct ha_ref_score q_cosine(const struct facts *f)
{
    const double norms = length(f->q, f->dim) * length(f->anchor, f->dim);
    const struct ha_ref_score s = ha_ref_score_dot(f->q, NULL, f->anchor, NULL, f->dim, 1);
    if (!(norms > 0)) return exactly(0);
    const double u = 2 * length_off(f->dim) + 4 * HA_REF_U;
    return within(s.value / norms, (off_of(s) * (1 + 2 * u) + fabs(s.value) * 2 * u) / norms);
}

static struct ha_ref_score anchor_budget_16(const struct facts *f) { return f->budget[1]; }
static struct ha_ref_score anchor_budget_32(const struct facts *f) { return f->budget[2]; }
static struct ha_ref_score anchor_budget_64(const struct facts *f) { return f->budget[3]; }
static struct ha_ref_score anchor_budget_128(const struct facts *f) { return f->budget[4]; }

static struct ha_ref_score o_norm_max(const struct facts *f) { return f->most_now; }
static struct ha_ref_score anchor_o_norm_max(const struct facts *f) { return f->most_then; }

#define ROW(NAME, name, when) [HA_FEATURE_##NAME] = name,
static struct ha_ref_score (*const table[HA_FEATURES])(const struct facts *f) = { HA_FEATURES_ALL(ROW) };

/* ---- attention over segments ------------------------------------------------------------------------------------- */

struct room {
    double *work; /* [2 * tokens] */
    double *x;    /* [2 * tokens] */
};

static struct ha_rows rows_of(const struct ha_def_features *of, size_t kv_head, size_t first, size_t count)
{
    const size_t row = of->shape->head_dim * ha_dtype_bytes(of->shape->dtype);
    return (struct ha_rows){ .k = (const char *)of->k[kv_head] + first * row,
                             .v = (const char *)of->v[kv_head] + first * row,
                             .k_stride_bytes = row,
                             .v_stride_bytes = row,
                             .keys = count };
}

static void attend(const struct ha_def_features *of, const float *q, size_t kv_head, size_t first, size_t count,
                   const struct ha_profile *who, double *work, struct segment *out)
{
    const size_t dim = of->shape->head_dim;
    const struct ha_bound b = ha_bound_attend(who, dim, count, HA_RUNS_MAX + 1);
    const struct ha_rows rows = rows_of(of, kv_head, first, count);
    double bound[HA_REF_DIM_MAX], least[HA_REF_DIM_MAX], most[HA_REF_DIM_MAX];
    struct ha_ref_state state = { .o = out->o, .bound = bound, .v_min = least, .v_max = most, .dim = dim };
    ha_ref_attend(q, dim, (double)of->shape->scale, &rows, of->shape->dtype, &b, work, &state);
    out->norm = length(out->o, dim);
    out->off = length(bound, dim);
    out->lse = state.lse;
    out->lse_off = state.lse_bound;
}

/* |o| over sink and local together, from the two of them in binary32 */
static struct ha_ref_score merged(const struct segment *a, const struct segment *b, size_t dim)
{
    const double most = fmax(a->lse, b->lse);
    if (most == -HUGE_VAL) return exactly(0);
    const double x = exp(a->lse - most), y = exp(b->lse - most), p = x / (x + y), q = y / (x + y);
    double o[HA_REF_DIM_MAX], apart[HA_REF_DIM_MAX];
    for (size_t d = 0; d < dim; d++) {
        o[d] = p * a->o[d] + q * b->o[d];
        apart[d] = a->o[d] - b->o[d];
    }
    /* of weights p and q whose LSEs may be off, and whose exps are */
    const double moved = expm1(a->lse_off + b->lse_off + 0x1p-19);
    const double norm = length(o, dim), off = p * a->off + q * b->off
                                              + p * q * moved * (length(apart, dim) + a->off + b->off)
                                              + ha_ref_gamma(8) * (p * a->norm + q * b->norm);
    return within(norm, off + length_off(dim) * (norm + off));
}

static struct ha_ref_score larger(struct ha_ref_score a, struct ha_ref_score b)
{
    return (struct ha_ref_score){ fmax(a.value, b.value), fmax(a.low, b.low), fmax(a.high, b.high) };
}

/* ---- what a KV head has ------------------------------------------------------------------------------------------ */

static void load(const struct ha_def_features *of, const void *rows, size_t token, double *row)
{
    const size_t dim = of->shape->head_dim;
    float x[HA_REF_DIM_MAX];
    ha_load_row((const char *)rows + token * dim * ha_dtype_bytes(of->shape->dtype), dim, of->shape->dtype, x);
    for (size_t d = 0; d < dim; d++) row[d] = (double)x[d];
}

/* norms of rows [first, first + count) and what binary32 may make of each, to x[count] and x[count .. ] behind */
static struct moments norms_of(const struct ha_def_features *of, const void *rows, size_t first, size_t count,
                               double *x)
{
    double row[HA_REF_DIM_MAX];
    for (size_t i = 0; i < count; i++) {
        load(of, rows, first + i, row);
        x[i] = length(row, of->shape->head_dim);
        x[count + i] = x[i] * (length_off(of->shape->head_dim) + HA_REF_U) + HA_REF_ETA;
    }
    return moments_of(x, x + count, count);
}

static void mean_of(const struct ha_def_features *of, const void *rows, double *mean, double *off)
{
    double row[HA_REF_DIM_MAX];
    for (size_t d = 0; d < of->shape->head_dim; d++) mean[d] = off[d] = 0;
    for (size_t i = 0; i < of->host; i++) {
        load(of, rows, of->sinks + i, row);
        for (size_t d = 0; d < of->shape->head_dim; d++) {
            mean[d] += row[d] / (double)of->host;
            off[d] += 0x1p-40 * fabs(row[d]) / (double)of->host;
        }
    }
}

static void keys_of(const struct ha_def_features *of, size_t kv_head, const struct room *room, struct keys *keys)
{
    const void *k = of->k[kv_head], *v = of->v[kv_head];
    keys->k = norms_of(of, k, of->sinks, of->host, room->x);
    keys->v = norms_of(of, v, of->sinks, of->host, room->x);
    keys->k_sink = norms_of(of, k, 0, of->sinks, room->x).mean;
    keys->v_sink = norms_of(of, v, 0, of->sinks, room->x).mean;
    mean_of(of, k, keys->k_mean, keys->k_mean_off);
    mean_of(of, v, keys->v_mean, keys->v_mean_off);
}

/* z of the anchor over the host segment */
static struct moments scores_of(const struct facts *f, size_t kv_head, double *x)
{
    const struct ha_def_features *of = f->of;
    const double norm = length(f->anchor, f->dim), u = length_off(f->dim) + 2 * HA_REF_U;
    double row[HA_REF_DIM_MAX];
    for (size_t i = 0; i < of->host; i++) {
        load(of, of->k[kv_head], of->sinks + i, row);
        const struct ha_ref_score s = ha_ref_score_dot(f->anchor, NULL, row, NULL, f->dim, (double)of->shape->scale);
        x[i] = norm > 0 ? s.value / norm : 0;
        x[of->host + i] = norm > 0 ? off_of(s) / norm * (1 + u) + fabs(x[i]) * u : 0;
    }
    return moments_of(x, x + of->host, of->host);
}

/* ---- all heads --------------------------------------------------------------------------------------------------- */

static enum ha_status room_begin(struct room *room, const struct ha_def_features *of, size_t tokens, struct ha_why *why)
{
    room->work = malloc((2 * tokens + 1) * sizeof *room->work);
    room->x = malloc((2 * tokens + 1) * sizeof *room->x);
    if (room->work && room->x) return HA_OK;
    free(room->work);
    free(room->x);
    return ha_why(why, HA_ERROR, "reference: no memory for the features of %zu keys in layer %zu", tokens, of->layer);
}
static void room_end(struct room *room)
{
    free(room->work);
    free(room->x);
}

static void load_query(const float *q, size_t head_at, size_t dim, double *to)
{
    for (size_t d = 0; d < dim; d++) to[d] = (double)q[head_at * dim + d];
}

static struct ha_def_labelled anchor_of(const struct ha_def_features *of, size_t q_head, struct ha_ref_score most)
{
    const size_t kv_head = q_head / ha_shape_group(of->shape);
    return (struct ha_def_labelled){ .shape = of->shape,
                                     .q = of->anchor + q_head * of->shape->head_dim,
                                     .k = of->k[kv_head],
                                     .v = of->v[kv_head],
                                     .tokens = of->prefill,
                                     .first = of->sinks,
                                     .host = of->host,
                                     .criterion = of->criterion,
                                     .tau = of->tau,
                                     .mean = of->mean,
                                     .most = most,
                                     .profile = of->cpu };
}

/* the largest |o| of the anchor, of all keys */
static enum ha_status most_of(const struct ha_def_features *of, struct ha_ref_score *most, struct ha_why *why)
{
    *most = exactly(0);
    for (size_t h = 0; h < of->shape->q_heads && of->criterion == HA_DEF_CONTRIBUTION; h++) {
        struct ha_ref_score norm;
        const struct ha_def_labelled anchor = anchor_of(of, h, *most);
        HA_TRY(ha_def_label_norm(&anchor, &norm, why));
        *most = larger(*most, norm);
    }
    return HA_OK;
}

/* met: [host / 2] */
static enum ha_status budgets_of(struct facts *f, struct ha_ref_score most, uint8_t *met, struct ha_why *why)
{
    const struct ha_def_labelled anchor = anchor_of(f->of, f->q_head, most);
    const size_t host = f->of->host;
    uint8_t *size[HA_DEF_SIZES] = { NULL };
    struct ha_def_labels labels;
    for (size_t i = 1; i < HA_DEF_SIZES; i++) {
        f->budget[i] = exactly(0);
        size[i] = met;
        met += host / ha_def_size(i) + 1;
    }
    if (host == 0) return HA_OK;
    HA_TRY(ha_def_label(&anchor, &labels, why));
    HA_TRY(ha_def_label_met_all(&anchor, size, why));
    for (size_t i = 1; i < HA_DEF_SIZES; i++) {
        const size_t blocks = host / ha_def_size(i);
        const double least = (double)ha_def_label_least(size[i], blocks) / (double)blocks,
                     largest = (double)ha_def_label_most(size[i], blocks) / (double)blocks;
        f->budget[i] = (struct ha_ref_score){ labels.budget[i], (double)(float)least, (double)(float)largest };
    }
    return HA_OK;
}

static void say(const struct facts *f, bool online, struct ha_ref_score *feature)
{
    for (size_t i = 0; i < HA_FEATURES; i++)
        if (ha_feature_online(i) == online) feature[f->q_head * HA_FEATURES + i] = table[i](f);
}

static enum ha_status known_of(const struct ha_def_features *of, const struct room *room, struct facts *f,
                               struct ha_ref_score *feature, struct ha_why *why)
{
    const size_t group = ha_shape_group(of->shape), dim = of->shape->head_dim, local = of->sinks + of->host;
    struct ha_ref_score most, most_device = exactly(0);
    HA_TRY(most_of(of, &most, why));
    for (size_t h = 0; h < of->shape->q_heads; h++) {
        const float *q = of->anchor + h * dim;
        const size_t kv = h / group;
        f->q_head = h;
        load_query(of->anchor, h, dim, f->anchor);
        if (h % group == 0) keys_of(of, kv, room, &f->keys);
        f->score = scores_of(f, kv, room->x);
        attend(of, q, kv, 0, of->sinks, of->cpu, room->work, &f->then[SINK]);
        attend(of, q, kv, of->sinks, of->host, of->cpu, room->work, &f->then[HOST]);
        attend(of, q, kv, local, of->prefill - local, of->cpu, room->work, &f->then[LOCAL]);
        most_device = larger(most_device, merged(&f->then[SINK], &f->then[LOCAL], dim));
        HA_TRY(budgets_of(f, most, (uint8_t *)room->x, why));
        say(f, false, feature);
    }
    f->most_then = most_device;
    for (size_t h = 0; h < of->shape->q_heads; h++)
        feature[h * HA_FEATURES + HA_FEATURE_ANCHOR_O_NORM_MAX] = anchor_o_norm_max(f);
    return HA_OK;
}

static void online_of(const struct ha_def_features *of, const struct room *room, const double *known, struct facts *f,
                      struct ha_ref_score *feature)
{
    const size_t group = ha_shape_group(of->shape), dim = of->shape->head_dim, local = of->sinks + of->host;
    struct ha_ref_score most = exactly(0);
    for (size_t h = 0; h < of->shape->q_heads; h++) {
        const float *q = of->q + h * dim;
        const size_t kv = h / group;
        f->q_head = h;
        load_query(of->q, h, dim, f->q);
        load_query(of->anchor, h, dim, f->anchor);
        if (h % group == 0) mean_of(of, of->k[kv], f->keys.k_mean, f->keys.k_mean_off);
        f->anchor_variance = known[h * HA_FEATURES + HA_FEATURE_ANCHOR_SCORE_VARIANCE];
        attend(of, q, kv, 0, of->sinks, of->device, room->work, &f->now[SINK]);
        attend(of, q, kv, local, of->tokens - local, of->device, room->work, &f->now[LOCAL]);
        most = larger(most, merged(&f->now[SINK], &f->now[LOCAL], dim));
        say(f, true, feature);
    }
    f->most_now = most;
    for (size_t h = 0; h < of->shape->q_heads; h++) feature[h * HA_FEATURES + HA_FEATURE_O_NORM_MAX] = o_norm_max(f);
}

static enum ha_status facts_of(struct facts **f, const struct ha_def_features *of, struct ha_why *why)
{
    *f = calloc(1, sizeof **f);
    if (!*f) return ha_why(why, HA_ERROR, "reference: no memory for the features of layer %zu", of->layer);
    (*f)->of = of;
    (*f)->dim = of->shape->head_dim;
    return HA_OK;
}

enum ha_status ha_def_features_known(const struct ha_def_features *of, struct ha_ref_score *feature, struct ha_why *why)
{
    struct room room;
    struct facts *f;
    HA_TRY(room_begin(&room, of, of->prefill, why));
    enum ha_status status = facts_of(&f, of, why);
    if (status == HA_OK) status = known_of(of, &room, f, feature, why);
    free(f);
    room_end(&room);
    return status;
}

enum ha_status ha_def_features_online(const struct ha_def_features *of, const double *known,
                                      struct ha_ref_score *feature, struct ha_why *why)
{
    struct room room;
    struct facts *f;
    HA_TRY(room_begin(&room, of, of->tokens, why));
    const enum ha_status status = facts_of(&f, of, why);
    if (status == HA_OK) online_of(of, &room, known, f, feature);
    free(f);
    room_end(&room);
    return status;
}

enum ha_status ha_def_features_met(const struct ha_def_features *of, size_t size, uint8_t *met, struct ha_why *why)
{
    struct ha_ref_score most;
    HA_TRY(most_of(of, &most, why));
    for (size_t h = 0; h < of->shape->q_heads; h++) {
        const struct ha_def_labelled anchor = anchor_of(of, h, most);
        HA_TRY(ha_def_label_met(&anchor, size, met + h * (of->host / ha_def_size(size) + 1), why));
    }
    return HA_OK;
}
