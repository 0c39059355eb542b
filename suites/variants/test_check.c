/* What the check must see, shown to it by variants that misbehave. */

#define _GNU_SOURCE /* gettid */
#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/test_beside.h"
#include "suites/parts/frame.h"
#include "suites/variants/check.h"
#include "suites/variants/repeat.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static enum ha_status check(const struct ha_variant *variant)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    session.variant = variant;
    enum ha_status status = ha_check_run(&c, &reason);
    ha_check_free(&c);
    return status;
}

#define SMALL "cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=2,threads=1"

/* ---- a variant of this test ----------------------------------------------------------------- */

static struct {
    uint32_t token[8];
    size_t count, padding;
} listed;

struct ha_instance {
    unsigned char *block;
};

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = ha_alloc(ctx->arena, sizeof **self, HA_TAG_META, why);
    if (!*self) return HA_ERROR;
    (*self)->block = ha_alloc(ctx->arena, 100, HA_TAG_KV, why);
    return (*self)->block ? HA_OK : HA_ERROR;
}
static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why) { return HA_OK; }
static enum ha_status drain_without_a_word(struct ha_instance *self, struct ha_why *why) { return HA_ERROR; }
#if !HA_ASAN /* which stops at the write itself */
static enum ha_status drain_past_the_end(struct ha_instance *self, struct ha_why *why)
{
    memset(self->block + 100, 0, 1);
    return HA_OK;
}
static enum ha_status attend_past_the_end(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    memset(self->block + 100, 0, 1);
    return HA_OK;
}
#endif
static enum ha_status attend_without_a_word(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    return HA_ERROR;
}
static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t head, struct ha_selection *out)
{
    *out = (struct ha_selection){ .parts = 2,
                                  .part = { { .token = listed.token, .count = listed.count, .padding = listed.padding },
                                            { .token = listed.token, .count = 1, .on_device = true } } };
    out->part[1].token = listed.token + 7;
}

static const struct ha_variant mine = {
    .name = "mine",
    .contract = HA_BOUNDED,
    .create = create,
    .prefill = no_prefill,
    .attend = attend,
    .selection = selection,
    .destroy = no_destroy,
};

/* ---- the device ---------------------------------------------------------------------------- */

/* A library of kernels has nothing to run a variant on, and says what judges it. */
TEST(a_library_is_waived)
{
    char id[4200];
    snprintf(id, sizeof id, "cpu:ctx=20,device=%s", beside_as_value("merger.so"));
    for (int i = 0; i < 2; i++) {
        if (i == 0) assert_int_equal(try_session(id, NULL), HA_WAIVED);
        else assert_int_equal(ha_session_open(&session, &opened.shared, &opened.c, NULL, &reason), HA_WAIVED);
        if (!strstr(reason.text, "habench check lse_merge --device ")) fail_msg("%s", reason.text);
    }
    close_session();
}

static const struct ha_device_api *sound;
static void short_heads(struct ha_device *dev, struct ha_device_info *info)
{
    sound->info(dev, info);
    info->head_dim_max = 56;
}

/* Of what attends on the device alone. */
TEST(heads_that_are_too_long_are_waived)
{
    open_session(SMALL);
    sound = session.api;
    struct ha_device_api shorter = *sound;
    shorter.info = short_heads;
    for (unsigned i = 0; i < 3; i++) {
        const struct ha_variant v = { .name = "mine",
                                      .needs = (unsigned[]){ HA_NEEDS_ATTEND, HA_NEEDS_PRODUCTS, HA_NEEDS_MERGE }[i] };
        assert_ok(ha_session_takes(&session, &v, &reason));
        session.api = &shorter;
        assert_int_equal(ha_session_takes(&session, &v, &reason), i < 2 ? HA_WAIVED : HA_OK);
        if (i < 2) assert_string_equal(reason.text, "the device attends over heads of at most 56 elements, not 64");
        session.api = sound;
    }
    close_session();
}

static size_t longest;
static enum ha_status note_heads(struct ha_stream *stream, const struct ha_device_attend *a)
{
    longest = a->head_dim > longest ? a->head_dim : longest;
    return sound->attend(stream, a);
}

/* A variant that attends on the CPU may have heads that are too long for the device; what comes between two passes has
 * not. */
TEST(what_disturbs_is_for_the_device)
{
    struct ha_repeat repeat;
    open_session(SMALL);
    sound = session.api;
    struct ha_device_api noting = *sound;
    noting.attend = note_heads;
    for (size_t most = 0; most <= 56; most += 56) {
        longest = 0;
        session.info.head_dim_max = most;
        assert_ok(ha_repeat_open(&repeat, &session, &reason));
        session.api = &noting;
        assert_ok(ha_repeat_disturb(&repeat, &reason));
        session.api = sound;
        ha_repeat_close(&repeat);
        assert_int_equal(longest, most ? most : 64);
    }
    close_session();
}

