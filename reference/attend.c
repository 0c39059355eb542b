#include "reference/rows.h"

#include <float.h>

enum { QUERIES = 32 }; /* of one pass over the rows */

static bool sees_as_before(const struct ha_ref_query *query, size_t c)
{
    return c > 0 && query[c].visible == query[c - 1].visible;
}

/* A term that is rounded to a type counts as what that is half a unit of, where it is less: least_s. False: one may be
 * beyond the type. */
static bool score(const struct ha_ref_tile *tile, size_t rows, const struct ha_ref_query *query, double scale,
                  double *s, double *a)
{
    const struct ha_bound *b = query->bound;
    bool fits = true;
    ha_ref_tile_score(tile, rows, query->q, scale, s, a);
    for (size_t r = tile->first; r < tile->first + rows && b->u_s > 0; r++) {
        fits &= a[r] * (1 + 2 * b->u_s) < fabs(scale) * b->most_s;
        a[r] += fabs(scale) * (double)tile->dim * b->least_s;
    }
    for (size_t r = tile->first; r < tile->first + rows && b->u_g > 0; r++)
        fits &= s[r] == -HUGE_VAL || fabs(s[r]) * (1 + 2 * b->u_g) + a[r] * (b->u_x + 0x1p-10) < b->most_g;
    return fits;
}

/* spread[i] += sum of pt |v - o|, size[i] += sum of (p + pt) |v|: what B1 and A' are made of */
static void deviate(const struct ha_ref_tile *tile, size_t rows, const double *w, const double *pt, double sum,
                    const double *restrict o, double *restrict spread, double *restrict size)
{
    const size_t dim = tile->dim;
    for (size_t r = 0; r < rows; r++) {
        const float *restrict v = tile->data + r * dim;
        const double t = pt[tile->first + r], p = w[tile->first + r] / sum + t;
#pragma omp simd
        for (size_t i = 0; i < dim; i++) {
            const double x = (double)v[i];
            spread[i] += t * fabs(x - o[i]);
            size[i] += p * fabs(x);
        }
    }
}

static void empty(struct ha_ref_state *out, size_t dim)
{
    for (size_t i = 0; i < dim; i++) out->o[i] = out->bound[i] = out->v_min[i] = out->v_max[i] = 0;
    out->lse = out->max = -HUGE_VAL;
    out->lse_bound = out->sum = 0;
    out->may_overflow = out->score_beyond = false;
}

static bool weights_are_known(const struct ha_ref_softmax *pass, const struct ha_bound *b)
{
    return pass->theta < 1 && ha_ref_gamma(b->h_sum + b->rescales) < 1;
}

/* of the logarithm of a sum, which sum_least may leave smaller than 1 */
static double log_off(double log_sum, const struct ha_bound *b)
{
    return b->log_eps * (log_sum + 1e-3 - (b->sum_least > 0 ? log(b->sum_least) : 0));
}

/* Where the weights are known. out->bound holds the spread, size the size, of deviate. */
static void bound(struct ha_ref_state *out, const struct ha_ref_softmax *pass, const struct ha_bound *b,
                  const double *size)
{
    const double g = ha_ref_gamma(b->h_sum + b->rescales), n = (double)out->keys, theta = pass->theta;
    out->lse_bound = -log1p(-theta) - log1p(-g) + log_off(fabs(log(pass->sum)), b);
    for (size_t i = 0; i < out->dim && !(b->sum_least > 0); i++) {
        const double o = fabs(out->o[i]), v = fmax(fabs(out->v_min[i]), fabs(out->v_max[i]));
        const double b1 = (out->bound[i] + pass->lost * (v + o)) / (1 - theta);
        const double a = (size[i] + pass->lost * v) / (1 - theta);
        const double b2 = ((g + b->u_p * (1 + g)) * a + (o + b1) * g) / (1 - g)
                          + n * (b->eta_p * v + HA_REF_ETA) / pass->sum;
        out->bound[i] = ha_ref_stored(b1 + b2, o, b->u_o, b->eta_o);
    }
}

/* The same of a sum that is not divided by that of the weights: these are exp(s - L), so that all are off by what L is,
 * and what one is off by counts in full. out->bound holds the spread still. */
static void bound_undivided(struct ha_ref_state *out, const struct ha_ref_softmax *pass, const struct ha_bound *b,
                            const double *size, size_t left_out)
{
    const double g = ha_ref_gamma(b->h_sum + b->rescales), sums = g + b->u_p * (1 + g),
                 lambda = out->lse_bound * (1 + 4 * HA_REF_U), lost = (double)(out->keys - left_out) / b->sum_least;
    for (size_t i = 0; i < out->dim; i++) {
        const double o = fabs(out->o[i]), v = fmax(fabs(out->v_min[i]), fabs(out->v_max[i]));
        const double each = out->bound[i] + pass->theta * o + pass->lost * v + sums * size[i]
                            + lost * (1 + sums) * (b->eta_p + HA_REF_ETA) * v;
        out->bound[i] = ha_ref_stored(exp(lambda) * each + expm1(lambda) * o, o, b->u_o, b->eta_o);
    }
}

