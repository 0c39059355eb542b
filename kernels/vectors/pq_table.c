/* pq_table in terms of vectors: lanes are the four rows of LANES / 4 entries, so that they are stored as they lie. */

#include "kernels/vectors/simd.h"

#if defined(HA_VECTORS)
#include "kernels/four.inc"
#include "kernels/rows.h"
#include "kernels/specialised.h"

enum { AT_ONCE = LANES / 4, TILE = VECTORS / 4 }; /* entries of a vector; vectors of a tile */

struct part {
    const struct ha_pq_table *args;
    float q[HA_PQ_DIMS_MAX][HA_PQ_ROWS]; /* of a group; 0 for rows that are not there */
};

static void load_queries(struct part *p, size_t first, size_t group)
{
    const struct ha_pq_table *t = p->args;
    const size_t rows = t->q_len * t->group, dims = t->pq.dims;
    for (size_t r = 0; r < HA_PQ_ROWS; r++) {
        const size_t row = ha_least(first + r, rows - 1);
        const float *q = t->q + row % t->q_len * t->q_token_stride + row / t->q_len * t->q_head_stride + group * dims;
        for (size_t d = 0; d < dims; d++) p->q[d][r] = first + r < rows ? q[d] : 0;
    }
}

/* entries from `book` on of so many vectors */
ALWAYS void tile(const struct part *p, const float *book, char *to, size_t vectors, size_t dims, enum ha_dtype t)
{
    vec x[TILE];
    for (size_t i = 0; i < vectors; i++) x[i] = v_set(0);
    for (size_t d = 0; d < dims; d++) {
        const vec q = v_hold(v_repeat(p->q[d]));
        for (size_t i = 0; i < vectors; i++)
            x[i] = v_fma(q, v_spread(book + d * p->args->pq.count + i * AT_ONCE), x[i]);
    }
    for (size_t i = 0; i < vectors; i++) v_narrow(to + i * LANES * ha_dtype_bytes(t), x[i], t);
}

/* one entry */
ALWAYS void single(const struct part *p, const float *book, char *to, enum ha_dtype t)
{
    float whole[LANES] = { 0 };
    four x = { 0 };
    for (size_t d = 0; d < p->args->pq.dims; d++) x += four_load(p->q[d]) * book[d * p->args->pq.count];
    four_store(whole, x);
    v_narrow_part(to, v_load(whole), HA_PQ_ROWS, t);
}

ALWAYS void table_of(const struct ha_pq_table *args, size_t dims, enum ha_dtype t)
{
    const struct ha_pq *pq = &args->pq;
    const size_t rows = args->q_len * args->group, entry = HA_PQ_ROWS * ha_dtype_bytes(t);
    struct part p;
    char *to = args->table;
    p.args = args;
    for (size_t first = 0; first < rows; first += HA_PQ_ROWS)
        for (size_t g = 0; g < pq->groups; g++) {
            const float *book = ha_pq_book(pq, g);
            size_t j = 0;
            load_queries(&p, first, g);
            for (; j + TILE * AT_ONCE <= pq->count; j += TILE * AT_ONCE)
                tile(&p, book + j, to + j * entry, TILE, dims, t);
            for (; j + AT_ONCE <= pq->count; j += AT_ONCE) tile(&p, book + j, to + j * entry, 1, dims, t);
            for (; j < pq->count; j++) single(&p, book + j, to + j * entry, t);
            to += pq->count * entry;
        }
}

ALWAYS void table_by_dims(const struct ha_pq_table *args, enum ha_dtype t)
{
    switch (args->pq.dims) {
    case 2: table_of(args, 2, t); break;
    case 4: table_of(args, 4, t); break;
    case 8: table_of(args, 8, t); break;
    default: table_of(args, args->pq.dims, t);
    }
}

void HA_KERNEL(pq_table)(const struct ha_pq_table *t)
{
    if (t->type == HA_F16) table_by_dims(t, HA_F16);
    else table_by_dims(t, HA_F32);
}
#endif
