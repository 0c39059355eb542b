/* A timed pass: what is between its steps, what counts as their time, what is looked at afterwards, and whether a
 * context serves a second pass. Linked with ha_now_ns wrapped, so that a test can tell the time. */

#include "harness/base/thread.h"
#include "suites/variants/bench.h"
#include "suites/variants/test_session.h"

#include <stdatomic.h>
#include <stdio.h>

uint64_t __real_ha_now_ns(void);
uint64_t __wrap_ha_now_ns(void);

static atomic_uint_fast64_t told; /* the time of the tests that tell it; 0: it is the real one */

uint64_t __wrap_ha_now_ns(void)
{
    const uint64_t now = atomic_load(&told);
    return now ? now : __real_ha_now_ns();
}

/* no counter that knows better */
uint64_t __wrap_ha_ticks(void);
uint64_t __wrap_ha_ticks(void) { return 0; }

/* Whether this host was busy, which a test may say. */
static enum { AS_IT_IS, ALONE, BUSY } cores;
bool __real_ha_had_cores_alone(const struct ha_core_counts *before, const struct ha_core_counts *after);
bool __wrap_ha_had_cores_alone(const struct ha_core_counts *before, const struct ha_core_counts *after);
bool __wrap_ha_had_cores_alone(const struct ha_core_counts *before, const struct ha_core_counts *after)
{
    return cores == AS_IT_IS ? __real_ha_had_cores_alone(before, after) : cores == ALONE;
}

/* ---- the time of steps ---------------------------------------------------------------------- */

/* A variant whose step takes 100 ns and leaves work behind that takes `later` more. That work is done in the next step,
 * or before that while somebody waits for the device or copies. */
static struct {
    uint64_t later, pending;
    size_t heavy; /* the step that takes 900 ns instead, or 0 */
    size_t steps, between, seen;
    bool stepping;
} play;

static void work_off(void)
{
    atomic_fetch_add(&told, play.pending);
    play.pending = 0;
}

static enum ha_status create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    *self = (struct ha_instance *)(void *)&play;
    return HA_OK;
}
static enum ha_status attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    work_off();
    atomic_fetch_add(&told, play.heavy && step->step == play.heavy ? 900 : 100);
    play.pending = play.later;
    play.stepping = ++play.seen < play.steps;
    return HA_OK;
}

static const struct ha_variant player = {
    .name = "player", .create = create, .prefill = no_prefill, .attend = attend, .destroy = no_destroy
};

/* The device: its work takes no time, a host function runs when it is submitted. */
static const struct ha_device_api *real;

static void somebody_waits(void)
{
    play.between += play.stepping;
    work_off();
}
static enum ha_status sync_stream(struct ha_stream *stream)
{
    somebody_waits();
    return real->stream_sync(stream);
}
static enum ha_status sync_event(struct ha_event *event)
{
    somebody_waits();
    return real->event_sync(event);
}
static enum ha_status copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    somebody_waits();
    return real->copy(stream, dst, src, bytes, dir);
}
static enum ha_status host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg)
{
    fn(arg);
    return HA_OK;
}

/* mean of the steps of a pass */
static double pace(uint64_t later, size_t heavy, size_t steps)
{
    struct ha_device_api mine = *session.api;
    struct ha_pass p;
    real = session.api;
    mine.stream_sync = sync_stream;
    mine.event_sync = sync_event;
    mine.copy = copy;
    mine.host_fn = host_fn;
    session.api = &mine;
    memset(&play, 0, sizeof play);
    play.later = later;
    play.heavy = heavy;
    play.steps = steps;
    assert_ok(ha_pass_begin(&p, &session, &player, NULL, false, &reason));
    atomic_store(&told, 1000000);
    assert_ok(ha_pass_run(&p, false, &reason));
    atomic_store(&told, 0);
    assert_int_equal(p.steps, steps > 1 ? steps - 1 : 1);
    assert_int_equal(play.seen, steps);
    assert_int_equal(play.between, 0);
    const double mean = (double)(p.window.end_ns - p.window.begin_ns) / (double)p.steps;
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    session.api = real;
    return mean;
}

TEST(what_a_step_leaves_behind_is_in_the_time)
{
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=11,threads=1");
    assert_near(pace(0, 0, 11), 100, 1e-9);
    assert_near(pace(40, 0, 11), 144, 1e-9); /* 40 of the step before each, and of the last while its end is awaited */
    assert_near(pace(0, 9, 11), 180, 1e-9);  /* one of ten steps takes 900 */
    close_session();
    open_session("cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=1,threads=1");
    assert_near(pace(0, 0, 1), 100, 1e-9);
    close_session();
}

