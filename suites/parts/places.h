#ifndef HA_PARTS_PLACES_H
#define HA_PARTS_PLACES_H

/* Rows of all sequences of a layer in one allocation of K and one of V, so that the new tokens of all go to their
 * places by one move of each: two launches in a layer, and not two copies for each sequence. */

#include "suites/parts/frame.h"

/* In checks so many rows that nobody writes, and that hold NaN, lie behind each sequence's: what reads beyond its rows
 * does not meet those of the next one. */
enum { HA_FENCE_ROWS = 64 };
size_t ha_fence_rows(const struct ha_context *ctx);

/* How many rows of a layer a piece of sequence b has. */
typedef size_t ha_piece_rows(const struct ha_layer *l, size_t b, size_t piece);
/* In open, sequence after sequence: device memory for the pieces of sequence b, kv[pieces], behind those of the one
 * before. */
enum ha_status ha_places_open(struct ha_layer *l, size_t b, size_t pieces, ha_piece_rows *rows, struct ha_kv *kv,
                              struct ha_why *why);

/* The frame's, of rules that say by `place` where tokens go: the rows of each step's, which no layer changes. Uploaded
 * once: [steps][batch][q_len], in device memory. NULL: the device has no move. */
enum ha_status ha_places_create(const struct ha_layer *first, ha_place *place, uint32_t **row, struct ha_why *why);
/* Enqueues the step's tokens, K and V of [batch][q_len]. */
enum ha_status ha_places_put(const struct ha_layer *l, ha_place *place, const uint32_t *row,
                             const struct ha_step *step);

#endif
