#ifndef HA_PARTS_AHEAD_H
#define HA_PARTS_AHEAD_H

/* The query that the next layer will have, from this layer's input: its projection of an input that it has not seen yet
 * (InfiniGen, section 4.2; ScoutAttention; CLO). On the device, as a product and what follows it; or on the CPU, when
 * the input has come down. */

#include "suites/parts/frame.h"

/* An option `predict` of variants. */
enum ha_ahead_side { HA_AHEAD_DEVICE, HA_AHEAD_CPU, HA_AHEAD_ORACLE };
const char *ha_ahead_word(size_t i);
#define HA_AHEAD_SIDE                                                                                 \
    {                                                                                                 \
        "predict", HA_AHEAD_DEVICE,                                                                   \
            .word = ha_ahead_word,                                                                    \
            .doc = "where the next layer's query is computed: by the device, or by the CPU's threads" \
    }

struct ha_ahead {
    const struct ha_context *ctx;
    enum ha_ahead_side side;
    bool down;      /* the queries come to the host, too, which the CPU's side computes there */
    float *q;       /* pinned: [batch][q_len][q_heads][head_dim], what was predicted; it stays until the begin after
                     * the next */
    float *q_of[2]; /* of layers 0, 2, ...; of the others */
    const float *q_device;    /* not of the CPU's side: the same on the device, in order on the main stream */
    float *y;                 /* device: of the device's side, where they are computed */
    float *x;                 /* pinned: [batch][q_len][model_dim], of the CPU's side */
    float *turn, *turn_of[2]; /* mapped: [batch * q_len][rotary/2][2] */
    float **w;                /* device: [layers] of W_Q, bias and norm, each behind the other */
    struct ha_event *came, *came_of[2];
    size_t layer; /* the one that was predicted for, or none: 0 */
};

/* HA_AHEAD_ORACLE: what will come, of which nobody knows but the harness (ha_step.next_q): for what a perfect
 * prediction would do. HA_WAIVED with words where the data has no inputs, or the device no product. l: any layer of the
 * instance. */
enum ha_status ha_ahead_create(struct ha_ahead *a, const struct ha_layer *l, enum ha_ahead_side side, bool down,
                               struct ha_why *why);
/* Enqueues on the main stream, in the step of a layer, what the next one's query is computed from or with. tokens:
 * [batch] of the sequences before the step. Buffers are of two turns: waits until what it overwrites is over. */
enum ha_status ha_ahead_begin(struct ha_ahead *a, const struct ha_step *step, const size_t *tokens);
/* Waits for it; a->q is complete. */
enum ha_status ha_ahead_end(struct ha_ahead *a);

#endif
