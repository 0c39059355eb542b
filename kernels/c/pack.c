#include "kernels/c/ops.h"
#include "kernels/packed.h"

/* Bits are moved as they are, two or four bytes at a time. */
static void move(char *to, const char *from, size_t size)
{
    if (size == 4) memcpy(to, from, 4);
    else memcpy(to, from, 2);
}

void ha_c_pack(const struct ha_pack *p)
{
    const size_t size = ha_dtype_bytes(p->dtype), dim = p->head_dim, end = p->at + p->rows.keys;
    const size_t whole = (end + HA_PACK_KEYS - 1) / HA_PACK_KEYS * HA_PACK_KEYS;
    for (size_t key = p->at; key < (p->rows.keys ? whole : end); key++) {
        char *block = (char *)p->blocks + key / HA_PACK_KEYS * ha_packed_block_bytes(dim, p->dtype);
        static const char zeros[HA_PACK_DIM_MAX * 4];
        const char *k = key < end ? ha_row_k(&p->rows, key - p->at) : zeros,
                   *v = key < end ? ha_row_v(&p->rows, key - p->at) : zeros;
        for (size_t d = 0; d < dim; d++) {
            move(block + ha_packed_k(key % HA_PACK_KEYS, d, p->dtype) * size, k + d * size, size);
            move(block + ha_packed_v(dim, key % HA_PACK_KEYS, d, p->dtype) * size, v + d * size, size);
        }
    }
}

void ha_c_unpack(const struct ha_unpack *u)
{
    const size_t size = ha_dtype_bytes(u->dtype), dim = u->head_dim;
    for (size_t i = 0; i < u->keys; i++) {
        const size_t key = u->index ? u->index[i] : u->first + i;
        const char *block = (const char *)u->blocks + key / HA_PACK_KEYS * ha_packed_block_bytes(dim, u->dtype);
        char *k = (char *)u->k + i * u->k_stride_bytes, *v = (char *)u->v + i * u->v_stride_bytes;
        for (size_t d = 0; d < dim; d++) {
            move(k + d * size, block + ha_packed_k(key % HA_PACK_KEYS, d, u->dtype) * size, size);
            move(v + d * size, block + ha_packed_v(dim, key % HA_PACK_KEYS, d, u->dtype) * size, size);
        }
    }
}
