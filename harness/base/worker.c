#include "harness/base/worker.h"
#include "harness/base/clock.h"
#include "harness/base/delays.h"
#include "harness/base/order.h"
#include "harness/base/stores.h"
#include "harness/base/surroundings.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE = 1024 };

struct job {
    const char *name;
    void (*fn)(void *arg);
    void *arg;
};

struct ha_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t to_do;            /* a job came, or the end */
    pthread_cond_t progress;         /* a job was taken from the queue, or done */
    struct job queue[QUEUE];         /* ticket t lies in queue[t % QUEUE] */
    uint64_t submitted, taken, done; /* tickets */
    bool ending;
    const struct ha_span_sink *sink, *job_sink; /* job: as it was when the job under way began */
    struct ha_delays *delays;
};

/* A span of a job that began traced: under the lock, so that none comes after ha_worker_trace(w, NULL) has returned. */
static void deliver(void *self, const struct ha_span *span)
{
    struct ha_worker *w = self;
    pthread_mutex_lock(&w->lock);
    if (w->job_sink == w->sink) w->sink->span(w->sink->self, span);
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *self)
{
    struct ha_worker *w = self;
    const struct ha_span_sink sink = { w, deliver };
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->taken == w->submitted && !w->ending) pthread_cond_wait(&w->to_do, &w->lock);
        if (w->taken == w->submitted) break;
        const struct job *next = &w->queue[++w->taken % QUEUE], job = *next;
        ha_order_thread_await(next, 0);
        const bool traced = (w->job_sink = w->sink) != NULL;
        struct ha_delays *const delays = w->delays;
        pthread_cond_broadcast(&w->progress);
        pthread_mutex_unlock(&w->lock);

        if (delays) ha_sleep_ns(ha_delays_next(delays));
        struct ha_span span = { .begin_ns = ha_now_ns(), .kind = HA_SPAN_CPU, .lane = "background", .name = job.name };
        ha_stores_within((struct ha_stores_lane){ traced ? &sink : NULL, &span });
        job.fn(job.arg);
        ha_surroundings_task();
        span.end_ns = ha_now_ns();
        if (traced) deliver(w, &span);
        ha_order_thread_signal(w, w->done + 1);

        pthread_mutex_lock(&w->lock);
        w->done = w->taken;
        pthread_cond_broadcast(&w->progress);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

enum ha_status ha_worker_create(struct ha_worker **worker, struct ha_why *why)
{
    struct ha_worker *w = *worker = calloc(1, sizeof *w);
    if (!w) return ha_why(why, HA_ERROR, "background thread: out of memory");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->to_do, NULL);
    pthread_cond_init(&w->progress, NULL);
    int error = ha_thread_start(&w->thread, worker_main, w);
    if (!error) return HA_OK;
    free(w);
    *worker = NULL;
    return ha_why(why, HA_ERROR, "background thread: cannot start: %s", strerror(error));
}

uint64_t ha_worker_submit(struct ha_worker *w, const char *name, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    while (w->submitted - w->taken == QUEUE) pthread_cond_wait(&w->progress, &w->lock);
    uint64_t ticket = ++w->submitted;
    struct job *job = &w->queue[ticket % QUEUE];
    *job = (struct job){ .name = name, .fn = fn, .arg = arg };
    ha_order_thread_signal(job, 0);
    pthread_cond_signal(&w->to_do);
    pthread_mutex_unlock(&w->lock);
    return ticket;
}

void ha_worker_wait(struct ha_worker *w, uint64_t ticket)
{
    pthread_mutex_lock(&w->lock);
    while (w->done < ticket) pthread_cond_wait(&w->progress, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (ticket) ha_order_thread_await(w, ticket);
}

void ha_worker_trace(struct ha_worker *w, const struct ha_span_sink *sink)
{
    pthread_mutex_lock(&w->lock);
    w->sink = sink;
    pthread_mutex_unlock(&w->lock);
}

void ha_worker_delay(struct ha_worker *w, struct ha_delays *delays)
{
    pthread_mutex_lock(&w->lock);
    w->delays = delays;
    pthread_mutex_unlock(&w->lock);
}

void ha_worker_destroy(struct ha_worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_signal(&w->to_do);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->progress);
    pthread_cond_destroy(&w->to_do);
    pthread_mutex_destroy(&w->lock);
    if (ha_order_now()) ha_order_drop(ha_order_now(), w); /* another may lie here */
    free(w);
}
