/* The bound of attention by tables, by weights that are exp(s - L) and cross a link, and by the sum of those alone that
 * are heavy: it holds for every honest way in binary32, on inputs made to be hard, and no wrong result is within it.
 *
 *     build/release/t/reference test_weights holds 62500 7      1,000,000 cases of 62,500 problems of seed 7 */

#include "reference/test_fp32.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 3000, SUM_KEYS = HA_SUM_KEYS };

enum plant { NONE, KEY_LOST, KEY_TWICE, L_OFF, ALL_OFF, ONE_OFF, DIVIDED, CODE_OFF, PLANTS };
struct way {
    enum ha_dtype table, weight;
    bool renorm, quotient, fused; /* quotient: weights are exp(s - max) / sum */
    enum plant plant;
};
static const struct way ways[] = {
    { HA_F32, HA_F32, false, false, false, NONE }, { HA_F32, HA_F32, false, true, true, NONE },
    { HA_F32, HA_F16, false, false, true, NONE },  { HA_F32, HA_F16, false, true, false, NONE },
    { HA_F16, HA_F32, false, false, true, NONE },  { HA_F16, HA_F32, false, true, false, NONE },
    { HA_F16, HA_F16, false, false, false, NONE }, { HA_F16, HA_F16, false, true, true, NONE },
    { HA_F32, HA_F32, true, false, false, NONE },  { HA_F32, HA_F32, true, true, true, NONE },
    { HA_F32, HA_F16, true, false, true, NONE },   { HA_F32, HA_F16, true, true, false, NONE },
    { HA_F16, HA_F32, true, false, true, NONE },   { HA_F16, HA_F32, true, true, false, NONE },
    { HA_F16, HA_F16, true, false, false, NONE },  { HA_F16, HA_F16, true, true, true, NONE },
};

/* A problem: keys that stand for codes, and what a way makes of them. */
struct problem {
    struct ha_test_input in;
    size_t dims;
    double tau;
};
static struct {
    float x[KEYS_MAX], w[KEYS_MAX], o[HA_TEST_DIM_MAX], lse, mass;
    bool used[KEYS_MAX];
} made;

static float multiply_add(bool fused, float a, float b, float c)
{
    const float product = a * b;
    return fused ? fmaf(a, b, c) : product + c;
}

/* False: an entry of the table is beyond its type. */
static bool score(const struct problem *p, const struct way *way)
{
    const struct ha_test_input *in = &p->in;
    for (size_t j = 0; j < in->keys; j++) {
        float sum = 0;
        for (size_t g = 0; g < in->dim / p->dims; g++) {
            float entry = 0;
            for (size_t d = g * p->dims; d < (g + 1) * p->dims; d++)
                entry = multiply_add(way->fused, in->q[d], in->k[j * in->dim + d], entry);
            entry = ha_round(entry, way->table);
            if (!isfinite(entry)) return false;
            if (way->plant == CODE_OFF && g == 0) entry += j % 2 ? 0.5f : -0.5f;
            sum += entry;
        }
        made.x[j] = in->scale * sum;
        if (!isfinite(made.x[j])) return false;
    }
    return true;
}

/* a path of at most 320 + n / 1024: of 320 keys each, or more and then fewer */
static float sum_up(const float *x, size_t n)
{
    float sum = 0;
    for (size_t from = 0; from < n; from += 1024) {
        float lane[4] = { 0 };
        for (size_t j = from; j < n && j < from + 1024; j++) lane[n > 320 ? j % 4 : 0] += x[j];
        sum += (lane[0] + lane[1]) + (lane[2] + lane[3]);
    }
    return sum;
}

static void weigh(const struct problem *p, const struct way *way)
{
    static float e[KEYS_MAX];
    const size_t n = p->in.keys;
    float max = -INFINITY;
    for (size_t j = 0; j < n; j++) max = fmaxf(max, made.x[j]);
    for (size_t j = 0; j < n; j++) e[j] = expf(made.x[j] - max);
    const float sum = sum_up(e, n);
    made.lse = max + logf(sum);
    if (way->plant == L_OFF) made.lse += 0x1p-8f;
    for (size_t j = 0; j < n; j++) made.w[j] = way->quotient ? e[j] / sum : expf(made.x[j] - made.lse);
    if (way->plant == ALL_OFF)
        for (size_t j = 0; j < n; j++) made.w[j] *= 1 + 0x1p-8f;
}

static int heavier(const void *a, const void *b)
{
    const float x = made.w[*(const uint32_t *)a], y = made.w[*(const uint32_t *)b];
    return (x < y) - (x > y);
}

