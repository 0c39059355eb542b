#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <math.h>

/* ---- the link and the device's memory ----------------------------------------------------------- */

static bool copy(struct ha_ceiling_bench *b, int stream, void *dst, const void *src, size_t bytes,
                 enum ha_direction dir)
{
    return b->api->copy(b->stream[stream], dst, src, bytes, dir) == HA_OK;
}

bool ha_ceiling_h2d(struct ha_ceiling_bench *b, size_t bytes)
{
    return copy(b, 0, b->memory, b->pinned, bytes, HA_H2D);
}
bool ha_ceiling_d2h(struct ha_ceiling_bench *b, size_t bytes)
{
    return copy(b, 0, b->pinned, b->memory, bytes, HA_D2H);
}
bool ha_ceiling_d2d(struct ha_ceiling_bench *b, size_t bytes)
{
    return copy(b, 0, b->memory + b->device_bytes, b->memory, bytes, HA_D2D);
}

bool ha_ceiling_both(struct ha_ceiling_bench *b, size_t bytes)
{
    return ha_ceiling_h2d(b, bytes)
           && copy(b, 1, b->pinned + b->link_bytes, b->memory + b->device_bytes, bytes, HA_D2H);
}

/* by a kernel, on pages one after the other */
static bool move(struct ha_ceiling_bench *b, int stream, void *dst, const void *src, size_t bytes)
{
    enum { PAGE = 4096 };
    if (!b->api->move || !b->mapped) return false;
    const struct ha_device_move pages = { .dst = dst,
                                          .src = src,
                                          .rows = bytes / PAGE,
                                          .row_bytes = PAGE,
                                          .dst_stride_bytes = PAGE,
                                          .src_stride_bytes = PAGE };
    return b->api->move(b->stream[stream], &pages) == HA_OK;
}

bool ha_ceiling_kernel_h2d(struct ha_ceiling_bench *b, size_t bytes) { return move(b, 0, b->memory, b->mapped, bytes); }
bool ha_ceiling_kernel_d2h(struct ha_ceiling_bench *b, size_t bytes) { return move(b, 0, b->mapped, b->memory, bytes); }

bool ha_ceiling_kernel_both(struct ha_ceiling_bench *b, size_t bytes)
{
    return ha_ceiling_kernel_h2d(b, bytes) && move(b, 1, b->mapped + b->link_bytes, b->memory + b->device_bytes, bytes);
}

bool ha_ceiling_device_read(struct ha_ceiling_bench *b, size_t bytes)
{
    return b->api->read && b->sum && b->api->read(b->stream[0], b->memory, bytes, b->sum) == HA_OK;
}

/* ---- as much of it as fills a sample ------------------------------------------------------------- */

static bool enqueue(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load)
{
    bool ok = true;
    for (size_t i = 0; i < load->times && ok; i++) ok = load->work(b, load->bytes);
    return ok;
}

static bool join(struct ha_ceiling_bench *b)
{
    bool first = b->api->stream_sync(b->stream[0]) == HA_OK;
    return b->api->stream_sync(b->stream[1]) == HA_OK && first;
}

static bool timed(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load, double *ns)
{
    uint64_t begin = ha_now_ns();
    bool ok = enqueue(b, load);
    ok = join(b) && ok;
    *ns = fmax(1, (double)(ha_now_ns() - begin));
    return ok;
}

bool ha_ceiling_fit(struct ha_ceiling_bench *b, ha_ceiling_work *work, size_t limit, struct ha_ceiling_load *load)
{
    enum { FIRST_BYTES = 256 << 10, STEP = 4096, TIMES_MOST = 64, TRIES = 3 };
    /* of work_ns: longer is not waited for; of shorter work launch and end would be a part to speak of */
    const double much = 10, short_share = 0.1;
    double ns, least_ns = (double)INFINITY;

    *load = (struct ha_ceiling_load){ work, FIRST_BYTES < limit ? FIRST_BYTES : limit, 1 };
    for (int i = 0; i < TRIES; i++) { /* the first one finds everything cold */
        if (!timed(b, load, &ns)) return false;
        least_ns = fmin(least_ns, ns);
    }
    /* all of it, beyond every cache, unless the device is as slow as one that is emulated */
    double rate = (double)load->bytes / least_ns;
    if ((double)limit < much * b->work_ns * rate) load->bytes = limit;
    else if (b->work_ns * rate > (double)load->bytes) load->bytes = (size_t)(b->work_ns * rate) / STEP * STEP;
    if (!timed(b, load, &ns)) return false;
    while (load->times < TIMES_MOST && ns * (double)load->times < short_share * b->work_ns) load->times *= 2;
    return true;
}

