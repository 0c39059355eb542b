/* GPU-only block-sparse attention over KV in host memory (Fluxion, Yao et al., arXiv 2605.07719, section 2.2), chosen
 * by Quest's digests.
 *
 * Of the n tokens before a step m = floor(n / block) blocks are full. What is behind them is always used, [m block, n)
 * and the new tokens; and of the full blocks the k of largest score, each whole, k the least integer >= 1 with
 * k / m >= budget. All of it is attended over by the device, in one part, wherever the keys lie. Nothing is padded.
 *
 * The score of a block for a query head is the largest over the step's query tokens of
 *   digest = range: scale sum_d max(q_d min_d, q_d max_d), of the least and largest of the block's keys in dimension d;
 *            mean:  scale q . mean, the mean of its keys, rounded to K's type.
 * group = head: each query head chooses for itself.
 *         max:  the query heads of a KV head choose together, a block's score being the largest of theirs.
 * Ties go to the lower position, and what rounding may swap is a tie, as for Quest (reference/quest.c).
 *
 * Params: block, budget, digest, group; the rule ignores the others. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { BLOCK, BUDGET, DIGEST, GROUP };

struct ha_def {
    struct ha_shape shape;
    struct ha_def_blocks block;
    double budget;
    struct ha_def_choice choice;
};

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "gpu_only: no memory");
    def->shape = *shape;
    def->block = (struct ha_def_blocks){ .size = (size_t)param[BLOCK], .mean = param[DIGEST] > 0 };
    def->budget = param[BUDGET];
    def->choice = (struct ha_def_choice){ .what = "block", .group = param[GROUP] > 0 ? HA_DEF_MAX : HA_DEF_HEAD };
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    ha_def_choice_end(&def->choice);
    free(def);
}

static enum ha_status gpu_only_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                     struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, heads = ha_shape_group(&def->shape);
    struct ha_def_blocks *block = &def->block;
    block->count = before / block->size;
    const size_t want = ha_def_share(def->budget, block->count);
    HA_TRY(ha_def_on_device(h, mark, why));
    for (size_t j = block->count * block->size; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j,
                                j >= before ? "new" : "behind the last full block");
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, block->count, why));
        if (block->count > want) ha_def_choice_digests(&def->choice, &def->shape, block, h);
    }
    HA_TRY(ha_def_choice_blocks(&def->choice, block, h, mark, why));
    return ha_def_choice_judge(&def->choice, h, want, why);
}

const struct ha_definition ha_definition_gpu_only = {
    .variant = "gpu_only", .create = create, .judge = gpu_only_judge, .destroy = destroy
};
