#include "harness/base/arena.h"
#include "harness/base/clock.h"
#include "harness/base/device_arena.h"
#include "harness/base/pool.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings.h"
#include "harness/base/try.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { SAMPLES_MAX = 200, BLOCK = 4 << 20, PREFETCH_AHEAD = 4096 };

static const struct {
    const char *name, *unit;
} ceiling[HA_CEILINGS] = {
    [HA_CEIL_READ_1] = { "host memory read, 1 thread", "GB/s" },
    [HA_CEIL_READ_ALL] = { "host memory read, all threads", "GB/s" },
    [HA_CEIL_COPY_ALL] = { "host memory copy, all threads", "GB/s" },
    [HA_CEIL_H2D] = { "link, host to device", "GB/s" },
    [HA_CEIL_D2H] = { "link, device to host", "GB/s" },
    [HA_CEIL_BOTH] = { "link, both ways at once, sum", "GB/s" },
    [HA_CEIL_D2D] = { "device memory copy", "GB/s" },
    [HA_CEIL_LAUNCH] = { "launch and synchronise", "ns" },
    [HA_CEIL_FLAG] = { "flag round trip", "ns" },
    [HA_CEIL_POOL] = { "CPU threads, wake-up and join", "ns" },
    [HA_CEIL_CLOCK] = { "clock resolution", "ns" },
};

const char *ha_ceiling_name(enum ha_ceiling which) { return ceiling[which].name; }
const char *ha_ceiling_unit(enum ha_ceiling which) { return ceiling[which].unit; }

struct bench {
    const struct ha_device_api *api;
    struct ha_device *device;
    struct ha_pool *pool;
    struct ha_arena *host;
    struct ha_device_arena *arena;
    struct ha_stream *stream[2];
    unsigned char *buffer, *pinned, *memory;
    uint32_t *flag;                     /* [2] mapped: to the device, and back */
    size_t buffer_bytes, link_bytes;
    atomic_uint_fast64_t sum;           /* keeps the reads alive */
};

/* One measurement; false: this device cannot. */
typedef bool once(struct bench *b, double *value);

static struct ha_reading repeat(struct bench *b, once *f, size_t samples)
{
    double x[SAMPLES_MAX], nan = (double)NAN, discarded;
    struct ha_reading r = { nan, nan, nan, 0 };

    if (!f(b, &discarded)) return r;   /* the first one finds everything cold */
    for (size_t i = 0; i < samples; i++)
        if (!f(b, &x[i])) return r;
    r = (struct ha_reading){ ha_median(x, samples), ha_quantile(x, samples, 0), ha_quantile(x, samples, 1), samples };
    return r;
}

/* ---- host memory --------------------------------------------------------------------------- */

