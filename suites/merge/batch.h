#ifndef HA_MERGE_BATCH_H
#define HA_MERGE_BATCH_H

/* Rows as a merge sees them: stored in one form, type and layout, in one block of memory, with the
 * calls that merge them in one order. */

#include "suites/merge/merge_suite.h"
#include "harness/engine/child.h"

struct ha_merge_shape {
    size_t states, tokens, heads, dim; /* tokens * heads rows; in HA_LAYOUT_WINDOW two tokens more lie around them */
    enum ha_form form;
    enum ha_dtype dtype;
    enum ha_order order;
    enum ha_alias alias; /* of the output, and of a chain's running result */
    enum ha_layout layout;
    bool plus_inf;   /* empty states are marked with +inf */
    enum ha_fp8 fp8; /* of the result; HA_ORDER_FLAT and HA_ALIAS_NONE alone */
};

/* Bytes of the block that are no element hold HA_ROOM_FILL. */
enum { HA_ROOM_FILL = 0xA5 };
enum {
    HA_IN_O,
    HA_IN_LSE,
    HA_IN_SUM,
    HA_OUT_O,
    HA_OUT_LSE,
    HA_OUT_SUM,
    HA_TEMP_O,
    HA_TEMP_LSE,
    HA_TEMP_SUM,
    HA_PIECES
};
extern const char *const ha_piece_names[HA_PIECES];

/* Lies in the room itself, with its calls and states, so that a process that shares the room can use it. */
struct ha_batch {
    struct ha_merge_shape shape;
    struct ha_room room;
    struct ha_piece piece[HA_PIECES];
    struct ha_merge *calls; /* in order; the last one's out is the result */
    size_t calls_count;
    struct ha_merge_state *in; /* [states]; in HA_LAYOUT_WINDOW, as out, from the second token of its memory on */
    struct ha_merge_state out;
    unsigned char *begin, *end; /* of all pieces */
    unsigned char *snapshot;    /* [end - begin] what they held before the merge; not in the room */
    unsigned char *mask;        /* [end - begin] 0xFF where a result goes; not in the room */
};

/* In chain and tree, merge i takes nodes a and b and makes node states + i; a node below states is an input. */
struct ha_pair {
    size_t a, b;
};
struct ha_pair ha_order_pair(enum ha_order order, size_t states, size_t i);
/* as their enums are numbered; NULL behind the last */
extern const char *const ha_form_words[], *const ha_order_words[];
const char *ha_order_name(size_t order);
const char *ha_alias_name(size_t alias);
const char *ha_layout_name(size_t layout);

/* Does +inf say of that state that it has no keys? Of some rows -inf does. */
static inline bool ha_batch_marks(const struct ha_merge_shape *shape, size_t m, size_t r)
{
    return shape->plus_inf && (r / 4 % 2 || (m + r) % 4 != 3);
}

size_t ha_batch_bytes(const struct ha_merge_shape *shape);
/* Lays the batch out. room->bytes >= ha_batch_bytes(shape). NULL: no memory for the snapshot. */
struct ha_batch *ha_batch_make(const struct ha_room *room, const struct ha_merge_shape *shape);
/* Stores one row: o rounded to the type, LSE to the form. */
void ha_batch_put(struct ha_batch *batch, size_t r, const struct ha_merge_row *row);
/* A row of state m as it was handed over (m < states), also where the merge has overwritten it, or of the result
 * (HA_RESULT): the very numbers, o widened to float, of fp8 not multiplied by the scale. sum is 0 where the form has
 * none. */
#define HA_RESULT SIZE_MAX
void ha_batch_get(const struct ha_batch *batch, size_t m, size_t r, float *o, float *lse, float *sum);
/* Remember all bytes, put NaN where results are expected, and choose the scale of an fp8 result by the rows, so that
 * some of what it is asked for saturates, or is small; to be called once all rows are stored. */
void ha_batch_seal(struct ha_batch *batch);
/* the scale of an fp8 result; 1 of another */
float ha_batch_scale(const struct ha_batch *batch);
void ha_batch_set_scale(struct ha_batch *batch, float scale);
/* The memory as it was after seal, for another merge. all: also what no merge may write. */
void ha_batch_restore(struct ha_batch *batch, bool all);
/* HA_FAIL: a byte changed that is no result; why says which */
enum ha_status ha_batch_intact(const struct ha_batch *batch, struct ha_why *why);
void ha_batch_free(struct ha_batch *batch); /* what is not in the room */

/* The natural LSE as the form stores it (the maximum, where there is a sum), rounded once and within FLT_MAX; and
 * back. */
float ha_form_encode(enum ha_form form, double lse, double sum);
double ha_form_decode(enum ha_form form, float lse, float sum);
/* memory of this process for a batch */
enum ha_status ha_room_map(size_t bytes, struct ha_room *room, struct ha_why *why);
void ha_room_unmap(struct ha_room *room);

#endif
