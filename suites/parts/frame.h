#ifndef HA_PARTS_FRAME_H
#define HA_PARTS_FRAME_H

/* What variants do alike: a step of a layer has a device side, a CPU side, or both at once, merged on the device from
 * their log-sum-exps. The rule of a variant says what is kept, what each side reads, and what follows a step. The
 * frame has the instance with its buffers, streams and events, the queries that come down and the outputs that go up,
 * the background job, the report of the keys used, the counters; and it ends what was begun. */

#include "suites/parts/cpu_attend.h"
#include "suites/parts/kv.h"

/* A list of token positions. */
struct ha_positions {
    uint32_t *token; /* [cap], from the context's arena */
    size_t count, cap;
};
enum ha_status ha_positions_add(const struct ha_context *ctx, struct ha_positions *list, const uint32_t *token,
                                size_t count, struct ha_why *why);
/* first, first + 1, ..., last - 1 */
enum ha_status ha_positions_add_range(const struct ha_context *ctx, struct ha_positions *list, size_t first,
                                      size_t last, struct ha_why *why);
/* `unit` tokens of each block; block 0 begins at token `first` */
enum ha_status ha_positions_add_blocks(const struct ha_context *ctx, struct ha_positions *list, size_t first,
                                       size_t unit, const uint32_t *block, size_t count, struct ha_why *why);

/* The keys that one query head uses in a step. */
struct ha_used {
    struct ha_positions device, host;
    size_t padding; /* the last so many of host were not selected */
};

/* Outputs and their LSEs: [batch][q_len][q_heads][head_dim], [batch][q_len][q_heads]. */
struct ha_state {
    float *o, *lse;
};
/* States of the device side. */
enum { HA_FRAME_DEVICE, HA_FRAME_SINK, HA_FRAME_STATES };

/* One layer of all sequences. Layer i stands i behind the first one. */
struct ha_layer {
    const struct ha_context *ctx;
    struct ha_instance *frame;
    size_t layer;
    size_t *tokens;        /* [batch], of each sequence; a step's new ones are counted before `after` */
    void *own;             /* [batch] of rule.seq_bytes; the rule's, zeroed before open */
    void *shared;          /* rule.shared_bytes for all layers; the rule's, zeroed before share */
    size_t heads_per_task; /* where CPU units are query heads: tasks of so many; 0: the kernels schedule */
    size_t lists, block;   /* of the device side: as in struct ha_device_attend */
    size_t list_max;       /* blocks for which a CPU unit's list has room; 0: for all that there are */
    bool due;              /* in a step, set by after or post: settle has something to do */
    struct ha_kv rows;     /* all sequences' (places.h) */
    size_t rows_used;      /* while they are opened */
    bool placed;           /* in append: the tokens are on their way to where `place` says, and are only to be noted */

    /* the frame's */
    struct ha_event *attended, *settled; /* main stream: after is over; post stream: post is */
    uint64_t ticket;                     /* of settle, 0: none */
    enum ha_status status;               /* of settle */
    struct ha_why why;
    struct ha_used *used; /* [batch][q_heads], or NULL */
};

/* Where K of the token at that position of sequence b goes in l->rows; V goes to the same row. Neither what a step
 * chose nor the layer may matter, and no two of a step's tokens go to one place. NULL: that cannot be kept. */
typedef const unsigned char *ha_place(const struct ha_layer *l, size_t b, size_t position);

/* What is NULL is left out. */
struct ha_rule {
    size_t seq_bytes, shared_bytes;
    enum ha_status (*share)(struct ha_layer *first, struct ha_why *why);
    /* in a drain: returns when nothing that the rule has begun is under way any more, and says what was wrong with it
     */
    enum ha_status (*drain)(struct ha_layer *first, struct ha_why *why);
    void (*end)(struct ha_layer *first); /* ends what share began, if it was called */
    enum ha_status (*open)(struct ha_layer *l, size_t b, struct ha_why *why); /* makes a sequence */
    enum ha_status (*prefill)(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why);
    enum ha_status (*ready)(struct ha_layer *l, struct ha_why *why); /* all sequences are prefilled, or rewound */

