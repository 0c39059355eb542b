#ifndef HA_KERNELS_TEST_DATA_H
#define HA_KERNELS_TEST_DATA_H

/* Inputs for the kernel tests: every buffer ends at a page that must not be touched, and is full
 * of NaN where nothing was put. */

#include "harness/api/kernels.h"
#include "harness/base/test.h"

/* The tables that this build has and this CPU can run, worst first, each filled from the one before as the registry
 * does it. */
enum { HA_TEST_TABLES_MAX = 8 };
extern struct ha_kernels ha_test_tables[HA_TEST_TABLES_MAX];
extern size_t ha_test_tables_count;
int ha_test_tables_setup(void **state);

#define HA_TEST_ALL(t) for (const struct ha_kernels *t = ha_test_tables; t < ha_test_tables + ha_test_tables_count; t++)
/* The tables whose `op` is their own. */
#define HA_TEST_EACH(t, op)                                                                           \
    for (const struct ha_kernels *t = ha_test_tables; t < ha_test_tables + ha_test_tables_count; t++) \
        if (t == ha_test_tables || t->op != t[-1].op)

#define HA_TEST_DTYPES(d) for (enum ha_dtype d = HA_F32; d <= HA_BF16; d++)

/* bytes of 0xFF (NaN in every type); the byte after the last one faults. Ends the test on lack of memory. */
void *ha_guard_alloc(size_t bytes);
/* Ends the test if something was written before the block. */
void ha_guard_free(void *p);
/* Frees so all blocks that were given since a moment; since 0: all there are. */
size_t ha_guard_now(void);
void ha_guard_release(size_t since);
/* Memory of the test's own that arguments of kernels promise only to read. */
void *ha_test_own(const void *p);

/* Where row i of K and V lies. */
enum ha_test_layout {
    HA_TEST_DENSE,
    HA_TEST_STRIDED,  /* rows apart by an odd number of elements, K and V by different ones */
    HA_TEST_GATHERED, /* any row of a larger pool, through an index */
};
enum { HA_TEST_LAYOUTS = 3 };

/* In guarded blocks, as all below. */
struct ha_test_kv {
    enum ha_dtype dtype;
    size_t dim, keys;
    struct ha_rows rows; /* of all keys */
};

/* normal numbers */
void ha_test_kv_make(struct ha_test_kv *kv, enum ha_test_layout layout, size_t dim, size_t keys, enum ha_dtype dtype,
                     uint64_t seed);
/* one element of key i */
void ha_test_kv_put_k(struct ha_test_kv *kv, size_t i, size_t d, float x);
void ha_test_kv_put_v(struct ha_test_kv *kv, size_t i, size_t d, float x);

/* normal numbers, exact in dtype */
void ha_test_query(float *q, size_t dim, enum ha_dtype dtype, uint64_t seed);

#endif
