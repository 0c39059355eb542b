#include "suites/variants/bench.h"

#include "harness/base/array.h"
#include "harness/base/clock.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/stats.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "harness/measure/sampling.h"
#include "harness/measure/spans.h"
#include "harness/measure/speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>

/* CLOCKS_FROM: traced passes from that on are judged by clocks, too: of a few that are all, a busy host holds up each
 */
enum { PASSES_LEAST = 10, STEPS_LEAST = 30, TREND_PASSES = 4, INTERVAL_LEAST = 6, CLOCKS_FROM = 3, PRODUCTS_KEPT = 8 };
static const double trend_most = 0.05, interval_most = 0.01, speed_least = 0.85;

enum arm { UNTRACED, TRACED, FULL };
enum { ARMS = 3 };

struct state {
    struct ha_bench *bench;
    struct ha_series series[ARMS], warmup; /* of passes */
    struct ha_usage *usage;                /* [usages], one for each traced pass */
    size_t usages, usages_capacity;
    size_t blocks;
    struct ha_pass kept[2]; /* of the variant, of the companion; where they can be rewound they serve all passes */
    uint64_t deadline_ns;
    bool measuring;                   /* the warm-up is over */
    double best[HA_POOL_THREADS_MAX]; /* see harness/measure/speed.h */
    size_t looks, slow;               /* around untraced passes; of these, that found a core slow */
    uint64_t secret;                  /* what is drawn follows from it */
    struct ha_timed timed;            /* of the untraced passes that count so many, one */
    size_t drawn_of;
    bool is_drawn;      /* the pass at hand is it, so far */
    unsigned char *out; /* its outputs */
    struct {
        struct ha_check_place at; /* of those that are read after the pass at hand */
        char *read, *room;        /* room: [most][read_bytes] */
        size_t most, kept;        /* of passes that are drawn */
        struct {
            struct ha_check_place at;
            uint64_t turn;
        } of[PRODUCTS_KEPT];
    } products;
    struct ha_evidence evidence;
};

bool ha_bench_settled(const double *x, size_t count)
{
    if (count < TREND_PASSES) return false;
    const double *last = x + count - TREND_PASSES;
    return fabs(ha_slope(last, TREND_PASSES)) * TREND_PASSES <= trend_most * ha_median(last, TREND_PASSES);
}

void ha_bench_interval(const double *x, size_t count, double *lo, double *hi)
{
    if (count >= INTERVAL_LEAST) ha_median_interval(x, count, lo, hi);
    else *lo = *hi = (double)NAN;
}

bool ha_bench_precise(const double *x, size_t count, size_t steps)
{
    const size_t passes = (STEPS_LEAST + steps - 1) / steps;
    const struct ha_sampling rule = { .least = passes > PASSES_LEAST ? passes : PASSES_LEAST,
                                      .interval = interval_most };
    return ha_sampling_enough(&rule, x, count);
}

/* ---- one pass ------------------------------------------------------------------------------ */

static void trace(struct ha_bench *b, bool on)
{
    struct ha_session *s = b->session;
    s->api->trace(s->device, on ? ha_timeline_sink(b->timeline, HA_FROM_DEVICE) : NULL);
    ha_pool_trace(s->pool, on ? ha_timeline_sink(b->timeline, HA_FROM_POOL) : NULL);
    ha_worker_trace(s->worker, on ? ha_timeline_sink(b->timeline, HA_FROM_WORKER) : NULL);
}

/* What the device itself lost, and what stamped its spans, which may turn out only when a trace has begun. */
static uint64_t spans_lost(struct ha_bench *b)
{
    struct ha_device_info info;
    b->session->api->info(b->session->device, &info);
    snprintf(b->source, sizeof b->source, "%s", info.spans);
    return info.spans_lost;
}