/* What a variant needs and the device lacks is named; what it does not need may be missing. */
TEST(missing_operations_are_named)
{
    struct ha_device_api none = { .name = "bare" };
    static const struct {
        unsigned needs;
        const char *says;
    } cases[] = {
        { 0, NULL },
        { HA_NEEDS_ATTEND | HA_NEEDS_MERGE, "no operation attend" },
        { HA_NEEDS_MERGE, "no operation merge" },
        { HA_NEEDS_BLEND, "no operation blend" },
        { HA_NEEDS_COPY_2D, "no operation copy_2d" },
        { HA_NEEDS_PRODUCTS, "no operation attend_products" },
        { HA_NEEDS_MOVE, "no operation move" },
        { HA_NEEDS_DIGEST, "no operation digest" },
        { HA_NEEDS_TOPK, "no operation topk" },
        { HA_NEEDS_SPLIT, "no operation split" },
        { HA_NEEDS_COLUMNS, "no operation columns" },
        { HA_NEEDS_NET, "no operation features" },
        { HA_NEEDS_LABELS, "no operation similarity" },
        { HA_NEEDS_PQ, "no operation pq_encode" },
        { HA_NEEDS_TOPP, "no operation softmax" },
    };

    open_session(SMALL);
    const struct ha_device_api *real = session.api;
    none.info = real->info;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ha_variant v = { .name = "mine", .needs = cases[i].needs };
        session.api = &none;
        const enum ha_status status = ha_session_takes(&session, &v, &reason);
        session.api = real;
        assert_int_equal(status, cases[i].says ? HA_WAIVED : HA_OK);
        if (cases[i].says && !strstr(reason.text, cases[i].says)) fail_msg("'%s': %s", cases[i].says, reason.text);
        assert_ok(ha_session_takes(&session, &v, &reason));
    }
    close_session();
}

/* What stands between a variant and its device lets through what it does not know. */
TEST(shims_pass_the_rest_of_the_table_on)
{
    static const char *const mutant[] = { NULL, "dropped_state" };
    for (size_t i = 0; i < 2; i++) {
        assert_ok(try_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,threads=1", mutant[i]));
        const struct ha_device_api *a = session.api, *b = session.variant_api;
        assert_ptr_not_equal(a, b);
        assert_true(a->graph_begin && a->graph_begin == b->graph_begin && a->graph_end == b->graph_end
                    && a->graph_destroy == b->graph_destroy && a->flag_wait == b->flag_wait);
        assert_ptr_not_equal(a->merge, b->merge); /* it is counted */
        close_session();
    }
}

/* Where the host has a part in a step, or the device has no graphs. */
TEST(graphs_that_cannot_be_are_waived)
{
    assert_int_equal(try_session("hgca:graph=1,ctx=20,heads=4/2,layers=1,threads=1", NULL), HA_WAIVED);
    assert_string_equal(reason.text, "graph=1: a step of hgca has more to it than one stream of the device");
    close_session();
    open_session("resident:graph=1,ctx=20,heads=4/2,layers=1,threads=1");
    struct ha_device_api without = *session.api;
    const struct ha_device_api *const with = session.api;
    without.graph_begin = NULL;
    session.api = &without;
    assert_int_equal(ha_session_takes(&session, session.variant, &reason), HA_WAIVED);
    assert_string_equal(reason.text, "graph=1: the device has no operation graph_begin");
    assert_ok(ha_session_takes(&session, ha_variant_find("offload"), &reason)); /* of others the case asks for none */
    session.api = with;
    assert_ok(ha_session_takes(&session, session.variant, &reason));
    close_session();
}

/* ---- guards and silence ------------------------------------------------------------------- */

TEST(bad_variants_are_seen)
{
    static const struct {
        enum ha_status (*attend)(struct ha_instance *self, const struct ha_step *step, struct ha_why *why);
        enum ha_status (*drain)(struct ha_instance *self, struct ha_why *why);
        bool checked;
        enum ha_status status;
        const char *says;
    } cases[] = {
        { attend, NULL, false, HA_OK, "" },
#if !HA_ASAN
        { attend_past_the_end, NULL, false, HA_FAIL, "" },
        { attend, drain_past_the_end, false, HA_FAIL, "" },
#endif
        { attend_without_a_word, NULL, false, HA_ERROR, "attend failed and gave no reason" },
        { attend, drain_without_a_word, false, HA_ERROR, "drain failed and gave no reason" },
        { attend, NULL, true, HA_ERROR, "variant mine has no definition" },
    };

    open_session(SMALL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ha_variant v = mine;
        v.attend = cases[i].attend;
        v.drain = cases[i].drain;
        v.checked = cases[i].checked;
        reason.text[0] = 0;
        const enum ha_status status = check(&v);
        if (status != cases[i].status || !strstr(reason.text, cases[i].says))
            fail_msg("case %zu: status %d, '%s', not '%s'", i, (int)status, reason.text, cases[i].says);
    }
    close_session();
}

TEST(a_case_has_the_threads_that_it_asks_for)
{
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,threads=3,team=own");
    assert_int_equal(ha_pool_threads(session.pool), 3);
    assert_int_equal(ha_pool_team(session.pool), HA_TEAM_OWN);
    close_session();
}

/* A device that has failed is an error, whatever its operations return. */
static const char *lost(struct ha_device *device) { return "lost"; }

TEST(a_device_that_failed_is_seen)
{
    open_session(SMALL);
    const struct ha_device_api *real = session.api;
    struct ha_device_api failed = *real;
    failed.failure = lost;
    session.api = &failed;
    const enum ha_status status = check(ha_variant_find("cpu"));
    session.api = real;
    assert_int_equal(status, HA_ERROR);
    assert_non_null(strstr(reason.text, "lost"));
    close_session();
}

/* ---- the bound ----------------------------------------------------------------------------- */

/* `cpu`, one element of whose output is moved. */
static struct {
    struct ha_context ctx;
    size_t row;
    float to;
} moved;

static enum ha_status moved_create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    moved.ctx = *ctx;
    return ha_variant_find("cpu")->create(self, ctx, why);
}
static enum ha_status moved_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const enum ha_status status = ha_variant_find("cpu")->attend(self, step, why);
    if (status != HA_OK || step->step || step->layer) return status;
    return moved.ctx.api->copy(moved.ctx.stream, step->o + moved.row * 64, &moved.to, sizeof moved.to, HA_H2D);
}

