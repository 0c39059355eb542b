#ifndef HA_SESSION_H
#define HA_SESSION_H

/* What a case runs on (device, streams, threads, data), and a pass: one instance of a variant
 * from create over prefill through its steps. Several passes, also of other variants, run one
 * after another over the same data and the same buffers. */

#include "suites/variants/case.h"
#include "harness/api/device.h"
#include "harness/api/variant.h"
#include "harness/engine/machine.h"
#include "harness/measure/timeline.h"
#include "harness/measure/meter.h"

struct ha_arena;
struct ha_device_arena;
struct ha_pool;
struct ha_mutant; /* suites/variants/mutants.h */

/* load=layer: the products of a model's layer, on the main stream around the attention of each layer, so that what a
 * variant does beside them has a real window: y = x w^T with w of [q_heads + 2 kv_heads, each of head_dim][hidden]
 * before it; [hidden][q_heads * head_dim], [1 or 2 of feed_forward][hidden] and [hidden][feed_forward] after it. What
 * lies between them in a model (norms, positions, activation) is left out. Weights are random and finite, of the type
 * of K and V, and so are inputs, but what comes from another product in a model comes from it here: the third one's x
 * is what the second gave, the first one's what the fourth of the layer before gave. No two steps or layers have the
 * same inputs. Every layer has weights of its own, or, where they are more than HA_LOAD_BYTES, takes turns with as many
 * layers' as that holds, one at least: still more than caches hold. (load.c) */
enum { HA_LOAD_PRODUCTS = 4, HA_LOAD_BEFORE = 1 }; /* of a layer; those ahead of attention */
#define HA_LOAD_BYTES ((size_t)2 << 30)

struct ha_load {
    size_t products;                                    /* 0: attention alone */
    struct ha_device_product product[HA_LOAD_PRODUCTS]; /* w: of the first layer; y: of the first slot */
    size_t layers, layer_bytes, kept;                   /* weights of a layer, of how many layers they are kept */
    void *piece;                                        /* pinned: what is uploaded */
    char *x, *y;                                        /* y: [slots][y_bytes] */
    size_t x_elements, slots, y_bytes, y_at[HA_LOAD_PRODUCTS]; /* y_bytes: the outputs of a layer in a step */
    size_t read_bytes;                                         /* these, and what the layer before fed into it */
};

/* NULL, or why this device has no products. */
const char *ha_load_unsupported(const struct ha_device_api *api, const struct ha_device_info *info);
/* Buffers from the arena, filled. HA_ERROR: they do not fit. */
enum ha_status ha_load_create(struct ha_load *load, const struct ha_model *model, const struct ha_shape *shape,
                              const struct ha_device_api *api, struct ha_stream *stream, struct ha_device_arena *arena,
                              struct ha_why *why);
/* Other inputs, that follow from the turn; *ns: how long the device took, more. */
enum ha_status ha_load_turn(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            uint64_t turn, uint64_t *ns);
/* The inputs back to the host; *ns as above. */
enum ha_status ha_load_back(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            uint64_t *ns);
/* Products [first, end) of a step's layer, as far as there are any. Each step's layer has outputs of its own, or of
 * HA_OUTPUTS_BYTES, of two at least, takes its turn. */
enum ha_status ha_load_enqueue(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                               size_t step, size_t layer, size_t first, size_t end);
/* Its outputs, and what fed it: read_bytes. Both are there for the last slots - 1 layers of a pass. */
enum ha_status ha_load_read(const struct ha_load *load, const struct ha_device_api *api, struct ha_stream *stream,
                            size_t step, size_t layer, void *y);
/* HA_FAIL: of the outputs of a step's layer that inputs of this turn had, one of those that the seed draws is beyond
 * its bound of binary64. y: of ha_load_read */
enum ha_status ha_load_judge(const struct ha_load *load, uint64_t turn, size_t step, size_t layer, const void *y,
                             uint64_t seed, struct ha_why *why);

/* ---- data (workload.c) ------------------------------------------------------------------------------------------- */

/* The data of a case in host memory: K and V of all layers with the new tokens of all steps,
 * generated once, and the inputs of each step. Every pass of every variant reads these bytes. */