static enum ha_status keep_sample(struct state *s, enum arm arm, const struct ha_pass *p, const struct rusage *before,
                                  const struct rusage *after, struct ha_why *why)
{
    static const char *const role[ARMS] = { "measure", "traced", "full" };
    struct ha_bench *b = s->bench;
    const double wall_ns = (double)(p->window.end_ns - p->window.begin_ns);
    const struct ha_sample sample = {
        .role = s->measuring ? role[arm] : "warmup",
        .block = s->blocks,
        .iter = (double)NAN,
        .step_ns = wall_ns / (double)p->steps,
        .context_switches = (double)(after->ru_nivcsw - before->ru_nivcsw),
        .page_faults = (double)(after->ru_minflt - before->ru_minflt + after->ru_majflt - before->ru_majflt),
    };
    if (arm == UNTRACED) {
        b->moved.h2d_bytes += p->moved.h2d_bytes;
        b->moved.d2h_bytes += p->moved.d2h_bytes;
        b->moved_steps += b->session->workload->shape.steps;
    }
    if (arm == UNTRACED && s->measuring) {
        b->context_switches += sample.context_switches;
        b->page_faults += sample.page_faults;
    }
    b->warmup_samples += !s->measuring;
    b->sample(b->arg, &sample);
    return ha_series_add(s->measuring ? &s->series[arm] : &s->warmup, sample.step_ns, why);
}

/* The single steps of the pass, those of its window. */
static void keep_steps(struct state *s, const struct ha_pass *p)
{
    struct ha_bench *b = s->bench;
    const size_t steps = b->session->workload->shape.steps;
    uint64_t begin_ns = p->window.begin_ns;
    for (size_t step = steps - p->steps; step < steps; step++) {
        const uint64_t end_ns = b->session->ended_ns[step];
        const struct ha_sample sample = { .role = "step",
                                          .block = s->blocks,
                                          .iter = (double)step,
                                          .step_ns = end_ns > begin_ns ? (double)(end_ns - begin_ns) : 0,
                                          .context_switches = (double)NAN,
                                          .page_faults = (double)NAN };
        b->sample(b->arg, &sample);
        begin_ns = end_ns;
    }
}

/* Products of the n-th pass that counts take the place of an earlier one's, so that each pass is kept with the same
 * probability. */
static void keep_products(struct state *s, uint64_t n)
{
    const struct ha_session *session = s->bench->session;
    const size_t at = s->products.kept < s->products.most ? s->products.kept++ : ha_rng_below(s->secret, 5, n, n + 1);
    if (at >= s->products.most) return;
    memcpy(s->products.room + at * session->load.read_bytes, s->products.read, session->load.read_bytes);
    s->products.of[at].at = s->products.at;
    s->products.of[at].turn = session->workload->turn;
}

/* The numbers of the pass that is drawn, so far: each of those that count is it with the same probability. */
static void draw(struct state *s)
{
    struct ha_session *session = s->bench->session;
    const struct ha_shape *shape = &session->workload->shape;
    const uint64_t n = s->drawn_of++;
    s->is_drawn = ha_rng_below(s->secret, 1, n, n + 1) == 0;
    if (session->load.products) keep_products(s, n);
    if (!s->is_drawn) return;
    memcpy(s->out, session->host_all, session->slots * shape->layers * session->io.out_bytes);
    s->timed.turn = session->workload->turn;
    s->timed.at = (struct ha_check_place){
        .step = shape->steps - 1 - ha_rng_below(s->secret, 2, n, session->slots),
        .layer = ha_rng_below(s->secret, 3, n, shape->layers),
    };
}

/* A step and a layer whose products are still there. */
static struct ha_check_place draw_products(const struct state *s)
{
    const struct ha_load *load = &s->bench->session->load;
    const size_t last = s->bench->session->workload->shape.steps * load->layers - 1,
                 at = last - ha_rng_below(s->secret, 4, s->blocks, load->slots - (load->slots <= last));
    return (struct ha_check_place){ .step = at / load->layers, .layer = at % load->layers };
}

static enum ha_status read_products(struct state *s, struct ha_why *why)
{
    struct ha_session *session = s->bench->session;
    const struct ha_check_place at = s->products.at;
    if (!session->load.products
        || ha_load_read(&session->load, session->api, session->stream, at.step, at.layer, s->products.read) == HA_OK)
        return HA_OK;
    return ha_why(why, HA_ERROR, "device %s during the download of products", session->api->name);
}

