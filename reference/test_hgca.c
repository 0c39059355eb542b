/* The definition of HGCA, worked through by hand. */

#include "reference/test_world.h"

static const double half[] = { 0.5, 1, 2, 2, 1, 0 }; /* alpha 1/2, beta 1, blocks of 2, l_max 4 */

/* 9 tokens: ceil((9 - 4 + 1)/2) * 2 = 6 are evicted. The host's weights 4 1 1 1 4 1 of 12 against 1/6 select 0 and 4.
 * On the device 6 7 8 weigh 1 1 2 of 4: MAW 0.25 0.25 0.5. */
TEST(test_decode)
{
    static const double weight[13] = { 4, 1, 1, 1, 4, 1, 1, 1, 2, 4, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, half, 9, WEIGHTS(weight), SEEN(1));
    static const struct ha_test_step run[] = {
        /* A = 1 1 2 4 of 8, MAW = 0.1875 0.1875 0.375 0.5; 4 entries: 6 and 7 leave, both below 1/4 */
        { 1, { 1 }, { SPLIT(KEYS(6, 7, 8, 9), KEYS(0, 4)) } },
        /* A = 2 4 1 of 7, MAW = 0.330 0.536 0.143; 3 entries: none leaves */
        { 1, { 1 }, { SPLIT(KEYS(8, 9, 10), KEYS(4, 0)) } },
        /* A = 2 4 1 1 of 8, MAW = 0.290 0.518 ..: 8 and 9 leave, both above 1/4 */
        { 1, { 1 }, { SPLIT(KEYS(8, 9, 10, 11), KEYS(0, 4)) } },
        { 1, { 1 }, { SPLIT(KEYS(10, 11, 12), KEYS(0, 4, 8, 9)) } },
    };
    static const struct {
        size_t steps;
        struct ha_test_report report;
        const char *text;
    } wrong[] = {
        { 1, SPLIT(KEYS(7, 8, 9), KEYS(0, 4)), "key 6 is missing: it is on the device" },
        { 1, SPLIT(KEYS(4, 6, 7, 8, 9), KEYS(0)), "key 4 was evicted" },
        { 1, SPLIT(KEYS(6, 7, 8), KEYS(0, 4, 9)), "key 9 must be in a device part" },
        { 1, SPLIT(PADDED(1, 6, 7, 8, 9), KEYS(0, 4)), "key 9 must be in a device part and not padding" },
        { 1, SPLIT(KEYS(6, 7, 8, 9), KEYS(0)), "key 4 is missing: its weight" },
        { 1, SPLIT(KEYS(6, 7, 8, 9), KEYS(0, 4, 5)), "key 5 is below the threshold" },
        { 1, SPLIT(KEYS(6, 7, 8, 9), PADDED(1, 0, 4, 5)), "key 5 is padding that the task does not need" },
        { 2, SPLIT(KEYS(6, 7, 8, 9, 10), KEYS(0, 4)), "key 6 was evicted" },
        { 2, SPLIT(KEYS(8, 9, 10), KEYS(0, 4, 7)), "key 7 is below" },
        { 4, SPLIT(KEYS(10, 11, 12), KEYS(0, 4, 9)), "key 8 is missing: its weight" },
    };
    ha_test_accept(&w, run, 4);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ha_test_reject(&w, run, wrong[i].steps, &wrong[i].report, wrong[i].text);
}

/* Blocks of 2, l_max 2: both tokens of the context are evicted, then 3 are appended and 2 of them leave at once.
 * With equal keys, A_gpu of the new ones = (1 + 1/2 + 1/3, 1/2 + 1/3, 1/3)/3 = 0.611 0.278 0.111 against 1/3. */
