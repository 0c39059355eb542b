#ifndef HA_PARTS_BUFFERS_H
#define HA_PARTS_BUFFERS_H

/* What the device has of the keys of a layer's KV heads: of some heads all of them, of the others a buffer, to which an
 * engine brings those that were chosen (CLO, sections 3.1 and 3.3); besides the first tokens of each sequence and the
 * last ones. Buffers and whole heads lie in one pool (vectors.h), and attention reads both in place, by a list for each
 * head (section 5): of a whole head what was chosen of it, of a buffer always all entries. Where any head has a buffer
 * all tokens are in host memory. */

#include "suites/parts/kept.h"
#include "suites/parts/vectors.h"

struct ha_buffers_rule {
    size_t unit, list_max; /* tokens of an entry; entries of a list at most */
    size_t sink, recent;
    enum ha_memory memory; /* of host memory */
};

struct ha_buffers_seq {
    size_t units;             /* of a buffer */
    struct ha_kv store, rest; /* host memory: all tokens; those that are no sinks */
    struct ha_kept kept;
    struct ha_vectors pool; /* of a whole head all tokens that are no sinks, from its first row on */
};

struct ha_buffers {
    const struct ha_context *ctx;
    struct ha_buffers_rule rule;
    const bool *whole; /* [kv_heads]: all keys are on the device */
    size_t count;      /* of those */
    uint32_t *here;    /* device: [batch][kv_heads] the same as numbers */
    uint32_t
        *list; /* device: [batch][kv_heads][list_max] of vectors.h, whose entries of whole heads are the caller's */
    struct ha_buffers_seq *seq; /* [batch] */
};

/* whole: it stays. Then each sequence, with buffers of so many units. Arrays are the arenas'. */
enum ha_status ha_buffers_create(struct ha_buffers *o, const struct ha_context *ctx, const struct ha_buffers_rule *rule,
                                 const bool *whole, struct ha_why *why);
enum ha_status ha_buffers_open(const struct ha_buffers *o, size_t b, size_t units, struct ha_why *why);
/* whether a head has a buffer */
static inline bool ha_buffers_any(const struct ha_buffers *o) { return o->count < o->ctx->shape->kv_heads; }
/* K of KV head 0 from the first token on that is no sink, where kernels read it, of all heads that have all their keys
 * in one place: host memory, or the pool; and the bytes from one head to the next. */
struct ha_rows ha_buffers_keys(const struct ha_buffers *o, size_t b, size_t *head_bytes);

/* Enqueues on the main stream, of `tokens` tokens in all, those of [first, first + count), rows `from` and on of src on
 * the device, to where they are read: the kept ones, and whole heads. */
enum ha_status ha_buffers_put(const struct ha_buffers *o, size_t b, const struct ha_kv *src, size_t from, size_t first,
                              size_t count, size_t tokens);
/* The kept ones again as of so many tokens, from host memory or from whole heads, through stage in device memory. */
enum ha_status ha_buffers_rewind(const struct ha_buffers *o, size_t b, const struct ha_kv *stage, size_t tokens);
/* In a rule's `device`: adds what the lists name, of which the device says the keys: [batch][kv_heads]. */
void ha_buffers_device(const struct ha_buffers *o, size_t b, const uint32_t *keys, struct ha_device_seq *d);

#endif
