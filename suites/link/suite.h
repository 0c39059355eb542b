#ifndef HA_LINK_SUITE_H
#define HA_LINK_SUITE_H

/* The link as a suite; docs/link.md. A point is one way to move pieces of one size, a row what it came to. */

#include "harness/api/suite.h"
#include "harness/measure/disturbed.h"
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
    char direction[8], device_kind[16], device_name[96], disturbed[HA_DISTURBED_MAX];
    double piece_bytes, threads, cores;
    double pieces, moved_bytes, source_bytes, verified_bytes;
    double GBps, lo, hi, least, most; /* median and its interval; of all samples */
    double ceiling_GBps;              /* of large pinned copies that way */
    double share;                     /* of it, where there is a link */
};

/* "256", "4K", "16M" */
const char *ha_link_piece_name(size_t piece);

/* The end of a run for a reader, once for each device, instruction set and seed (tables.c). A block for each layout:
 * methods by piece size, GB/s and the share of the ceiling, or the verdict where nothing was measured. Then what the
 * methods are. */
void ha_link_print(FILE *out, const struct ha_results *results);
/* the claims; there is no verdict of the whole */
bool ha_link_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

/* For tests, before the first group of a run: these limits, where they are not 0, instead of this machine's. */
void ha_link_run_limit(void *run, const struct ha_link_limits *limits);

/* ---- what papers say of links, held against the figures of a run (claims.c) -------------------------------------- */

/* What was right and measured. */
struct ha_link_figure {
    const struct ha_link_method *method;
    size_t piece_bytes;
    bool scattered;
    double GBps, share; /* share: of the link's ceiling in its direction */
};
struct ha_link_figures {
    const struct ha_link_figure *figure;
    size_t count, cores;
    bool link; /* there is one: false where the device's memory is the host's */
};

enum ha_link_verdict {
    HA_LINK_REPRODUCED,
    HA_LINK_IN_SHAPE, /* the relation holds, the figures do not */
    HA_LINK_REFUTED,
    HA_LINK_NOT_APPLICABLE, /* a condition that is not met here */
};
struct ha_link_claim {
    const char *text, *source, *rule;
    /* figures: what the verdict rests on, or the condition that is not met */
    enum ha_link_verdict (*judge)(const struct ha_link_figures *measured, char figures[512]);
};
extern const struct ha_link_claim ha_link_claims[];
extern const size_t ha_link_claims_count;
const char *ha_link_verdict_name(enum ha_link_verdict verdict);

#endif