    /* A step of a layer, in this order. before, append and after enqueue on the main stream; what was enqueued before
     * the CPU side runs is done then, and q is in host memory. */
    enum ha_status (*before)(struct ha_layer *l, const struct ha_step *step, struct ha_why *why);
    /* The new tokens of a sequence, all rows of fresh, to what is kept; appends_last: not here but ahead of after. */
    enum ha_status (*append)(struct ha_layer *l, size_t b, const struct ha_kv *fresh);
    ha_place *place; /* those of all sequences go there ahead of append, at once, where the device has a move */
    /* what selection() reports, called when both sides have chosen; NULL: both sides have all tokens */
    enum ha_status (*use)(const struct ha_layer *l, size_t b, size_t q_head, struct ha_used *used, struct ha_why *why);
    /* what else it reports, beside the keys */
    void (*report)(const struct ha_layer *l, size_t b, size_t q_head, struct ha_selection *out);
    /* What the device side reads: runs and weights, the rest is set. */
    void (*device)(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d);
    /* What it reads besides, as a state of its own (HA_FRAME_SINK): tokens that are all before the step's. */
    void (*sink)(struct ha_layer *l, size_t b, struct ha_device_seq *d);
    /* Enqueues on the main stream, behind the device side, what the CPU side goes by besides the queries. */
    enum ha_status (*ask)(struct ha_layer *l, const struct ha_step *step, struct ha_why *why);
    /* Chooses what the CPU side reads, by the queries in host memory, [batch][q_len][q_heads][head_dim]. */
    enum ha_status (*choose)(struct ha_layer *l, const float *q, struct ha_why *why);
    /* whether the CPU side's units are query heads; NULL or false: KV heads */
    bool (*by_head)(const struct ha_context *ctx);
    /* whether CPU workers are in groups, one for each sequence (harness/base/pool.h); NULL: they are not */
    bool (*by_sequence)(const struct ha_context *ctx);
    /* What the CPU side reads: run, packed keys and weights of unit u of a sequence, a KV head or a query head. */
    void (*cpu)(struct ha_layer *l, size_t b, size_t u, struct ha_attend *a, struct ha_rows *run);
    /* In place of choose and cpu, where a side that is free takes what comes next: all that neither state of the device
     * has, attended over by the CPU to `host`, in mapped memory, or by the device to `device`, in its own, both
     * [batch][q_len][q_heads]; every LSE is -inf before. What is enqueued on the main stream from then on is behind
     * what the device does. */
    enum ha_status (*work)(struct ha_layer *l, const struct ha_step *step, const float *q, const struct ha_state *host,
                           const struct ha_state *device, struct ha_why *why);
    /* Whether the layer's CPU side is begun in the step of the layer before it, by other queries than its own: then it
     * is merged in the layer's own step, in which no queries come down and choose is not called. Not the first layer's.
     */
    bool (*early)(const struct ha_layer *l);
    /* In the step of the layer before, once its output is on its way: waits for what the CPU side of l reads, and says
     * by which queries. They and what `cpu` names then stay as they are until l's step is over. */
    enum ha_status (*foresee)(struct ha_layer *l, const float **q, struct ha_why *why);
    enum ha_status (*after)(struct ha_layer *l, const struct ha_step *step, struct ha_why *why);
    /* Enqueues on a stream of its own what is off the critical path, behind after and before the layer's next step. */
    enum ha_status (*post)(struct ha_layer *l, struct ha_stream *post, struct ha_why *why);
    /* In the background where it is due: behind post, over before the layer's next step. */
    enum ha_status (*settle)(struct ha_layer *l, struct ha_why *why);

    /* Its numbers, once the background is over. Of hits, misses, recalls and manage_ns (what it takes to keep a cache)
     * columns are made, where the variant has .counters. */
    void (*count)(const struct ha_layer *l, ha_count *say, void *arg);

    /* a sequence as after its prefill; the frame resets tokens and counters */
    enum ha_status (*rewind)(struct ha_layer *l, size_t b, struct ha_why *why);

    const char *cpu_name, *settle_name; /* of their spans */
    bool appends_last;
    bool weighs;      /* of several query tokens the CPU side keeps the weights of their keys */
    bool own_heads;   /* on the device each query head reads tokens of its own */
    bool asks_itself; /* work goes by what ask brings down, and waits for it: no queries come down */
    bool unlinked;    /* the CPU side's queries and outputs stay where they are: for an arm */
};

/* A stream, which the frame destroys. Events are the device arena's (ha_device_event). */
enum ha_status ha_frame_stream(const struct ha_layer *l, const char *name, struct ha_stream **stream,
                               struct ha_why *why);

/* What a rule took to select on the step's own way, since begin_ns (ha_now_ns): for the counters. */
void ha_frame_selected(const struct ha_layer *l, uint64_t begin_ns);
/* Where the device side's states are, in device memory: for `ask`. */
struct ha_state ha_frame_state(const struct ha_layer *l, size_t state);
/* Keys that `work` has had attended over, of all query heads, by each side. */
void ha_frame_worked(const struct ha_layer *l, size_t host_keys, size_t device_keys);

enum ha_status ha_frame_create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why);
enum ha_status ha_frame_prefill(struct ha_instance *self, size_t layer, const struct ha_prefill *in,
                                struct ha_why *why);
enum ha_status ha_frame_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why);
void ha_frame_selection(struct ha_instance *self, size_t layer, size_t b, size_t q_head, struct ha_selection *out);
void ha_frame_counters(struct ha_instance *self, struct ha_counters *out);
void ha_frame_count(struct ha_instance *self, ha_count *say, void *arg);
enum ha_status ha_frame_drain(struct ha_instance *self, struct ha_why *why);
enum ha_status ha_frame_rewind(struct ha_instance *self, struct ha_why *why);
void ha_frame_destroy(struct ha_instance *self);

/* The hooks of a variant over a rule. Besides these it may have .counters and .rewind. */
#define HA_FRAME(of)                                                                                  \
    .rule = &(of), .create = ha_frame_create, .prefill = ha_frame_prefill, .attend = ha_frame_attend, \
    .selection = ha_frame_selection, .count = ha_frame_count, .drain = ha_frame_drain, .destroy = ha_frame_destroy

#endif
