#ifndef HA_BASE_PQ_H
#define HA_BASE_PQ_H

#include "harness/api/kernels.h"

/* How keys of head_dim dimensions are cut, which dims divides; without centroids. pack: codes of as many bits as
 * `count` centroids need; else of 8 or 16. */
static inline struct ha_pq ha_pq_of(size_t head_dim, size_t dims, size_t count, bool separate, bool pack)
{
    const size_t groups = head_dim / dims;
    size_t bits = 1;
    while ((size_t)1 << bits < count) bits++;
    return (struct ha_pq){ .centroid = NULL,
                           .groups = groups,
                           .dims = dims,
                           .count = count,
                           .books = separate ? groups : 1,
                           .bits = pack        ? bits
                                   : bits <= 8 ? 8
                                               : 16 };
}

/* The codes of so many keys of a head, and the tables of so many rows, as device memory has them. */
static inline size_t ha_pq_aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }
static inline size_t ha_pq_head_bytes(const struct ha_pq *pq, size_t keys)
{
    return ha_pq_aligned(ha_pq_code_bytes(pq, keys));
}
static inline size_t ha_pq_head_table_bytes(const struct ha_pq *pq, size_t rows, enum ha_dtype type)
{
    return ha_pq_aligned(ha_pq_table_bytes(pq, rows, type));
}

/* the bytes of the codes of one group of a block of HA_PQ_KEYS keys */
static inline size_t ha_pq_group_bytes(const struct ha_pq *pq) { return HA_PQ_KEYS / 8 * pq->bits; }

/* Of a block's codes of one group the one of key i. A code has no more than HA_PQ_BITS_MAX bits, so that it lies in
 * three bytes at most; no byte behind its own is touched. */
static inline uint32_t ha_pq_code(const unsigned char *group, size_t bits, size_t i)
{
    const size_t at = i * bits, last = (at + bits - 1) / 8;
    uint32_t word = 0;
    for (size_t byte = at / 8; byte <= last; byte++) word |= (uint32_t)group[byte] << 8 * (byte - at / 8);
    return word >> at % 8 & ((1u << bits) - 1);
}

static inline void ha_pq_put(unsigned char *group, size_t bits, size_t i, uint32_t number)
{
    const size_t at = i * bits, last = (at + bits - 1) / 8;
    const uint32_t mask = ((1u << bits) - 1) << at % 8, word = number << at % 8;
    for (size_t byte = at / 8; byte <= last; byte++) {
        const size_t shift = 8 * (byte - at / 8);
        group[byte] = (unsigned char)((group[byte] & ~(mask >> shift)) | (word >> shift & 0xff));
    }
}

/* the centroids of a group: [dims][count] */
static inline const float *ha_pq_book(const struct ha_pq *pq, size_t group)
{
    return pq->centroid + (pq->books == 1 ? 0 : group) * pq->dims * pq->count;
}

#endif
