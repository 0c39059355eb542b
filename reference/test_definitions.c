/* The definitions of full attention, StreamingLLM and H2O, worked through by hand. */

#include "reference/definitions.h"
#include "reference/test_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define KEYS(...)                    \
    {                                \
        .token = { __VA_ARGS__, -1 } \
    }
#define NONE            \
    {                   \
        .token = { -1 } \
    }
#define DEVICE(...)             \
    {                           \
        KEYS(__VA_ARGS__), NONE \
    }
#define SPLIT(device, host) \
    {                       \
        device, host        \
    }

static struct ha_why why;

static enum ha_status one_step(const struct ha_definition *d, struct ha_test_world w, const double *param, size_t q_len,
                               const struct ha_test_report *report)
{
    const float q[HA_TEST_BATCH * HA_TEST_TOKENS * HA_TEST_HEADS] = { 0 };
    struct ha_def *def = ha_test_create(d, &w, param, 1);
    ha_test_prefill(d, def, &w, q);
    const enum ha_status status = ha_test_step(d, def, &w, q_len, q, report, &why);
    d->destroy(def);
    return status;
}

static void expect(enum ha_status status, const char *text)
{
    assert_int_equal(status, HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}

static void test_full(void **unused)
{
    (void)unused;
    static const struct ha_definition *const all[] = { &ha_definition_resident, &ha_definition_offload,
                                                       &ha_definition_cpu };
    static const char *const name[] = { "resident", "offload", "cpu" };
    const struct ha_test_world w = ha_test_world(1, 2, 1, 4, 1);
    for (size_t i = 0; i < 3; i++) {
        const struct ha_definition *d = all[i];
        assert_string_equal(d->variant, name[i]);
        const struct ha_test_report whole[2] = { DEVICE(0, 1, 2, 3, 4), SPLIT(KEYS(4), KEYS(3, 1, 0, 2)) };
        assert_int_equal(one_step(d, w, NULL, 1, whole), HA_OK);
        const struct ha_test_report missing[2] = { DEVICE(0, 1, 2, 3, 4), DEVICE(0, 1, 3, 4) };
        expect(one_step(d, w, NULL, 1, missing), "head 1: key 2 is missing");
        expect(one_step(d, w, NULL, 1, missing), name[i]);
        const struct ha_test_report twice[2] = { SPLIT(KEYS(0, 1, 2, 3, 4), KEYS(2)), DEVICE(0, 1, 2, 3, 4) };
        expect(one_step(d, w, NULL, 1, twice), "head 0: key 2 is used twice");
        const struct ha_test_report beyond[2] = { DEVICE(0, 1, 2, 3, 4, 5), DEVICE(0, 1, 2, 3, 4) };
        expect(one_step(d, w, NULL, 1, beyond), "key 5 does not exist");
        const struct ha_test_report old[2] = { DEVICE(0, 1, 2, 3), DEVICE(0, 1, 2, 3, 4) };
        expect(one_step(d, w, NULL, 1, old), "key 4 is missing");
        const struct ha_test_report padded[2] = { { KEYS(0, 1, 2), { { 3, 4, -1 }, 1 } }, DEVICE(0, 1, 2, 3, 4) };
        expect(one_step(d, w, NULL, 1, padded), "key 4 is called padding");
        const struct ha_test_report senseless[2] = { { KEYS(0, 1, 2), { { 3, 4, -1 }, 3 } }, DEVICE(0, 1, 2, 3, 4) };
        expect(one_step(d, w, NULL, 1, senseless), "part 1 has 2 keys, 3 of them padding");
    }
}

static void too_many_parts(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    (void)arg, (void)seq, (void)q_head;
    out->parts = HA_PARTS_MAX + 1;
}

static void test_parts_limit(void **unused)
{
    (void)unused;
    const struct ha_definition *d = &ha_definition_resident;
    struct ha_test_world w = ha_test_world(1, 1, 1, 4, 1);
    struct ha_def *def = ha_test_create(d, &w, NULL, 1);
    const size_t tokens = 5;
    const struct ha_def_step in = { .q_len = 1, .tokens = &tokens };
    expect(d->step(def, &in, too_many_parts, NULL, &why), "5 parts");
    d->destroy(def);
}

static void test_streaming(void **unused)
{
    (void)unused;
    const struct ha_definition *d = &ha_definition_streaming;
    static const double param[] = { 2, 3 }; /* sink, window */
    const struct ha_test_world w = ha_test_world(1, 1, 1, 9, 1), young = ha_test_world(1, 1, 1, 3, 1),
                               new = ha_test_world(1, 1, 1, 1, 1);

    assert_int_equal(one_step(d, w, param, 1, &(struct ha_test_report)DEVICE(0, 1, 7, 8, 9)), HA_OK);
    expect(one_step(d, w, param, 1, &(struct ha_test_report)DEVICE(0, 1, 6, 7, 8, 9)), "key 6 is neither");
    expect(one_step(d, w, param, 1, &(struct ha_test_report)DEVICE(0, 7, 8, 9)), "key 1 is missing");
    expect(one_step(d, w, param, 1, &(struct ha_test_report)DEVICE(0, 1, 8, 9)), "key 7 is missing");
    expect(one_step(d, w, param, 1, &(struct ha_test_report)DEVICE(0, 1, 6, 7, 8)), "key 6 is neither");
    /* 4 new tokens in a window of 3: all of them, 9 to 12 */
    assert_int_equal(one_step(d, w, param, 4, &(struct ha_test_report)DEVICE(0, 1, 9, 10, 11, 12)), HA_OK);
    expect(one_step(d, w, param, 4, &(struct ha_test_report)DEVICE(0, 1, 10, 11, 12)), "key 9 is missing");
    /* 2 new ones: the window of 3 reaches back to token 8 */
    assert_int_equal(one_step(d, w, param, 2, &(struct ha_test_report)DEVICE(0, 1, 8, 9, 10)), HA_OK);
    /* sinks and window meet; shorter than the window */
    assert_int_equal(one_step(d, young, param, 1, &(struct ha_test_report)DEVICE(0, 1, 2, 3)), HA_OK);
    assert_int_equal(one_step(d, new, param, 1, &(struct ha_test_report)DEVICE(1, 0)), HA_OK);
    expect(one_step(d, new, param, 1, &(struct ha_test_report)DEVICE(0)), "key 1 is missing");
}

/* A run of H2O: prefill and steps, each with its queries and report; the last step's verdict. */
struct h2o_step {
    float q[HA_TEST_HEADS];
    struct ha_test_report report[HA_TEST_HEADS];
};

static enum ha_status h2o_run(struct ha_test_world w, const double *param, const float *observed,
                              const struct h2o_step *step, size_t steps)
{
    const struct ha_definition *d = &ha_definition_h2o;
    struct ha_def *def = ha_test_create(d, &w, param, 1);
    ha_test_prefill(d, def, &w, observed);
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < steps; i++) {
        if (status != HA_OK) fail_msg("step %zu: %s", i - 1, why.text);
        status = ha_test_step(d, def, &w, 1, step[i].q, step[i].report, &why);
    }
    d->destroy(def);
    return status;
}

