/* libFuzzer on suite files and case ids, over fake_registry.c: whatever is read as a case prints as an id
 * that is read as the same case. */
#include "suites/variants/case.h"
#include "suites/variants/suite.h"

#include <stdlib.h>
#include <string.h>

enum { COMPARED_MAX = 200 }; /* of a large cross product the first will do */

static void compare(const struct ha_case *c)
{
    char id[HA_CASE_ID_MAX];
    struct ha_case back;
    struct ha_why why;
    ha_case_print(c, id);
    if (ha_case_parse(id, &back, &why) != HA_OK || memcmp(&back, c, sizeof back)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ha_case_list list = { 0 };
    struct ha_case c;
    struct ha_why why;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (ha_suite_parse("fuzz.suite", text, &list, &why) == HA_OK)
        for (size_t i = 0; i < list.count && i < COMPARED_MAX; i++) compare(&list.cases[i]);
    ha_case_list_free(&list);
    if (ha_case_parse(text, &c, &why) == HA_OK) compare(&c);
    free(text);
    return 0;
}
