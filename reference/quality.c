#include "reference/rows.h"

#include "harness/base/numeric.h"

/* The weights exp(s - max) of one query; of scores of -inf alone 0. Returns max. */
static double weigh(const float *q, size_t dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                    double *w)
{
    struct ha_ref_tile tile;
    double max = -HUGE_VAL, unused[HA_REF_TILE];
    for (size_t j = 0; j < rows->keys; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_K, j, dim, dtype);
        tile.first = 0;
        ha_ref_tile_score(&tile, tile.rows, q, scale, w + j, unused);
    }
    for (size_t j = 0; j < rows->keys; j++) max = w[j] > max || isnan(w[j]) ? w[j] : max;
    for (size_t j = 0; j < rows->keys; j++) w[j] = max == -HUGE_VAL ? 0 : exp(w[j] - max);
    return max;
}

/* Returns their sum before. */
static double normalise(double *w, size_t keys)
{
    double sum = 0;
    for (size_t j = 0; j < keys; j++) sum += w[j];
    for (size_t j = 0; j < keys; j++) w[j] /= sum;
    return sum;
}

double ha_ref_weights(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                      double *p)
{
    const double max = weigh(q, head_dim, scale, rows, dtype, p);
    return max == -HUGE_VAL ? max : max + log(normalise(p, rows->keys));
}

void ha_ref_quality(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                    const float *got, const uint32_t *token, size_t count, double *work, struct ha_ref_quality *out)
{
    struct ha_ref_tile tile;
    double *inside = work, *outside = work + rows->keys; /* weights of the key set, and of the rest */
    double sum_in[HA_REF_DIM_MAX] = { 0 }, rest_in[HA_REF_DIM_MAX] = { 0 }, sum_out[HA_REF_DIM_MAX] = { 0 },
           rest_out[HA_REF_DIM_MAX] = { 0 }, lo[HA_REF_DIM_MAX], hi[HA_REF_DIM_MAX], mass_in = 0, mass_out = 0;
    const double max = weigh(q, head_dim, scale, rows, dtype, outside);
    for (size_t j = 0; j < rows->keys; j++) inside[j] = 0;
    for (size_t j = 0; j < count; j++) {
        const size_t t = token[j];
        if (t >= rows->keys || inside[t] > 0) continue;
        inside[t] = outside[t];
        outside[t] = 0;
    }
    for (size_t j = 0; j < rows->keys; j++) {
        mass_in += inside[j];
        mass_out += outside[j];
    }
    for (size_t i = 0; i < head_dim; i++) {
        lo[i] = HUGE_VAL;
        hi[i] = -HUGE_VAL;
    }
    for (size_t j = 0; j < rows->keys; j += HA_REF_TILE) {
        ha_ref_tile_load(&tile, rows, HA_REF_V, j, head_dim, dtype);
        ha_ref_tile_weigh(&tile, tile.rows, inside, sum_in, rest_in);
        ha_ref_tile_weigh(&tile, tile.rows, outside, sum_out, rest_out);
        ha_ref_tile_range(&tile, tile.rows, outside, lo, hi);
    }
    const double all = mass_in + mass_out;
    *out = (struct ha_ref_quality){ .mass = all > 0 ? mass_in / all : 1 };
    for (size_t i = 0; i < head_dim && (all > 0 || isnan(all)); i++) {
        const double part = sum_in[i] + rest_in[i], o = (part + (sum_out[i] + rest_out[i])) / all;
        const double chosen = mass_in > 0 ? part / mass_in : 0, difference = (double)got[i] - o;
        out->o[i] = o;
        out->diff2 += difference * difference;
        out->norm2 += o * o;
        if (!(mass_out > 0)) continue;
        const double certificate = mass_out / all * fmax(fabs(hi[i] - chosen), fabs(lo[i] - chosen));
        /* what the subtraction itself rounds off does not count as deviation */
        const double deviation = fabs(o - chosen) - 0x1p-50 * (fabs(o) + fabs(chosen));
        if (deviation > 0) out->cert_slack = fmax(out->cert_slack, deviation / certificate);
    }
    for (size_t j = 0; j < rows->keys; j++) work[j] = inside[j] + outside[j];
    if (max > -HUGE_VAL) normalise(work, rows->keys);
}

/* Sums over the rows of one query, each [head_dim]. */
struct certified {
    double full[HA_REF_DIM_MAX], chosen[HA_REF_DIM_MAX], got[HA_REF_DIM_MAX]; /* o, o_S, the output */
    double lo[HA_REF_DIM_MAX], hi[HA_REF_DIM_MAX];                            /* of the values that are not used */
    double off[HA_REF_DIM_MAX], lost[HA_REF_DIM_MAX];                         /* the two sums of the certificate */
    double size[HA_REF_DIM_MAX];                                              /* of the values, as they are summed */
};

