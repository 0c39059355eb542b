#include "reference/error.h"
#include "reference/rows.h"

double ha_ref_weights(const float *q, size_t head_dim, double scale, const struct ha_rows *rows, enum ha_dtype dtype,
                      double *p)
{
    struct ha_ref_tile tile;
    double unused[HA_REF_TILE];
    for (size_t j = 0; j < rows->keys; j += HA_REF_TILE) {
        ha_ref_tile_load_k(&tile, rows, j, head_dim, dtype);
        tile.first = 0;
        ha_ref_tile_score(&tile, tile.rows, q, scale, p + j, unused);
    }
    double max = -HUGE_VAL, sum = 0;
    for (size_t j = 0; j < rows->keys; j++) max = p[j] > max || isnan(p[j]) ? p[j] : max;
    for (size_t j = 0; j < rows->keys; j++) sum += p[j] = max == -HUGE_VAL ? 0 : exp(p[j] - max);
    for (size_t j = 0; j < rows->keys; j++) p[j] = max == -HUGE_VAL ? 0 : p[j] / sum;
    return max == -HUGE_VAL ? -HUGE_VAL : max + log(sum);
}
