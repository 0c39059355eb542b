#ifndef HA_FASTEST_READ_H
#define HA_FASTEST_READ_H

/* Memory's ceiling is what the faster of two orders reads: line after line, which some CPUs fetch ahead of the loads,
 * or with several pages under way at once, which others need. */

#include "harness/api/kernels.h"

typedef uint64_t ha_read(const void *p, size_t bytes);

/* kernels->read or kernels->read_streams, by a few readings of each in turns: `reading` takes one by the order that it
 * is given, and returns GB/s. Where there is one alone, it is that one, and nothing is read. */
ha_read *ha_fastest_read(const struct ha_kernels *kernels, double (*reading)(void *arg, ha_read *read), void *arg);

#endif
