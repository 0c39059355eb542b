/* What a device makes of the features of query heads, and of a net, in plain words and binary64, each number with how
 * far off binary32 may be within what harness/api declares. */

#include "reference/rows.h"

#include "harness/api/device.h"
#include "harness/api/reference.h"

/* a number, and how far off it may be */
struct number {
    double of, off;
};

/* error over bound; a NaN or an infinity is asked for where binary64 has one */
static double judged(float got, struct number want)
{
    if (isnan(want.of)) return isnan(got) ? 0 : HUGE_VAL;
    if ((double)got == want.of) return 0;
    const double ratio = fabs((double)got - want.of) / (1.001 * want.off + HA_REF_ETA);
    return isnan(ratio) ? HUGE_VAL : ratio;
}

/* ---- a net ------------------------------------------------------------------------------------------------------- */

double ha_ref_judge_net(const struct ha_net *n, size_t row)
{
    const size_t in = n->width[0], out = n->width[n->layers];
    double x[HA_NET_WIDTH_MAX], y[HA_NET_WIDTH_MAX], off[HA_NET_WIDTH_MAX], worst = 0;
    for (size_t i = 0; i < in; i++) x[i] = (double)n->x[row * in + i];
    ha_ref_net(n, x, NULL, y, off);
    for (size_t j = 0; j < out; j++) worst = fmax(worst, judged(n->y[row * out + j], (struct number){ y[j], off[j] }));
    return worst;
}

/* ---- features ---------------------------------------------------------------------------------------------------- */

#define FUNCTION_EPS 0x1p-22 /* of exp and ln */

/* sums of products, and of their magnitudes */
struct dot {
    double sum, size;
};
static struct dot dot_of(const float *a, const float *b, size_t n)
{
    struct dot x = { 0, 0 };
    for (size_t d = 0; d < n; d++) {
        const double term = (double)a[d] * (double)b[d];
        x.sum += term;
        x.size += fabs(term);
    }
    return x;
}

/* the root of n squares, which may be off by a share of itself: half of what their sum is, and the root's rounding */
static double norm_share(size_t n) { return 0.5 * ha_ref_gamma((double)n) + 2 * HA_REF_U; }
static struct number norm_of(const float *x, size_t n)
{
    const double norm = sqrt(dot_of(x, x, n).sum);
    return (struct number){ norm, norm_share(n) * norm };
}

/* <a, b> by / (norms), 0 where the norms are */
static struct number quotient(struct dot x, double by, double norms, double share, size_t n)
{
    if (norms == 0) return (struct number){ 0, 0 };
    const double of = by * x.sum / norms;
    return (struct number){ of, fabs(by) * x.size / norms * ha_ref_gamma((double)n) + fabs(of) * (share + 4 * HA_REF_U)
                                    + HA_REF_ETA };
}

/* ln H + |q| m + |q|^2 v / 2 */
static struct number lse_by_moments(double keys, double variance, struct number q, struct number mean)
{
    const double ln = log(keys), first = q.of * mean.of, second = 0.5 * q.of * q.of * variance;
    const double off = FUNCTION_EPS * fabs(ln) + q.of * mean.off + q.off * (fabs(mean.of) + mean.off)
                       + (q.of > 0 ? 2.1 * q.off / q.of * fabs(second) : 0),
                 size = fabs(ln) + fabs(first) + fabs(second);
    return (struct number){ ln + first + second, off + 6 * HA_REF_U * size + HA_REF_ETA };
}

static bool is_empty(const struct ha_device_features_seq *s, size_t state, size_t head)
{
    return (double)s->lse[state][head] == -HUGE_VAL;
}

static struct number state_norm(const struct ha_device_features_seq *s, size_t state, size_t head, size_t dim)
{
    return is_empty(s, state, head) ? (struct number){ 0, 0 } : norm_of(s->o[state] + head * dim, dim);
}

/* Of both states together. A weight exp(lse - top) has the rounding of its exponent and that of exp, and both have a
 * sum and a quotient in common; what they give is an average, off by a share of the norms that it is made of. */
