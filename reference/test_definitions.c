/* The definitions of full attention, StreamingLLM and H2O, worked through by hand. */

#include "reference/test_world.h"

#include "harness/api/dataset.h"

static struct ha_why why;

TEST(test_full)
{
    static const struct ha_definition *const all[] = { &ha_definition_resident, &ha_definition_bmm,
                                                       &ha_definition_offload, &ha_definition_cpu };
    static const char *const name[] = { "resident", "bmm", "offload", "cpu" };
    static const struct ha_test_step whole = { 1, { 0 }, { DEVICE(0, 1, 2, 3, 4), SPLIT(KEYS(4), KEYS(3, 1, 0, 2)) } };
    static const struct {
        struct ha_test_report report[2];
        const char *text;
    } wrong[] = {
        { { DEVICE(0, 1, 2, 3, 4), DEVICE(0, 1, 3, 4) }, "head 1: key 2 is missing" },
        { { SPLIT(KEYS(0, 1, 2, 3, 4), KEYS(2)), DEVICE(0, 1, 2, 3, 4) }, "head 0: key 2 is used twice" },
        { { DEVICE(0, 1, 2, 3, 5), DEVICE(0, 1, 2, 3, 4) }, "key 5 does not exist" },
        { { DEVICE(0, 1, 2, 3), DEVICE(0, 1, 2, 3, 4) }, "key 4 is missing" },
        { { SPLIT(KEYS(0, 1, 2), PADDED(1, 3, 4)), DEVICE(0, 1, 2, 3, 4) }, "key 4 is called padding" },
        { { SPLIT(KEYS(0, 1, 2), PADDED(3, 3, 4)), DEVICE(0, 1, 2, 3, 4) }, "part 1 has 2 keys, 3 of them padding" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct ha_test_world w = ha_test_world(all[i], NULL, 4, EVEN, NULL);
        w.shape.q_heads = 2;
        ha_test_accept(&w, &whole, 1);
        ha_test_reject(&w, &whole, 1, wrong[0].report, name[i]);
        for (size_t j = 0; j < sizeof wrong / sizeof wrong[0]; j++)
            ha_test_reject(&w, &whole, 1, wrong[j].report, wrong[j].text);
    }
}

static void too_many_parts(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    out->parts = HA_PARTS_MAX + 1;
}

TEST(test_parts_limit)
{
    struct ha_test_world w = ha_test_world(&ha_definition_resident, NULL, 4, EVEN, NULL);
    const size_t tokens = 5;
    const void *k = w.key[0];
    const struct ha_def_step in = { .q_len = 1, .q = w.seen, .k = &k, .tokens = &tokens, .kv_cap = HA_TEST_TOKENS };
    assert_int_equal(ha_definition_step(w.definition, NULL, &w.shape, &in, too_many_parts, NULL, &why), HA_FAIL);
    assert_non_null(strstr(why.text, "5 parts"));
}

/* What a definition is handed beside keys and queries: the inputs of its sequence, the projection, what is reported. */
static const struct ha_projection projections[1] = { { .rotary = 7 } };
static size_t judged;
static enum ha_status judge_notes(struct ha_def *def, const struct ha_def_head *h, const uint8_t *mark,
                                  struct ha_why *reason)
{
    assert_true(h->projection == projections && h->x[0] == (float)h->seq + 1 && h->x[1] == -1);
    assert_true(ha_def_note(h, "block") == 16.0 + (double)h->head && isnan(ha_def_note(h, "hit")));
    assert_true(h->chosen->parts == 1 && h->chosen->part[0].weight_only);
    judged++;
    return HA_OK;
}
static void note_block(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    *out = (struct ha_selection){ .parts = 1, .part = { { .weight_only = true } } };
    out->note[0] = (struct ha_note){ "interval", 3 };
    out->note[1] = (struct ha_note){ "block", 16.0 + (double)q_head };
    out->notes = 2 + *(size_t *)arg;
}

TEST(test_notes_and_inputs)
{
    const struct ha_definition d = { .variant = "mine", .judge = judge_notes };
    struct ha_test_world w = ha_test_world(&d, NULL, 4, EVEN, NULL);
    const size_t tokens[] = { 5, 5 };
    const void *k[] = { w.key[0], w.key[1] };
    const float q[4] = { 0 }, x[4] = { 1, -1, 2, -1 };
    const struct ha_def_step in = {
        .q_len = 1, .q = q, .x = x, .projection = projections, .k = k, .tokens = tokens, .kv_cap = HA_TEST_TOKENS
    };
    size_t more = 0;
    w.shape.batch = w.shape.q_heads = 2;
    w.shape.model_dim = 2;
    assert_int_equal(ha_definition_step(&d, NULL, &w.shape, &in, note_block, &more, &why), HA_OK);
    assert_int_equal(judged, 4);
    more = HA_NOTES_MAX;
    assert_int_equal(ha_definition_step(&d, NULL, &w.shape, &in, note_block, &more, &why), HA_FAIL);
    assert_non_null(strstr(why.text, "10 notes, at most 8 are possible"));
}

/* What is not to be looked at any further. */
static void no_list(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    *out = (struct ha_selection){ .parts = 2, .part = { { .count = 0 }, { .count = 5 } } };
}
static void more_than_all(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    static const uint32_t token[] = { 0 };
    *out = (struct ha_selection){ .parts = 1, .part = { { .token = token, .count = 6 } } };
}
static void no_name(void *arg, size_t seq, size_t q_head, struct ha_selection *out)
{
    *out = (struct ha_selection){ .notes = 1 };
}

TEST(test_what_cannot_be_read)
{
    static const struct {
        void (*reported)(void *arg, size_t seq, size_t q_head, struct ha_selection *out);
        const char *says;
    } all[] = {
        { no_list, "resident layer 0 seq 0 head 0: part 1 has 5 keys, and its token is NULL" },
        { more_than_all, "resident layer 0 seq 0 head 0: part 0 has 6 keys, of 5 tokens" },
        { no_name, "resident layer 0 seq 0 head 0: note 0 has no name" },
    };
    struct ha_test_world w = ha_test_world(&ha_definition_resident, NULL, 4, EVEN, NULL);
    const size_t tokens = 5;
    const void *k = w.key[0];
    const struct ha_def_step in = { .q_len = 1, .q = w.seen, .k = &k, .tokens = &tokens, .kv_cap = HA_TEST_TOKENS };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(ha_definition_step(w.definition, NULL, &w.shape, &in, all[i].reported, NULL, &why), HA_FAIL);
        assert_string_equal(why.text, all[i].says);
    }
}

