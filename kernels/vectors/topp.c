/* topp in terms of vectors, for one row of weights. As multiples of 2^-HA_TOPP_BITS, which weights from WHOLE on are
 * and others are cut to, they have sums in binary64 that are exact up to 2, and of more than 2 never come out as less:
 * enough to be compared with p. The least weight that is chosen is found by bisection over these multiples. Of many
 * weights a sample says first between which two it lies: the sum below it, of small numbers, is known well. Those from
 * the lower one on are copied, if they are few, what lies between is collected, and the steps are over that. So a row
 * is read twice, and again where the sample misled. */

#include "kernels/vectors/lists.h"

#if defined(HA_VECTORS)
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include "harness/base/numeric.h"

enum { SHORT = 512, SAMPLE_MIN = 128, SAMPLE_MAX = 1024, SAMPLE_SHARE = 32, KEEP = 4096, SUMS = 4 };
static const float whole = 0x1p-29f, unit = 0x1p-52f;
_Static_assert(HA_TOPP_BITS == 52, "unit");

/* The multiples in order, from 1: those of binary32 that are at most 1. What follows the last is above it. */
enum { LEAST = 1, MOST = 30 << 23, CLASS_BITS = 19, CLASSES = (MOST >> CLASS_BITS) + 1 };
static inline float nth(uint32_t o)
{
    union {
        uint32_t u;
        float f;
    } c = { .u = o };
    return c.f * 0x1p97f; /* the o-th subnormal of binary32, and so on, is 2^-149 o */
}

