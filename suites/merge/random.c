#include "suites/merge/fills.h"

/* ---- bits: one Philox block for a row, and from it a generator that costs a nanosecond a draw ---------------- */

struct bits {
    uint64_t state;
};

static inline uint64_t next(struct bits *b)
{
    uint64_t x = b->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint32_t below(struct bits *b, uint32_t n) { return (uint32_t)((next(b) >> 32) * n >> 32); }
/* in [0, 1), and in [-1, 1) */
static inline double unit(struct bits *b) { return (double)(next(b) >> 11) * 0x1p-53; }
static inline double even(struct bits *b) { return (double)((int64_t)next(b) >> 10) * 0x1p-53; }

/* bell-shaped, variance 1: four 16-bit uniforms */
static inline double bell(struct bits *b)
{
    const uint64_t x = next(b);
    const int32_t sum = (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48));
    return (double)(sum - 131070) * 0x1.bb68p-16;
}

/* ---- values: a stretch of components, the same kind in every state ----------------------------------------------- */

struct stretch {
    double *o; /* of state 0 */
    size_t n, states, dim;
    enum ha_dtype dtype;
};

static double smallest(enum ha_dtype t) { return t == HA_F16 ? 0x1p-24 : t == HA_BF16 ? 0x1p-133 : 0x1p-149; }
static double ulp_of_1(enum ha_dtype t) { return t == HA_F16 ? 0x1p-10 : t == HA_BF16 ? 0x1p-7 : 0x1p-23; }

static double *at(const struct stretch *s, size_t m) { return s->o + m * s->dim; }

static void normal(const struct stretch *s, struct bits *b)
{
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) at(s, m)[i] = bell(b);
}
static void positive(const struct stretch *s, struct bits *b)
{
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) at(s, m)[i] = 1 + unit(b);
}
/* the same in every state: each rounding of the shares has the same sign in every component */
static void constant(const struct stretch *s, struct bits *b)
{
    for (size_t i = 0; i < s->n; i++) {
        const double x = 4 * even(b);
        for (size_t m = 0; m < s->states; m++) at(s, m)[i] = x;
    }
}
static void one_hot(const struct stretch *s, struct bits *b)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t hot = below(b, (uint32_t)s->states);
        for (size_t m = 0; m < s->states; m++) at(s, m)[i] = m == hot;
    }
}
static void cancelling(const struct stretch *s, struct bits *b)
{
    for (size_t i = 0; i < s->n; i++) {
        const double x = 100 * bell(b);
        for (size_t m = 0; m < s->states; m++) at(s, m)[i] = m % 2 ? -x : x;
    }
}
static void scaled(const struct stretch *s, struct bits *b, double by)
{
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) at(s, m)[i] = by * even(b);
}
static void uniform(const struct stretch *s, struct bits *b) { scaled(s, b, 1); }
static void huge(const struct stretch *s, struct bits *b) { scaled(s, b, ha_draw_largest(s->dtype)); }
static void subnormal(const struct stretch *s, struct bits *b) { scaled(s, b, 64 * smallest(s->dtype)); }
static void magnitudes(const struct stretch *s, struct bits *b)
{
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) {
            const uint64_t x = next(b);
            at(s, m)[i] = ldexp(1 + (double)(x >> 12) * 0x1p-52, (int)(x & 15) - 12) * (x & 16 ? -1 : 1);
        }
}
static void integers(const struct stretch *s, struct bits *b)
{
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) at(s, m)[i] = (double)(next(b) >> 60) - 8;
}
/* neighbours in the type of o: at equal weights the result lies halfway between two numbers */
static void halves(const struct stretch *s, struct bits *b)
{
    const double ulp = ulp_of_1(s->dtype);
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t x = next(b);
        const double base = 1 + ulp * (double)(x >> 58);
        for (size_t m = 0; m < s->states; m++) at(s, m)[i] = base + (x >> m % 56 & 1 ? ulp : 0);
    }
}
/* just above a power of two, where a relative error is largest */
static void above_one(const struct stretch *s, struct bits *b)
{
    const double ulp = ulp_of_1(s->dtype);
    for (size_t m = 0; m < s->states; m++)
        for (size_t i = 0; i < s->n; i++) at(s, m)[i] = 1 + ulp * (double)(next(b) >> 62);
}

static void (*const values[])(const struct stretch *, struct bits *) = {
    normal, uniform, positive, constant, one_hot, cancelling, huge, subnormal, magnitudes, integers, halves, above_one,
};
enum { VALUES = sizeof values / sizeof *values, STRETCH = 16 };

