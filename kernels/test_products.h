#ifndef HA_KERNELS_TEST_PRODUCTS_H
#define HA_KERNELS_TEST_PRODUCTS_H

/* Attention and products for the tests of attend_products and product on any device: shapes that have been wrong
 * somewhere, memory as the device wants it, and the judge. */

#include "harness/api/device.h"
#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEST_SEED = 5, TEST_BATCH = 5 };

/* Where operands lie. alloc: bytes of 0xFF, written and read by the test directly. */
struct test_memory {
    void *self;
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *ptr);
};

static inline void *test_draw(const struct test_memory *m, size_t n, enum ha_dtype dtype, uint64_t stream)
{
    float *x = malloc(n * sizeof *x + 1);
    void *stored = m->alloc(m->self, n * ha_dtype_bytes(dtype));
    assert_non_null(x);
    ha_rng_normals(TEST_SEED, stream, 0, n, x);
    ha_store_row(stored, n, dtype, x);
    free(x);
    return stored;
}

/* ---- y = x w^T */

static inline void test_product_check(const struct ha_device_product *p)
{
    const double unit = ha_dtype_unit(p->dtype) + 2 * (double)(p->k + 1) * 0x1p-24;
    for (size_t r = 0; r < p->m; r++)
        for (size_t c = 0; c < p->n; c++) {
            double want = 0, size = 0;
            for (size_t l = 0; l < p->k; l++) {
                const double term = (double)ha_load(p->x, r * p->k + l, p->dtype)
                                    * (double)ha_load(p->w, c * p->k + l, p->dtype);
                want += term;
                size += fabs(term);
            }
            const double got = (double)ha_load(p->y, r * p->n + c, p->dtype);
            if (!(fabs(got - want) <= unit * size))
                fail_msg("%zu x %zu x %zu %s (%zu, %zu): got %.9g, want %.9g", p->m, p->n, p->k,
                         ha_dtype_name(p->dtype), r, c, got, want);
        }
}

/* ---- attention */

struct test_recipe {
    size_t batch, q_len, q_heads, kv_heads, dim, runs;
    size_t keys[TEST_BATCH][HA_RUNS_MAX];
    bool causal;
    size_t pad; /* elements between the rows of two tokens */
};

static const struct test_recipe test_recipes[] = {
    { 1, 1, 4, 1, 64, 1, { { 200 } }, true, 0 },
    { 1, 1, 1, 1, 8, 1, { { 1 } }, true, 0 },
    { 1, 5, 6, 2, 24, 1, { { 37 } }, true, 3 },
    { 1, 5, 6, 2, 24, 2, { { 37, 5 } }, true, 0 }, /* the last run holds the query tokens and no more */
    { 2, 3, 8, 8, 16, 3, { { 4, 0, 30 }, { 4, 0, 30 } }, true, 1 },
    { 5, 2, 4, 2, 40, 2, { { 9, 20 }, { 9, 20 }, { 9, 21 }, { 0, 20 }, { 0, 20 } }, true, 0 },
    { 3, 4, 2, 1, 8, 4, { { 1, 2, 3, 4 }, { 1, 2, 3, 4 }, { 1, 2, 3, 4 } }, false, 0 },
    { 2, 1, 4, 2, 8, 1, { { 0 }, { 0 } }, false, 0 }, /* no keys */
    { 2, 1, 4, 2, 8, 0, { { 0 } }, false, 0 },        /* no runs */
    { 0, 1, 4, 2, 8, 0, { { 0 } }, false, 0 },
};
enum { TEST_RECIPES = sizeof test_recipes / sizeof *test_recipes };

struct test_problem {
    struct test_recipe r;
    struct test_memory memory;
    struct ha_device_attend a;
    struct ha_device_seq seq[TEST_BATCH];
    void *k[TEST_BATCH][HA_RUNS_MAX], *v[TEST_BATCH][HA_RUNS_MAX];
    float *q[TEST_BATCH];
};

static inline void test_query(struct test_problem *p, size_t b, uint64_t stream)
{
    const size_t n = p->r.q_len * p->r.q_heads * p->r.dim;
    ha_rng_normals(TEST_SEED, stream, 0, n, p->q[b]);
    for (size_t i = 0; i < n; i++) p->q[b][i] = ha_round(p->q[b][i], p->a.dtype);
}

