/* Whole plans on simulated hosts. The measurements (bench.h), the CPU and its tables of kernels are this file's, so
 * that every machine draws the same worlds. Shares of the memory bandwidth fall by up to a half from one moment to the
 * next, as they do beside other work that readings of memory do not see. No time is judged. */

#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/tune/bench.h"
#include "harness/tune/make.h"

#include <string.h>

enum { HOSTS = 200, MOMENT = 40 };

/* ---- a CPU with two tables of vectors above plain C; nobody calls their kernels ---------------------------------- */

static void of_c(void) { abort(); }
static void of_narrow(void) { abort(); }
static void of_wide(void) { abort(); }
#define ONE(isa, result, name, arguments, companion)   .name = (result(*) arguments)of_c,
#define TYPED(isa, result, name, arguments, companion) .name = { TYPE(arguments), TYPE(arguments), TYPE(arguments) },
#define TYPE(arguments)                                (void(*) arguments) of_c
#define PACKED(f)                                                                                  \
    {                                                                                              \
        (void (*)(const struct ha_packed_chunk *)) f, (void (*)(const struct ha_packed_chunk *))f, \
            (void (*)(const struct ha_packed_chunk *))f                                            \
    }
static const struct ha_kernels c = { .name = "c", .cpu_bit = HA_CPU_C, HA_KERNELS_OF_ALL(ONE, TYPED, ) };
static const struct ha_kernels narrow = { .name = "narrow",
                                          .cpu_bit = HA_CPU_AVX2,
                                          .attend_packed = PACKED(of_narrow) };
static const struct ha_kernels wide = { .name = "wide", .cpu_bit = HA_CPU_AVX512, .attend_packed = PACKED(of_wide) };
const struct ha_kernels *const ha_kernels_all[] = { &c, &narrow, &wide };
const size_t ha_kernels_count = COUNT(ha_kernels_all);
const struct ha_device_api *const ha_devices_all[] = { NULL };
const size_t ha_devices_count = 0;
const struct ha_variant *const ha_variants_all[] = { NULL };
const size_t ha_variants_count = 0;
const struct ha_definition *const ha_definitions_all[] = { NULL };
const size_t ha_definitions_count = 0;
const struct ha_dataset *const ha_datasets_all[] = { NULL };
const size_t ha_datasets_count = 0;
const struct ha_suite *const ha_suites_all[] = { NULL };
const size_t ha_suites_count = 0;

unsigned __wrap_ha_cpu_bits(void); /* the linker's name */
unsigned __wrap_ha_cpu_bits(void) { return HA_CPU_C | HA_CPU_AVX2 | HA_CPU_AVX512; }

/* ---- what is measured there -------------------------------------------------------------------------------------- */

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

/* A plan may choose the slower of two on one host in a hundred. The draws are the same on every machine, but for the
 * last bits of its libm; a right program that draws others exceeds the number once in 10^6 times at most. Plans without
 * intervals choose the slower one on more than half of these hosts. */
TEST(drift_from_race_to_race_makes_no_choice)
{
    const size_t most = test_binomial_limit(HOSTS, 0.01);
    const struct counted n = count((struct world){ .packed = 0.97, .others = 0.93, .natural = 0.93, .drift = 0.5 });
    assert_in_range(n.rows, 0, most);
    assert_in_range(n.other_table, 0, most);
    const struct counted r = count((struct world){ .packed = 0.93, .others = 0.89, .natural = 0.97, .drift = 0.5 });
    assert_in_range(r.packed, 0, most);
}