/* Where they are not, L is within E, and what sums, exp and log add. A sum of weights is at least 1/2: the largest of
 * them is 2^(x - level) with a level at most 1 above x, or exp(0). */
static void bound_lse(struct ha_ref_state *out, const struct ha_ref_reach *reach, const struct ha_bound *b)
{
    const double sums = ha_ref_drift(b->h_sum + b->rescales) + 2 * (double)out->keys * (HA_REF_ETA + b->eta_w);
    const double weights = (1 + b->rescales) * ha_ref_log_drift(b->exp_eps) + ha_ref_log_drift(b->u_w);
    out->lse_bound = reach->error + sums + weights + log_off(log((double)reach->keys), b);
}

/* The range of what an answer can be, from that of the values of J. size: max |v| of all keys, of which each may lose
 * an underflow. Without known weights that range is all there is. loose: how far off 1 the sum of the weights may be,
 * that nothing is divided by. */
static void bound_range(struct ha_ref_state *out, const struct ha_ref_reach *reach, const struct ha_bound *b,
                        const double *size, double loose)
{
    const double n = (double)out->keys, used = reach ? (double)reach->keys : n,
                 least = b->sum_least > 0 ? b->sum_least : 1;
    for (size_t i = 0; i < out->dim; i++) {
        const double v = fmax(fabs(out->v_min[i]), fabs(out->v_max[i])), all = reach ? size[i] : v;
        double beyond = ha_ref_overhang(v, b->h_sum + b->rescales, b->u_p) * (1 + loose) + loose * v;
        beyond += 2 * (used * b->eta_p * v + n * HA_REF_ETA * (1 + all)) / least;
        beyond = ha_ref_stored(beyond, v, b->u_o, b->eta_o);
        out->v_min[i] -= beyond;
        out->v_max[i] += beyond;
        if (reach) out->bound[i] = fmax(out->v_max[i] - out->o[i], out->o[i] - out->v_min[i]);
    }
}

/* size: max |v| of all keys where reach is not NULL, as in bound_range */
static bool may_overflow(const struct ha_ref_state *out, const struct ha_ref_reach *reach, const double *size)
{
    double most = 0;
    for (size_t i = 0; i < out->dim; i++)
        most = fmax(most, reach ? size[i] : fmax(fabs(out->v_min[i]), fabs(out->v_max[i])));
    return isfinite(most) && 0x1p8 * (double)out->keys * most >= (double)FLT_MAX;
}

/* The sum of weights exp(s - L) less 1: what L is off by beside the scores as they were computed, and where they are
 * not known the rounding of s - L. */
static double sum_off(const struct ha_ref_state *out, const struct ha_ref_reach *reach)
{
    const double off = out->lse_bound - (reach ? reach->error - 2 * HA_REF_NOTHING * HA_REF_U : 0);
    return expm1(off * (1 + 4 * HA_REF_U));
}

/* reach: NULL where the weights are known */
static void finish(const struct ha_ref_query *query, const struct ha_ref_softmax *pass,
                   const struct ha_ref_reach *reach, const double *size)
{
    struct ha_ref_state *out = query->out;
    const struct ha_bound *b = query->bound;
    out->lse = pass->max + log(pass->sum);
    out->max = pass->max;
    out->sum = pass->sum;
    out->may_overflow = may_overflow(out, reach, size);
    if (reach) bound_lse(out, reach, b);
    else bound(out, pass, b, size);
    out->lse_bound += HA_REF_KAPPA_L * HA_REF_U * fabs(pass->max) + HA_REF_U * fabs(out->lse);
    const double loose = b->sum_least > 0 ? sum_off(out, reach) : 0;
    if (b->sum_least > 0 && !reach) bound_undivided(out, pass, b, size, query->left_out);
    out->lse_bound = ha_ref_rounded(out->lse_bound, out->lse, b->u_l, b->eta_l);
    bound_range(out, reach, b, size, loose);
}

/* For queries whose weights are not known: the scores once more, in place of the weights, and the range of the values
 * of J in place of that of all, whose largest |v| goes into size. */