struct ha_workload {
    struct ha_shape shape, asked; /* as the dataset completed it; as the case has it */
    size_t cap;                   /* tokens of the longest sequence after the last step */
    uint64_t seed;
    char name[256]; /* dataset, with its file */
    const struct ha_dataset *dataset;
    struct ha_source *source;
    struct ha_projection *projection; /* [layers], or NULL where the dataset has no inputs */
    struct ha_arena *arena;           /* NULL until filled */
    void **k, **v;                    /* [layers][batch] -> [kv_heads][cap][head_dim] */
    float **q;                        /* [layers][batch]: the observed queries */
    uint64_t turn;                    /* ha_workload_turn */
};

/* Opens the dataset: the shape is complete then, and nothing large is allocated. */
enum ha_status ha_workload_open(struct ha_workload **workload, const struct ha_case *c, struct ha_why *why);
/* Once; where there is no memory it stays as it was. */
enum ha_status ha_workload_fill(struct ha_workload *workload, struct ha_pool *pool, struct ha_why *why);
bool ha_workload_serves(const struct ha_workload *workload, const struct ha_case *c);
void ha_workload_close(struct ha_workload *workload); /* NULL: nothing */

/* Gives the steps of a filled workload other inputs: queries and x of each token, and K and V that it appends, are the
 * dataset's times a number from 31/32 to 1 that follows from the turn. A device cannot know the inputs of a turn before
 * it is drawn, and the order of a query's scores over the context stays as it is. turn: 0, the dataset's own numbers */
void ha_workload_turn(struct ha_workload *workload, uint64_t turn, struct ha_pool *pool);

/* Tokens of sequence b before step `step`. */
size_t ha_workload_tokens(const struct ha_workload *workload, size_t b, size_t step);

/* How many of sequence b's last tokens have their queries handed over by a prefill. */
size_t ha_workload_observed(const struct ha_workload *workload, size_t b);

/* The context of one layer of a filled workload. */
struct ha_prefill ha_workload_prefill(const struct ha_workload *workload, size_t layer);

/* Where the inputs of one layer of one step lie in a block of bytes, and its outputs in another;
 * layouts as in ha_step. */
struct ha_io {
    size_t q, k, v, x, in_bytes;
    size_t o, lse, out_bytes;
    bool has_x;
};
struct ha_io ha_workload_io(const struct ha_workload *workload);
/* the inputs of all layers of a step, by the pool: [layers][in_bytes] */
void ha_workload_step(const struct ha_workload *workload, size_t step, struct ha_pool *pool, const struct ha_io *io,
                      unsigned char *blocks);

/* Where the dataset follows: the inputs of one layer of a step, in their place of `blocks`, and what attention made of
 * them. Of a workload of turn 0. o: [batch][q_len][q_heads][head_dim] */
void ha_workload_layer(const struct ha_workload *workload, size_t step, size_t layer, const struct ha_io *io,
                       unsigned char *blocks);
void ha_workload_follow(const struct ha_workload *workload, size_t step, size_t layer, const float *o);

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

/* What cases share: devices, data, and a thread for each core for what is not timed. */
enum { HA_WORKLOADS_KEPT = 64 };
struct ha_shared {
    struct ha_machine *machine;
    bool measure;           /* clocks watch */
    bool order;             /* is what moves ordered? see harness/base/order.h */
    const uint64_t *faults; /* NULL, or the seed of random delays: faults.h */
    /* of the last cases, the last one first, then NULL: as many as take little memory, so that the same data for other
     * variants is made once */
    struct ha_workload *workload[HA_WORKLOADS_KEPT];
    struct ha_pool *judges;
};
/* The machine is the caller's. */
enum ha_status ha_shared_open(struct ha_shared *shared, struct ha_machine *machine, bool measure, struct ha_why *why);
void ha_shared_close(struct ha_shared *shared);

/* The variant that others are compared with: all KV on the device. */
#define HA_COMPANION "resident"

