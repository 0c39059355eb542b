#ifndef HA_TUNE_RACE_H
#define HA_TUNE_RACE_H

/* Which of some candidates is the fastest, by samples that are noisy: successive halving (Jamieson and Talwalkar 2016),
 * in rounds of an order drawn anew, each sample a share of what memory gives in the same moment. Knows nothing of what
 * is measured. */

#include "harness/api/base.h"

enum { HA_CANDIDATES_MOST = 64 };

struct ha_race_share {
    double median, lo, hi; /* and the 95% interval of it; NaN: no sample */
};

struct ha_race {
    /* One sample of a candidate, the larger the better. NaN: it was disturbed, and says nothing. */
    double (*sample)(void *arg, size_t candidate);
    bool (*late)(void *arg); /* no time is left; NULL: there always is */
    void *arg;
    size_t candidates; /* up to HA_CANDIDATES_MOST, those that are preferred first. The first is what holds without a
                        * choice: another one must be better beyond doubt */
    size_t final;      /* samples of each of the last few, at least, from 2 */
    uint64_t seed;     /* of the order */
    struct ha_race_share *each; /* [candidates], filled in, sure or not; NULL: not asked for */
};

enum ha_race_end {
    HA_RACE_SURE,
    HA_RACE_DISTURBED, /* too few samples were worth something, or they differ too much */
    HA_RACE_LATE,      /* there was no time */
};

struct ha_race_result {
    enum ha_race_end end; /* unless sure, the winner is the first candidate */
    size_t winner;
    double median, lo, hi; /* of the winner, and the 95% interval of that; NaN: no sample */
    double first;          /* median of the first candidate in the same rounds */
    double best;           /* the largest median of the last few, sure or not; NaN: no sample */
};

enum ha_status ha_race(const struct ha_race *race, struct ha_race_result *result, struct ha_why *why);

#endif
