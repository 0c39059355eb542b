#ifndef HA_BASE_OPERANDS_H
#define HA_BASE_OPERANDS_H

/* Which bytes an operation reads and writes, from its arguments alone. Exact, but for the reads through an index that
 * lies on a device: those are the whole allocation. */

#include "harness/api/device.h"
#include "harness/base/order.h"

/* Called once for each operand; role is static: "o", "K". */
typedef void ha_operand_fn(void *arg, const char *role, enum ha_access access, struct ha_range range);

void ha_operands_copy(const struct ha_device_pieces *pieces, ha_operand_fn *fn, void *arg);
void ha_operands_copy_2d(void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
                         size_t rows, ha_operand_fn *fn, void *arg);
/* ha_operands_device_NAME; the scratch of net is the device's */
#define HA_OPERANDS(name, type) void ha_operands_device_##name(const struct type *args, ha_operand_fn *fn, void *arg);
HA_DEVICE_OPERATIONS(HA_OPERANDS)
#undef HA_OPERANDS

/* of the CPU's kernels: X(kernel), whose arguments are a struct ha_KERNEL; ha_operands_KERNEL */
#define HA_KERNELS_OF_OPERANDS(X) \
    X(pack)                       \
    X(unpack)                     \
    X(digest)                     \
    X(score)                      \
    X(digest_score)               \
    X(net)                        \
    X(hash)                       \
    X(hamming)                    \
    X(pq_encode)                  \
    X(pq_table)                   \
    X(pq_score)                   \
    X(softmax)                    \
    X(topp)                       \
    X(weighted_sum)
#define HA_OPERANDS(name) void ha_operands_##name(const struct ha_##name *args, ha_operand_fn *fn, void *arg);
HA_KERNELS_OF_OPERANDS(HA_OPERANDS)
#undef HA_OPERANDS
void ha_operands_attend(const struct ha_attend *a, ha_operand_fn *fn, void *arg);

#endif
