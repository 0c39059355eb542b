/* attend_chunk in terms of vectors.
 *
 * Pass 1 computes the scores into the weights, tile of keys by tile; all query rows of the chunk read a tile while it
 * is in the cache. Pass 2 makes them weights. Pass 3 sums V, again by tiles: a tile's sum starts at 0 and is then added
 * to acc, so that no path over n keys has more than 31 + ceil(n / 32) additions. Each tile prefetches the next one to
 * L2: 4 to 16 KiB ahead, and for V, whose columns pass one after the other, never less than a tile. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/rows.h"
#include "kernels/specialised.h"

#include <math.h>
#include <string.h>

enum { TILE = 32, ROWS = 4 };

struct tile {
    size_t first, keys;
    const char *row[2 * TILE]; /* of this tile and of the next: row[j + TILE] is prefetched with row[j] */
};

/* rows first, first + 1, ... of K or V; the last one stands for those that are not there */
static void tile_rows(const char **row, const struct ha_chunk *c, const void *base, size_t stride, size_t first)
{
    const struct ha_rows *rows = &c->rows;
    const size_t keys = ha_least(TILE, rows->keys - first), size = rows->index && c->block > 1 ? c->block : 1;
    size_t block = (c->skip + first) / size, i = (c->skip + first) % size;
    for (size_t j = 0; j < keys; j++) {
        row[j] = (const char *)base + (rows->index ? rows->index[block] * size + i : first + j) * stride;
        if (++i == size) i = 0, block++;
    }
    for (size_t j = keys; j < TILE; j++) row[j] = row[keys - 1];
}

static void tile_k(const char **row, const struct ha_chunk *c, size_t first)
{
    tile_rows(row, c, c->rows.k, c->rows.k_stride_bytes, first);
}
static void tile_v(const char **row, const struct ha_chunk *c, size_t first)
{
    tile_rows(row, c, c->rows.v, c->rows.v_stride_bytes, first);
}

/* the scores of `rows` query rows and KEYS keys, of which `keys` are stored */
ALWAYS void dot(const float *q, size_t q_stride, int rows, const char *const *k, bool fetch, size_t keys, size_t dim,
                float scale, enum ha_dtype t, float *s, size_t s_stride)
{
    const size_t size = ha_dtype_bytes(t);
    vec a[ROWS * KEYS];
    for (int i = 0; i < rows * KEYS; i++) a[i] = v_set(0);
    size_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        vec x[KEYS];
        for (int j = 0; j < KEYS; j++) x[j] = v_hold(v_widen(k[j] + d * size, t));
        if (fetch && d * size % 64 == 0)
            for (int j = 0; j < KEYS; j++) PREFETCH(k[TILE + j] + d * size);
        for (int r = 0; r < rows; r++) {
            const vec y = v_load(q + (size_t)r * q_stride + d);
            for (int j = 0; j < KEYS; j++) a[r * KEYS + j] = v_fma(x[j], y, a[r * KEYS + j]);
        }
    }
    if (d < dim) {
        vec x[KEYS];
        for (int j = 0; j < KEYS; j++) x[j] = v_widen_part(k[j] + d * size, dim - d, t);
        for (int r = 0; r < rows; r++) {
            const vec y = v_load_part(q + (size_t)r * q_stride + d, dim - d, 0);
            for (int j = 0; j < KEYS; j++) a[r * KEYS + j] = v_fma(x[j], y, a[r * KEYS + j]);
        }
    }
    tile_store(a, rows, keys, scale, s, s_stride);
}

/* the scores of `rows` query rows from r on, and of the tile's keys that one of them sees */
ALWAYS void dot_tile(const struct ha_chunk *c, const struct tile *tile, size_t r, int rows, enum ha_dtype t)
{
    size_t end = 0;
    for (size_t i = r; i < r + (size_t)rows; i++) end = end < ha_chunk_visible(c, i) ? ha_chunk_visible(c, i) : end;
    end = end > tile->first ? ha_least(end - tile->first, tile->keys) : 0;
    for (size_t j = 0; j < end; j += KEYS)
        dot(c->q + r * c->q_stride, c->q_stride, rows, tile->row + j, r == 0, ha_least(KEYS, end - j), c->head_dim,
            ha_scale_log2(c->scale), t, c->weights + r * c->weights_stride + tile->first + j, c->weights_stride);
}

/* acc += sum of w v over keys [j, end) of the tile, for `rows` query rows and `cols` vectors from
 * element d on, of which the last has `last` lanes */
ALWAYS void weigh(const struct ha_chunk *c, const struct tile *tile, size_t j, size_t end, size_t r, int rows, size_t d,
                  int cols, size_t last, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), bytes = (size_t)(cols * LANES) * size;
    const float *w = c->weights + r * c->weights_stride + tile->first;
    vec a[ROWS * COLS];
    for (int i = 0; i < rows * cols; i++) a[i] = v_set(0);
    for (; j < end; j++) {
        const char *v = tile->row[j] + d * size;
        vec x[COLS];
        for (int i = 0; i < cols; i++) {
            const char *p = v + (size_t)(i * LANES) * size;
            x[i] = v_hold(last == LANES ? v_widen(p, t) : v_widen_part(p, last, t));
        }
        if (r == 0 && last == LANES) {
            const char *next = tile->row[j + TILE] + d * size;
            for (size_t i = 0; i < bytes; i += 64) PREFETCH(next + i);
        }
        for (int k = 0; k < rows; k++) {
            const vec y = v_set(w[(size_t)k * c->weights_stride + j]);
            for (int i = 0; i < cols; i++) a[k * cols + i] = v_fma(x[i], y, a[k * cols + i]);
        }
    }
    for (int k = 0; k < rows; k++)
        for (int i = 0; i < cols; i++) {
            float *to = c->acc + (r + (size_t)k) * c->head_dim + d + i * LANES;
            if (last == LANES) v_store(to, v_add(v_load(to), a[k * cols + i]));
            else v_store_part(to, v_add(v_load_part(to, last, 0), a[k * cols + i]), last);
        }
}

