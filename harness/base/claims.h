#ifndef HA_BASE_CLAIMS_H
#define HA_BASE_CLAIMS_H

#include "harness/api/device.h"

/* What a device, a library or a command says of its own rounding. Error bounds are computed from it, so that it decides
 * what is right: each field has a range beyond which no kernel lies that attends or merges at all, and whoever claims
 * more is refused, with the field named. Within the ranges a claim costs sensitivity, which each row shows. */

enum { HA_STATES_MAX = 1 << 20 }; /* of a stranger's merge, and of a file */

/* An exponential by 2^x takes x log2 e rounded, off by half a unit in 104 log2 e at most: 2^-17.3; the fast ones of
 * GPUs claim no more than 2^-16, a cubic polynomial for 2^x on the units that multiply 2^-10. A fast logarithm's error
 * is absolute near 1: 2^-21.4 over the 1e-3 that log_eps is relative to at least (docs/measurement.md). */
#define HA_EXP_EPS_MAX 0x1p-9
#define HA_LOG_EPS_MAX 0x1p-11
/* bfloat16, cut */
#define HA_OPERAND_EPS_MAX 0x1p-7

/* A number of struct ha_merge_traits that may be claimed: a double at `offset`, from 0 to `most`. */
struct ha_claim {
    const char *name;
    size_t offset;
    double most;
};
enum { HA_TRAITS_NUMBERS = 4 };
extern const struct ha_claim ha_traits_numbers[HA_TRAITS_NUMBERS];

/* Every field of a profile as a number, in the order of its claims: types as enum ha_dtype, truths as 0 and 1. */
void ha_profile_numbers(const struct ha_profile *profile, void (*number)(void *arg, const char *name, double value),
                        void *arg);
/* HA_ERROR with the field, its value and what it may be. The bytes of bools are checked before they are read as bools.
 */
enum ha_status ha_profile_check(const char *of, const struct ha_profile *profile, struct ha_why *why);
enum ha_status ha_traits_check(const struct ha_merge_traits *traits, struct ha_why *why);
/* What the open device says of itself now, and HA_ERROR if that cannot be: of attention, products and merges, as far as
 * it offers them. */
enum ha_status ha_device_claims(const struct ha_device_api *api, struct ha_device *device, struct ha_device_info *info,
                                struct ha_why *why);

#endif
