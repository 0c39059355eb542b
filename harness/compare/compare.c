#include "harness/compare/compare.h"

#include "harness/base/array.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/compare/blame.h"
#include "harness/compare/fold.h"
#include "harness/compare/lost.h"
#include "harness/compare/machine.h"
#include "harness/compare/results.h"
#include "harness/compare/sides.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* By which chance a night in which nothing has changed may say that something has. */
static const double night_alpha = 0.01;
static const double same_within = 0.05; /* what "same" rules out */

static const struct {
    const char *word, *of_speed; /* of_speed: of times and rates */
    bool loud;
    enum ha_exit exit;
} kinds[HA_CHANGES] = {
    [HA_CHANGE_SAME] = { "same", "same", false, HA_EXIT_OK },
    [HA_CHANGE_UNCLEAR] = { "unclear", "unclear", false, HA_EXIT_OK },
    [HA_CHANGE_ADDED] = { "added", "added", false, HA_EXIT_OK },
    [HA_CHANGE_PERHAPS_BETTER] = { "perhaps better", "perhaps faster", true, HA_EXIT_OK },
    [HA_CHANGE_BETTER] = { "better", "faster", true, HA_EXIT_OK },
    [HA_CHANGE_DISTURBED] = { "disturbed", "disturbed", true, HA_EXIT_ENVIRONMENT },
    [HA_CHANGE_SUSPICIOUS] = { "suspicious", "suspicious", true, HA_EXIT_MISSING },
    [HA_CHANGE_WAIVED] = { "waived", "waived", true, HA_EXIT_MISSING },
    [HA_CHANGE_GONE] = { "gone", "gone", true, HA_EXIT_MISSING },
    [HA_CHANGE_NOT_JUDGED] = { "not judged", "not judged", true, HA_EXIT_MISSING },
    [HA_CHANGE_OTHER_RESULT] = { "other result", "other result", true, HA_EXIT_REGRESSION },
    [HA_CHANGE_WORSE] = { "worse", "slower", true, HA_EXIT_REGRESSION },
    [HA_CHANGE_OTHER_BITS] = { "other bits", "other bits", true, HA_EXIT_WRONG },
    [HA_CHANGE_WRONG] = { "wrong", "wrong", true, HA_EXIT_WRONG },
};

const char *ha_change_word(const struct ha_change *c)
{
    return c->figure && ha_figure_is_speed(c->figure) ? kinds[c->kind].of_speed : kinds[c->kind].word;
}

bool ha_change_loud(const struct ha_change *c) { return kinds[c->kind].loud && !c->folded; }
enum ha_exit ha_change_exit(enum ha_change_kind kind) { return kinds[kind].exit; }

const char *ha_cause_word(enum ha_cause cause)
{
    static const char *const word[] = { "", "machine", "code", "software", "both", "undecided" };
    return word[cause];
}

const char *ha_night_word(enum ha_exit exit)
{
    switch (exit) {
    case HA_EXIT_OK: return "nothing changed";
    case HA_EXIT_WRONG: return "wrong";
    case HA_EXIT_MISSING: return "not all ran";
    case HA_EXIT_REGRESSION: return "slower";
    default: return "not fit to judge";
    }
}

size_t ha_comparison_of(const struct ha_comparison *c, enum ha_change_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) n += c->change[i].kind == kind;
    return n;
}

size_t ha_comparison_lost(const struct ha_comparison *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->environments; i++) n += c->environment[i].lost;
    return n;
}

size_t ha_comparison_loud(const struct ha_comparison *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) n += ha_change_loud(&c->change[i]);
    return n;
}

bool ha_comparison_blind(const struct ha_comparison *c)
{
    if (!c->base->nights || c->other_machine) return false; /* nothing was to be noticed */
    for (size_t i = 0; i < c->count; i++)
        if (c->change[i].figure && isfinite(c->change[i].shift.noticed)) return false;
    for (size_t i = 0; i < c->now->count; i++)
        if (!strcmp(c->now->cases[i]->mode, "run")) return true;
    return false; /* a check, which has verdicts alone */
}

