#ifndef HA_FLEET_MEET_RANK_H
#define HA_FLEET_MEET_RANK_H

#include "harness/api/base.h"

/* Which process of a job this is, as its launcher says in the environment. */
struct ha_meet_rank {
    size_t rank, ranks;
    size_t local_rank, local_ranks; /* among those of this host */
    char job[128];
};
/* HA_WAIVED: nothing says so. HA_ERROR: what is said cannot be. */
enum ha_status ha_meet_rank_read(struct ha_meet_rank *out, struct ha_why *why);

#endif
