/* States that are not those of the step's query over the cache's keys and values: made with another query, over what
 * stood for the keys, or of weights alone. A variant of this test makes them by plain loops in binary64 and reports
 * them, rightly and wrongly. */

#include "harness/api/dataset.h"
#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/safetensors.h"
#include "harness/base/test_folder.h"
#include "suites/variants/check.h"
#include "suites/variants/dump.h"
#include "suites/variants/test_session.h"

#define DUMPED "cpu:isa=c,ctx=20+13,heads=4/2,head_dim=64,layers=2,steps=2,q_len=2,threads=1"
#define CASE   "cpu:isa=c,ctx=20,heads=4/2,head_dim=64,layers=1,steps=1,threads=1"
enum { DIM = 64, HEADS = 4, TOKENS = 21, HALF = TOKENS / 2 };
enum { LAYERS = 2, BATCH = 2, Q_LEN = 2, MOST = 32 }; /* of any case here, MOST tokens */

/* What is done with the odd tokens; the even ones are a plain state. */
struct own {
    bool q, k, weight_only;
};
static struct now {
    struct own made, reported;
    bool other_q, other_k, forgotten; /* another query is reported, or keys; values left out are not weighed either */
    double error;                     /* of each weight of an odd token, relative */
    bool backwards;                   /* the keys are reported in descending order */
    const struct ha_profile *profile; /* [2] of the odd ones, of even heads and odd ones */
    size_t profile_from;              /* the first layer that has it */
    bool on_device, either_side, notes, alone; /* alone: one part has all tokens, with that profile */
    bool hidden; /* the odd tokens are not used; the first time that each head is asked it says so, later it does not */
    bool shared_k; /* heads of a group report one array of keys */
    void (*spoil)(struct ha_selection *of_head_1);
} now;

/* Of a head of a sequence: what the odd tokens were made with, and what is reported. */
struct head {
    float q[Q_LEN][DIM], k[MOST / 2][DIM], reported_q[Q_LEN][DIM], reported_k[MOST / 2][DIM];
    uint32_t even[MOST], odd[MOST];
};
struct ha_instance {
    struct ha_context ctx;
    struct head head[LAYERS][BATCH][HEADS];
    uint32_t tokens[LAYERS][BATCH];
    unsigned asked[HEADS];
    float o[BATCH * Q_LEN][HEADS][DIM], lse[BATCH * Q_LEN][HEADS];
};

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = ha_alloc(ctx->arena, sizeof **self, HA_TAG_META, why);
    if (*self) (*self)->ctx = *ctx, memset((*self)->asked, 0, sizeof(*self)->asked);
    return *self ? HA_OK : HA_ERROR;
}

static void row_of(const void *rows, size_t head, size_t token, float *out)
{
    ha_load_row((const char *)rows + (head / 2 * session.workload->cap + token) * DIM * 2, DIM, HA_F16, out);
}

/* What is in place of the step's query, and of a key: neither far from it nor near. */
static void other_query(const float *q, float *out)
{
    for (size_t d = 0; d < DIM; d++) out[d] = q[d] + 0.25f * q[(d + 1) % DIM];
}
static void other_key(const float *k, float *out)
{
    for (size_t d = 0; d < DIM; d++) out[d] = rintf(4 * k[d]) / 4;
}

static double score_of(const float *q, const float *k)
{
    double s = 0;
    for (size_t d = 0; d < DIM; d++) s += (double)q[d] * (double)k[d];
    return s / 8;
}

