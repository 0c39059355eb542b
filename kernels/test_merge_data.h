#ifndef HA_KERNELS_TEST_MERGE_DATA_H
#define HA_KERNELS_TEST_MERGE_DATA_H

/* A merge and what came out of it, apart from where it lies in memory. */

#include "kernels/test_data.h"

/* Where the rows of a state and of the output lie. */
enum ha_test_rows {
    HA_TEST_TOKENS_HEADS, /* contiguous */
    HA_TEST_HEADS_TOKENS, /* contiguous, tokens inside */
    HA_TEST_ODD_STRIDES,  /* gaps after rows and tokens, others in each state */
    HA_TEST_MIXED,        /* each state as one of these */
    HA_TEST_PADDED, /* at multiples of 16 bytes but for one thing, an element more: o of state 1 here, its token and
                     * its head stride in the next two, then those of the output */
    HA_TEST_PADDED_EXACTLY = HA_TEST_PADDED + 6,
};
enum { HA_TEST_ROWS = 4 };

struct ha_test_merge {
    enum ha_form form;
    enum ha_dtype dtype;
    bool plus_inf_is_empty;
    size_t count, tokens, heads, dim;
    enum ha_test_rows rows;
    enum ha_alias alias;
    size_t first;                       /* the state that HA_ALIAS_FIRST is */
    float *o, *level, *sum;             /* [count][tokens * heads][dim], [count][tokens * heads]: exact in dtype */
    float *got_o, *got_level, *got_sum; /* [tokens * heads][dim], [tokens * heads] */
};

/* Problem n of every form and type in turn: one row; sizes and rows may be changed until it is made. */
enum { HA_TEST_MERGE_KINDS = 12 };
struct ha_test_merge ha_test_merge_kind(size_t n, size_t count, size_t dim);
/* the sizes are given: o becomes normal numbers, level 0, sum 1; no more states than the tables take */
void ha_test_merge_make(struct ha_test_merge *p, uint64_t seed);
void ha_test_merge_free(struct ha_test_merge *p);
/* The same, and levels that are hard in one way. */
enum ha_test_spread {
    HA_TEST_EQUAL,
    HA_TEST_NEAR,
    HA_TEST_FAR,
    HA_TEST_SHIFTED,
    HA_TEST_SOME_EMPTY,
    HA_TEST_MOST_EMPTY,
    HA_TEST_WIDE_GAPS, /* and the largest and smallest levels; of the CPU kernels alone */
    HA_TEST_ALL_SPREADS
};
enum { HA_TEST_SPREADS = HA_TEST_WIDE_GAPS };
void ha_test_merge_spread(struct ha_test_merge *p, enum ha_test_spread spread, uint64_t seed);
/* p's sizes and numbers in memory of its own, to lie in other rows or to be another type */
struct ha_test_merge ha_test_merge_like(const struct ha_test_merge *p);
/* o of state i, row r; of the output */
float *ha_test_merge_o(const struct ha_test_merge *p, size_t i, size_t r);
float *ha_test_merge_level(const struct ha_test_merge *p, size_t i, size_t r);
float *ha_test_merge_sum(const struct ha_test_merge *p, size_t i, size_t r);

/* Lays the states out in guarded memory that is NaN where nothing was put, and o of empty states too, or not even
 * there; merges; reads the output, and ends the test if anything else has changed. */
void ha_test_merge_run(struct ha_test_merge *p, const struct ha_kernels *t);

/* whether state i has no keys in row r */
bool ha_test_merge_is_empty(const struct ha_test_merge *p, size_t i, size_t r);
/* the natural LSE of a level and a sum; of state i in row r, -inf where it is empty */
double ha_test_merge_natural(const struct ha_test_merge *p, float level, float sum);
double ha_test_merge_lse(const struct ha_test_merge *p, size_t i, size_t r);
/* Row r of the output against ha_ref_merge: the worst error of o, and the error of the LSE, over their bounds. */
struct ha_test_merge_error {
    double o, lse;
};
struct ha_test_merge_error ha_test_merge_judge(const struct ha_test_merge *p, size_t r,
                                               const struct ha_merge_traits *traits);
/* the same bits */
void ha_test_same(const float *a, const float *b, size_t n);
void ha_test_merge_same(const struct ha_test_merge *a, const struct ha_test_merge *b);

#endif
