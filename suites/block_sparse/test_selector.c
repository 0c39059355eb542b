/* Block sizes and budgets against equation 3 written out, over all that two to four heads may be like. */

#include "harness/base/rng.h"
#include "harness/base/test.h"
#include "suites/block_sparse/selector.h"

#include <math.h>

enum { HEADS_MAX = 4, CASES = 20000 };

static double draw(uint64_t i, uint64_t stream, double least, double most)
{
    return least + (most - least) * (double)ha_rng_below(7, stream, i, 1 << 20) / (1 << 20);
}

static double volume_of(const struct ha_property *head, size_t heads, bool skips, double keys, double block)
{
    double all = 0;
    for (size_t h = 0; h < heads; h++) {
        double share = (double)head[h].bgt0 + (double)head[h].k * log(block) / log(2);
        if (skips && head[h].s > 0) continue;
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        all += share;
    }
    return 2 * keys / block + 2 * keys * (all < 1 ? all : 1);
}

TEST(the_least_volume)
{
    size_t seen[HA_GRANULARITIES] = { 0 };
    for (uint64_t i = 0; i < CASES; i++) {
        struct ha_property head[HEADS_MAX];
        const size_t heads = 1 + i % HEADS_MAX, keys = HA_GRANULARITY_MOST * (1 + ha_rng_below(7, 9, i, 300));
        const struct ha_selector s = { .skips = i % 3 > 0 };
        size_t readers = 0;
        for (size_t h = 0; h < heads; h++) {
            head[h] = (struct ha_property){ (float)draw(i, 3 * h, -0.2, 1.1), (float)draw(i, 3 * h + 1, -0.02, 0.05),
                                            (float)draw(i, 3 * h + 2, -1, 1) };
            readers += !s.skips || head[h].s <= 0;
        }
        double volume;
        const size_t block = ha_selector_block(&s, head, heads, keys, &volume);
        if (!readers) {
            assert_int_equal(block, 0);
            continue;
        }
        const double v = volume_of(head, heads, s.skips, (double)keys, (double)block);
        assert_near(volume, v, 1e-9 * v);
        for (size_t other = 16; other <= 128; other *= 2) {
            const double more = volume_of(head, heads, s.skips, (double)keys, (double)other);
            assert_true(v <= more * (1 + 1e-12));
            seen[other == 16 ? 0 : other == 32 ? 1 : other == 64 ? 2 : 3] += other == block;
        }
    }
    for (size_t i = 0; i < HA_GRANULARITIES; i++) assert_true(seen[i] > 0);
}

/* 2 heads that read all of it whatever the size is: the largest block has the fewest digests. Of equals the smaller. */
TEST(by_hand)
{
    const struct ha_property all[2] = { { .bgt0 = 1 }, { .bgt0 = 2 } }, streams = { .bgt0 = 1, .s = 1 };
    struct ha_selector s = { .skips = true };
    double volume;
    assert_int_equal(ha_selector_block(&s, all, 2, 1280, &volume), 128);
    assert_near(volume, 2 * 10 + 2 * 1280, 0); /* the sum of both budgets is cut at 1 */
    assert_near(ha_selector_budget(&all[1], 16), 1, 0);
    assert_near(ha_selector_budget(&(struct ha_property){ .bgt0 = 0.1f, .k = 0.01f }, 64), 0.16, 1e-7);
    assert_near(ha_selector_budget(&(struct ha_property){ .bgt0 = -1 }, 64), 0, 0);

    /* 2/16 + 2 (b + 4 k) = 2/32 + 2 (b + 5 k) where k = 1/32 */
    const struct ha_property equal = { .k = 1 / 32.0f };
    assert_int_equal(ha_selector_block(&s, &equal, 1, 1280, &volume), 16);

    assert_int_equal(ha_selector_block(&s, &streams, 1, 1280, &volume), 0);
    assert_false(ha_selector_reads(&s, &streams));
    assert_int_equal(ha_selector_block(&s, all, 2, 0, &volume), 0);
    s.skips = false;
    assert_int_equal(ha_selector_block(&s, &streams, 1, 1280, &volume), 128);
    for (size_t i = 0; i < HA_GRANULARITIES; i++) {
        s.granularity = (enum ha_granularity)(HA_GRANULARITY_16 + i);
        assert_int_equal(ha_selector_block(&s, all, 2, 1280, &volume), 16 << i);
        assert_string_equal(ha_granularity_word(s.granularity), i == 0 ? "16" : i == 1 ? "32" : i == 2 ? "64" : "128");
    }
}

/* A head that streams reads nothing beside one that does not. */
TEST(streaming_heads_count_nothing)
{
    const struct ha_property head[2] = { { .bgt0 = 0.1f }, { .bgt0 = 0.4f, .s = 0.5f } };
    const struct ha_selector skips = { .skips = true }, reads = { .skips = false };
    assert_near(ha_selector_volume(&skips, head, 2, 1280, 64), 2 * 20 + 2 * 1280 * (double)0.1f, 1e-9);
    assert_near(ha_selector_volume(&reads, head, 2, 1280, 64), 2 * 20 + 2 * 1280 * ((double)0.1f + (double)0.4f), 1e-9);
}
