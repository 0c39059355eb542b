#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "suites/variants/mutants.h"
#include "suites/variants/session.h"

#include <string.h>

/* The outcome of a call into the device or the variant: what the device says of its failure comes before the reason of
 * the caller. */
static enum ha_status explain(const struct ha_session *s, enum ha_status status, const char *what, struct ha_why *why)
{
    const char *failure = s->api->failure(s->device);
    if (status == HA_OK && !failure) return HA_OK;
    if (failure) return ha_why(why, HA_ERROR, "device %s during %s: %s", s->api->name, what, failure);
    if (why && !why->text[0]) return ha_why(why, status, "%s failed and gave no reason", what);
    return status;
}

static size_t step_count(const struct ha_pass *p) { return p->session->workload->shape.steps; }
static size_t out_bytes(const struct ha_session *s) { return s->workload->shape.layers * s->io.out_bytes; }

static unsigned char *outputs(const struct ha_pass *p, size_t step)
{
    return p->session->out + ha_session_slot(p->session, step) * out_bytes(p->session);
}

enum ha_status ha_pass_download(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = s->api->copy(s->stream, s->host_out, outputs(p, step), out_bytes(s), HA_D2H);
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    return explain(s, status, "the download of outputs", why);
}

enum ha_status ha_pass_download_all(struct ha_pass *p, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = s->api->copy(s->stream, s->host_all, s->out, s->slots * out_bytes(s), HA_D2H);
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    return explain(s, status, "the download of outputs", why);
}

/* HA_FAIL: the inputs of the step have other bytes on the device than it was given. */
static enum ha_status compare_inputs(const struct ha_pass *p, size_t step, struct ha_why *why)
{
    const struct ha_session *s = p->session;
    const size_t each = s->io.in_bytes, bytes = s->workload->shape.layers * each;
    if (!ha_session_checked(s)) return HA_OK;
    enum ha_status status = s->api->copy(s->stream, s->host_back, s->in + step * bytes, bytes, HA_D2H);
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    HA_TRY(explain(s, status, "the download of inputs", why));
    size_t at = 0;
    if (!memcmp(s->host_back, s->host_in, bytes)) return HA_OK;
    while (s->host_back[at] == s->host_in[at]) at++;
    return ha_why(why, HA_FAIL,
                  "step %zu layer %zu: an operation of the device changed its input: byte %zu of q, k, v or x", step,
                  at / each, at % each);
}

/* So that what is not written is seen. first, count: slots */
static enum ha_status poison(struct ha_pass *p, size_t first, size_t count, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = HA_OK;
    memset(s->host_out, p->held, out_bytes(s));
    ha_order_thread_access("poison", "the outputs", HA_WRITE, s->host_out, 1, 0, out_bytes(s));
    for (size_t i = first; i < first + count && status == HA_OK; i++)
        status = s->api->copy(s->stream, s->out + i * out_bytes(s), s->host_out, out_bytes(s), HA_H2D);
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    return explain(s, status, "the poisoning of outputs", why);
}

static enum ha_status begin(struct ha_pass *p, const double *param, struct ha_why *why)
{
    struct ha_session *s = p->session;
    HA_TRY(ha_arena_create(&p->arena, p->checks, why));
    ha_arena_poison(p->arena, p->held);
    HA_TRY(ha_device_arena_create(&p->device_arena, s->variant_api, s->device, why));
    const struct ha_device_fill fill = { s->api, s->stream, p->held, p->shift };
    if (p->checks) ha_device_arena_fill(p->device_arena, &fill);
    HA_TRY(poison(p, 0, s->slots, why));
    p->context = (struct ha_context){
        .variant = p->variant,
        .shape = &s->workload->shape,
        .param = param,
        .kernels = &s->cpu,
        .api = s->variant_api,
        .device = s->device,
        .stream = s->stream,
        .arena = p->arena,
        .device_arena = p->device_arena,
        .pool = s->pool,
        .worker = s->worker,
        .record_selection = p->selects,
        .projection = s->workload->projection,
        .fit = s->fit,
    };
    HA_TRY(explain(s, p->variant->create(&p->instance, &p->context, why), "create", why));
    for (size_t layer = 0; layer < s->workload->shape.layers; layer++) {
        const struct ha_prefill in = ha_workload_prefill(s->workload, layer);
        HA_TRY(explain(s, p->variant->prefill(p->instance, layer, &in, why), "prefill", why));
    }
    HA_TRY(explain(s, s->api->stream_sync(s->stream), "prefill", why));
    if (p->checks) HA_TRY(ha_arena_check(p->arena, why));
    ha_meter_take();
    return HA_OK;
}

