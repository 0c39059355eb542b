#include "harness/measure/sampling.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

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

struct ha_estimate ha_estimate(const double *x, size_t count)
{
    struct ha_estimate e = { .median = ha_median(x, count) };
    ha_median_interval(x, count, &e.lo, &e.hi);
    return e;
}

bool ha_sampling_enough(const struct ha_sampling *rule, const double *x, size_t count)
{
    if (count < rule->least) return false;
    if (rule->most && count >= rule->most) return true;
    const struct ha_estimate e = ha_estimate(x, count);
    return (e.hi - e.lo) / 2 <= rule->interval * e.median;
}
