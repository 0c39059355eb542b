/* PQCache (Zhang et al., SIGMOD 2025), as HCAttention compares with it: keys are chosen by what codes stand for, and
 * read as they are.
 *
 * Of the n tokens before a step b are used, the least number that is a share `budget` of n, and the step's own. floor(b
 * / 2) are the newest, which are on the device; the others are those of the first n - floor(b / 2) whose scores are the
 * largest, which come over the link. All of it is one part on the device, by the keys themselves; nothing is padded.
 *
 * A KV head's keys are cut into `sub` vectors of the same length, each of which has a book of `c` centroids of its own
 * (reference/book.c). The score of a key is the largest over the query heads of the KV head and the step's tokens of
 * scale q . what its nearest centroids, joined, are. It is known up to what binary32 makes of it, and of the choice of
 * a centroid; where that decides either answer is right.
 *
 * Params: as in the enum; the rule ignores the others. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum { BUDGET, SUB, C };

struct ha_def {
    struct ha_shape shape;
    struct ha_def_book book;
    struct ha_def_choice choice;
    double budget;
};

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    const size_t sub = (size_t)param[SUB];
    struct ha_def *def = *out = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "pqcache: no memory");
    if (shape->head_dim % sub)
        return ha_why(why, HA_ERROR, "pqcache: sub=%zu vectors do not divide head_dim=%zu", sub, shape->head_dim);
    def->shape = *shape;
    def->budget = param[BUDGET];
    def->choice = (struct ha_def_choice){ .what = "key", .group = HA_DEF_MAX };
    const struct ha_def_book_rule rule = { .variant = "pqcache",
                                           .dims = shape->head_dim / sub,
                                           .count = (size_t)param[C] };
    return ha_def_book_create(&def->book, &rule, shape, fit, why);
}

static void destroy(struct ha_def *def)
{
    ha_def_book_end(&def->book);
    ha_def_choice_end(&def->choice);
    free(def);
}

static enum ha_status prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    return ha_def_book_prefill(&def->book, h, why);
}

/* Of all query heads of the KV head whose first one h is */
static enum ha_status score_keys(struct ha_def *def, const struct ha_def_head *h, size_t keys, struct ha_why *why)
{
    const struct ha_shape *s = &def->shape;
    const size_t dim = s->head_dim, heads = ha_shape_group(s);
    double q[HA_REF_DIM_MAX], k[HA_REF_DIM_MAX], off[HA_REF_DIM_MAX];
    HA_TRY(ha_def_book_code(&def->book, h, keys, why));
    const struct ha_def_coded *c = ha_def_book_coded(&def->book, h);
    for (size_t i = 0; i < h->queries * heads; i++) {
        const float *from = h->q + i / heads * s->q_heads * dim + i % heads * dim;
        for (size_t d = 0; d < dim; d++) q[d] = (double)from[d];
        for (size_t j = 0; j < keys; j++) {
            for (size_t d = 0; d < dim; d++) {
                k[d] = (double)c->k[j * dim + d];
                off[d] = (double)c->off[j * dim + d];
            }
            ha_def_choice_score(&def->choice, i % heads, j, ha_ref_score_dot(q, NULL, k, off, dim, (double)s->scale));
        }
    }
    return HA_OK;
}

static enum ha_status judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    const size_t before = h->tokens - h->queries, heads = ha_shape_group(&def->shape),
                 used = ha_def_share(def->budget, before), recent = used / 2, keys = before - recent;
    HA_TRY(ha_def_on_device(h, mark, why));
    for (size_t j = keys; j < h->tokens; j++)
        if (mark[j] == HA_MARK_NONE)
            return ha_def_wrong(h, why, "key %zu is missing: it is %s", j, j < before ? "recent" : "new");
    if (h->head % heads == 0) {
        HA_TRY(ha_def_choice_begin(&def->choice, heads, keys, why));
        if (keys > used - recent) HA_TRY(score_keys(def, h, keys, why));
    }
    for (size_t j = 0; j < keys; j++) def->choice.taken[j] = mark[j] != HA_MARK_NONE;
    return ha_def_choice_judge(&def->choice, h, used - recent, why);
}

const struct ha_definition ha_definition_pqcache = {
    .variant = "pqcache", .create = create, .prefill = prefill, .judge = judge, .destroy = destroy
};
