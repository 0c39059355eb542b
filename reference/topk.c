/* Exact top-k attention: the keys of largest score, found by weighing all of them (the oracle of sparse attention,
 * which Loki, Singhania et al., NeurIPS 2024, section 4, and others approximate).
 *
 * Of the n tokens before a step the keys with the k largest scores are used, all where n <= k; and all new ones.
 * Nothing is padded; all of it is one part on the device.
 *
 * The score of key j for query head h is the largest over the step's query tokens of scale q_h . k_j.
 * group = head: each query head has k keys of its own.
 *         max:  the query heads of a KV head have k together, a key's score being the largest of theirs.
 *         union: each has k, and all of them use what any of them has.
 * query = own: q_h is the query of the layer itself.
 *         ahead: in layer l > 0 it is W_Q, bias, norm and rotary position of layer l on the input x of layer l - 1 of
 *         the same token, which is known a layer earlier; layer 0 has its own. Attention is by the own query either
 * way. Ties go to the lower position; but a score is only known up to what binary32 makes of it, the predicted query
 * included, and two within that of each other are a tie in which either is right. Equal scores are such a tie.
 *
 * Params: k, query, group; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { K, QUERY, GROUP };

struct ha_def {
    struct ha_shape shape;
    size_t k;
    bool ahead;
    struct ha_def_choice choice;
    struct ha_def_predicted next[]; /* [batch] */
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "topk: no memory"); }

static enum ha_status no_input(struct ha_why *why)
{
    return ha_why(why, HA_ERROR,
                  "topk: query=ahead needs layer inputs, which the dataset does not have: take one that "
                  "has (residual, walk, trace), or query=own");
}

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const bool ahead = param[QUERY] > 0;
    if (ahead && shape->model_dim == 0) return no_input(why);
    struct ha_def *def = *out = calloc(1, sizeof *def + shape->batch * sizeof def->next[0]);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->k = (size_t)param[K];
    def->ahead = ahead;
    def->choice = (struct ha_def_choice){ .what = "key", .group = (enum ha_def_group)param[GROUP] };
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    for (size_t b = 0; b < def->shape.batch; b++) ha_def_predicted_end(&def->next[b]);
    ha_def_choice_end(&def->choice);
    free(def);
}

/* Of all query heads of the KV head whose first one h is; query: the first of its queries, or what is predicted */
static enum ha_status score_keys(struct ha_def *def, const struct ha_def_head *h, size_t keys, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, all = def->shape.q_heads * dim, heads = def->choice.heads;
    const bool ahead = def->ahead && h->layer > 0;
    double *own = malloc(h->queries * all * sizeof *own), k[HA_REF_DIM_MAX];
    if (!own) return no_memory(why);
    for (size_t t = 0; t < h->queries; t++)
        for (size_t i = 0; i < heads * dim; i++) own[t * all + i] = (double)h->q[t * all + i];
    const double *q = ahead ? def->next[h->seq].q + h->head * dim : own,
                 *off = ahead ? def->next[h->seq].off + h->head * dim : NULL;
    for (size_t j = 0; j < keys; j++) {
        for (size_t d = 0; d < dim; d++) k[d] = (double)ha_load(h->k, j * dim + d, def->shape.dtype);
        for (size_t t = 0; t < h->queries; t++)
            for (size_t g = 0; g < heads; g++) {
                const size_t at = t * all + g * dim;
                ha_def_choice_score(
                    &def->choice, g, j,
                    ha_ref_score_dot(q + at, off ? off + at : NULL, k, NULL, dim, (double)def->shape.scale));
            }
    }
    free(own);
    return HA_OK;
}

static enum ha_status topk_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                 struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, heads = ha_shape_group(&def->shape);
    HA_TRY(ha_def_on_device(h, mark, why));
    for (size_t j = before; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is new", j);
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, before, why));
        if (before > def->k) HA_TRY(score_keys(def, h, before, why));
    }
    for (size_t j = 0; j < before; j++) def->choice.taken[j] = mark[j] != HA_MARK_NONE;
    return ha_def_choice_judge(&def->choice, h, def->k, why);
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t layer = h->layer + 1;
    if (!def->ahead || h->head > 0 || layer == def->shape.layers) return HA_OK;
    if (!h->x || !h->projection || !h->projection[layer].wq) return no_input(why);
    return ha_def_predict(&def->next[h->seq], &def->shape, h, why);
}

const struct ha_definition ha_definition_topk = {
    .variant = "topk", .create = create, .judge = topk_judge, .advance = advance, .destroy = destroy
};
