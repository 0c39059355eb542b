#ifndef HA_MEASURE_SAMPLING_H
#define HA_MEASURE_SAMPLING_H

/* Samples of one figure, and when there are enough of them. */

#include "harness/api/base.h"

struct ha_series {
    double *x;
    size_t count, room;
};
enum ha_status ha_series_add(struct ha_series *series, double x, struct ha_why *why);
void ha_series_free(struct ha_series *series);

/* At least `least` samples, and half of the 95% interval of their median within `interval` of it; `most` are enough
 * whatever the interval is (0: there is no such number). */
struct ha_sampling {
    size_t least, most;
    double interval;
};
bool ha_sampling_enough(const struct ha_sampling *rule, const double *x, size_t count);

/* median and its 95% interval by order statistics; NaN where there is no sample */
struct ha_estimate {
    double median, lo, hi;
};
struct ha_estimate ha_estimate(const double *x, size_t count);

#endif
