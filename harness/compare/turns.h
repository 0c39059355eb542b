#ifndef HA_COMPARE_TURNS_H
#define HA_COMPARE_TURNS_H

/* Is new slower than old, where both run in turns? One value for each block: the logarithm of new's time over old's, of
 * two processes beside each other, whose order is drawn.
 *
 * Be theta the change, and a and b what else the first and the second process of a block meet. The value is theta + b -
 * a in one order and theta + a - b in the other, and a fair coin drew the order: so, whatever a and b are and whatever
 * other blocks met, value - theta is above zero with chance 1/2, given its size and all of the past. (Assumed is that
 * what a process meets does not depend on its side, and that it makes both slower by a factor.) With the score z = sign
 * times a number from 0 to 1 that follows from sizes until now, the product over blocks of
 * exp(l z) / cosh(l z) = 2 / (1 + exp(-2 l z)) has mean 1 at any end, and so has the mean of such products over several
 * l and scores; by Ville's inequality it ever reaches 1/alpha with chance alpha at most: the test may be looked at
 * after each block, and ends when it likes (Wald, Sequential Analysis, 1947; de la Pena, Lai & Shao, Self-Normalized
 * Processes, 2009, chapters 10 to 14, of such mixtures). Scores are 1, the sign test, which does not care for tails;
 * and the rank of the value's size among those so far, over their number and one: Wilcoxon's by sequential ranks
 * (Reynolds, A sequential signed-rank test for symmetry, Annals of Statistics 3, 1975), of twice the use where tails
 * are light. Each score only falls as theta grows, so that the thetas which are not refused are an interval. */

#include "harness/api/base.h"

enum ha_turns_kind { HA_TURNS_UNDECIDED, HA_TURNS_SAME, HA_TURNS_FASTER, HA_TURNS_SLOWER };

/* A change is called where its interval is above or below nothing and its size is so much or more; none is, where the
 * interval is within HA_TURNS_SAME_WITHIN. */
#define HA_TURNS_LEAST       0.0198 /* log 1.02 */
#define HA_TURNS_SAME_WITHIN 0.0247 /* log 1.025 */

enum { HA_TURNS_BETS = 3, HA_TURNS_ASKED = 4 };
struct ha_turns {
    double alpha;          /* by which chance the interval ever misses the change, of all blocks that follow */
    double *x, *old, *now; /* [count]: the logarithm of now over old, above zero where new is slower */
    size_t count, room[3];
    double bet[HA_TURNS_ASKED][HA_TURNS_BETS]; /* logarithms of the products */
};

struct ha_turns_found {
    enum ha_turns_kind kind;
    double size, lo, hi; /* Hodges and Lehmann's; NaN and infinite without a block */
    double old, now;     /* medians */
};

void ha_turns_begin(struct ha_turns *turns, double alpha);
/* A block: what either side took, above zero. HA_ERROR: no memory. */
enum ha_status ha_turns_add(struct ha_turns *turns, double old, double now, struct ha_why *why);
enum ha_turns_kind ha_turns_decided(const struct ha_turns *turns);
void ha_turns_find(struct ha_turns_found *out, const struct ha_turns *turns);
void ha_turns_free(struct ha_turns *turns);

#endif
