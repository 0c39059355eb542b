#ifndef HA_PARTS_CHOOSE_H
#define HA_PARTS_CHOOSE_H

/* The candidates (keys, or blocks by their digests) of largest score, by the CPU, for the query heads of a KV head. The
 * score of a candidate for a query head is the largest over the step's query tokens; ties go to the smaller index. */

#include "suites/parts/digests.h"

/* Who chooses: each query head for itself; the KV head's group by the largest score that a candidate has for one of
 * them; or each for itself, and all of the group use what one of them chose. An option `group` of variants. */
enum ha_group { HA_GROUP_HEAD, HA_GROUP_MAX, HA_GROUP_UNION };
const char *ha_group_word(size_t i);
const char *ha_group_of_device_word(size_t i); /* a device's topk makes no union */
#define HA_GROUP_RULE(standard, words)                                                           \
    {                                                                                            \
        "group", standard, .fitted = true, .word = words,                                        \
                           .doc = "who chooses: each query head, or those of a KV head together" \
    }

struct ha_choose {
    const struct ha_context *ctx;
    enum ha_group group;
    size_t k, candidates, lists; /* lists of a KV head: its query heads, or 1 */
    size_t list_max;             /* entries of a list, at most */
    double share;                /* not 0: of n candidates so many as ha_share_of says, and not k */
    float *score;                /* [threads][rows][candidates] */
    uint32_t *chosen;            /* [threads][k] */
    unsigned char *mark;         /* [threads][candidates] */
};

/* Of n candidates the k of largest score, rising: rows of scores become their largest in the first of them. */
void ha_choose_best(const struct ha_context *ctx, float *score, size_t rows, size_t stride, size_t n, size_t k,
                    uint32_t *index);

/* The least number of n candidates that is not less than their share of all; 1 at least where there are any. */
size_t ha_share_of(double share, size_t n);

/* candidates: at most so many; k: of them. share is the caller's to set, and then no more than k of them all. */
enum ha_status ha_choose_create(struct ha_choose *c, const struct ha_context *ctx, enum ha_group group, size_t k,
                                size_t candidates, struct ha_why *why);

/* Of every KV head of the batch, by the pool's workers: lists [batch][kv_heads][lists], of which list l gets count[l]
 * candidates, rising, at index + l * list_max. q: [batch][q_len][q_heads][head_dim]. Of a store in host memory its
 * first tokens[b] keys; or blocks by their digests. These are of the first sequence, and each `stride` bytes behind
 * that of the sequence before. */
void ha_choose_keys(const struct ha_choose *c, const float *q, const struct ha_kv *store, size_t stride,
                    const size_t *tokens, uint32_t *index, uint32_t *count);
void ha_choose_blocks(const struct ha_choose *c, const float *q, const struct ha_digests *digests, size_t stride,
                      uint32_t *index, uint32_t *count);

#endif
