#ifndef HA_MERGE_BY_H
#define HA_MERGE_BY_H

/* Who merges, by the name that stands in an id. */

#include "suites/merge/point.h"

struct ha_merge_member {
    struct ha_merge_member *next;
    char by[HA_MERGE_NAME_MAX]; /* as in the id */
    struct ha_merge_source source;
    struct ha_kernels kernels; /* the source's, where it is a table of CPU kernels */
    bool null;                 /* a device of the kind "null": its output is nothing that could be checked */
    enum ha_status status;     /* HA_WAIVED: this CPU, or this machine, lacks it; HA_ERROR: it cannot be opened */
    struct ha_why why;         /* of a status that is not HA_OK */
};
/* Everybody who was asked for in a run: found once, and kept. */
struct ha_merge_party {
    const struct ha_suite_config *config;
    struct ha_merge_member *first;
};

/* The member called `by`; NULL: there is no memory. Devices are those of config->machine, and asked for anew each time.
 */
struct ha_merge_member *ha_merge_party_find(struct ha_merge_party *party, const char *by);
void ha_merge_party_free(struct ha_merge_party *party);

#endif
