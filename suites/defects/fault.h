#ifndef HA_DEFECTS_FAULT_H
#define HA_DEFECTS_FAULT_H

/* A fault of a device: an operation, the calls in which it is wrong, and what it does there. It is drawn from a seed,
 * the same everywhere, or read from the text that it prints as: "topk: where rows > 8: one fewer of k". Each breaks
 * harness/api/device.h in some call that is legal. */

#include "suites/defects/arguments.h"

enum ha_condition_kind {
    HA_WHEN_EQUAL,   /* a count, a ratio, a word or a flag is x; a real is 0 */
    HA_WHEN_OVER,    /* is above x */
    HA_WHEN_UNDER,   /* is below x */
    HA_WHEN_RESIDUE, /* % x is y */
    HA_WHEN_PRODUCT, /* the counts of HA_ARGUMENT_OUTER multiply to more than x */
    HA_WHEN_ADDRESS, /* an operand's address % x is y */
    HA_WHEN_ASKEW,   /* is no multiple of x */
    HA_WHEN_BIT,     /* an operand's address has bit x */
    HA_WHEN_MAPPED,  /* an operand is in mapped memory */
    HA_WHEN_GIVEN,   /* an operand is there */
    HA_WHEN_FIRST,   /* the first call */
    HA_WHEN_EACH,    /* each x-th */
    HA_WHEN_FROM,    /* from the x-th on */
    HA_WHEN_AGAIN,   /* the arguments are those of the call before */
    HA_WHEN_THREAD,  /* it comes from another thread than the first call */
    HA_WHEN_ANEW,    /* the first call on a stream that was made after x calls or more */
    HA_WHEN_CAPTURED /* a graph captures it */
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
    /* anything that may be left out */
    HA_FAULT_IGNORED,
    HA_FAULT_TAKEN,  /* a stride or a count: what the argument `as` is, where that is less */
    HA_FAULT_STRIDE, /* a stride: rounded down to a multiple of x */
    HA_FAULT_WORD,   /* an enumeration: word x */
    HA_FAULT_REAL,   /* a real: `real` */
    HA_FAULT_SCALED, /* a real: times `real` */
    /* a pointer: of another sequence, of the first or the one before; rounded down to a multiple of x */
    HA_FAULT_FIRST_SEQ,
    HA_FAULT_SEQ_BEFORE,
    HA_FAULT_ALIGNED,
    /* an input */
    HA_FAULT_READ_EARLY, /* when the call is enqueued */
    HA_FAULT_CACHED,     /* what it was at the first call with this address */
    HA_FAULT_SPOILED,    /* a byte of it becomes another behind the call */
    /* an output, where `rows` and `numbers` say */
    HA_FAULT_STALE,  /* keeps what was there */
    HA_FAULT_BESIDE, /* the number behind a row is written */
    /* an output, or a copy of an input that is read in its place */
    HA_FAULT_SWAPPED,
    HA_FAULT_NARROW,  /* through type x */
    HA_FAULT_NO_NAN,  /* a NaN is 0 */
    HA_FAULT_NAN_INF, /* a NaN is infinite */
    HA_FAULT_NO_INF,  /* an infinity is the largest number */
    HA_FAULT_MOST,
    HA_FAULT_LEAST,     /* no number is above `real`, below */
    HA_FAULT_NO_ZERO,   /* a 0 is the least number of its sign; all ones, of words */
    HA_FAULT_OFF,       /* a number is another */
    HA_FAULT_NEARER,    /* to 0, by the last bit */
    HA_FAULT_TIMES,     /* `real` */
    HA_FAULT_LOW,       /* the lower x bits, of words and bytes */
    HA_FAULT_TIED,      /* what is as large as the number before it is larger; of words, one less */
    HA_FAULT_REVERSED,  /* in the opposite order */
    HA_FAULT_NEXT_ROW,  /* what the next row has, in its place; of a single row each number is one */
    HA_FAULT_FIRST_ROW, /* what the first row has */
    HA_FAULT_GIVES_UP,  /* stream_sync returns after x ms */
    HA_FAULT_EXACT,     /* flag_wait waits for the very value */
    HA_FAULT_EFFECTS
};
enum ha_rows_chosen { HA_ROWS_ALL, HA_ROWS_FIRST, HA_ROWS_LAST, HA_ROWS_MIDDLE, HA_ROWS_EACH, HA_ROWS_ONE_IN };
enum ha_numbers_chosen { HA_NUMBERS_ALL, HA_NUMBERS_FIRST, HA_NUMBERS_LAST, HA_NUMBERS_MIDDLE };

enum { HA_FAULT_TEXT = 256, HA_FAULT_CONDITIONS = 2 };
struct ha_fault {
    const struct ha_operation *op;
    struct ha_condition when[HA_FAULT_CONDITIONS];
    size_t whens; /* 0: always */
    enum ha_effect effect;
    const struct ha_argument *of, *as; /* or NULL */
    size_t x;
    double real;
    bool before; /* an output changes before the call, which reads it, too */
    enum ha_rows_chosen rows;
    enum ha_numbers_chosen numbers;
    size_t each, count; /* each each-th row, or one in so many of all calls; so many numbers */
};

struct ha_fault ha_fault_draw(uint64_t seed);
void ha_fault_text(const struct ha_fault *fault, char out[HA_FAULT_TEXT]);
/* false: the text is no fault */
bool ha_fault_read(const char *text, struct ha_fault *out);
/* moves, shapes, outputs, numbers, order, state, signals; behind the last NULL */
extern const char *const ha_fault_classes[];
const char *ha_fault_class(const struct ha_fault *fault);
/* x as the fault's effect on a count has it */
size_t ha_fault_count(const struct ha_fault *fault, size_t x);
bool ha_condition_of_count(const struct ha_condition *when, size_t x);

#endif
