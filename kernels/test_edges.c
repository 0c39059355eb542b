/* Each kernel table on arguments that no device passes to a kernel: operands that end at a page that faults, rows at
 * strides, reads in streams, lists in which a sample misleads. The suite device has shapes, types and special numbers:
 * `habench check device:op=...,isa=...`. Each judge of the reference is shown a wrong number, too. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum { SIZES = 71, FLOATS = sizeof(float), CODE_BITS = 96 };
static const size_t dims[] = { 8, 1, 9, 16, 17, 33, 64, 80, 127, 128, 257 };

static size_t dim_of(size_t n) { return dims[n % COUNT(dims)]; }
static float *numbers(size_t n, uint64_t seed)
{
    float *x = ha_guard_alloc(n * FLOATS);
    ha_rng_normals(seed, 1, 0, n, x);
    return x;
}
static struct ha_test_kv keys_of(size_t n, enum ha_dtype dtype)
{
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, (enum ha_test_layout)(n % HA_TEST_LAYOUTS), dim_of(n), n, dtype, n);
    return kv;
}
static void within(const struct ha_kernels *t, const char *operation, size_t n, double ratio)
{
    if (!(ratio <= 1)) fail_msg("%s: %s of %zu: error over bound %g", t->name, operation, n, ratio);
}
/* What lies between rows is as ha_guard_alloc filled it. */
static void assert_apart(const float *x, size_t rows, size_t n, size_t stride)
{
    for (size_t r = 0; r + 1 < rows; r++)
        for (size_t i = n; i < stride; i++) assert_int_equal(ha_f32_bits(x[r * stride + i]), UINT32_MAX);
}
#define SEEN(place, wrong, ratio)              \
    do {                                       \
        const __typeof__(place) was = (place); \
        (place) = (wrong);                     \
        assert_true((ratio) > 1);              \
        (place) = was;                         \
        assert_true((ratio) <= 1);             \
    } while (0)
/* of the results of the portable table */
static bool judged_too(const struct ha_kernels *t, size_t n) { return t == ha_test_tables && n == 33; }

static void check_topk(const float *x, size_t n, size_t k)
{
    const size_t now = ha_guard_now(), taken = k < n ? k : n;
    uint32_t *got = (uint32_t *)ha_guard_alloc((1 + taken) * sizeof *got) + 1;
    HA_TEST_EACH(t, topk)
    {
        const struct ha_topk args = { .x = x, .n = n, .k = k, .index = got };
        memset(got - 1, 0xFF, (1 + taken) * sizeof *got);
        t->topk(&args);
        if (got[-1] != UINT32_MAX || !(ha_ref_judge_topk(&args) <= 1)) fail_msg("%s: n = %zu, k = %zu", t->name, n, k);
        for (size_t i = 0; judged_too(t, n) && i < taken && k < n; i++)
            SEEN(got[i], got[i] + 1, ha_ref_judge_topk(&args));
    }
    ha_guard_release(now);
}

TEST(largest)
{
    for (size_t n = 0; n < SIZES; n++) {
        const float *x = numbers(n, n);
        for (size_t k = 0; k < n + 2; k += 1 + n / 9) check_topk(x, n, k);
        ha_guard_release(0);
    }
}

/* Every 16th number, or 18th, or 32nd, is above or below all the others: a sample of only those says nothing about the
 * rest. Every k, so that each count that a step compares with k is once just enough and once not. */
TEST(misleading_samples)
{
    static const struct {
        size_t n, every, step, seed;
    } cases[] = { { 2100, 16, 1, 1 }, { 2338, 18, 1, 7 }, { 65536, 32, 9001, 1 } };
    for (size_t c = 0; c < COUNT(cases); c++)
        for (int shift = -1; shift <= 1; shift += 2) {
            float *x = numbers(cases[c].n, cases[c].seed);
            for (size_t i = 0; i < cases[c].n; i += cases[c].every) x[i] += 10 * (float)shift;
            for (size_t k = 1; k < cases[c].n; k += test_small ? 7 * cases[c].step : cases[c].step)
                check_topk(x, cases[c].n, k);
            ha_guard_release(0);
        }
}

/* more numbers than spans are looked at together, and a last one that is short */
TEST(a_long_row)
{
    enum { N = 267145 };
    float *x = numbers(N, 1), *y = ha_guard_alloc(N * FLOATS), lse;
    for (size_t i = 0; i < N; i++) x[i] += 200 * (float)i / N;
    HA_TEST_EACH(t, softmax)
    {
        const struct ha_softmax args = { y, 1, N, N, &lse };
        memcpy(y, x, N * FLOATS);
        t->softmax(&args);
        within(t, "softmax", N, ha_ref_judge_softmax(&args, x, t->traits.exp_eps));
    }
    ha_guard_release(0);
}