/* at: the sequence in the workload; row: of the outputs, of query token t, which sees so many tokens */
static void attend_head(struct ha_instance *self, struct head *own, size_t at, size_t head, size_t row, size_t t,
                        size_t tokens, const float *q)
{
    double sum = 0, o[DIM] = { 0 };
    float k[DIM], v[DIM];
    other_query(q, own->q[t]);
    for (size_t j = 0; j < tokens; j++) {
        const bool odd = j % 2, left_out = odd && now.made.weight_only;
        row_of(session.workload->k[at], head, j, k);
        row_of(session.workload->v[at], head, j, v);
        if (odd) other_key(k, own->k[j / 2]);
        if (odd && now.hidden) continue;
        const float *from = odd && now.made.q ? own->q[t] : q, *to = odd && now.made.k ? own->k[j / 2] : k;
        const double w = exp(score_of(from, to)) * (odd ? 1 + now.error : 1);
        sum += left_out && now.forgotten ? 0 : w;
        for (size_t d = 0; d < DIM && !left_out; d++) o[d] += w * (double)v[d];
    }
    for (size_t d = 0; d < DIM; d++) self->o[row][head][d] = (float)(o[d] / sum);
    self->lse[row][head] = (float)log(sum);
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *c = &self->ctx;
    const size_t batch = c->shape->batch, rows = batch * step->q_len;
    float q[BATCH * Q_LEN][HEADS][DIM];
    assert_true(batch <= BATCH && step->q_len <= Q_LEN && c->shape->layers <= LAYERS);
    HA_TRY(c->api->copy(c->stream, q, step->q, rows * sizeof *q, HA_D2H));
    HA_TRY(c->api->stream_sync(c->stream));
    for (size_t row = 0; row < rows; row++) {
        const size_t seq = row / step->q_len, t = row % step->q_len;
        const size_t tokens = ha_workload_tokens(session.workload, seq, step->step) + t + 1;
        assert_true(tokens <= MOST);
        self->tokens[step->layer][seq] = (uint32_t)tokens;
        for (size_t h = 0; h < HEADS; h++)
            attend_head(self, &self->head[step->layer][seq][h], step->layer * batch + seq, h, row, t, tokens,
                        q[row][h]);
    }
    HA_TRY(c->api->copy(c->stream, step->o, self->o, rows * sizeof *self->o, HA_H2D));
    return c->api->copy(c->stream, step->lse, self->lse, rows * sizeof *self->lse, HA_H2D);
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t head, struct ha_selection *out)
{
    struct head *own = &self->head[layer][seq][head];
    const uint32_t tokens = self->tokens[layer][seq], half = tokens / 2;
    const struct ha_profile *profile = now.profile && layer >= now.profile_from ? &now.profile[head % 2] : NULL;
    for (uint32_t i = 0; i < half; i++) {
        const uint32_t at = now.backwards ? half - 1 - i : i;
        own->odd[i] = 2 * at + 1;
        memcpy(own->reported_k[i], own->k[now.other_k && at < 2 ? 1 - at : at], sizeof *own->k);
    }
    for (uint32_t i = 0; i < tokens - half; i++) own->even[i] = 2 * i;
    memcpy(own->reported_q, own->q, sizeof own->q);
    if (now.other_q) own->reported_q[0][5] += 1;
    *out = (struct ha_selection){ .parts = 2,
                                  .part = { { .token = own->even, .count = tokens - half },
                                            { .token = own->odd,
                                              .count = half,
                                              .on_device = now.on_device,
                                              .q = now.reported.q ? own->reported_q[0] : NULL,
                                              .k = now.reported.k ? own->reported_k[0] : NULL,
                                              .weight_only = now.reported.weight_only,
                                              .profile = profile,
                                              .either_side = now.either_side } } };
    if (now.alone) {
        for (uint32_t i = 0; i < tokens; i++) own->even[i] = i;
        out->parts = 1;
        out->part[0].count = tokens;
        out->part[0].profile = profile;
    }
    if (now.hidden && !self->asked[head]++) out->parts = 1;
    if (now.shared_k && head % 2) {
        out->part[1].k = self->head[layer][seq][head - 1].reported_k[0];
        for (uint32_t i = 0; i < half; i++) own->odd[i] = 2 * (half - 1 - i) + 1; /* other rows than those it used */
    }
    if (now.spoil && head == 1) now.spoil(out);
    if (!now.notes) return;
    if (head % 2) out->note[out->notes++] = (struct ha_note){ "hit", (double)seq };
    out->note[out->notes++] = (struct ha_note){ "block", 16.0 + (double)head };
    out->note[out->notes++] = (struct ha_note){ "block", -1 }; /* the first one counts */
}

static const struct ha_variant mine = {
    .name = "mine",
    .contract = HA_BOUNDED,
    .own_states = true,
    .create = create,
    .prefill = no_prefill,
    .attend = attend,
    .selection = selection,
    .destroy = no_destroy,
};

/* the largest error over its bound of all heads; of an open session */
static double worst(struct ha_judged judged[HEADS], bool *plain)
{
    struct ha_chosen c;
    struct ha_pass p;
    double most = 0;
    session.variant = &mine;
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    assert_ok(ha_chosen_read(&c, &p, 0, 0, 0, &reason));
    assert_ok(ha_oracle_judge(&p, &c, 0, 0, 0, judged, NULL, &reason));
    for (size_t h = 0; h < HEADS; h++) most = judged[h].ratio <= most ? most : judged[h].ratio;
    *plain = c.plain;
    ha_chosen_free(&c);
    ha_pass_end(&p, HA_OK, NULL);
    return most;
}

