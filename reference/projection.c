#include "harness/api/reference.h"

#include <math.h>

/* datasets/README.md, "Format": rotary(norm_q(W_Q x + bias)) */
void ha_projection_query(const struct ha_projection *p, size_t q_heads, size_t head_dim, size_t model_dim,
                         const float *x, size_t token, double *q)
{
    for (size_t i = 0; i < q_heads * head_dim; i++) {
        const float *w = p->wq + i * model_dim;
        double sum = p->bias ? (double)p->bias[i] : 0;
        for (size_t j = 0; j < model_dim; j++) sum += (double)w[j] * (double)x[j];
        q[i] = sum;
    }
    for (size_t head = 0; p->norm && head < q_heads; head++) {
        double *h = q + head * head_dim, squares = 0;
        for (size_t i = 0; i < head_dim; i++) squares += h[i] * h[i];
        const double root = sqrt(squares / (double)head_dim + (double)p->norm_eps);
        for (size_t i = 0; i < head_dim; i++) h[i] *= root > 0 ? (double)p->norm[i] / root : 0;
    }
    const size_t pairs = p->inv_freq ? p->rotary / 2 : 0;
    for (size_t j = 0; j < pairs; j++) {
        const double angle = (double)token * (double)p->inv_freq[j];
        const double c = cos(angle) * (double)p->rope_scale, s = sin(angle) * (double)p->rope_scale;
        for (size_t head = 0; head < q_heads; head++) {
            double *a = q + head * head_dim + (p->adjacent ? 2 * j : j), *b = a + (p->adjacent ? 1 : pairs);
            const double before = *a;
            *a = before * c - *b * s;
            *b = *b * c + before * s;
        }
    }
}