/* softmax, and what topp chooses of it */
TEST(weights)
{
    for (size_t n = 1; n < SIZES; n++) {
        const size_t rows = 1 + n % 3, stride = n + n % 2 * 3, count = (rows - 1) * stride + n, w_stride = n + rows % 3;
        float *x = ha_guard_alloc(count * FLOATS), *y = ha_guard_alloc(count * FLOATS), *w, lse[3];
        uint32_t *index = ha_guard_alloc(n * sizeof *index), keys;
        for (size_t r = 0; r < rows; r++) ha_rng_normals(n, r, 0, n, x + r * stride);
        HA_TEST_EACH(t, softmax)
        for (size_t i = 0; i < 2; i++) {
            const struct ha_softmax args = { y, rows, n, stride, i ? lse : NULL };
            memcpy(y, x, count * FLOATS);
            t->softmax(&args);
            within(t, "softmax", n, ha_ref_judge_softmax(&args, x, t->traits.exp_eps));
            assert_apart(y, rows, n, stride);
        }
        w = ha_guard_alloc(((rows - 1) * w_stride + n) * FLOATS);
        HA_TEST_EACH(t, topp)
        {
            const struct ha_topp args = { y, rows, n, stride, 0.7, index, w, HA_F32, w_stride, &keys };
            t->topp(&args);
            within(t, "topp", n, ha_ref_judge_topp(&args));
            for (size_t i = 0; judged_too(t, n) && i < keys; i++) {
                SEEN(w[i], nextafterf(w[i], 2), ha_ref_judge_topp(&args));
                SEEN(index[i], index[i] + 1, ha_ref_judge_topp(&args));
                if (!i) SEEN(keys, keys - 1, ha_ref_judge_topp(&args));
            }
        }
        ha_guard_release(0);
    }
}

/* a p that is just reached by so many, and just not: by 2^-52 */
TEST(sums_are_exact)
{
    static const size_t ns[] = { 5, 100, 513, 600, 2049, 8191 };
    for (size_t c = 0; c < 5 * COUNT(ns); c++) {
        const size_t n = ns[c / 5];
        float *x = ha_guard_alloc(n * FLOATS), *w = ha_guard_alloc(n * FLOATS);
        uint32_t *index = ha_guard_alloc(n * sizeof *index), keys;
        double total = 0;
        for (size_t i = 0; i < n; i++) {
            const float any = ha_rng_uniform(c, 2, i), share = 2 / (float)n;
            const uint32_t bits = (uint32_t)ha_rng_bits(c, 3, i);
            /* of every size, of few, around 2^-29, below which weights are cut, of 7 * 2^-53 at most, subnormal */
            const float of[] = { share * any * any, share * (float)(bits % 4 + 1) / 4, (0.5f + any) * 0x1p-29f,
                                 (float)(bits % 8) * 0x1p-53f,
                                 bits % 5 ? ha_f32_of_bits(bits & 0xFFFFF) : share * any };
            total += (double)(x[i] = of[c % 5]);
        }
        for (size_t j = 0; j < 7; j++) {
            static const double shares[] = { 0.9, 1, 0.5, 0.99, 0x1p-53, 0.1, 1 - 0x1p-40 };
            struct ha_topp args = { x, 1, n, n, fmin(1, shares[j] * total), index, w, HA_F32, n, &keys };
            double sum = 0;
            ha_test_tables->topp(&args);
            for (size_t k = 0; k < keys; k++) sum += floor((double)w[k] * 0x1p52);
            if (!(sum > 1 && sum < 0x1p52)) continue;
            for (size_t k = 0; k < 5; k++) { /* the last is hardly ever reached */
                args.p = k == 4 ? 1 : (sum + (const double[]){ 0, 1, -1, -0.5 }[k]) * 0x1p-52;
                HA_TEST_EACH(t, topp)
                {
                    t->topp(&args);
                    within(t, "topp", n, ha_ref_judge_topp(&args));
                }
            }
        }
        ha_guard_release(0);
    }
}

