#ifndef HA_BESIDE_H
#define HA_BESIDE_H

/* What the machine can do at this moment, in short readings: taken right before and right after a case is measured, so
 * that a case that is slower can be told from a machine that is. */

#include "harness/api/suite.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/paired.h"

struct ha_beside;
enum { HA_BESIDE_READINGS = HA_BESIDE_APART }; /* what is read; HA_BESIDE_APART follows from two of them */

/* Threads for readings of this memory, which outlives it; NULL: host memory is not read. */
enum ha_status ha_beside_create(struct ha_beside **beside, struct ha_paired_memory *memory,
                                const struct ha_kernels *kernels, struct ha_why *why);
/* Buffers and streams on this device, in place of those on another; api NULL: none. What it does not give is not
 * read. Nothing is read of a device that does nothing ("null"), and of one that is emulated, whose figures mean
 * nothing. The memory of one that computes in the host's is not read: it is HA_BESIDE_READ. */
void ha_beside_device(struct ha_beside *beside, const struct ha_device_api *api, struct ha_device *device);
/* NaN: cannot be read, or the time, by ha_now_ns, was over before (0: none), or ha_stop is set. */
void ha_beside_read(struct ha_beside *beside, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS]);
/* NULL, or why a reading of the device at hand is not to be believed, which is NaN then. */
const char *ha_beside_doubt(const struct ha_beside *beside);
void ha_beside_destroy(struct ha_beside *beside); /* NULL: nothing */

/* The same from ceilings that are known. */
void ha_beside_of(const struct ha_ceilings *ceilings, double reading[HA_BESIDE_READINGS]);
/* What a case keeps of two readings; NaN where either is. */
void ha_beside_mean(const double before[HA_BESIDE_READINGS], const double after[HA_BESIDE_READINGS],
                    double beside[HA_BESIDES]);

#endif
