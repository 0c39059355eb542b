/* The same twice, by the suite of variants: what depends on more than its input is seen, and named. argv[1]: the plugin
 * of the gallery (suites/defects). */

#include "harness/engine/drive.h"
#include "harness/report/row.h"
#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <stdio.h>
#include <stdlib.h>

static const char *plugin;
static struct ha_driven driven;

#define SHAPE "ctx=40+130,heads=4/2,head_dim=64,layers=2,steps=6,threads=1"

/* The verdict of the one case; its row stays until driven is freed. */
static enum ha_verdict judged(const char *wrong, const char *id)
{
    struct ha_machine *machine;
    assert_int_equal(wrong ? setenv("HA_DEFECT", wrong, 1) : unsetenv("HA_DEFECT"), 0);
    assert_ok(ha_machine_create(&machine, NULL, &reason));
    const enum ha_status status = ha_drive(
        &(struct ha_drive){ .words = id, .device = plugin, .config.machine = machine }, &driven, &reason);
    ha_machine_destroy(machine);
    if (status != HA_OK) fail_msg("%s: %s", id, reason.text);
    assert_int_equal(driven.results.entries, 1);
    return ha_result_in(driven.results.entry->row)->verdict;
}
static const char *column(const char *name) { return ha_driven_text(&driven, driven.results.entry, name); }

/* Each of these passes once, within its bounds. */
TEST(what_depends_on_more_than_its_input_fails)
{
    static const struct {
        const char *wrong, *id;
    } planted[] = {
        { "attend_max", "resident:repeat=1," SHAPE },                 /* on what was where the result goes */
        { "attend_left_far", "resident:repeat=1,dtype=bf16," SHAPE }, /* on what the device computed before */
        { "attend_threads", "resident:repeat=1," SHAPE },             /* on how many threads there are */
        { "attend_line", "resident:repeat=1," SHAPE },                /* on where keys lie */
        { "attend_arrival", "streaming:repeat=120," SHAPE },          /* on the order of arrival */
        { "merge_arrival", "hgca:repeat=1,blk_size=4,blk_num=3," SHAPE },
        { "attend_stale", "resident:repeat=20,ctx=1+1+1+1+1+1+1+1,heads=32/2,head_dim=8,layers=1,steps=20,dtype=f32" },
    };
    size_t missed = 0;
    for (size_t i = 0; i < COUNT(planted); i++) {
        const enum ha_verdict v = judged(planted[i].wrong, planted[i].id);
        const char *why = ha_result_in(driven.results.entry->row)->reason;
        printf("%s: %s\n", planted[i].wrong, why);
        const bool named = strstr(why, "the same input gave other bits") && strstr(why, " step ")
                           && strstr(why, ": layer ") && strstr(why, " head ") && strstr(why, " was ")
                           && strstr(why, "; habench check '");
        if (v != HA_VERDICT_FAIL || !named || strcmp(column("repeat"), "differs") != 0) {
            print_error("%s is not seen, or not named\n", planted[i].wrong);
            missed++;
        }
        ha_driven_free(&driven);
    }
    assert_int_equal(missed, 0);
}

