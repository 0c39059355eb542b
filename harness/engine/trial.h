#ifndef HA_ENGINE_TRIAL_H
#define HA_ENGINE_TRIAL_H

/* A point that is asked once, in a process of its own, of which no row is kept. */

#include "harness/engine/serve.h"

/* like: how the run serves its points. HA_NOT_RUN: there was no answer in time, HA_VERDICT_ERROR: its process died. */
enum ha_verdict ha_trial(const struct ha_serve *like, const struct ha_suite *suite, const void *point,
                         uint64_t limit_ns);

#endif
