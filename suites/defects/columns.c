/* Columns of rows and scores of rows, wrong: plain loops over the device's memory, which do one step otherwise. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static float column(const struct ha_device_columns *c, const char *x, size_t kv, size_t j)
{
    const float *a = c->a + kv * c->columns * c->head_dim;
    const size_t terms = IS(columns_tail) ? c->head_dim / 32 * 32 : c->head_dim;
    float sum = 0;
    for (size_t d = 0; d < terms; d++) {
        const float at = IS(columns_turned) ? a[d * c->columns + j] : a[j * c->head_dim + d],
                    of = ha_load(x, d, c->x_type);
        if (IS(columns_nan) && isnan(of)) continue;
        sum += at * of;
        if (IS(columns_half)) sum = ha_round(sum, HA_F16);
    }
    return sum;
}

/* cut: to the next number towards 0, which is one less in the bits of 16-bit types */
static void store(void *y, size_t j, enum ha_dtype type, float x, bool cut)
{
    uint16_t *bits = (uint16_t *)y + j;
    ha_store(y, j, type, x);
    if (cut && type != HA_F32 && fabsf(ha_load(y, j, type)) > fabsf(x)) --*bits;
}

static void columns_later(struct ha_wrong_later *l)
{
    const struct ha_device_columns *c = &l->u.columns;
    const struct ha_device_columns_seq *seqs = ha_wrong_copy(l);
    const size_t group = c->heads / c->kv_heads;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t n = 0; n < seqs[b].tokens * c->heads; n++) {
            const struct ha_device_columns_seq *m = &seqs[b];
            const size_t t = n / c->heads, h = n % c->heads, kv = IS(columns_head) ? h % c->kv_heads : h / group;
            const char *x = (const char *)m->x + n * c->head_dim * ha_dtype_bytes(c->x_type);
            char *y = (char *)m->y
                      + (t * m->y_token_stride + h * (IS(columns_stride) ? c->columns : m->y_head_stride))
                            * ha_dtype_bytes(c->y_type);
            for (size_t j = 0; j + (IS(columns_last) && c->columns > 1) < c->columns; j++)
                store(y, j, c->y_type, column(c, x, kv, j), IS(columns_cut));
            if (IS(columns_more)) ha_store(y, c->columns, c->y_type, 0);
        }
}
static enum ha_status wrong_columns(struct ha_stream *s, const struct ha_device_columns *c)
{
    struct ha_wrong_later *l = ha_wrong_later(columns_later, c->seqs, c->batch * sizeof *c->seqs);
    l->u.columns = *c;
    return ha_wrong_over(IS(columns_early),
                         ha_wrong_on(ha_wrong_aside(IS(columns_unjoined), ha_wrong_early(IS(columns_early), s)), l));
}

/* ---- scores of rows ---------------------------------------------------------------------------------------------- */

static float row_score(const struct ha_device_score *a, const float *q, const char *k)
{
    if (IS(rows_aligned)) k -= (uintptr_t)k % 16;
    float sum = 0;
    for (size_t d = 0; d + (IS(rows_last) && a->head_dim > 1) < a->head_dim; d++) {
        const float x = ha_load(k, d, a->dtype);
        if (IS(rows_infinity) && q[d] == 0) continue;
        sum += q[d] * x;
        if (IS(rows_half)) sum = ha_round(sum, HA_F16);
    }
    return IS(rows_unscaled) ? sum : a->scale * sum;
}

static void score_later(struct ha_wrong_later *l)
{
    const struct ha_device_score *a = &l->u.score;
    const struct ha_device_rows_seq *seqs = ha_wrong_copy(l);
    const size_t group = a->q_heads / a->kv_heads, queries = a->q_heads * a->q_len;
    for (size_t n = 0; n < a->batch * queries; n++) {
        const struct ha_device_rows_seq *m = &seqs[n / queries];
        const size_t r = n % queries, h = r / a->q_len, t = r % a->q_len,
                     kv = IS(rows_head) ? h % a->kv_heads : h / group,
                     stride = IS(rows_stride) ? a->head_dim * ha_dtype_bytes(a->dtype) : m->rows.k_stride_bytes;
        const float *q = m->q + (IS(rows_token) ? r : t * a->q_heads + h) * a->head_dim;
        if (IS(rows_16) && r % (group * a->q_len) >= 16) continue;
        for (size_t i = 0; i < m->rows.keys; i++)
            m->s[r * (IS(rows_gap) ? m->rows.keys : m->s_stride) + i] = row_score(
                a, q,
                (const char *)m->rows.k + kv * m->k_head_bytes
                    + (m->rows.index && !IS(rows_index) ? m->rows.index[i] : i) * stride);
    }
}
static enum ha_status wrong_score(struct ha_stream *s, const struct ha_device_score *a)
{
    struct ha_wrong_later *l = ha_wrong_later(score_later, a->seqs, a->batch * sizeof *a->seqs);
    l->u.score = *a;
    return ha_wrong_over(IS(rows_early),
                         ha_wrong_on(ha_wrong_aside(IS(rows_unjoined), ha_wrong_early(IS(rows_early), s)), l));
}

void ha_wrong_columns(struct ha_device_api *api)
{
    api->columns = wrong_columns;
    api->score = wrong_score;
}