TEST(test_append_evicts_new_tokens)
{
    static const double param[] = { 0.5, 1, 2, 1, 1, 0 };
    static const double weight[6] = { 3, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, param, 2, WEIGHTS(weight), NULL);
    w.seen = (const float[]){ -1 }; /* selects 1, not 0 */
    static const struct ha_test_step decode[] = { { 1, { 0 }, { SPLIT(KEYS(2), KEYS(1)) } } };
    ha_test_accept(&w, decode, 1);
    static const struct ha_test_step run[] = {
        { 3, { 1, 1, 1 }, { SPLIT(KEYS(2, 3, 4), KEYS(0, 1)) } },
        /* the host's weights were 3/4 and 1/4 against 1/2 */
        { 1, { 1 }, { SPLIT(KEYS(4, 5), KEYS(0, 2)) } },
    };
    ha_test_accept(&w, run, 2);
    ha_test_reject(&w, run, 1, REPORTS(SPLIT(KEYS(2, 3, 4), KEYS(0))), "key 1 must be used: an append");
    ha_test_reject(&w, run, 1, REPORTS(SPLIT(KEYS(2, 3, 4), PADDED(1, 0, 1))), "key 1 must be used: an append");
    ha_test_reject(&w, run, 2, REPORTS(SPLIT(KEYS(3, 4, 5), KEYS(0, 2))), "key 3 was evicted");
    ha_test_reject(&w, run, 2, REPORTS(SPLIT(KEYS(4, 5), KEYS(0, 2, 3))), "key 3 is below");
    ha_test_reject(&w, run, 2, REPORTS(SPLIT(KEYS(4, 5), KEYS(0))), "key 2 is missing");
    ha_test_reject(&w, run, 2, REPORTS(SPLIT(KEYS(4, 5), KEYS(1, 2))), "key 0 is missing");
}

/* Observed queries see nothing after themselves: 4 of 6 tokens are evicted; the query of token 3 sees 0 to 3, that
 * of token 2 only 0 to 2. Host weights 1 1 1 2: means (1/5 + 1/5 + 1/5 + 1/3)/4 = 0.233, ..., (2/5)*3/4 = 0.3 against
 * 0.25; with token 2's query on token 3 it would be the same selection, so beta = 1.28: threshold 0.32 lies
 * between 0.3 and 0.4. */
TEST(test_prefill_causal)
{
    static const double high[] = { 0.5, 1.28, 2, 2, 1, 0 };
    static const double weight[7] = { 1, 1, 1, 2, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, half, 6, WEIGHTS(weight), SEEN(1, 1, 1, 1));
    w.shape.observed = 4;
    static const struct ha_test_step selected[] = { { 1, { 1 }, { SPLIT(KEYS(4, 5, 6), KEYS(3)) } } };
    static const struct ha_test_step nothing[] = { { 1, { 1 }, { DEVICE(4, 5, 6) } } };
    ha_test_accept(&w, selected, 1);
    w.param = high;
    ha_test_accept(&w, nothing, 1);
    ha_test_reject(&w, nothing, 1, selected[0].report, "key 3 is below");
}

/* A query that sees no device entry adds nothing to their MAW, yet counts in the mean: of the queries of tokens 3 and
 * 4 only the latter sees the device entry 4: MAW (0 + 1)/2, then with alpha = 0 it stays so: 0.5 against beta/2. */
TEST(test_prefill_blind_query)
{
    static const double low[] = { 0, 0.9, 2, 1, 1, 0 }, high[] = { 0, 1.1, 2, 1, 1, 0 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, low, 5, EVEN, NULL);
    w.shape.observed = 2;
    /* 5 tokens, l_max 2: 4 leave; the decoded one makes 2: both leave */
    static const struct ha_test_step in[] = { { 1, { 0 }, { SPLIT(KEYS(4, 5), KEYS(0, 1, 2, 3)) } },
                                              { 1, { 0 }, { SPLIT(KEYS(6), KEYS(0, 1, 2, 3, 4, 5)) } } };
    static const struct ha_test_step out[] = { { 1, { 0 }, { DEVICE(4, 5) } }, { 1, { 0 }, { DEVICE(6) } } };
    /* 5's own weight was 1/2: above 0.9/2, below 1.1/2. Host weights at prefill: token 3's query 1/4 each, 4's the
     * same, against 0.9/4 and 1.1/4 */
    ha_test_accept(&w, in, 2);
    w.param = high;
    ha_test_accept(&w, out, 2);
}

