#ifndef HA_BLOCK_SPARSE_SCHEDULE_H
#define HA_BLOCK_SPARSE_SCHEDULE_H

/* Sparse attention over blocks in host memory, as tasks that both sides work off (Fluxion, section 6.2). A task is a KV
 * head of a sequence: its query heads choose blocks by their digests, and attend over them. The pool's workers take
 * tasks, and so does the thread that launches work on the device, which brings the chosen blocks over the link and
 * attends there, on one of several streams. */

#include "suites/parts/digests.h"
#include "suites/parts/fetch.h"
#include "suites/parts/frame.h"
#include "suites/block_sparse/tasks.h"

/* Who takes a task. priority: whoever is free takes the one of largest volume (section 6.2). length, uniform: before
 * they begin each worker and the launch thread get the same total of tokens in host memory, or of KV heads (section
 * 8.3). none: the CPU does all. An option `schedule` of variants. */
enum ha_schedule_by { HA_SCHEDULE_PRIORITY, HA_SCHEDULE_LENGTH, HA_SCHEDULE_UNIFORM, HA_SCHEDULE_NONE };
const char *ha_schedule_word(size_t i);
#define HA_SCHEDULE_BY                                                                                                \
    {                                                                                                                 \
        "schedule", HA_SCHEDULE_PRIORITY, .word = ha_schedule_word,                                                   \
                                          .doc = "which side takes a KV head's attention: the one that is free, the " \
                                                 "largest first; dealt by length or number; or the CPU"               \
    }

/* How the device reads chosen blocks. zero_copy: attention reads them in host memory, each query head its own; else
 * those of a KV head come over once, by a kernel or by copies, and are attended over there. An option `fetch`. */
enum ha_schedule_fetch { HA_SCHEDULE_ZERO_COPY, HA_SCHEDULE_MOVE, HA_SCHEDULE_PIECES };
const char *ha_schedule_fetch_word(size_t i);
#define HA_SCHEDULE_FETCH                                                                                         \
    {                                                                                                             \
        "fetch", HA_SCHEDULE_ZERO_COPY,                                                                           \
            .word = ha_schedule_fetch_word,                                                                       \
            .doc = "how blocks reach the device: read by the attention, moved by a kernel, or copied in one call" \
    }
/* what a store has to lie in */
enum ha_memory ha_schedule_memory(enum ha_schedule_by by, enum ha_schedule_fetch fetch);

struct ha_schedule_task {
    size_t b, head;                   /* sequence, KV head */
    const struct ha_kv *store;        /* host memory: row 0 is the first token of block 0 */
    const struct ha_digests *digests; /* host memory: of all blocks that may be chosen */
    double volume;                    /* by which it is urgent */
};

enum { HA_SCHEDULE_LANES = 2 };
struct ha_schedule_lane {
    struct ha_stream *stream;
    struct ha_event *done; /* with its last task */
    bool used;             /* in this layer */
    /* Unless zero_copy: the blocks that came over, in the order of `fetched`, and which of them each query head's are:
     * mapped [group][list_max]. */
    struct ha_fetch fetch;
    struct ha_kv kv;
    uint32_t *fetched, *place;
};

struct ha_schedule {
    const struct ha_context *ctx;
    enum ha_schedule_by by;
    enum ha_schedule_fetch fetch;
    bool united;            /* a KV head's query heads read what any of them has chosen */
    size_t list_max;        /* blocks of a list */
    size_t *want;           /* [batch][q_heads] blocks that a query head chooses, 0: it reads none; the caller's */
    uint32_t *index, *keys; /* mapped: [batch][q_heads][list_max], rising; [batch][q_heads] */
    struct ha_tasks tasks;
    struct ha_schedule_task *task; /* [batch * kv_heads] */
    size_t *task_of;               /* the same, by KV head; SIZE_MAX: it has none */
    float *volume;                 /* the same */
    bool *device;                  /* the same: dealt to the device */
    struct ha_schedule_lane lane[HA_SCHEDULE_LANES];
    size_t next;                     /* lane */
    struct ha_device_seq *seq;       /* [q_len] */
    struct ha_schedule_work *worker; /* [threads + 1], the last is the launch thread's */
    /* of the layer that is run */
    size_t count;
    const struct ha_layer *layer;
    const float *q;
    const struct ha_state *host;
};

/* From a rule's share. tokens: the most that a store holds; unit: of the least block. HA_WAIVED: what the way of
 * fetching needs is missing. */
enum ha_status ha_schedule_create(struct ha_schedule *c, const struct ha_layer *first, enum ha_schedule_by by,
                                  enum ha_schedule_fetch fetch, bool united, size_t tokens, size_t unit,
                                  struct ha_why *why);
/* A layer has no task yet; it has one more. A KV head has one at most. */
void ha_schedule_begin(struct ha_schedule *c);
void ha_schedule_add(struct ha_schedule *c, const struct ha_schedule_task *task);
/* In `work` of a rule, with its arguments: all tasks. */
enum ha_status ha_schedule_run(struct ha_schedule *c, struct ha_layer *l, const struct ha_step *step, const float *q,
                               const struct ha_state *host, const struct ha_state *device, struct ha_why *why);

/* Of the layer that was run last: the blocks that a query head has read, for what is reported. */
const uint32_t *ha_schedule_list(const struct ha_schedule *c, size_t b, size_t q_head, size_t unit, size_t *count);
/* and whether the device has */
bool ha_schedule_on_device(const struct ha_schedule *c, size_t b, size_t head);

#endif