/* Reported as it was made every state is right; each thing that is reported otherwise is wrong. */
TEST(what_is_reported_is_what_is_judged)
{
    static const struct own all[] = {
        { 0 }, { .q = true }, { .k = true }, { .weight_only = true }, { true, true, false }, { true, true, true },
    };
    struct ha_judged judged[HEADS];
    bool plain;
    open_session(CASE);
    for (size_t made = 0; made < COUNT(all); made++)
        for (size_t reported = 0; reported < COUNT(all); reported++)
            for (int backwards = 0; backwards < 2; backwards++) {
                memset(&now, 0, sizeof now);
                now.made = all[made];
                now.reported = all[reported];
                now.backwards = backwards;
                const double ratio = worst(judged, &plain);
                if (made == reported ? !(ratio <= 1) : !(ratio > 30))
                    fail_msg("made %zu, reported %zu: error/bound %.3g", made, reported, ratio);
                assert_int_equal(plain, reported == 0);
                for (size_t h = 0; h < HEADS; h++) assert_int_equal(judged[h].full, reported == 0);
            }
    close_session();
}

/* ---- one state of two parts -------------------------------------------------------------------------------------- */

static struct ha_profile undivided = { .dot_lanes = 1, .sum_lanes = 1, .exp_eps = 0x1p-22, .log_eps = 0x1p-22 };
static void one_state(struct ha_selection *s)
{
    s->part[0].profile = s->part[1].profile = &undivided;
    s->part[1].weight_only = true;
}

/* What head 1 is to be within in the first step, where all its tokens are one state, those of odd number without V. */
static struct ha_ref_state one_attention(double o[4][DIM])
{
    static float k[TOKENS][DIM], v[TOKENS][DIM], q[DIM];
    static double work[2 * TOKENS + DIM];
    struct ha_ref_state want = { .o = o[0], .bound = o[1], .v_min = o[2], .v_max = o[3] };
    const struct ha_bound b = ha_bound_attend(&undivided, DIM, TOKENS, HA_RUNS_MAX + 1);
    const struct ha_ref_query query = { q, TOKENS, HALF, &b, &want };
    memset(v, 0, sizeof v);
    for (size_t j = 0; j < TOKENS; j++) {
        row_of(session.workload->k[0], 1, j, k[j]);
        if (j % 2 == 0) row_of(session.workload->v[0], 1, j, v[j]);
    }
    memcpy(q, ha_session_q(&session, 0) + DIM, sizeof q);
    const struct ha_rows rows = { k, v, sizeof *k, sizeof *v, NULL, TOKENS };
    ha_ref_attend_group(&query, 1, DIM, 0.125, &rows, HA_F32, work);
    return want;
}

/* A part whose weights are not divided by their sum and that of weights alone behind it are one softmax: judged as one
 * state, which nothing is merged with. Where either does not say so they are two. */
TEST(weights_of_two_parts_are_one_state)
{
    struct ha_judged judged[HEADS];
    double o[4][DIM], x[2 * HEADS * (DIM + 1)];
    const struct ha_expected expected = { x, x + HEADS * DIM, x + 2 * HEADS * DIM, x + 2 * HEADS * DIM + HEADS };
    open_session(CASE);
    for (int divided = 0; divided < 2; divided++) {
        struct ha_chosen c;
        struct ha_pass p;
        now = (struct now){ .made.weight_only = true, .spoil = one_state };
        undivided.sum_least = 1 - divided;
        session.variant = &mine;
        begin_pass(&p, true);
        assert_ok(ha_pass_step(&p, 0, &reason));
        assert_ok(ha_chosen_read(&c, &p, 0, 0, 0, &reason));
        assert_ok(ha_oracle_judge(&p, &c, 0, 0, 0, judged, &expected, &reason));
        const struct ha_ref_state want = one_attention(o);
        bool same = expected.lse_bound[1] == want.lse_bound;
        for (size_t d = 0; d < DIM; d++) same &= expected.o_bound[DIM + d] == want.bound[d];
        assert_int_equal(same, !divided);
        assert_near(expected.lse[1], want.lse, 1e-12);
        assert_true(judged[1].ratio <= 1 && judged[1].cert_slack <= 1);
        ha_chosen_free(&c);
        ha_pass_end(&p, HA_OK, NULL);
    }
    close_session();
}

/* Question 3 is asked of full attention, whatever the states are. */
TEST(quality_is_beside_full_attention)
{
    struct ha_judged judged[HEADS], other[HEADS];
    bool plain;
    open_session(CASE);
    memset(&now, 0, sizeof now);
    worst(judged, &plain);
    now.made.q = now.reported.q = true;
    assert_true(worst(other, &plain) <= 1);
    for (size_t h = 0; h < HEADS; h++) {
        assert_true(sqrt(judged[h].diff2 / judged[h].norm2) < 1e-5); /* it is full attention */
        assert_true(sqrt(other[h].diff2 / other[h].norm2) > 1e-3);
        assert_near(other[h].mass, 1, 1e-12);
        assert_true(isnan(judged[h].cert_slack) && other[h].cert_slack > 1e-6 && other[h].cert_slack <= 1);
        assert_true(isnan(judged[h].score_off2) && other[h].score_off2 > 1e-6);
    }
    close_session();
}

