#ifndef HA_PARTS_TAIL_H
#define HA_PARTS_TAIL_H

/* The newest tokens of one sequence and layer, which stay on the device until their block of `unit` tokens is whole and
 * at least `keep` tokens behind the newest one; then it leaves for host memory. Positions and blocks count from the
 * first token that is no sink. The ring has room for whole blocks, so that none wraps. */

#include "suites/parts/ring.h"
#include "suites/parts/store.h"

struct ha_tail {
    struct ha_ring ring;
    size_t unit, keep;
};

/* Rows for a sequence of at most `most` tokens; kv: so many in device memory. */
size_t ha_tail_rows(const struct ha_shape *shape, size_t unit, size_t keep, size_t most);
static inline struct ha_tail ha_tail_of(size_t unit, size_t keep, const struct ha_kv *kv)
{
    return (struct ha_tail){ .ring = { .kv = *kv }, .unit = unit, .keep = keep };
}
/* blocks that have left a sequence of so many tokens */
size_t ha_tail_gone(const struct ha_tail *tail, size_t tokens);
/* What a prefill leaves of the tokens from `origin` on: those of no block that has gone. */
enum ha_status ha_tail_load(const struct ha_context *ctx, struct ha_tail *tail, const struct ha_prefill *in, size_t b,
                            size_t origin);
/* the rows of KV head 0 of a block that is there as a whole; head h is ha_kv_head_bytes further on */
struct ha_rows ha_tail_block(const struct ha_shape *shape, const struct ha_tail *tail, size_t block);
/* Enqueues the blocks that are to go to rows [block * unit, ...) of `to`, natural rows in host memory, and forgets
 * them. How many. */
enum ha_status ha_tail_leave(const struct ha_context *ctx, struct ha_stream *stream, struct ha_tail *tail,
                             const struct ha_kv *to, size_t *gone);
/* As after a load of so many tokens: what has left since comes back from `from`, where leave put it. */
enum ha_status ha_tail_rewind(const struct ha_context *ctx, struct ha_tail *tail, const struct ha_kv *from,
                              size_t tokens);

/* The same of a store, whose token 0 is the first that is no sink. It packs, once what is enqueued is over. */
enum ha_status ha_tail_leave_to_store(const struct ha_context *ctx, struct ha_stream *stream, struct ha_tail *tail,
                                      struct ha_kv_store *store, size_t *gone);
/* Before the store is rewound. row: host memory for K and V of a block of one KV head. */
enum ha_status ha_tail_rewind_from_store(const struct ha_context *ctx, struct ha_tail *tail,
                                         const struct ha_kv_store *store, unsigned char *row, size_t tokens);

#endif
