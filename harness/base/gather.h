#ifndef HA_BASE_GATHER_H
#define HA_BASE_GATHER_H

#include "harness/api/base.h"

/* Rows of host memory that an index names, moved by the CPU: into other host memory, from where a copy takes them to
 * the device, or by stores into device memory that is mapped (map_device of harness/api/device.h). What the suite
 * `link` measures and what variants fetch with is this. */

struct ha_gather {
    unsigned char *dst;
    const unsigned char *src;
    const uint32_t *index; /* row i comes from row index[i / unit] * unit + i % unit of src */
    const uint32_t *slot;  /* and becomes row i of dst, or with a slot row slot[i / unit] * unit + i % unit */
    size_t unit, row_bytes, dst_stride_bytes, src_stride_bytes;
};

/* copy: into memory that is read soon; store: past the caches, so that over the bus each store is part of a full line.
 * Stores need SSE2, and rows whose length and place in dst are multiples of 16 bytes; others are copied. */
enum ha_gather_by { HA_GATHER_COPY, HA_GATHER_STORE };
/* Rows [first, end), by the calling thread. */
void ha_gather_rows(const struct ha_gather *g, enum ha_gather_by by, size_t first, size_t end);
/* Behind the last rows that a thread has stored: whoever is told of them afterwards finds them. */
void ha_gather_fence(void);
/* Returns when what was stored and fenced, by whichever threads that are awaited, is there: a read over the bus does
 * not overtake the stores before it. mapped: any byte of what was stored to. */
void ha_gather_arrived(const void *mapped);

#endif
