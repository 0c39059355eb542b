#ifndef HA_KERNELS_ROWS_H
#define HA_KERNELS_ROWS_H

/* Addresses and limits inside the arguments of harness/api/kernels.h. */

#include "harness/api/kernels.h"

static inline size_t ha_least(size_t a, size_t b) { return a < b ? a : b; }

/* scores times this are exponents of two */
static inline float ha_scale_log2(float scale) { return (float)((double)scale * 0x1.71547652b82fep+0); }

static inline size_t ha_row(const struct ha_rows *rows, size_t i) { return rows->index ? rows->index[i] : i; }

static inline const char *ha_row_k(const struct ha_rows *rows, size_t i)
{
    return (const char *)rows->k + ha_row(rows, i) * rows->k_stride_bytes;
}

static inline const char *ha_row_v(const struct ha_rows *rows, size_t i)
{
    return (const char *)rows->v + ha_row(rows, i) * rows->v_stride_bytes;
}

/* of key i of a chunk */
static inline size_t ha_chunk_row(const struct ha_chunk *c, size_t i)
{
    if (!c->rows.index || c->block <= 1) return ha_row(&c->rows, i);
    return c->rows.index[(c->skip + i) / c->block] * c->block + (c->skip + i) % c->block;
}

/* how many keys query row r sees */
static inline size_t ha_chunk_visible(const struct ha_chunk *c, size_t r)
{
    return c->visible ? ha_least(c->visible[r], c->rows.keys) : c->rows.keys;
}

#endif
