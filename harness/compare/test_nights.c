/* How often is a night in which nothing has changed called one that has, and how often is a change found? Nights of
 * simulated hosts go the way of `habench nightly`: five processes, then more of what is suspicious. With a folder of
 * many processes of one build as its argument, nights are drawn from that series instead, which is this host's own. */

#include "harness/base/rng.h"
#include "harness/compare/sides.h"
#include "harness/compare/test_record.h"

enum { CASES = 40, BASE_NIGHTS = 5, PROCESSES = 5, AGAIN = 10, ROUNDS = 3, MOST = PROCESSES + ROUNDS * AGAIN };

/* A host: what a process, and a night, differ by (standard deviations of logarithms); of how many processes something
 * takes some of the time (mean); how many run at a second speed, and by how much it is slower. */
struct world {
    const char *name;
    double process, night, tail, tail_mean, slow_share, slow;
    double share_spread; /* the share of slow ones is drawn anew each night, for all cases alike, so far around it */
    double found;        /* what has to be found of it in nine nights of ten; 0: it is not asked */
    bool unknowable;     /* a base of few nights may never have met what the new one is */
};
static const struct world worlds[] = {
    { "quiet", .process = 0.007, .night = 0.003, .tail = 0.03, .tail_mean = 0.1, .found = 0.05 },
    { "noisy", .process = 0.04, .night = 0.01, .tail = 0.05, .tail_mean = 0.1, .found = 0.10 },
    { "drifting", .process = 0.01, .night = 0.015, .tail = 0.03, .tail_mean = 0.1 },
    { "two speeds", .process = 0.007, .night = 0.003, .slow_share = 0.3, .slow = 0.25, .found = 0.05 },
    { "two speeds, shares by night", .process = 0.007, .night = 0.003, .slow_share = 0.5, .slow = 0.25,
      .share_spread = 0.4, .found = 0.05 },
    { "one of two speeds a night", .process = 0.007, .night = 0.003, .slow_share = 0.5, .slow = 0.25,
      .share_spread = 10, .found = 0.05, .unknowable = true },
    { "3% late by 10%", .process = 0.007, .night = 0.003, .slow_share = 0.03, .slow = 0.1, .found = 0.10 },
    { "5% late by 10%", .process = 0.007, .night = 0.003, .slow_share = 0.05, .slow = 0.1, .found = 0.10 },
    { "10% late by 10%", .process = 0.007, .night = 0.003, .slow_share = 0.10, .slow = 0.1, .found = 0.10 },
};

/* ---- random numbers of one night of one test --------------------------------------------------------------------- */

static uint64_t seed, drawn;
static double normal(void) { return (double)ha_rng_normal(seed, 7, drawn++); }
static double uniform(void) { return (double)ha_rng_uniform(seed, 8, drawn++); }

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* What a case takes in a process, and a rate that has a spread of its own. */
struct drawn_night {
    double night[CASES], value[CASES][MOST], rate[CASES][MOST];
};

static void draw_night(const struct world *w, struct drawn_night *n)
{
    const double share = w->slow_share + w->share_spread * (2 * uniform() - 1);
    for (size_t i = 0; i < CASES; i++) {
        const double night = w->night * normal();
        for (size_t p = 0; p < MOST; p++) {
            double x = night + w->process * normal();
            if (uniform() < w->tail) x -= w->tail_mean * log(1 - uniform());
            if (uniform() < share) x += w->slow;
            n->value[i][p] = 1e6 * (double)(i + 1) * exp(x);
            n->rate[i][p] = 10 / exp(x + w->process * normal());
        }
    }
}

static void add_processes(struct ha_record *r, const struct drawn_night *n, size_t i, size_t from, size_t to,
                          size_t first)
{
    char id[32];
    snprintf(id, sizeof id, "case:i=%zu", i);
    struct ha_recorded_case *c = add_case(r, "run", id);
    for (size_t p = from; p < to; p++) {
        add_value(r, c, &step, first + p, n->value[i][p]);
        add_value(r, c, &rate, first + p, n->rate[i][p]);
    }
}

