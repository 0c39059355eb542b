#ifndef HA_LSE_MERGE_FILLS_H
#define HA_LSE_MERGE_FILLS_H

/* The rows of the cases, and the errors planted in them. Cases whose number has several parts go through
 * them by the row's index. */

#include "harness/api/merge_suite.h"

/* fill_exact.c: answers that are known to the bit */
void ha_fill_equal_scores(struct ha_merge_row *row);
void ha_fill_permuted(struct ha_merge_row *row);
void ha_fill_one_state(struct ha_merge_row *row);
void ha_fill_empty_and_state(struct ha_merge_row *row);
void ha_fill_all_empty(struct ha_merge_row *row);

/* fill_special.c: empty states, NaN, zeros */
void ha_fill_empty_with_nan(struct ha_merge_row *row);
void ha_fill_some_empty(struct ha_merge_row *row);
void ha_fill_nan_lse(struct ha_merge_row *row);
void ha_fill_nan_component(struct ha_merge_row *row);
void ha_fill_zero_lse(struct ha_merge_row *row);
void ha_fill_tiny_lse(struct ha_merge_row *row);
void ha_fill_below_mask(struct ha_merge_row *row);

/* fill_scores.c: LSEs far from 0 and from each other */
void ha_fill_large_lse(struct ha_merge_row *row);
void ha_fill_negative_lse(struct ha_merge_row *row);
void ha_fill_gaps(struct ha_merge_row *row);
void ha_fill_extreme_lse(struct ha_merge_row *row);
void ha_fill_both_low(struct ha_merge_row *row);
void ha_fill_common_offset(struct ha_merge_row *row);
void ha_fill_offset_or_none(struct ha_merge_row *row);
void ha_fill_sink(struct ha_merge_row *row);
void ha_fill_dominant_token(struct ha_merge_row *row);
void ha_fill_increasing(struct ha_merge_row *row);

/* fill_values.c: values that cancel, are huge, tiny, or all the same */
void ha_fill_one_hot(struct ha_merge_row *row);
void ha_fill_constant_v(struct ha_merge_row *row);
void ha_fill_cancellation(struct ha_merge_row *row);
void ha_fill_huge_in_light_state(struct ha_merge_row *row);
void ha_fill_near_max(struct ha_merge_row *row);
void ha_fill_subnormal(struct ha_merge_row *row);
void ha_fill_million_ties(struct ha_merge_row *row);
void ha_fill_many_terms(struct ha_merge_row *row);

/* fill_tokens.c: partitions, orders, selections */
void ha_fill_tokens(struct ha_merge_row *row);
void ha_fill_splits(struct ha_merge_row *row);
void ha_fill_orders_of_three(struct ha_merge_row *row);
void ha_fill_either_order(struct ha_merge_row *row);
void ha_fill_single_tokens(struct ha_merge_row *row);
void ha_fill_sparse_union(struct ha_merge_row *row);
void ha_fill_predicted_query(struct ha_merge_row *row);

/* fill_planted.c: rows that an error shows in, and the errors */
void ha_fill_positive_lse(struct ha_merge_row *row);
void ha_plant_base_mix(struct ha_merge_row *handed, const struct ha_merge_row *other);
void ha_fill_lse_bf16(struct ha_merge_row *row);
void ha_plant_lse_bf16(struct ha_merge_row *handed, const struct ha_merge_row *other);
void ha_fill_boundary_token(struct ha_merge_row *row);
void ha_plant_boundary_token(struct ha_merge_row *handed, const struct ha_merge_row *other);
void ha_fill_group(struct ha_merge_row *row);
void ha_plant_swapped_heads(struct ha_merge_row *handed, const struct ha_merge_row *other);
void ha_plant_stale(struct ha_merge_row *handed, const struct ha_merge_row *other);

/* random.c */
void ha_random_fill(struct ha_merge_row *row);
size_t ha_random_states(uint64_t seed);

#endif
