#include "kernels/c/ops.h"
#include "kernels/c/tile.h"

void ha_c_score(const struct ha_score *s)
{
    struct ha_tile tile;
    for (tile.first = 0; tile.first < s->rows.keys; tile.first += HA_TILE_KEYS) {
        float *out = s->s + tile.first;
        tile.keys = ha_least(HA_TILE_KEYS, s->rows.keys - tile.first);
        for (tile.d = 0; tile.d < s->head_dim; tile.d += HA_TILE_DIM) {
            tile.dim = ha_least(HA_TILE_DIM, s->head_dim - tile.d);
            ha_tile_load(&tile, &s->rows, ha_row_k, s->dtype);
            for (size_t j = 0; j < tile.keys; j++) {
                const float part = ha_tile_dot(s->q + tile.d, tile.x[j], tile.dim);
                out[j] = tile.d == 0 ? part : out[j] + part;
            }
        }
        for (size_t j = 0; j < tile.keys; j++) out[j] *= s->scale;
    }
}