static void add_night(struct ha_record *r, const struct drawn_night *n)
{
    const size_t first = 1000 * r->nights;
    begin_night(r, "night");
    for (size_t i = 0; i < CASES; i++) add_processes(r, n, i, 0, PROCESSES, first);
}

/* ---- a night ----------------------------------------------------------------------------------------------------- */

struct outcome {
    bool found, raised; /* the planted case, or another one, is called worse */
    bool unfit;         /* nothing can be said of a case: it was disturbed, up to the last process */
    size_t again;       /* cases that were run again */
    size_t within, of;  /* intervals with no change in them, of the first comparison's figures */
};

static bool named(const struct ha_change *c, size_t i)
{
    char id[32];
    snprintf(id, sizeof id, "case:i=%zu", i);
    return !strcmp(c->now->id, id);
}

static bool is_open(const struct ha_change *c)
{
    return c->kind == HA_CHANGE_SUSPICIOUS || c->kind == HA_CHANGE_PERHAPS_BETTER || c->kind == HA_CHANGE_DISTURBED;
}

static bool is_alarm(const struct ha_change *c) { return ha_change_exit(c->kind) == HA_EXIT_REGRESSION; }

/* Runs what is suspicious in more processes, as `habench nightly` does, until nothing is. */
static struct outcome judge(const struct ha_record *base, struct ha_record *now, const struct drawn_night *n)
{
    struct outcome o = { 0 };
    size_t have[CASES];
    for (size_t i = 0; i < CASES; i++) have[i] = PROCESSES;
    for (size_t round = 0;; round++) {
        struct ha_comparison c;
        bool again[CASES] = { false };
        size_t any = 0;
        assert_int_equal(ha_compare(&c, base, now, &why), HA_OK);
        for (size_t k = 0; k < c.count; k++)
            for (size_t i = 0; i < CASES; i++)
                if (is_open(&c.change[k]) && named(&c.change[k], i)) again[i] = true;
        for (size_t k = 0; k < c.count; k++)
            if (is_alarm(&c.change[k])) *(named(&c.change[k], 0) ? &o.found : &o.raised) = true;
        for (size_t k = 0; k < c.count && !round; k++) o.within += c.change[k].shift.lo < 0 && c.change[k].shift.hi > 0;
        if (!round) o.of = c.count;
        ha_comparison_free(&c);
        for (size_t i = 0; i < CASES && round < ROUNDS; i++) {
            if (!again[i]) continue;
            add_processes(now, n, i, have[i], have[i] + AGAIN, 1000000);
            have[i] += AGAIN;
            any++;
        }
        o.again += any;
        if (!any) return o;
        o.found = o.raised = false; /* the last comparison counts */
    }
}

/* The nights of the base, and the one that follows. */
static void draw_base(const struct world *w, uint64_t number, struct ha_record *base, struct drawn_night *tonight)
{
    seed = number;
    drawn = 0;
    begin(base, "base");
    for (size_t k = 0; k < BASE_NIGHTS; k++) {
        draw_night(w, tonight);
        add_night(base, tonight);
    }
    draw_night(w, tonight);
}

static struct outcome night(const struct world *w, uint64_t number, double longer)
{
    static struct drawn_night n;
    struct ha_record base, now;
    draw_base(w, number, &base, &n);
    for (size_t p = 0; p < MOST; p++) {
        n.value[0][p] *= 1 + longer;
        n.rate[0][p] /= 1 + longer;
    }
    begin(&now, "now");
    begin_night(&now, "tonight");
    for (size_t i = 0; i < CASES; i++) add_processes(&now, &n, i, 0, PROCESSES, 1000000);
    const struct outcome o = judge(&base, &now, &n);
    ha_record_free(&base);
    ha_record_free(&now);
    return o;
}

/* Under a sanitizer fewer: what it finds is in the first ones. "few": enough to see a planted mistake by. */
static bool few;
static size_t nights(void) { return HA_SANITIZED ? 4 : few ? 40 : 200; }

static const double planted[] = { 0.03, 0.05, 0.10, 0.30 };

