/* TOVA (Oren et al., EMNLP 2024): a cache of a fixed number of tokens, of which the newest query drops those that it
 * weighs least.
 *
 * room = max(1, floor(budget * ctx)), the product in binary64, for each sequence and layer; all its heads have the same
 * tokens. After the prefill the weight of a token is the mean over the query heads of the softmax weight that the last
 * observed query gives it in full attention; without observed queries newer tokens weigh more than older ones. After a
 * step it is the mean over query heads and query tokens of its weight in attention over the kept tokens and the new
 * ones. Either time the `room` tokens of largest weight stay, all where there are no more, and of equals the newer
 * ones; new tokens are no exception. The others are gone. The keys of a step are what was kept and the new tokens.
 * Nothing is padded. Params: budget.
 *
 * Which tokens were kept shows one step later. Every weight carries the error that binary32 may have made of it; a
 * choice is right if some values within these errors lead to it, and is then adopted. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { BUDGET };

/* The tokens that a layer may still have of a sequence, ascending: more than it keeps until its choice is known. */
struct cache {
    size_t count;
    uint32_t *token;
    struct ha_ref_weight *weight;
};

struct ha_def {
    struct ha_shape shape;
    double budget;
    struct cache cache[]; /* [layers][batch] */
};

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    *def = calloc(1, sizeof **def + shape->layers * shape->batch * sizeof(*def)->cache[0]);
    if (!*def) return ha_why(why, HA_ERROR, "tova: no memory");
    (*def)->shape = *shape;
    (*def)->budget = param[BUDGET];
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; i < def->shape.layers * def->shape.batch; i++) {
        free(def->cache[i].token);
        free(def->cache[i].weight);
    }
    free(def);
}

static struct cache *cache_of(struct ha_def *def, const struct ha_def_head *h)
{
    return &def->cache[h->layer * def->shape.batch + h->seq];
}
static size_t room_of(const struct ha_def *def, const struct ha_def_head *h)
{
    const double n = floor(def->budget * (double)def->shape.ctx[h->seq]);
    return n >= 1 ? (size_t)n : 1;
}

static enum ha_status resize(struct cache *c, size_t count, struct ha_why *why)
{
    uint32_t *token = realloc(c->token, (count + 1) * sizeof *token);
    if (token) c->token = token;
    struct ha_ref_weight *weight = realloc(c->weight, (count + 1) * sizeof *weight);
    if (weight) c->weight = weight;
    if (!token || !weight) return ha_why(why, HA_ERROR, "tova: no memory for %zu keys", count);
    c->count = count;
    return HA_OK;
}

/* The tokens first, first + 1 and on, behind those that there are, and all weights at 0. */
static enum ha_status add_tokens(struct cache *c, size_t first, size_t count, struct ha_why *why)
{
    const size_t old = c->count;
    HA_TRY(resize(c, old + count, why));
    for (size_t j = 0; j < count; j++) c->token[old + j] = (uint32_t)(first + j);
    for (size_t j = 0; j < c->count; j++) c->weight[j] = (struct ha_ref_weight){ 0, 0 };
    return HA_OK;
}

/* Drops what is not among the `room` largest even if every weight is off by its whole error. */
static enum ha_status forget(struct cache *c, size_t room, struct ha_why *why)
{
    const size_t n = c->count;
    if (n <= room) return HA_OK;
    double *least = malloc(n * sizeof *least);
    if (!least) return ha_why(why, HA_ERROR, "tova: no memory for %zu keys", n);
    for (size_t j = 0; j < n; j++) least[j] = c->weight[j].value - c->weight[j].tol;
    const double bar = ha_array_largest(least, n, room - 1);
    free(least);
    c->count = 0;
    for (size_t j = 0; j < n; j++) {
        if (!(c->weight[j].value + c->weight[j].tol >= bar)) continue;
        c->token[c->count] = c->token[j];
        c->weight[c->count++] = c->weight[j];
    }
    return HA_OK;
}