static atomic_size_t calls; /* of host functions */

static enum ha_status counted_host_fn(struct ha_stream *stream, void (*fn)(void *arg), void *arg)
{
    atomic_fetch_add(&calls, 1);
    return real->host_fn(stream, fn, arg);
}

/* A device in host memory stamps every end, a real one only those that a window needs. */
TEST(ends_are_stamped)
{
    static const struct {
        unsigned compute_threads;
        bool traced;
        size_t calls;
    } cases[] = { { 1, false, 4 }, { 1, true, 4 }, { 0, false, 1 }, { 0, true, 2 } };
    struct ha_pass p;

    open_session("resident:ctx=200,heads=4/2,head_dim=64,layers=2,steps=5,threads=1");
    struct ha_device_api mine = *session.api;
    real = session.api;
    mine.host_fn = counted_host_fn;
    session.api = &mine;
    begin_pass(&p, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t *end = session.ended_ns;
        session.info.compute_threads = cases[i].compute_threads;
        atomic_store(&calls, 0);
        assert_ok(ha_pass_run(&p, cases[i].traced, &reason));
        assert_int_equal(atomic_load(&calls), cases[i].calls); /* the last end is the host's */
        assert_true(p.window.begin_ns >= end[0] && p.window.end_ns == end[4] && p.last.end_ns == end[4]);
        assert_true(end[0] < end[4] && p.window.begin_ns < p.window.end_ns && p.last.begin_ns == end[3]);
        for (size_t s = 1; s < 5 && cases[i].compute_threads; s++) assert_true(end[s] > end[s - 1]);
        assert_ok(ha_pass_settle(&p, &reason));
        assert_ok(ha_pass_rewind(&p, &reason));
    }
    /* a device without host functions: by the host's own clock */
    mine.host_fn = NULL;
    assert_ok(ha_pass_run(&p, true, &reason));
    assert_true(p.window.end_ns > p.window.begin_ns);
    assert_ok(ha_pass_end(&p, HA_OK, &reason));
    session.api = real;
    close_session();
}

/* ---- what is looked at ------------------------------------------------------------------------ */

/* `cpu`, whose output of one step is wrong: always, or in passes that are timed; or is not written there, or not from
 * the second such pass on, which finds the right one of the first. */
enum kind { ALWAYS, TIMED, UNWRITTEN, LATER_UNWRITTEN, KINDS };
static struct {
    struct ha_context ctx;
    size_t step, passes;
    enum kind kind;
} defect;
static const float wrong[1024];

static enum ha_status spoilt_create(struct ha_instance **self, const struct ha_context *ctx, struct ha_why *why)
{
    defect.ctx = *ctx;
    return ha_variant_find("cpu")->create(self, ctx, why);
}

static enum ha_status spoilt_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    const bool timed = !defect.ctx.record_selection;
    defect.passes += timed && step->step == 0;
    const bool now = step->step == defect.step
                     && (defect.kind == LATER_UNWRITTEN ? defect.passes > 1 : defect.kind == ALWAYS || timed);
    if (now && defect.kind >= UNWRITTEN) return HA_OK;
    enum ha_status status = ha_variant_find("cpu")->attend(self, step, why);
    if (status != HA_OK || !now) return status;
    return defect.ctx.api->copy(defect.ctx.stream, step->o, wrong, sizeof wrong / 4, HA_H2D);
}

/* Of the passes and of the single steps, how many were heard of; and of measured ones the time. */
struct heard {
    size_t passes, steps;
    double mean_ns, steps_ns;
};

/* arg: NULL, or a struct heard */
static void sample(void *arg, const struct ha_sample *s)
{
    struct heard *h = arg;
    const bool is_step = !strcmp(s->role, "step");
    if (h) {
        h->passes += !is_step;
        h->steps += is_step;
        h->mean_ns += strcmp(s->role, "measure") ? 0 : s->step_ns;
        h->steps_ns += is_step ? s->step_ns : 0;
    }
    assert_true(isnan(s->iter) == (strcmp(s->role, "step") != 0));
}

