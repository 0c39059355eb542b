/* What the rules that choose keys or blocks by their scores share. */

#include "reference/definitions.h"
#include "reference/rows.h"

#include "harness/base/array.h"
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
    for (size_t d = 0; b_off && d < dim; d++) off += b_off[d] * (fabs(a[d]) + (a_off ? a_off[d] : 0));
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

/* The candidates that were taken, each to be explained by a head whose choice it may be. */
struct slots {
    size_t *left;     /* [heads] of its slots those that neither a certain nor an uncertain candidate has */
    uint8_t *may;     /* [heads][count] it may be the head's choice */
    uint8_t *certain; /* [count] it is for certain that of some head */
    size_t *at;       /* [count] the head in whose slot an uncertain one is, `heads`: in none */
    size_t *queue;    /* [heads] */
    size_t *from;     /* [heads] the candidate that moves there, `count`: none */
};

static enum ha_status slots_make(struct slots *s, const struct ha_def_choice *c, struct ha_why *why)
{
    s->left = calloc(3 * c->heads + c->count, sizeof *s->left);
    s->may = calloc((c->heads + 1) * c->count, sizeof *s->may);
    if (!s->left || !s->may)
        return ha_why(why, HA_ERROR, "reference: no memory for %zu heads' %ss of %zu", c->heads, c->what, c->count);
    s->queue = s->left + c->heads;
    s->from = s->queue + c->heads;
    s->at = s->from + c->heads;
    s->certain = s->may + c->heads * c->count;
    for (size_t i = 0; i < c->count; i++) s->at[i] = c->heads;
    return HA_OK;
}

/* What a head must have, by all of its scores. possible: [count] */
static enum ha_status head_must(const struct ha_def_choice *c, const struct ha_def_head *h, size_t head, size_t want,
                                uint8_t *possible, struct ha_why *why)
{
    const struct ha_ref_score *score = c->score + head * c->count;
    double *low = c->work, *high = c->work + c->count;
    for (size_t i = 0; i < c->count; i++) low[i] = score[i].low, high[i] = score[i].high;
    const double may = ha_array_largest(low, c->count, want - 1), must = ha_array_largest(high, c->count, want);
    for (size_t i = 0; i < c->count; i++) {
        possible[i] |= score[i].high >= may;
        if (score[i].low > must && !c->taken[i])
            return ha_def_wrong(h, why, "%s %zu is missing: it is among the %zu best of head %zu", c->what, i, want,
                                h->head + head);
    }
    return HA_OK;
}

/* What a head may have of those that were taken, and what it must have of them. */
static enum ha_status head_may(const struct ha_def_choice *c, const struct ha_def_head *h, size_t head, size_t want,
                               struct slots *s, struct ha_why *why)
{
    const struct ha_ref_score *score = c->score + head * c->count;
    uint8_t *may = s->may + head * c->count;
    double *low = c->work, *high = c->work + c->count, beyond = -HUGE_VAL;
    size_t own = 0;
    for (size_t i = 0; i < c->count; i++) {
        low[i] = score[i].low;
        if (!c->taken[i]) beyond = fmax(beyond, low[i]);
    }
    const double least = ha_array_largest(low, c->count, want - 1);
    for (size_t i = 0; i < c->count; i++) {
        may[i] = c->taken[i] && score[i].high >= beyond && score[i].high >= least;
        if (may[i]) high[own++] = score[i].high;
    }
    if (own < want)
        return ha_def_wrong(h, why, "%zu %ss may be the %zu best of head %zu", own, c->what, want, h->head + head);
    const double next = own > want ? ha_array_largest(high, own, want) : -HUGE_VAL;
    s->left[head] = want;
    for (size_t i = 0; i < c->count; i++)
        if (may[i] && (own == want || score[i].low > next)) s->certain[i] = 1, s->left[head]--;
    return HA_OK;
}

/* To the heads that may have a candidate and were not reached: true if one has a slot left, and all on the way have
 * moved. */
static bool reach(struct slots *s, size_t heads, size_t count, size_t candidate, size_t *end)
{
    for (size_t a = 0; a < heads; a++) {
        if (!s->may[a * count + candidate] || s->from[a] < count) continue;
        s->from[a] = candidate;
        s->queue[(*end)++] = a;
        if (s->left[a] == 0) continue;
        s->left[a]--;
        for (size_t to = a; to < heads;) {
            const size_t moves = s->from[to], was = s->at[moves];
            s->at[moves] = to;
            to = was;
        }
        return true;
    }
    return false;
}

/* Gives an uncertain candidate a slot, for which others may move to other heads: an augmenting path, found breadth
 * first. false: there is none, so that some candidate has no slot however they are given. */
static bool give_slot(struct slots *s, size_t heads, size_t count, size_t candidate)
{
    size_t end = 0;
    for (size_t a = 0; a < heads; a++) s->from[a] = count;
    if (reach(s, heads, count, candidate, &end)) return true;
    for (size_t begin = 0; begin < end; begin++)
        for (size_t i = 0; i < count; i++)
            if (s->at[i] == s->queue[begin] && reach(s, heads, count, i, &end)) return true;
    return false;
}

/* Each head chooses want[head], with one of them all that are larger for certain. What was taken is the union of such
 * choices only if
 *   - it holds what a head must have by all of its scores;
 *   - each head finds as many as it chooses in it, not counting those that are for certain smaller than one that was
 * not taken, or than as many others;
 *   - each candidate has a slot of a head that may have it. A head has as many slots as it chooses; one is kept for
 * each candidate that it must have, now that it chooses among those that were taken. With one head this is what
 * judge_one asks. With more it is not asked that a head that uses an uncertain candidate has slots for all uncertain
 * ones that are larger, too: these may have been given slots of other heads. */
