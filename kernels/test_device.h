#ifndef HA_KERNELS_TEST_DEVICE_H
#define HA_KERNELS_TEST_DEVICE_H

/* Attention over a batch of sequences, to be solved by a device: its data in memory as the device wants it, each buffer
 * as large as it must be, rows that no run has NaN; and its judge. */

#include "harness/api/device.h"
#include "harness/api/reference.h"
#include "kernels/test_data.h"

/* alloc: bytes of 0xFF, written and read by the test directly. ha_test_heap: of malloc. */
struct ha_test_memory {
    void *self;
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *ptr);
};

extern const struct ha_test_memory ha_test_heap;

enum ha_test_device_layout {
    HA_TEST_HEADS,        /* [heads][rows][dim] */
    HA_TEST_TOKENS,       /* [rows][heads][dim] */
    HA_TEST_OFF_BY_EIGHT, /* as the last, 8 bytes further on, rows 8 bytes further apart */
    HA_TEST_ODD,          /* an odd number of elements between rows, K and V by different ones */
};
enum { HA_TEST_DEVICE_LAYOUTS = 4, HA_TEST_SEQS = 150 };

struct ha_test_device_ask {
    enum ha_dtype dtype;
    size_t dim, kv_heads, group, q_len, batch;
    size_t keys[HA_TEST_SEQS];        /* [batch] */
    size_t runs;                      /* of each sequence; the keys before the query tokens are cut into them */
    bool empty_run;                   /* the first run has no keys */
    const size_t (*run)[HA_RUNS_MAX]; /* [batch][runs] keys of each, instead of keys; or NULL */
    size_t block;                     /* of index lists; 0: rows */
    unsigned indexed;                 /* bit r: run r has an index */
    size_t lists;                     /* as in ha_device_attend; run 0 has an index then, whatever indexed says */
    bool list_keys;                   /* lists of a part of run 0's keys: none, half of them, all but one, all */
    size_t q_gap;                     /* 0: q and o are dense; else floats between heads, odd: [q_heads][q_len] */
    bool causal, weights;
    bool rounded; /* queries are exact in dtype */
    size_t pad;   /* elements more between two rows of HA_TEST_TOKENS */
    enum ha_test_device_layout layout;
    enum ha_test_family family;
    uint64_t seed;
    unsigned splits, multiprocessors; /* how a GPU divides the work; the tests of its kernels set and read them */
};

/* o [q_len][q_heads][dim] and so on for each sequence, as args has it. */
struct ha_test_device_problem {
    struct ha_test_device_ask ask; /* keys are set, run is NULL */
    struct ha_test_memory memory;
    struct ha_device_attend args;
    struct ha_device_seq *seq;
    struct ha_test_kv *kv; /* [batch][units]: each unit's keys (seq_attend.h), one after another */
    void **buffer;
    size_t buffers;
};
void ha_test_device_make(struct ha_test_device_problem *p, const struct ha_test_device_ask *ask,
                         const struct ha_test_memory *memory);
void ha_test_device_free(struct ha_test_device_problem *p);
/* other queries for one sequence */
void ha_test_device_query(const struct ha_test_device_problem *p, size_t seq, uint64_t seed);
/* all outputs NaN */
void ha_test_device_poison(const struct ha_test_device_problem *p);

/* What the query heads of one unit hold against the reference; runs: in how many parts the bound takes the keys. */
struct ha_test_device_error {
    struct ha_answer_error output, weight;
    size_t outputs, weights; /* judged */
};
struct ha_test_device_error ha_test_device_judge(const struct ha_test_device_problem *p,
                                                 const struct ha_profile *profile, size_t runs, size_t seq,
                                                 size_t unit);
/* All of that, of a device that may join runs as it likes: ends the test where something is wrong, or where something
 * was written between the weights or the outputs of two heads. */
void ha_test_device_check(const struct ha_test_device_problem *p, const struct ha_profile *profile);

#endif
