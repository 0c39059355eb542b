/* HGCA, Algorithms 1 and 2 and section 3.2, with its gaps and misprints resolved.
 *
 * For each layer and sequence the tokens [0, first) are on the host (KV_cpu), the later ones on the device,
 * with a moving average of attention weight (MAW) for each query head and device entry. l_max = blk_num *
 * blk_size. All decisions are per query head, GQA or not.
 *
 * evict(l): where l >= l_max entries are on the device, the oldest ceil((l - l_max + 1) / blk_size) * blk_size
 *   leave it, new tokens too if it must be; l_max - blk_size to l_max - 1 remain. (The paper prints the sign reversed.)
 * Prefill: the whole context counts as appended at once. MAW of a device entry = the mean over the observed
 *   queries of their softmax weights over the device entries alone; of the host entries those with A_cpu >
 *   beta / |KV_cpu| are selected, A_cpu being the same mean over the host entries alone. A query sees no token
 *   after itself; one that sees no entry of a side adds 0 there.
 * Step: device part = all device entries and the new tokens. Host part = the selected entries and padding
 *   (decode, q_len = 1) or all host entries (append, q_len > 1). Then
 *   A_gpu = mean over the query tokens of the softmax weights over the device part;
 *   MAW <- (1 - alpha) MAW + alpha A_gpu, a new token starting with its A_gpu;
 *   after an append the host entries are selected anew: A_cpu > beta / |KV_cpu|, A_cpu of the append's queries;
 *   evict(l), l counting the new tokens; an evicted entry is selected iff MAW > beta / l.
 * beta < 0 selects everything. Renormalising MAW, in the paper's text, feeds no equation and is left out.
 *
 * Padding: the units sequence * q_heads + head are cut into tasks of heads_per_task in a row, which may span two
 * sequences. In a decode step a head is padded to the largest selected count of its task with its unselected host
 * entries, newest first, as far as it has any. heads_per_task = 0: no tasks, hence no padding.
 *
 * A weight within rounding of its threshold may be decided either way; what the next decode step reports is
 * adopted. Params: alpha, beta, blk_size, blk_num, heads_per_task; the rule ignores layout. */

#include "reference/definitions.h"
#include "reference/observe.h"
#include "reference/selection.h"

#include "reference/error.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { ALPHA, BETA, BLK_SIZE, BLK_NUM, HEADS_PER_TASK };

/* what is known of a host entry; PADDED for the time of one judgement */
enum { NO = 0, YES = 1, EITHER = 2, PADDED = 4 };

struct head {
    double *maw, *tol; /* [device entries]: |got - maw| <= tol */
    uint8_t *selected; /* [host entries] */
};

struct sequence {
    size_t first, tokens; /* device entries: [first, tokens) */
    struct head *head;    /* [q_heads] */
};

struct ha_def {
    struct ha_shape shape;
    double alpha, beta;
    size_t block, most, task;  /* blk_size, l_max, heads_per_task */
    struct sequence *sequence; /* [layers][batch] */
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "hgca: no memory"); }