static void test_h2o(void **unused)
{
    (void)unused;
    static const double param[] = { 0.25, 0.2 }; /* of 10: 2 heavy, 2 recent */
    static const double weight[12] = { 5, 1, 1, 4, 1, 1, 3, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 10, 1);
    ha_test_world_weights(&w, 0, weight, 12);
    static const float seen[] = { 1 };

    /* acc = weight / 19: heavy are 0 (5/19) and 3 (4/19), recent 8 and 9 */
    struct h2o_step run[2] = { { { -1 }, { DEVICE(0, 3, 8, 9, 10) } } };
    assert_int_equal(h2o_run(w, param, seen, run, 1), HA_OK);
    const struct h2o_step wrong_heavy[] = { { { 0 }, { DEVICE(0, 6, 8, 9, 10) } } };
    expect(h2o_run(w, param, seen, wrong_heavy, 1), "key 6 was evicted for good");
    const struct h2o_step one_more[] = { { { 0 }, { DEVICE(0, 3, 6, 8, 9, 10) } } };
    expect(h2o_run(w, param, seen, one_more, 1), "key 6 was evicted for good");
    const struct h2o_step one_less[] = { { { 0 }, { DEVICE(0, 8, 9, 10) } } };
    expect(h2o_run(w, param, seen, one_less, 1), "1 heavy hitters kept, the rule keeps 2");
    const struct h2o_step no_recent[] = { { { 0 }, { DEVICE(0, 3, 9, 10) } } };
    expect(h2o_run(w, param, seen, no_recent, 1), "key 8 is missing: it is recent");
    const struct h2o_step no_new[] = { { { 0 }, { DEVICE(0, 3, 8, 9) } } };
    expect(h2o_run(w, param, seen, no_new, 1), "key 10 is missing: it is new");

    /* the query of -1 weighs the kept ones 0.2, 0.25, 1, 1, 1 of 3.45: acc of 0, 3, 8 = 0.321, 0.283, 0.343;
     * 9 and 10 are recent, so 3 is lost for good */
    run[1] = (struct h2o_step){ { 0 }, { DEVICE(0, 8, 9, 10, 11) } };
    assert_int_equal(h2o_run(w, param, seen, run, 2), HA_OK);
    run[1] = (struct h2o_step){ { 0 }, { DEVICE(0, 3, 9, 10, 11) } };
    expect(h2o_run(w, param, seen, run, 2), "key 3 was evicted for good");
    run[1] = (struct h2o_step){ { 0 }, { DEVICE(8, 9, 10, 11) } };
    expect(h2o_run(w, param, seen, run, 2), "1 heavy hitters kept, the rule keeps 2");
    run[1] = (struct h2o_step){ { 0 }, { DEVICE(0, 6, 8, 9, 10, 11) } };
    expect(h2o_run(w, param, seen, run, 2), "key 6 was evicted for good");
}

