#ifndef HA_DEVICE_SUITE_STAGE_H
#define HA_DEVICE_SUITE_STAGE_H

/* What every check of a device's operations stands on: blocks of each kind of memory with an image of what they must
 * hold, and a gate that holds streams up. Device memory is read and written by the device's own copies alone, of no
 * more than 64 KiB each, so that what is wrong with large ones shows in the row of `copy`. */

#include "harness/api/device.h"
#include "harness/api/reference.h"

#include <pthread.h>

enum ha_op_place { HA_OP_DEVICE, HA_OP_PINNED, HA_OP_MAPPED, HA_OP_PAGEABLE };

/* image: what an operation must make of `at`, kept up to date by plain C on the host. */
struct ha_op_block {
    enum ha_op_place place;
    size_t bytes;
    char *at, *image;
    struct ha_op_block *next;
    size_t room; /* bytes that there are */
};

enum { HA_OP_SCRATCH = 1 << 20 };
#define HA_OP_FITS(bytes) _Static_assert((bytes) <= HA_OP_SCRATCH, "scratch")

enum { HA_OP_STREAMS = 2, HA_OP_ROUNDS = 6, HA_OP_ARRIVE = 4 };

/* One case of an operation: what the keys of a point say (point.c). Words are indices. */
enum { HA_OP_NO_INDEX, HA_OP_DEVICE_INDEX, HA_OP_MAPPED_INDEX, HA_OP_INDICES };
/* repeats: of what is read; comb: of a list */
enum { HA_OP_ASCENDING, HA_OP_DESCENDING, HA_OP_SHUFFLED, HA_OP_REPEATS, HA_OP_COMB };
enum { HA_OP_TOKENS, HA_OP_HEADS, HA_OP_K_HEADS, HA_OP_V_HEADS };
enum {
    HA_OP_NO_SPECIAL,
    HA_OP_NAN_QUERY,
    HA_OP_NAN_KEY,
    HA_OP_NAN_VALUE,
    HA_OP_LOW_KEY,
    HA_OP_HIGH_KEY,
    HA_OP_INF_QUERY, /* these of attention alone */
    HA_OP_INF_VALUE,
    HA_OP_MASKED /* all keys of a KV head are low */
};
enum { HA_OP_BELL, HA_OP_CLOSE, HA_OP_TINY, HA_OP_WIDE };                  /* numbers */
enum { HA_OP_NO_EDGE, HA_OP_AT_EDGE, HA_OP_ABOVE_EDGE, HA_OP_BELOW_EDGE }; /* of a sum: that, half a unit beside it */
/* what scores and sums are made of: numbers of attention */
enum {
    HA_OP_PLAIN,
    HA_OP_PEAKED, /* a few keys have nearly all weight */
    HA_OP_EQUAL,  /* one number in all of K, one in V: rounding errors of a sum have one sign */
    HA_OP_RISING,
    HA_OP_FALLING,
    HA_OP_DOMINANT,   /* one key has it */
    HA_OP_OFFSET,     /* scores of about 1000, differences of about 1 */
    HA_OP_HUGE,       /* scores of about 10^5 */
    HA_OP_CANCELLING, /* scores are small differences of large products */
    HA_OP_FINE,       /* queries of 24 bits whose low halves decide: the high ones cancel */
    HA_OP_LIGHT,      /* V is among the smallest numbers of its type, or below */
    HA_OP_STRETCHED,  /* small K, and large queries that make up for it */
};
enum { HA_OP_Q_TOKENS, HA_OP_Q_HEADS, HA_OP_Q_FUSED, HA_OP_Q_FUSED_HEADS }; /* q_layout */
enum { HA_OP_NO_LISTS, HA_OP_KV_LISTS, HA_OP_Q_LISTS };
enum { HA_OP_ANY, HA_OP_WITHIN_0, HA_OP_WITHIN_1, HA_OP_WITHIN_INFINITY };
enum { HA_OP_SOME_CACHED, HA_OP_NONE_CACHED, HA_OP_ALL_CACHED };
enum { HA_OP_MISSING_BOTH, HA_OP_MISSING_NONE, HA_OP_MISSING_LIST, HA_OP_MISSING_COUNT };
enum { HA_OP_BATCH = 1025 };
struct ha_op_case {
    size_t dst, src; /* enum ha_op_place */
    size_t size, dst_at, src_at, times, streams, value, pieces;
    size_t rows, width, dst_gap, src_gap, dst_index, src_index, pattern, spread;
    size_t dtype, m, n, k, states;
    size_t batch, q_len, kv_heads, group, head_dim, keys, runs, block, causal, weights, empty, special;
    size_t numbers; /* of a list, of rows */
    size_t scores;
    size_t layout, pad, v_pad, v_at, q_at;
    size_t lists, list_keys, q_layout, q_gap;
    double a, b, scale;
    size_t us;
    size_t first, digest, chosen, bias, norm, rotary, adjacent; /* of what selects keys */
    double eps;
    size_t within, cached, missing;
    size_t y_type;              /* of columns, which are n */
    size_t layers, hidden;      /* of a net */
    size_t bits, only, similar; /* of codes, of what is asked of some lists or heads alone, of labels */
    size_t groups, dims, centroids, code_bits, separate; /* of codes of groups of dimensions */
    size_t w_type;                                       /* of weights, of a table */
    double p;                                            /* the share of the weights that is asked for */
    size_t edge;                                         /* it is where a sum of weights is */
};

