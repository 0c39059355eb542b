/* digest and digest_score, through every table: minima and maxima exactly, scores within what sums of 32 terms round,
 * and not below that of any key. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/rows.h"
#include "kernels/test_data.h"

#include <math.h>

static bool same(float a, float b) { return a == b || (isnan(a) && isnan(b)); }

/* the digests of [first, first + blocks) are those of the keys; what was before them is left alone, what was behind is
 * zeros */
static void check_kind(const struct ha_test_kv *kv, enum ha_digest_kind kind, size_t first, size_t blocks, size_t unit)
{
    const size_t bytes = ha_digest_bytes(first + blocks, kv->dim, kv->dtype), size = ha_dtype_bytes(kv->dtype);
    char *got = ha_guard_alloc(bytes);
    HA_TEST_EACH(t, digest)
    {
        const struct ha_digest args = { .kind = kind,
                                        .digests = got,
                                        .first = first,
                                        .blocks = blocks,
                                        .unit = unit,
                                        .rows = kv->rows,
                                        .head_dim = kv->dim,
                                        .dtype = kv->dtype };
        memset(got, 0x5A, bytes);
        t->digest(&args);
        assert_true(ha_ref_judge_digest(&args) <= 1);
        for (size_t b = 0; b < bytes / size / kv->dim / 2; b++)
            for (size_t d = 0; d < 2 * kv->dim && (b < first || b >= first + blocks); d++) {
                const char *x = got + ha_ref_digest(kv->dim, b, d / 2, d % 2) * size;
                for (size_t i = 0; i < size; i++) assert_int_equal(x[i], b < first ? 0x5A : 0);
            }
    }
    ha_guard_free(got);
}

static void check_digest(const struct ha_test_kv *kv, size_t first, size_t blocks, size_t unit)
{
    check_kind(kv, HA_DIGEST_RANGE, first, blocks, unit);
    check_kind(kv, HA_DIGEST_MEAN, first, blocks, unit);
}

TEST(digests_are_exact)
{
    static const size_t dims[] = { 8, 80, 128, 1, 15, 16, 33, 64, 256, 300 }, units[] = { 32, 16, 128, 5, 1 };
    static const struct {
        size_t first, keys;
    } runs[] = { { 0, 100 }, { 31, 70 }, { 64, 128 }, { 3, 1 }, { 7, 0 } };
    uint64_t seed = 0;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++)
            for (size_t u = 0; u < COUNT(units); u++)
                for (size_t r = 0; r < COUNT(runs); r++, seed++) {
                    struct ha_test_kv kv;
                    const enum ha_test_layout layout = (enum ha_test_layout)(seed % HA_TEST_LAYOUTS);
                    ha_test_kv_make(&kv, layout, HA_TEST_NORMAL, dims[d], runs[r].keys, (enum ha_dtype)dtype, seed);
                    check_digest(&kv, runs[r].first, (runs[r].keys + units[u] - 1) / units[u], units[u]);
                    ha_guard_release(0);
                }
}

/* a NaN makes both of its dimension NaN; infinities are numbers; zeros of both signs are equal */
TEST(special_keys)
{
    enum { DIM = 40, UNIT = 16, KEYS = 90 };
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t i = 0; i < KEYS; i++) {
            struct ha_test_kv kv;
            ha_test_kv_make(&kv, (enum ha_test_layout)(i % HA_TEST_LAYOUTS), HA_TEST_NORMAL, DIM, KEYS,
                            (enum ha_dtype)dtype, 3);
            if (i % 4 != 3) ha_test_kv_put_k(&kv, i, i % DIM, i % 4 == 1 ? -NAN : NAN);
            ha_test_kv_put_k(&kv, (i + 1) % KEYS, 39, INFINITY);
            ha_test_kv_put_k(&kv, (i + 2) % KEYS, 0, -INFINITY);
            ha_test_kv_put_k(&kv, (i + 3) % KEYS, 39, -INFINITY);
            for (size_t j = 0; j < KEYS; j++) ha_test_kv_put_k(&kv, j, 7, j % 2 ? 0.0f : -0.0f);
            for (size_t j = 0; j < UNIT; j++) ha_test_kv_put_k(&kv, j, 8, (i & 1) ? INFINITY : -INFINITY);
            check_digest(&kv, 0, (KEYS + UNIT - 1) / UNIT, UNIT);
            ha_guard_release(0);
        }
}

/* A NaN alone must be found whatever the sums of the keys do. */
TEST(nan_among_equal)
{
    enum { DIM = 144, UNIT = 32 };
    for (size_t d = 0; d < DIM; d += test_small ? 5 : 1) {
        struct ha_test_kv kv;
        ha_test_kv_make(&kv, HA_TEST_DENSE, HA_TEST_TIES, DIM, UNIT, HA_F32, 3);
        ha_test_kv_put_k(&kv, d % UNIT, d, NAN);
        for (size_t j = 0; j < UNIT; j++) ha_test_kv_put_k(&kv, j, (d + 1) % DIM, 3e38f);
        check_digest(&kv, 0, 1, UNIT);
        ha_guard_release(0);
    }
}