static void reach_keys(const struct ha_ref_query *query, size_t count, size_t dim, double scale,
                       const struct ha_rows *rows, enum ha_dtype dtype, const struct ha_ref_softmax *pass,
                       double *weight, double *size, struct ha_ref_reach *reach)
{
    struct ha_ref_tile tile;
    const size_t keys = rows->keys;
    size_t seen = 0, first[QUERIES]; /* what each of them sees; 0: its weights are known */
    for (size_t c = 0; c < count; c++) {
        first[c] = weights_are_known(&pass[c], query[c].bound) ? 0 : query[c].visible;
        seen = first[c] > seen ? first[c] : seen;
    }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_K, j, dim, dtype);
        for (size_t c = 0; c < count; c++) {
            double *w = weight + c * 2 * keys;
            if (first[c] > j) score(&tile, ha_ref_smaller(first[c] - j, tile.rows), &query[c], scale, w, w + keys);
        }
    }
    for (size_t c = 0; c < count; c++) {
        struct ha_ref_state *out = query[c].out;
        double *w = weight + c * 2 * keys;
        if (first[c]) reach[c] = ha_ref_reach(w, w + keys, first[c], pass[c].max, query[c].bound);
        for (size_t i = 0; i < dim && first[c]; i++) {
            size[c * dim + i] = fmax(fabs(out->v_min[i]), fabs(out->v_max[i]));
            out->v_min[i] = HUGE_VAL;
            out->v_max[i] = -HUGE_VAL;
        }
    }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_V, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (first[c] > j)
                ha_ref_tile_range(&tile, ha_ref_smaller(first[c] - j, tile.rows), weight + c * 2 * keys,
                                  query[c].out->v_min, query[c].out->v_max);
    }
}

/* weight: [count][2][keys], size: [count][dim] */
static void attend(const struct ha_ref_query *query, size_t count, size_t dim, double scale, const struct ha_rows *rows,
                   enum ha_dtype dtype, double *weight, double *size)
{
    struct ha_ref_tile tile;
    struct ha_ref_softmax pass[QUERIES];
    struct ha_ref_reach reach[QUERIES];
    bool fits[QUERIES];
    const size_t keys = rows->keys;
    size_t seen = 0;
    for (size_t c = 0; c < count; c++) {
        seen = query[c].visible > seen ? query[c].visible : seen;
        fits[c] = true;
    }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_K, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (query[c].visible > j) {
                double *w = weight + c * 2 * keys;
                fits[c] &= score(&tile, ha_ref_smaller(query[c].visible - j, tile.rows), &query[c], scale, w, w + keys);
            }
    }
    for (size_t c = 0; c < count; c++) {
        struct ha_ref_state *out = query[c].out;
        double *w = weight + c * 2 * keys;
        pass[c] = ha_ref_softmax(w, w + keys, query[c].visible, query[c].bound);
        out->dim = dim;
        out->keys = query[c].visible;
        for (size_t i = 0; i < dim; i++) {
            out->o[i] = out->bound[i] = size[c * dim + i] = 0;
            out->v_min[i] = HUGE_VAL;
            out->v_max[i] = -HUGE_VAL;
        }
    }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_V, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (query[c].visible > j) {
                const size_t n = ha_ref_smaller(query[c].visible - j, tile.rows);
                ha_ref_tile_weigh(&tile, n, weight + c * 2 * keys, query[c].out->o, query[c].out->bound);
                if (!sees_as_before(query, c))
                    ha_ref_tile_range(&tile, n, NULL, query[c].out->v_min, query[c].out->v_max);
            }
    }
    for (size_t c = 0; c < count; c++)
        for (size_t i = 0; i < dim; i++) {
            struct ha_ref_state *out = query[c].out;
            out->o[i] = (out->o[i] + out->bound[i]) / pass[c].sum;
            out->bound[i] = 0;
            if (!sees_as_before(query, c)) continue;
            out->v_min[i] = query[c - 1].out->v_min[i];
            out->v_max[i] = query[c - 1].out->v_max[i];
        }
    for (size_t j = 0; j < seen; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_V, j, dim, dtype);
        for (size_t c = 0; c < count; c++)
            if (query[c].visible > j && weights_are_known(&pass[c], query[c].bound)) {
                const double *w = weight + c * 2 * keys;
                deviate(&tile, ha_ref_smaller(query[c].visible - j, tile.rows), w, w + keys, pass[c].sum,
                        query[c].out->o, query[c].out->bound, size + c * dim);
            }
    }
    reach_keys(query, count, dim, scale, rows, dtype, pass, weight, size, reach);
    for (size_t c = 0; c < count; c++) {
        const struct ha_bound *b = query[c].bound;
        if (pass[c].max == -HUGE_VAL) empty(query[c].out, dim);
        else finish(&query[c], &pass[c], weights_are_known(&pass[c], b) ? NULL : &reach[c], size + c * dim);
        query[c].out->score_beyond = !fits[c];
        query[c].out->may_overflow |= !fits[c];
    }
}

void ha_ref_attend_group(const struct ha_ref_query *query, size_t count, size_t head_dim, double scale,
                         const struct ha_rows *rows, enum ha_dtype dtype, double *work)
{
    for (size_t c = 0; c < count; c += QUERIES) {
        const size_t n = ha_ref_smaller(count - c, QUERIES);
        attend(query + c, n, head_dim, scale, rows, dtype, work, work + n * 2 * rows->keys);
    }
}

void ha_ref_attend(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                   const struct ha_bound *b, double *work, struct ha_ref_state *out)
{
    const struct ha_ref_query query = { .q = q, .visible = rows->keys, .bound = b, .out = out };
    double size[HA_REF_DIM_MAX];
    attend(&query, 1, head_dim, scale, rows, dtype, work, size);
}
