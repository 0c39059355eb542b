/* InfiniGen (Lee et al., OSDI 2024, section 4): keys that are fetched by a rehearsal of their scores, made of few
 * columns, a layer ahead.
 *
 * Of the n tokens before a step those keys are used whose score is not below the largest one less alpha, but not more
 * than max(1, floor(most n)), then those of largest score; and all new ones. Nothing is padded; all of it is one part
 * on the device.
 *
 * Learnt from the prefill, of each layer and KV head: A, orthonormal, whose rows are right singular vectors of the
 * matrix of the observed queries of its query heads, of all sequences together; the identity where there are none. Of
 * the turned columns, A rounded to binary32, those max(1, ceil(columns head_dim)) are kept for which the sum of |A q|
 * over the observed queries and |A k| over the keys of all contexts is largest. Singular vectors have no sign, and
 * those of equal singular values no direction: any of these is right. So it is reported, and judged before the rest
 * goes by it (ha_def_skew_judge).
 *
 * The score of key j for query head h is the largest over the step's query tokens of scale A'q_h . A'k_j, A' what is
 * kept of A, A'k_j rounded to K's type. Nothing is known of one that may overflow.
 * group = head: each query head has its own threshold and keys.
 *         max:  the query heads of a KV head have them together, a key's score being the largest of theirs.
 * q_h in layer l > 0 is W_Q, bias, norm and rotary position of layer l on the input x of layer l - 1 of the same token;
 * layer 0 has its own. Attention is by the own query either way.
 * A score is only known up to what binary32 makes of it; where it decides by less, either answer is right.
 *
 * Params: alpha, most, columns, group; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { ALPHA, MOST, COLUMNS, GROUP };

struct ha_def {
    struct ha_shape shape;
    double alpha, most;
    size_t columns;
    struct ha_def_choice choice;
    struct ha_def_skew *skew;       /* [layers][kv_heads] */
    struct ha_def_predicted next[]; /* [batch] */
};

/* Numbers, and how far off they may be. */
struct about {
    double value[HA_REF_DIM_MAX], off[HA_REF_DIM_MAX];
};

static enum ha_status no_input(struct ha_why *why)
{
    return ha_why(why, HA_ERROR,
                  "infinigen: a layer behind the first needs the input of the one before, which the dataset does not "
                  "have: take one that has (residual, walk, trace)");
}

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    if (shape->layers > 1 && shape->model_dim == 0) return no_input(why);
    struct ha_def *def = *out = calloc(1, sizeof *def + shape->batch * sizeof def->next[0]);
    if (def) def->skew = calloc(shape->layers * shape->kv_heads, sizeof *def->skew);
    if (!def || !def->skew) return ha_why(why, HA_ERROR, "infinigen: no memory");
    def->shape = *shape;
    def->alpha = param[ALPHA];
    def->most = param[MOST];
    def->columns = (size_t)ceil(param[COLUMNS] * (double)shape->head_dim);
    if (def->columns < 1) def->columns = 1;
    def->choice = (struct ha_def_choice){ .what = "key", .group = param[GROUP] > 0 ? HA_DEF_MAX : HA_DEF_HEAD };
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    for (size_t b = 0; b < def->shape.batch; b++) ha_def_predicted_end(&def->next[b]);
    for (size_t i = 0; def->skew && i < def->shape.layers * def->shape.kv_heads; i++) ha_def_skew_end(&def->skew[i]);
    free(def->skew);
    ha_def_choice_end(&def->choice);
    free(def);
}

static struct ha_def_skew *skew_of(const struct ha_def *def, const struct ha_def_head *h)
{
    return &def->skew[h->layer * def->shape.kv_heads + h->head / ha_shape_group(&def->shape)];
}

static enum ha_status infinigen_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    return ha_def_skew_observe(skew_of(def, h), &def->shape, h, why);
}