struct ha_op_stage {
    const struct ha_device_api *api;
    struct ha_device *device;
    const char *name;                              /* of the device, as it was asked for */
    const char *isa;                               /* or NULL */
    struct ha_stream *stream[HA_OP_STREAMS], *own; /* own: of fill and judge */
    struct ha_op_block *blocks, *spare;            /* spare: of cases before, to be used again */
    bool keeps; /* blocks are kept: the next case has its own where this one had them */
    /* Of ha_op_arrive, until ha_op_follow: where `out` is copied to; the inputs, and blocks with an image of each. */
    struct ha_op_block *seen, *in[HA_OP_ARRIVE], *given[HA_OP_ARRIVE];
    size_t inputs;
    struct ha_op_block *via[HA_OP_ARRIVE]; /* NULL, or from where a kernel moves the input to its place */
    /* Memory of a graph that is launched twice, first over zeros. Of each input a block of them, of the output what it
     * held; NULL: once
     */
    struct ha_op_block *zeros[HA_OP_ARRIVE], *fresh;
    bool launches_twice;
    bool captures;       /* the operation that is judged */
    bool pairs, splices; /* of two calls at the same addresses; the second one's numbers are in part the first one's */
    struct {
        const struct ha_op_block *given;
        const char *at;
        size_t bytes;
    } was[HA_OP_ARRIVE];         /* inputs of the call before */
    struct ha_op_block *aside;   /* of neighbour(): device memory, zeros */
    const struct ha_op_case *of; /* NULL: the listed cases */
    size_t most;                 /* bytes of the largest copy */
    size_t rounds;               /* of what is tried again and again */
    uint64_t seed, drawn;
    uint32_t *gate, turn; /* gate: in mapped memory, or lock */
    uint32_t lock;
    bool once_more;            /* what was judged is judged again: not as often, and not slowly */
    bool slow;                 /* the gate opens so late that who gives up does it before */
    uint64_t cases;            /* judged */
    uint64_t calls;            /* of ha_op_follow */
    uint64_t again;            /* rows that are computed again, at least */
    uint64_t repeated;         /* rows that were */
    bool differed, unpromised; /* of what was computed again: any other bits; the device does not promise the same */
    struct ha_suspect suspect; /* what was computed against chance, a group for each call that was right */
    uint64_t outputs;          /* harness/base/fingerprint.h: of what was computed, call after call */
    size_t shift;              /* of the operands behind a multiple of 64 */
    char *bounce;              /* of judge: [HA_OP_PIECE] */
    void *scratch;             /* [HA_OP_SCRATCH]: the arguments of a call, until the next one */
    struct ha_why *why;
};

/* On failure what was opened is closed. */
enum ha_status ha_op_stage_begin(struct ha_op_stage *stage, struct ha_why *why);
void ha_op_stage_end(struct ha_op_stage *stage);

/* Whether the last of the rounds of the listed cases is this one: the stage is slow then. */
void ha_op_round(struct ha_op_stage *stage, size_t round);

