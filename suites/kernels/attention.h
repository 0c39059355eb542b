#ifndef HA_CPU_ATTENTION_H
#define HA_CPU_ATTENTION_H

/* The attentions of a point, a unit for each KV head of each sequence, and their check. */

#include "suites/kernels/work.h"

struct ha_cpu_attention {
    struct ha_attend *unit; /* [units] */
    struct ha_rows *runs;   /* [units] */
    float *q, *o, *lse;     /* [units][q_len][group][head_dim], and without the last */
    char *fresh;            /* natural rows of the query tokens beside packed keys: [units]; or NULL */
    uint32_t *list;         /* [lists][units][chosen] blocks, ascending; or NULL: all keys */
    size_t lists;
    struct ha_attend_all all;
};

/* lists: 0, or how many lists of random blocks; their blocks may be set later */
enum ha_status ha_cpu_attention_open(struct ha_cpu_attention *a, struct ha_cpu_work *work, size_t lists,
                                     struct ha_why *why);
/* its keys are those of the work's turn */
void ha_cpu_attention_turn(struct ha_cpu_attention *a, const struct ha_cpu_work *work);
void ha_cpu_attention_run(struct ha_cpu_attention *a, const struct ha_cpu_work *work);
/* Some rows of some units against the reference, and every number finite. */
enum ha_status ha_cpu_attention_check(const struct ha_cpu_attention *a, const struct ha_cpu_work *work,
                                      double *err_over_bound, struct ha_why *why);

#endif