/* The columns of x that are kept: sums of binary32 in any order, rounded to type t. off: of x, or NULL */
static void cut(const struct ha_def *def, const double *learnt, const double *x, const double *off, enum ha_dtype t,
                struct about *out)
{
    const size_t dim = def->shape.head_dim;
    for (size_t c = 0; c < def->columns; c++) {
        const double *a = learnt + (size_t)learnt[dim * dim + c] * dim;
        double sum = 0, size = 0, from = 0;
        for (size_t d = 0; d < dim; d++) {
            const double by = (double)(float)a[d];
            sum += by * x[d];
            size += fabs(by * x[d]);
            from += off ? fabs(by) * off[d] : 0;
        }
        from += ha_ref_gamma((double)dim + 3) * (size + from) + HA_REF_ETA;
        /* rounding keeps the order */
        const double low = (double)ha_round((float)(sum - from), t), high = (double)ha_round((float)(sum + from), t);
        out->value[c] = (low + high) / 2;
        out->off[c] = (high - low) / 2;
    }
}

static struct ha_ref_score score_of(const struct ha_def *def, const struct about *q, const struct about *k)
{
    const struct ha_ref_score score = ha_ref_score_dot(q->value, q->off, k->value, k->off, def->columns,
                                                       (double)def->shape.scale);
    /* a column that may be infinite, or is */
    if (isnan(score.low) || isnan(score.high)) return (struct ha_ref_score){ score.value, -HUGE_VAL, HUGE_VAL };
    return score;
}

/* Of all query heads of the KV head whose first one h is */
static enum ha_status score_keys(struct ha_def *def, const struct ha_def_head *h, size_t keys, struct ha_why *why)
{
    const struct ha_shape *s = &def->shape;
    const size_t dim = s->head_dim, all = s->q_heads * dim, heads = def->choice.heads;
    const double *learnt = skew_of(def, h)->learnt;
    struct about *q = malloc(h->queries * heads * sizeof *q), key;
    double x[HA_REF_DIM_MAX];
    if (!q) return ha_why(why, HA_ERROR, "infinigen: no memory for %zu queries", h->queries * heads);
    for (size_t i = 0; i < h->queries * heads; i++) {
        const size_t at = i / heads * all + i % heads * dim;
        const struct ha_def_predicted *next = &def->next[h->seq];
        for (size_t d = 0; d < dim; d++) x[d] = (double)h->q[at + d];
        if (h->layer == 0) cut(def, learnt, x, NULL, HA_F32, &q[i]);
        else cut(def, learnt, next->q + h->head * dim + at, next->off + h->head * dim + at, HA_F32, &q[i]);
    }
    for (size_t j = 0; j < keys; j++) {
        for (size_t d = 0; d < dim; d++) x[d] = (double)ha_load(h->k, j * dim + d, s->dtype);
        cut(def, learnt, x, NULL, s->dtype, &key);
        for (size_t i = 0; i < h->queries * heads; i++)
            ha_def_choice_score(&def->choice, i % heads, j, score_of(def, &q[i], &key));
    }
    free(q);
    return HA_OK;
}

static enum ha_status infinigen_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                      struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, heads = ha_shape_group(&def->shape);
    size_t most = (size_t)(def->most * (double)before);
    if (most < 1) most = 1;
    HA_TRY(ha_def_on_device(h, mark, why));
    for (size_t j = before; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is new", j);
    if (h->head % heads == 0) {
        HA_TRY(ha_def_skew_judge(skew_of(def, h), &def->shape, h, def->columns, why));
        HA_TRY(ha_def_choice_begin(&def->choice, heads, before, why));
        HA_TRY(score_keys(def, h, before, why));
    }
    for (size_t j = 0; j < before; j++) def->choice.taken[j] = mark[j] != HA_MARK_NONE;
    return ha_def_choice_judge_within(&def->choice, h, def->alpha, most, why);
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t layer = h->layer + 1;
    if (h->head > 0 || layer == def->shape.layers) return HA_OK;
    if (!h->x || !h->projection || !h->projection[layer].wq) return no_input(why);
    return ha_def_predict(&def->next[h->seq], &def->shape, h, why);
}

const struct ha_definition ha_definition_infinigen = { .variant = "infinigen",
                                                       .create = create,
                                                       .prefill = infinigen_prefill,
                                                       .judge = infinigen_judge,
                                                       .advance = advance,
                                                       .destroy = destroy };