/* ---- what cannot be read ----------------------------------------------------------------------------------------- */

static float spoiled[Q_LEN * MOST * DIM];
static void five_parts(struct ha_selection *s) { s->parts = HA_PARTS_MAX + 1; }
static void nine_notes(struct ha_selection *s) { s->notes = HA_NOTES_MAX + 1; }
static void no_name(struct ha_selection *s) { s->notes = 1; }
static void no_list(struct ha_selection *s) { s->part[1].token = NULL; }
static void too_many_keys(struct ha_selection *s) { s->part[1].count = TOKENS + 1; }
static void too_much_padding(struct ha_selection *s) { s->part[1].padding = HALF + 1; }
static void query_nan(struct ha_selection *s)
{
    spoiled[DIM - 1] = NAN;
    s->part[1].q = spoiled;
}
static void key_infinite(struct ha_selection *s)
{
    spoiled[HALF * DIM - 1] = -INFINITY;
    s->part[1].k = spoiled;
}
static void unused_nan(struct ha_selection *s) /* behind what is read */
{
    spoiled[DIM] = NAN;
    s->part[1].q = spoiled;
    s->part[2].q = spoiled + DIM;
    s->parts = 3;
}

/* Of the first step, layer and sequence. */
static enum ha_status read_first(void)
{
    struct ha_chosen c;
    struct ha_pass p;
    session.variant = &mine;
    begin_pass(&p, true);
    assert_ok(ha_pass_step(&p, 0, &reason));
    reason.text[0] = 0;
    const enum ha_status status = ha_chosen_read(&c, &p, 0, 0, 0, &reason);
    ha_chosen_free(&c);
    ha_pass_end(&p, HA_OK, NULL);
    return status;
}

TEST(what_cannot_be_read_fails)
{
    static const struct {
        void (*spoil)(struct ha_selection *s);
        const char *says;
    } all[] = {
        { five_parts, "5 parts, at most 4 are possible" },
        { nine_notes, "9 notes, at most 8 are possible" },
        { no_name, "note 0 has no name" },
        { no_list, "part 1 has 10 keys, and its token is NULL" },
        { too_many_keys, "part 1 has 22 keys, of 21 tokens" },
        { too_much_padding, "part 1 has 10 keys, 11 of them padding" },
        { query_nan, "the q of part 1 is not finite" },
        { key_infinite, "the k of part 1 is not finite" },
        { unused_nan, NULL },
    };
    char says[160];
    open_session(CASE);
    for (size_t i = 0; i < COUNT(all); i++) {
        memset(spoiled, 0, sizeof spoiled);
        now = (struct now){ .spoil = all[i].spoil };
        assert_int_equal(read_first(), all[i].says ? HA_FAIL : HA_OK);
        if (!all[i].says) continue;
        snprintf(says, sizeof says, "selection of mine, layer 0 step 0 seq 0 head 1: %s", all[i].says);
        assert_string_equal(reason.text, says);
    }
    close_session();
}

/* ---- what a part claims ------------------------------------------------------------------------------------------ */

/* Of each field what no kernel lies beyond, and one that is at its limit. */
TEST(claims_of_a_part_have_a_range)
{
    const struct {
        size_t offset, size;
        const void *claim;
        const char *says;
    } all[] = {
#define CLAIM(f, type, value, says) { offsetof(struct ha_profile, f), sizeof(type), &(type){ value }, says }
        CLAIM(dot_lanes, unsigned, 0, "dot_lanes is 0; was profile of part 1 filled in?"),
        CLAIM(sum_lanes, unsigned, 0, "sum_lanes is 0; was profile of part 1 filled in?"),
        CLAIM(sum_extra, unsigned, 257, "sum_extra is 257, not from 0 to 256"),
        CLAIM(exp_eps, double, 0x1.1p-9, "exp_eps is 0.0020752, not from 0 to 0.00195312"),
        CLAIM(exp_eps, double, (double)NAN, "exp_eps is nan, not from 0 to 0.00195312"),
        CLAIM(exp_eps, double, 0x1p-16, NULL),
        CLAIM(log_eps, double, -1, "log_eps is -1, not from 0 to 0.000488281"),
        CLAIM(out_type, int, 3, "out_type is 3, not one of f32 0, f16 1, bf16 2"),
        CLAIM(truncates, unsigned char, 2, "truncates is 2, neither true nor false"),
#undef CLAIM
    };
    struct ha_profile claims[2];
    char says[160];
    open_session(CASE);
    for (size_t i = 0; i < COUNT(all); i++) {
        claims[0] = claims[1] = session.info.profile[HA_F16];
        memcpy((char *)&claims[1] + all[i].offset, all[i].claim, all[i].size);
        now = (struct now){ .profile = claims };
        assert_int_equal(read_first(), all[i].says ? HA_FAIL : HA_OK);
        if (!all[i].says) continue;
        snprintf(says, sizeof says, "selection of mine, layer 0 step 0 seq 0 head 1: its profile of part 1: %s",
                 all[i].says);
        assert_string_equal(reason.text, says);
    }
    close_session();
}

