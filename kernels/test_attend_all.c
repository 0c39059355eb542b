/* attend_all: how it cuts many attentions of all lengths for the workers of a pool, told by kernels that compute
 * nothing and only take note. What it computes, kernels/test_packed_device.c has. */

#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "kernels/test_data.h"

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
    run_all(&noting, unit, count, &most, pool); /* which may start the threads of the pool */
    memset(&notes, 0, sizeof notes);
    assert_int_equal(run_all(&noting, unit, count, &most, pool), 0);
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
    take_note(want, 0, 2);
    assert_true(notes.turns == 0);
    take_note(want, 3, 2); /* without keys */
    assert_true(notes.wholes == 3);
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
