/* score in terms of vectors. Rows are prefetched to L2 some 8 KiB ahead: gathered rows have no stream that the hardware
 * could follow. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/rows.h"
#include "kernels/specialised.h"

enum { AHEAD_BYTES = 8192, LINE = 64 };

ALWAYS void score_of(const struct ha_score *s, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), dim = s->head_dim, row_bytes = dim * size, keys = s->rows.keys;
    const size_t ahead = AHEAD_BYTES / row_bytes + KEYS;
    for (size_t i = 0; i < keys; i += KEYS) {
        const char *k[KEYS];
        vec a[KEYS];
        for (size_t j = 0; j < KEYS; j++) {
            k[j] = ha_row_k(&s->rows, ha_least(i + j, keys - 1));
            a[j] = v_set(0);
            const char *next = ha_row_k(&s->rows, ha_least(i + j + ahead, keys - 1));
            for (size_t b = 0; b < row_bytes; b += LINE) PREFETCH(next + b);
        }
        size_t d = 0;
        for (; d + LANES <= dim; d += LANES)
            for (size_t j = 0; j < KEYS; j++) a[j] = v_fma(v_widen(k[j] + d * size, t), v_load(s->q + d), a[j]);
        for (size_t j = 0; d < dim && j < KEYS; j++)
            a[j] = v_fma(v_widen_part(k[j] + d * size, dim - d, t), v_load_part(s->q + d, dim - d, 0), a[j]);
        tile_store(a, 1, ha_least(KEYS, keys - i), s->scale, s->s + i, 0);
    }
}

void HA_KERNEL(score)(const struct ha_score *s) { BY_DTYPE(score_of, s) }
#endif
