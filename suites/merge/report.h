#ifndef HA_MERGE_REPORT_H
#define HA_MERGE_REPORT_H

/* The tables of `habench check lse_merge`. */

#include "suites/merge/work.h"
#include "harness/report/row.h"
#include "harness/report/table.h"

/* One verdict, for the totals and for JUnit. */
struct ha_merge_results {
    struct ha_row *row;
    size_t count, room;
    struct ha_totals totals;
};
enum ha_status ha_merge_results_add(struct ha_merge_results *results, const char *part, const char *item,
                                    const char *by, enum ha_status status, double ratio, const char *reason,
                                    struct ha_why *why);
void ha_merge_results_free(struct ha_merge_results *results);

struct ha_merge_view {
    const struct ha_merge_suite *suite;
    const struct ha_merge_source *source;
    size_t sources;
    const struct ha_merge_cell *cell; /* [items][sources] */
};
/* the 45 cases: how many merges, and the worst err/bound of each subject, or what went wrong */
void ha_merge_print_cases(FILE *out, const struct ha_merge_view *view);
/* random rows: the same for each form and type */
void ha_merge_print_random(FILE *out, const struct ha_merge_view *view);
/* how the rows' worst err/bound are distributed, for each form */
void ha_merge_print_spread(FILE *out, const struct ha_merge_view *view);
/* defects: the cells are [cases][defects] */
void ha_merge_print_gallery(FILE *out, const struct ha_merge_view *view);
/* how many of the cases see the defect, and whether its finder does */
size_t ha_merge_gallery_count(const struct ha_merge_view *view, size_t defect, bool *by_finder);

#endif
