#include "suites/merge/work.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <stdlib.h>

struct search {
    struct ha_merge_row *row, trial;
    bool (*fails)(void *arg, const struct ha_merge_row *row);
    void *arg;
    size_t budget, asked;
};

struct span {
    size_t first, count;
};

/* to becomes from, but for some states and some components */
static void copy_without(struct ha_merge_row *to, const struct ha_merge_row *from, struct span states, struct span dims)
{
    size_t n = 0, row = 0;
    for (size_t s = 0; s < from->states; s++) {
        if (s - states.first < states.count) continue;
        to->lse[row] = from->lse[s];
        to->sum[row++] = from->sum[s];
        for (size_t d = 0; d < from->dim; d++)
            if (!(d - dims.first < dims.count)) to->o[n++] = from->o[s * from->dim + d];
    }
    to->states = from->states - states.count;
    to->dim = from->dim - dims.count;
}

static void copy(struct ha_merge_row *to, const struct ha_merge_row *from)
{
    copy_without(to, from, (struct span){ 0, 0 }, (struct span){ 0, 0 });
}

/* Where the trial fails too, it becomes the row. */
static bool take(struct search *s)
{
    if (s->asked == s->budget) return false;
    s->asked++;
    if (!s->fails(s->arg, &s->trial)) return false;
    copy(s->row, &s->trial);
    return true;
}

/* States (or components) by halves, quarters, ... down to one at a time; one is left. */
static bool drop(struct search *s, bool components)
{
    const size_t *left = components ? &s->row->dim : &s->row->states;
    bool any = false;
    for (size_t count = *left / 2; count; count /= 2)
        for (size_t first = 0; first<*left && * left> 1;) {
            const size_t most = *left - first < *left - 1 ? *left - first : *left - 1;
            const struct span gone = { first, count < most ? count : most }, none = { 0, 0 };
            copy_without(&s->trial, s->row, components ? none : gone, components ? gone : none);
            if (take(s)) any = true;
            else if (s->asked == s->budget) return any;
            else first += count;
        }
    return any;
}

/* ---- plainer numbers ---------------------------------------------------------------------- */

/* x with the leading `bits` of its significand */
static double rounded(double x, int bits)
{
    if (!isfinite(x) || x == 0) return x;
    int exponent;
    const double f = frexp(x, &exponent);
    return ldexp(rint(ldexp(f, bits)), exponent - bits);
}

/* How complicated x is to read: small integers by size, others by significant bits, then size, then sign. NaN and
 * infinities are the most complicated. */
static double cost(double x)
{
    if (isnan(x)) return 1e9;
    if (isinf(x)) return 5e8 + (signbit(x) != 0);
    if (x == rint(x) && fabs(x) < 1000) return 8 * fabs(x) + (signbit(x) != 0);
    int exponent, bits = 1;
    frexp(x, &exponent);
    while (rounded(x, bits) != x) bits++;
    return bits * 0x1p13 + abs(exponent - 1) * 2.0 + (signbit(x) != 0);
}

/* Plainest first: 0, 1, -1, the nearest integer, then fewer and fewer bits cut off. */
static const int kept_bits[] = { 1, 2, 3, 4, 6, 8, 11, 16, 24 };
enum { PLAINEST = 4, WAYS = PLAINEST + sizeof kept_bits / sizeof *kept_bits };
static double plainer(double x, size_t way)
{
    static const double fixed[] = { 0, 1, -1 };
    return way < 3 ? fixed[way] : way == 3 ? rint(x) : rounded(x, kept_bits[way - PLAINEST]);
}

enum array { O, LSE, SUM, ARRAYS };
static double *array_of(struct ha_merge_row *row, enum array which)
{
    return which == O ? row->o : which == LSE ? row->lse : row->sum;
}

/* Rounding up must not leave the range of the type that o is stored in; empty stays empty; a sum becomes 1 or stays. */
static bool allowed(const struct ha_merge_row *row, enum array which, double old, double new)
{
    if (which == O) return !isfinite(old) || isfinite(ha_round((float)new, row->dtype));
    return which == LSE ? old != -HUGE_VAL : new == 1;
}

/* The plainest way for count values at once. */
static bool simplify_some(struct search *s, enum array which, struct span some)
{
    for (size_t way = 0; way < WAYS && s->asked < s->budget; way++) {
        bool changed = false;
        copy(&s->trial, s->row);
        double *x = array_of(&s->trial, which) + some.first;
        for (size_t i = 0; i < some.count; i++) {
            const double next = plainer(x[i], way);
            if (!allowed(s->row, which, x[i], next) || !(cost(next) < cost(x[i]))) continue;
            x[i] = next;
            changed = true;
        }
        if (changed && take(s)) return true;
    }
    return false;
}

/* All values at once first, then those of a state, then each: with many values a small budget still simplifies most. */
static bool simplify(struct search *s, enum array which)
{
    const size_t dim = which == O ? s->row->dim : 1, count = s->row->states * dim, steps[] = { count, dim, 1 };
    bool any = false;
    for (size_t k = 0; k < 3; k++) {
        if (k && steps[k] == steps[k - 1]) continue;
        for (size_t first = 0; first < count; first += steps[k])
            any |= simplify_some(s, which, (struct span){ first, steps[k] });
    }
    return any;
}

size_t ha_merge_shrink(struct ha_merge_row *row, bool (*fails)(void *arg, const struct ha_merge_row *row), void *arg,
                       size_t budget)
{
    const size_t values = row->states * row->dim;
    struct search s = { .row = row, .trial = *row, .fails = fails, .arg = arg, .budget = budget };
    s.trial.whole = s.trial.full = false;
    double *memory = malloc((values + 2 * row->states) * sizeof *memory);
    if (!memory) return 0;
    s.trial.o = memory;
    s.trial.lse = memory + values;
    s.trial.sum = s.trial.lse + row->states;

    copy(&s.trial, row);
    /* every later trial leaves attention over the tokens out of it */
    bool go_on = !(row->whole || row->full) || take(&s);
    if (go_on) row->whole = row->full = false;
    while (go_on) {
        go_on = drop(&s, false);
        go_on |= drop(&s, true);
        for (enum array which = O; which < ARRAYS; which++) go_on |= simplify(&s, which);
    }
    free(memory);
    return s.asked;
}
