#ifndef HA_API_VARIANT_H
#define HA_API_VARIANT_H

/* A variant: one way to do attention over a KV cache that is split between device and host. It gets everything as
 * arguments, keeps no globals, and never names another variant, an instruction set or a device. One step calls attend
 * once for each layer, in order; the next step follows at once, while work of the last one may still be under way.
 *
 * Memory: allocate from ctx->arena (host) and ctx->device_arena (device, pinned, mapped; events, too); both are
 * released by the harness after destroy. destroy ends what create started (streams); it and drain are called after a
 * create that failed, too, and must cope with a half-made object. */

#include "harness/api/base.h"
#include "harness/api/device.h"
#include "harness/api/kernels.h"
#include "harness/api/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ha_arena;        /* harness/base/arena.h */
struct ha_device_arena; /* harness/base/device_arena.h */
struct ha_pool;         /* harness/base/pool.h */
struct ha_worker;       /* harness/base/worker.h */
struct ha_projection;   /* harness/api/dataset.h */
struct ha_fit;          /* harness/base/fit.h */
struct ha_fit_writer;   /* the same */

/* An option of a variant: `key=value` in a case. */
struct ha_param {
    const char *name;
    double value, min, max; /* default and range; of words the default alone */
    const char *doc;
    bool whole;                    /* without a fraction */
    bool power_of_2;               /* whole, and nothing but 1, 2, 4, ... */
    const char *draw;              /* as of a key (harness/api/suite.h) */
    const char *(*word)(size_t i); /* NULL, or its values are words, that stand for 0, 1, ... (HA_WORDS) */
    bool fitted;                   /* what is learnt depends on it: a fit of another value is refused */
};

struct ha_variant;

struct ha_context {
    const struct ha_variant *variant; /* the one that is made */
    const struct ha_shape *shape;
    const double *param;              /* in the order of ha_variant.params */
    const struct ha_kernels *kernels; /* of the CPU side */
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_stream *stream; /* the main stream: inputs are ready on it, outputs are expected on it */
    struct ha_arena *arena;
    struct ha_device_arena *device_arena;
    /* The CPU side's threads. One run at a time, called or started: the next, which between steps may be the harness's
     * own, waits for what was started. What is still under way after the last step is drain's to wait for. */
    struct ha_pool *pool;
    struct ha_worker *worker; /* one background thread, for work off the critical path */
    bool record_selection;    /* keep what selection() needs; false in timed passes */
    /* [layers] how each layer's query comes from its input, in host memory; NULL where a step has no x */
    const struct ha_projection *projection;
    /* NULL, or what the case names by fit=: ha_fit_get has its tensors (harness/base/fit.h), which live as long as the
     * instance. Only where the variant has the hook fit. */
    const struct ha_fit *fit;
};

/* Before the first step: the whole context of one layer, in host memory, valid during the call. */
struct ha_prefill {
    const void *const *k, *const *v; /* [batch] -> [kv_heads][cap][head_dim] of shape.dtype: the first ctx[b] tokens */
    size_t cap;
    const float *const *q; /* [batch] -> [observed_b][q_heads][head_dim]: queries of the last
                            * observed_b = min(observed, ctx[b]) tokens, each of which sees the
                            * tokens up to and with itself */
};

/* What a variant learns from, offline, for all cases over the same model: the context of every layer, in host memory,
 * valid during the call. */
struct ha_fit_input {
    const struct ha_shape *shape;
    const double *param;
    uint64_t seed;                  /* of whatever it draws */
    const struct ha_prefill *layer; /* [layers] */
    /* [layers][batch] -> [observed_b][model_dim]: the inputs that the queries of layer[i].q come from; NULL where the
     * dataset has none */
    const float *const *x;
    const struct ha_projection *projection; /* [layers], or NULL, as in ha_context */
    /* NULL, or [2]: nanoseconds that a layer of a step takes, and bytes per nanosecond of the link to the device: as
     * measured, so not the same twice. Only where the variant asks (pace_param), and the device has a link. */
    const double *pace;
    const struct ha_kernels *kernels;
    struct ha_arena *arena; /* for what lives as long as the call */
    struct ha_pool *pool;
};

/* One layer of one step. Everything lies in device memory and stays valid until the step ends.
 * Query token t of sequence b is token ctx[b] + (tokens appended before) + t. */
struct ha_step {
    size_t step, layer, q_len;
    const float *x; /* [batch][q_len][model_dim], or NULL */
    const float *q; /* [batch][q_len][q_heads][head_dim] */
    /* The next layer's q, or NULL in the last one. No model knows it yet: for what a perfect prediction would do. */
    const float *next_q;
    const void *k, *v; /* [batch][q_len][kv_heads][head_dim] of shape.dtype: the new tokens */
    float *o;          /* [batch][q_len][q_heads][head_dim] */
    float *lse;        /* [batch][q_len][q_heads]: LSE over the keys used */
};

/* The keys that one query head of one sequence used in the last step, as disjoint parts, each the keys of one attention
 * state that was merged. Query token t uses those of them that are not after itself. */
enum { HA_PARTS_MAX = 4 };
struct ha_part {
    const uint32_t *token; /* [count] positions in the sequence, in any order */
    size_t count;
    size_t padding; /* the last so many were added to align work, not by the selection rule */
    bool on_device;