/* All outputs that are kept, and products of one layer. */
static enum ha_status read_outputs(struct state *s, struct ha_pass *p, struct ha_series *took, struct ha_why *why)
{
    const uint64_t begin_ns = ha_now_ns();
    if (!ha_session_checked(s->bench->session)) return HA_OK;
    HA_TRY(ha_pass_download_all(p, why));
    HA_TRY(read_products(s, why));
    return s->measuring ? ha_series_add(took, (double)(ha_now_ns() - begin_ns), why) : HA_OK;
}

/* Once more, after the device has had as little to do: what was put off until somebody reads it, which is done as soon
 * as the clock has stopped, makes the first reading longer. */
static enum ha_status read_again(struct state *s, struct ha_pass *p, struct ha_why *why)
{
    enum { NAP_NS = 200000 };
    s->is_drawn = false;
    if (!ha_session_checked(s->bench->session)) return HA_OK;
    ha_sleep_ns(NAP_NS);
    HA_TRY(read_outputs(s, p, &s->evidence.read_again, why));
    if (!s->measuring) return HA_OK;
    HA_TRY(ha_evidence_rest(&s->evidence, why));
    draw(s);
    uint64_t back_ns;
    HA_TRY(ha_session_inputs_back(s->bench->session, &back_ns, why));
    HA_TRY(ha_series_add(&s->evidence.upload, (double)s->bench->session->upload_ns, why));
    return ha_series_add(&s->evidence.inputs_back, (double)back_ns, why);
}

static enum ha_status evaluate(struct state *s, const struct ha_pass *p, struct ha_why *why)
{
    if (!ha_array_room(&s->usage, &s->usages_capacity, s->usages + 1, sizeof *s->usage))
        return ha_why(why, HA_ERROR, "no memory for traced passes");
    s->usage[s->usages] = (struct ha_usage){ .steps = p->steps };
    HA_TRY(ha_timeline_measure(s->bench->timeline, p->window, &s->usage[s->usages++], why));
    s->bench->usage.steps += p->steps;
    return ha_timeline_measure(s->bench->timeline, p->window, &s->bench->usage, why);
}

/* Do the spans of the pass agree with what it was asked for, and with the host's clock? What is copied in the
 * background behind the pass may be traced or not. */
static enum ha_status judge_spans(struct state *s, const struct ha_pass *p, struct ha_interval traced,
                                  struct ha_why *why)
{
    const struct ha_session *session = s->bench->session;
    const struct ha_meter_count *of = &p->moved, behind = ha_meter_take();
    const size_t steps = session->workload->shape.steps,
                 products = session->load.products * session->load.layers * steps;
    const uint64_t h2d = of->h2d_bytes - of->stored_bytes, window_ns = p->window.begin_ns;
    const bool whole = !p->graphs; /* a graph that is launched may have one span for all that is in it */
    const uint64_t product = UINT64_C(1) << HA_OPERATION_product;
    const struct ha_spans_asked asked = {
        .attend = whole ? of->attend : 0,
        .merge = whole ? of->merge : 0,
        .product = whole ? of->product + products : 0,
        .called = whole ? of->called | behind.called | (products ? product : 0) : 0,
        .up = whole ? of->up : 0,
        .down = whole ? of->down : 0,
        .h2d_bytes = { whole ? h2d : 0, h2d + behind.h2d_bytes - behind.stored_bytes },
        .d2h_bytes = { whole ? of->d2h_bytes : 0, of->d2h_bytes + behind.d2h_bytes },
        .clocks = s->usages >= CLOCKS_FROM && strcmp(session->api->kind, "emulated") != 0,
        .traced = traced,
        .busy = { p->submitted_ns > window_ns ? p->submitted_ns : window_ns, steps > 2 ? p->last.begin_ns : 0 },
    };
    double unexplained;
    const enum ha_status status = ha_spans_judge(s->bench->timeline, &asked, &unexplained, &s->evidence.contradiction);
    if (status == HA_ERROR) return ha_why(why, HA_ERROR, "%s", s->evidence.contradiction.text);
    s->evidence.contradicted += status == HA_FAIL;
    return isnan(unexplained) ? HA_OK : ha_series_add(&s->evidence.unexplained, unexplained, why);
}

