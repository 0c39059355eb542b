/* attend, through every table, against the binary64 reference and its bound. */

#include "harness/api/reference.h"
#include "kernels/test_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct problem {
    enum ha_dtype dtype;
    size_t dim, keys, group, q_len;
    size_t runs_count, run[HA_RUNS_MAX];  /* keys of each */
    bool causal, weights;
    enum ha_test_layout layout;
    enum ha_test_family family;
    uint64_t seed;
};

static double worst[HA_TEST_TABLES_MAX][HA_DTYPE_COUNT], worst_weight;
static size_t judged;

static bool small;

/* what the reference says of one problem */
struct answer {
    struct ha_ref_state *state;  /* [q_len][group] */
    double *weights;             /* [group][keys], or NULL */
    double weights_eps;          /* relative error allowed of a weight */
    double *block;
};

static void *need(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return p;
}

static size_t visible(const struct problem *p, size_t token) { return p->keys - (p->causal ? p->q_len - 1 - token : 0); }

/* All tables claim one profile (a test says so), so that one answer serves them all. */
static struct answer answer_of(const struct problem *p, const float *q, const struct ha_test_kv *kv, float scale)
{
    const size_t rows = p->q_len * p->group;
    struct answer a = { .state = need(rows * sizeof *a.state), .block = need(rows * 4 * p->dim * sizeof *a.block) };
    struct ha_ref_query *query = need(rows * sizeof *query);
    struct ha_bound *bound = need(p->q_len * sizeof *bound);
    double *work = need((rows < 32 ? rows : 32) * 2 * (p->keys + p->dim) * sizeof *work);
    for (size_t r = 0; r < rows; r++) {
        double *d = a.block + r * 4 * p->dim;
        const size_t t = r / p->group, sees = visible(p, t);
        bound[t] = ha_bound_attend(&ha_test_tables[0].profile, p->dim, sees, p->runs_count);
        a.state[r] = (struct ha_ref_state){ .o = d, .bound = d + p->dim, .v_min = d + 2 * p->dim, .v_max = d + 3 * p->dim, .dim = p->dim };
        query[r] = (struct ha_ref_query){ .q = q + r * p->dim, .visible = sees, .bound = &bound[t], .out = &a.state[r] };
    }
    ha_ref_attend_group(query, rows, p->dim, (double)scale, &kv->rows, p->dtype, work);

    if (p->weights) {
        double *one = need(p->keys * sizeof *one), most = 0;
        a.weights = need(p->group * p->keys * sizeof *a.weights);
        memset(a.weights, 0, p->group * p->keys * sizeof *a.weights);
        for (size_t r = 0; r < rows; r++) {
            struct ha_rows seen = kv->rows;
            seen.keys = visible(p, r / p->group);
            ha_ref_weights(q + r * p->dim, p->dim, (double)scale, &seen, p->dtype, one);
            double *sum = a.weights + r % p->group * p->keys, q2 = 0;
            for (size_t j = 0; j < seen.keys; j++) sum[j] += one[j] / (double)p->q_len;
            for (size_t d = 0; d < p->dim; d++) q2 += (double)q[r * p->dim + d] * (double)q[r * p->dim + d];
            most = fmax(most, q2);
        }
        /* |scores| <= scale |q| |k|, and here |k|^2 <= 8 d + 460 */
        const struct ha_bound *b = &bound[p->q_len - 1];
        const double u = 0x1p-24, s = (double)scale * sqrt(most * (8.0 * (double)p->dim + 460));
        const double score = (b->h_dot + b->kappa_s) * u * s + 2 * b->kappa_t * u * s + (1 + b->rescales) * b->exp_eps;
        a.weights_eps = expm1(2 * score + (b->h_sum + b->rescales + (double)p->q_len + 6) * u);
        free(one);
    }
    free(query);
    free(bound);
    free(work);
    return a;
}

static void fail_at(const struct problem *p, const struct ha_kernels *t, const char *what, size_t row, size_t column, double ratio)
{
    printf("%s %s d=%zu keys=%zu runs=%zu group=%zu q_len=%zu causal=%d layout=%d family=%d: %s row %zu, %zu: ratio %g\n", t->name,
           ha_dtype_name(p->dtype), p->dim, p->keys, p->runs_count, p->group, p->q_len, p->causal, p->layout, p->family, what, row,
           column, ratio);
    fail();
}