struct scores {
    size_t rows, blocks, dim, q_stride, s_stride;
    enum ha_dtype dtype;
    float *q, *s;
    void *digests;
};

static struct scores make(size_t rows, size_t blocks, size_t dim, enum ha_dtype dtype)
{
    struct scores s = { .rows = rows,
                        .blocks = blocks,
                        .dim = dim,
                        .q_stride = dim + rows % 3,
                        .s_stride = blocks + rows % 2,
                        .dtype = dtype };
    s.q = ha_guard_alloc(((rows - 1) * s.q_stride + dim) * sizeof *s.q);
    s.s = ha_guard_alloc(((rows - 1) * s.s_stride + blocks) * sizeof *s.s);
    s.digests = ha_guard_alloc(ha_digest_bytes(blocks, dim, dtype));
    memset(s.digests, 0, ha_digest_bytes(blocks, dim, dtype));
    for (size_t r = 0; r < rows; r++) ha_rng_normals(rows + dim, 1, r * dim, dim, s.q + r * s.q_stride);
    return s;
}

static void put(const struct scores *s, size_t b, size_t d, float least, float most)
{
    ha_store(s->digests, ha_ref_digest(s->dim, b, d, false), s->dtype, least);
    ha_store(s->digests, ha_ref_digest(s->dim, b, d, true), s->dtype, most);
}

static struct ha_digest_score run(const struct ha_kernels *t, const struct scores *s, float scale)
{
    const struct ha_digest_score args = { .q = s->q,
                                          .q_rows = s->rows,
                                          .q_stride = s->q_stride,
                                          .head_dim = s->dim,
                                          .digests = s->digests,
                                          .blocks = s->blocks,
                                          .dtype = s->dtype,
                                          .scale = scale,
                                          .s = s->s,
                                          .s_stride = s->s_stride };
    memset(s->s, 0xFF, ((s->rows - 1) * s->s_stride + s->blocks) * sizeof *s->s);
    t->digest_score(&args);
    return args;
}

static void judge(const struct ha_kernels *t, const struct scores *s, float scale)
{
    struct ha_digest_score args = run(t, s, scale);
    const double ratio = ha_ref_judge_digest_score(&args, NULL);
    const size_t bytes = ((s->rows - 1) * s->s_stride + s->blocks) * sizeof *s->s;
    float *same = malloc(bytes);
    if (!same) fail_msg("out of memory");
    memcpy(same, s->s, bytes);
    args.streams = true;
    memset(s->s, 0xFF, bytes);
    t->digest_score(&args);
    assert_memory_equal(same, s->s, bytes);
    free(same);
    if (!(ratio <= 1))
        fail_msg("%s: %zu rows, %zu blocks, dim %zu, %s: error over bound %g", t->name, s->rows, s->blocks, s->dim,
                 ha_dtype_name(s->dtype), ratio);
    ha_test_worst(t, "a score", ratio);
    for (size_t r = 0; r + 1 < s->rows; r++)
        for (size_t b = s->blocks; b < s->s_stride; b++) {
            /* 0xFF is a NaN of its own */
            uint32_t bits;
            memcpy(&bits, &s->s[r * s->s_stride + b], sizeof bits);
            assert_int_equal(bits, UINT32_MAX);
        }
}

TEST(scores_within_bound)
{
    static const size_t dims[] = { 8, 80, 128, 1, 31, 32, 33, 64, 65, 256, 300 },
                        blocks[] = { 33, 1, 70, 8, 16, 31, 32, 7 };
    uint64_t seed = 0;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < (test_small ? 3 : COUNT(dims)); d++)
            for (size_t n = 0; n < (test_small ? 3 : COUNT(blocks)); n++)
                for (size_t rows = 1 + (d + n) % 3; rows <= 9; rows += 3, seed++) {
                    struct scores s = make(rows, blocks[n], dims[d], (enum ha_dtype)dtype);
                    for (size_t b = 0; b < s.blocks; b++)
                        for (size_t i = 0; i < s.dim; i++) {
                            const float x = seed % 2 ? 1.1f : ha_rng_normal(seed, 2, b * s.dim + i),
                                        width = ha_rng_uniform(seed, 3, b * s.dim + i);
                            put(&s, b, i, x - width, x + width);
                        }
                    for (size_t r = 0; seed % 2 && r < s.rows; r++)
                        for (size_t i = 0; i < s.dim; i++) s.q[r * s.q_stride + i] = 0.7f;
                    HA_TEST_EACH(t, digest_score) judge(t, &s, 0.3f);
                    ha_guard_release(0);
                }
}

