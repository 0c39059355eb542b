/* Quest (Tang et al., ICML 2024, arXiv 2406.10774, section 3): blocks of keys, chosen by a bound of their scores.
 *
 * Of the n tokens before a step m = floor(n / block) blocks are full. What is behind them is always used, [m block, n)
 * and the new tokens; and of the full blocks the max(1, floor(budget / block)) of largest score, all where there are no
 * more, each whole. Nothing is padded; all of it is one part on the device. The first dense_layers layers use every key
 * (the paper leaves two dense).
 *
 * The score of a block for a query head is the largest over the step's query tokens of
 *   digest = range: scale sum_d max(q_d min_d, q_d max_d), of the least and largest of the block's keys in dimension d;
 *            mean:  scale q . mean, the mean of its keys, rounded to K's type.
 *            Nothing is known of the score of a block whose sum may overflow in binary32.
 * group = head: each query head chooses for itself.
 *         max:  the query heads of a KV head choose together, a block's score being the largest of theirs.
 * Ties go to the lower position; but a score is only known up to what binary32 makes of it, the mean included, and two
 * within that of each other are a tie in which either is right. Equal scores are such a tie.
 *
 * Params: block, budget, dense_layers, digest, group; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/numeric.h"
#include "harness/base/why.h"

#include <float.h>
#include <stdlib.h>

enum { BLOCK, BUDGET, DENSE_LAYERS, DIGEST, GROUP };

/* A block's least and largest of each dimension; with digest = mean what binary32 may make of the mean. */
struct digest {
    double least[HA_REF_DIM_MAX], most[HA_REF_DIM_MAX];
};

struct ha_def {
    struct ha_shape shape;
    size_t block, blocks, dense; /* blocks: how many are chosen */
    bool mean;
    struct ha_def_choice choice;
};

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "quest: no memory");
    def->shape = *shape;
    def->block = (size_t)param[BLOCK];
    def->blocks = (size_t)param[BUDGET] / def->block;
    if (def->blocks == 0) def->blocks = 1;
    def->dense = (size_t)param[DENSE_LAYERS];
    def->mean = param[DIGEST] > 0;
    def->choice = (struct ha_def_choice){ .what = "block", .group = param[GROUP] > 0 ? HA_DEF_MAX : HA_DEF_HEAD };
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    ha_def_choice_end(&def->choice);
    free(def);
}

static double rounded(double x, enum ha_dtype t) { return (double)ha_round((float)x, t); }

/* A mean is a sum of binary32 in any order, over their number, before it is rounded: rounding keeps the order, so that
 * it is between what the least and the largest are rounded to. */
static void digest_of(const struct ha_def *def, const struct ha_def_head *h, size_t block, struct digest *out)
{
    const size_t dim = def->shape.head_dim;
    const enum ha_dtype t = def->shape.dtype;
    const double n = (double)def->block;
    for (size_t d = 0; d < dim; d++) {
        double least = HUGE_VAL, most = -HUGE_VAL, sum = 0, size = 0;
        for (size_t j = block * def->block; j < (block + 1) * def->block; j++) {
            const double k = (double)ha_load(h->k, j * dim + d, t);
            least = fmin(least, k);
            most = fmax(most, k);
            sum += k;
            size += fabs(k);
        }
        const double off = ha_ref_stored(ha_ref_gamma(n + 2) * size / n, sum / n, 0, 0);
        out->least[d] = def->mean ? rounded(sum / n - off, t) : least;
        out->most[d] = def->mean ? rounded(sum / n + off, t) : most;
        /* nothing is known of a sum that may overflow */
        if (def->mean && size > (double)FLT_MAX) out->least[d] = -HUGE_VAL, out->most[d] = HUGE_VAL;
    }
}

static struct ha_ref_score score_of(const struct ha_def *def, const struct digest *digest, const float *query)
{
    double q[HA_REF_DIM_MAX], k[HA_REF_DIM_MAX], off[HA_REF_DIM_MAX];
    for (size_t d = 0; d < def->shape.head_dim; d++) {
        q[d] = (double)query[d];
        k[d] = q[d] < 0 ? digest->least[d] : digest->most[d];
        if (def->mean) k[d] = (digest->least[d] + digest->most[d]) / 2;
        off[d] = (digest->most[d] - digest->least[d]) / 2;
    }
    return ha_ref_score_dot(q, NULL, k, def->mean ? off : NULL, def->shape.head_dim, (double)def->shape.scale);
}

static void score_blocks(struct ha_def *def, const struct ha_def_head *h, size_t blocks)
{
    const size_t dim = def->shape.head_dim;
    struct digest digest;
    for (size_t b = 0; b < blocks; b++) {
        digest_of(def, h, b, &digest);
        for (size_t t = 0; t < h->queries; t++)
            for (size_t g = 0; g < def->choice.heads; g++)
                ha_def_choice_score(&def->choice, g, b,
                                    score_of(def, &digest, h->q + (t * def->shape.q_heads + g) * dim));
    }
}

/* All keys of a layer that is dense, and all behind the last full block. */
static enum ha_status judge_rest(const struct ha_def *def, const struct ha_def_head *h, size_t full,
                                 const uint8_t *mark, struct ha_why *why)
{
    const size_t before = h->tokens - h->queries;
    for (size_t j = h->layer < def->dense ? 0 : full * def->block; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: %s", j,
                                j >= before              ? "it is new"
                                : j >= full * def->block ? "it is behind the last full block"
                                                         : "the layer is dense");
    return HA_OK;
}

static enum ha_status judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    const size_t full = (h->tokens - h->queries) / def->block, heads = ha_shape_group(&def->shape);
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(judge_rest(def, h, full, mark, why));
    if (h->layer < def->dense) return HA_OK;
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, full, why));
        if (full > def->blocks) score_blocks(def, h, full);
    }
    for (size_t b = 0; b < full; b++) {
        const uint8_t *of = mark + b * def->block;
        def->choice.taken[b] = of[0] != HA_MARK_NONE;
        for (size_t i = 1; i < def->block; i++)
            if ((of[i] != HA_MARK_NONE) != def->choice.taken[b])
                return ha_def_wrong(h, why, "key %zu is %s: block %zu is used in part", b * def->block + i,
                                    of[i] ? "used" : "missing", b);
    }
    return ha_def_choice_judge(&def->choice, h, def->blocks, why);
}

const struct ha_definition ha_definition_quest = {
    .variant = "quest", .create = create, .judge = judge, .destroy = destroy
};
