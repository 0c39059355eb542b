#include "kernels/c/ops.h"
#include "kernels/c/tile.h"

#include <math.h>
#include <string.h>

static void load(struct ha_tile *tile, const struct ha_chunk *c, const void *base, size_t stride)
{
    for (size_t j = 0; j < tile->keys; j++)
        ha_load_row((const char *)base + ha_chunk_row(c, tile->first + j) * stride + tile->d * ha_dtype_bytes(c->dtype),
                    tile->dim, c->dtype, tile->x[j]);
}

static void scores(const struct ha_chunk *c)
{
    struct ha_tile tile;
    for (tile.first = 0; tile.first < c->rows.keys; tile.first += HA_TILE_KEYS)
        for (tile.d = 0; tile.d < c->head_dim; tile.d += HA_TILE_DIM) {
            tile.keys = ha_least(HA_TILE_KEYS, c->rows.keys - tile.first);
            tile.dim = ha_least(HA_TILE_DIM, c->head_dim - tile.d);
            load(&tile, c, c->rows.k, c->rows.k_stride_bytes);
            for (size_t r = 0; r < c->q_rows; r++) {
                float *s = c->weights + r * c->weights_stride + tile.first;
                for (size_t j = 0; j < tile.keys; j++) {
                    const float part = ha_tile_dot(c->q + r * c->q_stride + tile.d, tile.x[j], tile.dim);
                    s[j] = tile.d == 0 ? part : s[j] + part;
                }
            }
        }
    const float scale = ha_scale_log2(c->scale);
    for (size_t r = 0; r < c->q_rows; r++)
        for (size_t j = 0; j < c->rows.keys; j++) c->weights[r * c->weights_stride + j] *= scale;
}

/* scores, as powers of two, to weights; returns their sum */
static float softmax(float *s, size_t keys, float *level)
{
    float m = -INFINITY, sum = 0;
    bool nan = false;
    for (size_t j = 0; j < keys; j++) {
        m = s[j] > m ? s[j] : m;
        nan |= isnan(s[j]);
    }
    *level = m = nan && m == -INFINITY ? 0 : rintf(m);
    for (size_t j = 0; j < keys; j += HA_TILE_KEYS) {
        float part = 0;
        for (size_t i = j; i < keys && i < j + HA_TILE_KEYS; i++) {
            s[i] = m == -INFINITY ? 0 : exp2f(s[i] - m);
            part += s[i];
        }
        sum += part;
    }
    return sum;
}

static void weigh(const struct ha_chunk *c)
{
    struct ha_tile tile;
    for (tile.first = 0; tile.first < c->rows.keys; tile.first += HA_TILE_KEYS)
        for (tile.d = 0; tile.d < c->head_dim; tile.d += HA_TILE_DIM) {
            tile.keys = ha_least(HA_TILE_KEYS, c->rows.keys - tile.first);
            tile.dim = ha_least(HA_TILE_DIM, c->head_dim - tile.d);
            load(&tile, c, c->rows.v, c->rows.v_stride_bytes);
            for (size_t r = 0; r < c->q_rows; r++) {
                /* a row that r does not see may hold anything, NaN too */
                const size_t visible = c->level[r] == -INFINITY ? 0 : ha_chunk_visible(c, r);
                const float *w = c->weights + r * c->weights_stride + tile.first;
                float *acc = c->acc + r * c->head_dim + tile.d, part[HA_TILE_DIM] = { 0 };
                for (size_t j = 0; j < tile.keys && tile.first + j < visible; j++)
                    for (size_t i = 0; i < tile.dim; i++) part[i] += w[j] * tile.x[j][i];
                for (size_t i = 0; i < tile.dim; i++) acc[i] += part[i];
            }
        }
}

void ha_c_attend_chunk(const struct ha_chunk *c)
{
    scores(c);
    for (size_t r = 0; r < c->q_rows; r++) {
        const size_t visible = ha_chunk_visible(c, r);
        float *w = c->weights + r * c->weights_stride;
        c->sum[r] = softmax(w, visible, &c->level[r]);
        memset(w + visible, 0, (c->rows.keys - visible) * sizeof *w);
    }
    memset(c->acc, 0, c->q_rows * c->head_dim * sizeof *c->acc);
    weigh(c);
}
