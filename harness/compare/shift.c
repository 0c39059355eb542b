#include "harness/compare/shift.h"

#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/fleet_spread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A gap between two speeds: at least so wide, and so many times as wide as the spread at either. */
static const double gap_least = 0.05, gap_spreads = 4;
static const double within_spreads = 2; /* so many times as wide as the spread is what is at a speed */
enum { SPEED_LEAST = 3 };               /* processes of the base at each */
/* Normal quantiles. */
static const double z_suspicion = 1.645, z_nine_of_ten = 1.282, outside_interval = 0.025;
static const double mad_to_sd = 1.4826, median_to_mean = 1.05; /* of a normal: spread; a median's error */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sorted_median(const double *x, size_t n) { return n ? (x[(n - 1) / 2] + x[n / 2]) / 2 : (double)NAN; }

/* Of sorted values: the median distance from their median, as a standard deviation. work: room for n. */
static double spread(const double *x, size_t n, double *work)
{
    const double middle = sorted_median(x, n);
    for (size_t i = 0; i < n; i++) work[i] = fabs(x[i] - middle);
    qsort(work, n, sizeof *work, by_size);
    return mad_to_sd * sorted_median(work, n);
}

/* ---- Mann and Whitney ------------------------------------------------------------------------------------------ */

/* How likely each U from 0 to n m is. The one that is last in order is of the n with chance i / (i + j), and then above
 * all j: sums of what is not negative, so that tails have their digits. NULL: no memory. */
static double *u_chances(size_t n, size_t m)
{
    const size_t row = n * m + 1;
    double *p = calloc((n + 1) * row, sizeof *p);
    if (!p) return NULL;
    for (size_t i = 0; i <= n; i++) p[i * row] = 1; /* of none but these */
    for (size_t j = 1; j <= m; j++)
        for (size_t i = 1; i <= n; i++) {
            const double last = (double)i / (double)(i + j);
            double *to = p + i * row;
            const double *from = to - row;
            for (size_t u = 0; u <= i * j; u++) to[u] = (1 - last) * to[u] + (u >= j ? last * from[u - j] : 0);
        }
    memmove(p, p + n * row, row * sizeof *p);
    return p;
}

/* Nearly all figures have one of few pairs of sizes. */
enum { TAILS = 16 };
static _Thread_local struct {
    size_t n, m;
    double *tail;
} tails[TAILS];

static const double *tail_of(size_t n, size_t m)
{
    const size_t at = (n + 5 * m) % TAILS;
    if (tails[at].tail && tails[at].n == n && tails[at].m == m) return tails[at].tail;
    double *p = u_chances(n, m);
    if (!p) return NULL;
    for (size_t u = n * m; u--;) p[u] += p[u + 1];
    free(tails[at].tail);
    tails[at].n = n;
    tails[at].m = m;
    return tails[at].tail = p;
}

double ha_mann_whitney(size_t n, size_t m, double u)
{
    enum { EXACT = 2500 };
    const double pairs = (double)n * (double)m;
    if (!n || !m || u <= 0) return 1;
    const double *tail = n * m <= EXACT ? tail_of(n, m) : NULL;
    if (tail) return fmin(1, tail[(size_t)fmin(u, pairs)]);
    const double sd = sqrt(pairs * (double)(n + m + 1) / 12);
    return 0.5 * erfc((u - 0.5 - pairs / 2) / sd / M_SQRT2);
}

/* ---- nights ------------------------------------------------------------------------------------------------------ */

/* The medians of the nights into night[], of sorted-by-night values; returns how many nights have values. */
static size_t medians(const double *x, const size_t *of, size_t count, double *night, double *work)
{
    size_t nights = 0;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && of[end] == of[i]; end++) work[end - i] = x[end];
        qsort(work, end - i, sizeof *work, by_size);
        night[nights++] = sorted_median(work, end - i);
    }
    return nights;
}