enum ha_status ha_pass_begin(struct ha_pass *p, struct ha_session *session, const struct ha_variant *variant,
                             const double *param, bool checks, struct ha_why *why)
{
    *p = (struct ha_pass){ .session = session,
                           .variant = variant,
                           .graphs = session->graph,
                           .checks = checks,
                           .follows = checks && session->workload->shape.follows,
                           .selects = checks && ha_session_checked(session),
                           .held = HA_HELD_NAN };
    if (why) why->text[0] = 0;
    enum ha_status status = begin(p, param, why);
    return status == HA_OK ? HA_OK : ha_pass_end(p, status, why);
}

enum ha_status ha_pass_again(struct ha_pass *p, struct ha_session *session, const struct ha_variant *variant,
                             const double *param, unsigned char *kept, bool selects, struct ha_why *why)
{
    *p = (struct ha_pass){ .session = session,
                           .variant = variant,
                           .checks = true,
                           .selects = selects,
                           .held = HA_HELD_NUMBERS,
                           .shift = HA_PASS_SHIFT,
                           .kept = kept };
    if (why) why->text[0] = 0;
    enum ha_status status = begin(p, param, why);
    return status == HA_OK ? HA_OK : ha_pass_end(p, status, why);
}

/* Gives a layer its inputs, which the model has made of the layer before. */
static enum ha_status give(struct ha_pass *p, size_t step, size_t layer)
{
    struct ha_session *s = p->session;
    const size_t each = s->io.in_bytes, at = step * s->workload->shape.layers + layer;
    ha_workload_layer(s->workload, step, layer, &s->io, s->host_in);
    ha_order_thread_access("fill", "the inputs", HA_WRITE, s->host_in + layer * each, 1, 0, each);
    const enum ha_status status = s->api->copy(s->stream, s->in + at * each, s->host_in + layer * each, each, HA_H2D);
    return status == HA_OK ? s->api->stream_sync(s->stream) : status;
}

/* Gives the layer's output to the model. */
static enum ha_status take(struct ha_pass *p, size_t step, size_t layer)
{
    struct ha_session *s = p->session;
    unsigned char *const out = s->host_out + layer * s->io.out_bytes;
    HA_TRY(s->api->copy(s->stream, out, outputs(p, step) + layer * s->io.out_bytes, s->io.out_bytes, HA_D2H));
    HA_TRY(s->api->stream_sync(s->stream));
    ha_workload_follow(s->workload, step, layer, (const float *)(void *)(out + s->io.o));
    return HA_OK;
}

static enum ha_status enqueue(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    size_t layers = s->workload->shape.layers;
    enum ha_status status = HA_OK;
    ha_mutant_step(step);
    for (size_t layer = 0; layer < layers && status == HA_OK; layer++) {
        unsigned char *in = s->in + (step * layers + layer) * s->io.in_bytes,
                      *out = outputs(p, step) + layer * s->io.out_bytes;
        struct ha_step args = {
            .step = step,
            .layer = layer,
            .q_len = s->workload->shape.q_len,
            .x = s->io.has_x ? (const float *)(void *)(in + s->io.x) : NULL,
            .q = (const float *)(void *)(in + s->io.q),
            .next_q = layer + 1 < layers && !p->follows ? (const float *)(void *)(in + s->io.in_bytes + s->io.q) : NULL,
            .k = in + s->io.k,
            .v = in + s->io.v,
            .o = (float *)(void *)(out + s->io.o),
            .lse = (float *)(void *)(out + s->io.lse),
        };
        if (s->ordered) ha_order_at(ha_order_now(), step, layer);
        if (p->follows) status = give(p, step, layer);
        if (status == HA_OK) status = ha_load_enqueue(&s->load, s->api, s->stream, step, layer, 0, HA_LOAD_BEFORE);
        if (status == HA_OK) status = p->variant->attend(p->instance, &args, why);
        if (status == HA_OK)
            status = ha_load_enqueue(&s->load, s->api, s->stream, step, layer, HA_LOAD_BEFORE, HA_LOAD_PRODUCTS);
        if (status == HA_OK && p->follows) status = take(p, step, layer);
    }
    return status;
}

/* The same, captured and launched at once. What is done with is destroyed first: a device may make the next of it. */
static enum ha_status launch(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    struct ha_step_graph *g = &p->graph[step % 2];
    if (!g->done) HA_TRY(ha_device_event(p->device_arena, &g->done, why));
    if (g->graph) {
        HA_TRY(s->api->event_sync(g->done));
        s->api->graph_destroy(g->graph);
        g->graph = NULL;
    }
    HA_TRY(s->api->graph_begin(s->stream));
    const enum ha_status status = enqueue(p, step, why);
    const enum ha_status ended = s->api->graph_end(s->stream, &g->graph, status == HA_OK ? why : NULL);
    HA_TRY(status);
    HA_TRY(ended);
    HA_TRY(s->api->graph_launch(g->graph, s->stream));
    return s->api->event_record(g->done, s->stream);
}

