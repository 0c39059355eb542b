#ifndef HA_TEST_FLAWS_H
#define HA_TEST_FLAWS_H

/* Planted in what attention has left: over a hundred thousand keys within every bound, and no rounding. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/test.h"

#include <math.h>

/* The flaw of one row, whose keys are rows [0, visible). */
typedef void flaw_row(const struct ha_attend *a, const struct ha_rows *rows, size_t visible, const float *q, float *o,
                      float *lse);

/* as of an exp that is so much too large for every key */
static inline void flaw_exp(const struct ha_attend *a, const struct ha_rows *rows, size_t visible, const float *q,
                            float *o, float *lse)
{
    *lse += 0x1p-17f;
}

/* o rounded to 16 bits on its way, and handed over in 32 */
static inline void flaw_half(const struct ha_attend *a, const struct ha_rows *rows, size_t visible, const float *q,
                             float *o, float *lse)
{
    for (size_t d = 0; d < a->head_dim; d++) o[d] = ha_round(o[d], HA_F16);
}

/* without the key whose weight is the nearest to 2^-20 */
static inline void flaw_dropped(const struct ha_attend *a, const struct ha_rows *rows, size_t visible, const float *q,
                                float *o, float *lse)
{
    float k[HA_REF_DIM_MAX];
    double least = HUGE_VAL, weight = 0;
    size_t at = 0;
    for (size_t j = 0; j < visible; j++) {
        double s = 0;
        ha_load_row((const char *)rows->k + j * rows->k_stride_bytes, a->head_dim, a->dtype, k);
        for (size_t d = 0; d < a->head_dim; d++) s += (double)q[d] * (double)k[d];
        const double log_p = s * (double)a->scale - (double)*lse, off = fabs(log_p - log(0x1p-20));
        if (off < least) least = off, weight = exp(log_p), at = j;
    }
    ha_load_row((const char *)rows->v + at * rows->v_stride_bytes, a->head_dim, a->dtype, k);
    for (size_t d = 0; d < a->head_dim; d++) o[d] = (float)(((double)o[d] - weight * (double)k[d]) / (1 - weight));
    *lse = (float)((double)*lse + log1p(-weight));
}

static inline void flaw_attend(const struct ha_attend *a, flaw_row *flaw)
{
    void *memory = malloc(2 * ha_ref_keys(a) * a->head_dim * ha_dtype_bytes(a->dtype) + 1);
    assert_non_null(memory);
    const struct ha_rows rows = ha_ref_plain_rows(a, memory);
    for (size_t t = 0; t < a->q_len; t++)
        for (size_t g = 0; g < a->group; g++)
            flaw(a, &rows, rows.keys - (a->causal ? a->q_len - 1 - t : 0),
                 a->q + t * a->q_token_stride + g * a->q_head_stride,
                 a->o + t * a->q_token_stride + g * a->q_head_stride,
                 a->lse + t * a->lse_token_stride + g * a->lse_head_stride);
    free(memory);
}

static const struct {
    const char *name;
    flaw_row *row;
} flaws[] = { { "exp off by 2^-17", flaw_exp },
              { "o rounded to 16 bits", flaw_half },
              { "a token lost", flaw_dropped } };
enum { FLAWS = sizeof flaws / sizeof *flaws };

#endif