/* Looks how fast the cores are; before the measurement only to learn what they reach at best. */
static void look(struct state *s)
{
    const bool is_slow = ha_speed_least(s->bench->session->pool, s->best) < speed_least;
    s->looks += s->measuring;
    s->slow += s->measuring && is_slow;
}

static enum ha_status steps(struct state *s, enum arm arm, struct ha_pass *p, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    const size_t count = b->session->workload->shape.steps;
    const bool metered = arm == UNTRACED && s->measuring;
    struct rusage before, after;
    uint64_t lost_before = 0;
    struct ha_interval traced = { 0, 0 };
    if (arm != TRACED) look(s);
    HA_TRY(ha_session_upload(b->session, why)); /* the last of all: nothing can be computed before the clock runs */
    if (arm == TRACED) {
        ha_timeline_clear(b->timeline);
        lost_before = spans_lost(b);
        traced.begin_ns = ha_now_ns();
        trace(b, true);
    }
    if (metered) ha_condition_begin(&b->condition, b->session->api, b->session->device);
    getrusage(RUSAGE_SELF, &before);
    enum ha_status status = metered ? ha_evidence_pass_begin(&s->evidence, why) : HA_OK;
    if (status == HA_OK) status = ha_pass_run(p, arm == TRACED, why);
    if (metered && status == HA_OK) status = ha_evidence_pass_end(&s->evidence, why);
    getrusage(RUSAGE_SELF, &after);
    if (arm == UNTRACED && b->session->load.products) s->products.at = draw_products(s);
    if (arm == UNTRACED && status == HA_OK) status = read_outputs(s, p, &s->evidence.read_first, why);
    if (metered) ha_condition_end(&b->condition, b->session->api, b->session->device, count);
    if (metered) look(s);
    if (metered && status == HA_OK)
        status = ha_series_add(&s->evidence.first_step, (double)(p->first.end_ns - p->first.begin_ns), why);
    if (arm == TRACED) {
        trace(b, false);
        traced.end_ns = ha_now_ns();
        b->dropped += ha_timeline_dropped(b->timeline) + (size_t)(spans_lost(b) - lost_before);
        b->traced = p->last;
    }
    HA_TRY(status);
    HA_TRY(keep_sample(s, arm, p, &before, &after, why));
    if (metered) keep_steps(s, p);
    if (arm == TRACED) {
        b->traced_steps += p->steps;
        if (s->measuring && !b->dropped) HA_TRY(judge_spans(s, p, traced, why));
        return evaluate(s, p, why);
    }
    return arm == UNTRACED ? read_again(s, p, why) : HA_OK;
}

/* The instance of an arm, on the context as it was: made, or rewound from its last pass. */
static enum ha_status ready(struct state *s, enum arm arm, struct ha_pass **p, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    const struct ha_variant *variant = arm == FULL ? b->full : b->session->variant;
    struct ha_pass *other = &s->kept[arm != FULL];
    *p = &s->kept[arm == FULL];
    if ((*p)->instance) return ha_pass_rewind(*p, why);
    if (other->instance && ha_session_takes(b->session, variant, NULL) != HA_OK) HA_TRY(ha_pass_end(other, HA_OK, why));
    const double *param = arm == FULL ? NULL : b->session->param;
    enum ha_status status = ha_pass_begin(*p, b->session, variant, param, false, why);
    if (status == HA_ERROR && other->instance && !b->session->api->failure(b->session->device)) {
        HA_TRY(ha_pass_end(other, HA_OK, why)); /* there was no room after all */
        status = ha_pass_begin(*p, b->session, variant, param, false, why);
    }
    if (arm == FULL) (*p)->graphs = false;
    return status;
}

