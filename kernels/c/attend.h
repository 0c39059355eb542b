#ifndef HA_KERNELS_C_ATTEND_H
#define HA_KERNELS_C_ATTEND_H

/* What attend, its parts and their join share. A row is a pair (query token, query head): row t * group + g. */

#include "harness/api/kernels.h"

/* Rows are taken in blocks, so that K and V are read once for many while the weights of a chunk still fit into the
 * cache: at most so many weights are kept. Rows of weights are longer by the pad, to start in different cache sets. */
enum { HA_ATTEND_KEPT = 1 << 20, HA_ATTEND_PAD = 16 };

/* How one attention is worked off: rows in blocks, and for each block the keys piece by piece. A piece is what one call
 * of a kernel takes: at most HA_CHUNK_KEYS of the packed keys, or of a run. */
struct ha_attend_plan {
    size_t rows;         /* of a block */
    size_t packed, keys; /* in the list of packed keys; in all */
    size_t pieces;       /* of any part, at most */
    bool direct, keep;   /* weights of one query token go where the caller wants them; of several, a block's are kept
                            until they are final */
    size_t weights_stride;
};
struct ha_attend_plan ha_attend_plan(const struct ha_attend *a);

/* States of rows in some memory. */
struct ha_attend_state {
    float *level, *sum; /* [rows] */
    float *acc;         /* [rows][head_dim] */
    float *pieces;      /* [pieces][rows], the level of each; NULL where no weights are wanted */
    size_t rows;
};
/* memory: 64-byte aligned; *bytes of it are in use, and then more. NULL: only counts. */
struct ha_attend_state ha_attend_state(const struct ha_attend *a, const struct ha_attend_plan *p, size_t rows,
                                       char *memory, size_t *bytes);
/* the same from row r on */
struct ha_attend_state ha_attend_state_from(const struct ha_attend *a, const struct ha_attend_state *s, size_t r);
void *ha_attend_carve(char *memory, size_t *bytes, size_t count, size_t size);

/* Keys [first, first + keys) of the list of all. */
struct ha_attend_piece {
    size_t first, keys;
    const struct ha_rows *run; /* NULL: packed keys */
    size_t at;                 /* of the run, or of the packed list */
};
/* From { .first = FIRST } on through the pieces of keys [FIRST, end); false behind the last. */
bool ha_attend_next(const struct ha_attend *a, const struct ha_attend_plan *p, size_t end, struct ha_attend_piece *x);

/* row r of `to` and row r of `from` become row r of `to` */
void ha_attend_blend(const struct ha_attend_state *to, const struct ha_attend_state *from, size_t r, size_t dim);
/* o and LSE of `rows` rows from `first` on, whose states are s */
void ha_attend_finish(const struct ha_attend *a, const struct ha_attend_state *s, size_t first, size_t rows);
/* Weights as the kernels left them, of row r of keys [first, end), to softmax weights: w 2^(level of the piece - level)
 * / sum, added to `to` or put there. from and to: [keys of the list]; s has the levels of the pieces. */
void ha_attend_share(const struct ha_attend *a, const struct ha_attend_plan *p, size_t first, size_t end,
                     const struct ha_attend_state *s, size_t r, float level, float sum, const float *from, float *to);

#endif