/* Within its range a claim may still be too wide for the shape, let too much pass, or be no type of the numbers: in
 * whatever layer and head it is. The output is right. */
TEST(claims_of_a_part_are_judged_too)
{
    const struct {
        size_t offset, size;
        const void *claim;
        size_t layer;
        bool alone;
        const char *says;
    } all[] = {
#define CLAIM(f, type, value, ...) { offsetof(struct ha_profile, f), sizeof(type), &(type){ value }, __VA_ARGS__ }
        CLAIM(log_eps, double, 0x1p-22, 0, false, NULL),
        CLAIM(log_eps, double, 0x1p-11, 0, false,
              "layer 0 step 0 seq 0: token 1 head 1: by what the profile of part 1 claims o may be off by"),
        CLAIM(log_eps, double, 0x1p-11, 1, false,
              "layer 1 step 0 seq 0: token 1 head 3: by what the profile of part 1 claims o may be off by"),
        CLAIM(log_eps, double, 0x1p-11, 1, true,
              "layer 1 step 0 seq 0: token 0 head 3: by what the profile of part 0 claims o may be off by"),
        CLAIM(exp_eps, double, 0x1p-17, 0, false, NULL),
        CLAIM(sum_extra, unsigned, 150, 0, false,
              "its profile of head 1 part 1: sum_extra is 150, not from 0 to 138 where the keys are 10"),
        CLAIM(dot_extra, unsigned, 200, 1, false,
              "layer 1 step 0 seq 0: its profile of head 1 part 1: dot_extra is 200, not from 0 to 192 where head_dim"),
        CLAIM(out_type, int, HA_BF16, 0, true, "its profile of head 1 part 0: out_type is bf16, coarser than f32 of"),
        CLAIM(lse_type, int, HA_F16, 1, false, "its profile of head 1 part 1: lse_type is f16, coarser than f32 of"),
        CLAIM(weight_type, int, HA_BF16, 0, false, "its profile of head 1 part 1: weight_type is bf16, coarser than"),
#undef CLAIM
    };
    struct ha_profile claims[2];
    struct ha_variant v = mine;
    struct ha_check c = { .session = &session, .id = "the case" };
    v.name = "cpu"; /* whose definition takes all keys */
    v.checked = true;
    open_session("cpu:dataset=iid,isa=c,ctx=20+13,heads=4/2,head_dim=64,layers=2,steps=2,q_len=2,threads=1");
    session.variant = &v;
    for (size_t i = 0; i < COUNT(all); i++) {
        claims[0] = claims[1] = session.info.profile[HA_F16];
        memcpy((char *)&claims[1] + all[i].offset, all[i].claim, all[i].size);
        now = (struct now){ .profile = claims, .profile_from = all[i].layer, .alone = all[i].alone };
        reason.text[0] = 0;
        const enum ha_status status = ha_check_run(&c, &reason);
        if (status != (all[i].says ? HA_FAIL : HA_OK) || !strstr(reason.text, all[i].says ? all[i].says : ""))
            fail_msg("%zu: status %d '%s', not '%s'", i, (int)status, reason.text, all[i].says);
        assert_int_equal(c.question, all[i].says ? 1 : 0);
        ha_check_free(&c);
    }
    close_session();
}

/* An error that the CPU's kernels would not make: right by the part's own profile, and by the weaker of both sides
 * where either may have computed it. */
TEST(a_part_is_held_to_its_own_claims)
{
    struct ha_judged judged[HEADS];
    bool plain;
    open_session(CASE);
    struct ha_profile coarse[2] = { session.info.profile[HA_F16], session.info.profile[HA_F16] };
    coarse[0].dot_extra = coarse[1].dot_extra = 192;
    memset(&now, 0, sizeof now);
    now.error = 0x1p-14;
    assert_true(worst(judged, &plain) > 1);
    now.profile = coarse;
    assert_true(worst(judged, &plain) <= 1);
    assert_false(plain);
    now.profile = NULL;
    session.info.profile[HA_F16] = *coarse;
    assert_true(worst(judged, &plain) > 1); /* it is the CPU's */
    now.either_side = true;
    assert_true(worst(judged, &plain) <= 1);
    assert_true(plain);
    close_session();
}

