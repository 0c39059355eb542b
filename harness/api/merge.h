#ifndef HA_API_MERGE_H
#define HA_API_MERGE_H

/* The merge of M attention states over disjoint keys, in the forms that engines use. Source: the log-sum-exp identity
 * of FlashAttention and of HGCA 3.3, with the shift by the maximum that HGCA's printed formula lacks. */

#include "harness/api/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a state is, and how the states are weighed. L = ln sum exp(s) over the state's keys. */
enum ha_form {
    HA_FORM_NATURAL, /* (o, L): weights exp(L_m - max L), divided by their own sum */
    HA_FORM_BASE2,   /* (o, L / ln 2): the same with exp2 and log2 */
    HA_FORM_DIRECT,  /* (o, L): merged L first, then the weights exp(L_m - L) as they are */
    HA_FORM_MAX_SUM, /* (o, max s, sum exp(s - max)): weights sum_m exp(max_m - max), divided by their
                      * sum; no logarithm is stored, so that an offset of all scores costs nothing */
};
enum { HA_FORM_COUNT = 4 };

static inline const char *ha_form_name(enum ha_form f)
{
    return f == HA_FORM_NATURAL ? "natural" : f == HA_FORM_BASE2 ? "base2" : f == HA_FORM_DIRECT ? "direct" : "max_sum";
}

/* Rows are [tokens][heads]. o is normalised: o of row (t, h) starts at element
 * t * o_token_stride + h * o_head_stride, its lse (and sum) at t * lse_token_stride + h * lse_head_stride. */
struct ha_merge_state {
    void
        *o; /* [dim] a row, of ha_merge.dtype, of out ha_merge.fp8; of a state only read, unless it is the output too */
    float *lse; /* the maximum in HA_FORM_MAX_SUM; -inf: no keys, and o is not read */
    float *sum; /* HA_FORM_MAX_SUM alone; not read of a state whose maximum is -inf */
    size_t o_token_stride, o_head_stride, lse_token_stride, lse_head_stride; /* in elements */
};

/* All states empty gives (0, -inf) (and sum 0). NaN in L, or in o where the state has keys, gives NaN.
 * One state alone is copied, bit for bit, but that a NaN that signals may become a quiet one. Arithmetic is binary32;
 * o is rounded to dtype once; or, as vLLM's merge_attn_states does for a projection in 8 bits, o / fp8_scale to fp8:
 * to the nearest, ties to even; beyond the largest number, infinity too, it saturates; NaN stays NaN. */
struct ha_merge {
    enum ha_form form;
    enum ha_dtype dtype;    /* of o, in all states and out */
    enum ha_fp8 fp8;        /* HA_FP8_NONE, or out.o has bytes of this type, and out is none of the states */
    float fp8_scale;        /* > 0; read where there is fp8 */
    bool plus_inf_is_empty; /* L = +inf means no keys, too; otherwise it gives NaN */
    const struct ha_merge_state *states;
    size_t states_count, tokens, heads, dim;
    struct ha_merge_state out; /* may be one of the states: the same pointers and strides */
};

/* bytes of an element of o: of a state, or of the result */
static inline size_t ha_merge_o_bytes(const struct ha_merge *m, bool result)
{
    return result && m->fp8 ? 1 : ha_dtype_bytes(m->dtype);
}

/* What a merge promises, and the rounding that its bound is computed from. */
enum ha_alias { HA_ALIAS_NONE, HA_ALIAS_FIRST, HA_ALIAS_LAST };             /* out is that state */
enum ha_lse_order { HA_LSE_ANY, HA_LSE_TOKENS_HEADS, HA_LSE_HEADS_TOKENS }; /* LSE strides: any, or contiguous so */
struct ha_merge_traits {
    unsigned forms, dtypes, aliases; /* bits: 1u << enum ha_form, ha_dtype, ha_alias */
    unsigned fp8;                    /* bits: 1u << enum ha_fp8; 0: o has the type of the states */
    size_t states_max;               /* in one call; 0: any number */
    enum ha_lse_order lse_order;
    bool o_strides;          /* o rows may be further apart than dim, differently in each state */
    bool plus_inf;           /* honours plus_inf_is_empty */
    bool commutes;           /* merge(a, b) has the bits of merge(b, a) */
    bool varies;             /* the same states may give other bits another time: ha_profile.varies */
    double exp_eps, log_eps; /* relative errors of exp on [-104, 0] (exp2 on [-150, 0]) and of log */
    double depth_extra;      /* a weighted sum of M states has at most M + 2 + depth_extra roundings */
    double rescales;         /* of the running result, for each state: 0 two-pass, 1 online */
};

#ifdef __cplusplus
}
#endif
#endif
