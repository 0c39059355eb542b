/* attend_all: many attentions of all lengths on the workers of a pool, against attend one by one. */

#include "harness/api/reference.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "kernels/test_lay.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* nothing is allocated: the linker puts these in the place of malloc and its kin */
static atomic_size_t allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *p, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(p, bytes);
}

enum { DIM = 32, GROUP_MAX = 9, ROWS_MAX = 192, UNITS_MAX = 20 };

static bool small;

struct unit {
    struct ha_test_kv kv;
    struct ha_test_lay lay;
    struct ha_attend attend;
    size_t keys, rows;
    float *q, *plain; /* outputs of attend by itself */
    double *bound, lse_bound[ROWS_MAX];
};

/* what is attended: a group of query heads, so many tokens, keys of which the first are packed */
struct want {
    size_t keys, packed, unit, group, q_len;
    bool causal, weights;
};

static void *need(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return p;
}

static size_t floats_of(const struct unit *u)
{
    return u->rows * (DIM + 1) + (u->attend.weights ? u->attend.group * u->keys : 0);
}

static void unit_make(struct unit *u, const struct want *want, enum ha_dtype dtype, uint64_t seed)
{
    const size_t run = want->keys - want->packed;
    *u = (struct unit){ .keys = want->keys, .rows = want->q_len * want->group };
    assert_true(u->rows <= ROWS_MAX);
    ha_test_kv_make(&u->kv, HA_TEST_DENSE, HA_TEST_NORMAL, DIM, want->keys, dtype, seed);
    ha_test_lay_make(&u->lay, &u->kv, want->packed, want->unit, &run, run > 0, 0, seed);
    u->q = need(u->rows * DIM * sizeof *u->q);
    for (size_t r = 0; r < u->rows; r++) ha_test_query(u->q + r * DIM, HA_TEST_NORMAL, DIM, dtype, seed * 100 + r);
    u->attend = (struct ha_attend){
        .q = u->q,
        .q_len = want->q_len,
        .group = want->group,
        .head_dim = DIM,
        .q_token_stride = want->group * DIM,
        .q_head_stride = DIM,
        .dtype = dtype,
        .scale = 0.2f,
        .causal = want->causal,
        .lse_token_stride = want->group,
        .lse_head_stride = 1,
        .weights_stride = want->keys,
    };
    ha_test_lay_use(&u->lay, &u->attend);
    static float some;
    u->attend.weights = want->weights ? &some : NULL;
}

static void unit_free(struct unit *u)
{
    free(u->q);
    free(u->plain);
    free(u->bound);
    ha_test_lay_free(&u->lay);
    ha_test_kv_free(&u->kv);
}

static void put_output(struct unit *u, float *out)
{
    memset(out, 0xFF, floats_of(u) * sizeof *out);
    u->attend.o = out;
    u->attend.lse = out + u->rows * DIM;
    if (u->attend.weights) u->attend.weights = out + u->rows * (DIM + 1);
}

/* attend by itself, and what either may be off by */
static void unit_answer(struct unit *u, const struct ha_kernels *t)
{
    const struct ha_profile profile = ha_profile_attend(t, u->attend.dtype);
    double *work = need(2 * (u->keys + 1) * sizeof *work), o[DIM], lo[DIM], hi[DIM];
    u->plain = need(floats_of(u) * sizeof *u->plain);
    u->bound = need(u->rows * DIM * sizeof *u->bound);
    put_output(u, u->plain);
    u->attend.scratch = ha_guard_alloc(t->attend_scratch_bytes(&u->attend));
    t->attend(t, &u->attend);
    ha_guard_free(u->attend.scratch);
    for (size_t r = 0; r < u->rows; r++) {
        struct ha_rows seen = u->kv.rows;
        seen.keys = u->keys - (u->attend.causal ? u->attend.q_len - 1 - r / u->attend.group : 0);
        const struct ha_bound b = ha_bound_attend(&profile, DIM, seen.keys, 2);
        struct ha_ref_state state = { .o = o, .bound = u->bound + r * DIM, .v_min = lo, .v_max = hi, .dim = DIM };
        ha_ref_attend(u->q + r * DIM, DIM, (double)u->attend.scale, &seen, u->attend.dtype, &b, work, &state);
        u->lse_bound[r] = state.lse_bound;
        assert_true(ha_ref_ratio(u->attend.o + r * DIM, u->attend.lse[r], &state, NULL) <= 1);
    }
    free(work);
}

