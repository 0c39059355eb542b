#include "harness/measure/ceilings_parts.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES_MAX = 200, SAMPLES_SLOW = 40, SAMPLES = 15, SAMPLES_BRIEF = 5 };

/* Each is sampled, or the rate of work; of a latency more samples are taken. */
static const struct {
    const char *name, *unit;
    ha_ceiling_sample *sample;
    ha_ceiling_work *work;
} ceiling[HA_CEILINGS] = {
    [HA_CEIL_READ_1] = { "host memory read, 1 thread", "GB/s", .sample = ha_ceiling_read_one },
    [HA_CEIL_READ_ALL] = { "host memory read, all threads", "GB/s", .sample = ha_ceiling_read_all },
    [HA_CEIL_COPY_ALL] = { "host memory copy, all threads", "GB/s", .sample = ha_ceiling_copy_all },
    [HA_CEIL_FLOPS_1] = { "multiply-adds, 1 thread", "GFLOP/s", .sample = ha_ceiling_flops_one },
    [HA_CEIL_FLOPS_ALL] = { "multiply-adds, all threads", "GFLOP/s", .sample = ha_ceiling_flops_all },
    [HA_CEIL_H2D] = { "link, host to device", "GB/s", .work = ha_ceiling_h2d },
    [HA_CEIL_D2H] = { "link, device to host", "GB/s", .work = ha_ceiling_d2h },
    [HA_CEIL_BOTH] = { "link, both ways at once, sum", "GB/s", .work = ha_ceiling_both },
    [HA_CEIL_KERNEL_H2D] = { "link by a kernel, host to device", "GB/s", .work = ha_ceiling_kernel_h2d },
    [HA_CEIL_KERNEL_D2H] = { "link by a kernel, device to host", "GB/s", .work = ha_ceiling_kernel_d2h },
    [HA_CEIL_KERNEL_BOTH] = { "link by kernels, both ways, sum", "GB/s", .work = ha_ceiling_kernel_both },
    [HA_CEIL_DEVICE_READ] = { "device memory read", "GB/s", .work = ha_ceiling_device_read },
    [HA_CEIL_D2D] = { "device memory copy", "GB/s", .work = ha_ceiling_d2d },
    [HA_CEIL_LAUNCH] = { "launch and synchronise", "ns", .sample = ha_ceiling_launch },
    [HA_CEIL_ENQUEUE] = { "launch alone", "ns", .sample = ha_ceiling_enqueue },
    [HA_CEIL_SYNC] = { "synchronise alone", "ns", .sample = ha_ceiling_sync },
    [HA_CEIL_FLAG] = { "flag round trip", "ns", .sample = ha_ceiling_flag },
    [HA_CEIL_CORES] = { "cache line, core to core", "ns", .sample = ha_ceiling_cores },
    [HA_CEIL_POOL] = { "CPU threads, wake-up and join", "ns", .sample = ha_ceiling_wake },
    [HA_CEIL_POOL_IDLE] = { "the same after 5 idle milliseconds", "ns", .sample = ha_ceiling_wake_idle },
    [HA_CEIL_CLOCK] = { "clock resolution", "ns", .sample = ha_ceiling_tick },
};

const char *ha_ceiling_name(enum ha_ceiling which) { return ceiling[which].name; }
const char *ha_ceiling_unit(enum ha_ceiling which) { return ceiling[which].unit; }

/* A device of kind "null" moves nothing and computes nothing: what it is timed at is no ceiling. */
static bool of_nothing(const struct ha_ceiling_bench *b, enum ha_ceiling which)
{
    return !strcmp(b->api->kind, "null") && which >= HA_CEIL_H2D && which <= HA_CEIL_D2D;
}

static bool on_link(enum ha_ceiling which) { return which >= HA_CEIL_H2D && which <= HA_CEIL_KERNEL_BOTH; }