/* Submits a step; may return before it is over. */
static enum ha_status submit(struct ha_pass *p, size_t step, struct ha_why *why)
{
    return p->graphs && !p->follows ? launch(p, step, why) : enqueue(p, step, why);
}

enum ha_status ha_pass_step(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    if (p->checks) {
        if (!p->follows) ha_workload_step(s->workload, step, s->pool, &s->io, s->host_in);
        ha_order_thread_access("fill", "the inputs", HA_WRITE, s->host_in, 1, 0,
                               s->workload->shape.layers * s->io.in_bytes);
        HA_TRY(poison(p, ha_session_slot(s, step), 1, why));
    }
    p->window.begin_ns = ha_now_ns();
    enum ha_status status = submit(p, step, why), synced = s->api->stream_sync(s->stream);
    p->window.end_ns = ha_now_ns();
    p->steps = 1;
    HA_TRY(explain(s, status != HA_OK ? status : synced, "attend", why));
    p->moved = ha_meter_take();
    if (!p->checks) return HA_OK;
    HA_TRY(ha_pass_download(p, step, why));
    HA_TRY(compare_inputs(p, step, why));
    return ha_arena_check(p->arena, why);
}

static void stamp(void *arg) { *(uint64_t *)arg = ha_now_ns(); }

static bool is_marked(const struct ha_pass *p, size_t step, bool traced)
{
    const struct ha_session *s = p->session;
    const size_t steps = step_count(p);
    if (!s->api->host_fn || step + 1 == steps) return false;
    return s->info.compute_threads > 0 || step == 0 || (traced && step + 2 == steps);
}

enum ha_status ha_pass_run(struct ha_pass *p, bool traced, struct ha_why *why)
{
    struct ha_session *s = p->session;
    const size_t steps = step_count(p);
    uint64_t first_ns = 0, second_ns = 0, *ended_ns = s->ended_ns;
    enum ha_status status = HA_OK;
    for (size_t step = 0; step < steps && status == HA_OK && !ha_stop; step++) {
        if (step < 2) *(step ? &second_ns : &first_ns) = ha_now_ns();
        status = submit(p, step, why);
        if (status == HA_OK && p->kept)
            status = s->api->copy(s->stream, p->kept + step * out_bytes(s), outputs(p, step), out_bytes(s), HA_D2H);
        if (status == HA_OK && is_marked(p, step, traced)) status = s->api->host_fn(s->stream, stamp, &ended_ns[step]);
        else ended_ns[step] = ha_now_ns();
    }
    p->submitted_ns = ha_now_ns();
    enum ha_status synced = s->api->stream_sync(s->stream);
    ended_ns[steps - 1] = ha_now_ns();
    HA_TRY(explain(s, status != HA_OK ? status : synced, "attend", why));
    if (ha_stop) return ha_why(why, HA_WAIVED, "stopped");
    p->moved = ha_meter_take();
    /* The second step begins when its first operation has been submitted and the first step is over. */
    p->steps = steps > 1 ? steps - 1 : 1;
    p->window.begin_ns = steps == 1 ? first_ns : ended_ns[0] > second_ns ? ended_ns[0] : second_ns;
    p->window.end_ns = ended_ns[steps - 1];
    p->first = (struct ha_interval){ first_ns, ended_ns[0] };
    p->last = (struct ha_interval){ steps > 2 ? ended_ns[steps - 2] : p->window.begin_ns, p->window.end_ns };
    return HA_OK;
}

enum ha_status ha_pass_settle(struct ha_pass *p, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = HA_OK;
    if (p->variant->drain) status = explain(s, p->variant->drain(p->instance, why), "drain", why);
    enum ha_status synced = s->api->stream_sync(s->stream);
    if (status == HA_OK) status = explain(s, synced, "the end", why);
    return status == HA_OK && p->checks ? ha_arena_check(p->arena, why) : status;
}

enum ha_status ha_pass_rewind(struct ha_pass *p, struct ha_why *why)
{
    HA_TRY(explain(p->session, p->variant->rewind(p->instance, why), "rewind", why));
    HA_TRY(poison(p, 0, p->session->slots, why));
    ha_meter_take();
    return HA_OK;
}

enum ha_status ha_pass_end(struct ha_pass *p, enum ha_status so_far, struct ha_why *why)
{
    if (p->instance) {
        enum ha_status settled = ha_pass_settle(p, so_far == HA_OK ? why : NULL);
        so_far = so_far == HA_OK ? settled : so_far;
        p->variant->destroy(p->instance);
    }
    for (size_t i = 0; i < 2; i++)
        if (p->graph[i].graph) p->session->api->graph_destroy(p->graph[i].graph);
    ha_device_arena_destroy(p->device_arena);
    ha_arena_destroy(p->arena);
    *p = (struct ha_pass){ .session = p->session };
    return so_far;
}
