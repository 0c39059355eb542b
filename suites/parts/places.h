#ifndef HA_PARTS_PLACES_H
#define HA_PARTS_PLACES_H

/* Rows of all sequences of a layer in one allocation of K and one of V, so that the new tokens of all go to their
 * places by one move of each: two launches in a layer, and not two copies for each sequence. */

#include "suites/parts/frame.h"

/* In checks so many rows that nobody writes, and that hold NaN, lie behind each sequence's: what reads beyond its rows
 * does not meet those of the next one. */
enum { HA_FENCE_ROWS = 64 };
size_t ha_fence_rows(const struct ha_context *ctx);

/* In open, sequence after sequence: device memory for rows(l, b) rows of sequence b, behind those of the one before. */
enum ha_status ha_places_rows(struct ha_layer *l, size_t b, size_t (*rows)(const struct ha_layer *l, size_t b),
                              struct ha_kv *kv, struct ha_why *why);
/* Rows [first, first + count) of it. */
struct ha_kv ha_places_part(const struct ha_shape *shape, const struct ha_kv *kv, size_t first, size_t count);

/* The frame's, of rules that say by `place` where tokens go: the rows of each step's, which no layer changes. Uploaded
 * once: [steps][batch][q_len], in device memory. NULL: the device has no move. */
enum ha_status ha_places_create(const struct ha_layer *first, ha_place *place, uint32_t **row, struct ha_why *why);
/* Enqueues the step's tokens, K and V of [batch][q_len]. */
enum ha_status ha_places_put(const struct ha_layer *l, const uint32_t *row, size_t step, const void *k, const void *v);

#endif
