/* A choice by scores of which only a part is seen.
 *
 * A choice is right where each that is in may be as large as each that is out: there is a number t that all that are in
 * may reach (high >= t), and all that are out may be no larger than (low <= t). For a given t those that may be either
 * are in where low > t, out where high < t, and else whichever is needed. So the least t that leaves no more of them in
 * than are needed must not be larger than the largest that leaves as many. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

enum ha_status ha_def_partial_begin(struct ha_def_partial *p, const struct ha_ref_score *score, const uint8_t *is,
                                    size_t count, size_t want, struct ha_why *why)
{
    *p = (struct ha_def_partial){ .score = score,
                                  .count = count,
                                  .want = want < count ? want : count,
                                  .weakest = count,
                                  .strongest = count,
                                  .least = HUGE_VAL,
                                  .most = -HUGE_VAL };
    p->low = malloc((2 * count + 1) * sizeof *p->low);
    if (!p->low) return ha_why(why, HA_ERROR, "reference: no memory for a choice of %zu", count);
    p->high = p->low + count;
    for (size_t i = 0; i < count; i++) {
        if (is[i] == HA_DEF_MAYBE) p->low[p->maybe] = score[i].low, p->high[p->maybe++] = score[i].high;
        if (is[i] == HA_DEF_OUT && score[i].low >= p->most) p->most = score[i].low, p->strongest = i;
        if (is[i] == HA_DEF_IN && score[i].high <= p->least) p->least = score[i].high, p->weakest = i;
        p->in += is[i] == HA_DEF_IN;
    }
    qsort(p->low, p->maybe, sizeof *p->low, descending);
    qsort(p->high, p->maybe, sizeof *p->high, descending);
    return HA_OK;
}

void ha_def_partial_end(struct ha_def_partial *p)
{
    free(p->low);
    p->low = p->high = NULL;
}

/* x: [n] descending; the one with i before it, `without` (NULL: none) not being one of them */
static double nth(const double *x, size_t n, size_t i, const double *without)
{
    if (without && i < n && *without >= x[i]) i++;
    return i < n ? x[i] : -HUGE_VAL;
}

/* with the one that is IN or OUT and was MAYBE, NULL: none */
static bool possible(const struct ha_def_partial *p, const struct ha_ref_score *now, bool in)
{
    const size_t maybe = p->maybe - (now ? 1 : 0), are = p->in + (now && in);
    if (are > p->want || p->want - are > maybe) return false;
    const size_t need = p->want - are;
    const double *low = now ? &now->low : NULL, *high = now ? &now->high : NULL;
    double from = fmax(p->most, nth(p->low, p->maybe, need, low)), to = p->least;
    if (need) to = fmin(to, nth(p->high, p->maybe, need - 1, high));
    if (now && in) to = fmin(to, now->high);
    if (now && !in) from = fmax(from, now->low);
    return from <= to;
}

bool ha_def_partial_is(const struct ha_def_partial *p) { return possible(p, NULL, false); }

bool ha_def_partial_may(const struct ha_def_partial *p, size_t candidate, enum ha_def_known be)
{
    return possible(p, &p->score[candidate], be == HA_DEF_IN);
}

enum ha_status ha_def_partial_learn(const struct ha_ref_score *score, uint8_t *is, size_t count, size_t want,
                                    struct ha_why *why)
{
    struct ha_def_partial p;
    HA_TRY(ha_def_partial_begin(&p, score, is, count, want, why));
    for (size_t i = 0; i < count; i++) {
        if (is[i] != HA_DEF_MAYBE) continue;
        if (!ha_def_partial_may(&p, i, HA_DEF_OUT)) is[i] = HA_DEF_IN;
        else if (!ha_def_partial_may(&p, i, HA_DEF_IN)) is[i] = HA_DEF_OUT;
    }
    ha_def_partial_end(&p);
    return HA_OK;
}
