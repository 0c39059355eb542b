/* What the oracle's merge makes of states that are empty, alone, not numbers, extreme or many, in every form. */

#include "reference/test_inputs.h"

#include <float.h>

enum { DIM = 5, MOST = 200 };
#define FOR_FORMS(f) for (enum ha_form f = 0; (int)f < HA_FORM_COUNT; f++)
#define FOR_DIM(i)   for (size_t i = 0; i < DIM; i++)

static struct ha_ref_state part[MOST], out;

static int setup(void **unused)
{
    for (size_t k = 0; k < MOST; k++) part[k] = ha_test_state(DIM);
    out = ha_test_state(DIM);
    return 0;
}

static void make(size_t k, enum ha_form form, double lse)
{
    struct ha_ref_state *s = &part[k];
    s->sum = form == HA_FORM_MAX_SUM ? 1 + (double)k : 1;
    s->max = lse;
    s->lse = s->max + log(s->sum);
    s->lse_bound = 1e-7;
    s->keys = 1 + k;
    FOR_DIM(i)
    {
        s->o[i] = (double)ha_rng_normal(3, k, i);
        s->bound[i] = 1e-7;
        s->v_min[i] = s->o[i] - 1;
        s->v_max[i] = s->o[i] + 1;
    }
}

static void make_empty(size_t k)
{
    part[k].lse = part[k].max = -HUGE_VAL;
    part[k].lse_bound = part[k].sum = (double)NAN;
    part[k].keys = 0;
    FOR_DIM(i) part[k].o[i] = part[k].bound[i] = part[k].v_min[i] = i % 2 ? (double)NAN : HUGE_VAL;
}

static const struct ha_merge_traits traits = {
    .exp_eps = 0x1p-23, .log_eps = 0x1p-23, .depth_extra = 1, .rescales = 1
};

static void merge(enum ha_form form, size_t count)
{
    const struct ha_merge_bound b = ha_bound_merge(&traits, form, HA_F16);
    FOR_DIM(i) out.o[i] = out.bound[i] = out.v_min[i] = out.v_max[i] = (double)NAN;
    ha_ref_merge(part, count, &b, &out);
}

TEST(test_parameters)
{
    const struct ha_merge_traits t = { .exp_eps = 1, .log_eps = 2, .depth_extra = 3, .rescales = 4 };
    const struct ha_merge_bound b = ha_bound_merge(&t, HA_FORM_DIRECT, HA_BF16);
    assert_true(b.form == HA_FORM_DIRECT && b.exp_eps == 1 && b.log_eps == 2 && b.depth_extra == 3 && b.rescales == 4);
    assert_true(b.u_o == 0x1p-8 && b.eta_o == 0x1p-134);
}

TEST(test_alone)
{
    FOR_FORMS(form)
    for (size_t count = 1; count <= 3; count++)
        for (size_t alone = 0; alone < count; alone++) {
            for (size_t k = 0; k < count; k++) make_empty(k);
            make(alone, form, -0.7);
            merge(form, count);
            const struct ha_ref_state *s = &part[alone];
            assert_true(out.lse == s->lse && out.lse_bound == s->lse_bound && out.keys == s->keys && out.max == s->max
                        && out.sum == s->sum);
            assert_memory_equal(out.o, s->o, 4 * DIM * sizeof *out.o); /* bound, v_min and v_max too */
        }
}

TEST(test_empty)
{
    FOR_FORMS(form)
    for (size_t count = 0; count <= 3; count++) {
        for (size_t k = 0; k < count; k++) make_empty(k);
        merge(form, count);
        assert_true(out.lse == -HUGE_VAL && out.max == -HUGE_VAL && out.sum == 0 && out.lse_bound == 0
                    && out.keys == 0);
        FOR_DIM(i) assert_true(out.o[i] == 0 && out.bound[i] == 0 && out.v_min[i] == 0 && out.v_max[i] == 0);
    }
    /* among others an empty part costs nothing */
    FOR_FORMS(form)
    {
        make(0, form, 1);
        make(1, form, 2);
        merge(form, 2);
        const double bound = out.bound[0], o = out.o[0], lse_bound = out.lse_bound;
        make_empty(2);
        merge(form, 3);
        assert_true(out.bound[0] == bound && out.o[0] == o && out.lse_bound == lse_bound && out.v_max[1] < HUGE_VAL);
    }
}

