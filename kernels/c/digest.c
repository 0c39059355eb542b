#include "kernels/c/ops.h"
#include "kernels/digest.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

enum { DIM = 256, ROWS = 8 };

/* dimensions [d, d + dim) of block i */
static void summarise(const struct ha_digest *g, size_t i, size_t d, size_t dim)
{
    const size_t first = ha_least(i * g->unit, g->rows.keys), end = first + ha_least(g->unit, g->rows.keys - first);
    const bool mean = g->kind == HA_DIGEST_MEAN;
    float x[DIM], least[DIM] = { 0 }, most[DIM] = { 0 };
    for (size_t j = first; j < end; j++) {
        ha_load_row(ha_row_k(&g->rows, j) + d * ha_dtype_bytes(g->dtype), dim, g->dtype, x);
        for (size_t n = 0; mean && n < dim; n++) least[n] += x[n];
        for (size_t n = 0; !mean && n < dim; n++) {
            least[n] = j == first || isnan(x[n]) || x[n] < least[n] ? x[n] : least[n];
            most[n] = j == first || isnan(x[n]) || x[n] > most[n] ? x[n] : most[n];
        }
    }
    for (size_t n = 0; mean && n < dim; n++)
        least[n] = most[n] = end > first ? least[n] * (1 / (float)(end - first)) : 0;
    for (size_t n = 0; n < dim; n++) {
        const size_t b = g->first + i, at = ha_digest_at(b, d + n, g->head_dim) + b % HA_PACK_KEYS;
        ha_store(g->digests, at, g->dtype, isnan(least[n]) ? NAN : least[n]);
        ha_store(g->digests, at + HA_PACK_KEYS, g->dtype, isnan(most[n]) ? NAN : most[n]);
    }
}

void ha_c_digest(const struct ha_digest *g)
{
    for (size_t i = 0; i < g->blocks; i++)
        for (size_t d = 0; d < g->head_dim; d += DIM) summarise(g, i, d, ha_least(DIM, g->head_dim - d));
    const size_t end = g->first + g->blocks, used = end % HA_PACK_KEYS, size = ha_dtype_bytes(g->dtype);
    for (size_t d = 0; used > 0 && d < g->head_dim; d++)
        for (size_t half = 0; half < 2; half++)
            memset((char *)g->digests + (ha_digest_at(end, d, g->head_dim) + half * HA_PACK_KEYS + used) * size, 0,
                   (HA_PACK_KEYS - used) * size);
}

/* part[r] = the sums of dimensions [d, end) for the group of block b, `rows` rows from r on */
static void sum_terms(const struct ha_digest_score *s, size_t b, size_t d, size_t end, size_t r, size_t rows,
                      float part[ROWS][HA_PACK_KEYS])
{
    memset(part, 0, rows * sizeof *part);
    for (; d < end; d++) {
        float x[2 * HA_PACK_KEYS];
        const char *from = (const char *)s->digests + ha_digest_at(b, d, s->head_dim) * ha_dtype_bytes(s->dtype);
        ha_load_row(from, 2 * HA_PACK_KEYS, s->dtype, x);
        for (size_t i = 0; i < rows; i++) {
            const float q = s->q[(r + i) * s->q_stride + d], *y = q < 0 ? x : x + HA_PACK_KEYS;
            for (size_t j = 0; j < HA_PACK_KEYS; j++) part[i][j] += q * y[j];
        }
    }
}

void ha_c_digest_score(const struct ha_digest_score *s)
{
    for (size_t b = 0; b < s->blocks; b += HA_PACK_KEYS)
        for (size_t r = 0; r < s->q_rows; r += ROWS) {
            const size_t rows = ha_least(ROWS, s->q_rows - r), blocks = ha_least(HA_PACK_KEYS, s->blocks - b);
            float sum[ROWS][HA_PACK_KEYS] = { 0 }, part[ROWS][HA_PACK_KEYS];
            for (size_t d = 0; d < s->head_dim; d += HA_DIGEST_TERMS) {
                sum_terms(s, b, d, ha_least(d + HA_DIGEST_TERMS, s->head_dim), r, rows, part);
                for (size_t i = 0; i < rows; i++)
                    for (size_t j = 0; j < HA_PACK_KEYS; j++) sum[i][j] += part[i][j];
            }
            for (size_t i = 0; i < rows; i++)
                for (size_t j = 0; j < blocks; j++) {
                    const float score = s->scale * sum[i][j];
                    s->s[(r + i) * s->s_stride + b + j] = isnan(score) ? ha_digest_score_one(s, r + i, b + j) : score;
                }
        }
}
