/* The definition of the fixed hybrid, worked through by hand: a sink of 2, 3 recent tokens, blocks of 2, half of them.
 */

#include "reference/test_world.h"

enum { HEAD, MAX, UNION };
#define PARAMS(budget, digest, group) ((const double[]){ 2, 3, 2, budget, digest, group })

static struct ha_why why;

/* 11 tokens: blocks 2-3, 4-5 and 6-7 are on the host, 8 is of a block that is not old enough. Best keys 1, 5 and 3: of
 * 3 blocks 2 are chosen. */
static const double weight[] = { 9, 9, 1, 1, 5, 1, 1, 3, 9, 1, 1, 1, 1, 1, 1 };
#define ON_DEVICE 0, 1, 8, 9, 10, 11

TEST(test_decode)
{
    struct ha_test_world w = ha_test_world(&ha_definition_hybrid_fixed, PARAMS(0.5, 0, HEAD), 11, WEIGHTS(weight),
                                           NULL);
    static const struct ha_test_step run[] = {
        { 1, { 1 }, { SPLIT(KEYS(ON_DEVICE), KEYS(4, 5, 6, 7)) } },
        { 1, { 1 }, { SPLIT(KEYS(ON_DEVICE, 12), KEYS(4, 5, 6, 7)) } },
        /* 13 tokens before the step: block 8-9 has left, with the best key */
        { 1, { 1 }, { SPLIT(KEYS(0, 1, 10, 11, 12, 13), KEYS(4, 5, 8, 9)) } },
        /* a query that likes no key: all blocks have a weight of 1, any two will do */
        { 1, { -1 }, { SPLIT(KEYS(0, 1, 10, 11, 12, 13, 14), KEYS(2, 3, 6, 7)) } },
    };
    static const struct {
        size_t steps;
        struct ha_test_report report;
        const char *text;
    } wrong[] = {
        { 1, SPLIT(KEYS(1, 8, 9, 10, 11), KEYS(4, 5, 6, 7)), "key 0 is missing: it is of the sink" },
        { 1, SPLIT(KEYS(0, 8, 9, 10, 11), KEYS(1, 4, 5, 6, 7)), "key 1 is not the host's: it is of the sink" },
        { 1, SPLIT(KEYS(0, 1, 9, 10, 11), KEYS(4, 5, 6, 7)), "key 8 is missing: it is recent, or of a block that is" },
        { 1, SPLIT(KEYS(0, 1, 8, 9, 10), KEYS(4, 5, 6, 7)), "key 11 is missing: it is new" },
        { 1, SPLIT(KEYS(0, 1, 9, 10, 11), KEYS(4, 5, 6, 7, 8)), "key 8 is not the host's" },
        { 1, SPLIT(KEYS(ON_DEVICE, 6, 7), KEYS(4, 5)), "key 6 is no longer on the device" },
        { 1, SPLIT(KEYS(ON_DEVICE), KEYS(4, 5, 7)), "key 7 is used: block 2 is used in part" },
        { 1, SPLIT(KEYS(ON_DEVICE), KEYS(4, 5)), "1 blocks chosen, the rule chooses 2: block 2" },
        { 1, SPLIT(KEYS(ON_DEVICE), KEYS(2, 3, 4, 5, 6, 7)), "3 blocks chosen, the rule chooses 2: block 0" },
        { 1, SPLIT(KEYS(ON_DEVICE), KEYS(2, 3, 4, 5)), "block 0 (score 0) was chosen, block 2 (score 1.09861231) was" },
        { 3, SPLIT(KEYS(0, 1, 8, 9, 10, 11, 12, 13), KEYS(4, 5, 6, 7)), "key 8 is no longer on the device" },
        { 3, SPLIT(KEYS(0, 1, 10, 11, 12, 13), KEYS(4, 5, 6, 7)), "was chosen, block 3" },
    };
    ha_test_accept(&w, run, COUNT(run));
    for (size_t i = 0; i < COUNT(wrong); i++) ha_test_reject(&w, run, wrong[i].steps, &wrong[i].report, wrong[i].text);
}

