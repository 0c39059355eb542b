#ifndef HA_KERNELS_TEST_PACKED_DATA_H
#define HA_KERNELS_TEST_PACKED_DATA_H

/* attend_packed, and attend_chunk over the same keys: whatever it reads ends at a page that must not be touched, and so
 * does whatever it writes. */

#include "kernels/test_data.h"

struct ha_test_packed {
    struct ha_test_kv kv; /* the keys as rows, of any layout */
    struct ha_packed packed;
    uint32_t *place; /* [keys] which key of the store each is */
};

/* as ha_test_pack has them */
void ha_test_packed_make(struct ha_test_packed *p, enum ha_test_family family, size_t dim, size_t keys,
                         enum ha_dtype dtype, size_t unit, uint64_t seed);
/* one element of a key, in the rows and in the blocks */
void ha_test_packed_put_k(struct ha_test_packed *p, size_t key, size_t d, float x);
void ha_test_packed_put_v(struct ha_test_packed *p, size_t key, size_t d, float x);
/* every element of K and of V times these, rounded to the type */
void ha_test_packed_scale(struct ha_test_packed *p, float k, float v);
/* In the blocks all keys become NaN but [first, first + keys). */
void ha_test_packed_hide(struct ha_test_packed *p, size_t first, size_t keys);

/* What is asked of attend_packed, and what it answered. */
struct ha_test_states {
    float *q; /* [rows][q_stride] */
    size_t rows, q_stride, first, keys;
    float scale;
    bool with_weights;
    const uint32_t *visible; /* of attend_chunk: [rows] how many keys each sees; NULL: all */
    size_t gap;              /* the weights' stride is keys + gap */
    size_t shift;            /* all outputs start so many floats before they would */
    struct ha_reach reach;
    float *level, *sum, *acc, *weights; /* allocated by the first call */
};

/* Everything is poisoned first. What it must not write, between the rows of weights, is checked. */
void ha_test_packed_attend(void (*attend)(const struct ha_packed_chunk *), const struct ha_test_packed *p,
                           struct ha_test_states *s);
/* The same of attend_chunk, over the rows; its weights are always wanted. */
void ha_test_chunk_attend(void (*attend)(const struct ha_chunk *), const struct ha_test_packed *p,
                          struct ha_test_states *s);
bool ha_test_states_equal(const struct ha_test_states *a, const struct ha_test_states *b, size_t rows, size_t dim);

/* rows queries, dim + gap floats from one to the next; bf16: 0 none of them is exact in bfloat16 (for one seed in
 * four all lie halfway between two such numbers), 1 all are, 2 some are */
float *ha_test_packed_queries(enum ha_test_family family, size_t dim, size_t rows, size_t gap, int bf16, uint64_t seed);

#endif
