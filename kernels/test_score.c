/* score, through every table, against a sum in binary64: within the roundings that the declared
 * depth of the dot product allows. */

#include "harness/api/reference.h"
#include "kernels/test_data.h"

#include <math.h>

static void check(enum ha_dtype dtype, size_t dim, size_t keys, enum ha_test_layout layout, enum ha_test_family family,
                  uint64_t seed)
{
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, layout, family, dim, keys, dtype, seed);
    float *q = ha_guard_alloc(dim * sizeof *q), *s = ha_guard_alloc(keys * sizeof *s);
    ha_test_query(q, family, dim, dtype, seed);
    const struct ha_score args = { .q = q, .head_dim = dim, .rows = kv.rows, .dtype = dtype, .scale = 0.3f, .s = s };
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        memset(s, 0xFF, keys * sizeof *s);
        ha_test_tables[t].score(&args);
        const double ratio = ha_ref_judge_score(&args, &ha_test_tables[t].profile, NULL);
        assert_true(ratio <= 1);
        ha_test_worst(&ha_test_tables[t], "a score", ratio);
    }
    ha_guard_release(0);
}

TEST(within_bound)
{
    static const size_t dims[] = { 8, 80, 128, 1, 9, 64, 96, 112, 256, 3, 17, 31, 33, 300, 520 };
    static const size_t keys[] = { 0, 1, 33, 3, 4, 5, 31, 32, 129, 2100 };
    uint64_t seed = 0;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++)
            for (size_t n = 0; n < (test_small ? 3 : COUNT(keys)); n++, seed++)
                for (int ties = 0; ties < 2; ties++)
                    check((enum ha_dtype)dtype, dims[d], keys[n], (enum ha_test_layout)(seed % HA_TEST_LAYOUTS),
                          ties ? HA_TEST_TIES : HA_TEST_NORMAL, seed);
}

/* NaN and infinities of one key stay in its score. */
TEST(special_keys)
{
    enum { KEYS = 13, DIM = 20 };
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t j = 0; j < KEYS; j++) {
            struct ha_test_kv kv;
            float q[DIM], s[KEYS];
            ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, KEYS, (enum ha_dtype)dtype, 5);
            for (size_t d = 0; d < DIM; d++) q[d] = 1;
            ha_test_kv_put_k(&kv, j, j, NAN);
            ha_test_kv_put_k(&kv, (j + 1) % KEYS, 19, INFINITY);
            ha_test_kv_put_k(&kv, (j + 2) % KEYS, 0, -INFINITY);
            const struct ha_score args = {
                .q = q, .head_dim = DIM, .rows = kv.rows, .dtype = (enum ha_dtype)dtype, .scale = 1, .s = s
            };
            for (size_t t = 0; t < ha_test_tables_count; t++) {
                ha_test_tables[t].score(&args);
                for (size_t i = 0; i < KEYS; i++) {
                    if (i == j) assert_true(isnan(s[i]));
                    else if (i == (j + 1) % KEYS) assert_true(s[i] == INFINITY);
                    else if (i == (j + 2) % KEYS) assert_true(s[i] == -INFINITY);
                    else assert_true(isfinite(s[i]));
                }
            }
            ha_guard_release(0);
        }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
