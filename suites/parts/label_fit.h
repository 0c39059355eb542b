#ifndef HA_PARTS_LABEL_FIT_H
#define HA_PARTS_LABEL_FIT_H

/* Features and labels of a context's observed queries, which a predictor of budgets is trained on (Fluxion, section
 * 5.2): what a hook fit hands over. The observed queries are cut into spans of HA_LABEL_FIT_SPAN: a prefill ends with
 * the first query of a span, its anchor, and those behind it are decode steps, whose tokens stay on the device. */

#include "suites/parts/labels.h"

enum { HA_LABEL_FIT_SPAN = 32, HA_LABEL_FIT_LABELS = 8 };

struct ha_label_fit {
    size_t sink, recent; /* as ha_label_host has them */
    enum ha_digest_kind digest;
    enum ha_criterion criterion;
    double tau;
};

/* Tensors, N samples of a query of a query head each:
 *   features [N][HA_FEATURES], not standardised
 *   labels [N][8]: bgt0, k, s, budgets of blocks of 1, 16, 32, 64 and 128 keys
 *   fit [layers][q_heads][4]: mean R2 of the line over samples that do not stream and have one, share of samples that
 *     stream, mean |LSE_HOST less the true one|, mean largest distance of the distribution of z(q) from a normal one
 *     (Kolmogorov and Smirnov's)
 * HA_ERROR with words: there is no sample, or they would take more than 60 MB, or K, V or a query is not finite. */
enum ha_status ha_label_fit(const struct ha_fit_input *in, const struct ha_label_fit *of, struct ha_fit_writer *out,
                            struct ha_why *why);

#endif
