#include "kernels/test_merge_data.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <float.h>
#include <math.h>
#include <sys/mman.h>

static size_t rows_of(const struct ha_test_merge *p) { return p->tokens * p->heads; }

float *ha_test_merge_o(const struct ha_test_merge *p, size_t i, size_t r)
{
    return p->o + (i * rows_of(p) + r) * p->dim;
}
float *ha_test_merge_level(const struct ha_test_merge *p, size_t i, size_t r) { return p->level + i * rows_of(p) + r; }
float *ha_test_merge_sum(const struct ha_test_merge *p, size_t i, size_t r) { return p->sum + i * rows_of(p) + r; }

bool ha_test_merge_is_empty(const struct ha_test_merge *p, size_t i, size_t r)
{
    const float level = *ha_test_merge_level(p, i, r);
    return level == -INFINITY || (level == INFINITY && p->plus_inf_is_empty);
}

static void *numbers(size_t n)
{
    void *p = calloc(n + 1, sizeof(float));
    assert_non_null(p);
    return p;
}

void ha_test_merge_make(struct ha_test_merge *p, uint64_t seed)
{
    const size_t rows = rows_of(p), limit = ha_test_tables->traits.states_max;
    if (limit && p->count > limit) p->count = limit;
    const size_t all = p->count * rows;
    p->o = numbers(all * p->dim);
    p->level = numbers(all);
    p->sum = numbers(all);
    p->got_o = numbers(rows * p->dim);
    p->got_level = numbers(rows);
    p->got_sum = numbers(rows);
    ha_rng_normals(seed, 1, 0, all * p->dim, p->o);
    for (size_t i = 0; i < all * p->dim; i++) p->o[i] = ha_round(p->o[i], p->dtype);
    for (size_t i = 0; i < all; i++) p->sum[i] = 1;
}

struct ha_test_merge ha_test_merge_kind(size_t n, size_t count, size_t dim)
{
    return (struct ha_test_merge){ .form = (enum ha_form)(n % 4),
                                   .dtype = (enum ha_dtype)(n / 4 % 3),
                                   .plus_inf_is_empty = true,
                                   .count = count,
                                   .tokens = 1,
                                   .heads = 1,
                                   .dim = dim };
}

static float level_for(enum ha_test_spread spread, uint64_t seed, size_t i, size_t r)
{
    const float x = ha_rng_normal(seed, 2 + i, r);
    const uint64_t bits = ha_rng_bits(seed, 3000 + i, r);
    static const float wide[] = { 0,     -0.0f, 1e-7f, 100, 99,  1000, 999,     -120,     -121,  -1000, -1001,
                                  -6e4f, -1e5f, 88,    94,  104, 150,  FLT_MAX, -FLT_MAX, 1e30f, -1e30f };
    switch (spread) {
    case HA_TEST_WIDE_GAPS: return wide[bits % COUNT(wide)];
    case HA_TEST_EQUAL: return 3.5f;
    case HA_TEST_NEAR: return x;
    case HA_TEST_FAR: return 40 * x;
    case HA_TEST_SHIFTED: return 3e5f + 2 * x;
    default: return (spread == HA_TEST_SOME_EMPTY ? bits & 1 : bits & 7) ? bits & 8 ? INFINITY : -INFINITY : x;
    }
}

void ha_test_merge_spread(struct ha_test_merge *p, enum ha_test_spread spread, uint64_t seed)
{
    p->plus_inf_is_empty = true;
    ha_test_merge_make(p, seed);
    for (size_t i = 0; i < p->count; i++)
        for (size_t r = 0; r < rows_of(p); r++) {
            *ha_test_merge_level(p, i, r) = level_for(spread, seed, i, r);
            *ha_test_merge_sum(p, i, r) = 1 + 1000 * ha_rng_uniform(seed, 9000 + i, r);
        }
}

struct ha_test_merge ha_test_merge_like(const struct ha_test_merge *p)
{
    struct ha_test_merge q = *p;
    const size_t all = p->count * rows_of(p);
    ha_test_merge_make(&q, 0);
    memcpy(q.o, p->o, all * p->dim * sizeof *p->o);
    memcpy(q.level, p->level, all * sizeof *p->level);
    memcpy(q.sum, p->sum, all * sizeof *p->sum);
    return q;
}

void ha_test_merge_free(struct ha_test_merge *p)
{
    float *all[] = { p->o, p->level, p->sum, p->got_o, p->got_level, p->got_sum };
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
}

enum { PADDED = 24 }; /* elements from row to row */

/* Whether it is this that is an element more: 0 where o begins, 1 its token stride, 2 its head stride. */
static bool is_more(const struct ha_test_merge *p, size_t i, unsigned what)
{
    return (i == 1 && p->rows == HA_TEST_PADDED + what) || (i == p->count && p->rows == HA_TEST_PADDED + 3 + what);
}