/* of a benchmark over the session's steps with the defect at one of them; as many as there are: without */
static enum ha_status bench(size_t step, enum kind kind)
{
    const size_t steps = opened.c.shape.steps;
    struct ha_variant v = *ha_variant_find("cpu");
    struct ha_check check = { .session = &session, .id = "the case", .steps = 2 };
    struct heard heard = { 0 };
    struct ha_bench b = {
        .session = &session, .check = &check, .full_ns = (double)NAN, .sample = sample, .arg = &heard
    };
    v.create = spoilt_create;
    v.attend = spoilt_attend;
    defect.step = step;
    defect.kind = kind;
    defect.passes = 0;
    session.variant = &v;
    enum ha_status status = ha_check_run(&check, &reason);
    assert_int_equal(status != HA_OK, kind == ALWAYS && step != steps);
    if (status == HA_OK) {
        status = ha_bench_run(&b, &reason);
        if (status == HA_OK) {
            assert_int_equal(b.samples, 1); /* there is no time for more */
            assert_int_equal(heard.steps, steps - 1);
            assert_near(heard.steps_ns / heard.mean_ns, (double)(steps - 1), 1e-6); /* the steps are the pass */
            /* q of 4 heads in binary32, K and V of 2 in binary16 */
            assert_true(b.moved_steps >= 2 * steps);
            assert_int_equal(b.moved.d2h_bytes, b.moved_steps * (4 * 64 * 4 + 2 * 2 * 64 * 2));
        }
        ha_bench_free(&b);
    }
    ha_check_free(&check);
    session.variant = ha_variant_find("cpu");
    return status;
}

TEST(wrong_steps_at_the_ends_fail)
{
    /* of 3 steps each has an output of its own */
    static const struct {
        const char *id;
        size_t count, seen[4];
    } of[] = { { "cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=8,threads=1", 4, { 0, 1, 6, 7 } },
               { "cpu:ctx=20,heads=4/2,head_dim=64,layers=1,steps=3,threads=1", 3, { 0, 1, 2 } } };
    char where[32];

    for (size_t k = 0; k < 2; k++) {
        open_session(of[k].id);
        assert_ok(bench(opened.c.shape.steps, ALWAYS));
        for (size_t i = 0; i < of[k].count; i++)
            for (enum kind kind = ALWAYS; kind < KINDS; kind++) {
                assert_int_equal(bench(of[k].seen[i], kind), HA_FAIL);
                snprintf(where, sizeof where, "step %zu", of[k].seen[i]);
                const bool elsewhere = kind != ALWAYS
                                       && strstr(reason.text, "question 1"); /* at the place that is drawn */
                if (!elsewhere && !strstr(reason.text, where)) fail_msg("'%s' does not say '%s'", reason.text, where);
                assert_int_equal(strstr(reason.text, "timed pass") != NULL, kind != ALWAYS);
            }
        close_session();
    }
}

/* A device that computes when outputs are read, or when inputs are written: the first copy down of all outputs takes
 * 150 ms, or each does; the copies of the inputs do. Or its link is slow, whatever is copied. */
enum lazy { FIRST_READ, EACH_READ, UPLOAD, SLOW_LINK, LAZY_KINDS };
static struct {
    const struct ha_device_api *real;
    size_t downs, bytes, in_bytes;
    enum lazy kind;
} lazy;
static enum ha_status lazy_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                enum ha_direction dir)
{
    const bool all = dir == HA_D2H && bytes == lazy.bytes, in = bytes == lazy.in_bytes;
    if (all && lazy.kind <= EACH_READ && (lazy.downs++ % 2 == 0 || lazy.kind == EACH_READ)) ha_sleep_ns(150000000);
    if (in && lazy.kind == UPLOAD && dir == HA_H2D) ha_sleep_ns(150000000);
    if ((in || all) && lazy.kind == SLOW_LINK) ha_sleep_ns(150000000);
    return lazy.real->copy(stream, dst, src, bytes, dir);
}