TEST(a_row_says_what_was_seen)
{
    static const struct {
        const char *wrong, *id;
        enum ha_verdict verdict;
        const char *repeat;
    } rows[] = {
        { NULL, "hgca:repeat=1," SHAPE, HA_PASS, "same" },
        { NULL, "hgca:repeat=5,blk_size=4,blk_num=3," SHAPE, HA_PASS, "same" },
        { NULL, "streaming:repeat=3," SHAPE, HA_PASS, "same" },
        { NULL, "resident:graph=1," SHAPE, HA_PASS, "same" }, /* a pass without graphs, once at least */
        { NULL, "streaming:graph=1,window=7," SHAPE, HA_PASS, "same" },
        { NULL, "duo:graph=1,sink=2,recent=9," SHAPE, HA_PASS, "same" },
        { "varies", "resident:repeat=2," SHAPE, HA_PASS, "varies" },
        { "varies", "cpu:repeat=1," SHAPE, HA_PASS, "may vary" },
        { "varies_far", "resident:repeat=1," SHAPE, HA_VERDICT_FAIL, "varies" },
        { NULL, "copy_only:repeat=1," SHAPE, HA_UNCHECKED, "" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const enum ha_verdict v = judged(rows[i].wrong, rows[i].id);
        if (v != rows[i].verdict || strcmp(column("repeat"), rows[i].repeat) != 0)
            fail_msg("%s: verdict %d, '%s': %s", rows[i].id, (int)v, column("repeat"),
                     ha_result_in(driven.results.entry->row)->reason);
        if (v == HA_VERDICT_FAIL)
            assert_contains(ha_result_in(driven.results.entry->row)->reason, "question 1 (arithmetic)");
        ha_driven_free(&driven);
    }
}

/* Where the case does not say it, a third of all ids is repeated, and always the same. */
TEST(a_third_of_all_cases)
{
    struct ha_case c = { .repeat = 7 };
    size_t repeated = 0;
    assert_int_equal(ha_repeat_passes(&c, "any"), 7);
    c.repeat = 0;
    for (int i = 0; i < 1000; i++) {
        char id[64];
        snprintf(id, sizeof id, "hgca:dataset=sinks,ctx=%d,dtype=f16", i);
        repeated += ha_repeat_passes(&c, id);
        assert_int_equal(ha_repeat_passes(&c, id), ha_repeat_passes(&c, id));
    }
    assert_true(repeated > 270 && repeated < 400);
}

static const struct ha_variant *sound;
static size_t made;
static enum ha_status count_create(struct ha_instance **out, const struct ha_context *ctx, struct ha_why *why)
{
    made++;
    return sound->create(out, ctx, why);
}
static void other_side(struct ha_instance *self, size_t layer, size_t seq, size_t q_head, struct ha_selection *out)
{
    sound->selection(self, layer, seq, q_head, out);
    if (made > 1 && layer == 1 && seq == 0 && q_head == 3) out->part[0].on_device ^= true;
}

/* Outputs with the same bits do not hide that other keys were used for them. */
TEST(selections_are_compared)
{
    open_session("streaming:" SHAPE);
    struct ha_variant v = *session.variant;
    struct ha_check c = { .session = &session, .id = "the case", .repeats = 1 };
    sound = session.variant;
    v.create = count_create;
    v.selection = other_side;
    session.variant = &v;
    made = 0;
    assert_int_equal(ha_check_run(&c, &reason), HA_FAIL);
    assert_contains(reason.text, "layer 1 step 5 seq 0 head 3 selected other keys");
    assert_int_equal(c.repeat, HA_REPEAT_DIFFERS);
    assert_int_equal(made, 2);
    close_session();
}

/* ---- the column of all bits -------------------------------------------------------------------------------------- */

static struct {
    size_t step, layer, at; /* where one bit is another: of o, or, behind it, of the LSE */
    bool is;
} flip;

static void flip_bit(void *at)
{
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    bits ^= 1;
    memcpy(at, &bits, sizeof bits);
}

/* The embedded device's memory is this host's. */
static enum ha_status flipped_attend(struct ha_instance *self, const struct ha_step *args, struct ha_why *why)
{
    const struct ha_shape *s = &session.workload->shape;
    const size_t elements = s->batch * s->q_len * s->q_heads * s->head_dim;
    HA_TRY(sound->attend(self, args, why));
    if (!flip.is || args->step != flip.step || args->layer != flip.layer) return HA_OK;
    float *const at = flip.at < elements ? args->o + flip.at : args->lse + (flip.at - elements);
    return session.api->host_fn(session.stream, flip_bit, at);
}

static uint64_t outputs_of(const char *id)
{
    open_session(id);
    struct ha_variant v = *session.variant;
    struct ha_check c = { .session = &session, .id = id, .repeats = 1 };
    sound = session.variant;
    v.attend = flipped_attend;
    session.variant = &v;
    assert_ok(ha_check_run(&c, &reason));
    assert_int_equal(c.repeat, HA_REPEAT_SAME);
    ha_check_free(&c);
    close_session();
    return c.outputs;
}

/* The last bit of one number among all that a case computes is within its bound, and the same each time: nothing else
 * sees it. */
TEST(one_bit_of_all_outputs_is_seen_by_the_digest_alone)
{
    static const char id[] = "streaming:window=7," SHAPE;
    static const size_t batch = 2, heads = 4, dim = 64;
    flip.is = false;
    const uint64_t was = outputs_of(id);
    assert_true(outputs_of(id) == was);
    const size_t elements = batch * heads * dim, places[][3] = {
        { 0, 0, 0 }, { 3, 1, elements - 1 }, { 5, 0, elements / 2 + 3 }, { 5, 1, elements + batch * heads - 1 }
    };
    for (size_t i = 0; i < COUNT(places); i++) {
        flip.is = true;
        flip.step = places[i][0];
        flip.layer = places[i][1];
        flip.at = places[i][2];
        if (outputs_of(id) == was) fail_msg("not seen: step %zu layer %zu, number %zu", flip.step, flip.layer, flip.at);
    }
    flip.is = false;
    assert_true(outputs_of(id) == was);
}

/* One row of the device's that computes otherwise passes as before, and has another digest; what varies, or did not
 * pass, has none. */
TEST(a_row_has_the_digest_of_what_passed)
{
    static const struct {
        const char *wrong, *id;
        enum ha_verdict verdict;
        bool any;
    } rows[] = {
        { NULL, "resident:repeat=1," SHAPE, HA_PASS, true },
        { "attend_all_last_bit", "resident:repeat=1," SHAPE, HA_PASS, true },
        { "varies", "resident:repeat=2," SHAPE, HA_PASS, false },
        { "attend_threads", "resident:repeat=1," SHAPE, HA_VERDICT_FAIL, false },
        { NULL, "copy_only:repeat=1," SHAPE, HA_UNCHECKED, false },
    };
    char first[32] = "";
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(judged(rows[i].wrong, rows[i].id), rows[i].verdict);
        const char *outputs = ha_result_in(driven.results.entry->row)->outputs;
        assert_int_equal(strlen(outputs), rows[i].any ? 16 : 0);
        assert_int_equal(strspn(outputs, "0123456789abcdef"), strlen(outputs));
        if (rows[i].any) assert_string_not_equal(outputs, first);
        if (!i) snprintf(first, sizeof first, "%s", outputs);
        ha_driven_free(&driven);
    }
}

TEST_MAIN
{
    plugin = argc > 1 ? argv[1] : "./defects.so";
    return test_all("tests", NULL, NULL);
}
