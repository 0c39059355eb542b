#ifndef HA_PARTS_KV_H
#define HA_PARTS_KV_H

/* K and V of one layer of one sequence, token-major: [cap][kv_heads][head_dim] of shape.dtype
 * each, in any memory. Appending tokens, evicting tokens and loading a layer are then one
 * contiguous copy each. */

#include "harness/api/variant.h"

struct ha_kv {
    enum ha_memory memory;
    unsigned char *k, *v;
    size_t cap;
};

/* How keys lie in host memory: an option `layout` of variants. `plan`: natural rows where the plan of the CPU kernels
 * has found attention over them to be faster for the type, packed else. */
enum ha_kv_layout { HA_KV_NATURAL, HA_KV_PACKED, HA_KV_PLANNED };
const char *ha_kv_layout_word(size_t i);
#define HA_KV_LAYOUT(of, standard)                                                                             \
    {                                                                                                          \
        "layout", standard,                                                                                    \
            .word = ha_kv_layout_word,                                                                         \
            .doc = "of " of                                                                                    \
                   ": natural rows, or packed where head_dim is a multiple of 8, at most 256; plan: which of " \
                   "them this CPU's plan has found to be faster"                                               \
    }
bool ha_kv_is_packed(const struct ha_context *ctx, size_t layout);

static inline size_t ha_least(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t ha_most(size_t a, size_t b) { return a > b ? a : b; }

/* bytes of one token's K (or V), all KV heads; of one head's row */
size_t ha_kv_token_bytes(const struct ha_shape *shape);
size_t ha_kv_head_bytes(const struct ha_shape *shape);
/* the most tokens that sequence b can reach */
size_t ha_kv_max_tokens(const struct ha_shape *shape, size_t b);
size_t ha_kv_longest(const struct ha_shape *shape); /* the most that any can */

enum ha_status ha_kv_create(const struct ha_context *ctx, enum ha_memory memory, size_t cap, struct ha_kv *kv,
                            struct ha_why *why);

/* HA_WAIVED, where the device has no mapped memory: of a store that kernels read nothing can be asked. */
enum ha_status ha_kv_mapped(const struct ha_context *ctx, struct ha_why *why);

/* rows [first, first + count) of KV head `head` */
struct ha_rows ha_kv_rows(const struct ha_shape *shape, const struct ha_kv *kv, size_t head, size_t first,
                          size_t count);

/* The pinned memory that loads go up by, made when it is first asked for: by the frame, ahead of them, so that whoever
 * has none is told why. */
void *ha_kv_staging(const struct ha_context *ctx, struct ha_why *why);

/* Tokens [first, first + count) of a prefill, in host memory, to rows
 * [at, at + count): by the pool's workers, and over the device's link by way of pinned memory if kv is device memory.
 */
enum ha_status ha_kv_load(const struct ha_context *ctx, const struct ha_kv *kv, size_t at, const struct ha_prefill *in,
                          size_t b, size_t first, size_t count);

/* the new tokens of sequence b in a step; device memory */
struct ha_kv ha_kv_of_step(const struct ha_shape *shape, const struct ha_step *step, size_t b);

/* rows [from, from + count) of src to rows [at, ...) of dst, K and V, enqueued on stream; one of them at least is
 * device memory */
enum ha_status ha_kv_copy(const struct ha_context *ctx, struct ha_stream *stream, const struct ha_kv *dst, size_t at,
                          const struct ha_kv *src, size_t from, size_t count);

#endif
