/* attend_packed of every table against the binary64 reference and the bound of its profile. Each key that a call must
 * not see is NaN. Argument `small`: fewer; `full`: every combination of rows, dimension and type, minutes. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/rows.h"
#include "kernels/test_packed_data.h"

#include <limits.h>
#include <math.h>

struct problem {
    enum ha_dtype dtype;
    size_t dim, keys, rows;
    size_t unit;         /* 0: no list */
    size_t first, count; /* parts of HA_SPLIT_KEYS, as far as the list has them; count 0: to its end */
    enum ha_test_family family;
    float scale; /* 0: 1 / sqrt(dim) */
    int bf16;    /* of the queries, as ha_test_packed_queries takes it */
    bool weights;
    size_t gap;
    float q_by, k_by, v_by; /* everything times these; 0: as it is */
    struct ha_reach reach;
    uint64_t seed;
};

static bool full;
static double worst[HA_TEST_TABLES_MAX][HA_DTYPE_COUNT], worst_weight[HA_TEST_TABLES_MAX],
    worst_sum[HA_TEST_TABLES_MAX];
static double lowest_level, highest_level;
static size_t judged, problems;

#define LOG2_E 0x1.71547652b82fep+0
#define LN_2   0x1.62e42fefa39efp-1
#define U      0x1p-24

/* what is true of a problem, in binary64 */
struct truth {
    double *x, *a; /* [rows][keys] scores as powers of two; and the sums of their terms' magnitudes */
    float *v;      /* [keys][dim] */
    struct ha_answer answer;
};

static struct truth truth_of(const struct ha_test_packed *p, const struct ha_test_states *s)
{
    const size_t dim = p->kv.dim, n = s->keys;
    struct truth t = {
        .x = ha_guard_alloc(s->rows * n * sizeof *t.x),
        .a = ha_guard_alloc(s->rows * n * sizeof *t.a),
        .v = ha_guard_alloc(n * dim * sizeof *t.v),
    };
    const double scale = (double)s->scale * LOG2_E;
    float k[HA_PACK_DIM_MAX];
    for (size_t j = 0; j < n; j++) {
        ha_load_row(ha_row_k(&p->kv.rows, s->first + j), dim, p->kv.dtype, k);
        ha_load_row(ha_row_v(&p->kv.rows, s->first + j), dim, p->kv.dtype, t.v + j * dim);
        for (size_t r = 0; r < s->rows; r++) {
            const float *q = s->q + r * s->q_stride;
            double x = 0, a = 0;
            for (size_t d = 0; d < dim; d++) {
                const double term = (double)q[d] * (double)k[d];
                x += term;
                a += fabs(term);
            }
            t.x[r * n + j] = scale * x;
            t.a[r * n + j] = fabs(scale) * a;
        }
    }
    return t;
}

/* what the reference says with this profile */
static void refer(const struct ha_test_packed *p, const struct ha_test_states *s, const struct ha_profile *profile,
                  struct truth *t)
{
    const struct ha_attend a = { .q = s->q,
                                 .q_len = 1,
                                 .group = s->rows,
                                 .head_dim = p->kv.dim,
                                 .q_head_stride = s->q_stride,
                                 .runs_count = 1,
                                 .dtype = p->kv.dtype,
                                 .scale = s->scale };
    const struct ha_rows rows = ha_test_rows_part(&p->kv, s->first, s->keys);
    struct ha_why why;
    ha_answer_free(&t->answer);
    assert_int_equal(ha_answer_make(&t->answer, &a, &rows, profile, 0, &why), HA_OK);
}

static void fail_at(const struct problem *p, size_t table, const char *what, size_t row, size_t at, double ratio)
{
    printf("%s %s d=%zu keys=%zu [%zu, +%zu) unit=%zu rows=%zu family=%d bf16=%d scale=%g seed=%zu: %s, row "
           "%zu, %zu: %g\n",
           ha_test_tables[table].name, ha_dtype_name(p->dtype), p->dim, p->keys, p->first, p->count, p->unit, p->rows,
           p->family, p->bf16, (double)p->scale, (size_t)p->seed, what, row, at, ratio);
    fail();
}

static void at_most(double ratio, double limit, double *most, const struct problem *p, size_t table, const char *what,
                    size_t row, size_t at)
{
    if (!(ratio <= limit)) fail_at(p, table, what, row, at, ratio);
    if (ratio > *most) *most = ratio;
}

/* of a weight 2^(x - level), relative */
static double weight_eps(const struct ha_bound *b, double a, double below)
{
    const double h = b->h_dot * U / (1 - b->h_dot * U);
    return expm1(((h + b->kappa_s * U) * a + b->kappa_t * U * below) * LN_2 + (1 + b->rescales) * b->exp_eps) + b->u_p;
}

