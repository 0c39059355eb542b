/* For tests and the fuzz target: the keys of cases as the only suite, which runs nothing. With fake_registry.c. */
#include "harness/base/registry.h"
#include "suites/variants/case.h"

static const struct ha_suite cases = {
    .name = "variants",
    .key = ha_case_keys,
    .keys = HA_CASE_KEYS,
    .head = "variant",
    .class_key = "variant",
    .point_bytes = sizeof(struct ha_case),
    .more = ha_case_param,
    .more_name = ha_case_param_name,
    .settle = ha_case_settle,
};
const struct ha_suite *const ha_suites_all[] = { &cases, NULL };
const size_t ha_suites_count = 1;
