#ifndef HA_MERGE_BUNDLE_H
#define HA_MERGE_BUNDLE_H

/* All cases in as few runs as there are shapes, for a subject each of whose runs is a process of its own. */

#include "suites/merge/work.h"

/* Rows of every plain case that is asked for and allows the shape, in each form and type that the source merges, with
 * several numbers of states, flat and packed; then `batches` batches of random rows for each form and type. */
struct ha_merge_bundles {
    const struct ha_merge_axes *only; /* of which form and type count */
    const bool *asked;                /* [cases], or NULL: none */
    size_t batches;
    struct ha_merge_cell *random; /* of the random kinds; job->cell: of the cases */
};
/* job->sources is 1 */
enum ha_status ha_merge_bundles_run(const struct ha_merge_job *job, const struct ha_merge_bundles *bundles,
                                    struct ha_why *why);

#endif
