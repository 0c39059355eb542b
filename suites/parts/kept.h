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

/* Options `sink` and `recent` of variants, with what else a variant says of them. */
#define HA_KEPT_SINK(...)                                                                                          \
    {                                                                                                              \
        "sink", 4, 0, 1 << 24, "first tokens that stay on the device", .whole = true, .draw = "0..70", __VA_ARGS__ \
    }
#define HA_KEPT_RECENT(...)                                                                                  \
    {                                                                                                        \
        "recent", 64, 0, 1 << 24, "last tokens that stay there", .whole = true, .draw = "0..70", __VA_ARGS__ \
    }

/* of so many tokens those that are neither */
static inline size_t ha_kept_gone(size_t sink, size_t recent, size_t tokens)
{
    return tokens > sink + recent ? tokens - (sink + recent) : 0;
}

/* How many rows all that sequence b can reach takes; where K of a token that comes in a step goes: NULL, where not
 * every token of a step is kept. */
size_t ha_kept_cap(const struct ha_shape *shape, size_t sink, size_t recent, size_t b);
const unsigned char *ha_kept_place(const struct ha_shape *shape, const struct ha_kept *k, size_t position);
enum ha_status ha_kept_create(const struct ha_context *ctx, size_t sink, size_t recent, size_t b, struct ha_kept *k,
                              struct ha_why *why);
/* Enqueues on the main stream: of `tokens` tokens those among [first, first + count) that are kept, which are rows
 * `from` and on of src. */
enum ha_status ha_kept_put(const struct ha_context *ctx, const struct ha_kept *k, const struct ha_kv *src, size_t from,
                           size_t first, size_t count, size_t tokens);
/* The same from a store of all tokens in host memory: as when there were so many. */
enum ha_status ha_kept_rewind(const struct ha_context *ctx, const struct ha_kept *k, const struct ha_kv *store,
                              size_t tokens);
/* of a store of all tokens those that are no sinks */
struct ha_kv ha_kept_rest(const struct ha_shape *shape, const struct ha_kept *k, const struct ha_kv *store);
/* of so many tokens: the rows of KV head 0; the first one that is kept besides sinks */
struct ha_rows ha_kept_rows(const struct ha_shape *shape, const struct ha_kept *k, size_t tokens);
size_t ha_kept_window(const struct ha_kept *k, size_t tokens);
/* In a rule's `device`: adds them, and the step's own tokens. */
void ha_kept_device(const struct ha_layer *l, const struct ha_kept *k, const struct ha_step *step, size_t b,
                    struct ha_device_seq *d);
/* Adds the kept tokens, and `fresh` ones behind them. */
enum ha_status ha_kept_use(const struct ha_context *ctx, const struct ha_kept *k, size_t tokens, size_t fresh,
                           struct ha_positions *used, struct ha_why *why);

#endif
