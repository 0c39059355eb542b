/* topp in terms of vectors, for one row of weights. As multiples of 2^-HA_TOPP_BITS, which weights from WHOLE on are
 * and others are cut to, they have sums in binary64 that are exact up to 2, and of more than 2 never come out as less:
 * enough to be compared with p. The least weight that is chosen is found by bisection over these multiples. Of many
 * weights a sample says first between which two it lies: the sum below it, of small numbers, is known well. What lies
 * between is collected, and the steps are over that. So a row is read three times, and again where the sample misled.
 */

#include "kernels/vectors/lists.h"

#if defined(HA_VECTORS)
#include "kernels/c/ops.h"
#include "kernels/rows.h"

enum { SHORT = 512, SAMPLE_MIN = 128, SAMPLE_MAX = 1024, SAMPLE_SHARE = 32, KEEP = 4096, SUMS = 4 };
static const float whole = 0x1p-29f, unit = 0x1p-52f;
_Static_assert(HA_TOPP_BITS == 52, "unit");

/* The multiples in order, from 1: those of binary32 that are at most 1. What follows the last is above it. */
enum { LEAST = 1, MOST = 30 << 23, COARSE = 1 << 18 };
static inline float nth(uint32_t o)
{
    union {
        uint32_t u;
        float f;
    } c = { .u = o };
    return c.f * 0x1p97f; /* the o-th subnormal of binary32, and so on, is 2^-149 o */
}

/* the least weight that is chosen lies in [nth(lo), nth(hi)] */
struct search {
    uint32_t lo, hi;
    size_t from_lo, beyond; /* how many reach lo, at most; are above hi */
    double above;           /* the sum of these */
};

struct part {
    double sum;
    size_t count;
};

static inline vec cut(vec x) { return v_mul(v_floor(v_mul(x, v_set(1 / unit))), v_set(unit)); }

/* those that reach nth(o) */
static struct part part_from(const float *x, size_t n, uint32_t o)
{
    const float from = nth(o);
    const vec t = v_set(from);
    struct part p = { 0, 0 };
    totals s = v_no_totals();
    for (size_t i = 0; i < n; i += LANES) {
        const vec v = v_load_at(x, i, n), in = v_from(v, t);
        s = v_more(s, from < whole ? cut(in) : in);
        p.count += v_ones(v_ge(v, t));
    }
    p.sum = v_total(s);
    return p;
}

/* Halves [lo, hi] until it is one multiple, or at most `room` weights lie in it. */
static void narrow(const float *x, size_t n, double wanted, size_t room, struct search *s)
{
    while (s->lo < s->hi && s->from_lo - s->beyond > room) {
        const uint32_t middle = s->lo + (s->hi - s->lo + 1) / 2;
        const struct part p = part_from(x, n, middle);
        if (p.sum >= wanted) {
            s->lo = middle;
            s->from_lo = p.count;
        } else {
            s->hi = middle - 1;
            s->beyond = p.count;
            s->above = p.sum;
        }
    }
}

union kept {
    uint32_t i;
    float f;
};

/* The weights in [lo, hi], if they are at most KEEP - LANES; counts and sums anyway. */
static size_t collect(const float *x, size_t n, struct search *s, union kept *kept)
{
    const vec lo = v_set(nth(s->lo)), above = v_set(nth(s->hi + 1));
    const bool fine = nth(s->hi + 1) < whole;
    size_t in = 0, at = 0, beyond = 0;
    totals sum = v_no_totals();
    for (size_t i = 0; i < n; i += LANES) {
        const vec v = v_load_at(x, i, n), more = v_from(v, above);
        const unsigned high = v_ge(v, above), between = v_ge(v, lo) & ~high;
        sum = v_more(sum, fine ? cut(more) : more);
        beyond += v_ones(high);
        v_put_indices(&kept[at].i, (uint32_t)i, between);
        in += v_ones(between);
        at = in <= KEEP - LANES ? in : 0;
    }
    s->from_lo = beyond + in;
    s->beyond = beyond;
    s->above = v_total(sum);
    if (in > KEEP - LANES) return 0;
    for (size_t i = 0; i < in; i++) kept[i].f = x[kept[i].i];
    return in;
}

/* of the weights below nth(o) */
static void sum_below(const float *x, size_t n, uint32_t o, float *sum, float *squares)
{
    const vec t = v_set(nth(o));
    vec a = v_set(0), b = v_set(0);
    for (size_t i = 0; i < n; i += LANES) {
        const vec v = v_load(x + i), below = v_sub(v, v_from(v, t));
        a = v_add(a, below);
        b = v_fma(below, below, b);
    }
    *sum = v_sum_lanes(a);
    *squares = v_sum_lanes(b);
}

/* Between which two, near each other, the weights below begin to add up to more than `sum`, so that the multiple is in
 * [lo, hi); their squares' sum at lo. */
static float rank(const float *x, size_t n, float sum, uint32_t *lo, uint32_t *hi)
{
    float least = 0;
    while (*hi - *lo > COARSE) {
        const uint32_t middle = *lo + (*hi - *lo) / 2;
        float below, squares;
        sum_below(x, n, middle, &below, &squares);
        if (below > sum) {
            *hi = middle;
        } else {
            *lo = middle;
            least = squares;
        }
    }
    return least;
}

/* Narrows to what a sample says, some standard deviations wide, and collects it; returns how many. Where that misled,
 * or all are hardly enough, none, and the search is what is known. */