TEST(sums)
{
    static const size_t most[] = { 255, 256, 257, 513, 1500 };
    HA_TEST_DTYPES(dtype)
    for (size_t i = 0; i < SIZES + COUNT(most); i += test_small ? 4 : 1) {
        const size_t n = i < SIZES ? i : most[i - SIZES];
        const struct ha_test_kv kv = keys_of(n, dtype);
        const size_t rows = 1 + n % 6, w_stride = n + n % 4, o_stride = kv.dim + n % 3;
        float *s = ha_guard_alloc(n * FLOATS), *w = numbers((rows - 1) * w_stride + n, n),
              *o = ha_guard_alloc(((rows - 1) * o_stride + kv.dim) * FLOATS);
        const struct ha_score score = { numbers(kv.dim, n), kv.dim, kv.rows, dtype, 0.3f, s };
        struct ha_weighted_sum sum = { kv.rows, kv.dim, dtype, w, HA_F32, rows, w_stride, o, o_stride };
        sum.rows.k = NULL;
        for (size_t j = 0; j < (rows - 1) * w_stride + n; j++) w[j] = fabsf(w[j]);
        HA_TEST_EACH(t, score)
        {
            t->score(&score);
            within(t, "score", n, ha_ref_judge_score(&score, &t->profile, NULL));
        }
        HA_TEST_EACH(t, weighted_sum)
        {
            t->weighted_sum(&sum);
            within(t, "weighted_sum", n, ha_ref_judge_weighted_sum(&sum, NULL));
            assert_apart(o, rows, kv.dim, o_stride);
            for (size_t d = 0; judged_too(t, n) && d < kv.dim; d++) {
                SEEN(o[d], o[d] + 2e-3f, ha_ref_judge_weighted_sum(&sum, NULL));
                SEEN(o[d], d % 2 ? (float)NAN : (float)INFINITY, ha_ref_judge_weighted_sum(&sum, NULL));
            }
        }
        ha_guard_release(0);
    }
}

/* One value and one weight for all: every rounding of a sum has one sign, and the declared number of additions shows.
 */
TEST(roundings_of_one_sign)
{
    static const size_t keys[] = { 20000, 60001 };
    HA_TEST_DTYPES(dtype)
    for (size_t k = 0; k < (test_small ? 1 : COUNT(keys)); k++) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_DENSE, 20, keys[k], dtype, k);
        for (size_t i = 0; i < 20 * keys[k]; i++) ha_test_kv_put_v(&kv, i / 20, i % 20, 0.1f);
        float *w = ha_guard_alloc(keys[k] * FLOATS), o[20];
        const struct ha_weighted_sum sum = { kv.rows, 20, dtype, w, HA_F32, 1, keys[k], o, 20 };
        for (size_t i = 0; i < keys[k]; i++) w[i] = 0x1.555556p-9f;
        HA_TEST_EACH(t, weighted_sum)
        {
            t->weighted_sum(&sum);
            within(t, "weighted_sum", keys[k], ha_ref_judge_weighted_sum(&sum, NULL));
        }
        ha_guard_release(0);
    }
}

TEST(digests)
{
    HA_TEST_DTYPES(dtype)
    for (size_t n = 1; n < SIZES; n += test_small ? 4 : 1) {
        const struct ha_test_kv kv = keys_of(n, dtype);
        const size_t unit = 1 + n % 7, first = n % 5 * 8, blocks = first + (n + unit - 1) / unit, rows = 1 + n % 9,
                     q_stride = kv.dim + n % 2, s_stride = blocks + n % 3, count = (rows - 1) * s_stride + blocks;
        struct ha_digest digest = { .digests = ha_guard_alloc(ha_digest_bytes(blocks, kv.dim, dtype)),
                                    .first = first,
                                    .blocks = blocks - first,
                                    .unit = unit,
                                    .rows = kv.rows,
                                    .head_dim = kv.dim,
                                    .dtype = dtype };
        struct ha_digest_score score = { .q = numbers((rows - 1) * q_stride + kv.dim, n),
                                         .q_rows = rows,
                                         .q_stride = q_stride,
                                         .head_dim = kv.dim,
                                         .digests = digest.digests,
                                         .blocks = blocks,
                                         .dtype = dtype,
                                         .scale = 0.3f,
                                         .s = ha_guard_alloc(count * FLOATS),
                                         .s_stride = s_stride };
        float *same = ha_guard_alloc(count * FLOATS);
        memset(digest.digests, 0, ha_digest_bytes(blocks, kv.dim, dtype));
        for (int kind = 1; kind >= 0; kind--) HA_TEST_EACH(t, digest)
            {
                digest.kind = (enum ha_digest_kind)kind;
                t->digest(&digest);
                within(t, "digest", n, ha_ref_judge_digest(&digest));
            }
        HA_TEST_EACH(t, digest_score)
        {
            score.streams = false;
            t->digest_score(&score);
            within(t, "digest_score", n, ha_ref_judge_digest_score(&score, NULL));
            assert_apart(score.s, rows, blocks, s_stride);
            memcpy(same, score.s, count * FLOATS);
            score.streams = true;
            t->digest_score(&score);
            assert_memory_equal(same, score.s, count * FLOATS);
        }
        ha_guard_release(0);
    }
}