/* A key: of all weights its share, of those used too, and what it was weighed by. */
struct weighed {
    double p, share, got;
    bool used, left_out;
};

static void add_output(struct certified *restrict c, const float *restrict v, size_t dim, const struct weighed *key)
{
    const struct weighed w = *key;
    for (size_t d = 0; d < dim; d++) {
        const double x = (double)v[d];
        c->full[d] += w.p * x;
        c->size[d] += w.p * fabs(x);
        c->chosen[d] += w.share * x;
    }
    for (size_t d = 0; d < dim && !w.left_out; d++) c->got[d] += w.got * (double)v[d];
    for (size_t d = 0; d < dim && !w.used; d++) {
        const double x = (double)v[d];
        c->lo[d] = x < c->lo[d] ? x : c->lo[d];
        c->hi[d] = x > c->hi[d] ? x : c->hi[d];
    }
}

static void add_deviation(struct certified *restrict c, const float *restrict v, size_t dim, const struct weighed *key)
{
    const struct weighed w = *key;
    for (size_t d = 0; d < dim; d++) c->off[d] += w.share * fabs((double)v[d] - c->chosen[d]);
    for (size_t d = 0; d < dim && w.left_out; d++) c->lost[d] += w.share * fabs((double)v[d]);
}

/* The most that a score of the set is off by, and the mean of the squares. The LSE of one key is its score. */
static double most_off(const float *q, size_t dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                       const struct ha_ref_weighed *set, double *mean_square)
{
    double e = 0, squares = 0, one;
    for (size_t i = 0; i < set->count; i++) {
        struct ha_rows row = *rows;
        row.index = rows->index ? rows->index + set->token[i] : &set->token[i];
        row.keys = 1;
        const double off = fabs(set->score[i] - ha_ref_weights(q, dim, scale, &row, dtype, &one));
        e = fmax(e, off);
        squares += off * off;
    }
    *mean_square = set->count ? squares / (double)set->count : (double)NAN;
    return e;
}

double ha_ref_certificate(const float *q, size_t dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                          const struct ha_ref_weighed *set, double *work, double *score_off2)
{
    double *p = work, *got = work + rows->keys, mass = 0, rest = 0, sum = 0, most = -HUGE_VAL, slack = 0;
    struct certified c = { .full = { 0 } };
    const double lse = ha_ref_weights(q, dim, scale, rows, dtype, p),
                 e = most_off(q, dim, scale, rows, dtype, set, score_off2);
    for (size_t j = 0; j < rows->keys; j++) got[j] = (double)NAN; /* it is not used; negative: its value is left out */
    for (size_t i = 0; i < set->count; i++) most = fmax(most, set->score[i]);
    for (size_t i = 0; i < set->count; i++) {
        mass += p[set->token[i]];
        const double w = exp(set->score[i] - most);
        got[set->token[i]] = set->left_out && set->left_out[i] ? -w : w;
        sum += w;
    }
    for (size_t j = 0; j < rows->keys; j++) rest += isnan(got[j]) ? p[j] : 0; /* which 1 - mass would round off */
    if (!(mass > 0) || !isfinite(sum) || !isfinite(lse) || !isfinite(e)) return (double)NAN;
    for (size_t d = 0; d < dim; d++) {
        c.lo[d] = HUGE_VAL;
        c.hi[d] = -HUGE_VAL;
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t j = 0; j < rows->keys; j++) {
            const bool used = !isnan(got[j]);
            const struct weighed w = { p[j], used ? p[j] / mass : 0, used ? fabs(got[j]) / sum : 0, used,
                                       used && signbit(got[j]) };
            float v[HA_REF_DIM_MAX];
            ha_load_row((const char *)rows->v + (rows->index ? rows->index[j] : j) * rows->v_stride_bytes, dim, dtype,
                        v);
            (pass == 0 ? add_output : add_deviation)(&c, v, dim, &w);
        }
    for (size_t d = 0; d < dim; d++) {
        const double o = c.chosen[d], far = c.lo[d] <= c.hi[d] ? fmax(fabs(c.hi[d] - o), fabs(c.lo[d] - o)) : 0;
        const double may = rest * far + expm1(2 * e) * c.off[d] + exp(2 * e) * c.lost[d];
        /* what the sums themselves round off does not count as deviation */
        const double is = fabs(c.got[d] - c.full[d]) - 0x1p-44 * (fabs(c.got[d]) + c.size[d] + fabs(o));
        if (is > 0) slack = fmax(slack, is / may);
    }
    return slack;
}
