#ifndef HA_MERGE_REPLAY_H
#define HA_MERGE_REPLAY_H

/* A merge in a file, from and for any framework. Safetensors:
 *   o    [states][tokens][heads][dim], F32, F16 or BF16
 *   lse  [states][tokens][heads], F32; the maximum where form is max_sum
 *   sum  [states][tokens][heads], F32; form max_sum alone
 *   merged_o [tokens][heads][dim], merged_lse, merged_sum: what the merge made of them
 * __metadata__: form (natural, base2, direct, max_sum; natural if missing), order (flat, chain, tree; flat), lse_layout
 * (tokens_heads, or heads_tokens: then lse, sum, merged_lse, merged_sum are [..][heads][tokens]),
 * empty (-inf or +inf), exp_eps, log_eps (2^-23 each if missing), and anything else. */

#include "suites/merge/judge.h"

/* The batch's inputs, and its results if answered. meta: pairs key, value, ..., NULL, in addition. */
enum ha_status ha_replay_write(const char *path, const struct ha_batch *batch, bool answered, const char *const *meta,
                               struct ha_why *why);
/* The results of `path` into the batch; HA_ERROR names what is missing or of a wrong shape or type. */
enum ha_status ha_replay_read_answer(const char *path, struct ha_batch *batch, struct ha_why *why);
/* Judges a whole file. HA_OK or HA_FAIL: *j says; HA_ERROR: it is not such a file, why says what is wrong. */
enum ha_status ha_replay_judge(const char *path, struct ha_merge_shape *shape, struct ha_judgement *j,
                               struct ha_why *why);

#endif
