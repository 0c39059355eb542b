#ifndef HA_LSE_MERGE_FILLS_H
#define HA_LSE_MERGE_FILLS_H

/* The rows of the cases, and the errors planted in them. Cases whose number has several parts go through
 * them by the row's index. */

#include "harness/api/merge_suite.h"

typedef void ha_merge_fill(struct ha_merge_row *row);
typedef void ha_merge_plant(struct ha_merge_row *handed, const struct ha_merge_row *other);

/* fill_exact.c: answers that are known to the bit */
ha_merge_fill ha_fill_equal_scores, ha_fill_permuted, ha_fill_one_state, ha_fill_empty_and_state, ha_fill_all_empty;
/* fill_special.c: empty states, NaN, zeros */
ha_merge_fill ha_fill_empty_with_nan, ha_fill_some_empty, ha_fill_nan_lse, ha_fill_nan_component, ha_fill_zero_lse,
    ha_fill_tiny_lse, ha_fill_below_mask;
/* fill_scores.c: LSEs far from 0 and from each other */
ha_merge_fill ha_fill_large_lse, ha_fill_negative_lse, ha_fill_gaps, ha_fill_extreme_lse, ha_fill_both_low,
    ha_fill_common_offset, ha_fill_offset_or_none, ha_fill_sink, ha_fill_dominant_token, ha_fill_increasing;
/* fill_values.c: values that cancel, are huge, tiny, or all the same */
ha_merge_fill ha_fill_one_hot, ha_fill_constant_v, ha_fill_cancellation, ha_fill_huge_in_light_state, ha_fill_near_max,
    ha_fill_subnormal, ha_fill_million_ties, ha_fill_many_terms;
/* fill_tokens.c: partitions, orders, selections */
ha_merge_fill ha_fill_tokens, ha_fill_splits, ha_fill_orders_of_three, ha_fill_either_order, ha_fill_single_tokens,
    ha_fill_sparse_union, ha_fill_predicted_query;
/* fill_planted.c: rows that an error shows in, and the errors */
ha_merge_fill ha_fill_positive_lse, ha_fill_lse_bf16, ha_fill_boundary_token, ha_fill_group;
ha_merge_plant ha_plant_base_mix, ha_plant_lse_bf16, ha_plant_boundary_token, ha_plant_swapped_heads, ha_plant_stale;

/* random.c */
ha_merge_fill ha_random_fill;
size_t ha_random_states(uint64_t seed);

#endif
