/* Streams, events and graphs that can be wrong. */

#include "suites/defects/wrong.h"

#include "harness/base/why.h"

#include <pthread.h>
#include <string.h>

#define BASE (*ha_wrong_base)

static struct ha_stream *first; /* that was created */
static struct ha_stream *captor, *recorded_on;
static struct ha_event *recorded;
static struct ha_stream *capturing[16]; /* streams of several threads may capture at once */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ha_stream *gone[256];
static size_t gone_count;

/* The first place that has it, or NULL. */
static struct ha_stream **capture_of(const struct ha_stream *stream)
{
    for (size_t i = 0; i < sizeof capturing / sizeof *capturing; i++)
        if (capturing[i] == stream) return &capturing[i];
    return NULL;
}
bool ha_wrong_captures(const struct ha_stream *stream)
{
    pthread_mutex_lock(&lock);
    const bool is = stream && capture_of(stream);
    pthread_mutex_unlock(&lock);
    return is;
}
/* Puts `to` in the place of `from`; where there is none nothing. */
static void set_capture(const struct ha_stream *from, struct ha_stream *to)
{
    pthread_mutex_lock(&lock);
    struct ha_stream **const at = capture_of(from);
    if (at) *at = to;
    pthread_mutex_unlock(&lock);
}

void ha_wrong_order_begin(void)
{
    first = captor = recorded_on = NULL;
    recorded = NULL;
    memset(capturing, 0, sizeof capturing);
}

void ha_wrong_await_gone(void)
{
    for (size_t i = 0; i < gone_count; i++) BASE.stream_sync(gone[i]);
}
void ha_wrong_order_end(void)
{
    while (gone_count) BASE.stream_destroy(gone[--gone_count]);
}

static enum ha_status wrong_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                   struct ha_why *why)
{
    if (IS(stream_serial) && first) {
        *stream = first;
        return HA_OK;
    }
    HA_TRY(BASE.stream_create(dev, name, stream, why));
    ha_wrong_attend_begin();
    if (!first) first = *stream;
    return HA_OK;
}
static void wrong_destroy(struct ha_stream *s)
{
    if (IS(stream_serial)) {
        if (first) BASE.stream_destroy(first);
        first = NULL;
    } else if (IS(destroy_early) && gone_count < sizeof gone / sizeof *gone) gone[gone_count++] = s;
    else BASE.stream_destroy(s);
}

static enum ha_status wrong_record(struct ha_event *e, struct ha_stream *s)
{
    recorded = e;
    recorded_on = s;
    return BASE.event_record(e, s);
}
static void wrong_event_destroy(struct ha_event *e)
{
    recorded = NULL;
    BASE.event_destroy(e);
}
static enum ha_status wrong_event_sync(struct ha_event *e)
{
    return IS(event_sync_stream) && recorded == e ? BASE.stream_sync(recorded_on) : BASE.event_sync(e);
}

static enum ha_status wrong_begin(struct ha_stream *s)
{
    captor = s;
    set_capture(NULL, s);
    return BASE.graph_begin(s);
}
static enum ha_status wrong_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    set_capture(s, NULL);
    return BASE.graph_end(s, graph, why);
}
static enum ha_status wrong_launch(struct ha_graph *graph, struct ha_stream *s)
{
    return BASE.graph_launch(graph, IS(graph_stream) ? captor : s);
}

void ha_wrong_order(struct ha_device_api *api)
{
    api->stream_create = wrong_create;
    api->stream_destroy = wrong_destroy;
    api->event_record = wrong_record;
    api->event_destroy = wrong_event_destroy;
    api->event_sync = wrong_event_sync;
    api->graph_begin = wrong_begin;
    api->graph_end = wrong_end;
    api->graph_launch = wrong_launch;
}
