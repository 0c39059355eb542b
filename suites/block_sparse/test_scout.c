/* scout over links that are as late as they are told to be: what is recalled lands when it has come, and the rule goes
 * on meanwhile; and what its memory is for. */

#include "suites/variants/check.h"
#include "suites/variants/repeat.h"
#include "suites/variants/test_shim.h"

#define SHAPE ":dataset=walk,ctx=130+51,heads=4/2,head_dim=16,layers=3,steps=24,threads=1,block=8,budget=45"
#define SCOUT "scout" SHAPE ",recall=on"

static double note(struct ha_pass *p, size_t layer, const char *name)
{
    struct ha_selection s;
    p->variant->selection(p->instance, layer, 0, 0, &s);
    for (size_t i = 0; i < s.notes; i++)
        if (!strcmp(s.note[i].name, name)) return s.note[i].value;
    return (double)NAN;
}

/* ---- an idle link ------------------------------------------------------------------------------------------------ */

/* Where nothing is under way any more when a step begins, what was recalled in the one before has landed. */
TEST(lands_once_the_link_is_idle)
{
    static const char *const ids[] = { SCOUT ",interval=1", SCOUT ",interval=3,resident=all", SCOUT ",fetch=move",
                                       SCOUT ",interval=2,fetch=gather,precompute=off" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        size_t landed = 0;
        double issued[3] = { 0 };
        open_session(ids[i]);
        begin_pass(&p, true);
        for (size_t step = 0; step < opened.c.shape.steps; step++) {
            assert_ok(ha_pass_step(&p, step, &reason));
            for (size_t layer = 0; layer < 3; layer++) {
                const double is = note(&p, layer, "landed");
                if (!(is == issued[layer])) fail_msg("%s: step %zu layer %zu: landed is %g", ids[i], step, layer, is);
                landed += is > 0;
                issued[layer] = note(&p, layer, "recall");
            }
            assert_ok(p.variant->drain(p.instance, &reason));
        }
        assert_true(landed > 0);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- a late one -------------------------------------------------------------------------------------------------- */

enum { HELD_MAX = 4 };
static struct held {
    struct ha_stream *stream;
    uint32_t *flag, value;
    size_t attends; /* of all layers, when it was held back */
} held[HELD_MAX];
static size_t helds, attends, late, releases; /* late: in attentions, of which a step has one a layer */

static enum ha_status flag_write(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    assert_true(helds < HELD_MAX);
    held[helds++] = (struct held){ stream, flag, value, attends };
    return HA_OK;
}

/* What was held back for long enough is written, behind all that it stands for; a step that is checked is over before
 * the next one begins, which then sees it. */
static enum ha_status attend(struct ha_stream *stream, const struct ha_device_attend *args)
{
    attends++;
    for (size_t i = helds; i-- > 0;) {
        if (attends - held[i].attends < late) continue;
        HA_TRY(real->flag_write(held[i].stream, held[i].flag, held[i].value));
        HA_TRY(real->stream_sync(held[i].stream));
        held[i] = held[--helds];
        releases++;
    }
    return real->attend(stream, args);
}

static void begin_late(void) { helds = attends = releases = 0; }

static enum ha_status check_late(const char *id, size_t steps)
{
    begin_late();
    open_shim(id);
    late = steps * session.workload->shape.layers;
    shim.flag_write = flag_write;
    shim.attend = attend;
    struct ha_check c = { .session = &session, .id = id };
    const enum ha_status status = ha_check_run(&c, &reason);
    ha_check_free(&c);
    close_session();
    return status;
}

/* A recall that lands only after the next one was due: until then nothing of it is used, what it does not want is gone,
 * no other one is issued, and the interval is from one issue to the next. */
TEST(late_recalls_are_judged)
{
    static const char *const ids[] = {
        SCOUT ",interval=2",
        SCOUT ",interval=5",
        SCOUT ",interval=4,resident=all",
        SCOUT ",interval=2,resident=all,group=head",
        SCOUT ",interval=1,precompute=off,fetch=gather",
    };
    for (size_t i = 0; i < COUNT(ids); i++)
        for (size_t steps = 1; steps < 5; steps++) {
            if (check_late(ids[i], steps) != HA_OK) fail_msg("%s, %zu late: %s", ids[i], steps, reason.text);
            assert_true(releases > 0);
        }
}

/* ---- what is not recorded ---------------------------------------------------------------------------------------- */

/* A pass that records waits for much that a timed one does not, and with recall=on another pass may have other bits, so
 * that a check compares none. Where recalls land when they are told to, the bits are the same: recorded, not recorded
 * and without a wait between steps, and again from the prefill, to which some recalls are still under way. */
TEST(what_is_not_recorded_is_the_same)
{
    static const char *const ids[] = {
        SCOUT ",interval=2",
        SCOUT ",interval=1,resident=all",
        SCOUT ",interval=3,resident=all,group=head,fetch=gather",
        SCOUT ",interval=1,precompute=off,fetch=move",
        SCOUT ",interval=2,predict=oracle",
    };
    size_t left = 0;
    for (size_t i = 0; i < COUNT(ids); i++) {
        struct ha_pass p;
        struct ha_repeat same;
        open_shim(ids[i]);
        const size_t steps = opened.c.shape.steps, each = session.workload->shape.layers * session.io.out_bytes;
        late = 2 * session.workload->shape.layers;
        shim.flag_write = flag_write;
        shim.attend = attend;
        assert_ok(ha_repeat_open(&same, &session, &reason));
        begin_late();
        begin_pass(&p, true);
        for (size_t step = 0; step < steps; step++) {
            assert_ok(ha_pass_step(&p, step, &reason));
            assert_ok(ha_repeat_keep(&same, &p, step, &reason));
        }
        assert_true(releases > 0);
        left += helds;
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        assert_ok(ha_pass_again(&p, &session, session.variant, session.param, same.kept, false, &reason));
        for (size_t again = 0; again < 3; again++) {
            begin_late();
            assert_ok(ha_pass_run(&p, false, &reason));
            for (size_t step = 0; step < steps; step++)
                assert_ok(ha_repeat_compare(&same, &p, step, same.kept + step * each, &reason));
            if (same.differs) fail_msg("%s: pass %zu: %s", ids[i], again, same.where.text);
            assert_ok(ha_pass_settle(&p, &reason));
            assert_ok(ha_pass_rewind(&p, &reason));
        }
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        ha_repeat_close(&same);
        close_session();
    }
    assert_true(left > 0);
}

/* ---- what is timed ----------------------------------------------------------------------------------------------- */

static enum ha_status merge_nothing(struct ha_stream *stream, const struct ha_merge *args) { return HA_OK; }

static enum ha_status merge_one_side(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge one = *args;
    one.states_count = 1;
    return real->merge(stream, &one);
}

/* Of a timed pass the outputs of the first steps and the last ones, as `run` asks them. */
static enum ha_status time_pass(const struct ha_check *c)
{
    struct ha_pass p;
    enum ha_status status = HA_OK;
    begin_late();
    begin_pass(&p, false);
    assert_ok(ha_pass_run(&p, false, &reason));
    for (size_t step = 0; step < opened.c.shape.steps && status == HA_OK; step++) {
        if (!ha_check_asks(c, step)) continue;
        assert_ok(ha_pass_download(&p, step, &reason));
        status = ha_check_again(c, step, &reason);
    }
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    return status;
}

/* Recalls land later in a timed pass than in the one that was checked, in which the host waits for each step: its
 * outputs are others, and right. What was not written is not; nor what is wrong in the first step, before which nothing
 * can have landed. */
TEST(timed_passes_have_landings_of_their_own)
{
    static const char *const ids[] = { SCOUT ",interval=1", SCOUT ",interval=2,resident=all" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        open_shim(ids[i]);
        late = session.workload->shape.layers;
        shim.flag_write = flag_write;
        shim.attend = attend;
        begin_late();
        struct ha_check c = { .session = &session, .id = ids[i], .steps = 2, .keep_expected = true };
        assert_ok(ha_check_run(&c, &reason));
        late = 5 * session.workload->shape.layers;
        if (time_pass(&c) != HA_OK) fail_msg("%s", reason.text);
        shim.merge = merge_nothing;
        assert_int_equal(time_pass(&c), HA_FAIL);
        shim.merge = merge_one_side;
        assert_int_equal(time_pass(&c), HA_FAIL);
        assert_non_null(strstr(reason.text, "timed pass: step 0 "));
        ha_check_free(&c);
        close_session();
    }
}

/* ---- what memory is for ------------------------------------------------------------------------------------------ */

/* Beside K and V the device keeps the digests and the tables of what is resident, and nothing else. */
TEST(digests_are_no_keys)
{
    open_session(SCOUT ",interval=1");
    const struct ha_shape *s = &session.workload->shape;
    size_t digests = 0, most = 0, whole = 0;
    for (size_t b = 0; b < s->batch; b++) {
        const size_t blocks = (s->ctx[b] + s->steps * s->q_len) / 8;
        digests += s->kv_heads * ((ha_digest_bytes(blocks, s->head_dim, s->dtype) + 63) / 64 * 64);
        most = blocks > most ? blocks : most;
        whole += blocks;
    }
    struct ha_check c = { .session = &session, .id = "the case" };
    assert_ok(ha_check_run(&c, &reason));
    const size_t tables = s->batch * s->kv_heads * most * sizeof(uint32_t), token = 2 * s->kv_heads * s->head_dim * 2,
                 cache = s->batch * 5 * 8 * token;
    assert_near(c.meta_device_bytes, (double)(s->layers * (digests + tables)), 0);
    /* of each sequence five blocks, and behind them a ring that has room for two blocks at most */
    assert_true(c.kv_device_bytes > (double)(s->layers * cache));
    assert_true(c.kv_device_bytes <= (double)(s->layers * (cache + s->batch * 2 * 8 * token)));
    assert_near(c.kv_host_bytes, (double)(s->layers * whole * 8 * token), 0);
    ha_check_free(&c);
    close_session();
}