TEST(codes)
{
    HA_TEST_DTYPES(dtype)
    for (size_t n = 0; n < SIZES; n += test_small ? 4 : 1) {
        const struct ha_test_kv kv = keys_of(n, dtype);
        const size_t first = n % 17, keys = first + n, rows = 1 + n % 20, bits = 32 * (1 + n % 8),
                     stride = keys + n % 3, count = (rows - 1) * stride + keys;
        const struct ha_hash hash = { .a = numbers(bits * kv.dim, n),
                                      .bits = bits,
                                      .rows = kv.rows,
                                      .head_dim = kv.dim,
                                      .dtype = dtype,
                                      .codes = ha_guard_alloc(ha_code_bytes(keys, bits)),
                                      .first = first };
        uint32_t *q = ha_guard_alloc(ha_code_bytes(rows, bits));
        float *same = ha_guard_alloc(count * FLOATS);
        struct ha_hamming hamming = { q, rows, bits, hash.codes, keys, ha_guard_alloc(count * FLOATS), stride, false };
        for (size_t i = 0; i < ha_code_bytes(rows, bits) / 4; i++) q[i] = (uint32_t)ha_rng_bits(n, 2, i);
        HA_TEST_EACH(t, hash)
        {
            t->hash(&hash);
            within(t, "hash", n, ha_ref_judge_hash(&hash));
        }
        HA_TEST_EACH(t, hamming)
        {
            hamming.streams = false;
            t->hamming(&hamming);
            within(t, "hamming", n, ha_ref_judge_hamming(&hamming));
            assert_apart(hamming.s, rows, keys, stride);
            memcpy(same, hamming.s, count * FLOATS);
            hamming.streams = true;
            t->hamming(&hamming);
            assert_memory_equal(same, hamming.s, count * FLOATS);
            for (size_t i = first; judged_too(t, n) && i < keys; i++)
                SEEN(hamming.s[i], nextafterf(hamming.s[i], INFINITY), ha_ref_judge_hamming(&hamming));
        }
        ha_guard_release(0);
    }
}

/* a bit that is wrong although binary32 knows it, and one that it does not know; norms */
TEST(a_wrong_code_is_seen)
{
    enum { DIM = 64, BITS = 32 };
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, HA_TEST_DENSE, DIM, 1, HA_F32, 1);
    float *a = numbers(BITS * DIM, 1);
    uint32_t *codes = ha_guard_alloc(ha_code_bytes(1, BITS));
    const struct ha_hash h = { a, BITS, kv.rows, DIM, HA_F32, codes, 0 };
    float *norm = (float *)codes + ha_ref_code(BITS, 0, 1);
    for (size_t d = 0; d < DIM; d++) ha_test_kv_put_k(&kv, 0, d, 1);
    for (size_t d = 0; d < DIM; d++) a[d] = d % 2 ? -1 : 1;
    ha_test_tables->hash(&h);
    for (size_t b = 1; b < BITS; b++) SEEN(*codes, *codes ^ 1u << b, ha_ref_judge_hash(&h));
    static const float near[] = { 0x1p-13f, -0x1p-13f, 0x1p-11f, -0x1p-11f };
    for (size_t i = 0; i < COUNT(near); i++) {
        a[0] = 1 + near[i]; /* 64 terms of 1: 2^-12 are 64 roundings of their sizes */
        ha_test_tables->hash(&h);
        *codes ^= 1;
        assert_true((ha_ref_judge_hash(&h) <= 1) == (i < 2));
    }
    ha_test_tables->hash(&h);
    static const float wrong[] = { 8 * (1 + 0x1p-18f), 8 * (1 - 0x1p-18f), -8, 0, INFINITY, NAN };
    for (size_t i = 0; i < COUNT(wrong); i++) SEEN(*norm, wrong[i], ha_ref_judge_hash(&h));
    for (int sign = -1; sign <= 1; sign += 2) {
        *norm = 8 * (1 + (float)sign * 0x1p-20f);
        assert_true(ha_ref_judge_hash(&h) <= 1);
    }
    ha_guard_release(0);
}

TEST(nets)
{
    for (size_t n = 1; n < SIZES; n += test_small ? 4 : 1) {
        struct ha_net net = { .rows = 1 + n % 10, .layers = 1 + n % 3, .width = { n, n, 1 + n % 19, n } };
        net.w = numbers(ha_net_weights(&net), n);
        net.x = numbers(net.rows * n, n + 1);
        net.y = ha_guard_alloc(net.rows * net.width[net.layers] * FLOATS);
        net.scratch = ha_guard_alloc(ha_net_scratch(&net) * FLOATS);
        HA_TEST_EACH(t, net)
        {
            t->net(&net);
            for (size_t r = 0; r < net.rows; r++) within(t, "net", n, ha_ref_judge_net(&net, r));
        }
        ha_guard_release(0);
    }
}

