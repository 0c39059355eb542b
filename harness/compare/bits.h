#ifndef HA_COMPARE_BITS_H
#define HA_COMPARE_BITS_H

/* Outputs that are not the same bits, where they must be: a machine that computes wrong now and then, or a result that
 * depends on more than its input. */

#include "harness/compare/record.h"

struct ha_other_bits {
    size_t others;             /* processes of the new record that have other bits; 0: none */
    const char *want, *digest; /* what they must have; what the first of these has */
    bool of_base;              /* want is what all processes of the base have; else the first new one's */
};

/* Of a case of `now`, each process beside those of the base with the same plan, of nights that count and of which the
 * same bits are to be expected (ha_night_same_bits); where there are none, or these do not agree themselves, beside the
 * first such process of `now`. base_case: NULL: the base has none. */
struct ha_other_bits ha_other_bits(const struct ha_record *base, const struct ha_recorded_case *base_case,
                                   const bool *counts, const struct ha_record *now,
                                   const struct ha_recorded_case *now_case);

#endif