    /* Where the state is not that of the step's query over the cache's keys and values: */
    const float *q; /* [q_len][head_dim] the query that it was made with; NULL: the step's */
    const float *k; /* [count][head_dim] what stood for the keys, of token[i]; NULL: they themselves */
    const struct ha_profile *profile; /* of what computed it, within what a device may claim; NULL: that of its side */
    bool weight_only; /* its keys count in the denominator and their values are left out: the output is not renormalised
                       */
    bool either_side; /* whichever side was free computed it: it is held to the weaker of both profiles */
};
/* A decision besides the keys that the definition judges: hit, block, budget, interval. */
struct ha_note {
    const char *name; /* static */
    double value;
};
enum { HA_NOTES_MAX = 8 };
struct ha_selection {
    struct ha_part part[HA_PARTS_MAX];
    size_t parts;
    struct ha_note note[HA_NOTES_MAX];
    size_t notes;
    /* NULL, or numbers that the variant learnt from the prefill and chooses by, where no definition can learn the same
     * ones to the bit: which they are, and what is true of them, the variant's page says. The definition asks whether
     * it is, before it goes by them. */
    const double *learnt;
    size_t learnt_count;
};

/* NaN: not measured by this variant. Cumulative since create. */
struct ha_counters {
    double hit_ratio, cpu_ratio, recalls, select_ns, manage_ns;
    double cpu_tokens; /* mean keys read by the CPU side, per query head and step */
};

/* A number by name and layer, of a variant's own: over the steps since its prefill, or as it is now. */
typedef void ha_count(void *arg, const char *name, size_t layer, double value); /* name: static */

enum ha_contract { HA_EXACT, HA_BOUNDED, HA_STATISTICAL };
/* exact: all keys are used. bounded: the certificate bounds the deviation. statistical: keys are lost for good. */

/* Optional operations of the device that a variant cannot do without; where one is missing the case is WAIVED with its
 * name. */
enum {
    HA_NEEDS_ATTEND = 1 << 0,
    HA_NEEDS_MERGE = 1 << 1,
    HA_NEEDS_BLEND = 1 << 2,
    HA_NEEDS_COPY_2D = 1 << 3,
    HA_NEEDS_PRODUCTS = 1 << 4,
    HA_NEEDS_MOVE = 1 << 5,
    HA_NEEDS_DIGEST = 1 << 6, /* digest and digest_score */
    HA_NEEDS_TOPK = 1 << 7,
    HA_NEEDS_SPLIT = 1 << 8,
    HA_NEEDS_COLUMNS = 1 << 9, /* columns and score */
    HA_NEEDS_NET = 1 << 10,    /* features and net */
    HA_NEEDS_LABELS = 1 << 11, /* similarity */
    HA_NEEDS_PQ = 1 << 12,     /* pq_encode, pq_table and pq_score */
    HA_NEEDS_TOPP = 1 << 13,   /* softmax and topp */
};

struct ha_instance;
struct ha_rule; /* suites/parts/frame.h */

struct ha_variant {
    const char *name, *family;
    const char *doc;    /* one line */
    const char *source; /* paper and section */
    enum ha_contract contract;
    bool products;   /* its attention on the device is attend_products, and judged by that profile */
    bool own_states; /* its parts may have queries, keys, weights or claims of their own, and its definition judges them
                      */
    bool checked;    /* false: a bracketing arm whose output is not attention; said in every row */
    const struct ha_param *params;
    size_t params_count;

    /* Whether the same input may give other bits another time, because what is used depends on what has arrived since
     * the first step; each pass is then judged by itself. NULL: never. */
    bool (*varies)(const double *param);
    bool keeps_keys; /* it varies in its bits alone: each time the same keys are used */
    /* Its attend enqueues all of a step on ctx->stream and waits for nothing, with record_selection, too: a graph may
     * hold the step (the key graph of a case). */
    bool one_stream;
    unsigned needs;             /* HA_NEEDS_... */
    const struct ha_rule *rule; /* where the hooks are those of the frame; or NULL */
    enum ha_status (*create)(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why);
    enum ha_status (*prefill)(struct ha_instance *self, size_t layer, const struct ha_prefill *in, struct ha_why *why);
    /* May return while work is under way on ctx->stream: o and lse are complete once that stream is. */
    enum ha_status (*attend)(struct ha_instance *self, const struct ha_step *step, struct ha_why *why);
    /* Only with record_selection, after the step's end and before the layer's next attend. The
     * arrays belong to the instance. */
    void (*selection)(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out);
    void (*counters)(struct ha_instance *self, struct ha_counters *out); /* may be NULL */
    /* Says each of its numbers, to counters.csv, in any order; may be NULL. */
    void (*count)(struct ha_instance *self, ha_count *say, void *arg);
    /* returns when nothing of the instance runs in the background any more */
    enum ha_status (*drain)(struct ha_instance *self, struct ha_why *why); /* may be NULL */
    void (*destroy)(struct ha_instance *self);
    /* After a drain that returned HA_OK: everything as it was after the last prefill, counters too, and nothing under
     * way. NULL, where the steps leave too little of the context: then a new instance is made. */
    enum ha_status (*rewind)(struct ha_instance *self, struct ha_why *why);
    /* Whether the options go together, whatever the case is: asked before anything runs. HA_ERROR with words: they do
     * not. NULL: any do. */
    enum ha_status (*agree)(const double *param, struct ha_why *why);
    /* `habench fit`: learns, and hands over tensors by ha_fit_put. The same input gives the same numbers. NULL: it
     * learns nothing, and a case with fit= is refused. */
    enum ha_status (*fit)(const struct ha_fit_input *in, struct ha_fit_writer *out, struct ha_why *why);
    /* NULL, or it wants `pace` besides, for which the case runs once: changes the options to those with which no step
     * waits for the link, nor reads a fit. */
    void (*pace_param)(double *param);
};

#ifdef __cplusplus
}
#endif
#endif
