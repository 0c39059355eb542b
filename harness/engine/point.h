#ifndef HA_ENGINE_POINT_H
#define HA_ENGINE_POINT_H

/* A point of a suite by its keys: one table for ids, suite files, filters, options and lists. */

#include "harness/api/suite.h"

/* Key i of this point: those of the table, then those of its own (suite->more); NULL behind the last. room: memory
 * for a key that is made for this point. */
const struct ha_key *ha_point_key(const struct ha_suite *suite, const void *point, size_t i, struct ha_key *room);
/* whether the point has this key: i as above */
bool ha_point_uses(const struct ha_suite *suite, const void *point, size_t i);
/* by name; NULL: the point has no such key */
const struct ha_key *ha_point_find(const struct ha_suite *suite, const void *point, const char *name,
                                   struct ha_key *room);
/* every key at its default, where that is no "*" */
void ha_point_clear(const struct ha_suite *suite, void *point);
/* HA_ERROR names the key, the wrong value and the nearest right one. */
enum ha_status ha_point_set(void *point, const struct ha_key *key, const char *value, struct ha_why *why);
/* by name; HA_ERROR also where the point has no such key */
enum ha_status ha_point_set_named(const struct ha_suite *suite, void *point, const char *name, const char *value,
                                  struct ha_why *why);
void ha_point_value(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX]);
/* false where the point has no such key */
bool ha_point_get(const struct ha_suite *suite, const void *point, const char *name, char out[HA_VALUE_MAX]);
/* the id, as snprintf: what ha_plan reads back, with every key that is not at its default */
size_t ha_point_print(const struct ha_suite *suite, const void *point, char *out, size_t size);
/* the default of a key of this point, as text */
const char *ha_key_standard(const void *point, const struct ha_key *key, char out[HA_VALUE_MAX]);
/* what an id may begin with, behind names[n]: variants, and suites without a key that stands for them */
enum { HA_NAMES_MAX = 256 };
void ha_heads(const char *names[HA_NAMES_MAX + 1], size_t n);
/* by name; NULL: there is none, and why says which is near */
const struct ha_suite *ha_suite_named(const char *name, struct ha_why *why);
/* Is there a key of this name in any point of the suite? */
bool ha_suite_has_key(const struct ha_suite *suite, const char *name);
/* the key by whose value an id begins, or NULL */
const struct ha_key *ha_suite_head(const struct ha_suite *suite);
/* HA_ERROR with the nearest key: of the point, of the whole suite where point is NULL, or of all suites where suite is
 * NULL */
enum ha_status ha_key_unknown(const struct ha_suite *suite, const void *point, const char *name, struct ha_why *why);

/* A digit string without sign, blank or overflow; *end: behind it. */
bool ha_whole_parse(const char *text, uint64_t *out, const char **end);
/* shortest decimal text that reads back as the same number */
void ha_number_print(double x, char out[HA_VALUE_MAX]);

#endif