TEST(each_row_is_held_to_its_bound)
{
    struct ha_variant v = *ha_variant_find("cpu");
    struct ha_check c = { .session = &session, .id = "the case", .keep_expected = true };
    open_session("cpu:ctx=20+9,heads=4/2,head_dim=64,layers=2,steps=2,q_len=2,threads=1");
    assert_ok(ha_check_run(&c, &reason));
    v.create = moved_create;
    v.attend = moved_attend;
    for (size_t row = 0; row < 2 * 2 * 4; row++) { /* of two sequences */
        const struct ha_expected *e = &c.expected[row / 8];
        for (int beyond = 0; beyond < 2; beyond++) {
            char where[64];
            snprintf(where, sizeof where, "layer 0 step 0 seq %zu token %zu head %zu element 0", row / 8, row / 4 % 2,
                     row % 4);
            moved.row = row;
            moved.to = (float)(e->o[row % 8 * 64] + (beyond ? 1.5 : 0.7) * e->o_bound[row % 8 * 64]);
            assert_int_equal(check(&v), beyond ? HA_FAIL : HA_OK);
            if (beyond && !strstr(reason.text, where)) fail_msg("'%s' does not say '%s'", reason.text, where);
        }
    }
    ha_check_free(&c);
    close_session();
}

/* ---- what a device claims ------------------------------------------------------------------- */

/* What would let more pass than kernels like ours do, what the shape leaves no room for, and a type that the numbers
 * are not of: each by itself makes a case fail whose output is right, and is named. */
TEST(claims_are_judged_too)
{
    const struct {
        size_t offset, size;
        const void *claim;
        const char *says;
    } cases[] = {
#define CLAIM(f, type, value, says) { offsetof(struct ha_profile, f), sizeof(type), &(type){ value }, says }
        CLAIM(log_eps, double, 0x1p-11, "times as much as by claims like those of our kernels"),
        CLAIM(log_eps, double, 0x1p-22, NULL),
        CLAIM(exp_eps, double, 0x1p-17, NULL),
        CLAIM(sum_extra, unsigned, 160, "its profile[f32]: sum_extra is 160, not from 0 to 149 where the keys are 21"),
        CLAIM(dot_extra, unsigned, 200, "its profile[f32]: dot_extra is 200, not from 0 to 192 where head_dim is 64"),
        CLAIM(sum_lanes, unsigned, 1, NULL),
        CLAIM(out_type, enum ha_dtype, HA_BF16, "which its profile[f32]: out_type bf16 cannot hold"),
        CLAIM(lse_type, enum ha_dtype, HA_F16, "which its profile[f32]: lse_type f16 cannot hold"),
#undef CLAIM
    };
    open_session("resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=2,dtype=f32,threads=1");
    const struct ha_profile right = session.info.profile[HA_F32];
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_check c = { .session = &session, .id = "the case" };
        session.info.profile[HA_F32] = right;
        memcpy((char *)&session.info.profile[HA_F32] + cases[i].offset, cases[i].claim, cases[i].size);
        reason.text[0] = 0;
        const enum ha_status status = ha_check_run(&c, &reason);
        if (status != (cases[i].says ? HA_FAIL : HA_OK) || !strstr(reason.text, cases[i].says ? cases[i].says : ""))
            fail_msg("%zu: status %d '%s', not '%s'", i, (int)status, reason.text, cases[i].says);
        if (status == HA_FAIL) assert_int_equal(c.question, 1);
        else
            assert_true(c.sensitivity.o > 1e-7 && c.sensitivity.o < 1e-2 && c.sensitivity.lse > 1e-7
                        && c.sensitivity.lse < 1e-3 && c.sensitivity.times > 0.1);
        ha_check_free(&c);
    }
    session.info.merge.depth_extra = 30; /* nothing is merged */
    session.info.profile[HA_F32] = right;
    struct ha_check c = { .session = &session, .id = "the case" };
    assert_ok(ha_check_run(&c, &reason));
    close_session();
    open_session("hgca:ctx=90,heads=4/2,head_dim=64,layers=1,steps=2,blk_size=8,blk_num=4,threads=1");
    session.info.merge.depth_extra = 30;
    assert_int_equal(ha_check_run(&c, &reason), HA_FAIL);
    assert_non_null(strstr(reason.text, "its traits: depth_extra is 30, not from 0 to 18 where 2 states are merged"));
    close_session();
}

/* What the device is in comes from its own claims, what it is set beside from those of our kernels: where all keys are
 * the CPU's, they are the same. */
TEST(sensitivity_is_of_what_the_device_does)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=1,dtype=f32,threads=1");
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) session.info.profile[t].log_eps = 0x1p-11;
    assert_ok(ha_check_run(&c, &reason));
    assert_true(c.sensitivity.times == 1 && c.sensitivity.lse < 1e-4);
    close_session();
}

/* ---- what is counted ------------------------------------------------------------------------ */

