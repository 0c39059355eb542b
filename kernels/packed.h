#ifndef HA_KERNELS_PACKED_H
#define HA_KERNELS_PACKED_H

/* Where things lie in packed keys (harness/api/kernels.h), and a walk over the keys that attention reads. */

#include "kernels/rows.h"

#include <string.h>

/* keys per unit of a list at least: the walk's step */
enum { HA_PACK_HALF = HA_PACK_KEYS / 2 };

/* a query element whose products with keys are exponents of two, rounded once */
static inline float ha_query_log2(float q, float scale)
{
    return (float)((double)q * ((double)scale * 0x1.71547652b82fep+0));
}

/* columns of the panel that starts at column d */
static inline size_t ha_packed_cols(size_t dim, size_t d) { return ha_least(HA_PACK_COLS, dim - d); }

/* Element d of the block's key j, as an index into the block: of K, of V. */
static inline size_t ha_packed_k(size_t j, size_t d, enum ha_dtype t)
{
    if (t == HA_F32) return d * HA_PACK_KEYS + j;
    if (t == HA_F16)
        return d / 2 * 2 * HA_PACK_KEYS + j / HA_PACK_HALF * HA_PACK_KEYS + d % 2 * HA_PACK_HALF + j % HA_PACK_HALF;
    return (d / 2 * HA_PACK_KEYS + j) * 2 + d % 2;
}
static inline size_t ha_packed_v(size_t dim, size_t j, size_t d, enum ha_dtype t)
{
    const size_t col = d % HA_PACK_COLS, panel = d - col, cols = ha_packed_cols(dim, panel);
    return (dim + panel) * HA_PACK_KEYS + (t == HA_BF16 ? (j / 2 * cols + col) * 2 + j % 2 : j * cols + col);
}

/* Keys [first, first + keys) of a block, all in one half of it. What the half has besides is zeros, or other keys if
 * `cut`. */
struct ha_packed_half {
    const char *block;
    size_t first, keys;
    bool cut;
};

/* Up to HA_PACK_KEYS keys in list order: both halves of a block, or parts of any two blocks. */
struct ha_packed_tile {
    struct ha_packed_half half[2];
    size_t halves;
};

struct ha_packed_walk {
    const struct ha_packed *packed;
    size_t block_bytes;
    size_t next;     /* of the list, after the present unit */
    size_t key, end; /* what is left of the present unit */
    size_t left;     /* keys in all */
};

static inline void ha_packed_unit(struct ha_packed_walk *w)
{
    const struct ha_packed *p = w->packed;
    w->key = p->index[w->next++] * p->unit;
    w->end = ha_least(w->key + p->unit, p->keys);
}

/* keys [first, first + keys) of the list */
static inline struct ha_packed_walk ha_packed_start(const struct ha_packed *p, size_t first, size_t keys, size_t dim,
                                                    enum ha_dtype t)
{
    struct ha_packed_walk w = { p, ha_packed_block_bytes(dim, t), 0, first, p->keys, keys };
    if (!p->index || keys == 0) return w;
    /* the ragged unit may stand anywhere: then all behind it is not at multiples of the unit */
    if (p->keys % p->unit == 0) {
        w.next = first / p->unit;
        first %= p->unit;
    }
    for (ha_packed_unit(&w); first >= w.end - w.key; ha_packed_unit(&w)) first -= w.end - w.key;
    w.key += first;
    /* What is listed lies in pages anywhere, and the first prefetch into each waits until its address is translated,
     * with all that comes after it. Here they are translated together: attention over 5% of 32768 keys takes 0.87 of
     * the time. */
    for (size_t i = w.next, end = ha_least(p->units, i + keys / p->unit + 1); i < end; i++)
        __builtin_prefetch((const char *)p->blocks + p->index[i] * p->unit / HA_PACK_KEYS * w.block_bytes, 0, 2);
    return w;
}

/* the next keys; .halves = 0 at the end */
static inline struct ha_packed_tile ha_packed_next(struct ha_packed_walk *w)
{
    struct ha_packed_tile tile;
    tile.halves = 0;
    while (tile.halves < 2 && w->left > 0) {
        if (w->key == w->end) ha_packed_unit(w);
        struct ha_packed_half *half = &tile.half[tile.halves++];
        half->block = (const char *)w->packed->blocks + w->key / HA_PACK_KEYS * w->block_bytes;
        half->first = w->key % HA_PACK_KEYS;
        half->keys = ha_least(ha_least(HA_PACK_HALF - half->first % HA_PACK_HALF, w->end - w->key), w->left);
        w->key += half->keys;
        w->left -= half->keys;
        half->cut = half->keys < HA_PACK_HALF && (half->first % HA_PACK_HALF != 0 || w->key != w->packed->keys);
    }
    return tile;
}

/* Makes a cut half one that is not: half `slot` (0 or 1) of a spare block. */
static inline void ha_packed_whole(struct ha_packed_half *half, size_t slot, char *spare, size_t dim, enum ha_dtype t)
{
    static const char zero[4] = { 0 };
    const size_t size = ha_dtype_bytes(t), first = slot * HA_PACK_HALF;
    for (size_t j = 0; j < HA_PACK_HALF; j++)
        for (size_t d = 0; d < dim; d++) {
            const size_t from = half->first + j;
            const char *k = j < half->keys ? half->block + ha_packed_k(from, d, t) * size : zero;
            const char *v = j < half->keys ? half->block + ha_packed_v(dim, from, d, t) * size : zero;
            memcpy(spare + ha_packed_k(first + j, d, t) * size, k, size);
            memcpy(spare + ha_packed_v(dim, first + j, d, t) * size, v, size);
        }
    half->block = spare;
    half->first = first;
    half->cut = false;
}

#endif
