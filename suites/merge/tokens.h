#ifndef HA_LSE_MERGE_TOKENS_H
#define HA_LSE_MERGE_TOKENS_H

/* States from tokens: scores and values drawn from a row's (seed, index), cut into parts, and attention
 * over each part and over all of them, all in binary64. */

#include "harness/api/merge_suite.h"

enum { HA_TOKENS_MAX = 4096, HA_TOKENS_STATES_MAX = 512, HA_TOKENS_DIM_MAX = 1024 };

struct ha_tokens {
    uint64_t seed, index;
    size_t count, states, dim;
    double score[HA_TOKENS_MAX];      /* -inf: masked */
    bool dropped[HA_TOKENS_MAX];      /* not selected: in no state */
    size_t end[HA_TOKENS_STATES_MAX]; /* state m holds the tokens [end[m - 1], end[m]) */
};

enum ha_scores {
    HA_SCORES_NORMAL,
    HA_SCORES_WIDE,
    HA_SCORES_RISING,
    HA_SCORES_FALLING,
    HA_SCORES_TIES,
    HA_SCORES_PEAK
};
enum { HA_SCORES_COUNT = 6 };
enum ha_cut {
    HA_CUT_EVEN,
    HA_CUT_RANDOM,
    HA_CUT_ONES,
    HA_CUT_EDGE
}; /* EDGE: {0, 1, n - 1}, as far as there are states */

/* `count` tokens (at most HA_TOKENS_MAX) for a row, with normal scores, cut at random. */
void ha_tokens_make(struct ha_tokens *t, const struct ha_merge_row *row, size_t count);
void ha_tokens_scores(struct ha_tokens *t, enum ha_scores scores);
void ha_tokens_cut(struct ha_tokens *t, enum ha_cut cut);
/* As many as show the cut between `states` parts: some for each. */
size_t ha_tokens_enough(size_t states);

/* One query over the tokens [first, last), dropped ones only where all is set. o: [dim]; no token gives (0, -inf, 1).
 */
void ha_tokens_attend(const struct ha_tokens *t, size_t first, size_t last, bool all, double *o, double *lse,
                      double *sum);
/* Every state of the row, and the whole. */
void ha_tokens_fill(const struct ha_tokens *t, struct ha_merge_row *row);

#endif
