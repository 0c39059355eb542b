/* The definition of HGCA, worked through by hand. */

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
#define PADDED(count, ...)                             \
    {                                                  \
        .token = { __VA_ARGS__, -1 }, .padding = count \
    }
#define NONE            \
    {                   \
        .token = { -1 } \
    }

enum { UNITS = HA_TEST_BATCH * HA_TEST_HEADS };
static const struct ha_definition *const hgca = &ha_definition_hgca;
static struct ha_why why;

struct step {
    size_t q_len;
    float q[UNITS * 4];
    struct ha_test_report report[UNITS];
};

/* The first `steps` steps, the last with another report: its verdict. */
static enum ha_status run_with(struct ha_test_world w, const double *param, size_t threads, const float *observed,
                               const struct step *step, size_t steps, const struct ha_test_report *last)
{
    struct ha_def *def = ha_test_create(hgca, &w, param, threads);
    ha_test_prefill(hgca, def, &w, observed);
    enum ha_status status = HA_OK;
    for (size_t i = 0; i < steps; i++) {
        if (status != HA_OK) fail_msg("step %zu: %s", i - 1, why.text);
        status = ha_test_step(hgca, def, &w, step[i].q_len, step[i].q, i + 1 == steps ? last : step[i].report, &why);
    }
    hgca->destroy(def);
    return status;
}

static void accept(struct ha_test_world w, const double *param, size_t threads, const float *observed,
                   const struct step *step, size_t steps)
{
    if (run_with(w, param, threads, observed, step, steps, step[steps - 1].report) != HA_OK) fail_msg("%s", why.text);
}

static void reject(struct ha_test_world w, const double *param, const float *observed, const struct step *step,
                   size_t steps, struct ha_test_report wrong, const char *text)
{
    assert_int_equal(run_with(w, param, 1, observed, step, steps, &wrong), HA_FAIL);
    if (!strstr(why.text, text)) fail_msg("\"%s\" does not say \"%s\"", why.text, text);
}

#define WRONG(device, host) \
    (struct ha_test_report) { device, host }

/* alpha 1/2, blocks of 2, l_max 4. 9 tokens: ceil((9 - 4 + 1)/2) * 2 = 6 are evicted. The host's weights 4 1 1 1 4 1 of
 * 12 against 1/6 select 0 and 4. On the device 6 7 8 weigh 1 1 2 of 4: MAW 0.25 0.25 0.5. */
static void test_decode(void **unused)
{
    (void)unused;
    static const double param[] = { 0.5, 1, 2, 2, 1, 0 };
    static const double weight[13] = { 4, 1, 1, 1, 4, 1, 1, 1, 2, 4, 1, 1, 1 };
    static const float seen[] = { 1 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 9, 1);
    ha_test_world_weights(&w, 0, weight, 13);
    static const struct step run[] = {
        /* A = 1 1 2 4 of 8, MAW = 0.1875 0.1875 0.375 0.5; 4 entries: 6 and 7 leave, both below 1/4 */
        { 1, { 1 }, { { KEYS(6, 7, 8, 9), KEYS(0, 4) } } },
        /* A = 2 4 1 of 7, MAW = 0.330 0.536 0.143; 3 entries: none leaves */
        { 1, { 1 }, { { KEYS(8, 9, 10), KEYS(4, 0) } } },
        /* A = 2 4 1 1 of 8, MAW = 0.290 0.518 ..: 8 and 9 leave, both above 1/4 */
        { 1, { 1 }, { { KEYS(8, 9, 10, 11), KEYS(0, 4) } } },
        { 1, { 1 }, { { KEYS(10, 11, 12), KEYS(0, 4, 8, 9) } } },
    };
    for (size_t n = 1; n <= 4; n++) accept(w, param, 1, seen, run, n);

    reject(w, param, seen, run, 1, WRONG(KEYS(7, 8, 9), KEYS(0, 4)), "key 6 is missing: it is on the device");
    reject(w, param, seen, run, 1, WRONG(KEYS(4, 6, 7, 8, 9), KEYS(0)), "key 4 was evicted");
    reject(w, param, seen, run, 1, WRONG(KEYS(6, 7, 8), KEYS(0, 4, 9)), "key 9 must be in a device part");
    reject(w, param, seen, run, 1, WRONG(PADDED(1, 6, 7, 8, 9), KEYS(0, 4)),
           "key 9 must be in a device part and not padding");
    reject(w, param, seen, run, 1, WRONG(KEYS(6, 7, 8, 9), KEYS(0)), "key 4 is missing: its weight");
    reject(w, param, seen, run, 1, WRONG(KEYS(6, 7, 8, 9), KEYS(0, 4, 5)), "key 5 is below the threshold");
    reject(w, param, seen, run, 1, WRONG(KEYS(6, 7, 8, 9), PADDED(1, 0, 4, 5)),
           "key 5 is padding that the task does not need");
    reject(w, param, seen, run, 2, WRONG(KEYS(6, 7, 8, 9, 10), KEYS(0, 4)), "key 6 was evicted");
    reject(w, param, seen, run, 2, WRONG(KEYS(8, 9, 10), KEYS(0, 4, 7)), "key 7 is below");
    reject(w, param, seen, run, 4, WRONG(KEYS(10, 11, 12), KEYS(0, 4, 9)), "key 8 is missing: its weight");
}

