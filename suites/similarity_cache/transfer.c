#include "suites/similarity_cache/transfer.h"

#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/flag.h"
#include "harness/base/order.h"
#include "harness/base/stores.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"
#include "suites/parts/listed.h"

#include <sched.h>
#include <string.h>

HA_SHARED_WORDS(ha_transfer_sync_word, [HA_SYNC_DEVICE] = "device", [HA_SYNC_CPU] = "cpu")

static const struct {
    const char *word;
    enum ha_fetch_way way;
} ways[] = { { "stores", HA_FETCH_STORES },
             { "kernel", HA_FETCH_MOVE },
             { "gather", HA_FETCH_GATHER },
             { "pieces", HA_FETCH_PIECES } };
const char *ha_transfer_word(size_t i) { return i < sizeof ways / sizeof *ways ? ways[i].word : NULL; }
enum ha_fetch_way ha_transfer_way(size_t i) { return ways[i].way; }

static size_t units(const struct ha_transfer *t) { return t->ctx->shape->batch * t->ctx->shape->kv_heads; }

/* ---- create ------------------------------------------------------------------------------------------------------ */

static uint32_t *mapped(const struct ha_transfer *t, size_t count, struct ha_why *why)
{
    return ha_device_alloc(t->ctx->device_arena, HA_MEM_MAPPED, count * sizeof(uint32_t), HA_TAG_META, why);
}

static enum ha_status create_layer(struct ha_transfer *t, struct ha_transfer_layer *l, struct ha_why *why)
{
    *l = (struct ha_transfer_layer){ .engine = t };
    l->missed = mapped(t, units(t), why);
    l->index = l->missed ? mapped(t, units(t) * t->list_max, why) : NULL;
    l->count = l->index ? mapped(t, units(t), why) : NULL;
    l->place = l->count ? ha_alloc(t->ctx->arena, units(t) * sizeof *l->place, HA_TAG_META, why) : NULL;
    return l->place ? HA_OK : HA_ERROR;
}

/* what else a device may lack is what the engine is made of */
static enum ha_status lacks(const struct ha_context *ctx, enum ha_fetch_way way, struct ha_why *why)
{
    const char *flag = !ctx->api->flag_write ? "flag_write" : !ctx->api->flag_wait ? "flag_wait" : NULL;
    if (flag)
        return ha_why(why, HA_WAIVED, "the device has no operation %s, by which device and engine wait for each other",
                      flag);
    if (way != HA_FETCH_STORES || ctx->api->map_device) return HA_OK;
    return ha_why(why, HA_WAIVED, "the device has no operation map_device; another transfer= needs none");
}

enum ha_status ha_transfer_create(struct ha_transfer *t, const struct ha_layer *first, enum ha_fetch_way way,
                                  enum ha_transfer_sync sync, size_t threads, size_t unit, size_t list_max,
                                  struct ha_why *why)
{
    const struct ha_context *ctx = first->ctx;
    const struct ha_shape *s = ctx->shape;
    *t = (struct ha_transfer){ .ctx = ctx, .sync = sync, .unit = unit, .list_max = list_max };
    const size_t rows = units(t) * list_max * unit, windows = 2 * s->layers * s->batch;
    HA_TRY(lacks(ctx, way, why));
    HA_TRY(ha_crew_create(&t->crew, way == HA_FETCH_STORES || way == HA_FETCH_GATHER ? threads : 1, why));
    HA_TRY(ha_fetch_create(&t->fetch, ctx, way, 2, units(t), rows, rows * ha_kv_head_bytes(s), why));
    t->fetch.crew = &t->crew;
    HA_TRY(ha_frame_stream(first, "transfer", &t->stream, why));
    HA_TRY(ha_device_event(ctx->device_arena, &t->came, why));
    t->list = ha_alloc(ctx->arena, units(t) * sizeof *t->list, HA_TAG_SCRATCH, why);
    t->window = t->list ? ha_alloc(ctx->arena, windows * sizeof *t->window, HA_TAG_SCRATCH, why) : NULL;
    t->layer = t->window ? ha_alloc(ctx->arena, s->layers * sizeof *t->layer, HA_TAG_META, why) : NULL;
    t->ask = t->layer ? mapped(t, s->layers, why) : NULL;
    t->done = t->ask ? mapped(t, s->layers, why) : NULL;
    if (!t->done) return HA_ERROR;
    memset(t->ask, 0, s->layers * sizeof *t->ask);
    memset(t->done, 0, s->layers * sizeof *t->done);
    memset(t->layer, 0, s->layers * sizeof *t->layer);
    for (size_t i = 0; i < s->layers; i++) HA_TRY(create_layer(t, &t->layer[i], why));
    return HA_OK;
}

