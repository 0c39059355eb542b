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
#include "reference/observe.h"
#include "reference/selection.h"

#include "reference/error.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { HEAVY, RECENT };

/* The keys that a query head may still have, ascending: more than it keeps until its choice is known. */
struct head {
    size_t count;
    uint32_t *token;
    double *acc, *tol;
};

struct sequence {
    size_t tokens, heavy, recent;
    struct head *head; /* [q_heads] */
};

struct ha_def {
    struct ha_shape shape;
    double heavy, recent;
    struct sequence *sequence; /* [layers][batch] */
};

static void destroy(struct ha_def *def)
{
    if (!def) return;
    for (size_t i = 0; def->sequence && i < def->shape.layers * def->shape.batch; i++) {
        for (size_t h = 0; def->sequence[i].head && h < def->shape.q_heads; h++) {
            free(def->sequence[i].head[h].token);
            free(def->sequence[i].head[h].acc);
            free(def->sequence[i].head[h].tol);
        }
        free(def->sequence[i].head);
    }
    free(def->sequence);
    free(def);
}

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param, size_t threads,
                             struct ha_why *why)
{
    (void)threads;
    struct ha_def *def = calloc(1, sizeof *def);
    if (!def) return ha_why(why, HA_ERROR, "h2o: no memory");
    *def = (struct ha_def){ .shape = *shape, .heavy = param[HEAVY], .recent = param[RECENT] };
    def->sequence = calloc(shape->layers * shape->batch, sizeof *def->sequence);
    bool ok = def->sequence != NULL;
    for (size_t i = 0; ok && i < shape->layers * shape->batch; i++)
        ok = (def->sequence[i].head = calloc(shape->q_heads, sizeof *def->sequence[i].head)) != NULL;
    if (!ok) {
        destroy(def);
        return ha_why(why, HA_ERROR, "h2o: no memory");
    }
    *out = def;
    return HA_OK;
}

static size_t share_of(double share, size_t ctx)
{
    const double n = floor(share * (double)ctx);
    return n >= 1 ? (size_t)n : 1;
}

static bool resize(struct head *head, size_t count)
{
    const size_t n = count ? count : 1;
    uint32_t *token = realloc(head->token, n * sizeof *token);
    if (token) head->token = token;
    double *acc = realloc(head->acc, n * sizeof *acc);
    if (acc) head->acc = acc;
    double *tol = realloc(head->tol, n * sizeof *tol);
    if (tol) head->tol = tol;
    return token && acc && tol;
}

