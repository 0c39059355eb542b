/* The lookups, over fake_registry.c. */
#include "harness/base/cpu.h"
#include "harness/base/registry.h"
#include "harness/base/test.h"

TEST(names_are_found_whole)
{
    assert_string_equal(ha_variant_find("ring")->name, "ring");
    assert_null(ha_variant_find("rin"));
    assert_null(ha_variant_find("rings"));
    assert_string_equal(ha_definition_find("ring")->variant, "ring");
    assert_null(ha_definition_find("plain"));
    assert_string_equal(ha_dataset_find("tape/x", 4)->name, "tape");
    assert_null(ha_dataset_find("tape/x", 3));
    assert_null(ha_dataset_find("tape/x", 6));
}

static struct ha_why why;

static struct ha_kernels resolved(const char *isa)
{
    struct ha_kernels k;
    if (ha_kernels_resolve(isa, &k, &why) != HA_OK) fail_msg("%s", why.text);
    return k;
}

TEST(best_is_the_last_that_runs_here) { assert_string_equal(resolved(NULL).name, "best"); }

/* what a table lacks comes from the next one below; the profile comes with attend_chunk, the traits with merge */
TEST(gaps_are_filled_from_below)
{
    const struct ha_kernels *c = ha_kernels_all[0], *fast = ha_kernels_all[1], *best = ha_kernels_all[4];
    struct ha_kernels k = resolved("best");
    assert_ptr_equal(k.merge, best->merge);
    assert_ptr_equal(k.attend_chunk, fast->attend_chunk);
    assert_int_equal(k.profile.dot_lanes, 8);
    assert_int_equal(k.traits.forms, 8);
    assert_ptr_equal(k.score, c->score);
    assert_ptr_equal(k.attend, c->attend);
    assert_ptr_equal(k.attend_scratch_bytes, c->attend_scratch_bytes);

    k = resolved("c");
    assert_ptr_equal(k.merge, c->merge);
    assert_int_equal(k.profile.dot_lanes, 1);

    k = resolved("fast");
    assert_ptr_equal(k.merge, c->merge);
    assert_int_equal(k.traits.forms, 1);
}

/* every pointer of a table, without naming them: after the data there is nothing else in it */
TEST(no_gap_is_left)
{
    const struct ha_kernels k = resolved("best");
    for (size_t at = offsetof(struct ha_kernels, attend_chunk); at < sizeof k; at += sizeof k.merge) {
        void (*pointer)(void);
        memcpy(&pointer, (const char *)&k + at, sizeof pointer);
        assert_non_null(pointer);
    }
}

TEST(packed_comes_by_type)
{
    const struct ha_kernels *c = ha_kernels_all[0], *best = ha_kernels_all[4];
    const struct ha_kernels k = resolved("best");
    for (int t = 0; t < HA_DTYPE_COUNT; t++) {
        assert_ptr_equal(k.attend_packed[t], t == HA_BF16 ? best->attend_packed[t] : c->attend_packed[t]);
        assert_int_equal(k.packed_profile[t].dot_lanes, t == HA_BF16 ? 16 : 1);
    }
}

static size_t part_named(const char *name)
{
    size_t i = 0;
    while (ha_kernels_part(i) && strcmp(ha_kernels_part(i), name) != 0) i++;
    assert_non_null(ha_kernels_part(i));
    return i;
}

TEST(origins_are_told)
{
    static const struct {
        const char *isa, *part, *origin;
    } parts[] = {
        { "best", "merge", "best" },
        { "best", "attend_chunk", "fast" },
        { "best", "attend_packed bf16", "best" },
        { "best", "attend_packed f16", "c" },
        { "best", "score", "c" },
        { "fast", "merge", "c" },
    };
    for (size_t i = 0; i < COUNT(parts); i++)
        assert_string_equal(ha_kernels_origin(parts[i].isa, part_named(parts[i].part))->name, parts[i].origin);
    assert_null(ha_kernels_origin("none", 0));
}

/* the same from the pointers of a table that is resolved, whatever was put into it since */
TEST(code_is_told_by_its_table)
{
    const struct ha_kernels *c = ha_kernels_all[0], *best = ha_kernels_all[4];
    struct ha_kernels k = resolved("best");
    assert_string_equal(ha_kernels_origin_of(&k, "merge", HA_F32)->name, "best");
    assert_string_equal(ha_kernels_origin_of(&k, "attend_chunk", HA_F16)->name, "fast");
    assert_string_equal(ha_kernels_origin_of(&k, "attend_packed", HA_F32)->name, "c");
    assert_string_equal(ha_kernels_origin_of(&k, "attend_packed", HA_BF16)->name, "best");
    assert_string_equal(ha_kernels_origin_of(&k, "score", HA_BF16)->name, "c");
    k.attend_packed[HA_BF16] = c->attend_packed[HA_BF16];
    k.attend_packed[HA_F32] = best->attend_packed[HA_BF16];
    assert_string_equal(ha_kernels_origin_of(&k, "attend_packed", HA_BF16)->name, "c");
    assert_null(ha_kernels_origin_of(&k, "attend_packed", HA_F32));
    assert_null(ha_kernels_origin_of(&k, "attend_nothing", HA_F32));
}

