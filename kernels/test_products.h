#ifndef HA_KERNELS_TEST_PRODUCTS_H
#define HA_KERNELS_TEST_PRODUCTS_H

/* Attention and products for the tests of attend_products and product on any device: shapes that have been wrong
 * somewhere, and the judge. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_device.h"

#include <math.h>

enum { TEST_SEED = 5, TEST_BATCH = 5 };

static inline void *test_draw(const struct ha_test_memory *m, size_t n, enum ha_dtype dtype, uint64_t which)
{
    float *x = malloc(n * sizeof *x + 1);
    void *stored = m->alloc(m->self, n * ha_dtype_bytes(dtype));
    assert_non_null(x);
    ha_rng_normals(TEST_SEED, which, 0, n, x);
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
    size_t pad; /* elements between the rows of two tokens; of q and o, between two heads */
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

static inline struct ha_test_device_problem *test_problem_make(const struct test_recipe *r, enum ha_dtype dtype,
                                                               const struct ha_test_memory *m)
{
    const struct ha_test_device_ask ask = { .dtype = dtype,
                                            .dim = r->dim,
                                            .kv_heads = r->kv_heads,
                                            .group = r->q_heads / r->kv_heads,
                                            .q_len = r->q_len,
                                            .batch = r->batch,
                                            .runs = r->runs,
                                            .run = r->keys,
                                            .causal = r->causal,
                                            .rounded = true,
                                            .pad = r->pad,
                                            .q_gap = r->pad,
                                            .seed = TEST_SEED };
    struct ha_test_device_problem *p = malloc(sizeof *p);
    assert_non_null(p);
    ha_test_device_make(p, &ask, m);
    return p;
}

static inline void test_problem_free(struct ha_test_device_problem *p)
{
    ha_test_device_free(p);
    free(p);
}

#endif