/* Whatever the inputs are within what they may be off by, the outputs are within what is said of them; a number is seen
 * that is off by more than that. */
TEST(errors_of_inputs_come_through)
{
    struct ha_net n = { .rows = 1, .layers = 3, .width = { 41, 100, 60, 3 } };
    double x[41], off[41], y[3], y_off[3], most[3] = { 0 };
    float *from = numbers(41, 7), got[3];
    n.w = numbers(ha_net_weights(&n), 8);
    n.x = from;
    n.y = got;
    n.scratch = ha_guard_alloc(ha_net_scratch(&n) * FLOATS);
    for (size_t i = 0; i < 41; i++) {
        x[i] = (double)from[i];
        off[i] = i % 4 ? 1e-3 * (double)(i % 5) : 0;
    }
    ha_test_tables->net(&n);
    ha_ref_net(&n, x, NULL, y, y_off);
    for (size_t j = 0; j < 3; j++) {
        assert_true(y_off[j] < 0.1 * fabs(y[j])); /* and it is no bound that anything keeps */
        SEEN(got[j], (float)(y[j] + 1.1 * y_off[j]), ha_ref_judge_net(&n, 0));
        SEEN(got[j], j % 2 ? (float)NAN : (float)INFINITY, ha_ref_judge_net(&n, 0));
    }
    ha_ref_net(&n, x, off, y, y_off);
    for (uint64_t k = 0; k < 200; k++) {
        for (uint64_t i = 0; i < 41; i++) from[i] = (float)(x[i] + (ha_rng_bits(k, 9, i) & 1 ? -1 : 1) * off[i]);
        ha_test_tables->net(&n);
        for (size_t j = 0; j < 3; j++) {
            most[j] = fmax(most[j], fabs((double)n.y[j] - y[j]));
            assert_true(fabs((double)n.y[j] - y[j]) <= y_off[j]);
        }
    }
    for (size_t j = 0; j < 3; j++) assert_true(most[j] > 1e-3 * y_off[j]); /* and not beyond all reason */
    ha_guard_release(0);
}

TEST(codebooks)
{
    HA_TEST_DTYPES(dtype)
    for (size_t n = 0; n < SIZES; n += test_small ? 4 : 1) {
        const struct ha_test_kv kv = keys_of(n, dtype);
        const size_t groups = kv.dim % 4 ? 1 : 4, bits = 1 + n % 8, first = n % 2 ? 0 : n % 33, keys = first + n,
                     q_len = 1 + n % 3, group = 1 + n % 4, rows = q_len * group, head = kv.dim + n % 2,
                     token = group * head + n % 3, stride = keys + n % 2;
        const enum ha_dtype type = n % 2 ? HA_F16 : HA_F32;
        struct ha_pq pq = { NULL, groups, kv.dim / groups, ((size_t)1 << bits) - n % 2, n % 3 ? groups : 1, bits };
        pq.centroid = numbers(ha_pq_book_floats(&pq), n);
        const struct ha_pq_encode encode = { pq, kv.rows, dtype, ha_guard_alloc(ha_pq_code_bytes(&pq, keys)), first };
        const struct ha_pq_table table = { pq,    numbers((q_len - 1) * token + (group - 1) * head + kv.dim, n),
                                           q_len, group,
                                           token, head,
                                           type,  ha_guard_alloc(ha_pq_table_bytes(&pq, rows, type)) };
        const struct ha_pq_score score = { pq,           table.table,
                                           type,         rows,
                                           encode.codes, keys,
                                           0.3f,         ha_guard_alloc(((rows - 1) * stride + keys) * FLOATS),
                                           stride };
        /* behind the last key there are any codes, and some that are no centroid's */
        if (first) memset(encode.codes, 0, ha_pq_code_bytes(&pq, keys));
        HA_TEST_EACH(t, pq_encode)
        {
            t->pq_encode(&encode);
            within(t, "pq_encode", n, ha_ref_judge_pq_encode(&encode));
        }
        HA_TEST_EACH(t, pq_table)
        {
            t->pq_table(&table);
            within(t, "pq_table", n, ha_ref_judge_pq_table(&table, NULL));
        }
        HA_TEST_EACH(t, pq_score)
        {
            t->pq_score(&score);
            within(t, "pq_score", n, ha_ref_judge_pq_score(&score, NULL));
            assert_apart(score.s, rows, keys, stride);
        }
        for (size_t i = 0; n == 33 && i < keys; i++)
            SEEN(score.s[i], i % 2 ? score.s[i] + 0.01f : (float)NAN, ha_ref_judge_pq_score(&score, NULL));
        for (size_t i = 0; n == 34 && i < ha_pq_table_bytes(&pq, rows, type) / FLOATS; i++)
            SEEN(((float *)table.table)[i], ((float *)table.table)[i] + 1e-3f, ha_ref_judge_pq_table(&table, NULL));
        const size_t own = first / HA_PQ_KEYS + (first % HA_PQ_KEYS != 0); /* blocks of keys that are all coded */
        unsigned char *code = (unsigned char *)encode.codes + own * ha_pq_block_bytes(&pq);
        if (n == 70) SEEN(*code, *code ^ 1, ha_ref_judge_pq_encode(&encode));
        ha_guard_release(0);
    }
}

