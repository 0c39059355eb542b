#ifndef HA_ENGINE_FILTER_H
#define HA_ENGINE_FILTER_H

/* What -f says: terms joined by commas, all of which a point must fit: key=value, key!=value, or a part of the id. A
 * point without the key fits no key=value and every key!=value. The key `suite` is every point's. */

#include "harness/api/suite.h"

struct ha_filter;

/* HA_ERROR: there is no suite with such a key; why names the nearest of all suites. */
enum ha_status ha_filter_create(struct ha_filter **filter, const char *text, struct ha_why *why);
bool ha_filter_fits(struct ha_filter *filter, const struct ha_suite *suite, const void *point, const char *id);
/* Once every point was asked for: HA_ERROR where a value is one that the key does not take, neither in any of those
 * points nor in any suite that has it. */
enum ha_status ha_filter_check(const struct ha_filter *filter, struct ha_why *why);
void ha_filter_destroy(struct ha_filter *filter);

#endif
