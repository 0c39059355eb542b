/* The definition of InfiniGen by hand: what may have been learnt, and what a threshold chooses. */

#include "reference/definitions.h"

#include "harness/base/test.h"

#include <math.h>

/* ---- a basis in which four observed queries lie along an axis each, of different lengths ------------------------- */

enum { DIM = 4, COLUMNS = 2, NUMBERS = DIM * DIM + COLUMNS, KEYS = 3 };
static const double right[NUMBERS] = { 0.5, 0.5,  0.5,  0.5, 0.5,  -0.5, 0.5, -0.5, 0.5,
                                       0.5, -0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0,    1 };
static const float keys[KEYS][DIM] = { { 1, 1, 1, 1 }, { 1, -1, 1, -1 }, { 2, 0, 2, 0 } };
static const struct ha_shape shape = {
    .layers = 1, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = DIM, .dtype = HA_F32, .scale = 1, .ctx = { KEYS }
};
static struct ha_why why;

/* What is said of these numbers, after those of `before` if there are any; observed: as the rows of the right basis. */
static enum ha_status learnt(const double *numbers, size_t count, size_t observed, const double *before)
{
    static const float size[DIM] = { 8, 4, 2, 1 };
    float q[DIM][DIM];
    for (size_t i = 0; i < DIM; i++)
        for (size_t d = 0; d < DIM; d++) q[i][d] = size[i] * (float)right[i * DIM + d];
    struct ha_def_skew s = { .q = NULL };
    struct ha_selection chosen = { .learnt = before, .learnt_count = NUMBERS };
    struct ha_def_head h = {
        .variant = "v", .tokens = KEYS + 1, .k = keys, .q = q[0], .queries = observed, .chosen = &chosen
    };
    assert_int_equal(ha_def_skew_observe(&s, &shape, &h, &why), HA_OK);
    if (before) assert_int_equal(ha_def_skew_judge(&s, &shape, &h, COLUMNS, &why), HA_OK);
    chosen.learnt = numbers;
    chosen.learnt_count = count;
    const enum ha_status status = ha_def_skew_judge(&s, &shape, &h, COLUMNS, &why);
    ha_def_skew_end(&s);
    return status;
}

static void refused(const double *numbers, size_t count, size_t observed, const double *before, const char *text)
{
    assert_int_equal(learnt(numbers, count, observed, before), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}

TEST(what_was_learnt)
{
    double x[NUMBERS], turned[NUMBERS];
    memcpy(x, right, sizeof x);
    assert_int_equal(learnt(x, NUMBERS, DIM, NULL), HA_OK);
    for (size_t d = 0; d < DIM; d++) x[2 * DIM + d] = -right[2 * DIM + d]; /* vectors have no sign */
    assert_int_equal(learnt(x, NUMBERS, DIM, NULL), HA_OK);
    refused(x, NUMBERS, DIM, right, "is not what it was before");
    refused(right, NUMBERS - 1, DIM, NULL, "17 numbers were learnt");

    memcpy(x, right, sizeof x);
    x[5] *= 1 + 1e-12;
    refused(x, NUMBERS, DIM, NULL, "is not orthonormal");
    /* two of its rows a little further round: orthonormal, and of other queries */
    memcpy(turned, right, sizeof turned);
    for (size_t d = 0; d < DIM; d++) {
        const double a = 1e-9, one = right[d], other = right[DIM + d];
        turned[d] = one * cos(a) - other * sin(a);
        turned[DIM + d] = one * sin(a) + other * cos(a);
    }
    refused(turned, NUMBERS, DIM, NULL, "not orthogonal");
    /* where nothing was seen along them they may be turned */
    assert_int_equal(learnt(right, NUMBERS, 1, NULL), HA_OK);
    memcpy(turned, right, sizeof turned);
    for (size_t d = 0; d < DIM; d++) {
        turned[2 * DIM + d] = (right[2 * DIM + d] + right[3 * DIM + d]) / sqrt(2);
        turned[3 * DIM + d] = (right[2 * DIM + d] - right[3 * DIM + d]) / sqrt(2);
    }
    assert_int_equal(learnt(turned, NUMBERS, 2, NULL), HA_OK);
    refused(right, NUMBERS, 0, NULL, "is not the identity");

    memcpy(x, right, sizeof x);
    x[NUMBERS - 1] = 2;
    refused(x, NUMBERS, DIM, NULL, "column 2 (magnitude 2) is kept, column 1");
    x[NUMBERS - 1] = 0;
    refused(x, NUMBERS, DIM, NULL, "of those that are kept");
    x[NUMBERS - 1] = (double)NAN;
    refused(x, NUMBERS, DIM, NULL, "of those that are kept");
}

/* ---- within a distance of the largest ---------------------------------------------------------------------------- */

TEST(within_the_threshold)
{
    static const double score[] = { 1, 5, 3, 1.5, 4 };
    static const struct {
        unsigned taken; /* bits */
        double within;
        size_t most;
        const char *says; /* NULL: it is right */
    } each[] = {
        { 2 | 4 | 16, 2.5, 5, NULL },
        { 2 | 16, 2.5, 5, "key 2 (score 3) is missing, no more than 2.5 below" },
        { 2 | 4 | 8 | 16, 2.5, 5, "key 3 (score 1.5) was chosen, more than 2.5 below" },
        { 2 | 16, 2, 2, NULL },
        { 2 | 4, 2, 2, "key 2 (score 3) was chosen, key 4 (score 4) was not" },
        { 2 | 4 | 16, 2, 2, "3 keys chosen, at most 2 may be: key 2" },
        { 0, 0, 5, "no key is chosen" },
        { 2, 0, 5, NULL },
        { 31, 1e9, 5, NULL },
        { 30, 1e9, 5, "key 0 (score 1) is missing" },
    };
    for (size_t i = 0; i < COUNT(each); i++) {
        struct ha_def_choice c = { .what = "key", .group = HA_DEF_HEAD };
        const struct ha_def_head h = { .variant = "v" };
        assert_int_equal(ha_def_choice_begin(&c, 1, COUNT(score), &why), HA_OK);
        for (size_t j = 0; j < COUNT(score); j++) {
            ha_def_choice_score(&c, 0, j, (struct ha_ref_score){ score[j], score[j], score[j] });
            c.taken[j] = each[i].taken >> j & 1;
        }
        const enum ha_status status = ha_def_choice_judge_within(&c, &h, each[i].within, each[i].most, &why);
        if (status != (each[i].says ? HA_FAIL : HA_OK) || (each[i].says && !strstr(why.text, each[i].says)))
            fail_msg("case %zu: %d: %s", i, (int)status, why.text);
        ha_def_choice_end(&c);
    }
}
