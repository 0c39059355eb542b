#include "harness/compare/turns.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

static const struct {
    bool rank;
    double l;
} bets[HA_TURNS_BETS] = { { false, 0.3 }, { true, 0.8 }, { true, 4 } };

/* Is the change more than theta (sign 1), or less (-1)? */
struct question {
    double sign, theta;
};
enum { ABOVE_NOTHING, BELOW_NOTHING, BELOW_MOST, ABOVE_LEAST };
static const struct question asked[HA_TURNS_ASKED] = { [ABOVE_NOTHING] = { 1, 0 },
                                                       [BELOW_NOTHING] = { -1, 0 },
                                                       [BELOW_MOST] = { -1, HA_TURNS_SAME_WITHIN },
                                                       [ABOVE_LEAST] = { 1, -HA_TURNS_SAME_WITHIN } };

void ha_turns_begin(struct ha_turns *t, double alpha) { *t = (struct ha_turns){ .alpha = alpha }; }

void ha_turns_free(struct ha_turns *t)
{
    free(t->x);
    free(t->old);
    free(t->now);
    ha_turns_begin(t, t->alpha);
}

/* ---- evidence ---------------------------------------------------------------------------------------------------- */

/* Block i, when all before it are in the products. */
static void bet_on(double bet[HA_TURNS_BETS], const double *x, size_t i, struct question q)
{
    const double own = q.sign * (x[i] - q.theta), size = fabs(own);
    size_t rank = 0;
    for (size_t j = 0; j <= i; j++) rank += fabs(x[j] - q.theta) <= size;
    for (size_t k = 0; k < HA_TURNS_BETS; k++) {
        const double score = bets[k].rank ? (double)rank / (double)(i + 2) : 1;
        if (own != 0) bet[k] += M_LN2 - log1p(exp(-2 * bets[k].l * copysign(score, own)));
    }
}

/* The logarithm of the mean of the products. */
static double evidence(const double bet[HA_TURNS_BETS])
{
    double most = bet[0], sum = 0;
    for (size_t k = 1; k < HA_TURNS_BETS; k++) most = fmax(most, bet[k]);
    for (size_t k = 0; k < HA_TURNS_BETS; k++) sum += exp(bet[k] - most);
    return most + log(sum / HA_TURNS_BETS);
}

/* Half of alpha for each direction. */
static bool enough(const struct ha_turns *t, const double bet[HA_TURNS_BETS])
{
    return evidence(bet) >= log(2 / t->alpha);
}

enum ha_status ha_turns_add(struct ha_turns *t, double old, double now, struct ha_why *why)
{
    double **const values[] = { &t->x, &t->old, &t->now };
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        if (!ha_array_room(values[k], &t->room[k], t->count + 1, sizeof **values[k]))
            return ha_why(why, HA_ERROR, "out of memory");
    t->x[t->count] = log(now / old);
    t->old[t->count] = old;
    t->now[t->count] = now;
    for (size_t k = 0; k < HA_TURNS_ASKED; k++) bet_on(t->bet[k], t->x, t->count, asked[k]);
    t->count++;
    return HA_OK;
}

/* ---- size, interval, verdict ------------------------------------------------------------------------------------- */

/* The median of the means of any two, or of one. */
static double hodges_lehmann(const double *x, size_t n)
{
    size_t k = 0;
    double *mean = malloc((n * (n + 1) / 2 + 1) * sizeof *mean);
    for (size_t i = 0; mean && i < n; i++)
        for (size_t j = 0; j <= i; j++) mean[k++] = (x[i] + x[j]) / 2;
    const double median = k ? ha_median(mean, k) : (double)NAN;
    free(mean);
    return median;
}

enum ha_turns_kind ha_turns_decided(const struct ha_turns *t)
{
    const bool slower = enough(t, t->bet[ABOVE_NOTHING]), faster = enough(t, t->bet[BELOW_NOTHING]);
    const double size = slower || faster ? hodges_lehmann(t->x, t->count) : 0;
    if (slower && size >= HA_TURNS_LEAST) return HA_TURNS_SLOWER;
    if (faster && size <= -HA_TURNS_LEAST) return HA_TURNS_FASTER;
    return enough(t, t->bet[BELOW_MOST]) && enough(t, t->bet[ABOVE_LEAST]) ? HA_TURNS_SAME : HA_TURNS_UNDECIDED;
}

static bool refused(const struct ha_turns *t, struct question q)
{
    double bet[HA_TURNS_BETS] = { 0 };
    for (size_t i = 0; i < t->count; i++) bet_on(bet, t->x, i, q);
    return enough(t, bet);
}

/* The farthest theta that is refused: of sign 1 that below which the change is not. */
static double bound(const struct ha_turns *t, double sign)
{
    double most = 0;
    for (size_t i = 0; i < t->count; i++) most = fmax(most, fabs(t->x[i]));
    double in = sign * (most + 1), out = -in; /* no value is above in, and all are above out */
    if (!refused(t, (struct question){ sign, out })) return sign * -(double)INFINITY;
    for (int i = 0; i < 50; i++) {
        const double middle = (in + out) / 2;
        if (refused(t, (struct question){ sign, middle })) out = middle;
        else in = middle;
    }
    return out;
}

void ha_turns_find(struct ha_turns_found *out, const struct ha_turns *t)
{
    *out = (struct ha_turns_found){ ha_turns_decided(t), hodges_lehmann(t->x, t->count), bound(t, 1),
                                    bound(t, -1),        ha_median(t->old, t->count),    ha_median(t->now, t->count) };
}
