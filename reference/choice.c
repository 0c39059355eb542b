/* What the rules that choose keys or blocks by their scores share. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/why.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

enum ha_status ha_def_on_device(const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why)
{
    size_t parts = 0;
    for (size_t j = 0; j < h->tokens; j++)
        if (mark[j] & HA_MARK_HOST) return ha_def_wrong(h, why, "key %zu is on the host, all belong on the device", j);
    for (size_t i = 0; i < h->chosen->parts; i++) {
        const struct ha_part *part = &h->chosen->part[i];
        if (part->count == 0) continue;
        if (++parts > 1) return ha_def_wrong(h, why, "key %u is in a second part", (unsigned)part->token[0]);
        if (part->q || part->k || part->weight_only)
            return ha_def_wrong(h, why, "key %u is not weighed by the step's query, itself and its value",
                                (unsigned)part->token[0]);
    }
    return HA_OK;
}

struct ha_ref_score ha_ref_score_dot(const double *a, const double *a_off, const double *b, const double *b_off,
                                     size_t dim, double scale)
{
    double sum = 0, size = 0, off = 0;
#pragma omp simd reduction(+ : sum, size)
    for (size_t d = 0; d < dim; d++) {
        const double x = a[d] * b[d];
        sum += x;
        size += fabs(x);
    }
    for (size_t d = 0; a_off && d < dim; d++) off += a_off[d] * fabs(b[d]);
    for (size_t d = 0; b_off && d < dim; d++) off += b_off[d] * fabs(a[d]);
    /* dim products, as many additions less one, the scale; a path has one more where sums are made in parts */
    const double tol = fabs(scale) * (off + ha_ref_gamma((double)dim + 3) * (size + off)) + HA_REF_ETA;
    if (!(fmax(1, fabs(scale)) * (size + off) < (double)FLT_MAX / 2))
        return (struct ha_ref_score){ scale * sum, -HUGE_VAL, HUGE_VAL };
    return (struct ha_ref_score){ scale * sum, scale * sum - tol, scale * sum + tol };
}

enum ha_status ha_def_choice_begin(struct ha_def_choice *c, size_t heads, size_t count, struct ha_why *why)
{
    ha_def_choice_end(c);
    c->heads = heads;
    c->count = count;
    c->score = malloc((heads * count + 1) * sizeof *c->score);
    c->taken = malloc(count + 1);
    c->first = malloc(count + 1);
    c->work = malloc((2 * count + 1) * sizeof *c->work);
    if (!c->score || !c->taken || !c->first || !c->work)
        return ha_why(why, HA_ERROR, "reference: no memory for the scores of %zu %ss", count, c->what);
    for (size_t i = 0; i < heads * count; i++) c->score[i] = (struct ha_ref_score){ -HUGE_VAL, -HUGE_VAL, -HUGE_VAL };
    return HA_OK;
}

void ha_def_choice_end(struct ha_def_choice *c)
{
    free(c->score);
    free(c->taken);
    free(c->first);
    free(c->work);
    *c = (struct ha_def_choice){ .what = c->what, .group = c->group };
}

void ha_def_choice_score(struct ha_def_choice *c, size_t head, size_t candidate, struct ha_ref_score score)
{
    struct ha_ref_score *most = &c->score[(c->group == HA_DEF_MAX ? 0 : head * c->count) + candidate];
    most->value = fmax(most->value, score.value);
    most->low = fmax(most->low, score.low);
    most->high = fmax(most->high, score.high);
}

static enum ha_status judge_all(const struct ha_def_choice *c, const struct ha_def_head *h, struct ha_why *why)
{
    for (size_t i = 0; i < c->count; i++)
        if (!c->taken[i]) return ha_def_wrong(h, why, "%s %zu is missing: all %zu are chosen", c->what, i, c->count);
    return HA_OK;
}

