#include "harness/base/clock.h"
#include "harness/measure/ceilings_parts.h"

#include <math.h>
#include <string.h>

/* ---- the link and the device's memory ----------------------------------------------------------- */

static bool copy(struct ha_ceiling_bench *b, int stream, void *dst, const void *src, size_t bytes,
                 enum ha_direction dir)
{
    return b->api->copy(b->stream[stream], dst, src, bytes, dir) == HA_OK;
}

/* The second half of a buffer. */
static unsigned char *second(unsigned char *buffer, size_t half_bytes)
{
    return buffer + half_bytes + HA_CEILING_SLACK;
}

size_t ha_ceiling_ways(const struct ha_ceiling_bench *b, enum ha_ceiling which, struct ha_ceiling_way way[2])
{
    const bool kernel = which >= HA_CEIL_KERNEL_H2D && which <= HA_CEIL_KERNEL_BOTH;
    unsigned char *const host = kernel ? b->mapped : b->pinned, *const back = second(host, b->link_bytes),
                         *const memory = second(b->memory, b->device_bytes);
    switch (which) {
    case HA_CEIL_H2D:
    case HA_CEIL_KERNEL_H2D: way[0] = (struct ha_ceiling_way){ b->memory, host + b->from, HA_H2D }; return 1;
    case HA_CEIL_D2H:
    case HA_CEIL_KERNEL_D2H: way[0] = (struct ha_ceiling_way){ host, b->memory + b->from, HA_D2H }; return 1;
    case HA_CEIL_D2D: way[0] = (struct ha_ceiling_way){ memory, b->memory + b->from, HA_D2D }; return 1;
    case HA_CEIL_BOTH:
    case HA_CEIL_KERNEL_BOTH:
        way[0] = (struct ha_ceiling_way){ b->memory, host + b->from, HA_H2D };
        way[1] = (struct ha_ceiling_way){ back, memory + b->from, HA_D2H };
        return 2;
    default: return 0;
    }
}

static bool copies(struct ha_ceiling_bench *b, enum ha_ceiling which, size_t bytes)
{
    struct ha_ceiling_way way[2];
    const size_t ways = ha_ceiling_ways(b, which, way);
    bool ok = true;
    for (size_t i = 0; i < ways && ok; i++) ok = copy(b, (int)i, way[i].dst, way[i].src, bytes, way[i].dir);
    return ok;
}

bool ha_ceiling_h2d(struct ha_ceiling_bench *b, size_t bytes) { return copies(b, HA_CEIL_H2D, bytes); }
bool ha_ceiling_d2h(struct ha_ceiling_bench *b, size_t bytes) { return copies(b, HA_CEIL_D2H, bytes); }
bool ha_ceiling_d2d(struct ha_ceiling_bench *b, size_t bytes) { return copies(b, HA_CEIL_D2D, bytes); }
bool ha_ceiling_both(struct ha_ceiling_bench *b, size_t bytes) { return copies(b, HA_CEIL_BOTH, bytes); }

/* by a kernel, on pages one after the other */
static bool move(struct ha_ceiling_bench *b, int stream, void *dst, const void *src, size_t bytes)
{
    enum { PAGE = 4096 };
    if (!b->api->move) return false;
    const struct ha_device_move pages = { .dst = dst,
                                          .src = src,
                                          .rows = bytes / PAGE,
                                          .row_bytes = PAGE,
                                          .dst_stride_bytes = PAGE,
                                          .src_stride_bytes = PAGE };
    return b->api->move(b->stream[stream], &pages) == HA_OK;
}

static bool moves(struct ha_ceiling_bench *b, enum ha_ceiling which, size_t bytes)
{
    struct ha_ceiling_way way[2];
    if (!b->mapped) return false;
    const size_t ways = ha_ceiling_ways(b, which, way);
    bool ok = true;
    for (size_t i = 0; i < ways && ok; i++) ok = move(b, (int)i, way[i].dst, way[i].src, bytes);
    return ok;
}

bool ha_ceiling_kernel_h2d(struct ha_ceiling_bench *b, size_t bytes) { return moves(b, HA_CEIL_KERNEL_H2D, bytes); }
bool ha_ceiling_kernel_d2h(struct ha_ceiling_bench *b, size_t bytes) { return moves(b, HA_CEIL_KERNEL_D2H, bytes); }
bool ha_ceiling_kernel_both(struct ha_ceiling_bench *b, size_t bytes) { return moves(b, HA_CEIL_KERNEL_BOTH, bytes); }

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

double ha_ceiling_time(struct ha_ceiling_bench *b, const struct ha_ceiling_load *load)
{
    double ns;
    return timed(b, load, &ns) ? ns : (double)NAN;
}

double ha_ceiling_rate(const struct ha_ceiling_load *load, double ns)
{
    const double ways = load->work == ha_ceiling_both || load->work == ha_ceiling_kernel_both ? 2 : 1;
    return ways * (double)load->bytes * (double)load->times / ns;
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

/* y += x, of so many y that nobody computes it in passing */
bool ha_ceiling_blend(struct ha_ceiling_bench *b)
{
    const struct ha_device_blend one = { .y = (float *)(void *)b->memory,
                                         .x = (const float *)(const void *)(b->memory + HA_CEILING_SLACK),
                                         .rows = b->launch_n ? b->launch_n : 1,
                                         .cols = 1,
                                         .y_stride = 1,
                                         .x_stride = 0,
                                         .a = 1,
                                         .b = 1 };
    b->launches++;
    return b->api->blend && b->api->blend(b->stream[0], &one) == HA_OK;
}

static bool synced(struct ha_ceiling_bench *b) { return b->api->stream_sync(b->stream[0]) == HA_OK; }

static double since(uint64_t begin_ns, bool ok) { return ok ? (double)(ha_now_ns() - begin_ns) : (double)NAN; }

double ha_ceiling_launch(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    return since(begin_ns, ha_ceiling_blend(b) && synced(b));
}

double ha_ceiling_enqueue(struct ha_ceiling_bench *b)
{
    const uint64_t begin_ns = ha_now_ns();
    const double ns = since(begin_ns, ha_ceiling_blend(b));
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
    if (__atomic_load_n(&b->flag[DOWN], __ATOMIC_ACQUIRE) == next && strcmp(api->kind, "null") != 0)
        ha_ceiling_doubt(b, HA_CEIL_FLAG, "a flag was written behind a wait that was not over");
    begin = ha_now_ns();
    __atomic_store_n(&b->flag[UP], next, __ATOMIC_RELEASE);
    ok = written(&b->flag[DOWN], next, begin) && ok;
    const double ns = since(begin, ok);
    return synced(b) ? ns : (double)NAN;
}
