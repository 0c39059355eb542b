#ifndef HA_MERGE_RESULT_H
#define HA_MERGE_RESULT_H

/* A row of lse_merge, and what is printed of all rows. */

#include "suites/merge/point.h"

enum { HA_MERGE_BINS = 10, HA_MERGE_FAILURE_MAX = 4096 };

struct ha_merge_result {
    struct ha_result head;
    char subject[64];                   /* what it calls itself */
    double ratio;                       /* the worst err/bound */
    double planted;                     /* the least that a planted error gave */
    uint64_t merges, exact;             /* rows judged; those without any error */
    uint64_t refused;                   /* batches that were answered with an error, where that is as good */
    uint64_t bin[HA_MERGE_BINS];        /* err/bound below 2^-9, to 2^-8, ... to 1 */
    char found_by[64];                  /* of a defect: the case that saw it */
    uint64_t also;                      /* by how many others */
    char showed[96];                    /* and what it saw */
    char failure[HA_MERGE_FAILURE_MAX]; /* what a person needs of a failure (ha_merge_failure_print); in no file */
};

enum { HA_MERGE_FIELDS = 19 };
extern const struct ha_field ha_merge_field[HA_MERGE_FIELDS];

/* hooks of the suite */
void ha_merge_print(FILE *out, const struct ha_results *results);
/* The bound bites if half of it would not hold: asked where all random merges were made by ours. */
bool ha_merge_conclude(FILE *out, const struct ha_results *results, struct ha_why *why);

#endif
