/* merge, through every table: against a plain binary64 merge written here, and against the bound of ha_ref_merge.
 * Linked a second time with a table of the CUDA kernels. */

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "kernels/test_merge_data.h"

#include <float.h>
#include <math.h>

static double worst[HA_TEST_TABLES_MAX][HA_FORM_COUNT];
static bool small;
static size_t problems; /* random ones */

static void say(const struct ha_test_merge *p, const struct ha_kernels *t, size_t r, double got, double want,
                double allowed)
{
    printf("%s %s %s: %zu states, %zu x %zu rows, dim %zu, layout %d, alias %d: row %zu: %.9g, not %.9g +- %g\n",
           t->name, ha_form_name(p->form), ha_dtype_name(p->dtype), p->count, p->tokens, p->heads, p->dim, p->rows,
           p->alias, r, got, want, allowed);
    fail();
}

/* The definition, and a tolerance that can be checked by eye: for each state, rounding of a difference of levels
 * (in the form that uses LSE as they are stored, of the LSE themselves) and a rounding for each of its operations. */
static void check_plain(const struct ha_test_merge *p, const struct ha_kernels *t, size_t r)
{
    const double u = 0x1p-24;
    double max = -HUGE_VAL, sum = 0;
    for (size_t i = 0; i < p->count; i++) max = fmax(max, ha_test_merge_lse(p, i, r));
    for (size_t i = 0; i < p->count; i++) sum += exp(ha_test_merge_lse(p, i, r) - max);
    const double lse = max + log(sum), got_lse = ha_test_merge_natural(p, p->got_level[r], p->got_sum[r]);
    const double lse_slack = u * ((double)p->count + 8 + 2 * fabs(lse));
    if (max == -HUGE_VAL ? got_lse != max : !(fabs(got_lse - lse) <= lse_slack)) say(p, t, r, got_lse, lse, lse_slack);
    for (size_t d = 0; d < p->dim; d++) {
        double want = 0, slack = ha_dtype_eta(p->dtype) + 0x1p-149;
        for (size_t i = 0; i < p->count; i++) {
            if (ha_test_merge_is_empty(p, i, r)) continue;
            const double below = ha_test_merge_lse(p, i, r) - lse,
                         term = exp(below) * (double)ha_test_merge_o(p, i, r)[d];
            const double levels = 3 * fabs(below) + (p->form == HA_FORM_DIRECT ? 2 * fabs(lse) : 0);
            want += term;
            slack += fabs(term) * u * (2 * (double)p->count + 12 + levels);
        }
        slack += ha_dtype_unit(p->dtype) * (fabs(want) + slack);
        const double got = (double)p->got_o[r * p->dim + d];
        if (!(fabs(got - want) <= slack)) say(p, t, r, got, want, slack);
    }
}

static void check_bound(const struct ha_test_merge *p, const struct ha_kernels *t, size_t r)
{
    const struct ha_test_merge_error e = ha_test_merge_judge(p, r, &t->traits);
    if (!(e.o <= 1)) say(p, t, r, e.o, 0, 1);
    if (!(e.lse <= 1)) say(p, t, r, e.lse, 0, 1);
    double *most = &worst[t - ha_test_tables][p->form];
    if (p->dtype == HA_F32) *most = fmax(*most, fmax(e.o, e.lse)); /* in 16 bits it is the output's rounding */
}

static void check(struct ha_test_merge p, enum ha_test_spread spread, uint64_t seed)
{
    ha_test_merge_spread(&p, spread, seed);
    HA_TEST_ALL(t)
    {
        ha_test_merge_run(&p, t);
        for (size_t r = 0; r < p.tokens * p.heads; r++) {
            check_plain(&p, t, r);
            check_bound(&p, t, r);
        }
    }
    ha_test_merge_free(&p);
}

/* ---- tests --------------------------------------------------------------------------------- */

TEST(every_form_and_type)
{
    static const size_t counts[] = { 1, 2, 3, 17 }, dims[] = { 80, 19, 300 };
    for (size_t n = 0; n < 4 * 3 * 4 * 3 * 4; n += small ? 5 : 1) {
        const struct ha_test_merge p = {
            .form = (enum ha_form)(n % 4),
            .dtype = (enum ha_dtype)(n / 4 % 3),
            .rows = (enum ha_test_rows)(n / 12 % 4),
            .alias = (enum ha_alias)(n / 48 % 3),
            .count = counts[n / 144],
            .tokens = 2,
            .heads = 3,
            .dim = dims[n % 5 % 3],
        };
        check(p, (enum ha_test_spread)(n % 7 % HA_TEST_SPREADS), n);
    }
}