double ha_ceiling_proven_rate(struct ha_ceiling_bench *b, enum ha_ceiling which, const struct ha_ceiling_load *load)
{
    if (!ha_ceiling_proof_begin(b, which, load)) return (double)NAN;
    const double ns = ha_ceiling_time(b, load);
    if (!isnan(ns)) ha_ceiling_proof_end(b, which, load, ns);
    return ha_ceiling_rate(load, ns);
}

static struct ha_reading measure(struct ha_ceiling_bench *b, enum ha_ceiling which, size_t samples)
{
    const size_t limit = on_link(which)                 ? b->link_bytes
                         : which == HA_CEIL_DEVICE_READ ? 2 * b->device_bytes
                                                        : b->device_bytes;
    ha_ceiling_work *work = ceiling[which].work;
    ha_ceiling_sample *sample = ceiling[which].sample;
    double x[SAMPLES_MAX], nan = (double)NAN;
    struct ha_reading r = { nan, nan, nan, 0 };
    struct ha_ceiling_load load;

    if (of_nothing(b, which)) return r;
    /* the first one finds everything cold */
    if (work ? !ha_ceiling_fit(b, work, limit, &load) : isnan(sample(b))) return r;
    const bool launches = (which == HA_CEIL_LAUNCH || which == HA_CEIL_ENQUEUE) && strcmp(b->api->kind, "null") != 0;
    ha_ceiling_proof_new(b);
    if (launches && !ha_ceiling_launch_begin(b)) return r;
    for (size_t i = 0; i < samples; i++) {
        x[i] = work ? ha_ceiling_proven_rate(b, which, &load) : sample(b);
        if (isnan(x[i])) return r;
    }
    if (launches) ha_ceiling_launch_end(b, which);
    ha_ceiling_proof_close(b, which, work ? &load : NULL);
    r = (struct ha_reading){ ha_median(x, samples), ha_quantile(x, samples, 0), ha_quantile(x, samples, 1), samples };
    return r;
}

/* Half of what is read: device memory has to be read from beyond the device's cache, which on the largest is some 100
 * MB, and what is left in it of the last reading may be no part to speak of. */
static size_t device_bytes(const struct ha_ceiling_bench *b)
{
    struct ha_device_info info;
    size_t bytes = ha_measure_share((size_t)1 << 30);
    b->api->info(b->device, &info);
    if (info.compute_threads || !strcmp(b->api->kind, "null")) return b->link_bytes;
    while (bytes > b->link_bytes && bytes > info.memory_free_bytes / 8) bytes /= 2;
    return bytes > b->link_bytes ? bytes : b->link_bytes;
}

static double cache_bytes(const struct ha_ceiling_bench *b)
{
    struct ha_device_fact fact[HA_DEVICE_FACTS_MOST];
    const size_t count = b->api->facts ? b->api->facts(b->device, fact, HA_DEVICE_FACTS_MOST) : 0;
    for (size_t i = 0; i < count && i < HA_DEVICE_FACTS_MOST; i++) {
        fact[i].value[sizeof fact[i].value - 1] = 0; /* a plugin's text need not end */
        if (!strncmp(fact[i].name, "l2_bytes", sizeof fact[i].name)) return strtod(fact[i].value, NULL);
    }
    return 0;
}

