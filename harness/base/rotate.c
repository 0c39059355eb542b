#include "harness/base/rotate.h"

#include <math.h>

/* one head */
static void normalise(float *q, size_t dim, const float *norm, float eps)
{
    float squares = 0;
    for (size_t d = 0; d < dim; d++) squares += q[d] * q[d];
    const float by = 1 / sqrtf(squares / (float)dim + eps);
    for (size_t d = 0; d < dim; d++) q[d] = q[d] * by * norm[d];
}

static void turn(float *q, const float *by, size_t rotary, bool adjacent)
{
    const size_t apart = adjacent ? 1 : rotary / 2, step = adjacent ? 2 : 1;
    for (size_t j = 0; j < rotary / 2; j++, by += 2) {
        float *a = q + j * step, *b = a + apart;
        const float x = *a, y = *b;
        *a = x * by[0] - y * by[1];
        *b = y * by[0] + x * by[1];
    }
}

void ha_rotate(const struct ha_device_rotate *r, size_t first, size_t count)
{
    for (size_t i = first * r->heads; i < (first + count) * r->heads; i++) {
        float *q = r->q + i * r->head_dim;
        for (size_t d = 0; r->bias && d < r->head_dim; d++) q[d] += r->bias[i % r->heads * r->head_dim + d];
        if (r->norm) normalise(q, r->head_dim, r->norm, r->norm_eps);
        if (r->turn) turn(q, r->turn + i / r->heads * r->rotary, r->rotary, r->adjacent);
    }
}

void ha_rotate_turn(const struct ha_projection *p, size_t position, float *turn)
{
    for (size_t j = 0; j < p->rotary / 2; j++) {
        const double angle = (double)position * (double)p->inv_freq[j];
        turn[2 * j] = (float)(cos(angle) * (double)p->rope_scale);
        turn[2 * j + 1] = (float)(sin(angle) * (double)p->rope_scale);
    }
}

void ha_rotate_back(const struct ha_projection *p, const float *turn, float *x)
{
    const size_t pairs = p->rotary / 2, apart = p->adjacent ? 1 : pairs, step = p->adjacent ? 2 : 1;
    const float square = p->rope_scale * p->rope_scale;
    for (size_t j = 0; j < pairs; j++, turn += 2) {
        float *a = x + j * step, *b = a + apart;
        const float one = *a, other = *b;
        *a = (one * turn[0] + other * turn[1]) / square;
        *b = (other * turn[0] - one * turn[1]) / square;
    }
}
