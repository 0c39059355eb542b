/* The next layer's query, by the device and by the CPU: within what binary32 may be off by of binary64, of every kind
 * of projection; and a projection that is wrong in one thing is not. */

#include "datasets/test_file.h"
#include "suites/parts/ahead.h"
#include "suites/variants/test_session.h"

static double worst;                                         /* error over bound of all queries */
static size_t seen;                                          /* queries' heads */
static void (*spoil)(struct ha_projection *p, size_t layer); /* NULL, or what the variant is given is wrong */
static enum ha_ahead_side side;

static struct ha_projection spoilt[16];

static enum ha_status share(struct ha_layer *first, struct ha_why *why)
{
    struct ha_ahead *a = first->shared;
    return ha_ahead_create(a, first, side, true, why);
}

static enum ha_status prefill(struct ha_layer *l, size_t b, const struct ha_prefill *in, struct ha_why *why)
{
    return HA_OK;
}

static enum ha_status before(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    return l->layer + 1 < l->ctx->shape->layers ? ha_ahead_begin(l->shared, step, l->tokens) : HA_OK;
}

/* the step's own tokens: what it attends over does not matter here */
static void device(struct ha_layer *l, const struct ha_step *step, size_t b, struct ha_device_seq *d)
{
    const struct ha_kv fresh = ha_kv_of_step(l->ctx->shape, step, b);
    d->runs[d->runs_count++] = ha_kv_rows(l->ctx->shape, &fresh, 0, 0, step->q_len);
}

static enum ha_status after(struct ha_layer *l, const struct ha_step *step, struct ha_why *why)
{
    const struct ha_shape *s = l->ctx->shape;
    struct ha_ahead *a = l->shared;
    const size_t width = s->q_heads * s->head_dim;
    double want[512], bound[512];
    assert_true(width <= 512);
    if (l->layer + 1 == s->layers) return HA_OK;
    HA_TRY(ha_ahead_end(a));
    if (side == HA_AHEAD_ORACLE) {
        const size_t n = s->batch * s->q_len * width;
        worst += memcmp(a->q, ha_session_q(&session, l->layer + 1), n * sizeof *a->q) ? HUGE_VAL : 0;
        seen += n;
        return HA_OK;
    }
    for (size_t i = 0; i < s->batch * s->q_len; i++) {
        const size_t token = l->tokens[i / s->q_len] - s->q_len + i % s->q_len;
        const float *x = ha_session_x(&session, l->layer) + i * s->model_dim;
        ha_projection_query(&session.workload->projection[l->layer + 1], s->q_heads, s->head_dim, s->model_dim, x,
                            token, want, bound);
        for (size_t d = 0; d < width; d++, seen++) {
            const double off = fabs((double)a->q[i * width + d] - want[d]), ratio = off == 0 ? 0 : off / bound[d];
            worst = ratio <= worst ? worst : ratio;
        }
    }
    return HA_OK;
}

static const struct ha_rule rule = {
    .shared_bytes = sizeof(struct ha_ahead),
    .share = share,
    .prefill = prefill,
    .before = before,
    .device = device,
    .after = after,
};
/* with the projection that is spoilt */
static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    struct ha_context own = *ctx;
    for (size_t i = 0; i < ctx->shape->layers && ctx->projection; i++) {
        spoilt[i] = ctx->projection[i];
        if (spoil) spoil(&spoilt[i], i);
    }
    if (own.projection) own.projection = spoilt;
    return ha_frame_create(self, &own, why);
}
static const struct ha_variant mine = {
    .name = "mine",
    .checked = false,
    .rule = &rule,
    .create = create,
    .prefill = ha_frame_prefill,
    .attend = ha_frame_attend,
    .drain = ha_frame_drain,
    .destroy = ha_frame_destroy,
};