static void draw_values(struct ha_merge_row *r, struct bits *b)
{
    struct stretch s = { .o = r->o, .n = r->dim, .states = r->states, .dim = r->dim, .dtype = r->dtype };
    const uint32_t kind = below(b, 2 * VALUES);
    if (kind < VALUES) {
        values[kind](&s, b);
        return;
    }
    for (size_t d = 0; d < r->dim; d += STRETCH) {
        s.o = r->o + d;
        s.n = r->dim - d < STRETCH ? r->dim - d : STRETCH;
        values[below(b, VALUES)](&s, b);
    }
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

enum scores { EQUAL, NORMAL, NEAR, WIDE, GAPS, PEAK, RISING, TIES, UNDERFLOW, KEYS, SCORES };

/* LSE of state m before an offset; x sets the scale of the row's distribution */
static double score(enum scores kind, size_t m, size_t chosen, double x, struct bits *b)
{
    switch (kind) {
    case EQUAL: return 0;
    case NORMAL: return 3 * bell(b);
    case NEAR: return 1e-3 * bell(b);
    case WIDE: return 50 * even(b);
    case GAPS: return m % 2 ? 0 : -200 * x;
    case PEAK: return bell(b) + (m == chosen ? 4 + 300 * x * x : 0);
    case RISING: return (x - 0.5) * 20 * (double)m;
    case TIES: return (double)(next(b) >> 62);
    case UNDERFLOW: return m == chosen ? 0 : -84 - 24 * unit(b);
    default: return log(1 + (double)(next(b) >> 52)); /* ln of a number of keys */
    }
}

/* of a direct merge no weight is known where an LSE is as large as the last ones */
static double offset(struct bits *b, enum ha_form form)
{
    enum { ALL = 10, KNOWN = 8 };
    static const double by[] = { 1, 10, 100, 1000, 1e4, 3e4, 1e5, 3e5, 1e7, 1e30 };
    const double x = by[below(b, form == HA_FORM_DIRECT ? KNOWN : ALL)];
    return below(b, 2) ? even(b) * x : below(b, 2) ? x : -x;
}

static void draw_scores(struct ha_merge_row *r, struct bits *b)
{
    const enum scores kind = (enum scores)below(b, SCORES);
    const size_t chosen = below(b, (uint32_t)r->states);
    const double x = unit(b), by = below(b, 2) ? 0 : offset(b, r->form);
    const bool apart = below(b, 64) == 0; /* half of the states 1e4 away */
    for (size_t m = 0; m < r->states; m++) {
        r->lse[m] = score(kind, m, chosen, x, b) + by + (apart && m % 2 ? 1e4 : 0);
        r->sum[m] = kind == KEYS || x < 0.25 ? 1 : 1 + (double)(next(b) >> 40) * 0x1p-14;
    }
}

static void draw_special(struct ha_merge_row *r, struct bits *b)
{
    static const double tiny[] = { 0, -0.0, 1e-7, -1e-7, 1e-30 };
    const uint32_t kind = below(b, 16);
    if (kind == 0 || kind == 1) { /* states without keys, half of the time with garbage */
        const uint32_t share = below(b, 8) == 0 ? 4 : 1 + below(b, 3); /* of 4 */
        for (size_t m = 0; m < r->states; m++)
            if (below(b, 4) < share) ha_row_empty(r, m, below(b, 2) ? (double)NAN : 0);
    } else if (kind == 2) { /* LSEs around 0 */
        for (size_t m = 0; m < r->states; m++)
            if (below(b, 2)) {
                r->lse[m] = tiny[below(b, 5)];
                r->sum[m] = 1;
            }
    } else if (kind == 3 && below(b, 4) == 0) { /* one that is no number, of either sign */
        const size_t m = below(b, (uint32_t)r->states), d = below(b, (uint32_t)r->dim);
        const double nan = copysign((double)NAN, even(b));
        if (below(b, 2)) ha_row_state(r, m, below(b, 4) ? nan : HUGE_VAL);
        else r->o[m * r->dim + d] = nan;
    }
}

void ha_random_fill(struct ha_merge_row *row)
{
    struct bits b = { ha_rng_bits(row->seed, ha_draw_stream(row->index, HA_DRAW_CHOICE), 0) };
    draw_values(row, &b);
    draw_scores(row, &b);
    draw_special(row, &b);
}

size_t ha_random_states(uint64_t seed)
{
    struct bits b = { ha_rng_bits(seed, ha_draw_stream(0, HA_DRAW_CUT), 0) };
    const uint32_t kind = below(&b, 1000);
    if (kind < 900) return 2 + below(&b, 7);
    if (kind < 960) return 1;
    if (kind < 999) return 9 + below(&b, 24);
    return 33 + below(&b, 480);
}
