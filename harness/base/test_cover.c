/* Every two values of two axes meet, or every value is there, where anything lets them, in few rows, and dear values
 * beside cheap ones. */
#include "harness/base/cover.h"
#include "harness/base/test.h"

#include <math.h>

enum { AXES_MAX = 8 };
static size_t asked;

static double alike(void *arg, const size_t *row)
{
    asked++;
    return 1;
}

/* value x of axis 0 and 1 multiplies the cost by 2^x */
static double dear(void *arg, const size_t *row) { return exp2((double)(row[0] + row[1])); }

/* no row with both axes 0 and 1 at 2; axis 2 at 1 takes axis 3 at 1 */
static double picky(void *arg, const size_t *row)
{
    if (row[0] == 2 && row[1] == 2) return HUGE_VAL;
    return row[2] == 1 && row[3] != 1 ? HUGE_VAL : 1;
}

struct made {
    size_t *rows, count, missing;
    double cost;
};

/* possible: whether a pair may be missing is for the test to say */
static struct made make(const struct ha_cover *c, bool (*possible)(size_t a, size_t x, size_t b, size_t y))
{
    struct made m = { 0 };
    assert_int_equal(ha_cover_make(c, &m.rows, &m.count), HA_OK);
    for (size_t r = 0; r < m.count; r++) {
        const double cost = c->cost(c->arg, m.rows + r * c->axes);
        assert_true(cost <= c->most);
        m.cost += cost;
        for (size_t a = 0; a < c->axes; a++) assert_true(m.rows[r * c->axes + a] < c->values[a]);
    }
    for (size_t a = 0; a < c->axes; a++)
        for (size_t b = a + 1; b < c->axes; b++)
            for (size_t x = 0; x < c->values[a]; x++)
                for (size_t y = 0; y < c->values[b]; y++) {
                    bool met = false;
                    for (size_t r = 0; r < m.count; r++)
                        met |= m.rows[r * c->axes + a] == x && m.rows[r * c->axes + b] == y;
                    if (met != (!possible || possible(a, x, b, y))) fail_msg("axis %zu at %zu, %zu at %zu", a, x, b, y);
                }
    return m;
}

TEST(all_pairs_in_few_rows)
{
    static const struct {
        size_t axes, values[AXES_MAX], most;
    } table[] = {
        { 0, { 0 }, 0 },
        { 2, { 3, 4 }, 12 },
        { 4, { 3, 3, 3, 3 }, 12 }, /* 9 is possible */
        { 8, { 2, 2, 2, 2, 2, 2, 2, 2 }, 9 },
        { 6, { 16, 12, 6, 3, 3, 2 }, 200 }, /* 192 */
        { 3, { 5, 1, 5 }, 25 },
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        const struct ha_cover c = { table[i].axes, table[i].values, alike, NULL, 1, 1 };
        const struct made m = make(&c, NULL);
        if (m.count > table[i].most) fail_msg("list %zu has %zu rows, not %zu", i, m.count, table[i].most);
        free(m.rows);
    }
}

static bool not_too_dear(size_t a, size_t x, size_t b, size_t y) { return a > 0 || b > 1 || x + y <= 10; }

/* Of two axes that cost, all pairs as far as may be, and nothing else beside what is dear. */
TEST(dear_values_are_met_by_cheap_ones)
{
    static const size_t values[] = { 9, 9, 20, 5 };
    const struct ha_cover c = { COUNT(values), values, dear, NULL, 1024, 1 };
    const struct made m = make(&c, not_too_dear);
    double least = 0;
    for (size_t x = 0; x < values[0]; x++)
        for (size_t y = 0; y < values[1]; y++) least += x + y <= 10 ? exp2((double)(x + y)) : 0;
    /* values of the other axes have to meet the dearest ones, too, at 2^8 each */
    least += 2 * exp2(8) * (double)values[2];
    if (m.cost > 1.5 * least) fail_msg("%g, not %g", m.cost, least);
    free(m.rows);
}

