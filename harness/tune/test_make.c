/* What plans are measured by, on the kernels of this CPU: little memory, and no time is judged. */

#include "harness/base/registry.h"
#include "harness/base/test.h"
#include "harness/base/test_folder.h"
#include "harness/tune/bench.h"
#include "harness/tune/file.h"
#include "harness/tune/make.h"

#include <math.h>

/* Every table, type and pattern, what it asks ahead reaching far beyond the keys: nothing but them is read (guards,
 * sanitizer), and a sample is a share or nothing. */
TEST(samples_of_all_that_is_planned)
{
    struct ha_tune_bench *bench;
    struct ha_kernels k;
    struct ha_why why;
    size_t shares = 0;
    assert_int_equal(ha_tune_bench_create(&bench, 4 * HA_TUNE_REGION, &why), HA_OK);
    assert_int_equal(ha_kernels_resolve(NULL, &k, &why), HA_OK);
    assert_int_equal(ha_tune_bench_threads(bench, 0, &k, &why), HA_OK);
    const size_t cores = ha_tune_bench_thread_count(bench);
    assert_int_equal(ha_tune_bench_threads(bench, cores + 1, &k, &why), HA_ERROR);
    for (size_t threads = 1; threads < 3 && threads <= cores; threads++) {
        assert_int_equal(ha_kernels_resolve(NULL, &k, &why), HA_OK);
        assert_int_equal(ha_tune_bench_threads(bench, threads, &k, &why), HA_OK);
        for (size_t i = 0; i < ha_kernels_count; i++) {
            if (ha_kernels_resolve(ha_kernels_all[i]->name, &k, &why) != HA_OK) continue;
            for (int t = 0; t < HA_DTYPE_COUNT; t++)
                for (unsigned p = 0; p < HA_CHOICE_PATTERNS; p++) {
                    const struct ha_tune_subject s = {
                        .kernels = &k, .dtype = (enum ha_dtype)t, .pattern = p, .rows = p == HA_PATTERN_PASSES ? 8 : 4
                    };
                    if (p < HA_PATTERNS) k.reach[t][p] = (struct ha_reach){ HA_REACH_L1, HA_REACH_MOST };
                    if (i > 0 && (!ha_kernels_all[i]->attend_packed[t] || p == HA_CHOICE_ROWS)) continue;
                    const double x = ha_tune_bench_sample(bench, &s);
                    assert_true(isnan(x) || x > 0);
                    if (!isnan(x)) shares++;
                }
        }
        assert_true(ha_tune_bench_ceiling(bench) > 0);
    }
    assert_true(shares > 0);
    ha_tune_bench_destroy(bench);
}

TEST(without_time_nothing_is_chosen)
{
    const struct ha_tuning before = *ha_tuning();
    struct ha_tuning t;
    struct ha_tune_doubt doubt;
    struct ha_why why;
    const struct ha_tune_options o = { .threads = { 1 }, .counts = 1, .limit_ns = 0 };
    assert_int_equal(ha_tune_make(&t, &o, &doubt, &why), HA_OK);
    assert_int_equal(t.choices, 0);
    assert_true(doubt.late > 0 && doubt.late + doubt.disturbed <= HA_CHOICES_MOST);
    for (size_t i = 0; i < doubt.late + doubt.disturbed; i++) {
        const struct ha_tune_open *x = &doubt.open[i];
        struct ha_kernels k;
        assert_int_equal(ha_kernels_resolve(x->isa, &k, &why), HA_OK);
        const bool rows = x->pattern == HA_CHOICE_ROWS;
        assert_string_equal(ha_kernels_origin_of(&k, rows ? "attend_chunk" : "attend_packed", x->dtype)->name, x->isa);
        assert_true(x->threads == 1 && x->rows == 4 && (rows || x->pattern == HA_PATTERN_LINEAR));
    }
    assert_memory_equal(ha_tuning(), &before, sizeof before);
}

/* A short choice names tables that are there, and can be written and read. */
TEST_WITH(a_quick_choice_is_a_plan, test_folder_make, test_folder_remove)
{
    struct ha_tuning t, again;
    struct ha_tune_doubt doubt;
    struct ha_why why;
    const struct ha_tune_options o = { .quick = true, .limit_ns = 3000000000 };
    assert_int_equal(ha_tune_make(&t, &o, &doubt, &why), HA_OK);
    assert_string_equal(t.from, "quick");
    if (t.choices == 0) return; /* the host was busy, and it says so */
    for (size_t i = 0; i < t.choices; i++) {
        struct ha_kernels k;
        assert_int_equal(ha_kernels_resolve(t.choice[i].isa, &k, &why), HA_OK);
        assert_true(t.choice[i].ratio > 0);
    }
    assert_int_equal(ha_tune_write(&t, test_path("plan.csv"), &why), HA_OK);
    assert_int_equal(ha_tune_read(&again, test_path("plan.csv"), "quick", &why), HA_OK);
    assert_string_equal(again.name, t.name);
}