TEST(work_outside_of_the_clock_fails)
{
    static const char put_off[] = "its work was put off until the outputs were read",
                      before[] = "its work was done before the clock ran";
    static const char *const says[LAZY_KINDS] = { put_off, put_off, before, NULL };
    open_session("resident:ctx=20,heads=4/2,head_dim=64,layers=1,steps=3,threads=1");
    struct ha_device_api mine = *session.api;
    lazy.real = session.api;
    lazy.bytes = session.slots * session.io.out_bytes;
    lazy.in_bytes = 3 * session.io.in_bytes;
    mine.copy = lazy_copy;
    /* behind the last one the first again, on a busy host, where any device takes long */
    for (size_t i = 0; i <= LAZY_KINDS; i++) {
        const enum lazy kind = (enum lazy)(i % LAZY_KINDS);
        const char *const wanted = i < LAZY_KINDS ? says[kind] : NULL;
        struct ha_check check = { .session = &session, .id = "the case", .steps = 2 };
        struct ha_bench b = { .session = &session, .check = &check, .full_ns = (double)NAN, .sample = sample };
        assert_ok(ha_check_run(&check, &reason));
        lazy.kind = kind;
        lazy.downs = 0;
        cores = i < LAZY_KINDS ? ALONE : BUSY;
        session.api = &mine;
        assert_int_equal(ha_bench_run(&b, &reason), wanted ? HA_FAIL : HA_OK);
        session.api = lazy.real;
        if (wanted) assert_contains(reason.text, wanted);
        ha_bench_free(&b);
        ha_check_free(&check);
    }
    cores = AS_IT_IS;
    close_session();
}

/* The definition follows the steps between, whose outputs nobody looks at. */
static size_t dropped_at;
static void short_selection(struct ha_instance *self, size_t layer, size_t seq, size_t head, struct ha_selection *out)
{
    ha_variant_find("streaming")->selection(self, layer, seq, head, out);
    if (defect.step == dropped_at && out->part[0].count) out->part[0].count--;
}
static enum ha_status counting_attend(struct ha_instance *self, const struct ha_step *step, struct ha_why *why)
{
    defect.step = step->step;
    return ha_variant_find("streaming")->attend(self, step, why);
}

TEST(the_definition_follows_every_step)
{
    struct ha_variant v = *ha_variant_find("streaming");
    struct ha_check c = { .session = &session, .id = "the case", .steps = 2 };
    open_session("streaming:ctx=80,heads=4/2,head_dim=64,layers=1,steps=8,sink=2,window=8,threads=1");
    v.selection = short_selection;
    v.attend = counting_attend;
    session.variant = &v;
    dropped_at = 8;
    assert_ok(ha_check_run(&c, &reason));
    assert_int_equal(c.steps_done, 8);
    assert_int_equal(c.asked, 4);
    dropped_at = 4;
    assert_int_equal(ha_check_run(&c, &reason), HA_FAIL);
    assert_int_equal(c.question, 2);
    assert_non_null(strstr(reason.text, "step 4"));
    close_session();
}

/* ---- the same context again ----------------------------------------------------------------------- */

static unsigned char *outputs(struct ha_pass *p, size_t *bytes)
{
    const size_t slots = session.slots, each = session.workload->shape.layers * session.io.out_bytes;
    unsigned char *all = malloc(slots * each);
    assert_non_null(all);
    assert_ok(ha_pass_run(p, false, &reason));
    for (size_t step = 0; step < opened.c.shape.steps; step++) {
        assert_ok(ha_pass_download(p, step, &reason));
        memcpy(all + ha_session_slot(&session, step) * each, session.host_out, each);
    }
    *bytes = slots * each;
    return all;
}

#define SHAPE "heads=4/2,head_dim=64,layers=2,threads=1,ctx="
#define RING  ",blk_size=4,blk_num=3"

