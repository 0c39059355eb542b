#ifndef HA_KERNELS_TEST_PROBLEM_H
#define HA_KERNELS_TEST_PROBLEM_H

/* An attention to be solved by any table: its keys laid as attend takes them, some packed, the rest in runs of rows,
 * lists of units and of blocks; queries and outputs. What it must answer: ha_answer_make (harness/api/reference.h). */

#include "kernels/test_data.h"

struct ha_test_ask {
    enum ha_dtype dtype;
    size_t dim, keys, group, q_len;
    size_t packed, unit;                 /* keys packed, in a list of such units or in order */
    size_t runs_count, run[HA_RUNS_MAX]; /* keys of each */
    size_t block;                        /* of the runs' indices */
    bool causal, weights;
    bool strided; /* heads outermost, and a gap behind every row of q and o */
    float scale;  /* 0: 1 / sqrt(dim) */
    enum ha_test_layout layout;
    enum ha_test_family family;
    uint64_t seed;
};

struct ha_test_problem {
    struct ha_test_ask ask;
    struct ha_test_kv kv;
    struct ha_attend args; /* its runs point into this struct */
    struct ha_rows runs[HA_RUNS_MAX];
    void *k, *v; /* of the runs in blocks */
    uint32_t *list;
    float *q;
    size_t rows; /* q_len * group */
};

/* Keys [0, packed) go into packed blocks (ha_test_pack). The next run[0] keys make a run, and so on; with block = 0
 * they stay where kv has them, otherwise an index names blocks of so many rows. Guarded; what is not named is NaN. */
void ha_test_problem_make(struct ha_test_problem *p, const struct ha_test_ask *ask);
/* The same with keys that are there already: the caller's, of which layout and family were. */
void ha_test_problem_lay(struct ha_test_problem *p, const struct ha_test_ask *ask, const struct ha_test_kv *kv);

/* attend, whole where most = 0, otherwise by parts of whole multiples of HA_SPLIT_KEYS, any of [1, most] of them each,
 * and a join. All outputs are NaN before. */
void ha_test_problem_solve(struct ha_test_problem *p, const struct ha_kernels *t, size_t most);
/* all outputs NaN */
void ha_test_problem_poison(const struct ha_test_problem *p);
/* the profile whose bound holds for a table */
struct ha_profile ha_test_problem_profile(const struct ha_test_problem *p, const struct ha_kernels *t);

#endif
