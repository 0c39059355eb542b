/* The fixed hybrid that Fluxion is compared with (section 8, "w/o Fluxion"): first and recent tokens on the
 * device, blocks of the others on the host.
 *
 * Of the n tokens before a step the first `sink` are on the device. What follows them is cut into blocks of `block`
 * tokens; a block is on the host iff it is full and none of its tokens is among the last `recent` of the n. All else is
 * on the device: the later tokens, and the new ones. Each step uses everything on the device, and of the m blocks on
 * the host the k of largest score, each whole, by the host:
 *   k is the least integer >= 1 with k / m >= budget; none where m = 0. The quotient is that of binary64, so that a
 *   budget of 0.07 is 7 of 100 blocks.
 * Nothing is padded.
 *
 * Scores are Quest's (reference/quest.c), by digest = range or mean, a block's being the largest over the step's query
 * tokens.
 * group = head:  each query head chooses for itself.
 *         max:   the query heads of a KV head choose together, a block's score being the largest of theirs.
 *         union: each query head chooses k; all of a KV head use what one of them chose.
 * Two scores within what binary32 makes of them are a tie in which either is right.
 *
 * Params: sink, recent, block, budget, digest, group; the rule ignores layout. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { SINK, RECENT, BLOCK, BUDGET, DIGEST, GROUP };

struct ha_def {
    struct ha_shape shape;
    size_t recent;
    double budget;
    struct ha_def_blocks block; /* on the host */
    struct ha_def_choice choice;
    double *counted; /* [layers] blocks on the host after the step, of all sequences */
};

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    static const enum ha_def_group groups[] = { HA_DEF_HEAD, HA_DEF_MAX, HA_DEF_UNION };
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "hybrid_fixed: no memory");
    def->shape = *shape;
    def->recent = (size_t)param[RECENT];
    def->budget = param[BUDGET];
    def->block = (struct ha_def_blocks){ .first = (size_t)param[SINK],
                                         .size = (size_t)param[BLOCK],
                                         .mean = param[DIGEST] > 0 };
    def->choice = (struct ha_def_choice){ .what = "block", .group = groups[(size_t)param[GROUP]] };
    def->counted = calloc(shape->layers, sizeof *def->counted);
    return def->counted ? HA_OK : ha_why(why, HA_ERROR, "hybrid_fixed: no memory");
}

static void destroy(struct ha_def *def)
{
    free(def->counted);
    ha_def_choice_end(&def->choice);
    free(def);
}

static size_t blocks_on_host(const struct ha_def *def, size_t before)
{
    size_t count = 0;
    while (def->block.first + (count + 1) * def->block.size + def->recent <= before) count++;
    return count;
}

/* Which side each key belongs to, and that the device uses all it has. */
static enum ha_status judge_sides(const struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                  struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, first = def->block.first,
                 last = first + def->block.count * def->block.size;
    for (size_t j = 0; j < h->tokens; j++) {
        if (def->block.count && j >= first && j < last) {
            if (mark[j] & HA_MARK_DEVICE) return ha_def_wrong(h, why, "key %zu is no longer on the device", j);
            continue;
        }
        const char *is = j >= before ? "new" : j < first ? "of the sink" : "recent, or of a block that is not old yet";
        if (mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is %s", j, is);
        if (mark[j] & HA_MARK_HOST) return ha_def_wrong(h, why, "key %zu is not the host's: it is %s", j, is);
    }
    return HA_OK;
}

static enum ha_status hybrid_fixed_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                         struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), blocks = blocks_on_host(def, h->tokens - h->queries),
                 want = ha_def_share(def->budget, blocks);
    def->block.count = blocks;
    HA_TRY(judge_sides(def, h, mark, why));
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, blocks, why));
        if (blocks > want) ha_def_choice_digests(&def->choice, &def->shape, &def->block, h);
    }
    HA_TRY(ha_def_choice_blocks(&def->choice, &def->block, h, mark, why));
    return ha_def_choice_judge(&def->choice, h, want, why);
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    if (h->head > 0) return HA_OK;
    if (h->seq == 0) def->counted[h->layer] = 0;
    def->counted[h->layer] += (double)blocks_on_host(def, h->tokens);
    return HA_OK;
}

static void hybrid_fixed_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    for (size_t layer = 0; layer < def->shape.layers; layer++) {
        const double blocks = def->counted[layer] / (double)def->shape.batch;
        say(arg, "host_blocks", layer, blocks, blocks);
    }
}

const struct ha_definition ha_definition_hybrid_fixed = { .variant = "hybrid_fixed",
                                                          .create = create,
                                                          .judge = hybrid_fixed_judge,
                                                          .advance = advance,
                                                          .count = hybrid_fixed_count,
                                                          .destroy = destroy };