/* the strides of state i; the output's is state `count` */
static struct ha_merge_state strides(const struct ha_test_merge *p, size_t i)
{
    struct ha_merge_state s = {
        .o_token_stride = p->heads * p->dim, .o_head_stride = p->dim, .lse_token_stride = p->heads, .lse_head_stride = 1
    };
    switch (p->rows == HA_TEST_MIXED ? (enum ha_test_rows)(i % HA_TEST_MIXED) : p->rows) {
    case HA_TEST_HEADS_TOKENS:
        s = (struct ha_merge_state){
            .o_token_stride = p->dim,
            .o_head_stride = p->tokens * p->dim,
            .lse_token_stride = 1,
            .lse_head_stride = p->tokens,
        };
        break;
    case HA_TEST_ODD_STRIDES:
        s.o_head_stride = p->dim + 1 + 2 * (i % 7);
        s.o_token_stride = p->heads * s.o_head_stride + i % 3;
        s.lse_head_stride = 1 + i % 3;
        s.lse_token_stride = p->heads * s.lse_head_stride + i % 5;
        break;
    default:
        if (p->rows < HA_TEST_PADDED) break;
        s.o_token_stride = p->heads * PADDED + is_more(p, i, 1);
        s.o_head_stride = PADDED + is_more(p, i, 2);
    }
    return s;
}

static size_t o_extent(const struct ha_test_merge *p, const struct ha_merge_state *s)
{
    if (p->rows >= HA_TEST_PADDED) return rows_of(p) * PADDED + 8;
    return (p->tokens - 1) * s->o_token_stride + (p->heads - 1) * s->o_head_stride + p->dim;
}

static size_t lse_extent(const struct ha_test_merge *p, const struct ha_merge_state *s)
{
    return (p->tokens - 1) * s->lse_token_stride + (p->heads - 1) * s->lse_head_stride + 1;
}

static void *row_o(const struct ha_test_merge *p, const struct ha_merge_state *s, size_t r)
{
    return (char *)s->o
           + (r / p->heads * s->o_token_stride + r % p->heads * s->o_head_stride) * ha_dtype_bytes(p->dtype);
}

static size_t row_lse(const struct ha_test_merge *p, const struct ha_merge_state *s, size_t r)
{
    return r / p->heads * s->lse_token_stride + r % p->heads * s->lse_head_stride;
}

/* which state the output is; `count`: none */
static size_t output_of(const struct ha_test_merge *p)
{
    return p->alias == HA_ALIAS_FIRST ? p->first : p->alias == HA_ALIAS_LAST ? p->count - 1 : p->count;
}

