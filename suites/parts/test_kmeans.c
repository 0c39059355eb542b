/* k-means: what it says of its objective is true, Lloyd's never rises, mini-batches end below their start and near
 * Lloyd's, and the seed says every bit. */

#include "harness/base/arena.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/parts/kmeans.h"

#include <math.h>

extern const struct ha_kernels ha_kernels_c;

enum { N_MAX = 6000, DIMS_MAX = 8, COUNT_MAX = 4096 };

static struct ha_why why;
static float x[N_MAX * DIMS_MAX], book[COUNT_MAX * DIMS_MAX], other[COUNT_MAX * DIMS_MAX];
static struct ha_kmeans_result result;

/* `blobs` clouds, whose centres lie far apart */
static void fill(size_t n, size_t dims, size_t blobs, uint64_t seed)
{
    for (size_t i = 0; i < n * dims; i++) {
        const size_t blob = ha_rng_below(seed, 1, i / dims, blobs);
        x[i] = 20 * ha_rng_normal(seed, 2, blob * dims + i % dims) + ha_rng_normal(seed, 3, i);
    }
}

static double squared(double off) { return off * off; }

static double objective(size_t n, size_t dims, size_t count, const float *centroid)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double least = HUGE_VAL;
        for (size_t j = 0; j < count; j++) {
            double square = 0;
            for (size_t d = 0; d < dims; d++)
                square += squared((double)x[i * dims + d] - (double)centroid[d * count + j]);
            least = fmin(least, square);
        }
        sum += least;
    }
    return sum;
}

static enum ha_status run(enum ha_kmeans_way way, size_t n, size_t dims, size_t count, size_t iterations, uint64_t seed,
                          float *centroid)
{
    struct ha_kmeans k = {
        .way = way, .count = count, .iterations = iterations, .batch = 500, .seed = seed, .kernels = &ha_kernels_c
    };
    assert_int_equal(ha_arena_create(&k.arena, true, &why), HA_OK);
    memset(centroid, 0xff, count * dims * sizeof *centroid);
    const enum ha_status status = ha_kmeans(&k, x, n, dims, centroid, &result, &why);
    assert_int_equal(ha_arena_check(k.arena, &why), HA_OK);
    ha_arena_destroy(k.arena);
    return status;
}

static void learn(enum ha_kmeans_way way, size_t n, size_t dims, size_t count, size_t iterations, uint64_t seed)
{
    if (run(way, n, dims, count, iterations, seed, book) != HA_OK) fail_msg("%s", why.text);
    const double is = objective(n, dims, count, book);
    if (!(fabs(result.objective - is) <= 1e-5 * is))
        fail_msg("the objective is %.9g, and %.9g is said", is, result.objective);
}

static const struct {
    size_t n, dims, count, blobs;
} shapes[] = { { 3000, 4, 16, 16 }, { 5000, 1, 7, 40 }, { 2111, 8, 64, 30 }, { 700, 2, 600, 5 }, { 40, 3, 2, 1 } };
enum { KEPT = 3 }; /* a shape whose start is so good that mini-batches lose by it */

TEST(lloyds_objective_never_rises)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        fill(shapes[i].n, shapes[i].dims, shapes[i].blobs, i);
        double last = HUGE_VAL;
        size_t steps = 0;
        bool fell = false;
        for (size_t iterations = 0; iterations < 12; iterations++) {
            learn(HA_KMEANS_LLOYD, shapes[i].n, shapes[i].dims, shapes[i].count, iterations, i);
            if (!(result.objective <= last)) fail_msg("%g after %g", result.objective, last);
            fell |= iterations > 0 && result.objective < last;
            last = result.objective;
            assert_true(result.steps <= iterations && result.steps >= steps);
            steps = result.steps;
        }
        assert_true(fell);
    }
}

/* After an iteration every centroid is the mean of the vectors that the centroids before were nearest to; where it has
 * ended by itself, of those that it is nearest to. */
TEST(lloyd_moves_to_means)
{
    enum { N = 2000, DIMS = 3, CENTROIDS = 12 };
    static const size_t iterations[] = { 0, 1, 2, 3, 500 };
    for (size_t it = 0; it < COUNT(iterations); it++) {
        double mean[CENTROIDS][DIMS + 1] = { 0 };
        for (size_t i = 0; i < N * DIMS; i++) x[i] = ha_rng_normal(5, 1, i);
        learn(HA_KMEANS_LLOYD, N, DIMS, CENTROIDS, iterations[it], 5);
        assert_true(iterations[it] < 500 ? result.steps == iterations[it] : result.steps < 500);
        for (size_t i = 0; i < N; i++) {
            size_t nearest = 0;
            double least = HUGE_VAL;
            for (size_t j = 0; j < CENTROIDS; j++) {
                double square = 0;
                for (size_t d = 0; d < DIMS; d++)
                    square += squared((double)x[i * DIMS + d] - (double)book[d * CENTROIDS + j]);
                if (square < least) nearest = j;
                least = fmin(least, square);
            }
            for (size_t d = 0; d < DIMS; d++) mean[nearest][d] += (double)x[i * DIMS + d];
            mean[nearest][DIMS]++;
        }
        learn(HA_KMEANS_LLOYD, N, DIMS, CENTROIDS, iterations[it] + 1, 5);
        for (size_t j = 0; j < CENTROIDS; j++)
            for (size_t d = 0; d < DIMS; d++)
                assert_true(fabs(mean[j][d] / mean[j][DIMS] - (double)book[d * CENTROIDS + j]) < 1e-4);
    }
}