/* both are within the bound of the truth, so within twice the bound of each other */
static void unit_judge(const struct unit *u)
{
    for (size_t r = 0; r < u->rows; r++) {
        for (size_t d = 0; d < DIM; d++)
            assert_true(fabs((double)u->attend.o[r * DIM + d] - (double)u->plain[r * DIM + d])
                        <= 2 * u->bound[r * DIM + d]);
        const float lse = u->attend.lse[r], plain = u->plain[u->rows * DIM + r];
        assert_true(lse == plain || fabs((double)lse - (double)plain) <= 2 * u->lse_bound[r]);
    }
    for (size_t j = 0; u->attend.weights && j < u->attend.group * u->keys; j++) {
        const double w = (double)u->plain[u->rows * (DIM + 1) + j];
        assert_true(fabs((double)u->attend.weights[j] - w) <= 1e-4 * w + 0x1p-126);
    }
}

/* the arguments of the largest: what a caller knows beforehand */
static struct ha_attend largest(const struct unit *unit, size_t count, struct ha_rows *run)
{
    struct ha_attend all = { .head_dim = DIM, .q_len = 1, .group = 1, .runs = run, .runs_count = 1, .packed.keys = 1 };
    *run = (struct ha_rows){ .keys = 0 };
    for (size_t i = 0; i < count; i++) {
        const struct ha_attend *a = &unit[i].attend;
        all.dtype = a->dtype;
        run->keys = unit[i].keys > run->keys ? unit[i].keys : run->keys;
        all.q_len = a->q_len > all.q_len ? a->q_len : all.q_len;
        all.group = a->group > all.group ? a->group : all.group;
        all.weights = a->weights ? a->weights : all.weights;
    }
    all.weights_stride = run->keys;
    return all;
}

static void check(const struct ha_kernels *t, enum ha_dtype dtype, const struct want *want, size_t count, uint64_t seed)
{
    static struct unit unit[UNITS_MAX];
    struct ha_attend args[UNITS_MAX];
    struct ha_why why;
    assert_true(count <= UNITS_MAX);
    size_t floats = 0;
    for (size_t i = 0; i < count; i++) {
        unit_make(&unit[i], &want[i], dtype, seed + i);
        unit_answer(&unit[i], t);
        floats += floats_of(&unit[i]);
    }
    float *out[2] = { need(floats * sizeof(float)), need(floats * sizeof(float)) };
    for (size_t threads = 1; threads <= 4; threads++) {
        struct ha_pool *pool;
        assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, threads, &why), HA_OK);
        for (int again = 0; again < 2; again++) {
            for (size_t i = 0, at = 0; i < count; at += floats_of(&unit[i]), i++) {
                put_output(&unit[i], out[again] + at);
                args[i] = unit[i].attend;
                args[i].scratch = NULL;
            }
            struct ha_rows run;
            const struct ha_attend most = largest(unit, count, &run);
            const struct ha_attend_all all = {
                .units = args,
                .count = count,
                .pool = pool,
                .name = "attend",
                .work = ha_guard_alloc(t->attend_all_bytes(&most, count, threads)),
            };
            /* the first run of a pool may start its threads */
            const size_t before = atomic_load(&allocations);
            t->attend_all(t, &all);
            if (again) assert_int_equal(atomic_load(&allocations), before);
            ha_guard_free(all.work);
            for (size_t i = 0; i < count; i++) unit_judge(&unit[i]);
        }
        assert_memory_equal(out[0], out[1], floats * sizeof(float));
        ha_pool_destroy(pool);
    }
    free(out[0]);
    free(out[1]);
    for (size_t i = 0; i < count; i++) unit_free(&unit[i]);
}

