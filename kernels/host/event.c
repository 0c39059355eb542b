/* What streams wait for. An event needs no operation of its own: it is a stream and how much of it. */

#include "kernels/host/host.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct ha_event {
    struct ha_device *device;
    pthread_mutex_t lock;
    struct ha_stream *stream; /* of the latest record, or NULL */
    uint64_t ticket;
};

enum ha_status ha_host_event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    struct ha_event *e = calloc(1, sizeof *e);
    if (!e) return ha_why(why, HA_ERROR, "host device: no memory for an event");
    e->device = dev;
    pthread_mutex_init(&e->lock, NULL);
    *event = e;
    return HA_OK;
}

void ha_host_event_destroy(struct ha_event *e)
{
    if (!e) return;
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static enum ha_status not_in_a_graph(const struct ha_stream *s, const char *operation)
{
    return ha_host_fail(s->device,
                        "%s on %s: between graph_begin and graph_end, and a graph of this device holds no events",
                        operation, s->lane);
}

enum ha_status ha_host_event_record(struct ha_event *e, struct ha_stream *s)
{
    if (ha_host_failed(e->device)) return HA_ERROR;
    if (s->capture) return not_in_a_graph(s, "event_record");
    pthread_mutex_lock(&e->lock);
    e->stream = s;
    e->ticket = ha_host_stream_enqueued(s);
    pthread_mutex_unlock(&e->lock);
    return HA_OK;
}

/* op: what the stream's thread is about to wait for; NULL: it goes on */
static void waiting(struct ha_stream *s, const struct ha_host_op *op)
{
    pthread_mutex_lock(&s->device->lock);
    s->waiting = op;
    pthread_mutex_unlock(&s->device->lock);
}

static void run_event_wait(struct ha_stream *s, const struct ha_host_op *op)
{
    waiting(s, op);
    ha_host_stream_await(op->u.event.stream, op->u.event.ticket);
    waiting(s, NULL);
}

static void describe_event_wait(const struct ha_host_op *op, char *text, size_t bytes)
{
    const struct ha_stream *other = op->u.event.stream;
    snprintf(text, bytes, "for operation %" PRIu64 " of %s, which has done %" PRIu64, op->u.event.ticket, other->lane,
             __atomic_load_n(&other->done, __ATOMIC_ACQUIRE));
}

enum ha_status ha_host_stream_follow(struct ha_stream *s, struct ha_stream *other, uint64_t ticket)
{
    static const struct ha_host_verb verb = {
        .name = "stream_wait", .kind = HA_SPAN_WAIT, .run = run_event_wait, .describe = describe_event_wait
    };
    const struct ha_host_op op = { .verb = &verb, .u.event = { other, ticket } };
    return ha_host_enqueue(s, &op);
}

enum ha_status ha_host_stream_wait(struct ha_stream *s, struct ha_event *e)
{
    if (s->capture) return not_in_a_graph(s, "stream_wait");
    pthread_mutex_lock(&e->lock);
    struct ha_stream *const other = e->stream;
    const uint64_t ticket = e->ticket;
    pthread_mutex_unlock(&e->lock);
    if (!other) return ha_host_failed(e->device) ? HA_ERROR : HA_OK;
    return ha_host_stream_follow(s, other, ticket);
}

enum ha_status ha_host_event_sync(struct ha_event *e)
{
    pthread_mutex_lock(&e->lock);
    struct ha_stream *s = e->stream;
    uint64_t ticket = e->ticket;
    pthread_mutex_unlock(&e->lock);
    if (s) ha_host_stream_await(s, ticket);
    return ha_host_failed(e->device) ? HA_ERROR : HA_OK;
}

/* ---- flags */

static void run_flag_write(struct ha_stream *s, const struct ha_host_op *op)
{
    __atomic_store_n(op->u.write.flag, op->u.write.value, __ATOMIC_RELEASE);
}

enum ha_status ha_host_flag_write(struct ha_stream *s, uint32_t *flag, uint32_t value)
{
    /* no work, so it is not a kernel; its time is spent on keeping order */
    static const struct ha_host_verb verb = { .name = "flag_write", .kind = HA_SPAN_WAIT, .run = run_flag_write };
    if (!ha_host_operand(s, verb.name, "flag", flag, sizeof *flag, HA_AT_MAPPED)) return HA_ERROR;
    struct ha_host_op op = { .verb = &verb, .u.write = { flag, value } };
    return ha_host_enqueue(s, &op);
}

/* The host writes flags and wakes no thread: poll, ever more slowly, so that on a machine with few cores the
 * writer gets to run. */
static void run_flag_wait(struct ha_stream *s, const struct ha_host_op *op)
{
    enum { NAP_MIN_NS = 2000, NAP_MAX_NS = 64000 };
    const uint32_t *flag = op->u.wait.flag, at_least = op->u.wait.at_least;
    struct ha_device *dev = s->device;
    const uint64_t begin = ha_now_ns();
    struct timespec nap = { 0, NAP_MIN_NS };
    bool listed = false;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < at_least && !ha_host_failed(dev)) {
        uint64_t waited = ha_now_ns() - begin;
        if (waited < dev->spin_ns) {
            ha_host_relax();
            continue;
        }
        if (!listed) waiting(s, op);
        listed = true;
        if (waited > dev->wait_limit_ns) {
            ha_host_fail_deadlock(dev);
            break;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < NAP_MAX_NS) nap.tv_nsec *= 2;
    }
    if (listed) waiting(s, NULL);
}

static void describe_flag_wait(const struct ha_host_op *op, char *text, size_t bytes)
{
    snprintf(text, bytes, "for flag %p to be at least %" PRIu32 ", which is %" PRIu32, (const void *)op->u.wait.flag,
             op->u.wait.at_least, __atomic_load_n(op->u.wait.flag, __ATOMIC_ACQUIRE));
}

enum ha_status ha_host_flag_wait(struct ha_stream *s, const uint32_t *flag, uint32_t at_least)
{
    static const struct ha_host_verb verb = {
        .name = "flag_wait", .kind = HA_SPAN_WAIT, .run = run_flag_wait, .describe = describe_flag_wait
    };
    if (!ha_host_operand(s, verb.name, "flag", flag, sizeof *flag, HA_AT_MAPPED)) return HA_ERROR;
    struct ha_host_op op = { .verb = &verb, .u.wait = { flag, at_least } };
    return ha_host_enqueue(s, &op);
}