enum ha_status ha_def_choice_judge_union(const struct ha_def_choice *c, const struct ha_def_head *h, const size_t *want,
                                         struct ha_why *why)
{
    struct slots s = { 0 };
    size_t most = 0;
    for (size_t head = 0; head < c->heads; head++) most = want[head] > most ? want[head] : most;
    if (most >= c->count) return judge_all(c, h, why);
    enum ha_status status = slots_make(&s, c, why);
    for (size_t head = 0; head < c->heads && status == HA_OK; head++)
        if (want[head]) status = head_must(c, h, head, want[head], s.certain, why);
    for (size_t i = 0; i < c->count && status == HA_OK; i++) {
        if (c->taken[i] && !s.certain[i])
            status = ha_def_wrong(h, why, "%s %zu is not among the %zu best of any head of its group", c->what, i,
                                  most);
        s.certain[i] = 0;
    }
    for (size_t head = 0; head < c->heads && status == HA_OK; head++)
        if (want[head]) status = head_may(c, h, head, want[head], &s, why);
    for (size_t i = 0; i < c->count && status == HA_OK; i++)
        if (c->taken[i] && !s.certain[i] && !give_slot(&s, c->heads, c->count, i))
            status = ha_def_wrong(h, why, "%s %zu has no place among the %zu of each head that may have it", c->what, i,
                                  most);
    free(s.left);
    free(s.may);
    return status;
}

/* With HA_DEF_MAX the query heads of a KV head have one choice, the first one's. */
static enum ha_status judge_same(const struct ha_def_choice *c, const struct ha_def_head *h, struct ha_why *why)
{
    const size_t head = h->head % c->heads;
    for (size_t i = 0; i < c->count && head > 0; i++)
        if (c->taken[i] != c->first[i])
            return ha_def_wrong(h, why, "%s %zu is %s head %zu: they have one choice", c->what, i,
                                c->taken[i] ? "chosen and missing in" : "missing and chosen by", h->head - head);
    if (head == 0) memcpy(c->first, c->taken, c->count * sizeof *c->first);
    return HA_OK;
}

enum ha_status ha_def_choice_judge(const struct ha_def_choice *c, const struct ha_def_head *h, size_t want,
                                   struct ha_why *why)
{
    const size_t head = h->head % c->heads;
    if (want >= c->count) return judge_all(c, h, why);
    if (c->group == HA_DEF_HEAD) return judge_one(c, h, c->score + head * c->count, want, why);
    HA_TRY(judge_same(c, h, why));
    if (head > 0) return HA_OK;
    if (c->group == HA_DEF_MAX) return judge_one(c, h, c->score, want, why);
    size_t *each = malloc(c->heads * sizeof *each);
    if (!each) return ha_why(why, HA_ERROR, "reference: no memory for %zu heads", c->heads);
    for (size_t i = 0; i < c->heads; i++) each[i] = want;
    const enum ha_status status = ha_def_choice_judge_union(c, h, each, why);
    free(each);
    return status;
}

/* Somewhere in [lower, upper] is the threshold: what is chosen may be above it, what is not may be below it, unless it
 * is one too many. */
enum ha_status ha_def_choice_judge_within(const struct ha_def_choice *c, const struct ha_def_head *h, double within,
                                          size_t most, struct ha_why *why)
{
    const struct ha_ref_score *score = c->score + (c->group == HA_DEF_HEAD ? h->head % c->heads * c->count : 0);
    size_t chosen = 0, weakest = 0, strongest = 0;
    double low = -HUGE_VAL, high = -HUGE_VAL, least = HUGE_VAL, left = -HUGE_VAL;
    if (c->group == HA_DEF_MAX) HA_TRY(judge_same(c, h, why));
    for (size_t i = 0; i < c->count; i++) {
        low = fmax(low, score[i].low);
        high = fmax(high, score[i].high);
        chosen += c->taken[i];
        if (c->taken[i] && score[i].high <= least) least = score[i].high, weakest = i;
        else if (!c->taken[i] && score[i].low > left) left = score[i].low, strongest = i;
    }
    const double lower = low - within - HA_REF_U * fabs(low - within),
                 upper = high - within + HA_REF_U * fabs(high - within);
    if (chosen > most)
        return ha_def_wrong(h, why, "%zu %ss chosen, at most %zu may be: %s %zu (score %.9g) is one too many", chosen,
                            c->what, most, c->what, weakest, score[weakest].value);
    if (chosen == 0 && c->count > 0 && high < HUGE_VAL)
        return ha_def_wrong(h, why, "no %s is chosen, of %zu", c->what, c->count);
    if (!(least >= left))
        return ha_def_wrong(h, why, "%s %zu (score %.9g) was chosen, %s %zu (score %.9g) was not", c->what, weakest,
                            score[weakest].value, c->what, strongest, score[strongest].value);
    if (chosen && !(least >= lower))
        return ha_def_wrong(h, why, "%s %zu (score %.9g) was chosen, more than %g below the largest (%.9g)", c->what,
                            weakest, score[weakest].value, within, low);
    if (chosen < ha_ref_smaller(most, c->count) && !(left <= upper))
        return ha_def_wrong(h, why, "%s %zu (score %.9g) is missing, no more than %g below the largest (%.9g)", c->what,
                            strongest, score[strongest].value, within, high);
    return HA_OK;
}
