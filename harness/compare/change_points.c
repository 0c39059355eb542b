#include "harness/compare/change_points.h"

#include "harness/base/why.h"
#include "harness/compare/shift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An end of a stretch is a change point of its own where the levels on both sides differ by this. */
static const double end_level = 0.01;
/* Up to so many pairs the chance of a rank sum is computed as it is; up to so many nights of the smaller side bounded.
 */
enum { EXACT = 900, BOUNDED = 32 };
/* Up to so many nights it is counted which stretches can be so unlikely at all. */
enum { COUNTED = 40 };
/* As many nights on each side say whether a change came at once. */
enum { AROUND = 5 };
static const double mad_to_sd = 1.4826, median_to_mean = 1.25;

/* Nights from i to before j, as indices of a series, against its others. */
struct stretch {
    size_t i, j;
    double u; /* in how many pairs the one inside is beyond the one outside, in the direction in which there are more */
};

struct room {
    double *above, *below; /* [n + 1] of the nights before: pairs in which they are above, and below, any other night */
    double *scale;         /* [n] of U of so many nights: 1 over its standard deviation */
    double *apart;         /* [n] of a night: how many of the nights from i to it are another level */
    double *work;          /* [n] */
    size_t *begin;         /* [n + 2] */
};

static bool room_make(struct room *r, size_t n)
{
    double **const each[] = { &r->above, &r->below, &r->scale, &r->apart, &r->work };
    bool all = true;
    for (size_t k = 0; k < sizeof each / sizeof *each; k++) {
        *each[k] = malloc((n + 1) * sizeof **each[k]);
        all = all && *each[k];
    }
    r->begin = malloc((n + 2) * sizeof *r->begin);
    return all && r->begin;
}

static void room_free(struct room *r)
{
    free(r->above);
    free(r->below);
    free(r->scale);
    free(r->apart);
    free(r->work);
    free(r->begin);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, size_t n, double *work)
{
    memcpy(work, x, n * sizeof *x);
    qsort(work, n, sizeof *work, by_size);
    return (work[(n - 1) / 2] + work[n / 2]) / 2;
}

/* ---- how likely a rank sum is ------------------------------------------------------------------------------------ */

/* Of all ways to choose the smaller side, those whose U is at least so large are partitions of what is missing into as
 * many parts, and fewer: an upper bound, which is exact in the tail. */
static double tail_bound(size_t small, size_t large, double missing)
{
    const size_t most = (size_t)missing;
    double *ways = calloc(most + 1, sizeof *ways), all = 0;
    if (!ways) return 1;
    ways[0] = 1;
    for (size_t part = 1; part <= small; part++)
        for (size_t k = part; k <= most; k++) ways[k] += ways[k - part];
    for (size_t k = 0; k <= most; k++) all += ways[k];
    free(ways);
    const double n = (double)small, m = (double)large;
    return fmin(1, exp(log(all) + lgamma(n + 1) + lgamma(m + 1) - lgamma(n + m + 1)));
}

static double tail(size_t n, size_t m, double u)
{
    const size_t small = n < m ? n : m;
    const double pairs = (double)n * (double)m;
    if (u <= 0) return 1;
    if (n * m <= EXACT) return ha_mann_whitney(n, m, u);
    /* far from the middle a rank sum is rarer than a normal one */
    const double z = (u - 0.5 - pairs / 2) / sqrt(pairs * (double)(n + m + 1) / 12);
    const double normal = 0.5 * erfc(z / M_SQRT2);
    return small > BOUNDED || u < pairs / 2 ? normal : fmin(normal, tail_bound(small, n + m - small, pairs - u));
}

/* ---- one stretch ------------------------------------------------------------------------------------------------- */

/* A night is above another where it is so by more than what is a change to anybody. */
static bool is_above(double a, double b) { return a - b > HA_SHIFT_LEAST; }

