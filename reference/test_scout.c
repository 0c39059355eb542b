/* The definition of ScoutAttention by hand: blocks of a token, ties, recalls. What else it refuses is in
 * suites/variants/test_spoiled.c. */

#include "reference/definitions.h"
#include "reference/test_world.h"

#include "harness/base/fit.h"
#include "harness/base/rng.h"

enum { SEED = 11, DIM = 8, OFF = 0, ON, WAIT };

/* ---- ties ----------------------------------------------------------------------------------- */

/* Blocks of a token, all equal, two of which are resident, and two chosen. */
TEST(test_adopted)
{
    static const double all[] = { 1, 2, 2, 0, 0, OFF, 0, 1, OFF, 0 }, topk[] = { 1, 2, 2, 0, 0, OFF, 0, 0, OFF, 0 };
    static const struct ha_test_step resident[] = { { 1, { 1 }, { DEVICE(1, 3, 4) } },
                                                    { 1, { 1 }, { SPLIT(KEYS(1, 3, 5), KEYS(0, 2)) } } };
    struct ha_test_world one = ha_test_world(&ha_definition_scout, all, 4, EVEN, NULL);
    ha_test_accept(&one, resident, 2);
    ha_test_reject(&one, resident, 2, REPORTS(DEVICE(0, 1, 5)), "block 0 is on the device: it is not resident");
    ha_test_reject(&one, resident, 2, REPORTS(DEVICE(1, 5)), "block 3 is missing: it is resident");
    ha_test_reject(&one, resident, 1, REPORTS(DEVICE(0, 1, 3, 4)), "block 3 is one resident too many: there are 2");
    ha_test_reject(&one, resident, 1, REPORTS(DEVICE(1, 4)), "1 blocks may be resident, and there are 2 that are");
    /* 1 is resident and 2 is not; then 0 is not, and so 3 is */
    static const struct ha_test_step learnt[] = { { 1, { 1 }, { SPLIT(KEYS(1, 4), KEYS(2)) } },
                                                  { 1, { 1 }, { SPLIT(KEYS(1, 5), KEYS(0)) } },
                                                  { 1, { 1 }, { DEVICE(1, 3, 6) } } };
    one.param = topk;
    ha_test_accept(&one, learnt, 3);
    ha_test_reject(&one, learnt, 2, REPORTS(SPLIT(KEYS(2, 5), KEYS(0))),
                   "block 2 is on the device: it is not resident");
    ha_test_reject(&one, learnt, 3, REPORTS(SPLIT(KEYS(1, 6), KEYS(3))), "block 3 is on the host, and resident");
    ha_test_reject(&one, learnt, 3, REPORTS(SPLIT(KEYS(1, 6), KEYS(0, 2))), "3 blocks are used");
    ha_test_reject(&one, learnt, 3, REPORTS(DEVICE(1, 6)), "1 blocks may be chosen, the step's query chooses 2");
}

/* ---- recalls ----------------------------------------------------------------------------------------------------- */

#define SAYS(device, host, issued, arrived)             \
    {                                                   \
        device, host,                                   \
        {                                               \
            { "recall", issued }, { "landed", arrived } \
        }                                               \
    }
#define HERE(issued, arrived, ...)     SAYS(KEYS(__VA_ARGS__), NONE, issued, arrived)
#define FAR(issued, arrived, new, ...) SAYS(KEYS(new), KEYS(__VA_ARGS__), issued, arrived)

/* Two of five blocks are chosen and two are resident: at first 0 and 1, the largest by a query of 1. By one of -1 these
 * are 3 and 4, which the recall of step 2 wants. */
static const double weight[] = { 5, 4, 3, 0.2, 0.1 };
static const struct ha_test_step moves[] = {
    { 1, { 1 }, { HERE(0, 0, 0, 1, 5) } },  { 1, { -1 }, { FAR(1, 0, 6, 3, 4) } },
    { 1, { 1 }, { FAR(0, 0, 7, 0, 1) } },  /* these are not wanted: gone at once */
    { 1, { -1 }, { FAR(0, 0, 8, 3, 4) } }, /* and those have not come: no other recall is issued */
    { 1, { -1 }, { HERE(1, 1, 3, 4, 9) } },
};
/* What is wanted is resident: the recall may land or not, and the next one is issued all the same. */
static const struct ha_test_step stays[] = {
    { 1, { 1 }, { HERE(0, 0, 0, 1, 5) } }, { 1, { 1 }, { HERE(1, 0, 0, 1, 6) } }, { 1, { 1 }, { HERE(0, 0, 0, 1, 7) } },
    { 1, { 1 }, { HERE(1, 0, 0, 1, 8) } }, { 1, { 1 }, { HERE(0, 1, 0, 1, 9) } },
};

