/* topk in terms of vectors. The k-th largest number is found by bisection over the integers in the order of the floats,
 * each step a pass that counts. Many numbers are sampled first for two numbers that enclose it, what lies between is
 * collected, and the steps are over that: x is read twice, and again only where the sample misled. */

#include "kernels/vectors/lists.h"

#if defined(HA_VECTORS)
#include "kernels/rows.h"

enum { SHORT = 512, SAMPLE_MIN = 128, SAMPLE_MAX = 2048, SAMPLE_SHARE = 32, KEEP = 4096 };

/* the k-th largest lies in [lo, hi]; numbers >= lo, SIZE_MAX: not counted yet; numbers > hi */
struct search {
    int32_t lo, hi;
    size_t from_lo, above;
};

enum { LOWEST = -0x7f800000, HIGHEST = 0x7f800000 }; /* -inf, +inf */

/* The float that is the o-th from 0 upwards; there is no -0, and what follows +inf is NaN, which nothing reaches. */
static inline float nth(int32_t o)
{
    union {
        uint32_t u;
        float f;
    } c = { .u = o < 0 ? 0x80000000u | (uint32_t)-o : (uint32_t)o };
    return c.f;
}

static size_t topk_count(const float *x, size_t n, int32_t from)
{
    const vec t = v_set(nth(from));
    size_t c = 0, i = 0;
    for (; i + LANES <= n; i += LANES) c += v_ones(v_ge(v_load(x + i), t));
    return i < n ? c + v_ones(v_ge(v_load_at(x, i, n), t)) : c;
}

/* Halves [lo, hi] until it is one number, or between `least` and `most` numbers reach lo, or at most `room` lie in it.
 */
static void narrow(const float *x, size_t n, size_t least, size_t most, size_t room, struct search *s)
{
    while (s->lo < s->hi && s->from_lo > most && s->from_lo - s->above > room) {
        const int32_t middle = (int32_t)(s->lo + ((int64_t)s->hi - s->lo + 1) / 2);
        const size_t c = topk_count(x, n, middle);
        if (c >= least) {
            s->lo = middle;
            s->from_lo = c;
        } else {
            s->hi = middle - 1;
            s->above = c;
        }
    }
}

union kept {
    uint32_t i;
    float f;
};

/* The numbers in [lo, hi], if they are at most KEEP - LANES; counts what reaches lo and what is above hi anyway. */
static size_t collect(const float *x, size_t n, struct search *s, union kept *kept)
{
    const vec lo = v_set(nth(s->lo)), above = v_set(nth(s->hi + 1));
    size_t in = 0, at = 0, reach = 0;
    for (size_t i = 0; i < n; i += LANES) {
        const vec v = v_load_at(x, i, n);
        const unsigned from_lo = v_ge(v, lo), between = from_lo & ~v_ge(v, above);
        v_put_indices(&kept[at].i, (uint32_t)i, between);
        reach += v_ones(from_lo);
        in += v_ones(between);
        at = in <= KEEP - LANES ? in : 0;
    }
    s->from_lo = reach;
    s->above = reach - in;
    if (in > KEEP - LANES) return 0;
    for (size_t i = 0; i < in; i++) kept[i].f = x[kept[i].i];
    return in;
}

/* narrows to what a sample says, some standard deviations wide, and collects it; returns how many */
static size_t guess(const struct ha_topk *t, struct search *s, union kept *kept)
{
    const size_t some = t->n / SAMPLE_SHARE, size = some < SAMPLE_MIN ? SAMPLE_MIN : ha_least(SAMPLE_MAX, some);
    const size_t step = t->n / size;
    for (size_t i = 0; i < size; i++) kept[i].f = t->x[i * step];
    const double share = (double)t->k / (double)t->n, rank = share * (double)size,
                 off = 2.2 * sqrt(rank * (1 - share)) + 2;
    const size_t slack = 1 + (size_t)(off / 4), last = (size_t)(rank + off);
    struct search low = { LOWEST, HIGHEST, SIZE_MAX, 0 }, high;
    if (last <= size) narrow(&kept->f, size, last, last + slack, 0, &low);
    high = low;
    high.hi = HIGHEST;
    high.above = 0;
    if (rank > off + 1) narrow(&kept->f, size, (size_t)(rank - off), (size_t)(rank - off) + slack, 0, &high);
    else high.lo = HIGHEST;

    struct search in = { low.lo, high.lo, 0, 0 };
    const size_t found = collect(t->x, t->n, &in, kept);
    if (in.above >= t->k) *s = (struct search){ in.hi + 1, HIGHEST, in.above, 0 };
    else if (in.from_lo < t->k) *s = (struct search){ LOWEST, in.lo - 1, SIZE_MAX, in.from_lo };
    else *s = in;
    return s->lo == in.lo && s->hi == in.hi ? found : 0;
}

/* all numbers, and so many NaN as are missing */
static void emit_nan(const float *x, size_t n, size_t missing, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]) && missing == 0) continue;
        missing -= isnan(x[i]) ? 1 : 0;
        *out++ = (uint32_t)i;
    }
}

void HA_KERNEL(topk)(const struct ha_topk *t)
{
    const size_t n = t->n, k = t->k;
    if (k >= n) {
        for (size_t i = 0; i < n; i++) t->index[i] = (uint32_t)i;
        return;
    }
    if (k == 0) return;
    struct search s = { LOWEST, HIGHEST, SIZE_MAX, 0 };
    if (n <= SHORT) {
        narrow(t->x, n, k, k, 0, &s);
    } else {
        union kept kept[KEEP];
        size_t in = guess(t, &s, kept);
        if (in == 0) {
            narrow(t->x, n, k, k, KEEP - LANES, &s);
            if (s.lo < s.hi && s.from_lo > k) in = collect(t->x, n, &s, kept);
        }
        if (in > 0) {
            const size_t above = s.above;
            s.above = 0;
            s.from_lo -= above;
            narrow(&kept->f, in, k - above, k - above, 0, &s);
            s.above += above;
            s.from_lo += above;
        }
    }
    if (s.from_lo == SIZE_MAX) s.from_lo = topk_count(t->x, n, s.lo);
    if (s.from_lo < k) {
        emit_nan(t->x, n, k - s.from_lo, t->index);
        return;
    }
    const size_t cut = s.from_lo == k ? n : v_behind_tie(t->x, n, nth(s.lo), nth(s.lo + 1), k - s.above);
    const size_t done = v_list(t->x, 0, cut, nth(s.lo), t->index, k);
    v_list(t->x, cut, n, nth(s.lo + 1), t->index + done, k - done);
}
#endif
