/* What the check must see, shown to it by variants that misbehave. */

#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/test_beside.h"
#include "suites/variants/check.h"
#include "suites/variants/test_session.h"

#include <stdio.h>

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
    snprintf(id, sizeof id, "cpu:ctx=20,device=%s", beside("merger.so"));
    for (int i = 0; i < 2; i++) {
        if (i == 0) assert_int_equal(try_session(id, NULL), HA_WAIVED);
        else assert_int_equal(ha_session_open(&session, &opened.shared, &opened.c, NULL, &reason), HA_WAIVED);
        if (!strstr(reason.text, "habench check lse_merge --device /")) fail_msg("%s", reason.text);
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
                    && a->graph_launch == b->graph_launch && a->graph_destroy == b->graph_destroy
                    && a->blend == b->blend);
        assert_true((a->merge == b->merge) == (i == 0));
        close_session();
    }
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
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    ha_check_free(&c);
    close_session();
}

/* ---- the data ------------------------------------------------------------------------------ */

/* Every key, value and query that a variant is handed is the dataset's, the new tokens' too. */
TEST(inputs_are_those_of_the_dataset)
{
    struct ha_workload *w;
    size_t row = 64 * 2;
    uint16_t k[64], v[64];
    float q[64];
    open_session("cpu:ctx=70+3+0,heads=4/2,head_dim=64,layers=2,steps=2,q_len=2,observed=4,dtype=bf16,dataset=iid");
    w = session.workload;
    assert_int_equal(w->cap, 74);
    unsigned char *blocks = calloc(2, session.io.in_bytes);
    for (size_t layer = 0; layer < 2; layer++) {
        const struct ha_prefill in = ha_workload_prefill(w, layer);
        for (size_t b = 0; b < 3; b++)
            for (size_t h = 0; h < 2; h++)
                for (size_t t = 0; t < w->shape.ctx[b] + 4; t++) {
                    w->dataset->kv(w->source, b, layer, h, t, 1, k, v);
                    assert_memory_equal((unsigned char *)w->k[layer * 3 + b] + (h * w->cap + t) * row, k, row);
                    assert_memory_equal((unsigned char *)w->v[layer * 3 + b] + (h * w->cap + t) * row, v, row);
                    if (t < w->shape.ctx[b]) {
                        assert_memory_equal((const unsigned char *)in.k[b] + (h * in.cap + t) * row, k, row);
                        assert_memory_equal((const unsigned char *)in.v[b] + (h * in.cap + t) * row, v, row);
                    } else {
                        size_t step = (t - w->shape.ctx[b]) / 2, at = b * 2 + (t - w->shape.ctx[b]) % 2;
                        const unsigned char *block = blocks + layer * session.io.in_bytes;
                        ha_workload_step(w, step, session.pool, &session.io, blocks);
                        assert_memory_equal(block + session.io.k + (at * 2 + h) * row, k, row);
                        assert_memory_equal(block + session.io.v + (at * 2 + h) * row, v, row);
                        w->dataset->query(w->source, b, layer, 2 * h + 1, t, q);
                        assert_memory_equal(block + session.io.q + (at * 4 + 2 * h + 1) * 256, q, 256);
                    }
                }
        for (size_t b = 0; b < 3; b++) {
            const size_t ctx = w->shape.ctx[b], seen = ctx < 4 ? ctx : 4; /* the last 4, where there are as many */
            for (size_t i = 0; i < seen * 4; i++) {
                w->dataset->query(w->source, b, layer, i % 4, ctx - seen + i / 4, q);
                assert_memory_equal(in.q[b] + i * 64, q, sizeof q);
            }
        }
    }
    free(blocks);
    close_session();
}