TEST(recalls_by_hand)
{
    static const struct {
        const struct ha_test_step *step;
        size_t steps;
        double recall;
        struct ha_test_report last;
        const char *text; /* NULL: it is accepted */
    } other[] = {
        { moves, 1, ON, HERE(1, 0, 0, 1, 5), "a recall was issued in step 1, and the last in 0" },
        { moves, 1, ON, HERE(0, 1, 0, 1, 5), "a recall landed in step 1, and none was under way" },
        { moves, 1, ON, HERE(0, 2, 0, 1, 5), "note landed is 2, neither 0 nor 1" },
        { moves, 2, ON, FAR(0, 0, 6, 3, 4), "no recall was issued in step 2, and the last in 0" },
        { moves, 2, ON, HERE(1, 0, 3, 4, 6), "block 3 is on the device: it is not resident" },
        { moves, 3, ON, HERE(0, 0, 0, 1, 7), "block 0 is on the device: the last recall did not want it" },
        { moves, 3, WAIT, FAR(0, 0, 7, 0, 1), "the recall of step 2 has not landed in step 3" },
        { moves, 3, WAIT, FAR(0, 1, 7, 0, 1), NULL },
        { moves, 3, ON, FAR(0, 0, 7, 0, 2), "block 2 (score 1.09861231) is used, block 1" },
        { moves, 3, ON, FAR(0, 0, 7, 0), "1 blocks may be chosen" },
        { moves, 3, ON, FAR(0, 0, 7, 0, 1, 2), "3 blocks are " },
        { moves, 4, ON, HERE(0, 0, 3, 4, 8), "block 3 is on the device: it has not been recalled yet" },
        { moves, 4, ON, FAR(1, 0, 8, 3, 4), "a recall was issued in step 4, and that of step 2 has not landed" },
        { moves, 4, ON, FAR(1, 1, 8, 3, 4), "block 3 is on the host, and resident" },
        { moves, 4, ON, HERE(0, 1, 3, 4, 8), "no recall was issued in step 4" },
        { moves, 4, ON, HERE(1, 1, 3, 4, 8), NULL },
        { moves, 5, ON, HERE(0, 0, 3, 4, 9), "block 3 is on the device: it has not been recalled yet" },
        { stays, 3, ON, HERE(0, 1, 0, 1, 7), NULL },
        { stays, 3, WAIT, HERE(0, 0, 0, 1, 7), NULL },
        { stays, 3, ON, FAR(0, 0, 7, 0, 1), "block 0 is on the host, and resident" },
        { stays, 4, ON, HERE(0, 0, 0, 1, 8), NULL },
        { stays, 4, OFF, HERE(0, 0, 0, 1, 8), "a recall was issued, and recall is off" },
    };
    struct ha_why why;
    for (size_t i = 0; i < COUNT(other); i++) {
        const double param[] = { 1, 2, 2, 0, 0, OFF, 0, 0, other[i].recall, 2 };
        struct ha_test_world one = ha_test_world(&ha_definition_scout, param, 5, WEIGHTS(weight), SEEN(1));
        if (i == 0) ha_test_accept(&one, moves, COUNT(moves)), ha_test_accept(&one, stays, COUNT(stays));
        if (other[i].recall == OFF) {
            assert_int_equal(ha_test_other(&one, stays, 2, stays[1].report, &why), HA_FAIL);
            assert_non_null(strstr(why.text, other[i].text));
        } else if (other[i].text) ha_test_reject(&one, other[i].step, other[i].steps, &other[i].last, other[i].text);
        else if (ha_test_other(&one, other[i].step, other[i].steps, &other[i].last, &why) != HA_OK)
            fail_msg("row %zu: %s", i, why.text);
    }
}

/* Without observed queries the last blocks are resident; a block that is new is not. */
TEST(first_residents)
{
    static const double param[] = { 1, 2, 2, 0, 0, OFF, 0, 1, OFF, 0 };
    static const struct ha_test_step last[] = { { 1, { 1 }, { SPLIT(KEYS(3, 4, 5), KEYS(0, 1)) } },
                                                { 1, { 0 }, { SPLIT(KEYS(3, 4, 6), KEYS(0, 5)) } } };
    struct ha_test_world one = ha_test_world(&ha_definition_scout, param, 5, WEIGHTS(weight), NULL);
    one.shape.observed = 0;
    ha_test_accept(&one, last, 2);
    ha_test_reject(&one, last, 2, REPORTS(SPLIT(KEYS(3, 4, 5, 6), KEYS(0))), "block 5 is on the device: it is not");
    ha_test_reject(&one, last, 1, REPORTS(SPLIT(KEYS(0, 1, 5), NONE)), "block 0 is on the device: it is not resident");
}