/* which 2^CLASS_BITS multiples one is among, roughly where they are cut */
static inline uint32_t class_of(float x)
{
    union {
        float f;
        int32_t i;
    } c = { .f = x };
    const int32_t first = 97 << 23; /* a 0 of either sign is below it */
    return c.i < first ? 0 : (uint32_t)(c.i - first < MOST ? c.i - first : MOST) >> CLASS_BITS;
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

/* What is searched: weights, and which of the row they are; NULL: all of them. */
struct row {
    const float *x;
    const uint32_t *id;
    size_t n;
};

/* Bounds by a sample, some standard deviations wide, and how many reach the lower one: how sums of it grow, by classes
 * of multiples. False: all are hardly enough. */
static bool guess(const struct ha_topp *t, double wanted, float total, struct search *s)
{
    const size_t some = t->n / SAMPLE_SHARE, size = some < SAMPLE_MIN ? SAMPLE_MIN : ha_least(SAMPLE_MAX, some),
                 step = t->n / size;
    const float below = (total - (float)wanted) / (float)t->n * (float)size;
    float sum[CLASSES] = { 0 }, squares = 0, up = 0;
    uint32_t count[CLASSES] = { 0 }, c, lo = 0, first = CLASSES;
    if (below <= 0) return false;
    for (size_t i = 0; i < size; i++) {
        const uint32_t of = class_of(t->x[i * step]);
        sum[of] += t->x[i * step];
        count[of]++;
        first = of < first ? of : first;
    }
    for (c = first; c < CLASSES && up + sum[c] <= below; c++) {
        up += sum[c];
        squares += sum[c] * nth((c + 1) << CLASS_BITS);
    }
    const float off = 2.5f * sqrtf(squares);
    size_t lower = 0;
    for (c = first, up = 0; c < CLASSES && up + sum[c] <= below + off; c++) {
        up += sum[c];
        if (up > below - off) continue;
        lower += count[c];
        lo = c + 1;
    }
    *s = (struct search){ .lo = lo ? lo << CLASS_BITS : LEAST,
                          .hi = c < CLASSES ? ((c + 1) << CLASS_BITS) - 1 : MOST,
                          .from_lo = (size - lower) * step };
    return true;
}

/* The weights that reach nth(o), behind the list of which they are, if both have room in t->index; else all. */
static struct row shorten(const struct ha_topp *t, uint32_t o)
{
    const size_t n = t->n, room = n / 2;
    const float *all = t->x;
    const vec from = v_set(nth(o));
    uint32_t *id = t->index;
    float *x = (float *)(void *)(id + room);
    size_t at = 0, i = 0;
    for (; i + LANES <= n && at + LANES <= room; i += LANES) {
        const unsigned bits = v_ge(v_load(all + i), from);
        v_put_indices(id + at, (uint32_t)i, bits);
        v_put_of(x + at, all + i, bits);
        at += v_ones(bits);
    }
    for (; i < n && at < room; i++) {
        if (!(all[i] >= nth(o))) continue;
        id[at] = (uint32_t)i;
        x[at++] = all[i];
    }
    return i < n ? (struct row){ all, NULL, n } : (struct row){ x, id, at };
}

/* what a sample says, if it is so; returns how many lie between */
static size_t sampled(const struct ha_topp *t, double wanted, float total, struct row *row, struct search *s,
                      union kept *kept)
{
    if (t->n <= SHORT || !guess(t, wanted, total, s)) return 0;
    if (s->from_lo < t->n / 16 * 7) *row = shorten(t, s->lo);
    const size_t in = collect(row->x, row->n, s, kept);
    const bool right = s->above < wanted && s->above + part_from(&kept->f, in, s->lo).sum >= wanted;
    return right ? in : 0;
}

/* false: all of them are not enough */
static bool find(const struct ha_topp *t, double wanted, float total, struct row *row, struct search *s)
{
    union kept kept[KEEP];
    size_t in = sampled(t, wanted, total, row, s, kept);
    if (in == 0) {
        const struct part all = part_from(t->x, t->n, LEAST);
        if (all.sum < wanted) return false;
        *row = (struct row){ t->x, NULL, t->n };
        *s = (struct search){ LEAST, MOST, all.count, 0, 0 };
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

static void put_weights(const struct ha_topp *t, size_t at, const float *x, unsigned bits)
{
    float some[LANES];
    if (t->w_type == HA_F32) {
        v_put_of((float *)t->w + at, x, bits);
        return;
    }
    v_put_of(some, x, bits);
    v_narrow((char *)t->w + at * ha_dtype_bytes(HA_F16), v_load(some), HA_F16);
}

/* Lists those of [i, end) that reach `from`, behind the first `at` of `keys`; returns how many there are then. What is
 * read has not been written over. */
static size_t list(const struct ha_topp *t, const struct row *row, size_t i, size_t end, float from, size_t at,
                   size_t keys)
{
    const vec least = v_set(from);
    for (; i + LANES <= end && at + LANES <= keys; i += LANES) {
        const unsigned bits = v_ge(v_load(row->x + i), least);
        put_weights(t, at, row->x + i, bits);
        if (row->id) v_put_of(t->index + at, row->id + i, bits);
        else v_put_indices(t->index + at, (uint32_t)i, bits);
        at += v_ones(bits);
    }
    for (; i < end && at < keys; i++) {
        if (!(row->x[i] >= from)) continue;
        ha_store(t->w, at, t->w_type, row->x[i]);
        t->index[at++] = row->id ? row->id[i] : (uint32_t)i;
    }
    return at;
}

/* how many of those in [lo, hi], which are equal, are needed */
static size_t needed(const struct search *s, double wanted)
{
    if (s->from_lo - s->beyond == 1) return 1;
    const uint64_t left = (uint64_t)((wanted - s->above) * 0x1p52), each = (uint64_t)(nth(s->lo) * 0x1p52f);
    return (size_t)((left + each - 1) / each);
}

static size_t list_found(const struct ha_topp *t, const struct row *row, const struct search *s, double wanted)
{
    const size_t ties = needed(s, wanted), keys = s->beyond + ties;
    const float lo = nth(s->lo), above = nth(s->hi + 1);
    const size_t end = keys == s->from_lo ? row->n : v_behind_tie(row->x, row->n, lo, above, ties);
    return list(t, row, end, row->n, above, list(t, row, 0, end, lo, 0, keys), keys);
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
    struct row row = { t->x, NULL, t->n };
    struct search s;
    size_t keys = 0;
    if (isnan(total)) keys = 0;
    else if (find(t, wanted, total, &row, &s)) keys = list_found(t, &row, &s, wanted);
    else keys = list(t, &(struct row){ t->x, NULL, t->n }, 0, t->n, 0, 0, t->n);
    *t->keys = (uint32_t)keys;
}
#endif
