#include "kernels/host/test_support.h"

#include <math.h>

static void chunk_unused(const struct ha_chunk *c)
{
    (void)c;
}

static size_t scratch_bytes(const struct ha_attend *a)
{
    size_t keys = 0;
    for (size_t r = 0; r < a->runs_count; r++) keys += a->runs[r].keys;
    return keys * sizeof(double);
}

static double element(const void *rows, size_t at_bytes, size_t d)
{
    float x;
    memcpy(&x, (const char *)rows + at_bytes + d * sizeof x, sizeof x);
    return (double)x;
}

static void attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    (void)self;
    double *score = a->scratch;
    size_t keys = scratch_bytes(a) / sizeof *score;
    for (size_t head = 0; head < a->group; head++) {
        for (size_t t = 0; t < a->q_len; t++) {
            const float *q = a->q + t * a->q_token_stride + head * a->q_head_stride;
            float *o = a->o + t * a->q_token_stride + head * a->q_head_stride;
            size_t visible = a->causal ? keys - (a->q_len - 1 - t) : keys, j = 0;
            double sum = 0, *at = score;
            for (size_t r = 0; r < a->runs_count; r++)
                for (size_t i = 0; i < a->runs[r].keys; i++, j++) {
                    double dot = 0;
                    for (size_t d = 0; d < a->head_dim; d++)
                        dot += (double)q[d] * element(a->runs[r].k, i * a->runs[r].k_stride_bytes, d);
                    *at = j < visible ? exp((double)a->scale * dot) : 0;
                    sum += *at++;
                }
            for (size_t d = 0; d < a->head_dim; d++) {
                double acc = 0;
                at = score;
                for (size_t r = 0; r < a->runs_count; r++)
                    for (size_t i = 0; i < a->runs[r].keys; i++)
                        acc += *at++ * element(a->runs[r].v, i * a->runs[r].v_stride_bytes, d);
                o[d] = sum > 0 ? (float)(acc / sum) : 0.0f;
            }
            a->lse[t * a->lse_token_stride + head * a->lse_head_stride] = (float)log(sum);
            if (!a->weights) continue;
            for (j = 0; j < keys; j++) {
                float *w = a->weights + head * a->weights_stride + j;
                *w = (t ? *w : 0.0f) + (float)(score[j] / sum / (double)a->q_len);
            }
        }
    }
}

static double weight(const struct ha_merge_state *state, size_t row)
{
    return exp((double)state->lse[row * state->lse_stride]);
}

static void merge(const struct ha_merge *m)
{
    for (size_t row = 0; row < m->rows; row++) {
        double sum = 0;
        for (size_t i = 0; i < m->states_count; i++) sum += weight(&m->states[i], row);
        for (size_t d = 0; d < m->dim; d++) {
            double acc = 0;
            for (size_t i = 0; i < m->states_count; i++)
                acc += weight(&m->states[i], row) * (double)m->states[i].o[row * m->states[i].o_stride + d];
            m->o[row * m->o_stride + d] = (float)(acc / sum);
        }
        m->lse[row * m->lse_stride] = (float)log(sum);
    }
}

const struct ha_kernels test_kernels = {
    .name = "test",
    .profile = { .dot_lanes = 3, .sum_lanes = 5, .exp_eps = 1e-7, .log_eps = 2e-7 },
    .attend_chunk = chunk_unused,
    .attend = attend,
    .attend_scratch_bytes = scratch_bytes,
    .merge = merge,
};
