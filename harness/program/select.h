#ifndef HA_SELECT_H
#define HA_SELECT_H

#include "harness/program/options.h"
#include "suites/variants/suite.h"

#define ha_filter_fits ha_case_filter_fits /* the engine has one of this name (harness/engine/point.h) */

/* A filter: terms joined by commas, all of which a case must fit. key=value and key!=value compare the value
 * of a key of the case, of a param of its variant (a variant without it never fits = and always fits !=),
 * of `variant` or of `family`; values compare as the case would hold them: heads=8 is heads=8/8. Any other
 * term must be a part of the case's id. */
enum ha_status ha_filter_check(const char *filter, struct ha_why *why);
bool ha_filter_fits(const char *filter, const struct ha_case *c);

/* The cases that words[0..count) name, suites and ids, with the options that replace keys applied, filtered;
 * a case that is there twice is taken once. At least one, or HA_ERROR. */
enum ha_status ha_select(const struct ha_options *o, char **words, size_t count, struct ha_case_list *list,
                         struct ha_why *why);

/* the ids, one a line, on stdout */
void ha_case_list_print(const struct ha_case_list *list);

#endif
