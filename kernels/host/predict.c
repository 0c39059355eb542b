/* What predicts budgets: the features of query heads, and a net that answers them. */

#include "harness/base/why.h"
#include "kernels/host/host.h"

#include <math.h>
#include <string.h>

/* ---- features */

static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
static float norm(const float *x, size_t n) { return sqrtf(dot(x, x, n)); }

/* the norm of a state's o, which counts as zeros where it has no keys */
static float state_norm(const struct ha_device_features_seq *s, size_t state, size_t head, size_t dim)
{
    return s->lse[state][head] == -INFINITY ? 0 : norm(s->o[state] + head * dim, dim);
}

/* ... of the attention that the two states of a head make together */
static float joined_norm(const struct ha_device_features_seq *s, size_t head, size_t dim)
{
    const float lse[2] = { s->lse[0][head], s->lse[1][head] }, top = lse[0] > lse[1] ? lse[0] : lse[1];
    float w[2], sum = 0;
    for (size_t i = 0; i < 2; i++) {
        w[i] = lse[i] == -INFINITY ? 0 : expf(lse[i] - top);
        sum += w[i];
    }
    float squares = 0;
    for (size_t d = 0; d < dim; d++) {
        float o = 0;
        for (size_t i = 0; i < 2; i++)
            if (lse[i] != -INFINITY) o += w[i] / sum * s->o[i][head * dim + d];
        squares += o * o;
    }
    return sqrtf(squares);
}

/* the largest of all heads; NaN where one is */
static float largest_norm(const struct ha_device_features *f, const struct ha_device_features_seq *s)
{
    float most = 0;
    for (size_t h = 0; h < f->q_heads; h++) {
        const float of = joined_norm(s, h, f->head_dim);
        if (of > most || isnan(of)) most = of;
    }
    return most;
}

static void head_features(const struct ha_device_features *f, const struct ha_device_features_seq *s, size_t head,
                          float largest, float *x)
{
    const size_t dim = f->head_dim;
    const float *q = s->q + head * dim, *anchor = s->anchor + head * dim, q_norm = norm(q, dim),
                anchor_norm = norm(anchor, dim),
                mean = dot(q, s->mean_k + head / (f->q_heads / f->kv_heads) * dim, dim);
    memcpy(x, s->known + head * HA_FEATURES, HA_FEATURES * sizeof *x);
    x[HA_FEATURE_DEVICE_KEYS] = (float)s->device_keys;
    x[HA_FEATURE_SCORE_MEAN] = q_norm == 0 ? 0 : f->scale * mean / q_norm;
    x[HA_FEATURE_LSE_SINK] = s->lse[0][head];
    x[HA_FEATURE_LSE_HOST] = logf(x[HA_FEATURE_HOST_KEYS]) + q_norm * x[HA_FEATURE_SCORE_MEAN]
                             + 0.5f * q_norm * q_norm * x[HA_FEATURE_ANCHOR_SCORE_VARIANCE];
    x[HA_FEATURE_LSE_LOCAL] = s->lse[1][head];
    x[HA_FEATURE_O_NORM_SINK] = state_norm(s, 0, head, dim);
    x[HA_FEATURE_O_NORM_LOCAL] = state_norm(s, 1, head, dim);
    x[HA_FEATURE_Q_NORM] = q_norm;
    x[HA_FEATURE_Q_COSINE] = q_norm == 0 || anchor_norm == 0 ? 0 : dot(q, anchor, dim) / (q_norm * anchor_norm);
    x[HA_FEATURE_O_NORM_MAX] = largest;
}

static float standardised(float x, float mean, float inv)
{
    const float limit = HA_FEATURE_LIMIT;
    if (isnan(x)) return x;
    x = inv == 0 ? 0 : (x - mean) * inv;
    return x > limit ? limit : x < -limit ? -limit : x;
}

