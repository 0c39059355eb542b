#ifndef HA_CODEBOOK_KEYS_LEAST_PREFIX_H
#define HA_CODEBOOK_KEYS_LEAST_PREFIX_H

/* Attention weights of keys that are scored on the device, the fewest of them that reach tau (struct ha_topp), and sums
 * of the values of those, by the CPU where the values are in host memory, or by the device (HCAttention, section 3.2).
 * Scores are the caller's to write to `x`; KV heads [first, first + heads) at a time. Ids and weights come down as many
 * as there are: how many is known first. */

#include "suites/parts/frame.h"
#include "suites/parts/head_rows.h"

struct ha_prefix {
    const struct ha_context *ctx;
    double tau;
    bool renorm; /* the state is that of the chosen keys alone; else all keys count in the denominator */
    enum ha_dtype w_type;
    size_t stride; /* of a row of scores: for as many keys as there can be */

    /* on the device, for all sequences of a layer: scores, then weights [batch][q_heads][q_len][stride]; LSE
     * [batch][q_len][q_heads]; ids [batch][q_heads][stride] and their weights [batch][q_heads][q_len][stride] */
    float *x, *lse;
    uint32_t *keys, *index; /* keys: [batch][q_heads] */
    unsigned char *w;
    /* the same in host memory, of what was chosen */
    float *lse_down;
    uint32_t *keys_down, *index_down;
    unsigned char *w_down;
    size_t *count;             /* [batch][q_heads] of keys_down, as it was checked */
    double *mass, *least_mass; /* [batch][q_heads] of the last step: in the mean over its tokens, of any of them */

    struct ha_stream *down;   /* ids and weights */
    struct ha_event **chosen; /* [kv_heads]: of a range, by its first head: how many are chosen is in host memory */
    struct ha_event *came;
    struct ha_device_softmax_seq *softmax; /* [batch] each */
    struct ha_device_topp_seq *topp;
    struct ha_device_weighted_sum_seq *sum;
    void **dst;
    const void **src;
    size_t *bytes;
};

/* One sequence of a layer. */
struct ha_prefix_seq {
    size_t keys; /* that were scored */
    const struct ha_head_rows *values;
};

/* From a rule's share. tau: above 0 to 1; keys_max: of a sequence. */
enum ha_status ha_prefix_create(struct ha_prefix *p, const struct ha_layer *first, double tau, bool renorm,
                                enum ha_dtype w_type, size_t keys_max, struct ha_why *why);
/* Enqueues on the main stream, behind what makes the scores of these KV heads: weights, the choice, and how many. seqs:
 * [batch]. */
enum ha_status ha_prefix_choose(struct ha_prefix *p, const struct ha_prefix_seq *seqs, size_t first, size_t heads);
/* Behind all choices: their sums by the device, to a state in its memory. Not with renorm. */
enum ha_status ha_prefix_sum_there(struct ha_prefix *p, const struct ha_prefix_seq *seqs, const struct ha_state *to);
/* Waits for the choice of a range, brings ids and weights down, and has the pool's workers sum up to a state in host
 * memory. Refuses lists that cannot be. HA_WAIVED: with renorm, keys that weigh nothing in one of the step's tokens. */
enum ha_status ha_prefix_sum_here(struct ha_prefix *p, const struct ha_prefix_seq *seqs, size_t first, size_t heads,
                                  const struct ha_state *to, struct ha_why *why);
/* Ids that a query head has chosen, in host memory, once they are summed by; after sum_there they are fetched. */
const uint32_t *ha_prefix_list(const struct ha_prefix *p, size_t b, size_t q_head, size_t *count);
/* Once all are summed up by the CPU: keys that were chosen, of all query heads; bytes that come down for each. */
size_t ha_prefix_chosen(const struct ha_prefix *p);
size_t ha_prefix_key_bytes(const struct ha_prefix *p);
/* What the state of a query head claims of sums and weights. */
void ha_prefix_claim(const struct ha_prefix *p, size_t b, size_t q_head, struct ha_profile *profile);
/* For reports where the device sums up: waits, and brings all lists down. */
enum ha_status ha_prefix_learn(struct ha_prefix *p, const struct ha_prefix_seq *seqs, struct ha_why *why);

#endif