TEST(a_night_in_which_nothing_has_changed_says_so_and_one_with_a_slower_case_finds_it)
{
    printf("%-28s %6s %6s  %5s %5s %5s %5s  %-24s %s\n", "host", "nights", "alarms", "+3%", "+5%", "+10%", "+30%",
           "95% intervals that hold", "cases run again, a night");
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++) {
        const size_t count = nights();
        size_t alarms = 0, found[COUNT(planted)] = { 0 }, again = 0, within = 0, of = 0;
        for (size_t i = 0; i < count; i++) {
            const struct outcome o = night(w, 1 + i, 0);
            alarms += o.found || o.raised;
            if (!HA_SANITIZED) assert_true(w->unknowable || alarms * 100 <= count);
            again += o.again;
            within += o.within;
            of += o.of;
            for (size_t k = 0; k < COUNT(planted); k++)
                found[k] += night(w, 1000 + COUNT(planted) * i + k, planted[k]).found;
        }
        printf("%-28s %6zu %6zu  %5zu %5zu %5zu %5zu  %-24.3f %.1f\n", w->name, count, alarms, found[0], found[1],
               found[2], found[3], (double)within / (double)of, (double)again / (double)count);
        if (HA_SANITIZED) continue;
        assert_true(w->unknowable || (double)within > 0.9 * (double)of);
        for (size_t k = 0; k < COUNT(planted); k++)
            if (w->found > 0 && w->found <= planted[k] && planted[k] <= 0.1) /* more may look as another speed does */
                assert_true(found[k] * 10 >= 9 * count);
    }
}

/* The first comparison of a night: what is said of the step of case 0. */
static struct ha_change first_look(const struct world *w, uint64_t number, double longer)
{
    static struct drawn_night n;
    struct ha_record base, now;
    struct ha_comparison c;
    struct ha_change said = { 0 };
    draw_base(w, number, &base, &n);
    for (size_t p = 0; p < MOST; p++) n.value[0][p] *= longer;
    begin(&now, "now");
    add_night(&now, &n);
    assert_int_equal(ha_compare(&c, &base, &now, &why), HA_OK);
    for (size_t k = 0; k < c.count; k++)
        if (named(&c.change[k], 0) && c.change[k].figure && !strcmp(c.change[k].figure->name, "step_ns"))
            said = c.change[k];
    ha_comparison_free(&c);
    ha_record_free(&base);
    ha_record_free(&now);
    return said;
}

TEST(what_is_said_to_be_noticed_is_noticed)
{
    const uint64_t count = HA_SANITIZED ? 3 : 100;
    for (const struct world *w = worlds; w < worlds + 2; w++) {
        size_t seen = 0;
        for (uint64_t i = 1; i <= count; i++) {
            const double least = exp(first_look(w, i, 1).shift.noticed);
            const enum ha_change_kind kind = first_look(w, i, least).kind;
            assert_true(least > 1.01 && least < 1.2);
            seen += kind == HA_CHANGE_SUSPICIOUS || kind == HA_CHANGE_WORSE;
        }
        printf("%s: of %zu changes as large as would have been noticed, %zu were\n", w->name, (size_t)count, seen);
        if (!HA_SANITIZED) assert_true(seen * 100 >= 85 * count);
    }
}

/* ---- nights of a real host --------------------------------------------------------------------------------------- */

/* A folder of one run with many processes. */
static struct ha_record series;

/* The processes from..to of the series as a night, or as more of one; the figures of the first case that are times take
 * `longer` as long. */
static void add_block(struct ha_record *to, size_t from, size_t end, double longer)
{
    for (size_t i = 0; i < series.count; i++) {
        const struct ha_recorded_case *c = series.cases[i];
        if (!strcmp(c->id, HA_MACHINE_CASE)) continue;
        struct ha_recorded_case *copy = add_case(to, "run", c->id);
        for (size_t k = from; k < end; k++)
            assert_int_equal(ha_record_add_verdict(to, copy, c->suite, HA_PASS, "", &why), HA_OK);
        for (size_t k = 0; k < c->disturbances; k++)
            if (c->disturbed[k].process >= from && c->disturbed[k].process < end)
                assert_int_equal(ha_record_add_disturbed(to, copy, 1000 * to->nights + c->disturbed[k].process, &why),
                                 HA_OK);
        for (size_t k = 0; k < c->figures; k++)
            for (size_t n = 0; n < c->figure[k].count; n++) {
                const struct ha_observation *at = &c->figure[k].at[n];
                const bool slower = !i && !strcmp(c->figure[k].unit, "ns") && !ha_figure_beside(c->figure[k].name);
                if (at->process < from || at->process >= end) continue;
                add_value(to, copy, &c->figure[k], 1000 * to->nights + at->process, at->value * (slower ? longer : 1));
            }
    }
}

