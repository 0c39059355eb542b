/* Features of query heads and a net, wrong: plain loops over the device's memory, which do one step otherwise. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <string.h>

/* ---- features ---------------------------------------------------------------------------------------------------- */

static float product(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t d = 0; d < (IS(features_tail) ? n / 32 * 32 : n); d++) {
        sum += a[d] * b[d];
        if (IS(features_half)) sum = ha_round(sum, HA_F16);
    }
    return sum;
}
static float norm(const float *x, size_t n) { return sqrtf(product(x, x, n)); }

/* of one of the two states; of both together */
static float state_norm(const struct ha_device_features_seq *s, size_t state, size_t h, size_t dim)
{
    return s->lse[state][h] == -INFINITY && !IS(features_empty) ? 0 : norm(s->o[state] + h * dim, dim);
}
static float joined_norm(const struct ha_device_features_seq *s, size_t h, size_t dim)
{
    const float lse[2] = { s->lse[0][h], s->lse[1][h] };
    if (isnan(lse[0]) || isnan(lse[1])) return NAN;
    if (lse[0] == -INFINITY || lse[1] == -INFINITY) return state_norm(s, lse[0] == -INFINITY, h, dim);
    const float w = IS(features_average) ? 0.5f : 1 / (1 + expf(lse[1] - lse[0]));
    float squares = 0;
    for (size_t d = 0; d < dim; d++) {
        const float o = w * s->o[0][h * dim + d] + (1 - w) * s->o[1][h * dim + d];
        squares += o * o;
    }
    return sqrtf(squares);
}
static float largest_norm(const struct ha_device_features *f, const struct ha_device_features_seq *s, size_t head)
{
    float most = 0;
    if (IS(features_own)) return joined_norm(s, head, f->head_dim);
    for (size_t h = 0; h < (IS(features_32) && f->q_heads > 32 ? 32 : f->q_heads); h++) {
        const float of = joined_norm(s, h, f->head_dim);
        if (of > most || (isnan(of) && !IS(features_max_nan))) most = of;
    }
    return most;
}

static void head_features(const struct ha_device_features *f, const struct ha_device_features_seq *s, size_t h,
                          float *x)
{
    const size_t dim = f->head_dim, kv = IS(features_head) ? h % f->kv_heads : h / (f->q_heads / f->kv_heads);
    const float *q = s->q + h * dim, *anchor = s->anchor + h * dim, q_norm = norm(q, dim),
                anchor_norm = IS(features_cosine) ? 1 : norm(anchor, dim), scale = IS(features_unscaled) ? 1 : f->scale;
    const float mean = q_norm == 0 ? 0 : scale * product(q, s->mean_k + kv * dim, dim) / q_norm;
    memcpy(x, s->known + h * HA_FEATURES, HA_FEATURES * sizeof *x);
    x[HA_FEATURE_DEVICE_KEYS] = (float)(s->device_keys - IS(features_own_key));
    x[HA_FEATURE_SCORE_MEAN] = mean;
    x[HA_FEATURE_LSE_SINK] = s->lse[IS(features_swapped)][h];
    x[HA_FEATURE_LSE_HOST] = logf(x[HA_FEATURE_HOST_KEYS]) + q_norm * mean
                             + (IS(features_moment) ? 1 : 0.5f) * q_norm * q_norm * x[HA_FEATURE_ANCHOR_SCORE_VARIANCE];
    x[HA_FEATURE_LSE_LOCAL] = s->lse[!IS(features_swapped)][h];
    x[HA_FEATURE_O_NORM_SINK] = state_norm(s, 0, h, dim);
    x[HA_FEATURE_O_NORM_LOCAL] = state_norm(s, 1, h, dim);
    x[HA_FEATURE_Q_NORM] = q_norm;
    x[HA_FEATURE_Q_COSINE] = q_norm == 0 || anchor_norm == 0 ? 0 : product(q, anchor, dim) / (q_norm * anchor_norm);
    x[HA_FEATURE_O_NORM_MAX] = largest_norm(f, s, h);
}