struct ha_session {
    struct ha_shared *shared;
    const struct ha_variant *variant;
    const double *param;
    bool graph;                              /* the case's: see ha_pass.graphs */
    struct ha_fit *fit;                      /* that the case names, or NULL */
    bool fit_own;                            /* it was learnt from a text of the case */
    struct ha_kernels kernels;               /* resolved; what the device computes with if it uses the host */
    struct ha_kernels cpu;                   /* what the variant computes with: the same unless a defect is planted */
    const struct ha_device_api *api;         /* the device's own table, or with shared->order that which tells it */
    const struct ha_device_api *variant_api; /* metered, and with shared->faults delayed */
    struct ha_device *device;
    struct ha_device_info info;
    struct ha_workload *workload;
    struct ha_pool *pool;   /* the case's threads */
    bool ordered;           /* the history of this process is this session's */
    struct ha_pool *judges; /* a thread for each core, for what is not timed; the shared ones */
    struct ha_worker *worker;
    struct ha_stream *stream;
    struct ha_device_arena *arena;     /* the buffers below */
    struct ha_io io;                   /* of one layer */
    unsigned char *in_room, *out_room; /* device: what the next two lie in, each turn at another place */
    unsigned char *in;                 /* [steps][layers][in_bytes]: of the workload's turn */
    unsigned char *out;                /* [slots][layers][out_bytes], see ha_session_slot */
    size_t slots;
    unsigned char *host_inputs; /* pinned, of inputs_steps steps: what is uploaded at once */
    size_t inputs_steps;
    unsigned char *host_in, *host_out; /* pinned, of one step: [layers][in_bytes], [layers][out_bytes] */
    unsigned char *host_all;           /* pinned, as out: of a timed pass; NULL where the output is not checked */
    unsigned char *host_back; /* pinned, [layers][in_bytes]: the inputs as they are on the device after a step */
    struct ha_load load;      /* what runs around the attention of each layer */
    uint64_t upload_ns;       /* of the last ha_session_upload */
    uint64_t *ended_ns;       /* [steps], of the last pass that ran as a whole; see ha_pass_run */
};

/* Each step has an output buffer of its own, so that a pass can be looked at afterwards; where these are more than
 * HA_OUTPUTS_BYTES, as many as that holds, one at least, which the steps take in turns. */
#define HA_OUTPUTS_BYTES ((size_t)64 << 20)
size_t ha_session_slots(const struct ha_shape *shape);
size_t ha_session_slot(const struct ha_session *session, size_t step);
/* Whether the outputs of the step are still there when a pass has ended. */
bool ha_session_keeps(const struct ha_session *session, size_t step);
/* Other inputs (ha_workload_turn), and other places for them and for the outputs; and the inputs uploaded to them,
 * those of products, too (upload_ns: how long the device took). ha_session_turn: both. */
void ha_session_place(struct ha_session *session, uint64_t turn);
enum ha_status ha_session_upload(struct ha_session *session, struct ha_why *why);
enum ha_status ha_session_turn(struct ha_session *session, uint64_t turn, struct ha_why *why);
/* All of them back to the host, as they came; *ns: how long the device took. */
enum ha_status ha_session_inputs_back(struct ha_session *session, uint64_t *ns, struct ha_why *why);

/* HA_WAIVED where the machine or the variant cannot do it, HA_ERROR where it does not fit. mutant: NULL, or
 * the planted defect. On failure the session is closed. */
enum ha_status ha_session_open(struct ha_session *session, struct ha_shared *shared, const struct ha_case *c,
                               const struct ha_mutant *mutant, struct ha_why *why);
void ha_session_close(struct ha_session *session); /* nothing where it is zeroed, or closed */
/* Whether this variant can run here, too: HA_WAIVED where the device lacks an operation that it needs, HA_ERROR where
 * it does not fit into the memory that is free now. */
enum ha_status ha_session_takes(const struct ha_session *session, const struct ha_variant *variant, struct ha_why *why);
/* Whether the output is attention: not of a bracketing arm, nor on a device of the kind "null", which
 * computes nothing and only shows what the harness itself costs. */
bool ha_session_checked(const struct ha_session *session);

/* What a case needs, asked before anything large is allocated: a machine that runs out of
 * host memory kills processes, and says nothing. */

struct ha_memory_need {
    uint64_t data_bytes;      /* the workload itself */
    uint64_t variant_bytes;   /* K and V once more, wherever the variant keeps them */
    uint64_t device_io_bytes; /* the inputs of all steps, and the outputs that are kept */
    uint64_t host_io_bytes;   /* of one step, and what its outputs are held against; outputs of two passes; inputs that
                               * are uploaded at once */
};
struct ha_memory_need ha_memory_estimate(const struct ha_shape *shape);

/* HA_ERROR "needs X GiB, has Y GiB: ...". in_host: the device's memory is host memory. filled: the
 * workload is already there. all_on_device: the variant keeps all of K and V on the device. */
enum ha_status ha_memory_check(const struct ha_shape *shape, bool filled, bool in_host, bool all_on_device,
                               uint64_t host_free, uint64_t device_free, struct ha_why *why);