static void run_features(struct ha_stream *s, const struct ha_host_op *op)
{
    const struct ha_device_features *f = &op->u.features;
    const struct ha_device_features_seq *seqs = op->array;
    (void)s;
    for (size_t b = 0; b < f->batch; b++) {
        const float largest = largest_norm(f, &seqs[b]);
        for (size_t h = 0; h < f->q_heads; h++) {
            float *x = seqs[b].x + h * HA_FEATURES;
            head_features(f, &seqs[b], h, largest, x);
            for (size_t i = 0; i < HA_FEATURES; i++) x[i] = standardised(x[i], f->mean[i], f->inv[i]);
        }
    }
}

enum ha_status ha_host_features(struct ha_stream *s, const struct ha_device_features *args)
{
    static const struct ha_host_verb verb = { .name = "features", .kind = HA_SPAN_KERNEL, .run = run_features };
    struct ha_host_op op = {
        .verb = &verb, .array = args->seqs, .array_bytes = args->batch * sizeof *args->seqs, .u.features = *args
    };
    if (args->kv_heads == 0 || args->q_heads % args->kv_heads != 0)
        return ha_host_fail(s->device, "features on %s: %zu query heads are no multiple of %zu KV heads", s->lane,
                            args->q_heads, args->kv_heads);
    const size_t row = args->head_dim * sizeof(float), q = args->q_heads * row, lse = args->q_heads * sizeof(float),
                 one = HA_FEATURES * sizeof(float), all = args->q_heads * one;
    if (!ha_host_kernel_operand(s, &op, "mean", args->mean, one, one)
        || !ha_host_kernel_operand(s, &op, "inv", args->inv, one, one))
        return HA_ERROR;
    for (size_t b = 0; b < args->batch; b++) {
        const struct ha_device_features_seq *seq = &args->seqs[b];
        if (!ha_host_kernel_operand(s, &op, "q", seq->q, q, q)
            || !ha_host_kernel_operand(s, &op, "known", seq->known, all, all)
            || !ha_host_kernel_operand(s, &op, "anchor", seq->anchor, q, q)
            || !ha_host_kernel_operand(s, &op, "mean of K", seq->mean_k, args->kv_heads * row, args->kv_heads * row)
            || !ha_host_kernel_operand(s, &op, "x", seq->x, all, 0))
            return HA_ERROR;
        for (size_t i = 0; i < 2; i++)
            if (!ha_host_kernel_operand(s, &op, "o", seq->o[i], q, q)
                || !ha_host_kernel_operand(s, &op, "lse", seq->lse[i], lse, lse))
                return HA_ERROR;
    }
    return ha_host_enqueue(s, &op);
}

/* ---- the net */

static void run_net(struct ha_stream *s, const struct ha_host_op *op)
{
    struct ha_net net = op->u.net;
    net.scratch = op->scratch;
    s->device->kernels.net(&net);
}

enum ha_status ha_host_net(struct ha_stream *s, const struct ha_net *args)
{
    static const struct ha_host_verb verb = { .name = "net", .kind = HA_SPAN_KERNEL, .run = run_net };
    if (!s->device->kernels.net)
        return ha_host_fail(s->device, "net on %s: the kernels of this device have no such one", s->lane);
    if (!ha_net_fits(args))
        return ha_host_fail(s->device, "net on %s: 1 to %d layers of 1 to %d numbers", s->lane, HA_NET_LAYERS_MAX,
                            HA_NET_WIDTH_MAX);
    struct ha_host_op op = { .verb = &verb, .scratch_bytes = ha_net_scratch(args) * sizeof(float), .u.net = *args };
    const size_t w = ha_net_weights(args) * sizeof(float), x = args->rows * args->width[0] * sizeof(float),
                 y = args->rows * args->width[args->layers] * sizeof(float);
    return ha_host_kernel_operand(s, &op, "w", args->w, w, w) && ha_host_kernel_operand(s, &op, "x", args->x, x, x)
                   && ha_host_kernel_operand(s, &op, "y", args->y, y, 0)
               ? ha_host_enqueue(s, &op)
               : HA_ERROR;
}
