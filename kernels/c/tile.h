#ifndef HA_KERNELS_C_TILE_H
#define HA_KERNELS_C_TILE_H

/* A block of rows converted to binary32 once, for every query row that reads it. */

#include "harness/base/numeric.h"
#include "kernels/rows.h"

enum { HA_TILE_KEYS = 32, HA_TILE_DIM = 256 };

struct ha_tile {
    size_t first, keys; /* keys [first, first + keys) of the rows */
    size_t d, dim;      /* elements [d, d + dim) of each */
    float x[HA_TILE_KEYS][HA_TILE_DIM];
};

static inline void ha_tile_load(struct ha_tile *tile, const struct ha_rows *rows,
                                const char *(*row)(const struct ha_rows *rows, size_t i), enum ha_dtype dtype)
{
    for (size_t j = 0; j < tile->keys; j++)
        ha_load_row(row(rows, tile->first + j) + tile->d * ha_dtype_bytes(dtype), tile->dim, dtype, tile->x[j]);
}

/* Eight lanes, which any compiler may keep in vectors; joined as a tree. */
static inline float ha_tile_dot(const float *x, const float *y, size_t n)
{
    float lane[8] = { 0 };
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t l = 0; l < 8; l++) lane[l] += x[i + l] * y[i + l];
    for (size_t l = 0; i + l < n; l++) lane[l] += x[i + l] * y[i + l];
    for (size_t half = 4; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

#endif
