/* attend_all: many attentions of all lengths on the workers of a pool, against attend one by one; and how it cuts them.
 */

#include "harness/api/reference.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "kernels/test_problem.h"

#include <math.h>
#include <stdatomic.h>

static struct ha_why why;

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

enum { DIM = 32, GROUP_MAX = 9, UNITS_MAX = 20 };

struct unit {
    struct ha_test_problem p;
    struct ha_answer answer;
};

/* what is attended: a group of query heads, so many tokens, keys of which the first are packed */
struct want {
    size_t keys, packed, unit, group, q_len;
    bool causal, weights;
};

static size_t floats_of(const struct unit *u)
{
    const struct ha_attend *a = &u->p.args;
    return u->p.rows * (DIM + 1) + (a->weights ? a->group * u->p.ask.keys : 0);
}

static void unit_judge(const struct unit *u, const struct ha_attend *a)
{
    assert_true(ha_answer_judge(&u->answer, a).ratio <= 1);
    if (a->weights) assert_true(ha_answer_judge_weights(&u->answer, a).ratio <= 1);
}

/* Attended by itself it is right, too. */
static void unit_make(struct unit *u, const struct want *want, const struct ha_kernels *t, enum ha_dtype dtype,
                      uint64_t seed)
{
    const struct ha_test_ask ask = { .dtype = dtype,
                                     .dim = DIM,
                                     .keys = want->keys,
                                     .group = want->group,
                                     .q_len = want->q_len,
                                     .packed = want->packed,
                                     .unit = want->unit,
                                     .runs_count = want->keys > want->packed,
                                     .run = { want->keys - want->packed },
                                     .causal = want->causal,
                                     .weights = want->weights,
                                     .scale = 0.2f,
                                     .seed = seed };
    ha_test_problem_make(&u->p, &ask);
    const struct ha_profile profile = ha_profile_attend(t, dtype);
    assert_int_equal(ha_answer_make(&u->answer, &u->p.args, &u->p.kv.rows, &profile, 0, &why), HA_OK);
    ha_test_problem_solve(&u->p, t, 0);
    unit_judge(u, &u->p.args);
}

/* with outputs at out, NaN */
static struct ha_attend unit_args(const struct unit *u, float *out)
{
    struct ha_attend a = u->p.args;
    memset(out, 0xFF, floats_of(u) * sizeof *out);
    a.o = out;
    a.lse = out + u->p.rows * DIM;
    if (a.weights) a.weights = out + u->p.rows * (DIM + 1);
    a.scratch = NULL;
    return a;
}

/* the arguments of the largest: what a caller knows beforehand */
static struct ha_attend largest(const struct unit *unit, size_t count, struct ha_rows *run)
{
    struct ha_attend all = { .head_dim = DIM, .q_len = 1, .group = 1, .runs = run, .runs_count = 1, .packed.keys = 1 };
    *run = (struct ha_rows){ .keys = 0 };
    for (size_t i = 0; i < count; i++) {
        const struct ha_attend *a = &unit[i].p.args;
        all.dtype = a->dtype;
        run->keys = unit[i].p.ask.keys > run->keys ? unit[i].p.ask.keys : run->keys;
        all.q_len = a->q_len > all.q_len ? a->q_len : all.q_len;
        all.group = a->group > all.group ? a->group : all.group;
        all.weights = a->weights ? a->weights : all.weights;
    }
    all.weights_stride = run->keys;
    return all;
}

/* returns how often memory was asked for */
static size_t run_all(const struct ha_kernels *t, const struct ha_attend *units, size_t count,
                      const struct ha_attend *most, struct ha_pool *pool)
{
    const struct ha_attend_all all = {
        .units = units,
        .count = count,
        .pool = pool,
        .name = "attend",
        .work = ha_guard_alloc(t->attend_all_bytes(most, count, ha_pool_threads(pool))),
    };
    const size_t before = atomic_load(&allocations);
    t->attend_all(t, &all);
    ha_guard_free(all.work);
    return atomic_load(&allocations) - before;
}

static void check(const struct ha_kernels *t, enum ha_dtype dtype, const struct want *want, size_t count, uint64_t seed)
{
    static struct unit unit[UNITS_MAX];
    struct ha_attend args[UNITS_MAX];
    assert_true(count <= UNITS_MAX);
    size_t floats = 0;
    for (size_t i = 0; i < count; i++) {
        unit_make(&unit[i], &want[i], t, dtype, seed + i);
        floats += floats_of(&unit[i]);
    }
    float *out[2] = { ha_guard_alloc(floats * sizeof(float)), ha_guard_alloc(floats * sizeof(float)) };
    for (size_t threads = 1; threads <= 4; threads++) {
        struct ha_pool *pool;
        assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, threads, &why), HA_OK);
        for (int again = 0; again < 2; again++) {
            for (size_t i = 0, at = 0; i < count; at += floats_of(&unit[i]), i++)
                args[i] = unit_args(&unit[i], out[again] + at);
            struct ha_rows run;
            const struct ha_attend most = largest(unit, count, &run);
            /* the first run of a pool may start its threads */
            const size_t made = run_all(t, args, count, &most, pool);
            if (again) assert_int_equal(made, 0);
            for (size_t i = 0; i < count; i++) unit_judge(&unit[i], &args[i]);
        }
        assert_memory_equal(out[0], out[1], floats * sizeof(float));
        ha_pool_destroy(pool);
    }
    for (size_t i = 0; i < count; i++) ha_answer_free(&unit[i].answer);
    ha_guard_release(0);
}

