/* What passes by its bound and is no rounding is SUSPECT in cpu_kernels, and what is right is not. */

#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/engine/test_drive.h"
#include "harness/report/row.h"
#include "suites/kernels/suite.h"
#include "suites/test_flaws.h"

static struct ha_kernels good, bad;
static flaw_row *flaw;

static void with(void *arg, void *run) { ha_cpu_run_with(run, arg, 1 << 20); }

static const struct ha_cpu_row *check(const char *id, struct ha_kernels *kernels)
{
    const struct ha_drive d = { .words = id, .seed = "3", .begun = with, .arg = kernels };
    ha_driven_free(&driven);
    if (ha_drive(&d, &driven, &why) != HA_OK) fail_msg("%s", why.text);
    const struct ha_cpu_row *row = entry(0)->row;
    if (!ha_passed(row->head.verdict)) fail_msg("%s: %s", id, row->head.reason);
    assert_true(row->err_over_bound <= 1);
    return row;
}

static void right_then_wrong(const char *id, const char *what)
{
    const struct ha_cpu_row right = *check(id, &good), wrong = *check(id, &bad);
    print_message("%s, %s: err/bound %.3f, rms %.2f, then %.3f, %.2f, bias %+.2f, p %.2g\n", id, what,
                  right.err_over_bound, right.rms, wrong.err_over_bound, wrong.rms, wrong.bias, wrong.head.p);
    assert_true(right.head.p >= 1 && right.rms < 0.75);
    assert_true(wrong.head.p < 1e-12 && wrong.rms > 1);
    assert_contains(wrong.head.suspicion, "larger than those of independent roundings");
}

static int begin(void **state)
{
    if (ha_kernels_resolve(NULL, &good, &why) != HA_OK) return -1;
    bad = good;
    return 0;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static void attend_all(const struct ha_kernels *self, const struct ha_attend_all *all)
{
    good.attend_all(self, all);
    for (size_t u = 0; u < all->count; u++) flaw_attend(&all->units[u], flaw);
}
static void attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    good.attend(self, a);
    flaw_attend(a, flaw);
}

/* long rows, and not a path more than short ones: test_cpu has these */
TEST_WITH(attention_within_its_bound_may_be_no_rounding, begin, driven_end)
{
    if (HA_SANITIZED) skip();
    static const char *const ids[] = {
        "cpu_kernels:ctx=131072,heads=4/2,head_dim=16,dtype=f32",
        "cpu_kernels:layout=natural,ctx=131072,heads=4/2,head_dim=16",
        "cpu_kernels:kernel=append,ctx=131072,q_len=2,heads=4/2,head_dim=16,dtype=f32",
        "cpu_kernels:kernel=blocks,ctx=262144,heads=4/2,head_dim=16,budget=50",
        "cpu_kernels:kernel=gather,ctx=262144,heads=4/2,head_dim=16,dtype=f32,budget=50",
        "cpu_kernels:kernel=sparse,ctx=262144,heads=4/2,head_dim=16,budget=50",
    };
    for (size_t i = 0; i < COUNT(ids); i++)
        for (size_t f = 0; f < FLAWS; f++) {
            flaw = flaws[f].row;
            bad.attend_all = attend_all;
            bad.attend = attend;
            right_then_wrong(ids[i], flaws[f].name);
        }
}

/* ---- the other kernels that round -------------------------------------------------------------------------------- */

static float off(size_t i, float by) { return 1 + by * (2 * ha_rng_uniform(1, 2, i) - 1); }

static void score(const struct ha_score *s)
{
    good.score(s);
    for (size_t i = 0; i < s->rows.keys; i++) s->s[i] *= off(i, 0x1p-19f);
}
static void digest_score(const struct ha_digest_score *s)
{
    good.digest_score(s);
    for (size_t r = 0; r < s->q_rows; r++)
        for (size_t b = 0; b < s->blocks; b++) s->s[r * s->s_stride + b] *= off(b, 0x1p-19f);
}
/* an exp that is off; as large for all */
static void softmax(const struct ha_softmax *s)
{
    good.softmax(s);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t i = 0; i < s->n; i++) s->x[r * s->stride + i] *= off(i, 0x1p-17f);
}
static void softmax_lse(const struct ha_softmax *s)
{
    good.softmax(s);
    for (size_t r = 0; r < s->rows; r++) s->lse[r] += 0x1p-17f;
}

TEST_WITH(other_kernels_within_their_bounds_may_not_either, begin, driven_end)
{
    static const struct {
        struct ha_kernels change;
        const char *id;
    } each[] = {
        { { .score = score }, "cpu_kernels:kernel=score,ctx=500,heads=4/2,head_dim=128" },
        { { .digest_score = digest_score }, "cpu_kernels:kernel=digest_score,ctx=5000,heads=4/2,head_dim=128" },
        { { .digest_score = digest_score }, "cpu_kernels:kernel=sparse,ctx=5000,heads=4/2,head_dim=128" },
        { { .softmax = softmax }, "cpu_kernels:kernel=softmax,ctx=4000,heads=8/2" },
        { { .softmax = softmax_lse }, "cpu_kernels:kernel=softmax,ctx=4000,heads=8/2" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        const struct ha_kernels *c = &each[i].change;
        bad = good;
        if (c->score) bad.score = c->score;
        if (c->digest_score) bad.digest_score = c->digest_score;
        if (c->softmax) bad.softmax = c->softmax;
        right_then_wrong(each[i].id, "planted");
    }
}

/* What is copied or chosen has no errors. */
TEST_WITH(what_is_exact_is_not_asked, begin, driven_end)
{
    static const char *const ids[] = { "cpu_kernels:kernel=pack,ctx=70,heads=2/2,head_dim=24",
                                       "cpu_kernels:kernel=digest,ctx=70,heads=2/2,head_dim=24,block=16",
                                       "cpu_kernels:kernel=topk,ctx=7000,block=16,heads=2/2" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        const struct ha_cpu_row *row = check(ids[i], &good);
        assert_true(isnan(row->rms) && isnan(row->bias) && isnan(row->head.p));
    }
}
