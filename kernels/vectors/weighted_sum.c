/* weighted_sum in terms of vectors. Tiles of rows are added to sums of HA_SUM_KEYS keys. Gathered rows have no stream
 * that the hardware could follow: those some 4 KiB ahead are prefetched, all their lines, and of those some 12 KiB
 * ahead the first line, since most lie in a page of their own, whose address takes long to translate. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/rows.h"
#include "kernels/specialised.h"

#include <string.h>

/* A row of V is added to one query row so many vectors at once, or to several. */
enum { TILE = 8, ROWS = 4, WIDE = 8, NARROW = WIDE / ROWS, COLUMNS = 256, LINE = 64 };
enum { AHEAD_BYTES = 4096, FAR_BYTES = 12288 };

/* To the first cache: into the second alone they come at 0.96 of the pace. */
#define FETCH(p) __builtin_prefetch((p), 0, 3)

struct tile {
    const char *v[TILE], *next[TILE]; /* rows from the first of the columns on, and those that are prefetched */
    size_t keys, ahead, far;          /* so many rows */
    float w[ROWS][TILE];
    float sum[ROWS][COLUMNS];
};

/* `cols` vectors from column d on, of which the last has `last` lanes */
ALWAYS void add(struct tile *tile, int rows, bool fetch, size_t d, int cols, size_t last, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t);
    vec a[WIDE];
    for (int k = 0; k < rows; k++)
        for (int i = 0; i < cols; i++) a[k * cols + i] = v_load(tile->sum[k] + d + i * LANES);
    for (size_t j = 0; j < tile->keys; j++) {
        vec x[WIDE];
        for (int i = 0; i < cols; i++) {
            const char *v = tile->v[j] + (d + (size_t)(i * LANES)) * size;
            x[i] = v_hold(last == LANES ? v_widen(v, t) : v_widen_part(v, last, t));
        }
        for (size_t b = 0; fetch && b < (size_t)(cols * LANES) * size; b += LINE) FETCH(tile->next[j] + d * size + b);
        for (int k = 0; k < rows; k++)
            for (int i = 0; i < cols; i++) a[k * cols + i] = v_fma(x[i], v_set(tile->w[k][j]), a[k * cols + i]);
    }
    for (int k = 0; k < rows; k++)
        for (int i = 0; i < cols; i++) v_store(tile->sum[k] + d + i * LANES, a[k * cols + i]);
}

/* so many weights from number `at` on */
static inline void widen(const struct ha_weighted_sum *s, size_t at, size_t n, float *w)
{
    const char *from = (const char *)s->w + at * ha_dtype_bytes(s->w_type);
    if (s->w_type == HA_F32) {
        memcpy(w, from, n * sizeof *w);
        return;
    }
    for (size_t i = 0; i < n; i += LANES) {
        const size_t some = ha_least(LANES, n - i);
        v_store_part(w + i, v_widen_part(from + 2 * i, some, HA_F16), some);
    }
}

/* keys [first, first + tile->keys) of query rows from r on, columns [at, at + n) */
ALWAYS void add_tile(const struct ha_weighted_sum *s, struct tile *tile, size_t first, size_t r, int rows, size_t at,
                     size_t n, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), last = s->rows.keys - 1, ahead = first + tile->ahead,
                 far = first + tile->far;
    const int cols = rows == 1 ? WIDE : NARROW;
    for (size_t j = 0; j < tile->keys; j++) {
        tile->v[j] = ha_row_v(&s->rows, first + j) + at * size;
        tile->next[j] = ha_row_v(&s->rows, ha_least(ahead + j, last)) + at * size;
        if (r == 0) PREFETCH(ha_row_v(&s->rows, ha_least(far + j, last)) + at * size);
    }
    for (size_t k = 0; k < (size_t)rows; k++) widen(s, (r + k) * s->w_stride + first, tile->keys, tile->w[k]);
    const size_t step = (size_t)cols * LANES;
    size_t d = 0;
    for (; d + step <= n; d += step) add(tile, rows, r == 0, d, cols, LANES, t);
    for (; d + LANES <= n; d += LANES) add(tile, rows, r == 0, d, 1, LANES, t);
    if (d < n) add(tile, rows, r == 0, d, 1, n - d, t);
}

/* of `rows` query rows from r on, columns [at, at + n) */
ALWAYS void sum_columns(const struct ha_weighted_sum *s, size_t r, int rows, size_t at, size_t n, enum ha_dtype t)
{
    const size_t row_bytes = s->head_dim * ha_dtype_bytes(t);
    struct tile tile = { .ahead = AHEAD_BYTES / row_bytes + TILE, .far = FAR_BYTES / row_bytes + TILE };
    for (size_t k = 0; k < (size_t)rows; k++) memset(s->o + (r + k) * s->o_stride + at, 0, n * sizeof *s->o);
    for (size_t group = 0; group < s->rows.keys; group += HA_SUM_KEYS) {
        const size_t end = ha_least(group + HA_SUM_KEYS, s->rows.keys);
        memset(tile.sum, 0, (size_t)rows * sizeof *tile.sum);
        for (size_t first = group; first < end; first += TILE) {
            tile.keys = ha_least(TILE, end - first);
            add_tile(s, &tile, first, r, rows, at, n, t);
        }
        for (size_t k = 0; k < (size_t)rows; k++)
            for (size_t d = 0; d < n; d++) s->o[(r + k) * s->o_stride + at + d] += tile.sum[k][d];
    }
}

ALWAYS void sum_rows(const struct ha_weighted_sum *s, size_t r, int rows, enum ha_dtype t)
{
    for (size_t at = 0; at < s->head_dim; at += COLUMNS)
        sum_columns(s, r, rows, at, ha_least(COLUMNS, s->head_dim - at), t);
}

ALWAYS void weighted_sum_of(const struct ha_weighted_sum *s, enum ha_dtype t)
{
    size_t r = 0;
    for (; r + ROWS <= s->q_rows; r += ROWS) sum_rows(s, r, ROWS, t);
    for (; r < s->q_rows; r++) sum_rows(s, r, 1, t);
}

void HA_KERNEL(weighted_sum)(const struct ha_weighted_sum *s) { BY_DTYPE(weighted_sum_of, s) }
#endif
