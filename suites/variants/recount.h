#ifndef HA_RECOUNT_H
#define HA_RECOUNT_H

/* What a variant counts, counted once more from the keys and notes that it reports: a column that is believed as it is
 * said may be anything. */

#include "harness/api/reference.h"

/* Over layers, steps, sequences and query heads. Begins zeroed. */
struct ha_recount {
    double heads;             /* how many selections */
    double host, device;      /* keys, by side */
    double recalls;           /* layers of steps with the note `recall` */
    size_t step, layer;       /* where the last one of these was */
    bool recalled, unsettled; /* there was one; some part was whichever side's was free */
};
/* One head of a step. Those of a layer follow each other. */
void ha_recount_add(struct ha_recount *r, size_t step, size_t layer, const struct ha_selection *selection);
/* HA_FAIL with the first counter that is another number. A share that the variant does not know (NaN) though it counts
 * the keys of its CPU side, because the lengths of its lists are the device's, is filled in. */
enum ha_status ha_recount_judge(const struct ha_recount *r, struct ha_counters *c, struct ha_why *why);
struct ha_counted; /* suites/variants/check.h */
/* HA_FAIL unless of what the definition counts the variant has counted the same. */
enum ha_status ha_recount_counted(const struct ha_definition *definition, const struct ha_def *def,
                                  const struct ha_counted *counted, struct ha_why *why);

/* Of a timed pass with other inputs than those of the checked one, the numbers that a case has: what was counted there,
 * with the times of this one. varies: they are this pass's own. */
struct ha_check;
void ha_recount_of_case(const struct ha_check *checked, bool varies, struct ha_counters *c, struct ha_counted *counted);
/* Of another pass over the same steps, whose selections were not recorded: what both passes count, times (_ns) apart,
 * is the same. varies: it may have used other keys. A share that it does not know is that of the checked pass. */
enum ha_status ha_recount_again(const struct ha_check *checked, bool varies, struct ha_counters *c,
                                const struct ha_counted *counted, struct ha_why *why);

#endif
