#ifndef HA_FLEET_RANK_H
#define HA_FLEET_RANK_H

/* Which rank of which job this process is, by what its launcher says in the environment (docs/fleet.md). */

#include "harness/api/base.h"

enum { HA_RANK_NAME = 96, HA_RANK_JOB = 80 };

struct ha_rank {
    const char *launcher;        /* "slurm", "openmpi", ...; "none": this machine alone */
    char job[HA_RANK_JOB];       /* safe in a name of a file; "": the launcher has none */
    uint64_t rank, ranks;        /* ranks 0: the launcher does not say */
    uint64_t local, local_ranks; /* of this machine; local_ranks 0: the launcher does not say */
    uint64_t restarts;           /* how often the job was begun again */
    char host[HA_RANK_NAME];     /* what the kernel calls this machine */
    char machine[HA_RANK_NAME];  /* safe in a name of a file: the node's name, and .N where N is the local rank of
                                    several */
};

/* HA_ERROR: a variable of the launcher has a value that none can be; the reason names both. */
enum ha_status ha_rank_find(struct ha_rank *rank, struct ha_why *why);

/* In place: what is no letter of ASCII, digit, '-', '_' or '.' becomes '-', and a dot at the front '_'. */
void ha_rank_safe(char *name);

/* The rank has the device number local modulo count of those of one kind that this machine has, where it is one of
 * several ranks here: it is the first that the process sees from then on (setenv). asked: as --device names it. -1:
 * there are not several, the kind is none of those that can be told apart, or the rank is alone. */
int ha_rank_take_device(const struct ha_rank *rank, const char *asked);

#endif
