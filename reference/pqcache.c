/* PQCache (Zhang et al., SIGMOD 2025, arXiv 2407.12820): tokens chosen by codes of their keys, a cache of tokens.
 *
 * A share `budget` of n tokens is the least integer t >= 1 with t / n >= budget (0 of none). Of the n tokens before a
 * step the last r = floor(t / 2) and the step's own are always used, and of the n - r others each KV head chooses those
 * t - r of largest score, and uses them and no other key. All of it is one part on the device, and each key is weighed
 * by itself.
 *
 * A key's score is the largest over the query heads of the KV head and the step's tokens of scale q . x, x the key's
 * nearest centroids joined (reference/book.c): it is cut into `parts` parts, each of which has a book of c centroids of
 * its own for each layer and KV head, from the fit or the sample. What rounding may swap, nearest centroids among it,
 * is a tie, in which the one that is reported is gone by; and so are equal codes.
 *
 * A KV head of a sequence has a cache (reference/cached.c, each block a token) of floor(capacity (t - r)) places, t - r
 * of its context; and no fewer than t - r of all tokens that the sequence will have. Notes: hits, replaced.
 *
 * Params: as in the enum; the rule ignores the others. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { PARTS, C, BUDGET, CAPACITY, POLICY };

struct ha_def {
    struct ha_shape shape;
    struct ha_def_book book;
    double budget, capacity;
    struct ha_def_choice choice;
    struct ha_def_caches caches;
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "pqcache: no memory"); }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const size_t parts = (size_t)param[PARTS];
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->budget = param[BUDGET];
    def->capacity = param[CAPACITY];
    def->choice = (struct ha_def_choice){ .what = "key", .group = HA_DEF_MAX };
    if (shape->head_dim % parts)
        return ha_why(why, HA_ERROR, "pqcache: parts=%zu do not divide head_dim=%zu", parts, shape->head_dim);
    const struct ha_def_book_rule rule = { .variant = "pqcache",
                                           .dims = shape->head_dim / parts,
                                           .count = (size_t)param[C] };
    HA_TRY(ha_def_book_create(&def->book, &rule, shape, fit, why));
    return ha_def_caches_create(&def->caches, shape, param[POLICY] > 0, why);
}

static void destroy(struct ha_def *def)
{
    ha_def_book_end(&def->book);
    ha_def_choice_end(&def->choice);
    ha_def_caches_end(&def->caches);
    free(def);
}

static enum ha_status pqcache_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    return ha_def_book_prefill(&def->book, h, why);
}

static enum ha_status score_keys(struct ha_def *def, const struct ha_def_head *h, size_t keys, struct ha_why *why)
{
    const size_t dim = def->shape.head_dim, all = def->shape.q_heads * dim;
    HA_TRY(ha_def_book_code(&def->book, h, keys, why));
    const struct ha_def_coded *coded = ha_def_book_coded(&def->book, h);
    double q[HA_REF_DIM_MAX], k[HA_REF_DIM_MAX], off[HA_REF_DIM_MAX];
    for (size_t j = 0; j < keys; j++) {
        for (size_t d = 0; d < dim; d++) k[d] = (double)coded->k[j * dim + d], off[d] = (double)coded->off[j * dim + d];
        for (size_t i = 0; i < h->queries * def->choice.heads; i++) {
            const size_t head = i % def->choice.heads;
            const float *of = h->q + i / def->choice.heads * all + head * dim;
            for (size_t d = 0; d < dim; d++) q[d] = (double)of[d];
            ha_def_choice_score(&def->choice, head, j,
                                ha_ref_score_dot(q, NULL, k, off, dim, (double)def->shape.scale));
        }
    }
    return HA_OK;
}

/* how many are chosen of n tokens */
static size_t chosen(const struct ha_def *def, size_t n)
{
    const size_t used = ha_def_share(def->budget, n);
    return used - used / 2;
}

static size_t places(const struct ha_def *def, size_t seq)
{
    const struct ha_shape *s = &def->shape;
    const size_t least = chosen(def, s->ctx[seq] + s->steps * s->q_len),
                 wanted = (size_t)(def->capacity * (double)chosen(def, s->ctx[seq]) * (1 + 1e-12));
    return wanted > least ? wanted : least;
}

static enum ha_status pqcache_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                    struct ha_why *why)
{
    const size_t heads = ha_shape_group(&def->shape), before = h->tokens - h->queries, k = chosen(def, before),
                 recent = ha_def_share(def->budget, before) - k, keys = before - recent;
    const struct ha_def_window window = { .recent = recent, .unit = 1 };
    HA_TRY(ha_def_on_device(h, mark, why));
    HA_TRY(ha_def_window_judge(&window, h, mark, why));
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, keys, why));
        if (keys > k) HA_TRY(score_keys(def, h, keys, why));
    }
    for (size_t j = 0; j < keys; j++) def->choice.taken[j] = mark[j] != HA_MARK_NONE;
    HA_TRY(ha_def_choice_judge(&def->choice, h, k, why));
    return ha_def_caches_judge(&def->caches, h, def->choice.taken, keys, places(def, h->seq), why);
}

static void pqcache_count(const struct ha_def *def, ha_def_count *say, void *arg)
{
    ha_def_caches_count(&def->caches, say, arg);
}

const struct ha_definition ha_definition_pqcache = { .variant = "pqcache",
                                                     .create = create,
                                                     .prefill = pqcache_prefill,
                                                     .judge = pqcache_judge,
                                                     .count = pqcache_count,
                                                     .destroy = destroy };