TEST(test_streaming)
{
    static const double param[] = { 2, 3 }; /* sink, window */
    static const struct {
        size_t ctx, q_len;
        struct ha_test_report report;
        const char *wrong; /* NULL: right */
    } row[] = {
        { 9, 1, DEVICE(0, 1, 7, 8, 9), NULL },
        { 9, 1, DEVICE(0, 1, 6, 7, 8, 9), "key 6 is neither" },
        { 9, 1, DEVICE(0, 7, 8, 9), "key 1 is missing" },
        { 9, 1, DEVICE(0, 1, 8, 9), "key 7 is missing" },
        { 9, 1, DEVICE(0, 1, 6, 7, 8), "key 6 is neither" },
        { 9, 1, SPLIT(KEYS(0, 1, 7, 8), PADDED(1, 9)), "key 9 is called padding" },
        /* 4 new tokens in a window of 3: all of them, 9 to 12 */
        { 9, 4, DEVICE(0, 1, 9, 10, 11, 12), NULL },
        { 9, 4, DEVICE(0, 1, 10, 11, 12), "key 9 is missing" },
        /* 2 new ones: the window of 3 reaches back to token 8 */
        { 9, 2, DEVICE(0, 1, 8, 9, 10), NULL },
        /* sinks and window meet; shorter than the window */
        { 3, 1, DEVICE(0, 1, 2, 3), NULL },
        { 1, 1, DEVICE(1, 0), NULL },
        { 1, 1, DEVICE(0), "key 1 is missing" },
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ha_test_world w = ha_test_world(&ha_definition_streaming, param, row[i].ctx, EVEN, NULL);
        const struct ha_test_step step = { row[i].q_len, { 0 }, { row[i].report } };
        if (row[i].wrong) ha_test_reject(&w, &step, 1, &row[i].report, row[i].wrong);
        else ha_test_accept(&w, &step, 1);
    }
}

