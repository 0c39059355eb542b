#ifndef HA_MERGE_ATTENTION_H
#define HA_MERGE_ATTENTION_H

/* The (o, LSE) that attention itself returns: what is merged must be right before the merge is. */

#include "harness/api/device.h"
#include "harness/api/kernels.h"
#include "harness/measure/eps.h"
#include "suites/merge/judge.h"

struct ha_problem;

/* A shape that is said whole. causal, weights, padded, indexed, ragged, shifted: 0 or 1. */
struct ha_attention_shape {
    size_t dtype, dim;
    size_t q_heads, kv_heads;
    size_t batch, q_len;
    size_t ctx;             /* keys of a sequence; with a mask q_len more */
    size_t runs;            /* that they are cut into, anywhere; at most HA_RUNS_MAX */
    size_t causal, weights; /* is there a mask; are weights wanted */
    size_t padded, indexed; /* how rows lie */
    size_t ragged;          /* sequences of different lengths */
    size_t shifted;         /* everything begins 16 bytes behind where it is aligned */
};

enum ha_attention_list { HA_ATTENTION_DRAWN, HA_ATTENTION_PAIRS, HA_ATTENTION_ONE };

struct ha_attention_case {
    const char *name, *why;
    size_t shapes;
    enum ha_attention_list list; /* where shapes come from: `shape`, a pairwise covering list, or who asks */
    /* Shape p->id: completes a problem whose type, head_dim, group and scale are set (3 types in turn, 5 head_dims in
     * turn after that), with one sequence, KV head and query token, and no run of keys yet. */
    void (*shape)(struct ha_problem *p);
    void (*fill)(const struct ha_problem *p); /* changes what is hard about the data; NULL: nothing */
    void (*spoil)(struct ha_problem *p);      /* after the oracle has answered; NULL: nothing */
    bool split;                               /* runs attended by themselves and merged */
};
extern const struct ha_attention_case ha_attention_cases[];
extern const size_t ha_attention_cases_count;

/* What attends: CPU kernels, or an open device (kernels NULL), or a library that only attends (device NULL, host
 * memory). */
struct ha_attention_subject {
    const char *name;
    const struct ha_kernels *kernels;
    const struct ha_device_api *api;
    struct ha_device *device;
    const struct ha_eps *eps; /* its exp and log, as they were seen; NULL: nobody has looked */
};

struct ha_attention_result {
    uint64_t rows;               /* query rows judged */
    double ratio;                /* the worst err/bound */
    struct ha_merge_sense sense; /* what its profile lets pass: of the shapes' least sensitive rows the median; in the
                                  * worst of them, how many times what that of our kernels does; NaN: of no row */
    struct ha_suspect suspect;   /* a group for each shape */
    uint64_t outputs;            /* of struct ha_judgement */
};
/* Case i over types, head dimensions, group sizes; one: the shape of HA_ATTENTION_ONE, else not read. HA_FAIL: why
 * names the row, element, got, want, bound. */
enum ha_status ha_attention_check(const struct ha_attention_subject *subject, size_t i, uint64_t seed,
                                  const struct ha_attention_shape *one, struct ha_attention_result *out,
                                  struct ha_why *why);

/* One context in splits on an open device, each attended on one of two streams, and merged in that form behind both:
 * nothing waits on the host in between. And again as a graph, with other numbers in the same memory. HA_WAIVED: the
 * device lacks something; after HA_OK why is empty, or says what was left out. */
enum ha_status ha_attention_on_streams(const struct ha_attention_subject *subject, enum ha_form form, uint64_t seed,
                                       struct ha_attention_result *out, struct ha_why *why);

/* attention_shape.c: shapes of which each two values of two members meet; the caller frees them */
enum ha_status ha_attention_pairs(struct ha_attention_shape **shapes, size_t *count, struct ha_why *why);
/* as a share of what takes too long: some seconds */
double ha_attention_cost(const struct ha_attention_shape *shape);

#endif
