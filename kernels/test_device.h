#ifndef HA_KERNELS_TEST_DEVICE_H
#define HA_KERNELS_TEST_DEVICE_H

/* Attention over a batch of sequences, to be solved by a device: its data in memory as the device wants it, each buffer
 * as large as it must be, what lies between rows NaN; and its judge. */

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

struct ha_test_device_ask {
    enum ha_dtype dtype;
    size_t dim, kv_heads, group, q_len, batch;
    size_t runs;                      /* of each sequence */
    const size_t (*run)[HA_RUNS_MAX]; /* [batch][runs] keys of each */
    size_t pad;                       /* elements more between two rows of K and V, [rows][heads][dim] */
    size_t q_gap;                     /* 0: q and o are dense; else floats between heads, odd: [q_heads][q_len] */
    bool causal;
    bool rounded; /* queries are exact in dtype */
    uint64_t seed;
};

/* o [q_len][q_heads][dim] and so on for each sequence, as args has it. */
struct ha_test_device_problem {
    struct ha_test_device_ask ask; /* run is NULL */
    struct ha_test_memory memory;
    struct ha_device_attend args;
    struct ha_device_seq *seq;
    struct ha_test_kv *kv; /* [batch][kv_heads]: each head's keys, one run after another */
    void **buffer;
    size_t buffers;
};
void ha_test_device_make(struct ha_test_device_problem *p, const struct ha_test_device_ask *ask,
                         const struct ha_test_memory *memory);
void ha_test_device_free(struct ha_test_device_problem *p);
/* other queries for one sequence */
void ha_test_device_query(const struct ha_test_device_problem *p, size_t seq, uint64_t seed);
/* Against the reference, of a device that may join runs as it likes: ends the test where something is wrong, or where
 * something was written between the outputs of two heads. */
void ha_test_device_check(const struct ha_test_device_problem *p, const struct ha_profile *profile);

#endif