/* What question 1 was told question 2 is told too. */
TEST(a_head_is_asked_once)
{
    struct ha_variant v = mine;
    struct ha_check c = { .session = &session, .id = "the case" };
    v.name = "cpu"; /* whose definition takes all keys */
    v.checked = true;
    open_session(CASE);
    session.variant = &v;
    now = (struct now){ .hidden = true };
    assert_int_equal(ha_check_run(&c, &reason), HA_FAIL);
    assert_int_equal(c.question, 2);
    ha_check_free(&c);
    close_session();
}

/* Heads that share keys of their own are judged apart where other rows stand for the tokens. */
TEST(shared_keys_are_each_heads_own)
{
    struct ha_judged judged[HEADS];
    bool plain;
    open_session(CASE);
    now = (struct now){ .made.k = true, .reported.k = true, .shared_k = true };
    worst(judged, &plain);
    for (size_t h = 0; h < HEADS; h++) assert_int_equal(judged[h].ratio > 30, h % 2);
    close_session();
}

/* Keys that others stand for are not read, nor are values that are left out: what a step must read says so. */
TEST(all_keys_are_not_full_attention)
{
    struct ha_variant v = mine;
    struct ha_check c = { .session = &session, .id = "the case" };
    v.name = "cpu"; /* whose definition takes all keys */
    v.contract = HA_EXACT;
    v.checked = true;
    open_session(CASE);
    session.variant = &v;
    for (int i = 0; i < 3; i++) {
        memset(&now, 0, sizeof now);
        now.made = now.reported = (struct own[]){ { 0 }, { .k = true }, { .weight_only = true } }[i];
        const enum ha_status status = ha_check_run(&c, &reason);
        assert_int_equal(status, i ? HA_FAIL : HA_OK);
        if (i)
            assert_contains(reason.text, "the contract is exact, but a state has a query, keys or weights of its own");
        if (!i) assert_near(c.host_key_bytes, 2 * TOKENS * 2 * DIM * 2, 1e-9); /* K and V of two heads in f16 */
        ha_check_free(&c);
        v.contract = HA_EXACT;
    }
    v.own_states = false;
    v.contract = HA_BOUNDED;
    assert_int_equal(ha_check_run(&c, &reason), HA_FAIL);
    assert_contains(reason.text, "claims of its own, and the variant does not say own_states");
    ha_check_free(&c);
    v.own_states = true;
    v.contract = HA_BOUNDED;
    assert_ok(ha_check_run(&c, &reason));
    assert_near(c.host_key_bytes, 2 * (2 * (TOKENS - HALF) + HALF) * DIM * 2, 1e-9);
    ha_check_free(&c);
    close_session();
}

/* ---- the dump ---------------------------------------------------------------------------------------------------- */

static const char *folder; /* where every_state_is_dumped leaves its files; NULL: nowhere */

/* The check is to come to this verdict. */
static void dump_case(const char *in, const char *name, bool right)
{
    struct ha_variant v = mine;
    struct ha_dump dump;
    struct ha_check c = { .session = &session, .id = name, .dump = &dump };
    v.name = "cpu"; /* whose definition takes all keys */
    v.checked = true;
    session.variant = &v;
    assert_ok(ha_dump_open(&dump, &session, in, name, &reason));
    const enum ha_status status = ha_check_run(&c, &reason);
    if (status != (right ? HA_OK : HA_FAIL)) fail_msg("%s: status %d: %s", name, (int)status, reason.text);
    assert_ok(ha_dump_write(&dump, name, &reason));
    ha_check_free(&c);
    ha_dump_free(&dump);
}

