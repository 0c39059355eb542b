#ifndef HA_REFERENCE_DEFINITIONS_H
#define HA_REFERENCE_DEFINITIONS_H

/* What the definitions share. */

#include "harness/api/reference.h"

/* how many ha_def_head.index can be */
static inline size_t ha_def_heads(const struct ha_shape *s) { return s->layers * s->batch * s->q_heads; }

/* HA_FAIL: `VARIANT layer 0 seq 0 head 3: ` and what is wrong */
enum ha_status ha_def_wrong(const struct ha_def_head *h, struct ha_why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Attention weights as the definitions need them: a rule that compares weights can only be judged up to what binary32
 * makes of a weight. */
struct ha_ref_weight {
    double value, tol;
};

/* weight[j].value = the mean over h's queries of their softmax weight on key j, a query that sees no key adding 0;
 * |got - value| <= tol for any mean of weights computed in binary32 by who has the profile h->observer. The keys are
 * the tokens first + j, or where token is not NULL token[j], ascending; a query sees those that are not after its own.
 * HA_ERROR: no memory. */
enum ha_status ha_ref_observe(const struct ha_shape *shape, const struct ha_def_head *h, const uint32_t *token,
                              size_t first, size_t keys, struct ha_ref_weight *weight, struct ha_why *why);

#endif
