#include "harness/engine/fair.h"

#include <math.h>

enum { FIRST = 2 };

/* What the cases take beyond what they have had, if none gets more than level_s in all. */
static double taken(const struct ha_fair_case *of, size_t count, size_t wanted, double level_s)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        const double one = of[i].least_s, had = one * (double)of[i].ran;
        sum += fmax(0, fmin(one * (double)wanted, level_s) - had);
    }
    return sum;
}

double ha_fair_level(const struct ha_fair_case *of, size_t count, size_t wanted, double left_s)
{
    double lo = 0, hi = left_s;
    if (taken(of, count, wanted, (double)INFINITY) <= left_s) return (double)INFINITY;
    for (size_t i = 0; i < count; i++) hi = fmax(hi, of[i].least_s * (double)of[i].ran + left_s);
    for (int i = 0; i < 40; i++) {
        const double middle = (lo + hi) / 2;
        if (taken(of, count, wanted, middle) > left_s) hi = middle;
        else lo = middle;
    }
    return lo;
}

bool ha_fair_goes_on(const struct ha_fair_case *of, double level_s)
{
    return of->ran < FIRST || of->least_s * (double)(of->ran + 1) <= level_s;
}

void ha_fair_print(FILE *out, const size_t *cases, size_t wanted)
{
    size_t all = 0;
    for (size_t k = 0; k <= wanted; k++) all += cases[k];
    fprintf(out, "%zu of %zu cases ran in all %zu processes", cases[wanted], all, wanted);
    for (size_t k = wanted; k--;)
        if (cases[k] && k) fprintf(out, ", %zu in %zu", cases[k], k);
        else if (cases[k]) fprintf(out, ", %zu in none", cases[k]);
}
