#ifndef HA_LINK_METHOD_H
#define HA_LINK_METHOD_H

/* The ways to move pieces of host memory to the device and back. On the device they lie dense, one after the other; on
 * the host, each in a slot of a large source. A further one is a function and a line in the table. */

#include "suites/link/bench.h"

enum {
    HA_LINK_NEEDS_PIECES = 1,
    HA_LINK_NEEDS_MOVE = 2,
    HA_LINK_NEEDS_WINDOW = 4
};                               /* besides mapped memory where `pool` is that */
enum { HA_LINK_ALL = 1u << 30 }; /* threads: as many as the process has cores */

struct ha_link_method {
    const char *name, *doc;
    enum ha_direction dir;
    enum ha_link_pool pool; /* of the host side */
    unsigned threads;       /* of the CPU that move the bytes, 0: none does */
    unsigned needs;
    /* Returns when every byte has arrived. An error is one of the device. */
    enum ha_status (*move)(struct ha_link_bench *bench, const struct ha_link_method *method,
                           const struct ha_link_plan *plan);
};
extern const struct ha_link_method ha_link_methods[];
extern const size_t ha_link_methods_count;

const struct ha_link_method *ha_link_method_find(const char *name);
/* NULL, or why this method cannot be had on this machine; text: room for it */
const char *ha_link_method_lacks(const struct ha_link_method *method, const struct ha_link_bench *bench,
                                 char text[512]);

#endif
