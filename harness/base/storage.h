#ifndef HA_BASE_STORAGE_H
#define HA_BASE_STORAGE_H

#include "harness/api/kernels.h"

/* Ways to keep the KV cache of one sequence, and the bytes that each takes on both sides: by the same functions by
 * which the variants ask for them (harness/api/kernels.h, harness/base/pq.h). */

struct ha_storage {
    bool codes;  /* keys are codes; else they are as they are */
    bool down;   /* values are in host memory */
    size_t dims; /* of codes: dimensions of a group, centroids of a book */
    size_t count;
    bool separate, pack; /* a book for each group; codes of as many bits as they need */
};
enum {
    HA_STORAGE_NAME = 64,
    HA_STORAGE_FRESH = 64 /* newest tokens with exact keys and values, beside values that are down */
};

/* Way i; false behind the last: all on the device; values down; and codes of 8, 13 and 16 bits, for 2, 4 and 8
 * dimensions, with books that are shared and separate. */
bool ha_storage_at(size_t i, struct ha_storage *out);
/* as a case without dataset and shape */
void ha_storage_name(const struct ha_storage *storage, char out[HA_STORAGE_NAME]);
/* how head_dim is cut into codes */
struct ha_pq ha_storage_pq(const struct ha_storage *storage, size_t head_dim);

/* Whose cache it is: at most 1024 layers and heads; head_dim: 8 to 576, a multiple of 8. K and V are of 2 bytes. */
struct ha_cached {
    size_t layers, q_heads, kv_heads, head_dim;
    uint64_t weights_bytes;
};

/* In bytes. */
struct ha_need {
    uint64_t kv;                       /* keys or codes, and values, on the device */
    uint64_t books;                    /* centroids in f32 */
    uint64_t fresh;                    /* the newest tokens */
    uint64_t step;                     /* tables of a layer; scores, ids and weights of all query heads */
    uint64_t device;                   /* of these the sum, and the weights of the model */
    uint64_t kv_host, step_host, host; /* values; ids and weights that came down; both */
};
#define HA_STORAGE_TOKENS_MAX (UINT64_C(1) << 40)
/* What so many tokens, at most HA_STORAGE_TOKENS_MAX, take; false: it is 2^64 bytes or more. */
bool ha_storage_need(const struct ha_storage *storage, const struct ha_cached *of, uint64_t tokens,
                     struct ha_need *out);
/* the most tokens, up to HA_STORAGE_TOKENS_MAX, that the device's memory holds */
uint64_t ha_storage_tokens(const struct ha_storage *storage, const struct ha_cached *of, uint64_t device_bytes);

#endif