TEST(bytes_are_of_a_step_that_was_asked)
{
    struct ha_check c = { .session = &session, .id = "the case", .steps = 2 };
    const double row = 2 * 64 * 2; /* K and V in f16 */
    open_session("resident:ctx=100+40,heads=4/2,head_dim=64,layers=3,steps=9,dtype=f16,threads=1");
    assert_ok(ha_check_run(&c, &reason));
    /* of steps 0, 1, 7 and 8, each with its new token, by 3 layers and 2 KV heads */
    assert_near(c.device_key_bytes, (100 + 40 + 2 * 5) * row * 3 * 2, 1e-6);
    assert_near(c.host_key_bytes, 0, 0);
    assert_true(c.kv_device_bytes >= (109 + 49) * row * 3 * 2 && c.meta_device_bytes < 1000);
    assert_true(c.total.err_over_bound > 0 && c.total.err_over_bound <= 1 && c.total.everything);
    assert_near(c.total.keys_sum, (100 + 40 + 2 * 5) * 4.0 * 3 * 4, 1e-6); /* by 4 steps, 3 layers, 4 heads */
    ha_check_free(&c);
    close_session();
}

/* Of a group of heads the longest list counts, of each side; K and V that are pinned are the host's. */
TEST(each_side_reads_its_longest_lists)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    struct ha_pass p;
    struct ha_chosen chosen;
    size_t device = 0, host = 0, last = 0;
    open_session("hgca:ctx=400,heads=8/2,head_dim=64,layers=1,steps=1,blk_size=8,blk_num=4,dtype=f16,threads=1");
    assert_ok(ha_check_run(&c, &reason));
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    assert_ok(ha_chosen_read(&chosen, &p, 0, 0, 0, &reason));
    for (size_t group = 0; group < 2; group++) {
        size_t most_device = 0, most_host = 0;
        for (size_t h = 4 * group; h < 4 * group + 4; h++) {
            const size_t on_device = ha_chosen_device_keys(&chosen, h),
                         on_host = ha_chosen_keys(&chosen, h) - on_device;
            most_device = on_device > most_device ? on_device : most_device;
            most_host = on_host > most_host ? on_host : most_host;
            last += h % 4 == 3 ? on_host : 0;
        }
        device += most_device;
        host += most_host;
    }
    assert_true(device > 0 && last > 0 && host > last); /* another head than the last has the longest */
    assert_near(c.device_key_bytes, (double)device * 2 * 64 * 2, 1e-6);
    assert_near(c.host_key_bytes, (double)host * 2 * 64 * 2, 1e-6);
    ha_chosen_free(&chosen);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    ha_check_free(&c);
    close_session();

    open_session("offload:ctx=400,heads=8/2,head_dim=64,layers=2,steps=1,dtype=f16,threads=1");
    assert_ok(ha_check_run(&c, &reason));
    assert_true(c.kv_host_bytes >= 400 * 2 * 64 * 2 * 2 * 2);
    ha_check_free(&c);
    close_session();
}

/* ---- selections --------------------------------------------------------------------------- */

static enum ha_status read_selection(size_t count, const uint32_t *token, size_t padding, struct ha_chosen *chosen)
{
    struct ha_pass pass;
    memset(&listed, 0, sizeof listed);
    memcpy(listed.token, token, count * sizeof *token);
    listed.token[7] = 3;
    listed.count = count;
    listed.padding = padding;
    session.variant = &mine;
    begin_pass(&pass, true);
    enum ha_status status = ha_chosen_read(chosen, &pass, 0, 0, 0, &reason);
    ha_pass_end(&pass, HA_OK, NULL);
    return status;
}

TEST(selections_are_put_in_order)
{
    struct ha_chosen c;
    open_session(SMALL);
    assert_ok(read_selection(3, (const uint32_t[]){ 20, 0, 7 }, 1, &c));
    assert_int_equal(c.parts, 2);
    assert_int_equal(c.count, 4 * 4);
    for (size_t h = 0; h < 4; h++) {
        const uint32_t *t = c.token + c.offset[h * (HA_PARTS_MAX + 1)];
        assert_true(t[0] == 0 && t[1] == 7 && t[2] == 20 && t[3] == 3);
        assert_int_equal(ha_chosen_keys(&c, h), 4);
        assert_int_equal(ha_chosen_device_keys(&c, h), 1);
        assert_true(ha_chosen_same(&c, 0, h));
    }
    ha_chosen_free(&c);
    close_session();
}

/* The same keys of the other side are judged by another profile. */
TEST(the_same_keys_are_of_the_same_side)
{
    size_t offset[2 * HA_CHOSEN_STRIDE];
    struct ha_part part[2 * HA_PARTS_MAX] = { { .count = 0 } };
    uint32_t token[] = { 1, 5, 1, 5 };
    const struct ha_chosen c = { .token = token, .count = 4, .offset = offset, .part = part, .parts = 1 };
    for (size_t h = 0; h < 2; h++)
        for (size_t p = 0; p < HA_CHOSEN_STRIDE; p++) offset[h * HA_CHOSEN_STRIDE + p] = 2 * h + (p ? 2 : 0);
    assert_true(ha_chosen_same(&c, 0, 1));
    part[HA_PARTS_MAX].on_device = true;
    assert_false(ha_chosen_same(&c, 0, 1));
    part[0].on_device = true;
    assert_true(ha_chosen_same(&c, 0, 1));
    part[0].weight_only = true;
    assert_false(ha_chosen_same(&c, 0, 1));
    part[0].weight_only = false;
    token[3] = 6;
    assert_false(ha_chosen_same(&c, 0, 1));
}