static size_t choose(const struct problem *p)
{
    static uint32_t order[KEYS_MAX];
    double sum = 0;
    size_t count = 0;
    for (uint32_t j = 0; j < p->in.keys; j++) order[j] = j, made.used[j] = false;
    qsort(order, p->in.keys, sizeof *order, heavier);
    while (count < p->in.keys && sum < p->tau) sum += (double)made.w[order[count]], made.used[order[count++]] = true;
    made.mass = (float)sum;
    return order[0];
}

static void add_up(const struct problem *p, const struct way *way, size_t heaviest)
{
    const struct ha_test_input *in = &p->in;
    float total = 0;
    memset(made.o, 0, sizeof made.o);
    for (size_t from = 0, j = 0; j < in->keys; from = j) {
        float part[HA_TEST_DIM_MAX] = { 0 }, sum = 0;
        for (size_t count = 0; j < in->keys && count < SUM_KEYS; j++) {
            if (!made.used[j] || (way->plant == KEY_LOST && j == heaviest)) continue;
            float w = ha_round(made.w[j], way->weight);
            if (j == heaviest && way->plant == KEY_TWICE) w *= 2;
            if (j == heaviest && way->plant == ONE_OFF) w *= 1 + 0x1p-6f;
            for (size_t d = 0; d < in->dim; d++) part[d] = multiply_add(way->fused, w, in->v[j * in->dim + d], part[d]);
            sum += way->fused ? w : made.w[j];
            count++;
        }
        for (size_t d = 0; d < in->dim; d++) made.o[d] = from ? made.o[d] + part[d] : part[d];
        total = from ? total + sum : sum;
    }
    for (size_t d = 0; d < in->dim && (way->renorm || way->plant == DIVIDED); d++) made.o[d] /= total;
    if (way->renorm) made.lse += logf(total);
}

/* what it claims, as hcattention does */
static struct ha_profile claims(const struct problem *p, const struct way *way)
{
    return (struct ha_profile){ .dot_lanes = (unsigned)p->dims,
                                .dot_extra = (unsigned)p->dims + 1,
                                .sum_lanes = 1,
                                .join_keys = SUM_KEYS,
                                .exact_joins = true,
                                .exp_eps = 2.02 * 0x1p-24,
                                .log_eps = 2.02 * 0x1p-24,
                                .weight_type = way->weight,
                                .sum_rounded = way->renorm && way->fused,
                                .score_type = way->table,
                                .sum_least = way->renorm ? (double)made.mass * (1 - 0x1p-10) : 1 };
}

/* Error over bound; negative: none, since a number is beyond its type. */
static double ratio_of(const struct problem *p, const struct way *way, size_t runs)
{
    struct ha_test_input in = p->in;
    static float k[KEYS_MAX * HA_TEST_DIM_MAX], v[KEYS_MAX * HA_TEST_DIM_MAX];
    static double work[2 * KEYS_MAX + HA_TEST_DIM_MAX];
    size_t rows = 0, left_out = 0, at;
    if (!score(p, way)) return -1;
    weigh(p, way);
    const size_t heaviest = choose(p);
    for (size_t j = 0; j < in.keys; j++) {
        if (way->renorm && !made.used[j]) continue;
        left_out += !made.used[j];
        memcpy(k + rows * in.dim, in.k + j * in.dim, in.dim * sizeof *k);
        for (size_t d = 0; d < in.dim; d++) v[rows * in.dim + d] = made.used[j] ? in.v[j * in.dim + d] : 0;
        rows++;
    }
    if (way->renorm && way->weight != HA_F32 && made.mass < 0x1p-10f) return -1;
    const struct ha_profile profile = claims(p, way);
    const struct ha_bound b = ha_bound_attend(&profile, in.dim, rows, runs);
    const struct ha_rows of = { k, v, in.dim * sizeof *k, in.dim * sizeof *v, NULL, rows };
    struct ha_ref_state want = ha_test_state(in.dim);
    const struct ha_ref_query query = { in.q, rows, left_out, &b, &want };
    ha_ref_attend_group(&query, 1, in.dim, (double)in.scale, &of, HA_F32, work);
    if (want.may_overflow) return -1;
    add_up(p, way, heaviest);
    return ha_ref_ratio(made.o, made.lse, &want, &at);
}

static size_t pick(uint64_t seed, uint64_t i, uint64_t what, size_t of)
{
    const size_t x = (size_t)(ha_rng_uniform(seed, i, what) * (float)of);
    return x < of ? x : of - 1;
}

