#ifndef HA_COMPARE_FLEET_SPREAD_H
#define HA_COMPARE_FLEET_SPREAD_H

/* How far machines of one kind lie apart, and how likely one is to lie as far out as it does where nothing is wrong
 * with it. Its tails are Student's: they hold what is not known of a spread that few machines tell, and what real
 * machines have more of than a normal distribution does. */

#include "harness/api/base.h"

struct ha_spread {
    size_t count;  /* of values that are there */
    double middle; /* their median */
    double sd;     /* a robust one: of few by Qn (Rousseeuw & Croux, JASA 88, 1993), of many by the median distance */
    double heavy;  /* 1 / degrees of freedom of the tails of machines; 0: a normal distribution's */
    double gap;    /* from so many sd on lie values that are apart from all others; infinity: none */
};

/* With fewer machines than the least nothing is judged; from `shared` on figures tell their tails together, and from
 * `tails` on each its own. */
enum { HA_SPREAD_LEAST = 4, HA_SPREAD_SHARED = 30, HA_SPREAD_TAILS = 400 };
/* Of fewer machines than tell their tails, these: 10 degrees of freedom. */
#define HA_SPREAD_HEAVY 0.1

/* x: [n], NaN where a machine has none; work: room for 2 n. heavy is left 0. */
struct ha_spread ha_spread_find(const double *x, size_t n, double *work);
/* How much longer the worse half's tail is than a normal's, of values over their sd, above zero: [n], whose order is
 * changed; by where the last `part` of them begins. doubt: so many standard errors less than it looks. */
double ha_spread_heavy(double *above, size_t n, double part, double doubt);
/* How likely a value is to lie so far above the middle, or farther. */
double ha_spread_chance(const struct ha_spread *spread, double above);
/* The distance above which that chance is p. */
double ha_spread_distance(const struct ha_spread *spread, double p);

/* P(T > t) of Student's t, t >= 0; freedom: infinity is the normal distribution. */
double ha_t_tail(double t, double freedom);
double ha_t_quantile(double p, double freedom);

/* Benjamini & Hochberg of `of` tests, of which the p that are small stand in p: [count], whose order is changed. The
 * largest that may be called; -1: none. */
double ha_spread_threshold(double *p, size_t count, double of, double alpha);

#endif