/* test_states DIR leaves them there for scripts/test_audit.py, which has to come to the same verdicts. */
TEST_WITH(every_state_is_dumped, test_folder_make, test_folder_remove)
{
    static const struct own none, q = { .q = true }, k = { .k = true }, weights = { .weight_only = true },
                                  all = { true, true, true };
    static const struct own *const each[] = { &none, &q, &k, &weights, &all };
    static const char *const word[] = { "plain", "q", "k", "weights", "all" };
    const char *const in = folder ? folder : test_folder;
    struct ha_profile claims[2];
    char name[64];
    open_session(DUMPED);
    for (size_t made = 0; made < COUNT(each); made++)
        for (size_t reported = 0; reported < COUNT(each); reported++) {
            const bool right = made == reported;
            now = (struct now){ .made = *each[made], .reported = *each[reported], .backwards = right, .notes = true };
            snprintf(name, sizeof name, "%s %s as %s", right ? "right" : "wrong", word[made], word[reported]);
            dump_case(in, name, right);
        }
    now = (struct now){ .made = q, .reported = q, .other_q = true };
    dump_case(in, "wrong query", false);
    now = (struct now){ .made = k, .reported = k, .other_k = true };
    dump_case(in, "wrong keys", false);
    now = (struct now){ .made = weights, .reported = weights, .forgotten = true };
    dump_case(in, "wrong denominator", false);

    undivided.sum_least = 1;
    undivided.score_type = undivided.weight_type = HA_F16;
    now = (struct now){ .made = weights, .reported = weights, .spoil = one_state };
    dump_case(in, "right undivided", true);
    now.error = 0x1p-4;
    dump_case(in, "wrong undivided", false);
    undivided.score_type = undivided.weight_type = HA_F32;

    claims[0] = claims[1] = session.info.profile[HA_F16];
    now = (struct now){ .error = 0x1.8p-15, .profile = claims };
    dump_case(in, "wrong profile", false);
    claims[0].dot_extra = 192;
    dump_case(in, "wrong profile of odd heads", false);
    claims[1].dot_extra = 191;
    dump_case(in, "right profile", true);
    now = (struct now){ .error = 0x1p-9, .on_device = true };
    session.kernels.profile.exp_eps = 0x1p-7;   /* of the CPU alone */
    session.info.profile[HA_F16].join_keys = 2; /* and of the device another way to join */
    session.info.profile[HA_F16].joins_max = 2;
    dump_case(in, "wrong side", false);
    now.either_side = true;
    dump_case(in, "right side", true);
    close_session();
}

static const struct ha_tensor *find(struct ha_safetensors *file, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "layer1.seq0.%s", name);
    return ha_safetensors_find(file, full);
}

/* What is in the file is what was reported, of the last step too; a plain one has nothing more than before. */
TEST_WITH(a_dump_holds_what_is_reported, test_folder_make, test_folder_remove)
{
    enum { STEP = 1, CTX = 20, HEAD = 2, ALL = CTX + 2 * Q_LEN };
    static const char *const more[] = { "query",       "own_q",   "key",      "own_k",     "weight_only",
                                        "either_side", "profile", "note.hit", "note.block" };
    struct ha_safetensors *file;
    float want[DIM], k[DIM];
    open_session(DUMPED);
    memset(&now, 0, sizeof now);
    dump_case(test_folder, "plain", true);
    assert_ok(ha_safetensors_open(&file, test_path("plain.safetensors"), &reason));
    assert_string_equal(ha_safetensors_meta(file, "version"), "2");
    for (size_t i = 0; i < COUNT(more); i++) assert_null(find(file, more[i]));
    ha_safetensors_close(file);

    struct ha_profile claims[2] = { session.info.profile[HA_F16], session.info.profile[HA_F16] };
    claims[1].exp_eps = 0x1p-16;
    now = (struct now){ .made = { true, true, true },
                        .reported = { true, true, true },
                        .backwards = true,
                        .notes = true,
                        .either_side = true,
                        .profile = claims };
    dump_case(test_folder, "own", true);
    assert_ok(ha_safetensors_open(&file, test_path("own.safetensors"), &reason));
    assert_string_equal(ha_safetensors_meta(file, "version"), "3");
    assert_near(strtod(ha_safetensors_meta(file, "profile1.exp_eps"), NULL), claims[0].exp_eps, 0);
    assert_near(strtod(ha_safetensors_meta(file, "profile2.exp_eps"), NULL), 0x1p-16, 0);
    assert_null(ha_safetensors_meta(file, "profile3.exp_eps"));
    const struct ha_tensor *t[COUNT(more)];
    for (size_t i = 0; i < COUNT(more); i++) assert_non_null(t[i] = find(file, more[i]));
    const uint32_t *query = t[0]->data, *key = t[2]->data, *profile = t[6]->data;
    const uint8_t *weight_only = t[4]->data, *either_side = t[5]->data;
    const size_t at = (STEP * HEADS + HEAD) * HA_PARTS_MAX;
    assert_true(!query[at] && !weight_only[at] && !either_side[at] && !profile[at]); /* its part 0 is plain */
    assert_true(weight_only[at + 1] == 1 && either_side[at + 1] == 1);
    assert_true(profile[at + 1] == 1 && profile[at + HA_PARTS_MAX + 1] == 2);
    assert_int_equal(query[at + 1], STEP * HEADS + HEAD + 1);
    assert_int_equal(t[1]->dim[0], 2 * HEADS);
    for (size_t i = 0; i < Q_LEN; i++) {
        const float *q = (const float *)find(file, "q")->data + ((STEP * Q_LEN + i) * HEADS + HEAD) * DIM;
        other_query(q, want);
        assert_memory_equal((const float *)t[1]->data + ((query[at + 1] - 1) * Q_LEN + i) * DIM, want, sizeof want);
    }
    assert_int_equal(t[3]->dim[0], 2 * ((ALL - Q_LEN) / 2 + ALL / 2)); /* of two KV heads: heads of a group share */
    for (size_t j = 0; j < ALL; j++) {
        const uint32_t row = key[(STEP * HEADS + HEAD) * ALL + j];
        assert_int_equal(row > 0, j % 2);
        if (!row) continue;
        row_of(session.workload->k[2], HEAD, j, k);
        other_key(k, want);
        assert_memory_equal((const float *)t[3]->data + (row - 1) * DIM, want, sizeof want);
    }
    const double *hit = t[7]->data, *block = t[8]->data;
    assert_true(isnan(hit[STEP * HEADS + HEAD]) && hit[STEP * HEADS + HEAD + 1] == 0);
    assert_near(block[STEP * HEADS + HEAD], 16 + HEAD, 0);
    ha_safetensors_close(file);
    close_session();
}

