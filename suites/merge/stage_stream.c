/* A merge behind a producer that is late, on its own stream and on another, and from a graph with other inputs. */

#include "suites/merge/stage_parts.h"

#include "harness/base/try.h"
#include "harness/base/why.h"

#include <string.h>

struct producer {
    unsigned char *to;
    const unsigned char *from;
    size_t bytes;
};

static void produce_late(void *arg)
{
    const struct producer *p = arg;
    ha_stage_sleep();
    memcpy(p->to, p->from, p->bytes);
}

/* other: the stream of the producer, and event orders it before the merge; or NULL: there is one stream. */
static enum ha_status enqueue(struct ha_stage_device *d, struct ha_stream *other, struct ha_event *event,
                              struct producer *producer)
{
    struct ha_stream *first = other ? other : d->stream;
    HA_TRY(ha_stage_did(d->s, d->api->host_fn(first, produce_late, producer), "host_fn"));
    HA_TRY(ha_stage_device_send(d, first));
    if (other) {
        HA_TRY(ha_stage_did(d->s, d->api->event_record(event, other), "event_record"));
        HA_TRY(ha_stage_did(d->s, d->api->stream_wait(d->stream, event), "stream_wait"));
    }
    HA_TRY(ha_stage_device_merge(d, SIZE_MAX, NULL));
    return ha_stage_device_fetch(d);
}

/* Everything is enqueued while the producer sleeps. */
static enum ha_status late(struct ha_stage_device *d, struct ha_stream *other, struct ha_event *event)
{
    const char *what = other ? "late producer on another stream" : "late producer on the same stream";
    struct producer producer = { d->in, d->s->batch->snapshot, d->bytes };
    HA_TRY(ha_stage_device_poison(d));
    const enum ha_status st = enqueue(d, other, event, &producer);
    /* wait for the stream even after a failure: the producer reads its argument until then */
    const enum ha_status end = d->api->stream_sync(other ? other : d->stream);
    HA_TRY(st);
    HA_TRY(ha_stage_did(d->s, end, what));
    HA_TRY(ha_stage_device_finish(d, what));
    return ha_stage_judge(d->s, what);
}

static enum ha_status other_stream(struct ha_stage_device *d)
{
    const struct ha_device_api *api = d->api;
    struct ha_stream *other = NULL;
    struct ha_event *event = NULL;
    enum ha_status st = api->stream_create(d->device, "producer", &other, d->s->why);
    if (st == HA_OK) st = api->event_create(d->device, &event, d->s->why);
    if (st == HA_OK) st = late(d, other, event);
    if (event) api->event_destroy(event);
    if (other) api->stream_destroy(other);
    return st;
}

static enum ha_status capture(struct ha_stage_device *d, struct ha_graph **graph)
{
    struct ha_why why = { "" };
    HA_TRY(ha_stage_did(d->s, d->api->graph_begin(d->stream), "graph_begin"));
    enum ha_status st = ha_stage_device_send(d, d->stream);
    if (st == HA_OK) st = ha_stage_device_merge(d, SIZE_MAX, NULL);
    if (st == HA_OK) st = ha_stage_device_fetch(d);
    /* the capture is ended after a failure too, since the stream is used again */
    const enum ha_status end = d->api->graph_end(d->stream, graph, &why);
    HA_TRY(st);
    return end == HA_OK ? HA_OK : ha_why(d->s->why, end, "%s", why.text);
}

/* Captured over poison, launched with the case's rows, and with others in the same memory. */
static enum ha_status launches(struct ha_stage_device *d, struct ha_graph *graph)
{
    static const char *const what[] = { "graph, first launch",
                                        "graph, second launch, other inputs in the same memory" };
    for (size_t i = 0; i < 2; i++) {
        ha_stage_fill(d->s, d->s->seed + i);
        memcpy(d->in, d->s->batch->snapshot, d->bytes);
        HA_TRY(ha_stage_did(d->s, d->api->graph_launch(graph, d->stream), "graph_launch"));
        HA_TRY(ha_stage_device_finish(d, what[i]));
        HA_TRY(ha_stage_judge(d->s, what[i]));
    }
    return HA_OK;
}

static enum ha_status from_graph(struct ha_stage_device *d)
{
    struct ha_graph *graph = NULL;
    HA_TRY(ha_stage_device_poison(d));
    enum ha_status st = capture(d, &graph);
    if (st == HA_OK) st = launches(d, graph);
    d->api->stream_sync(d->stream);
    if (graph && d->api->graph_destroy) d->api->graph_destroy(graph);
    return st;
}

static enum ha_status stream(struct ha_stage_device *d)
{
    const struct ha_device_api *api = d->api;
    struct ha_why *why = d->s->why;
    if (!api->host_fn) return ha_why(why, HA_WAIVED, "the device does not offer host_fn");
    HA_TRY(late(d, NULL, NULL));
    if (!api->event_create || !api->event_record || !api->stream_wait)
        return ha_why(why, HA_OK, "one stream only: the device does not offer events");
    HA_TRY(other_stream(d));
    if (api->graph_begin && api->graph_end && api->graph_launch) return from_graph(d);
    return ha_why(why, HA_OK, "without a graph: the device does not offer graph_begin");
}

enum ha_status ha_stage_stream(struct ha_stage_run *s) { return ha_stage_on_device(s, stream); }
