/* How often does a history show a change where nothing has changed, and how often, and where, one that was? */

#include "harness/base/rng.h"
#include "harness/base/test_folder.h"
#include "harness/compare/change_points.h"
#include "harness/compare/history_print.h"
#include "harness/compare/history_sight.h"
#include "harness/compare/test_record.h"

#include <jansson.h>

enum { NIGHTS = 60, CASES = 20, PROCESSES = 5 };

/* A host: what a process, and a night of a case, differ by (standard deviations of logarithms); of how many nights
 * something takes some of the time (mean); how many processes, or whole nights, are at a slow speed. */
struct world {
    const char *name;
    double process, night, outlier, outlier_mean, slow_process, slow_night, slow;
    double planted, found; /* a step of this is found in so many of all series, within two nights of its place */
};
static const struct world worlds[] = {
    { "quiet", .process = 0.007, .night = 0.003, .outlier = 0.02, .outlier_mean = 0.2, .planted = 0.05, .found = 0.9 },
    { "noisy", .process = 0.04, .night = 0.01, .outlier = 0.05, .outlier_mean = 0.3, .planted = 0.10, .found = 0.9 },
    { "two speeds", .process = 0.007, .night = 0.003, .slow_process = 0.2, .slow = 0.25, .planted = 0.05,
      .found = 0.8 },
    { "one of two speeds a night", .process = 0.007, .night = 0.003, .slow_night = 0.3, .slow = 0.25 },
};

static uint64_t seed, drawn;
static double normal(void) { return (double)ha_rng_normal(seed, 7, drawn++); }
static double uniform(void) { return (double)ha_rng_uniform(seed, 8, drawn++); }

static struct ha_record record;
static struct ha_history history;

/* What is planted in case 0: the logarithm of its level by night, and whether it is there at all. */
static double level[NIGHTS];
static bool missing[NIGHTS];

static void date_of_last(void)
{
    struct ha_night *n = &record.night[record.nights - 1];
    snprintf(n->date, sizeof n->date, "2026-%02zu-%02zuT22:00:00Z", record.nights / 28 + 1, record.nights % 28 + 1);
}

static void add_case_of_night(const struct world *w, size_t i, size_t night)
{
    char id[64];
    snprintf(id, sizeof id, "fake:i=%zu,steps=32", i);
    struct ha_recorded_case *c = add_case(&record, "run", id);
    double of_night = w->night * normal();
    if (uniform() < w->outlier) of_night -= w->outlier_mean * log(1 - uniform());
    if (uniform() < w->slow_night) of_night += w->slow;
    for (size_t p = 0; p < PROCESSES; p++) {
        const double slow = uniform() < w->slow_process ? w->slow : 0;
        const double x = of_night + slow + w->process * normal() + (i ? 0 : level[night]);
        const size_t number = night * PROCESSES + p;
        if (i == 0 && missing[night]) continue;
        /* odd cases have a rate, which stands first */
        if (i % 2) add_value(&record, c, &rate, number, 10 * exp(-x));
        add_value(&record, c, &step, number, 1e6 * exp(x));
    }
}

static void draw(const struct world *w, uint64_t number, size_t cases, size_t nights)
{
    seed = number;
    drawn = 0;
    begin(&record, "nights");
    for (size_t n = 0; n < nights; n++) {
        begin_night(&record, "night");
        date_of_last();
        for (size_t i = 0; i < cases; i++) add_case_of_night(w, i, n);
    }
}

static void make(const char *filter, const char *figure)
{
    assert_int_equal(ha_history_make(&history, &record, filter, figure, &why), HA_OK);
}

static void forget(void)
{
    ha_history_free(&history);
    ha_record_free(&record);
}

static int after(void **state)
{
    forget();
    memset(level, 0, sizeof level);
    memset(missing, 0, sizeof missing);
    return 0;
}
#define HISTORY_TEST(name) TEST_WITH(name, NULL, after)

/* Figures with changes, but case 0. */
static size_t others_changed(void)
{
    size_t n = 0;
    for (size_t i = 1; i < history.count; i++) n += history.curve[i].changes > 0;
    return n;
}

static bool found_at(const struct ha_curve *c, size_t night)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->night[i].change && c->night[i].night + 2 >= night && c->night[i].night <= night + 2) return true;
    return false;
}