double ha_shift_nights(double *squares, size_t count, size_t nights)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(squares[i])) squares[known++] = squares[i];
    if (!known) return HA_SHIFT_NIGHTS;
    qsort(squares, known, sizeof *squares, by_size);
    /* The median of a square of few degrees of freedom is below its mean (Wilson & Hilferty, PNAS 17, 1931). */
    const double free = nights > 1 ? (double)(nights - 1) : 1, median = pow(1 - 2 / (9 * free), 3);
    return fmax(HA_SHIFT_NIGHTS_LEAST, sqrt(fmax(0, sorted_median(squares, known) / median)));
}

/* ---- two speeds -------------------------------------------------------------------------------------------------- */

/* x: [n] sorted. The widest gap that has enough processes on both sides. */
static struct ha_speeds speeds_of(const double *x, size_t n, double *work)
{
    struct ha_speeds s = { .cut = (double)INFINITY };
    size_t at = 0;
    if (n < 2 * SPEED_LEAST) return s;
    for (size_t i = SPEED_LEAST; i + SPEED_LEAST <= n; i++)
        if (!at || x[i] - x[i - 1] > x[at] - x[at - 1]) at = i;
    const double gap = x[at] - x[at - 1];
    const double wide = fmax(spread(x, at, work), spread(x + at, n - at, work));
    if (!(gap > gap_least && gap > gap_spreads * wide)) return s;
    s = (struct ha_speeds){ .two = true, .cut = x[at] - gap / 2, .fast = sorted_median(x, at) };
    s.apart = sorted_median(x + at, n - at) - s.fast;
    s.within = fmin(s.apart / 2, HA_SHIFT_LEAST + within_spreads * wide);
    return s;
}

static size_t relative(double *x, size_t n, const struct ha_speeds *s)
{
    size_t slow = 0;
    for (size_t i = 0; i < n; i++)
        if (s->two && x[i] > s->cut) {
            x[i] -= s->apart;
            slow++;
        }
    return slow;
}

/* How many values are at one of the speeds, both moved by `by`: right there each counts as one, farther away as less.
 */
static double fit(const double *x, size_t n, const struct ha_speeds *s, double by)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double from_fast = x[i] - s->fast - by, from = fmin(fabs(from_fast), fabs(from_fast - s->apart));
        sum += fmax(0, 1 - from * from / (s->within * s->within));
    }
    return sum;
}

/* By how much both speeds have moved, as the new values have it, x: [n] sorted. As good as not at all, where that
 * explains them nearly as well, or nothing explains most; *worse: a change for the worse does so, too. Where all are at
 * one speed nobody knows which: it is the slow one where they are above it, and else the fast one. */
static double common_shift(const double *x, size_t n, const struct ha_speeds *s, double nights, bool *worse)
{
    enum { TRIED = 256 };
    const double still = HA_SHIFT_LEAST + 2 * nights, few = fmax(1.5, (double)n / 8), most = 0.75 * (double)n;
    double best = 0, best_fit = fit(x, n, s, 0), best_still = best, still_fit = best_fit, worse_fit = 0;
    for (size_t i = 0; i < 2 * n; i += 1 + n / TRIED * 2) {
        const double by = x[i / 2] - s->fast - (i % 2 ? s->apart : 0), its_fit = fit(x, n, s, by);
        if (its_fit > best_fit) best = by, best_fit = its_fit;
        if (fabs(by) <= still && its_fit > still_fit) best_still = by, still_fit = its_fit;
        if (by > still) worse_fit = fmax(worse_fit, its_fit);
    }
    *worse = still_fit < worse_fit + few;
    if (best_fit < still_fit + few || best_fit < most) return best_still;
    *worse = false;
    struct ha_speeds one = *s;
    one.apart = 0;
    const double of_fast = sorted_median(x, n) - s->fast, of_slow = of_fast - s->apart;
    if (best_fit > fit(x, n, &one, of_fast) + 0.5) return best; /* a process at the other speed tells */
    return of_slow > 0 ? of_slow : of_fast;
}

static void copy_sorted(double *to, const struct ha_side *from)
{
    if (from->count) memcpy(to, from->x, from->count * sizeof *to);
    qsort(to, from->count, sizeof *to, by_size);
}

