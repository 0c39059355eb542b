#ifndef HA_BLOCK_SPARSE_LABELS_H
#define HA_BLOCK_SPARSE_LABELS_H

/* What a query head needs to come near full attention, by the CPU (Fluxion, section 5.2): the least budgets of blocks
 * of 1, 16, 32, 64 and 128 keys of a host segment beside which all other keys are used, and what a line makes of them.
 * The rule is reference/labels.h's. */

#include "suites/parts/digests.h"

/* What has to be met: an error below tau of the largest output of the layer, or of the head's own, or 95% of the mass.
 * An option `criterion` of variants, and `tau`. */
enum ha_criterion { HA_CRITERION_CONTRIBUTION, HA_CRITERION_OUTPUT, HA_CRITERION_SCORE };
const char *ha_criterion_word(size_t i);
#define HA_CRITERION_RULE                                                                                              \
    {                                                                                                                  \
        "criterion", HA_CRITERION_CONTRIBUTION, .word = ha_criterion_word, .fitted = true,                             \
                                                .doc = "of a budget: the error, of the layer's largest output or the " \
                                                       "head's own, or the mass"                                       \
    }
#define HA_CRITERION_TAU                                                                                     \
    {                                                                                                        \
        "tau", 0.1, 0.001, 1, "error that a budget may leave, of an output; not read where criterion=score", \
            .draw = "0.02 0.05 0.1 0.3", .fitted = true                                                      \
    }

enum { HA_LABEL_SIZES = 5 };
/* keys of a block: 1, 16, 32, 64, 128 */
static inline size_t ha_label_size(size_t i) { return i ? (size_t)8 << i : 1; }

/* The host segment of a prefill of so many tokens, behind the first `sink`: whole blocks of every size, and none of the
 * last `recent` tokens. */
static inline size_t ha_label_host(size_t tokens, size_t sink, size_t recent)
{
    return tokens > sink + recent ? (tokens - sink - recent) / 128 * 128 : 0;
}

/* One query of a query head. */
struct ha_label_unit {
    const float *q; /* [head_dim] */
    const float
        *o[2];    /* attention over the keys on the device, in two states: [head_dim], not read if there are none */
    float lse[2]; /* -inf: no keys */
    struct ha_rows host;                /* the host segment of its KV head: a multiple of 128 keys, without an index */
    const void *digest[HA_LABEL_SIZES]; /* struct ha_digest of its blocks of ha_label_size; [0] is not read */
};

struct ha_label {
    double o_norm;              /* |o| over all keys */
    double host_lse, host_norm; /* attention over the host segment alone: its LSE and its |o| */
    float budget[HA_LABEL_SIZES];
    float bgt0, k, r2; /* bgt0 is budget[0]; r2: NaN where all five budgets are one number */
    bool streaming;    /* s: the device's keys alone are enough */
};

struct ha_labels {
    /* the caller's, before create */
    const struct ha_shape *shape;
    const struct ha_kernels *kernels;
    struct ha_pool *pool;
    enum ha_digest_kind digest;
    enum ha_criterion criterion;
    double tau;

    size_t host_max, units_max;
    struct ha_label_work {
        float *score;   /* [host_max] of keys, or of blocks */
        double *weight; /* [host_max] of keys, exp(score - level) */
        uint32_t *heap; /* [host_max] blocks, best first */
        double *left;   /* [head_dim] */
        float *row;     /* [head_dim] */
    } * work;           /* [threads] */
    double *o, *most;   /* [units_max][head_dim], [units_max] */
};

/* host_max: keys of the longest host segment; units_max: of one run. Nothing is allocated later. */
enum ha_status ha_labels_create(struct ha_labels *l, struct ha_arena *arena, size_t host_max, size_t units_max,
                                struct ha_why *why);
/* The labels of units [groups][heads], by the pool's workers: groups are all query heads of a layer and sequence for
 * one query token, whose largest |o| contribution asks for. What is not finite leaves the budgets at 1. */
void ha_labels_run(const struct ha_labels *l, const struct ha_label_unit *unit, size_t groups, size_t heads,
                   struct ha_label *out);

/* The same in two steps, for who has tasks of its own, of which each is by one worker. First o [head_dim] and
 * out->o_norm, host_lse, host_norm; then the rest, by this o and the largest norm. */
void ha_label_attend(const struct ha_labels *l, size_t worker, const struct ha_label_unit *unit, double *o,
                     struct ha_label *out);
void ha_label_find(const struct ha_labels *l, size_t worker, const struct ha_label_unit *unit, const double *o,
                   double most, struct ha_label *out);

#endif
