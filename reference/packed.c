/* The packed layout of keys, as the words of harness/api/kernels.h say it. */

#include "harness/api/reference.h"

#include <string.h>

enum { KEYS = HA_PACK_KEYS, HALF = KEYS / 2 };

size_t ha_ref_packed_k(enum ha_dtype dtype, size_t dim, size_t key, size_t d)
{
    const size_t block = key / KEYS * 2 * KEYS * dim, i = key % KEYS;
    const size_t by_type[] = {
        [HA_F32] = d * KEYS + i,
        [HA_F16] = ((d / 2 * 2 + i / HALF) * 2 + d % 2) * HALF + i % HALF,
        [HA_BF16] = (d / 2 * KEYS + i) * 2 + d % 2,
    };
    return block + by_type[dtype];
}

size_t ha_ref_packed_v(enum ha_dtype dtype, size_t dim, size_t key, size_t d)
{
    const size_t block = key / KEYS * 2 * KEYS * dim + KEYS * dim, i = key % KEYS;
    const size_t panel = d / HA_PACK_COLS * HA_PACK_COLS, column = d - panel,
                 columns = dim - panel < HA_PACK_COLS ? dim - panel : HA_PACK_COLS;
    return block + panel * KEYS + (dtype == HA_BF16 ? (i / 2 * columns + column) * 2 + i % 2 : i * columns + column);
}

/* with sizes that the compiler knows */
static void copy_number(char *to, const char *from, size_t at, size_t elem)
{
    if (elem == sizeof(float)) memcpy(to, from + at * sizeof(float), sizeof(float));
    else memcpy(to, from + at * sizeof(uint16_t), sizeof(uint16_t));
}

void ha_ref_unpack_row(const void *blocks, enum ha_dtype dtype, size_t dim, size_t key, void *k, void *v)
{
    const size_t elem = ha_dtype_bytes(dtype);
    for (size_t d = 0; d < dim; d++) {
        if (k) copy_number((char *)k + d * elem, blocks, ha_ref_packed_k(dtype, dim, key, d), elem);
        if (v) copy_number((char *)v + d * elem, blocks, ha_ref_packed_v(dtype, dim, key, d), elem);
    }
}

size_t ha_ref_keys(const struct ha_attend *a)
{
    size_t n = ha_packed_listed(&a->packed);
    for (size_t i = 0; i < a->runs_count; i++) n += a->runs[i].keys;
    return n;
}

struct ha_rows ha_ref_plain_rows(const struct ha_attend *a, void *memory)
{
    const size_t keys = ha_ref_keys(a), row = a->head_dim * ha_dtype_bytes(a->dtype);
    char *k = memory, *v = k + keys * row;
    size_t n = 0;
    for (size_t u = 0; a->packed.keys && u < (a->packed.index ? a->packed.units : a->packed.keys); u++) {
        const size_t unit = a->packed.index ? a->packed.unit : 1,
                     first = (a->packed.index ? a->packed.index[u] : u) * unit;
        for (size_t key = first; key < first + unit && key < a->packed.keys; key++, n++)
            ha_ref_unpack_row(a->packed.blocks, a->dtype, a->head_dim, key, k + n * row, v + n * row);
    }
    for (size_t i = 0; i < a->runs_count; i++)
        for (size_t j = 0; j < a->runs[i].keys; j++, n++) {
            const struct ha_rows *r = &a->runs[i];
            const size_t block = a->block ? a->block : 1, at = r->index ? r->index[j / block] * block + j % block : j;
            memcpy(k + n * row, (const char *)r->k + at * r->k_stride_bytes, row);
            memcpy(v + n * row, (const char *)r->v + at * r->v_stride_bytes, row);
        }
    return (struct ha_rows){ .k = k, .v = v, .k_stride_bytes = row, .v_stride_bytes = row, .keys = n };
}
