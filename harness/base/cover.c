#include "harness/base/cover.h"

#include "harness/base/array.h"
#include "harness/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    const struct ha_cover *cover;
    double most;       /* what a row may cost */
    size_t all;        /* values of all axes together */
    size_t *first;     /* [axes] the number of each axis' value 0 among them */
    size_t *by_size;   /* [axes] those with most values first */
    bool *open;        /* [all][all] pairs that no row has yet, both ways round */
    size_t *left;      /* [all] how many of them each value is in */
    double *growth;    /* [all] by what a value multiplies the cost of a row of zeros */
    size_t *row, *try; /* [axes] */
    bool *decided;     /* [axes] */
    size_t *rows, count, room;
};

double ha_cover_cheapest(const struct ha_cover *c, size_t a, size_t x, size_t b, size_t y, size_t *row)
{
    memset(row, 0, c->axes * sizeof *row);
    row[a] = x;
    row[b] = y;
    double least = c->cost(c->arg, row);
    size_t axis = c->axes, value = 0;
    if (isfinite(least)) return least;
    for (size_t i = 0; i < c->axes; i++) {
        if (i == a || i == b) continue;
        for (size_t v = 1; v < c->values[i]; v++) {
            row[i] = v;
            const double cost = c->cost(c->arg, row);
            if (!(cost < least)) continue;
            least = cost;
            axis = i;
            value = v;
        }
        row[i] = 0;
    }
    if (axis < c->axes) row[axis] = value;
    return least;
}

static bool *pair(const struct maker *m, size_t a, size_t x, size_t b, size_t y)
{
    return &m->open[(m->first[a] + x) * m->all + m->first[b] + y];
}

/* It is met, or cannot be. */
static void shut(struct maker *m, size_t a, size_t x, size_t b, size_t y)
{
    if (!*pair(m, a, x, b, y)) return;
    *pair(m, a, x, b, y) = *pair(m, b, y, a, x) = false;
    m->left[m->first[a] + x]--;
    m->left[m->first[b] + y]--;
}

/* open pairs of this value with those of the axes that are decided */
static size_t gain(const struct maker *m, size_t a, size_t x)
{
    size_t n = 0;
    for (size_t b = 0; b < m->cover->axes; b++)
        if (b != a && m->decided[b]) n += *pair(m, a, x, b, m->row[b]);
    return n;
}

/* The value of this axis with the most new pairs for the cost; of equal ones the one that has most left to meet. */
static size_t best_value(const struct maker *m, size_t a, size_t pairs, double cost)
{
    size_t best = m->row[a];
    double most = -1;
    for (size_t x = 0; x < m->cover->values[a]; x++) {
        const double left = (double)m->left[m->first[a] + x] / (double)m->all,
                     worth = ((double)(pairs + gain(m, a, x)) + left)
                             / (m->cover->fixed + cost * m->growth[m->first[a] + x]);
        if (!(worth > most)) continue;
        most = worth;
        best = x;
    }
    return best;
}

/* Every axis that is not decided, whatever the row costs with all of them. cost: of the row as it is */
static void fill(struct maker *m, double cost)
{
    size_t pairs = 1;
    for (size_t i = 0; i < m->cover->axes; i++) {
        const size_t a = m->by_size[i];
        if (m->decided[a]) continue;
        m->row[a] = best_value(m, a, pairs, cost);
        pairs += gain(m, a, m->row[a]);
        cost *= m->growth[m->first[a] + m->row[a]];
        m->decided[a] = true;
    }
}

static bool fits(const struct maker *m, const size_t *row) { return m->cover->cost(m->cover->arg, row) <= m->most; }

/* From the seed, which fits: values of the row that is too much, one after the other, as long as it fits with them. */
static void fall_back(struct maker *m, size_t *seed)
{
    for (size_t a = 0; a < m->cover->axes; a++) {
        const size_t was = seed[a];
        if (was == m->row[a]) continue;
        seed[a] = m->row[a];
        if (!fits(m, seed)) seed[a] = was;
    }
    memcpy(m->row, seed, m->cover->axes * sizeof *seed);
}

static bool keep_row(struct maker *m)
{
    const size_t axes = m->cover->axes;
    if (!ha_array_room(&m->rows, &m->room, (m->count + 1) * axes, sizeof *m->rows)) return false;
    memcpy(m->rows + m->count++ * axes, m->row, axes * sizeof *m->row);
    return true;
}

