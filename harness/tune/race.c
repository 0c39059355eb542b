#include "harness/tune/race.h"

#include "harness/base/rng.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES_MOST = 160, FINALISTS = 4, TRIES = 3 };

/* Rounds of a stage, and the share of the candidates that goes on: 1 of so many. */
static const struct {
    size_t rounds, of;
} stages[] = { { 3, 3 }, { 6, 2 } };

/* A candidate that is behind by less than this is as good as another that is preferred: otherwise each race would end
 * with another one. */
static const double as_good = 0.985;
static const double wide = 0.05; /* half an interval, of its median: more than that is no answer */

struct runner {
    double x[SAMPLES_MOST];
    size_t count, tried;
    double median, lo, hi;
};

struct field {
    const struct ha_race *race;
    struct runner *runner;
    size_t in[HA_CANDIDATES_MOST], count; /* who still runs */
    uint64_t draws;
};

static void sum_up(struct runner *r)
{
    r->median = ha_median(r->x, r->count);
    ha_median_interval(r->x, r->count, &r->lo, &r->hi);
}

static bool late(const struct ha_race *race) { return race->late && race->late(race->arg); }

static void shuffle(struct field *f)
{
    for (size_t i = f->count; i-- > 1;) {
        const size_t j = ha_rng_below(f->race->seed, 0, f->draws++, i + 1), moved = f->in[i];
        f->in[i] = f->in[j];
        f->in[j] = moved;
    }
}

/* a sample of everybody, in turns; one that was disturbed is taken again a few times */
static void round_of(struct field *f)
{
    shuffle(f);
    for (size_t i = 0; i < f->count && !late(f->race); i++) {
        struct runner *r = &f->runner[f->in[i]];
        for (size_t t = 0; t < TRIES && r->count < SAMPLES_MOST; t++) {
            const double x = f->race->sample(f->race->arg, f->in[i]);
            r->tried++;
            if (isnan(x)) continue;
            r->x[r->count++] = x;
            break;
        }
    }
}

/* The best few go on, and the first candidate, which everything is held against. By the upper quartile: whatever else
 * runs makes samples smaller, never larger. */
static void keep(struct field *f, size_t most)
{
    double of[HA_CANDIDATES_MOST];
    for (size_t i = 0; i < f->race->candidates; i++) {
        const double x = ha_quantile(f->runner[i].x, f->runner[i].count, 0.75);
        of[i] = isnan(x) ? 0 : x;
    }
    for (size_t i = 1; i < f->count; i++)
        for (size_t j = i; j > 0 && of[f->in[j - 1]] < of[f->in[j]]; j--) {
            const size_t moved = f->in[j];
            f->in[j] = f->in[j - 1];
            f->in[j - 1] = moved;
        }
    bool first = false;
    if (most < f->count) f->count = most;
    for (size_t i = 0; i < f->count; i++) first = first || f->in[i] == 0;
    if (!first) f->in[f->count++] = 0;
}

/* of the last ones, the preferred one among those that are as good as the best */
static size_t winner_of(const struct field *f)
{
    double best = 0;
    size_t winner = 0;
    for (size_t i = 0; i < f->count; i++) best = fmax(best, f->runner[f->in[i]].median);
    for (size_t c = f->race->candidates; c-- > 0;)
        for (size_t i = 0; i < f->count; i++)
            if (f->in[i] == c && f->runner[c].median >= as_good * best) winner = c;
    return winner;
}

static bool is_clear(const struct runner *r)
{
    return r->count * 2 >= r->tried && (r->hi - r->lo) / 2 <= wide * r->median;
}

/* The last few run on until the winner is known well enough, and that it is better than the first. */
static enum ha_race_end finish(struct field *f, size_t *winner)
{
    const size_t least = f->race->final;
    for (size_t rounds = 0; rounds < 3 * least; rounds++) {
        if (late(f->race)) return HA_RACE_LATE;
        round_of(f);
        if (rounds + 1 < least || (rounds + 1) % (least / 2) != 0) continue;
        for (size_t i = 0; i < f->count; i++) sum_up(&f->runner[f->in[i]]);
        *winner = winner_of(f);
        const struct runner *w = &f->runner[*winner], *first = &f->runner[0];
        if (is_clear(w) && (*winner == 0 || (is_clear(first) && w->lo > first->hi))) return HA_RACE_SURE;
    }
    /* known well, both of them, and so near to one another that there is nothing to choose */
    const struct runner *w = &f->runner[*winner], *first = &f->runner[0];
    if (!is_clear(w) || !is_clear(first) || as_good * as_good * w->median > first->median) return HA_RACE_DISTURBED;
    *winner = 0;
    return HA_RACE_SURE;
}

enum ha_status ha_race(const struct ha_race *race, struct ha_race_result *result, struct ha_why *why)
{
    struct field f = { .race = race, .count = race->candidates };
    *result = (struct ha_race_result){ .end = HA_RACE_LATE,
                                       .median = (double)NAN,
                                       .lo = (double)NAN,
                                       .hi = (double)NAN,
                                       .first = (double)NAN,
                                       .best = (double)NAN };
    if (race->candidates == 0 || race->candidates > HA_CANDIDATES_MOST || race->final < 2)
        return ha_why(why, HA_ERROR, "a race of %zu candidates with %zu samples", race->candidates, race->final);
    f.runner = calloc(race->candidates, sizeof *f.runner);
    if (!f.runner) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < f.count; i++) f.in[i] = i;
    for (size_t s = 0; s < sizeof stages / sizeof *stages && f.count > FINALISTS; s++) {
        for (size_t r = 0; r < stages[s].rounds; r++) round_of(&f);
        const size_t some = f.count / stages[s].of;
        keep(&f, some > FINALISTS ? some : FINALISTS);
    }
    if (f.count > FINALISTS + 1) keep(&f, FINALISTS);
    size_t winner = 0;
    result->end = finish(&f, &winner);
    if (result->end != HA_RACE_SURE) winner = 0;
    for (size_t i = 0; i < race->candidates; i++) {
        const struct runner *r = &f.runner[i];
        sum_up(&f.runner[i]);
        if (race->each) race->each[i] = (struct ha_race_share){ r->median, r->lo, r->hi };
    }
    result->winner = winner;
    result->median = f.runner[winner].median;
    result->lo = f.runner[winner].lo;
    result->hi = f.runner[winner].hi;
    result->first = f.runner[0].median;
    for (size_t i = 0; i < f.count; i++) result->best = fmax(result->best, f.runner[f.in[i]].median);
    free(f.runner);
    return HA_OK;
}