enum ha_exit ha_night_worse(enum ha_exit a, enum ha_exit b)
{
    static const enum ha_exit order[] = { HA_EXIT_WRONG, HA_EXIT_REGRESSION, HA_EXIT_MISSING, HA_EXIT_ENVIRONMENT };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (a == order[i] || b == order[i]) return order[i];
    return HA_EXIT_OK;
}

enum ha_exit ha_comparison_exit(const struct ha_comparison *c)
{
    enum ha_exit exit = ha_comparison_lost(c) ? ha_night_worse(c->besides, HA_EXIT_REGRESSION) : c->besides;
    for (size_t i = 0; i < c->count; i++) exit = ha_night_worse(exit, kinds[c->change[i].kind].exit);
    if (c->no_figures) exit = ha_night_worse(exit, HA_EXIT_MISSING); /* judged before, and by nobody now */
    /* that all was disturbed says why nothing can be said */
    const bool explained = ha_comparison_of(c, HA_CHANGE_DISTURBED) > 0;
    return ha_comparison_blind(c) && !explained ? ha_night_worse(exit, HA_EXIT_MISSING) : exit;
}

const char *ha_comparison_word(const struct ha_comparison *c)
{
    const enum ha_exit exit = ha_comparison_exit(c);
    if (exit == HA_EXIT_REGRESSION && ha_comparison_lost(c)) return "hardware lost";
    if (exit == HA_EXIT_REGRESSION && c->besides != exit && !ha_comparison_of(c, HA_CHANGE_WORSE))
        return "other results";
    const bool known = exit != HA_EXIT_MISSING || c->besides == exit || !ha_comparison_blind(c);
    if (c->other_machine && exit == HA_EXIT_OK) return "all ran"; /* nothing was to change */
    return known ? ha_night_word(exit) : "nothing can be said";
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static struct ha_change *add(struct ha_comparison *c, struct ha_why *why)
{
    if (!ha_array_room(&c->change, &c->room, c->count + 1, sizeof *c->change)) {
        ha_why(why, HA_ERROR, "out of memory");
        return NULL;
    }
    struct ha_change *change = &c->change[c->count++];
    *change = (struct ha_change){ .base_median = (double)NAN,
                                  .median = (double)NAN,
                                  .base_lo = (double)NAN,
                                  .base_hi = (double)NAN,
                                  .lo = (double)NAN,
                                  .hi = (double)NAN,
                                  .shift = { .p = (double)NAN, .p_better = (double)NAN, .noticed = (double)INFINITY } };
    return change;
}

static bool is_machine(const struct ha_recorded_case *c) { return !strcmp(c->id, HA_MACHINE_CASE); }

static bool judged(enum ha_verdict v) { return ha_passed(v) || v == HA_VERDICT_FAIL || v == HA_UNCHECKED; }

/* Of the nights of the base that count: its processes, and its verdict in the last. */
static struct ha_verdict_of_night before(const struct ha_recorded_case *base, const bool *counts)
{
    struct ha_verdict_of_night all = { .verdict = HA_NOT_RUN };
    if (base && !base->nights) return (struct ha_verdict_of_night){ 0, base->processes, base->verdict };
    for (size_t i = 0; base && i < base->nights; i++)
        if (counts[base->by_night[i].night]) {
            all.processes += base->by_night[i].processes;
            all.verdict = base->by_night[i].verdict;
        }
    return all;
}

/* What a case is by its verdicts; HA_CHANGE_SAME: its figures say. */
static enum ha_change_kind kind_of(const struct ha_verdict_of_night *base, const struct ha_recorded_case *now)
{
    if (!now || !now->processes) return HA_CHANGE_GONE;
    if (now->verdict == HA_VERDICT_FAIL) return HA_CHANGE_WRONG;
    if (now->verdict == HA_VERDICT_ERROR) return HA_CHANGE_NOT_JUDGED;
    if (now->verdict == HA_VERDICT_WAIVED && judged(base->verdict)) return HA_CHANGE_WAIVED;
    return base->processes ? HA_CHANGE_SAME : HA_CHANGE_ADDED;
}

/* Writes the id with a device under its other name: a variant's device=FROM, a merge's by=FROM. */
static bool rename_device(char *out, size_t size, const char *id, const char *from, const char *to)
{
    static const char *const keys[] = { ":device=", ",device=", ":by=", ",by=" };
    const size_t length = strlen(from);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const char *at = strstr(id, keys[k]), *name = at ? at + strlen(keys[k]) : "", *end = name + length;
        if (at && !strncmp(name, from, length) && (!*end || *end == ','))
            return (size_t)snprintf(out, size, "%.*s%s%s", (int)(name - id), id, to, end) < size;
    }
    return false;
}

