#ifndef HA_LINK_SUITE_H
#define HA_LINK_SUITE_H

/* The link as a suite; docs/link.md. A point is one way to move pieces of one size, a row what it came to. */

#include "harness/api/suite.h"
#include "suites/link/bench.h"

extern const struct ha_suite ha_suite_link;

enum { HA_LINK_PIECES = 10 };
extern const size_t ha_link_pieces[HA_LINK_PIECES]; /* bytes, ascending */

struct ha_link_point {
    size_t scattered; /* 0 or 1 */
    size_t piece;     /* of ha_link_pieces */
    size_t method;    /* of ha_link_methods */
    char device[256];
    size_t isa; /* of the kernels that it may compute with; 0: the best, i: table i - 1 of the registry */
    uint64_t seed;
};

/* NaN: not measured, or not known */
struct ha_link_row {
    struct ha_result head;
    char direction[8], device_kind[16], device_name[96];
    double piece_bytes, threads, cores;
    double pieces, moved_bytes, source_bytes, verified_bytes;
    double GBps, lo, hi, least, most; /* median and its interval; of all samples */
    double ceiling_GBps;              /* of large pinned copies that way */
    double share;                     /* of it, where there is a link */
};

/* "256", "4K", "16M" */
const char *ha_link_piece_name(size_t piece);
/* A device whose memory is this host's has none, and neither has one that moves nothing. */
bool ha_link_is_link(const char *device_kind);

/* The end of a run for a reader, once for each device, instruction set and seed (tables.c). A block for each layout:
 * methods by piece size, GB/s and the share of the ceiling, or the verdict where nothing was measured. Then what the
 * methods are. */
void ha_link_print(FILE *out, const struct ha_results *results);
/* the claims; there is no verdict of the whole */
bool ha_link_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

/* For tests, before the first group of a run: these limits, where they are not 0, instead of this machine's. */
void ha_link_run_limit(void *run, const struct ha_link_limits *limits);

#endif
