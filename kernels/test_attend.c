/* attend, through every table, against the binary64 reference and its bound. */

#include "harness/api/reference.h"
#include "kernels/test_lay.h"

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
    size_t packed, unit;                 /* keys packed, in a list of such units or in order */
    size_t runs_count, run[HA_RUNS_MAX]; /* keys of each */
    size_t block;                        /* of the runs' indices */
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
    struct ha_ref_state *state; /* [q_len][group] */
    double *weights;            /* [group][keys], or NULL */
    double weights_eps;         /* relative error allowed of a weight */
    double *block;
};

static void *need(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    return p;
}

static size_t visible(const struct problem *p, size_t token)
{
    return p->keys - (p->causal ? p->q_len - 1 - token : 0);
}

static struct ha_profile profile_of(const struct problem *p, const struct ha_kernels *t)
{
    return p->packed > 0 ? ha_profile_attend(t, p->dtype) : t->profile;
}

static struct answer answer_of(const struct problem *p, const struct ha_profile *profile, const float *q,
                               const struct ha_test_kv *kv, float scale)
{
    const size_t rows = p->q_len * p->group;
    struct answer a = { .state = need(rows * sizeof *a.state), .block = need(rows * 4 * p->dim * sizeof *a.block) };
    struct ha_ref_query *query = need(rows * sizeof *query);
    struct ha_bound *bound = need(p->q_len * sizeof *bound);
    double *work = need((rows < 32 ? rows : 32) * 2 * (p->keys + p->dim) * sizeof *work);
    for (size_t r = 0; r < rows; r++) {
        double *d = a.block + r * 4 * p->dim;
        const size_t t = r / p->group, sees = visible(p, t);
        bound[t] = ha_bound_attend(profile, p->dim, sees, p->runs_count + (p->packed > 0));
        a.state[r] = (struct ha_ref_state){
            .o = d, .bound = d + p->dim, .v_min = d + 2 * p->dim, .v_max = d + 3 * p->dim, .dim = p->dim
        };
        query[r] = (struct ha_ref_query){
            .q = q + r * p->dim, .visible = sees, .bound = &bound[t], .out = &a.state[r]
        };
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

static void answer_free(struct answer *a)
{
    free(a->state);
    free(a->block);
    free(a->weights);
}

static void fail_at(const struct problem *p, const struct ha_kernels *t, const char *what, size_t row, size_t column,
                    double ratio)
{
    printf("%s %s d=%zu keys=%zu packed=%zu unit=%zu runs=%zu block=%zu group=%zu q_len=%zu causal=%d layout=%d "
           "family=%d seed=%llu: %s row %zu, "
           "%zu: ratio %g\n",
           t->name, ha_dtype_name(p->dtype), p->dim, p->keys, p->packed, p->unit, p->runs_count, p->block, p->group,
           p->q_len, p->causal, p->layout, p->family, (unsigned long long)p->seed, what, row, column, ratio);
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
    struct ha_test_lay lay;
    ha_test_lay_make(&lay, &kv, p->packed, p->unit, p->run, p->runs_count, p->block, p->seed);
    struct ha_attend args = {
        .q = q,
        .q_len = p->q_len,
        .group = p->group,
        .head_dim = p->dim,
        .q_token_stride = stride,
        .q_head_stride = stride * p->q_len,
        .dtype = p->dtype,
        .scale = scale,
        .causal = p->causal,
        .o = o,
        .lse = lse,
        .lse_token_stride = 1,
        .lse_head_stride = p->q_len,
        .weights = p->weights ? weights : NULL,
        .weights_stride = p->keys,
    };
    ha_test_lay_use(&lay, &args);
    struct answer want = { 0 };
    for (size_t t = 0; t < ha_test_tables_count; t++) {
        const struct ha_kernels *table = &ha_test_tables[t];
        if (t > 0 && table->attend_chunk == table[-1].attend_chunk
            && (p->packed == 0 || table->attend_packed[p->dtype] == table[-1].attend_packed[p->dtype]))
            continue;
        const struct ha_profile profile = profile_of(p, table), before = t > 0 ? profile_of(p, table - 1) : profile;
        /* most tables claim one bound: one answer serves them all */
        const struct ha_bound bound = ha_bound_attend(&profile, p->dim, p->keys, 2),
                              last = ha_bound_attend(&before, p->dim, p->keys, 2);
        if (t == 0 || memcmp(&bound, &last, sizeof bound) != 0) {
            answer_free(&want);
            want = answer_of(p, &profile, plain, &kv, scale);
        }
        for (int split = 0; split < (table->attend_splits(&args) && p->keys > HA_SPLIT_KEYS ? 2 : 1); split++) {
            memset(o, 0xFF, (rows * stride - 1) * sizeof *o);
            memset(lse, 0xFF, rows * sizeof *lse);
            memset(weights, 0xFF, p->group * p->keys * sizeof *weights);
            if (split) {
                ha_test_attend_parts(table, &args, p->keys, 1 + p->keys / (3 * HA_SPLIT_KEYS), p->seed);
            } else {
                args.scratch = ha_guard_alloc(table->attend_scratch_bytes(&args));
                table->attend(table, &args);
                ha_guard_free(args.scratch);
            }
            judge(p, t, &args, &want);
        }
    }
    answer_free(&want);
    free(plain);
    ha_test_lay_free(&lay);
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

/* The first run is packed instead, if it can be: attention may then have no runs at all. */
static void pack_first(struct problem *p, size_t id)
{
    static const size_t units[] = { 0, 16, 32, 64, 128 }, blocks[] = { 0, 16, 128, 1, 5, 2048, 3000 };
    p->block = blocks[id % 7];
    if (id % 4 == 3 || !ha_packs(p->dim) || (p->causal && p->runs_count == 1)) return;
    p->packed = p->run[0];
    p->unit = units[id / 2 % 5];
    p->runs_count--;
    memmove(p->run, p->run + 1, p->runs_count * sizeof *p->run);
}

static const struct {
    size_t group, q_len;
} asks[] = {
    { 1, 1 }, { 4, 1 }, { 8, 1 },  { 7, 1 },  { 3, 2 },  { 4, 5 },
    { 1, 9 }, { 5, 1 }, { 2, 33 }, { 1, 70 }, { 16, 4 }, { 6, 1 },
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
                        .dtype = (enum ha_dtype)dtype,
                        .dim = dims[d],
                        .keys = keys[n],
                        .group = asks[id % ASKS].group,
                        .q_len = asks[id % ASKS].q_len,
                        .seed = id + 1,
                        .weights = id % 5 < 2,
                        .layout = (enum ha_test_layout)(id / 2 % HA_TEST_LAYOUTS),
                        .family = (enum ha_test_family)(id / 3 % HA_TEST_FAMILIES),
                    };
                    p.causal = id % 3 != 0 && p.keys >= p.q_len;
                    cut(&p, 1 + id / 5 % HA_RUNS_MAX, id % 7 == 0);
                    pack_first(&p, id);
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
        struct problem p = { .dtype = (enum ha_dtype)(rows % HA_DTYPE_COUNT),
                             .dim = 24,
                             .keys = 70,
                             .group = rows,
                             .q_len = 1,
                             .seed = rows };
        cut(&p, 1, false);
        pack_first(&p, rows);
        check(&p);
        p.group = 1;
        p.q_len = rows;
        p.causal = rows <= p.keys;
        p.packed = 0;
        cut(&p, 2, false);
        pack_first(&p, rows / 2);
        check(&p);
    }
}

/* Query tokens in several blocks, each with its own limit, over more than one chunk; weights too. */
static void appends_longer_than_the_context(void **state)
{
    (void)state;
    static const struct {
        size_t keys, q_len, group;
    } set[] = {
        { 1, 1, 2 },    { 40, 40, 3 },   { 41, 40, 1 },  { 150, 130, 2 },
        { 150, 20, 4 }, { 2060, 30, 1 }, { 2048, 3, 4 }, { 2100, 2100, 1 },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set - (small ? 1 : 0); i++)
        for (size_t runs = 1; runs <= 2; runs++) {
            struct problem p = {
                .dtype = (enum ha_dtype)(i % HA_DTYPE_COUNT),
                .dim = 16,
                .keys = set[i].keys,
                .q_len = set[i].q_len,
                .group = set[i].group,
                .causal = true,
                .weights = set[i].q_len < 1000,
                .layout = (enum ha_test_layout)(i % HA_TEST_LAYOUTS),
                .seed = 77 + i,
            };
            cut(&p, runs, false);
            pack_first(&p, i + runs);
            check(&p);
        }
}

static int report(void **state)
{
    (void)state;
    for (size_t t = 0; t < ha_test_tables_count; t++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f\n", ha_test_tables[t].name, worst[t][HA_F32],
               worst[t][HA_F16], worst[t][HA_BF16]);
    printf("%zu outputs; worst weight / bound: %.3f\n", judged, worst_weight);
    return 0;
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_bound_everywhere),
        cmocka_unit_test(odd_dimensions),
        cmocka_unit_test(every_number_of_rows),
        cmocka_unit_test(appends_longer_than_the_context),
    };
    return cmocka_run_group_tests(tests, ha_test_tables_setup, report);
}
