#ifndef HA_PARTS_TURNED_KEYS_H
#define HA_PARTS_TURNED_KEYS_H

/* Keys that are coded as they are before the rotary position turns them (rotary=before). Centroids would have to be
 * turned anew for each token, so there is no table: of each token the device has the centroids of its codes, joined, in
 * binary32, and turns them to the token's position. The host finds the codes, and nobody keeps them: this is for the
 * error of such keys, and saves no memory. */

#include "suites/parts/codebooks.h"
#include "suites/parts/head_rows.h"

struct ha_turned {
    const struct ha_codebooks *books;
    struct ha_shape shape; /* with binary32 keys */
    struct ha_context ctx; /* of that shape */
    float *turn, *there;   /* [layers][turn_floats]: tables of turns, in host memory and in the device's */
    size_t turn_floats;
    unsigned char *down; /* pinned: keys [at_once][kv_heads][head_dim] */
    float *up;           /* pinned: what stands for them [kv_heads][at_once][head_dim] */
    size_t at_once;
    unsigned char *scratch; /* [threads][scratch_bytes] */
    size_t scratch_bytes;
};

/* books stay where they are. HA_WAIVED where the device does not turn keys. */
enum ha_status ha_turned_create(struct ha_turned *t, const struct ha_context *ctx, const struct ha_codebooks *books,
                                struct ha_why *why);
/* What stands for all tokens of a sequence's context, to rows of t->shape in device memory. */
enum ha_status ha_turned_prefill(struct ha_turned *t, size_t layer, size_t b, const struct ha_prefill *in,
                                 const struct ha_head_rows *rows);
/* The same of `count` tokens of device memory, token-major keys, as tokens `first` and on. Waits for the stream. */
enum ha_status ha_turned_put(struct ha_turned *t, struct ha_stream *stream, size_t layer,
                             const struct ha_head_rows *rows, const unsigned char *k, size_t first, size_t count);

#endif
