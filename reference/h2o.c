/* H2O (Zhang et al., NeurIPS 2023): heavy hitters and a recent window, permanent eviction.
 *
 * Sizes are fixed at prefill, for each sequence: heavy_n = max(1, floor(heavy * ctx)), recent_n = max(1,
 * floor(recent * ctx)), the products in binary64. Each query head decides on its own, with GQA too:
 *   acc[j] is the sum over the observed queries of their softmax weight on j in full attention;
 *   each step adds the mean over its query tokens of the weight on j in attention over the kept keys and
 *     the new tokens (a new token starts with that);
 *   after prefill and after each step the head keeps the last recent_n tokens and, of the earlier ones
 *     that it still has, the heavy_n with the largest acc, ties to the lower position. The others are gone.
 * The keys of a step are what the head kept and the new tokens. Nothing is padded. Params: heavy, recent.
 *
 * Which keys were kept shows one step later. Every acc carries the error that binary32 may have made
 * of it; a choice is right if some values within these errors lead to it, and is then adopted. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/array.h"
#include "harness/base/why.h"

#include <stdlib.h>

enum { HEAVY, RECENT };

/* The keys that a query head may still have, ascending: more than it keeps until its choice is known. */
struct head {
    size_t count;
    uint32_t *token;
    struct ha_ref_weight *acc;
};

struct ha_def {
    struct ha_shape shape;
    double heavy, recent;
    struct head head[]; /* [layers][batch][q_heads] */
};

static enum ha_status create(struct ha_def **def, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    *def = calloc(1, sizeof **def + ha_def_heads(shape) * sizeof(*def)->head[0]);
    if (!*def) return ha_why(why, HA_ERROR, "h2o: no memory");
    (*def)->shape = *shape;
    (*def)->heavy = param[HEAVY];
    (*def)->recent = param[RECENT];
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; i < ha_def_heads(&def->shape); i++) {
        free(def->head[i].token);
        free(def->head[i].acc);
    }
    free(def);
}

static size_t share_of(double share, size_t ctx)
{
    const double n = floor(share * (double)ctx);
    return n >= 1 ? (size_t)n : 1;
}
static size_t heavy_of(const struct ha_def *def, const struct ha_def_head *h)
{
    return share_of(def->heavy, def->shape.ctx[h->seq]);
}

static enum ha_status resize(struct head *head, size_t count, struct ha_why *why)
{
    uint32_t *token = realloc(head->token, (count + 1) * sizeof *token);
    if (token) head->token = token;
    struct ha_ref_weight *acc = realloc(head->acc, (count + 1) * sizeof *acc);
    if (acc) head->acc = acc;
    if (!token || !acc) return ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", count);
    head->count = count;
    return HA_OK;
}

/* How many of the head's keys are before the window of the last recent_n of `tokens`. */
static size_t earlier(const struct ha_def *def, const struct head *head, const struct ha_def_head *h, size_t tokens)
{
    const size_t recent = share_of(def->recent, def->shape.ctx[h->seq]);
    size_t n = head->count;
    while (n > 0 && head->token[n - 1] + recent >= tokens) n--;
    return n;
}

static void keep(struct head *head, size_t j, size_t *kept)
{
    head->token[*kept] = head->token[j];
    head->acc[(*kept)++] = head->acc[j];
}

/* Drops the keys that are not among the heavy_n largest even if every acc is off by its whole error. */
static enum ha_status forget(const struct ha_def *def, struct head *head, const struct ha_def_head *h,
                             struct ha_why *why)
{
    const size_t n = earlier(def, head, h, h->tokens), heavy = heavy_of(def, h);
    if (n <= heavy) return HA_OK;
    double *least = malloc(n * sizeof *least);
    if (!least) return ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", n);
    for (size_t j = 0; j < n; j++) least[j] = head->acc[j].value - head->acc[j].tol;
    const double bar = ha_array_largest(least, n, heavy - 1);
    free(least);
    size_t kept = 0;
    for (size_t j = 0; j < head->count; j++)
        if (j >= n || head->acc[j].value + head->acc[j].tol >= bar) keep(head, j, &kept);
    return resize(head, kept, why);
}

