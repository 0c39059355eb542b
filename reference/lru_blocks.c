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

struct cached {
    size_t block, uses, last; /* last: the number of its last use */
};
/* Of a KV head of a sequence. */
struct cache {
    struct cached *of; /* [count] */
    size_t count, uses;
    double hits, replaced; /* of the step */
};

struct ha_def {
    struct ha_shape shape;
    struct ha_def_window window;
    struct ha_def_blocks block;
    double budget, capacity;
    bool lfu;
    struct ha_def_choice choice;
    struct cache *cache;  /* [layers][batch][kv_heads] */
    double (*counted)[3]; /* [layers] hits, misses, replaced */
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "lru_blocks: no memory"); }

static size_t caches(const struct ha_shape *s) { return s->layers * s->batch * s->kv_heads; }

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
    def->lfu = param[POLICY] > 0;
    def->choice = (struct ha_def_choice){ .what = "block", .group = HA_DEF_MAX };
    def->cache = calloc(caches(shape), sizeof *def->cache);
    def->counted = calloc(shape->layers, sizeof *def->counted);
    return def->cache && def->counted ? HA_OK : no_memory(why);
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; def->cache && i < caches(&def->shape); i++) free(def->cache[i].of);
    ha_def_choice_end(&def->choice);
    free(def->cache);
    free(def->counted);
    free(def);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

static struct cached *find(const struct cache *c, size_t block)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].block == block) return &c->of[i];
    return NULL;
}

/* The one that goes first; none of those that are chosen. */
static struct cached *victim(const struct cache *c, const bool *chosen, bool lfu)
{
    struct cached *first = NULL;
    for (size_t i = 0; i < c->count; i++) {
        struct cached *x = &c->of[i];
        if (chosen[x->block]) continue;
        if (!first || (lfu && x->uses != first->uses ? x->uses < first->uses : x->last < first->last)) first = x;
    }
    return first;
}

/* chosen: [count] the blocks of a step. slots: of the cache, as many as are chosen at least */
static enum ha_status update(struct cache *c, const bool *chosen, size_t count, size_t slots, bool lfu,
                             struct ha_why *why)
{
    if (!c->of) c->of = malloc((slots + 1) * sizeof *c->of);
    if (!c->of) return no_memory(why);
    c->hits = c->replaced = 0;
    for (size_t b = 0; b < count; b++) c->hits += chosen[b] && find(c, b);
    for (size_t b = 0; b < count; b++) {
        if (!chosen[b]) continue;
        struct cached *x = find(c, b);
        const size_t uses = x ? x->uses : 0;
        if (!x && c->count < slots) x = &c->of[c->count++];
        else if (!x) x = victim(c, chosen, lfu), c->replaced += 1;
        *x = (struct cached){ b, uses + 1, ++c->uses };
    }
    return HA_OK;
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

static size_t blocks_of(const struct ha_def *def, size_t seq)
{
    const size_t k = ha_def_share(def->budget, ha_def_window_units(&def->window, def->shape.ctx[seq]));
    return k ? k : 1;
}

static enum ha_status judge_note(const struct ha_def_head *h, const char *name, double want, size_t of,
                                 struct ha_why *why)
{
    const double is = ha_def_note(h, name);
    if (is == want) return HA_OK;
    return ha_def_wrong(h, why, "note %s is %g, not %g of %zu blocks", name, is, want, of);
}

static enum ha_status judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), k = blocks_of(def, h->seq),
                 slots = (size_t)(def->capacity * (double)k * (1 + 1e-12));
    struct cache *c = &def->cache[(h->layer * def->shape.batch + h->seq) * def->shape.kv_heads + h->head / heads];
    def->block.count = ha_def_window_units(&def->window, h->tokens - h->queries);
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(ha_def_window_judge(&def->window, h, mark, why));
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, def->block.count, why));
        if (def->block.count > k) ha_def_choice_digests(&def->choice, &def->shape, &def->block, h);
    }
    HA_TRY(ha_def_choice_blocks(&def->choice, &def->block, h, mark, why));
    HA_TRY(ha_def_choice_judge(&def->choice, h, k, why));
    const size_t chosen = ha_ref_smaller(k, def->block.count);
    if (h->head % heads == 0) {
        double *counted = def->counted[h->layer];
        HA_TRY(update(c, def->choice.taken, def->block.count, slots > k ? slots : k, def->lfu, why));
        counted[0] += c->hits;
        counted[1] += (double)chosen - c->hits;
        counted[2] += c->replaced;
    }
    HA_TRY(judge_note(h, "hits", c->hits, chosen, why));
    return judge_note(h, "replaced", c->replaced, slots, why);
}

static void count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    static const char *const name[] = { "hits", "misses", "replaced" };
    for (size_t i = 0; i < def->shape.layers * 3; i++)
        say(arg, name[i % 3], i / 3, def->counted[i / 3][i % 3], def->counted[i / 3][i % 3]);
}

const struct ha_definition ha_definition_lru_blocks = {
    .variant = "lru_blocks", .create = create, .judge = judge, .count = count, .destroy = destroy
};
