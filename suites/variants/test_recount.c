/* Counters that are not what a variant's own reports make them. */

#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#define SHAPE ":ctx=330,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,block=8,budget=32"
#define SCOUT "scout" SHAPE ",dataset=walk,interval=2,recall=wait"
#define HGCA  "hgca:ctx=300,heads=4/2,head_dim=64,layers=2,steps=3,seed=5,blk_size=16,blk_num=4"
#define FLUXION                             \
    "fluxion:dataset=walk,ctx=700,heads=4/" \
    "2,head_dim=64,layers=2,steps=2,seed=5,sink=16,recent=32,predict=oracle,tau=0.3"

/* mutant: NULL, or what is planted */
static enum ha_status check(const char *id, const struct ha_mutant *mutant, struct ha_counters *out)
{
    open_session(id);
    struct ha_check c = { .session = &session, .id = "the case" };
    session.variant = ha_mutant_variant(mutant, session.variant);
    const enum ha_status status = ha_check_run(&c, &reason);
    if (out) *out = c.counters;
    ha_check_free(&c);
    close_session();
    return status;
}

static void assert_seen(const char *id, const struct ha_mutant *mutant, const char *name)
{
    const enum ha_status status = check(id, mutant, NULL);
    if (status != HA_FAIL || !strstr(reason.text, "question 2") || !strstr(reason.text, name))
        fail_msg("%s: %s: %s", id, name, status == HA_OK ? "not seen" : reason.text);
}

TEST(a_wrong_counter_is_seen)
{
    static const char *const name[] = { "cpu_tokens", "cpu_ratio", "recalls" };
    static const struct {
        const char *id;
        size_t counters; /* of the three that it says */
    } of[] = { { SCOUT, 3 }, { SCOUT ",group=head", 3 }, { SCOUT ",resident=all", 3 }, { HGCA, 2 } };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct ha_counters c;
        assert_ok(check(of[i].id, NULL, &c));
        assert_true(c.cpu_tokens > 0 && c.cpu_ratio > 0 && c.cpu_ratio < 1);
        for (size_t n = 0; n < of[i].counters; n++) {
            const struct ha_mutant mutant = { .wrong_column = name[n] };
            assert_seen(of[i].id, &mutant, name[n]);
        }
    }
}

TEST(a_wrong_number_of_a_layer_is_seen)
{
    static const struct {
        const char *id, *name;
    } of[] = {
        { SCOUT, "recall_interval" },
        { SCOUT, "recalls" },
        { SCOUT, "recalled_blocks" },
        { SCOUT, "cpu_of_budget" },
        { SCOUT, "cosine" },
        { SCOUT, "changed" },
        { SCOUT ",group=head", "recalled_blocks" },
        { SCOUT ",group=head", "cpu_of_budget" },
        { SCOUT ",group=head", "changed" },
        { SCOUT ",resident=all", "recalled_blocks" },
        { SCOUT ",resident=all", "changed" },
        { SCOUT ",precompute=off", "changed" },
        { "hybrid_fixed:ctx=300+40,heads=4/2,head_dim=64,layers=2,steps=40,seed=5,sink=16,recent=32,block=16",
          "host_blocks" },
        { FLUXION, "streaming_heads" },
        { FLUXION, "groups_scheduled" },
        { FLUXION, "block_mean" },
        { FLUXION, "budget_mean" },
        { FLUXION ",skip_streaming=0,union=1,schedule=uniform", "budget_mean" },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct ha_mutant wrong = { .wrong_count = of[i].name }, none = { .no_count = of[i].name };
        assert_ok(check(of[i].id, NULL, NULL));
        assert_seen(of[i].id, &wrong, of[i].name);
        assert_seen(of[i].id, &none, of[i].name);
    }
}

/* ---- the sums by hand ------------------------------------------------------------------------------------------- */

static struct ha_selection used(size_t device, size_t host, double recall)
{
    return (struct ha_selection){ .parts = 2,
                                  .part = { { .count = device, .on_device = true }, { .count = host } },
                                  .notes = 1,
                                  .note = { { "recall", recall } } };
}

TEST(keys_and_recalls_are_added_up)
{
    struct ha_recount r = { 0 };
    const double none = (double)NAN;
    for (size_t i = 0; i < 8; i++) { /* two steps of two layers of two heads, the second step without a recall */
        const struct ha_selection s = used(3, i, i < 4);
        ha_recount_add(&r, i / 4, i / 2 % 2, &s);
    }
    struct ha_counters c = { .cpu_tokens = 3.5, .cpu_ratio = 28.0 / 52, .recalls = 2 };
    assert_ok(ha_recount_judge(&r, &c, &reason));
    c.recalls = 4;
    assert_int_equal(ha_recount_judge(&r, &c, &reason), HA_FAIL);
    c.recalls = none;
    assert_ok(ha_recount_judge(&r, &c, &reason));

    /* a share that is not known is filled in, where the variant has two sides that it counts */
    c.cpu_ratio = none;
    assert_ok(ha_recount_judge(&r, &c, &reason));
    assert_near(c.cpu_ratio, 28.0 / 52, 1e-12);
    c.cpu_ratio = c.cpu_tokens = none;
    assert_ok(ha_recount_judge(&r, &c, &reason));
    assert_true(isnan(c.cpu_ratio));

    /* whichever side was free is no side to be counted for */
    struct ha_selection s = used(3, 4, 0);
    s.part[1].either_side = true;
    ha_recount_add(&r, 2, 0, &s);
    c.cpu_tokens = 100;
    assert_ok(ha_recount_judge(&r, &c, &reason));
}

TEST(a_timed_pass_is_held_to_the_checked_one)
{
    enum { COUNTS = 3 };
    struct ha_counted_number was[COUNTS] = { { "blocks", 0, 4 }, { "blocks", 1, 5 }, { "digest_ns", 0, 6 } },
                             is[COUNTS];
    const struct ha_check checked = { .counters = { .cpu_tokens = 3.5, .cpu_ratio = 0.25, .recalls = 2 },
                                      .counted = { .of = was, .count = COUNTS } };
    const struct ha_counted counted = { .of = is, .count = COUNTS };
    struct ha_counters c = checked.counters;
    memcpy(is, was, sizeof is);
    is[2].value = 7; /* a time */
    assert_ok(ha_recount_again(&checked, false, &c, &counted, &reason));
    c.cpu_ratio = (double)NAN;
    assert_ok(ha_recount_again(&checked, true, &c, &counted, &reason));
    assert_near(c.cpu_ratio, 0.25, 0);
    for (int i = 0; i < 2; i++) {
        if (i == 0) c.cpu_tokens = 4;
        else c.cpu_tokens = 3.5, is[1].value = 6;
        assert_int_equal(ha_recount_again(&checked, false, &c, &counted, &reason), HA_FAIL);
        assert_ok(ha_recount_again(&checked, true, &c, &counted, &reason)); /* it may have used other keys */
    }
    is[1].value = (double)NAN;
    assert_int_equal(ha_recount_again(&checked, false, &c, &counted, &reason), HA_FAIL);
}
