/* What passes by its bound and is no rounding: rows of merges are held against chance. reference/test_chance.c has the
 * statistics; this is about the rows that they are made of. */

#include "suites/merge/test_trial.h"

#include "harness/base/numeric.h"
#include "harness/base/registry.h"
#include "harness/base/rng.h"
#include "harness/base/seq_attend.h"
#include "harness/engine/drive.h"
#include "harness/engine/machine.h"
#include "kernels/rows.h"
#include "kernels/states.h"
#include "suites/merge/point.h"
#include "suites/test_flaws.h"

#include <math.h>

enum { DIM = 16, ROWS = 24 };
static const struct ha_merge_traits two_pass = { .exp_eps = 0x1p-23, .log_eps = 0x1p-23 };

/* ---- merges with one mistake ------------------------------------------------------------------------------------- */

enum mistake { NONE, EXP, DROPPED, CUT };
static enum mistake mistake;

/* the next number towards 0 where rounding went away from it */
static float cut(double x)
{
    const float rounded = (float)x;
    return fabs((double)rounded) > fabs(x) ? nextafterf(rounded, 0) : rounded;
}

static float power(const struct ha_merge *m, float x) { return m->form == HA_FORM_BASE2 ? exp2f(x) : expf(x); }

static float weight(const struct ha_merge *m, size_t s, size_t t, size_t h, float from)
{
    const struct ha_merge_state *x = &m->states[s];
    const float w = power(m, ha_merge_level(m, x, t, h) - from);
    return (m->form == HA_FORM_MAX_SUM && w > 0 ? w * x->sum[ha_merge_at(x, t, h)] : w)
           * (mistake == EXP && m->states_count > 64 ? 1 + 0x1p-18f : 1);
}

/* the state that weighs about 2^-14; SIZE_MAX: none is dropped */
static size_t dropped(const struct ha_merge *m, size_t t, size_t h, float max, float sum)
{
    size_t at = SIZE_MAX;
    float least = 1.1f;
    for (size_t s = 0; mistake == DROPPED && s < m->states_count; s++) {
        const float times = weight(m, s, t, h, max) / sum * 0x1p14f;
        if (fmaxf(times, 1 / times) < least) least = fmaxf(times, 1 / times), at = s;
    }
    return at;
}

static void merge_row(const struct ha_merge *m, size_t t, size_t h)
{
    const float max = ha_merge_max(m, t, h);
    float all = 0, sum = 0, acc[HA_REF_DIM_MAX] = { 0 }, x[HA_REF_DIM_MAX];
    for (size_t s = 0; s < m->states_count; s++) all += weight(m, s, t, h, max);
    const size_t without = dropped(m, t, h, max, all);
    for (size_t s = 0; s < m->states_count; s++) sum += s == without ? 0 : weight(m, s, t, h, max);
    const float lse = m->form == HA_FORM_MAX_SUM || !(max > -INFINITY) || sum == 1
                          ? max
                          : max + (m->form == HA_FORM_BASE2 ? log2f(sum) : logf(sum));
    const bool direct = m->form == HA_FORM_DIRECT;
    for (size_t s = 0; s < m->states_count; s++) {
        if (s == without || !(ha_merge_level(m, &m->states[s], t, h) > -INFINITY)) continue;
        const float share = weight(m, s, t, h, direct ? lse : max) / (direct ? 1 : sum);
        ha_load_row(ha_merge_o(m, &m->states[s], t, h, 0), m->dim, m->dtype, x);
        for (size_t i = 0; i < m->dim; i++)
            acc[i] = mistake == CUT ? cut((double)acc[i] + (double)share * (double)x[i]) : acc[i] + share * x[i];
    }
    ha_store_row(ha_merge_o(m, &m->out, t, h, 0), m->dim, m->dtype, acc);
    m->out.lse[ha_merge_at(&m->out, t, h)] = lse;
    if (m->form == HA_FORM_MAX_SUM) m->out.sum[ha_merge_at(&m->out, t, h)] = sum;
}