static enum ha_status open_bench(struct ha_ceiling_bench *b, struct ha_paired_memory *memory, struct ha_why *why)
{
    HA_TRY(ha_pool_create(&b->pool, HA_TEAM_DEFAULT, 0, why));
    HA_TRY(memory ? ha_paired_create_on(&b->memory_read, b->pool, b->kernels, memory, why)
                  : ha_paired_create(&b->memory_read, b->pool, b->kernels, why));
    HA_TRY(ha_arena_create(&b->host, false, why));
    HA_TRY(ha_device_arena_create(&b->arena, b->api, b->device, why));
    b->buffer = ha_alloc(b->host, b->buffer_bytes, HA_TAG_SCRATCH, why);
    b->pinned = ha_device_alloc(b->arena, HA_MEM_PINNED, 2 * (b->link_bytes + HA_CEILING_SLACK), HA_TAG_SCRATCH, why);
    b->memory = ha_device_alloc(b->arena, HA_MEM_DEVICE, 2 * (b->device_bytes + HA_CEILING_SLACK), HA_TAG_SCRATCH, why);
    b->bounce = ha_device_alloc(b->arena, HA_MEM_PINNED, HA_CEILING_TAG, HA_TAG_SCRATCH, why);
    if (!b->buffer || !b->pinned || !b->memory || !b->bounce) return HA_ERROR;
    /* optional: what needs them is not measured without */
    b->sum = ha_device_alloc(b->arena, HA_MEM_DEVICE, sizeof *b->sum, HA_TAG_SCRATCH, NULL);
    b->flag = ha_device_alloc(b->arena, HA_MEM_MAPPED, 64, HA_TAG_SCRATCH, NULL);
    if (b->flag) memset(b->flag, 0, 64);
    if (b->api->move)
        b->mapped = ha_device_alloc(b->arena, HA_MEM_MAPPED, 2 * (b->link_bytes + HA_CEILING_SLACK), HA_TAG_SCRATCH,
                                    NULL);
    /* untouched pages are all one zero page, which sits in cache */
    memset(b->buffer, 1, b->buffer_bytes);
    ha_ceiling_draw(b);
    for (int i = 0; i < 2; i++) HA_TRY(b->api->stream_create(b->device, i ? "probe 2" : "probe", &b->stream[i], why));
    return HA_OK;
}

bool ha_has_link(const char *kind)
{
    return strcmp(kind, "host") != 0 && strcmp(kind, "emulated") != 0 && strcmp(kind, "null") != 0;
}

enum ha_status ha_ceilings_measure(struct ha_ceilings *out, const struct ha_device_api *api, struct ha_device *device,
                                   const struct ha_kernels *kernels, struct ha_paired_memory *memory, bool brief,
                                   struct ha_why *why)
{
    const bool emulated = !strcmp(api->kind, "emulated"); /* nobody waits for figures that mean nothing */
    brief = brief || emulated;
    struct ha_ceiling_bench b = { .api = api,
                                  .device = device,
                                  .kernels = kernels,
                                  .buffer_bytes = ha_measure_share((size_t)(brief ? 128 : 512) << 20),
                                  .link_bytes = ha_measure_share((size_t)(brief ? 32 : 128) << 20),
                                  .work_ns = emulated ? 10e6
                                             : brief  ? 20e6
                                                      : 50e6 };
    b.device_bytes = device_bytes(&b);
    enum ha_status status = open_bench(&b, memory, why);

    for (int i = 0; i < HA_CEILINGS && status == HA_OK; i++) {
        const bool latency = !strcmp(ceiling[i].unit, "ns"),
                   reads_part = memory && (i == HA_CEIL_READ_1 || i == HA_CEIL_READ_ALL); /* a small one */
        out->of[i] = measure(&b, (enum ha_ceiling)i,
                             i == HA_CEIL_POOL_IDLE ? SAMPLES_SLOW
                             : latency              ? SAMPLES_MAX
                             : brief && !reads_part ? SAMPLES_BRIEF
                                                    : SAMPLES);
    }
    if (status == HA_OK) ha_ceiling_spans(&b);
    if (status == HA_OK) ha_ceiling_memory(&b, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    if (status == HA_OK) out->meters = ha_ceiling_meters(&b);
    out->device_cache_bytes = cache_bytes(&b);
    const char *failure = api->failure(device);
    if (status == HA_OK && failure) status = ha_why(why, HA_ERROR, "probe: device %s: %s", api->name, failure);
    if (status == HA_OK && *b.doubt.text) status = ha_why(why, HA_FAIL, "%s", b.doubt.text);
    for (int i = 0; i < 2; i++)
        if (b.stream[i]) api->stream_destroy(b.stream[i]);
    ha_device_arena_destroy(b.arena);
    ha_arena_destroy(b.host);
    ha_paired_destroy(b.memory_read);
    ha_pool_destroy(b.pool);
    return status;
}