/* Two query heads: by their own scores, by the larger, or both. An append's blocks have the largest of its queries. */
TEST(test_groups)
{
    static const double apart[] = { 1, 1, 0.1, 1, 5, 1, 1, 1, 1, 1, 1, 1 };
    static const struct ha_test_report first = SPLIT(KEYS(ON_DEVICE), KEYS(4, 5)),
                                       second = SPLIT(KEYS(ON_DEVICE), KEYS(2, 3)),
                                       both = SPLIT(KEYS(ON_DEVICE), KEYS(2, 3, 4, 5));
    for (int group = HEAD; group <= UNION; group++) {
        struct ha_test_world w = ha_test_world(&ha_definition_hybrid_fixed, PARAMS(0.1, 0, group), 11, WEIGHTS(apart),
                                               NULL);
        w.shape.q_heads = 2;
        /* |ln 0.1| > ln 5: together they choose the second one's */
        const struct ha_test_report *own[] = { &first, &second }, *one[] = { &second, &second },
                                    *all[] = { &both, &both },
                                    **want = group == HEAD  ? own
                                             : group == MAX ? one
                                                            : all;
        struct ha_test_step step = { 1, { 1, -1 }, { *want[0], *want[1] } };
        ha_test_accept(&w, &step, 1);
        const struct ha_test_report swapped[] = { second, first };
        ha_test_reject(&w, &step, 1, swapped, "");
    }
    struct ha_test_world w = ha_test_world(&ha_definition_hybrid_fixed, PARAMS(0.1, 0, HEAD), 11, WEIGHTS(apart), NULL);
    static const struct ha_test_step append = { 2, { 1, -1 }, { SPLIT(KEYS(ON_DEVICE, 12), KEYS(2, 3)) } };
    ha_test_accept(&w, &append, 1);
    ha_test_reject(&w, &append, 1, REPORTS(SPLIT(KEYS(ON_DEVICE, 12), KEYS(4, 5))),
                   "was chosen, block 0 (score 2.30258512) was not");
}

/* How many: 1 of 10 is a tenth, 2 are the least for 0.11; a context that the device holds has none. */
TEST(test_budgets)
{
    static const struct {
        double budget;
        size_t blocks, want;
    } budgets[] = { { 0.1, 10, 1 }, { 0.11, 10, 2 }, { 0.3, 10, 3 }, { 1e-6, 10, 1 },
                    { 1, 10, 10 },  { 0.7, 1, 1 },   { 1, 0, 0 } };
    for (size_t i = 0; i < COUNT(budgets); i++) {
        const size_t ctx = 5 + 2 * budgets[i].blocks, want = budgets[i].want;
        struct ha_test_world w = ha_test_world(&ha_definition_hybrid_fixed, PARAMS(budgets[i].budget, 1, HEAD), ctx,
                                               EVEN, NULL);
        for (size_t j = 0; j < ctx; j++) w.key[0][0][j] = -(float)j;
        struct ha_test_report report = SPLIT(KEYS(0, 1), NONE);
        for (size_t j = 0; j < 4; j++) report.device.token[2 + j] = (int)(ctx - 3 + j);
        report.device.token[6] = -1;
        for (size_t j = 0; j < 2 * want; j++) report.host.token[j] = 2 + (int)j;
        report.host.token[2 * want] = -1;
        const struct ha_test_step step = { 1, { 1 }, { report } };
        ha_test_accept(&w, &step, 1);
        if (want == 0) continue;
        report.host.token[2 * want - 2] = -1;
        ha_test_reject(&w, &step, 1, &report, want < budgets[i].blocks ? "blocks chosen, the rule" : "is missing: all");
    }
    /* a mean weighs otherwise than a range: 3, 3 against 5, 0 */
    struct ha_test_world w = ha_test_world(&ha_definition_hybrid_fixed, PARAMS(0.5, 1, HEAD), 9, EVEN, NULL);
    const float key[] = { 0, 0, 3, 3, 5, 0 };
    for (size_t j = 0; j < COUNT(key); j++) w.key[0][0][j] = key[j];
    static const struct ha_test_step step = { 1, { 1 }, { SPLIT(KEYS(0, 1, 6, 7, 8, 9), KEYS(2, 3)) } };
    ha_test_accept(&w, &step, 1);
    assert_int_equal(ha_test_other(&w, &step, 1, REPORTS(SPLIT(KEYS(0, 1, 6, 7, 8, 9), KEYS(4, 5))), &why), HA_FAIL);
    w.param = PARAMS(0.5, 0, HEAD);
    assert_int_equal(ha_test_other(&w, &step, 1, REPORTS(SPLIT(KEYS(0, 1, 6, 7, 8, 9), KEYS(4, 5))), &why), HA_OK);
}