static enum ha_status h2o_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct head *head = &def->head[h->index];
    HA_TRY(resize(head, h->tokens, why));
    HA_TRY(ha_ref_observe(&def->shape, h, NULL, 0, head->count, head->acc, why));
    const double n = (double)h->queries;
    for (size_t j = 0; j < head->count; j++) {
        struct ha_ref_weight *acc = &head->acc[j];
        head->token[j] = (uint32_t)j;
        acc->value *= n; /* the sum; adding up in binary32 costs n roundings more */
        acc->tol = n * acc->tol + ha_ref_gamma(n + 1) * acc->value;
    }
    return forget(def, head, h, why);
}

/* The head's keys become those that were reported, if they are a right choice. */
static enum ha_status adopt(const struct ha_def *def, struct head *head, const struct ha_def_head *h,
                            const uint8_t *mark, struct ha_why *why)
{
    const size_t early = earlier(def, head, h, h->tokens - h->queries), heavy = heavy_of(def, h),
                 want = early < heavy ? early : heavy;
    size_t kept = 0, chosen = 0, weakest = 0, strongest = 0;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (size_t j = 0; j < head->count; j++) {
        const bool used = mark[head->token[j]] != HA_MARK_NONE;
        const double low = head->acc[j].value - head->acc[j].tol, high = head->acc[j].value + head->acc[j].tol;
        if (j >= early && !used)
            return ha_def_wrong(h, why, "key %u is missing: it is recent", (unsigned)head->token[j]);
        if (j < early && used) {
            chosen++;
            if (high < least) least = high, weakest = j;
        } else if (j < early && low > most) most = low, strongest = j;
    }
    if (chosen != want) return ha_def_wrong(h, why, "%zu heavy hitters kept, the rule keeps %zu", chosen, want);
    if (!(least >= most))
        return ha_def_wrong(h, why, "key %u (weight %.9g) was kept, key %u (weight %.9g) was not",
                            (unsigned)head->token[weakest], head->acc[weakest].value, (unsigned)head->token[strongest],
                            head->acc[strongest].value);
    for (size_t j = 0; j < head->count; j++)
        if (mark[head->token[j]] != HA_MARK_NONE) keep(head, j, &kept);
    head->count = kept;
    return HA_OK;
}

/* Nothing but keys that the head may still have and new tokens, all of which it uses. */
static enum ha_status h2o_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                struct ha_why *why)
{
    struct head *head = &def->head[h->index];
    size_t next = 0;
    for (size_t j = 0; j < h->tokens; j++) {
        const bool is_new = j + h->queries >= h->tokens, here = next < head->count && head->token[next] == j;
        if (here) next++;
        if (!is_new && !here && mark[j] != HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu was evicted for good", j);
        if (is_new && mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is new", j);
    }
    return adopt(def, head, h, mark, why);
}

static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct head *head = &def->head[h->index];
    const size_t old = head->count, count = old + h->queries;
    HA_TRY(resize(head, count, why));
    for (size_t j = old; j < count; j++) {
        head->token[j] = (uint32_t)(h->tokens - count + j);
        head->acc[j] = (struct ha_ref_weight){ 0, 0 };
    }
    struct ha_ref_weight *mean = malloc(count * sizeof *mean);
    enum ha_status status = mean ? ha_ref_observe(&def->shape, h, head->token, 0, count, mean, why)
                                 : ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", count);
    for (size_t j = 0; j < count && status == HA_OK; j++) {
        head->acc[j].value += mean[j].value;
        head->acc[j].tol += mean[j].tol + HA_REF_U * head->acc[j].value;
    }
    free(mean);
    return status == HA_OK ? forget(def, head, h, why) : status;
}

const struct ha_definition ha_definition_h2o = {
    .variant = "h2o",
    .create = create,
    .prefill = h2o_prefill,
    .judge = h2o_judge,
    .advance = advance,
    .destroy = destroy,
};
