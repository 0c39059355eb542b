/* pq_encode in terms of vectors: lanes are centroids, and each is loaded once for ROWS keys. The distances of a part of
 * them are kept until the part's least is known; only where that is a new least, its place is looked for. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "harness/base/pq.h"
#include "kernels/rows.h"
#include "kernels/specialised.h"

#include <math.h>

enum { ROWS = 4, PART = 256, BLOCK = 64 }; /* keys of a tile; centroids of a part; keys that a group's book meets */

struct tile {
    float x[ROWS][HA_PQ_DIMS_MAX + LANES];
    float distance[ROWS][PART];
    float least[ROWS];
    uint32_t code[ROWS];
};

ALWAYS void load_keys(struct tile *t, const struct ha_pq_encode *e, size_t first, int rows, size_t group,
                      enum ha_dtype type)
{
    const size_t size = ha_dtype_bytes(type), dims = e->pq.dims;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const char *x = ha_row_k(&e->rows, first + r) + group * dims * size;
        for (size_t d = 0; d < dims; d += LANES)
            v_store(t->x[r] + d, v_widen_part(x + d * size, ha_least(LANES, dims - d), type));
    }
}

/* `lanes` distances from centroid c on, which is `at` of its part */
ALWAYS void distances(struct tile *t, const float *c, size_t count, size_t dims, int rows, size_t at, size_t lanes,
                      vec *least)
{
    vec sum[ROWS];
    for (int r = 0; r < rows; r++) sum[r] = v_set(0);
    for (size_t d = 0; d < dims; d++) {
        const float *of = c + d * count;
        const vec y = lanes == LANES ? v_hold(v_load(of)) : v_load_part(of, lanes, (float)NAN);
        for (int r = 0; r < rows; r++) {
            const vec by = v_sub(y, v_set(t->x[r][d]));
            sum[r] = v_fma(by, by, sum[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        v_store(t->distance[r] + at, sum[r]);
        least[r] = v_min(sum[r], least[r]);
    }
}

/* where the first of those that are not above `least` is, or -1 */
static int place(const float *distance, size_t n, float least)
{
    for (size_t i = 0; i < n; i += LANES) {
        const unsigned found = v_ge(v_set(least), v_load(distance + i));
        if (found) return (int)i + __builtin_ctz(found);
    }
    return -1;
}

ALWAYS void nearest(struct tile *t, const float *book, size_t count, size_t dims, int rows)
{
    for (int r = 0; r < rows; r++) {
        t->least[r] = (float)NAN;
        t->code[r] = 0;
    }
    for (size_t j = 0; j < count; j += PART) {
        const size_t n = ha_least(PART, count - j);
        vec least[ROWS];
        size_t i = 0;
        for (int r = 0; r < rows; r++) least[r] = v_set(INFINITY);
        for (; i + LANES <= n; i += LANES) distances(t, book + j + i, count, dims, rows, i, LANES, least);
        if (i < n) distances(t, book + j + i, count, dims, rows, i, n - i, least);
        for (int r = 0; r < rows; r++) {
            const float one = -v_max_lane(v_sub(v_set(0), least[r]));
            if (one >= t->least[r]) continue;
            const int at = place(t->distance[r], n, one);
            if (at < 0) continue; /* every one is NaN */
            t->least[r] = one;
            t->code[r] = (uint32_t)(j + (size_t)at);
        }
    }
}

/* keys of a tile in one group */
ALWAYS void encode_tile(struct tile *t, const struct ha_pq_encode *e, size_t i, size_t g, size_t dims, int rows,
                        enum ha_dtype type)
{
    const struct ha_pq *pq = &e->pq;
    load_keys(t, e, i, rows, g, type);
    nearest(t, ha_pq_book(pq, g), pq->count, dims, rows);
    for (size_t r = 0; r < (size_t)rows; r++) {
        const size_t key = e->first + i + r;
        unsigned char *block = (unsigned char *)e->codes + key / HA_PQ_KEYS * ha_pq_block_bytes(pq);
        ha_pq_put(block + g * ha_pq_group_bytes(pq), pq->bits, key % HA_PQ_KEYS, t->code[r]);
    }
}

ALWAYS void encode_of(const struct ha_pq_encode *e, size_t dims, enum ha_dtype type)
{
    struct tile t;
    for (size_t first = 0; first < e->rows.keys; first += BLOCK) {
        const size_t end = ha_least(first + BLOCK, e->rows.keys);
        for (size_t g = 0; g < e->pq.groups; g++) {
            size_t i = first;
            for (; i + ROWS <= end; i += ROWS) encode_tile(&t, e, i, g, dims, ROWS, type);
            for (; i < end; i++) encode_tile(&t, e, i, g, dims, 1, type);
        }
    }
}

ALWAYS void encode(const struct ha_pq_encode *e, enum ha_dtype type)
{
    switch (e->pq.dims) {
    case 2: encode_of(e, 2, type); break;
    case 4: encode_of(e, 4, type); break;
    case 8: encode_of(e, 8, type); break;
    default: encode_of(e, e->pq.dims, type);
    }
}

void HA_KERNEL(pq_encode)(const struct ha_pq_encode *e) { BY_DTYPE(encode, e) }
#endif
