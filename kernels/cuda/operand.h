#ifndef HA_KERNELS_CUDA_OPERAND_H
#define HA_KERNELS_CUDA_OPERAND_H

/* What an operation says of its arguments before it is enqueued. The first thing that is wrong is kept: what is said
 * after that counts for nothing. */

#include "harness/api/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ha_cuda_check;

/* The kernel uses [ptr, ptr+bytes), in device or mapped memory; of them `read_bytes` are counted where that is mapped
 * memory: they cross the link. 0: it writes before it reads. */
void ha_cuda_takes(struct ha_cuda_check *c, const char *role, const void *ptr, size_t bytes, size_t read_bytes);
/* The same of rows. indexed: the kernel alone knows which, by an index: of these the first possible one is looked at,
 * and who keeps launches for another machine (ptx/record.c) keeps all of the allocation. */
void ha_cuda_takes_rows(struct ha_cuda_check *c, const char *role, const void *ptr, bool indexed, size_t bytes,
                        size_t read_bytes);
/* False, always. */
bool ha_cuda_refuse(struct ha_cuda_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether these are right; what is not is kept. */
bool ha_cuda_type_fits(struct ha_cuda_check *c, const char *what, enum ha_dtype type);
bool ha_cuda_half_fits(struct ha_cuda_check *c, enum ha_dtype type); /* of a table, of weights: single or half */
bool ha_cuda_heads_fit(struct ha_cuda_check *c, const char *what, size_t heads, size_t kv_heads);
bool ha_cuda_bits_fit(struct ha_cuda_check *c, size_t bits); /* of a code */

#ifdef __cplusplus
}
#endif

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

#endif