/* In how many of its processes, of nights that count, something else used the cores. */
static size_t disturbed(const struct ha_recorded_case *of, const bool *counts)
{
    size_t n = 0;
    for (size_t i = 0; of && i < of->disturbances; i++) n += !counts || counts[of->disturbed[i].night];
    return n;
}

/* What is left of most of its processes says nothing, however much alike it is. */
static bool mostly(size_t disturbed, size_t processes) { return 2 * disturbed > processes; }

/* The same case of the other record, in which its device may have been asked for under another name. */
static const struct ha_recorded_case *counterpart(const struct ha_comparison *c, const struct ha_record *in,
                                                  const struct ha_recorded_case *of)
{
    const struct ha_recorded_case *found = ha_record_case(in, of->mode, of->id);
    for (size_t i = 0; i < c->environments && !found; i++) {
        const struct ha_environment_change *e = &c->environment[i];
        const char *to = in == c->now ? e->now : e->base, *from = in == c->now ? e->base : e->now;
        char id[4096];
        if (strstr(e->name, ": asked") && from && to && rename_device(id, sizeof id, of->id, from, to))
            found = ha_record_case(in, of->mode, id);
    }
    return found;
}

static bool differs(const struct ha_comparison *c, const char *fact)
{
    for (size_t i = 0; i < c->environments; i++)
        if (!strcmp(c->environment[i].name, fact)) return true;
    return false;
}

/* What a comparison knows of all cases. */
struct look {
    const bool *counts;
    struct ha_figure_names now,
        gone;       /* figures with a value in any case; those of the base that another build has not */
    bool disturbed; /* values of some new process were left out */
};

/* Is there a case in both that had this reading of the machine? Others have not lost it. */
static bool is_read(const struct ha_comparison *c, const char *figure)
{
    for (size_t i = 0; i < c->now->count; i++) {
        const struct ha_recorded_case *now = c->now->cases[i], *base = counterpart(c, c->base, now);
        if (base && !is_machine(now) && ha_figure_there(base, figure)) return true;
    }
    return false;
}

/* The figures that the case has lost, and the first of them. */
static enum ha_status find_lost(const struct ha_comparison *c, struct look *l, const struct ha_recorded_case *base,
                                const struct ha_recorded_case *now, struct ha_change *change, struct ha_why *why)
{
    const bool other = c->other_machine || differs(c, "build");
    for (size_t i = 0; i < base->figures; i++) {
        const struct ha_recorded_figure *f = &base->figure[i];
        const struct ha_recorded_figure *const is = now ? ha_record_figure(now, f->name) : NULL;
        if (!ha_is_result(f->name) && !ha_figure_tested(base, f, c->other_machine)) continue;
        if (is && ha_figure_steady(now, is, NULL, c->now->nights)) continue;
        if (!ha_figure_steady(base, f, l->counts, c->base_nights)) continue;
        if (ha_figure_beside(f->name) && !is_read(c, f->name)) continue;
        if (other && !ha_figure_names_have(&l->now, f->name)) HA_TRY(ha_figure_names_add(&l->gone, f->name, why));
        else if (!change->lost++) {
            change->base_figure = f;
            change->values = is ? is->count : 0;
        }
    }
    return HA_OK;
}

