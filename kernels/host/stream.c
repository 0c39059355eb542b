#include "kernels/host/host.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Nodes are used again, last in first out, so that a steady state allocates nothing. */
struct ha_host_node {
    struct ha_host_node *next;
    struct ha_host_op op;
    const struct ha_span_sink *sink;
    uint64_t enqueue_ns; /* where there is a sink */
    void *array;
    size_t array_bytes;
};

void ha_host_link_take(struct ha_host_link *link)
{
    pthread_mutex_lock(&link->lock);
    for (uint64_t ticket = link->next++; link->serving != ticket;) pthread_cond_wait(&link->turn, &link->lock);
    pthread_mutex_unlock(&link->lock);
}

void ha_host_link_give(struct ha_host_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->serving++;
    if (link->serving != link->next) pthread_cond_broadcast(&link->turn);
    pthread_mutex_unlock(&link->lock);
}

/* The sink of an operation about to be enqueued, or NULL; each one given is owed a span. */
static const struct ha_span_sink *span_due(struct ha_device *dev)
{
    if (!__atomic_load_n(&dev->sink, __ATOMIC_ACQUIRE)) return NULL;
    pthread_mutex_lock(&dev->lock);
    const struct ha_span_sink *sink = dev->sink;
    if (sink) dev->spans_due++;
    pthread_mutex_unlock(&dev->lock);
    return sink;
}

static void span_done(struct ha_device *dev)
{
    pthread_mutex_lock(&dev->lock);
    if (--dev->spans_due == 0) pthread_cond_broadcast(&dev->spans_done);
    pthread_mutex_unlock(&dev->lock);
}

static void run(struct ha_stream *s, const struct ha_host_node *node)
{
    struct ha_device *dev = s->device;
    const struct ha_host_verb *verb = node->op.verb;
    struct ha_host_link *link = verb->on_link ? &dev->link[verb->kind == HA_SPAN_H2D ? HA_H2D : HA_D2H] : NULL;
    if (link) ha_host_link_take(link);
    uint64_t begin = node->sink ? ha_now_ns() : 0;
    verb->run(s, &node->op);
    if (node->sink) {
        struct ha_span span = { .begin_ns = begin,
                                .end_ns = ha_now_ns(),
                                .bytes = node->op.bytes,
                                .zero_copy_bytes = node->op.zero_copy_bytes,
                                .kind = verb->kind,
                                .lane = link ? link->lane : s->lane,
                                .name = verb->name,
                                .enqueue_ns = node->enqueue_ns };
        node->sink->span(node->sink->self, &span);
    }
    if (link) ha_host_link_give(link);
}

/* Polls for a short while; true when the counter has got so far. */
static bool reaches(const struct ha_stream *s, const uint64_t *counter, uint64_t far)
{
    const uint64_t spin_ns = s->device->spin_ns, end = spin_ns ? ha_now_ns() + spin_ns : 0;
    do {
        if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= far) return true;
        ha_host_relax();
    } while (spin_ns && ha_now_ns() < end);
    return false;
}