static float standardised(const struct ha_device_features *f, size_t i, float x)
{
    const float limit = HA_FEATURE_LIMIT, inv = f->inv[IS(features_inv) ? (i + 1) % HA_FEATURES : i];
    if (IS(features_known) && !ha_feature_online(i)) return x;
    if (isnan(x)) return IS(features_nan) ? limit : x;
    if (inv == 0 && !IS(features_constant)) return 0;
    x = (x - f->mean[i]) * inv;
    return IS(features_unclamped) ? x : x > limit ? limit : x < -limit ? -limit : x;
}

static void features_later(struct ha_wrong_later *l)
{
    const struct ha_device_features *f = &l->u.features;
    const struct ha_device_features_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < f->batch * f->q_heads; n++) {
        const struct ha_device_features_seq *s = &seqs[n / f->q_heads];
        float *x = s->x + n % f->q_heads * HA_FEATURES;
        head_features(f, s, n % f->q_heads, x);
        for (size_t i = 0; i < HA_FEATURES; i++) x[i] = standardised(f, i, x[i]);
        if (IS(features_beside)) x[HA_FEATURES] = 0;
    }
}
static enum ha_status wrong_features(struct ha_stream *s, const struct ha_device_features *f)
{
    struct ha_wrong_later *l = ha_wrong_later(features_later, f->seqs, f->batch * sizeof *f->seqs);
    l->u.features = *f;
    return ha_wrong_over(IS(features_early),
                         ha_wrong_on(ha_wrong_aside(IS(features_unjoined), ha_wrong_early(IS(features_early), s)), l));
}

/* ---- the net ----------------------------------------------------------------------------------------------------- */

static float relu(float x) { return x < 0 || (IS(net_relu_nan) && isnan(x)) ? 0 : x; }

static void row_of(const struct ha_net *n, const float *x, float *y)
{
    float now[HA_NET_WIDTH_MAX], next[HA_NET_WIDTH_MAX];
    const float *w = n->w;
    memcpy(now, x, n->width[0] * sizeof *now);
    for (size_t l = 0; l < n->layers; l++) {
        const size_t in = n->width[l], out = n->width[l + 1];
        const bool last = l + 1 == n->layers;
        for (size_t j = 0; j < out; j++) {
            float sum = IS(net_bias) || (IS(net_bias_last) && last) ? 0 : w[in * out + j];
            for (size_t i = 0; i + IS(net_last) < in; i++) {
                sum += now[i] * (IS(net_turned) ? w[j * in + i] : w[i * out + j]);
                if (IS(net_half)) sum = ha_round(sum, HA_F16);
            }
            if (IS(net_256) && j >= 256) sum = 0;
            next[j] = (last && !IS(net_relu_last)) || IS(net_relu) ? sum : relu(sum);
        }
        memcpy(now, next, out * sizeof *now);
        w += (in + 1) * out;
    }
    memcpy(y, now, n->width[n->layers] * sizeof *y);
}

static void net_later(struct ha_wrong_later *l)
{
    const struct ha_net *n = &l->u.net;
    const size_t in = n->width[0], out = n->width[n->layers];
    for (size_t r = 0; r + IS(net_row) < n->rows; r++) row_of(n, n->x + r * in, n->y + r * out);
    if (IS(net_beside)) n->y[n->rows * out] = 0;
}
static enum ha_status wrong_net(struct ha_stream *s, const struct ha_net *n)
{
    struct ha_wrong_later *l = ha_wrong_later(net_later, NULL, 0);
    l->u.net = *n;
    return ha_wrong_over(IS(net_early),
                         ha_wrong_on(ha_wrong_aside(IS(net_unjoined), ha_wrong_early(IS(net_early), s)), l));
}

void ha_wrong_predict(struct ha_device_api *api)
{
    api->features = wrong_features;
    api->net = wrong_net;
}
