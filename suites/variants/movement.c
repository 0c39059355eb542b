#include "suites/variants/movement.h"

#include "harness/base/order.h"
#include "harness/base/why.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LIST_MAX = 64, STAGING_BYTES = 1 << 20 };

static struct ha_device_api shim;
static const struct ha_device_api *real;
static const struct ha_movement *planted;
static atomic_size_t step_now;

/* What the instance of a variant has made, in order; over: it is being destroyed, and the next one begins. */
static bool over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ha_event *events[LIST_MAX];
static struct ha_stream *streams[LIST_MAX], *main_stream; /* main: the one that it was given */
static unsigned char *pinned[LIST_MAX];
static size_t events_count, waits[LIST_MAX], streams_count, pinned_count, pinned_bytes[LIST_MAX];

static struct {
    struct ha_device *device;
    unsigned char *memory;
} staging;

/* a copy that waits until the event that stands for it is recorded */
static struct {
    struct ha_stream *stream;
    void *dst;
    const void *src;
    size_t bytes;
    enum ha_direction dir;
} held;

void ha_movement_step(size_t step) { atomic_store(&step_now, step); }
size_t ha_movement_waits(size_t event) { return event < events_count ? waits[event] : SIZE_MAX; }

static size_t index_of(const struct ha_event *event)
{
    size_t i = 0;
    while (i < events_count && events[i] != event) i++;
    return i;
}

static unsigned bit_of(const struct ha_event *event)
{
    pthread_mutex_lock(&lock);
    const size_t i = index_of(event);
    pthread_mutex_unlock(&lock);
    return i < 32 ? 1u << i : 0;
}

/* Whether the variant made this stream; any other is the main one. */
static bool is_own(struct ha_stream *s)
{
    size_t i = 0;
    while (i < streams_count && streams[i] != s) i++;
    if (i == streams_count) main_stream = s;
    return i < streams_count;
}

static enum ha_status flush(void)
{
    if (!held.stream) return HA_OK;
    struct ha_stream *s = held.stream;
    held.stream = NULL;
    return real->copy(s, held.dst, held.src, held.bytes, held.dir);
}

static bool leaves_out(unsigned mask, const struct ha_event *event)
{
    pthread_mutex_lock(&lock);
    const size_t i = index_of(event), number = i < LIST_MAX ? ++waits[i] : 0;
    pthread_mutex_unlock(&lock);
    if (planted->left_out) return i == planted->for_event && number == planted->left_out;
    return mask & bit_of(event) && atomic_load(&step_now) >= planted->from_step;
}

/* ---- what is made ------------------------------------------------------------------------------------------------ */

static void begin_anew(void)
{
    if (over) events_count = pinned_count = 0;
    over = false;
}

static enum ha_status event_create(struct ha_device *dev, struct ha_event **event, struct ha_why *why)
{
    begin_anew();
    const enum ha_status status = real->event_create(dev, event, why);
    pthread_mutex_lock(&lock);
    if (status == HA_OK && events_count < LIST_MAX) events[events_count++] = *event;
    pthread_mutex_unlock(&lock);
    return status;
}

static enum ha_status stream_create(struct ha_device *dev, const char *name, struct ha_stream **s, struct ha_why *why)
{
    begin_anew();
    const enum ha_status status = real->stream_create(dev, name, s, why);
    if (status == HA_OK && streams_count < LIST_MAX) streams[streams_count++] = *s;
    return status;
}

static void stream_destroy(struct ha_stream *s)
{
    real->stream_destroy(s);
    over = true;
    for (size_t i = 0; i < streams_count; i++)
        if (streams[i] == s) streams[i] = streams[--streams_count];
    if (streams_count || !staging.memory) return;
    if (main_stream) real->stream_sync(main_stream);
    real->mem_free(staging.device, HA_MEM_PINNED, staging.memory);
    staging.memory = NULL;
}