/* What memory holds before anything is written to it, a byte: of the first pass with checks NaN in every type, of those
 * that repeat it large numbers (51015 in f32, 7.3 in f16), which maxima and sums do not pass on as NaN would be. */
enum { HA_HELD_NAN = 0xFF, HA_HELD_NUMBERS = 0x47, HA_PASS_SHIFT = 64 };

struct ha_step_graph {
    struct ha_graph *graph; /* or NULL */
    struct ha_event *done;  /* its launch */
};

struct ha_pass {
    struct ha_session *session;
    const struct ha_variant *variant;
    struct ha_arena *arena;
    struct ha_device_arena *device_arena;
    struct ha_instance *instance;
    struct ha_context context; /* what create was given; stays for the pass */
    /* Steps are captured as graphs, each launched at once: of the session's case, but not in what is held against it,
     * the passes that repeat it and the companion's. */
    bool graphs;
    struct ha_step_graph graph[2]; /* by turns: a step is captured while the one before it runs */
    bool follows;                  /* the first pass with checks, where the dataset does: layer by layer */
    bool checks, selects;          /* selects: the selection is recorded, and there is no way back */
    unsigned char held;            /* by memory before it is written */
    size_t shift;                  /* bytes that device memory begins behind a multiple of 256 */
    unsigned char *kept;         /* NULL, or pinned [steps][layers][out_bytes], where ha_pass_run brings all outputs */
    struct ha_interval window;   /* ha_pass_step: that step. ha_pass_run: from the second step's begin (of a single
                                  * step: its own) until the last one's output is complete */
    struct ha_interval last;     /* ha_pass_run: the last step */
    struct ha_interval first;    /* ha_pass_run: from before the first step was submitted until its stamp */
    size_t steps;                /* in the window */
    uint64_t submitted_ns;       /* ha_pass_run: when all work of all steps had been enqueued */
    struct ha_meter_count moved; /* by the step or the steps, and by background work since the call before */
};

/* create and prefill; all outputs are poisoned. checks: guards, poison and a recorded selection. */
enum ha_status ha_pass_begin(struct ha_pass *pass, struct ha_session *session, const struct ha_variant *variant,
                             const double *param, bool checks, struct ha_why *why);
/* The same with checks, in memory that holds something else and lies elsewhere: nothing of that may be seen in the
 * outputs. kept: for ha_pass_run, or NULL. */
enum ha_status ha_pass_again(struct ha_pass *pass, struct ha_session *session, const struct ha_variant *variant,
                             const double *param, unsigned char *kept, bool selects, struct ha_why *why);
/* One step of all layers by itself, until its stream is done. With checks host_in has its inputs, the outputs are
 * poisoned before, downloaded after, and the arena's guards are verified. */
enum ha_status ha_pass_step(struct ha_pass *pass, size_t step, struct ha_why *why);
/* All steps, one right after the other: nothing is uploaded, downloaded or awaited between them unless the variant
 * does it. session->ended_ns[i]: when the output of step i was complete, stamped by a host function behind it; where
 * there are none, and on a real device, which such a function delays, when its last operation had been submitted, but
 * for the first step and, with `traced`, the last but one. Of the last step always the former. */
enum ha_status ha_pass_run(struct ha_pass *pass, bool traced, struct ha_why *why);
/* The outputs of a step that this pass has run to host_out: of one that ha_session_keeps, or the latest. */
enum ha_status ha_pass_download(struct ha_pass *pass, size_t step, struct ha_why *why);
/* All outputs that are kept to host_all. */
enum ha_status ha_pass_download_all(struct ha_pass *pass, struct ha_why *why);
/* After the steps: the background is over, and with checks guards are verified. */
enum ha_status ha_pass_settle(struct ha_pass *pass, struct ha_why *why);
/* After that, where the variant can: back to what begin made, ready for another pass over the same context. */
enum ha_status ha_pass_rewind(struct ha_pass *pass, struct ha_why *why);
/* Ends what create began, good or bad; nothing where there was none. so_far: how the pass went; where it failed, that
 * and its reason stay. */
enum ha_status ha_pass_end(struct ha_pass *pass, enum ha_status so_far, struct ha_why *why);

/* host side of the last step that ran with checks; outputs: that was downloaded */
const float *ha_session_q(const struct ha_session *session, size_t layer);
const float *ha_session_x(const struct ha_session *session, size_t layer); /* NULL where there is none */
const float *ha_session_o(const struct ha_session *session, size_t layer);
const float *ha_session_lse(const struct ha_session *session, size_t layer);

#endif