TEST(what_is_not_here_is_waived)
{
    struct ha_kernels k;
    assert_int_equal(ha_kernels_resolve("gone", &k, &why), HA_WAIVED);
    assert_contains(why.text, "not compiled for this target");
    assert_int_equal(ha_kernels_resolve("alien", &k, &why), HA_WAIVED);
    assert_contains(why.text, "this CPU lacks it");
    assert_int_equal(ha_kernels_resolve("bets", &k, &why), HA_ERROR);
    assert_contains(why.text, "did you mean 'best'?");
}

/* worst first; each needs the one before it */
static const unsigned chains[][5] = {
    { HA_CPU_C, HA_CPU_AVX2, HA_CPU_AVX512, HA_CPU_AVX512_BF16, HA_CPU_AMX },
    { HA_CPU_C, HA_CPU_NEON, HA_CPU_SVE256 },
    { HA_CPU_C, HA_CPU_NEON, HA_CPU_SVE512 },
};

static void assert_nested(unsigned bits)
{
    assert_true(bits & HA_CPU_C);
    for (size_t i = 0; i < COUNT(chains); i++)
        for (size_t j = 1; j < 5 && chains[i][j]; j++)
            if (bits & chains[i][j]) assert_true(bits & chains[i][j - 1]);
}

/* each level needs the one below, the portable one is always there, and no CPU is of two families or has two vector
 * lengths */
TEST(cpu_levels_are_nested)
{
    const unsigned bits = ha_cpu_bits(), lengths = HA_CPU_SVE256 | HA_CPU_SVE512;
    assert_nested(bits);
    assert_int_equal(bits, ha_cpu_detected());
    assert_true(!(bits & HA_CPU_AVX2) || !(bits & HA_CPU_NEON));
    assert_true((bits & lengths) != lengths);
}

/* a mask takes an extension away, and with it what builds on it, and nothing else */
TEST(masks_take_what_builds_on_them)
{
    const unsigned all = ha_cpu_detected();
    for (unsigned mask = 0; mask < 256; mask++) {
        ha_cpu_mask(mask);
        const unsigned bits = ha_cpu_bits();
        assert_nested(bits);
        assert_false(bits & ~all);
        assert_false(bits & mask & ~(unsigned)HA_CPU_C);
        assert_int_equal(ha_cpu_detected(), all);
        for (size_t i = 0; i < COUNT(chains); i++) {
            bool whole = true;
            for (size_t j = 1; j < 5 && chains[i][j]; j++) {
                whole = whole && !(mask & chains[i][j]);
                assert_true(!(bits & chains[i][j]) == !(whole && (all & chains[i][j])));
            }
        }
    }
    ha_cpu_mask(0);
    assert_int_equal(ha_cpu_bits(), all);
}

TEST(masked_tables_are_passed_over)
{
    assert_int_equal(ha_kernels_mask("c", &why), HA_ERROR);
    assert_int_equal(ha_kernels_mask("alien,bets", &why), HA_ERROR);
    assert_contains(why.text, "did you mean 'best'?");
    assert_int_equal(ha_kernels_mask("", &why), HA_ERROR);
    assert_int_equal(ha_kernels_mask("alien,", &why), HA_ERROR);
    resolved("best");

    assert_int_equal(ha_kernels_mask("alien,beyond", &why), HA_OK);
    assert_string_equal(ha_kernels_lack(ha_kernels_all[3]), "this CPU lacks it");
    assert_string_equal(ha_kernels_lack(ha_kernels_all[2]), "not compiled for this target");
    assert_null(ha_kernels_lack(ha_kernels_all[4]));

    /* a table of what this CPU does have, whatever it is */
    const unsigned top = ha_cpu_bits() & ~(unsigned)HA_CPU_C;
    const struct ha_kernels own = { .name = "own", .cpu_bit = top };
    if (top) {
        assert_null(ha_kernels_lack(&own));
        ha_cpu_mask(top);
        assert_string_equal(ha_kernels_lack(&own), "masked by --without");
    }
    ha_cpu_mask(0);
}
