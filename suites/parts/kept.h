#ifndef HA_PARTS_KEPT_H
#define HA_PARTS_KEPT_H

/* The first tokens of a sequence (sinks) and its last ones before a step, on the device (StreamingLLM; CLO,
 * section 3.1). Token t has the row of its number if it is a sink, else row sink + (t - sink) % recent, so that those
 * of any number of tokens are rows 0 to the last, in any order. */

#include "suites/parts/frame.h"

struct ha_kept {
    struct ha_kv kv;
    size_t sink, recent;
};

/* for all that sequence b can reach */
enum ha_status ha_kept_create(const struct ha_context *ctx, size_t sink, size_t recent, size_t b, struct ha_kept *k,
                              struct ha_why *why);
/* Enqueues on the main stream: of `tokens` tokens those among [first, first + count) that are kept, which are rows
 * `from` and on of src. */
enum ha_status ha_kept_put(const struct ha_context *ctx, const struct ha_kept *k, const struct ha_kv *src, size_t from,
                           size_t first, size_t count, size_t tokens);
/* of so many tokens: the rows of KV head 0; the first one that is kept besides sinks */
struct ha_rows ha_kept_rows(const struct ha_shape *shape, const struct ha_kept *k, size_t tokens);
size_t ha_kept_window(const struct ha_kept *k, size_t tokens);
/* Adds these, and `fresh` ones behind them. */
enum ha_status ha_kept_use(const struct ha_context *ctx, const struct ha_kept *k, size_t tokens, size_t fresh,
                           struct ha_positions *used, struct ha_why *why);

#endif
