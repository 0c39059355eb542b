#ifndef HA_KERNELS_CUDA_TEST_ATTEND_DATA_H
#define HA_KERNELS_CUDA_TEST_ATTEND_DATA_H

/* Problems for the attention kernels: their data, their answers from the reference, and a run on the emulation without
 * streams. Buffers are as large as they must be, rows that nobody names are NaN. */

#include "harness/api/reference.h"
#include "kernels/cuda/launch.h"
#include "kernels/test_data.h"

enum problem_layout {
    LAYOUT_HEADS,        /* [heads][rows][dim] */
    LAYOUT_TOKENS,       /* [rows][heads][dim] */
    LAYOUT_OFF_BY_EIGHT, /* as the last, 8 bytes further on, rows 8 bytes further apart */
    LAYOUT_ODD,          /* an odd number of elements between rows, K and V by different ones */
};
enum { LAYOUTS = 4 };

enum { PROBLEM_SEQS = 150 };

struct problem {
    enum ha_dtype dtype;
    size_t dim, kv_heads, group, q_len, batch;
    size_t keys[PROBLEM_SEQS];
    size_t runs;      /* of each sequence; the keys before the query tokens are cut into them */
    size_t block;     /* of index lists; 0: rows */
    unsigned indexed; /* bit r: run r has an index */
    bool causal, weights, empty_run;
    enum problem_layout layout;
    enum ha_test_family family;
    uint64_t seed;
    unsigned splits, multiprocessors;
};

/* The data of a problem, and what the kernels made of it: o [q_len][q_heads][dim] and so on for each sequence. */
struct problem_run {
    struct ha_device_seq *seq;
    void **buffer;
    size_t buffers;
    struct ha_test_kv *kv; /* [batch][kv_heads]: the same keys, one after another */
    size_t kvs;
};
void problem_make(struct problem_run *run, const struct problem *p);
void problem_free(struct problem_run *run);
/* Runs the kernels on it, all outputs NaN before; the order of threads is ha_emulated_order's. */
void problem_attend(const struct problem_run *run, const struct problem *p, unsigned splits);
/* Every output against the reference; ends the test at the first that is wrong. */
void problem_judge(const struct problem_run *run, const struct problem *p);
/* all of that */
void problem_check(const struct problem *p);
/* Blocks of the attention kernel for such a call, nothing being run; no row is read. */
unsigned problem_blocks(const struct ha_cuda_gpu *gpu, const struct ha_device_attend *args);
/* one line of what was worst since the start, by path and type */
void problem_report(void);

#endif