static void merge(const struct ha_merge *m)
{
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) merge_row(m, t, h);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Weights that differ, of which some are about 2^-14 where there are 2,000; values of one sign. */
static void one_sign(struct ha_merge_row *row)
{
    for (size_t m = 0; m < row->states; m++) {
        row->lse[m] = 1.5 * (double)ha_rng_normal(row->seed, 2 * row->index, m);
        row->sum[m] = 1 + (double)ha_rng_uniform(row->seed, 2 * row->index + 1, m);
        for (size_t i = 0; i < row->dim; i++)
            row->o[m * row->dim + i] = 1 + (double)ha_rng_uniform(row->seed, 2 * row->index + 1, (m + 1) * 4096 + i);
    }
}
/* Two weights, and one value of each component: what a sum rounds is the same each time. */
static void alike(struct ha_merge_row *row)
{
    one_sign(row);
    for (size_t m = 2; m < row->states; m++) {
        row->lse[m] = row->lse[m % 2];
        row->sum[m] = row->sum[m % 2];
    }
    for (size_t i = row->dim; i < row->states * row->dim; i++) row->o[i] = row->o[i % row->dim];
}
/* the same weights in every row, in another order */
static void turned(struct ha_merge_row *row)
{
    const uint64_t index = row->index;
    row->index = 0;
    one_sign(row);
    row->index = index;
    for (size_t m = 0; index && m < row->states / 2; m++) {
        const size_t other = row->states - 1 - m;
        const double lse = row->lse[m], sum = row->sum[m];
        row->lse[m] = row->lse[other];
        row->sum[m] = row->sum[other];
        row->lse[other] = lse;
        row->sum[other] = sum;
    }
}

static struct ha_merge_sample sample;

/* what chance says of one batch that is right by its bound */
static struct ha_chances look(enum mistake which, const struct ha_merge_shape *shape, ha_merge_fill *fill)
{
    struct ha_merge_trial t = trial_open(NULL, shape, fill);
    mistake = which;
    for (size_t i = 0; i < t.batch->calls_count; i++) merge(&t.batch->calls[i]);
    trial_judge(&t, &two_pass);
    sample = (struct ha_merge_sample){ 0 };
    ha_judge_chances(&sample, t.batch, &t.rows, 0, t.rows.count, 0, &two_pass);
    ha_merge_trial_close(&t);
    return ha_merge_sample_sum(&sample);
}