/* A centroid with a NaN is never the nearest, but one that is infinitely far may be; where all are NaN it is the first.
 */
TEST(centroids_that_are_no_numbers)
{
    enum { COUNT_ = 277, BITS = 9, DIMS = 4, KEYS = 5 };
    static const size_t nan_before[] = { 3, 260, COUNT_ };
    struct ha_test_kv kv;
    float *c = numbers(DIMS * COUNT_, 1);
    const struct ha_pq pq = { c, 1, DIMS, COUNT_, 1, BITS };
    ha_test_kv_make(&kv, HA_TEST_DENSE, DIMS, KEYS, HA_F32, 1);
    const struct ha_pq_encode e = { pq, kv.rows, HA_F32, ha_guard_alloc(ha_pq_code_bytes(&pq, KEYS)), 0 };
    ha_test_kv_put_k(&kv, 1, 2, (float)NAN);
    ha_test_kv_put_k(&kv, 2, 0, INFINITY);
    for (size_t i = 0; i < COUNT(nan_before); i++) {
        for (size_t j = 0; j < nan_before[i]; j++) c[j % DIMS * COUNT_ + j] = (float)NAN;
        HA_TEST_EACH(t, pq_encode)
        {
            t->pq_encode(&e);
            within(t, "pq_encode", nan_before[i], ha_ref_judge_pq_encode(&e));
            assert_int_equal(ha_ref_pq_code(&pq, e.codes, 1, 0), 0);
            assert_int_equal(ha_ref_pq_code(&pq, e.codes, 2, 0), nan_before[i] % COUNT_);
        }
    }
    ha_guard_release(0);
}

/* States whose rows end at a page that faults: o of state i is i and a half, and all weigh the same; two that weigh
 * otherwise merge to the same bits in either order. Cases are lse_merge's. */
TEST(merges)
{
    enum { MOST = 520 };
    static const size_t counts[] = { 1, 2, 3, 5, 9, 16, 17, 33, 64, 65, 513 };
    struct ha_merge_state s[MOST];
    for (size_t c = 0; c < COUNT(counts) * HA_FORM_COUNT * HA_DTYPE_COUNT; c++) {
        const size_t count = counts[c / HA_FORM_COUNT / HA_DTYPE_COUNT], dim = dim_of(c);
        const enum ha_dtype dtype = (enum ha_dtype)(c / HA_FORM_COUNT % HA_DTYPE_COUNT);
        struct ha_merge m = { .form = (enum ha_form)(c % HA_FORM_COUNT),
                              .dtype = dtype,
                              .states = s,
                              .states_count = count,
                              .tokens = 1,
                              .heads = 1,
                              .dim = dim };
        for (size_t i = 0; i <= count; i++) {
            s[i] = (struct ha_merge_state){ .o = ha_guard_alloc(dim * ha_dtype_bytes(dtype)),
                                            .lse = ha_guard_alloc(FLOATS),
                                            .sum = ha_guard_alloc(FLOATS) };
            *s[i].lse = 0.75f;
            *s[i].sum = 3;
            for (size_t d = 0; d < dim; d++) ha_store(s[i].o, d, dtype, (float)(i % 7) + 0.5f);
        }
        m.out = s[count];
        double mean = 0;
        for (size_t i = 0; i < count; i++) mean += ((double)(i % 7) + 0.5) / (double)count;
        HA_TEST_EACH(t, merge)
        {
            float bits[2][257 + 2];
            t->merge(&m);
            for (size_t d = 0; d < dim; d++)
                assert_true(fabs((double)ha_load(m.out.o, d, dtype) - mean) <= mean * (dtype ? 0x1p-8 : 1e-5));
            for (size_t way = 0; count == 2 && way < 2; way++) {
                const float one = dtype == HA_F16 ? 0 : 0.75f, other = dtype == HA_F16 ? -0.0f : -0.3f;
                *s[0].lse = way ? other : one;
                *s[1].lse = way ? one : other;
                for (size_t d = 0; d < 2 * dim; d++)
                    ha_store(s[d < dim].o, d % dim, dtype, ha_rng_normal(c, (d < dim) == way, d % dim));
                t->merge(&m);
                for (size_t d = 0; d < dim; d++) bits[way][d] = ha_load(m.out.o, d, dtype);
                bits[way][dim] = *m.out.lse;
                bits[way][dim + 1] = m.form == HA_FORM_MAX_SUM ? *m.out.sum : 0;
            }
            if (count == 2) assert_memory_equal(bits[0], bits[1], (dim + 2) * FLOATS);
            for (size_t i = 0; count == 2 && i < 2; i++) {
                *s[i].lse = 0.75f;
                for (size_t d = 0; d < dim; d++) ha_store(s[i].o, d, dtype, (float)i + 0.5f);
            }
        }
        ha_guard_release(0);
    }
}

