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
#include "reference/rows.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum { ALPHA, BETA, BLK_SIZE, BLK_NUM, HEADS_PER_TASK };

/* what is known of a host entry; PADDED for the time of one judgement */
enum { NO = 0, YES = 1, EITHER = 2, PADDED = 4 };

struct head {
    size_t first;              /* tokens from here on are device entries */
    struct ha_ref_weight *maw; /* [device entries] */
    uint8_t *selected;         /* [host entries] */
};

struct ha_def {
    struct ha_shape shape;
    double alpha, beta;
    size_t block, most, task; /* blk_size, l_max, heads_per_task */
    struct head head[];       /* [layers][batch][q_heads] */
};

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "hgca: no memory"); }

static enum ha_status create(struct ha_def **out, const struct ha_shape *shape, const double *param,
                             const struct ha_fit *fit, struct ha_why *why)
{
    struct ha_def *def = *out = calloc(1, sizeof *def + ha_def_heads(shape) * sizeof def->head[0]);
    if (!def) return no_memory(why);
    def->shape = *shape;
    def->alpha = (double)(float)param[ALPHA]; /* near 1 the rounding of 1 - alpha would exceed the tolerance */
    def->beta = param[BETA];
    def->block = (size_t)param[BLK_SIZE];
    def->most = def->block * (size_t)param[BLK_NUM];
    def->task = param[HEADS_PER_TASK] > 0 ? (size_t)param[HEADS_PER_TASK] : 1; /* one head alone is not padded */
    return HA_OK;
}

static void destroy(struct ha_def *def)
{
    for (size_t i = 0; i < ha_def_heads(&def->shape); i++) {
        free(def->head[i].maw);
        free(def->head[i].selected);
    }
    free(def);
}

static size_t to_evict(const struct ha_def *def, size_t entries)
{
    if (entries < def->most) return 0;
    return (entries - def->most + def->block) / def->block
           * def->block; /* ceil((entries - most + 1) / block) * block */
}

/* weight > threshold, as far as binary32 can tell; the threshold costs two roundings */
static uint8_t decide(struct ha_ref_weight weight, double threshold)
{
    if (!(fabs(weight.value - threshold) > weight.tol + 2 * HA_REF_U * fabs(threshold))) return EITHER;
    return weight.value > threshold ? YES : NO;
}

/* Selects the host entries by their weights. */
static enum ha_status select_anew(const struct ha_def *def, const struct ha_def_head *h, struct head *head,
                                  struct ha_why *why)
{
    const size_t entries = head->first;
    struct ha_ref_weight *weight = malloc((entries + 1) * sizeof *weight);
    if (!weight) return no_memory(why);
    const enum ha_status status = ha_ref_observe(&def->shape, h, NULL, 0, entries, weight, why);
    for (size_t j = 0; j < entries && status == HA_OK; j++)
        head->selected[j] = decide(weight[j], def->beta / (double)entries);
    free(weight);
    return status;
}

static enum ha_status grow(struct head *head, size_t device, size_t host, struct ha_why *why)
{
    struct ha_ref_weight *maw = realloc(head->maw, (device + 1) * sizeof *maw);
    if (maw) head->maw = maw;
    uint8_t *selected = realloc(head->selected, host + 1);
    if (selected) head->selected = selected;
    return maw && selected ? HA_OK : no_memory(why);
}

static enum ha_status hgca_prefill(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct head *head = &def->head[h->index];
    head->first = to_evict(def, h->tokens);
    const size_t entries = h->tokens - head->first;
    HA_TRY(grow(head, entries, head->first, why));
    HA_TRY(ha_ref_observe(&def->shape, h, NULL, head->first, entries, head->maw, why));
    return select_anew(def, h, head, why);
}

