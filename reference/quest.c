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

#include "harness/base/why.h"

#include <stdlib.h>

enum { BLOCK, BUDGET, DENSE_LAYERS, DIGEST, GROUP };

struct ha_def {
    struct ha_shape shape;
    struct ha_def_blocks block;
    size_t chosen, dense; /* chosen: how many blocks are */
    struct ha_def_choice choice;
};

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "quest: no memory");
    def->shape = *shape;
    def->block = (struct ha_def_blocks){ .size = (size_t)param[BLOCK], .mean = param[DIGEST] > 0 };
    def->chosen = (size_t)param[BUDGET] / def->block.size;
    if (def->chosen == 0) def->chosen = 1;
    def->dense = (size_t)param[DENSE_LAYERS];
    def->choice = (struct ha_def_choice){ .what = "block", .group = param[GROUP] > 0 ? HA_DEF_MAX : HA_DEF_HEAD };
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    ha_def_choice_end(&def->choice);
    free(def);
}

/* All keys of a layer that is dense, and all behind the last full block. */
static enum ha_status judge_rest(const struct ha_def *def, const struct ha_def_head *h, size_t full,
                                 const uint8_t *mark, struct ha_why *why)
{
    const size_t before = h->tokens - h->queries;
    for (size_t j = h->layer < def->dense ? 0 : full * def->block.size; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: %s", j,
                                j >= before                   ? "it is new"
                                : j >= full * def->block.size ? "it is behind the last full block"
                                                              : "the layer is dense");
    return HA_OK;
}

static enum ha_status quest_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                  struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape);
    def->block.count = (h->tokens - h->queries) / def->block.size;
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(judge_rest(def, h, def->block.count, mark, why));
    if (h->layer < def->dense) return HA_OK;
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, def->block.count, why));
        if (def->block.count > def->chosen) ha_def_choice_digests(&def->choice, &def->shape, &def->block, h);
    }
    HA_TRY(ha_def_choice_blocks(&def->choice, &def->block, h, mark, why));
    return ha_def_choice_judge(&def->choice, h, def->chosen, why);
}

const struct ha_definition ha_definition_quest = {
    .variant = "quest", .create = create, .judge = quest_judge, .destroy = destroy
};
