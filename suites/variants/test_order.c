#include "harness/base/order.h"
#include "suites/variants/check.h"
#include "suites/variants/movement.h"
#include "suites/variants/test_session.h"

/* The verdict on a variant with a defect, or without. */
static enum ha_status judge(const char *id, const struct ha_movement *movement, bool order)
{
    const struct ha_mutant mutant = { .name = "", .movement = movement };
    struct test_session *t = &opened;
    *t = (struct test_session){ 0 };
    assert_ok(ha_case_parse(id, &t->c, &reason));
    assert_ok(ha_machine_create(&t->machine, NULL, &reason));
    assert_ok(ha_shared_open(&t->shared, t->machine, false, &reason));
    t->shared.order = order;
    assert_ok(ha_session_open(&session, &t->shared, &t->c, movement ? &mutant : NULL, &reason));
    struct ha_check check = { .session = &session, .id = id };
    const enum ha_status status = ha_check_run(&check, &reason);
    ha_check_free(&check);
    close_session();
    return status;
}

enum { ROUNDS = HA_SANITIZED ? 1 : 5 };

static const struct ha_mutant *find(const char *name)
{
    for (size_t i = 0; i < ha_mutants_count; i++)
        if (!strcmp(ha_mutants[i].name, name)) return &ha_mutants[i];
    fail_msg("no mutant %s", name);
    return NULL;
}

/* ---- defects ------------------------------------------------------------------------------------------------------
 */

/* By one run each, whatever the time. */
TEST(each_defect_of_movement_is_seen_every_time)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    size_t seen = 0;
    for (size_t i = 0; i < ha_mutants_count; i++) {
        const struct ha_mutant *m = &ha_mutants[i];
        for (size_t round = 0; m->movement && round < ROUNDS; round++, seen++) {
            if (judge(m->id, m->movement, m->order) != HA_FAIL || !strstr(reason.text, m->shown))
                fail_msg("%s, round %zu: %s", m->name, round, reason.text);
        }
    }
    assert_int_equal(seen, 15 * ROUNDS);
}

/* Two copies of the same bytes: whatever comes last, the output is right. */
TEST(right_bytes_do_not_excuse_a_conflict)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    const struct ha_mutant *m = find("one_place_twice");
    assert_int_equal(judge(m->id, m->movement, false), HA_OK);
    assert_int_equal(judge(m->id, m->movement, true), HA_FAIL);
    assert_non_null(strstr(reason.text, "order: write of destination by copy on post (step 23 layer 0), write of "
                                        "destination by copy on main (step 23 layer 0): nothing orders them"));
}

TEST(nothing_is_watched_unless_it_is_asked_for)
{
    assert_int_equal(judge(find("load_over_attention")->id, NULL, false), HA_OK);
    assert_null(ha_order_now());
    assert_int_equal(judge(find("load_over_attention")->id, NULL, true), HA_OK);
    assert_null(ha_order_now());
}

/* ---- every wait -------------------------------------------------------------------------------------------------- */

/* Two layers, and a block of each that leaves the ring of hgca. A check runs all steps twice: with a wait of the host
 * between two of them, and without. */
#define OFFLOAD "offload:ctx=60,heads=4/2,head_dim=64,layers=2,steps=4,seed=5"
#define HGCA    "hgca:ctx=60,heads=4/2,head_dim=64,layers=2,steps=6,seed=5,blk_size=4,blk_num=15,beta=-1"

/* Each wait is left out by itself: for each event how many of its waits there are, and which of them another path of
 * order stands for: "4: 1 2". The others are seen. */
static void assert_redundant(const char *id, const char *const *expected)
{
    const struct ha_movement none = { .left_out = SIZE_MAX };
    size_t count[32], events = 0;
    assert_int_equal(judge(id, &none, true), HA_OK);
    while (ha_movement_waits(events) != SIZE_MAX) {
        count[events] = ha_movement_waits(events);
        events++;
    }
    for (size_t event = 0; event < events; event++) {
        char list[128];
        snprintf(list, sizeof list, "%zu:", count[event]);
        for (size_t i = 1; i <= count[event]; i++) {
            const struct ha_movement without = { .left_out = i, .for_event = event };
            const enum ha_status status = judge(id, &without, true);
            assert_true(status == HA_OK || (status == HA_FAIL && !strncmp(reason.text, "order: ", 7)));
            if (status == HA_OK) snprintf(list + strlen(list), sizeof list - strlen(list), " %zu", i);
        }
        assert_non_null(expected[event]);
        assert_string_equal(list, expected[event]);
    }
    assert_null(expected[events]);
}

TEST(each_wait_of_offload_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* stored, of each layer: the wait for the buffer's last use covers it, but where there is one layer alone
     * (load_before_store of the gallery); loaded; used, of each buffer: the first wait of a pass finds nothing
     * recorded, and those of the second buffer are covered by the host's wait between two steps, where it waits */
    const char *const expected[] = {
        "10: 1 2 3 4 5 6 7 8 9 10", "8: 1 2 3 4 5 6 7 8", "8:", "10: 1 6", "8:", "8: 1 2 3 4 5", NULL
    };
    assert_redundant(OFFLOAD, expected);
}

TEST(each_wait_of_hgca_is_needed_or_listed)
{
    if (HA_TSAN) skip(); /* which reports what is planted */
    /* attended; settled, of each layer: the first wait of a pass finds nothing recorded, and behind an eviction the
     * host has waited for the background, which had waited for the event; arrived */
    const char *const expected[] = { "12:", "14: 1 6 8 13", "12:", "14: 1 6 8 13", "24:", NULL };
    assert_redundant(HGCA, expected);
}