#define CHECK(...)                                                                                       \
    do {                                                                                                 \
        static const struct want want[] = { __VA_ARGS__ };                                               \
        for (size_t t_ = test_small ? ha_test_tables_count - 1 : 0; t_ < ha_test_tables_count; t_++)     \
            check(&ha_test_tables[t_], (enum ha_dtype)(t_ % HA_DTYPE_COUNT), want, COUNT(want), 1 + t_); \
    } while (0)

TEST(one_long_unit)
{
    CHECK({ .keys = 9000, .group = 4, .q_len = 1 });
    CHECK({ .keys = 20000, .packed = 19900, .group = 2, .q_len = 1 });
    CHECK({ .keys = 9000, .packed = 5003, .unit = 16, .group = 3, .q_len = 1, .weights = true });
}

TEST(equal_units)
{
#define THREE(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
    CHECK(THREE({ .keys = 2000, .packed = 1984, .group = 4, .q_len = 1 }));
    CHECK(THREE(THREE({ .keys = 1200, .group = 4, .q_len = 1 })));
#undef THREE
}

/* one is long, some have nothing, some several query tokens, some more rows than a block, some weights that cannot be
 * cut */
TEST(mixed_units)
{
    CHECK({ 12000, 11000, 0, 4, 1, false, false }, { 0, 0, 0, 4, 1, false, false }, { 37, 32, 0, 4, 1, false, false },
          { 3000, 1500, 32, 1, 1, false, true }, { 2500, 2400, 0, 4, 16, true, false },
          { 1300, 1000, 64, 4, 40, true, false }, { 1800, 1700, 0, 2, 5, true, true },
          { 700, 0, 0, GROUP_MAX, 7, true, false }, { 5000, 5000, 128, 1, 1, false, true },
          { 1, 0, 0, 1, 1, true, false }, { 2049, 0, 0, 70, 1, false, true });
}

TEST(nothing_to_do)
{
    CHECK({ .keys = 0, .group = 4, .q_len = 1 });
    CHECK({ .keys = 40, .group = 1, .q_len = 1 }, { .keys = 0, .group = 1, .q_len = 2 });
    struct ha_pool *pool;
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 2, &why), HA_OK);
    struct ha_rows run = { .keys = 100 };
    const struct ha_attend one = { .head_dim = DIM, .q_len = 1, .group = 1, .runs = &run, .runs_count = 1 };
    run_all(ha_test_tables, NULL, 0, &one, pool);
    ha_pool_destroy(pool);
}