/* One head's report: the device part, the selected entries, what is called padding. Adopts. */
static enum ha_status judge_head(struct head *head, const struct ha_def_head *h, const uint8_t *mark,
                                 struct ha_why *why)
{
    for (size_t j = head->first; j < h->tokens; j++) {
        if (mark[j] == HA_MARK_NONE) return ha_def_wrong(h, why, "key %zu is missing: it is on the device", j);
        if (mark[j] != HA_MARK_DEVICE)
            return ha_def_wrong(h, why, "key %zu must be in a device part and not padding", j);
    }
    for (size_t j = 0; j < head->first; j++) {
        if (mark[j] & HA_MARK_DEVICE) return ha_def_wrong(h, why, "key %zu was evicted from the device", j);
        if (h->queries > 1) {
            if (mark[j] != HA_MARK_HOST)
                return ha_def_wrong(h, why, "key %zu must be used: an append reads all host entries", j);
        } else if (mark[j] == HA_MARK_HOST) {
            if (head->selected[j] == NO) return ha_def_wrong(h, why, "key %zu is below the threshold", j);
            head->selected[j] = YES;
        } else {
            if (head->selected[j] == YES)
                return ha_def_wrong(h, why, "key %zu is missing: its weight is above the threshold", j);
            head->selected[j] = mark[j] & HA_MARK_PADDING ? NO | PADDED : NO;
        }
    }
    return HA_OK;
}

static size_t selected_count(const struct head *head)
{
    size_t n = 0;
    for (size_t j = 0; j < head->first; j++) n += head->selected[j] == YES;
    return n;
}

/* The padding of a head whose task selects `largest` at most; forgets it. */
static enum ha_status judge_padding(struct head *head, const struct ha_def_head *h, size_t largest, struct ha_why *why)
{
    size_t missing = largest - selected_count(head);
    for (size_t j = head->first; j-- > 0;) {
        if (head->selected[j] == YES) continue;
        const bool want = missing > 0, padded = head->selected[j] & PADDED;
        if (want != padded)
            return ha_def_wrong(h, why, "key %zu %s", j,
                                want ? "must pad this head to its task's largest count"
                                     : "is padding that the task does not need");
        head->selected[j] = NO;
        if (want) missing--;
    }
    return HA_OK;
}

static enum ha_status hgca_judge(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                 struct ha_why *why)
{
    const size_t q_heads = def->shape.q_heads, unit = h->seq * q_heads + h->head, begin = unit / def->task * def->task;
    struct head *task = &def->head[h->index - (unit - begin)];
    HA_TRY(judge_head(&def->head[h->index], h, mark, why));
    const bool whole = unit + 1 == begin + def->task || unit + 1 == def->shape.batch * q_heads;
    if (h->queries > 1 || !whole) return HA_OK;
    size_t largest = 0;
    for (size_t i = begin; i <= unit; i++) {
        const size_t count = selected_count(&task[i - begin]);
        largest = count > largest ? count : largest;
    }
    for (size_t i = begin; i <= unit; i++) {
        struct ha_def_head other = *h;
        other.seq = i / q_heads;
        other.head = i % q_heads;
        HA_TRY(judge_padding(&task[i - begin], &other, largest, why));
    }
    return HA_OK;
}

/* MAW, selection and eviction. */
static enum ha_status advance(struct ha_def *def, const struct ha_def_head *h, struct ha_why *why)
{
    struct head *head = &def->head[h->index];
    const size_t entries = h->tokens - head->first, old = entries - h->queries, gone = to_evict(def, entries);
    HA_TRY(grow(head, entries, head->first + gone, why));
    struct ha_ref_weight *now = malloc((entries + 1) * sizeof *now);
    enum ha_status status = now ? ha_ref_observe(&def->shape, h, NULL, head->first, entries, now, why) : no_memory(why);
    for (size_t j = 0; j < entries && status == HA_OK; j++) {
        const double alpha = j < old ? def->alpha : 1;
        const struct ha_ref_weight before = j < old ? head->maw[j] : (struct ha_ref_weight){ 0, 0 };
        struct ha_ref_weight *maw = &head->maw[j];
        maw->value = (1 - alpha) * before.value + alpha * now[j].value;
        maw->tol = (1 - alpha) * before.tol + alpha * now[j].tol + ha_ref_gamma(4) * maw->value;
    }
    free(now);
    if (status == HA_OK && h->queries > 1) status = select_anew(def, h, head, why);
    if (status != HA_OK) return status;
    for (size_t j = 0; j < gone; j++)
        head->selected[head->first + j] = decide(head->maw[j], def->beta / (double)entries);
    memmove(head->maw, head->maw + gone, (entries - gone) * sizeof *head->maw);
    head->first += gone;
    return HA_OK;
}

const struct ha_definition ha_definition_hgca = {
    .variant = "hgca",
    .pads = true,
    .create = create,
    .prefill = hgca_prefill,
    .judge = hgca_judge,
    .advance = advance,
    .destroy = destroy,
};
