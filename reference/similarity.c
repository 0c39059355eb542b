/* How similar queries are to the labels of a cache, in binary64, and what binary32 leaves open. */

#include "reference/rows.h"

#include <float.h>
#include <string.h>

/* A similarity, and between which numbers binary32 may have it. */
struct range {
    double of, low, high;
    bool none; /* NaN it is */
    bool any;  /* a sum leaves the normal numbers of binary32: it may be anything */
};

static struct range smaller(struct range a, struct range b)
{
    return (struct range){ .of = fmin(a.of, b.of),
                           .low = fmin(a.low, b.low),
                           .high = fmin(a.high, b.high),
                           .none = a.none || b.none,
                           .any = a.any || b.any };
}

/* A term of a sum passes a product and fewer additions than there are terms; a root halves what its sum is off by; a
 * few more roundings are those of the quotient. Equal rows have equal sums, and rows across each other a sum of zeros.
 */
static struct range cosine(const float *x, const float *y, size_t dim)
{
    double xy = 0, xx = 0, yy = 0, size = 0;
    for (size_t d = 0; d < dim; d++) {
        xy += (double)x[d] * (double)y[d];
        xx += (double)x[d] * (double)x[d];
        yy += (double)y[d] * (double)y[d];
        size += fabs((double)x[d] * (double)y[d]);
    }
    const bool equal = memcmp(x, y, dim * sizeof *x) == 0;
    /* of squares that are less much may be lost, and of equal rows as much of each */
    const double of = xy / sqrt(xx * yy), most = (double)FLT_MAX / 1.001,
                 least = equal ? 1.001 * (double)FLT_MIN : 0x1p-100, by = (double)dim * HA_REF_U,
                 off = 1.001
                       * (by * (size / sqrt(xx * yy) + fabs(of)) + 4 * HA_REF_U
                          + (double)dim * HA_REF_ETA / sqrt(xx * yy));
    if (!isfinite(xx) || !isfinite(yy) || xx == 0 || yy == 0) return (struct range){ .none = true };
    if (xx > most || yy > most || xx < least || yy < least || size > most) return (struct range){ .any = true };
    if (equal) return (struct range){ 1, 1, 1, false, false };
    if (size == 0) return (struct range){ 0, 0, 0, false, false }; /* no product rounds */
    return (struct range){ .of = of, .low = of - off, .high = of + off };
}

/* of a query head: the least over the step's tokens */
static struct range head_range(const struct ha_device_similarity *d, const float *q, const float *label, size_t head)
{
    struct range least = { HUGE_VAL, HUGE_VAL, HUGE_VAL, false, false };
    for (size_t t = 0; t < d->q_len; t++)
        least = smaller(least,
                        cosine(q + (t * d->q_heads + head) * d->head_dim, label + head * d->head_dim, d->head_dim));
    return least;
}

/* Weighted by importance: of the query heads' own similarities, the lowest, or the highest they may have. */
struct sums {
    double importance, of, low, high;
};

static double mean(double importance, double sum) { return sum < HUGE_VAL ? importance / sum : 0; }

/* 0 to 1 where `got` is in the range, and more beside it */
static double beside(double got, const struct range *r)
{
    if (r->none) return isnan(got) ? 0 : HUGE_VAL;
    if (r->any) return 0;
    if (isnan(got)) return HUGE_VAL;
    return got == r->of ? 0 : got > r->of ? (got - r->of) / (r->high - r->of) : (r->of - got) / (r->of - r->low);
}

/* What a hit or a miss of that similarity is: wrong, where it must be the other. */
static double decided(const struct range *r, double threshold, bool missed)
{
    const bool hits = !r->none && r->low >= threshold, misses = r->none || !(r->high >= threshold);
    return r->any && !r->none ? 0 : (missed ? hits : misses) ? HUGE_VAL : 0;
}

double ha_ref_judge_similarity(const struct ha_device_similarity *d, size_t seq, size_t kv_head, const float *label)
{
    const struct ha_device_similarity_seq *s = &d->seqs[seq];
    const size_t group = d->q_heads / d->kv_heads, begin = kv_head * group, at = begin * d->head_dim;
    const float *last = s->q + (d->q_len - 1) * d->q_heads * d->head_dim;
    const double got = (double)s->similarity[kv_head], threshold = (double)d->threshold[kv_head],
                 share = 1.001 * (2 * (double)group + 4) * HA_REF_U;
    const bool missed = s->missed[kv_head];
    struct range least = { HUGE_VAL, HUGE_VAL, HUGE_VAL, false, false };
    struct sums sum = { 0, 0, 0, 0 };
    for (size_t h = begin; h < begin + group; h++) {
        const struct range of = head_range(d, s->q, label, h);
        least = smaller(least, of);
        if (d->group != HA_SIMILAR_HARMONIC) continue;
        const double weight = (double)d->importance[h];
        sum.importance += weight;
        sum.of += of.of > 0 ? weight / of.of : HUGE_VAL;
        sum.low += of.low > (double)FLT_MIN ? weight / of.low : HUGE_VAL;
        sum.high += of.high > 0 ? weight / of.high : HUGE_VAL;
    }
    if (s->missed[kv_head] > 1) return HUGE_VAL;
    if (memcmp(s->label + at, missed ? last + at : label + at, group * d->head_dim * sizeof *label) != 0)
        return HUGE_VAL;
    if (threshold < -1 && missed) return HUGE_VAL;

    const bool harmonic = d->group == HA_SIMILAR_HARMONIC && !least.none && !least.any;
    double as_least = HUGE_VAL, as_mean = HUGE_VAL;
    if (!harmonic || least.low <= 0) { /* not positive, or none of them: a miss of the harmonic mean */
        as_least = harmonic && got > 0 ? HUGE_VAL : beside(got, &least);
        if (!(threshold < -1))
            as_least = fmax(as_least, harmonic ? missed ? 0 : HUGE_VAL : decided(&least, threshold, missed));
    }
    if (harmonic && least.high > 0) {
        struct range of = { .of = mean(sum.importance, sum.of),
                            .low = mean(sum.importance, sum.low),
                            .high = mean(sum.importance, sum.high) };
        if (least.low != 1 || least.high != 1) of.low *= 1 - share, of.high *= 1 + share;
        as_mean = beside(got, &of);
        if (!(threshold < -1)) as_mean = fmax(as_mean, decided(&of, threshold, missed));
    }
    return fmin(as_least, as_mean);
}
