#ifndef HA_PARTS_DEVICE_CHOICE_H
#define HA_PARTS_DEVICE_CHOICE_H

/* Blocks of largest score by their digests, chosen by the device for all sequences of a layer at once, as lists that
 * its attention reads. Everything is enqueued on the main stream, on which layers follow each other: they share one.
 * The score of a block for several query tokens, or with HA_GROUP_MAX for several heads, is the largest; ties go to the
 * smaller index. */

#include "suites/parts/choose.h"
#include "suites/parts/digests.h"
#include "suites/parts/frame.h"

struct ha_device_choice {
    const struct ha_context *ctx;
    enum ha_digest_kind kind;
    size_t unit;                         /* tokens of a block */
    size_t lists, list_max, blocks_max;  /* lists of a sequence, entries of one, blocks of the longest sequence */
    float *score;                        /* device: [batch][q_heads][q_len][blocks_max] */
    uint32_t *index;                     /* device: [batch][lists][list_max] */
    uint32_t *known;                     /* pinned: the same, once it has come down */
    struct ha_event *down;               /* it has */
    struct ha_device_digest_seq *digest; /* [batch] */
    struct ha_device_score_seq *by;      /* [batch] */
    struct ha_device_topk_seq *most;     /* [batch] */
};

/* whole blocks of the longest sequence, at its end */
size_t ha_device_choice_blocks(const struct ha_shape *shape, size_t unit);
/* group: HA_GROUP_HEAD or HA_GROUP_MAX */
enum ha_status ha_device_choice_create(struct ha_device_choice *c, const struct ha_context *ctx, enum ha_group group,
                                       enum ha_digest_kind kind, size_t unit, size_t list_max, struct ha_why *why);

/* Enqueues the digests that c->digest says of each sequence (ha_digests_due); *any: there were any. */
enum ha_status ha_device_choice_digest(const struct ha_device_choice *c, bool *any);

/* Sequence b chooses `count` of its blocks, at most list_max, all where there are no more. q: of the step. Then run,
 * for all of them. */
void ha_device_choice_ask(const struct ha_device_choice *c, size_t b, const float *q, const struct ha_digests *digests,
                          size_t count);
enum ha_status ha_device_choice_run(const struct ha_device_choice *c);
/* Enqueues, behind a run, another choice by the same scores: of each of `lists` lists of a sequence the `count` best,
 * all where there are no more, to index in device memory, [batch][lists][count]. */
enum ha_status ha_device_choice_again(const struct ha_device_choice *c, size_t lists, size_t count, uint32_t *index);
/* The lists to the host: returns when they are there. */
enum ha_status ha_device_choice_down(const struct ha_device_choice *c);

/* the first list of sequence b on the device; the next ones are list_max further on each */
static inline const uint32_t *ha_device_choice_lists(const struct ha_device_choice *c, size_t b)
{
    return c->index + b * c->lists * c->list_max;
}
/* Of lists that are down: the tokens of a query head's blocks, `count` of them. */
enum ha_status ha_device_choice_use(const struct ha_device_choice *c, size_t b, size_t q_head, size_t count,
                                    struct ha_positions *used, struct ha_why *why);

#endif