/* Reads the counters of the pass; those of the pass that is drawn are kept for ha_check_timed. */
static enum ha_status count(struct state *s, const struct ha_pass *p, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    if (p->variant->counters) p->variant->counters(p->instance, &b->counters);
    HA_TRY(ha_counted_read(&b->counted, p, why));
    s->timed.counters = s->is_drawn ? b->counters : s->timed.counters;
    return s->is_drawn ? ha_counted_read(&s->timed.counted, p, why) : HA_OK;
}

static enum ha_status pass(struct state *s, enum arm arm, struct ha_why *why)
{
    struct ha_pass *p;
    ha_session_place(s->bench->session, ha_rng_bits(s->secret, 0, s->blocks) | 1);
    HA_TRY(ready(s, arm, &p, why));
    enum ha_status status = steps(s, arm, p, why);
    if (status == HA_OK && arm == UNTRACED) status = count(s, p, why);
    s->blocks++;
    return p->variant->rewind && status == HA_OK ? ha_pass_settle(p, why) : ha_pass_end(p, status, why);
}

/* ---- all passes ------------------------------------------------------------------------------ */

static bool enough(const struct state *s)
{
    const struct ha_series *u = &s->series[UNTRACED];
    const struct ha_shape *shape = &s->bench->session->workload->shape;
    return ha_now_ns() >= s->deadline_ns || ha_bench_precise(u->x, u->count, shape->steps > 1 ? shape->steps - 1 : 1);
}

static enum ha_status passes(struct state *s, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    const uint64_t warm_until_ns = ha_now_ns() + b->time_cap_ns / 4;
    struct ha_core_counts begin, before, after;
    ha_core_counts_read("", &begin);
    do {
        HA_TRY(pass(s, UNTRACED, why));
        b->warm = ha_bench_settled(s->warmup.x, s->warmup.count);
    } while (!b->warm && ha_now_ns() < warm_until_ns);
    s->measuring = true; /* where b->warm is false the row says so */
    s->deadline_ns += ha_meeting_begin(b->meeting);
    const uint64_t half_ns = s->deadline_ns - b->time_cap_ns / 2;
    ha_core_counts_read("", &before);
    ha_evidence_begin(&s->evidence, b->session);
    do {
        /* after half of the time the untraced arm goes on alone, if its passes are so long that they have no interval
         * yet */
        const bool alone = s->blocks > b->warmup_samples && ha_now_ns() >= half_ns
                           && s->series[UNTRACED].count < INTERVAL_LEAST;
        for (int arm = 0; arm < (alone ? TRACED : ARMS); arm++)
            if (arm != FULL || b->full) HA_TRY(pass(s, (enum arm)arm, why));
    } while (ha_meeting_goes_on(b->meeting, enough(s)));
    ha_core_counts_read("", &after);
    ha_disturbed_judge(&before, &after, s->slow, s->looks, b->condition.throttle, b->disturbed);
    b->shares = ha_disturbed_shares(&before, &after, s->slow, s->looks);
    s->evidence.busy_host = !ha_had_cores_alone(&begin, &after) || !strcmp(b->session->api->kind, "emulated");
    b->footprint = ha_evidence_footprint(&s->evidence, b->session);
    return HA_OK;
}

/* ---- what the times are worth ------------------------------------------------------------------------------------ */

static enum ha_status judge_products(const struct state *s, struct ha_why *why)
{
    const struct ha_load *load = &s->bench->session->load;
    struct ha_why reason = { "" };
    for (size_t i = 0; i < s->products.kept; i++) {
        const struct ha_check_place at = s->products.of[i].at;
        const enum ha_status status = ha_load_judge(load, s->products.of[i].turn, at.step, at.layer,
                                                    s->products.room + i * load->read_bytes, s->secret, &reason);
        if (status != HA_OK)
            return ha_why(why, status, "timed pass: step %zu: %s; habench run '%s'", at.step, reason.text,
                          s->bench->check->id);
    }
    return HA_OK;
}