/* How many of the head's keys are before the recent window. */
static size_t earlier(const struct head *head, const struct sequence *seq)
{
    size_t n = head->count;
    while (n > 0 && head->token[n - 1] + seq->recent >= seq->tokens) n--;
    return n;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Drops the keys that are not among the heavy_n largest even if every acc is off by its whole error. */
static enum ha_status forget(struct head *head, const struct sequence *seq, struct ha_why *why)
{
    const size_t n = earlier(head, seq);
    if (n <= seq->heavy) return HA_OK;
    double *least = malloc(n * sizeof *least);
    if (!least) return ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", n);
    for (size_t j = 0; j < n; j++) least[j] = head->acc[j] - head->tol[j];
    qsort(least, n, sizeof *least, descending);
    const double bar = least[seq->heavy - 1];
    free(least);
    size_t kept = 0;
    for (size_t j = 0; j < head->count; j++)
        if (j >= n || head->acc[j] + head->tol[j] >= bar) {
            head->token[kept] = head->token[j];
            head->acc[kept] = head->acc[j];
            head->tol[kept++] = head->tol[j];
        }
    head->count = kept;
    return resize(head, kept) ? HA_OK : ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", kept);
}

static struct ha_rows rows_of(const struct ha_def *def, const struct ha_def_step *in, size_t seq, size_t q_head)
{
    const size_t row = def->shape.head_dim * ha_dtype_bytes(def->shape.dtype),
                 kv_head = q_head / ha_shape_group(&def->shape);
    return (struct ha_rows){ .k = (const char *)in->k[seq] + kv_head * in->kv_cap * row, .k_stride_bytes = row };
}

/* Weights of the head's keys by `count` queries, the last being that of the last key. */
static enum ha_status observe(const struct ha_def *def, const struct ha_rows *rows, const float *q, size_t count,
                              size_t q_stride, double *mean, double *tol, struct ha_why *why)
{
    size_t *visible = malloc((count + 1) * sizeof *visible);
    if (!visible) return ha_why(why, HA_ERROR, "h2o: no memory");
    for (size_t t = 0; t < count; t++) visible[t] = rows->keys - count + t + 1;
    const struct ha_ref_observed in = {
        .q = q,
        .count = count,
        .q_stride = q_stride,
        .head_dim = def->shape.head_dim,
        .scale = (double)def->shape.scale,
        .visible = visible,
        .rows = *rows,
        .dtype = def->shape.dtype,
    };
    const enum ha_status status = ha_ref_observe(&in, mean, tol, why);
    free(visible);
    return status;
}

static enum ha_status prefill_head(struct ha_def *def, struct sequence *seq, struct head *head, struct ha_rows rows,
                                   const float *q, size_t observed, struct ha_why *why)
{
    head->count = rows.keys = seq->tokens;
    if (!resize(head, head->count)) return ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", head->count);
    const enum ha_status status = observe(def, &rows, q, observed, def->shape.q_heads * def->shape.head_dim, head->acc,
                                          head->tol, why);
    if (status != HA_OK) return status;
    const double n = (double)observed;
    for (size_t j = 0; j < head->count; j++) {
        head->token[j] = (uint32_t)j;
        head->acc[j] *= n; /* the sum; adding up in binary32 costs n roundings more */
        head->tol[j] = n * head->tol[j] + ha_ref_gamma(n + 1) * head->acc[j];
    }
    return forget(head, seq, why);
}

static enum ha_status prefill(struct ha_def *def, size_t layer, const struct ha_def_step *kv, const float *const *q,
                              struct ha_why *why)
{
    const struct ha_shape *shape = &def->shape;
    for (size_t b = 0; b < shape->batch; b++) {
        struct sequence *seq = &def->sequence[layer * shape->batch + b];
        seq->tokens = kv->tokens[b];
        seq->heavy = share_of(def->heavy, seq->tokens);
        seq->recent = share_of(def->recent, seq->tokens);
        const size_t observed = shape->observed < seq->tokens ? shape->observed : seq->tokens;
        for (size_t h = 0; h < shape->q_heads; h++) {
            const enum ha_status status = prefill_head(def, seq, &seq->head[h], rows_of(def, kv, b, h),
                                                       q[b] + h * shape->head_dim, observed, why);
            if (status != HA_OK) return status;
        }
    }
    return HA_OK;
}

/* The head's keys become those that were reported, if they are a right choice. */
static enum ha_status adopt(struct head *head, const struct sequence *seq, const uint8_t *mark,
                            const struct ha_place *at, struct ha_why *why)
{
    const size_t early = earlier(head, seq), want = early < seq->heavy ? early : seq->heavy;
    size_t kept = 0, chosen = 0, weakest = 0, strongest = 0;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (size_t j = 0; j < head->count; j++) {
        const bool used = mark[head->token[j]] != HA_MARK_NONE;
        if (j >= early && !used) return ha_selection_wrong(at, head->token[j], "is missing: it is recent", why);
        if (j < early && used) {
            chosen++;
            if (head->acc[j] + head->tol[j] < least) least = head->acc[weakest = j] + head->tol[j];
        } else if (j < early && head->acc[j] - head->tol[j] > most) most = head->acc[strongest = j] - head->tol[j];
    }
    if (chosen != want)
        return ha_why(why, HA_FAIL, "%s layer %zu seq %zu head %zu: %zu heavy hitters kept, the rule keeps %zu",
                      at->variant, at->layer, at->seq, at->head, chosen, want);
    if (!(least >= most))
        return ha_why(why, HA_FAIL,
                      "%s layer %zu seq %zu head %zu: key %u (weight %.9g) was kept, key %u (weight %.9g) was not",
                      at->variant, at->layer, at->seq, at->head, (unsigned)head->token[weakest], head->acc[weakest],
                      (unsigned)head->token[strongest], head->acc[strongest]);
    for (size_t j = 0; j < head->count; j++)
        if (mark[head->token[j]] != HA_MARK_NONE) {
            head->token[kept] = head->token[j];
            head->acc[kept] = head->acc[j];
            head->tol[kept++] = head->tol[j];
        }
    head->count = kept;
    return HA_OK;
}

/* Nothing but keys that the head may still have and new tokens, all of which it uses. */
static enum ha_status judge(struct head *head, const struct sequence *seq, size_t tokens, const uint8_t *mark,
                            const struct ha_place *at, struct ha_why *why)
{
    size_t next = 0;
    for (size_t j = 0; j < tokens; j++) {
        const bool here = next < head->count && head->token[next] == j;
        if (here) next++;
        if (j < seq->tokens && !here && mark[j] != HA_MARK_NONE)
            return ha_selection_wrong(at, j, "was evicted for good", why);
        if (j >= seq->tokens && mark[j] == HA_MARK_NONE) return ha_selection_wrong(at, j, "is missing: it is new", why);
        if (mark[j] & HA_MARK_PADDING)
            return ha_selection_wrong(at, j, "is called padding; nothing is padded here", why);
    }
    return adopt(head, seq, mark, at, why);
}

/* seq->tokens is already that of after the step. */
static enum ha_status advance(struct ha_def *def, const struct sequence *seq, struct head *head, struct ha_rows rows,
                              const float *q, size_t q_len, struct ha_why *why)
{
    const size_t old = head->count, count = old + q_len;
    double *mean = malloc(2 * count * sizeof *mean);
    if (!mean || !resize(head, count)) {
        free(mean);
        return ha_why(why, HA_ERROR, "h2o: no memory for %zu keys", count);
    }
    head->count = count;
    for (size_t j = old; j < count; j++) {
        head->token[j] = (uint32_t)(seq->tokens - count + j);
        head->acc[j] = head->tol[j] = 0;
    }
    rows.index = head->token;
    rows.keys = count;
    const enum ha_status status = observe(def, &rows, q, q_len, def->shape.q_heads * def->shape.head_dim, mean,
                                          mean + count, why);
    for (size_t j = 0; j < count && status == HA_OK; j++) {
        head->acc[j] += mean[j];
        head->tol[j] += mean[count + j] + HA_REF_U * head->acc[j];
    }
    free(mean);
    return status == HA_OK ? forget(head, seq, why) : status;
}

static enum ha_status step(struct ha_def *def, const struct ha_def_step *in,
                           void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out), void *arg,
                           struct ha_why *why)
{
    const struct ha_shape *shape = &def->shape;
    enum ha_status status = HA_OK;
    for (size_t b = 0; b < shape->batch && status == HA_OK; b++) {
        struct sequence *seq = &def->sequence[in->layer * shape->batch + b];
        uint8_t *mark = malloc(in->tokens[b] + 1);
        if (!mark) return ha_why(why, HA_ERROR, "h2o: no memory for %zu tokens", in->tokens[b]);
        for (size_t h = 0; h < shape->q_heads && status == HA_OK; h++) {
            const struct ha_place at = { "h2o", in->layer, b, h };
            struct ha_selection s = { 0 };
            reported(arg, b, h, &s);
            status = ha_selection_mark(&s, in->tokens[b], mark, &at, why);
            if (status == HA_OK) status = judge(&seq->head[h], seq, in->tokens[b], mark, &at, why);
        }
        free(mark);
        seq->tokens = in->tokens[b];
        for (size_t h = 0; h < shape->q_heads && status == HA_OK; h++)
            status = advance(def, seq, &seq->head[h], rows_of(def, in, b, h),
                             in->q + (b * in->q_len * shape->q_heads + h) * shape->head_dim, in->q_len, why);
    }
    return status;
}

const struct ha_definition ha_definition_h2o = { "h2o", create, prefill, step, destroy };