static void judge(const struct problem *p, size_t table, const struct ha_attend *args, const struct answer *want)
{
    const struct ha_kernels *t = &ha_test_tables[table];
    for (size_t r = 0; r < p->q_len * p->group; r++) {
        size_t at;
        const float *o = args->o + r / p->group * args->q_token_stride + r % p->group * args->q_head_stride;
        const float lse = args->lse[r / p->group * args->lse_token_stride + r % p->group * args->lse_head_stride];
        const double ratio = ha_ref_ratio(o, lse, &want->state[r], &at);
        if (!(ratio <= 1)) fail_at(p, t, "output", r, at, ratio);
        if (ratio > worst[table][p->dtype]) worst[table][p->dtype] = ratio;
        judged++;
    }
    for (size_t g = 0; p->weights && g < p->group; g++)
        for (size_t j = 0; j < p->keys; j++) {
            const double w = want->weights[g * p->keys + j], got = (double)args->weights[g * args->weights_stride + j];
            const double ratio = fabs(got - w) / (w * want->weights_eps + 0x1p-126);
            if (!(ratio <= 1)) fail_at(p, t, "weight", g, j, ratio);
            if (ratio > worst_weight) worst_weight = ratio;
        }
}

/* The strides put a gap behind every row of q, o and the LSE; heads outermost, tokens within. */
static void check(const struct problem *p)
{
    const size_t rows = p->q_len * p->group, stride = p->dim + 1;
    const float scale = 1 / sqrtf((float)p->dim);
    struct ha_test_kv kv;
    ha_test_kv_make(&kv, p->layout, p->family, p->dim, p->keys, p->dtype, p->seed);
    float *plain = need(rows * p->dim * sizeof *plain), *q = ha_guard_alloc((rows * stride - 1) * sizeof *q);
    float *o = ha_guard_alloc((rows * stride - 1) * sizeof *o), *lse = ha_guard_alloc(rows * sizeof *lse);
    float *weights = ha_guard_alloc(p->group * p->keys * sizeof *weights);
    for (size_t r = 0; r < rows; r++) {
        const size_t t = r / p->group, g = r % p->group;
        ha_test_query(plain + r * p->dim, p->family, p->dim, p->dtype, p->seed * 1000 + r);
        memcpy(q + (g * p->q_len + t) * stride, plain + r * p->dim, p->dim * sizeof *q);
    }
    const struct answer want = answer_of(p, plain, &kv, scale);

    struct ha_rows runs[HA_RUNS_MAX];
    for (size_t i = 0, first = 0; i < p->runs_count; first += p->run[i], i++) runs[i] = ha_test_rows_part(&kv, first, p->run[i]);
    struct ha_attend args = {
        .q = q, .q_len = p->q_len, .group = p->group, .head_dim = p->dim, .q_token_stride = stride, .q_head_stride = stride * p->q_len,
        .runs = runs, .runs_count = p->runs_count, .dtype = p->dtype, .scale = scale, .causal = p->causal,
        .o = o, .lse = lse, .lse_token_stride = 1, .lse_head_stride = p->q_len,
        .weights = p->weights ? weights : NULL, .weights_stride = p->keys,
    };
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        const struct ha_kernels *table = &ha_test_tables[t];
        memset(o, 0xFF, (rows * stride - 1) * sizeof *o);
        memset(lse, 0xFF, rows * sizeof *lse);
        memset(weights, 0xFF, p->group * p->keys * sizeof *weights);
        args.scratch = ha_guard_alloc(table->attend_scratch_bytes(&args));
        table->attend(table, &args);
        ha_guard_free(args.scratch);
        judge(p, t, &args, &want);
    }
    free(want.state);
    free(want.block);
    free(want.weights);
    free(plain);
    ha_guard_free(q);
    ha_guard_free(o);
    ha_guard_free(lse);
    ha_guard_free(weights);
    ha_test_kv_free(&kv);
}

/* Cuts the keys into runs; the last one holds the query tokens of a causal problem. */
static void cut(struct problem *p, size_t runs, bool with_empty)
{
    const size_t own = p->causal ? p->q_len : 0, last = p->keys / 4 > own ? p->keys / 4 : own;
    size_t left = p->keys - last;
    p->runs_count = runs;
    for (size_t i = 0; i + 1 < runs; i++) {
        p->run[i] = i + 2 == runs ? left : with_empty && i == 0 ? 0 : left / 3;
        left -= p->run[i];
    }
    p->run[runs - 1] = last + (runs == 1 ? left : 0);
}

static const struct { size_t group, q_len; } asks[] = {
    { 1, 1 }, { 4, 1 }, { 8, 1 }, { 7, 1 }, { 3, 2 }, { 4, 5 }, { 1, 9 }, { 5, 1 }, { 2, 33 }, { 1, 70 }, { 16, 4 }, { 6, 1 },
};
enum { ASKS = sizeof asks / sizeof *asks };