static size_t guess(const struct ha_topp *t, double wanted, float total, struct search *s, union kept *kept)
{
    const size_t some = t->n / SAMPLE_SHARE,
                 size = some < SAMPLE_MIN ? SAMPLE_MIN : ha_least(SAMPLE_MAX, some) / LANES * LANES;
    const size_t step = t->n / size;
    for (size_t i = 0; i < size; i++) kept[i].f = t->x[i * step];
    const float below = (total - (float)wanted) / (float)t->n * (float)size;
    if (below <= 0) return 0;
    uint32_t near[2] = { LEAST, MOST + 1 };
    const float off = 2.5f * sqrtf(rank(&kept->f, size, below, &near[0], &near[1]));
    uint32_t low[2] = { LEAST, near[1] }, high[2] = { near[0], MOST + 1 };
    rank(&kept->f, size, below - off, &low[0], &low[1]);
    rank(&kept->f, size, below + off, &high[0], &high[1]);

    struct search in = { .lo = low[0], .hi = high[1] - 1 };
    const size_t found = collect(t->x, t->n, &in, kept);
    if (in.above >= wanted) {
        *s = (struct search){ in.hi + 1, MOST, in.beyond, 0, 0 };
        return 0;
    }
    const double sum = found ? in.above + part_from(&kept->f, found, in.lo).sum : part_from(t->x, t->n, in.lo).sum;
    if (sum < wanted) *s = (struct search){ LEAST, in.lo - 1, t->n, in.from_lo, sum };
    else *s = in;
    return sum < wanted ? 0 : found;
}

/* false: all of them are not enough */
static bool find(const struct ha_topp *t, double wanted, float total, struct search *s)
{
    union kept kept[KEEP];
    *s = (struct search){ LEAST, MOST, t->n, 0, 0 };
    size_t in = t->n > SHORT ? guess(t, wanted, total, s, kept) : 0;
    if (in == 0) {
        if (s->lo == LEAST) {
            const struct part all = part_from(t->x, t->n, LEAST);
            if (all.sum < wanted) return false;
            s->from_lo = all.count;
        }
        narrow(t->x, t->n, wanted, KEEP - LANES, s);
        in = collect(t->x, t->n, s, kept);
    }
    if (in > 0) {
        const struct search outer = *s;
        *s = (struct search){ outer.lo, outer.hi, in, 0, 0 };
        narrow(&kept->f, in, wanted - outer.above, 1, s);
        s->from_lo += outer.beyond;
        s->beyond += outer.beyond;
        s->above += outer.above;
    }
    return true;
}

/* how many of those in [lo, hi], which are equal, are needed */
static size_t needed(const struct search *s, double wanted)
{
    if (s->from_lo - s->beyond == 1) return 1;
    const uint64_t left = (uint64_t)((wanted - s->above) * 0x1p52), each = (uint64_t)(nth(s->lo) * 0x1p52f);
    return (size_t)((left + each - 1) / each);
}

static size_t list(const struct ha_topp *t, const struct search *s, double wanted)
{
    const size_t ties = needed(s, wanted), keys = s->beyond + ties;
    const float lo = nth(s->lo), above = nth(s->hi + 1);
    const size_t end = keys == s->from_lo ? t->n : v_behind_tie(t->x, t->n, lo, above, ties);
    const size_t done = v_list(t->x, 0, end, lo, t->index, keys);
    v_list(t->x, end, t->n, above, t->index + done, keys - done);
    return keys;
}

static void take_weights(const struct ha_topp *t, size_t keys)
{
    if (t->w_type == HA_F32) {
        for (size_t i = 0; i < keys; i++) ((float *)t->w)[i] = t->x[t->index[i]];
        return;
    }
    char *w = t->w;
    for (size_t i = 0; i < keys; i += LANES, w += LANES * ha_dtype_bytes(HA_F16)) {
        const size_t some = ha_least(LANES, keys - i);
        float x[LANES] = { 0 };
        for (size_t j = 0; j < some; j++) x[j] = t->x[t->index[i + j]];
        if (some == LANES) v_narrow(w, v_load(x), HA_F16);
        else v_narrow_part(w, v_load(x), some, HA_F16);
    }
}

/* in any order; NaN where a weight is */
static float add_up(const float *x, size_t n)
{
    vec sum[SUMS];
    for (size_t j = 0; j < SUMS; j++) sum[j] = v_set(0);
    size_t i = 0;
    for (; n - i >= SUMS * LANES; i += SUMS * LANES)
        for (size_t j = 0; j < SUMS; j++) sum[j] = v_add(sum[j], v_load(x + i + j * LANES));
    for (; i < n; i += LANES) sum[0] = v_add(sum[0], v_load_part(x + i, ha_least(LANES, n - i), 0));
    return v_sum_lanes(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

void HA_KERNEL(topp)(const struct ha_topp *t)
{
    if (t->rows != 1) {
        ha_c_topp(t);
        return;
    }
    const double wanted = ceil(t->p * 0x1p52) * 0x1p-52;
    const float total = add_up(t->x, t->n);
    struct search s;
    size_t keys = t->n;
    if (isnan(total)) keys = 0;
    else if (find(t, wanted, total, &s)) keys = list(t, &s, wanted);
    else
        for (size_t i = 0; i < t->n; i++) t->index[i] = (uint32_t)i;
    take_weights(t, keys);
    *t->keys = (uint32_t)keys;
}
#endif
