#ifndef HA_DEFECTS_ARGUMENTS_H
#define HA_DEFECTS_ARGUMENTS_H

/* The arguments of a device's operations as data: each member of an operation's struct, and of that of its sequences,
 * by name, place and kind. Which bytes a pointer stands for is said by harness/base/operands.h, whose roles are the
 * names of pointers here. */

#include "harness/api/device.h"

enum ha_argument_kind {
    HA_ARGUMENT_COUNT,  /* size_t or uint32_t */
    HA_ARGUMENT_RATIO,  /* of two counts: query heads of a KV head */
    HA_ARGUMENT_WORD,   /* an enumeration */
    HA_ARGUMENT_STRIDE, /* size_t */
    HA_ARGUMENT_FLAG,   /* bool */
    HA_ARGUMENT_REAL,   /* float or double */
    HA_ARGUMENT_IN,
    HA_ARGUMENT_OUT
};
enum ha_element { HA_ELEMENT_BYTES, HA_ELEMENT_WORDS, HA_ELEMENT_FLOATS, HA_ELEMENT_TYPED };
enum {
    HA_ARGUMENT_OUTER = 1,    /* a count of rows, heads or sequences that are computed side by side */
    HA_ARGUMENT_FIXED = 2,    /* a count that others depend on: it may be asked for, and not be changed */
    HA_ARGUMENT_OPTIONAL = 4, /* a pointer that may be NULL; a count or a real that may be left out */
    HA_ARGUMENT_INDEX = 8,    /* numbers that name rows: others in their place may name what is not there */
    HA_ARGUMENT_ALIGNED = 16, /* at a multiple of 64 bytes, or of 16 */
    HA_ARGUMENT_DEVICE = 32,  /* in device memory alone */
    HA_ARGUMENT_EXACT = 64,   /* numbers that are exact in the type of another operand, or may be */
};

struct ha_argument {
    const char *name;
    enum ha_argument_kind kind;
    size_t offset, bytes;
    bool of_seq;
    unsigned flags;
    size_t least, most, step; /* of a count: what calls of the suite `device` may have */
    size_t divisor;           /* of a ratio: the offset of the other count */
    const char *dense;        /* of a stride: the count that it is where rows are dense, or NULL */
    const char *row;          /* of an output: the count of numbers of a row, or NULL */
    enum ha_element element;
    const char *type;        /* of HA_ELEMENT_TYPED: the member that says the type */
    const char *const *word; /* of an enumeration: its words */
    double neutral;          /* of a real: what is as if it was not there; NaN: 1 / sqrt(head_dim) */
};

/* bare: it has no outputs that a pointer names. in_place: another run of it is seen. */
struct ha_operation {
    const char *name, *row; /* the entry of the device's table; its row of the suite `device` */
    const struct ha_argument *argument;
    size_t arguments, bytes, seqs, batch, seq_bytes; /* seqs, batch: offsets; seq_bytes 0: no sequences */
    bool bare, in_place;
};
extern const struct ha_operation ha_operations[];
extern const size_t ha_operations_count;

/* The entries whose arguments are no struct, as one. */
struct ha_copy_call {
    void *dst;
    const void *src;
    size_t bytes;
    enum ha_direction dir;
};
struct ha_copy_2d_call {
    void *dst;
    size_t dst_stride;
    const void *src;
    size_t src_stride, row_bytes, rows;
    enum ha_direction dir;
};
struct ha_pieces_call {
    struct ha_device_pieces pieces;
    enum ha_direction dir;
};
struct ha_read_call {
    const void *ptr;
    size_t bytes;
    uint32_t *sum;
};
struct ha_flag_call {
    uint32_t *flag;
    uint32_t value;
};
struct ha_host_call {
    void (*fn)(void *arg);
    void *arg;
};
struct ha_handle_call {
    void *handle;
};
struct ha_spin_call {
    uint64_t ns;
};

/* NULL: it has none of this name. */
const struct ha_argument *ha_argument_of(const struct ha_operation *op, const char *name);
/* seq: of the call's sequences, or NULL. Of a count, a ratio, a word, a flag, a stride. */
size_t ha_argument_value(const struct ha_argument *a, const void *args, const void *seq);
/* Bytes of a number of that pointer, and its type where it is floating; of others HA_DTYPE_COUNT. */
size_t ha_argument_element(const struct ha_operation *op, const struct ha_argument *a, const void *args,
                           enum ha_dtype *type);

#endif
