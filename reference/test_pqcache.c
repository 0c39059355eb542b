/* What else the definition of PQCache refuses is in suites/variants/test_spoiled.c. */

#include "reference/definitions.h"

#include "harness/base/test.h"

extern const struct ha_definition ha_definition_pqcache;

TEST(vectors_that_do_not_divide)
{
    const struct ha_shape shape = { .layers = 1, .batch = 1, .q_heads = 2, .kv_heads = 1, .head_dim = 8, .ctx = { 9 } };
    const double param[] = { 16, 4, 0.2, 1, 0 };
    struct ha_def *def = NULL;
    struct ha_why why = { "" };
    assert_int_equal(ha_definition_pqcache.create(&def, &shape, param, NULL, &why), HA_ERROR);
    assert_string_equal(why.text, "pqcache: parts=16 do not divide head_dim=8");
    ha_definition_pqcache.destroy(def);
}