/* Two KV heads: each query head reads its own keys. 6 tokens, 4 leave: 5/8 and 1/8 against 1/4. */
TEST(test_kv_heads)
{
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, half, 6, EVEN, SEEN(1, 1));
    w.shape.q_heads = w.shape.kv_heads = 2;
    for (size_t h = 0; h < 2; h++)
        for (size_t j = 0; j < 8; j++) w.key[0][h][j] = j == h + 1 ? logf(5) : j == 6 + h ? logf(2) : 0;
    static const struct ha_test_step run[] = {
        { 1, { 1, 1 }, { SPLIT(KEYS(4, 5, 6), KEYS(1)), SPLIT(KEYS(4, 5, 6), KEYS(2)) } },
        { 1, { 1, 1 }, { SPLIT(KEYS(4, 5, 6, 7), KEYS(1)), SPLIT(KEYS(4, 5, 6, 7), KEYS(2)) } },
        /* MAW of 4 and 5: head 0, weights 1 1 2 1: 1/2, then with 1/4, then with 1/5 = 0.288; head 1, 1 1 1 2: 1/2,
           0.417, 0.308 */
        { 1, { 1, 1 }, { SPLIT(KEYS(6, 7, 8), KEYS(1, 4, 5)), SPLIT(KEYS(6, 7, 8), KEYS(2, 4, 5)) } },
    };
    ha_test_accept(&w, run, 3);
}

/* Equal weights are at the threshold: any choice will do, and is the one from then on. */
TEST(test_tie)
{
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, half, 8, EVEN, NULL);
    for (size_t j = 0; j < HA_TEST_TOKENS; j++) w.key[0][0][j] = 1.25f;
    /* 8 tokens, l_max 4: 6 leave, 1/6 each */
    static const struct ha_test_step some[] = { { 1, { 0 }, { SPLIT(KEYS(6, 7, 8), KEYS(1, 3)) } },
                                                { 1, { 0 }, { SPLIT(KEYS(6, 7, 8, 9), KEYS(3, 1)) } } };
    static const struct ha_test_step none[] = { { 1, { 0 }, { DEVICE(6, 7, 8) } },
                                                { 1, { 0 }, { DEVICE(6, 7, 8, 9) } } };
    ha_test_accept(&w, some, 2);
    ha_test_accept(&w, none, 2);
    ha_test_reject(&w, some, 2, REPORTS(SPLIT(KEYS(6, 7, 8, 9), KEYS(1, 2, 3))), "key 2 is below");
    ha_test_reject(&w, some, 2, REPORTS(SPLIT(KEYS(6, 7, 8, 9), KEYS(1))), "key 3 is missing");
    ha_test_reject(&w, none, 2, REPORTS(SPLIT(KEYS(6, 7, 8, 9), KEYS(1))), "key 1 is below");
}

TEST(test_everything)
{
    static const double all[] = { 0.5, -1, 2, 2, 1, 0 }, roomy[] = { 0.5, 1, 16, 4, 1, 0 };
    static const double weight[13] = { 1e9, 1, 1e-9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, all, 8, WEIGHTS(weight), SEEN(9));
    static const struct ha_test_step run[] = { { 1, { 9 }, { SPLIT(KEYS(6, 7, 8), KEYS(0, 1, 2, 3, 4, 5)) } },
                                               { 1, { -9 }, { SPLIT(KEYS(6, 7, 8, 9), KEYS(0, 1, 2, 3, 4, 5)) } },
                                               { 1, { 0 }, { SPLIT(KEYS(8, 9, 10), KEYS(0, 1, 2, 3, 4, 5, 6, 7)) } } };
    ha_test_accept(&w, run, 3);
    static const struct ha_test_step device[] = { { 1, { 9 }, { DEVICE(0, 1, 2, 3, 4, 5, 6, 7, 8) } } };
    w.param = roomy;
    ha_test_accept(&w, device, 1);
}