static struct problem problem_of(uint64_t seed, uint64_t i)
{
    static const size_t dim[] = { 2, 8, 16, 64, 128 }, most[] = { 3, 40, 400, KEYS_MAX };
    static const double tau[] = { 0.1, 0.5, 0.9, 0.99, 1 };
    const size_t d = dim[pick(seed, i, 0, 5)], n = 1 + pick(seed, i, 1, most[pick(seed, i, 2, 4)]);
    struct problem p = { .in = ha_test_input(pick(seed, i, 3, ha_test_families), n, d,
                                             (enum ha_dtype)pick(seed, i, 4, HA_DTYPE_COUNT), seed * 1000003 + i),
                         .dims = (size_t)1 << pick(seed, i, 5, 5),
                         .tau = tau[pick(seed, i, 6, 5)] };
    while (p.dims > d) p.dims /= 2;
    if (pick(seed, i, 7, 3) == 1)
        for (size_t l = 0; l < d; l++) p.in.q[l] *= 300;
    return p;
}

struct tally {
    size_t cases, none;
    double worst[2];
};

static size_t holds(uint64_t count, uint64_t seed, struct tally *t)
{
    size_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        const struct problem p = problem_of(seed, i);
        for (size_t w = 0; w < COUNT(ways); w++) {
            const double ratio = ratio_of(&p, &ways[w], 1 + i % 5);
            t->cases++;
            t->none += ratio < 0;
            t->worst[ways[w].renorm] = fmax(t->worst[ways[w].renorm], ratio);
            if (ratio <= 1) continue;
            wrong++;
            print_message("way %zu of problem %llu: %s, groups of %zu, tau %g: ratio %g\n", w, (unsigned long long)i,
                          ha_test_input_says(&p.in), p.dims, p.tau, ratio);
        }
        ha_test_release();
    }
    printf("%zu cases (%zu beyond their types): the largest error over its bound is %.3f, %.3f renormalised\n",
           t->cases, t->none, t->worst[0], t->worst[1]);
    return wrong;
}

TEST(test_it_holds)
{
    struct tally t = { 0 };
    assert_int_equal(holds(test_small ? 60 : 600, 1, &t), 0);
    assert_true(t.worst[0] > 0.05 && t.worst[1] > 0.05); /* it is not far too large */
    assert_true(t.none * 4 < t.cases);
}

/* 400 random keys whose scores differ by units */
TEST(test_what_is_wrong_is_beyond_it)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct problem p = { .in = ha_test_input(0, 400, 64, HA_F16, seed), .dims = 4, .tau = 0.9 };
        for (enum plant plant = NONE; plant < PLANTS; plant++) {
            const struct way way = { HA_F32, HA_F32, false, false, false, plant };
            const double ratio = ratio_of(&p, &way, 1);
            if (plant == NONE ? !(ratio <= 1) : ratio <= 1) fail_msg("defect %d: ratio %g", (int)plant, ratio);
        }
        ha_test_release();
    }
}

/* What is rounded and not said, and what is said of another sum. */
TEST(test_what_is_not_claimed)
{
    struct problem p = { .in = ha_test_input(0, 400, 64, HA_F16, 3), .dims = 4, .tau = 0.9 };
    const struct way honest = ways[0];
    assert_true(ratio_of(&p, &honest, 1) <= 1);
    const struct ha_profile all = claims(&p, &honest);
    const struct ha_bound plain = ha_bound_attend(&all, 64, 400, 1);
    assert_true(plain.u_s == 0 && plain.least_s == 0 && plain.sum_least == 1 && plain.u_p == 0);
    struct ha_profile table = all, weight = all;
    table.score_type = weight.weight_type = HA_F16;
    const struct ha_bound b = ha_bound_attend(&table, 64, 400, 1);
    assert_true(b.u_s == 0x1p-11 && b.least_s == 0x1p-14 && b.exp_eps == plain.exp_eps);
    assert_true(ha_bound_attend(&weight, 64, 400, 1).u_p == 0x1p-11);
    /* u (ln n - ln least + 2) */
    table.sum_least = 0.5;
    assert_true(fabs(ha_bound_attend(&table, 64, 400, 1).exp_eps - plain.exp_eps - 0x1p-24 * log(2)) < 1e-20);
    table.sum_least = 0;
    assert_true(fabs(plain.exp_eps - ha_bound_attend(&table, 64, 400, 1).exp_eps - 0x1p-24 * (log(400) + 2)) < 1e-20);
    ha_test_release();
}

TEST_MAIN
{
    struct tally t = { 0 };
    if (argc > 3 && !strcmp(argv[1], "holds"))
        return holds(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), &t) > 0;
    return test_all("tests", NULL, NULL);
}
