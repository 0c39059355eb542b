#ifndef HA_REFERENCE_LABELS_H
#define HA_REFERENCE_LABELS_H

/* What a query head needs to come near full attention (Fluxion, section 5.2), in binary64.
 *
 * The keys of a query are those of the device, and a host segment of whole blocks of every size. Blocks of a size are
 * ranked by the scores of their digests, keys (blocks of one) by their own, equal ones by their place. o(m) is the
 * attention over the device's keys and the m best blocks, o that over all keys; attention over no key is 0. The budget
 * of a size is m / blocks, m the least that meets the criterion:
 *   contribution: |o(m) - o| <= tau max |o_h'|, the largest of all query heads of the layer and sequence
 *   output:       |o(m) - o| <= tau |o|
 *   score:        the softmax mass on the keys of o(m) is at least 0.95; tau is not read
 * All blocks always meet it. bgt0 is the budget of blocks of one key; k the slope of the line through (0, bgt0) with
 * the least squares to (log2 size, budget) of the other four sizes; R2 what that line explains of the variance of all
 * five budgets, NaN where they are one number; s is 1 where no block is needed. Without a host segment s is 1, all else
 * 0. */

#include "reference/definitions.h"

enum { HA_DEF_SIZES = 5 };
/* keys of a block: 1, 16, 32, 64, 128 */
static inline size_t ha_def_size(size_t i) { return i ? (size_t)8 << i : 1; }

enum ha_def_criterion { HA_DEF_CONTRIBUTION, HA_DEF_OUTPUT, HA_DEF_SCORE };

struct ha_def_labelled {
    const struct ha_shape *shape;
    const float *q;             /* [head_dim] */
    const void *k, *v;          /* [tokens][head_dim] of its KV head; finite */
    size_t tokens, first, host; /* that it sees; tokens [first, first + host) of them are the host segment */
    enum ha_def_criterion criterion;
    double tau;
    bool mean;                        /* the digest: means, else ranges */
    struct ha_ref_score most;         /* the largest |o_h'|, of contribution alone */
    const struct ha_profile *profile; /* of whatever computes scores and attention for the labels; of several
                                       * ha_profile_weaker; not read by ha_def_label */
};

/* |o|, and what attention by the profile makes of it. HA_ERROR: no memory. */
enum ha_status ha_def_label_norm(const struct ha_def_labelled *of, struct ha_ref_score *norm, struct ha_why *why);

struct ha_def_labels {
    double budget[HA_DEF_SIZES], k, r2;
    bool s; /* bgt0 is budget[0] */
};
enum ha_status ha_def_label(const struct ha_def_labelled *of, struct ha_def_labels *out, struct ha_why *why);

/* Whether m blocks of ha_def_size(size) meet the criterion, for each m: met[host / size + 1], enum ha_def_known.
 * HA_DEF_MAYBE: rounding leaves open which blocks are the m best, or what comes of them. */
enum ha_status ha_def_label_met(const struct ha_def_labelled *of, size_t size, uint8_t *met, struct ha_why *why);
/* Of several sizes at once, in less time: met[size] is NULL where it is not asked. */
enum ha_status ha_def_label_met_all(const struct ha_def_labelled *of, uint8_t *const met[HA_DEF_SIZES],
                                    struct ha_why *why);
/* Whether m may be the least that meets it; the least and the most of those that may. */
bool ha_def_label_may(const uint8_t *met, size_t blocks, size_t m);
size_t ha_def_label_least(const uint8_t *met, size_t blocks);
size_t ha_def_label_most(const uint8_t *met, size_t blocks);

/* k of these budgets, and R2 */
double ha_def_slope(const double budget[HA_DEF_SIZES]);
double ha_def_line(const double budget[HA_DEF_SIZES]);

#endif
