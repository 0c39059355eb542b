#ifndef HA_ENGINE_FAIR_H
#define HA_ENGINE_FAIR_H

/* Which cases go on where --max-time is shorter than all processes of all cases take. Each case may have as much time
 * as any other; the time that a case does not need goes to the others (max-min fairness). */

#include "harness/api/base.h"

#include <stdio.h>

struct ha_fair_case {
    double least_s; /* of its processes: the others were held up; 0: none has run */
    size_t ran;     /* processes */
    bool left_out;
};

/* How much time each case may have in all, where left_s are left and each is to run in `wanted` processes;
 * infinity: all of it fits. */
double ha_fair_level(const struct ha_fair_case *of, size_t count, size_t wanted, double left_s);
/* Is there time for one more process? The first two are always run: one alone does not say how long it takes. */
bool ha_fair_goes_on(const struct ha_fair_case *of, double level_s);

/* "10 of 24 cases ran in all 5 processes, 12 in 4, 2 in none"; cases: [wanted + 1], how many ran in so many. */
void ha_fair_print(FILE *out, const size_t *cases, size_t wanted);

#endif