/* row r: its level, its sum beside the weights that are true at that level, and where weights were wanted those, and
 * the sums beside what the weights say that they are */
static void judge_row(const struct problem *p, size_t table, const struct ha_test_states *s, const struct truth *t,
                      const struct ha_bound *b, size_t r)
{
    const size_t n = s->keys, dim = p->dim;
    const double *x = t->x + r * n, *a = t->a + r * n, level = (double)s->level[r];
    double top = -HUGE_VAL, size = 0, sum = 0, said = 0;
    for (size_t j = 0; j < n; j++) top = fmax(top, x[j]), size = fmax(size, a[j]);
    const double slack = (b->h_dot + b->kappa_s) * 1.01 * U * size;
    if (!(level == floor(level) && level >= top - 8 - slack && level < top + 1 + slack))
        fail_at(p, table, "level", r, 0, level - top);
    if (slack < 0.01) lowest_level = fmin(lowest_level, level - top), highest_level = fmax(highest_level, level - top);

    for (size_t j = 0; j < n; j++) sum += exp2(x[j] - level);
    const struct ha_ref_state *want = &t->answer.state[r];
    /* without what the LSE's own rounding costs */
    const double allowed = want->lse_bound - 3 * U * fabs(want->max) - U * fabs(want->lse);
    /* where scores are off by hundreds, no true weight is a number at that level, but L is one */
    const double true_log = isnormal(sum) ? log(sum) : want->lse - level * LN_2;
    const double off = fabs(log((double)s->sum[r]) - true_log) / allowed;
    at_most(off, 1, &worst_sum[table], p, table, "sum", r, 0);
    if (!s->weights) return;

    const float *w = s->weights + r * (n + s->gap);
    for (size_t j = 0; j < n; j++) {
        const double true_w = exp2(x[j] - level), eps = weight_eps(b, a[j], top - x[j]);
        if (eps < HUGE_VAL)
            at_most(fabs((double)w[j] - true_w) / (true_w * eps + 0x1p-126), 1, &worst_weight[table], p, table,
                    "weight", r, j);
        said += (double)w[j];
    }
    const double g = (b->h_sum + 1) * U + b->u_p, lost = 0x1p-126 * ((double)n + said);
    if (!(fabs((double)s->sum[r] - said) <= g * said + lost))
        fail_at(p, table, "sum of its weights", r, 0, (double)s->sum[r] / said - 1);
    for (size_t d = 0; d < dim; d++) {
        double acc = 0, magnitude = 0;
        for (size_t j = 0; j < n; j++)
            acc += (double)w[j] * (double)t->v[j * dim + d],
                magnitude += fabs((double)w[j] * (double)t->v[j * dim + d]);
        const double got = (double)s->acc[r * dim + d];
        if (!(fabs(got - acc) <= g * magnitude + lost))
            fail_at(p, table, "values by its weights", r, d, fabs(got - acc) / magnitude);
    }
}

static void judge(const struct problem *p, size_t table, const struct ha_test_states *s, const struct truth *t,
                  const struct ha_bound *b)
{
    float o[HA_PACK_DIM_MAX];
    for (size_t r = 0; r < s->rows; r++) {
        for (size_t d = 0; d < p->dim; d++) o[d] = s->acc[r * p->dim + d] / s->sum[r];
        const float lse = (float)((double)s->level[r] * LN_2 + log((double)s->sum[r]));
        size_t at;
        const double ratio = ha_ref_ratio(o, lse, &t->answer.state[r], &at);
        at_most(ratio, 1, &worst[table][p->dtype], p, table, "output", r, at);
        judge_row(p, table, s, t, b, r);
        judged++;
    }
}

