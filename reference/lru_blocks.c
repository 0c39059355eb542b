/* A cache of blocks whose list the CPU keeps, by LRU or LFU: what RetroInfer (Chen et al., arXiv 2505.02922) and
 * PQCache (Zhang et al., SIGMOD 2025) do, as CLO has them (Yi et al., arXiv 2511.14510, section 2.2).
 *
 * Of the n tokens before a step the first `sink`, the last `recent` and the step's own are always used. Between these
 * lie candidates: floor((n - sink - recent) / block) blocks. A KV head chooses those k of largest score, all where
 * there are no more, k the least integer >= 1 that is a share `budget` of the candidates of the context; and uses them
 * and no other key. All of it is one part on the device, wherever the keys come from; nothing is padded.
 *
 * The score of a block is the largest over the query heads of the KV head and the step's tokens of
 *   digest = range: scale sum_d max(q_d min_d, q_d max_d), of the least and largest of the block's keys in dimension d;
 *            mean:  scale q . mean, the mean of its keys, rounded to K's type.
 * What rounding may swap is a tie, in which the one that is reported is gone by.
 *
 * A KV head of a sequence has a cache of floor(capacity k) blocks, empty at first. Note `hits` says how many of the
 * chosen blocks it had. Then those that it had not come in, each in a free place or that of a victim, which none of the
 * chosen blocks is; note `replaced` says how many victims there were.
 *   policy = lru: the victim is the block that has not been used for longest. Of the blocks of a step the one of
 *                 smallest index counts as used first.
 *            lfu: the one that was used least often since it came in, of equals the one that lru would take.
 *
 * Params: as in the enum; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { BLOCK, BUDGET, CAPACITY, SINK, RECENT, POLICY, LOOKUP, DIGEST, FETCH };

struct ha_def {
    struct ha_shape shape;
    struct ha_def_window window;
    struct ha_def_blocks block;
    double budget, capacity;
    struct ha_def_choice choice;
    struct ha_def_caches caches;
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "lru_blocks: no memory"); }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->window = (struct ha_def_window){ .sink = (size_t)param[SINK],
                                          .recent = (size_t)param[RECENT],
                                          .unit = (size_t)param[BLOCK] };
    def->block = (struct ha_def_blocks){ .first = def->window.sink,
                                         .size = def->window.unit,
                                         .mean = param[DIGEST] > 0 };
    def->budget = param[BUDGET];
    def->capacity = param[CAPACITY];
    def->choice = (struct ha_def_choice){ .what = "block", .group = HA_DEF_MAX };
    return ha_def_caches_create(&def->caches, shape, param[POLICY] > 0, why);
}

static void destroy(struct ha_def *def)
{
    ha_def_choice_end(&def->choice);
    ha_def_caches_end(&def->caches);
    free(def);
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

static size_t blocks_of(const struct ha_def *def, size_t seq)
{
    const size_t k = ha_def_share(def->budget, ha_def_window_units(&def->window, def->shape.ctx[seq]));
    return k ? k : 1;
}

static enum ha_status lru_blocks_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                       struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), k = blocks_of(def, h->seq),
                 slots = (size_t)(def->capacity * (double)k * (1 + 1e-12));
    def->block.count = ha_def_window_units(&def->window, h->tokens - h->queries);
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(ha_def_window_judge(&def->window, h, mark, why));
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, def->block.count, why));
        if (def->block.count > k) ha_def_choice_digests(&def->choice, &def->shape, &def->block, h);
    }
    HA_TRY(ha_def_choice_blocks(&def->choice, &def->block, h, mark, why));
    HA_TRY(ha_def_choice_judge(&def->choice, h, k, why));
    return ha_def_caches_judge(&def->caches, h, def->choice.taken, def->block.count, slots > k ? slots : k, why);
}

static void lru_blocks_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    ha_def_caches_count(&def->caches, say, arg);
}

const struct ha_definition ha_definition_lru_blocks = {
    .variant = "lru_blocks", .create = create, .judge = lru_blocks_judge, .count = lru_blocks_count, .destroy = destroy
};
