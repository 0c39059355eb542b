#ifndef HA_SUITE_H
#define HA_SUITE_H

#include "harness/api/case.h"

/* A suite file: INI (inih). Each [section] is a block of cases: the cross product of its keys'
 * values (blank-separated), e.g. `variant = hgca streaming`, `ctx = 1024 4096`. Keys of a section
 * [default] apply to all. Errors name the file, the line and the nearest valid word. */

struct ha_case_list {
    struct ha_case *cases;
    size_t count, capacity;
};

enum ha_status ha_case_list_add(struct ha_case_list *list, const struct ha_case *c, struct ha_why *why);
void ha_case_list_free(struct ha_case_list *list);

enum ha_status ha_suite_read(const char *path, struct ha_case_list *list, struct ha_why *why);
/* from memory, for the fuzzer and the tests; name stands in messages */
enum ha_status ha_suite_parse(const char *name, const char *text, struct ha_case_list *list, struct ha_why *why);
#endif
