#ifndef HA_COMPARE_SIDES_H
#define HA_COMPARE_SIDES_H

/* Figures of records as what is compared: logarithms in which more is worse. */

#include "harness/compare/record.h"
#include "harness/compare/shift.h"

/* A time or a rate: what is slower or faster. */
bool ha_figure_is_speed(const struct ha_recorded_figure *figure);
/* Is it compared? ratios: only what is no absolute number, as of two machines. */
bool ha_figure_tested(const struct ha_recorded_case *of, const struct ha_recorded_figure *figure, bool ratios);
/* The logarithm of a value in which more is worse, as sides have it; NaN: it has none. */
double ha_figure_logarithm(const struct ha_recorded_figure *figure, double value);
/* The value of such a logarithm. */
double ha_figure_of_logarithm(const struct ha_recorded_figure *figure, double x);
/* One of the readings of the machine that stand beside a case. */
bool ha_figure_beside(const char *name);

/* counts: [nights] whether a night counts, or NULL: all do. A figure that has a value without a logarithm makes an
 * empty side. HA_ERROR: no memory. */
enum ha_status ha_side_make(struct ha_side *side, const struct ha_recorded_figure *figure, const bool *counts,
                            struct ha_why *why);
/* The same of a figure over another, process by process, where both have one. */
enum ha_status ha_side_over(struct ha_side *side, const struct ha_recorded_figure *figure,
                            const struct ha_recorded_figure *over, const bool *counts, struct ha_why *why);
void ha_side_free(struct ha_side *side);

/* Copies of its values, the caller's to free; NULL and 0: none, or no memory. */
size_t ha_values_of(const struct ha_recorded_figure *figure, const bool *counts, double **values);

#endif
