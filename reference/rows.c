#include "reference/rows.h"

#include "harness/base/numeric.h"

#include <string.h>

void ha_ref_tile_load(struct ha_ref_tile *tile, const struct ha_rows *rows, enum ha_ref_side side, size_t first,
                      size_t dim, enum ha_dtype dtype)
{
    const char *data = side == HA_REF_K ? rows->k : rows->v;
    const size_t stride_bytes = side == HA_REF_K ? rows->k_stride_bytes : rows->v_stride_bytes;
    tile->first = first;
    tile->rows = ha_ref_smaller(rows->keys - first, HA_REF_TILE);
    tile->dim = dim;
    for (size_t r = 0; r < tile->rows; r++) {
        const size_t row = rows->index ? rows->index[first + r] : first + r;
        ha_load_row(data + row * stride_bytes, dim, dtype, tile->data + r * dim);
    }
    memset(tile->data + tile->rows * dim, 0, (HA_REF_TILE - tile->rows) * dim * sizeof tile->data[0]);
}

/* The products of binary32 numbers are exact in binary64. Four streams keep the paths short. */
static void dot(const float *restrict q, const float *restrict k, size_t dim, double *sum, double *magnitude)
{
    const size_t n = dim / 4;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0, a = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3, a)
    for (size_t i = 0; i < n; i++) {
        const double t0 = (double)q[i] * (double)k[i], t1 = (double)q[n + i] * (double)k[n + i];
        const double t2 = (double)q[2 * n + i] * (double)k[2 * n + i], t3 = (double)q[3 * n + i] * (double)k[3 * n + i];
        s0 += t0;
        s1 += t1;
        s2 += t2;
        s3 += t3;
        a += (fabs(t0) + fabs(t1)) + (fabs(t2) + fabs(t3));
    }
    double tail = 0;
    for (size_t i = 4 * n; i < dim; i++) {
        const double t = (double)q[i] * (double)k[i];
        tail += t;
        a += fabs(t);
    }
    *sum = ((s0 + s1) + (s2 + s3)) + tail;
    *magnitude = a;
}

void ha_ref_tile_score(const struct ha_ref_tile *tile, size_t rows, const float *q, double scale, double *s, double *a)
{
    for (size_t r = 0; r < rows; r++) {
        double sum, magnitude;
        dot(q, tile->data + r * tile->dim, tile->dim, &sum, &magnitude);
        s[tile->first + r] = scale * sum;
        a[tile->first + r] = fabs(scale) * magnitude;
    }
}

void ha_ref_tile_weigh(const struct ha_ref_tile *tile, size_t rows, const double *w, double *restrict sum,
                       double *restrict rest)
{
    double weight[HA_REF_TILE] = { 0 };
    memcpy(weight, w + tile->first, rows * sizeof weight[0]);
    const double w0 = weight[0], w1 = weight[1], w2 = weight[2], w3 = weight[3];
    const double w4 = weight[4], w5 = weight[5], w6 = weight[6], w7 = weight[7];
    const size_t dim = tile->dim;
    /* a row that the query does not see is not read: it may hold anything */
    const float *row[HA_REF_TILE];
    for (size_t r = 0; r < HA_REF_TILE; r++) row[r] = tile->data + (r < rows ? r : 0) * dim;
    const float *restrict r0 = row[0], *restrict r1 = row[1], *restrict r2 = row[2], *restrict r3 = row[3];
    const float *restrict r4 = row[4], *restrict r5 = row[5], *restrict r6 = row[6], *restrict r7 = row[7];
#pragma omp simd
    for (size_t i = 0; i < dim; i++) {
        const double low = (w0 * (double)r0[i] + w1 * (double)r1[i]) + (w2 * (double)r2[i] + w3 * (double)r3[i]);
        const double high = (w4 * (double)r4[i] + w5 * (double)r5[i]) + (w6 * (double)r6[i] + w7 * (double)r7[i]);
        const double t = low + high, old = sum[i];
        const double next = old + t, part = next - old;
        rest[i] += (old - (next - part)) + (t - part);
        sum[i] = next;
    }
}

void ha_ref_tile_range(const struct ha_ref_tile *tile, size_t rows, const double *w, double *restrict lo,
                       double *restrict hi)
{
    const size_t dim = tile->dim;
    for (size_t r = 0; r < rows; r++) {
        const float *restrict v = tile->data + r * dim;
        if (w && !(w[tile->first + r] > 0)) continue;
        for (size_t i = 0; i < dim; i++) {
            const double x = (double)v[i];
            lo[i] = x < lo[i] ? x : lo[i];
            hi[i] = x > hi[i] ? x : hi[i];
        }
    }
}

struct ha_ref_softmax ha_ref_softmax(double *s, double *a, size_t keys, const struct ha_bound *b)
{
    const double h = (ha_ref_gamma(b->h_dot) * (1 + b->u_s) + b->u_s) * (1 + b->u_x) + b->u_x + b->kappa_s * HA_REF_U,
                 e = (1 + b->rescales) * b->exp_eps + b->u_w;
    double m = -HUGE_VAL, sum = 0, rest = 0;
    for (size_t j = 0; j < keys; j++) m = s[j] > m || isnan(s[j]) ? s[j] : m;
    struct ha_ref_softmax out = { .max = m };
    if (m == -HUGE_VAL) return out;
    for (size_t j = 0; j < keys; j++) {
        const double below = m - s[j], off = h * a[j], rounded = ha_ref_logit(b, s[j], off);
        s[j] = exp(-below);
        a[j] = ha_ref_spread(-below, off + rounded + b->kappa_t * HA_REF_U * below + e);
        const double next = sum + s[j], part = next - sum;
        rest += (sum - (next - part)) + (s[j] - part);
        sum = next;
    }
    out.sum = sum + rest;
    for (size_t j = 0; j < keys; j++) {
        a[j] /= out.sum;
        out.theta += a[j];
    }
    out.lost = (double)keys * (HA_REF_ETA + b->eta_w) / (b->sum_least > 0 ? b->sum_least : out.sum);
    out.theta += out.lost;
    return out;
}

struct ha_ref_reach ha_ref_reach(double *s, const double *a, size_t keys, double max, const struct ha_bound *b)
{
    const double h = (expm1(ha_ref_drift(b->h_dot)) * (1 + b->u_s) + b->u_s) * (1 + b->u_x) + b->u_x
                     + b->kappa_s * HA_REF_U,
                 t = b->kappa_t * HA_REF_U;
    struct ha_ref_reach out = { 0, 0 };
    double lowest = -HUGE_VAL;
    for (size_t j = 0; j < keys; j++)
        lowest = fmax(lowest, s[j] - (h * a[j] + ha_ref_logit(b, s[j], h * a[j]) + t * (max - s[j])));
    for (size_t j = 0; j < keys; j++) {
        const double e = h * a[j] + ha_ref_logit(b, s[j], h * a[j]) + t * (max - s[j]);
        s[j] = s[j] > -HUGE_VAL && s[j] + e >= lowest - HA_REF_NOTHING;
        if (!(s[j] > 0)) continue;
        out.error = ha_ref_most(out.error, e);
        out.keys++;
    }
    out.error *= 1 + 8 * HA_REF_U; /* the maximum and L are off by as much where they are rounded */
    return out;
}
