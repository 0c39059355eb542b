#ifndef HA_VARIANTS_FAKE_LEARNER_H
#define HA_VARIANTS_FAKE_LEARNER_H

/* For tests, linked in place of registry.o: the program's variants and one that learns offline. `learner` is
 * `streaming` whose window is learnt: the most tokens that any query head of any layer needs for `share` of the mass
 * that the observed queries have. Its fit has tensor `window`, F32 [layers][q_heads], and where the dataset has inputs
 * `x`, F32 [layers][observed][model_dim], those of the first sequence. */

#include "harness/base/registry.h"

extern const struct ha_variant ha_fake_learner;

/* NULL: it learns. Else what its hook does. */
extern enum ha_status (*ha_fake_learner_fit)(const struct ha_fit_input *in, struct ha_fit_writer *out,
                                             struct ha_why *why);

#endif