static void check(const struct problem *p)
{
    struct ha_test_packed keys;
    ha_test_packed_make(&keys, p->family, p->dim, p->keys, p->dtype, p->unit, p->seed);
    struct ha_test_states s = {
        .q = ha_test_packed_queries(p->family, p->dim, p->rows, p->gap, p->bf16, p->seed),
        .rows = p->rows,
        .q_stride = p->dim + p->gap,
        .first = p->first * HA_SPLIT_KEYS < p->keys ? p->first * HA_SPLIT_KEYS : 0,
        .scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)p->dim),
        .with_weights = p->weights,
        .gap = p->gap,
        .reach = p->reach,
    };
    s.keys = p->keys - s.first;
    if (p->count && p->count * HA_SPLIT_KEYS < s.keys) s.keys = p->count * HA_SPLIT_KEYS;
    if (p->q_by != 0) {
        for (size_t r = 0; r < p->rows; r++)
            for (size_t d = 0; d < p->dim; d++) s.q[r * s.q_stride + d] *= p->q_by;
        ha_test_packed_scale(&keys, p->k_by, p->v_by);
    }
    ha_test_packed_hide(&keys, s.first, s.keys);
    struct truth t = truth_of(&keys, &s);
    struct ha_bound last = { 0 };
    for (size_t i = 0; i < ha_test_tables_count; i++) {
        const struct ha_kernels *table = &ha_test_tables[i];
        if (i > 0 && table->attend_packed[p->dtype] == table[-1].attend_packed[p->dtype]) continue;
        struct ha_profile profile = table->packed_profile[p->dtype];
        profile.join_keys = UINT_MAX; /* a call is one chunk, however long */
        const struct ha_bound b = ha_bound_attend(&profile, p->dim, s.keys, 1);
        if (memcmp(&b, &last, sizeof b) != 0) refer(&keys, &s, &profile, &t);
        last = b;
        ha_test_packed_attend(table->attend_packed[p->dtype], &keys, &s);
        judge(p, i, &s, &t, &b);
    }
    problems++;
    ha_answer_free(&t.answer);
    ha_guard_release(0);
}

static const size_t dims[] = { 8, 16, 24, 40, 64, 72, 80, 96, 112, 128, 192, 248, 256 };
static const size_t row_counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 32, 63, 64 };

/* All that a test does not choose itself. */
static struct problem draw(uint64_t seed)
{
    static const float scales[] = { 0, 0, 1, -0.3f, 0.01f };
    static const size_t gaps[] = { 0, 1, 5, 24 };
    static const uint32_t reaches[] = { 0, 1, 512, 3072, HA_REACH_MOST };
    size_t i = 0;
#define BELOW(n) (size_t) ha_rng_below(seed, DRAW_STREAM, i++, n)
    enum { DRAW_STREAM = 102 };
    struct problem p = { .dtype = (enum ha_dtype)(seed % HA_DTYPE_COUNT), .seed = seed };
    p.dim = dims[BELOW(COUNT(dims))];
    p.rows = row_counts[BELOW(COUNT(row_counts))];
    p.family = (enum ha_test_family)BELOW(HA_TEST_FAMILIES);
    p.scale = scales[BELOW(COUNT(scales))];
    p.gap = gaps[BELOW(COUNT(gaps))];
    p.bf16 = (int)BELOW(3);
    p.weights = BELOW(2);
    p.keys = 33 + BELOW(40);
    p.reach.kind = (enum ha_reach_kind)BELOW(HA_REACH_KINDS);
    p.reach.bytes = reaches[BELOW(COUNT(reaches))];
    return p;
}

TEST(every_length)
{
    static const size_t longer[] = { 95, 96, 97, 127, 128, 129, 159, 160, 161, 255, 256, 257 };
    uint64_t id = 0;
    for (size_t i = 1; i <= 70 + COUNT(longer); i++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            struct problem p = draw(++id);
            p.keys = i <= 70 ? i : longer[i - 71];
            if (test_small && p.rows > 8) p.rows = 1 + p.rows % 8;
            check(&p);
        }
}

TEST(every_number_of_rows)
{
    uint64_t id = 1000;
    for (size_t r = 0; r < COUNT(row_counts); r++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
                struct problem p = draw(++id);
                p.rows = row_counts[r];
                p.dim = dims[d];
                if (!full && (r + d + (size_t)dtype) % (test_small ? 12 : 3) != 0) continue;
                for (size_t n = 0; n < (full ? 9 : 1); n++) {
                    static const size_t keys[] = { 1, 2, 15, 16, 17, 31, 32, 64, 200 };
                    check(&p);
                    p.keys = keys[n];
                }
            }
}

/* Units in any order, the ragged one anywhere, and parts of the list. */
TEST(lists_and_parts)
{
    uint64_t id = 5000;
    for (size_t unit = 16; unit <= 128; unit *= 2)
        for (size_t i = 0; i < (full ? 2000u : test_small ? 6u : 60u); i++) {
            struct problem p = draw(++id);
            p.unit = unit;
            p.keys = 1 + ha_rng_below(id, 0, 0, 700);
            p.first = ha_rng_below(id, 0, 2, 4);
            p.count = ha_rng_below(id, 0, 3, 3);
            if (p.rows > 9) p.rows = 1 + p.rows % 9;
            if (!full && p.dim > 128) p.dim = 72;
            check(&p);
        }
}

