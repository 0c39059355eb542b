#include "harness/compare/history_sight.h"

#include "harness/base/rng.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/change_points.h"
#include "harness/compare/shift.h"
#include "harness/compare/sides.h"

#include <math.h>
#include <stdlib.h>

/* Histories that are drawn, of how many nights at most, and in how many of them a change is to be found. */
enum { DRAWS = 500, DRAWN_NIGHTS = 64, FOUND = DRAWS * 8 / 10 };
enum { OFFS_LEAST = 10 }; /* fewer say nothing of how nights differ */
/* A curve of so few nights has half of its spread from the others. */
static const double few = 10;

/* How nights differ: of all curves the differences of neighbours, each over the spread of its curve. */
struct spread {
    double *off;   /* [offs] */
    double *scale; /* [curves] of those that have differences: the median of them */
    double *known; /* [curves] how many they are */
    double *work;
    size_t offs, curves;
};

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A night on which another level begins is no neighbour of the one before. */
static void add_curve(struct spread *s, const struct ha_curve *c)
{
    size_t n = 0;
    for (size_t i = 1; i < c->count; i++) {
        const double d = ha_figure_logarithm(c->figure, c->night[i].value)
                         - ha_figure_logarithm(c->figure, c->night[i - 1].value);
        if (c->night[i].change || !isfinite(d)) continue;
        s->off[s->offs + n] = d;
        s->work[n++] = fabs(d);
    }
    if (!n) return;
    s->offs += n;
    s->scale[s->curves] = ha_median(s->work, n);
    s->known[s->curves++] = (double)n;
}

/* The differences of curve after curve, as they were added, become multiples of its spread. */
static void scale(struct spread *s)
{
    for (size_t i = 0; i < s->curves; i++) s->work[i] = s->scale[i];
    const double all = ha_median(s->work, s->curves);
    for (size_t i = 0, at = 0; i < s->curves; i++) {
        s->scale[i] = (s->known[i] * s->scale[i] + few * all) / (s->known[i] + few);
        for (double k = 0; k < s->known[i]; k++, at++) s->off[at] = s->scale[i] > 0 ? s->off[at] / s->scale[i] : 0;
    }
}

/* By how much the last `age` of n nights have to be off, so that they are beyond the others in u pairs: of one curve,
 * whose nights are drawn. Two neighbours differ by the square root of two of what one night is off by. */
static double needed(const struct spread *s, size_t n, size_t age, size_t u, uint64_t draw, double *pairs)
{
    double x[DRAWN_NIGHTS];
    size_t count = 0;
    const double one = s->scale[ha_rng_below(1, 0, draw, s->curves)] / M_SQRT2;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = ha_rng_below(1, 1, draw * DRAWN_NIGHTS + i, 2 * s->offs);
        x[i] = (at % 2 ? -one : one) * s->off[at / 2];
    }
    for (size_t i = n - age; i < n; i++)
        for (size_t j = 0; j < n - age; j++) pairs[count++] = x[j] - x[i];
    qsort(pairs, count, sizeof *pairs, by_size);
    return pairs[u - 1] + HA_SHIFT_LEAST;
}

static bool look(struct ha_history_sight *out, const struct spread *s, size_t nights, size_t age, double level)
{
    static _Thread_local double pairs[DRAWN_NIGHTS * DRAWN_NIGHTS / 4];
    double size[DRAWS];
    const size_t n = nights < DRAWN_NIGHTS ? nights : DRAWN_NIGHTS;
    const size_t u = 2 * age <= n ? ha_change_points_u(n, age, level) : 0;
    if (!u) return false;
    for (size_t d = 0; d < DRAWS; d++) size[d] = needed(s, n, age, u, d, pairs);
    qsort(size, DRAWS, sizeof *size, by_size);
    *out = (struct ha_history_sight){ nights, age, size[FOUND - 1] };
    return true;
}

static size_t look_all(struct ha_history_sight out[HA_SIGHTS], const struct spread *s, const struct ha_history *h,
                       size_t nights)
{
    const double level = HA_HISTORY_ALPHA / (double)h->count;
    const bool enough = ha_change_points_age(nights, level) > 0;
    size_t age, count = 0;
    while (!(age = ha_change_points_age(nights, level))) nights++;
    count += look(&out[count], s, nights, age, level);
    if (enough) count += look(&out[count], s, nights, 2 * age < nights / 2 ? 2 * age : nights / 2, level);
    else count += look(&out[count], s, 2 * nights, 2 * age, level);
    return count;
}

enum ha_status ha_history_look(struct ha_history_sight out[HA_SIGHTS], size_t *count, const struct ha_history *h,
                               struct ha_why *why)
{
    size_t all = h->count + 1, most = 0;
    for (size_t i = 0; i < h->count; i++) {
        all += h->curve[i].count;
        if (h->curve[i].count > most) most = h->curve[i].count;
    }
    double *room = malloc(4 * all * sizeof *room);
    struct spread s = { room, room + all, room + 2 * all, room + 3 * all, 0, 0 };
    *count = 0;
    if (!room) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < h->count; i++) add_curve(&s, &h->curve[i]);
    if (s.curves) scale(&s);
    if (s.offs >= OFFS_LEAST) *count = look_all(out, &s, h, most);
    free(room);
    return HA_OK;
}
