#ifndef HA_DEFECTS_ATTENTION_H
#define HA_DEFECTS_ATTENTION_H

/* Attention in plain loops and binary64, of which a step may be wrong. Zero is right, everywhere. */

#include "harness/api/device.h"

struct ha_wrong_attention {
    /* Which calls it is wrong in: all of these hold. 0: whatever it is. */
    bool products;                                      /* of attend_products; else of attend */
    unsigned dtypes;                                    /* bits, 1u << enum ha_dtype */
    unsigned groups;                                    /* bits, 1u << query heads of a KV head */
    size_t dim_mod, dim_is;                             /* head_dim % dim_mod == dim_is */
    size_t dim_over, keys_over, q_len_over, heads_over; /* more than so many; keys: of the sequence */
    bool indexed, blocks, apart, split;                 /* an index; blocks of more than one row; rows that do not
                                                                      lie one after the other; several runs with keys */
    size_t k_mod, k_is;                                 /* address of the first run's K % k_mod == k_is */
    bool other_threads; /* the process has more or fewer of them than at the first call since ha_wrong_attend_begin */
    double left_over;   /* the first element of o of the call before was more, which a device's own memory may hold */

    /* Which rows of these calls. */
    size_t from_seq, from_head, from_token, one_in; /* one_in: each so many-th row of all calls */

    /* The keys. */
    enum { OWN_HEAD, FIRST_HEAD, NEXT_HEAD, INTERLEAVED } head;
    bool v_alone;                               /* K is of the right head */
    enum { OWN_SEQ, FIRST_SEQ } k_seq, keys_of; /* whose rows; whose number of keys */
    enum { NO_DROP, DROP_FIRST, DROP_LAST, DROP_BOUNDARY, DROP_MIDDLE } drop;
    enum { NOT_TWICE, TWICE_LAST, TWICE_BOUNDARY } twice; /* boundary: between two runs */
    size_t skip_from, skip_to;                            /* positions left out */
    bool in_block_lost, block_16, index_of_first, dense;
    enum { OWN_LIST, FIRST_LIST, NEXT_LIST } list;
    /* causal: sees one more, one less; as if the first query token were the first key; not at all */
    enum { CAUSAL, CAUSAL_LATE, CAUSAL_EARLY, CAUSAL_FROM_TOP, CAUSAL_NOT } mask;

    /* The queries. */
    enum { OWN_Q, FIRST_Q, HEADS_FIRST, NEXT_Q } q;

    /* Scores. */
    size_t dims_less, dims_most;
    double scale, dim_scale; /* times this; as of so many dimensions */
    double most;             /* no score is above */
    double softcap;
    bool all_zero;
    bool nan_is_nothing;   /* a NaN among the scores weighs nothing */
    bool low_is_nan;       /* a score of -inf is NaN */
    bool leaks_k, leaks_v; /* of a key that is not seen: NaN in K, in V */
    bool leaks_tail;       /* NaN in V behind the last key of its block */
    bool v_nan_spreads;
    enum ha_dtype score_type, weight_type, den_type, sum_type, o_type;

    /* Softmax. */
    enum { TRUE_MAX, NO_MAX, MAX_FROM_0, MAX_FROM_LOW, MAX_SO_FAR } max;
    int exp_bits, exp_low; /* exp is off by 2^-exp_bits, up or down; always down */
    double exp_least;      /* weights below exp(-this) are 0 */
    double den_plus;
    bool den_padded, den_short; /* counts rows up to a whole tile of 64 as keys of score 0; leaves the last key out */

    /* LSE. */
    enum { LN, LOG2, MAX_ALONE, SUM_ALONE, MINUS, OF_FIRST_HEAD, OF_SCORES } lse;
    double lse_by, lse_times, lse_zero_over, lse_most; /* added; times this; 0 where |LSE| is more; no more than */
    bool empty_is_0, empty_is_nan, empty_o_is_nan;     /* of no keys: LSE, o */
    float lse_is;                                      /* whatever it should be */

    /* o. */
    enum { OWN_PLACE, OTHER_TOKEN, NEXT_PLACE } place;
    double o_times;
    bool stale, added, not_below, undivided, k_for_v; /* not_below: what was there */

    /* weights */
    enum { AVERAGE, OF_FIRST_TOKEN, OF_LAST_TOKEN, SUMMED, NOT_DIVIDED, A_KEY_LATE } weights;
};

struct ha_wrong_job {
    struct ha_device_attend args;
    const struct ha_device_seq *seqs;
    const struct ha_wrong_attention *wrong;
    bool products;
};
void ha_wrong_attend(const struct ha_wrong_job *job);
/* with each device, and each stream, as that has a thread */
void ha_wrong_attend_begin(void);

#endif