TEST(every_size)
{
    static const size_t counts[] = { 1, 2, 130, 530, 3, 4, 8, 15, 16, 17, 33, 63, 64, 65, 160, 511, 512, 513, 1100 };
    static const size_t dims[] = { 8, 80, 300, 1, 7, 31, 64, 96, 112, 120, 127, 128, 129, 255, 256, 257, 520 };
    uint64_t seed = 1;
    for (size_t c = 0; c < (small ? 4 : COUNT(counts)); c++)
        for (size_t d = 0; d < (small ? 3 : COUNT(dims)); d++, seed++)
            for (enum ha_test_spread spread = HA_TEST_EQUAL; spread < HA_TEST_SPREADS; spread++) {
                if (counts[c] > 100 && (seed + spread) % 4) continue;
                const struct ha_test_merge p = { .form = (enum ha_form)((seed + spread) % HA_FORM_COUNT),
                                                 .count = counts[c],
                                                 .tokens = 1,
                                                 .heads = 2,
                                                 .dim = dims[d],
                                                 .rows = HA_TEST_ODD_STRIDES,
                                                 .dtype = (enum ha_dtype)(seed % HA_DTYPE_COUNT) };
                check(p, spread, seed);
            }
}

TEST(any_problem)
{
    for (uint64_t seed = 0; seed < problems; seed++) {
        static const uint64_t below[] = {
            HA_FORM_COUNT, HA_DTYPE_COUNT, HA_TEST_ROWS, 3, HA_TEST_SPREADS, 12, 4, 5, 280
        };
        size_t x[9];
        for (size_t i = 0; i < 9; i++) x[i] = (size_t)ha_rng_below(seed, 77, i, below[i]);
        const struct ha_test_merge p = { .form = (enum ha_form)x[0],
                                         .dtype = (enum ha_dtype)x[1],
                                         .rows = (enum ha_test_rows)x[2],
                                         .alias = (enum ha_alias)x[3],
                                         .count = 1 + x[5],
                                         .tokens = 1 + x[6],
                                         .heads = 1 + x[7],
                                         .dim = 1 + x[8] };
        check(p, (enum ha_test_spread)x[4], seed);
    }
}

/* of the largest and smallest levels too; against a formula in which nothing large is subtracted */
TEST(wide_gaps)
{
    static const float pairs[][2] = {
        { 0, 0 },       { 0, -0.0f },     { 1e-7f, -0.0f }, { 100, 99 },           { 1000, 999 },
        { -120, -121 }, { -1000, -1001 }, { -6e4f, -6e4f }, { -1e5f, -1e5f },      { 88, 0 },
        { 94, 0 },      { 104, 0 },       { 150, 0 },       { FLT_MAX, -FLT_MAX }, { 1e30f, -1e30f },
    };
    for (size_t i = 0; i < COUNT(pairs); i++)
        for (int form = HA_FORM_NATURAL; form < HA_FORM_COUNT; form++)
            for (int swap = 0; swap < 2; swap++) {
                struct ha_test_merge p = { .form = (enum ha_form)form, .count = 2, .tokens = 1, .heads = 1, .dim = 19 };
                ha_test_merge_make(&p, i);
                for (size_t k = 0; k < 2; k++) *ha_test_merge_level(&p, k, 0) = pairs[i][k ^ (size_t)swap];
                const double unit = form == HA_FORM_BASE2 ? M_LN2 : 1, a = (double)pairs[i][0], b = (double)pairs[i][1],
                             w = exp((b - a) * unit);
                const double slack = form == HA_FORM_DIRECT ? 4 * fabs(a) + 8 : 2;
                HA_TEST_ALL(t)
                {
                    ha_test_merge_run(&p, t);
                    const double sum = form == HA_FORM_MAX_SUM ? log((double)p.got_sum[0]) : 0;
                    assert_true(fabs((double)p.got_level[0] + sum - (a + log1p(w) / unit))
                                <= 4 * 0x1p-24 * (fabs(a) + 1));
                    for (size_t d = 0; d < p.dim; d++) {
                        const double x = (double)ha_test_merge_o(&p, (size_t)swap, 0)[d],
                                     y = (double)ha_test_merge_o(&p, (size_t)!swap, 0)[d];
                        const double want = (x + w * y) / (1 + w);
                        const double allowed = 0x1p-24 * (8 + slack) * (fabs(x) + w * fabs(y));
                        if (!(fabs((double)p.got_o[d] - want) <= allowed))
                            say(&p, t, 0, (double)p.got_o[d], want, allowed);
                    }
                }
                ha_test_merge_free(&p);
            }
}

static int report(void **state)
{
    HA_TEST_ALL(t)
    for (int f = 0; f < HA_FORM_COUNT; f++)
        printf("%s %s: worst error / bound of f32 %.3f\n", t->name, ha_form_name((enum ha_form)f),
               worst[t - ha_test_tables][f]);
    return 0;
}

int main(int argc, char **argv)
{
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    problems = (argc > 2 ? strtoul(argv[2], NULL, 10) : 5000) / (small ? 16 : 1);
    return test_all("tests", ha_test_tables_setup, report);
}
