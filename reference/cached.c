/* Caches of blocks, of each KV head one, whose list the CPU keeps. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "reference: no memory for caches"); }

static size_t caches(const struct ha_shape *s) { return s->layers * s->batch * s->kv_heads; }

enum ha_status ha_def_caches_create(struct ha_def_caches *c, const struct ha_shape *shape, bool lfu, struct ha_why *why)
{
    c->shape = *shape;
    c->lfu = lfu;
    c->cache = calloc(caches(shape), sizeof *c->cache);
    c->counted = calloc(shape->layers, sizeof *c->counted);
    return c->cache && c->counted ? HA_OK : no_memory(why);
}

void ha_def_caches_end(struct ha_def_caches *c)
{
    for (size_t i = 0; c->cache && i < caches(&c->shape); i++) free(c->cache[i].of);
    free(c->cache);
    free(c->counted);
}

static struct ha_def_cached *find(const struct ha_def_cache *c, size_t block)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].block == block) return &c->of[i];
    return NULL;
}

/* The one that goes first; none of those that are chosen. */
static struct ha_def_cached *victim(const struct ha_def_cache *c, const bool *chosen, bool lfu)
{
    struct ha_def_cached *first = NULL;
    for (size_t i = 0; i < c->count; i++) {
        struct ha_def_cached *x = &c->of[i];
        if (chosen[x->block]) continue;
        if (!first || (lfu && x->uses != first->uses ? x->uses < first->uses : x->last < first->last)) first = x;
    }
    return first;
}

/* chosen: [count] the blocks of a step. slots: as many as are chosen at least */
static enum ha_status update(struct ha_def_cache *c, const bool *chosen, size_t count, size_t slots, bool lfu,
                             struct ha_why *why)
{
    if (!c->of) c->of = malloc((slots + 1) * sizeof *c->of);
    if (!c->of) return no_memory(why);
    c->hits = c->replaced = 0;
    for (size_t b = 0; b < count; b++) c->hits += chosen[b] && find(c, b);
    for (size_t b = 0; b < count; b++) {
        if (!chosen[b]) continue;
        struct ha_def_cached *x = find(c, b);
        const size_t uses = x ? x->uses : 0;
        if (!x && c->count < slots) x = &c->of[c->count++];
        else if (!x) x = victim(c, chosen, lfu), c->replaced += 1;
        *x = (struct ha_def_cached){ b, uses + 1, ++c->uses };
    }
    return HA_OK;
}

static enum ha_status judge_note(const struct ha_def_head *h, const char *name, double want, size_t of,
                                 struct ha_why *why)
{
    const double is = ha_def_note(h, name);
    if (is == want) return HA_OK;
    return ha_def_wrong(h, why, "note %s is %g, not %g of %zu", name, is, want, of);
}

enum ha_status ha_def_caches_judge(struct ha_def_caches *c, const struct ha_def_head *h, const bool *chosen,
                                   size_t count, size_t slots, struct ha_why *why)
{
    const struct ha_shape *s = &c->shape;
    const size_t heads = ha_shape_group(s);
    struct ha_def_cache *cache = &c->cache[(h->layer * s->batch + h->seq) * s->kv_heads + h->head / heads];
    size_t all = 0;
    for (size_t b = 0; b < count; b++) all += chosen[b];
    if (h->head % heads == 0) {
        double *counted = c->counted[h->layer];
        HA_TRY(update(cache, chosen, count, slots, c->lfu, why));
        counted[0] += cache->hits;
        counted[1] += (double)all - cache->hits;
        counted[2] += cache->replaced;
    }
    HA_TRY(judge_note(h, "hits", cache->hits, all, why));
    return judge_note(h, "replaced", cache->replaced, slots, why);
}

void ha_def_caches_count(const struct ha_def_caches *c, ha_def_count *say, void *arg)
{
    static const char *const name[] = { "hits", "misses", "replaced" };
    for (size_t i = 0; i < c->shape.layers * 3; i++)
        say(arg, name[i % 3], i / 3, c->counted[i / 3][i % 3], c->counted[i / 3][i % 3]);
}
