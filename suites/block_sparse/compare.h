#ifndef HA_BLOCK_SPARSE_COMPARE_H
#define HA_BLOCK_SPARSE_COMPARE_H

/* How near predicted queries are to the true ones, and how many of the chosen blocks are new since the step before:
 * sums over the steps of each layer (ScoutAttention, table 1 and figure 6a). */

#include "suites/parts/device_choice.h"

struct ha_compare_layer {
    float *predicted; /* [batch][q_heads][q_len][head_dim] the last ones, which a selection may report */
    uint32_t *before; /* [batch][lists][list_max] blocks that the step before chose, rising */
    size_t *count;    /* [batch][lists] how many; none in the first step */
    double cosine, cosines, changed, changes;
};

struct ha_compare {
    const struct ha_context *ctx;
    size_t lists, list_max;
    float *q; /* pinned: the step's own, [batch][q_len][q_heads][head_dim] */
    struct ha_compare_layer *layer;
};

enum ha_status ha_compare_create(struct ha_compare *c, const struct ha_context *ctx, size_t lists, size_t list_max,
                                 struct ha_why *why);
/* reset and count: nothing where nothing was made, all zero */
void ha_compare_reset(struct ha_compare *c, size_t layer);
/* The step's own queries to the host: returns when they are there. */
enum ha_status ha_compare_down(const struct ha_compare *c, const struct ha_step *step);
/* Of one head: what was predicted of the step's queries, laid out as they are. Kept, too: [q_len][head_dim]. */
void ha_compare_query(const struct ha_compare *c, size_t layer, size_t b, size_t q_head, const float *predicted);
const float *ha_compare_predicted(const struct ha_compare *c, size_t layer, size_t b, size_t q_head);
/* Of the list of a query head, once for each list: the blocks that the step has chosen, which have come down. */
void ha_compare_choice(const struct ha_compare *c, size_t layer, size_t b, size_t q_head,
                       const struct ha_device_choice *choice);
/* cosine: mean over query heads, tokens and steps; changed: of the chosen blocks those that the step before had not
 * chosen. What has nothing to compare is left out. */
void ha_compare_count(const struct ha_compare *c, size_t layer, ha_count *say, void *arg);

#endif
