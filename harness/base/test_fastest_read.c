#include "harness/base/fastest_read.h"
#include "harness/base/test.h"

static uint64_t lines(const void *p, size_t bytes) { return 1; }
static uint64_t streams(const void *p, size_t bytes) { return 2; }
static const struct ha_kernels both = { .read = lines, .read_streams = streams }, alone = { .read = lines };

/* GB/s of readings by each, one after the other */
struct told {
    double GBps[2][8];
    size_t count[2];
};

static double tell(void *arg, ha_read *read)
{
    struct told *t = arg;
    const size_t which = read(NULL, 0) - 1;
    assert_true(t->count[which] < COUNT(t->GBps[which]));
    return t->GBps[which][t->count[which]++];
}

TEST(the_median_counts)
{
    struct told faster = { .GBps = { { 10, 10, 30, 10, 10, 30, 10, 10 }, { 11, 11, 11, 2, 11, 2, 11, 11 } } },
                slower = { .GBps = { { 11, 11, 11, 2, 11, 2, 11, 11 }, { 10, 10, 30, 10, 10, 30, 10, 10 } } };
    assert_true(ha_fastest_read(&both, tell, &faster) == streams);
    assert_true(ha_fastest_read(&both, tell, &slower) == lines);
    assert_true(faster.count[0] == faster.count[1] && faster.count[0] >= 5);
}

TEST(alike_is_by_lines)
{
    struct told t = { .GBps = { { 1, 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 } } };
    assert_true(ha_fastest_read(&both, tell, &t) == lines);
}

TEST(one_order_is_not_read)
{
    struct told t = { .count = { 0 } };
    assert_true(ha_fastest_read(&alone, tell, &t) == lines);
    assert_true(t.count[0] == 0 && t.count[1] == 0);
}