static struct number joined_norm(const struct ha_device_features_seq *s, size_t head, size_t dim)
{
    const double lse[2] = { (double)s->lse[0][head], (double)s->lse[1][head] }, top = fmax(lse[0], lse[1]);
    const bool none[2] = { is_empty(s, 0, head), is_empty(s, 1, head) };
    if (isnan(lse[0]) || isnan(lse[1])) return (struct number){ (double)NAN, 0 };
    if (none[0] || none[1]) return none[0] && none[1] ? (struct number){ 0, 0 } : state_norm(s, none[0], head, dim);
    const double p[2] = { exp(lse[0] - top), exp(lse[1] - top) }, sum = p[0] + p[1];
    double squares = 0;
    for (size_t d = 0; d < dim; d++) {
        const double o = (p[0] * (double)s->o[0][head * dim + d] + p[1] * (double)s->o[1][head * dim + d]) / sum;
        squares += o * o;
    }
    const double norm[2] = { norm_of(s->o[0] + head * dim, dim).of, norm_of(s->o[1] + head * dim, dim).of };
    const double share = 2 * (fabs(lse[0] - lse[1]) * HA_REF_U + FUNCTION_EPS) + 6 * HA_REF_U,
                 off = share * (p[0] * norm[0] + p[1] * norm[1]) / sum + 0x1p-148 * (norm[0] + norm[1]);
    return (struct number){ sqrt(squares), off + norm_share(dim) * (sqrt(squares) + off) };
}

/* of all heads; NaN where one is */
static struct number largest_norm(const struct ha_device_features *f, const struct ha_device_features_seq *s)
{
    struct number most = { 0, 0 };
    for (size_t h = 0; h < f->q_heads; h++) {
        const struct number of = joined_norm(s, h, f->head_dim);
        most.of = ha_ref_most(most.of, of.of);
        most.off = fmax(most.off, of.off);
    }
    return most;
}

/* what is standardised is a difference and a product more */
static struct number standardised(struct number x, double mean, double inv)
{
    const double limit = HA_FEATURE_LIMIT;
    if (isnan(x.of)) return x;
    if (inv == 0) return (struct number){ 0, 0 };
    const double of = (x.of - mean) * inv, off = isfinite(x.of) ? x.off * inv + 2.1 * HA_REF_U * fabs(of) : 0;
    return (struct number){ fmin(fmax(of, -limit), limit), off };
}

static void head_features(const struct ha_device_features *f, const struct ha_device_features_seq *s, size_t head,
                          struct number largest, struct number *x)
{
    const size_t dim = f->head_dim, kv = head / (f->q_heads / f->kv_heads);
    const float *q = s->q + head * dim, *anchor = s->anchor + head * dim, *known = s->known + head * HA_FEATURES;
    const struct number q_norm = norm_of(q, dim), anchor_norm = norm_of(anchor, dim),
                        mean = quotient(dot_of(q, s->mean_k + kv * dim, dim), (double)f->scale, q_norm.of,
                                        norm_share(dim), dim);
    for (size_t i = 0; i < HA_FEATURES; i++) x[i] = (struct number){ (double)known[i], 0 };
    x[HA_FEATURE_DEVICE_KEYS] = (struct number){ (double)s->device_keys, HA_REF_U * (double)s->device_keys };
    x[HA_FEATURE_SCORE_MEAN] = mean;
    x[HA_FEATURE_LSE_SINK] = (struct number){ (double)s->lse[0][head], 0 };
    x[HA_FEATURE_LSE_HOST] = lse_by_moments((double)known[HA_FEATURE_HOST_KEYS],
                                            (double)known[HA_FEATURE_ANCHOR_SCORE_VARIANCE], q_norm, mean);
    x[HA_FEATURE_LSE_LOCAL] = (struct number){ (double)s->lse[1][head], 0 };
    x[HA_FEATURE_O_NORM_SINK] = state_norm(s, 0, head, dim);
    x[HA_FEATURE_O_NORM_LOCAL] = state_norm(s, 1, head, dim);
    x[HA_FEATURE_Q_NORM] = q_norm;
    x[HA_FEATURE_Q_COSINE] = quotient(dot_of(q, anchor, dim), 1, q_norm.of == 0 ? 0 : q_norm.of * anchor_norm.of,
                                      2 * norm_share(dim), dim);
    x[HA_FEATURE_O_NORM_MAX] = largest;
}

double ha_ref_judge_features(const struct ha_device_features *f, size_t seq, size_t *head, size_t *feature)
{
    const struct ha_device_features_seq *s = &f->seqs[seq];
    const struct number largest = largest_norm(f, s);
    double worst = 0;
    for (size_t h = 0; h < f->q_heads; h++) {
        struct number x[HA_FEATURES];
        head_features(f, s, h, largest, x);
        for (size_t i = 0; i < HA_FEATURES; i++) {
            const double ratio = judged(s->x[h * HA_FEATURES + i],
                                        standardised(x[i], (double)f->mean[i], (double)f->inv[i]));
            if (ratio <= worst) continue;
            worst = ratio;
            *head = h;
            *feature = i;
        }
    }
    return worst;
}