/* Keys from `cut` on are NaN: a row that sees none of them has the bits that it has without, whatever others see. */
TEST(what_a_row_does_not_see)
{
    enum { KEYS = 40, DIM = 24, ROWS = 9 };
    HA_TEST_DTYPES(dtype)
    for (size_t rows = 1; rows <= ROWS; rows++)
        for (size_t cut = 0; cut <= KEYS; cut += 1 + cut % 9) {
            struct ha_test_kv kv[2];
            uint32_t visible[ROWS];
            float *q = numbers(rows * DIM, rows), level[2][ROWS], sum[2][ROWS], acc[2][ROWS * DIM];
            for (size_t r = 0; r < rows; r++) visible[r] = (uint32_t)((r * 13 + rows * 7 + cut) % (KEYS + 1));
            for (size_t i = 0; i < 2; i++) ha_test_kv_make(&kv[i], HA_TEST_DENSE, DIM, KEYS, dtype, 1);
            for (size_t i = cut * DIM; i < KEYS * DIM; i++) {
                ha_test_kv_put_k(&kv[1], i / DIM, i % DIM, (float)NAN);
                ha_test_kv_put_v(&kv[1], i / DIM, i % DIM, (float)NAN);
            }
            HA_TEST_EACH(t, attend_chunk)
            {
                for (size_t i = 0; i < 2; i++)
                    t->attend_chunk(&(struct ha_chunk){ .q = q,
                                                        .q_rows = rows,
                                                        .q_stride = DIM,
                                                        .head_dim = DIM,
                                                        .rows = kv[i].rows,
                                                        .dtype = dtype,
                                                        .scale = 0.3f,
                                                        .visible = visible,
                                                        .weights = ha_guard_alloc(rows * KEYS * FLOATS),
                                                        .weights_stride = KEYS,
                                                        .level = level[i],
                                                        .sum = sum[i],
                                                        .acc = acc[i] });
                for (size_t r = 0; r < rows; r++) {
                    if (visible[r] > cut) {
                        assert_true(isnan(sum[1][r]));
                        continue;
                    }
                    assert_true(level[0][r] == level[1][r] && sum[0][r] == sum[1][r]);
                    assert_memory_equal(acc[0] + r * DIM, acc[1] + r * DIM, DIM * FLOATS);
                }
            }
            ha_guard_release(0);
        }
}

/* Key i weighs 2^ this: an integer from -4 to 3, of which the levels of parts differ. */
static int exponent(size_t i)
{
    const size_t part = i / HA_SPLIT_KEYS;
    return (int)(part * 5 % 7) - 3 - (i % 3 == 0 && part % 7 > 0);
}
enum odd { NOTHING, ALL_LOW, ONE_NAN, ODDS };

/* o, LSE and weights of attention by one query over keys that weigh 2^exponent, of which V is small integers, so that
 * nothing is rounded; or over keys of scores of -inf alone, whatever V is; or with one of NaN. */
static void assert_attended(const struct ha_attend *a, size_t n, const double *acc, double sum, enum odd odd)
{
    for (size_t d = 0; d < a->head_dim; d++)
        assert_true(odd == ONE_NAN ? isnan(a->o[d]) : a->o[d] == (odd ? 0 : (float)acc[d] / (float)sum));
    for (size_t i = 0; i < n; i++)
        assert_true(odd == ONE_NAN ? isnan(a->weights[i])
                                   : a->weights[i] == (odd ? 0 : (float)ldexp(1, exponent(i)) / (float)sum));
    if (odd == ONE_NAN) assert_true(isnan(*a->lse));
    else if (odd) assert_true(*a->lse == -INFINITY);
    else assert_true(fabs((double)*a->lse - log(sum)) <= 0x1p-23 * fabs(log(sum)));
}