/* Squares of one figure: of the spread of the medians of nights, and of what the processes of a night make of it. */
struct squares {
    double nights, within;
};

/* false: there are too few nights or processes, or no memory */
static bool squares_of(struct squares *out, const struct ha_side *base)
{
    const size_t n = base->count;
    double *night = malloc(4 * (n + 1) * sizeof *night), *x = night + n + 1, *part = x + n + 1, *work = part + n + 1;
    double within = 0, spreads = 0, mean = 0, square = 0;
    if (!night) return false;
    copy_sorted(part, base);
    const struct ha_speeds speeds = speeds_of(part, n, work);
    if (n) memcpy(x, base->x, n * sizeof *x);
    relative(x, n, &speeds);
    const size_t nights = medians(x, base->night, n, night, work);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && base->night[end] == base->night[i]; end++) part[end - i] = x[end];
        if (end - i < 2) continue;
        qsort(part, end - i, sizeof *part, by_size);
        const double sd = 1.2 * spread(part, end - i, work); /* of few the median distance is too small */
        within += sd * sd / (double)(end - i);
        spreads++;
    }
    for (size_t i = 0; i < nights; i++) mean += night[i] / (double)nights;
    for (size_t i = 0; i < nights; i++) square += (night[i] - mean) * (night[i] - mean);
    const bool known = nights > 1 && spreads > 0;
    free(night);
    /* the variance of a median of few is 1.45 times that of their mean */
    if (known) *out = (struct squares){ square / (double)(nights - 1), 1.45 * within / spreads };
    return known;
}

double ha_shift_nights_squared(const struct ha_side *base)
{
    struct squares s;
    return squares_of(&s, base) ? s.nights - s.within : (double)NAN;
}

/* The spread between nights of one figure, and of how many degrees of freedom it is. */
struct own {
    double spread, freedom;
};

/* The spread that all figures share counts as known. A figure has its own spread, of few degrees of freedom, where its
 * nights differ by more than 99 of 100 figures with the shared spread would (Wilson & Hilferty). */
static struct own own_nights(const struct ha_side *base, double shared)
{
    static const double z_of_hundred = 2.326;
    const double freedom = (double)base->nights - 1, part = 2 / (9 * freedom);
    struct squares s;
    if (!squares_of(&s, base)
        || s.nights <= pow(1 - part + z_of_hundred * sqrt(part), 3) * (shared * shared + s.within))
        return (struct own){ shared, (double)INFINITY };
    return (struct own){ sqrt(s.nights - s.within), freedom };
}

/* ---- one figure -------------------------------------------------------------------------------------------------- */

/* Values of both sides, relative to their speed, and room to work in. */
struct sides {
    double *base, *now;                /* sorted */
    double *night, *work, *difference; /* [n m]; NULL: there are too many */
    size_t n, m;                       /* now, base */
};

/* How often a value of now is above one of the base by more than `by`, ties counting half. */
static double u_of(const struct sides *s, double sign, double by)
{
    double u = 0;
    /* from the best of both on: how many of the base are below the i-th by more, and by so much or more */
    for (size_t i = 0, more = 0, as_much = 0; i < s->n; i++) {
        const double now = sign * s->now[sign > 0 ? i : s->n - 1 - i];
        while (more < s->m && now - sign * s->base[sign > 0 ? more : s->m - 1 - more] - by > 0) more++;
        while (as_much < s->m && now - sign * s->base[sign > 0 ? as_much : s->m - 1 - as_much] - by >= 0) as_much++;
        u += (double)more + 0.5 * (double)(as_much - more);
    }
    return u;
}

static double upper_tail(double t, double freedom)
{
    return t < 0 ? 1 - ha_t_tail(-t, freedom) : ha_t_tail(t, freedom);
}

/* How many differences are at most d. */
static double differences_to(const struct sides *s, double d)
{
    double count = 0;
    for (size_t i = 0, above = 0; i < s->n; i++) {
        while (above < s->m && s->now[i] - s->base[above] > d) above++;
        count += (double)(s->m - above);
    }
    return count;
}