TEST(long_contexts)
{
    static const size_t keys[] = { 1000, 2047, 2049, 4096, 4113, 8192, 20000 };
    uint64_t id = 9000;
    for (size_t n = 0; n < (full ? COUNT(keys) : test_small ? 2 : 6); n++)
        for (int f = 0; f < HA_TEST_FAMILIES; f++)
            for (int i = 0; i < (full ? 9 : 1); i++) {
                struct problem p = draw(++id);
                p.keys = keys[n];
                p.family = (enum ha_test_family)f;
                if (id % 2) p.unit = 16u << id % 4;
                p.first = ha_rng_below(id, 0, 4, 2) * ha_rng_below(id, 0, 5, 5);
                if (!full) p.dim = p.dim > 64 ? p.dim / 4 / 8 * 8 : p.dim, p.rows = 1 + p.rows % 4;
                check(&p);
            }
}

/* Values at the ends of the types: subnormal ones, the largest; queries that make up for them or do not. */
TEST(extreme_values)
{
    static const struct {
        unsigned dtypes;
        float q, k, v;
    } by[] = {
        { 7, 1000, 1, 1 },
        { 7, 0x1p-100f, 1, 1 },
        { 7, 1e30f, 1, 1 },
        { 7, 1e-30f, 1, 1 },
        { 7, 1e4f, 1e-4f, 1e-7f },
        { 7, 1e6f, 1e-6f, 0x1p-23f },
        { 7, 1e-4f, 1.3e4f, 1.3e4f },
        { 5, 1e-30f, 1e30f, 1e33f },
        { 5, 1e30f, 1e-30f, 1e-38f },
        { 5, 1, 1e-39f, 1e-39f },
        { 5, 1e-30f, 6e37f, 1 },
        { 5, 1e35f, 1, 1 },
    };
    uint64_t id = 30000;
    for (size_t i = 0; i < COUNT(by); i++)
        for (int dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            for (size_t j = 0; j < (full ? 40u : test_small ? 1u : 4u); j++) {
                struct problem p = draw(++id);
                if (!(by[i].dtypes >> dtype & 1)) continue;
                p.dtype = (enum ha_dtype)dtype;
                p.family = HA_TEST_NORMAL;
                p.bf16 = j % 2;
                p.q_by = by[i].q;
                p.k_by = by[i].k;
                p.v_by = by[i].v;
                if (p.rows > 9) p.rows = 1 + p.rows % 9;
                check(&p);
            }
}

/* The same bits again, and at other addresses of queries, index and results, whatever is asked for ahead. */
TEST(reproducible)
{
    for (uint64_t id = 20000; id < 20000 + (full ? 1500u : test_small ? 15u : 90u); id++) {
        const struct problem p = draw(id);
        struct ha_test_packed keys;
        ha_test_packed_make(&keys, p.family, p.dim, p.keys + 300 * (id % 2), p.dtype, id % 4 ? 16u << id % 4 : 0, id);
        for (size_t t = 0; t < ha_test_tables_count; t++) {
            struct ha_test_states s[3];
            uint32_t moved[64];
            for (size_t i = 0; i < COUNT(s); i++) {
                struct ha_test_packed again = keys;
                const size_t shift = i == 2 ? 1 + id % 13 : 0, gap = p.gap + shift;
                s[i] = (struct ha_test_states){
                    .q = ha_test_packed_queries(p.family, p.dim, p.rows, gap, p.bf16, id),
                    .rows = p.rows,
                    .q_stride = p.dim + gap,
                    .keys = keys.kv.keys,
                    .scale = 0.1f,
                    .with_weights = p.weights,
                    .gap = shift,
                    .shift = shift,
                    .reach = { (enum ha_reach_kind)((id + i) % HA_REACH_KINDS), (uint32_t)(i * 1000) },
                };
                if (i == 2 && keys.packed.index)
                    again.packed.index = memcpy(moved + id % 15, keys.packed.index, keys.packed.units * sizeof *moved);
                ha_test_packed_attend(ha_test_tables[t].attend_packed[p.dtype], &again, &s[i]);
                assert_true(ha_test_states_equal(&s[0], &s[i], p.rows, p.dim));
            }
        }
        ha_guard_release(0);
    }
}

static int report(void **state)
{
    for (size_t t = 0; t < ha_test_tables_count; t++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f; of a sum %.3f, of a weight %.3f\n",
               ha_test_tables[t].name, worst[t][HA_F32], worst[t][HA_F16], worst[t][HA_BF16], worst_sum[t],
               worst_weight[t]);
    printf("%zu problems, %zu rows; levels from %.2f below the largest exponent to %.2f above\n", problems, judged,
           -lowest_level, highest_level);
    return 0;
}

TEST_MAIN
{
    full = argc > 1 && strcmp(argv[1], "full") == 0;
    return test_all("tests", ha_test_tables_setup, report);
}
