#ifndef HA_ACCURACY_H
#define HA_ACCURACY_H

/* Sums over judged queries -> the figures of questions 1 and 3. */

#include "suites/variants/oracle.h"

struct ha_accuracy {
    double err_over_bound;
    double diff2, norm2;
    double rel_l2_head_max;
    double mass_min, mass_sum, cert_slack, recall_sum;
    double keys_sum, visible_sum;
    size_t queries, mass_count, slack_count, recall_count, rel_count;
    bool everything; /* every query used every key that it could see */
};

void ha_accuracy_start(struct ha_accuracy *a);
/* the query heads of one query token */
void ha_accuracy_add(struct ha_accuracy *a, const struct ha_judged *heads, size_t count);
void ha_accuracy_join(struct ha_accuracy *a, const struct ha_accuracy *b);
double ha_accuracy_rel_l2(const struct ha_accuracy *a); /* NaN where it was not asked */

#endif