static enum ha_status compare_verdicts(struct ha_comparison *c, struct look *l, const struct ha_recorded_case *base,
                                       const struct ha_recorded_case *now, struct ha_why *why)
{
    const struct ha_verdict_of_night was = before(base, l->counts);
    const bool machine = base && is_machine(base); /* which has figures alone */
    enum ha_change_kind kind = machine ? HA_CHANGE_SAME : kind_of(&was, now);
    struct ha_change lost = { 0 };
    if (!now && base->nights && !was.processes) return HA_OK; /* nights that do not count alone had it */
    const size_t base_disturbed = disturbed(base, l->counts), now_disturbed = disturbed(now, NULL);
    const bool is_judged = kind == HA_CHANGE_SAME && !machine && judged(now->verdict);
    if (is_judged && (mostly(base_disturbed, was.processes) || mostly(now_disturbed, now->processes)))
        kind = HA_CHANGE_DISTURBED; /* its figures were left out, not lost */
    else if (is_judged || (machine && !l->disturbed)) HA_TRY(find_lost(c, l, base, now, &lost, why));
    if (lost.lost) kind = HA_CHANGE_GONE; /* its row alone is no result */
    if (kind == HA_CHANGE_SAME) return HA_OK;
    struct ha_change *change = add(c, why);
    if (!change) return HA_ERROR;
    change->kind = kind;
    change->base = base;
    change->now = now;
    change->base_figure = lost.base_figure;
    change->lost = lost.lost;
    change->values = lost.values;
    change->base_processes = was.processes;
    change->base_verdict = was.verdict;
    change->processes = now ? now->processes : 0;
    change->base_disturbed = base_disturbed;
    change->disturbed = now_disturbed;
    return HA_OK;
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void describe(struct ha_change *change, const struct ha_record *base, const bool *counts)
{
    double *values;
    size_t n = ha_values_of(change->base_figure, counts, &values);
    change->base_processes = n;
    change->base_median = ha_median(values, n);
    ha_median_interval(values, n, &change->base_lo, &change->base_hi);
    free(values);
    n = ha_values_of(change->figure, NULL, &values);
    change->processes = n;
    change->median = ha_median(values, n);
    ha_median_interval(values, n, &change->lo, &change->hi);
    free(values);
}

/* Every figure that both have, to be tested or not. */
static enum ha_status list_figures(struct ha_comparison *c, const bool *counts, const struct ha_recorded_case *base,
                                   const struct ha_recorded_case *now, struct ha_why *why)
{
    for (size_t i = 0; i < now->figures; i++) {
        const struct ha_recorded_figure *f = &now->figure[i], *before = ha_record_figure(base, f->name);
        const bool result = ha_is_result(f->name);
        const bool compares = result ? !c->other_machine || c->same_build
                                     : !c->other_machine && ha_figure_tested(now, f, false);
        if (!before || !before->count || !compares) continue;
        struct ha_change *change = add(c, why);
        if (!change) return HA_ERROR;
        change->base = base;
        change->now = now;
        change->base_figure = before;
        change->figure = f;
        change->base_disturbed = disturbed(base, counts);
        change->disturbed = disturbed(now, NULL);
        describe(change, c->base, counts);
        if (!change->base_processes) c->count--;
        else if (result) ha_result_judge(change, c, counts);
    }
    return HA_OK;
}

static bool tested(const struct ha_change *c) { return c->figure && !ha_is_result(c->figure->name); }

/* Figures of one name in one suite move from night to night as one another. */
static bool same_group(const struct ha_change *a, const struct ha_change *b)
{
    return !strcmp(a->figure->name, b->figure->name) && !strcmp(a->now->suite, b->now->suite);
}

static int by_group(const void *a, const void *b)
{
    const struct ha_change *x = *(struct ha_change *const *)a, *y = *(struct ha_change *const *)b;
    const int order = strcmp(x->figure->name, y->figure->name);
    return order ? order : strcmp(x->now->suite, y->now->suite);
}

enum { GROUP_LEAST = 8 }; /* figures by which a group knows its own spread; below that it has that of all */

/* Fills in square[], of the changes of order[], the spread of all and what their two speeds show; *assumed: nothing is
 * known of the spread. */
static enum ha_status find_squares(struct ha_comparison *c, struct ha_change **order, double *square,
                                   struct ha_shares *shares, size_t count, const bool *counts, struct ha_why *why)
{
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        struct ha_side base;
        HA_TRY(ha_side_make(&base, order[i]->base_figure, counts, why));
        square[i] = ha_shift_nights_squared(&base);
        const enum ha_status status = ha_shift_add_shares(shares, &base, why);
        known += isnan(square[i]) ? 0 : 1;
        ha_side_free(&base);
        HA_TRY(status);
    }
    double *copy = malloc((count + 1) * sizeof *copy);
    if (!copy) return ha_why(why, HA_ERROR, "out of memory");
    memcpy(copy, square, count * sizeof *copy);
    c->nights = ha_shift_nights(copy, count, c->base_nights);
    c->assumed = !known;
    free(copy);
    return HA_OK;
}

