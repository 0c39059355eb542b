#ifndef HA_RECENCY_SPLIT_CONTEXT_CACHE_H
#define HA_RECENCY_SPLIT_CONTEXT_CACHE_H

/* HGCA's KV_ctx (section 3.2.2): for each query head, copies of the selected CPU entries, one after
 * another, so that its sparse attention reads one contiguous stream: packed (struct ha_packed), or rows.
 * Selected entries come first, by position; behind them stand entries that only even out the work of a
 * task. Entries are named first and copied together. */

#include "suites/parts/kv.h"

struct ha_context_head {
    bool packed;           /* how entries are kept: not of a shape that does not pack */
    unsigned char *blocks; /* packed, or NULL */
    unsigned char *k, *v;  /* [room][head_dim], or NULL */
    uint32_t *token;       /* [cap] */
    size_t selected, padding, cap;
    size_t copied, room; /* entries that are copies already; that there is memory for */
};

/* empties a head */
void ha_context_clear(struct ha_context_head *head);
/* names an entry; positions come in increasing order */
enum ha_status ha_context_add(const struct ha_context *ctx, struct ha_context_head *head, uint32_t token,
                              struct ha_why *why);
/* Pads a head to `count` entries with unselected ones of [0, tokens), newest first, as far as
 * there are any; replaces earlier padding. */
enum ha_status ha_context_pad(const struct ha_context *ctx, struct ha_context_head *head, size_t tokens, size_t count,
                              struct ha_why *why);
/* memory for so many entries, so that naming and copying them allocates nothing */
enum ha_status ha_context_reserve(const struct ha_context *ctx, struct ha_context_head *head, size_t count,
                                  struct ha_why *why);
/* Copies the entries named since the last time out of one KV head's rows, row p being token p. */
enum ha_status ha_context_copy(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows,
                               struct ha_why *why);
/* all entries, copied: as packed keys, or as rows; the other is empty */
struct ha_packed ha_context_packed(const struct ha_context_head *head);
struct ha_rows ha_context_rows(const struct ha_context *ctx, const struct ha_context_head *head);

#endif
