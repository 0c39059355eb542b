/* States that are not those of the step's query over the cache's keys and values: made with another query, over what
 * stood for the keys, or of weights alone. A variant of this test makes them by plain loops in binary64 and reports
 * them, rightly and wrongly. */

#include "harness/api/dataset.h"
#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/test_folder.h"
#include "suites/variants/check.h"
#include "suites/variants/dump.h"
#include "suites/variants/test_session.h"

#define CASE "cpu:isa=c,ctx=20,heads=4/2,head_dim=64,layers=1,steps=1,threads=1"
enum { DIM = 64, HEADS = 4, TOKENS = 21, HALF = TOKENS / 2 };

/* What is done with the odd tokens; the even ones are a plain state. */
struct own {
    bool q, k, weight_only;
};
static struct {
    struct own made, reported;
    double error;                     /* of each weight of an odd token, relative */
    bool in_nan, backwards;           /* the query is reported as NaN; the keys in descending order */
    const struct ha_profile *profile; /* of the odd ones */
    bool either_side;
} now;

struct ha_instance {
    struct ha_context ctx;
    float q[HEADS][DIM], k[HEADS][HALF][DIM], o[HEADS][DIM], lse[HEADS];
    uint32_t even[TOKENS - HALF], odd[HALF];
};

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = ha_alloc(ctx->arena, sizeof **self, HA_TAG_META, why);
    if (*self) (*self)->ctx = *ctx;
    return *self ? HA_OK : HA_ERROR;
}

static void row_of(void *const *rows, size_t head, size_t token, float *out)
{
    const size_t at = (head / 2 * session.workload->cap + token) * DIM * 2;
    ha_load_row((const char *)rows[0] + at, DIM, HA_F16, out);
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

static void attend_head(struct ha_instance *self, size_t head, const float *q)
{
    double sum = 0, o[DIM] = { 0 };
    float k[DIM], v[DIM];
    other_query(q, self->q[head]);
    for (size_t t = 0; t < TOKENS; t++) {
        const bool odd = t % 2;
        row_of(session.workload->k, head, t, k);
        row_of(session.workload->v, head, t, v);
        if (odd) other_key(k, self->k[head][t / 2]);
        const float *from = odd && now.made.q ? self->q[head] : q, *to = odd && now.made.k ? self->k[head][t / 2] : k;
        const double w = exp(score_of(from, to)) * (odd ? 1 + now.error : 1);
        sum += w;
        for (size_t d = 0; d < DIM && !(odd && now.made.weight_only); d++) o[d] += w * (double)v[d];
    }
    for (size_t d = 0; d < DIM; d++) self->o[head][d] = (float)(o[d] / sum);
    self->lse[head] = (float)log(sum);
}

static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_context *c = &self->ctx;
    float q[HEADS][DIM];
    HA_TRY(c->api->copy(c->stream, q, step->q, sizeof q, HA_D2H));
    HA_TRY(c->api->stream_sync(c->stream));
    for (size_t h = 0; h < HEADS; h++) attend_head(self, h, q[h]);
    HA_TRY(c->api->copy(c->stream, step->o, self->o, sizeof self->o, HA_H2D));
    return c->api->copy(c->stream, step->lse, self->lse, sizeof self->lse, HA_H2D);
}

static void selection(struct ha_instance *self, size_t layer, size_t seq, size_t head, struct ha_selection *out)
{
    static float k[HALF][DIM];
    for (uint32_t i = 0; i < HALF; i++) {
        const uint32_t at = now.backwards ? HALF - 1 - i : i;
        self->odd[i] = 2 * at + 1;
        memcpy(k[i], self->k[head][at], sizeof k[i]);
    }
    for (uint32_t i = 0; i < TOKENS - HALF; i++) self->even[i] = 2 * i;
    if (now.backwards) memcpy(self->k[head], k, sizeof k);
    if (now.in_nan) self->q[head][5] = NAN;
    *out = (struct ha_selection){ .parts = 2,
                                  .part = { { .token = self->even, .count = TOKENS - HALF },
                                            { .token = self->odd,
                                              .count = HALF,
                                              .q = now.reported.q ? self->q[head] : NULL,
                                              .k = now.reported.k ? self->k[head][0] : NULL,
                                              .weight_only = now.reported.weight_only,
                                              .profile = now.profile,
                                              .either_side = now.either_side } } };
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
    memset(&now, 0, sizeof now);
    now.made.q = now.reported.q = now.in_nan = true;
    assert_true(isinf(worst(judged, &plain)));
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
    struct ha_profile coarse = session.info.profile[HA_F16];
    coarse.exp_eps = 0x1p-7;
    memset(&now, 0, sizeof now);
    now.error = 0x1p-9;
    assert_true(worst(judged, &plain) > 1);
    now.profile = &coarse;
    assert_true(worst(judged, &plain) <= 1);
    assert_false(plain);
    now.profile = NULL;
    session.info.profile[HA_F16] = coarse;
    assert_true(worst(judged, &plain) > 1); /* it is the CPU's */
    now.either_side = true;
    assert_true(worst(judged, &plain) <= 1);
    assert_true(plain);
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
    v.contract = HA_BOUNDED;
    assert_ok(ha_check_run(&c, &reason));
    assert_near(c.host_key_bytes, 2 * (2 * (TOKENS - HALF) + HALF) * DIM * 2, 1e-9);
    ha_check_free(&c);
    close_session();
}

/* Refused, rather than a file that says that the states are plain. */
TEST_WITH(a_dump_does_not_hold_them, test_folder_make, test_folder_remove)
{
    struct ha_variant v = mine;
    struct ha_dump dump;
    struct ha_check c = { .session = &session, .id = "the case", .dump = &dump };
    v.name = "cpu";
    v.checked = true;
    open_session(CASE);
    session.variant = &v;
    for (int own = 0; own < 2; own++) {
        memset(&now, 0, sizeof now);
        now.made.q = now.reported.q = own;
        assert_ok(ha_dump_open(&dump, &session, test_folder, "the case", &reason));
        assert_int_equal(ha_check_run(&c, &reason), own ? HA_ERROR : HA_OK);
        if (own)
            assert_contains(reason.text, "dump: variant cpu has states with a query, keys or weights of their own");
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

int main(void) { return test_all("states", NULL, NULL); }
