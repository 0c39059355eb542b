/* net, through every table, against binary64: within what sums of binary32 in any order are declared to round. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "kernels/test_data.h"

#include <math.h>

enum { FLOATS = sizeof(float) };

static struct ha_net make(size_t rows, const size_t *width, size_t layers, uint64_t seed)
{
    struct ha_net n = { .rows = rows, .layers = layers };
    memcpy(n.width, width, (layers + 1) * sizeof *width);
    float *w = ha_guard_alloc(ha_net_weights(&n) * FLOATS), *x = ha_guard_alloc(rows * width[0] * FLOATS);
    ha_rng_normals(seed, 0, 0, ha_net_weights(&n), w);
    ha_rng_normals(seed, 1, 0, rows * width[0], x);
    n.w = w;
    n.x = x;
    n.y = ha_guard_alloc(rows * width[layers] * FLOATS);
    n.scratch = ha_guard_alloc(ha_net_scratch(&n) * FLOATS);
    return n;
}

static void judge(const struct ha_kernels *t, const struct ha_net *n)
{
    memset(n->y, 0xFF, n->rows * n->width[n->layers] * FLOATS);
    if (n->layers > 1) memset(n->scratch, 0xFF, ha_net_scratch(n) * FLOATS);
    t->net(n);
    for (size_t r = 0; r < n->rows; r++) {
        const double ratio = ha_ref_judge_net(n, r);
        if (!(ratio <= 1))
            fail_msg("%s: %zu layers, the last %zu-%zu: row %zu of %zu: error over bound %g", t->name, n->layers,
                     n->width[n->layers - 1], n->width[n->layers], r, n->rows, ratio);
        ha_test_worst(t, "a row", ratio);
    }
}

TEST(within_bound)
{
    static const struct {
        size_t layers, width[HA_NET_LAYERS_MAX + 1];
    } nets[] = {
        { 3, { 41, 312, 312, 3 } },       { 1, { 1, 1 } },           { 1, { 5, 47 } },       { 2, { 3, 16, 17 } },
        { 2, { 128, 96, 48 } },           { 4, { 9, 33, 7, 1, 2 } }, { 2, { 2, 1024, 31 } }, { 3, { 1024, 15, 8, 24 } },
        { 1, { 300, HA_NET_WIDTH_MAX } },
    };
    static const size_t rows[] = { 1, 2, 4, 5, 8, 9, 33 };
    for (size_t i = 0; i < COUNT(nets); i++)
        for (size_t r = 0; r < COUNT(rows); r += test_small ? 3 : 1) {
            const struct ha_net n = make(rows[r], nets[i].width, nets[i].layers, 10 * i + r);
            HA_TEST_EACH(t, net) judge(t, &n);
            ha_guard_release(0);
        }
}

TEST(of_every_width)
{
    for (size_t out = 1; out <= 130; out += test_small ? 11 : 1) {
        const size_t width[] = { 1 + out % 7, out, 1 + out % 19 };
        const struct ha_net n = make(3, width, 2, out);
        HA_TEST_EACH(t, net) judge(t, &n);
        ha_guard_release(0);
    }
}

/* numbers that are worked out by hand: relu between the layers and not behind the last */
TEST(by_hand)
{
    static const float w[] = { 1, -1, 2, 3, /* bias */ 0.5f, -4, /* second */ -2, 5, /* bias */ 1 };
    static const float x[] = { 1, 1, -1, 2 };
    HA_TEST_EACH(t, net)
    {
        float y[2], scratch[8];
        t->net(&(struct ha_net){ 2, 2, { 2, 2, 1 }, w, x, y, scratch });
        assert_true(y[0] == -6); /* relu(3.5, -2) = (3.5, 0) */
        assert_true(y[1] == 9);  /* relu(3.5, 3): 1 - 7 + 15 */
        t->net(&(struct ha_net){ 0, 2, { 2, 2, 1 }, w, x, y, scratch });
        assert_true(y[0] == -6 && y[1] == 9);
    }
}

/* A NaN makes its own row NaN and no other, through relu; an infinity is what binary64 makes of it. */
TEST(of_no_number)
{
    static const size_t width[] = { 41, 70, 50, 3 };
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < 12; i++) {
        const struct ha_net n = make(9, width, 3, i);
        const size_t at = 5 * 41 + i * 3;
        ((float *)ha_test_own(n.x))[at] = odd[i % 3];
        HA_TEST_EACH(t, net)
        {
            judge(t, &n);
            for (size_t j = 0; j < 3 && i % 3 == 0; j++) assert_true(isnan(n.y[5 * 3 + j]));
        }
        ha_guard_release(0);
    }
}

/* What the judge is for: a number that is off by more than it may be, and one that is none. */
TEST(what_is_off_is_seen)
{
    static const size_t width[] = { 41, 312, 312, 3 };
    const struct ha_net n = make(2, width, 3, 1);
    double x[41], y[3], off[3];
    judge(ha_test_tables, &n);
    for (size_t i = 0; i < 41; i++) x[i] = (double)n.x[41 + i];
    ha_ref_net(&n, x, NULL, y, off);
    const double ratios[] = { 0.9, -0.9, 1.1, -1.1 };
    for (size_t i = 0; i < COUNT(ratios); i++) {
        n.y[4] = (float)(y[1] + ratios[i] * off[1]);
        assert_true((ha_ref_judge_net(&n, 1) <= 1) == (fabs(ratios[i]) < 1) && ha_ref_judge_net(&n, 0) <= 1);
    }
    n.y[4] = NAN;
    assert_true(ha_ref_judge_net(&n, 1) > 1);
    n.y[4] = INFINITY;
    assert_true(ha_ref_judge_net(&n, 1) > 1);
    const double most = fmax(fabs(y[0]), fmax(fabs(y[1]), fabs(y[2])));
    for (size_t j = 0; j < 3; j++) assert_true(off[j] < 0.1 * most); /* and it is no bound that anything keeps */
    ha_guard_release(0);
}

/* Whatever the inputs are within what they may be off by, the outputs are within what is said of them. */
TEST(errors_of_inputs_come_through)
{
    static const size_t width[] = { 41, 100, 60, 3 };
    const struct ha_net n = make(1, width, 3, 7);
    double x[41], off[41], y[3], y_off[3];
    float *from = ha_test_own(n.x);
    for (size_t i = 0; i < 41; i++) {
        x[i] = (double)n.x[i];
        off[i] = i % 4 ? 1e-3 * (double)(i % 5) : 0;
    }
    ha_ref_net(&n, x, off, y, y_off);
    double most[3] = { 0 };
    for (uint64_t k = 0; k < 200; k++) {
        for (uint64_t i = 0; i < 41; i++) {
            const double share = 2 * (double)ha_rng_uniform(k, 9, i) - 1;
            from[i] = (float)(x[i] + (share < 0 ? -1 : 1) * off[i]);
        }
        ha_test_tables[0].net(&n);
        for (size_t j = 0; j < 3; j++) {
            most[j] = fmax(most[j], fabs((double)n.y[j] - y[j]));
            assert_true(fabs((double)n.y[j] - y[j]) <= y_off[j]);
        }
    }
    for (size_t j = 0; j < 3; j++) assert_true(most[j] > 1e-3 * y_off[j]); /* and not beyond all reason */
    ha_guard_release(0);
}

TEST_MAIN { return test_all("tests", ha_test_tables_setup, ha_test_report); }
