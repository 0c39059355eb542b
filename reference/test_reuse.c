/* What the definition of CLO is made of: codes with bits that rounding leaves open, cosines of queries that are known
 * up to rounding, and sets of persistent heads. */

#include "reference/definitions.h"

#include "harness/base/fit.h"
#include "harness/base/test.h"
#include "harness/base/why.h"

#include <math.h>

static struct ha_why why;

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* By hand: a product that is 0 leaves a bit open, a row of zeros leaves none; a score with an open bit is either. */
TEST(test_codes_by_hand)
{
    float a[32][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 1, 1 } };
    double square[32];
    struct ha_def_code zero, one, open;
    ha_def_code_squares(a[0], 32, 2, square);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 0, 0 }, NULL, &zero);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 3, 4 }, NULL, &one);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1, -1 }, NULL, &open);
    assert_true(zero.bit[0] == 0 && zero.open[0] == 0 && zero.most == 0);
    assert_true(one.bit[0] == 0xb && one.open[0] == 0);
    assert_true((open.bit[0] & 7) == 1 && open.open[0] == 8);
    /* one and open differ in bit 1, and may in bit 3: 5 times 32 - 2, or 32 - 4 */
    const struct ha_ref_score s = ha_def_code_score(&open, &one, 32);
    assert_true(s.low <= 140 && s.low > 139.99 && s.high >= 150 && s.high < 150.01);
    const struct ha_ref_score none = ha_def_code_score(&one, &zero, 32);
    assert_true(none.low == 0 && none.high == 0);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1e30, 1 }, NULL, &one);
    const struct ha_ref_score any = ha_def_code_score(&open, &one, 32);
    assert_true(any.low == -HUGE_VAL && any.high == HUGE_VAL);
    /* sums that may overflow */
    ha_def_code(a[0], square, 32, 2, (const double[]){ 3e38, 2e38 }, NULL, &one);
    assert_true(one.open[0] == 0xf);
    /* a negative product of an uncertain norm */
    for (size_t i = 0; i < 32; i++) a[i][0] = 1, a[i][1] = 0;
    ha_def_code_squares(a[0], 32, 2, square);
    ha_def_code(a[0], square, 32, 2, (const double[]){ 1, 0 }, NULL, &one);
    ha_def_code(a[0], square, 32, 2, (const double[]){ -1, 0 }, NULL, &open);
    const struct ha_ref_score least = ha_def_code_score(&open, &one, 32);
    assert_true(least.low < -32 && least.high > -32 && least.high < -31.99 && least.low > -32.01);
}

/* ---- cosines ----------------------------------------------------------------------------------------------------- */

static bool near(double a, double b) { return fabs(a - b) < 1e-5; }

TEST(test_cosine)
{
    /* 24 / 25 of what is known, up to what binary32 makes of it; a quarter of a degree either way */
    const double x[2] = { 3, 4 }, y[2] = { 4, 3 }, about[2] = { 0.01, 0.02 };
    const struct ha_ref_score exact = ha_def_cosine(x, NULL, y, NULL, 2), turned = ha_def_cosine(x, about, y, NULL, 2);
    const double by = asin(sqrt(0.0005) / 5), angle = acos(0.96);
    assert_true(near(exact.value, 0.96) && exact.low < 0.96 && exact.high > 0.96 && exact.high - exact.low < 4e-6);
    assert_true(near(turned.low, cos(angle + by)) && near(turned.high, cos(angle - by)));
    assert_true(turned.low < cos(angle + by) && turned.high > cos(angle - by));
    const double one[2] = { 1, 0 }, none[2] = { 0, 0 }, off[2] = { 1, 1 }, tiny[2] = { 1e-30, 0 },
                 most[2] = { 1e25, 1 };
    assert_true(isnan(ha_def_cosine(one, NULL, none, NULL, 2).low));
    assert_true(isnan(ha_def_cosine(none, NULL, one, off, 2).low));
    assert_true(ha_def_cosine(one, off, one, NULL, 2).low == -HUGE_VAL);
    assert_true(ha_def_cosine(one, NULL, tiny, NULL, 2).high == HUGE_VAL);
    assert_true(ha_def_cosine(most, NULL, one, NULL, 2).high == HUGE_VAL);
}