/* Blocks of 2, l_max 2: both tokens of the context are evicted, then 3 are appended and 2 of them leave at once.
 * With equal keys, A_gpu of the new ones = (1 + 1/2 + 1/3, 1/2 + 1/3, 1/3)/3 = 0.611 0.278 0.111 against 1/3. */
static void test_append_evicts_new_tokens(void **unused)
{
    (void)unused;
    static const double param[] = { 0.5, 1, 2, 1, 1, 0 };
    static const double weight[6] = { 3, 1, 1, 1, 1, 1 };
    static const float seen[] = { -1 }; /* selects 1, not 0 */
    struct ha_test_world w = ha_test_world(1, 1, 1, 2, 1);
    ha_test_world_weights(&w, 0, weight, 6);
    accept(w, param, 1, seen, (const struct step[]){ { 1, { 0 }, { { KEYS(2), KEYS(1) } } } }, 1);
    static const struct step run[] = {
        { 3, { 1, 1, 1 }, { { KEYS(2, 3, 4), KEYS(0, 1) } } },
        /* the host's weights were 3/4 and 1/4 against 1/2 */
        { 1, { 1 }, { { KEYS(4, 5), KEYS(0, 2) } } },
    };
    accept(w, param, 1, seen, run, 1);
    accept(w, param, 1, seen, run, 2);
    reject(w, param, seen, run, 1, WRONG(KEYS(2, 3, 4), KEYS(0)), "key 1 must be used: an append");
    reject(w, param, seen, run, 1, WRONG(KEYS(2, 3, 4), PADDED(1, 0, 1)), "key 1 must be used: an append");
    reject(w, param, seen, run, 2, WRONG(KEYS(3, 4, 5), KEYS(0, 2)), "key 3 was evicted");
    reject(w, param, seen, run, 2, WRONG(KEYS(4, 5), KEYS(0, 2, 3)), "key 3 is below");
    reject(w, param, seen, run, 2, WRONG(KEYS(4, 5), KEYS(0)), "key 2 is missing");
    reject(w, param, seen, run, 2, WRONG(KEYS(4, 5), KEYS(1, 2)), "key 0 is missing");
}

/* Observed queries see nothing after themselves: 4 of 6 tokens are evicted; the query of token 3 sees 0 to 3, that
 * of token 2 only 0 to 2. Host weights 1 1 1 2: means (1/5 + 1/5 + 1/5 + 1/3)/4 = 0.233, ..., (2/5)*3/4 = 0.3 against
 * 0.25; with token 2's query on token 3 it would be the same selection, so beta = 1.28: threshold 0.32 lies
 * between 0.3 and 0.4. */
