#ifndef HA_COMPARE_LOST_H
#define HA_COMPARE_LOST_H

/* Figures that had values in a base, and have none now: a result that is gone, or a build that has no such figure. */

#include "harness/compare/record.h"

struct ha_comparison;

/* Names of figures, each once. */
struct ha_figure_names {
    const char **name; /* [count] of the record's */
    size_t count, room;
};

/* Had it a value in every night of those that count in which its case has a row, and in nine of ten of its processes?
 * One that is not always measured is not missed. all: how many nights count; counts may be NULL: all do. */
bool ha_figure_steady(const struct ha_recorded_case *of, const struct ha_recorded_figure *figure, const bool *counts,
                      size_t all);
/* of may be NULL */
bool ha_figure_there(const struct ha_recorded_case *of, const char *name);

/* HA_ERROR: no memory. */
enum ha_status ha_figure_names_add(struct ha_figure_names *names, const char *name, struct ha_why *why);
/* Those that have a value in any case. */
enum ha_status ha_figure_names_of(struct ha_figure_names *names, const struct ha_record *record, struct ha_why *why);
bool ha_figure_names_have(const struct ha_figure_names *names, const char *name);
/* Of cases of one suite that have no row now, more than a few: one change stands for all, as one thing has cut them
 * off.
 */
void ha_lost_together(struct ha_comparison *comparison);

/* "a, b, c", the caller's to free; NULL: no memory */
char *ha_figure_names_text(const struct ha_figure_names *names);

#endif
