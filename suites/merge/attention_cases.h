#ifndef HA_MERGE_ATTENTION_CASES_H
#define HA_MERGE_ATTENTION_CASES_H

/* The cases of attention.c, as data. */

#include "suites/merge/attention_parts.h"

struct ha_attention_recipe {
    size_t shapes;
    /* Shape p->id: completes a problem whose type, head_dim, group and scale are set (3 types in turn, 5 head_dims in
     * turn after that), with one sequence, KV head, query token. keys: of a single run; or it sets the runs. */
    void (*shape)(struct ha_problem *p);
    void (*fill)(const struct ha_problem *p); /* changes what is hard about the data; NULL: nothing */
    void (*spoil)(struct ha_problem *p);      /* after the oracle has answered; NULL: nothing */
    bool split;                               /* runs attended by themselves and merged */
};
/* in the order of ha_attention_cases */
extern const struct ha_attention_recipe ha_attention_recipes[];

#endif