/* the same for all columns */
ALWAYS void weigh_columns(const struct ha_chunk *c, const struct tile *tile, size_t j, size_t end, size_t r, int rows,
                          enum ha_dtype t)
{
    const size_t dim = c->head_dim;
    size_t d = 0;
    for (; d + COLS * LANES <= dim; d += COLS * LANES) weigh(c, tile, j, end, r, rows, d, COLS, LANES, t);
    for (; d + LANES <= dim; d += LANES) weigh(c, tile, j, end, r, rows, d, 1, LANES, t);
    if (d < dim) weigh(c, tile, j, end, r, rows, d, 1, dim - d, t);
}

/* how many keys row r sums: none where it saw none, or -inf only */
static size_t live(const struct ha_chunk *c, size_t r) { return c->level[r] == -INFINITY ? 0 : ha_chunk_visible(c, r); }

/* The keys that all the rows see together, then those that only some see row by row: an unseen
 * row of V may hold anything, and 0 * NaN is NaN. */
ALWAYS void weigh_tile(const struct ha_chunk *c, const struct tile *tile, size_t r, int rows, enum ha_dtype t)
{
    size_t all = tile->first + tile->keys;
    for (size_t i = r; i < r + (size_t)rows; i++) all = ha_least(all, live(c, i));
    const size_t common = all > tile->first ? all - tile->first : 0;
    if (common > 0) weigh_columns(c, tile, 0, common, r, rows, t);
    for (size_t i = r; rows > 1 && i < r + (size_t)rows; i++) {
        const size_t end = live(c, i) > tile->first ? ha_least(live(c, i) - tile->first, tile->keys) : 0;
        if (end > common) weigh_columns(c, tile, common, end, i, 1, t);
    }
}

/* scores, as powers of two, to weights; returns their sum */
static float softmax(float *s, size_t keys, float *level)
{
    const size_t whole = keys / LANES * LANES;
    vec m = v_set(-INFINITY);
    unsigned nan = 0;
    for (size_t j = 0; j < keys; j += LANES) {
        const vec x = j < whole ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY);
        m = v_max(m, x);
        nan |= v_has_nan(x);
    }
    *level = nan ? NAN : rintf(v_max_lane(m));
    if (*level == -INFINITY) {
        memset(s, 0, keys * sizeof *s);
        return 0;
    }
    m = v_set(*level);
    vec sum = v_set(0);
    for (size_t j = 0; j < keys; j += TILE) {
        vec part = v_set(0);
        for (size_t i = j; i < j + TILE && i < keys; i += LANES) {
            const vec w = v_exp2(v_sub(i < whole ? v_load(s + i) : v_load_part(s + i, keys - i, -INFINITY), m));
            if (i < whole) v_store(s + i, w);
            else v_store_part(s + i, w, keys - i);
            part = v_add(part, w);
        }
        sum = v_add(sum, part);
    }
    return v_sum_lanes(sum);
}

#define FOR_ROWS(pass, c, tile, t)                          \
    for (size_t r = 0; r < (c)->q_rows;) {                  \
        const size_t left = (c)->q_rows - r;                \
        if (left >= 4) pass(c, tile, r, 4, t), r += 4;      \
        else if (left >= 2) pass(c, tile, r, 2, t), r += 2; \
        else pass(c, tile, r, 1, t), r += 1;                \
    }

ALWAYS void attend_chunk_of(const struct ha_chunk *c, enum ha_dtype t)
{
    const size_t keys = c->rows.keys;
    struct tile tile;
    if (keys > 0) tile_k(tile.row + TILE, c, 0);
    for (tile.first = 0; tile.first < keys; tile.first += TILE) {
        const size_t next = tile.first + TILE;
        tile.keys = ha_least(TILE, keys - tile.first);
        memcpy(tile.row, tile.row + TILE, sizeof tile.row / 2);
        if (next < keys) tile_k(tile.row + TILE, c, next);
        else tile_v(tile.row + TILE, c, 0);
        FOR_ROWS(dot_tile, c, &tile, t)
    }
    for (size_t r = 0; r < c->q_rows; r++) {
        const size_t visible = ha_chunk_visible(c, r);
        float *w = c->weights + r * c->weights_stride;
        c->sum[r] = softmax(w, visible, &c->level[r]);
        memset(w + visible, 0, (keys - visible) * sizeof *w);
    }
    memset(c->acc, 0, c->q_rows * c->head_dim * sizeof *c->acc);
    for (tile.first = 0; tile.first < keys; tile.first += TILE) {
        const size_t next = tile.first + TILE;
        tile.keys = ha_least(TILE, keys - tile.first);
        memcpy(tile.row, tile.row + TILE, sizeof tile.row / 2);
        if (next < keys) tile_v(tile.row + TILE, c, next);
        FOR_ROWS(weigh_tile, c, &tile, t)
    }
}

void HA_KERNEL(attend_chunk)(const struct ha_chunk *c) { BY_DTYPE(attend_chunk_of, c) }
#endif
