/* A host with two speeds, of which the slow one takes 25% longer. A change of the code moves both; how many processes
 * are slow is chance. What is said of each pair of these? */

#include "harness/base/rng.h"
#include "harness/compare/test_record.h"

enum { NIGHTS = 5, BASE = 5, PROCESSES = 12 };
static const double slower = 1.25, process = 0.007, night = 0.003;

static uint64_t seed, drawn;
static double normal(double sd) { return sd * (double)ha_rng_normal(seed, 7, drawn++); }

/* Processes of a night, of which the first are slow. */
static void add_night(struct ha_record *r, double change, size_t slow, size_t count)
{
    const double all = normal(night);
    begin_night(r, "night");
    for (size_t i = 0; i < count; i++)
        add_value(r, add_case(r, "run", "x:"), &step, 100 * r->nights + i,
                  1e6 * change * (i < slow ? slower : 1) * exp(all + normal(process)));
}

static struct ha_change said(double change, size_t slow, uint64_t number)
{
    struct ha_record base, now;
    struct ha_comparison c;
    struct ha_change found = { 0 };
    seed = number;
    drawn = 0;
    begin(&base, "base");
    begin(&now, "now");
    for (size_t i = 0; i < NIGHTS; i++) add_night(&base, 1, 2, BASE);
    add_night(&now, change, slow, PROCESSES);
    assert_int_equal(ha_compare(&c, &base, &now, &why), HA_OK);
    assert_int_equal(c.count, 1);
    found = c.change[0];
    assert_int_equal(ha_comparison_exit(&c), ha_change_exit(found.kind));
    ha_comparison_free(&c);
    ha_record_free(&base);
    ha_record_free(&now);
    return found;
}

/* What has to be said, by how many of twelve are slow: S slower, f faster, - neither; ? may be any. Where 10 of 25 were
 * slow, eleven of twelve or more are so by chance less than once in a hundred, and that is slower, whether the code is
 * as it was or a little faster. All slow and 20% faster looks as nothing at all. */
static const struct {
    int percent;
    const char *said;
} changes[] = {
    { -20, "ffffffffff?--" }, { -15, "ffffffffff??S" }, { -12, "ffffffffff??S" }, { -10, "ffffffffff??S" },
    { -5, "ffffffffff??S" },  { 0, "----------??S" },   { 5, "SSSSSSSSSSSSS" },   { 10, "SSSSSSSSSSSSS" },
    { 15, "SSSSSSSSSSSSS" },  { 18, "SSSSSSSSSSSSS" },  { 20, "SSSSSSSSSSSSS" },  { 21, "SSSSSSSSSSSSS" },
    { 22, "SSSSSSSSSSSSS" },  { 25, "SSSSSSSSSSSSS" },  { 30, "SSSSSSSSSSSSS" },
};

static char letter(const struct ha_change *c)
{
    return c->kind == HA_CHANGE_WORSE ? 'S' : c->kind == HA_CHANGE_BETTER ? 'f' : '-';
}

TEST(a_change_is_told_from_other_shares_of_the_speeds)
{
    const uint64_t runs = HA_SANITIZED ? 2 : 20;
    printf("slower by what is said where 0 to %d of %d processes are slow; (in brackets: that is not so)\n", PROCESSES,
           PROCESSES);
    for (size_t i = 0; i < COUNT(changes); i++) {
        const int percent = changes[i].percent;
        printf("%+3d%%:", percent);
        for (size_t slow = 0; slow <= PROCESSES; slow++)
            for (uint64_t number = 1; number <= runs; number++) {
                const struct ha_change c = said(1 + percent / 100.0, slow, number);
                const char is = letter(&c), asked = changes[i].said[slow];
                const bool so = is == (percent < 0 ? 'f' : percent > 0 ? 'S' : '-');
                if (number == 1) printf(so ? "  %c%+4.0f " : " (%c%+4.0f)", is, 100 * expm1(c.shift.size));
                if (asked != '?') assert_int_equal(is, asked);
                assert_true(percent < 0 || is != 'f'); /* what is slower is never faster */
            }
        printf("\n");
    }
}

TEST(all_at_the_slow_speed_are_slower_by_their_share_and_all_between_the_speeds_by_what_they_take)
{
    struct ha_change c = said(1, PROCESSES, 1);
    assert_int_equal(c.kind, HA_CHANGE_WORSE);
    assert_true(c.by_speeds && c.shift.p < 1e-3);
    assert_near(expm1(c.shift.size), 0.25, 0.02);
    assert_int_equal(c.shift.slow[1], PROCESSES);
    c = said(1.15, 0, 1);
    assert_int_equal(c.kind, HA_CHANGE_WORSE);
    assert_int_equal(c.shift.slow[1], 0);
    assert_near(expm1(c.shift.size), 0.15, 0.01);
    /* and it is the speeds of the base that tell, where both are there */
    c = said(0.88, 8, 1);
    assert_int_equal(c.kind, HA_CHANGE_BETTER);
    assert_int_equal(c.shift.slow[1], 8);
    assert_near(expm1(c.shift.size), -0.12, 0.01);
}

/* A host of which a few processes are late by as much as the code then is slower: what was rare is then in each. */
static bool found(double late, size_t nights, size_t each, double change, uint64_t number)
{
    struct ha_record base, now;
    struct ha_comparison c;
    seed = number;
    drawn = 0;
    begin(&base, "base");
    begin(&now, "now");
    for (size_t n = 0; n <= nights; n++) {
        struct ha_record *const r = n < nights ? &base : &now;
        const size_t count = n < nights ? each : PROCESSES;
        const double all = normal(night);
        begin_night(r, "night");
        for (size_t i = 0; i < count; i++) {
            const double by = (double)ha_rng_uniform(seed, 8, drawn++) < late ? 1.1 : 1;
            add_value(r, add_case(r, "run", "x:"), &step, 100 * n + i,
                      1e6 * by * (n < nights ? 1 : change) * exp(all + normal(process)));
        }
    }
    assert_int_equal(ha_compare(&c, &base, &now, &why), HA_OK);
    const bool worse = ha_comparison_of(&c, HA_CHANGE_WORSE) > 0;
    ha_comparison_free(&c);
    ha_record_free(&base);
    ha_record_free(&now);
    return worse;
}

TEST(code_as_slow_as_a_late_process_is_found)
{
    static const double lates[] = { 0.03, 0.05, 0.1 };
    static const struct {
        size_t nights, each;
    } bases[] = { { 1, 35 }, { 5, 5 }, { 7, 5 } };
    const uint64_t tries = HA_SANITIZED ? 4 : 60;
    printf("%6s %8s %14s %12s %s\n", "late", "nights", "of processes", "+10% found", "+0% called");
    for (size_t i = 0; i < COUNT(lates) * COUNT(bases); i++) {
        const size_t b = i % COUNT(bases);
        size_t seen = 0, alarms = 0;
        for (uint64_t t = 1; t <= tries; t++) {
            seen += found(lates[i / 3], bases[b].nights, bases[b].each, 1.1, t);
            alarms += found(lates[i / 3], bases[b].nights, bases[b].each, 1, 1000 + t);
        }
        printf("%5.0f%% %8zu %14zu %12zu %zu\n", 100 * lates[i / 3], bases[b].nights, bases[b].each, seen, alarms);
        if (!HA_SANITIZED) assert_true(10 * seen >= 9 * tries && 60 * alarms <= tries);
    }
}
