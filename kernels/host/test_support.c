/* Of the embedded device: binary64 loops over f32 rows; scratch is used, so that a wrong size shows. */

#include "kernels/host/host.h"
#include "kernels/host/test_support.h"

#include "harness/base/numeric.h"

#include <math.h>

const struct ha_device_api *const api = &ha_device_host;
const bool embedded = true;

static void chunk_unused(const struct ha_chunk *c) { (void)c; }

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

/* sum exp(s) over the keys of the state */
static double weight(const struct ha_merge *m, const struct ha_merge_state *state, size_t at)
{
    double of_max = exp((double)state->lse[at]);
    return m->form == HA_FORM_MAX_SUM ? of_max * (double)state->sum[at] : of_max;
}

static void merge_row(const struct ha_merge *m, size_t t, size_t h)
{
    const struct ha_merge_state *s = m->states, *out = &m->out;
    double sum = 0, max = -HUGE_VAL;
    for (size_t i = 0; i < m->states_count; i++) {
        size_t at = t * s[i].lse_token_stride + h * s[i].lse_head_stride;
        sum += weight(m, &s[i], at);
        max = fmax(max, (double)s[i].lse[at]);
    }
    for (size_t d = 0; d < m->dim; d++) {
        double acc = 0;
        for (size_t i = 0; i < m->states_count; i++)
            acc += weight(m, &s[i], t * s[i].lse_token_stride + h * s[i].lse_head_stride)
                   * (double)ha_load(s[i].o, t * s[i].o_token_stride + h * s[i].o_head_stride + d, m->dtype);
        ha_store(out->o, t * out->o_token_stride + h * out->o_head_stride + d, m->dtype, (float)(acc / sum));
    }
    const size_t at = t * out->lse_token_stride + h * out->lse_head_stride;
    out->lse[at] = (float)(m->form == HA_FORM_MAX_SUM ? max : log(sum));
    if (m->form == HA_FORM_MAX_SUM) out->sum[at] = (float)(sum / exp(max));
}

static void merge(const struct ha_merge *m)
{
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) merge_row(m, t, h);
}

const struct ha_kernels test_kernels = {
    .name = "test",
    .profile = { .dot_lanes = 3, .sum_lanes = 5, .exp_eps = 1e-7, .log_eps = 2e-7 },
    .traits = { .forms = 1u << HA_FORM_NATURAL | 1u << HA_FORM_MAX_SUM,
                .dtypes = 1u << HA_F32 | 1u << HA_BF16,
                .o_strides = true,
                .exp_eps = 3e-7,
                .log_eps = 4e-7,
                .depth_extra = 5 },
    .attend_chunk = chunk_unused,
    .attend = attend,
    .attend_scratch_bytes = scratch_bytes,
    .merge = merge,
};