static size_t below(size_t n) { return (size_t)ha_rng_below(seed, 9, drawn++, n); }

static bool overlaps(size_t from, const size_t *taken, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (from < taken[i] + PROCESSES && taken[i] < from + PROCESSES) return true;
    return false;
}

/* Processes next to each other are a night: what drifts on the host is between nights. */
static struct outcome real_night(uint64_t number, double longer)
{
    struct ha_record base, now;
    struct outcome o = { 0 };
    seed = number;
    drawn = 0;
    const size_t tonight = below(series.processes - MOST + 1);
    begin(&base, "base");
    size_t taken[BASE_NIGHTS];
    for (size_t k = 0; k < BASE_NIGHTS; k++) {
        size_t from;
        do from = below(series.processes - PROCESSES + 1);
        while ((from + PROCESSES > tonight && from < tonight + MOST) || overlaps(from, taken, k));
        taken[k] = from;
        begin_night(&base, "night");
        add_block(&base, from, from + PROCESSES, 1);
    }
    begin(&now, "now");
    begin_night(&now, "tonight");
    assert_int_equal(ha_record_end(&base, &why), HA_OK);
    for (size_t have = 0, end = PROCESSES;; end += AGAIN) {
        struct ha_comparison c;
        add_block(&now, tonight + have, tonight + end, longer);
        have = end;
        assert_int_equal(ha_compare(&c, &base, &now, &why), HA_OK);
        o.found = o.raised = false;
        for (size_t k = 0; k < c.count; k++)
            if (is_alarm(&c.change[k]))
                *(strcmp(c.change[k].now->id, series.cases[0]->id) ? &o.raised : &o.found) = true;
        size_t open = 0;
        for (size_t k = 0; k < c.count; k++) open += is_open(&c.change[k]);
        o.unfit = ha_comparison_of(&c, HA_CHANGE_DISTURBED) > 0;
        const bool again = open > 0 && end + AGAIN <= MOST;
        o.again += again;
        ha_comparison_free(&c);
        if (!again) break;
    }
    ha_record_free(&base);
    ha_record_free(&now);
    return o;
}

static int real_nights(const char *path)
{
    enum { NIGHTS = 200 };
    size_t alarms = 0, unfit = 0, found[COUNT(planted)] = { 0 }, again = 0;
    if (ha_record_read(&series, path, &why) != HA_OK || series.processes < MOST + 2 * BASE_NIGHTS * PROCESSES) {
        fprintf(stderr, "%s: %s\n", path, why.text[0] ? why.text : "too few processes; 100 do");
        return 1;
    }
    for (uint64_t i = 0; i < NIGHTS; i++) {
        const struct outcome o = real_night(1 + i, 1);
        alarms += o.found || o.raised;
        unfit += o.unfit;
        again += o.again;
        for (size_t k = 0; k < COUNT(planted); k++) found[k] += real_night(1 + i, 1 + planted[k]).found;
    }
    printf("%s: %zu processes of %zu cases; of %d nights %zu raise an alarm, %zu were too disturbed to say of each "
           "case; %zu times something was run again; of %s a longer step is found in",
           path, series.processes, series.count, NIGHTS, alarms, unfit, again, series.cases[0]->id);
    for (size_t k = 0; k < COUNT(planted); k++) printf(" %zu (+%.0f%%)", found[k], 100 * planted[k]);
    putchar('\n');
    ha_record_free(&series);
    return alarms * 100 > NIGHTS;
}

TEST_MAIN
{
    if (argc > 2 && !strcmp(argv[1], "series")) return real_nights(argv[2]);
    few = argc > 1 && !strcmp(argv[1], "few");
    return test_all("tests", NULL, NULL);
}