TEST(impossible_selections_fail)
{
    static const struct {
        uint32_t token[3];
        size_t count, padding;
        const char *says;
    } wrong[] = {
        { { 1, 2, 1 }, 3, 0, "key 1 is listed twice" },
        { { 1, 3, 5 }, 3, 0, "key 3 is listed twice" },  /* the other part has it */
        { { 1, 21, 5 }, 3, 0, "key 21 does not exist" }, /* 20 tokens and the first step's */
        { { 1, UINT32_MAX, 5 }, 3, 0, "does not exist" },
        { { 1, 2, 5 }, 3, 4, "padding" },
    };

    open_session(SMALL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ha_chosen c;
        assert_int_equal(read_selection(wrong[i].count, wrong[i].token, wrong[i].padding, &c), HA_FAIL);
        if (!strstr(reason.text, wrong[i].says)) fail_msg("'%s' does not say '%s'", reason.text, wrong[i].says);
        ha_chosen_free(&c);
    }
    close_session();
}

TEST(exact_means_everything)
{
    struct ha_variant v = *ha_variant_find("streaming");
    open_session("streaming:ctx=80,heads=4/2,head_dim=64,layers=1,steps=1,sink=2,window=8");
    assert_ok(check(&v));
    v.contract = HA_EXACT;
    assert_int_equal(check(&v), HA_FAIL);
    assert_non_null(strstr(reason.text, "exact"));
    close_session();
}

/* Values whose sums may leave binary32: the case is neither right nor wrong, and says why. */
TEST(what_may_overflow_is_not_judged)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    for (size_t too_large = 0; too_large < 2; too_large++) {
        open_session("hgca:ctx=31,heads=2/1,head_dim=8,layers=1,steps=1,blk_size=8,blk_num=8,dtype=f32");
        /* 2^8 times 32 keys is 2^13; key 3 */
        ((float *)session.workload->v[0])[3 * 8 + 5] = too_large ? 0x1p115f : 0x1.fffffcp114f;
        assert_int_equal(ha_check_run(&c, &reason), too_large ? HA_ERROR : HA_OK);
        if (too_large)
            assert_contains(reason.text, "layer 0 seq 0: 2^8 times the keys times max|V| is beyond binary32");
        ha_check_free(&c);
        close_session();
    }
}

/* A part of a score beyond the type of a table, whether its key is chosen or not. */
TEST(a_score_beyond_its_type_is_not_judged)
{
    struct ha_check c = { .session = &session, .id = "the case" };
    for (size_t i = 0; i < 6; i++) {
        const bool f16 = i % 2, large = i > 1;
        open_session(f16 ? "hcattention:ctx=31,heads=2/1,head_dim=8,layers=1,steps=1,dtype=f32,fresh=0,table=f16"
                         : "hcattention:ctx=31,heads=2/1,head_dim=8,layers=1,steps=1,dtype=f32,fresh=0");
        for (size_t d = 0; d < 8 && large; d++) ((float *)session.workload->k[0])[3 * 8 + d] = i > 3 ? -1e7f : 1e7f;
        assert_int_equal(ha_check_run(&c, &reason), f16 && large ? HA_ERROR : HA_OK);
        if (f16 && large) assert_contains(reason.text, "layer 0 seq 0: a part of a score may be beyond the type");
        ha_check_free(&c);
        close_session();
    }
}

/* ---- the timed pass ------------------------------------------------------------------------- */

TEST(a_timed_output_that_differs_fails)
{
    struct ha_check c = { .session = &session, .id = "the case", .steps = 2, .keep_expected = true };
    struct ha_pass p;
    open_session("hgca:ctx=100+40,heads=4/2,head_dim=64,layers=2,steps=6,blk_size=8,blk_num=4");
    assert_ok(ha_check_run(&c, &reason));
    assert_int_equal(c.steps_done, 6);
    assert_int_equal(c.asked, 4);
    begin_pass(&p, false);
    assert_ok(ha_pass_run(&p, false, &reason));
    for (size_t step = 0; step < 6; step++) assert_true(ha_check_asks(&c, step) == (step != 2 && step != 3));
    for (size_t step = 0; step < 6; step++) {
        assert_ok(ha_pass_download(&p, step, &reason));
        if (ha_check_asks(&c, step)) assert_ok(ha_check_again(&c, step, &reason));
    }
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL); /* another step's */
    assert_ok(ha_pass_download(&p, 4, &reason));
    assert_ok(ha_check_again(&c, 4, &reason));
    float *o = (float *)(void *)(session.host_out + session.io.out_bytes + session.io.o), kept = o[200];
    o[200] = kept + 1e-4f;
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL);
    assert_non_null(strstr(reason.text, "head 3"));
    o[200] = (float)NAN;
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL);
    o[200] = kept;
    float *lse = (float *)(void *)(session.host_out + session.io.lse);
    lse[1] += 0.01f;
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL);
    c.expected[2 * 2 * 2].lse[1] = -(double)INFINITY; /* of the first layer and sequence of the third step asked */
    lse[1] = -INFINITY;
    assert_ok(ha_check_again(&c, 4, &reason));
    lse[1] = INFINITY;
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL);
    c.expected[2 * 2 * 2].lse[1] = 3; /* nothing excuses it, however far off the bound lets it be */
    c.expected[2 * 2 * 2].lse_bound[1] = (double)INFINITY;
    assert_int_equal(ha_check_again(&c, 4, &reason), HA_FAIL);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    ha_check_free(&c);
    close_session();
}

/* ---- question 3 ------------------------------------------------------------------------------ */

enum { TOKENS = 91, DIM = 64 };