static void test_prefill_causal(void **unused)
{
    (void)unused;
    static const double some[] = { 0.5, 1, 2, 2, 1, 0 }, none[] = { 0.5, 1.28, 2, 2, 1, 0 };
    static const double weight[7] = { 1, 1, 1, 2, 1, 1, 1 };
    static const float seen[] = { 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 6, 4);
    ha_test_world_weights(&w, 0, weight, 7);
    static const struct step selected[] = { { 1, { 1 }, { { KEYS(4, 5, 6), KEYS(3) } } } };
    static const struct step nothing[] = { { 1, { 1 }, { { KEYS(4, 5, 6), NONE } } } };
    accept(w, some, 1, seen, selected, 1);
    accept(w, none, 1, seen, nothing, 1);
    reject(w, none, seen, selected, 1, WRONG(KEYS(4, 5, 6), KEYS(3)), "key 3 is below");
}

/* A query that sees no device entry adds nothing to their MAW, yet counts in the mean: of the queries of tokens 3 and
 * 4 only the latter sees the device entry 4: MAW (0 + 1)/2, then with alpha = 0 it stays so: 0.5 against beta/2. */
static void test_prefill_blind_query(void **unused)
{
    (void)unused;
    static const double low[] = { 0, 0.9, 2, 1, 1, 0 }, high[] = { 0, 1.1, 2, 1, 1, 0 };
    static const float seen[] = { 0, 0 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 5, 2);
    ha_test_world_weights(&w, 0, (const double[]){ 1, 1, 1, 1, 1, 1, 1 }, 7);
    /* 5 tokens, l_max 2: 4 leave; the decoded one makes 2: both leave */
    static const struct step in[] = { { 1, { 0 }, { { KEYS(4, 5), KEYS(0, 1, 2, 3) } } },
                                      { 1, { 0 }, { { KEYS(6), KEYS(0, 1, 2, 3, 4, 5) } } } };
    static const struct step out[] = { { 1, { 0 }, { { KEYS(4, 5), NONE } } }, { 1, { 0 }, { { KEYS(6), NONE } } } };
    /* 5's own weight was 1/2: above 0.9/2, below 1.1/2. Host weights at prefill: token 3's query 1/4 each, 4's the
     * same, against 0.9/4 and 1.1/4 */
    accept(w, low, 1, seen, in, 2);
    accept(w, high, 1, seen, out, 2);
}

/* Two KV heads: each query head reads its own keys. 6 tokens, 4 leave: 5/8 and 1/8 against 1/4. */
static void test_kv_heads(void **unused)
{
    (void)unused;
    static const double param[] = { 0.5, 1, 2, 2, 1, 0 };
    static const float seen[] = { 1, 1 };
    struct ha_test_world w = ha_test_world(1, 2, 2, 6, 1);
    for (size_t h = 0; h < 2; h++)
        for (size_t j = 0; j < 8; j++) w.key[0][h][j] = j == h + 1 ? logf(5) : j == 6 + h ? logf(2) : 0;
    static const struct step run[] = {
        { 1, { 1, 1 }, { { KEYS(4, 5, 6), KEYS(1) }, { KEYS(4, 5, 6), KEYS(2) } } },
        { 1, { 1, 1 }, { { KEYS(4, 5, 6, 7), KEYS(1) }, { KEYS(4, 5, 6, 7), KEYS(2) } } },
        /* MAW of 4 and 5: head 0, weights 1 1 2 1: 1/2, then with 1/4, then with 1/5 = 0.288; head 1, 1 1 1 2: 1/2,
           0.417, 0.308 */
        { 1, { 1, 1 }, { { KEYS(6, 7, 8), KEYS(1, 4, 5) }, { KEYS(6, 7, 8), KEYS(2, 4, 5) } } },
    };
    for (size_t n = 1; n <= 3; n++) accept(w, param, 1, seen, run, n);
}