/* All residents are used, chosen or not: of the choice the host shows what is not resident. */
TEST(choice_beside_residents)
{
    static const double param[] = { 1, 2, 2, 0, 0, OFF, 0, 1, OFF, 0 };
    static const struct ha_test_step near = { 1, { 1 }, { DEVICE(0, 1, 5) } },
                                     far = { 1, { -1 }, { SPLIT(KEYS(0, 1, 5), KEYS(3, 4)) } };
    struct ha_test_world one = ha_test_world(&ha_definition_scout, param, 5, WEIGHTS(weight), SEEN(1));
    ha_test_accept(&one, &near, 1);
    ha_test_accept(&one, &far, 1);
    ha_test_reject(&one, &near, 1, REPORTS(SPLIT(KEYS(0, 1, 5), KEYS(2))),
                   "block 2 (score 1.09861231) is on the host, and is not among the 2 best of the step's query");
    ha_test_reject(&one, &far, 1, REPORTS(SPLIT(KEYS(0, 1, 5), KEYS(4))),
                   "block 3 (score 1.60943794) is not on the host, and is among the 2 best of the step's query");
}

/* ---- what rounding leaves open --------------------------------------------------------------- */

/* A query that is known to be off by no more than a bound moves a score by no more than is said, and by as much. */
TEST(test_uncertain_query)
{
    const struct ha_shape shape = { .head_dim = DIM, .scale = 0.5f, .dtype = HA_F32 };
    float x[4 * DIM];
    for (uint64_t n = 0; n < 40; n++) {
        const struct ha_def_blocks blocks = { .size = 1, .count = 1, .mean = n % 2 };
        struct ha_def_digest digest;
        double q[DIM], off[DIM], from = 0, to = 0;
        ha_rng_normals(SEED, 10, n * COUNT(x), COUNT(x), x);
        for (size_t d = 0; d < DIM; d++) {
            const double a = (double)x[2 * DIM + d], b = blocks.mean ? a : (double)x[3 * DIM + d];
            double most = -HUGE_VAL, least = HUGE_VAL;
            q[d] = (double)x[d];
            off[d] = 0.1 * fabs((double)x[DIM + d]);
            digest.least[d] = fmin(a, b);
            digest.most[d] = fmax(a, b);
            for (int i = -1; i <= 1; i++) {
                const double is = 0.5 * fmax((q[d] + i * off[d]) * a, (q[d] + i * off[d]) * b);
                most = fmax(most, is);
                least = fmin(least, is);
            }
            from += least;
            to += most;
        }
        const struct ha_ref_score s = ha_def_digest_score(&shape, &blocks, &digest, q, off);
        if (!(s.low <= from && s.high >= to)) fail_msg("%g to %g, not %g to %g", from, to, s.low, s.high);
        if (!(s.high - s.low < 4 * (to - from))) fail_msg("%g to %g for %g to %g", s.low, s.high, from, to);
        off[0] = 3e38;
        digest.most[0] = 2;
        const struct ha_ref_score unknown = ha_def_digest_score(&shape, &blocks, &digest, q, off);
        assert_true(unknown.low == -HUGE_VAL && unknown.high == HUGE_VAL);
    }
}

/* ---- a choice that is seen in part ----------------------------------------------------------- */

