/* What passes by its bound and is no rounding: the check says how unlikely it is. reference/test_chance.c has the
 * statistics; this is about the rows that they are made of. */

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/report/row.h"
#include "suites/variants/check.h"
#include "suites/variants/fill.h"
#include "suites/variants/test_session.h"

static float *lse_of(const struct ha_attend *a, size_t row)
{
    return a->lse + row / a->group * a->lse_token_stride + row % a->group * a->lse_head_stride;
}

static void lift(const struct ha_attend *a, float by)
{
    for (size_t r = 0; r < a->q_len * a->group; r++) *lse_of(a, r) += by;
}
/* as an exp does that is so much too large */
static void exp_too_large(const struct ha_attend *a) { lift(a, 0x1p-18f); }
static void exp_twice_as_large(const struct ha_attend *a) { lift(a, 0x1p-17f); }

/* as weights of 15 bits do */
static void weights_too_short(const struct ha_attend *a)
{
    for (size_t r = 0; r < a->q_len * a->group; r++) {
        float *o = a->o + r / a->group * a->q_token_stride + r % a->group * a->q_head_stride;
        for (size_t d = 0; d < a->head_dim; d++) o[d] *= 1 + 0x1p-16f * (2 * ha_rng_uniform(r, 1, d) - 1);
    }
}

/* the check's row of a case with this defect */
static struct ha_row check(const char *id, void (*answer)(const struct ha_attend *a), double *rows)
{
    const struct ha_mutant mutant = { .name = "this", .answer = answer };
    struct ha_check c = { .session = &session, .id = id };
    struct ha_row row;
    opened = (struct test_session){ 0 };
    session = (struct ha_session){ 0 };
    ha_fields_clear(&ha_suite_variants, &row);
    assert_ok(ha_case_parse(id, &opened.c, &reason));
    assert_ok(ha_machine_create(&opened.machine, NULL, &reason));
    assert_ok(ha_shared_open(&opened.shared, opened.machine, false, &reason));
    assert_ok(ha_session_open(&session, &opened.shared, &opened.c, answer ? &mutant : NULL, &reason));
    assert_ok(ha_check_run(&c, &reason)); /* within every bound */
    ha_fill_check(&row, &c);
    *rows = (double)c.total.chances.rows;
    ha_check_free(&c);
    close_session();
    return row;
}

TEST(what_is_within_bounds_may_be_no_rounding)
{
    static const struct {
        const char *id;
        double rows; /* some of 64; all of 16 */
        void (*answer)(const struct ha_attend *a);
    } each[] = {
        { "cpu:ctx=120,heads=8/2,head_dim=64,layers=2,steps=2,threads=1", 32, exp_too_large },
        { "cpu:ctx=3000,heads=8/2,head_dim=64,layers=1,steps=2,threads=1", 16, weights_too_short },
        { "cpu:dataset=sinks,ctx=3000,heads=8/2,head_dim=64,layers=1,steps=2,threads=1,dtype=f16", 16,
          weights_too_short },
        /* of two parts that are merged, that of the CPU */
        { "hgca:ctx=500,heads=8/2,head_dim=64,layers=2,steps=2,threads=1,blk_size=8,blk_num=8,beta=-1", 32,
          exp_twice_as_large },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        double rows[2];
        const struct ha_row right = check(each[i].id, NULL, &rows[0]),
                            wrong = check(each[i].id, each[i].answer, &rows[1]);
        print_message("%s: rms %.2f, then %.2f, bias %+.2f, p %.2g\n", each[i].id, right.rms, wrong.rms, wrong.bias,
                      wrong.head.p);
        assert_true(rows[0] >= each[i].rows && rows[1] >= each[i].rows);
        assert_true(right.head.p >= 1 && right.rms < 0.75 && wrong.err_over_bound <= 1);
        assert_true(wrong.head.p < 1e-12 && wrong.rms > 1);
        assert_contains(wrong.head.suspicion, "larger than those of independent roundings");
    }
}

/* Of many rows, and of long ones, a sample is looked at, not all. */
TEST(of_many_rows_a_sample_is_looked_at)
{
    double rows;
    const struct ha_row many = check("cpu:ctx=20,heads=16/2,head_dim=64,layers=2,steps=20,threads=1", NULL, &rows);
    assert_true(many.rms < 0.75);
    assert_true(rows > 32 && rows < 128); /* of 640 */
}