static enum ha_status find_shift(struct ha_change *change, const struct ha_shift_nights *nights, const bool *counts,
                                 struct ha_why *why)
{
    struct ha_side base, now = { 0 };
    enum ha_status status = ha_side_make(&base, change->base_figure, counts, why);
    if (status == HA_OK) status = ha_side_make(&now, change->figure, NULL, why);
    if (status == HA_OK && base.count && now.count) status = ha_shift_find(&change->shift, &base, &now, nights, why);
    ha_side_free(&base);
    ha_side_free(&now);
    return status;
}

static enum ha_status find_shifts(struct ha_comparison *c, struct ha_change **order, size_t count, const bool *counts,
                                  struct ha_why *why)
{
    double *square = malloc((count + 1) * sizeof *square);
    if (!square) return ha_why(why, HA_ERROR, "out of memory");
    qsort(order, count, sizeof *order, by_group);
    struct ha_shares shares = { 0 };
    enum ha_status status = find_squares(c, order, square, &shares, count, counts, why);
    const double correlation = ha_shares_correlation(&shares, c->base_nights);
    for (size_t i = 0, end; i < count && status == HA_OK; i = end) {
        for (end = i; end < count && same_group(order[i], order[end]);) end++;
        const double own = end - i >= GROUP_LEAST && !c->assumed ? ha_shift_nights(square + i, end - i, c->base_nights)
                                                                 : c->nights;
        const struct ha_shift_nights nights = { own, correlation, night_alpha, count };
        for (size_t k = i; k < end && status == HA_OK; k++) status = find_shift(order[k], &nights, counts, why);
    }
    free(square);
    return status;
}

/* ---- what is called ---------------------------------------------------------------------------------------------- */

enum { SHARE_PROCESSES = 5 };

static enum ha_change_kind call(const struct ha_change *c, bool worse, bool better)
{
    const struct ha_shift *s = &c->shift;
    const bool few = c->processes < HA_SHIFT_PROCESSES_MOST;
    if (isnan(s->p)) return HA_CHANGE_UNCLEAR;
    if (worse) return HA_CHANGE_WORSE;
    if (better) return HA_CHANGE_BETTER;
    if (c->disturbed > c->processes || c->base_disturbed > c->base_processes) return HA_CHANGE_UNCLEAR;
    if (few && s->suspicious && (s->size > 0 ? s->beyond : s->beyond_better))
        return s->size > 0 ? HA_CHANGE_SUSPICIOUS : HA_CHANGE_PERHAPS_BETTER;
    if (few && s->p_slow < HA_SHIFT_SUSPICION) return HA_CHANGE_SUSPICIOUS;
    if (few && s->p_fast < HA_SHIFT_SUSPICION) return HA_CHANGE_PERHAPS_BETTER;
    return s->hi < same_within && isfinite(s->noticed) ? HA_CHANGE_SAME : HA_CHANGE_UNCLEAR;
}

/* How likely it is where nothing has changed: by the shift, which fewer processes than HA_SHIFT_PROCESSES do not call,
 * or by how many are at which of two speeds, of which each is asked. */
static double chance(const struct ha_change *k, double p, bool beyond, double p_share)
{
    const struct ha_shift *s = &k->shift;
    if (isnan(s->p)) return 1;
    const double of_shift = k->processes >= HA_SHIFT_PROCESSES && beyond ? p : 1;
    if (isnan(p_share)) return of_shift;
    return fmin(1, 2 * fmin(of_shift, k->processes >= SHARE_PROCESSES ? p_share : 1));
}

