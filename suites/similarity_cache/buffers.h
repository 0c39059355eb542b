#ifndef HA_SIMILARITY_CACHE_BUFFERS_H
#define HA_SIMILARITY_CACHE_BUFFERS_H

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

struct ha_buffers_layer {
    const struct ha_buffers *of;
    const bool *whole; /* [kv_heads]: all keys are on the device */
    size_t count;      /* of those */
    uint32_t *here;    /* device: [batch][kv_heads] the same as numbers */
    uint32_t
        *list; /* device: [batch][kv_heads][list_max], as of vectors.h; the entries of whole heads are the caller's */
    struct ha_buffers_seq *seq; /* [batch] */
};

/* Layers follow each other: they share what is not theirs. */
struct ha_buffers {
    const struct ha_context *ctx;
    struct ha_buffers_rule rule;
    struct ha_kv stage; /* device: HA_BUFFERS_STAGE tokens on their way, the caller's between calls */
    uint32_t *known;    /* pinned: [batch][kv_heads][list_max] of ha_buffers_learn */
    struct ha_buffers_layer *layer;
};
enum { HA_BUFFERS_STAGE = 2048 };

/* whole: [layers][kv_heads]; it stays. Then each sequence of a layer, with buffers of so many units. Arrays are the
 * arenas'. */
enum ha_status ha_buffers_create(struct ha_buffers *o, const struct ha_context *ctx, const struct ha_buffers_rule *rule,
                                 const bool *whole, struct ha_why *why);
enum ha_status ha_buffers_open(const struct ha_buffers_layer *l, size_t b, size_t units, struct ha_why *why);
/* whether a head has a buffer */
static inline bool ha_buffers_any(const struct ha_buffers_layer *l) { return l->count < l->of->ctx->shape->kv_heads; }
/* K of KV head 0 from the first token on that is no sink, where kernels read it, of all heads that have all their keys
 * in one place: host memory, or the pool; and the bytes from one head to the next. */
struct ha_rows ha_buffers_keys(const struct ha_buffers_layer *l, size_t b, size_t *head_bytes);

/* Enqueues on the main stream, of `tokens` tokens in all, those of [first, first + count), rows `from` and on of src on
 * the device, to where they are read: the kept ones, and whole heads. */
enum ha_status ha_buffers_put(const struct ha_buffers_layer *l, size_t b, const struct ha_kv *src, size_t from,
                              size_t first, size_t count, size_t tokens);
/* The kept ones again as of so many tokens, from host memory or from whole heads. */
enum ha_status ha_buffers_rewind(const struct ha_buffers_layer *l, size_t b, size_t tokens);
/* In a rule's `device`: adds what the lists name, of which the device says the keys: [batch][kv_heads]; then the kept
 * tokens and the step's own. */
void ha_buffers_device(const struct ha_buffers_layer *l, const struct ha_layer *layer, const struct ha_step *step,
                       size_t b, const uint32_t *keys, struct ha_device_seq *d);

/* Of sequences of so many tokens, [batch], what each KV head has read, in units from the first token on that is no
 * sink, to `known`: of a whole head what its list names, which comes down from the device; else index, that its buffer
 * holds, [batch][kv_heads][list_max] in host memory. keys: [batch][kv_heads]. What the main stream does is over then,
 * and keys and index are read behind it. HA_ERROR, or what ha_list_refuse returns: it cannot be a list. */
enum ha_status ha_buffers_learn(const struct ha_buffers_layer *l, const uint32_t *index, const uint32_t *keys,
                                const size_t *tokens, struct ha_why *why);
/* Of these: adds them, the kept tokens, and the step's. */
enum ha_status ha_buffers_use(const struct ha_buffers_layer *l, size_t b, size_t head, size_t keys, size_t tokens,
                              struct ha_positions *used, struct ha_why *why);

#endif