/* What the head's queries add to the mean over the heads; with the last head the choice is made. */
static enum ha_status weigh(struct ha_def *def, struct cache *c, const struct ha_def_head *h, struct ha_why *why)
{
    const double heads = (double)def->shape.q_heads;
    struct ha_ref_weight *of = malloc((c->count + 1) * sizeof *of);
    if (!of) return ha_why(why, HA_ERROR, "tova: no memory for %zu keys", c->count);
    const enum ha_status status = ha_ref_observe(&def->shape, h, c->token, 0, c->count, of, why);
    for (size_t j = 0; j < c->count && status == HA_OK; j++) {
        c->weight[j].value += of[j].value / heads;
        c->weight[j].tol += of[j].tol / heads + 0x1p-50 * of[j].value; /* heads add up in binary64 */
    }
    free(of);
    if (status != HA_OK || h->head + 1 < def->shape.q_heads) return status;
    return forget(c, room_of(def, h), why);
}

static enum ha_status tova_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct cache *c = cache_of(def, h);
    struct ha_def_head newest = *h;
    if (h->head == 0) HA_TRY(add_tokens(c, 0, h->tokens, why));
    if (h->queries == 0) {
        for (size_t j = 0; j < c->count; j++) c->weight[j].value = (double)c->token[j];
        return h->head == 0 ? forget(c, room_of(def, h), why) : HA_OK;
    }
    newest.q += (h->queries - 1) * def->shape.q_heads * def->shape.head_dim;
    newest.queries = 1;
    return weigh(def, c, &newest, why);
}

/* The tokens become those that were reported, if they are a right choice. */
static enum ha_status adopt(struct cache *c, size_t room, const struct ha_def_head *h, const uint8_t *mark,
                            struct ha_why *why)
{
    const size_t want = c->count < room ? c->count : room;
    size_t kept = 0, weakest = 0, strongest = 0;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (size_t j = 0; j < c->count; j++) {
        const double low = c->weight[j].value - c->weight[j].tol, high = c->weight[j].value + c->weight[j].tol;
        if (mark[c->token[j]] != HA_MARK_NONE) {
            kept++;
            if (high < least) least = high, weakest = j;
        } else if (low > most) most = low, strongest = j;
    }
    if (kept != want) return ha_def_wrong(h, why, "%zu keys were kept, the rule keeps %zu", kept, want);
    if (!(least >= most))
        return ha_def_wrong(h, why, "key %u (weight %.9g) was kept, key %u (weight %.9g) was not",
                            (unsigned)c->token[weakest], c->weight[weakest].value, (unsigned)c->token[strongest],
                            c->weight[strongest].value);
    kept = 0;
    for (size_t j = 0; j < c->count; j++)
        if (mark[c->token[j]] != HA_MARK_NONE) c->token[kept++] = c->token[j];
    c->count = kept; /* their weights are those of the next step */
    return HA_OK;
}

/* Nothing but tokens that the layer may still have and new ones, all of which are used; and those of the first head. */
static enum ha_status tova_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                 struct ha_why *why)
{
    struct cache *c = cache_of(def, h);
    size_t next = 0;
    for (size_t j = 0; j < h->tokens; j++) {
        const bool is_new = j + h->queries >= h->tokens, here = next < c->count && c->token[next] == j;
        if (here) next++;
        if (!is_new && !here && mark[j] != HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu was dropped for good", j);
        if (is_new && mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is new", j);
        if (here && h->head > 0 && mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: head 0 uses it, and all heads use the same", j);
    }
    return h->head > 0 ? HA_OK : adopt(c, room_of(def, h), h, mark, why);
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct cache *c = cache_of(def, h);
    if (h->head == 0) HA_TRY(add_tokens(c, h->tokens - h->queries, h->queries, why));
    return weigh(def, c, h, why);
}

const struct ha_definition ha_definition_tova = {
    .variant = "tova",
    .create = create,
    .prefill = tova_prefill,
    .judge = tova_judge,
    .advance = advance,
    .destroy = destroy,
};
