/* digest in terms of vectors. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/c/ops.h"
#include "kernels/digest.h"
#include "kernels/rows.h"
#include "kernels/specialised.h"

#include <math.h>
#include <string.h>

enum { WIDE = 4, LINE = 64, GROUP = 2 * HA_PACK_KEYS };

struct block {
    const struct ha_digest *g;
    size_t i, first, keys; /* block i has the rows [first, first + keys) */
};

/* `wide` vectors of minima and maxima from element d on, the last of `last` lanes; returns whether a NaN may be among
 * the keys */
ALWAYS bool summarise(const struct block *b, size_t d, int wide, size_t last, bool mean, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), step = LANES * size, dims = (size_t)(wide - 1) * LANES + last;
    vec lo[WIDE], hi[WIDE], sum = v_set(0);
    for (int c = 0; c < wide; c++) lo[c] = v_set(mean ? 0 : INFINITY), hi[c] = v_set(-INFINITY);
    for (size_t j = b->first; j < b->first + b->keys; j++) {
        const char *k = ha_row_k(&b->g->rows, j) + d * size;
        const char *next = ha_row_k(&b->g->rows, ha_least(j + b->g->unit, b->g->rows.keys - 1)) + d * size;
        for (size_t i = 0; i < dims * size; i += LINE) PREFETCH(next + i);
        for (int c = 0; c < wide; c++) {
            const vec x = last == LANES ? v_widen(k + (size_t)c * step, t) : v_widen_part(k, last, t);
            lo[c] = mean ? v_add(lo[c], x) : v_min(x, lo[c]);
            hi[c] = v_max(x, hi[c]);
            sum = v_add(sum, x);
        }
    }
    for (int c = 0; mean && c < wide; c++) lo[c] = hi[c] = v_mul(lo[c], v_set(1 / (float)b->keys));
    char low[WIDE * sizeof(vec)], high[WIDE * sizeof(vec)];
    for (int c = 0; c < wide; c++) {
        v_narrow(low + (size_t)c * step, lo[c], t);
        v_narrow(high + (size_t)c * step, hi[c], t);
    }
    const size_t at = b->g->first + b->i;
    char *out = (char *)b->g->digests + (ha_digest_at(at, d, b->g->head_dim) + at % HA_PACK_KEYS) * size;
    for (size_t i = 0; i < dims; i++, out += GROUP * size) {
        memcpy(out, low + i * size, size);
        memcpy(out + HA_PACK_KEYS * size, high + i * size, size);
    }
    return v_has_nan(sum);
}

/* NaN, and infinities of both signs, are left to kernels/c: the sum of the keys is NaN then */
ALWAYS void digests(const struct ha_digest *g, bool mean, enum ha_dtype t)
{
    struct ha_digest rest = *g;
    for (size_t i = 0; i < g->blocks; i++) {
        struct block b = { .g = g, .i = i, .first = ha_least(i * g->unit, g->rows.keys) };
        b.keys = ha_least(g->unit, g->rows.keys - b.first);
        bool odd = b.keys == 0;
        size_t d = 0;
        for (; !odd && d + WIDE * LANES <= g->head_dim; d += WIDE * LANES)
            odd |= summarise(&b, d, WIDE, LANES, mean, t);
        for (; !odd && d + LANES <= g->head_dim; d += LANES) odd |= summarise(&b, d, 1, LANES, mean, t);
        if (!odd && d < g->head_dim) odd |= summarise(&b, d, 1, g->head_dim - d, mean, t);
        if (!odd) continue;
        rest.first = g->first + i;
        rest.blocks = 1;
        rest.rows = g->rows;
        rest.rows.keys = b.keys;
        if (rest.rows.index) rest.rows.index += b.first;
        else rest.rows.k = (const char *)rest.rows.k + b.first * rest.rows.k_stride_bytes;
        ha_c_digest(&rest);
    }
    rest.first = g->first + g->blocks;
    rest.blocks = 0;
    ha_c_digest(&rest);
}

ALWAYS void digest_of(const struct ha_digest *g, enum ha_dtype t)
{
    if (g->kind == HA_DIGEST_MEAN) digests(g, true, t);
    else digests(g, false, t);
}

void HA_KERNEL(digest)(const struct ha_digest *g) { BY_DTYPE(digest_of, g) }
#endif