/* plain: full attention of the query of head h at the first step, and what the chosen keys have of it */
static void plain_quality(const struct ha_pass *p, size_t h, double *diff2, double *norm2, double *mass, double *recall)
{
    const struct ha_workload *w = session.workload;
    const float *q = ha_session_q(&session, 0) + h * DIM, *got = ha_session_o(&session, 0) + h * DIM;
    double weight[TOKENS], sum = 0, most = -1e300, o[DIM] = { 0 };
    struct ha_selection s;
    size_t used = 0, hits = 0, kv = h / 2;
    for (size_t t = 0; t < TOKENS; t++) {
        double dot = 0;
        for (size_t d = 0; d < DIM; d++)
            dot += (double)q[d] * (double)ha_load(w->k[0], (kv * w->cap + t) * DIM + d, w->shape.dtype);
        weight[t] = dot * (double)w->shape.scale;
        most = weight[t] > most ? weight[t] : most;
    }
    for (size_t t = 0; t < TOKENS; t++) sum += weight[t] = exp(weight[t] - most);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t d = 0; d < DIM; d++)
            o[d] += weight[t] / sum * (double)ha_load(w->v[0], (kv * w->cap + t) * DIM + d, w->shape.dtype);
    *diff2 = *norm2 = *mass = 0;
    for (size_t d = 0; d < DIM; d++) {
        *diff2 += ((double)got[d] - o[d]) * ((double)got[d] - o[d]);
        *norm2 += o[d] * o[d];
    }
    p->variant->selection(p->instance, 0, 0, h, &s);
    for (size_t part = 0; part < s.parts; part++) used += s.part[part].count;
    for (size_t part = 0; part < s.parts; part++)
        for (size_t i = 0; i < s.part[part].count; i++) {
            size_t heavier = 0, t = s.part[part].token[i];
            for (size_t other = 0; other < TOKENS; other++) heavier += weight[other] > weight[t];
            hits += heavier < used;
            *mass += weight[t] / sum;
        }
    *recall = (double)hits / (double)used;
}

TEST(quality_agrees_with_plain_arithmetic)
{
    struct ha_judged judged[4];
    struct ha_accuracy a;
    struct ha_chosen c;
    struct ha_pass p;
    double diff2 = 0, norm2 = 0, mass = 0, least = 1, recall = 0, largest_diff = 0, largest_norm = 0, off = 0;
    open_session("h2o:ctx=90,heads=4/2,head_dim=64,layers=1,steps=1,dataset=iid,dtype=bf16");
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    assert_ok(ha_chosen_read(&c, &p, 0, 0, 0, &reason));
    assert_int_equal(c.parts, 1); /* two would be given the bound of a merge */
    assert_ok(ha_oracle_judge(&p, &c, 0, 0, 0, judged, NULL, &reason));
    for (size_t h = 0; h < 4; h++) {
        double d, n, m, r;
        plain_quality(&p, h, &d, &n, &m, &r);
        assert_near(judged[h].mass, m, 1e-9);
        assert_near(judged[h].recall, r, 1e-12);
        assert_near(judged[h].diff2, d, 1e-9 * d);
        assert_near(judged[h].norm2, n, 1e-9 * n);
        assert_true(judged[h].cert_slack <= 1 && judged[h].cert_slack > 0);
        assert_true(judged[h].ratio <= 1 && judged[h].keys < TOKENS && judged[h].visible == TOKENS);
        diff2 += d;
        norm2 += n;
        mass += m / 4;
        recall += r / 4;
        least = fmin(least, m);
        off += sqrt(d / n) > 0.2;
        largest_diff = fmax(largest_diff, sqrt(d));
        largest_norm = fmax(largest_norm, sqrt(n));
    }
    ha_accuracy_start(&a);
    ha_accuracy_add(&a, judged, 4);
    assert_near(ha_accuracy_rel_l2(&a), sqrt(diff2 / norm2), 1e-9);
    assert_near(a.rel_l2_head_max, largest_diff / largest_norm, 1e-9);
    assert_near(ha_accuracy_heads_off(&a), off / 4, 1e-12);
    assert_true(isnan(ha_accuracy_rel_l2_wo(&a))); /* there is no W_O */
    assert_near(a.mass_sum / 4, mass, 1e-9);
    assert_near(a.mass_min, least, 1e-9);
    assert_near(a.recall_sum / 4, recall, 1e-9);
    assert_false(a.everything);
    ha_chosen_free(&c);
    ha_pass_end(&p, HA_OK, NULL);
    close_session();
}

/* plain: full attention of a query head over the first `tokens` keys */
static void plain_attention(size_t layer, size_t seq, size_t h, size_t tokens, const float *q, double *o)
{
    enum { MOST = 2048 };
    const struct ha_workload *w = session.workload;
    const size_t i = layer * w->shape.batch + seq, first = h / ha_shape_group(&w->shape) * w->cap;
    double weight[MOST], sum = 0;
    assert_true(tokens <= MOST && w->shape.head_dim == DIM);
    for (size_t t = 0; t < tokens; t++) {
        double dot = 0;
        for (size_t d = 0; d < DIM; d++)
            dot += (double)q[d] * (double)ha_load(w->k[i], (first + t) * DIM + d, w->shape.dtype);
        sum += weight[t] = exp(dot * (double)w->shape.scale);
    }
    for (size_t d = 0; d < DIM; d++) o[d] = 0;
    for (size_t t = 0; t < tokens; t++)
        for (size_t d = 0; d < DIM; d++)
            o[d] += weight[t] / sum * (double)ha_load(w->v[i], (first + t) * DIM + d, w->shape.dtype);
}