static double run(const char *id)
{
    struct ha_pass p;
    worst = 0;
    seen = 0;
    open_session(id);
    session.variant = &mine;
    const struct ha_shape *s = &session.workload->shape;
    begin_pass(&p, true);
    for (size_t step = 0; step < s->steps; step++) assert_ok(ha_pass_step(&p, step, &reason));
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    assert_true(seen == s->steps * (s->layers - 1) * s->batch * s->q_len * s->q_heads * s->head_dim);
    close_session();
    return worst;
}

static const char *const ids[] = {
    "cpu:dataset=residual,ctx=20+3,heads=4/2,head_dim=64,layers=3,steps=2,threads=2",
    "cpu:dataset=walk,ctx=20,heads=4/2,head_dim=64,layers=3,steps=2,q_len=3,threads=1",
    "cpu:dataset=trace/english,ctx=1900,steps=2,threads=2",
    "cpu:dataset=trace/deep,ctx=1900,steps=1,threads=2",
    "cpu:dataset=trace/code,ctx=2000+1990,steps=3,q_len=2,threads=2",
};

/* a trace with a projection of that kind */
static const char *case_of(unsigned has, const char *pairing)
{
    static char id[512];
    trace_make(HA_T_F32, has);
    if (has & TEST_ROPE) trace_meta("rope_pairing", pairing);
    trace_write();
    snprintf(id, sizeof id, "cpu:dataset=trace/%s,ctx=30+25,observed=1,steps=2,threads=1", path());
    return id;
}

static const struct {
    unsigned has;
    const char *pairing;
} kinds[] = {
    { TEST_X, "" },
    { TEST_X | TEST_BIAS, "" },
    { TEST_X | TEST_NORM, "" },
    { TEST_X | TEST_ROPE, "half" },
    { TEST_X | TEST_BIAS | TEST_NORM | TEST_ROPE, "adjacent" },
    { TEST_ALL, "half" },
};

TEST_WITH(within_the_bound, test_folder_make, test_folder_remove)
{
    spoil = NULL;
    for (side = HA_AHEAD_DEVICE; side <= HA_AHEAD_CPU; side++) {
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
            if (run(ids[i]) > 1) fail_msg("%s, side %d: error over bound %g", ids[i], (int)side, worst);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (run(case_of(kinds[i].has, kinds[i].pairing)) > 1)
                fail_msg("kind %zu, side %d: error over bound %g", i, (int)side, worst);
    }
}

static void no_rotary(struct ha_projection *p, size_t layer) { p->inv_freq = NULL; }
static void no_norm(struct ha_projection *p, size_t layer) { p->norm = NULL; }
static void no_bias(struct ha_projection *p, size_t layer) { p->bias = NULL; }
static void other_pairs(struct ha_projection *p, size_t layer) { p->adjacent = !p->adjacent; }
static void other_layer(struct ha_projection *p, size_t layer)
{
    if (layer + 1 < session.workload->shape.layers) p->wq = session.workload->projection[layer + 1].wq;
    else p->wq = session.workload->projection[0].wq;
}

TEST_WITH(what_is_wrong_is_not, test_folder_make, test_folder_remove)
{
    static void (*const wrong[])(struct ha_projection *, size_t) = { no_rotary, no_norm, no_bias, other_pairs,
                                                                     other_layer };
    for (side = HA_AHEAD_DEVICE; side <= HA_AHEAD_CPU; side++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            spoil = wrong[i];
            if (run(case_of(TEST_ALL, "half")) <= 100) fail_msg("mistake %zu, side %d: %g", i, (int)side, worst);
        }
    spoil = NULL;
}

/* The query that will come is that of the next layer, to the bit; it takes no inputs. */
TEST(the_query_that_comes)
{
    side = HA_AHEAD_ORACLE;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (run(ids[i]) > 0) fail_msg("%s: it is another", ids[i]);
    if (run("cpu:dataset=iid,ctx=20+7,layers=3,steps=2,q_len=2") > 0) fail_msg("without inputs: it is another");
}
