#ifndef HA_BLOCK_SPARSE_DRIFT_H
#define HA_BLOCK_SPARSE_DRIFT_H

/* How soon the blocks that a layer chooses are others than those that its cache was filled with, and how often it has
 * to be filled (ScoutAttention, section 3.4). */

#include "suites/parts/digests.h"

struct ha_drift {
    size_t block, k, slots;     /* tokens of a block; blocks of a list, and of a KV head's cache */
    size_t lists;               /* of a sequence: KV heads or query heads */
    enum ha_digest_kind digest; /* what blocks are scored by */
    double ratio;               /* of k, what may be missing on average between two recalls */
};
/* Replays the observed queries. Tensors interval [layers], drift and kept [layers][steps], as the page of scout says.
 */
enum ha_status ha_drift_fit(const struct ha_fit_input *in, const struct ha_drift *of, struct ha_fit_writer *out,
                            struct ha_why *why);

#endif