static void step_up(size_t from, double size)
{
    for (size_t n = from; n < NIGHTS; n++) level[n] += log1p(size);
}

/* Under a sanitizer fewer. "few": enough to see a planted mistake by. */
static bool few;
static size_t seeds(void) { return HA_SANITIZED ? 2 : few ? 30 : 100; }

/* ---- how often --------------------------------------------------------------------------------------------------- */

HISTORY_TEST(where_nothing_changes_at_most_one_figure_in_a_hundred_shows_a_change)
{
    printf("%-28s %8s %s\n", "host", "figures", "with false change points");
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++) {
        size_t wrong = 0, of = 0;
        for (size_t s = 0; s < seeds(); s++) {
            draw(w, 1 + s, CASES, NIGHTS);
            make(NULL, NULL);
            assert_int_equal(history.count, CASES);
            assert_int_equal(history.tested, CASES);
            wrong += others_changed() + (history.curve[0].changes > 0);
            of += CASES;
            forget();
        }
        printf("%-28s %8zu %zu\n", w->name, of, wrong);
        assert_true(wrong * 100 <= of);
    }
}

/* The chance is one: of all series in which nothing changes at most so many have so small a one, whatever the nights
 * are. Nights that differ by far more than what is a change to anybody, so that this does not help. */
static void judge_chances(size_t n, size_t count)
{
    static const double chances[] = { 0.05, 0.01 };
    size_t below[COUNT(chances)] = { 0 };
    seed = 99;
    drawn = 0;
    for (size_t s = 0; s < count; s++) {
        double x[120], p;
        for (size_t i = 0; i < n; i++) x[i] = uniform() < 0.1 ? 100 * uniform() : 10 * normal();
        assert_int_equal(ha_change_points_chance(&p, x, n, &why), HA_OK);
        assert_true(p >= 0 && p <= 1);
        for (size_t k = 0; k < COUNT(chances); k++) below[k] += p <= chances[k];
    }
    printf("of %zu series of %zu nights: %zu below 0.05, %zu below 0.01\n", count, n, below[0], below[1]);
    for (size_t k = 0; k < COUNT(chances); k++) {
        const double expected = chances[k] * (double)count;
        assert_true((double)below[k] <= expected + 3 * sqrt(expected));
    }
}

TEST(the_chance_of_a_series_is_no_smaller_than_it_is)
{
    judge_chances(16, HA_SANITIZED ? 100 : few ? 2000 : 10000);
    judge_chances(40, HA_SANITIZED ? 100 : few ? 2000 : 10000);
    judge_chances(120, HA_SANITIZED ? 20 : few ? 500 : 5000);
}

/* Five nights at the end, all above all others: one of all ways to choose five, and all stretches could have been it.
 * With one of the others above one of the five it is two of all ways. In 365 nights, where the chance is no longer
 * counted out, and in 60. */
TEST(the_chance_of_a_few_nights_at_the_end_is_counted)
{
    static const size_t lengths[] = { 60, 365 };
    for (size_t k = 0; k < COUNT(lengths); k++)
        for (size_t swapped = 0; swapped < 2; swapped++) {
            const size_t n = lengths[k];
            double x[365] = { 0 }, p;
            for (size_t i = n - 5; i < n; i++) x[i] = 1;
            if (swapped) x[n / 2] = 0.75;
            if (swapped) x[n - 3] = 0.5;
            assert_int_equal(ha_change_points_chance(&p, x, n, &why), HA_OK);
            const double m = (double)n, stretches = m - 5 + (m - 8) * (m - 7) / 2;
            const double choices = m * (m - 1) * (m - 2) * (m - 3) * (m - 4) / 120;
            assert_near(p / (2 * stretches * (double)(1 + swapped) / choices), 1, 1e-9);
        }
}