/* Of layer 1 of sequence 1, both tokens: W_O of that layer, times all heads of a token. */
static double plain_after_wo(struct ha_projected *out)
{
    enum { HEADS = 8, WIDTH = HEADS * DIM };
    const struct ha_shape *s = &session.workload->shape;
    const float *wo = session.workload->projection[1].wo;
    assert_true(s->q_heads == HEADS && s->q_len == 2 && s->batch == 2);
    *out = (struct ha_projected){ 0, 0 };
    for (size_t token = 0; token < 2; token++) {
        const float *q = ha_session_q(&session, 1) + (2 + token) * WIDTH,
                    *got = ha_session_o(&session, 1) + (2 + token) * WIDTH;
        double o[WIDTH];
        for (size_t h = 0; h < HEADS; h++) plain_attention(1, 1, h, s->ctx[1] + token + 1, q + h * DIM, o + h * DIM);
        for (size_t row = 0; row < s->model_dim; row++) {
            double is = 0, full = 0;
            for (size_t i = WIDTH; i-- > 0;) {
                is += (double)wo[row * WIDTH + i] * (double)got[i];
                full += (double)wo[row * WIDTH + i] * o[i];
            }
            out->diff2 += (is - full) * (is - full);
            out->norm2 += full * full;
        }
    }
    return sqrt(out->diff2 / out->norm2);
}

/* What comes behind W_O is of a token, whatever its heads; of keys that are all used it is what rounding leaves. */
TEST(the_error_behind_the_output_projection)
{
    static const struct {
        const char *id;
        double least, most;
    } each[] = { { "h2o:", 0.01, 1 }, { "cpu:", 0, 1e-5 } };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char id[160];
        struct ha_judged judged[16];
        struct ha_accuracy a, half;
        struct ha_chosen c;
        struct ha_pass p;
        struct ha_projected plain;
        snprintf(id, sizeof id, "%sctx=1810+1900,batch=2,q_len=2,layers=2,steps=1,dataset=trace/english+code",
                 each[i].id);
        open_session(id);
        begin_pass(&p, true);
        assert_ok(ha_pass_step(&p, 0, &reason));
        assert_ok(ha_chosen_read(&c, &p, 0, 1, 1, &reason));
        assert_ok(ha_oracle_judge(&p, &c, 0, 1, 1, judged, NULL, &reason));
        const double want = plain_after_wo(&plain);
        ha_accuracy_start(&a);
        ha_accuracy_start(&half);
        for (size_t t = 0; t < 2; t++) ha_accuracy_add(t ? &half : &a, judged + t * 8, 8);
        ha_accuracy_join(&a, &half);
        assert_near(a.after_wo.norm2, plain.norm2, 1e-9 * plain.norm2);
        assert_near(ha_accuracy_rel_l2_wo(&a), want, 1e-9);
        assert_true(want > each[i].least && want < each[i].most);
        ha_chosen_free(&c);
        ha_pass_end(&p, HA_OK, NULL);
        close_session();
    }
}

/* One key is heavier than all others, which are equal: of three keys used, two equal ones are among the three heaviest,
 * and no more. */
TEST(of_equal_keys_as_many_count_as_are_needed)
{
    struct ha_judged judged[4];
    struct ha_chosen c;
    struct ha_pass p;
    open_session(SMALL);
    session.variant = &mine;
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    memset(session.workload->k[0], 0, session.workload->cap * 2 * DIM * 2);
    for (size_t d = 0; d < DIM; d++) ha_store(session.workload->k[0], d, HA_F16, ha_session_q(&session, 0)[d]);
    for (uint32_t first = 0; first < 2; first++) {
        memset(&listed, 0, sizeof listed);
        memcpy(listed.token, (const uint32_t[8]){ first, 2, [7] = 3 }, sizeof listed.token);
        listed.count = 2;
        assert_ok(ha_chosen_read(&c, &p, 0, 0, 0, &reason));
        assert_ok(ha_oracle_judge(&p, &c, 0, 0, 0, judged, NULL, &reason));
        assert_int_equal(judged[0].keys, 3);
        assert_near(judged[0].recall, first ? 2.0 / 3 : 1, 1e-12);
        ha_chosen_free(&c);
    }
    ha_pass_end(&p, HA_OK, NULL);
    close_session();
}

/* Of a query's heads those that are off by more than a fifth of their own length: 0.19, 0.21, not a number, and any
 * error of what should be 0; not a head of which there is no full attention. */
TEST(heads_that_are_off)
{
    const double nan = (double)NAN;
    const struct ha_judged judged[] = {
        { .diff2 = 0.19 * 0.19, .norm2 = 1 }, { .diff2 = 0.21 * 0.21, .norm2 = 1 },
        { .diff2 = 0.21 * 0.21, .norm2 = 9 }, { .diff2 = nan, .norm2 = 1 },
        { .diff2 = 1e-9, .norm2 = 0 },        { .diff2 = 0, .norm2 = 0 },
        { .diff2 = 1, .norm2 = nan },
    };
    struct ha_accuracy a, b;
    ha_accuracy_start(&a);
    assert_true(isnan(ha_accuracy_heads_off(&a)));
    ha_accuracy_add(&a, judged, COUNT(judged));
    assert_near(ha_accuracy_heads_off(&a), 3.0 / 6, 1e-12);
    ha_accuracy_start(&b);
    ha_accuracy_add(&b, judged, 2);
    ha_accuracy_join(&a, &b);
    assert_near(ha_accuracy_heads_off(&a), 4.0 / 8, 1e-12);
}

