/* Weights of keys, the fewest that reach a share, and sums of V by them, wrong: plain loops over the device's memory,
 * which do one step otherwise. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static float softmax_row(float *x, size_t n)
{
    float most = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) most = x[i] > most || (isnan(x[i]) && !IS(softmax_nan)) ? x[i] : most;
    if (IS(softmax_first)) most = n ? x[0] : most;
    if (IS(softmax_plain)) most = 0;
    for (size_t i = 0; i + IS(softmax_last) < n; i++) {
        if (IS(softmax_nan) && isnan(x[i])) continue;
        sum += (double)(IS(softmax_half) ? ha_round(expf(x[i] - most), HA_F16) : expf(x[i] - most));
        if (IS(softmax_sum_half)) sum = (double)ha_round((float)sum, HA_F16);
    }
    const float by = (float)sum, lse = most + logf(by);
    const bool none = most == -INFINITY && !IS(softmax_none);
    for (size_t i = 0; i < n; i++) {
        const float w = expf(x[i] - most);
        x[i] = none ? 0 : IS(softmax_undivided) ? w : IS(softmax_half) ? ha_round(w, HA_F16) / by : w / by;
    }
    return none ? -INFINITY : IS(softmax_log2) ? lse * 0x1.715476p0f : IS(softmax_log) ? logf(by) : lse;
}

static void softmax_later(struct ha_wrong_later *l)
{
    const struct ha_device_softmax *d = &l->u.softmax;
    const struct ha_device_softmax_seq *seqs = ha_wrong_copy(l);
    const size_t rows = d->heads * d->q_len;
    for (size_t i = 0; i < d->batch * rows; i++) {
        const struct ha_device_softmax_seq *m = &seqs[i / rows];
        const size_t row = i % rows, stride = IS(softmax_stride) ? m->n : m->stride,
                     lse_stride = IS(softmax_lse_stride) ? d->heads : m->lse_stride;
        const float lse = softmax_row(m->x + row * stride, m->n);
        if (IS(softmax_beside) && m->n < m->stride) m->x[row * m->stride + m->n] = 0;
        if (!m->lse || IS(softmax_lse)) continue;
        const size_t at = IS(softmax_turned) ? row : row % d->q_len * lse_stride + row / d->q_len;
        m->lse[at] = lse;
    }
}
static enum ha_status wrong_softmax(struct ha_stream *s, const struct ha_device_softmax *d)
{
    struct ha_wrong_later *l = ha_wrong_later(softmax_later, d->seqs, d->batch * sizeof *d->seqs);
    l->u.softmax = *d;
    return ha_wrong_over(IS(softmax_early),
                         ha_wrong_on(ha_wrong_aside(IS(softmax_unjoined), ha_wrong_early(IS(softmax_early), s)), l));
}

/* ---- topp -------------------------------------------------------------------------------------------------------- */