/* A change that is called by how many processes are slow has the shift of the medians. */
static void take_speeds(struct ha_change *k)
{
    struct ha_shift *s = &k->shift;
    const bool worse = k->kind == HA_CHANGE_WORSE;
    const double p = worse ? s->p_slow : s->p_fast, half = (s->hi - s->lo) / 2;
    if (!(p < (worse ? s->p : s->p_better))) return;
    *(worse ? &s->p : &s->p_better) = p;
    s->size = s->all;
    s->lo = s->all - half;
    s->hi = s->all + half;
    k->by_speeds = true;
}

/* False alarms are held down over the whole night, each way. */
static enum ha_status call_all(struct ha_comparison *c, struct ha_change **order, size_t count, const bool *counts,
                               struct ha_why *why)
{
    double *p = malloc((2 * count + 1) * sizeof *p);
    if (!p) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct ha_shift *s = &order[i]->shift;
        p[i] = chance(order[i], s->p, s->beyond, s->p_slow);
        p[count + i] = chance(order[i], s->p_better, s->beyond_better, s->p_fast);
    }
    const double worse = ha_shift_threshold(p, count, night_alpha);
    const double better = ha_shift_threshold(p + count, count, night_alpha);
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < count && status == HA_OK; i++) {
        struct ha_change *const k = order[i];
        k->kind = call(k, p[i] <= worse, p[count + i] <= better);
        if (k->kind != HA_CHANGE_WORSE && k->kind != HA_CHANGE_BETTER) continue;
        take_speeds(k);
        status = ha_blame(c, k, counts, why);
    }
    free(p);
    return status;
}

static enum ha_status compare_figures(struct ha_comparison *c, const bool *counts, struct ha_why *why)
{
    struct ha_change **order = malloc((c->count + 1) * sizeof *order);
    if (!order) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < c->count; i++)
        if (tested(&c->change[i])) order[c->compared++] = &c->change[i];
    enum ha_status status = find_shifts(c, order, c->compared, counts, why);
    if (status == HA_OK) status = call_all(c, order, c->compared, counts, why);
    free(order);
    return status;
}

/* ---- environments ------------------------------------------------------------------------------------------------ */

static enum ha_status add_environment(struct ha_comparison *c, struct ha_environment_change of, struct ha_why *why)
{
    if (!ha_array_room(&c->environment, &c->environments_room, c->environments + 1, sizeof *c->environment))
        return ha_why(why, HA_ERROR, "out of memory");
    size_t at = c->environments++; /* what weighs more stands before, else as they came */
    for (;
         at && 2 * (int)c->environment[at - 1].kind + 8 * c->environment[at - 1].lost < 2 * (int)of.kind + 8 * of.lost;
         at--)
        c->environment[at] = c->environment[at - 1];
    c->environment[at] = of;
    return HA_OK;
}

static enum ha_status compare_fact(struct ha_comparison *c, const char *name, const char *base, const char *now,
                                   struct ha_why *why)
{
    const enum ha_fact_change change = ha_fact_change(name, base, now);
    if (change == HA_FACT_SAME || !strncmp(name, "identity: ", 10)) return HA_OK;
    return add_environment(c,
                           (struct ha_environment_change){ name, base, now, ha_fact_kind(name),
                                                           change == HA_FACT_LOST && !c->other_machine },
                           why);
}

/* The names of the facts that differ and may be the cause of a change: the build, and software. */
static enum ha_status name_suspects(struct ha_comparison *c, struct ha_why *why)
{
    struct ha_figure_names names = { 0 };
    enum ha_status status = c->same_build ? HA_OK : ha_figure_names_add(&names, "build", why);
    for (size_t i = 0; i < c->environments && status == HA_OK; i++)
        if (c->environment[i].kind == HA_FACT_SOFTWARE) {
            status = ha_figure_names_add(&names, c->environment[i].name, why);
            c->other_software = true;
        }
    if (status == HA_OK && !(c->suspects = ha_figure_names_text(&names)))
        status = ha_why(why, HA_ERROR, "out of memory");
    free(names.name);
    return status;
}