TEST(test_cosine_group)
{
    const double nan = (double)NAN, by[] = { 1, 3 };
    const struct ha_ref_score half = { 0.5, 0.4, 0.6 }, one = { 1, 0.9, 1 }, not = { -0.1, -0.2, -0.05 },
                              maybe = { 0.01, -0.1, 0.1 }, none = { nan, nan, nan }, any = { 0.5, -HUGE_VAL, HUGE_VAL };
    struct ha_ref_score s = ha_def_cosine_group((const struct ha_ref_score[]){ half, one }, by, 2, true);
    assert_true(near(s.value, 4 / (1 / 0.5 + 3)) && near(s.low, 4 / (1 / 0.4 + 3 / 0.9))
                && near(s.high, 4 / (1 / 0.6 + 3)));
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, half }, by, 2, false);
    assert_true(s.value == 0.5 && s.low == 0.4 && s.high == 0.6);
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, not }, by, 2, true);
    assert_true(s.value == -0.1 && s.low == -0.2 && s.high == -0.05);
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, maybe }, by, 2, true);
    assert_true(s.low == -0.1 && near(s.high, 4 / (1 + 3 / 0.1)));
    assert_true(isnan(ha_def_cosine_group((const struct ha_ref_score[]){ one, none }, by, 2, true).low));
    assert_true(isnan(ha_def_cosine_group((const struct ha_ref_score[]){ one, none }, by, 2, false).low));
    s = ha_def_cosine_group((const struct ha_ref_score[]){ one, any }, by, 2, true);
    assert_true(s.low == -HUGE_VAL && s.high == HUGE_VAL);
}

/* ---- persistent heads -------------------------------------------------------------------------------------------- */

enum { LAYERS = 3, HEADS = 3, BEHIND = (LAYERS - 1) * HEADS };

static enum ha_status judge(const double *d, double fetched, double room, unsigned set)
{
    double difficulty[LAYERS * HEADS] = { 0 };
    uint8_t persistent[LAYERS * HEADS];
    struct ha_def_reuse r = { .layers = LAYERS,
                              .q_heads = HEADS,
                              .kv_heads = HEADS,
                              .difficulty = difficulty,
                              .prefetched = { fetched, fetched },
                              .room = { room, room },
                              .persistent = persistent };
    memset(persistent, HA_DEF_MAYBE, sizeof persistent);
    memcpy(difficulty + HEADS, d, BEHIND * sizeof *d);
    for (size_t i = 0; i < LAYERS * HEADS; i++) {
        const struct ha_def_head h = { .variant = "v", .layer = i / HEADS, .head = i % HEADS };
        HA_TRY(ha_def_reuse_judge(&r, &h, i < HEADS || (set >> (i - HEADS) & 1), &why));
    }
    return HA_OK;
}

/* What is wrong is named. */
TEST(test_sets_by_hand)
{
    static const struct {
        double d[BEHIND], fetched, room;
        unsigned set;
        const char *says; /* NULL: it is right */
    } each[] = {
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 011, NULL },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 012, "layer 1 seq 0 head 0: note persistent is 0: difficulty 0.5" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 1, 9, 013, "layer 1 seq 0 head 1: note persistent is 1: difficulty 0.2" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 1, 011, "note persistent is 1: the budget has room for 1 heads" },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 1, 010, NULL },
        { { 0.5, 0.2, -0.1, 0.6, 0.4, -0.3 }, 0, 2, 010, "note persistent is 0" },
        /* one of two */
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 01, NULL },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 02, NULL },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 03, "2 heads of layer 1 are persistent, 1 are hard" },
        { { 0.5, 0.5, -1, -1, -1, -1 }, 1, 9, 00, "is not persistent, and the budget has room" },
        { { 0.5, -1, -1, 0.5, -1, -1 }, 0, 1, 011, "2 heads behind the first layer are persistent, the budget has" },
        { { 0.5, -1, -1, 0.5, -1, -1 }, 0, 1, 010, NULL },
        /* each is near the next one, and the first is not near the last; of two that may be hard */
        { { 0, 3e-10, 1.2e-9, -1, -1, -1 }, 1, 9, 01, "of layer 1 KV head 0 (difficulty 0) is persistent, 2" },
        { { 0.3, 0.3 + 7e-10, -1, 0.3 + 7e-10, 0.3 + 1.2e-9, -1 }, 0, 2, 03, "and one that is less hard is" },
        { { 0.3, 0.3 + 7e-10, -1, 0.3 + 7e-10, 0.3 + 1.2e-9, -1 }, 0, 2, 012, NULL },
        { { 0.3, -1, -1, 0.3 + 8e-10, 0.3 + 1.2e-9, 0.3 + 9e-10 },
          0,
          2,
          011,
          "KV head 1 of layer 2 (difficulty 0.3) is not" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        why = (struct ha_why){ "" };
        const enum ha_status status = judge(each[i].d, each[i].fetched, each[i].room, each[i].set);
        if (status != (each[i].says ? HA_FAIL : HA_OK) || (each[i].says && !strstr(why.text, each[i].says)))
            fail_msg("set %zu: %d: %s", i, (int)status, why.text);
    }
}

