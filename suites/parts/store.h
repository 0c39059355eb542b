#ifndef HA_PARTS_STORE_H
#define HA_PARTS_STORE_H

/* K and V of one layer of one sequence for attention on the CPU, packed (struct ha_packed): of each KV head the whole
 * blocks, one linear stream, and behind them the newest tokens as rows, token-major as in suites/parts/kv.h, so that a
 * step appends its tokens by one contiguous copy. Whole blocks of rows are packed between two steps. A shape that does
 * not pack, or is not to, has rows alone. */

#include "suites/parts/kv.h"

struct ha_kv_store {
    unsigned char *blocks; /* [kv_heads][head_bytes], host memory; NULL: rows alone */
    size_t head_bytes;
    size_t packed, tokens; /* tokens in blocks, a multiple of HA_PACK_KEYS; in all */
    struct ha_kv open;     /* pinned; tokens [packed, tokens) in rows 0, 1, ... */
};

/* for all that sequence b can reach; packed: if the shape packs */
enum ha_status ha_kv_store_create(const struct ha_context *ctx, bool packed, size_t b, struct ha_kv_store *store,
                                  struct ha_why *why);
/* for so many tokens, of which at most `burst` are appended between two packs */
enum ha_status ha_kv_store_create_for(const struct ha_context *ctx, bool packed, size_t most, size_t burst,
                                      struct ha_kv_store *store, struct ha_why *why);
/* The whole prefill of sequence b, packed by the pool's workers, who so are the first to touch the blocks. */
enum ha_status ha_kv_store_load(const struct ha_context *ctx, struct ha_kv_store *store, const struct ha_prefill *in,
                                size_t b);
/* Of it tokens [first, first + count) alone: the first of them becomes token 0 of the store. */
enum ha_status ha_kv_store_load_range(const struct ha_context *ctx, struct ha_kv_store *store,
                                      const struct ha_prefill *in, size_t b, size_t first, size_t count);
/* Appends at most shape.q_len tokens, or a burst, rows [from, from + count) of src, enqueued on stream. What stood
 * there before was packed. */
enum ha_status ha_kv_store_append(const struct ha_context *ctx, struct ha_stream *stream, struct ha_kv_store *store,
                                  const struct ha_kv *src, size_t from, size_t count);
/* whether there are rows to pack */
bool ha_kv_store_due(const struct ha_kv_store *store);
/* Packs the whole blocks among the rows. Nothing else may use the store. */
void ha_kv_store_pack(const struct ha_context *ctx, struct ha_kv_store *store);

/* One KV head as attention reads it: what is packed, and the rows behind it. */
struct ha_packed ha_kv_store_packed(const struct ha_kv_store *store, size_t head);
struct ha_rows ha_kv_store_open(const struct ha_shape *shape, const struct ha_kv_store *store, size_t head);
/* Of one KV head the blocks of `unit` tokens that a rising list names; the store has whole ones. Those that are packed
 * become a->packed, by the list; a last one of fewer than HA_PACK_KEYS tokens that is not yet, the run. Of a store of
 * rows alone the run is all of them, by the list. */
void ha_kv_store_blocks(const struct ha_shape *shape, const struct ha_kv_store *store, size_t head, size_t unit,
                        const uint32_t *index, size_t count, struct ha_attend *a, struct ha_rows *run);
/* tokens [first, first + count) of one KV head to rows of k and v, stride_bytes apart */
void ha_kv_store_read(const struct ha_context *ctx, const struct ha_kv_store *store, size_t head, size_t first,
                      size_t count, void *k, void *v, size_t stride_bytes);

/* As after the load of a context of so many tokens: what was appended is dropped, and rows of the context that were
 * packed since are rows again. */
void ha_kv_store_rewind(const struct ha_context *ctx, struct ha_kv_store *store, size_t context);

#endif
