#include "harness/compare/machine.h"

#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/sides.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* NaN: it has none in these nights */
static double usual(const struct ha_recorded_case *of, const char *figure, const bool *counts)
{
    const struct ha_recorded_figure *f = of ? ha_record_figure(of, figure) : NULL;
    double *values = NULL;
    const size_t n = f ? ha_values_of(f, counts, &values) : 0;
    const double median = n ? ha_median(values, n) : (double)NAN;
    free(values);
    return median;
}

/* Turns what each case usually reads into what its readings are to be multiplied by; level: of all cases of the base.
 */
static void turn(double *scale, size_t count, double level)
{
    for (size_t i = 0; i < count; i++) scale[i] = scale[i] > 0 ? level / scale[i] : (double)NAN;
}

static double level_of(const double *of_case, size_t count)
{
    double *known = malloc((count + 1) * sizeof *known);
    size_t n = 0;
    for (size_t i = 0; known && i < count; i++)
        if (of_case[i] > 0) known[n++] = of_case[i];
    const double level = n ? ha_median(known, n) : (double)NAN;
    free(known);
    return level;
}

static enum ha_status add_part(struct ha_record out[2], const struct ha_record *base, const struct ha_record *now,
                               const bool *counts, const struct ha_recorded_case *const *pair, const char *figure,
                               struct ha_why *why)
{
    double *before = malloc((base->count + 1) * sizeof *before), *after = malloc((now->count + 1) * sizeof *after);
    enum ha_status status = before && after ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) {
        for (size_t i = 0; i < base->count; i++) {
            const bool machine = !strcmp(base->cases[i]->id, HA_MACHINE_CASE);
            before[i] = machine ? (double)NAN : usual(base->cases[i], figure, counts);
        }
        for (size_t i = 0; i < now->count; i++) after[i] = usual(pair[i], figure, counts);
        const double level = level_of(before, base->count);
        turn(before, base->count, level);
        turn(after, now->count, level);
        status = ha_record_add_readings(&out[0], base, figure, before, why);
    }
    if (status == HA_OK) status = ha_record_add_readings(&out[1], now, figure, after, why);
    free(before);
    free(after);
    return status;
}

enum ha_status ha_machine_of_both(struct ha_record out[2], const struct ha_record *base, const struct ha_record *now,
                                  const bool *counts, const struct ha_recorded_case *const *pair, struct ha_why *why)
{
    HA_TRY(ha_record_begin(&out[0], base->path ? base->path : "", why));
    HA_TRY(ha_record_begin(&out[1], now->path, why));
    for (const struct ha_part_of_machine *p = ha_parts_of_machine; p->figure; p++)
        HA_TRY(add_part(out, base, now, counts, pair, p->figure, why));
    return HA_OK;
}