static bool picked(size_t a, size_t x, size_t b, size_t y)
{
    if (a == 0 && b == 1) return x != 2 || y != 2;
    return !(a == 2 && b == 3) || x != 1 || y == 1;
}

TEST(what_there_is_not_is_left_out)
{
    static const size_t values[] = { 4, 3, 3, 3 };
    const struct ha_cover c = { COUNT(values), values, picky, NULL, 1, 1 };
    free(make(&c, picked).rows);
    size_t row[4];
    assert_true(isinf(ha_cover_cheapest(&c, 0, 2, 1, 2, row)));
    assert_true(isfinite(ha_cover_cheapest(&c, 0, 3, 2, 1, row)) && row[0] == 3 && row[2] == 1 && row[3] == 1);
}

/* How often it asks what a row costs: a suite builds a case each time. */
TEST(few_questions)
{
    static const size_t values[] = { 16, 20, 12, 9, 6, 5, 3 };
    const struct ha_cover c = { COUNT(values), values, alike, NULL, 1, 1 };
    asked = 0;
    size_t *rows, count;
    assert_int_equal(ha_cover_make(&c, &rows, &count), HA_OK);
    free(rows);
    assert_true(count < 400 && asked < 3 * count);
}

/* ---- every value ------------------------------------------------------------------------------------------------- */

static size_t missing_values(const struct ha_cover *c, const size_t *rows, size_t count)
{
    size_t missing = 0;
    for (size_t a = 0; a < c->axes; a++)
        for (size_t v = 0; v < c->values[a]; v++) {
            size_t r = 0;
            while (r < count && rows[r * c->axes + a] != v) r++;
            missing += r == count;
        }
    return missing;
}

TEST(every_value_in_as_many_rows_as_the_longest_axis_has)
{
    const size_t values[] = { 3, 70, 1, 9 };
    const struct ha_cover c = { .axes = 4, .values = values, .cost = alike, .most = HA_COVER_MIXED };
    size_t *rows, *other, count, others, differ = 0;
    assert_int_equal(ha_cover_values(&c, 1, &rows, &count), HA_OK);
    assert_int_equal(count, 70);
    assert_int_equal(missing_values(&c, rows, count), 0);
    assert_int_equal(ha_cover_values(&c, 2, &other, &others), HA_OK);
    for (size_t i = 0; i < 4 * count && others == count; i++) differ += rows[i] != other[i];
    assert_true(differ > count);
    free(other);
    assert_int_equal(ha_cover_values(&c, 1, &other, &others), HA_OK); /* the same seed, the same rows */
    assert_true(others == count && !memcmp(rows, other, 4 * count * sizeof *rows));
    free(rows);
    free(other);
}

/* A dear value stands beside cheap ones, one that costs too much, or cannot be, is left out. */
TEST(values_within_their_cost)
{
    const size_t values[] = { 12, 12, 4, 4 };
    struct ha_cover c = { .axes = 2, .values = values, .cost = dear, .most = 1024 };
    size_t *rows, count;
    assert_int_equal(ha_cover_values(&c, 1, &rows, &count), HA_OK);
    assert_int_equal(missing_values(&c, rows, count), 2); /* 2^11 of both */
    for (size_t r = 0; r < count; r++) {
        const size_t a = rows[2 * r], b = rows[2 * r + 1], larger = a > b ? a : b;
        assert_true(dear(NULL, rows + 2 * r) <= fmax(1024.0 / HA_COVER_MIXED, 2 * exp2((double)larger)));
    }
    free(rows);
    c = (struct ha_cover){ .axes = 4, .values = values, .cost = picky, .most = 1 };
    assert_int_equal(ha_cover_values(&c, 1, &rows, &count), HA_OK);
    assert_int_equal(missing_values(&c, rows, count), 0);
    for (size_t r = 0; r < count; r++) assert_true(isfinite(picky(NULL, rows + 4 * r)));
    free(rows);
}
