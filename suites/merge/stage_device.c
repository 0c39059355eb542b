#include "suites/merge/stage_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"

#include <string.h>
#include <time.h>

enum { POISON = 0xFF }; /* NaN in every type */

void ha_stage_sleep(void)
{
    struct timespec left = { 0, HA_STAGE_LATE_NS };
    while (nanosleep(&left, &left) != 0) continue;
}

enum ha_status ha_stage_did(struct ha_stage_run *s, enum ha_status status, const char *what)
{
    if (status == HA_OK) return HA_OK;
    const struct ha_subject *by = s->subject;
    const char *failure = by->api->failure ? by->api->failure(by->device) : NULL;
    return ha_why(s->why, HA_ERROR, "%s: %.300s", what, failure ? failure : "the device gives no reason");
}

static enum ha_status block_alloc(struct ha_stage_device *d, enum ha_memory kind, void **block)
{
    void *got;
    HA_TRY(d->api->mem_alloc(d->device, kind, d->bytes, &got, d->s->why));
    *block = got;
    return HA_OK;
}

static enum ha_status device_open(struct ha_stage_device *d)
{
    struct ha_stage_run *s = d->s;
    const struct ha_device_api *api = d->api;
    if (!api || !d->device || !api->stream_create) return ha_why(s->why, HA_WAIVED, "needs a device with streams");
    const char *missing = !api->mem_alloc     ? "mem_alloc"
                          : !api->copy        ? "copy"
                          : !api->stream_sync ? "stream_sync"
                          : !api->merge       ? "merge"
                                              : NULL;
    if (missing) return ha_why(s->why, HA_WAIVED, "the device does not offer %s", missing);
    HA_TRY(ha_stage_open(s, NULL));
    d->bytes = (size_t)(s->batch->end - s->batch->begin);
    HA_TRY(block_alloc(d, HA_MEM_PINNED, &d->in));
    HA_TRY(block_alloc(d, HA_MEM_DEVICE, &d->there));
    HA_TRY(block_alloc(d, HA_MEM_PINNED, &d->back));
    return api->stream_create(d->device, "merge", &d->stream, s->why);
}

enum ha_status ha_stage_on_device(struct ha_stage_run *s, enum ha_status (*stage)(struct ha_stage_device *d))
{
    struct ha_stage_device d = { .s = s, .api = s->subject->api, .device = s->subject->device };
    enum ha_status st = device_open(&d);
    if (st == HA_OK) st = stage(&d);
    if (d.stream) d.api->stream_destroy(d.stream);
    if (d.back) d.api->mem_free(d.device, HA_MEM_PINNED, d.back);
    if (d.there) d.api->mem_free(d.device, HA_MEM_DEVICE, d.there);
    if (d.in) d.api->mem_free(d.device, HA_MEM_PINNED, d.in);
    ha_stage_close(s);
    return st;
}

enum ha_status ha_stage_device_poison(struct ha_stage_device *d)
{
    memset(d->in, POISON, d->bytes);
    memset(d->back, POISON, d->bytes);
    HA_TRY(ha_stage_device_send(d, d->stream));
    return ha_stage_did(d->s, d->api->stream_sync(d->stream), "poisoning device memory");
}

enum ha_status ha_stage_device_send(struct ha_stage_device *d, struct ha_stream *stream)
{
    return ha_stage_did(d->s, d->api->copy(stream, d->there, d->in, d->bytes, HA_H2D), "copy to the device");
}

enum ha_status ha_stage_device_fetch(struct ha_stage_device *d)
{
    return ha_stage_did(d->s, d->api->copy(d->stream, d->back, d->there, d->bytes, HA_D2H), "copy from the device");
}

enum ha_status ha_stage_device_merge(struct ha_stage_device *d, size_t apart, unsigned char *block)
{
    const struct ha_batch *b = d->s->batch;
    struct ha_merge_state states[HA_STAGE_STATES_MAX];
    struct ha_merge call = b->calls[0];
    for (size_t m = 0; m < call.states_count; m++)
        states[m] = ha_subject_there(b, m == apart ? block : d->there, b->in[m]);
    call.states = states;
    call.out = ha_subject_there(b, d->there, b->out);
    return ha_stage_did(d->s, d->api->merge(d->stream, &call), "merge");
}

enum ha_status ha_stage_device_finish(struct ha_stage_device *d, const char *what)
{
    HA_TRY(ha_stage_did(d->s, d->api->stream_sync(d->stream), what));
    memcpy(d->s->batch->begin, d->back, d->bytes);
    return HA_OK;
}