/* The median difference of more than fit into memory, by bisection. */
static double median_of_many(const struct sides *s)
{
    double lo = s->now[0] - s->base[s->m - 1], hi = s->now[s->n - 1] - s->base[0];
    for (int i = 0; i < 100; i++) {
        const double middle = lo + (hi - lo) / 2;
        if (2 * differences_to(s, middle) < (double)s->n * (double)s->m) lo = middle;
        else hi = middle;
    }
    return hi;
}

static double hodges_lehmann(const struct sides *s)
{
    size_t k = 0;
    if (!s->difference) return median_of_many(s);
    for (size_t i = 0; i < s->n; i++)
        for (size_t j = 0; j < s->m; j++) s->difference[k++] = s->now[i] - s->base[j];
    qsort(s->difference, k, sizeof *s->difference, by_size);
    return sorted_median(s->difference, k);
}

/* The standard error of a shift, of processes and of nights, and its degrees of freedom, of which nights have few
 * (Welch, Biometrika 34, 1947). */
struct error {
    double size, freedom;
};

/* Two tests, of which the weaker counts: of processes, whatever their distribution is; and of nights, whose processes
 * have something in common. */
static double chance(const struct sides *s, double sign, double size, struct error e)
{
    const double of_processes = ha_mann_whitney(s->n, s->m, floor(u_of(s, sign, HA_SHIFT_LEAST)));
    return fmax(of_processes, upper_tail((sign * size - HA_SHIFT_LEAST) / e.size, e.freedom));
}

static struct error error_of(const struct sides *s, size_t base_nights, size_t now_nights, struct own nights)
{
    const double base = s->m > 2 ? spread(s->base, s->m, s->work) : (double)NAN;
    const double now = s->n > 2 ? spread(s->now, s->n, s->work) : (double)NAN;
    /* the larger side knows more of it; of few processes both are asked */
    double sd = s->m >= HA_SHIFT_PROCESSES || isnan(now) ? base : isnan(base) ? now : fmax(base, now);
    if (isnan(sd)) sd = fmax(nights.spread, fabs(s->base[s->m - 1] - s->base[0]));
    const double few = 1 + 0.5 / (double)(s->n < s->m ? s->n : s->m); /* their tails are wider than a normal's */
    const double e = few * median_to_mean * fmax(sd, 1e-6) * sqrt(1 / (double)s->n + 1 / (double)s->m);
    const double of_nights = nights.spread * nights.spread * (1 / (double)base_nights + 1 / (double)now_nights),
                 all = e * e + of_nights;
    return (struct error){ sqrt(all), nights.freedom * (all / of_nights) * (all / of_nights) };
}

static void shift_judge(struct ha_shift *out, const struct sides *s, struct error e, double alpha, size_t tests)
{
    const bool enough = s->n >= HA_SHIFT_PROCESSES;
    const double called = ha_t_quantile(alpha / (double)tests, e.freedom),
                 side = ha_t_quantile(outside_interval, e.freedom);
    out->size = hodges_lehmann(s);
    out->lo = out->size - side * e.size;
    out->hi = out->size + side * e.size;
    out->p = chance(s, 1, out->size, e);
    out->p_better = chance(s, -1, out->size, e);
    const double sign = out->size < 0 ? -1 : 1;
    out->suspicious = fabs(out->size) > HA_SHIFT_LEAST
                      && ha_mann_whitney(s->n, s->m, floor(u_of(s, sign, 0))) < HA_SHIFT_SUSPICION;
    out->noticed = HA_SHIFT_LEAST + ((enough ? called : z_suspicion) + z_nine_of_ten) * e.size;
    /* so few processes that even the farthest apart say nothing */
    if (ha_mann_whitney(s->n, s->m, (double)(s->n * s->m)) >= (enough ? alpha / (double)tests : HA_SHIFT_SUSPICION))
        out->noticed = (double)INFINITY;
}