static void *worker(void *arg)
{
    struct ha_stream *s = arg;
    prctl(PR_SET_TIMERSLACK, 1000ul); /* naps between polls of a flag would all be 50 us longer */
    pthread_mutex_lock(&s->lock);
    for (;;) {
        if (!s->head && !s->stopping) {
            uint64_t seen = s->enqueued;
            pthread_mutex_unlock(&s->lock);
            bool more = reaches(s, &s->enqueued, seen + 1);
            pthread_mutex_lock(&s->lock);
            while (!more && !s->head && !s->stopping) {
                s->idle = true;
                pthread_cond_wait(&s->work, &s->lock);
                s->idle = false;
            }
        }
        struct ha_host_node *node = s->head;
        if (!node) {
            if (s->stopping) break;
            continue;
        }
        s->head = node->next;
        if (!s->head) s->tail = &s->head;
        pthread_mutex_unlock(&s->lock);

        if (!ha_host_failed(s->device)) run(s, node);
        if (node->sink) span_done(s->device);

        pthread_mutex_lock(&s->lock);
        struct ha_host_node **spare = &s->spare[node->array != NULL];
        node->next = *spare;
        *spare = node;
        __atomic_store_n(&s->done, s->done + 1, __ATOMIC_RELEASE);
        if (s->sleepers) pthread_cond_broadcast(&s->moved);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct ha_host_node *node_take(struct ha_stream *s, size_t array_bytes)
{
    struct ha_host_node **spare = &s->spare[array_bytes > 0], *node = *spare;
    if (node) *spare = node->next;
    else if (!(node = calloc(1, sizeof *node))) return NULL;
    if (node->array_bytes < array_bytes) {
        void *array = realloc(node->array, array_bytes);
        if (!array) {
            node->next = *spare;
            *spare = node;
            return NULL;
        }
        node->array = array;
        node->array_bytes = array_bytes;
    }
    return node;
}

/* At least `bytes`, used by the stream's operations one after the other; lives as long as the stream. */
static void *scratch_take(struct ha_stream *s, size_t bytes)
{
    if (s->scratch_count && bytes <= s->scratch_bytes) return s->scratch[s->scratch_count - 1];
    if (s->scratch_count == HA_HOST_SCRATCH_MAX) return NULL;
    struct ha_why why;
    /* doubling: the outgrown ones together are no larger than the last */
    size_t size = 2 * s->scratch_bytes > bytes ? 2 * s->scratch_bytes : bytes;
    void *scratch = ha_alloc(s->device->memory.arena, size, HA_TAG_SCRATCH, &why);
    if (!scratch) return NULL;
    s->scratch[s->scratch_count++] = scratch;
    s->scratch_bytes = size;
    return scratch;
}

enum ha_status ha_host_enqueue(struct ha_stream *s, const struct ha_host_op *op)
{
    if (ha_host_failed(s->device)) return HA_ERROR;
    if (s->capture) return ha_host_graph_keep(s, op);
    pthread_mutex_lock(&s->lock);
    void *scratch = op->scratch_bytes ? scratch_take(s, op->scratch_bytes) : NULL;
    struct ha_host_node *node = scratch || !op->scratch_bytes ? node_take(s, op->array_bytes) : NULL;
    if (!node) {
        pthread_mutex_unlock(&s->lock);
        return ha_host_fail(s->device, "%s on %s: no memory to queue it with %zu bytes of scratch", op->verb->name,
                            s->lane, op->scratch_bytes);
    }
    node->op = *op;
    node->op.array = node->array;
    node->op.scratch = scratch;
    node->next = NULL;
    node->sink = span_due(s->device);
    node->enqueue_ns = node->sink ? ha_now_ns() : 0;
    if (op->array_bytes) memcpy(node->array, op->array, op->array_bytes);
    *s->tail = node;
    s->tail = &node->next;
    __atomic_store_n(&s->enqueued, s->enqueued + 1, __ATOMIC_RELEASE);
    bool wake = s->idle;
    pthread_mutex_unlock(&s->lock);
    if (wake) pthread_cond_signal(&s->work);
    return HA_OK;
}

void ha_host_stream_await(struct ha_stream *s, uint64_t ticket)
{
    if (reaches(s, &s->done, ticket)) return;
    pthread_mutex_lock(&s->lock);
    s->sleepers++;
    while (s->done < ticket) pthread_cond_wait(&s->moved, &s->lock);
    s->sleepers--;
    pthread_mutex_unlock(&s->lock);
}

uint64_t ha_host_stream_enqueued(struct ha_stream *s) { return __atomic_load_n(&s->enqueued, __ATOMIC_ACQUIRE); }

enum ha_status ha_host_stream_sync(struct ha_stream *s)
{
    ha_host_stream_await(s, ha_host_stream_enqueued(s));
    return ha_host_failed(s->device) ? HA_ERROR : HA_OK;
}

/* A stream of this name that is not live any more, or a new one in the device's list. */
static struct ha_stream *stream_take(struct ha_device *dev, const char *name)
{
    size_t alike = 0;
    for (struct ha_stream *s = dev->streams; s; s = s->next) {
        if (strncmp(s->name, name, sizeof s->name - 1) != 0) continue;
        if (!s->live) return s;
        alike++;
    }
    struct ha_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    snprintf(s->name, sizeof s->name, "%s", name);
    if (alike) snprintf(s->lane, sizeof s->lane, "stream %s %zu", s->name, alike + 1);
    else snprintf(s->lane, sizeof s->lane, "stream %s", s->name);
    s->device = dev;
    s->tail = &s->head;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->moved, NULL);
    s->next = dev->streams;
    dev->streams = s;
    return s;
}

enum ha_status ha_host_stream_create(struct ha_device *dev, const char *name, struct ha_stream **stream,
                                     struct ha_why *why)
{
    pthread_mutex_lock(&dev->lock);
    struct ha_stream *s = stream_take(dev, name);
    if (s) s->live = true;
    pthread_mutex_unlock(&dev->lock);
    if (!s) return ha_why(why, HA_ERROR, "host device: no memory for stream '%s'", name);
    s->stopping = false;
    int error = ha_thread_start(&s->thread, worker, s);
    if (error) {
        pthread_mutex_lock(&dev->lock);
        s->live = false;
        pthread_mutex_unlock(&dev->lock);
        return ha_why(why, HA_ERROR, "host device: no thread for stream '%s': %s", name, strerror(error));
    }
    *stream = s;
    return HA_OK;
}

void ha_host_stream_destroy(struct ha_stream *s)
{
    if (!s) return;
    ha_host_graph_drop(s);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);

    for (size_t i = 0; i < 2; i++)
        for (struct ha_host_node *node = s->spare[i], *next; node; node = next) {
            next = node->next;
            free(node->array);
            free(node);
        }
    s->spare[0] = s->spare[1] = NULL;
    while (s->scratch_count) ha_free(s->device->memory.arena, s->scratch[--s->scratch_count]);
    s->scratch_bytes = 0;
    pthread_mutex_lock(&s->device->lock);
    s->live = false;
    pthread_mutex_unlock(&s->device->lock);
}

void ha_host_stream_free(struct ha_stream *s)
{
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->moved);
    free(s);
}
