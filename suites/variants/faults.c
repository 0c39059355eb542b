#include "suites/variants/faults.h"

#include "harness/base/thread.h"
#include "harness/base/delays.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"
#include "harness/base/worker.h"

#include <pthread.h>
#include <string.h>

/* Written before the table is handed out. */
static const struct ha_device_api *real;
static struct ha_device_api shim;

enum { PAUSES, NAPS, TASKS, JOBS, SEQUENCES };
static struct ha_delays delays[SEQUENCES];

/* Delays that come everywhere alike hide each other: what could follow too early is late as well. So for so many
 * operations one stream is slow, and the others are not. */
enum { SLOW_OPERATIONS = 48, SLOW = SEQUENCES, STREAMS_MAX = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct ha_stream *streams[STREAMS_MAX]; /* in the order of their first operations */
static size_t streams_count;
static uint64_t enqueued;

static bool is_slow(const struct ha_stream *s)
{
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < streams_count && streams[i] != s) i++;
    if (i == streams_count && i < STREAMS_MAX) streams[streams_count++] = s;
    const bool slow = i == ha_rng_below(delays[PAUSES].seed, SLOW, enqueued++ / SLOW_OPERATIONS, streams_count);
    pthread_mutex_unlock(&lock);
    return slow;
}

static void nap(void) { ha_sleep_ns(ha_delays_next(&delays[NAPS])); }

static void sleep_for(void *ns) { ha_sleep_ns((uintptr_t)ns); }

/* Ahead of what is enqueued on the stream next. */
static enum ha_status pause_ahead(struct ha_stream *s)
{
    nap();
    const uint64_t ns = is_slow(s) ? ha_delays_next(&delays[PAUSES]) : 0;
    const bool spins = shim.spin && (ns / 1000 % 2 || !shim.host_fn);
    if (!ns || (!shim.spin && !shim.host_fn)) return HA_OK;
    return spins ? real->spin(s, ns) : real->host_fn(s, sleep_for, (void *)(uintptr_t)ns);
}

/* ---- what is enqueued -------------------------------------------------------------------------------------------- */

#define PAUSED(name, params, ...)       \
    static enum ha_status name params   \
    {                                   \
        HA_TRY(pause_ahead(s));         \
        return real->name(__VA_ARGS__); \
    }
PAUSED(event_record, (struct ha_event * event, struct ha_stream *s), event, s)
PAUSED(stream_wait, (struct ha_stream * s, struct ha_event *event), s, event)
PAUSED(copy, (struct ha_stream * s, void *dst, const void *src, size_t bytes, enum ha_direction dir), s, dst, src,
       bytes, dir)
PAUSED(copy_2d,
       (struct ha_stream * s, void *dst, size_t dst_stride, const void *src, size_t src_stride, size_t row_bytes,
        size_t rows, enum ha_direction dir),
       s, dst, dst_stride, src, src_stride, row_bytes, rows, dir)
PAUSED(copy_pieces, (struct ha_stream * s, const struct ha_device_pieces *pieces, enum ha_direction dir), s, pieces,
       dir)
PAUSED(flag_write, (struct ha_stream * s, uint32_t *flag, uint32_t value), s, flag, value)
PAUSED(flag_wait, (struct ha_stream * s, const uint32_t *flag, uint32_t at_least), s, flag, at_least)
PAUSED(host_fn, (struct ha_stream * s, void (*fn)(void *arg), void *arg), s, fn, arg)
#define OPERATION(name, type) PAUSED(name, (struct ha_stream * s, const struct type *args), s, args)
HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION
PAUSED(read, (struct ha_stream * s, const void *ptr, size_t bytes, uint32_t *sum), s, ptr, bytes, sum)
PAUSED(graph_launch, (struct ha_graph * graph, struct ha_stream *s), graph, s)
#undef PAUSED

/* ---- what the host waits for ------------------------------------------------------------------------------------- */

static void stream_destroy(struct ha_stream *s)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < streams_count; i++)
        if (streams[i] == s) streams[i] = streams[--streams_count];
    pthread_mutex_unlock(&lock);
    real->stream_destroy(s);
}

static enum ha_status stream_sync(struct ha_stream *s)
{
    nap();
    return real->stream_sync(s);
}

static enum ha_status event_sync(struct ha_event *event)
{
    nap();
    return real->event_sync(event);
}

const struct ha_device_api *ha_faults_wrap(const struct ha_device_api *api, uint64_t seed)
{
    static const uint64_t one_in[SEQUENCES] = { [PAUSES] = 1, [NAPS] = 16, [TASKS] = 16, [JOBS] = 4 };
    for (uint64_t i = 0; i < SEQUENCES; i++)
        delays[i] = (struct ha_delays){ .seed = seed, .stream = i, .one_in = one_in[i] };
    memset(&shim, 0, sizeof shim);
    memcpy(&shim, api, api->struct_bytes < sizeof shim ? api->struct_bytes : sizeof shim);
    real = api;
    streams_count = 0;
    enqueued = 0;
    /* what the device does not offer stays NULL */
#define WRAP(entry) shim.entry = shim.entry ? entry : NULL
    WRAP(event_record);
    WRAP(stream_wait);
    WRAP(copy);
    WRAP(copy_2d);
    WRAP(copy_pieces);
    WRAP(flag_write);
    WRAP(flag_wait);
    WRAP(host_fn);
#define OPERATION(name, type) WRAP(name);
    HA_DEVICE_OPERATIONS(OPERATION)
#undef OPERATION
    WRAP(read);
    WRAP(graph_launch);
    WRAP(stream_sync);
    WRAP(stream_destroy);
    WRAP(event_sync);
#undef WRAP
    return &shim;
}

void ha_faults_delay(struct ha_pool *pool, struct ha_worker *worker)
{
    ha_pool_delay(pool, &delays[TASKS]);
    ha_worker_delay(worker, &delays[JOBS]);
}
