/* What only queries in parts can get wrong: an infinity in K times the parts of a query that are 0. */

#include "kernels/test_packed_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void infinite_keys(void **state)
{
    (void)state;
    enum { ROWS = 17, DIM = 40, KEYS = 41, AT = 19 };
    for (size_t t = 0; t < ha_test_tables_count; t++)
        for (int sign = -1; sign <= 1; sign += 2) {
            struct ha_test_packed p;
            ha_test_packed_make(&p, HA_TEST_NORMAL, DIM, KEYS, HA_BF16, 0, 0, 1);
            ha_test_packed_put_k(&p, AT, 3, (float)sign * INFINITY);
            struct ha_test_states s = {
                .rows = ROWS, .q_stride = DIM, .keys = KEYS, .scale = 0.3f, .with_weights = true
            };
            s.q = ha_guard_alloc(ROWS * DIM * sizeof *s.q);
            for (size_t i = 0; i < ROWS * DIM; i++) s.q[i] = i % 2 ? 0.5f : 0.3f;
            ha_test_packed_attend(ha_test_tables[t].attend_packed[HA_BF16], &p, &s);
            for (size_t r = 0; r < ROWS; r++) {
                if (sign > 0) {
                    assert_true(isnan(s.sum[r]));
                    continue;
                }
                assert_true(isfinite(s.sum[r]) && s.sum[r] > 0);
                assert_true(s.weights[r * KEYS + AT] == 0);
            }
            ha_test_states_free(&s);
            ha_test_packed_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(infinite_keys) };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
