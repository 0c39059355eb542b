/* The verdicts on the papers' claims, from figures made up here. */

#include "harness/base/test.h"
#include "suites/link/suite.h"

#include <math.h>

enum { SMALL, FOUR }; /* the claims, as listed */

struct figure {
    const char *method;
    size_t piece_bytes;
    bool scattered;
    double GBps;
};

static struct ha_link_figure made[16];
static struct ha_link_figures results;

static void make(double ceiling, size_t cores, bool link, const struct figure *figure, size_t count)
{
    for (size_t i = 0; i < count; i++)
        made[i] = (struct ha_link_figure){ ha_link_method_find(figure[i].method), figure[i].piece_bytes,
                                           figure[i].scattered, figure[i].GBps, figure[i].GBps / ceiling };
    results = (struct ha_link_figures){ made, count, cores, link };
}

static void judged(size_t claim, enum ha_link_verdict want, const char *words)
{
    char figures[512];
    const enum ha_link_verdict got = ha_link_claims[claim].judge(&results, figures);
    if (got != want) fail_msg("%s: %s, want %s", figures, ha_link_verdict_name(got), ha_link_verdict_name(want));
    assert_contains(figures, words);
}

TEST(small_pieces)
{
    const struct {
        double small, page;
        enum ha_link_verdict want;
    } cases[] = {
        { 0.8, 15, HA_LINK_REPRODUCED }, { 0.41, 29.9, HA_LINK_REPRODUCED },   { 1.6, 7.5, HA_LINK_REPRODUCED },
        { 0.3, 15, HA_LINK_IN_SHAPE },   { 2.5, 40, HA_LINK_IN_SHAPE },        { 2.5, 23, HA_LINK_REFUTED },
        { 12, 24, HA_LINK_REFUTED },     { (double)NAN, 15, HA_LINK_REFUTED }, { 0.8, (double)NAN, HA_LINK_REFUTED },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct figure figures[] = {
            { "pinned", 4096, true, cases[i].small },
            { "pinned", 131072, true, cases[i].page },
            { "pinned", 4096, false, 99 },
            { "pinned", 131072, false, 1 },
            { "kernel", 4096, true, 20 },
            { "gather_4", 4096, true, 7 },
            { "kernel", 131072, true, 21 },
            { "pinned_d2h", 4096, true, 77 },
        };
        make(25, 8, true, figures, COUNT(figures));
        judged(SMALL, cases[i].want, "the fastest way in 4 KB pieces here is kernel with 20 GB/s (80%)");
    }
    const struct figure half[] = { { "pinned", 4096, true, 0.8 } };
    make(25, 8, true, half, 1);
    judged(SMALL, HA_LINK_NOT_APPLICABLE, "were not both measured");
    const struct figure both[] = { { "pinned", 4096, true, 0.8 }, { "pinned", 131072, true, 15 } };
    make(25, 8, true, both, 2);
    judged(SMALL, HA_LINK_REPRODUCED, "0.8 GB/s in 4 KB pieces (3% of the ceiling), 15 GB/s in 128 KB pieces (60%)");
    results.count = 1; /* the other one failed */
    judged(SMALL, HA_LINK_NOT_APPLICABLE, "were not both measured");
    make(25, 8, false, both, 2);
    judged(SMALL, HA_LINK_NOT_APPLICABLE, "no PCIe link");
}

TEST(four_threads)
{
    const struct {
        double four, all;
        enum ha_link_verdict want;
    } cases[] = {
        { 23, 23, HA_LINK_REPRODUCED }, { 22.6, 40, HA_LINK_REPRODUCED },     { 20, 21, HA_LINK_IN_SHAPE },
        { 12, 24, HA_LINK_REFUTED },    { (double)NAN, 24, HA_LINK_REFUTED }, { 12, (double)NAN, HA_LINK_REFUTED },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct figure figures[] = {
            { "stores_1", 256, true, 6 },
            { "stores_4", 256, true, cases[i].four },
            { "stores_all", 256, true, cases[i].all },
            { "gather_4", 256, true, 5 },
            { "stores_4", 256, false, 1 },
            { "stores_4", 4096, true, 1 },
        };
        make(25, 16, true, figures, COUNT(figures));
        judged(FOUR, cases[i].want, ", 6 with 1, ");
    }
    const struct figure four[] = { { "stores_4", 256, true, 20 } };
    make(25, 4, true, four, 1);
    judged(FOUR, HA_LINK_NOT_APPLICABLE, "20 GB/s with 4 threads (80% of the link's ceiling), not measured with more");
    make(21, 4, true, four, 1);
    judged(FOUR, HA_LINK_REPRODUCED, "(95% of the link's ceiling)");
    make(25, 3, true, four, 1);
    judged(FOUR, HA_LINK_NOT_APPLICABLE, "fewer than 4 cores");
    make(25, 16, false, four, 1);
    judged(FOUR, HA_LINK_NOT_APPLICABLE, "no PCIe link");
    const struct figure gather[] = { { "gather_4", 256, true, 10 } };
    make(25, 16, true, gather, 1);
    judged(FOUR, HA_LINK_NOT_APPLICABLE,
           "no CPU stores into device memory here; gathering 256-byte vectors with 4 threads and then copying "
           "gives 10 GB/s (40%");
    make(25, 16, true, NULL, 0);
    judged(FOUR, HA_LINK_NOT_APPLICABLE, "were not measured");
}
