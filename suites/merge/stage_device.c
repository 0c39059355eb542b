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

enum ha_status ha_stage_device_open(struct ha_stage_run *s, struct ha_stage_device *d)
{
    const struct ha_device_api *api = s->subject->api;
    *d = (struct ha_stage_device){ .api = api, .device = s->subject->device };
    if (!api || !d->device || !api->stream_create) return ha_why(s->why, HA_WAIVED, "needs a device with streams");
    const char *missing = !api->mem_alloc     ? "mem_alloc"
                          : !api->copy        ? "copy"
                          : !api->stream_sync ? "stream_sync"
                          : !api->merge       ? "merge"
                                              : NULL;
    if (missing) return ha_why(s->why, HA_WAIVED, "the device does not offer %s", missing);
    HA_TRY(ha_stage_open(s, NULL));
    d->bytes = (size_t)(s->batch->end - s->batch->begin);
    const struct {
        enum ha_memory kind;
        unsigned char **block;
    } blocks[] = { { HA_MEM_PINNED, &d->in }, { HA_MEM_DEVICE, &d->there }, { HA_MEM_PINNED, &d->back } };
    for (size_t i = 0; i < 3; i++) {
        void *p = NULL;
        HA_TRY(api->mem_alloc(d->device, blocks[i].kind, d->bytes, &p, s->why));
        *blocks[i].block = p;
    }
    return api->stream_create(d->device, "merge", &d->stream, s->why);
}

void ha_stage_device_close(struct ha_stage_device *d)
{
    if (d->stream) d->api->stream_destroy(d->stream);
    if (d->back) d->api->mem_free(d->device, HA_MEM_PINNED, d->back);
    if (d->there) d->api->mem_free(d->device, HA_MEM_DEVICE, d->there);
    if (d->in) d->api->mem_free(d->device, HA_MEM_PINNED, d->in);
}

enum ha_status ha_stage_device_poison(struct ha_stage_run *s, struct ha_stage_device *d)
{
    memset(d->in, POISON, d->bytes);
    memset(d->back, POISON, d->bytes);
    HA_TRY(ha_stage_device_send(s, d, d->stream));
    return ha_stage_did(s, d->api->stream_sync(d->stream), "poisoning device memory");
}

enum ha_status ha_stage_device_send(struct ha_stage_run *s, struct ha_stage_device *d, struct ha_stream *stream)
{
    return ha_stage_did(s, d->api->copy(stream, d->there, d->in, d->bytes, HA_H2D), "copy to the device");
}

enum ha_status ha_stage_device_fetch(struct ha_stage_run *s, struct ha_stage_device *d)
{
    return ha_stage_did(s, d->api->copy(d->stream, d->back, d->there, d->bytes, HA_D2H), "copy from the device");
}

/* the same place in a block as in the batch */
static void *moved(const struct ha_batch *b, void *at, unsigned char *block)
{
    return at ? block + ((unsigned char *)at - b->begin) : NULL;
}

static struct ha_merge_state state_in(const struct ha_batch *b, const struct ha_merge_state *from, unsigned char *block)
{
    struct ha_merge_state x = *from;
    x.o = moved(b, from->o, block);
    x.lse = moved(b, from->lse, block);
    x.sum = moved(b, from->sum, block);
    return x;
}

enum ha_status ha_stage_device_merge(struct ha_stage_run *s, struct ha_stage_device *d, size_t apart,
                                     unsigned char *block)
{
    const struct ha_batch *b = s->batch;
    struct ha_merge_state states[HA_STAGE_STATES_MAX];
    struct ha_merge call = b->calls[0];
    for (size_t m = 0; m < call.states_count; m++) states[m] = state_in(b, &b->in[m], m == apart ? block : d->there);
    call.states = states;
    call.out = state_in(b, &b->out, d->there);
    return ha_stage_did(s, d->api->merge(d->stream, &call), "merge");
}

enum ha_status ha_stage_device_finish(struct ha_stage_run *s, struct ha_stage_device *d, const char *what)
{
    HA_TRY(ha_stage_did(s, d->api->stream_sync(d->stream), what));
    memcpy(s->batch->begin, d->back, d->bytes);
    return HA_OK;
}
