/* Codes of groups of dimensions, tables and scores by them, wrong: plain loops over the device's memory, which do one
 * step otherwise. */

#include "suites/defects/wrong.h"

#include "harness/base/numeric.h"
#include "harness/base/pq.h"

#include <math.h>
#include <string.h>

/* the book of a KV head, and of a group of it: number j of dimension d */
static const float *book_of(const struct ha_pq *pq, size_t head, size_t heads, size_t group, bool next, bool shared)
{
    const size_t of = next ? (head + 1) % heads : head;
    return pq->centroid + of * ha_pq_book_floats(pq) + (shared || pq->books == 1 ? 0 : group) * pq->dims * pq->count;
}

/* ---- pq_encode --------------------------------------------------------------------------------------------------- */

static uint32_t nearest(const struct ha_pq *pq, const float *book, const float *x)
{
    float least = INFINITY;
    uint32_t found = 0;
    for (size_t j = 0; j + IS(pq_encode_last_centroid) < pq->count; j++) {
        float sum = 0;
        for (size_t d = 0; d + IS(pq_encode_dim) < pq->dims; d++) {
            const float centroid = book[IS(pq_encode_turned) ? j * pq->dims + d : d * pq->count + j],
                        off = x[d] - centroid;
            if (IS(pq_encode_nan) && isnan(off)) continue;
            sum += IS(pq_encode_product) ? -x[d] * centroid : IS(pq_encode_city) ? fabsf(off) : off * off;
            if (IS(pq_encode_half)) sum = ha_round(sum, HA_F16);
        }
        if (IS(pq_encode_tie) ? !(sum <= least) : !(sum < least)) continue;
        least = sum;
        found = (uint32_t)j;
    }
    return found;
}

/* A key's codes are put where they belong, and one step beside. */
static void encode_key(const struct ha_device_pq_encode *e, const struct ha_device_pq_encode_seq *m, size_t head,
                       size_t i)
{
    const struct ha_pq *pq = &e->pq;
    const size_t key = (IS(pq_encode_first) ? 0 : m->first) + i,
                 row = m->rows.index && !IS(pq_encode_index) ? m->rows.index[i] : i,
                 bytes = ha_pq_code_bytes(pq, m->first + m->rows.keys);
    unsigned char *const block = (unsigned char *)m->codes + head * (IS(pq_encode_heads) ? bytes : m->code_head_bytes)
                                 + key / HA_PQ_KEYS * ha_pq_block_bytes(pq);
    const char *k = (const char *)m->rows.k + (IS(pq_encode_keys_head) ? 0 : head) * m->k_head_bytes
                    + row * m->rows.k_stride_bytes;
    for (size_t g = 0; g + IS(pq_encode_last_group) < pq->groups; g++) {
        float x[1024];
        for (size_t d = 0; d < pq->dims; d++) x[d] = ha_load(k, g * pq->dims + d, e->dtype);
        uint32_t code = nearest(pq, book_of(pq, head, e->kv_heads, g, IS(pq_encode_head), IS(pq_encode_shared)), x);
        if (IS(pq_encode_byte)) code &= 0x3f;
        uint32_t back = 0;
        for (size_t j = 0; j < pq->bits; j++) back |= (code >> j & 1) << (pq->bits - 1 - j);
        unsigned char *const to = block + (IS(pq_encode_group) ? (g + 1) % pq->groups : g) * ha_pq_group_bytes(pq);
        ha_pq_put(to, pq->bits, key % HA_PQ_KEYS, IS(pq_encode_backward) ? back : code);
        if (IS(pq_encode_beside) && key % HA_PQ_KEYS + 1 < HA_PQ_KEYS) ha_pq_put(to, pq->bits, key % HA_PQ_KEYS + 1, 0);
    }
}

static void encode_later(struct ha_wrong_later *l)
{
    const struct ha_device_pq_encode *e = &l->u.pq_encode;
    const struct ha_device_pq_encode_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < e->batch * e->kv_heads; n++) {
        const struct ha_device_pq_encode_seq *m = &seqs[n / e->kv_heads];
        for (size_t i = 0; i + IS(pq_encode_last) < m->rows.keys; i++) encode_key(e, m, n % e->kv_heads, i);
    }
}
static enum ha_status wrong_pq_encode(struct ha_stream *s, const struct ha_device_pq_encode *e)
{
    struct ha_wrong_later *l = ha_wrong_later(encode_later, e->seqs, e->batch * sizeof *e->seqs);
    l->u.pq_encode = *e;
    return ha_wrong_over(
        IS(pq_encode_early),
        ha_wrong_on(ha_wrong_aside(IS(pq_encode_unjoined), ha_wrong_early(IS(pq_encode_early), s)), l));
}

/* ---- pq_table ---------------------------------------------------------------------------------------------------- */

static float entry(const struct ha_pq *pq, const float *book, const float *q, size_t j)
{
    float sum = 0;
    for (size_t d = 0; d + IS(pq_table_dim) < pq->dims; d++) {
        const float x = q[d] * book[IS(pq_table_turned) ? j * pq->dims + d : d * pq->count + j];
        if (IS(pq_table_nan) && isnan(x)) continue;
        sum += x;
        if (IS(pq_table_half)) sum = ha_round(sum, HA_F16);
    }
    return sum;
}

static void put_entry(char *table, size_t at, enum ha_dtype type, float x)
{
    ha_store(table, at, type, x);
    if (type != HA_F16 || !IS(pq_table_cut) || !(fabsf(ha_load(table, at, type)) > fabsf(x))) return;
    ((uint16_t *)(void *)table)[at]--;
}