static void print(const char *name, const struct ha_merge_shape *s, const struct ha_chances *c)
{
    print_message("%s, %s %s, %zu states %s: %zu rows, rms %.2f, bias %+.2f, p %.2g\n", name, ha_form_name(s->form),
                  ha_dtype_name(s->dtype), s->states, ha_order_name(s->order), c->rows, ha_chances_rms(c),
                  ha_chances_bias(c), ha_chances_p(c));
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

TEST(mistakes_within_bounds_are_seen)
{
    static const struct {
        const char *name;
        enum mistake mistake;
        size_t states;
    } each[] = { { "exp off by 2^-18, one way", EXP, 133 },
                 { "a state of weight 2^-14 dropped", DROPPED, 2048 },
                 { "sums of o cut", CUT, 512 } };
    for (size_t i = 0; i < COUNT(each); i++)
        for (unsigned form = 0; form < HA_FORM_COUNT; form++) {
            if (HA_SANITIZED && form != i) continue; /* each with one form */
            const struct ha_merge_shape shape = {
                .states = each[i].states, .tokens = ROWS, .heads = 1, .dim = DIM, .form = (enum ha_form)form
            };
            const struct ha_chances right = look(NONE, &shape, one_sign),
                                    wrong = look(each[i].mistake, &shape, one_sign);
            print(each[i].name, &shape, &wrong);
            assert_true(right.rows > ROWS / 2 && wrong.rows == right.rows); /* those of one slot are one */
            assert_true(ha_chances_rms(&right) < 0.75 && ha_chances_p(&right) >= 1);
            assert_true(ha_chances_p(&wrong) < 1e-12);
        }
}

TEST(honest_merges_are_explained)
{
    double rms = 0;
    static const struct {
        size_t states;
        ha_merge_fill *fill;
    } each[] = {
        { 2, some_empty }, { 3, one_sign }, { 7, some_empty }, { 40, one_sign }, { 7, alike }, { 300, alike }
    };
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++)
            for (unsigned order = 0; order < HA_ORDER_COUNT; order++)
                for (size_t n = 0; n < COUNT(each); n++) {
                    if (HA_SANITIZED && (n + dtype) % HA_DTYPE_COUNT != order % HA_DTYPE_COUNT) continue; /* in turns */
                    const struct ha_merge_shape shape = { .states = each[n].states,
                                                          .tokens = ROWS,
                                                          .heads = 1,
                                                          .dim = DIM,
                                                          .form = (enum ha_form)form,
                                                          .dtype = (enum ha_dtype)dtype,
                                                          .order = (enum ha_order)order };
                    const struct ha_chances c = look(NONE, &shape, each[n].fill);
                    rms = fmax(rms, ha_chances_rms(&c));
                    if (!(ha_chances_rms(&c) < 0.75 && ha_chances_p(&c) >= 1)) print("honest", &shape, &c);
                    assert_true(c.rows > 0 && ha_chances_rms(&c) < 0.75 && ha_chances_p(&c) >= 1);
                }
    print_message("rms up to %.2f\n", rms);
}

