/* Old and new in turns, on simulated hosts: how often is a change called where there is none, and how often is +5%
 * found? */

#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "harness/compare/turns.h"

#include <math.h>

enum { TRIES = 1000, POWER_TRIES = 200 };

static struct ha_why why;
static uint64_t seed, drawn;
static double normal(void) { return (double)ha_rng_normal(seed, 1, drawn++); }
static bool chance(double p) { return (double)ha_rng_uniform(seed, 2, drawn++) < p; }

/* The last one is as a host was measured (docs/compare.md). A process is late by its own spread, by a tail, by what the
 * host is slowed down by for a while, and by its place. */
static const struct host {
    const char *name;
    double own;              /* spread of processes */
    double late, late_by;    /* share of processes that are late, and by what at most */
    double slow, slow_stays; /* a second speed, and the chance that the next process is at the same one */
    double drift;            /* spread from one process to the next, which stays */
    double second;           /* the second process of a block is slower by */
    size_t pairs, found;     /* how many there is time for; and of 200 changes of +5% so many have to be found */
} hosts[] = {
    { "quiet", 0.007, 0.03, 0.1, 0, 0, 0, 0, 30, 200 },
    { "drifting", 0.02, 0.03, 0.1, 0, 0, 0.02, 0, 60, 195 },
    { "two speeds", 0.02, 0.05, 0.3, 0.25, 0.9, 0, 0, 60, 180 },
    { "second is slower", 0.02, 0.03, 0.1, 0, 0, 0, 0.03, 60, 180 },
    { "loaded", 0.06, 0.1, 0.5, 0, 0, 0.01, 0, 120, 180 },
    { "crowded", 0.15, 0.1, 1, 0.3, 0.7, 0, 0, 100, 0 },
};

struct world {
    const struct host *host;
    double level;
    bool slow;
};

static double process_of(struct world *w)
{
    const struct host *h = w->host;
    w->level += h->drift * normal();
    if (!chance(h->slow_stays)) w->slow = chance(0.3);
    return w->level + h->own * normal() + (w->slow ? h->slow : 0)
           + (chance(h->late) ? h->late_by * fabs(normal()) / 2 : 0);
}

/* One comparison, of one case: until it is decided, or the time is over. */
static void compare(struct ha_turns *t, const struct host *h, double change)
{
    struct world w = { .host = h };
    ha_turns_begin(t, 0.01);
    drawn = 0;
    for (size_t i = 0; i < h->pairs && ha_turns_decided(t) == HA_TURNS_UNDECIDED; i++) {
        double took[2];
        const size_t first = (size_t)ha_rng_below(seed, 3, i, 2);
        took[first] = process_of(&w);
        took[1 - first] = process_of(&w) + h->second;
        assert_int_equal(ha_turns_add(t, exp(took[0]), exp(took[1] + change), &why), HA_OK);
    }
}

TEST(no_change_is_not_called_one)
{
    printf("of %d without a change: %14s %6s %10s\n", TRIES, "called", "same", "undecided");
    for (const struct host *h = hosts; h < hosts + COUNT(hosts); h++) {
        size_t kinds[HA_TURNS_SLOWER + 1] = { 0 };
        for (seed = 1; seed <= TRIES; seed++) {
            struct ha_turns t;
            compare(&t, h, 0);
            kinds[ha_turns_decided(&t)]++;
            ha_turns_free(&t);
        }
        const size_t called = kinds[HA_TURNS_SLOWER] + kinds[HA_TURNS_FASTER];
        printf("%-25s %12zu %6zu %10zu\n", h->name, called, kinds[HA_TURNS_SAME], kinds[HA_TURNS_UNDECIDED]);
        assert_true(100 * called <= TRIES);
        if (h == hosts) assert_true(20 * kinds[HA_TURNS_SAME] >= 19 * TRIES); /* the quiet one */
    }
}

