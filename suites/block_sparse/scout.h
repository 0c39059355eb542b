#ifndef HA_BLOCK_SPARSE_SCOUT_H
#define HA_BLOCK_SPARSE_SCOUT_H

/* What scout and its fit share. */

#include "harness/api/variant.h"

enum ha_scout_param {
    HA_SCOUT_BLOCK,
    HA_SCOUT_BUDGET,
    HA_SCOUT_CACHE,
    HA_SCOUT_DIGEST,
    HA_SCOUT_GROUP,
    HA_SCOUT_PRECOMPUTE,
    HA_SCOUT_PREDICT,
    HA_SCOUT_RESIDENT,
    HA_SCOUT_RECALL,
    HA_SCOUT_INTERVAL,
    HA_SCOUT_RATIO,
    HA_SCOUT_FETCH,
    HA_SCOUT_TEAMS,
};

/* blocks of a list, lists of a sequence, blocks that a KV head's cache has room for */
struct ha_scout_sizes {
    size_t block, k, lists, slots;
};
struct ha_scout_sizes ha_scout_sizes(const struct ha_shape *s, const double *param);

/* Learns how often a layer has to be recalled. */
enum ha_status ha_scout_fit(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why);

#endif