static bool take_row(struct maker *m)
{
    const size_t axes = m->cover->axes;
    if (!keep_row(m)) return false;
    for (size_t a = 0; a < axes; a++)
        for (size_t b = a + 1; b < axes; b++) shut(m, a, m->row[a], b, m->row[b]);
    return true;
}

/* A row with this pair. false: no memory */
static bool add_row(struct maker *m, size_t a, size_t x, size_t b, size_t y)
{
    const size_t bytes = m->cover->axes * sizeof *m->row;
    const double cost = ha_cover_cheapest(m->cover, a, x, b, y, m->try);
    const bool possible = cost <= m->cover->most;
    if (!possible) {
        shut(m, a, x, b, y);
        return true;
    }
    memcpy(m->row, m->try, bytes);
    for (size_t i = 0; i < m->cover->axes; i++) m->decided[i] = i == a || i == b || m->row[i] > 0;
    fill(m, cost);
    if (!fits(m, m->row)) fall_back(m, m->try);
    return take_row(m);
}

static bool every_pair(struct maker *m)
{
    const struct ha_cover *c = m->cover;
    for (size_t i = 0; i < c->axes; i++)
        for (size_t k = i + 1; k < c->axes; k++) {
            const size_t a = m->by_size[i], b = m->by_size[k];
            for (size_t x = 0; x < c->values[a]; x++)
                for (size_t y = 0; y < c->values[b]; y++)
                    if (*pair(m, a, x, b, y) && !add_row(m, a, x, b, y)) return false;
        }
    return true;
}

static void begin(struct maker *m)
{
    const struct ha_cover *c = m->cover;
    for (size_t a = 0; a < c->axes; a++) {
        size_t at = a; /* insertion: equal ones stay in order */
        for (; at > 0 && c->values[m->by_size[at - 1]] < c->values[a]; at--) m->by_size[at] = m->by_size[at - 1];
        m->by_size[at] = a;
        for (size_t b = 0; b < c->axes; b++)
            for (size_t x = 0; x < c->values[a] && a != b; x++) {
                for (size_t y = 0; y < c->values[b]; y++) *pair(m, a, x, b, y) = true;
                m->left[m->first[a] + x] += c->values[b];
            }
    }
    const double plain = c->cost(c->arg, m->row);
    for (size_t a = 0; a < c->axes; a++)
        for (size_t x = 0; x < c->values[a]; x++) {
            m->row[a] = x;
            const double growth = c->cost(c->arg, m->row) / plain;
            m->growth[m->first[a] + x] = isfinite(growth) && growth > 0 ? growth : 1;
            m->row[a] = 0;
        }
}

enum ha_status ha_cover_make(const struct ha_cover *c, size_t **rows, size_t *count)
{
    struct maker m = { .cover = c, .most = c->most };
    const size_t axes = c->axes ? c->axes : 1;
    m.first = calloc(axes, sizeof *m.first);
    for (size_t a = 0; m.first && a < c->axes; a++) {
        m.first[a] = m.all;
        m.all += c->values[a];
    }
    const size_t all = m.all ? m.all : 1;
    m.by_size = calloc(axes, sizeof *m.by_size);
    m.open = calloc(all, all * sizeof *m.open);
    m.left = calloc(all, sizeof *m.left);
    m.growth = calloc(all, sizeof *m.growth);
    m.row = calloc(axes, sizeof *m.row);
    m.try = calloc(axes, sizeof *m.try);
    m.decided = calloc(axes, sizeof *m.decided);
    bool ok = m.first && m.by_size && m.open && m.left && m.growth && m.row && m.try && m.decided;
    if (ok) {
        begin(&m);
        ok = every_pair(&m);
    }
    free(m.first), free(m.by_size), free(m.open), free(m.left), free(m.growth), free(m.row), free(m.try);
    free(m.decided);
    if (!ok) free(m.rows);
    *rows = ok ? m.rows : NULL;
    *count = ok ? m.count : 0;
    return ok ? HA_OK : HA_ERROR;
}

/* ---- every value ------------------------------------------------------------------------------------------------- */

/* An axis' values that no row has yet, in an order that was drawn: left[at..], from there to values. */
struct open {
    size_t *left, at;
};

enum { FEW = 4 };

