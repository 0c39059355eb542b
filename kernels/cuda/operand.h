#ifndef HA_KERNELS_CUDA_OPERAND_H
#define HA_KERNELS_CUDA_OPERAND_H

/* What an enqueue says of its operands. */

#include "kernels/cuda/cuda.h"

/* From the first element of the first row to the last of the last. SIZE_MAX, which lies nowhere: that overflows. */
static inline size_t extent(size_t rows, size_t stride, size_t row_size)
{
    size_t all;
    if (rows == 0) return 0;
    return __builtin_mul_overflow(rows - 1, stride, &all) || __builtin_add_overflow(all, row_size, &all) ? SIZE_MAX
                                                                                                         : all;
}

static inline size_t times(size_t count, size_t size)
{
    size_t all;
    return __builtin_mul_overflow(count, size, &all) ? SIZE_MAX : all;
}

/* HA_OK if the kernel may use [ptr, ptr+bytes), of which `moved_bytes` are to be counted: they cross the link, where
 * that is mapped memory. */
static inline enum ha_status operand(struct ha_stream *s, struct ha_cuda_span *span, const char *role, const void *ptr,
                                     size_t bytes, size_t moved_bytes)
{
    enum ha_place place = ha_cuda_operand(s, span->name, role, ptr, bytes, HA_AT_DEVICE | HA_AT_MAPPED);
    if (place == HA_AT_MAPPED) span->zero_copy_bytes += moved_bytes;
    return place ? HA_OK : HA_ERROR;
}

#endif