/* ---- what the fit gives ------------------------------------------------------------------------------------------ */

/* Two layers of two query heads, and as many KV heads: importance of either, similarity, pace. */
static struct ha_fit *fit_of(const float number[14])
{
    static const char header[] = "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"clo\","
                                 "\"params\":\"\",\"model\":\"m\","
                                 "\"layers\":\"2\",\"q_heads\":\"2\",\"kv_heads\":\"2\",\"head_dim\":\"1\",\"model_"
                                 "dim\":\"1\",\"dataset\":\"d\",\"seed\":\"1\","
                                 "\"case\":\"c\",\"habench\":\"h\"},\"importance_q\":{\"dtype\":\"F32\",\"shape\":[2,2]"
                                 ",\"data_offsets\":[0,16]},"
                                 "\"importance_kv\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[16,32]},"
                                 "\"similarity\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
                                 "\"pace\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]}}";
    static char file[8 + sizeof header - 1 + 56];
    const uint64_t bytes = sizeof header - 1;
    struct ha_fit *fit = NULL;
    memcpy(file, &bytes, 8);
    memcpy(file + 8, header, bytes);
    memcpy(file + 8 + bytes, number, 56);
    if (ha_fit_parse(&fit, "test", file, sizeof file, &why) != HA_OK) fail_msg("%s", why.text);
    return fit;
}

TEST(test_fit_by_hand)
{
    static const struct ha_shape shape = { .layers = 2, .batch = 1, .q_heads = 2, .kv_heads = 2 };
    float number[14] = { 0.25f, 0, 1, 1, 1, 0.5f, 0, 1, 0.25f, 0.5f, 0.75f, 1, 2, 3 };
    /* cos(by pi / 3 + (1 - by) pi) */
    struct ha_def_reuse_rule rule = { .eta = 0.5,
                                      .p = 1,
                                      .eps = 0.25,
                                      .adaptive = true,
                                      .hard = true,
                                      .buffer_bytes = 4,
                                      .whole_bytes = 2,
                                      .budget_bytes = 10 };
    struct ha_def_reuse r;
    struct ha_fit *fit = fit_of(number);
    assert_int_equal(ha_def_reuse_create(&r, &shape, &rule, fit, &why), HA_OK);
    assert_true(near(r.importance[0], 0.25) && r.importance[1] > 0 && r.importance[1] < 1e-2 && r.importance[3] == 1);
    assert_true(near((double)r.least[0], 0.5) && near((double)r.most[1], -0.5) && near((double)r.least[2], -1));
    assert_true(near(r.difficulty[0], 0.5) && near(r.difficulty[1], -0.75) && near(r.difficulty[3], -0.25));
    assert_true(r.prefetched[0] == 1 && r.prefetched[1] == 1 && r.room[0] == 2
                && r.room[1] == 3); /* 5 is as good as whole */
    ha_def_reuse_end(&r);
    rule.p = 2; /* a quarter of the way */
    rule.budget_bytes = rule.buffer_bytes = 0;
    assert_int_equal(ha_def_reuse_create(&r, &shape, &rule, fit, &why), HA_OK);
    assert_true(near((double)r.least[1], cos(acos(-1) * (0.25 / 3 + 0.75))));
    assert_true(isinf(r.prefetched[0]) && isinf(r.room[0]) && isinf(r.room[1]));
    ha_def_reuse_end(&r);
    rule.adaptive = false;
    assert_int_equal(ha_def_reuse_create(&r, &shape, &rule, NULL, &why), HA_OK);
    assert_true(near((double)r.least[1], 0.5) && r.importance[1] == 1 && !r.difficulty && r.prefetched[1] == 0);
    ha_def_reuse_end(&r);
    ha_fit_close(fit);
    for (size_t i = 0; i < 2; i++) {
        static const char *const says[] = { "importance_q of layer 1 head 0 is 1.5",
                                            "importance_kv of layer 1 head 0 is" };
        float wrong[14];
        memcpy(wrong, number, sizeof wrong);
        wrong[2 + 4 * i] = i ? -0.5f : 1.5f;
        fit = fit_of(wrong);
        assert_int_equal(ha_def_reuse_create(&r, &shape, &rule, fit, &why), HA_ERROR);
        assert_non_null(strstr(why.text, says[i]));
        ha_def_reuse_end(&r);
        ha_fit_close(fit);
    }
}
