/* Streams, events, flags, host functions and graphs that can be wrong. */

#include "suites/defects/wrong.h"

#include "harness/base/why.h"

#define BASE (*ha_wrong_base)

static struct ha_stream *first; /* that was created */
static struct ha_stream *capturing, *captor, *recorded_on;
static struct ha_event *recorded;
static bool launched;
static unsigned calls;
static struct ha_stream *gone[256];
static size_t gone_count;

struct ha_stream *ha_wrong_capturing(void) { return capturing; }

void ha_wrong_order_begin(void)
{
    first = capturing = captor = recorded_on = NULL;
    recorded = NULL;
    launched = false;
    calls = 0;
}

void ha_wrong_await_gone(void)
{
    for (size_t i = 0; i < gone_count; i++) BASE.stream_sync(gone[i]);
}
void ha_wrong_order_end(void)
{
    while (gone_count) BASE.stream_destroy(gone[--gone_count]);
}

static enum ha_status wrong_spin(struct ha_stream *s, uint64_t ns)
{
    return BASE.spin(ha_wrong_aside(IS(spin_aside), s), IS(spin_short) ? 0 : ns);
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
    if (IS(event_first) && recorded == e) return HA_OK;
    recorded = e;
    recorded_on = s;
    return BASE.event_record(e, IS(event_early) ? ha_wrong_stream() : s);
}
static void wrong_event_destroy(struct ha_event *e)
{
    recorded = NULL;
    BASE.event_destroy(e);
}
static enum ha_status wrong_wait(struct ha_stream *s, struct ha_event *e)
{
    return IS(wait_ignored) ? HA_OK : BASE.stream_wait(s, e);
}
static enum ha_status wrong_event_sync(struct ha_event *e)
{
    if (IS(event_sync_early)) return HA_OK;
    return IS(event_sync_stream) && recorded == e ? BASE.stream_sync(recorded_on) : BASE.event_sync(e);
}

static enum ha_status wrong_flag_write(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    if (IS(flag_31)) value &= 0x7fffffff;
    if ((IS(flag_reset) && !value) || (IS(flag_graph) && s == capturing)) return HA_OK;
    if (!IS(flag_early)) return BASE.flag_write(s, flag, value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
    return HA_OK;
}
static enum ha_status wrong_flag_wait(struct ha_stream *s, const uint32_t *flag, uint32_t at_least)
{
    const bool is_gate = flag == ha_wrong_gate();
    if (IS(flag_wait_ignored) && !is_gate) return HA_OK;
    if (IS(flag_wait_any) && !is_gate) at_least = 1;
    if (IS(flag_wait_16) && !is_gate) at_least &= 0xffff;
    return BASE.flag_wait(s, flag, at_least);
}

static enum ha_status wrong_host_fn(struct ha_stream *s, void (*fn)(void *arg), void *arg)
{
    if (IS(host_fn_early)) {
        fn(arg);
        return HA_OK;
    }
    if (IS(host_fn_lost) && ++calls % 7 == 0) return HA_OK;
    if (IS(host_fn_twice) && BASE.host_fn(s, fn, arg) != HA_OK) return HA_ERROR;
    return BASE.host_fn(s, fn, arg);
}

static enum ha_status wrong_begin(struct ha_stream *s)
{
    capturing = captor = s;
    return BASE.graph_begin(s);
}
static enum ha_status wrong_end(struct ha_stream *s, struct ha_graph **graph, struct ha_why *why)
{
    capturing = NULL;
    return BASE.graph_end(s, graph, why);
}
static enum ha_status wrong_launch(struct ha_graph *graph, struct ha_stream *s)
{
    if (IS(graph_once) && launched) return HA_OK;
    launched = true;
    return ha_wrong_over(IS(graph_early),
                         BASE.graph_launch(graph, IS(graph_stream) ? captor : ha_wrong_early(IS(graph_early), s)));
}

void ha_wrong_order(struct ha_device_api *api)
{
    api->spin = wrong_spin;
    api->stream_create = wrong_create;
    api->stream_destroy = wrong_destroy;
    api->event_record = wrong_record;
    api->event_destroy = wrong_event_destroy;
    api->stream_wait = wrong_wait;
    api->event_sync = wrong_event_sync;
    api->flag_write = wrong_flag_write;
    api->flag_wait = wrong_flag_wait;
    api->host_fn = wrong_host_fn;
    api->graph_begin = wrong_begin;
    api->graph_end = wrong_end;
    api->graph_launch = wrong_launch;
}
