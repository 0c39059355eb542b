/* hash in terms of vectors: the sums of a word's bits for ROWS rows, a tile of KEYS bits at a time. The rows of a block
 * pass a word's part of the matrix before the next one is read. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/codes.h"
#include "kernels/rows.h"
#include "kernels/specialised.h"

#include <math.h>

enum { ROWS = 4, BLOCK = 16, WORD = 32 };

/* of `rows` rows with KEYS rows of the matrix: s[row][bit] */
ALWAYS void sums(const float *a, const char *const *x, int rows, size_t dim, enum ha_dtype t, float *s)
{
    const size_t size = ha_dtype_bytes(t);
    vec sum[ROWS * KEYS];
    size_t d = 0;
    for (int i = 0; i < rows * KEYS; i++) sum[i] = v_set(0);
    for (; d + LANES <= dim; d += LANES) {
        vec y[KEYS];
        for (size_t j = 0; j < KEYS; j++) y[j] = v_hold(v_load(a + j * dim + d));
        for (int r = 0; r < rows; r++) {
            const vec of = v_hold(v_widen(x[r] + d * size, t));
            for (int j = 0; j < KEYS; j++) sum[r * KEYS + j] = v_fma(of, y[j], sum[r * KEYS + j]);
        }
    }
    for (int r = 0; d < dim && r < rows; r++) {
        const vec of = v_widen_part(x[r] + d * size, dim - d, t);
        for (size_t j = 0; j < KEYS; j++) {
            vec *to = &sum[r * KEYS + (int)j];
            *to = v_fma(of, v_load_part(a + j * dim + d, dim - d, 0), *to);
        }
    }
    tile_store(sum, rows, KEYS, 1, s, WORD);
}

/* bit i: x[i] is above 0, and no NaN */
ALWAYS uint32_t positive(const float *x)
{
    uint32_t word = 0;
    for (size_t i = 0; i < WORD; i += LANES) {
        const vec of = v_load(x + i), zero = v_set(0);
        word |= (uint32_t)(v_ge(of, zero) & ~v_ge(zero, of)) << i;
    }
    return word;
}

/* word w of `rows` rows from row i on */
ALWAYS void words(const struct ha_hash *h, size_t w, size_t i, int rows, enum ha_dtype t)
{
    const float *a = h->a + w * WORD * h->head_dim;
    const char *x[ROWS];
    float s[ROWS * WORD];
    for (size_t r = 0; r < (size_t)rows; r++) x[r] = ha_row_k(&h->rows, i + r);
    for (size_t b = 0; b < WORD; b += KEYS) sums(a + b * h->head_dim, x, rows, h->head_dim, t, s + b);
    for (size_t r = 0; r < (size_t)rows; r++)
        ((uint32_t *)h->codes)[ha_code_at(h->bits / WORD, h->first + i + r) + w * HA_CODE_KEYS] = positive(s
                                                                                                           + r * WORD);
}

ALWAYS float norm(const char *x, size_t dim, enum ha_dtype t)
{
    vec sum = v_set(0);
    for (size_t d = 0; d < dim; d += LANES) {
        const char *at = x + d * ha_dtype_bytes(t);
        const vec of = d + LANES <= dim ? v_widen(at, t) : v_widen_part(at, dim - d, t);
        sum = v_fma(of, of, sum);
    }
    return sqrtf(v_sum_lanes(sum));
}

ALWAYS void hash_of(const struct ha_hash *h, enum ha_dtype t)
{
    const size_t count = h->bits / WORD;
    for (size_t first = 0; first < h->rows.keys; first += BLOCK) {
        const size_t end = ha_least(first + BLOCK, h->rows.keys);
        for (size_t w = 0; w < count; w++) {
            size_t i = first;
            for (; i + ROWS <= end; i += ROWS) words(h, w, i, ROWS, t);
            for (; i < end; i++) words(h, w, i, 1, t);
        }
        for (size_t i = first; i < end; i++)
            ((float *)h->codes)[ha_code_at(count, h->first + i) + count * HA_CODE_KEYS] = norm(ha_row_k(&h->rows, i),
                                                                                               h->head_dim, t);
    }
}

void HA_KERNEL(hash)(const struct ha_hash *h) { BY_DTYPE(hash_of, h) }
#endif
