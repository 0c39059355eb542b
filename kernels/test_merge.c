/* merge, through every table, against the bound of ha_ref_merge. Linked a second time with a table of the CUDA kernels.
 */

#include "harness/base/rng.h"
#include "kernels/test_merge_data.h"

#include <math.h>

static size_t problems; /* random ones */

static void check(struct ha_test_merge p, enum ha_test_spread spread, uint64_t seed)
{
    ha_test_merge_spread(&p, spread, seed);
    HA_TEST_ALL(t)
    {
        ha_test_merge_run(&p, t);
        for (size_t r = 0; r < p.tokens * p.heads; r++) {
            const struct ha_test_merge_error e = ha_test_merge_judge(&p, r, &t->traits);
            if (!(e.o <= 1 && e.lse <= 1))
                fail_msg(
                    "%s %s %s: %zu states, %zu x %zu rows, dim %zu, layout %d, alias %d, spread %d, seed %llu: row "
                    "%zu: error over bound %g, of the LSE %g",
                    t->name, ha_form_name(p.form), ha_dtype_name(p.dtype), p.count, p.tokens, p.heads, p.dim, p.rows,
                    p.alias, spread, (unsigned long long)seed, r, e.o, e.lse);
            /* in 16 bits it is the output's rounding */
            if (p.dtype == HA_F32) ha_test_worst(t, ha_form_name(p.form), fmax(e.o, e.lse));
        }
    }
    ha_test_merge_free(&p);
}

TEST(every_size)
{
    static const size_t counts[] = { 1, 2, 130, 530, 3, 4, 8, 15, 16, 17, 33, 63, 64, 65, 160, 511, 512, 513, 1100 };
    static const size_t dims[] = { 8, 80, 300, 1, 7, 31, 64, 96, 112, 120, 127, 128, 129, 255, 256, 257, 520 };
    uint64_t seed = 1;
    for (size_t c = 0; c < (test_small ? 4 : COUNT(counts)); c++)
        for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++, seed++)
            for (enum ha_test_spread spread = HA_TEST_EQUAL; spread < HA_TEST_ALL_SPREADS; spread++) {
                if (counts[c] > 100 && (seed + spread) % 4) continue;
                const struct ha_test_merge p = { .form = (enum ha_form)((seed + spread) % HA_FORM_COUNT),
                                                 .count = counts[c],
                                                 .tokens = 1,
                                                 .heads = 2,
                                                 .dim = dims[d],
                                                 .rows = HA_TEST_ODD_STRIDES,
                                                 .dtype = (enum ha_dtype)(seed % HA_DTYPE_COUNT) };
                check(p, spread, seed);
            }
}

TEST(any_problem)
{
    for (uint64_t seed = 0; seed < problems; seed++) {
        static const uint64_t below[] = {
            HA_FORM_COUNT, HA_DTYPE_COUNT, HA_TEST_ROWS, 3, HA_TEST_ALL_SPREADS, 12, 4, 5, 280
        };
        size_t x[9];
        for (size_t i = 0; i < 9; i++) x[i] = (size_t)ha_rng_below(seed, 77, i, below[i]);
        const struct ha_test_merge p = { .form = (enum ha_form)x[0],
                                         .dtype = (enum ha_dtype)x[1],
                                         .rows = (enum ha_test_rows)x[2],
                                         .alias = (enum ha_alias)x[3],
                                         .count = 1 + x[5],
                                         .tokens = 1 + x[6],
                                         .heads = 1 + x[7],
                                         .dim = 1 + x[8] };
        check(p, (enum ha_test_spread)x[4], seed);
    }
}

TEST_MAIN
{
    problems = (argc > 1 ? strtoul(argv[1], NULL, 10) : 5000) / (test_small ? 16 : 1);
    return test_all("tests", ha_test_tables_setup, ha_test_report);
}
