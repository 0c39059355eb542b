#ifndef HA_MERGE_BUNDLE_H
#define HA_MERGE_BUNDLE_H

/* All cases in as few runs as there are shapes, for a subject each of whose runs is a process of its own. */

#include "suites/merge/work.h"

/* Rows of every plain case that allows the shape, in each form and type that the source merges, with several numbers of
 * states, flat and packed; then `batches` batches of random rows for each form and type. job->sources is 1; job->cell
 * holds the cases' cells, `random` those of the random kinds. */
enum ha_status ha_merge_bundle_run(const struct ha_merge_job *job, struct ha_merge_cell *random,
                                   const struct ha_merge_id *only, size_t batches, uint64_t seed, struct ha_why *why);

#endif
