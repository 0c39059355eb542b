#ifndef HA_BLOCK_SPARSE_DIVIDE_H
#define HA_BLOCK_SPARSE_DIVIDE_H

/* The blocks that a device has chosen, divided by where they are: those of its cache are its own to attend over, by
 * their slots, the others the CPU's, in host memory (ScoutAttention, section 3.2 and Algorithm 1). */

#include "suites/block_sparse/recall.h"

/* What the CPU reads of a layer. */
struct ha_missing {
    uint32_t *block, *count; /* mapped: [batch][lists][list_max], [batch][lists] */
};

struct ha_divide {
    const struct ha_device_choice *choice;
    const struct ha_recall *recall;
    size_t budget;                          /* tokens that a list may have, were there enough */
    uint32_t *here, *here_keys;             /* device: slots, [batch][lists][list_max]; tokens, [batch][lists] */
    uint32_t *here_known, *here_keys_known; /* pinned: the same, once they have come down */
    struct ha_missing missing[2];           /* of layers 0, 2, ...; of the others */
    struct ha_device_split_seq *split;      /* [batch] */
    double *cpu_tokens, *steps;             /* [layers] since reset: tokens that the CPU read, of all lists; steps */
};

enum ha_status ha_divide_create(struct ha_divide *d, const struct ha_device_choice *choice,
                                const struct ha_recall *recall, size_t budget, struct ha_why *why);
/* Enqueues on the main stream, behind a choice that has run, its division by the layer's snapshot. missing: what the
 * CPU is to read, too; what it was to read two layers ago is read. */
enum ha_status ha_divide_run(const struct ha_divide *d, size_t layer, bool missing);
/* What is here, to the host: returns when it is there. */
enum ha_status ha_divide_down(const struct ha_divide *d);

/* In hooks of the layer's step: what the device reads first of sequence b, which has so many whole blocks, and what the
 * CPU reads as its unit u, which is a list; and which tokens a query head used that way. */
void ha_divide_device(const struct ha_divide *d, size_t layer, size_t b, size_t blocks, struct ha_device_seq *seq);
void ha_divide_cpu(const struct ha_divide *d, size_t layer, size_t b, size_t u, struct ha_rows *run);
enum ha_status ha_divide_use(const struct ha_divide *d, size_t layer, size_t b, size_t q_head, struct ha_used *used,
                             struct ha_why *why);

/* Nothing is counted of the layer; and what is: cpu_of_budget, tokens that the CPU read in a step, of the lists'
 * budgets.
 */
void ha_divide_reset(const struct ha_divide *d, size_t layer);
void ha_divide_count(const struct ha_divide *d, size_t layer, ha_count *say, void *arg);

#endif
