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

/* Which of `of` each of `count` is, none twice, in any order; last: the last of them, too. */
void ha_test_choose(uint32_t *out, size_t count, size_t of, bool last, uint64_t seed, uint64_t stream);

/* Where row i of K and V lies. */
enum ha_test_layout {
    HA_TEST_DENSE,
    HA_TEST_STRIDED,  /* rows apart by an odd number of elements, K and V by different ones */
    HA_TEST_GATHERED, /* any row of a larger pool, through an index */
};
enum { HA_TEST_LAYOUTS = 3 };

/* What is hard about the values. */
enum ha_test_family {
    HA_TEST_NORMAL,
    HA_TEST_PEAKED,     /* scores of large variance */
    HA_TEST_TIES,       /* one number in all of K, one in V: rounding errors of a sum have one sign */
    HA_TEST_INCREASING, /* every chunk has a larger maximum than those before */
    HA_TEST_DECREASING,
    HA_TEST_DOMINANT,   /* one key has nearly all weight */
    HA_TEST_OFFSET,     /* scores of about 1000, differences of about 1 */
    HA_TEST_HUGE,       /* scores of about 10^5 */
    HA_TEST_CANCELLING, /* scores are small differences of large products */
    HA_TEST_SMALL,      /* V among the smallest numbers of its type */
    HA_TEST_FINE,       /* queries of 24 bits whose low halves decide: the high ones cancel */
};
enum { HA_TEST_ALL_FAMILIES = 11 };

/* In guarded blocks, as all below. */
struct ha_test_kv {
    enum ha_dtype dtype;
    size_t dim, keys;
    struct ha_rows rows; /* of all keys */
};

void ha_test_kv_make(struct ha_test_kv *kv, enum ha_test_layout layout, enum ha_test_family family, size_t dim,
                     size_t keys, enum ha_dtype dtype, uint64_t seed);
/* one element of key i */
void ha_test_kv_put_k(struct ha_test_kv *kv, size_t i, size_t d, float x);
void ha_test_kv_put_v(struct ha_test_kv *kv, size_t i, size_t d, float x);

/* a query that goes with the family; exact in dtype */
void ha_test_query(float *q, enum ha_test_family family, size_t dim, enum ha_dtype dtype, uint64_t seed);

#endif