static enum ha_status judge_one(const struct ha_def_choice *c, const struct ha_def_head *h,
                                const struct ha_ref_score *score, size_t want, struct ha_why *why)
{
    size_t chosen = 0, weakest = 0, strongest = 0;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (size_t i = 0; i < c->count; i++) {
        chosen += c->taken[i];
        if (c->taken[i] && score[i].high <= least) least = score[i].high, weakest = i;
        else if (!c->taken[i] && score[i].low > most) most = score[i].low, strongest = i;
    }
    if (chosen != want)
        return ha_def_wrong(h, why, "%zu %ss chosen, the rule chooses %zu: %s %zu (score %.9g) %s", chosen, c->what,
                            want, c->what, chosen < want ? strongest : weakest,
                            score[chosen < want ? strongest : weakest].value,
                            chosen < want ? "is missing" : "is one too many");
    if (!(least >= most))
        return ha_def_wrong(h, why, "%s %zu (score %.9g) was chosen, %s %zu (score %.9g) was not", c->what, weakest,
                            score[weakest].value, c->what, strongest, score[strongest].value);
    return HA_OK;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* A candidate is for certain among the `want` best of a head if no more than `want`, itself one of them, may reach its
 * least score, and may be among them if fewer than `want` are beyond its largest for certain. */
static enum ha_status judge_union(const struct ha_def_choice *c, const struct ha_def_head *h, size_t want,
                                  struct ha_why *why)
{
    enum { POSSIBLE = 1, CERTAIN = 2 };
    double *low = c->work, *high = c->work + c->count;
    uint8_t *is = calloc(c->count, sizeof *is);
    enum ha_status status = is ? HA_OK : ha_why(why, HA_ERROR, "reference: no memory for %zu %ss", c->count, c->what);
    size_t spare = 0, uncertain = 0;
    for (size_t head = 0; head < c->heads && status == HA_OK; head++) {
        const struct ha_ref_score *score = c->score + head * c->count;
        size_t certain = 0, own = 0;
        for (size_t i = 0; i < c->count; i++) low[i] = score[i].low, high[i] = score[i].high;
        qsort(low, c->count, sizeof *low, descending);
        qsort(high, c->count, sizeof *high, descending);
        for (size_t i = 0; i < c->count && status == HA_OK; i++) {
            const bool must = score[i].low > high[want], may = score[i].high >= low[want - 1];
            is[i] |= (may ? POSSIBLE : 0) | (must ? CERTAIN : 0);
            certain += must;
            own += may && c->taken[i];
            if (must && !c->taken[i])
                status = ha_def_wrong(h, why, "%s %zu is missing: it is among the %zu best of head %zu", c->what, i,
                                      want, h->head + head);
        }
        if (status == HA_OK && own < want)
            status = ha_def_wrong(h, why, "%zu %ss may be the %zu best of head %zu", own, c->what, want,
                                  h->head + head);
        spare += want - certain;
    }
    for (size_t i = 0; i < c->count && status == HA_OK; i++) {
        if (c->taken[i] && !(is[i] & POSSIBLE))
            status = ha_def_wrong(h, why, "%s %zu is not among the %zu best of any head of its group", c->what, i,
                                  want);
        uncertain += c->taken[i] && !(is[i] & CERTAIN);
    }
    free(is);
    if (status == HA_OK && uncertain > spare)
        status = ha_def_wrong(h, why, "%zu %ss more than %zu of each head", uncertain - spare, c->what, want);
    return status;
}

enum ha_status ha_def_choice_judge(const struct ha_def_choice *c, const struct ha_def_head *h, size_t want,
                                   struct ha_why *why)
{
    const size_t head = h->head % c->heads;
    if (want >= c->count) return judge_all(c, h, why);
    if (c->group == HA_DEF_HEAD) return judge_one(c, h, c->score + head * c->count, want, why);
    for (size_t i = 0; i < c->count && head > 0; i++)
        if (c->taken[i] != c->first[i])
            return ha_def_wrong(h, why, "%s %zu is %s head %zu: they have one choice", c->what, i,
                                c->taken[i] ? "chosen and missing in" : "missing and chosen by", h->head - head);
    if (head > 0) return HA_OK;
    memcpy(c->first, c->taken, c->count * sizeof *c->first);
    return c->group == HA_DEF_MAX ? judge_one(c, h, c->score, want, why) : judge_union(c, h, want, why);
}
