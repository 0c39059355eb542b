#include "harness/base/pq.h"

#include "harness/base/numeric.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>

static uint32_t nearest(const struct ha_pq *pq, const float *book, const char *x, size_t at, enum ha_dtype t)
{
    float least = (float)NAN;
    uint32_t found = 0;
    for (size_t j = 0; j < pq->count; j++) {
        float sum = 0;
        for (size_t d = 0; d < pq->dims; d++) {
            const float difference = ha_load(x, at + d, t) - book[d * pq->count + j];
            sum += difference * difference;
        }
        if (!(sum < least) && !(isnan(least) && !isnan(sum))) continue;
        least = sum;
        found = (uint32_t)j;
    }
    return found;
}

void ha_c_pq_encode(const struct ha_pq_encode *e)
{
    const struct ha_pq *pq = &e->pq;
    for (size_t i = 0; i < e->rows.keys; i++) {
        const size_t key = e->first + i;
        unsigned char *block = (unsigned char *)e->codes + key / HA_PQ_KEYS * ha_pq_block_bytes(pq);
        for (size_t g = 0; g < pq->groups; g++)
            ha_pq_put(block + g * ha_pq_group_bytes(pq), pq->bits, key % HA_PQ_KEYS,
                      nearest(pq, ha_pq_book(pq, g), ha_row_k(&e->rows, i), g * pq->dims, e->dtype));
    }
}

static float entry(const struct ha_pq_table *t, size_t row, size_t group, size_t j)
{
    const struct ha_pq *pq = &t->pq;
    const float *book = ha_pq_book(pq, group),
                *q = t->q + row % t->q_len * t->q_token_stride + row / t->q_len * t->q_head_stride + group * pq->dims;
    float sum = 0;
    for (size_t d = 0; d < pq->dims; d++) sum += q[d] * book[d * pq->count + j];
    return sum;
}

void ha_c_pq_table(const struct ha_pq_table *t)
{
    const size_t rows = t->q_len * t->group;
    size_t at = 0;
    for (size_t first = 0; first < rows; first += HA_PQ_ROWS)
        for (size_t g = 0; g < t->pq.groups; g++)
            for (size_t j = 0; j < t->pq.count; j++)
                for (size_t r = first; r < first + HA_PQ_ROWS; r++)
                    ha_store(t->table, at++, t->type, r < rows ? entry(t, r, g, j) : 0);
}

void ha_c_pq_score(const struct ha_pq_score *s)
{
    const struct ha_pq *pq = &s->pq;
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->keys; i++) {
            const unsigned char *block = (const unsigned char *)s->codes + i / HA_PQ_KEYS * ha_pq_block_bytes(pq);
            float sum = 0;
            for (size_t g = 0; g < pq->groups; g++) {
                const size_t code = ha_pq_code(block + g * ha_pq_group_bytes(pq), pq->bits, i % HA_PQ_KEYS),
                             at = (r / HA_PQ_ROWS * pq->groups + g) * pq->count + code;
                sum += ha_load(s->table, at * HA_PQ_ROWS + r % HA_PQ_ROWS, s->type);
            }
            s->s[r * s->s_stride + i] = s->scale * sum;
        }
}
