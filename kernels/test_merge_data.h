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
};
enum { HA_TEST_ROWS = 4 };

struct ha_test_merge {
    enum ha_form form;
    enum ha_dtype dtype;
    bool plus_inf_is_empty;
    size_t count, tokens, heads, dim;
    enum ha_test_rows rows;
    enum ha_alias alias;
    float *o, *level, *sum;             /* [count][tokens * heads][dim], [count][tokens * heads]: exact in dtype */
    float *got_o, *got_level, *got_sum; /* [tokens * heads][dim], [tokens * heads] */
};

/* the sizes are given: o becomes normal numbers, level 0, sum 1 */
void ha_test_merge_make(struct ha_test_merge *p, uint64_t seed);
void ha_test_merge_free(struct ha_test_merge *p);
/* o of state i, row r; of the output */
float *ha_test_merge_o(const struct ha_test_merge *p, size_t i, size_t r);
float *ha_test_merge_level(const struct ha_test_merge *p, size_t i, size_t r);
float *ha_test_merge_sum(const struct ha_test_merge *p, size_t i, size_t r);

/* Lays the states out in guarded memory that is NaN where nothing was put, and o of empty states too; merges;
 * reads the output, and ends the test if anything else has changed. */
void ha_test_merge_run(struct ha_test_merge *p, const struct ha_kernels *t);

/* whether state i has no keys in row r */
bool ha_test_merge_is_empty(const struct ha_test_merge *p, size_t i, size_t r);

#endif