/* However they are split, and whatever is packed. */
TEST(attention_is_exact)
{
    enum { PARTS = 40, EVERY = 3, DIM = 24 };
    static const size_t odd_dims[] = { 1, 9, 17, 23 };
    static const size_t lengths[] = { 1, 64, 129, 1000, 4096, 5000 };
    HA_TEST_DTYPES(dtype)
    for (size_t c = 0; c < COUNT(lengths) * EVERY * ODDS; c++) {
        const enum odd odd = (enum odd)(c % ODDS);
        const size_t n = lengths[c / ODDS / EVERY], packed = c / ODDS % EVERY * n / 2,
                     dim = packed ? DIM : odd_dims[c % COUNT(odd_dims)];
        double sum = 0, acc[DIM] = { 0 };
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_DENSE, dim, n, dtype, n);
        for (size_t i = 0; i < n; i++) {
            sum += ldexp(1, exponent(i));
            for (size_t d = 0; d < dim; d++) {
                const int v = (int)((i * 7 + d * 3) % 17) - 8;
                acc[d] += ldexp(v, exponent(i));
                ha_test_kv_put_k(&kv, i, d, odd == ALL_LOW ? -INFINITY : d ? 0 : 4 * (float)exponent(i));
                ha_test_kv_put_v(&kv, i, d, odd == ALL_LOW && i % 2 ? (float)NAN : (float)v);
            }
        }
        if (odd == ONE_NAN) ha_test_kv_put_k(&kv, n / 2, dim / 2, (float)NAN);
        float q[DIM], o[DIM], lse, *w = ha_guard_alloc(n * FLOATS);
        for (size_t d = 0; d < dim; d++) q[d] = 0.25f;
        struct ha_rows run = kv.rows, first = kv.rows;
        run.k = (const char *)run.k + packed * run.k_stride_bytes;
        run.v = (const char *)run.v + packed * run.v_stride_bytes;
        run.keys -= first.keys = packed;
        void *blocks = ha_guard_alloc((packed + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(dim, dtype));
        struct ha_attend a = { .q = q,
                               .q_len = 1,
                               .group = 1,
                               .head_dim = dim,
                               .packed = { .blocks = blocks, .keys = packed },
                               .runs = &run,
                               .runs_count = 1,
                               .dtype = dtype,
                               .scale = 0x1.62e43p-1f, /* ln 2: exponents are products of q and K */
                               .o = o,
                               .lse = &lse,
                               .weights = w,
                               .weights_stride = n };
        HA_TEST_ALL(t)
        {
            struct ha_attend_part part[PARTS];
            const struct ha_attend_join join = { &a, part, (n + HA_SPLIT_KEYS - 1) / HA_SPLIT_KEYS };
            const size_t now = ha_guard_now();
            t->pack(&(struct ha_pack){ .blocks = blocks, .rows = first, .head_dim = dim, .dtype = dtype });
            for (size_t i = 0; i < join.count; i++) {
                part[i] = (struct ha_attend_part){ .attend = &a,
                                                   .first = i * HA_SPLIT_KEYS,
                                                   .keys = i + 1 < join.count ? HA_SPLIT_KEYS : n - i * HA_SPLIT_KEYS,
                                                   .state = ha_guard_alloc(t->attend_state_bytes(&a)),
                                                   .scratch = ha_guard_alloc(t->attend_scratch_bytes(&a)) };
                t->attend_part(t, &part[i]);
            }
            t->attend_join(t, &join);
            assert_attended(&a, n, acc, sum, odd);
            a.scratch = part[0].scratch;
            t->attend(t, &a);
            assert_attended(&a, n, acc, sum, odd);
            if (packed && odd == ALL_LOW) { /* as the state says, too */
                float level, weight, of[DIM];
                t->attend_packed[dtype](&(struct ha_packed_chunk){ .q = q,
                                                                   .q_rows = 1,
                                                                   .q_stride = dim,
                                                                   .head_dim = dim,
                                                                   .packed = a.packed,
                                                                   .keys = packed,
                                                                   .scale = a.scale,
                                                                   .level = &level,
                                                                   .sum = &weight,
                                                                   .acc = of,
                                                                   .scratch = ha_guard_alloc(HA_PACKED_SCRATCH) });
                assert_true(level == -INFINITY && weight == 0);
                for (size_t d = 0; d < dim; d++) assert_true(of[d] == 0);
            }
            ha_guard_release(now);
        }
        ha_guard_release(0);
    }
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, NULL); }