/* Every output of the second pass is that of the first, bit by bit; so are the counters, and what was moved. */
TEST(a_pass_leaves_no_trace)
{
    static const char *const ids[] = {
        "resident:" SHAPE "100,steps=7",
        "offload:" SHAPE "100+31,steps=7",
        "cpu:" SHAPE "100,steps=70", /* packs twice */
        "cpu:" SHAPE "96+31,steps=3",
        "cpu:" SHAPE "100+31,q_len=5,steps=9",
        "cpu:" SHAPE "100,layout=natural,steps=7",
        "hgca:" SHAPE "100,steps=50" RING,
        "hgca:" SHAPE "5,steps=50" RING, /* nothing in host memory at first */
        "hgca:" SHAPE "103+30,q_len=5,steps=9" RING,
        "hgca:" SHAPE "100+3,steps=41,heads_per_task=3,beta=0.5" RING,
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct ha_counters once = { 0 }, again = { 0 };
        struct ha_pass p;
        size_t bytes;
        open_session(ids[i]);
        begin_pass(&p, false);
        unsigned char *first = outputs(&p, &bytes);
        const struct ha_meter_count moved = p.moved;
        assert_int_equal(moved.h2d_bytes + moved.d2h_bytes > 0, strncmp(ids[i], "resident", 8) != 0);
        if (p.variant->counters) p.variant->counters(p.instance, &once);
        for (int pass = 0; pass < 2; pass++) {
            assert_ok(ha_pass_settle(&p, &reason));
            if (ha_pass_rewind(&p, &reason) != HA_OK) fail_msg("%s: %s", ids[i], reason.text);
            unsigned char *second = outputs(&p, &bytes);
            if (memcmp(first, second, bytes)) fail_msg("%s: pass %d differs", ids[i], pass + 2);
            if (moved.h2d_bytes != p.moved.h2d_bytes || moved.d2h_bytes != p.moved.d2h_bytes)
                fail_msg("%s: pass %d moves other bytes", ids[i], pass + 2);
            free(second);
        }
        if (p.variant->counters) p.variant->counters(p.instance, &again);
        if (!isnan(once.cpu_tokens)) assert_near(once.cpu_tokens, again.cpu_tokens, 1e-9);
        if (strstr(ids[i], "steps=70")) assert_true(once.manage_ns > 0 && again.manage_ns > 0); /* it has packed */
        if (p.variant->rewind && p.variant->counters) {
            assert_ok(ha_pass_settle(&p, &reason));
            assert_ok(ha_pass_rewind(&p, &reason));
            p.variant->counters(p.instance, &again);
            assert_true(isnan(again.cpu_tokens) && !(again.manage_ns > 0) && !(again.select_ns > 0)); /* of no step */
        }
        free(first);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

static size_t launches, begun;
static enum ha_status count_begin(struct ha_stream *stream)
{
    begun++;
    return real->graph_begin(stream);
}
static enum ha_status count_launch(struct ha_graph *graph, struct ha_stream *stream)
{
    launches++;
    return real->graph_launch(graph, stream);
}

/* As a graph a step is one launch, and gives the same bits; the pass that repeats it, and whatever the case does not
 * ask of, has none. */
TEST(a_step_is_one_launch)
{
    static const char *const ids[] = {
        "resident:graph=1," SHAPE "100+31,steps=7",
        "resident:graph=1," SHAPE "100,steps=1",
        "resident:graph=1," SHAPE "100,q_len=5,steps=70", /* that share a buffer of outputs */
        "streaming:graph=1," SHAPE "40+3,steps=9,sink=5,window=9",
        "duo:graph=1," SHAPE "40+3,steps=9,sink=5,recent=9",
        "device_only:graph=1," SHAPE "40,steps=3",
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct ha_pass p;
        size_t bytes;
        open_session(ids[i]);
        const size_t steps = opened.c.shape.steps;
        struct ha_device_api mine = *session.api;
        unsigned char *with = NULL, *without = NULL;
        real = session.api;
        mine.graph_begin = count_begin;
        mine.graph_launch = count_launch;
        session.api = &mine;
        for (int graphs = 1; graphs >= 0; graphs--) {
            launches = begun = 0;
            begin_pass(&p, false);
            assert_true(p.graphs);
            p.graphs = graphs;
            *(graphs ? &with : &without) = outputs(&p, &bytes);
            assert_true(launches == (graphs ? steps : 0) && begun == launches);
            assert_ok(ha_pass_end(&p, HA_OK, &reason));
        }
        if (memcmp(with, without, bytes)) fail_msg("%s: other bits as a graph", ids[i]);
        free(with);
        free(without);
        assert_ok(ha_pass_again(&p, &session, session.variant, session.param, NULL, true, &reason));
        assert_false(p.graphs);
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        session.api = real;
        close_session();
    }
}

/* All passes of the variant have graphs, those that are traced, too; the companion's have none, also where it is the
 * same variant. */
TEST(a_companion_has_no_graphs)
{
    open_session("resident:graph=1," SHAPE "40,steps=3");
    struct ha_device_api mine = *session.api;
    struct heard heard = { 0 };
    struct ha_check check = { .session = &session, .id = "the case", .steps = 2 };
    struct ha_bench b = {
        .session = &session, .check = &check, .full = session.variant, .sample = sample, .arg = &heard
    };
    assert_ok(ha_check_run(&check, &reason));
    real = session.api;
    mine.graph_launch = count_launch;
    session.api = &mine;
    launches = 0;
    assert_ok(ha_bench_run(&b, &reason));
    session.api = real;
    assert_true(heard.passes >= 3 && b.full_ns > 0);
    assert_int_equal(launches, 3 * (heard.passes - 1)); /* there is time for one of the companion */
    ha_bench_free(&b);
    ha_check_free(&check);
    close_session();
}

/* Where every key is selected, all that the device does not hold is on the CPU: the tokens of its side, over their
 * share, are the sequence's, which grows by one a step. */
TEST(counters_are_of_a_step_and_a_head)
{
    static const struct {
        const char *id;
        double tokens; /* of a sequence, on average, new ones included */
    } of[] = {
        { "hgca:" SHAPE "100,steps=7,beta=-1" RING, 104 },
        { "hgca:" SHAPE "100,steps=7,beta=-1,layout=natural" RING, 104 },
        { "hgca:" SHAPE "100+30,steps=7,beta=-1" RING, (104 + 34) / 2.0 },
    };

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct ha_counters c;
        struct ha_pass p;
        open_session(of[i].id);
        begin_pass(&p, false);
        assert_ok(ha_pass_run(&p, false, &reason));
        p.variant->counters(p.instance, &c);
        assert_near(c.cpu_tokens / c.cpu_ratio, of[i].tokens, 1e-9);
        assert_true(c.cpu_ratio > 0.6 && c.cpu_ratio < 1 && c.select_ns > 0 && isnan(c.manage_ns));
        assert_ok(ha_pass_end(&p, HA_OK, &reason));
        close_session();
    }
}

/* ---- two contexts at a time --------------------------------------------------------------------- */

/* A device with room for one context. Its memory is the host's, and ahead of each piece stands how large it is. */
enum { AHEAD = 64 };
static struct {
    const struct ha_device_api *real;
    size_t held, most, refused;
} tight;

static enum ha_status tight_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                  struct ha_why *why)
{
    if (kind != HA_MEM_DEVICE) return tight.real->mem_alloc(dev, kind, bytes, ptr, why);
    if (tight.held + bytes > tight.most) {
        tight.refused++;
        return HA_ERROR;
    }
    HA_TRY(tight.real->mem_alloc(dev, kind, bytes + AHEAD, ptr, why));
    memcpy(*ptr, &bytes, sizeof bytes);
    *ptr = (char *)*ptr + AHEAD;
    tight.held += bytes;
    return HA_OK;
}