/* NULL: the reason is said. They live as long as the stage, or until ha_op_clear. */
struct ha_op_block *ha_op_block(struct ha_op_stage *stage, enum ha_op_place place, size_t bytes);
void ha_op_clear(struct ha_op_stage *stage);
/* of what no key places: device or mapped memory, as is drawn */
enum ha_op_place ha_op_any_place(struct ha_op_stage *stage);
/* Other random bytes from first on. */
enum ha_status ha_op_fill(struct ha_op_stage *stage, struct ha_op_block *block, size_t first, size_t bytes);
/* What the image holds there goes into the block. */
enum ha_status ha_op_put(struct ha_op_stage *stage, struct ha_op_block *block, size_t first, size_t bytes);
/* What the block holds there, into memory of the host. */
enum ha_status ha_op_get(struct ha_op_stage *stage, const struct ha_op_block *block, size_t first, size_t bytes,
                         void *out);
/* HA_FAIL, where the block is not its image, with the first byte that is wrong. what: names the case. */
enum ha_status ha_op_judge(struct ha_op_stage *stage, const struct ha_op_block *block, size_t first, size_t bytes,
                           const char *what, ...) __attribute__((format(printf, 5, 6)));

/* What computes is judged between two copies of its own stream: what is enqueued on stream 0 between these two calls
 * reads blocks to which their images are copied there, behind the gate, or, while blocks are kept, now and then moved
 * by a kernel, and which hold zeros until then; and what it makes of `out`, which has been filled, is what a copy
 * behind it finds. The image of `out` is then that, *before what it was, until ha_op_clear. asked: what the operation
 * returned. HA_FAIL: a block of `in` that is not `out` has other bytes than it was given. At most HA_OP_ARRIVE blocks.
 */
enum ha_status ha_op_arrive(struct ha_op_stage *stage, struct ha_op_block *const *in, size_t count,
                            const struct ha_op_block *out);
enum ha_status ha_op_follow(struct ha_op_stage *stage, const char *operation, enum ha_status asked,
                            const struct ha_op_block *out, const char **before);

/* What was judged, in the image of `out`, becomes what was there before. */
void ha_op_put_back(const struct ha_op_block *out, const char *before, const void *at, size_t bytes);
/* HA_FAIL, where the image of `out` is not *before: what was judged has been put back to it, and nothing beside that
 * may be written. */
enum ha_status ha_op_beside(struct ha_op_stage *stage, const char *operation, const char *before,
                            const struct ha_op_block *out);

/* the first stream is another from now on, on which nothing was called before */
enum ha_status ha_op_anew(struct ha_op_stage *stage);

/* by a thread of its own, which ends */
enum ha_status ha_op_elsewhere(struct ha_op_stage *stage, enum ha_status (*run)(void *arg), void *arg);

/* What is enqueued on the stream after this call runs when the gate is opened. */
enum ha_status ha_op_shut(struct ha_op_stage *stage, struct ha_stream *stream);
void ha_op_open(struct ha_op_stage *stage);
/* Time enough for what does not wait for the gate to run, and where the stage is slow for what gives up waiting. */
enum ha_status ha_op_hold(struct ha_op_stage *stage);
/* Opens the gate in a while, from another thread, and says so in `opened` just before. */
struct ha_op_opener {
    struct ha_op_stage *stage;
    uint32_t opened;
    pthread_t thread;
};
enum ha_status ha_op_open_later(struct ha_op_stage *stage, struct ha_op_opener *opener);
/* Was it open when this was called? Joins the thread. */
bool ha_op_opened(struct ha_op_opener *opener);

/* why a kernel cannot work on what such a case names, or NULL */
const char *ha_op_unfit_kernel(const struct ha_op_case *of);
/* of a sequence: keys, digests, numbers of a list, rows; the sequence in the middle has all of them, the first neither
 * the most nor the fewest */
size_t ha_op_length(const struct ha_op_case *of, size_t sequence);
/* how many fewer than that in the middle */
size_t ha_op_fewer(const struct ha_op_case *of, size_t sequence);
/* What `only` says of so many lists or heads, at that place of an image: 0 of about half, and of the others any
 * number. */
