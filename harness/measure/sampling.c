#include "harness/measure/sampling.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

enum ha_status ha_series_add(struct ha_series *s, double x, struct ha_why *why)
{
    if (!ha_array_room(&s->x, &s->room, s->count + 1, sizeof *s->x))
        return ha_why(why, HA_ERROR, "no memory for samples");
    s->x[s->count++] = x;
    return HA_OK;
}

void ha_series_free(struct ha_series *s)
{
    free(s->x);
    *s = (struct ha_series){ 0 };
}

struct ha_estimate ha_series_estimate(const struct ha_series *s)
{
    const double none = (double)NAN;
    struct ha_estimate e = { none, none, none };
    if (!s->count) return e;
    e.median = ha_median(s->x, s->count);
    ha_median_interval(s->x, s->count, &e.lo, &e.hi);
    return e;
}

bool ha_sampling_enough(const struct ha_sampling *rule, const struct ha_series *s)
{
    if (s->count < rule->least) return false;
    if (rule->most && s->count >= rule->most) return true;
    const struct ha_estimate e = ha_series_estimate(s);
    return (e.hi - e.lo) / 2 <= rule->interval * e.median;
}