TEST(test_bad_lse)
{
    const double bad[] = { (double)NAN, HUGE_VAL };
    FOR_FORMS(form)
    for (size_t x = 0; x < 2; x++)
        for (size_t count = 1; count <= 3; count++)
            for (size_t at = 0; at < count; at++)
                for (size_t in_sum = 0; in_sum <= (form == HA_FORM_MAX_SUM); in_sum++) {
                    for (size_t k = 0; k < count; k++) make(k, form, 1);
                    if (in_sum) part[at].sum = bad[x];
                    else part[at].max = bad[x];
                    part[at].lse = part[at].max + log(part[at].sum);
                    merge(form, count);
                    assert_true(isnan(out.lse) && isnan(out.max) && isnan(out.sum));
                    FOR_DIM(i) assert_true(isnan(out.o[i]));
                }
}

TEST(test_bad_component)
{
    const double bad[] = { (double)NAN, HUGE_VAL, -HUGE_VAL };
    FOR_FORMS(form)
    for (size_t x = 0; x < 3; x++) {
        double bound[DIM], o[DIM];
        for (size_t k = 0; k < 3; k++) make(k, form, (double)k);
        merge(form, 3);
        memcpy(bound, out.bound, sizeof bound);
        memcpy(o, out.o, sizeof o);
        part[1].o[2] = bad[x];
        merge(form, 3);
        FOR_DIM(i) assert_true(i == 2 || (out.o[i] == o[i] && out.bound[i] == bound[i]));
        assert_true(isfinite(out.lse) && isfinite(out.lse_bound) && !(out.bound[2] < HUGE_VAL));
        assert_true(isnan(bad[x]) ? isnan(out.o[2]) : out.o[2] == bad[x]);
        part[2].o[2] = -bad[x];
        merge(form, 3);
        assert_true(isnan(out.o[2]));
    }
}

/* LSEs as far apart and as large as binary32 has them; results are merged again */
TEST(test_extreme)
{
    static const double big = (double)FLT_MAX;
    const double lse[][2] = { { big, -big }, { big, big }, { -big, -big }, { 1e30, -1e30 },
                              { 1e30, 0 },   { 0, -big },  { 1e10, 1e10 } };
    FOR_FORMS(form)
    for (size_t x = 0; x < sizeof lse / sizeof lse[0]; x++) {
        for (size_t k = 0; k < 2; k++) {
            make(k, form, lse[x][k]);
            part[k].lse_bound = 0;
            FOR_DIM(i) part[k].o[i] = part[k].v_min[i] = part[k].v_max[i] = (i % 2 ? -big : big) / (1 + (double)k);
        }
        merge(form, 2);
        for (size_t again = 0; again < 3; again++) {
            assert_true(isfinite(out.lse) && out.lse_bound >= 0 && out.max >= fmax(lse[x][0], lse[x][1]));
            FOR_DIM(i)
            {
                assert_true(isfinite(out.o[i]) && out.bound[i] > 0);
                assert_true(out.v_min[i] <= out.o[i] && out.o[i] <= out.v_max[i]);
                /* a weight that is used as it is may be exp(u |L|) */
                assert_true(form == HA_FORM_DIRECT || (isfinite(out.v_min[i]) && isfinite(out.v_max[i])));
            }
            const struct ha_ref_state swap = part[0];
            part[0] = out;
            out = swap;
            merge(form, 2);
        }
    }
}

/* at least that, and hardly more */
static bool just(double x, double least, double more) { return x >= least && x <= least * (1 + more); }

/* where no weight is known, weights that are divided by their sum still keep o between the values, and others each in
 * [0, 1] */