/* Equal weights are at the threshold: any choice will do, and is the one from then on. */
static void test_tie(void **unused)
{
    (void)unused;
    static const double param[] = { 0.5, 1, 2, 2, 1, 0 };
    static const float seen[] = { 0 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 8, 1);
    for (size_t j = 0; j < HA_TEST_TOKENS; j++) w.key[0][0][j] = 1.25f;
    /* 8 tokens, l_max 4: 6 leave, 1/6 each */
    const struct step some[] = { { 1, { 0 }, { { KEYS(6, 7, 8), KEYS(1, 3) } } },
                                 { 1, { 0 }, { { KEYS(6, 7, 8, 9), KEYS(3, 1) } } } };
    const struct step none[] = { { 1, { 0 }, { { KEYS(6, 7, 8), NONE } } },
                                 { 1, { 0 }, { { KEYS(6, 7, 8, 9), NONE } } } };
    accept(w, param, 1, seen, some, 2);
    accept(w, param, 1, seen, none, 2);
    reject(w, param, seen, some, 2, WRONG(KEYS(6, 7, 8, 9), KEYS(1, 2, 3)), "key 2 is below");
    reject(w, param, seen, some, 2, WRONG(KEYS(6, 7, 8, 9), KEYS(1)), "key 3 is missing");
    reject(w, param, seen, none, 2, WRONG(KEYS(6, 7, 8, 9), KEYS(1)), "key 1 is below");
}