TEST(an_error_that_is_not_a_number_is_the_largest)
{
    struct ha_judged j[2] = { { .ratio = (double)NAN }, { .ratio = 0.5 } };
    struct ha_accuracy a, all;
    ha_accuracy_start(&a);
    ha_accuracy_start(&all);
    ha_accuracy_add(&a, j, 2);
    assert_true(isinf(a.err_over_bound));
    ha_accuracy_join(&all, &a);
    assert_true(isinf(all.err_over_bound));
}

/* The worst of all is kept, in whatever order they come. */
TEST(accuracies_are_joined)
{
    const struct ha_judged poor = { .ratio = 0.9,
                                    .keys = 3,
                                    .visible = 4,
                                    .mass = 0.5,
                                    .cert_slack = 0.8,
                                    .recall = 0.25,
                                    .score_off2 = 4 },
                           good = { .ratio = 0.1,
                                    .keys = 4,
                                    .visible = 4,
                                    .full = true,
                                    .mass = 1,
                                    .cert_slack = 0.2,
                                    .recall = 0.75,
                                    .score_off2 = (double)NAN };
    for (int order = 0; order < 2; order++) {
        struct ha_accuracy all, each[2];
        ha_accuracy_start(&all);
        for (int i = 0; i < 2; i++) {
            ha_accuracy_start(&each[i]);
            ha_accuracy_add(&each[i], i == order ? &poor : &good, 1);
            assert_int_equal(each[i].everything, i != order);
            ha_accuracy_join(&all, &each[i]);
        }
        assert_false(all.everything);
        assert_near(all.err_over_bound, 0.9, 0);
        assert_near(all.mass_min, 0.5, 0);
        assert_near(all.cert_slack, 0.8, 0);
        assert_near(all.mass_sum, 1.5, 0);
        assert_near(all.recall_sum, 1, 0);
        assert_near(all.keys_sum, 7, 0);
        assert_near(ha_accuracy_score_error(&all), 2, 0);
        assert_true(all.queries == 2 && all.mass_count == 2 && all.slack_count == 2 && all.recall_count == 2);
    }
}

static void add_scores(void *arg, size_t step, size_t layer, const struct ha_accuracy *a)
{
    ((double *)arg)[layer] += a->score_off2_sum;
    assert_int_equal(a->score_count, 4);
}

/* Of three layers the last one alone is the later half. Keys that are themselves have no such error. */
TEST(score_errors_of_layers)
{
    for (size_t layers = 3; layers <= 4; layers++) {
        double layer[4] = { 0 };
        struct ha_check c = { .session = &session, .id = "the case", .layer_done = add_scores, .arg = layer };
        open_session(layers == 3 ? "hcattention:ctx=90,heads=4/2,head_dim=64,layers=3,steps=2,c=16,fresh=5,threads=1"
                                 : "hcattention:ctx=90,heads=4/2,head_dim=64,layers=4,steps=2,c=16,fresh=5,threads=1");
        assert_ok(ha_check_run(&c, &reason));
        ha_check_free(&c);
        close_session();
        const double earlier = layer[0] + layer[1], later = layer[2] + layer[3];
        assert_true(layer[0] > 0 && layer[1] > 0 && layer[2] > 0);
        assert_near(c.half[0].score_off2_sum, earlier, 1e-9);
        assert_near(c.half[1].score_off2_sum, later, 1e-9);
        assert_near(ha_accuracy_score_error(&c.total), sqrt((earlier + later) / (double)(4 * layers * 2)), 1e-9);
    }
    struct ha_check c = { .session = &session, .id = "the case" };
    open_session(SMALL);
    assert_ok(ha_check_run(&c, &reason));
    ha_check_free(&c);
    close_session();
    assert_true(isnan(ha_accuracy_score_error(&c.total)));
}

/* ---- sequences on CPU workers of their own ------------------------------------------------------ */

static struct {
    void (*real)(const struct ha_kernels *self, const struct ha_attend *a);
    atomic_int thread[2]; /* of each sequence */
    atomic_size_t units[2], strangers;
} seen;

/* The longer sequence is the first one. */
static void attend_of_sequence(const struct ha_kernels *self, const struct ha_attend *a)
{
    const size_t b = a->packed.keys + a->runs->keys < 150;
    int nobody = 0;
    atomic_fetch_add(&seen.units[b], 1);
    if (!atomic_compare_exchange_strong(&seen.thread[b], &nobody, gettid()) && nobody != gettid())
        atomic_fetch_add(&seen.strangers, 1);
    seen.real(self, a);
}

static bool always(const struct ha_context *ctx) { return true; }

TEST(each_sequence_has_workers_of_its_own)
{
    struct ha_variant v = *ha_variant_find("cpu");
    struct ha_rule rule = *v.rule;
    rule.by_sequence = always;
    v.rule = &rule;
    open_session("cpu:ctx=200+90,heads=4/2,head_dim=64,layers=1,steps=2,threads=2,team=own");
    memset(&seen, 0, sizeof seen);
    seen.real = session.cpu.attend;
    session.cpu.attend = attend_of_sequence;
    assert_ok(check(&v));
    assert_true(seen.units[0] == 4 && seen.units[1] == 4 && seen.strangers == 0); /* KV heads of two steps */
    assert_int_not_equal(seen.thread[0], seen.thread[1]);
    close_session();
}