/* Observed query tokens see no later token: else key 8 (1.2) would have the largest sum, 1.2 to 1.0. */
static void test_h2o_causal(void **unused)
{
    (void)unused;
    static const double param[] = { 0.1, 0.1 }; /* one heavy, one recent */
    static const double weight[11] = { 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.2, 0.1, 1 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 10, 3);
    ha_test_world_weights(&w, 0, weight, 11);
    static const float seen[] = { 1, 1, 1 };
    const struct h2o_step right[] = { { { 0 }, { DEVICE(0, 9, 10) } } }, wrong[] = { { { 0 }, { DEVICE(8, 9, 10) } } };
    assert_int_equal(h2o_run(w, param, seen, right, 1), HA_OK);
    expect(h2o_run(w, param, seen, wrong, 1), "key 8 was evicted");
}

/* Equal weights: either may stay, and the one that does is the one that the head has from then on. */
static void test_h2o_tie(void **unused)
{
    (void)unused;
    static const double param[] = { 0.1, 0.1 };
    static const double weight[12] = { 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 10, 1);
    ha_test_world_weights(&w, 0, weight, 12);
    static const float seen[] = { 1 };
    for (int first = 0; first < 4; first += 3) {
        struct h2o_step run[2] = { { { 1 }, { DEVICE(first, 9, 10) } }, { { 1 }, { DEVICE(first, 10, 11) } } };
        assert_int_equal(h2o_run(w, param, seen, run, 2), HA_OK);
        run[1] = (struct h2o_step){ { 1 }, { DEVICE(3 - first, 10, 11) } };
        expect(h2o_run(w, param, seen, run, 2), first ? "key 0 was evicted" : "key 3 was evicted");
    }
    const struct h2o_step both[] = { { { 1 }, { DEVICE(0, 3, 9, 10) } } };
    expect(h2o_run(w, param, seen, both, 1), "2 heavy hitters kept, the rule keeps 1");
}

/* Two query heads of one KV head decide on their own. */
static void test_h2o_heads(void **unused)
{
    (void)unused;
    static const double param[] = { 0.1, 0.1 };
    static const double weight[11] = { 4, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2 };
    struct ha_test_world w = ha_test_world(1, 2, 1, 10, 1);
    ha_test_world_weights(&w, 0, weight, 11);
    static const float seen[] = { 1, -1 };
    const struct h2o_step right[] = { { { 0, 0 }, { DEVICE(0, 9, 10), DEVICE(4, 9, 10) } } };
    const struct h2o_step shared[] = { { { 0, 0 }, { DEVICE(0, 9, 10), DEVICE(0, 9, 10) } } };
    assert_int_equal(h2o_run(w, param, seen, right, 1), HA_OK);
    expect(h2o_run(w, param, seen, shared, 1), "head 1");
}

/* Two KV heads: each query head reads its own keys. */
static void test_h2o_kv_heads(void **unused)
{
    (void)unused;
    static const double param[] = { 0.1, 0.1 };
    struct ha_test_world w = ha_test_world(1, 2, 2, 10, 1);
    w.key[0][0][3] = w.key[0][1][6] = 1;
    static const float seen[] = { 1, 1 };
    const struct h2o_step right[] = { { { 0, 0 }, { DEVICE(3, 9, 10), DEVICE(6, 9, 10) } } };
    assert_int_equal(h2o_run(w, param, seen, right, 1), HA_OK);
}