/* After all passes, when their instances are gone. */
static enum ha_status judge(struct state *s, struct ha_why *why)
{
    struct ha_bench *b = s->bench;
    if (!ha_session_checked(b->session)) return HA_OK;
    HA_TRY(judge_products(s, why));
    HA_TRY(ha_check_timed(b->session, b->check->id, &s->timed, why));
    s->evidence.traced = s->usages;
    if (b->ceilings)
        s->evidence.link = (struct ha_link){ b->ceilings->of[HA_CEIL_H2D].median, b->ceilings->of[HA_CEIL_D2H].median,
                                             b->ceilings->of[HA_CEIL_LAUNCH].median };
    HA_TRY(ha_evidence_judge(&s->evidence, b->session, b->check->id,
                             b->step_ns * (double)b->session->workload->shape.steps, s->timed.first_step_ns, why));
    HA_TRY(ha_condition_agrees(&b->condition, why));
    ha_recount_of_case(b->check, ha_repeat_unpromised(b->session) != NULL, &b->counters, &b->counted);
    return HA_OK;
}

static enum ha_status make_room(struct state *s, struct ha_why *why)
{
    const struct ha_session *session = s->bench->session;
    if (getrandom(&s->secret, sizeof s->secret, 0) != sizeof s->secret) s->secret = ha_now_ns();
    s->out = malloc(session->slots * session->workload->shape.layers * session->io.out_bytes);
    s->timed.out = s->out;
    s->timed.budget_ns = s->bench->time_cap_ns / 10;
    const size_t bytes = session->load.read_bytes, most = HA_OUTPUTS_BYTES / (bytes + 1);
    s->products.most = most > PRODUCTS_KEPT ? PRODUCTS_KEPT : most ? most : 1;
    s->products.read = malloc(bytes + 1);
    s->products.room = malloc(s->products.most * bytes + 1);
    return s->out && s->products.read && s->products.room
               ? HA_OK
               : ha_why(why, HA_ERROR, "no memory for the outputs of a pass");
}

enum ha_status ha_bench_run(struct ha_bench *b, struct ha_why *why)
{
    const double nan = (double)NAN;
    struct state s = { .bench = b, .deadline_ns = ha_now_ns() + b->time_cap_ns };
    b->step_ns = b->lo_ns = b->hi_ns = b->perturb = nan;
    b->ratios = (struct ha_ratios){ nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan };
    b->counters = (struct ha_counters){ nan, nan, nan, nan, nan, nan };
    b->condition = ha_condition_none();
    b->footprint = (struct ha_footprint){ nan, nan, nan, nan, nan };
    enum ha_status status = ha_timeline_create(&b->timeline, why);
    if (status == HA_OK) status = make_room(&s, why);
    if (status == HA_OK) status = passes(&s, why);
    if (status == HA_OK) {
        const struct ha_series *u = &s.series[UNTRACED], *t = &s.series[TRACED], *f = &s.series[FULL];
        b->samples = u->count;
        b->step_ns = ha_median(u->x, u->count);
        ha_bench_interval(u->x, u->count, &b->lo_ns, &b->hi_ns);
        b->perturb = ha_median(t->x, t->count) / b->step_ns - 1;
        if (b->full) b->full_ns = ha_median(f->x, f->count);
        status = ha_usage_medians(s.usage, s.usages, ha_pool_threads(b->session->pool), &b->ratios, why);
    }
    for (int i = 0; i < 2; i++) status = ha_pass_end(&s.kept[i], status, why);
    if (status == HA_OK) status = judge(&s, why);
    for (int arm = 0; arm < ARMS; arm++) ha_series_free(&s.series[arm]);
    ha_series_free(&s.warmup);
    ha_evidence_free(&s.evidence);
    ha_counted_free(&s.timed.counted);
    free(s.out);
    free(s.products.read);
    free(s.products.room);
    free(s.usage);
    return status;
}

void ha_bench_free(struct ha_bench *b)
{
    ha_timeline_destroy(b->timeline);
    b->timeline = NULL;
    ha_counted_free(&b->counted);
}