HISTORY_TEST(a_step_is_found_within_two_nights_of_its_place)
{
    printf("%-28s %8s %6s %6s %8s %s\n", "host", "series", "step", "found", "gradual", "false change points beside it");
    for (const struct world *w = worlds; w < worlds + COUNT(worlds); w++) {
        if (!(w->found > 0)) continue;
        size_t found = 0, more = 0, others = 0, gradual = 0;
        const size_t count = seeds();
        for (size_t s = 0; s < count; s++) {
            const size_t at = 10 + s % 41;
            const double sign = s % 2 ? 1 : -1;
            memset(level, 0, sizeof level);
            step_up(at, sign * w->planted);
            draw(w, 1000 + s, CASES, NIGHTS);
            make(NULL, NULL);
            const struct ha_curve *c = &history.curve[0];
            found += found_at(c, at);
            more += c->changes > 1;
            others += others_changed();
            for (size_t i = 0; i < c->count; i++) {
                if (!c->night[i].change) continue;
                gradual += c->night[i].gradual;
                if (c->changes == 1 && found_at(c, at)) /* by how much, and in which direction */
                    assert_near(c->night[i].after / c->night[i].before, 1 + sign * w->planted, 0.03);
            }
            forget();
        }
        printf("%-28s %8zu %5.0f%% %6zu %8zu %zu and %zu\n", w->name, count, 100 * w->planted, found, gradual, more,
               others);
        if (HA_SANITIZED) continue;
        assert_true((double)found >= w->found * (double)count);
        assert_true(gradual * 20 <= count);
        assert_true(more * 20 <= count);
        assert_true(others * 100 <= count * CASES);
    }
}

HISTORY_TEST(two_steps_are_two_also_where_the_second_takes_the_first_back)
{
    static const struct {
        size_t first, second;
        double by_first, by_second;
    } cases[] = { { 20, 40, 0.05, 0.05 }, { 25, 37, 0.06, -0.057 }, { 15, 45, -0.05, 0.08 }, { 35, 48, 0.08, 0.08 } };
    for (size_t k = 0; k < COUNT(cases); k++) {
        size_t both = 0, more = 0;
        const size_t count = HA_SANITIZED ? 2 : 20;
        for (size_t s = 0; s < count; s++) {
            memset(level, 0, sizeof level);
            step_up(cases[k].first, cases[k].by_first);
            step_up(cases[k].second, cases[k].by_second);
            draw(&worlds[0], 5000 + s, CASES, NIGHTS);
            make(NULL, NULL);
            const struct ha_curve *c = &history.curve[0];
            both += found_at(c, cases[k].first) && found_at(c, cases[k].second);
            more += c->changes > 2;
            forget();
        }
        printf("steps at %zu and %zu: both in %zu of %zu, more in %zu\n", cases[k].first, cases[k].second, both, count,
               more);
        if (HA_SANITIZED) continue;
        assert_true(both * 10 >= 9 * count);
        assert_true(more * 10 <= count);
    }
}

/* ---- what is no step --------------------------------------------------------------------------------------------- */

HISTORY_TEST(a_night_or_two_that_are_off_are_no_change)
{
    for (size_t at = 0; at < NIGHTS; at += 7)
        for (size_t length = 1; length <= 2; length++) {
            memset(level, 0, sizeof level);
            step_up(at, 0.8);
            if (at + length < NIGHTS) step_up(at + length, 1 / 1.8 - 1);
            draw(&worlds[0], 300 + at, 4, NIGHTS);
            make(NULL, NULL);
            assert_int_equal(history.curve[0].changes, 0);
            forget();
        }
}

HISTORY_TEST(a_drift_is_said_to_be_one)
{
    size_t changes = 0, gradual = 0, lines = 0;
    const size_t count = HA_SANITIZED ? 2 : 20;
    for (size_t n = 0; n < NIGHTS; n++) level[n] = 0.15 * (double)n / NIGHTS;
    for (size_t s = 0; s < count; s++) {
        draw(&worlds[0], 700 + s, 4, NIGHTS);
        make(NULL, NULL);
        const struct ha_curve *c = &history.curve[0];
        assert_true(c->changes > 0);
        changes += c->changes;
        for (size_t i = 0; i < c->count; i++) gradual += c->night[i].gradual;
        assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
        lines += strstr(test_printed(), "slower +") && strstr(test_print_text, "by and by around here, ");
        forget();
    }
    printf("%zu change points of %zu drifts, %zu of them gradual\n", changes, count, gradual);
    if (HA_SANITIZED) return;
    assert_true(gradual * 10 >= 8 * changes);
    assert_true(lines * 10 >= 8 * count);
}