static size_t drawn(uint64_t seed, uint64_t *at, size_t n) { return (size_t)ha_rng_below(seed, 0, (*at)++, n); }

/* The next value that no row has; else of few values any; of many in a quarter of all rows value 0, which is the usual
 * one (one query token, one sequence, no offset), or any, a cheap one rather than a dear one. */
static size_t next_value(const struct ha_cover *c, const struct open *o, size_t a, uint64_t seed, uint64_t *at)
{
    if (o[a].at < c->values[a]) return o[a].left[o[a].at];
    if (c->values[a] <= FEW) return drawn(seed, at, c->values[a]);
    return drawn(seed, at, 4) == 0 ? 0 : drawn(seed, at, drawn(seed, at, c->values[a]) + 1);
}

static void meet(struct open *o, size_t values, size_t value)
{
    size_t i = o->at;
    while (i < values && o->left[i] != value) i++;
    if (i == values) return; /* it was met before */
    o->left[i] = o->left[o->at];
    o->left[o->at++] = value;
}

/* From the seed, which fits: values of the row in an order that is drawn, each as it is, or a cheaper one, as long as
 * it fits with them. */
static void fall_back_mixed(struct maker *m, size_t *row, uint64_t seed, uint64_t *at)
{
    const size_t axes = m->cover->axes, first = drawn(seed, at, axes);
    for (size_t i = 0; i < axes; i++) {
        const size_t a = (first + i) % axes, was = row[a];
        row[a] = m->row[a];
        while (row[a] != was && !fits(m, row))
            row[a] = row[a] > 1 && drawn(seed, at, 4) ? drawn(seed, at, row[a]) : was;
    }
    memcpy(m->row, row, axes * sizeof *row);
}

/* A row with the next value of this axis. false: no memory */
static bool add_value(struct maker *m, struct open *o, size_t axis, uint64_t seed, uint64_t *at)
{
    const struct ha_cover *c = m->cover;
    const size_t value = o[axis].left[o[axis].at];
    const double cost = ha_cover_cheapest(c, axis, value, axis, value, m->try);
    if (!(cost <= c->most)) {
        o[axis].at++;
        return true;
    }
    for (size_t a = 0; a < c->axes; a++) m->row[a] = next_value(c, o, a, seed, at);
    m->most = fmin(c->most, fmax(c->most / HA_COVER_MIXED, 2 * cost));
    if (!fits(m, m->row)) fall_back_mixed(m, m->try, seed, at);
    for (size_t a = 0; a < c->axes; a++) meet(&o[a], c->values[a], m->row[a]);
    return keep_row(m);
}

static bool every_value(struct maker *m, struct open *o, uint64_t seed)
{
    const struct ha_cover *c = m->cover;
    uint64_t at = 0;
    for (size_t a = 0; a < c->axes; a++)
        for (size_t i = 0; i < c->values[a]; i++) { /* shuffled as it is filled */
            const size_t to = drawn(seed, &at, i + 1);
            o[a].left[i] = o[a].left[to];
            o[a].left[to] = i;
        }
    for (;;) {
        size_t axis = 0, most = 0;
        for (size_t a = 0; a < c->axes; a++)
            if (c->values[a] - o[a].at > most) {
                axis = a;
                most = c->values[a] - o[a].at;
            }
        if (!most) return true;
        if (!add_value(m, o, axis, seed, &at)) return false;
    }
}

enum ha_status ha_cover_values(const struct ha_cover *c, uint64_t seed, size_t **rows, size_t *count)
{
    const size_t axes = c->axes ? c->axes : 1;
    struct maker m = { .cover = c };
    struct open *o = calloc(axes, sizeof *o);
    m.row = calloc(axes, sizeof *m.row);
    m.try = calloc(axes, sizeof *m.try);
    bool ok = o && m.row && m.try;
    for (size_t a = 0; a < c->axes && ok; a++)
        ok = (o[a].left = malloc((c->values[a] + 1) * sizeof *o[a].left)) != NULL;
    ok = ok && every_value(&m, o, seed);
    for (size_t a = 0; a < c->axes && o; a++) free(o[a].left);
    free(o), free(m.row), free(m.try);
    if (!ok) free(m.rows);
    *rows = ok ? m.rows : NULL;
    *count = ok ? m.count : 0;
    return ok ? HA_OK : HA_ERROR;
}