TEST(test_h2o)
{
    static const double param[] = { 0.25, 0.2 }; /* of 10: 2 heavy, 2 recent */
    static const double weight[12] = { 5, 1, 1, 4, 1, 1, 3, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, param, 10, WEIGHTS(weight), SEEN(1));
    static const struct ha_test_step run[] = {
        /* acc = weight / 19: heavy are 0 (5/19) and 3 (4/19), recent 8 and 9 */
        { 1, { -1 }, { DEVICE(0, 3, 8, 9, 10) } },
        /* the query of -1 weighs the kept ones 0.2, 0.25, 1, 1, 1 of 3.45: acc of 0, 3, 8 = 0.321, 0.283, 0.343;
         * 9 and 10 are recent, so 3 is lost for good */
        { 1, { 0 }, { DEVICE(0, 8, 9, 10, 11) } },
    };
    ha_test_accept(&w, run, 1);
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 6, 8, 9, 10)), "key 6 was evicted for good");
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 3, 6, 8, 9, 10)), "key 6 was evicted for good");
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 8, 9, 10)), "1 heavy hitters kept, the rule keeps 2");
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 3, 9, 10)), "key 8 is missing: it is recent");
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 3, 8, 9)), "key 10 is missing: it is new");
    ha_test_accept(&w, run, 2);
    ha_test_reject(&w, run, 2, REPORTS(DEVICE(0, 3, 9, 10, 11)), "key 3 was evicted for good");
    ha_test_reject(&w, run, 2, REPORTS(DEVICE(8, 9, 10, 11)), "1 heavy hitters kept, the rule keeps 2");
    ha_test_reject(&w, run, 2, REPORTS(DEVICE(0, 6, 8, 9, 10, 11)), "key 6 was evicted for good");
}

static const double one_of_ten[] = { 0.1, 0.1 }; /* one heavy, one recent */

/* Observed query tokens see no later token: else key 8 (1.2) would have the largest sum, 1.2 to 1.0. */
TEST(test_h2o_causal)
{
    static const double weight[11] = { 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1.2, 0.1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, one_of_ten, 10, WEIGHTS(weight), SEEN(1, 1, 1));
    w.shape.observed = 3;
    static const struct ha_test_step run[] = { { 1, { 0 }, { DEVICE(0, 9, 10) } } };
    ha_test_accept(&w, run, 1);
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(8, 9, 10)), "key 8 was evicted");
}

/* Equal weights: either may stay, and the one that does is the one that the head has from then on. */
TEST(test_h2o_tie)
{
    static const double weight[12] = { 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, one_of_ten, 10, WEIGHTS(weight), SEEN(1));
    for (int first = 0; first < 4; first += 3) {
        const struct ha_test_step run[2] = { { 1, { 1 }, { DEVICE(first, 9, 10) } },
                                             { 1, { 1 }, { DEVICE(first, 10, 11) } } };
        ha_test_accept(&w, run, 2);
        ha_test_reject(&w, run, 2, REPORTS(DEVICE(3 - first, 10, 11)),
                       first ? "key 0 was evicted" : "key 3 was evicted");
        ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 3, 9, 10)), "2 heavy hitters kept, the rule keeps 1");
    }
}

/* Two query heads of one KV head decide on their own. */
TEST(test_h2o_heads)
{
    static const double weight[11] = { 4, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, one_of_ten, 10, WEIGHTS(weight), SEEN(1, -1));
    w.shape.q_heads = 2;
    static const struct ha_test_step run[] = { { 1, { 0, 0 }, { DEVICE(0, 9, 10), DEVICE(4, 9, 10) } } };
    ha_test_accept(&w, run, 1);
    ha_test_reject(&w, run, 1, REPORTS(DEVICE(0, 9, 10), DEVICE(0, 9, 10)), "head 1");
}

/* Two KV heads: each query head reads its own keys. */
TEST(test_h2o_kv_heads)
{
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, one_of_ten, 10, EVEN, NULL);
    w.shape.q_heads = w.shape.kv_heads = 2;
    w.key[0][0][3] = w.key[0][1][6] = 1;
    w.seen = (const float[]){ 1, 1 };
    static const struct ha_test_step run[] = { { 1, { 0, 0 }, { DEVICE(3, 9, 10), DEVICE(6, 9, 10) } } };
    ha_test_accept(&w, run, 1);
}

/* Twelve observed queries, more than one pass reads: tokens 8 to 19. Key 1 has ln 2 in 11 of them, key 2 in none but
 * one. */