/* Slower and faster in turns. */
TEST(five_percent_is_found_and_its_interval_holds)
{
    printf("of %d at 5%%: %18s %6s %10s %14s\n", POWER_TRIES, "found", "wrong", "not inside", "pairs (mean)");
    for (const struct host *h = hosts; h < hosts + COUNT(hosts); h++) {
        size_t found = 0, wrong = 0, missed = 0, pairs = 0;
        for (seed = 1; seed <= POWER_TRIES; seed++) {
            const double change = seed % 2 ? log(1.05) : -log(1.05);
            struct ha_turns t;
            struct ha_turns_found f;
            compare(&t, h, change);
            ha_turns_find(&f, &t);
            found += f.kind == (seed % 2 ? HA_TURNS_SLOWER : HA_TURNS_FASTER);
            wrong += f.kind == (seed % 2 ? HA_TURNS_FASTER : HA_TURNS_SLOWER) || f.kind == HA_TURNS_SAME;
            missed += !(f.lo <= change && change <= f.hi);
            pairs += t.count;
            ha_turns_free(&t);
        }
        printf("%-20s %11zu %6zu %10zu %14zu\n", h->name, found, wrong, missed, pairs / POWER_TRIES);
        assert_true(found * 200 >= h->found * POWER_TRIES);
        assert_int_equal(wrong, 0);
        assert_true(100 * missed <= POWER_TRIES);
    }
}

/* Where signs are fair, each product has mean 1 exactly, whatever the sizes are: all signs, one by one. */
TEST(what_is_bet_on_nothing_is_kept_on_average)
{
    static const double size[] = { 0.03, 0.01, 0.4, 0.02, 0.021, 0.7, 0.05, 0.001 };
    double mean[2][HA_TURNS_BETS] = { { 0 } };
    for (unsigned signs = 0; signs < 1u << COUNT(size); signs++) {
        struct ha_turns t;
        ha_turns_begin(&t, 0.01);
        for (size_t i = 0; i < COUNT(size); i++)
            assert_int_equal(ha_turns_add(&t, 1, exp(signs >> i & 1 ? size[i] : -size[i]), &why), HA_OK);
        for (size_t q = 0; q < 2; q++)
            for (size_t k = 0; k < HA_TURNS_BETS; k++) mean[q][k] += exp(t.bet[q][k]) / (1u << COUNT(size));
        ha_turns_free(&t);
    }
    for (size_t q = 0; q < 2; q++)
        for (size_t k = 0; k < HA_TURNS_BETS; k++) assert_near(mean[q][k], 1, 1e-12);
}

static void add_all(struct ha_turns *t, bool swap)
{
    static const double ratio[] = { 1.1, 1.08, 1.12, 1.05, 1.3,  1.09, 1.07, 1.11, 0.99,
                                    1.1, 1.06, 1.08, 1.1,  1.09, 1.2,  1.1,  1.07 };
    ha_turns_begin(t, 0.01);
    for (size_t i = 0; i < COUNT(ratio); i++)
        assert_int_equal(swap ? ha_turns_add(t, 200 * ratio[i], 200, &why) : ha_turns_add(t, 200, 200 * ratio[i], &why),
                         HA_OK);
}

TEST(the_sides_swapped_turn_the_sign)
{
    struct ha_turns a, b;
    struct ha_turns_found f, g;
    add_all(&a, false);
    add_all(&b, true);
    ha_turns_find(&f, &a);
    ha_turns_find(&g, &b);
    assert_int_equal(f.kind, HA_TURNS_SLOWER);
    assert_int_equal(g.kind, HA_TURNS_FASTER);
    assert_true(f.lo > 0 && f.lo < f.size && f.size < f.hi);
    assert_near(f.size, log(1.09), 0.01);
    assert_near(f.size, -g.size, 1e-12);
    assert_near(f.lo, -g.hi, 1e-9);
    assert_near(f.hi, -g.lo, 1e-9);
    assert_near(f.old, 200, 0);
    assert_near(f.now, 200 * 1.09, 1e-9);
    ha_turns_free(&a);
    ha_turns_free(&b);
}

TEST(without_a_block_nothing_is_known)
{
    struct ha_turns t;
    struct ha_turns_found f;
    ha_turns_begin(&t, 0.01);
    ha_turns_find(&f, &t);
    assert_int_equal(f.kind, HA_TURNS_UNDECIDED);
    assert_true(isnan(f.size) && isinf(f.lo) && f.lo < 0 && isinf(f.hi) && f.hi > 0);
    ha_turns_free(&t);
}