static void *nowhere(void)
{
    static void *page;
    if (!page) page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

static void put(const struct ha_test_merge *p, struct ha_merge_state *s, size_t i)
{
    bool any = i == output_of(p);
    if (p->rows >= HA_TEST_PADDED) /* numbers, which show where they are written */
        memset(s->o, 0x11, rows_of(p) * PADDED * ha_dtype_bytes(p->dtype));
    for (size_t r = 0; r < rows_of(p); r++) {
        s->lse[row_lse(p, s, r)] = *ha_test_merge_level(p, i, r);
        if (ha_test_merge_is_empty(p, i, r)) continue;
        any = true;
        ha_store_row(row_o(p, s, r), p->dim, p->dtype, ha_test_merge_o(p, i, r));
        if (s->sum) s->sum[row_lse(p, s, r)] = *ha_test_merge_sum(p, i, r);
    }
    if (!any) s->o = s->sum = nowhere();
}

/* what lies in memory, beside what lay there before the merge */
struct region {
    char *now, *before;
    size_t bytes;
};

static struct region region_of(size_t bytes)
{
    return (struct region){ .now = ha_guard_alloc(bytes), .before = NULL, .bytes = bytes };
}

static void keep(struct region *g)
{
    g->before = malloc(g->bytes + 1);
    assert_non_null(g->before);
    memcpy(g->before, g->now, g->bytes);
}

static void take_back(const struct region *g, void *at, size_t bytes)
{
    memcpy(at, g->before + ((char *)at - g->now), bytes);
}

static void end(struct region *g)
{
    assert_memory_equal(g->now, g->before, g->bytes);
    free(g->before);
    ha_guard_free(g->now);
}

void ha_test_merge_run(struct ha_test_merge *p, const struct ha_kernels *t)
{
    const size_t size = ha_dtype_bytes(p->dtype), count = p->count;
    struct ha_merge_state *s = calloc(count + 1, sizeof *s);
    assert_non_null(s);
    size_t o_size = 0, lse_size = 0;
    for (size_t i = 0; i <= count; i++) {
        s[i] = strides(p, i);
        o_size += o_extent(p, &s[i]);
        lse_size += lse_extent(p, &s[i]);
    }
    struct region o = region_of(o_size * size), lse = region_of(lse_size * sizeof(float)),
                  sum = region_of(lse_size * sizeof(float));
    /* the output first, so that the last state ends at the guard */
    size_t o_at = 0, lse_at = 0;
    for (size_t n = 0; n <= count; n++) {
        struct ha_merge_state *x = &s[n == 0 ? count : n - 1];
        x->o = o.now + (o_at + is_more(p, n == 0 ? count : n - 1, 0)) * size;
        x->lse = (float *)(void *)lse.now + lse_at;
        x->sum = p->form == HA_FORM_MAX_SUM ? (float *)(void *)sum.now + lse_at : NULL;
        o_at += o_extent(p, x);
        lse_at += lse_extent(p, x);
        if (n > 0) put(p, x, n - 1);
    }
    const struct ha_merge_state out = s[output_of(p)];
    const struct ha_merge m = {
        .form = p->form,
        .dtype = p->dtype,
        .plus_inf_is_empty = p->plus_inf_is_empty,
        .states = s,
        .states_count = count,
        .tokens = p->tokens,
        .heads = p->heads,
        .dim = p->dim,
        .out = out,
    };
    keep(&o), keep(&lse), keep(&sum);
    t->merge(&m);
    for (size_t r = 0; r < rows_of(p); r++) {
        ha_load_row(row_o(p, &out, r), p->dim, p->dtype, p->got_o + r * p->dim);
        take_back(&o, row_o(p, &out, r), p->dim * size);
        p->got_level[r] = out.lse[row_lse(p, &out, r)];
        take_back(&lse, &out.lse[row_lse(p, &out, r)], sizeof(float));
        if (!out.sum) continue;
        p->got_sum[r] = out.sum[row_lse(p, &out, r)];
        take_back(&sum, &out.sum[row_lse(p, &out, r)], sizeof(float));
    }
    end(&o), end(&lse), end(&sum);
    free(s);
}

/* ---- what came out ---------------------------------------------------------------------------------------------- */

double ha_test_merge_natural(const struct ha_test_merge *p, float level, float sum)
{
    const double x = (double)level;
    return p->form == HA_FORM_BASE2 ? x * M_LN2 : p->form == HA_FORM_MAX_SUM ? x + log((double)sum) : x;
}

double ha_test_merge_lse(const struct ha_test_merge *p, size_t i, size_t r)
{
    if (ha_test_merge_is_empty(p, i, r)) return -HUGE_VAL;
    return ha_test_merge_natural(p, *ha_test_merge_level(p, i, r), *ha_test_merge_sum(p, i, r));
}

static double lse_error(const struct ha_test_merge *p, size_t r, const struct ha_ref_state *want)
{
    const float level = p->got_level[r], sum = p->got_sum[r];
    if (want->lse == -HUGE_VAL) return level == -INFINITY ? 0 : HUGE_VAL;
    const double off = p->form == HA_FORM_MAX_SUM ? (double)level - want->max + log((double)sum / want->sum)
                                                  : ha_test_merge_natural(p, level, sum) - want->lse;
    return off == 0 ? 0 : fabs(off) / want->lse_bound;
}

struct ha_test_merge_error ha_test_merge_judge(const struct ha_test_merge *p, size_t r,
                                               const struct ha_merge_traits *traits)
{
    const struct ha_merge_bound b = ha_bound_merge(traits, p->form, p->dtype);
    struct ha_ref_state *states = calloc(p->count + 1, sizeof *states);
    double *work = calloc(2 * (p->count + 1) * p->dim, sizeof *work), *next = work;
    assert_non_null(states);
    assert_non_null(work);
    for (size_t i = 0; i <= p->count; i++, next += 2 * p->dim) { /* the last is what is wanted */
        states[i] = (struct ha_ref_state){ .o = next, .bound = next + p->dim, .dim = p->dim };
        if (i == p->count) break;
        states[i].keys = 1;
        states[i].lse = ha_test_merge_lse(p, i, r);
        states[i].max = ha_test_merge_is_empty(p, i, r) ? -HUGE_VAL : (double)*ha_test_merge_level(p, i, r);
        states[i].sum = (double)*ha_test_merge_sum(p, i, r);
        for (size_t d = 0; d < p->dim; d++) states[i].o[d] = (double)ha_test_merge_o(p, i, r)[d];
    }
    struct ha_ref_state *want = &states[p->count];
    ha_ref_merge(states, p->count, &b, want);
    struct ha_test_merge_error error = { .lse = lse_error(p, r, want) };
    /* the LSE is judged: a natural one need not be a float */
    want->lse = want->lse_bound = 0;
    error.o = ha_ref_ratio(p->got_o + r * p->dim, 0, want, NULL);
    free(states);
    free(work);
    return error;
}

void ha_test_same(const float *a, const float *b, size_t n) { assert_memory_equal(a, b, n * sizeof *a); }

void ha_test_merge_same(const struct ha_test_merge *a, const struct ha_test_merge *b)
{
    ha_test_same(a->got_o, b->got_o, rows_of(a) * a->dim);
    ha_test_same(a->got_level, b->got_level, rows_of(a));
    ha_test_same(a->got_sum, b->got_sum, rows_of(a));
}