static inline struct test_problem *test_problem_make(const struct test_recipe *r, enum ha_dtype dtype,
                                                     const struct test_memory *m)
{
    struct test_problem *p = calloc(1, sizeof *p);
    assert_non_null(p);
    const size_t bytes = ha_dtype_bytes(dtype), token = (r->kv_heads * r->dim + r->pad) * bytes,
                 rows = r->q_len * r->q_heads;
    p->r = *r;
    p->memory = *m;
    p->a = (struct ha_device_attend){ .batch = r->batch,
                                      .q_len = r->q_len,
                                      .q_heads = r->q_heads,
                                      .kv_heads = r->kv_heads,
                                      .head_dim = r->dim,
                                      .dtype = dtype,
                                      .scale = 1 / sqrtf((float)r->dim),
                                      .causal = r->causal,
                                      .seqs = p->seq };
    for (size_t b = 0; b < r->batch; b++) {
        p->q[b] = m->alloc(m->self, rows * r->dim * sizeof(float));
        test_query(p, b, 100 + b);
        p->seq[b] = (struct ha_device_seq){ .q = p->q[b],
                                            .runs_count = r->runs,
                                            .k_head_bytes = r->dim * bytes,
                                            .v_head_bytes = r->dim * bytes,
                                            .o = m->alloc(m->self, rows * r->dim * sizeof(float)),
                                            .lse = m->alloc(m->self, rows * sizeof(float)) };
        for (size_t i = 0; i < r->runs; i++) {
            p->k[b][i] = test_draw(m, r->keys[b][i] * token / bytes, dtype, 1000 + 10 * b + i);
            p->v[b][i] = test_draw(m, r->keys[b][i] * token / bytes, dtype, 2000 + 10 * b + i);
            p->seq[b].runs[i] = (struct ha_rows){ .k = p->k[b][i],
                                                  .v = p->v[b][i],
                                                  .k_stride_bytes = token,
                                                  .v_stride_bytes = token,
                                                  .keys = r->keys[b][i] };
        }
    }
    return p;
}

static inline void test_problem_free(struct test_problem *p)
{
    const struct test_memory *m = &p->memory;
    for (size_t b = 0; b < p->r.batch; b++) {
        for (size_t i = 0; i < p->r.runs; i++) {
            m->free(m->self, p->k[b][i]);
            m->free(m->self, p->v[b][i]);
        }
        m->free(m->self, p->q[b]);
        m->free(m->self, p->seq[b].o);
        m->free(m->self, p->seq[b].lse);
    }
    free(p);
}

/* The rows of one head, all runs one after the other. */
static inline void *test_joined(const struct test_problem *p, void *const part[HA_RUNS_MAX], size_t b, size_t head,
                                size_t *keys)
{
    const size_t bytes = ha_dtype_bytes(p->a.dtype), row = p->r.dim * bytes,
                 token = (p->r.kv_heads * p->r.dim + p->r.pad) * bytes;
    *keys = 0;
    for (size_t i = 0; i < p->r.runs; i++) *keys += p->r.keys[b][i];
    char *rows = malloc(*keys * row + 1), *to = rows;
    assert_non_null(rows);
    for (size_t i = 0; i < p->r.runs; i++)
        for (size_t j = 0; j < p->r.keys[b][i]; j++, to += row)
            memcpy(to, (char *)part[i] + j * token + head * row, row);
    return rows;
}

/* h: the first of the query heads that share a KV head */
static inline void test_head_check(const struct test_problem *p, const struct ha_profile *profile, size_t b, size_t h)
{
    const size_t dim = p->r.dim, head = h / (p->r.q_heads / p->r.kv_heads), row = dim * ha_dtype_bytes(p->a.dtype);
    size_t keys;
    void *k = test_joined(p, p->k[b], b, head, &keys), *v = test_joined(p, p->v[b], b, head, &keys);
    const struct ha_rows rows = { .k = k, .v = v, .k_stride_bytes = row, .v_stride_bytes = row, .keys = keys };
    const struct ha_attend a = { .q = p->q[b] + h * dim,
                                 .q_len = p->r.q_len,
                                 .group = p->r.q_heads / p->r.kv_heads,
                                 .head_dim = dim,
                                 .q_token_stride = p->r.q_heads * dim,
                                 .q_head_stride = dim,
                                 .runs_count = HA_RUNS_MAX, /* products may join the runs as they like */
                                 .dtype = p->a.dtype,
                                 .scale = p->a.scale,
                                 .causal = p->r.causal,
                                 .o = p->seq[b].o + h * dim,
                                 .lse = p->seq[b].lse + h,
                                 .lse_token_stride = p->r.q_heads,
                                 .lse_head_stride = 1 };
    struct ha_answer want;
    struct ha_why why;
    assert_int_equal(ha_answer_make(&want, &a, &rows, profile, 0, &why), HA_OK);
    const struct ha_answer_error e = ha_answer_judge(&want, &a);
    if (!(e.ratio <= 1))
        fail_msg("%s: seq %zu, query head %zu, row %zu, element %zu: error/bound %g", ha_dtype_name(p->a.dtype), b, h,
                 e.row, e.at, e.ratio);
    ha_answer_free(&want);
    free(k);
    free(v);
}

static inline void test_problem_check(const struct test_problem *p, const struct ha_profile *profile)
{
    for (size_t b = 0; b < p->r.batch; b++)
        for (size_t h = 0; h < p->r.q_heads; h += p->r.q_heads / p->r.kv_heads) test_head_check(p, profile, b, h);
}

#endif
