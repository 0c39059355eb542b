#ifndef HA_METER_H
#define HA_METER_H

#include "harness/api/device.h"

/* Counts the bytes of every copy that a variant asks for, traced or not, and of every move into or out of mapped memory
 * that was allocated through the table; what a graph keeps counts where it is captured, however often it is launched. A
 * device table has no pointer to itself, so there is one meter: one case runs at a time. */

/* bits of `called` */
enum ha_operation_bit {
#define HA_OPERATION_BIT(entry, type) HA_OPERATION_##entry,
    HA_DEVICE_OPERATIONS(HA_OPERATION_BIT)
#undef HA_OPERATION_BIT
};

struct ha_meter_count {
    uint64_t h2d_bytes, d2h_bytes;   /* h2d: with what CPU threads stored (harness/base/stores.h) */
    uint64_t copies;                 /* a piece of copy_pieces is one, a store is none */
    uint64_t zero_copy_bytes;        /* of moves: rows read from mapped memory and rows written there */
    uint64_t stored_bytes;           /* of h2d_bytes: those that CPU threads stored */
    uint64_t attend, merge, product; /* calls that have work to do */
    uint64_t called;                 /* a bit for each of HA_DEVICE_OPERATIONS, in their order: it was called, or
                                      * was before a graph was launched */
    uint64_t up, down;               /* calls of `copy` with bytes to copy, to the device, to the host */
};

/* The table to hand to a variant: that of `api`, with counted copies. Valid until the next call, and so is what it
 * knows of memory: what was allocated through it is freed through it, before. */
const struct ha_device_api *ha_meter_wrap(const struct ha_device_api *api);
/* since the last call */
struct ha_meter_count ha_meter_take(void);

#endif
