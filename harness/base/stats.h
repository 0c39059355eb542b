#ifndef HA_BASE_STATS_H
#define HA_BASE_STATS_H

#include "harness/api/base.h"

/* Of n samples in any order; the input is not changed. NaN anywhere, or n = 0, gives NaN. */
double ha_median(const double *x, size_t n);
/* linear interpolation between order statistics (type 7), p in [0, 1] */
double ha_quantile(const double *x, size_t n, double p);
/* distribution-free interval of the median from order statistics (binomial), confidence >= 0.95;
 * with fewer than 6 samples it is the range */
void ha_median_interval(const double *x, size_t n, double *lo, double *hi);
/* least-squares slope of x over its index; NaN for fewer than two */
double ha_slope(const double *x, size_t n);

#endif