static void destroy(struct ha_def *def)
{
    if (!def) return;
    for (size_t i = 0; def->sequence && i < def->shape.layers * def->shape.batch; i++) {
        for (size_t h = 0; def->sequence[i].head && h < def->shape.q_heads; h++) {
            free(def->sequence[i].head[h].maw);
            free(def->sequence[i].head[h].tol);
            free(def->sequence[i].head[h].selected);
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
    if (!def) return no_memory(why);
    /* alpha as binary32 holds it: near 1 the rounding of 1 - alpha would exceed the tolerance */
    *def = (struct ha_def){
        .shape = *shape, .alpha = (double)(float)param[ALPHA], .beta = param[BETA], .block = (size_t)param[BLK_SIZE]
    };
    def->most = def->block * (size_t)param[BLK_NUM];
    def->task = param[HEADS_PER_TASK] > 0 ? (size_t)param[HEADS_PER_TASK] : 1; /* one head alone is not padded */
    def->sequence = calloc(shape->layers * shape->batch, sizeof *def->sequence);
    bool ok = def->sequence != NULL;
    for (size_t i = 0; ok && i < shape->layers * shape->batch; i++)
        ok = (def->sequence[i].head = calloc(shape->q_heads, sizeof *def->sequence[i].head)) != NULL;
    if (!ok) {
        destroy(def);
        return no_memory(why);
    }
    *out = def;
    return HA_OK;
}

static size_t to_evict(const struct ha_def *def, size_t entries)
{
    if (entries < def->most) return 0;
    return (entries - def->most + def->block) / def->block
           * def->block; /* ceil((entries - most + 1) / block) * block */
}

/* weight > threshold, as far as binary32 can tell; the threshold costs two roundings */
static uint8_t decide(double weight, double tol, double threshold)
{
    if (!(fabs(weight - threshold) > tol + 2 * HA_REF_U * fabs(threshold))) return EITHER;
    return weight > threshold ? YES : NO;
}

/* Weights over the entries [begin, end) by `count` queries, the last being that of token `last`. */
static enum ha_status observe(const struct ha_def *def, const struct ha_def_step *in, size_t seq, size_t q_head,
                              const float *q, size_t count, size_t last, size_t begin, size_t end, double *mean,
                              double *tol, struct ha_why *why)
{
    const struct ha_shape *shape = &def->shape;
    const size_t row = shape->head_dim * ha_dtype_bytes(shape->dtype), kv_head = q_head / ha_shape_group(shape);
    size_t *visible = malloc((count + 1) * sizeof *visible);
    if (!visible) return no_memory(why);
    for (size_t t = 0; t < count; t++) {
        const size_t seen = last + 1 - (count - 1 - t); /* tokens up to and with the query's */
        visible[t] = seen <= begin ? 0 : (seen < end ? seen : end) - begin;
    }
    const struct ha_ref_observed observed = {
        .q = q,
        .count = count,
        .q_stride = shape->q_heads * shape->head_dim,
        .head_dim = shape->head_dim,
        .scale = (double)shape->scale,
        .visible = visible,
        .rows = { .k = (const char *)in->k[seq] + (kv_head * in->kv_cap + begin) * row,
                  .k_stride_bytes = row,
                  .keys = end - begin },
        .dtype = shape->dtype,
    };
    const enum ha_status status = ha_ref_observe(&observed, mean, tol, why);
    free(visible);
    return status;
}

/* Selects the host entries [0, entries) by their weights in `count` queries. */
static enum ha_status select_anew(const struct ha_def *def, const struct ha_def_step *in, size_t seq, size_t q_head,
                                  const float *q, size_t count, size_t last, size_t entries, uint8_t *selected,
                                  struct ha_why *why)
{
    if (entries == 0) return HA_OK;
    double *mean = malloc(2 * entries * sizeof *mean);
    if (!mean) return no_memory(why);
    const enum ha_status status = observe(def, in, seq, q_head, q, count, last, 0, entries, mean, mean + entries, why);
    for (size_t j = 0; j < entries && status == HA_OK; j++)
        selected[j] = decide(mean[j], mean[entries + j], def->beta / (double)entries);
    free(mean);
    return status;
}

static bool grow(struct head *head, size_t device, size_t host)
{
    double *maw = realloc(head->maw, (device + 1) * sizeof *maw);
    if (maw) head->maw = maw;
    double *tol = realloc(head->tol, (device + 1) * sizeof *tol);
    if (tol) head->tol = tol;
    uint8_t *selected = realloc(head->selected, host + 1);
    if (selected) head->selected = selected;
    return maw && tol && selected;
}

static enum ha_status prefill(struct ha_def *def, size_t layer, const struct ha_def_step *kv, const float *const *q,
                              struct ha_why *why)
{
    const struct ha_shape *shape = &def->shape;
    for (size_t b = 0; b < shape->batch; b++) {
        struct sequence *seq = &def->sequence[layer * shape->batch + b];
        const size_t n = kv->tokens[b], observed = shape->observed < n ? shape->observed : n;
        seq->tokens = n;
        seq->first = to_evict(def, n);
        for (size_t h = 0; h < shape->q_heads; h++) {
            struct head *head = &seq->head[h];
            const float *q_head = q[b] + h * shape->head_dim;
            if (!grow(head, n - seq->first, seq->first)) return no_memory(why);
            enum ha_status status = observe(def, kv, b, h, q_head, observed, n - 1, seq->first, n, head->maw, head->tol,
                                            why);
            if (status == HA_OK)
                status = select_anew(def, kv, b, h, q_head, observed, n - 1, seq->first, head->selected, why);
            if (status != HA_OK) return status;
        }
    }
    return HA_OK;
}

/* One head's report: the device part, the selected entries, what is called padding. Adopts. */
static enum ha_status judge(const struct sequence *seq, struct head *head, size_t tokens, bool append,
                            const uint8_t *mark, const struct ha_place *at, struct ha_why *why)
{
    for (size_t j = seq->first; j < tokens; j++) {
        if (mark[j] == HA_MARK_NONE) return ha_selection_wrong(at, j, "is missing: it is on the device", why);
        if (mark[j] != HA_MARK_DEVICE)
            return ha_selection_wrong(at, j, "must be in a device part and not padding", why);
    }
    for (size_t j = 0; j < seq->first; j++) {
        if (mark[j] & HA_MARK_DEVICE) return ha_selection_wrong(at, j, "was evicted from the device", why);
        if (append) {
            if (mark[j] != HA_MARK_HOST)
                return ha_selection_wrong(at, j, "must be used: an append reads all host entries", why);
        } else if (mark[j] == HA_MARK_HOST) {
            if (head->selected[j] == NO) return ha_selection_wrong(at, j, "is below the threshold", why);
            head->selected[j] = YES;
        } else {
            if (head->selected[j] == YES)
                return ha_selection_wrong(at, j, "is missing: its weight is above the threshold", why);
            head->selected[j] = mark[j] & HA_MARK_PADDING ? NO | PADDED : NO;
        }
    }
    return HA_OK;
}

static size_t selected_count(const struct head *head, size_t entries)
{
    size_t n = 0;
    for (size_t j = 0; j < entries; j++) n += head->selected[j] == YES;
    return n;
}

/* The padding of the units [begin, end), one task; forgets it. */
static enum ha_status judge_padding(struct ha_def *def, size_t layer, size_t begin, size_t end, struct ha_why *why)
{
    size_t largest = 0;
    for (size_t unit = begin; unit < end; unit++) {
        const struct sequence *seq = &def->sequence[layer * def->shape.batch + unit / def->shape.q_heads];
        const size_t n = selected_count(&seq->head[unit % def->shape.q_heads], seq->first);
        if (n > largest) largest = n;
    }
    for (size_t unit = begin; unit < end; unit++) {
        const struct ha_place at = { "hgca", layer, unit / def->shape.q_heads, unit % def->shape.q_heads };
        const struct sequence *seq = &def->sequence[layer * def->shape.batch + at.seq];
        struct head *head = &seq->head[at.head];
        size_t missing = largest - selected_count(head, seq->first);
        for (size_t j = seq->first; j-- > 0;) {
            if (head->selected[j] == YES) continue;
            const bool want = missing > 0, padded = head->selected[j] & PADDED;
            if (want != padded)
                return ha_selection_wrong(&at, j,
                                          want ? "must pad this head to its task's largest count"
                                               : "is padding that the task does not need",
                                          why);
            head->selected[j] = NO;
            if (want) missing--;
        }
    }
    return HA_OK;
}

/* MAW, selection and eviction of one head; `entries` are on the device with the new tokens, `gone` of them leave. */
static enum ha_status advance(const struct ha_def *def, const struct ha_def_step *in, const struct sequence *seq,
                              size_t b, size_t h, size_t gone, struct ha_why *why)
{
    struct head *head = &seq->head[h];
    const size_t tokens = in->tokens[b], entries = tokens - seq->first, old = seq->tokens - seq->first;
    const float *q = in->q + (b * in->q_len * def->shape.q_heads + h) * def->shape.head_dim;
    double *mean = malloc(2 * entries * sizeof *mean), *tol = mean + entries;
    if (!mean || !grow(head, entries, seq->first + gone)) {
        free(mean);
        return no_memory(why);
    }
    enum ha_status status = observe(def, in, b, h, q, in->q_len, tokens - 1, seq->first, tokens, mean, tol, why);
    for (size_t j = 0; j < entries; j++) {
        const double alpha = j < old ? def->alpha : 1, maw = j < old ? head->maw[j] : 0,
                     maw_tol = j < old ? head->tol[j] : 0;
        head->maw[j] = (1 - alpha) * maw + alpha * mean[j];
        head->tol[j] = (1 - alpha) * maw_tol + alpha * tol[j] + ha_ref_gamma(4) * head->maw[j];
    }
    free(mean);
    if (status == HA_OK && in->q_len > 1)
        status = select_anew(def, in, b, h, q, in->q_len, tokens - 1, seq->first, head->selected, why);
    for (size_t j = 0; j < gone; j++)
        head->selected[seq->first + j] = decide(head->maw[j], head->tol[j], def->beta / (double)entries);
    memmove(head->maw, head->maw + gone, (entries - gone) * sizeof *head->maw);
    memmove(head->tol, head->tol + gone, (entries - gone) * sizeof *head->tol);
    return status;
}

static enum ha_status step(struct ha_def *def, const struct ha_def_step *in,
                           void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out), void *arg,
                           struct ha_why *why)
{
    const struct ha_shape *shape = &def->shape;
    struct sequence *sequence = &def->sequence[in->layer * shape->batch];
    const bool append = in->q_len > 1;
    enum ha_status status = HA_OK;
    for (size_t b = 0; b < shape->batch && status == HA_OK; b++) {
        uint8_t *mark = malloc(in->tokens[b] + 1);
        if (!mark) return no_memory(why);
        for (size_t h = 0; h < shape->q_heads && status == HA_OK; h++) {
            const struct ha_place at = { "hgca", in->layer, b, h };
            struct ha_selection s = { 0 };
            reported(arg, b, h, &s);
            status = ha_selection_mark(&s, in->tokens[b], mark, &at, why);
            if (status == HA_OK)
                status = judge(&sequence[b], &sequence[b].head[h], in->tokens[b], append, mark, &at, why);
        }
        free(mark);
    }
    const size_t units = shape->batch * shape->q_heads;
    for (size_t unit = 0; unit < units && status == HA_OK && !append; unit += def->task)
        status = judge_padding(def, in->layer, unit, units - unit < def->task ? units : unit + def->task, why);
    for (size_t b = 0; b < shape->batch && status == HA_OK; b++) {
        const size_t gone = to_evict(def, in->tokens[b] - sequence[b].first);
        for (size_t h = 0; h < shape->q_heads && status == HA_OK; h++)
            status = advance(def, in, &sequence[b], b, h, gone, why);
        sequence[b].first += gone;
        sequence[b].tokens = in->tokens[b];
    }
    return status;
}

const struct ha_definition ha_definition_hgca = { "hgca", create, prefill, step, destroy };
