#ifndef HA_DEFECTS_FAULT_H
#define HA_DEFECTS_FAULT_H

/* A fault of a device that is drawn from a seed: an operation, the calls in which it is wrong, and what it does there.
 * The same seed gives the same fault everywhere. Each breaks harness/api/device.h in some call that is legal. */

#include "suites/defects/arguments.h"

enum ha_condition_kind {
    HA_WHEN_EQUAL,   /* a count, a ratio, a word or a flag is x */
    HA_WHEN_OVER,    /* is above x */
    HA_WHEN_RESIDUE, /* % x is y */
    HA_WHEN_PRODUCT, /* the counts of HA_ARGUMENT_OUTER multiply to more than x */
    HA_WHEN_ADDRESS, /* an operand's address % x is y */
    HA_WHEN_ASKEW,   /* is no multiple of x */
    HA_WHEN_BIT,     /* an operand's address has bit x */
    HA_WHEN_MAPPED,  /* an operand is in mapped memory */
    HA_WHEN_FIRST,   /* the first call */
    HA_WHEN_EACH,    /* each x-th */
    HA_WHEN_FROM,    /* from the x-th on */
    HA_WHEN_AGAIN,   /* the arguments are those of the call before */
    HA_WHEN_THREAD,  /* it comes from another thread than the first call */
};
struct ha_condition {
    enum ha_condition_kind kind;
    const struct ha_argument *of; /* or NULL */
    size_t x, y;
};

enum ha_effect {
    /* the call */
    HA_FAULT_DROPPED,
    HA_FAULT_TWICE,
    HA_FAULT_EARLY,  /* it runs when it is enqueued */
    HA_FAULT_ASIDE,  /* what follows does not wait for it */
    HA_FAULT_UNREAD, /* its arguments are read when it runs */
    /* an argument: a count */
    HA_FAULT_FEWER,   /* one less */
    HA_FAULT_ROUNDED, /* down to a multiple of x */
    HA_FAULT_CAPPED,  /* x at most */
    HA_FAULT_BITS,    /* the lower x bits */
    /* anything that may be left out; a stride */
    HA_FAULT_IGNORED,
    HA_FAULT_DENSE,
    HA_FAULT_STRIDE, /* rounded down to a multiple of x */
    /* a pointer: of another sequence, of the first or the one before; rounded down to a multiple of x */
    HA_FAULT_FIRST_SEQ,
    HA_FAULT_SEQ_BEFORE,
    HA_FAULT_ALIGNED,
    /* an input */
    HA_FAULT_READ_EARLY, /* when the call is enqueued */
    HA_FAULT_CACHED,     /* what it was at the first call with this address */
    HA_FAULT_IN_NARROW,  /* through type x */
    /* an output, where `rows` and `numbers` say */
    HA_FAULT_STALE, /* keeps what was there */
    HA_FAULT_SWAPPED,
    HA_FAULT_NARROW,   /* through type x */
    HA_FAULT_NO_NAN,   /* a NaN is 0 */
    HA_FAULT_NO_INF,   /* an infinity is the largest number */
    HA_FAULT_OFF,      /* a number is another */
    HA_FAULT_BESIDE,   /* the number behind a row is written */
    HA_FAULT_GIVES_UP, /* stream_sync returns after x ms */
    HA_FAULT_EXACT     /* flag_wait waits for the very value */
};
enum ha_rows_chosen { HA_ROWS_ALL, HA_ROWS_FIRST, HA_ROWS_LAST, HA_ROWS_MIDDLE, HA_ROWS_EACH };
enum ha_numbers_chosen { HA_NUMBERS_ALL, HA_NUMBERS_FIRST, HA_NUMBERS_LAST, HA_NUMBERS_MIDDLE };

struct ha_fault {
    const struct ha_operation *op;
    struct ha_condition when[2];
    size_t whens; /* 0: always */
    enum ha_effect effect;
    const struct ha_argument *of; /* or NULL */
    size_t x;
    enum ha_rows_chosen rows;
    enum ha_numbers_chosen numbers;
    size_t each, count; /* each each-th row; so many numbers */
};

struct ha_fault ha_fault_draw(uint64_t seed);
enum { HA_FAULT_TEXT = 256 };
void ha_fault_text(const struct ha_fault *fault, char out[HA_FAULT_TEXT]);
/* moves, shapes, outputs, numbers, order, state, signals; behind the last NULL */
extern const char *const ha_fault_classes[];
const char *ha_fault_class(const struct ha_fault *fault);
/* x as the fault's effect on a count has it */
size_t ha_fault_count(const struct ha_fault *fault, size_t x);
bool ha_condition_of_count(const struct ha_condition *when, size_t x);

#endif