TEST(test_range)
{
    FOR_FORMS(form)
    {
        for (size_t k = 0; k < 3; k++) {
            make(k, form, 0);
            FOR_DIM(i)
            {
                part[k].v_min[i] = k == 0 ? -2 : k == 1 ? -1 : 3;
                part[k].v_max[i] = k == 0 ? -1 : k == 1 ? 1 : 4;
            }
        }
        part[0].lse_bound = 3;
        const struct ha_merge_bound b = ha_bound_merge(&traits, form, HA_F32);
        ha_ref_merge(part, 3, &b, &out);
        const bool direct = form == HA_FORM_DIRECT;
        FOR_DIM(i)
        {
            assert_true(just(-out.v_min[i], direct ? 3 : 2, 1e-5) && just(out.v_max[i], direct ? 5 : 4, 1e-5));
            assert_true(out.bound[i] == fmax(out.v_max[i] - out.o[i], out.o[i] - out.v_min[i]));
        }
        /* the range of a part that does not say is o -+ bound */
        struct ha_ref_state silent[3];
        memcpy(silent, part, sizeof silent);
        silent[2].v_min = silent[2].v_max = NULL;
        FOR_DIM(i) part[2].o[i] = 7, part[2].bound[i] = 0.5;
        ha_ref_merge(silent, 3, &b, &out);
        FOR_DIM(i)
        assert_true(just(-out.v_min[i], direct ? 3 : 2, 1e-5) && just(out.v_max[i], direct ? 8.5 : 7.5, 1e-5));
        const double with_range = out.bound[0];
        double *lo = out.v_min, *hi = out.v_max;
        out.v_min = out.v_max = NULL;
        ha_ref_merge(silent, 3, &b, &out);
        assert_true(out.bound[0] == with_range && with_range < HUGE_VAL);
        out.v_min = lo;
        out.v_max = hi;
    }
}

static bool near_to(double a, double b, double relative) { return fabs(a - b) <= relative * fabs(b); }
static bool near(double a, double b) { return near_to(a, b, 1e-12); }

/* more states than weights are kept of, in two orders */
TEST(test_many)
{
    FOR_FORMS(form)
    {
        for (size_t k = 0; k < MOST; k++) make(k, form, (double)ha_rng_normal(1, k, 9));
        merge(form, MOST);
        struct ha_ref_state first = out;
        out = ha_test_state(DIM);
        for (size_t k = 0; k < MOST / 2; k++) {
            const struct ha_ref_state swap = part[k];
            part[k] = part[MOST - 1 - k];
            part[MOST - 1 - k] = swap;
        }
        merge(form, MOST);
        assert_true(near(out.lse, first.lse) && near(out.lse_bound, first.lse_bound) && near(out.sum, first.sum));
        FOR_DIM(i) assert_true(fabs(out.o[i] - first.o[i]) < 1e-14 && near(out.bound[i], first.bound[i]));
    }
}

/* What an offset of all scores costs: nothing where (max, sum) is stored, else u|L|, which a direct merge has in o,
 * too. */
TEST(test_offset)
{
    FOR_FORMS(form)
    {
        double bound[2], lse_bound[2];
        for (size_t x = 0; x < 2; x++) {
            for (size_t k = 0; k < 3; k++) make(k, form, (double)k + (x ? 0x1p20 : 0));
            const struct ha_merge_bound b = ha_bound_merge(&traits, form, HA_F32);
            ha_ref_merge(part, 3, &b, &out);
            bound[x] = out.bound[0];
            lse_bound[x] = out.lse_bound;
        }
        assert_true(form == HA_FORM_DIRECT ? bound[1] > 1e4 * bound[0] : bound[1] == bound[0]);
        assert_true(form == HA_FORM_MAX_SUM ? near_to(lse_bound[1], lse_bound[0], 1e-2) : lse_bound[1] > 0x1p-4);
    }
}

TEST_MAIN { return test_all("tests", setup, NULL); }
