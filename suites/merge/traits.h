#ifndef HA_MERGE_TRAITS_H
#define HA_MERGE_TRAITS_H

/* What a foreign merge (a plugin, a command, a file) declares of itself; an error where it cannot be true. */

#include "harness/api/merge.h"

enum { HA_STATES_MAX = 1 << 20 }; /* of a stranger's merge, and of a file */
#define HA_EPS_MAX 0.01           /* of exp or log; a bound that allows more would accept anything */

/* HA_ERROR with the field, its value and what it may be. The bytes of bools are checked before they are read as bools.
 */
enum ha_status ha_traits_check(const struct ha_merge_traits *traits, struct ha_why *why);
/* One line key=value of those that a command may print: name, forms, dtypes, commutes, plus_inf, states_max, lse_order,
 * exp_eps, log_eps, depth_extra, rescales. */
enum ha_status ha_traits_parse(const char *line, struct ha_merge_traits *traits, char name[64], struct ha_why *why);
/* exp_eps and its like: a number in [0, HA_EPS_MAX] */
enum ha_status ha_eps_parse(const char *key, const char *value, double *out, struct ha_why *why);
/* Turns a name into one that can stand in an id: anything but letters, digits, _ . and - becomes _. */
void ha_subject_name(const char *from, char out[64]);

#endif
