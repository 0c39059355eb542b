#ifndef HA_DEVICE_SUITE_STAGE_H
#define HA_DEVICE_SUITE_STAGE_H

/* What every check of a device's operations stands on: blocks of each kind of memory with an image of what they must
 * hold, and a gate that holds streams up. Device memory is read and written by the device's own copies alone, of no
 * more than 64 KiB each, so that what is wrong with large ones shows in the row of `copy`. */

#include "harness/api/device.h"

#include <pthread.h>

enum ha_op_place { HA_OP_DEVICE, HA_OP_PINNED, HA_OP_MAPPED, HA_OP_PAGEABLE };

/* image: what an operation must make of `at`, kept up to date by plain C on the host. */
struct ha_op_block {
    enum ha_op_place place;
    size_t bytes;
    char *at, *image;
    struct ha_op_block *next;
};

enum { HA_OP_STREAMS = 2 };

struct ha_op_stage {
    const struct ha_device_api *api;
    struct ha_device *device;
    const char *name;                              /* of the device, as it was asked for */
    const char *isa;                               /* or NULL */
    struct ha_stream *stream[HA_OP_STREAMS], *own; /* own: of fill and judge */
    struct ha_op_block *blocks;
    size_t most; /* bytes of the largest copy */
    uint64_t seed, drawn;
    uint32_t *gate, turn; /* gate: in mapped memory, or lock */
    uint32_t lock;
    uint64_t cases; /* judged */
    char *bounce;   /* of judge: [HA_OP_PIECE] */
    struct ha_why *why;
};

/* On failure what was opened is closed. */
enum ha_status ha_op_stage_begin(struct ha_op_stage *stage, struct ha_why *why);
void ha_op_stage_end(struct ha_op_stage *stage);

/* NULL: the reason is said. They live as long as the stage, or until ha_op_clear. */
struct ha_op_block *ha_op_block(struct ha_op_stage *stage, enum ha_op_place place, size_t bytes);
void ha_op_clear(struct ha_op_stage *stage);
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

/* What is enqueued on the stream after this call runs when the gate is opened. */
enum ha_status ha_op_shut(struct ha_op_stage *stage, struct ha_stream *stream);
void ha_op_open(struct ha_op_stage *stage);
/* Time enough for what does not wait for the gate to run. */
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

/* bell-shaped numbers of a type */
void ha_op_numbers(struct ha_op_stage *stage, void *out, size_t n, enum ha_dtype dtype);
/* HA_WAIVED: the machine has no library for product and attend_products */
enum ha_status ha_op_no_products(struct ha_op_stage *stage);

void ha_op_nap(long ns);
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
};
#define HA_OP_ENTRY(entry)                            \
    {                                                 \
#entry, offsetof(struct ha_device_api, entry) \
    }

#define HA_OP_LINE(name) extern const struct ha_op ha_op_##name;
#include "suites/device/ops.def"

#endif