struct element {
    double weight;
    size_t i;
};
static int by_weight(const void *a, const void *b)
{
    const struct element *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    const int order = x->i < y->i ? -1 : x->i > y->i;
    return IS(topp_tie) ? -order : order;
}
static int by_place(const void *a, const void *b)
{
    const struct element *x = a, *y = b;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* in units of 2^-52, which a double holds exactly up to 1 */
static double weight(const struct ha_device_topp *t, const float *x, size_t stride, size_t i)
{
    double sum = 0, most = 0;
    for (size_t r = 0; r < (IS(topp_first) ? 1 : t->rows); r++) {
        const double w = floor(ldexp((double)x[r * stride + i], IS(topp_units) ? 16 : HA_TOPP_BITS));
        sum += isnan(w) ? 0 : w;
        most = fmax(most, w);
    }
    return IS(topp_most) ? most * (double)t->rows : sum;
}

static size_t choose(const struct ha_device_topp *t, const struct ha_device_topp_seq *m, const float *x,
                     struct element *e)
{
    const size_t rows = IS(topp_first) ? 1 : t->rows;
    const double share = IS(topp_rows) ? t->p : (double)rows * t->p;
    double left = ceil(ldexp(share, IS(topp_units) ? 16 : HA_TOPP_BITS));
    float single = 0;
    for (size_t i = 0; i < m->n; i++) {
        for (size_t r = 0; r < t->rows; r++)
            if (isnan(x[r * m->stride + i]) && !IS(topp_nan)) return 0;
        e[i] = (struct element){ weight(t, x, m->stride, i), i };
    }
    qsort(e, m->n, sizeof *e, by_weight);
    size_t n = 0;
    for (; n < m->n && (IS(topp_above) ? left >= 0 : left > 0); n++) {
        if (IS(topp_zero) && e[n].weight == 0) break;
        if (IS(topp_single)) {
            single += (float)ldexp(e[n].weight, -HA_TOPP_BITS);
            left = (double)(single < (float)share);
            continue;
        }
        left -= e[n].weight;
    }
    if (IS(topp_none) && left > 0) return 0;
    if (IS(topp_short) && n > 1) n--;
    if (IS(topp_long) && n < m->n) n++;
    return IS(topp_1000) && n > 1000 ? 1000 : n;
}

static void topp_list(const struct ha_device_topp *t, const struct ha_device_topp_seq *m, size_t list)
{
    const size_t from = IS(topp_list) ? (list + 1) % t->lists : list, e = ha_dtype_bytes(t->w_type),
                 stride = IS(topp_stride) ? m->n : m->stride,
                 index_stride = IS(topp_index_stride) ? m->n : m->index_stride,
                 w_stride = IS(topp_w_stride) ? m->index_stride : m->w_stride;
    const float *x = m->x + from * t->rows * stride;
    struct element *const of = malloc((m->n + 1) * sizeof *of);
    if (!of) return;
    const size_t n = choose(t, m, x, of);
    if (!IS(topp_order)) qsort(of, n, sizeof *of, by_place);
    m->keys[list] = (uint32_t)(n + IS(topp_count));
    for (size_t i = 0; i < n; i++) {
        m->index[list * index_stride + i] = (uint32_t)of[i].i;
        for (size_t r = 0; r < t->rows; r++) {
            const float w = x[(IS(topp_w_row) ? 0 : r) * stride + (IS(topp_w_place) ? i : of[i].i)];
            char *const to = (char *)m->w + (list * t->rows + r) * w_stride * e;
            ha_store(to, i, t->w_type, IS(topp_w_scaled) ? w / (float)t->p : w);
            if (IS(topp_w_cut) && t->w_type == HA_F16 && ha_load(to, i, HA_F16) > w) ((uint16_t *)(void *)to)[i]--;
        }
    }
    if (IS(topp_beside) && m->index_stride > m->n) m->index[list * m->index_stride + m->n] = 0;
    free(of);
}

static void topp_later(struct ha_wrong_later *l)
{
    const struct ha_device_topp *t = &l->u.topp;
    const struct ha_device_topp_seq *seqs = ha_wrong_copy(l);
    for (size_t i = 0; i < t->batch * t->lists; i++) topp_list(t, &seqs[i / t->lists], i % t->lists);
}
static enum ha_status wrong_topp(struct ha_stream *s, const struct ha_device_topp *t)
{
    struct ha_wrong_later *l = ha_wrong_later(topp_later, t->seqs, t->batch * sizeof *t->seqs);
    l->u.topp = *t;
    return ha_wrong_over(IS(topp_early),
                         ha_wrong_on(ha_wrong_aside(IS(topp_unjoined), ha_wrong_early(IS(topp_early), s)), l));
}

/* ---- weighted_sum ------------------------------------------------------------------------------------------------ */

static void sum_row(const struct ha_device_weighted_sum *d, const struct ha_device_weighted_sum_seq *m, size_t head,
                    size_t t)
{
    const size_t group = d->q_heads / d->kv_heads, w_bytes = ha_dtype_bytes(d->w_type), dim = d->head_dim,
                 of = IS(weighted_sum_list) ? head / group * group : head,
                 kv = IS(weighted_sum_head) ? head % d->kv_heads : head / group,
                 n = m->keys[IS(weighted_sum_keys) ? 0 : of],
                 w_row = IS(weighted_sum_rows) ? t * d->q_heads + head
                                               : head * d->q_len + (IS(weighted_sum_token) ? 0 : t),
                 o_row = IS(weighted_sum_turned) ? head * d->q_len + t : t * d->q_heads + head,
                 w_stride = IS(weighted_sum_w_stride) ? m->index_stride : m->w_stride;
    const uint32_t *const index = m->index + of * m->index_stride;
    const char *const v = (const char *)m->v + kv * m->v_head_bytes,
                      *w = (const char *)m->w + w_row * w_stride * w_bytes;
    if (IS(weighted_sum_none) && n == 0) return;
    for (size_t c = 0; c < dim; c++) {
        float sum = 0, all = 0;
        for (size_t i = 0; i + IS(weighted_sum_last) < n; i++) {
            const size_t key = IS(weighted_sum_index) ? i : index[i];
            const float by = ha_load(w, IS(weighted_sum_first) ? 0 : i, d->w_type),
                        x = ha_load(v + key * m->v_stride_bytes, c, d->dtype);
            if (IS(weighted_sum_nan) && !isfinite(x)) continue;
            if (IS(weighted_sum_512) && i >= 512) break;
            sum += by * x;
            all += by;
            if (IS(weighted_sum_half)) sum = ha_round(sum, HA_F16);
        }
        if (IS(weighted_sum_divided)) sum /= n ? all : 1;
        if (IS(weighted_sum_rounded)) sum = ha_round(sum, d->dtype == HA_F32 ? HA_F16 : d->dtype);
        m->o[o_row * dim + c] = IS(weighted_sum_128) && c >= 128 ? 0 : sum;
    }
}

static void sum_later(struct ha_wrong_later *l)
{
    const struct ha_device_weighted_sum *d = &l->u.weighted_sum;
    const struct ha_device_weighted_sum_seq *seqs = ha_wrong_copy(l);
    for (size_t i = 0; i < d->batch * d->q_heads * d->q_len; i++)
        sum_row(d, &seqs[i / d->q_len / d->q_heads], i / d->q_len % d->q_heads, i % d->q_len);
}
static enum ha_status wrong_weighted_sum(struct ha_stream *s, const struct ha_device_weighted_sum *d)
{
    struct ha_wrong_later *l = ha_wrong_later(sum_later, d->seqs, d->batch * sizeof *d->seqs);
    struct ha_device_weighted_sum_seq *seqs = ha_wrong_copy(l);
    l->u.weighted_sum = *d;
    for (size_t b = 0; b < d->batch && IS(weighted_sum_keys_early); b++)
        seqs[b].keys = ha_wrong_words(seqs[b].keys, d->q_heads);
    return ha_wrong_over(
        IS(weighted_sum_early),
        ha_wrong_on(ha_wrong_aside(IS(weighted_sum_unjoined), ha_wrong_early(IS(weighted_sum_early), s)), l));
}

void ha_wrong_weights(struct ha_device_api *api)
{
    api->softmax = wrong_softmax;
    api->topp = wrong_topp;
    api->weighted_sum = wrong_weighted_sum;
}
