#include "kernels/cuda/cuda.h"

#include "harness/base/clock.h"
#include "harness/base/thread.h"
#include "harness/base/why.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* words of mapped memory; the first is what kernels that wait look at, to give up */
enum { WORDS = 1024, RING_LEAST = 64 };
static const uint64_t look_least_ns = 1000000, look_most_ns = 25000000;

struct ha_cuda_watch {
    struct ha_device *device;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news; /* there is a wait, or an end */
    bool stopping;
    struct ha_cuda_waits *waits; /* all that have a word */
    uint32_t *words;
    bool taken[WORDS];
};

static struct ha_cuda_wait *at(const struct ha_cuda_waits *w, uint32_t n) { return &w->ring[n % w->capacity]; }

static uint32_t load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* ---- the watching thread; all of this under the lock */

/* What the stream waits for, or NULL. */
static const struct ha_cuda_wait *going_on(const struct ha_cuda_waits *w)
{
    const uint32_t state = load(w->state);
    return state & 1 ? at(w, state >> 1) : NULL;
}

/* True if it has been waiting for too long, for the same wait of the same launch and with the flag as it was. */
static bool overdue(struct ha_cuda_waits *w, uint64_t now, uint64_t limit_ns)
{
    const uint32_t state = load(w->state);
    if (!(state & 1)) {
        w->since_ns = 0;
        return false;
    }
    const struct ha_cuda_wait *wait = at(w, state >> 1);
    const uint32_t flag = load(wait->flag);
    if (w->since_ns && state == w->seen_state && flag == w->seen_flag && w->launches == w->seen_launches)
        return flag < wait->at_least && now - w->since_ns > limit_ns;
    w->seen_state = state;
    w->seen_flag = flag;
    w->seen_launches = w->launches;
    w->since_ns = now;
    return false;
}

static size_t add(char *text, size_t used, size_t bytes, const char *lane, const struct ha_cuda_wait *wait)
{
    if (used >= bytes) return used;
    return used
           + (size_t)snprintf(text + used, bytes - used,
                              "; %s: flag_wait for flag %p to be at least %" PRIu32 ", which is %" PRIu32, lane,
                              (const void *)wait->flag, wait->at_least, load(wait->flag));
}

static void fail_deadlock(struct ha_cuda_watch *watch)
{
    struct ha_device *dev = watch->device;
    char text[sizeof dev->failure];
    size_t used = (size_t)snprintf(text, sizeof text, "deadlock: a flag was waited for longer than %.3g ms",
                                   (double)dev->wait_limit_ns * 1e-6);
    for (const struct ha_cuda_waits *w = watch->waits; w; w = w->next) {
        const struct ha_cuda_wait *wait = going_on(w);
        if (wait && load(wait->flag) < wait->at_least) used = add(text, used, sizeof text, w->stream->lane, wait);
    }
    pthread_mutex_lock(&dev->lock);
    for (const struct ha_stream *s = dev->streams; s && used < sizeof text; s = s->next) {
        const char *behind = __atomic_load_n(&s->behind, __ATOMIC_RELAXED);
        if (!s->live || !behind || (s->waits.state && going_on(&s->waits))
            || cudaStreamQuery(s->cuda) != cudaErrorNotReady)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "; %s: stream_wait for %s, or what is behind it",
                                 s->lane, behind);
    }
    pthread_mutex_unlock(&dev->lock);
    ha_cuda_fail(dev, "%s", text);
}

/* Nothing waits on a device that has failed, and what is enqueued behind a wait finds its end. */
static void release(struct ha_cuda_watch *watch)
{
    __atomic_store_n(&watch->words[0], 1, __ATOMIC_RELEASE);
    for (const struct ha_cuda_waits *w = watch->waits; w; w = w->next) {
        const struct ha_cuda_wait *wait = going_on(w);
        if (!wait) continue;
        uint32_t *flag = (uint32_t *)(uintptr_t)wait->flag; /* the caller's, for whom the device is lost */
        if (load(flag) < wait->at_least) __atomic_store_n(flag, wait->at_least, __ATOMIC_RELEASE);
    }
}

static void nap(struct ha_cuda_watch *watch, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&watch->news, &watch->lock, &until);
}