/* Twelve observed queries, more than one pass reads: tokens 8 to 19. Key 1 has ln 2 in 11 of them, key 2 in none but
 * one. */
static void test_h2o_many_queries(void **unused)
{
    (void)unused;
    static const double param[] = { 0.05, 0.05 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 20, 12);
    w.key[0][0][1] = 1;
    w.key[0][0][2] = -1;
    float seen[12];
    for (size_t t = 0; t < 12; t++) seen[t] = t == 3 ? -0.7f : 0.1f;
    const struct h2o_step right[] = { { { 0 }, { DEVICE(1, 19, 20) } } };
    assert_int_equal(h2o_run(w, param, seen, right, 1), HA_OK);
    for (size_t t = 0; t < 12; t++) seen[t] = t == 11 ? -2 : 0.1f;
    const struct h2o_step last[] = { { { 0 }, { DEVICE(2, 19, 20) } } };
    assert_int_equal(h2o_run(w, param, seen, last, 1), HA_OK);
    /* key 17 is seen by the queries of 17 and 18 alone (and 19): large, but not before it exists */
    w.key[0][0][17] = 1;
    for (size_t t = 0; t < 12; t++) seen[t] = 1;
    assert_int_equal(h2o_run(w, param, seen, right, 1), HA_OK);
}

/* Three weights so close that rounding may swap neighbours, not the first with the third. */
static void test_h2o_near_tie(void **unused)
{
    (void)unused;
    static const double param[] = { 0.2, 0.1 }; /* two heavy */
    static const float seen[] = { 1 };
    bool found = false;
    for (double gap = 1e-7; gap < 1e-3 && !found; gap *= 1.1) {
        struct ha_test_world w = ha_test_world(1, 1, 1, 10, 1);
        for (int j = 0; j < 3; j++) w.key[0][0][2 + j] = (float)(1 - gap * j);
        const struct h2o_step swapped[] = { { { 0 }, { DEVICE(2, 4, 9, 10) } } },
                              wrong[] = { { { 0 }, { DEVICE(3, 4, 9, 10) } } };
        found = h2o_run(w, param, seen, swapped, 1) == HA_OK && h2o_run(w, param, seen, wrong, 1) == HA_FAIL;
    }
    assert_true(found);
    assert_non_null(strstr(why.text, "key 4 (weight"));
    assert_non_null(strstr(why.text, "key 2 (weight"));
}

/* Three new tokens at once: causal among themselves, weights averaged. */
static void test_h2o_append(void **unused)
{
    (void)unused;
    const struct ha_definition *d = &ha_definition_h2o;
    static const double param[] = { 0.25, 0.25 }; /* of 4: one heavy, one recent */
    static const double weight[8] = { 3, 1, 1, 1, 2, 1, 1, 1 };
    for (int wrong = 0; wrong < 2; wrong++) {
        struct ha_test_world w = ha_test_world(1, 1, 1, 4, 1);
        ha_test_world_weights(&w, 0, weight, 8);
        struct ha_def *def = ha_test_create(d, &w, param, 1);
        static const float seen[] = { 1 }, q[] = { 1, 1, 1 };
        ha_test_prefill(d, def, &w, seen);
        const struct ha_test_report first = DEVICE(0, 3, 4, 5, 6);
        assert_int_equal(ha_test_step(d, def, &w, 3, q, &first, &why), HA_OK);
        /* kept 0 (3), 3 (1); new 4 (2), 5 (1), 6 (1): 0 has 3/6 + (3/6 + 3/7 + 3/8)/3 = 0.934,
         * 4 has (2/6 + 2/7 + 2/8)/3 = 0.290; recent is 6 */
        const struct ha_test_report right = DEVICE(0, 6, 7), other = DEVICE(4, 6, 7);
        const enum ha_status status = ha_test_step(d, def, &w, 1, q, wrong ? &other : &right, &why);
        if (wrong) expect(status, "key 4 was evicted");
        else assert_int_equal(status, HA_OK);
        d->destroy(def);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_parts_limit),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_h2o),
        cmocka_unit_test(test_h2o_causal),
        cmocka_unit_test(test_h2o_tie),
        cmocka_unit_test(test_h2o_heads),
        cmocka_unit_test(test_h2o_kv_heads),
        cmocka_unit_test(test_h2o_many_queries),
        cmocka_unit_test(test_h2o_near_tie),
        cmocka_unit_test(test_h2o_append),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