static enum ha_status map(struct ha_transfer *t, unsigned char *at, size_t bytes, unsigned char **out,
                          struct ha_why *why)
{
    void *host;
    const enum ha_status status = t->ctx->api->map_device(t->ctx->device, at, bytes, &host, why);
    if (status == HA_WAIVED) return ha_why_prefix(why, HA_WAIVED, "transfer=stores, where any other needs no window");
    HA_TRY(status);
    t->window[t->windows++] = host;
    *out = host;
    return HA_OK;
}

enum ha_status ha_transfer_reach(struct ha_transfer *t, size_t layer, const struct ha_kv *to, struct ha_why *why)
{
    const size_t bytes = to->cap * ha_kv_head_bytes(t->ctx->shape);
    unsigned char *k = NULL, *v = NULL;
    if (t->fetch.way != HA_FETCH_STORES) return HA_OK;
    HA_TRY(map(t, to->k, bytes, &k, why));
    HA_TRY(map(t, to->v, bytes, &v, why));
    for (size_t i = 0; i < units(t); i++) {
        struct ha_transfer_place *place = &t->layer[layer].place[i];
        if (place->to == to) place->k = k;
        if (place->to == to) place->v = v;
    }
    return HA_OK;
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

enum { SPINS = 4096, NAP_NS = 20000, LOOK_EVERY = 64 };

/* Polls until the device has asked. HA_ERROR: it never will. The time is none of the job's span. */
static enum ha_status await_ask(struct ha_transfer *t, size_t layer, uint32_t request, struct ha_why *why)
{
    for (size_t i = 0; !ha_flag_is(&t->ask[layer], request); i++) {
        if (i < SPINS) continue;
        if (i % LOOK_EVERY == 0) {
            const char *failure = t->ctx->api->failure(t->ctx->device);
            if (failure) return ha_why(why, HA_ERROR, "%s", failure);
            if (__atomic_load_n(&t->ending, __ATOMIC_ACQUIRE))
                return ha_why(why, HA_ERROR, "transfer: the device has not asked for layer %zu", layer);
        }
        ha_sleep_ns(NAP_NS);
    }
    const struct ha_stores_lane lane = ha_stores_within((struct ha_stores_lane){ .sink = NULL });
    if (lane.span) lane.span->begin_ns = ha_now_ns();
    ha_stores_within(lane);
    return HA_OK;
}

/* What is asked for as lists of a fetch. */
static enum ha_status name_lists(struct ha_transfer *t, struct ha_transfer_layer *l, size_t *count, struct ha_why *why)
{
    const struct ha_shape *s = t->ctx->shape;
    ha_order_thread_access("transfer", "missed", HA_READ, l->missed, 1, 0, units(t) * sizeof *l->missed);
    ha_order_thread_access("transfer", "count", HA_READ, l->count, 1, 0, units(t) * sizeof *l->count);
    *count = 0;
    for (size_t i = 0; i < units(t); i++) {
        const struct ha_transfer_place *place = &l->place[i];
        if (!l->missed[i] || !place->from) continue;
        const uint32_t *index = l->index + i * t->list_max;
        const size_t entries = l->count[i] / t->unit;
        if (l->count[i] % t->unit)
            return ha_list_refuse(t->ctx, why, "keys that missed: %u, in entries of %zu", l->count[i], t->unit);
        HA_TRY(ha_list_check(t->ctx, "keys that missed", index, entries, t->list_max, place->from->cap / t->unit, why));
        t->list[(*count)++] = (struct ha_fetch_list){ .from = place->from,
                                                      .to = place->to,
                                                      .head = i % s->kv_heads,
                                                      .index = index,
                                                      .count = entries,
                                                      .unit = t->unit,
                                                      .at = place->at,
                                                      .vectors = true,
                                                      .k = place->k,
                                                      .v = place->v };
        l->moved++;
        l->bytes += 2 * (double)(entries * t->unit * ha_kv_head_bytes(s));
    }
    return HA_OK;
}

static enum ha_status serve(struct ha_transfer *t, size_t layer, uint32_t request, struct ha_why *why)
{
    struct ha_transfer_layer *l = &t->layer[layer];
    size_t count;
    if (t->sync == HA_SYNC_DEVICE) HA_TRY(await_ask(t, layer, request, why));
    HA_TRY(name_lists(t, l, &count, why));
    if (t->answered) t->answered(t->arg, layer, request);
    const enum ha_status status = ha_fetch_run(&t->fetch, t->stream, t->list, count, why);
    /* an operation of the device that fails says nothing */
    if (status == HA_OK || *why->text) return status;
    const char *failure = t->ctx->api->failure(t->ctx->device);
    if (failure) return ha_why(why, status, "%s", failure);
    return ha_why(why, status, "transfer: the device has not moved the keys of layer %zu", layer);
}

/* Says that a request is over, where the main stream waits for it: behind what was stored, or what its stream does. A
 * device that cannot say so leaves nobody waiting: the failure is said by who asks next. */
static enum ha_status say_done(struct ha_transfer *t, size_t layer, uint32_t request)
{
    enum ha_status said = HA_OK;
    if (t->fetch.way != HA_FETCH_STORES) said = t->ctx->api->flag_write(t->stream, &t->done[layer], request);
    if (t->fetch.way == HA_FETCH_STORES || said != HA_OK) ha_flag_set(&t->done[layer], request);
    return said;
}

static void job(void *arg)
{
    struct ha_transfer_layer *l = arg;
    struct ha_transfer *t = l->engine;
    const size_t layer = (size_t)(l - t->layer);
    const uint32_t request = l->served + 1;
    struct ha_why why = { 0 };
    /* after a failure nothing more is moved, and nobody is left waiting */
    enum ha_status status = __atomic_load_n(&t->status, __ATOMIC_ACQUIRE);
    const bool failed = status != HA_OK;
    if (!failed) status = serve(t, layer, request, &why);
    const enum ha_status said = say_done(t, layer, request);
    if (status == HA_OK && said != HA_OK) status = ha_why(&why, said, "transfer: %s", "flag_write");
    if (!failed && status != HA_OK) {
        t->why = why;
        __atomic_store_n(&t->status, status, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&l->served, request, __ATOMIC_RELEASE);
}

/* ---- what the launching thread does ------------------------------------------------------------------------------ */

enum ha_status ha_transfer_ask(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_device_api *api = t->ctx->api;
    struct ha_transfer_layer *of = &t->layer[l->layer];
    if (t->sync == HA_SYNC_DEVICE) HA_TRY(api->flag_write(t->ctx->stream, &t->ask[l->layer], of->asked + 1));
    else {
        HA_TRY(api->event_record(t->came, t->ctx->stream));
        HA_TRY(api->event_sync(t->came));
    }
    of->asked++;
    of->ticket = ha_worker_submit(t->ctx->worker, "transfer", job, of);
    return HA_OK;
}

static enum ha_status said(const struct ha_transfer *t, struct ha_why *why)
{
    const enum ha_status status = __atomic_load_n(&t->status, __ATOMIC_ACQUIRE);
    return status == HA_OK ? HA_OK : ha_why(why, status, "%s", t->why.text);
}

enum ha_status ha_transfer_wait(struct ha_transfer *t, const struct ha_layer *l, struct ha_why *why)
{
    const struct ha_transfer_layer *of = &t->layer[l->layer];
    if (t->sync == HA_SYNC_CPU) {
        ha_worker_wait(t->ctx->worker, of->ticket);
        HA_TRY(t->ctx->api->stream_sync(t->stream));
        return said(t, why);
    }
    /* A history knows of a flag once somebody has said that it will be written: it is no order by itself. */
    while (ha_order_now() && __atomic_load_n(&of->served, __ATOMIC_ACQUIRE) != of->asked) sched_yield();
    HA_TRY(t->ctx->api->flag_wait(t->ctx->stream, &t->done[l->layer], of->asked));
    return said(t, why);
}

enum ha_status ha_transfer_drain(struct ha_transfer *t, struct ha_why *why)
{
    for (size_t i = 0; t->done && i < t->ctx->shape->layers; i++) ha_worker_wait(t->ctx->worker, t->layer[i].ticket);
    return said(t, why);
}

void ha_transfer_end(struct ha_transfer *t)
{
    struct ha_why why;
    if (!t->ctx) return;
    __atomic_store_n(&t->ending, true, __ATOMIC_RELEASE);
    ha_transfer_drain(t, &why);
    for (size_t i = 0; i < t->windows; i++) t->ctx->api->unmap_device(t->ctx->device, t->window[i]);
    ha_crew_end(&t->crew);
    t->windows = 0;
}