TEST(minibatches_end_below_their_start_and_near_lloyd)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const size_t n = shapes[i].n, dims = shapes[i].dims, count = shapes[i].count;
        fill(n, dims, shapes[i].blobs, i);
        learn(HA_KMEANS_MINIBATCH, n, dims, count, 0, i);
        const double start = result.objective;
        assert_true(result.steps == 0);
        learn(HA_KMEANS_MINIBATCH, n, dims, count, 200, i);
        const double end = result.objective;
        if (!(i == KEPT ? end == start : end < start))
            fail_msg("shape %zu: %g at the start, %g at the end", i, start, end);
        learn(HA_KMEANS_LLOYD, n, dims, count, 200, i);
        if (!(end < (i == KEPT ? 3 : 1.5) * result.objective))
            fail_msg("shape %zu: %g, and Lloyd's %g", i, end, result.objective);
    }
}

/* They end before so many passes are over: where the mean distance falls no more. */
TEST(minibatches_stop_early)
{
    fill(5000, 4, 10, 3);
    learn(HA_KMEANS_MINIBATCH, 5000, 4, 10, 400, 3);
    assert_true(result.steps > 10 && result.steps < 2000);
}

TEST(the_seed_says_every_bit)
{
    for (size_t way = 0; ha_kmeans_word(way); way++) {
        const size_t bytes = 37 * 4 * sizeof *book;
        fill(5000, 4, 40, 9);
        assert_int_equal(run((enum ha_kmeans_way)way, 5000, 4, 37, 20, 9, book), HA_OK);
        assert_int_equal(run((enum ha_kmeans_way)way, 5000, 4, 37, 20, 9, other), HA_OK);
        assert_memory_equal(book, other, bytes);
        assert_int_equal(run((enum ha_kmeans_way)way, 5000, 4, 37, 20, 10, other), HA_OK);
        assert_true(memcmp(book, other, bytes) != 0);
    }
}

TEST(no_more_vectors_than_centroids_are_the_centroids)
{
    for (size_t n = 1; n <= 9; n++) {
        fill(n, 4, 3, n);
        learn(n % 2 ? HA_KMEANS_LLOYD : HA_KMEANS_MINIBATCH, n, 4, 9, 20, 1);
        assert_true(result.objective == 0);
        for (size_t j = 0; j < 9; j++)
            for (size_t d = 0; d < 4; d++) assert_true(book[d * 9 + j] == x[j % n * 4 + d]);
    }
}

/* 5 different vectors and 8 centroids: some have nothing to do, and all is as near as can be. */
TEST(duplicates)
{
    for (size_t way = 0; ha_kmeans_word(way); way++) {
        for (size_t i = 0; i < 2000 * 2; i++) x[i] = (float)(i / 2 % 5 * (i % 2 + 1));
        learn((enum ha_kmeans_way)way, 2000, 2, 8, 50, 3);
        assert_true(result.objective == 0);
        for (size_t i = 0; i < 8 * 2; i++) assert_true(isfinite(book[i]));
    }
}

/* One vector far away from thousands of equal ones is found: by the start, or by a centroid that nothing is near to. */
TEST(empty_centroids_are_seeded_anew)
{
    for (size_t way = 0; ha_kmeans_word(way); way++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            memset(x, 0, sizeof x);
            for (size_t i = 0; i < 4; i++) x[2 * (1000 * i + 17)] = (float)(i + 1);
            learn((enum ha_kmeans_way)way, 4000, 2, 16, 100, seed);
            if (way == HA_KMEANS_LLOYD && result.objective > 0) fail_msg("%g is left", result.objective);
        }
}

TEST(what_is_refused)
{
    static const float wrong[] = { NAN, INFINITY, -INFINITY, 3e17f };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        fill(100, 4, 3, 1);
        x[4 * 61 + 2] = wrong[i];
        assert_int_equal(run(HA_KMEANS_LLOYD, 100, 4, 9, 20, 1, book), HA_ERROR);
        assert_non_null(strstr(why.text, "vector 61 has"));
        assert_non_null(strstr(why.text, "in dimension 2"));
    }
    assert_int_equal(run(HA_KMEANS_LLOYD, 0, 4, 9, 20, 1, book), HA_ERROR);
    assert_non_null(strstr(why.text, "no vectors"));
}

/* Numbers as large as may be: squares stay finite. */
TEST(large_numbers)
{
    for (size_t i = 0; i < 400 * 8; i++) x[i] = ha_rng_uniform(1, 1, i) < 0.5f ? -1e17f : 1e17f;
    learn(HA_KMEANS_LLOYD, 400, 8, 9, 20, 1);
    assert_true(isfinite(result.objective));
}
