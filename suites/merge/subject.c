#include "suites/merge/subject.h"

#include "harness/base/claims.h"
#include "harness/base/registry.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ha_subject_unfit(const struct ha_subject *x, const struct ha_merge_shape *s)
{
    const struct ha_merge_traits *t = &x->traits;
    const size_t at_once = s->order == HA_ORDER_FLAT ? s->states : 2;
    if (!(t->forms >> s->form & 1u)) return "does not merge this form";
    if (!(t->dtypes >> s->dtype & 1u)) return "does not take this type of o";
    if (s->fp8 && !(t->fp8 >> s->fp8 & 1u)) return "does not make o of this 8-bit type";
    if (!(x->orders >> s->order & 1u)) return "is not driven in this order";
    if (!(x->layouts >> s->layout & 1u)) return "does not take this layout";
    if (!(t->aliases >> s->alias & 1u)) return "does not allow the output to be that state";
    if (t->states_max && at_once > t->states_max) return "does not merge so many states at once";
    if (t->states_max == 2 && s->states < 2) return "merges two states, not one";
    return NULL;
}

void ha_subject_close(struct ha_subject *x)
{
    if (x->close) x->close(x);
    *x = (struct ha_subject){ 0 };
}

enum ha_status ha_subject_trial(struct ha_subject *x, struct ha_merge_trial *trial, const struct ha_merge_shape *shape,
                                struct ha_why *why)
{
    struct ha_room room;
    if (x->room) {
        ha_merge_trial_close(trial); /* the memory of its batch is not valid beyond the next call */
        HA_TRY(x->room(x, ha_batch_bytes(shape), &room, why));
    }
    return ha_merge_trial_open(trial, shape, x->room ? &room : NULL, why);
}

/* the layouts that the traits leave */
static unsigned layouts_of(const struct ha_merge_traits *t)
{
    unsigned all = 1u << HA_LAYOUT_WINDOW | 1u << HA_LAYOUT_PACKED;
    if (t->lse_order == HA_LSE_HEADS_TOKENS) all = 1u << HA_LAYOUT_HEADS_FIRST;
    if (t->lse_order == HA_LSE_ANY) all |= 1u << HA_LAYOUT_HEADS_FIRST;
    if (t->lse_order == HA_LSE_ANY && t->o_strides) all |= 1u << HA_LAYOUT_PADDED;
    return all;
}

void ha_subject_describe(struct ha_subject *out, const char *name, const struct ha_merge_traits *traits)
{
    *out = (struct ha_subject){ .traits = *traits, .orders = 7u, .layouts = layouts_of(traits) };
    snprintf(out->name, sizeof out->name, "%s", name);
}

/* ---- a function in this process ---------------------------------------------------------- */

static enum ha_status run_direct(struct ha_subject *x, struct ha_batch *batch, struct ha_why *why)
{
    for (size_t i = 0; i < batch->calls_count; i++) x->merge(&batch->calls[i]);
    return HA_OK;
}

void ha_subject_direct(struct ha_subject *out, const char *name, const struct ha_merge_traits *traits,
                       void (*merge)(const struct ha_merge *))
{
    ha_subject_describe(out, name, traits);
    out->run = run_direct;
    out->merge = merge;
}

/* ---- a device ---------------------------------------------------------------------------- */

struct on_device {
    struct ha_stream *stream;
    struct ha_room pinned;
    unsigned char *memory;
    size_t bytes;
    bool embedded; /* the device is the subject's own */
};

static void free_buffers(struct ha_subject *x)
{
    struct on_device *own = x->own;
    if (own->pinned.base) x->api->mem_free(x->device, HA_MEM_PINNED, own->pinned.base);
    if (own->memory) x->api->mem_free(x->device, HA_MEM_DEVICE, own->memory);
    own->pinned = (struct ha_room){ 0 };
    own->memory = NULL;
    own->bytes = 0;
}

static enum ha_status device_room(struct ha_subject *x, size_t bytes, struct ha_room *room, struct ha_why *why)
{
    struct on_device *own = x->own;
    if (own->bytes < bytes) {
        void *pinned = NULL, *memory = NULL;
        free_buffers(x);
        HA_TRY(x->api->mem_alloc(x->device, HA_MEM_PINNED, bytes, &pinned, why));
        own->pinned = (struct ha_room){ pinned, bytes };
        HA_TRY(x->api->mem_alloc(x->device, HA_MEM_DEVICE, bytes, &memory, why));
        own->memory = memory;
        own->bytes = bytes;
    }
    *room = own->pinned;
    return HA_OK;
}