static void count_pairs(struct room *r, const double *x, size_t n)
{
    r->above[0] = r->below[0] = 0;
    for (size_t a = 0; a < n; a++) {
        size_t above = 0, below = 0;
        for (size_t b = 0; b < n; b++) {
            above += is_above(x[a], x[b]);
            below += is_above(x[b], x[a]);
        }
        r->above[a + 1] = r->above[a] + (double)above;
        r->below[a + 1] = r->below[a] + (double)below;
        r->apart[a] = 0;
    }
    for (size_t k = 1; k < n; k++) r->scale[k] = 1 / sqrt((double)k * (double)(n - k) * (double)(n + 1) / 12);
}

static size_t stretches(size_t n)
{
    enum { LEAST = HA_CHANGE_NIGHTS };
    if (n < 2 * LEAST) return 0;
    const size_t inner = n < 3 * LEAST ? 0 : n - 3 * LEAST + 1;
    return n - 2 * LEAST + 1 + inner * (inner + 1) / 2;
}

/* The one whose U is the farthest above its mean, in standard deviations. Nothing shorter than HA_CHANGE_NIGHTS is cut
 * off; one that goes to the end is the rest of one that begins at 0. n: at least twice that. Pairs inside of a stretch,
 * one way or the other, are those of the stretch that begins a night later and of the nights apart from its first. */
static struct stretch farthest(struct room *r, const double *x, size_t n, bool inner)
{
    enum { LEAST = HA_CHANGE_NIGHTS };
    struct stretch best = { 0, LEAST, 0 };
    double most = 0;
    count_pairs(r, x, n);
    for (size_t i = n; i--;) {
        const bool begins = i == 0 || (inner && i >= LEAST);
        double inside = 0;
        for (size_t j = i + 1; j + LEAST <= n; j++) {
            r->apart[j - 1] += j - 1 > i && (is_above(x[i], x[j - 1]) || is_above(x[j - 1], x[i]));
            inside += r->apart[j - 1];
            const double above = r->above[j] - r->above[i], below = r->below[j] - r->below[i];
            const double u = fmax(above, below) - inside, k = (double)(j - i);
            const double score = (u - k * ((double)n - k) / 2) * r->scale[j - i];
            if (!begins || j - i < LEAST || score <= most) continue;
            most = score;
            best = (struct stretch){ i, j, u };
        }
    }
    return best;
}

/* The chance of one stretch, in either direction. */
static double chance(size_t n, const struct stretch *s) { return 2 * tail(s->j - s->i, n - (s->j - s->i), s->u); }

/* Stretches of k of n nights. */
static size_t stretches_of(size_t n, size_t k)
{
    enum { LEAST = HA_CHANGE_NIGHTS };
    return 1 + (n >= 2 * LEAST + k ? n - 2 * LEAST - k + 1 : 0);
}

/* The smallest U of k of n nights whose chance is at most p, but for rounding; above k (n - k): there is none. */
static size_t least_u(size_t k, size_t n, double p)
{
    size_t lo = 0, hi = k * (n - k) + 1;
    while (lo < hi) {
        const size_t u = (lo + hi) / 2;
        if (2 * tail(k, n - k, (double)u) <= p * (1 + 1e-9)) hi = u;
        else lo = u + 1;
    }
    return lo;
}

/* How likely it is that any stretch of n nights is as unlikely as p: a sum over all of them (Bonferroni), without those
 * that cannot be, however far they are apart (Tarone, Biometrics 46, 1990). */
static double of_any(size_t n, double p)
{
    const size_t of = stretches(n);
    double sum = 0;
    if (n > COUNTED || (double)of * p >= 1) return fmin(1, (double)of * p);
    for (size_t k = HA_CHANGE_NIGHTS; k + HA_CHANGE_NIGHTS <= n; k++) {
        const size_t u = least_u(k, n, p);
        if (u <= k * (n - k)) sum += (double)stretches_of(n, k) * 2 * tail(k, n - k, (double)u);
    }
    return sum;
}

/* part: of a series that has been split, whose parts are looked at one after another, and all of their stretches count.
 */
