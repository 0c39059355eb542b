#include "reference/rows.h"

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
