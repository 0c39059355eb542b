#include "suites/device/captured.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <pthread.h>
#include <string.h>

enum { GRAPHS = 16 };
static const struct ha_device_api *real;
static _Thread_local struct ha_graph *graph[GRAPHS];
static _Thread_local size_t graphs, launched;
static _Thread_local struct ha_stream *captor;                /* or NULL */
static pthread_mutex_t capturing = PTHREAD_MUTEX_INITIALIZER; /* one thread feeds the captor */
static uint32_t met;                                          /* atomic, as the next */
static bool alone;                                            /* nobody else comes any more */

/* Whatever comes of it, the stream does not capture any more. A graph of a call that was refused is empty. */
static enum ha_status end(struct ha_stream *stream, enum ha_status kept)
{
    const enum ha_status ended = real->graph_end(stream, &graph[graphs], NULL);
    graphs += ended == HA_OK;
    return kept != HA_OK ? kept : ended;
}

#define CAPTURED(entry, type)                                                                 \
    static enum ha_status captured_##entry(struct ha_stream *stream, const struct type *args) \
    {                                                                                         \
        struct ha_stream *const on = captor ? captor : stream;                                \
        enum ha_status status = HA_ERROR;                                                     \
        pthread_mutex_lock(&capturing);                                                       \
        const bool begun = graphs < GRAPHS && real->graph_begin(on) == HA_OK;                 \
        if (begun) status = end(on, real->entry(on, args));                                   \
        pthread_mutex_unlock(&capturing);                                                     \
        return begun ? status : real->entry(stream, args);                                    \
    }
HA_DEVICE_OPERATIONS(CAPTURED)

bool ha_calls_library(const char *entry) { return !strcmp(entry, "product") || !strcmp(entry, "attend_products"); }

const struct ha_device_api *ha_captured(const struct ha_device_api *api, const char *name)
{
    static struct ha_device_api captured;
    if (!api->graph_begin || !api->graph_end || !api->graph_launch || !api->graph_destroy || !name
        || ha_calls_library(name))
        return NULL;
    real = api;
    captured = *api;
#define INSTEAD(entry, type) \
    if (api->entry && !strcmp(name, #entry)) captured.entry = captured_##entry;
    HA_DEVICE_OPERATIONS(INSTEAD)
    return &captured;
}

enum ha_status ha_captured_launch(struct ha_stream *stream)
{
    for (; launched < graphs; launched++) HA_TRY(real->graph_launch(graph[launched], stream));
    return HA_OK;
}

void ha_captured_by(struct ha_stream *stream) { captor = stream; }

void ha_captured_alone(bool is) { __atomic_store_n(&alone, is, __ATOMIC_RELEASE); }

bool ha_captured_meets(void) { return captor && ha_captured_any(); }

void ha_captured_meet(void)
{
    const uint64_t until_ns = ha_now_ns() + 1000000000;
    uint32_t before = __atomic_fetch_add(&met, 1, __ATOMIC_ACQ_REL), mine = before + 1;
    if (before % 2) return;
    while (__atomic_load_n(&met, __ATOMIC_ACQUIRE) == mine && !__atomic_load_n(&alone, __ATOMIC_ACQUIRE))
        if (ha_now_ns() > until_ns) ha_captured_alone(true);
        else ha_sleep_ns(5000);
    __atomic_compare_exchange_n(&met, &mine, before, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

bool ha_captured_any(void) { return launched < graphs; }

enum ha_status ha_captured_again(struct ha_stream *stream)
{
    for (size_t i = 0; i < graphs; i++) HA_TRY(real->graph_launch(graph[i], stream));
    return HA_OK;
}

void ha_captured_clear(void)
{
    while (graphs) real->graph_destroy(graph[--graphs]);
    launched = 0;
}