static enum ha_status compare_environments(struct ha_comparison *c, const struct ha_night *base,
                                           const struct ha_night *now, struct ha_why *why)
{
    HA_TRY(compare_fact(c, "build", base->build, now->build, why));
    for (size_t i = 0; i < now->facts; i++)
        HA_TRY(compare_fact(c, now->fact[i].name, ha_night_fact(base, now->fact[i].name), now->fact[i].value, why));
    for (size_t i = 0; i < base->facts; i++)
        if (!ha_night_fact(now, base->fact[i].name))
            HA_TRY(compare_fact(c, base->fact[i].name, base->fact[i].value, NULL, why));
    c->same_build = ha_night_same_build(base, now);
    return name_suspects(c, why);
}

/* A night of the new record may lie in the folder of the base: it does not stand beside itself. */
static bool is_new(const struct ha_comparison *c, size_t night)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!realpath(c->base->night[night].path, a)) return false;
    for (size_t i = 0; i < c->now->nights; i++)
        if (realpath(c->now->night[i].path, b) && !strcmp(a, b)) return true;
    return false;
}

/* The fact by which two devices of one name are of different kinds, whatever else differs; NULL: none. */
static const char *other_kind(const struct ha_night *a, const struct ha_night *b)
{
    for (size_t i = 0; i < a->facts; i++) {
        const char *name = a->fact[i].name, *other = ha_night_fact(b, name);
        const size_t length = strlen(name);
        if (!other || length < 4 || strcmp(name + length - 4, "kind") != 0) continue;
        if (strcmp(other, a->fact[i].value) != 0) return name;
    }
    return NULL;
}

/* Nights of the base that are of the new one's machine count; if there are none, all do, and no figure is compared. */
static enum ha_status choose_nights(struct ha_comparison *c, bool *counts, struct ha_why *why)
{
    const struct ha_night *now = &c->now->night[c->now->nights - 1], *like = NULL;
    const char *differs = NULL;
    if (!c->base->nights) return HA_OK;
    for (size_t i = 0; i < c->base->nights; i++) {
        const bool itself = is_new(c, i);
        counts[i] = !itself && ha_night_same_machine(&c->base->night[i], now, &differs);
        if (counts[i]) like = &c->base->night[i];
        c->base_nights += counts[i];
        c->itself += itself;
    }
    for (size_t i = 0; i + 1 < c->now->nights; i++)
        if (!ha_night_same_machine(&c->now->night[i], now, &differs))
            return ha_why(why, HA_FAIL, "%s: its nights are of two machines (%s); name one night", c->now->path,
                          differs);
    c->left_out = c->base->nights - c->base_nights - c->itself;
    if (like) return compare_environments(c, like, now, why);
    for (size_t i = 0; i < c->base->nights; i++)
        if (!is_new(c, i)) like = &c->base->night[i];
    if (!like) return ha_why(why, HA_FAIL, "%s: no night in it but those of %s", c->base->path, c->now->path);
    const char *kind = other_kind(like, now);
    if (kind)
        return ha_why(why, HA_FAIL, "%s and %s: devices of different kinds (%s: %s and %s) are never compared",
                      c->base->path, c->now->path, kind, ha_night_fact(like, kind), ha_night_fact(now, kind));
    c->other_machine = true;
    c->differs = differs;
    c->left_out = 0;
    c->base_nights = c->base->nights - c->itself;
    for (size_t i = 0; i < c->base->nights; i++) counts[i] = !is_new(c, i);
    return compare_environments(c, like, now, why);
}

/* ---- all
 * ------------------------------------------------------------------------------------------------------------- */