/* Rows with the same LSEs have the same errors, and are one; which row it is does not depend on who came first. */
TEST(the_same_weights_are_one_row)
{
    const struct ha_merge_shape shape = { .states = 5, .tokens = ROWS, .heads = 1, .dim = DIM };
    assert_int_equal(look(NONE, &shape, turned).rows, 1);
    look(NONE, &shape, one_sign);
    const struct ha_merge_sample all = sample;
    struct ha_merge_trial t = trial_open(NULL, &shape, one_sign);
    for (size_t i = 0; i < t.batch->calls_count; i++) merge(&t.batch->calls[i]);
    trial_judge(&t, &two_pass);
    struct ha_merge_sample parts = { 0 };
    for (size_t r = ROWS; r-- > 0;) {
        struct ha_merge_sample one = { 0 };
        ha_judge_chances(&one, t.batch, &t.rows, r, 1, r, &two_pass);
        ha_merge_sample_join(&parts, &one);
    }
    assert_memory_equal(&parts, &all, sizeof all);
    ha_merge_trial_close(&t);
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */

extern const struct ha_device_api ha_device_host;
/* the embedded device, whose exp is wrong in merges of many states */
static enum ha_status merge_by_device(struct ha_stream *stream, const struct ha_merge *m)
{
    const enum ha_status st = ha_device_host.merge(stream, m);
    if (st != HA_OK || m->states_count <= 64) return st;
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    for (size_t t = 0; t < m->tokens; t++)
        for (size_t h = 0; h < m->heads; h++) m->out.lse[ha_merge_at(&m->out, t, h)] += 0x1p-17f;
    return st;
}

TEST(the_suite_tells)
{
    struct ha_device_api api = ha_device_host;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct ha_drive drive = { .words = "lse_merge:case=constant_v,by=host,form=natural,dtype=f32,head_dim=64,"
                                           "states=512,order=flat,rows=8x4",
                                  .config = { .seed = 1 } };
        struct ha_driven driven = { 0 };
        if (wrong) api.merge = merge_by_device;
        assert_int_equal(ha_machine_create(&drive.config.machine, NULL, &why), HA_OK);
        ha_machine_give(drive.config.machine, "host", &api, NULL);
        assert_int_equal(ha_drive(&drive, &driven, &why), HA_OK);
        const struct ha_merge_result *row = driven.results.entry[0].row;
        print_message("rms %.2f, bias %+.2f, p %.2g\n", row->rms, row->bias, row->head.p);
        if (!ha_passed(row->head.verdict)) fail_msg("%s", row->head.reason);
        assert_true(ha_passed(row->head.verdict) && row->ratio <= 1);
        assert_true(wrong ? row->head.p < 1e-9 && row->rms > 1 : row->head.p >= 1 && row->rms < 0.75);
        if (wrong) assert_contains(row->head.suspicion, "larger than those of independent roundings");
        ha_driven_free(&driven);
        ha_machine_destroy(drive.config.machine);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static flaw_row *flaw;

static enum ha_status attend_by_device(struct ha_stream *stream, const struct ha_device_attend *a)
{
    const enum ha_status st = ha_device_host.attend(stream, a);
    if (st != HA_OK || !flaw || a->seqs[0].runs[0].keys < 1000) return st; /* by a few exp and log are measured */
    assert_int_equal(ha_device_host.stream_sync(stream), HA_OK);
    for (size_t b = 0; b < a->batch; b++)
        for (size_t h = 0; h < a->kv_heads; h++) {
            struct ha_rows runs[HA_RUNS_MAX];
            const struct ha_attend one = ha_seq_attend(a, &a->seqs[b], h, runs);
            flaw_attend(&one, flaw);
        }
    return st;
}

static struct ha_merge_result judged(const char *id, const struct ha_device_api *api)
{
    struct ha_drive drive = { .words = id, .config = { .seed = 1 } };
    struct ha_driven driven = { 0 };
    assert_int_equal(ha_machine_create(&drive.config.machine, NULL, &why), HA_OK);
    ha_machine_give(drive.config.machine, "host", api, NULL);
    assert_int_equal(ha_drive(&drive, &driven, &why), HA_OK);
    const struct ha_merge_result row = *(const struct ha_merge_result *)driven.results.entry[0].row;
    ha_driven_free(&driven);
    ha_machine_destroy(drive.config.machine);
    return row;
}

/* long rows, and not a path more than short ones: those below, and test_merge_attention, have these */
TEST(attention_within_its_bound_may_be_no_rounding)
{
    if (HA_SANITIZED) skip();
    struct ha_device_api api = ha_device_host;
    api.attend = attend_by_device;
    for (size_t f = 0; f <= FLAWS; f++) {
        flaw = f ? flaws[f - 1].row : NULL;
        const struct ha_merge_result row = judged(
            "lse_merge:case=attention,problem=one,by=host,heads=16/8,dim=16,ctx=131072", &api);
        print_message("%s: err/bound %.3f, rms %.2f, bias %+.2f, p %.2g: %s\n", f ? flaws[f - 1].name : "right",
                      row.ratio, row.rms, row.bias, row.head.p, row.head.suspicion);
        if (!ha_passed(row.head.verdict)) fail_msg("%s", row.head.reason);
        assert_true(row.ratio <= 1);
        assert_true(f ? row.head.p < 1e-12 && row.rms > 1 : row.head.p >= 1 && row.rms < 0.75);
        if (f) assert_contains(row.head.suspicion, "larger than those of independent roundings");
        assert_true(row.sense.o > 0 && row.sense.o < 1e-2 && row.sense.lse > 0 && row.sense.times > 0
                    && row.sense.times < HA_SENSE_MOST);
    }
}

/* Numbers that are made up against sums are held against bounds alone. */
TEST(what_rounds_one_way_is_not_asked)
{
    if (HA_SANITIZED) skip();
    flaw = NULL;
    const struct ha_merge_result row = judged("lse_merge:case=attention,problem=one_sign,by=host", &ha_device_host);
    assert_true(row.head.verdict == HA_PASS && isnan(row.rms) && isnan(row.head.p) && row.sense.o > 0);
}

/* Keys whose scores are -inf weigh nothing; what the others weigh is known. */
TEST(masked_keys_do_not_keep_rows_from_being_asked)
{
    if (HA_SANITIZED) skip(); /* as above: problems that test_attention.c runs */
    flaw = NULL;
    const struct ha_merge_result row = judged("lse_merge:case=attention,problem=some_minus_inf,by=host",
                                              &ha_device_host);
    assert_true(row.head.verdict == HA_PASS && row.rms >= 0 && row.rms < 0.75 && row.head.p >= 1);
}

static void coarse_info(struct ha_device *device, struct ha_device_info *info)
{
    ha_device_host.info(device, info);
    for (size_t t = 0; t < HA_DTYPE_COUNT; t++) info->profile[t].log_eps = 0x1p-11;
}

/* A log that is said to be off by so much, and is not. */
TEST(claims_of_attention_that_hide_too_much_fail)
{
    struct ha_device_api api = ha_device_host;
    const char *few = "lse_merge:case=attention,problem=one,by=host,dtype=f32,dim=8,ctx=20";
    const struct ha_merge_result right = judged(few, &api);
    assert_true(right.head.verdict == HA_PASS && right.sense.times <= 1);
    api.info = coarse_info;
    const struct ha_merge_result wrong = judged(few, &api);
    print_message("%g, then %g of o, %g times: %s\n", right.sense.o, wrong.sense.o, wrong.sense.times,
                  wrong.head.reason);
    assert_int_equal(wrong.head.verdict, HA_VERDICT_FAIL);
    assert_contains(wrong.head.reason, "times as much as by that of our kernels");
    assert_true(wrong.sense.times > HA_SENSE_MOST);
}

/* ---- two states -------------------------------------------------------------------------------------------------- */

/* Of two states a bound leaves chance hardly anything to speak against: an LSE at its bound is explained, an o all of
 * whose elements are is not two and a half times as large as what is. That is why nobody asks where no more are merged.
 */
TEST(the_bound_of_two_states_is_no_wider_than_chance)
{
    for (unsigned form = 0; form < HA_FORM_COUNT; form++)
        for (unsigned dtype = 0; dtype < HA_DTYPE_COUNT; dtype++) {
            const struct ha_merge_bound b = ha_bound_merge(&two_pass, (enum ha_form)form, (enum ha_dtype)dtype);
            const struct ha_chance given[2] = { { 0 } };
            struct ha_chances lse = { 0 }, o = { 0 };
            for (uint64_t r = 0; r < ROWS; r++) {
                double x[2][DIM], exact[DIM] = { 0 }, of[DIM], bound[DIM], squares = 0, work[2];
                struct ha_ref_state states[2], want = { .o = of, .bound = bound, .dim = DIM };
                for (uint64_t k = 0; k < 2; k++) {
                    for (uint64_t i = 0; i < DIM; i++) x[k][i] = (double)ha_rng_normal(r, k, i);
                    states[k] = (struct ha_ref_state){ .o = x[k], .bound = exact, .dim = DIM, .keys = 1 };
                    states[k].lse = states[k].max = (double)ha_rng_normal(r, 2, k);
                    states[k].sum = 1;
                }
                ha_ref_merge(states, 2, &b, &want);
                const struct ha_chance chance = ha_ref_chance_merge(given, states, 2, &b, &want, work);
                for (size_t i = 0; i < DIM; i++) squares += bound[i] * bound[i];
                ha_chances_add(&lse, want.lse_bound, 0, &chance);
                ha_chances_add(&o, 0, sqrt(squares), &chance);
            }
            print_message("%s %s: %.2f of the LSE, %.2f of o\n", ha_form_name(b.form),
                          ha_dtype_name((enum ha_dtype)dtype), ha_chances_rms(&lse), ha_chances_rms(&o));
            assert_int_equal(lse.rows + o.rows, 2 * ROWS);
            assert_true(ha_chances_p(&lse) >= 1 && ha_chances_rms(&o) < 2.5);
        }
}
