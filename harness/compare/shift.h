#ifndef HA_COMPARE_SHIFT_H
#define HA_COMPARE_SHIFT_H

/* Has a figure moved? The unit of evidence is the process: its median is one number, whatever many samples are behind
 * it, since samples of one process share its memory and its cores, and pooled they are far surer than they may be
 * (Kalibera & Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013; Hoefler & Belli, Scientific Benchmarking of
 * Parallel Computing Systems, SC 2015). Everything here is in natural logarithms, and above zero is worse. */

#include "harness/api/base.h"
#include "harness/compare/shares.h"

/* The processes of one figure on one side. */
struct ha_side {
    double *x;     /* [count] logarithm of a process' value; "more is better" has its sign turned */
    size_t *night; /* [count] 0, 1, ...; processes of a night stand together */
    size_t count, nights;
};

/* Hosts with two speeds: where the base itself has two, values are taken relative to the one that they are at. What is
 * above cut is at the slow one, which is worse than the fast one by `apart`; a process is within so much of its own. */
struct ha_speeds {
    bool two;
    double cut, fast, apart, within;
};

struct ha_shift {
    double size, lo, hi; /* Hodges and Lehmann's shift and its 95% interval, in which the spread between nights is */
    double p, p_better;  /* one-sided: how likely this is where nothing is worse, or better, by more than least */
    double noticed;      /* from which shift on nine of ten would have been noticed; infinity: none */
    bool suspicious;     /* worth more processes */
    bool beyond, beyond_better; /* every night of the base */
    struct ha_speeds speeds;
    size_t slow[2];        /* processes at the slow speed: of the base, and new */
    double p_slow, p_fast; /* how likely so many of the new ones, or more, are slow, or fast; NaN: of one speed */
    double all;            /* the shift of medians, whatever speed they are at; NaN: of one speed */
};

/* What is no change to anybody. */
#define HA_SHIFT_LEAST 0.015
/* Spread between nights where the base has one night, and nothing is known of it; and the least that is believed. */
#define HA_SHIFT_NIGHTS       0.01
#define HA_SHIFT_NIGHTS_LEAST 0.003
/* One-sided chance from which a figure is worth more processes. */
#define HA_SHIFT_SUSPICION 0.05
/* With fewer new processes nothing is called a change; with so many a suspicion that is not called is none. */
enum { HA_SHIFT_PROCESSES = 10, HA_SHIFT_PROCESSES_MOST = 35 };

/* NaN: not known, of sides with fewer than two nights or processes in them. The squared spread between nights of one
 * figure, less what the processes of a night make of it; below zero where these make more. */
double ha_shift_nights_squared(const struct ha_side *base);
/* Of many figures' squares (their order is changed), each of so many nights: the spread that they share. */
double ha_shift_nights(double *squares, size_t count, size_t nights);

/* Adds a side that has two speeds to what is known of their shares. HA_ERROR: no memory. */
enum ha_status ha_shift_add_shares(struct ha_shares *shares, const struct ha_side *base, struct ha_why *why);

/* What a comparison knows of nights. */
struct ha_shift_nights {
    double spread, shares; /* ha_shift_nights, ha_shares_correlation */
    double alpha;          /* of a night, by which chance anything at all may be called worse where nothing is */
    size_t tests;          /* figures that are compared in it */
};
/* The sides are left as they are. HA_ERROR: no memory. */
enum ha_status ha_shift_find(struct ha_shift *out, const struct ha_side *base, const struct ha_side *now,
                             const struct ha_shift_nights *nights, struct ha_why *why);

/* Benjamini & Hochberg (JRSS B 57, 1995): the largest p of those that may be called, or -1: none. p: [count], in any
 * order; left as it is. */
double ha_shift_threshold(const double *p, size_t count, double alpha);

/* P(U >= u) of Mann and Whitney's U of n over m where both are from one distribution. */
double ha_mann_whitney(size_t n, size_t m, double u);

#endif