#define CHECK(...)                                                                                             \
    do {                                                                                                       \
        static const struct want want[] = { __VA_ARGS__ };                                                     \
        for (size_t t_ = small ? ha_test_tables_count - 1 : 0; t_ < ha_test_tables_count; t_++)                \
            check(&ha_test_tables[t_], (enum ha_dtype)(t_ % HA_DTYPE_COUNT), want, sizeof want / sizeof *want, \
                  1 + t_);                                                                                     \
    } while (0)

static void one_long_unit(void **state)
{
    (void)state;
    CHECK({ .keys = 9000, .group = 4, .q_len = 1 });
    CHECK({ .keys = 20000, .packed = 19900, .group = 2, .q_len = 1 });
    CHECK({ .keys = 9000, .packed = 5003, .unit = 16, .group = 3, .q_len = 1, .weights = true });
}

static void equal_units(void **state)
{
    (void)state;
#define THREE(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
    CHECK(THREE({ .keys = 2000, .packed = 1984, .group = 4, .q_len = 1 }));
    CHECK(THREE(THREE({ .keys = 1200, .group = 4, .q_len = 1 })));
#undef THREE
}

/* one is long, some have nothing, some several query tokens, some more rows than a block, some weights that cannot be
 * cut */
static void mixed_units(void **state)
{
    (void)state;
    CHECK({ 12000, 11000, 0, 4, 1, false, false }, { 0, 0, 0, 4, 1, false, false }, { 37, 32, 0, 4, 1, false, false },
          { 3000, 1500, 32, 1, 1, false, true }, { 2500, 2400, 0, 4, 16, true, false },
          { 1300, 1000, 64, 4, 40, true, false }, { 1800, 1700, 0, 2, 5, true, true },
          { 700, 0, 0, GROUP_MAX, 7, true, false }, { 5000, 5000, 128, 1, 1, false, true },
          { 1, 0, 0, 1, 1, true, false }, { 2049, 0, 0, 70, 1, false, true });
}

static void nothing_to_do(void **state)
{
    (void)state;
    CHECK({ .keys = 0, .group = 4, .q_len = 1 });
    CHECK({ .keys = 40, .group = 1, .q_len = 1 }, { .keys = 0, .group = 1, .q_len = 2 });
    struct ha_pool *pool;
    struct ha_why why;
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 2, &why), HA_OK);
    struct ha_rows run = { .keys = 100 };
    const struct ha_attend one = { .head_dim = DIM, .q_len = 1, .group = 1, .runs = &run, .runs_count = 1 };
    void *work = ha_guard_alloc(ha_test_tables->attend_all_bytes(&one, 0, 2));
    const struct ha_attend_all none = { .count = 0, .pool = pool, .name = "none", .work = work };
    ha_test_tables->attend_all(ha_test_tables, &none);
    ha_guard_free(work);
    ha_pool_destroy(pool);
}

/* random batches: attend_all_bytes is enough for what it then makes of them (the guard page says so) */
static void random_batches(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= (small ? 2 : 12); seed++) {
        struct want want[UNITS_MAX];
        const size_t count = 1 + ha_rng_below(seed, 1, 0, UNITS_MAX);
        for (size_t i = 0; i < count; i++) {
            const size_t keys = ha_rng_below(seed, 2, i, seed % 2 ? 3000 : 900), kind = ha_rng_below(seed, 3, i, 4);
            const size_t q_len = kind == 0 ? 1 + ha_rng_below(seed, 4, i, 8) : 1;
            want[i] = (struct want){
                .keys = keys + q_len,
                .packed = kind == 1   ? keys
                          : kind == 2 ? keys / 2
                                      : 0,
                .unit = seed % 3 == 0 && kind == 2 ? 16 : 0,
                .group = 1 + ha_rng_below(seed, 5, i, 8),
                .q_len = q_len,
                .causal = kind == 0,
                .weights = seed % 4 == 0 && i % 2,
            };
        }
        const size_t t = seed % ha_test_tables_count;
        check(&ha_test_tables[t], (enum ha_dtype)(seed % HA_DTYPE_COUNT), want, count, seed * 100);
    }
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_long_unit), cmocka_unit_test(equal_units),    cmocka_unit_test(mixed_units),
        cmocka_unit_test(nothing_to_do), cmocka_unit_test(random_batches),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, NULL);
}
