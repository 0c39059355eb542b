#ifndef HA_COMPARE_SHARES_H
#define HA_COMPARE_SHARES_H

/* Of a host with two speeds, how many processes of a night are slow. The share differs from night to night, by so much
 * as nights of the base show: the count is beta-binomial, of a share p with a correlation rho within a night (Skellam,
 * JRSS B 10, 1948). */

#include <stddef.h>

/* What nights of many figures show of the correlation; zero to begin with. */
struct ha_shares {
    double chi, freedom; /* Pearson's sum of squares by night, and what it is of without a correlation */
    double size;         /* sum over figures of the size of a night, times their freedom */
};
/* A figure, with slow[i] of all[i] processes at the slow speed in each of its nights. */
void ha_shares_add(struct ha_shares *shares, const size_t *slow, const size_t *all, size_t nights);
/* So many nights are the freedom of the estimate, however many figures share them. Of one night nothing is known, and
 * it is HA_SHARES_ASSUMED. */
double ha_shares_correlation(const struct ha_shares *shares, size_t nights);
#define HA_SHARES_ASSUMED 0.1

/* How likely k or more of n are slow, where base_slow of base processes were. */
double ha_shares_tail(size_t n, size_t k, size_t base_slow, size_t base, double correlation);

#endif
