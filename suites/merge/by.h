#ifndef HA_MERGE_BY_H
#define HA_MERGE_BY_H

/* Who merges, by the name that stands in an id. */

#include "suites/merge/point.h"
#include "suites/merge/work.h"

/* Everybody who was asked for in a run: found once, and kept. */
struct ha_merge_party {
    const struct ha_suite_config *config;
    struct ha_merge_member *member;
    size_t count;
};
struct ha_merge_member {
    char *by; /* as in the id */
    struct ha_merge_source source;
    struct ha_kernels *kernels; /* the source's, where it is a table of CPU kernels */
    uint64_t lost_ns;           /* the source's */
    enum ha_status status;      /* of those that cannot be asked: why says the reason */
    struct ha_why why;
    bool said; /* an error that has its row */
};

/* The index of the member called `by`, in *i, or party->count where there is no memory. HA_WAIVED: this CPU, or this
 * machine, lacks it; HA_ERROR: a stranger that cannot be opened. Devices are those of config->machine, and asked for
 * anew each time. */
enum ha_status ha_merge_party_find(struct ha_merge_party *party, const char *by, size_t *i, struct ha_why *why);
void ha_merge_party_free(struct ha_merge_party *party);

bool ha_merge_source_is_strange(const struct ha_merge_source *source);
/* a source for a defect */
struct ha_merge_source ha_merge_source_defect(const struct ha_merge_defect *defect);

#endif
