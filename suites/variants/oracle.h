#ifndef HA_ORACLE_H
#define HA_ORACLE_H

/* Questions 1 and 3 for one layer of one sequence: the outputs beside binary64 attention over
 * the keys that were reported, and beside full attention. */

#include "suites/variants/chosen.h"

/* One query: query token t, query head h at [t * q_heads + h]. */
struct ha_judged {
    double ratio;       /* error / bound, the largest over the elements */
    double want, bound; /* at that element */
    float got;
    size_t element;                                /* head_dim: the LSE */
    size_t keys, visible;                          /* used, of how many it could see */
    double diff2, norm2, mass, cert_slack, recall; /* question 3; NaN where there is none */
};

/* What the output must be, kept so that later passes can be compared. */
struct ha_expected {
    double *o, *o_bound;     /* [rows][head_dim] */
    double *lse, *lse_bound; /* [rows] */
};

/* judged: of this sequence, [q_len][q_heads]; expected too, or NULL: not kept */
enum ha_status ha_oracle_judge(const struct ha_pass *pass, const struct ha_chosen *chosen, size_t step, size_t layer,
                               size_t seq, struct ha_judged *judged, const struct ha_expected *expected,
                               struct ha_why *why);

/* Sums over judged queries -> the figures of questions 1 and 3. */
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