static void table_of_head(const struct ha_device_pq_table *t, const struct ha_device_pq_table_seq *m, size_t head)
{
    const struct ha_pq *pq = &t->pq;
    const size_t dim = pq->groups * pq->dims, group = t->q_heads / t->kv_heads, rows = t->q_len * group,
                 bytes = ha_pq_table_bytes(pq, rows, t->type),
                 all = IS(pq_table_padding) ? rows : (rows + HA_PQ_ROWS - 1) / HA_PQ_ROWS * HA_PQ_ROWS;
    char *const table = (char *)m->table + head * (IS(pq_table_heads) ? bytes : m->table_head_bytes);
    for (size_t r = 0; r < all; r++)
        for (size_t g = 0; g < pq->groups; g++)
            for (size_t j = 0; j + IS(pq_table_last) < pq->count; j++) {
                const size_t token = IS(pq_table_rows) ? r / group : r % t->q_len,
                             of = IS(pq_table_rows) ? r % group : r / t->q_len,
                             q_head = IS(pq_table_q_head) ? of * t->kv_heads + head : head * group + of,
                             part = IS(pq_table_group) ? (g + 1) % pq->groups : g,
                             at = IS(pq_table_layout) ? (r * pq->groups + g) * pq->count + j
                                                      : ((r / HA_PQ_ROWS * pq->groups + g) * pq->count + j) * HA_PQ_ROWS
                                                            + r % HA_PQ_ROWS;
                put_entry(table, at, t->type,
                          r < rows
                              ? entry(pq, book_of(pq, head, t->kv_heads, g, IS(pq_table_head), IS(pq_table_shared)),
                                      m->q + (token * t->q_heads + q_head) * dim + part * pq->dims, j)
                              : 0);
            }
}

static void table_later(struct ha_wrong_later *l)
{
    const struct ha_device_pq_table *t = &l->u.pq_table;
    const struct ha_device_pq_table_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < t->batch * t->kv_heads; n++) table_of_head(t, &seqs[n / t->kv_heads], n % t->kv_heads);
}
static enum ha_status wrong_pq_table(struct ha_stream *s, const struct ha_device_pq_table *t)
{
    struct ha_wrong_later *l = ha_wrong_later(table_later, t->seqs, t->batch * sizeof *t->seqs);
    l->u.pq_table = *t;
    return ha_wrong_over(IS(pq_table_early),
                         ha_wrong_on(ha_wrong_aside(IS(pq_table_unjoined), ha_wrong_early(IS(pq_table_early), s)), l));
}

/* ---- pq_score ---------------------------------------------------------------------------------------------------- */

static float score(const struct ha_device_pq_score *d, const char *table, const unsigned char *codes, size_t r,
                   size_t key)
{
    const struct ha_pq *pq = &d->pq;
    const size_t row = IS(pq_score_row) ? (r + 1) % d->rows
                       : IS(pq_score_4) ? r % HA_PQ_ROWS
                                        : r,
                 groups = IS(pq_score_64) && pq->groups > 64 ? 64 : pq->groups - IS(pq_score_last_group);
    float sum = 0;
    for (size_t g = 0; g < groups; g++) {
        const size_t from = IS(pq_score_group) ? (g + 1) % pq->groups : g;
        size_t code = ha_pq_code(codes + key / HA_PQ_KEYS * ha_pq_block_bytes(pq) + from * ha_pq_group_bytes(pq),
                                 pq->bits, key % HA_PQ_KEYS);
        if (IS(pq_score_byte)) code &= 0xff;
        const size_t at = ((row / HA_PQ_ROWS * pq->groups + (IS(pq_score_table) ? 0 : g)) * pq->count + code)
                              * HA_PQ_ROWS
                          + row % HA_PQ_ROWS;
        const float x = ha_load(table, at, d->type);
        if (IS(pq_score_nan) && isnan(x)) continue;
        sum += x;
        if (IS(pq_score_half)) sum = ha_round(sum, HA_F16);
    }
    return IS(pq_score_scale) ? sum : d->scale * sum;
}

static void score_later(struct ha_wrong_later *l)
{
    const struct ha_device_pq_score *d = &l->u.pq_score;
    const struct ha_device_pq_score_seq *seqs = ha_wrong_copy(l);
    for (size_t n = 0; n < d->batch * d->kv_heads; n++) {
        const struct ha_device_pq_score_seq *m = &seqs[n / d->kv_heads];
        const size_t head = n % d->kv_heads, table = IS(pq_score_head) ? (head + 1) % d->kv_heads : head,
                     stride = IS(pq_score_stride) ? m->keys : m->s_stride,
                     codes = IS(pq_score_heads) ? ha_pq_code_bytes(&d->pq, m->keys) : m->code_head_bytes;
        for (size_t i = 0; i < d->rows * m->keys; i++) {
            const size_t r = i / m->keys, key = i % m->keys;
            if (IS(pq_score_last) && key + 1 == m->keys) continue;
            m->s[(head * d->rows + r) * stride + key] = score(d, (const char *)m->table + table * m->table_head_bytes,
                                                              (const unsigned char *)m->codes + head * codes, r,
                                                              IS(pq_score_neighbour) ? (key + 1) % m->keys : key);
        }
    }
}
static enum ha_status wrong_pq_score(struct ha_stream *s, const struct ha_device_pq_score *d)
{
    struct ha_wrong_later *l = ha_wrong_later(score_later, d->seqs, d->batch * sizeof *d->seqs);
    l->u.pq_score = *d;
    return ha_wrong_over(IS(pq_score_early),
                         ha_wrong_on(ha_wrong_aside(IS(pq_score_unjoined), ha_wrong_early(IS(pq_score_early), s)), l));
}

void ha_wrong_pq(struct ha_device_api *api)
{
    api->pq_encode = wrong_pq_encode;
    api->pq_table = wrong_pq_table;
    api->pq_score = wrong_pq_score;
}