/* Is the new side beyond every night of the base? */
static void look_beyond(struct ha_shift *out, const struct ha_side *base, const struct sides *s, double *x)
{
    memcpy(x, base->x, base->count * sizeof *x);
    relative(x, base->count, &out->speeds);
    const size_t nights = medians(x, base->night, base->count, s->night, s->work);
    const double middle = sorted_median(s->now, s->n);
    out->beyond = out->beyond_better = true;
    for (size_t i = 0; i < nights; i++) {
        out->beyond = out->beyond && middle > s->night[i];
        out->beyond_better = out->beyond_better && middle < s->night[i];
    }
}

enum ha_status ha_shift_add_shares(struct ha_shares *shares, const struct ha_side *base, struct ha_why *why)
{
    const size_t n = base->count;
    double *x = malloc(2 * (n + 1) * sizeof *x);
    size_t *counts = calloc(2 * (base->nights + 1), sizeof *counts), *const slow = counts + base->nights + 1;
    if (x && counts) {
        copy_sorted(x, base);
        const struct ha_speeds speeds = speeds_of(x, n, x + n + 1);
        for (size_t i = 0, night = 0; speeds.two && i < n; i++) {
            night += i && base->night[i] != base->night[i - 1];
            counts[night]++;
            slow[night] += base->x[i] > speeds.cut;
        }
        ha_shares_add(shares, slow, counts, base->nights);
    }
    const bool memory = x && counts;
    free(x);
    free(counts);
    return memory ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

enum ha_status ha_shift_find(struct ha_shift *out, const struct ha_side *base, const struct ha_side *now,
                             const struct ha_shift_nights *of, struct ha_why *why)
{
    enum { DIFFERENCES_MOST = 1 << 20 };
    const size_t n = now->count, m = base->count, room = n + m + 1;
    const bool many = m && n > DIFFERENCES_MOST / m;
    bool worse = false;
    double *all = malloc((5 * room + (many ? 0 : n * m)) * sizeof *all);
    *out = (struct ha_shift){ .p_slow = (double)NAN, .p_fast = (double)NAN, .all = (double)NAN };
    if (!all) return ha_why(why, HA_ERROR, "out of memory");
    struct sides s = { all, all + room, all + 2 * room, all + 3 * room, many ? NULL : all + 5 * room, n, m };
    copy_sorted(s.base, base);
    copy_sorted(s.now, now);
    out->speeds = speeds_of(s.base, m, s.work);
    out->slow[0] = relative(s.base, m, &out->speeds);
    if (out->speeds.two) {
        struct ha_speeds moved = out->speeds;
        copy_sorted(s.work, base);
        out->all = sorted_median(s.now, n) - sorted_median(s.work, m);
        moved.cut = moved.fast + moved.apart - moved.within + common_shift(s.now, n, &moved, of->spread, &worse);
        out->slow[1] = relative(s.now, n, &moved);
        out->p_slow = ha_shares_tail(n, out->slow[1], out->slow[0], m, of->shares);
        out->p_fast = ha_shares_tail(n, n - out->slow[1], m - out->slow[0], m, of->shares);
        qsort(s.base, m, sizeof *s.base, by_size);
        qsort(s.now, n, sizeof *s.now, by_size);
    }
    const struct error e = error_of(&s, base->nights, now->nights, own_nights(base, of->spread));
    shift_judge(out, &s, e, of->alpha, of->tests);
    look_beyond(out, base, &s, all + 4 * room);
    if (worse) out->p_better = 1; /* suspicious at most: more processes may tell */
    free(all);
    return HA_OK;
}

double ha_shift_threshold(const double *p, size_t count, double alpha)
{
    double *sorted = malloc((count + 1) * sizeof *sorted), threshold = -1;
    if (!sorted) return -1;
    memcpy(sorted, p, count * sizeof *p);
    qsort(sorted, count, sizeof *sorted, by_size);
    for (size_t i = 0; i < count; i++)
        if (sorted[i] <= alpha * (double)(i + 1) / (double)count) threshold = sorted[i];
    free(sorted);
    return threshold;
}
