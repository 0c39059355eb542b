#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/why.h"
#include "suites/variants/mutants.h"
#include "suites/variants/session.h"
#include "harness/base/try.h"

#include <string.h>

/* A call into the device or the variant that failed without a word: the device knows. */
static enum ha_status explain(const struct ha_session *s, enum ha_status status, const char *what, struct ha_why *why)
{
    const char *failure = s->api->failure(s->device);

    if (status == HA_OK && !failure) return HA_OK;
    if (failure) return ha_why(why, HA_ERROR, "device %s during %s: %s", s->api->name, what, failure);
    if (why && !why->text[0]) return ha_why(why, status, "%s failed and gave no reason", what);
    return status;
}

static enum ha_status begin(struct ha_pass *p, const double *param, struct ha_why *why)
{
    struct ha_session *s = p->session;

    HA_TRY(ha_arena_create(&p->arena, p->checks, why));
    HA_TRY(ha_device_arena_create(&p->device_arena, s->variant_api, s->device, why));
    p->context = (struct ha_context){
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
        .record_selection = p->checks,
    };
    HA_TRY(explain(s, p->variant->create(&p->instance, &p->context, why), "create", why));
    for (size_t layer = 0; layer < s->workload->shape.layers; layer++) {
        struct ha_prefill in;
        HA_TRY(ha_workload_prefill(s->workload, layer, s->pool, &in, why));
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
    *p = (struct ha_pass){ .session = session, .variant = variant, .checks = checks };
    if (why) why->text[0] = 0;
    enum ha_status status = begin(p, param, why);
    if (status != HA_OK) ha_pass_end(p, NULL);
    return status;
}

enum ha_status ha_pass_download(struct ha_pass *p, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = s->api->copy(s->stream, s->host_out, s->out, s->workload->shape.layers * s->io.out_bytes,
                                         HA_D2H);

    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    return explain(s, status, "the download of outputs", why);
}

static enum ha_status upload(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    size_t layers = s->workload->shape.layers;
    enum ha_status status;

    for (size_t layer = 0; layer < layers; layer++)
        ha_workload_inputs(s->workload, step, layer, &s->io, s->host_in + layer * s->io.in_bytes);
    status = s->api->copy(s->stream, s->in, s->host_in, layers * s->io.in_bytes, HA_H2D);
    if (p->checks && status == HA_OK) {
        memset(s->host_out, 0xFF, layers * s->io.out_bytes); /* NaN: what is not written is seen */
        status = s->api->copy(s->stream, s->out, s->host_out, layers * s->io.out_bytes, HA_H2D);
    }
    if (status == HA_OK) status = s->api->stream_sync(s->stream);
    return explain(s, status, "the upload of inputs", why);
}

enum ha_status ha_pass_step(struct ha_pass *p, size_t step, struct ha_why *why)
{
    struct ha_session *s = p->session;
    size_t layers = s->workload->shape.layers;
    enum ha_status status = HA_OK;

    HA_TRY(upload(p, step, why));
    ha_mutant_step(step);
    p->window.begin_ns = ha_now_ns();
    for (size_t layer = 0; layer < layers && status == HA_OK; layer++) {
        unsigned char *in = s->in + layer * s->io.in_bytes, *out = s->out + layer * s->io.out_bytes;
        struct ha_step args = {
            .step = step,
            .layer = layer,
            .q_len = s->workload->shape.q_len,
            .x = s->io.has_x ? (const float *)(void *)(in + s->io.x) : NULL,
            .q = (const float *)(void *)(in + s->io.q),
            .k = in + s->io.k,
            .v = in + s->io.v,
            .o = (float *)(void *)(out + s->io.o),
            .lse = (float *)(void *)(out + s->io.lse),
        };
        status = ha_load_before(&s->load, s->api, s->stream, layer);
        if (status == HA_OK) status = p->variant->attend(p->instance, &args, why);
        if (status == HA_OK) status = ha_load_after(&s->load, s->api, s->stream, layer);
    }
    enum ha_status synced = s->api->stream_sync(s->stream);
    p->window.end_ns = ha_now_ns();
    HA_TRY(explain(s, status != HA_OK ? status : synced, "attend", why));
    p->moved = ha_meter_take();
    if (!p->checks) return HA_OK;
    HA_TRY(ha_pass_download(p, why));
    return ha_arena_check(p->arena, why);
}

enum ha_status ha_pass_end(struct ha_pass *p, struct ha_why *why)
{
    struct ha_session *s = p->session;
    enum ha_status status = HA_OK;

    if (p->instance) {
        if (p->variant->drain) status = explain(s, p->variant->drain(p->instance, why), "drain", why);
        enum ha_status synced = s->api->stream_sync(s->stream);
        if (status == HA_OK) status = explain(s, synced, "the end", why);
        if (status == HA_OK && p->checks) status = ha_arena_check(p->arena, why);
        p->variant->destroy(p->instance);
    }
    ha_device_arena_destroy(p->device_arena);
    ha_arena_destroy(p->arena);
    *p = (struct ha_pass){ .session = s };
    return status;
}
