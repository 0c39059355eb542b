#ifndef HA_BLOCK_SPARSE_LABEL_FIT_H
#define HA_BLOCK_SPARSE_LABEL_FIT_H

/* Features and labels of a context's observed queries, which a predictor of budgets is trained on (Fluxion, section
 * 5.2): what a hook fit hands over. The observed queries are cut into spans of HA_LABEL_FIT_SPAN: a prefill ends with
 * the first query of a span, its anchor, and those behind it are decode steps, whose tokens stay on the device. */

#include "suites/block_sparse/labels.h"

enum { HA_LABEL_FIT_SPAN = 32, HA_LABEL_FIT_LABELS = 8 };

struct ha_label_fit {
    size_t sink, recent; /* as ha_label_host has them */
    enum ha_digest_kind digest;
    enum ha_criterion criterion;
    double tau;
};

/* Tensors, of N samples, each a query of a query head that has a host segment:
 *   features [N][HA_FEATURES], not standardised; the LSE of an empty segment is HA_LABEL_FIT_EMPTY
 *   labels [N][8]: bgt0, k, s, budgets of blocks of 1, 16, 32, 64 and 128 keys
 *   fit [layers][q_heads][4], means over samples: R2 of the line, of those that have one, as none has that streams; the
 * share that streams; |LSE_HOST less the LSE of the host segment|; the largest distance of the distribution of z(q)
 * from the normal one of its mean and variance (Kolmogorov-Smirnov). 0 where there is nothing to average. In the order
 * of layers, sequences, queries and query heads. HA_ERROR with words: there is no sample, or they would take more than
 * 60 MB, or K, V or a query is not finite. */
#define HA_LABEL_FIT_EMPTY -1000.0f
enum ha_status ha_label_fit(const struct ha_fit_input *in, const struct ha_label_fit *of, struct ha_fit_writer *out,
                            struct ha_why *why);

#endif