static void grid(const size_t *dims, size_t dims_count, const size_t *keys, size_t keys_count, size_t repeats)
{
    size_t id = 0;
    for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
        for (size_t d = 0; d < dims_count; d++)
            for (size_t n = 0; n < keys_count; n++)
                for (size_t i = 0; i < repeats; i++, id++) {
                    struct problem p = {
                        .dtype = (enum ha_dtype)dtype, .dim = dims[d], .keys = keys[n],
                        .group = asks[id % ASKS].group, .q_len = asks[id % ASKS].q_len, .seed = id + 1, .weights = id % 5 < 2,
                        .layout = (enum ha_test_layout)(id / 2 % HA_TEST_LAYOUTS), .family = (enum ha_test_family)(id / 3 % HA_TEST_FAMILIES),
                    };
                    p.causal = id % 3 != 0 && p.keys >= p.q_len;
                    cut(&p, 1 + id / 5 % HA_RUNS_MAX, id % 7 == 0);
                    check(&p);
                }
}

static void within_bound_everywhere(void **state)
{
    (void)state;
    static const size_t dims[] = { 8, 64, 80, 96, 112, 128, 256 }, few_dims[] = { 8, 80, 128 };
    static const size_t keys[] = { 0, 1, 2, 17, 31, 32, 33, 127, 128, 129, 2047, 2048, 2049, 5000 };
    static const size_t few_keys[] = { 0, 1, 33, 129, 2049 };
    if (small) grid(few_dims, 3, few_keys, 5, 1);
    else grid(dims, 7, keys, 14, 2);
}

/* The tail paths: dimensions that fill no vector. */
static void odd_dimensions(void **state)
{
    (void)state;
    static const size_t dims[] = { 1, 3, 7, 9, 17, 20, 31, 33, 47, 63, 65, 100, 257, 300, 520 }, keys[] = { 1, 5, 67 };
    grid(dims, small ? 6 : 15, keys, 3, 1);
}

/* Every number of query rows goes through its own mix of row blocks. */
static void every_number_of_rows(void **state)
{
    (void)state;
    for (size_t rows = 1; rows <= 256; rows += small ? 51 : 1) {
        struct problem p = { .dtype = (enum ha_dtype)(rows % HA_DTYPE_COUNT), .dim = 24, .keys = 70, .group = rows, .q_len = 1, .seed = rows };
        cut(&p, 1, false);
        check(&p);
        p.group = 1;
        p.q_len = rows;
        p.causal = rows <= p.keys;
        check(&p);
    }
}

/* Query tokens in several blocks, each with its own limit, over more than one chunk; weights too. */
static void appends_longer_than_the_context(void **state)
{
    (void)state;
    static const struct { size_t keys, q_len, group; } set[] = {
        { 1, 1, 2 }, { 40, 40, 3 }, { 41, 40, 1 }, { 150, 130, 2 }, { 150, 20, 4 }, { 2060, 30, 1 }, { 2048, 3, 4 }, { 2100, 2100, 1 },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set - (small ? 1 : 0); i++)
        for (size_t runs = 1; runs <= 2; runs++) {
            struct problem p = {
                .dtype = (enum ha_dtype)(i % HA_DTYPE_COUNT), .dim = 16, .keys = set[i].keys, .q_len = set[i].q_len, .group = set[i].group,
                .causal = true, .weights = set[i].q_len < 1000, .layout = (enum ha_test_layout)(i % HA_TEST_LAYOUTS), .seed = 77 + i,
            };
            cut(&p, runs, false);
            check(&p);
        }
}

/* One bound is computed for all tables above. */
static void one_profile(void **state)
{
    (void)state;
    for (size_t t = 1; t < ha_test_tables_count; t++)
        assert_memory_equal(&ha_test_tables[t].profile, &ha_test_tables[0].profile, sizeof ha_test_tables[0].profile);
}

static int report(void **state)
{
    (void)state;
    for (size_t t = 0; t < ha_test_tables_count; t++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f\n", ha_test_tables[t].name, worst[t][HA_F32], worst[t][HA_F16],
               worst[t][HA_BF16]);
    printf("%zu outputs; worst weight / bound: %.3f\n", judged, worst_weight);
    return 0;
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_profile),
        cmocka_unit_test(within_bound_everywhere),
        cmocka_unit_test(odd_dimensions),
        cmocka_unit_test(every_number_of_rows),
        cmocka_unit_test(appends_longer_than_the_context),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, report);
}
