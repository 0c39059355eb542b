#ifndef HA_KERNELS_CUDA_TEST_ATTEND_DATA_H
#define HA_KERNELS_CUDA_TEST_ATTEND_DATA_H

/* Problems for the attention kernels, and a run on the emulation without streams. */

#include "kernels/cuda/launch.h"
#include "kernels/test_device.h"

enum { PROBLEM_SEQS = 150 };

struct problem {
    enum ha_dtype dtype;
    size_t dim, kv_heads, group, q_len, batch;
    size_t keys[PROBLEM_SEQS];
    size_t runs;      /* of each sequence; the keys before the query tokens are cut into them */
    size_t block;     /* of index lists; 0: rows */
    unsigned indexed; /* bit r: run r has an index */
    bool causal, weights, empty_run;
    enum ha_test_device_layout layout;
    enum ha_test_family family;
    uint64_t seed;
    unsigned splits, multiprocessors;
};

void problem_make(struct ha_test_device_problem *run, const struct problem *p);
/* Runs the kernels on it, all outputs NaN before; the order of threads is ha_emulated_order's. */
void problem_attend(const struct ha_test_device_problem *run, const struct problem *p, unsigned splits);
/* Every output against the reference; ends the test at the first that is wrong. */
void problem_judge(const struct ha_test_device_problem *run, const struct problem *p);
/* all of that */
void problem_check(const struct problem *p);
/* Blocks of the attention kernel for such a call, nothing being run; no row is read. */
unsigned problem_blocks(const struct ha_cuda_gpu *gpu, const struct ha_device_attend *args);
/* one line of what was worst since the start, by path and type */
void problem_report(void);

#endif
