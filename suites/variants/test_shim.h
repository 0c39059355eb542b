#ifndef HA_TEST_SHIM_H
#define HA_TEST_SHIM_H

/* For tests: a session whose variant calls a device of the test's, which passes on what it does not replace. */

#include "suites/variants/test_session.h"

#include <stdatomic.h>

static const struct ha_device_api *real;
static struct ha_device_api shim;

static inline void open_shim(const char *id)
{
    open_session(id);
    real = session.variant_api;
    shim = *real;
    session.variant_api = &shim;
}

/* calls that fetch, and their bytes; a test sets it to 0 */
static struct {
    atomic_size_t pieces, moves, bytes;
} came;
static inline void nothing_came(void) { came.pieces = came.moves = came.bytes = 0; }

static inline enum ha_status count_pieces(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                          enum ha_direction dir)
{
    came.pieces++;
    for (size_t i = 0; i < pieces->count; i++) came.bytes += pieces->bytes[i];
    return real->copy_pieces(stream, pieces, dir);
}

/* not those of new tokens, which name where they go */
static inline enum ha_status count_moves(struct ha_stream *stream, const struct ha_device_move *args)
{
    came.moves += args->src_index != NULL;
    came.bytes += args->src_index ? args->rows * args->row_bytes : 0;
    return real->move(stream, args);
}

#endif