static enum ha_status mem_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *why)
{
    begin_anew();
    const enum ha_status status = real->mem_alloc(dev, kind, bytes, ptr, why);
    if (status == HA_OK && kind == HA_MEM_PINNED && pinned_count < LIST_MAX) {
        pinned_bytes[pinned_count] = bytes;
        pinned[pinned_count++] = *ptr;
    }
    if (status != HA_OK || !planted->reuses_staging || staging.memory) return status;
    void *memory;
    const enum ha_status made = real->mem_alloc(dev, HA_MEM_PINNED, STAGING_BYTES, &memory, why);
    if (made == HA_OK) {
        staging.memory = memory;
        staging.device = dev;
    }
    return made;
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

static enum ha_status stream_wait(struct ha_stream *s, struct ha_event *event)
{
    is_own(s);
    if (leaves_out(planted->unwaited, event)) return HA_OK;
    HA_TRY(flush());
    return real->stream_wait(main_stream && planted->waits_on_main & bit_of(event) ? main_stream : s, event);
}

static enum ha_status event_sync(struct ha_event *event)
{
    return leaves_out(planted->unsynced, event) ? HA_OK : real->event_sync(event);
}

static enum ha_status event_record(struct ha_event *event, struct ha_stream *s)
{
    is_own(s);
    HA_TRY(real->event_record(event, main_stream && planted->records_on_main & bit_of(event) ? main_stream : s));
    return flush();
}

static enum ha_status stream_sync(struct ha_stream *s)
{
    HA_TRY(flush());
    return real->stream_sync(s);
}

/* ---- what moves -------------------------------------------------------------------------------------------------- */

/* The same place in the other of two layers, where host memory is made as K, V of the first, K, V of the second. */
static void *other_layer(const void *at)
{
    const unsigned char *p = at;
    for (size_t i = 0; i < 4 && i < pinned_count; i++)
        if ((size_t)(p - pinned[i]) < pinned_bytes[i] && p >= pinned[i]) return pinned[i ^ 2] + (p - pinned[i]);
    return NULL;
}

static enum ha_status copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    const bool own = is_own(s);
    HA_TRY(flush());
    if (planted->loads_other_layer && dir == HA_H2D && own && other_layer(src)) src = other_layer(src);
    if (staging.memory && dir == HA_H2D && bytes <= STAGING_BYTES) {
        ha_order_thread_access("stage", "staging", HA_WRITE, staging.memory, 1, 0, bytes);
        src = memcpy(staging.memory, src, bytes);
    }
    if (planted->stores_other_layer && dir == HA_D2H && other_layer(dst)) dst = other_layer(dst);
    if (planted->records_early && own) {
        held.stream = s;
        held.dst = dst;
        held.src = src;
        held.bytes = bytes;
        held.dir = dir;
        return HA_OK;
    }
    HA_TRY(real->copy(s, dst, src, bytes, dir));
    return planted->offloads_twice && dir == HA_D2H && own && main_stream
               ? real->copy(main_stream, dst, src, bytes, dir)
               : HA_OK;
}

static enum ha_status copy_2d(struct ha_stream *s, void *dst, size_t dst_stride, const void *src, size_t src_stride,
                              size_t row_bytes, size_t rows, enum ha_direction dir)
{
    if (!staging.memory || dir != HA_H2D || rows * row_bytes > STAGING_BYTES)
        return real->copy_2d(s, dst, dst_stride, src, src_stride, row_bytes, rows, dir);
    ha_order_thread_access("stage", "staging", HA_WRITE, staging.memory, 1, 0, rows * row_bytes);
    for (size_t i = 0; i < rows; i++)
        memcpy(staging.memory + i * row_bytes, (const unsigned char *)src + i * src_stride, row_bytes);
    return real->copy_2d(s, dst, dst_stride, staging.memory, row_bytes, row_bytes, rows, dir);
}

const struct ha_device_api *ha_movement_wrap(const struct ha_movement *movement, const struct ha_device_api *api)
{
    planted = movement;
    real = api;
    shim = *api;
    memset(waits, 0, sizeof waits);
    atomic_store(&step_now, 0);
    events_count = streams_count = pinned_count = 0;
    main_stream = NULL;
    over = false;
    held.stream = NULL;
    shim.event_create = event_create;
    shim.stream_create = stream_create;
    shim.stream_destroy = stream_destroy;
    shim.mem_alloc = mem_alloc;
    shim.stream_wait = stream_wait;
    shim.event_sync = event_sync;
    shim.event_record = event_record;
    shim.stream_sync = stream_sync;
    shim.copy = copy;
    if (shim.copy_2d) shim.copy_2d = copy_2d;
    return &shim;
}
