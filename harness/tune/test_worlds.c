/* Whole plans on simulated hosts: what measures (bench.h) is this file's, and shares fall by up to a half from one
 * moment to the next, as they do beside other work that readings of memory do not see. No time is judged. */

#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/tune/bench.h"
#include "harness/tune/make.h"

#include <string.h>

enum { HOSTS = 200, MOMENT = 40 };

static struct world {
    double packed, others, natural, drift; /* others: packed keys by a table that is not built in */
    double load;
    uint64_t seed, draws, left; /* samples of this moment */
} world;

static double uniform(void) { return (double)ha_rng_uniform(world.seed, 1, world.draws++); }

enum ha_status ha_tune_bench_create(struct ha_tune_bench **bench, size_t bytes, struct ha_why *why)
{
    (void)bytes, (void)why;
    *bench = NULL;
    return HA_OK;
}

void ha_tune_bench_destroy(struct ha_tune_bench *bench) { (void)bench; }

enum ha_status ha_tune_bench_threads(struct ha_tune_bench *bench, size_t threads, const struct ha_kernels *best,
                                     struct ha_why *why)
{
    (void)bench, (void)threads, (void)best, (void)why;
    return HA_OK;
}

size_t ha_tune_bench_thread_count(const struct ha_tune_bench *bench)
{
    (void)bench;
    return 1;
}

double ha_tune_bench_ceiling(const struct ha_tune_bench *bench)
{
    (void)bench;
    return 1;
}

size_t ha_tune_bench_bytes(bool quick) { return quick; }

static bool built_in(const struct ha_kernels *k, enum ha_dtype t)
{
    struct ha_kernels best;
    struct ha_why why;
    assert_int_equal(ha_kernels_resolve(NULL, &best, &why), HA_OK);
    return k->attend_packed[t] == best.attend_packed[t];
}

double ha_tune_bench_sample(struct ha_tune_bench *bench, const struct ha_tune_subject *s)
{
    (void)bench;
    if (world.left-- == 0) {
        world.left = MOMENT + (uint64_t)(8 * MOMENT * uniform());
        world.load = world.drift * uniform();
    }
    const double share = s->pattern == HA_CHOICE_ROWS     ? world.natural
                         : built_in(s->kernels, s->dtype) ? world.packed
                                                          : world.others;
    return share * (1 - world.load) * (1 + 0.02 * (double)ha_rng_normal(world.seed, 2, world.draws++));
}

struct counted {
    size_t packed, rows, unsure, other_table; /* hosts where it is so for some type */
};

static struct counted count(struct world of)
{
    struct counted n = { 0 };
    for (uint64_t seed = 1; seed <= HOSTS; seed++) {
        struct ha_tuning t;
        struct ha_tune_doubt doubt;
        struct ha_why why;
        struct ha_kernels best;
        const struct ha_tune_options o = { .threads = { 1 }, .counts = 1, .limit_ns = (uint64_t)1 << 60 };
        world = of;
        world.seed = seed;
        assert_int_equal(ha_tune_make(&t, &o, &doubt, &why), HA_OK);
        assert_int_equal(ha_kernels_resolve(NULL, &best, &why), HA_OK);
        bool rows = false, packed = false, known = true, other = false;
        for (int d = 0; d < HA_DTYPE_COUNT; d++) {
            const struct ha_choice *table = ha_tuning_taken(&t, 1, (enum ha_dtype)d, HA_PATTERN_LINEAR);
            const char *own = ha_kernels_origin_of(&best, "attend_packed", (enum ha_dtype)d)->name;
            bool here = false;
            for (size_t i = 0; i < t.choices; i++)
                here = here || (t.choice[i].dtype == (enum ha_dtype)d && t.choice[i].pattern == HA_CHOICE_ROWS);
            known = known && here;
            const bool natural = ha_tuning_taken(&t, 1, (enum ha_dtype)d, HA_CHOICE_ROWS);
            rows = rows || natural;
            packed = packed || (here && !natural);
            other = other || (table && strcmp(table->isa, own) != 0);
        }
        n.rows += rows;
        n.unsure += !known;
        n.packed += packed;
        n.other_table += other;
        assert_true(known || doubt.disturbed > 0);
    }
    print_message("packed %.2f, natural %.2f, drift %.1f: of %d hosts with packed keys %zu, rows %zu, something "
                  "open %zu, another table %zu, of some type\n",
                  of.packed, of.natural, of.drift, HOSTS, n.packed, n.rows, n.unsure, n.other_table);
    return n;
}

TEST(in_quiet_the_faster_layout)
{
    assert_int_equal(count((struct world){ .packed = 0.97, .others = 0.93, .natural = 0.93 }).packed, HOSTS);
    assert_int_equal(count((struct world){ .packed = 0.93, .others = 0.89, .natural = 0.97 }).rows, HOSTS);
}

TEST(what_drifts_from_race_to_race_makes_no_choice)
{
    const struct counted n = count((struct world){ .packed = 0.97, .others = 0.93, .natural = 0.93, .drift = 0.5 });
    assert_int_equal(n.rows, 0);
    assert_int_equal(n.other_table, 0);
    const struct counted r = count((struct world){ .packed = 0.93, .others = 0.89, .natural = 0.97, .drift = 0.5 });
    assert_int_equal(r.packed, 0);
}