/* The data of the last cases are kept for whoever asks for the same. */
TEST(data_serve_the_cases_that_ask_for_them)
{
    static const struct {
        const char *id;
        int same_as; /* the case before whose data they are, or -1 */
    } cases[] = {
        { "cpu:ctx=70,layers=1,seed=3", -1 },
        { "resident:ctx=70,layers=1,seed=4", -1 },
        { "resident:ctx=70,layers=1,seed=3", 0 },
        { "cpu:ctx=70,layers=1,seed=3,dataset=iid", -1 },
        { "cpu:ctx=70,layers=1,seed=3,steps=7", -1 },
        { "cpu:ctx=69,layers=1,seed=3", -1 },
        { "hgca:ctx=70,layers=1,seed=4,beta=3", 1 },
        { "cpu:ctx=70,layers=1,seed=3,dtype=bf16", -1 },
        { "cpu:ctx=1900,steps=1,dataset=trace/english", -1 },
        { "hgca:ctx=1900,steps=1,dataset=trace/english", 8 },
    };
    const struct ha_workload *data[COUNT(cases)];
    open_session("cpu:ctx=5");
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct ha_case c;
        ha_session_close(&session);
        assert_ok(ha_case_parse(cases[i].id, &c, &reason));
        assert_ok(ha_session_open(&session, &opened.shared, &c, NULL, &reason));
        data[i] = session.workload;
        for (size_t j = 0; j < i; j++)
            if ((data[i] == data[j]) != ((int)j == cases[i].same_as)) fail_msg("%s and %s", cases[i].id, cases[j].id);
    }
    close_session();
}

/* ha_alloc, which has no memory at one of its calls. */
static size_t allocs_left = SIZE_MAX;
void *__real_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why);
void *__wrap_ha_alloc(struct ha_arena *arena, size_t bytes, enum ha_tag tag, struct ha_why *why)
{
    if (__atomic_fetch_sub(&allocs_left, 1, __ATOMIC_RELAXED) > 0) return __real_ha_alloc(arena, bytes, tag, why);
    ha_why(why, HA_ERROR, "no memory");
    return NULL;
}

/* A session that could not be opened is closed, the next one gets all of its data, and others' data stay. */
TEST(half_filled_data_serve_nobody)
{
    struct ha_case c;
    size_t failed = 0;
    open_session(SMALL);
    const struct ha_workload *small = session.workload;
    assert_ok(ha_case_parse("cpu:ctx=70+3,layers=2,steps=2,heads=4/2,head_dim=64,observed=4", &c, &reason));
    for (;; failed++) {
        ha_session_close(&session);
        allocs_left = failed;
        *reason.text = 0;
        const enum ha_status status = ha_session_open(&session, &opened.shared, &c, NULL, &reason);
        allocs_left = SIZE_MAX;
        if (status == HA_OK) break;
        assert_contains(reason.text, "no memory");
        assert_true(!session.workload && !session.pool && !session.worker && !session.stream && !session.arena);
        ha_session_close(&session); /* which is nothing */
        assert_ok(ha_session_open(&session, &opened.shared, &c, NULL, &reason));
        assert_int_equal(check(session.variant), HA_OK);
        ha_session_close(&session);
        assert_ptr_equal(opened.shared.workload[failed + 1], small);
        c.seed++; /* the next time they are filled anew */
    }
    assert_int_equal(check(session.variant), HA_OK);
    assert_true(failed >= 3 + 3 * 2 * 2); /* lists, and K, V and queries of two layers of two sequences */
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
    double diff2 = 0, norm2 = 0, mass = 0, least = 1, recall = 0, largest_diff = 0, largest_norm = 0;
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
        largest_diff = fmax(largest_diff, sqrt(d));
        largest_norm = fmax(largest_norm, sqrt(n));
    }
    ha_accuracy_start(&a);
    ha_accuracy_add(&a, judged, 4);
    assert_near(ha_accuracy_rel_l2(&a), sqrt(diff2 / norm2), 1e-9);
    assert_near(a.rel_l2_head_max, largest_diff / largest_norm, 1e-9);
    assert_near(a.mass_sum / 4, mass, 1e-9);
    assert_near(a.mass_min, least, 1e-9);
    assert_near(a.recall_sum / 4, recall, 1e-9);
    assert_false(a.everything);
    ha_chosen_free(&c);
    ha_pass_end(&p, HA_OK, NULL);
    close_session();
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

int main(void) { return test_all("tests", NULL, NULL); }