/* A core sustains about ten lines in flight unless lines are asked for ahead of the loads. */
static uint64_t read_block(const uint64_t *p, size_t words)
{
    uint64_t sum[8] = { 0 };

    for (size_t i = 0; i < words; i += 16) {
        __builtin_prefetch((const char *)(p + i) + PREFETCH_AHEAD, 0, 2);
        __builtin_prefetch((const char *)(p + i + 8) + PREFETCH_AHEAD, 0, 2);
        for (size_t j = 0; j < 8; j++) sum[j] += p[i + j];
        for (size_t j = 0; j < 8; j++) sum[j] += p[i + 8 + j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static void read_task(void *arg, size_t task, size_t worker)
{
    struct bench *b = arg;

    (void)worker;
    atomic_fetch_add_explicit(&b->sum, read_block((const uint64_t *)(const void *)(b->buffer + task * BLOCK), BLOCK / sizeof(uint64_t)),
                              memory_order_relaxed);
}

static double rate(size_t bytes, uint64_t begin_ns) { return (double)bytes / (double)(ha_now_ns() - begin_ns); }

static bool read_one(struct bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    for (size_t task = 0; task < b->buffer_bytes / BLOCK; task++) read_task(b, task, 0);
    *gbps = rate(b->buffer_bytes, begin);
    return true;
}

static bool read_all(struct bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", b->buffer_bytes / BLOCK, read_task, b);
    *gbps = rate(b->buffer_bytes, begin);
    return true;
}

static void copy_task(void *arg, size_t task, size_t worker)
{
    struct bench *b = arg;

    (void)worker;
    memcpy(b->buffer + b->buffer_bytes / 2 + task * BLOCK, b->buffer + task * BLOCK, BLOCK);
}

static bool copy_all(struct bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", b->buffer_bytes / 2 / BLOCK, copy_task, b);
    *gbps = rate(b->buffer_bytes / 2, begin);
    return true;
}

/* ---- the link ------------------------------------------------------------------------------ */

static bool copied(struct bench *b, void *dst, const void *src, enum ha_direction dir, double *gbps)
{
    uint64_t begin = ha_now_ns();

    if (b->api->copy(b->stream[0], dst, src, b->link_bytes, dir) != HA_OK || b->api->stream_sync(b->stream[0]) != HA_OK) return false;
    *gbps = rate(b->link_bytes, begin);
    return true;
}

static bool h2d(struct bench *b, double *gbps) { return copied(b, b->memory, b->pinned, HA_H2D, gbps); }
static bool d2h(struct bench *b, double *gbps) { return copied(b, b->pinned, b->memory, HA_D2H, gbps); }
static bool d2d(struct bench *b, double *gbps) { return copied(b, b->memory + b->link_bytes, b->memory, HA_D2D, gbps); }

static bool both(struct bench *b, double *gbps)
{
    uint64_t begin = ha_now_ns();
    bool ok = b->api->copy(b->stream[0], b->memory, b->pinned, b->link_bytes, HA_H2D) == HA_OK
              && b->api->copy(b->stream[1], b->pinned + b->link_bytes, b->memory + b->link_bytes, b->link_bytes, HA_D2H) == HA_OK;

    ok = b->api->stream_sync(b->stream[0]) == HA_OK && ok;
    ok = b->api->stream_sync(b->stream[1]) == HA_OK && ok;
    *gbps = rate(2 * b->link_bytes, begin);
    return ok;
}

/* ---- latencies ------------------------------------------------------------------------------- */

static bool launch(struct bench *b, double *ns)
{
    const struct ha_device_blend one = { .y = (float *)(void *)b->memory, .x = (float *)(void *)b->memory, .rows = 1, .cols = 1,
                                         .y_stride = 1, .x_stride = 1, .a = 0, .b = 1 };
    uint64_t begin = ha_now_ns();

    if (!b->api->blend || b->api->blend(b->stream[0], &one) != HA_OK || b->api->stream_sync(b->stream[0]) != HA_OK) return false;
    *ns = (double)(ha_now_ns() - begin);
    return true;
}

static bool flag(struct bench *b, double *ns)
{
    enum { PATIENCE_NS = 1000000000 };

    if (!b->api->flag_wait || !b->api->flag_write || !b->flag) return false;
    uint32_t next = __atomic_load_n(&b->flag[1], __ATOMIC_ACQUIRE) + 1;
    if (b->api->flag_wait(b->stream[0], &b->flag[0], next) != HA_OK || b->api->flag_write(b->stream[0], &b->flag[1], next) != HA_OK)
        return false;
    uint64_t begin = ha_now_ns(), now = begin;
    __atomic_store_n(&b->flag[0], next, __ATOMIC_RELEASE);
    while (__atomic_load_n(&b->flag[1], __ATOMIC_ACQUIRE) != next && now - begin < PATIENCE_NS) now = ha_now_ns();
    *ns = (double)(ha_now_ns() - begin);
    return b->api->stream_sync(b->stream[0]) == HA_OK && now - begin < PATIENCE_NS;
}

static void nothing(void *arg, size_t task, size_t worker) { (void)arg, (void)task, (void)worker; }

static bool wake(struct bench *b, double *ns)
{
    uint64_t begin = ha_now_ns();

    ha_pool_run(b->pool, "probe", ha_pool_threads(b->pool), nothing, NULL);
    *ns = (double)(ha_now_ns() - begin);
    return true;
}

static bool tick(struct bench *b, double *ns)
{
    uint64_t begin = ha_now_ns(), end;

    (void)b;
    while ((end = ha_now_ns()) == begin) continue;
    *ns = (double)(end - begin);
    return true;
}

/* ---- all of them -------------------------------------------------------------------------------- */

static enum ha_status open_bench(struct bench *b, struct ha_why *why)
{
    HA_TRY(ha_pool_create(&b->pool, 0, why));
    HA_TRY(ha_arena_create(&b->host, false, why));
    HA_TRY(ha_device_arena_create(&b->arena, b->api, b->device, why));
    /* the prefetch of the last block runs past it */
    b->buffer = ha_alloc(b->host, b->buffer_bytes + PREFETCH_AHEAD, HA_TAG_SCRATCH, why);
    b->pinned = ha_device_alloc(b->arena, HA_MEM_PINNED, 2 * b->link_bytes, HA_TAG_SCRATCH, why);
    b->memory = ha_device_alloc(b->arena, HA_MEM_DEVICE, 2 * b->link_bytes, HA_TAG_SCRATCH, why);
    if (!b->buffer || !b->pinned || !b->memory) return HA_ERROR;
    /* optional: without it the flag round trip is not measured */
    b->flag = ha_device_alloc(b->arena, HA_MEM_MAPPED, 64, HA_TAG_SCRATCH, NULL);
    if (b->flag) memset(b->flag, 0, 64);
    memset(b->buffer, 1, b->buffer_bytes);   /* untouched pages are all one zero page, which sits in cache */
    memset(b->pinned, 1, 2 * b->link_bytes);
    for (int i = 0; i < 2; i++) HA_TRY(b->api->stream_create(b->device, i ? "probe 2" : "probe", &b->stream[i], why));
    return HA_OK;
}

enum ha_status ha_ceilings_measure(struct ha_ceilings *out, const struct ha_device_api *api, struct ha_device *device, bool brief,
                                   struct ha_why *why)
{
    static once *const measure[HA_CEILINGS] = {
        [HA_CEIL_READ_1] = read_one, [HA_CEIL_READ_ALL] = read_all, [HA_CEIL_COPY_ALL] = copy_all, [HA_CEIL_H2D] = h2d,
        [HA_CEIL_D2H] = d2h, [HA_CEIL_BOTH] = both, [HA_CEIL_D2D] = d2d, [HA_CEIL_LAUNCH] = launch, [HA_CEIL_FLAG] = flag,
        [HA_CEIL_POOL] = wake, [HA_CEIL_CLOCK] = tick,
    };
    struct bench b = { .api = api, .device = device, .buffer_bytes = (size_t)(brief ? 128 : 512) << 20,
                       .link_bytes = (size_t)(brief ? 32 : 128) << 20 };
    enum ha_status status = open_bench(&b, why);

    for (int i = 0; i < HA_CEILINGS && status == HA_OK; i++) {
        bool latency = !strcmp(ceiling[i].unit, "ns");
        out->of[i] = repeat(&b, measure[i], latency ? SAMPLES_MAX : brief ? 5 : 15);
    }
    const char *failure = api->failure(device);
    if (status == HA_OK && failure) status = ha_why(why, HA_ERROR, "probe: device %s: %s", api->name, failure);
    for (int i = 0; i < 2; i++)
        if (b.stream[i]) api->stream_destroy(b.stream[i]);
    ha_device_arena_destroy(b.arena);
    ha_arena_destroy(b.host);
    ha_pool_destroy(b.pool);
    return status;
}
