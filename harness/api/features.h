#ifndef HA_API_FEATURES_H
#define HA_API_FEATURES_H

/* What a predictor of budgets knows of a query head (Fluxion, appendix A). q: the step's query; q': the anchor, the
 * query of the last token of the prefill. The host segment is the tokens of the prefill that went to the host; sink and
 * local are the tokens on the device before and behind them. z(q): scale q.k / |q| of the keys of the host segment. A
 * variance is that of the population, a kurtosis not the excess; where the second moment is 0, skewness and kurtosis
 * are 0. Statistics of an empty segment are 0, its LSE is -inf. ONLINE ones change with the query, the others are KNOWN
 * after the prefill. */

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HA_FEATURES_ALL(ONE)                                                                \
    ONE(LAYER, layer, KNOWN)                                                                \
    ONE(HEAD, head, KNOWN)                                                                  \
    ONE(HOST_KEYS, host_keys, KNOWN)                                                        \
    ONE(DEVICE_KEYS, device_keys, ONLINE) /* that the query sees, its own token's too */    \
    /* 4: means of |k| and |v| over sink; |mean k| and |mean v| of the host segment */      \
    ONE(K_NORM_SINK, k_norm_sink, KNOWN)                                                    \
    ONE(V_NORM_SINK, v_norm_sink, KNOWN)                                                    \
    ONE(K_MEAN_NORM, k_mean_norm, KNOWN)                                                    \
    ONE(V_MEAN_NORM, v_mean_norm, KNOWN)                                                    \
    /* 8: of |k| and |v| of the host segment */                                             \
    ONE(K_NORM_MEAN, k_norm_mean, KNOWN)                                                    \
    ONE(K_NORM_VARIANCE, k_norm_variance, KNOWN)                                            \
    ONE(K_NORM_SKEWNESS, k_norm_skewness, KNOWN)                                            \
    ONE(K_NORM_KURTOSIS, k_norm_kurtosis, KNOWN)                                            \
    ONE(V_NORM_MEAN, v_norm_mean, KNOWN)                                                    \
    ONE(V_NORM_VARIANCE, v_norm_variance, KNOWN)                                            \
    ONE(V_NORM_SKEWNESS, v_norm_skewness, KNOWN)                                            \
    ONE(V_NORM_KURTOSIS, v_norm_kurtosis, KNOWN)                                            \
    /* 16: the mean of z(q), and moments of z(q') */                                        \
    ONE(SCORE_MEAN, score_mean, ONLINE)                                                     \
    ONE(ANCHOR_SCORE_MEAN, anchor_score_mean, KNOWN)                                        \
    ONE(ANCHOR_SCORE_VARIANCE, anchor_score_variance, KNOWN)                                \
    ONE(ANCHOR_SCORE_SKEWNESS, anchor_score_skewness, KNOWN)                                \
    ONE(ANCHOR_SCORE_KURTOSIS, anchor_score_kurtosis, KNOWN)                                \
    /* 21: that of the host segment by moments, ln H + |q| m + |q|^2 v / 2, m the mean of   \
     * z(q) and v the variance of z(q'); that of q' exactly */                              \
    ONE(LSE_SINK, lse_sink, ONLINE)                                                         \
    ONE(LSE_HOST, lse_host, ONLINE)                                                         \
    ONE(LSE_LOCAL, lse_local, ONLINE)                                                       \
    ONE(ANCHOR_LSE_SINK, anchor_lse_sink, KNOWN)                                            \
    ONE(ANCHOR_LSE_HOST, anchor_lse_host, KNOWN)                                            \
    ONE(ANCHOR_LSE_LOCAL, anchor_lse_local, KNOWN)                                          \
    /* 27: of the attention over a segment alone */                                         \
    ONE(O_NORM_SINK, o_norm_sink, ONLINE)                                                   \
    ONE(O_NORM_LOCAL, o_norm_local, ONLINE)                                                 \
    ONE(ANCHOR_O_NORM_SINK, anchor_o_norm_sink, KNOWN)                                      \
    ONE(ANCHOR_O_NORM_HOST, anchor_o_norm_host, KNOWN)                                      \
    ONE(ANCHOR_O_NORM_LOCAL, anchor_o_norm_local, KNOWN)                                    \
    ONE(Q_NORM, q_norm, ONLINE)                                                             \
    ONE(ANCHOR_Q_NORM, anchor_q_norm, KNOWN)                                                \
    ONE(Q_COSINE, q_cosine, ONLINE) /* of q and q'; 0 where one of them is */               \
    /* 35: the least share of blocks of so many keys that q' needs */                       \
    ONE(ANCHOR_BUDGET_16, anchor_budget_16, KNOWN)                                          \
    ONE(ANCHOR_BUDGET_32, anchor_budget_32, KNOWN)                                          \
    ONE(ANCHOR_BUDGET_64, anchor_budget_64, KNOWN)                                          \
    ONE(ANCHOR_BUDGET_128, anchor_budget_128, KNOWN)                                        \
    /* 39: the largest of all query heads, of the attention over sink and local together */ \
    ONE(O_NORM_MAX, o_norm_max, ONLINE)                                                     \
    ONE(ANCHOR_O_NORM_MAX, anchor_o_norm_max, KNOWN)

#define HA_FEATURE_ENUM(NAME, name, when) HA_FEATURE_##NAME,
enum ha_feature { HA_FEATURES_ALL(HA_FEATURE_ENUM) HA_FEATURES };
#undef HA_FEATURE_ENUM

/* Standardised: (f - mean) * inv in binary32, clamped to [-LIMIT, LIMIT]; 0 where inv is 0, of a feature that was
 * constant when the means were learnt. A NaN stays one. */
enum { HA_FEATURE_LIMIT = 10 };

/* Of feature i: harness/base/features.c. */
const char *ha_feature_name(size_t i);
bool ha_feature_online(size_t i);

#ifdef __cplusplus
}
#endif
#endif