static void tight_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (kind == HA_MEM_DEVICE && ptr) {
        size_t bytes;
        ptr = (char *)ptr - AHEAD;
        memcpy(&bytes, ptr, sizeof bytes);
        tight.held -= bytes;
    }
    tight.real->mem_free(dev, kind, ptr);
}

/* The time is over with the second pass of the companion, before which the other arm wanted its room. */
static void sample_until_over(void *arg, const struct ha_sample *s)
{
    size_t *fulls = arg;
    if (!strcmp(s->role, "full") && ++*fulls == 2) atomic_store(&told, UINT64_MAX / 2);
}

TEST(a_companion_makes_room)
{
    static const char *const ids[] = { "streaming:" SHAPE "400,steps=3,sink=4,window=40", "bmm:" SHAPE "400,steps=3" };
    for (size_t i = 0; i < 2; i++) {
        open_session(ids[i]);
        if (*session.info.no_products && i == 1) {
            close_session();
            continue;
        }
        struct ha_check check = { .session = &session, .id = ids[i], .steps = 2 };
        size_t fulls = 0;
        struct ha_bench b = { .session = &session,
                              .check = &check,
                              .full = ha_variant_find("resident"),
                              .time_cap_ns = UINT64_C(20000000000),
                              .sample = sample_until_over,
                              .arg = &fulls };
        struct ha_device_api mine = *session.variant_api;
        memset(&tight, 0, sizeof tight);
        tight.real = session.variant_api;
        mine.mem_alloc = tight_alloc;
        mine.mem_free = tight_free;
        /* K and V of all layers, and a little: of the second case the fences of a pass with checks */
        tight.most = 2 * 2 * 2 * 403 * 64 * 2 + (i ? 200000 : 40000);
        assert_ok(ha_check_run(&check, &reason));
        session.variant_api = &mine;
        if (ha_bench_run(&b, &reason) != HA_OK) fail_msg("%s: %s", ids[i], reason.text);
        atomic_store(&told, UINT64_MAX - 1); /* so that whoever polls until a moment sees it pass */
        assert_true(b.full_ns > 0 && b.step_ns > 0);
        assert_true(tight.refused > 0);
        assert_int_equal(tight.held, 0);
        session.variant_api = tight.real;
        ha_bench_free(&b);
        ha_check_free(&check);
        close_session();
        atomic_store(&told, 0);
    }
}
