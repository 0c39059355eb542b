#ifndef HA_MEMORY_H
#define HA_MEMORY_H

#include "harness/api/shape.h"

/* What a case needs, asked before anything large is allocated: a machine that runs out of
 * host memory kills processes, and says nothing. */

struct ha_memory_need {
    uint64_t data_bytes;      /* the workload itself */
    uint64_t variant_bytes;   /* K and V once more, wherever the variant keeps them */
    uint64_t device_io_bytes; /* the inputs of all steps, and the outputs that are kept */
    uint64_t host_io_bytes;   /* pinned, of one step; and what the outputs that are kept are held against */
};
struct ha_memory_need ha_memory_estimate(const struct ha_shape *shape);

/* HA_ERROR "needs X GiB, has Y GiB: ...". in_host: the device's memory is host memory. filled: the
 * workload is already there. all_on_device: the variant keeps all of K and V on the device. */
enum ha_status ha_memory_check(const struct ha_shape *shape, bool filled, bool in_host, bool all_on_device,
                               uint64_t host_free, uint64_t device_free, struct ha_why *why);

#endif