static void *watch_run(void *arg)
{
    struct ha_cuda_watch *watch = arg;
    struct ha_device *dev = watch->device;
    const uint64_t limit = dev->wait_limit_ns, part = limit / 8;
    const uint64_t pause = part < look_least_ns ? look_least_ns : part > look_most_ns ? look_most_ns : part;
    ha_cuda_enter();
    pthread_mutex_lock(&watch->lock);
    while (!watch->stopping) {
        if (!watch->waits) {
            pthread_cond_wait(&watch->news, &watch->lock);
            continue;
        }
        bool late = false;
        const uint64_t now = ha_now_ns();
        for (struct ha_cuda_waits *w = watch->waits; w; w = w->next) late = overdue(w, now, limit) || late;
        if (late && !ha_cuda_failed(dev)) fail_deadlock(watch);
        if (ha_cuda_failed(dev)) release(watch);
        nap(watch, ha_cuda_failed(dev) ? look_least_ns : pause);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

enum ha_status ha_cuda_watch_start(struct ha_device *dev, struct ha_why *why)
{
    struct ha_cuda_watch *watch = calloc(1, sizeof *watch);
    void *words = NULL;
    if (!watch) return ha_why(why, HA_ERROR, "cuda device: no host memory");
    cudaError_t error = cudaHostAlloc(&words, WORDS * sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) {
        free(watch);
        return ha_cuda_why(why, error, "cudaHostAlloc", "a page of mapped memory");
    }
    memset(words, 0, WORDS * sizeof(uint32_t));
    watch->device = dev;
    watch->words = words;
    watch->taken[0] = true;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->news, &attributes);
    pthread_condattr_destroy(&attributes);
    dev->watch = watch;
    int failed = ha_thread_start(&watch->thread, watch_run, watch);
    if (!failed) return HA_OK;
    dev->watch = NULL;
    cudaFreeHost(words);
    free(watch);
    return ha_why(why, HA_ERROR, "cuda device: no thread to watch its waits: %s", strerror(failed));
}

void ha_cuda_watch_stop(struct ha_device *dev)
{
    struct ha_cuda_watch *watch = dev->watch;
    if (!watch) return;
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_cond_signal(&watch->news);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->lock);
    pthread_cond_destroy(&watch->news);
    ha_cuda_check(dev, cudaFreeHost(watch->words), "cudaFreeHost", "close");
    free(watch);
    dev->watch = NULL;
}

void ha_cuda_watch_passed(struct ha_device *dev)
{
    pthread_mutex_lock(&dev->watch->lock);
    pthread_mutex_unlock(&dev->watch->lock);
}

/* ---- what is waited for */

void ha_cuda_waits_end(struct ha_device *dev, struct ha_cuda_waits *w)
{
    struct ha_cuda_watch *watch = dev->watch;
    pthread_mutex_lock(&watch->lock);
    struct ha_cuda_waits **link = &watch->waits;
    while (*link && *link != w) link = &(*link)->next;
    if (*link) {
        *link = w->next;
        watch->taken[w->state - watch->words] = false;
    }
    free(w->ring);
    *w = (struct ha_cuda_waits){ .stream = w->stream, .kept = w->kept };
    pthread_mutex_unlock(&watch->lock);
}

void ha_cuda_waits_launched(struct ha_device *dev, struct ha_cuda_waits *w, struct ha_stream *stream)
{
    if (!w->state) return;
    pthread_mutex_lock(&dev->watch->lock);
    w->stream = stream;
    w->launches++;
    pthread_mutex_unlock(&dev->watch->lock);
}

/* Under the lock: a word, and room for one more wait. */
static const char *make_room(struct ha_cuda_watch *watch, struct ha_cuda_waits *w, struct ha_stream *s)
{
    if (!w->state) {
        size_t word = 1;
        while (word < WORDS && watch->taken[word]) word++;
        if (word == WORDS) return "too many streams and graphs with waits";
        watch->taken[word] = true;
        w->state = &watch->words[word];
        __atomic_store_n(w->state, 0, __ATOMIC_RELEASE);
        w->enqueued = 1;
        if (!w->stream) w->stream = s;
        w->next = watch->waits;
        watch->waits = w;
        pthread_cond_signal(&watch->news);
    }
    const uint32_t state = load(w->state), first = w->kept ? 1 : (state >> 1) + !(state & 1);
    const uint32_t held = (w->enqueued - first) & (UINT32_MAX >> 1);
    if (held < w->capacity) return NULL;
    const uint32_t capacity = w->capacity ? 2 * w->capacity : RING_LEAST;
    struct ha_cuda_wait *ring = malloc(capacity * sizeof *ring);
    if (!ring) return "no host memory";
    for (uint32_t n = 0; n < held; n++) ring[(first + n) % capacity] = *at(w, first + n);
    free(w->ring);
    w->ring = ring;
    w->capacity = capacity;
    return NULL;
}

const char *ha_cuda_watch_add(struct ha_stream *s, const uint32_t *flag, uint32_t at_least, uint32_t **state,
                              uint32_t *n)
{
    struct ha_cuda_watch *watch = s->device->watch;
    struct ha_cuda_waits *w = s->graph ? &s->graph->waits : &s->waits;
    pthread_mutex_lock(&watch->lock);
    const char *wrong = make_room(watch, w, s);
    if (!wrong) {
        *n = w->enqueued++ & (UINT32_MAX >> 1);
        *state = w->state;
        *at(w, *n) = (struct ha_cuda_wait){ flag, at_least };
    }
    pthread_mutex_unlock(&watch->lock);
    return wrong;
}

const uint32_t *ha_cuda_watch_gave_up(const struct ha_device *dev) { return &dev->watch->words[0]; }
