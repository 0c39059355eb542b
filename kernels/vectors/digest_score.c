/* digest_score in terms of vectors. */

/* 256 bits of AVX-512: of 32 registers they hold as much of a block's digests as is needed at once, and 512 bits took
 * half as long again where those are two halves of a register */
#define HA_256_BITS
#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/digest.h"
#include "kernels/rows.h"
#include "kernels/specialised.h"
#include "kernels/streams.h"

#include <math.h>
#include <string.h>

/* So many vectors of blocks are kept for each of ROWS query rows, as the registers allow; NEON's vectors take two each.
 */
#if defined(HA_FOR_NEON)
enum { VECS = 1 };
#else
enum { VECS = VECTORS / LANES };
#endif
enum { ROWS = 4, SPAN = VECS * LANES, GROUP = 2 * HA_PACK_KEYS, LINE = 64, AHEAD = 512 };

/* SPAN blocks from b on, `rows` rows from r on */
struct tile {
    const struct ha_digest_score *s;
    size_t b, r;
};

ALWAYS void put_scores(const struct tile *p, size_t row, size_t b, vec sum)
{
    const size_t lanes = ha_least(LANES, p->s->blocks - b);
    float *to = p->s->s + row * p->s->s_stride + b;
    sum = v_mul(sum, v_set(p->s->scale));
    if (lanes == LANES) v_store(to, sum);
    else v_store_part(to, sum, lanes);
    for (size_t i = 0; v_has_nan(sum) && i < lanes; i++)
        if (isnan(to[i])) to[i] = ha_digest_score_one(p->s, row, b + i);
}

/* What dimension d asks of the next group: as many lines as it reads. */
ALWAYS void ask_in_streams(const char *next, size_t d, size_t group, enum ha_dtype t)
{
    const size_t lines = GROUP * ha_dtype_bytes(t) / LINE;
    for (size_t i = d * lines; i < (d + 1) * lines; i++) __builtin_prefetch(ha_line_in_streams(next, group, i), 0, 3);
}

/* The terms of dimension d. Each is one product: of the maximum, or of the minimum where q is negative. A single row
 * reads only that, and prefetches the next group, where it will read the same; several read in order, and keep the
 * hardware's prefetches going. */
ALWAYS void add_terms(const struct tile *p, const char *x, size_t d, int rows, bool fetch, enum ha_dtype t, vec *a)
{
    const size_t size = ha_dtype_bytes(t), half = HA_PACK_KEYS * size, step = LANES * size,
                 group = p->s->head_dim * GROUP * size;
    const float *q = p->s->q + p->r * p->s->q_stride + d;
    if (rows == 1) {
        uint32_t bits;
        memcpy(&bits, q, sizeof bits);
        const char *y = x + (1 - (bits >> 31)) * half;
        for (size_t i = 0; fetch && i < half; i += LINE) PREFETCH(y + group + i);
        for (size_t v = 0; v < VECS; v++) a[v] = v_fma(v_widen(y + v * step, t), v_set(*q), a[v]);
        return;
    }
    vec least[VECS], most[VECS];
    if (fetch && p->s->streams) ask_in_streams(x - d * GROUP * size + group, d, group, t);
    for (size_t i = 0; fetch && !p->s->streams && i < 2 * half; i += LINE) PREFETCH(x + AHEAD + i);
    for (size_t v = 0; v < VECS; v++) {
        least[v] = v_widen(x + v * step, t);
        most[v] = v_widen(x + half + v * step, t);
    }
    for (int i = 0; i < rows; i++) {
        const vec y = v_set(q[(size_t)i * p->s->q_stride]);
        for (int v = 0; v < VECS; v++) a[i * VECS + v] = v_fma(v_pick(most[v], least[v], y), y, a[i * VECS + v]);
    }
}

ALWAYS void score_tile(const struct tile *p, int rows, bool fetch, enum ha_dtype t)
{
    const size_t size = ha_dtype_bytes(t), dim = p->s->head_dim;
    const char *x = (const char *)p->s->digests + (ha_digest_at(p->b, 0, dim) + p->b % HA_PACK_KEYS) * size;
    vec sum[ROWS * VECS], a[ROWS * VECS];
    for (int i = 0; i < rows * VECS; i++) sum[i] = v_set(0);
    for (size_t d = 0; d < dim; d += HA_DIGEST_TERMS) {
        for (int i = 0; i < rows * VECS; i++) a[i] = v_set(0);
        for (size_t e = d; e < ha_least(d + HA_DIGEST_TERMS, dim); e++, x += GROUP * size)
            add_terms(p, x, e, rows, fetch, t, a);
        for (int i = 0; i < rows * VECS; i++) sum[i] = v_add(sum[i], a[i]);
    }
    for (size_t i = 0; i < (size_t)rows; i++)
        for (size_t v = 0; v < VECS && p->b + v * LANES < p->s->blocks; v++)
            put_scores(p, p->r + i, p->b + v * LANES, sum[i * VECS + v]);
}

ALWAYS void digest_score_of(const struct ha_digest_score *s, enum ha_dtype t)
{
    for (size_t b = 0; b < s->blocks; b += SPAN) {
        const bool fetch = b % HA_PACK_KEYS == 0;
        struct tile p = { s, b, 0 };
        for (; p.r + ROWS <= s->q_rows; p.r += ROWS) score_tile(&p, ROWS, fetch && p.r == 0, t);
        for (; p.r + 2 <= s->q_rows; p.r += 2) score_tile(&p, 2, fetch && p.r == 0, t);
        if (p.r < s->q_rows) score_tile(&p, 1, fetch && p.r == 0, t);
    }
}

void HA_KERNEL(digest_score)(const struct ha_digest_score *s) { BY_DTYPE(digest_score_of, s) }
#endif
