/* The lookups, over fake_registry.c. */
#include "harness/cpu.h"
#include "harness/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void names_are_found_whole(void **state)
{
    (void)state;
    assert_string_equal(ha_variant_find("ring")->name, "ring");
    assert_null(ha_variant_find("rin"));
    assert_null(ha_variant_find("rings"));
    assert_string_equal(ha_definition_find("ring")->variant, "ring");
    assert_null(ha_definition_find("plain"));
    assert_string_equal(ha_dataset_find("tape/x", 4)->name, "tape");
    assert_null(ha_dataset_find("tape/x", 3));
    assert_null(ha_dataset_find("tape/x", 6));
}

static void best_is_the_last_that_runs_here(void **state)
{
    (void)state;
    struct ha_kernels k;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve(NULL, &k, &why), HA_OK);
    assert_string_equal(k.name, "best");
}

/* what a table lacks comes from the next one below; the profile comes with attend_chunk, the traits with merge */
static void gaps_are_filled_from_below(void **state)
{
    (void)state;
    const struct ha_kernels *c = ha_kernels_all[0], *fast = ha_kernels_all[1], *best = ha_kernels_all[4];
    struct ha_kernels k;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve("best", &k, &why), HA_OK);
    assert_ptr_equal(k.merge, best->merge);
    assert_ptr_equal(k.attend_chunk, fast->attend_chunk);
    assert_int_equal(k.profile.dot_lanes, 8);
    assert_int_equal(k.traits.forms, 8);
    assert_ptr_equal(k.score, c->score);
    assert_ptr_equal(k.attend, c->attend);
    assert_ptr_equal(k.attend_scratch_bytes, c->attend_scratch_bytes);

    assert_int_equal(ha_kernels_resolve("c", &k, &why), HA_OK);
    assert_ptr_equal(k.merge, c->merge);
    assert_int_equal(k.profile.dot_lanes, 1);

    assert_int_equal(ha_kernels_resolve("fast", &k, &why), HA_OK);
    assert_ptr_equal(k.merge, c->merge);
    assert_int_equal(k.traits.forms, 1);
}

static void what_is_not_here_is_waived(void **state)
{
    (void)state;
    struct ha_kernels k;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve("gone", &k, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "not compiled for this target"));
    assert_int_equal(ha_kernels_resolve("alien", &k, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "this CPU lacks it"));
    assert_int_equal(ha_kernels_resolve("bets", &k, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "did you mean 'best'?"));
}

/* each level needs the one below, and the portable one is always there */
static void cpu_levels_are_nested(void **state)
{
    (void)state;
    const unsigned bits = ha_cpu_bits();
    assert_true(bits & HA_CPU_C);
    if (bits & HA_CPU_AVX512) assert_true(bits & HA_CPU_AVX2);
    assert_false(bits & ~(unsigned)(HA_CPU_C | HA_CPU_AVX2 | HA_CPU_AVX512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_whole),    cmocka_unit_test(best_is_the_last_that_runs_here),
        cmocka_unit_test(gaps_are_filled_from_below), cmocka_unit_test(what_is_not_here_is_waived),
        cmocka_unit_test(cpu_levels_are_nested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