/* Host weights 4 1 1 1 4 1: a query of 1 selects 0 and 4, one of -1 the other four. */
#define TWO_PADDED SPLIT(KEYS(6, 7, 8, 9), PADDED(2, 0, 4, 5, 3))
#define TWO        SPLIT(KEYS(6, 7, 8, 9), KEYS(0, 4))
#define FOUR       SPLIT(KEYS(6, 7, 8, 9), KEYS(1, 2, 3, 5))

TEST(test_padding)
{
    static const double weight[11] = { 4, 1, 1, 1, 4, 1, 1, 1, 2, 4, 1 };
    static const double pair[] = { 0.5, 1, 2, 2, 2, 0 }, three[] = { 0.5, 1, 2, 2, 3, 0 },
                        none[] = { 0.5, 1, 2, 2, 0, 0 };
    struct ha_test_world w = ha_test_world(&ha_definition_hgca, half, 9, WEIGHTS(weight), SEEN(1, -1, 1, -1));
    w.shape.q_heads = 2;

    static const struct ha_test_step plain[] = { { 1, { 1, -1 }, { TWO, FOUR } } };
    static const struct ha_test_step padded[] = {
        { 1, { 1, -1 }, { TWO_PADDED, FOUR } },
        /* padding is not selection: it is chosen anew in the next step. Head 1: A = (1 1 1/2 1/4)/2.75, MAW of 6 and 7
         * = (0.4 + 0.364)/2 > 1/4 */
        { 1,
          { 1, -1 },
          { SPLIT(KEYS(8, 9, 10), PADDED(4, 0, 4, 7, 6, 5, 3)), SPLIT(KEYS(8, 9, 10), KEYS(1, 2, 3, 5, 6, 7)) } },
    };
    static const struct ha_test_report older[] = { SPLIT(KEYS(6, 7, 8, 9), PADDED(2, 0, 4, 5, 2)), FOUR },
                                       more[] = { SPLIT(KEYS(6, 7, 8, 9), PADDED(3, 0, 4, 5, 3, 2)), FOUR },
                                       stuck[] = { SPLIT(KEYS(8, 9, 10), PADDED(3, 0, 4, 5, 7, 6, 3)),
                                                   SPLIT(KEYS(8, 9, 10), KEYS(1, 2, 3, 5, 6, 7)) };
    ha_test_accept(&w, plain, 1);
    w.param = none;
    ha_test_accept(&w, plain, 1);
    ha_test_reject(&w, plain, 1, padded[0].report, "head 0: key 5 is padding that the task does not need");
    w.param = pair;
    ha_test_accept(&w, padded, 2);
    ha_test_reject(&w, plain, 1, plain[0].report, "head 0: key 5 must pad");
    ha_test_reject(&w, padded, 1, older, "key 3 must pad");
    ha_test_reject(&w, padded, 1, more, "key 2 is padding that the task does not need");
    ha_test_reject(&w, padded, 2, stuck, "head 0: key 5 is below");

    /* units 0 1 2 | 3: the task spans two sequences, the last unit is alone */
    static const struct ha_test_step spanning[] = { { 1, { 1, -1, 1, 1 }, { TWO_PADDED, FOUR, TWO_PADDED, FOUR } } };
    w.shape.batch = w.shape.kv_heads = 2;
    w.param = three;
    ha_test_accept(&w, spanning, 1);
    w.seen = (const float[]){ -1, -1, 1, 1 };
    static const struct ha_test_step split[] = { { 1, { 1, 1, 1, 1 }, { FOUR, FOUR, TWO, TWO } } };
    static const struct ha_test_step joined[] = { { 1, { 1, 1, 1, 1 }, { FOUR, FOUR, TWO_PADDED, TWO } } };
    ha_test_accept(&w, joined, 1);
    w.param = none;
    ha_test_accept(&w, split, 1);
}
