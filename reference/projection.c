#include "reference/rows.h"

/* How far binary32 may be off, step by step. bound: [n] of h, NULL where it is not wanted. */

/* A root mean square is off by that of what its terms are off by; a sum of squares, a quotient and a root are rounded.
 */
static void normalise(const struct ha_projection *p, size_t n, double *h, double *bound)
{
    double squares = 0, off = 0;
    for (size_t i = 0; i < n; i++) squares += h[i] * h[i];
    const double eps = (double)p->norm_eps, root = sqrt(squares / (double)n + eps);
    for (size_t i = 0; bound && i < n; i++) off += bound[i] * bound[i];
    const double least = fmax(root - sqrt(off / (double)n), sqrt(eps)) * (1 - ha_ref_gamma((double)n + 4));
    for (size_t i = 0; bound && i < n; i++) {
        const double by = fabs((double)p->norm[i]), most = (1 + ha_ref_gamma(4)) * by * (fabs(h[i]) + bound[i]) / least;
        bound[i] = least > 0 ? most - by * fabs(h[i]) / root + HA_REF_ETA : HUGE_VAL;
    }
    for (size_t i = 0; i < n; i++) h[i] *= root > 0 ? (double)p->norm[i] / root : 0;
}

static double turned_bound(double a, double bound_a, double c, double b, double bound_b, double s)
{
    const double size = (fabs(a) + bound_a) * fabs(c) + (fabs(b) + bound_b) * fabs(s);
    return bound_a * fabs(c) + bound_b * fabs(s) + ha_ref_gamma(5) * size + HA_REF_ETA;
}

/* datasets/README.md, "Format": rotary(norm_q(W_Q x + bias)) */
void ha_projection_query(const struct ha_projection *p, size_t q_heads, size_t head_dim, size_t model_dim,
                         const float *x, size_t token, double *q, double *bound)
{
    for (size_t i = 0; i < q_heads * head_dim; i++) {
        const float *w = p->wq + i * model_dim;
        double sum = p->bias ? (double)p->bias[i] : 0, size = fabs(sum);
        for (size_t j = 0; j < model_dim; j++) {
            const double term = (double)w[j] * (double)x[j];
            sum += term;
            size += fabs(term);
        }
        q[i] = sum;
        if (bound) bound[i] = ha_ref_gamma((double)model_dim + 2) * size + HA_REF_ETA;
    }
    for (size_t head = 0; p->norm && head < q_heads; head++)
        normalise(p, head_dim, q + head * head_dim, bound ? bound + head * head_dim : NULL);
    const size_t pairs = p->inv_freq ? p->rotary / 2 : 0;
    for (size_t j = 0; j < pairs; j++) {
        const double angle = (double)token * (double)p->inv_freq[j];
        const double c = cos(angle) * (double)p->rope_scale, s = sin(angle) * (double)p->rope_scale;
        for (size_t head = 0; head < q_heads; head++) {
            const size_t a = head * head_dim + (p->adjacent ? 2 * j : j), b = a + (p->adjacent ? 1 : pairs);
            const double x_a = q[a], x_b = q[b], off_a = bound ? bound[a] : 0, off_b = bound ? bound[b] : 0;
            q[a] = x_a * c - x_b * s;
            q[b] = x_b * c + x_a * s;
            if (!bound) continue;
            bound[a] = turned_bound(x_a, off_a, c, x_b, off_b, s);
            bound[b] = turned_bound(x_b, off_b, c, x_a, off_a, s);
        }
    }
}

struct ha_projected ha_projection_off(const struct ha_projection *p, size_t width, size_t first, size_t rows,
                                      const float *got, const double *o)
{
    struct ha_projected sum = { 0, 0 };
    for (const float *w = p->wo + first * width; rows-- > 0; w += width) {
        double off = 0, full = 0;
        for (size_t i = 0; i < width; i++) {
            off += (double)w[i] * ((double)got[i] - o[i]);
            full += (double)w[i] * o[i];
        }
        sum.diff2 += off * off;
        sum.norm2 += full * full;
    }
    return sum;
}