static void test_everything(void **unused)
{
    (void)unused;
    static const double all[] = { 0.5, -1, 2, 2, 1, 0 }, roomy[] = { 0.5, 1, 16, 4, 1, 0 };
    static const float seen[] = { 9 };
    struct ha_test_world w = ha_test_world(1, 1, 1, 8, 1);
    ha_test_world_weights(&w, 0, (const double[]){ 1e9, 1, 1e-9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, 13);
    static const struct step run[] = { { 1, { 9 }, { { KEYS(6, 7, 8), KEYS(0, 1, 2, 3, 4, 5) } } },
                                       { 1, { -9 }, { { KEYS(6, 7, 8, 9), KEYS(0, 1, 2, 3, 4, 5) } } },
                                       { 1, { 0 }, { { KEYS(8, 9, 10), KEYS(0, 1, 2, 3, 4, 5, 6, 7) } } } };
    accept(w, all, 1, seen, run, 3);
    static const struct step device[] = { { 1, { 9 }, { { KEYS(0, 1, 2, 3, 4, 5, 6, 7, 8), NONE } } } };
    accept(w, roomy, 1, seen, device, 1);
}

/* Host weights 4 1 1 1 4 1: a query of 1 selects 0 and 4, one of -1 the other four. */
#define TWO_PADDED                              \
    {                                           \
        KEYS(6, 7, 8, 9), PADDED(2, 0, 4, 5, 3) \
    }
#define TWO                          \
    {                                \
        KEYS(6, 7, 8, 9), KEYS(0, 4) \
    }
#define FOUR                               \
    {                                      \
        KEYS(6, 7, 8, 9), KEYS(1, 2, 3, 5) \
    }

static void test_padding(void **unused)
{
    (void)unused;
    static const double weight[11] = { 4, 1, 1, 1, 4, 1, 1, 1, 2, 4, 1 };
    static const float seen[] = { 1, -1, 1, -1 };
    struct ha_test_world w = ha_test_world(1, 2, 1, 9, 1), both = ha_test_world(2, 2, 2, 9, 1);
    ha_test_world_weights(&w, 0, weight, 11);
    ha_test_world_weights(&both, 0, weight, 11);
    ha_test_world_weights(&both, 1, weight, 11);

    static const double alone[] = { 0.5, 1, 2, 2, 1, 0 }, pair[] = { 0.5, 1, 2, 2, 2, 0 },
                        three[] = { 0.5, 1, 2, 2, 3, 0 };
    static const double none[] = { 0.5, 1, 2, 2, 0, 0 };
    static const struct step plain[] = { { 1, { 1, -1 }, { TWO, FOUR } } },
                             padded[] = { { 1, { 1, -1 }, { TWO_PADDED, FOUR } } };
    accept(w, alone, 1, seen, plain, 1);
    accept(w, pair, 1, seen, padded, 1);
    accept(w, none, 1, seen, plain, 1);
    accept(w, none, 9, seen, plain, 1);
    assert_int_equal(run_with(w, none, 1, seen, plain, 1, padded[0].report), HA_FAIL);
    assert_non_null(strstr(why.text, "head 0: key 5 is padding that the task does not need"));
    assert_int_equal(run_with(w, pair, 1, seen, plain, 1, plain[0].report), HA_FAIL);
    assert_non_null(strstr(why.text, "head 0: key 5 must pad"));
    static const struct ha_test_report older[] = { { KEYS(6, 7, 8, 9), PADDED(2, 0, 4, 5, 2) }, FOUR };
    assert_int_equal(run_with(w, pair, 1, seen, padded, 1, older), HA_FAIL);
    assert_non_null(strstr(why.text, "key 3 must pad"));
    static const struct ha_test_report more[] = { { KEYS(6, 7, 8, 9), PADDED(3, 0, 4, 5, 3, 2) }, FOUR };
    assert_int_equal(run_with(w, pair, 1, seen, padded, 1, more), HA_FAIL);
    assert_non_null(strstr(why.text, "key 2 is padding that the task does not need"));

    /* units 0 1 2 | 3: the task spans two sequences, the last unit is alone */
    static const struct step spanning[] = { { 1, { 1, -1, 1, 1 }, { TWO_PADDED, FOUR, TWO_PADDED, FOUR } } };
    accept(both, three, 1, seen, spanning, 1);
    static const float other[] = { -1, -1, 1, 1 };
    static const struct step split[] = { { 1, { 1, 1, 1, 1 }, { FOUR, FOUR, TWO, TWO } } };
    accept(both, none, 1, other, split, 1);
    static const struct step joined[] = { { 1, { 1, 1, 1, 1 }, { FOUR, FOUR, TWO_PADDED, TWO } } };
    accept(both, three, 1, other, joined, 1);

    /* padding is not selection: it is chosen anew in the next step */
    static const struct step twice[] = { { 1, { 1, -1 }, { TWO_PADDED, FOUR } },
                                         { 1,
                                           { 1, -1 },
                                           { { KEYS(8, 9, 10), PADDED(4, 0, 4, 7, 6, 5, 3) },
                                             { KEYS(8, 9, 10), KEYS(1, 2, 3, 5, 6, 7) } } } };
    /* head 1: A = (1 1 1/2 1/4)/2.75, MAW of 6 and 7 = (0.4 + 0.364)/2 > 1/4 */
    accept(w, pair, 1, seen, twice, 2);
    static const struct ha_test_report stuck[] = { { KEYS(8, 9, 10), PADDED(3, 0, 4, 5, 7, 6, 3) },
                                                   { KEYS(8, 9, 10), KEYS(1, 2, 3, 5, 6, 7) } };
    assert_int_equal(run_with(w, pair, 1, seen, twice, 2, stuck), HA_FAIL);
    assert_non_null(strstr(why.text, "head 0: key 5 is below"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),         cmocka_unit_test(test_append_evicts_new_tokens),
        cmocka_unit_test(test_prefill_causal), cmocka_unit_test(test_prefill_blind_query),
        cmocka_unit_test(test_kv_heads),       cmocka_unit_test(test_tie),
        cmocka_unit_test(test_everything),     cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