HISTORY_TEST(nights_without_the_case_are_passed_over)
{
    step_up(30, 0.08);
    for (size_t n = 0; n < NIGHTS; n++) missing[n] = n % 3 == 1 || (n >= 29 && n < 36);
    draw(&worlds[0], 1, 4, NIGHTS);
    make(NULL, NULL);
    const struct ha_curve *c = &history.curve[0];
    size_t present = 0;
    for (size_t n = 0; n < NIGHTS; n++) present += !missing[n];
    assert_int_equal(c->count, present);
    assert_int_equal(c->changes, 1);
    for (size_t i = 0; i < c->count; i++) {
        assert_false(missing[c->night[i].night]);
        if (c->night[i].change) assert_int_equal(c->night[i].night, 36); /* the first that there is of it */
    }
    assert_int_equal(history.curve[1].count, NIGHTS);
}

HISTORY_TEST(few_nights_show_no_change_and_say_so)
{
    step_up(2, 1);
    for (size_t nights = 1; nights <= 9; nights++) {
        draw(&worlds[0], 1, 2, nights);
        make(NULL, NULL);
        assert_int_equal(history.count, 2);
        assert_int_equal(history.curve[0].count, nights);
        assert_int_equal(history.curve[0].changes, 0);
        assert_int_equal(history.tested, 0);
        assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
        assert_contains(test_printed(), "show no change");
        assert_null(strstr(test_print_text, "nan"));
        forget();
    }
    assert_int_equal(ha_change_points_age(5, 0.01), 0);
    assert_int_equal(ha_change_points_age(9, 0.01), 0);
    assert_int_equal(ha_change_points_age(10, 0.01), 5);
    assert_true(ha_change_points_age(60, 0.01) > 0);
    assert_true(ha_change_points_age(60, 0.01) < ha_change_points_age(60, 1e-6));
}

/* As many nights as are said to be needed are enough, and one fewer is not: in short and in long histories. */
TEST(a_change_is_found_from_the_night_that_was_said)
{
    static const size_t lengths[] = { 30, 60, 365 };
    static const double levels[] = { 0.01, 1e-4, 1e-6 };
    for (size_t k = 0; k < COUNT(lengths); k++)
        for (size_t l = 0; l < COUNT(levels); l++) {
            double x[365];
            struct ha_change_point point[365];
            const size_t n = lengths[k], age = ha_change_points_age(n, levels[l]);
            if (n == 30 && !age) continue;
            assert_true(age > 0 && age < 15);
            for (size_t back = age - 1; back <= age; back++) {
                size_t points;
                seed = 5;
                for (size_t i = 0; i < n; i++) x[i] = 0.001 * (double)i / (double)n + (i + back >= n ? 0.05 : 0);
                assert_int_equal(ha_change_points_find(point, &points, x, n, levels[l], &why), HA_OK);
                assert_int_equal(points, back == age);
                if (points) assert_int_equal(point[0].at, n - back);
                if (points) assert_false(point[0].gradual);
                if (points) assert_near(point[0].size, 0.05, 0.002);
            }
        }
}

/* What is said to be seen is seen in 8 of 10 cases: where nights are many, few, and too few, which says it of more. The
 * sizes that are said differ from history to history, most where nights are few. */