/* Of all that may be known of five candidates: a choice is there if one of those that there are agrees. */
TEST(test_partial)
{
    struct ha_why why;
    enum { COUNT_OF = 5, TIMES = HA_SANITIZED ? 6 : 40 };
    for (uint64_t n = 0; n < TIMES; n++) {
        struct ha_ref_score score[COUNT_OF];
        float x[2 * COUNT_OF];
        ha_rng_normals(SEED, 7, n * COUNT(x), COUNT(x), x);
        for (size_t i = 0; i < COUNT_OF; i++) {
            const double low = floor(3 * (double)x[2 * i]);
            score[i] = (struct ha_ref_score){ low, low, low + (n % 2 ? floor(fabs(3 * (double)x[2 * i + 1])) : 0) };
            if (n % 4 == 3 && i % 2) score[i] = (struct ha_ref_score){ 0, -HUGE_VAL, HUGE_VAL }; /* not known */
        }
        const size_t want = n % (COUNT_OF + 2);
        for (size_t known = 0; known < 243; known++) {
            uint8_t is[COUNT_OF];
            bool any = false, may[2][COUNT_OF] = { { false } };
            for (size_t i = 0, rest = known; i < COUNT_OF; i++, rest /= 3) is[i] = (uint8_t)(rest % 3);
            for (unsigned in = 0; in < 1U << COUNT_OF; in++) {
                bool right_one = (size_t)__builtin_popcount(in) == (want < COUNT_OF ? want : COUNT_OF);
                for (size_t i = 0; i < COUNT_OF; i++) {
                    right_one &= is[i] == HA_DEF_MAYBE || is[i] == (in >> i & 1);
                    for (size_t j = 0; j < COUNT_OF; j++)
                        right_one &= !(in >> i & 1) || in >> j & 1 || score[i].high >= score[j].low;
                }
                any |= right_one;
                for (size_t i = 0; i < COUNT_OF; i++) may[in >> i & 1][i] |= right_one;
            }
            struct ha_def_partial p;
            assert_int_equal(ha_def_partial_begin(&p, score, is, COUNT_OF, want, &why), HA_OK);
            if (ha_def_partial_is(&p) != any) fail_msg("case %zu, known %zu", (size_t)n, known);
            for (size_t i = 0; i < COUNT_OF; i++)
                for (size_t in = 0; in < 2 && is[i] == HA_DEF_MAYBE; in++)
                    if (ha_def_partial_may(&p, i, in ? HA_DEF_IN : HA_DEF_OUT) != may[in][i])
                        fail_msg("case %zu, known %zu: %zu", (size_t)n, known, i);
            ha_def_partial_end(&p);
        }
    }
}

/* ---- what is not there ------------------------------------------------------------------------------------------- */

TEST(not_there)
{
    static const double ahead[] = { 1, 2, 2, 0, 0, ON, 0, 0, ON, 2 }, fitted[] = { 1, 2, 2, 0, 0, OFF, 0, 0, ON, 0 };
    const struct ha_shape shape = { .layers = 2, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1 };
    struct ha_def *def = NULL;
    struct ha_why why = { "" };
    assert_int_equal(ha_definition_scout.create(&def, &shape, ahead, NULL, &why), HA_ERROR);
    assert_non_null(strstr(why.text, "predict=ahead needs layer inputs"));
    assert_int_equal(ha_definition_scout.create(&def, &shape, fitted, NULL, &why), HA_WAIVED);
    assert_non_null(strstr(why.text, "needs a fit"));
    assert_null(def);
}

static void say(void *arg, const char *name, size_t layer, double least, double most)
{
    if (!strcmp(name, "recall_interval")) ((double *)arg)[layer] = least == most ? least : 0;
}

/* interval=0: each layer's is the fit's. */
TEST(fitted_intervals)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"habench-fit\",\"version\":\"1\",\"variant\":\"scout\",\"params\":\"\","
        "\"model\":"
        "\"m\",\"layers\":\"2\",\"q_heads\":\"1\",\"kv_heads\":\"1\",\"head_dim\":\"1\",\"model_dim\":\"1\","
        "\"dataset\":"
        "\"d\",\"seed\":\"1\",\"case\":\"c\",\"habench\":\"h\"},\"interval\":{\"dtype\":\"F32\",\"shape\":[2],"
        "\"data_offsets\":[0,8]}}";
    static const double param[] = { 1, 2, 2, 0, 0, OFF, 0, 0, ON, 0 };
    const struct ha_shape shape = { .layers = 2, .batch = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1 };
    const uint64_t bytes = sizeof header - 1;
    const float interval[] = { 3, 0.5f }; /* the least is 1 */
    char file[8 + sizeof header - 1 + sizeof interval];
    struct ha_fit *fit = NULL;
    struct ha_def *def = NULL;
    struct ha_why why;
    double said[2] = { 0 };
    memcpy(file, &bytes, 8);
    memcpy(file + 8, header, bytes);
    memcpy(file + 8 + bytes, interval, sizeof interval);
    if (ha_fit_parse(&fit, "test", file, sizeof file, &why) != HA_OK) fail_msg("%s", why.text);
    assert_int_equal(ha_definition_scout.create(&def, &shape, param, fit, &why), HA_OK);
    ha_definition_scout.count(def, say, said);
    assert_true(said[0] == 3 && said[1] == 1);
    ha_definition_scout.destroy(def);
    ha_fit_close(fit);
}