/* What a digest is for: the score of a block is not below that of any of its keys. */
TEST(scores_bound_keys)
{
    enum { DIM = 96, UNIT = 16, KEYS = 500, BLOCKS = (KEYS + UNIT - 1) / UNIT, ROWS = 3 };
    static float largest[BLOCKS][DIM];
    const float scale = 0.1f;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (int family = 0; family < HA_TEST_FAMILIES; family++) {
            struct ha_test_kv kv;
            struct scores s = make(ROWS, BLOCKS, DIM, (enum ha_dtype)dtype);
            ha_test_kv_make(&kv, HA_TEST_GATHERED, (enum ha_test_family)family, DIM, KEYS, (enum ha_dtype)dtype, 9);
            for (size_t r = 0; r < ROWS; r++)
                ha_test_query(s.q + r * s.q_stride, (enum ha_test_family)family, DIM, HA_F32, r);
            HA_TEST_EACH(t, digest_score)
            {
                t->digest(&(struct ha_digest){ .digests = s.digests,
                                               .blocks = BLOCKS,
                                               .unit = UNIT,
                                               .rows = kv.rows,
                                               .head_dim = DIM,
                                               .dtype = s.dtype });
                for (size_t b = 0; b < BLOCKS; b++)
                    for (size_t d = 0; d < DIM; d++)
                        largest[b][d] = fmaxf(fabsf(ha_load(s.digests, ha_ref_digest(DIM, b, d, false), s.dtype)),
                                              fabsf(ha_load(s.digests, ha_ref_digest(DIM, b, d, true), s.dtype)));
                run(t, &s, scale);
                for (size_t i = 0; i < KEYS; i++) {
                    float k[DIM];
                    ha_load_row(ha_row_k(&kv.rows, i), DIM, s.dtype, k);
                    for (size_t r = 0; r < ROWS; r++) {
                        double dot = 0, size = 0;
                        for (size_t d = 0; d < DIM; d++) {
                            const double q = (double)s.q[r * s.q_stride + d];
                            dot += q * (double)k[d];
                            size += fabs(q) * (double)largest[i / UNIT][d];
                        }
                        assert_true((double)s.s[r * s.s_stride + i / UNIT]
                                    >= (double)scale * (dot - 1.001 * ha_ref_digest_depth(DIM) * 0x1p-24 * size));
                    }
                }
            }
            ha_guard_release(0);
        }
}

/* block b is as the others but for dimension d */
TEST(special_digests)
{
    enum { DIM = 70, BLOCKS = 37 };
    static const struct {
        float q, least, most, want;
    } cases[] = {
        { 1, NAN, NAN, NAN },
        { 0, NAN, NAN, NAN },
        { -1, NAN, NAN, NAN },
        { 1, -INFINITY, 2, 2 },
        { 1, 2, INFINITY, INFINITY },
        { 1, -INFINITY, -INFINITY, -INFINITY },
        { -1, 2, INFINITY, -2 },
        { -1, -INFINITY, 2, INFINITY },
        { -1, INFINITY, INFINITY, -INFINITY },
        { 0, -INFINITY, INFINITY, 0 },
        { -0.0f, -INFINITY, INFINITY, 0 },
        { 0, INFINITY, INFINITY, 0 },
        { 0, 1, 2, 0 },
    };
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t rows = 1; rows <= 5; rows += 2)
            for (size_t c = 0; c < COUNT(cases); c++) {
                struct scores s = make(rows, BLOCKS, DIM, (enum ha_dtype)dtype);
                const size_t odd = (5 * c + rows) % BLOCKS, dim = (7 * c + rows) % DIM, row = rows - 1;
                for (size_t b = 0; b < BLOCKS; b++)
                    for (size_t d = 0; d < DIM; d++) put(&s, b, d, 0, 0);
                put(&s, odd, dim, cases[c].least, cases[c].most);
                for (size_t r = 0; r < rows; r++) s.q[r * s.q_stride + dim] = r == row ? cases[c].q : 1;
                HA_TEST_EACH(t, digest_score)
                {
                    run(t, &s, 0.5f);
                    for (size_t b = 0; b < BLOCKS; b++)
                        assert_true(same(s.s[row * s.s_stride + b], b == odd ? 0.5f * cases[c].want : 0));
                }
                ha_guard_release(0);
            }
    /* an infinity of each sign */
    struct scores s = make(1, 1, DIM, HA_F32);
    for (size_t d = 0; d < DIM; d++) s.q[d] = 1;
    put(&s, 0, 3, 0, INFINITY);
    put(&s, 0, 40, -INFINITY, -INFINITY);
    HA_TEST_EACH(t, digest_score)
    {
        run(t, &s, 1);
        assert_true(isnan(s.s[0]));
    }
    ha_guard_release(0);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
