#include "harness/base/array.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

TEST(grows_and_keeps_what_it_holds)
{
    uint32_t *list = NULL;
    size_t room = 0, moves = 0;
    for (uint32_t i = 0; i < 10000; i++) {
        const size_t before = room;
        assert_true(ha_array_room(&list, &room, i + 1, sizeof *list));
        assert_true(room > i && (room == before || room >= 2 * before));
        moves += room != before;
        list[i] = i;
    }
    for (uint32_t i = 0; i < 10000; i++) assert_int_equal(list[i], i);
    assert_true(moves < 15);
    assert_true(ha_array_room(&list, &room, 1000000, sizeof *list) && room == 1000000);
    free(list);
}

TEST(no_memory_changes_nothing)
{
    char *list = NULL;
    size_t room = 0;
    assert_true(ha_array_room(&list, &room, 5, 1));
    char *const was = list;
    const size_t had = room;
    assert_false(ha_array_room(&list, &room, SIZE_MAX / 2, 16)); /* their product overflows */
    assert_true(list == was && room == had);
    free(list);
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* against sorting: few values and many, in order, the other way round, infinite ones, every place */
TEST(largest_is_what_sorting_puts_there)
{
    enum { N_MAX = 70 };
    for (size_t n = 1; n <= N_MAX; n++)
        for (uint64_t kind = 0; kind < 6; kind++) {
            double was[N_MAX] = { 0 }, sorted[N_MAX];
            for (size_t i = 0; i < n; i++) {
                const uint64_t bits = ha_rng_bits(n, kind, i);
                was[i] = kind < 3 ? (double)(bits % (kind == 0 ? 3 : kind == 1 ? 20 : 1000000)) : (double)i;
                if (kind == 4) was[i] = -was[i];
                if (kind == 5) was[i] = (double)(i < n / 2 ? i : n - i);
                if (kind == 1 && bits >> 60 == 0) was[i] = bits & 32 ? (double)INFINITY : -(double)INFINITY;
            }
            memcpy(sorted, was, sizeof was);
            qsort(sorted, n, sizeof *sorted, descending);
            for (size_t before = 0; before < n; before++) {
                double x[N_MAX];
                memcpy(x, was, sizeof was);
                assert_true(ha_array_largest(x, n, before) == sorted[before]);
                qsort(x, n, sizeof *x, descending);
                assert_memory_equal(x, sorted, n * sizeof *x);
            }
        }
}

TEST(largest_stays_inside_with_nan)
{
    double x[11];
    for (unsigned which = 0; which < 1u << 9; which++)
        for (size_t before = 0; before < 9; before++) {
            x[0] = x[10] = -5;
            for (size_t i = 0; i < 9; i++) x[1 + i] = which >> i & 1 ? (double)NAN : (double)(i * 5 % 9);
            ha_array_largest(x + 1, 9, before);
            assert_true(x[0] == -5 && x[10] == -5);
        }
}