/* The memory of the machine, where there is to be none. */
static bool is_full;
uint64_t __real_ha_memory_available(void);
uint64_t __wrap_ha_memory_available(void);
uint64_t __wrap_ha_memory_available(void) { return is_full ? 1 : __real_ha_memory_available(); }

/* The case is judged all the same, and one line says what is missing. */
TEST_WITH(a_dump_without_memory_is_refused, test_folder_make, test_folder_remove)
{
    struct ha_variant v = mine;
    struct ha_dump dump;
    struct ha_check c = { .session = &session, .id = "the case", .dump = &dump };
    v.name = "cpu";
    v.checked = true;
    open_session(DUMPED);
    session.variant = &v;
    for (int own = 0; own < 3; own++) {
        now = (struct now){ .made.q = own == 1, .reported.q = own == 1, .notes = own == 2 };
        assert_ok(ha_dump_open(&dump, &session, test_folder, "the case", &reason));
        is_full = true;
        assert_ok(ha_check_run(&c, &reason));
        is_full = false;
        assert_int_equal(c.steps_done, 2);
        assert_int_equal(ha_dump_write(&dump, "the case", &reason), own ? HA_ERROR : HA_OK);
        if (own) {
            assert_contains(reason.text, "dump: needs 0.00 GiB of host memory, has 0.00 GiB: lower ctx");
            assert_int_equal(access(test_path("the_case.safetensors"), F_OK), -1);
        }
        unlink(test_path("the_case.safetensors"));
        ha_check_free(&c);
        ha_dump_free(&dump);
    }
    close_session();
}

/* ---- what a variant and its definition are handed to predict with ------------------------------------------------ */

/* Residual's W_Q x is exact, in whatever order it is summed. */
static enum ha_status attend_by_projection(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    enum { MODEL = 256 };
    const struct ha_context *c = &self->ctx;
    const float *w = c->projection[step->layer].wq;
    float q[HEADS * DIM], x[MODEL];
    assert_true(c->shape->model_dim == MODEL && !c->projection[step->layer].inv_freq);
    HA_TRY(c->api->copy(c->stream, q, step->q, sizeof q, HA_D2H));
    HA_TRY(c->api->copy(c->stream, x, step->x, sizeof x, HA_D2H));
    HA_TRY(c->api->stream_sync(c->stream));
    assert_memory_equal(x, ha_session_x(&session, step->layer), sizeof x);
    for (size_t i = 0; i < HEADS * DIM; i++, w += MODEL) {
        float sum = 0;
        for (size_t j = MODEL; j-- > 0;) sum += w[j] * x[j];
        assert_true(ha_round(sum, HA_F16) == q[i]);
    }
    return HA_OK;
}

TEST(a_variant_has_the_projection)
{
    struct ha_variant v = mine;
    struct ha_pass p;
    v.attend = attend_by_projection;
    open_session("cpu:dataset=residual,ctx=20,heads=4/2,head_dim=64,layers=3,steps=2,threads=1");
    session.variant = &v;
    begin_pass(&p, true);
    for (size_t step = 0; step < 2; step++) assert_ok(ha_pass_step(&p, step, &reason));
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    close_session();
    open_session(CASE); /* sinks has no inputs */
    assert_true(!session.workload->projection && !ha_session_x(&session, 0));
    close_session();
}

TEST_MAIN
{
    if (argc > 1) folder = argv[1];
    return test_all("states", NULL, NULL);
}