static enum ha_status compare_bits(struct ha_comparison *c, const struct look *l, const struct ha_recorded_case *base,
                                   const struct ha_recorded_case *now, struct ha_why *why)
{
    const struct ha_other_bits bits = ha_other_bits(c->base, base, l->counts, c->now, now);
    if (!bits.others) return HA_OK;
    struct ha_change *change = add(c, why);
    if (!change) return HA_ERROR;
    change->kind = HA_CHANGE_OTHER_BITS;
    change->base = base;
    change->now = now;
    change->bits = bits;
    change->base_processes = before(base, l->counts).processes;
    change->processes = now->processes;
    return HA_OK;
}

/* The machine stands in both records by its readings as they are; here they are made comparable. */
static enum ha_status compare_machines(struct ha_comparison *c, struct look *l,
                                       const struct ha_recorded_case *const *pair, struct ha_why *why)
{
    HA_TRY(ha_machine_of_both(c->machine, c->base, c->now, l->counts, pair, why));
    const struct ha_recorded_case *base = ha_record_case(&c->machine[0], "run", HA_MACHINE_CASE),
                                  *now = ha_record_case(&c->machine[1], "run", HA_MACHINE_CASE);
    if (!base) return HA_OK;
    HA_TRY(compare_verdicts(c, l, base, now, why));
    return now ? list_figures(c, l->counts, base, now, why) : HA_OK;
}

static enum ha_status compare_each(struct ha_comparison *c, struct look *l, const struct ha_recorded_case **pair,
                                   struct ha_why *why)
{
    for (size_t i = 0; i < c->base->count; i++) {
        const struct ha_recorded_case *base = c->base->cases[i];
        if (!is_machine(base)) HA_TRY(compare_verdicts(c, l, base, counterpart(c, c->now, base), why));
    }
    for (size_t i = 0; i < c->now->count; i++) {
        const struct ha_recorded_case *now = c->now->cases[i];
        if (is_machine(now)) continue;
        pair[i] = counterpart(c, c->base, now);
        HA_TRY(compare_bits(c, l, pair[i], now, why));
        if (!pair[i]) HA_TRY(compare_verdicts(c, l, NULL, now, why));
        else HA_TRY(list_figures(c, l->counts, pair[i], now, why));
    }
    return compare_machines(c, l, pair, why);
}

static enum ha_status compare_cases(struct ha_comparison *c, struct look *l, struct ha_why *why)
{
    HA_TRY(ha_figure_names_of(&l->now, c->now, why));
    for (size_t i = 0; i < c->now->count; i++) l->disturbed |= c->now->cases[i]->disturbances > 0;
    const struct ha_recorded_case **pair = calloc(c->now->count + 1, sizeof *pair);
    const enum ha_status status = pair ? compare_each(c, l, pair, why) : ha_why(why, HA_ERROR, "out of memory");
    free(pair);
    ha_lost_together(c);
    if (status != HA_OK || !l->gone.count) return status;
    c->no_figures = ha_figure_names_text(&l->gone);
    return c->no_figures
               ? add_environment(c, (struct ha_environment_change){ .name = "figures", .base = c->no_figures }, why)
               : ha_why(why, HA_ERROR, "out of memory");
}

enum ha_status ha_compare(struct ha_comparison *out, const struct ha_record *base, const struct ha_record *now,
                          struct ha_why *why)
{
    *out = (struct ha_comparison){ .base = base, .now = now };
    bool *counts = calloc(base->nights + 1, sizeof *counts);
    struct look look = { .counts = counts };
    enum ha_status status = counts ? choose_nights(out, counts, why) : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) status = compare_cases(out, &look, why);
    if (status == HA_OK) status = compare_figures(out, counts, why);
    if (status == HA_OK) ha_fold(out);
    free(look.now.name);
    free(look.gone.name);
    free(counts);
    return status;
}

const struct ha_recorded_case *ha_comparison_counterpart(const struct ha_comparison *c, const struct ha_record *in,
                                                         const struct ha_recorded_case *of)
{
    return counterpart(c, in, of);
}

void ha_comparison_free(struct ha_comparison *c)
{
    free(c->change);
    free(c->environment);
    free(c->no_figures);
    free(c->suspects);
    for (size_t side = 0; side < 2; side++) ha_record_free(&c->machine[side]);
    *c = (struct ha_comparison){ 0 };
}
