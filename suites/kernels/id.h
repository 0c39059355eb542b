#ifndef HA_CPU_ID_H
#define HA_CPU_ID_H

/* One figure of a CPU kernel, one string: cpu_kernels:kernel=attend,dtype=f16,ctx=32768. What it leaves out has its
 * default. */

#include "suites/kernels/keys.h"

enum { HA_CPU_ID_MAX = 256, HA_CPU_VALUE_MAX = 32 };

const char *ha_cpu_key_name(enum ha_cpu_key key);
/* HA_ERROR with the nearest name where there is no such key */
enum ha_status ha_cpu_key_find(const char *name, enum ha_cpu_key *key, struct ha_why *why);

void ha_cpu_point_default(struct ha_cpu_point *point);
/* One key, not yet held against the others. HA_ERROR names the wrong value and the nearest right one. */
enum ha_status ha_cpu_point_set(struct ha_cpu_point *point, enum ha_cpu_key key, const char *value, struct ha_why *why);
/* Keys that the kernel does not use to their defaults; then are they possible together? */
enum ha_status ha_cpu_point_settle(struct ha_cpu_point *point, struct ha_why *why);
void ha_cpu_value_print(const struct ha_cpu_point *point, enum ha_cpu_key key, char out[HA_CPU_VALUE_MAX]);
/* all keys that the kernel uses */
void ha_cpu_point_print(const struct ha_cpu_point *point, char out[HA_CPU_ID_MAX]);
/* terms: "kernel=attend,dtype=f16", behind the colon of an id */
enum ha_status ha_cpu_point_parse(const char *terms, struct ha_cpu_point *point, struct ha_why *why);

/* Filters: terms joined by commas, all of which a point must fit: key=value, key!=value, or a part of the id. A point
 * whose kernel does not use the key fits no key=value and every key!=value. */
enum ha_status ha_cpu_filter_check(const char *filter, struct ha_why *why);
bool ha_cpu_filter_fits(const char *filter, const struct ha_cpu_point *point);

#endif
