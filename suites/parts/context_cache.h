#ifndef HA_PARTS_CONTEXT_CACHE_H
#define HA_PARTS_CONTEXT_CACHE_H

/* HGCA's KV_ctx (section 3.2.2): for each query head, copies of the selected CPU entries, packed
 * one after another, so that its sparse attention reads one contiguous stream. Selected entries
 * come first, by position; behind them stand entries that only even out the work of a task. */

#include "suites/parts/kv.h"

struct ha_context_head {
    unsigned char *k, *v;     /* [cap][head_dim] */
    uint32_t *token;          /* [cap] */
    size_t selected, padding, cap;
};

/* empties a head */
void ha_context_clear(struct ha_context_head *head);
/* adds an entry, row `token` of one KV head's rows; positions come in increasing order */
enum ha_status ha_context_add(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows, uint32_t token,
                              struct ha_why *why);
/* Pads a head to `count` entries with unselected ones of rows [0, tokens), newest first, as far as
 * there are any; replaces earlier padding. */
enum ha_status ha_context_pad(const struct ha_context *ctx, struct ha_context_head *head, const struct ha_rows *rows, size_t tokens,
                              size_t count, struct ha_why *why);
struct ha_rows ha_context_rows(const struct ha_context *ctx, const struct ha_context_head *head);

#endif
