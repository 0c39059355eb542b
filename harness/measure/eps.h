#ifndef HA_MEASURE_EPS_H
#define HA_MEASURE_EPS_H

/* How far off a device's exp and log are, seen from outside: by its own merge and attention, of two states or two keys
 * that leave nothing but one exponential, over [-104, 0] and around every power of two of argument and result. What
 * else may round there is known: a claim (struct ha_profile, struct ha_merge_traits) below the rest is not true. */

#include "harness/api/device.h"

/* Relative errors, of log to |log| + 1e-3. NaN: the device does not offer what would show it. */
struct ha_eps_seen {
    double worst;   /* seen, with a few roundings besides; of exp in attention over [-1, 0], where no score has many */
    double least;   /* that the function has: what may round besides is taken off */
    double dropped; /* of a merge: the largest weight that was 0 in place of what it is; 0: none */
};
struct ha_eps {
    struct ha_eps_seen exp[HA_DTYPE_COUNT], log[HA_DTYPE_COUNT]; /* of attend, by the type of K and V */
    struct ha_eps_seen merge_exp, merge_log;                     /* of merge in binary32 */
};

/* What merges are asked: argument i of so many, 0 to -104; the same in every call. */
enum { HA_EPS_ARGUMENTS = 1024, HA_EPS_LOGS = 128 };
void ha_eps_arguments(float x[HA_EPS_ARGUMENTS], size_t count);
/* Takes note of a merge of (1, 0, ...) with L = 0 and (0, 1, ...) with L = x: o[0], o[1] and the natural L in binary32
 * or better; exp_eps: as claimed. Both begin as NaN. A merge that drops weights of 2^-24 and more is wrong where there
 * are such; of its functions that says nothing. */
void ha_eps_note_merge(struct ha_eps_seen *exp, struct ha_eps_seen *log, double x, double o0, double o1, double lse,
                       double exp_eps);
/* HA_FAIL with the field, if the function is further off than is claimed. of: traits, profile[f16] */
enum ha_status ha_eps_holds(const char *of, const char *field, double claimed, const struct ha_eps_seen *seen,
                            struct ha_why *why);

/* HA_ERROR: the device failed. One of kind null is not asked. */
enum ha_status ha_eps_measure(struct ha_eps *out, const struct ha_device_api *api, struct ha_device *device,
                              struct ha_why *why);
/* HA_FAIL with the field, if a function of attention over this type, or of merges, is further off than the device says.
 */
enum ha_status ha_eps_check(const struct ha_eps *eps, const struct ha_device_info *info, enum ha_dtype dtype,
                            struct ha_why *why);

#endif