double ha_ceiling_rate(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load)
{
    const double ways = load->work == ha_ceiling_both || load->work == ha_ceiling_kernel_both ? 2 : 1;
    double ns;
    return timed(b, load, &ns) ? ways * (double)load->bytes * (double)load->times / ns : (double)NAN;
}

struct ha_device_meters ha_meters_read(const struct ha_device_api *api, struct ha_device *device, bool want_link_GBps)
{
    struct ha_device_meters m = ha_device_meters_none(want_link_GBps);
    if (api->meters) api->meters(device, &m);
    return m;
}

struct ha_device_meters ha_ceiling_meters(struct ha_ceiling_bench *b)
{
    enum { MEANWHILE_NS = 100000000 };
    struct ha_ceiling_load load;
    double ns;
    if (!b->api->meters || !ha_ceiling_fit(b, ha_ceiling_device_read, 2 * b->device_bytes, &load)
        || !timed(b, &load, &ns))
        return ha_meters_read(b->api, b->device, false);
    for (double queued_ns = 0; queued_ns < MEANWHILE_NS && enqueue(b, &load);) queued_ns += ns;
    struct ha_device_meters m = ha_meters_read(b->api, b->device, false);
    join(b);
    return m;
}

/* ---- latencies ----------------------------------------------------------------------------------- */

static bool blend_one(struct ha_ceiling_bench *b)
{
    float *y = (float *)(void *)b->memory;
    const struct ha_device_blend one = {
        .y = y, .x = y, .rows = 1, .cols = 1, .y_stride = 1, .x_stride = 1, .a = 0, .b = 1
    };
    return b->api->blend && b->api->blend(b->stream[0], &one) == HA_OK;
}

static bool synced(struct ha_ceiling_bench *b) { return b->api->stream_sync(b->stream[0]) == HA_OK; }

static double since(uint64_t begin_ns, bool ok) { return ok ? (double)(ha_now_ns() - begin_ns) : (double)NAN; }

double ha_ceiling_launch(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    return since(begin_ns, blend_one(b) && synced(b));
}

double ha_ceiling_enqueue(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    const double ns = since(begin_ns, blend_one(b));
    return synced(b) ? ns : (double)NAN;
}

double ha_ceiling_sync(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    return since(begin_ns, synced(b));
}

/* Returns when the device has written it; false: it does not. */
static bool written(const uint32_t *flag, uint32_t value, uint64_t begin_ns)
{
    enum { PATIENCE_NS = 1000000000 };
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value)
        if (ha_now_ns() - begin_ns > PATIENCE_NS) return false;
    return true;
}

/* The flag is raised when the device waits for it: what launching takes is no part of the round trip. */
double ha_ceiling_flag(struct ha_ceiling_bench *b)
{
    enum { UP, DOWN, ARRIVED }; /* ARRIVED: what is enqueued next is the wait */
    enum { NEXT_NS = 50000 };
    const struct ha_device_api *api = b->api;
    if (!api->flag_wait || !api->flag_write || !b->flag) return (double)NAN;
    const uint32_t next = __atomic_load_n(&b->flag[DOWN], __ATOMIC_ACQUIRE) + 1;
    if (api->flag_write(b->stream[0], &b->flag[ARRIVED], next) != HA_OK
        || api->flag_wait(b->stream[0], &b->flag[UP], next) != HA_OK
        || api->flag_write(b->stream[0], &b->flag[DOWN], next) != HA_OK)
        return (double)NAN;
    uint64_t begin = ha_now_ns();
    bool ok = written(&b->flag[ARRIVED], next, begin);
    for (const uint64_t arrived = ha_now_ns(); ha_now_ns() - arrived < NEXT_NS;) continue;
    begin = ha_now_ns();
    __atomic_store_n(&b->flag[UP], next, __ATOMIC_RELEASE);
    ok = written(&b->flag[DOWN], next, begin) && ok;
    const double ns = since(begin, ok);
    return synced(b) ? ns : (double)NAN;
}