HISTORY_TEST(as_much_is_seen_as_is_said)
{
    static const size_t lengths[] = { 60, 24, 6 };
    enum { SAID = 10, PLANTED = 10 };
    printf("%-10s %6s %9s %4s %6s %s\n", "host", "nights", "said of", "age", "size", "found");
    size_t all = 0;
    for (size_t k = 0; k < 2 * 2 * COUNT(lengths); k++) {
        const struct world *w = &worlds[k / 2 % 2];
        const size_t length = lengths[k / 4], said = HA_SANITIZED ? 1 : few ? 3 : SAID;
        struct ha_history_sight s[HA_SIGHTS];
        size_t found = 0, sights;
        double sizes = 0;
        for (size_t i = 0; i < said; i++) {
            memset(level, 0, sizeof level);
            draw(w, 20000 + i, CASES, length);
            make(NULL, NULL);
            assert_int_equal(ha_history_look(s, &sights, &history, &why), HA_OK);
            assert_int_equal(sights, HA_SIGHTS);
            forget();
            for (size_t p = 0; p < PLANTED; p++) {
                memset(level, 0, sizeof level);
                for (size_t n = s[k % 2].nights - s[k % 2].age; n < s[k % 2].nights; n++)
                    level[n] = p % 2 ? -s[k % 2].size : s[k % 2].size;
                draw(w, 30000 + PLANTED * i + p, CASES, s[k % 2].nights);
                make(NULL, NULL);
                found += history.curve[0].changes > 0;
                forget();
            }
            sizes += s[k % 2].size / (double)said;
        }
        printf("%-10s %6zu %9zu %4zu %5.1f%% %zu of %zu\n", w->name, length, s[k % 2].nights, s[k % 2].age,
               100 * expm1(sizes), found, said * PLANTED);
        all += found;
        if (HA_SANITIZED || few) continue;
        assert_true(found * 100 >= 70 * said * PLANTED && found * 100 <= 95 * said * PLANTED);
    }
    if (few) assert_true(all >= 275 && all <= 315);                 /* of 360 */
    else if (!HA_SANITIZED) assert_true(all >= 960 && all <= 1050); /* of 1200 */
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

HISTORY_TEST(another_machine_has_a_curve_of_its_own)
{
    begin(&record, "nights");
    for (size_t n = 0; n < NIGHTS; n++) {
        const bool other = n >= 20 && n % 2; /* they take turns, in the end */
        level[n] = other ? 0.2 : 0;
        begin_night(&record, "night");
        date_of_last();
        assert_int_equal(ha_record_add_fact(&record, "cpu", other ? "B<b>" : "A", &why), HA_OK);
        add_case_of_night(&worlds[0], 0, n);
    }
    make(NULL, NULL);
    assert_int_equal(history.machines, 2);
    assert_int_equal(history.count, 2);
    assert_int_equal(history.curve[0].count, 40);
    assert_int_equal(history.curve[1].count, 20);
    assert_int_equal(history.curve[1].machine, 1);
    for (size_t i = 0; i < 2; i++) assert_int_equal(history.curve[i].changes, 0);
    assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
    assert_contains(test_printed(), "machine 2 from 2026-01-23T22:00 on, another one than machine 1 (cpu: A -> B<b>)");
    assert_contains(test_print_text, "step_ns, machine 2: 20 nights");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

HISTORY_TEST(values_without_a_logarithm_and_equal_ones_are_shown_and_are_no_change)
{
    begin(&record, "nights");
    for (size_t n = 0; n < NIGHTS; n++) {
        begin_night(&record, "night");
        struct ha_recorded_case *c = add_case(&record, "run", "zero:"), *e = add_case(&record, "run", "equal:");
        add_value(&record, c, &rate, n, n < 52 ? 0 : 5);
        add_value(&record, e, &step, n, 0);
    }
    make(NULL, NULL);
    assert_int_equal(history.count, 2);
    assert_int_equal(history.curve[0].count, NIGHTS);
    assert_int_equal(history.tested, 1); /* eight nights with a logarithm are too few */
    for (size_t i = 0; i < 2; i++) assert_int_equal(history.curve[i].changes, 0);
    assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
    assert_null(strstr(test_printed(), "nan"));
    assert_null(strstr(test_print_text, "inf"));
    assert_int_equal(ha_history_print_json(test_print(), &history, &why), HA_OK);
    assert_null(strstr(test_printed(), "nan"));
    assert_int_equal(test_count(test_print_text, "\"value\":"), 2 * NIGHTS);
}

/* ---- what is shown ----------------------------------------------------------------------------------------------- */

static const struct ha_recorded_figure mass = { .name = "mass", .unit = "", .better = HA_MORE },
                                       reading = { .name = "beside_read_GBps", .unit = "GB/s", .better = HA_MORE };

static void add_row(const char *id, const struct ha_recorded_figure *f, double value)
{
    for (size_t p = 0; p < 3; p++) add_value(&record, add_case(&record, "run", id), f, record.nights * 3 + p, value);
}

static void some_figures(void)
{
    begin(&record, "nights");
    begin_night(&record, "night");
    date_of_last();
    add_row("a:ctx=1,steps=32", &reading, 30);
    add_row("a:ctx=1,steps=32", &mass, 0.9);
    add_row("a:ctx=1,steps=32", &step, 1e6);
    add_row("a:ctx=1,steps=32", &rate, 3);
    add_row("a:ctx=16,steps=32", &rate, 3);
    add_row("b:ctx=1", &mass, 0.9);
    assert_int_equal(ha_record_end(&record, &why), HA_OK);
}

static const struct {
    const char *filter, *figure, *shown; /* "CASE FIGURE; ..." */
} choices[] = {
    { NULL, NULL, "a:ctx=1,steps=32 step_ns; a:ctx=16,steps=32 GBps; machine beside_read_GBps; " },
    { "a:", NULL, "a:ctx=1,steps=32 step_ns; a:ctx=16,steps=32 GBps; " },
    { "ctx=1", NULL, "a:ctx=1,steps=32 step_ns; " },
    { "ctx=1,steps=32", "mass", "a:ctx=1,steps=32 mass; " },
    { "ctx!=1,steps", NULL, "a:ctx=16,steps=32 GBps; " },
    { "ctx=1", "mass", "a:ctx=1,steps=32 mass; b:ctx=1 mass; " },
    { NULL, "beside_read_GBps", "a:ctx=1,steps=32 beside_read_GBps; machine beside_read_GBps; " },
};

HISTORY_TEST(the_first_time_or_rate_of_each_case_is_shown_or_the_figure_that_is_named)
{
    some_figures();
    for (size_t k = 0; k < COUNT(choices); k++) {
        char shown[512] = "";
        make(choices[k].filter, choices[k].figure);
        for (size_t i = 0; i < history.count; i++) {
            strcat(strcat(shown, history.curve[i].of->id), " ");
            strcat(strcat(shown, history.curve[i].figure->name), "; ");
        }
        assert_string_equal(shown, choices[k].shown);
        ha_history_free(&history);
    }
}

static const struct {
    const char *filter, *figure, *said;
} refused[] = {
    { "nowhere", NULL, "none of its 4 cases fits 'nowhere'; the first is a:ctx=1,steps=32" },
    { "ctx", "stp_ns", "unknown figure 'stp_ns'; did you mean 'step_ns'?" },
    { "b:", NULL, "no time and no rate; name a figure: --figure mass" },
};

HISTORY_TEST(what_fits_nothing_is_refused_and_says_what_there_is)
{
    some_figures();
    for (size_t k = 0; k < COUNT(refused); k++) {
        assert_int_equal(ha_history_make(&history, &record, refused[k].filter, refused[k].figure, &why), HA_ERROR);
        assert_contains(why.text, refused[k].said);
        ha_history_free(&history);
    }
}

HISTORY_TEST(changes_stand_on_top_the_newest_first_and_the_nights_below)
{
    step_up(20, 0.08);
    step_up(35, -0.05);
    draw(&worlds[0], 3, CASES, NIGHTS);
    struct ha_recorded_figure *f = &record.cases[3]->figure[0]; /* a rate, which is less from night 30 on */
    for (size_t k = 0; k < f->count; k++) f->at[k].value *= f->at[k].night >= 30 ? 0.95 : 1;
    make(NULL, NULL);
    assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
    const char *text = test_printed();
    assert_true(!strncmp(text, "2 of 20 figures changed in 60 nights, 2026-01-02T22:00 to 2026-03-05T22:00; a ", 77));
    const char *newest = strstr(text, "2026-02-09T22:00  faster -"),
               *older = strstr(text, "2026-02-04T22:00  slower -");
    assert_non_null(newest);
    assert_non_null(older);
    assert_true(newest < older);
    const struct ha_curve_night *second = &history.curve[0].night[35];
    assert_true(second->change);
    assert_near(second->after / second->before, 0.95, 0.01);
    assert_contains(text, "fake:i=0,steps=32 step_ns; 1 change before\n");
    assert_int_equal(test_count(text, " since here\n"), 3); /* beside the nights */
    assert_int_equal(test_count(text, "~ "),
                     CASES * (NIGHTS + 1)); /* a line for each night and one above them, of the range of few */
    assert_int_equal(test_count(text, "\n2026-"), 2 + CASES * NIGHTS);
    assert_true(test_count(text, "*") >= CASES * NIGHTS * 9 / 10); /* others are beyond the end of their bar */
}

HISTORY_TEST(where_the_machine_changed_too_the_line_says_so)
{
    for (size_t k = 0; k < 2; k++) { /* its reading changes with the time, or ten nights later */
        begin(&record, "nights");
        step_up(30, 0.08);
        for (size_t n = 0; n < NIGHTS; n++) {
            begin_night(&record, "night");
            date_of_last();
            add_case_of_night(&worlds[0], 0, n);
            const double part = n < 30 + 10 * k ? 30 : 25;
            add_value(&record, record.cases[0], &reading, n * PROCESSES, part * (1 + 0.001 * normal()));
        }
        assert_int_equal(ha_record_end(&record, &why), HA_OK);
        make(NULL, NULL);
        assert_int_equal(history.count, 2);
        assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
        assert_int_equal(test_count(test_printed(), "; there the machine changed, too: beside_read_GBps -16."), !k);
        assert_int_equal(test_count(test_print_text, "machine beside_read_GBps\n"), 1);
        forget();
        memset(level, 0, sizeof level);
    }
}

HISTORY_TEST(json_lines_say_the_same)
{
    step_up(20, 0.08);
    draw(&worlds[0], 3, 4, NIGHTS);
    make("i=0", NULL);
    const struct ha_curve *c = &history.curve[0];
    assert_int_equal(ha_history_print_json(test_print(), &history, &why), HA_OK);
    char *line = test_printed();
    for (size_t i = 0; i <= c->count; i++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(row);
        line = end + 1;
        if (i == c->count) {
            assert_string_equal(json_string_value(json_object_get(row, "row")), "histories");
            assert_int_equal(json_integer_value(json_object_get(row, "changed")), 1);
            json_decref(row);
            break;
        }
        const struct ha_curve_night *n = &c->night[i];
        assert_string_equal(json_string_value(json_object_get(row, "row")), "history");
        assert_string_equal(json_string_value(json_object_get(row, "case_id")), c->of->id);
        assert_string_equal(json_string_value(json_object_get(row, "date_utc")), record.night[i].date);
        assert_near(json_number_value(json_object_get(row, "value")), n->value, 0);
        assert_near(json_number_value(json_object_get(row, "lo")), n->lo, 0);
        assert_near(json_number_value(json_object_get(row, "hi")), n->hi, 0);
        assert_int_equal(json_integer_value(json_object_get(row, "processes")), PROCESSES);
        assert_int_equal(json_is_true(json_object_get(row, "change")), n->change);
        if (n->change) assert_near(json_number_value(json_object_get(row, "ratio")), 1.08, 0.01);
        json_decref(row);
    }
    assert_string_equal(line, "");
}

/* Of schema 1 and of schema 2, as published. */
TEST(folders_of_old_schemas_have_a_history)
{
    static const struct {
        const char *path;
        size_t nights, machines;
    } old[] = {
        { "results/2026-11-21-epyc-zen4-2core", 1, 1 },
        { "results/2026-11-22-xeon-2core", 1, 1 },
        { NULL, 2, 2 }, /* both in one folder */
    };
    for (size_t i = 0; i < COUNT(old); i++) {
        assert_int_equal(test_folder_make(NULL), 0);
        for (size_t k = 0; k < i; k++) {
            char *path = realpath(old[k].path, NULL);
            assert_non_null(path);
            assert_int_equal(symlink(path, test_path(strrchr(path, '/') + 1)), 0);
            free(path);
        }
        assert_int_equal(ha_record_read(&record, old[i].path ? old[i].path : test_folder, &why), HA_OK);
        make(NULL, NULL);
        assert_int_equal(record.nights, old[i].nights);
        assert_int_equal(history.machines, old[i].machines);
        assert_true(history.count > 10);
        assert_int_equal(ha_history_print_table(test_print(), &history, &why), HA_OK);
        assert_contains(test_printed(), "resident:dataset=trace/english,ctx=1900");
        forget();
        assert_int_equal(test_folder_remove(NULL), 0);
    }
}

TEST_MAIN
{
    few = argc > 1 && !strcmp(argv[1], "few");
    return test_all("tests", NULL, NULL);
}