TEST(test_h2o_many_queries)
{
    static const double param[] = { 0.05, 0.05 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, param, 20, EVEN, NULL);
    w.shape.observed = 12;
    w.key[0][0][1] = 1;
    w.key[0][0][2] = -1;
    float seen[12];
    w.seen = seen;
    for (size_t t = 0; t < 12; t++) seen[t] = t == 3 ? -0.7f : 0.1f;
    static const struct ha_test_step first[] = { { 1, { 0 }, { DEVICE(1, 19, 20) } } },
                                     second[] = { { 1, { 0 }, { DEVICE(2, 19, 20) } } };
    ha_test_accept(&w, first, 1);
    for (size_t t = 0; t < 12; t++) seen[t] = t == 11 ? -2 : 0.1f;
    ha_test_accept(&w, second, 1);
    /* key 17 is seen by the queries of 17 and 18 alone (and 19): large, but not before it exists */
    w.key[0][0][17] = 1;
    for (size_t t = 0; t < 12; t++) seen[t] = 1;
    ha_test_accept(&w, first, 1);
}

/* Three weights so close that rounding may swap neighbours, not the first with the third. */
TEST(test_h2o_near_tie)
{
    static const double param[] = { 0.2, 0.1 }; /* two heavy */
    static const struct ha_test_step run[] = { { 1, { 0 }, { DEVICE(2, 4, 9, 10) } } };
    bool found = false;
    for (double gap = 1e-7; gap < 1e-3 && !found; gap *= 1.1) {
        struct ha_test_world w = ha_test_world(&ha_definition_h2o, param, 10, EVEN, SEEN(1));
        for (int j = 0; j < 3; j++) w.key[0][0][2 + j] = (float)(1 - gap * j);
        found = ha_test_other(&w, run, 1, REPORTS(DEVICE(2, 4, 9, 10)), &why) == HA_OK
                && ha_test_other(&w, run, 1, REPORTS(DEVICE(3, 4, 9, 10)), &why) == HA_FAIL;
    }
    assert_true(found);
    assert_non_null(strstr(why.text, "key 4 (weight"));
    assert_non_null(strstr(why.text, "key 2 (weight"));
}

/* How far above the others ln of a key's weight may be until the rule must keep it, and not key 0. */
static double tie_up_to(struct ha_test_world *w, size_t key, const struct ha_test_step *step, size_t steps,
                        const struct ha_test_report *last)
{
    double gap = 1e-8;
    for (; gap < 1e-2; gap *= 1.1) {
        w->key[0][0][key] = (float)gap;
        if (ha_test_other(w, step, steps, last, &why) != HA_OK) break;
    }
    return gap;
}

/* A step adds its own error to that of the prefill: weights of 1/3 to those of 1/10. */
TEST(test_h2o_error_adds_up)
{
    static const struct ha_test_step run[] = { { 1, { 1 }, { DEVICE(0, 9, 10) } },
                                               { 1, { 1 }, { DEVICE(9, 10, 11) } } };
    struct ha_test_world at_prefill = ha_test_world(&ha_definition_h2o, one_of_ten, 10, EVEN, NULL),
                         in_step = at_prefill;
    at_prefill.seen = (const float[]){ 1 };
    const double first = tie_up_to(&at_prefill, 1, run, 1, run[0].report) * 0.1,
                 both = tie_up_to(&in_step, 9, run, 2, REPORTS(DEVICE(0, 10, 11))) / 3;
    if (!(both > 2 * first && both < 1e-4)) fail_msg("ties up to %g at prefill, %g after a step", first, both);
}

/* Three new tokens at once: causal among themselves, weights averaged. */
TEST(test_h2o_append)
{
    static const double param[] = { 0.25, 0.25 }; /* of 4: one heavy, one recent */
    static const double weight[8] = { 3, 1, 1, 1, 2, 1, 1, 1 };
    struct ha_test_world w = ha_test_world(&ha_definition_h2o, param, 4, WEIGHTS(weight), SEEN(1));
    static const struct ha_test_step run[] = {
        { 3, { 1, 1, 1 }, { DEVICE(0, 3, 4, 5, 6) } },
        /* kept 0 (3), 3 (1); new 4 (2), 5 (1), 6 (1): 0 has 3/6 + (3/6 + 3/7 + 3/8)/3 = 0.934,
         * 4 has (2/6 + 2/7 + 2/8)/3 = 0.290; recent is 6 */
        { 1, { 1 }, { DEVICE(0, 6, 7) } },
    };
    ha_test_accept(&w, run, 2);
    ha_test_reject(&w, run, 2, REPORTS(DEVICE(4, 6, 7)), "key 4 was evicted");
}