struct ha_merge_state ha_subject_there(const struct ha_batch *batch, unsigned char *memory, struct ha_merge_state s)
{
    s.o = memory + ((unsigned char *)s.o - batch->begin);
    s.lse = (void *)(memory + ((unsigned char *)s.lse - batch->begin));
    if (s.sum) s.sum = (void *)(memory + ((unsigned char *)s.sum - batch->begin));
    return s;
}

static enum ha_status call_device(struct ha_subject *x, const struct ha_batch *batch, const struct ha_merge *call)
{
    const struct on_device *own = x->own;
    struct ha_merge args = *call;
    struct ha_merge_state few[16], *states = args.states_count <= 16 ? few : malloc(args.states_count * sizeof *states);
    if (!states) return HA_ERROR;
    for (size_t i = 0; i < args.states_count; i++) states[i] = ha_subject_there(batch, own->memory, call->states[i]);
    args.states = states;
    args.out = ha_subject_there(batch, own->memory, call->out);
    const enum ha_status st = x->api->merge(own->stream, &args);
    if (states != few) free(states);
    return st;
}

static enum ha_status run_device(struct ha_subject *x, struct ha_batch *batch, struct ha_why *why)
{
    struct on_device *own = x->own;
    const struct ha_device_api *api = x->api;
    const size_t bytes = (size_t)(batch->end - batch->begin);
    enum ha_status st = api->copy(own->stream, own->memory, batch->begin, bytes, HA_H2D);
    for (size_t i = 0; i < batch->calls_count && st == HA_OK; i++) st = call_device(x, batch, &batch->calls[i]);
    if (st == HA_OK) st = api->copy(own->stream, batch->begin, own->memory, bytes, HA_D2H);
    const enum ha_status done = api->stream_sync(own->stream);
    if (st == HA_OK) st = done;
    if (st == HA_OK) return HA_OK;
    const char *failure = api->failure(x->device);
    return ha_why(why, HA_ERROR, "%s: %s", api->name, failure ? failure : "the merge was refused");
}

static void close_device(struct ha_subject *x)
{
    struct on_device *own = x->own;
    if (own->stream) x->api->stream_destroy(own->stream);
    free_buffers(x);
    if (own->embedded) x->api->close(x->device);
    free(own);
}

enum ha_status ha_subject_device(struct ha_subject *out, const char *name, const struct ha_device_api *api,
                                 struct ha_device *device, struct ha_why *why)
{
    struct ha_device_info info = { 0 };
    struct on_device *own = calloc(1, sizeof *own);
    if (!own) return ha_why(why, HA_ERROR, "out of memory");
    const enum ha_status claims = ha_device_claims(api, device, &info, why);
    ha_subject_describe(out, name, &info.merge);
    out->room = device_room;
    out->run = run_device;
    out->close = close_device;
    out->own = own;
    out->api = api;
    out->device = device;
    out->null = !strcmp(api->kind, "null");
    const enum ha_status st = claims != HA_OK ? claims
                              : api->merge    ? api->stream_create(device, "merge", &own->stream, why)
                                              : ha_why(why, HA_WAIVED, "device %s offers no merge", api->name);
    if (st != HA_OK) ha_subject_close(out);
    return st;
}

enum ha_status ha_subject_embedded(struct ha_subject *out, const struct ha_subject *function, struct ha_why *why)
{
    const struct ha_device_api *api = ha_devices_all[0];
    struct ha_kernels kernels;
    struct ha_device *device;
    HA_TRY(ha_kernels_resolve(NULL, &kernels, why));
    kernels.merge = function->merge;
    kernels.traits = function->traits;
    HA_TRY(api->open(&device, &(struct ha_device_config){ .kernels = &kernels }, why));
    const enum ha_status st = ha_subject_device(out, function->name, api, device, why);
    if (st == HA_OK) ((struct on_device *)out->own)->embedded = true;
    else api->close(device);
    return st;
}