static double corrected(struct room *r, const double *x, size_t n, bool part, struct stretch *found)
{
    *found = (struct stretch){ 0 };
    if (!stretches(n)) return 1;
    *found = farthest(r, x, n, true);
    const double p = chance(n, found);
    return part ? fmin(1, (double)stretches(n) * p) : of_any(n, p);
}

enum ha_status ha_change_points_chance(double *p, const double *x, size_t n, struct ha_why *why)
{
    struct room r;
    struct stretch found;
    const bool enough = room_make(&r, n);
    if (enough) *p = corrected(&r, x, n, false, &found);
    room_free(&r);
    return enough ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
}

size_t ha_change_points_age(size_t n, double level)
{
    for (size_t age = HA_CHANGE_NIGHTS; 2 * age <= n; age++)
        if (ha_change_points_u(n, age, level)) return age;
    return 0;
}

size_t ha_change_points_u(size_t n, size_t age, double level)
{
    size_t u = age * (n - age) + 1;
    while (u && of_any(n, 2 * tail(age, n - age, (double)(u - 1))) <= level) u--;
    return u <= age * (n - age) ? u : 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* begin[1 ... count]: where parts begin. The part from `from` to before `to` becomes several. */
static void split(struct room *r, const double *x, size_t from, size_t to, bool part, double level, size_t *count)
{
    struct stretch found;
    if (corrected(r, x + from, to - from, part, &found) > level) return;
    const size_t i = from + found.i, j = from + found.j;
    if (found.i) {
        split(r, x, from, i, true, level, count);
        r->begin[++*count] = i;
    }
    split(r, x, i, j, true, level, count);
    r->begin[++*count] = j;
    split(r, x, j, to, true, level, count);
}

/* Each goes to where it parts its neighbours best; then the weakest goes, if the levels beside it may be the same. */
static bool drop_weakest(struct room *r, const double *x, size_t *count)
{
    double most = end_level;
    size_t weakest = 0;
    for (size_t k = 1; k <= *count; k++) {
        const size_t from = r->begin[k - 1], to = r->begin[k + 1], n = to - from;
        const struct stretch best = farthest(r, x + from, n, false);
        const double p = (double)(n - 2 * HA_CHANGE_NIGHTS + 1) * chance(n, &best);
        r->begin[k] = from + best.j;
        if (p <= most) continue;
        most = p;
        weakest = k;
    }
    if (!weakest) return false;
    memmove(r->begin + weakest, r->begin + weakest + 1, (*count - weakest + 1) * sizeof *r->begin);
    --*count;
    return true;
}

/* How far nights are from each other, whatever the levels are: by the steps from one to the next. */
static double spread(struct room *r, const double *x, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) r->apart[i] = fabs(x[i + 1] - x[i]);
    return mad_to_sd * median(r->apart, n - 1, r->work) / M_SQRT2;
}

static struct ha_change_point point(struct room *r, const double *x, const size_t begin[3], double sd)
{
    const size_t before = begin[1] - begin[0], after = begin[2] - begin[1];
    const size_t b = before < AROUND ? before : AROUND, a = after < AROUND ? after : AROUND;
    const double size = median(x + begin[1], after, r->work) - median(x + begin[0], before, r->work);
    const double near = median(x + begin[1], a, r->work) - median(x + begin[1] - b, b, r->work);
    const double error = median_to_mean * sd * sqrt(1 / (double)a + 1 / (double)b);
    return (struct ha_change_point){ begin[1], size, (size < 0 ? -near : near) + error < fabs(size) / 2 };
}

enum ha_status ha_change_points_find(struct ha_change_point *out, size_t *count, const double *x, size_t n,
                                     double level, struct ha_why *why)
{
    struct room r;
    *count = 0;
    if (!room_make(&r, n)) {
        room_free(&r);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    split(&r, x, 0, n, false, level, count);
    r.begin[0] = 0;
    r.begin[*count + 1] = n;
    while (drop_weakest(&r, x, count)) continue;
    const double sd = *count ? spread(&r, x, n) : 0;
    for (size_t k = 1; k <= *count; k++) out[k - 1] = point(&r, x, r.begin + k - 1, sd);
    room_free(&r);
    return HA_OK;
}