/* random batches: attend_all_bytes is enough for what it then makes of them (the guard page says so) */
TEST(random_batches)
{
    for (uint64_t seed = 1; seed <= (test_small ? 2 : 12); seed++) {
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

/* ---- how it cuts work for workers, told by kernels that compute nothing and only take note ---- */

enum { NOTES_MAX = 4096 };
static struct {
    atomic_size_t turns, wholes, joins;
    size_t cost[NOTES_MAX], part[NOTES_MAX]; /* [turns], as they began; keys of a part, 0 of a whole unit */
} notes;

static size_t keys_of(const struct ha_attend *a) { return a->runs[0].keys; }

static void note(const struct ha_attend *a, size_t keys, size_t part)
{
    const size_t i = atomic_fetch_add(&notes.turns, 1);
    assert_true(i < NOTES_MAX);
    notes.cost[i] = keys * a->group * a->q_len;
    notes.part[i] = part;
}

static void note_whole(const struct ha_kernels *self, const struct ha_attend *a)
{
    atomic_fetch_add(&notes.wholes, 1);
    note(a, keys_of(a), 0);
}

static void note_part(const struct ha_kernels *self, const struct ha_attend_part *p)
{
    note(p->attend, p->keys, p->keys);
}

static void note_join(const struct ha_kernels *self, const struct ha_attend_join *j)
{
    atomic_fetch_add(&notes.joins, 1);
    size_t at = 0;
    for (size_t i = 0; i < j->count; i++) {
        assert_true(j->parts[i].first == at && j->parts[i].keys > 0 && at % HA_SPLIT_KEYS == 0);
        at += j->parts[i].keys;
    }
    assert_true(j->count > 1 && at == keys_of(j->attend));
}

static int falling(const void *a, const void *b)
{
    size_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? 1 : x > y ? -1 : 0;
}

/* how long the last worker takes where each takes the largest that is left, over the mean */
static double imbalance(size_t threads)
{
    size_t all[NOTES_MAX];
    const size_t count = notes.turns;
    double load[4] = { 0 }, sum = 0, last = 0;
    memcpy(all, notes.cost, count * sizeof *all);
    qsort(all, count, sizeof *all, falling);
    for (size_t i = 0; i < count; i++) {
        size_t least = 0;
        for (size_t w = 1; w < threads; w++) least = load[w] < load[least] ? w : least;
        load[least] += (double)all[i];
        sum += (double)all[i];
    }
    for (size_t w = 0; w < threads; w++) last = fmax(last, load[w]);
    return last / (sum / (double)threads);
}

/* turns so far, and those larger than the one before */
static size_t turns, rises;

/* units of so many keys and q_len * group rows; returns the imbalance */
static double take_note(size_t (*want)[2], size_t count, size_t threads)
{
    struct ha_kernels noting = ha_test_tables[0];
    struct ha_rows run[64], longest = { .keys = 0 };
    struct ha_attend unit[64];
    struct ha_pool *pool;
    size_t keys = 0, seen = 0;
    noting.attend = note_whole;
    noting.attend_part = note_part;
    noting.attend_join = note_join;
    memset(&notes, 0, sizeof notes);
    for (size_t i = 0; i < count; i++) {
        run[i] = (struct ha_rows){ .keys = want[i][0] };
        unit[i] = (struct ha_attend){
            .q_len = 1, .group = want[i][1], .head_dim = 128, .runs = &run[i], .runs_count = 1, .dtype = HA_F16
        };
        longest.keys = want[i][0] > longest.keys ? want[i][0] : longest.keys;
        keys += want[i][0] * want[i][1];
    }
    const struct ha_attend most = {
        .q_len = 1, .group = 8, .head_dim = 128, .runs = &longest, .runs_count = 1, .dtype = HA_F16
    };
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, threads, &why), HA_OK);
    run_all(&noting, unit, count, &most, pool);
    ha_pool_destroy(pool);
    for (size_t i = 0; i < notes.turns; i++) {
        assert_true(notes.part[i] == 0 || (notes.part[i] >= 512 && notes.part[i] <= 8192));
        seen += notes.cost[i];
        rises += i > 0 && notes.cost[i] > notes.cost[i - 1];
    }
    turns += notes.turns;
    assert_int_equal(seen, keys);
    return imbalance(threads);
}

TEST(work_is_cut_evenly)
{
    static size_t want[64][2];
    for (size_t i = 0; i < 64; i++) want[i][0] = 131072, want[i][1] = 4;
    /* enough and equal: whole */
    assert_true(take_note(want, 8, 2) == 1 && notes.wholes == 8 && notes.turns == 8);
    assert_true(take_note(want, 64, 3) < 1.04 && notes.wholes == 64 && notes.turns == 64);
    /* too few, or not even */
    assert_true(take_note(want, 1, 4) < 1.01 && notes.turns >= 16 && notes.joins == 1);
    assert_true(take_note(want, 2, 2) < 1.01 && notes.turns >= 8 && notes.joins == 2);
    assert_true(take_note(want, 9, 2) < 1.01 && notes.joins == 9);
    /* one worker */
    assert_true(take_note(want, 3, 1) == 1 && notes.wholes == 3);
    /* short ones are not cut to less than it pays */
    for (size_t i = 0; i < 64; i++) want[i][0] = 600;
    take_note(want, 3, 4);
    assert_true(notes.wholes == 3);
    double worst = 1;
    turns = rises = 0;
    for (uint64_t seed = 1; seed <= (test_small ? 40 : 150); seed++) {
        const size_t count = 1 + ha_rng_below(seed, 6, 0, 40), threads = 2 + ha_rng_below(seed, 6, 1, 3);
        double all = 0;
        for (size_t i = 0; i < count; i++) {
            const bool is_long = seed % 2 && ha_rng_below(seed, 7, i, 3) == 0;
            want[i][0] = 2000 + ha_rng_below(seed, 8, i, is_long ? 130000 : 6000);
            want[i][1] = 1 + ha_rng_below(seed, 9, i, 8);
            all += (double)(want[i][0] * want[i][1]);
        }
        const double last = take_note(want, count, threads);
        /* of so little work the least that a part may have is too large a share */
        if (all > 10 * 8 * 512 * (double)threads) worst = fmax(worst, last);
    }
    printf("the last worker of mixed batches takes %.3f times the mean at most\n", worst);
    assert_true(worst < 1.08);
    /* the largest first, but a worker may begin its turn late */
    assert_true(rises * 8 < turns);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
