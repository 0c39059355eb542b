#ifndef HA_MERGE_SOURCES_H
#define HA_MERGE_SOURCES_H

/* Who is asked: ours by default (every CPU kernel table that this machine has, and the embedded device), defects by
 * name, or one stranger. */

#include "harness/api/kernels.h"
#include "suites/merge/report.h"
#include "suites/merge/run.h"

enum { HA_SOURCES_MAX = 64 };
struct ha_merge_sources {
    struct ha_merge_source source[HA_SOURCES_MAX];
    struct ha_kernels kernels[HA_SOURCES_MAX]; /* those of source i, where it is a table of CPU kernels */
    size_t count;
    bool stranger;
    const struct ha_device_api *api; /* of the device that was opened here, or NULL */
    struct ha_device *device;
};

/* A kernel table that this CPU lacks is entered as waived. Whatever was opened is closed by close, also after an error.
 */
enum ha_status ha_merge_sources_open(struct ha_merge_sources *sources, const struct ha_merge_options *options,
                                     const struct ha_merge_suite *suite, const struct ha_merge_id *only, size_t ids,
                                     struct ha_merge_results *results, struct ha_why *why);
void ha_merge_sources_close(struct ha_merge_sources *sources);
/* the gallery: a source for each defect; source: [suite->defects_count] */
void ha_merge_sources_defects(const struct ha_merge_suite *suite, struct ha_merge_source *source);

#endif