uint32_t *ha_op_only(struct ha_op_stage *stage, char *at, size_t count);
/* An index of n out of 2 n rows: falling, rising, one behind the other, in any order, or with some twice, as is drawn.
 */
void ha_op_index(struct ha_op_stage *stage, uint32_t *index, size_t n);
/* bell-shaped numbers of a type */
void ha_op_numbers(struct ha_op_stage *stage, void *out, size_t n, enum ha_dtype dtype);
/* Each step-th number of a list from `first` on is above all others, or below: of those a sample may have all or none.
 * step: a power of two, what leaves about a power of two of n, or any up to 64 */
struct ha_op_comb {
    size_t step, first;
    bool above;
};
struct ha_op_comb ha_op_comb(struct ha_op_stage *stage, size_t n);
/* Does it lift number i above the others? */
static inline bool ha_op_lifts(const struct ha_op_comb *comb, size_t i)
{
    return (i % comb->step == comb->first) == comb->above;
}
/* The number that `special` is of: an infinity, or a NaN of either sign. */
float ha_op_odd(struct ha_op_stage *stage, const struct ha_op_case *of);
/* Numbers of a type become so many times as large. */
void ha_op_scale(void *x, size_t n, enum ha_dtype dtype, double scale);
/* of numbers whose products lie beyond half precision, or are subnormal there */
#define HA_OP_SCALES "scale = 1 0.001 0.01 30 100 150 300\n"
/* Bell-shaped numbers become others: so close together that the last 8 bits tell them apart; subnormal ones of the
 * type; of every magnitude that it has. */
void ha_op_reshape(struct ha_op_stage *stage, void *x, size_t n, enum ha_dtype dtype, size_t numbers);
/* HA_WAIVED: the machine has no library for product and attend_products */
enum ha_status ha_op_no_products(struct ha_op_stage *stage);

/* in [0, n) */
size_t ha_op_draw(struct ha_op_stage *stage, size_t n);
enum ha_status ha_op_failed(struct ha_op_stage *stage, const char *operation, enum ha_status status);
enum ha_status ha_op_wrong(struct ha_op_stage *stage, const char *what, ...) __attribute__((format(printf, 2, 3)));
const char *ha_op_place_name(enum ha_op_place place);

/* HA_TRY of an entry of the table: what it says is the device's own failure. */
#define HA_OP(stage, entry, ...) HA_TRY(ha_op_failed(stage, #entry, (stage)->api->entry(__VA_ARGS__)))

/* ---- the operations ---------------------------------------------------------------------------------------------- */

struct ha_op_entry {
    const char *name;
    size_t offset; /* in struct ha_device_api */
};
enum { HA_OP_NEEDS = 6 };

struct ha_op {
    const char *name, *doc;
    struct ha_op_entry needs[HA_OP_NEEDS]; /* besides those without which there is no device; one NULL: WAIVED */
    enum ha_status (*judge)(struct ha_op_stage *stage);
    const char *keys; /* of one case, between blanks; NULL: there is none */
    /* NULL, or a covering list besides the listed cases, as a section of a suite file has it: each two values meet */
    const char *pairs;
    /* NULL, or what stands in place of the values that keys have in the list of every value (cover.c), a line each */
    const char *values;
    /* judges that; NULL: as the listed cases, with copies of `size` bytes, `times` rounds */
    enum ha_status (*once)(struct ha_op_stage *stage, const struct ha_op_case *of);
    const char *(*unfit)(const struct ha_op_case *of); /* why there is no such case, or NULL */
    double held_ms;                                    /* how long a round takes besides its copies */
    bool in_place; /* a call writes over what it reads: called again, it has another input */
    bool whole;    /* its inputs belong together: half of one and half of another are none */
};
#define HA_OP_ENTRY(entry)                            \
    {                                                 \
#entry, offsetof(struct ha_device_api, entry) \
    }

#define HA_OP_LINE(name) extern const struct ha_op ha_op_##name;
#include "suites/device/ops.def"

/* Where so many bytes go in a block that is laid out one thing behind the other. shift: bytes from a multiple of 64 */
static inline size_t ha_op_room(size_t *at, size_t bytes, size_t shift)
{
    const size_t here = (*at + 63) / 64 * 64 + shift;
    *at = here + bytes + 16;
    return here;
}

#endif
