#include "harness/measure/beside.h"

#include "harness/base/clock.h"
#include "harness/base/stats.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES_MOST = 15 };

/* The median of so many samples. What a device does is fitted once for both readings of a case. */
static const struct {
    enum ha_ceiling of;
    ha_ceiling_sample *sample;
    ha_ceiling_work *work;
    size_t samples;
    bool device;
} kind[HA_BESIDE_READINGS] = {
    [HA_BESIDE_READ] = { HA_CEIL_READ_ALL, .sample = ha_ceiling_read_all, .samples = 3 },
    [HA_BESIDE_READ_1] = { HA_CEIL_READ_1, .sample = ha_ceiling_read_one, .samples = 3 },
    [HA_BESIDE_FLOPS] = { HA_CEIL_FLOPS_1, .sample = ha_ceiling_flops_one, .samples = 5 },
    [HA_BESIDE_H2D] = { HA_CEIL_H2D, .work = ha_ceiling_h2d, .samples = 3, .device = true },
    [HA_BESIDE_D2H] = { HA_CEIL_D2H, .work = ha_ceiling_d2h, .samples = 3, .device = true },
    [HA_BESIDE_DEVICE] = { HA_CEIL_DEVICE_READ, .work = ha_ceiling_device_read, .samples = 3, .device = true },
    [HA_BESIDE_LAUNCH] = { HA_CEIL_LAUNCH, .sample = ha_ceiling_launch, .samples = SAMPLES_MOST, .device = true },
};

struct ha_beside {
    struct ha_ceiling_bench bench; /* device NULL: none is read */
    struct ha_ceiling_load load[HA_BESIDE_READINGS];
    bool fitted[HA_BESIDE_READINGS], fits[HA_BESIDE_READINGS];
};

enum ha_status ha_beside_create(struct ha_beside **out, struct ha_paired_memory *memory,
                                const struct ha_kernels *kernels, struct ha_why *why)
{
    struct ha_beside *s = *out = calloc(1, sizeof *s);
    if (!s) return ha_why(why, HA_ERROR, "readings of the machine: out of memory");
    struct ha_ceiling_bench *b = &s->bench;
    b->kernels = kernels;
    b->work_ns = 3e6;
    enum ha_status status = ha_pool_create(&b->pool, HA_TEAM_DEFAULT, 0, why);
    if (status == HA_OK && memory) status = ha_paired_create_on(&b->memory_read, b->pool, kernels, memory, why);
    if (status == HA_OK) return HA_OK;
    ha_beside_destroy(s);
    *out = NULL;
    return status;
}

static void close_device(struct ha_ceiling_bench *b)
{
    for (int i = 0; i < 2; i++)
        if (b->stream[i]) b->api->stream_destroy(b->stream[i]);
    ha_device_arena_destroy(b->arena);
    *b = (struct ha_ceiling_bench){
        .kernels = b->kernels, .work_ns = b->work_ns, .pool = b->pool, .memory_read = b->memory_read
    };
}

static bool open_device(struct ha_ceiling_bench *b)
{
    struct ha_device_info info = { 0 };
    struct ha_why why; /* of what a device does not give nothing is said */
    b->api->info(b->device, &info);
    b->link_bytes = ha_measure_share((size_t)16 << 20);
    b->device_bytes = b->link_bytes;
    if (!info.compute_threads) /* beyond its cache, and a small part of what a case has left */
        while (b->device_bytes < (size_t)128 << 20 && 4 * b->device_bytes <= info.memory_free_bytes / 8)
            b->device_bytes *= 2;
    if (ha_device_arena_create(&b->arena, b->api, b->device, &why) != HA_OK) return false;
    b->pinned = ha_device_alloc(b->arena, HA_MEM_PINNED, 2 * (b->link_bytes + HA_CEILING_SLACK), HA_TAG_SCRATCH, &why);
    b->memory = ha_device_alloc(b->arena, HA_MEM_DEVICE, 2 * (b->device_bytes + HA_CEILING_SLACK), HA_TAG_SCRATCH,
                                &why);
    b->bounce = ha_device_alloc(b->arena, HA_MEM_PINNED, HA_CEILING_TAG, HA_TAG_SCRATCH, &why);
    if (!info.compute_threads) b->sum = ha_device_alloc(b->arena, HA_MEM_DEVICE, sizeof *b->sum, HA_TAG_SCRATCH, &why);
    if (!b->pinned || !b->memory || !b->bounce) return false;
    ha_ceiling_draw(b);
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        ok = b->api->stream_create(b->device, "beside", &b->stream[i], &why) == HA_OK;
        if (!ok) b->stream[i] = NULL;
    }
    return ok;
}

void ha_beside_device(struct ha_beside *s, const struct ha_device_api *api, struct ha_device *device)
{
    struct ha_ceiling_bench *b = &s->bench;
    if (b->api) close_device(b);
    memset(s->fitted, 0, sizeof s->fitted);
    if (!api || !strcmp(api->kind, "null") || !strcmp(api->kind, "emulated")) return;
    b->api = api;
    b->device = device;
    if (!open_device(b)) close_device(b);
}

static size_t limit_of(const struct ha_ceiling_bench *b, enum ha_beside_reading which)
{
    return which == HA_BESIDE_DEVICE ? 2 * b->device_bytes : b->link_bytes;
}

static double read_one(struct ha_beside *s, enum ha_beside_reading which)
{
    struct ha_ceiling_bench *b = &s->bench;
    ha_ceiling_work *work = kind[which].work;
    double x[SAMPLES_MOST];
    const bool host_memory = which == HA_BESIDE_READ || which == HA_BESIDE_READ_1;
    if ((kind[which].device && !b->device) || (host_memory && !b->memory_read)) return (double)NAN;
    if (work && !s->fitted[which]) {
        s->fitted[which] = true;
        s->fits[which] = ha_ceiling_fit(b, work, limit_of(b, which), &s->load[which]);
    }
    if (work && !s->fits[which]) return (double)NAN;
    const bool launches = which == HA_BESIDE_LAUNCH && !isnan(kind[which].sample(b)) && ha_ceiling_launch_begin(b);
    for (size_t i = 0; i < kind[which].samples; i++)
        x[i] = work ? ha_ceiling_proven_rate(b, kind[which].of, &s->load[which]) : kind[which].sample(b);
    if (launches) ha_ceiling_launch_end(b, HA_CEIL_LAUNCH);
    if (*b->doubt.text) return (double)NAN;
    return ha_median(x, kind[which].samples);
}

void ha_beside_read(struct ha_beside *s, uint64_t deadline_ns, double reading[HA_BESIDE_READINGS])
{
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++) {
        const bool over = ha_stop || (deadline_ns && ha_now_ns() >= deadline_ns);
        reading[i] = over ? (double)NAN : read_one(s, (enum ha_beside_reading)i);
    }
}

const char *ha_beside_doubt(const struct ha_beside *s)
{
    return s && *s->bench.doubt.text ? s->bench.doubt.text : NULL;
}

void ha_beside_destroy(struct ha_beside *s)
{
    if (!s) return;
    ha_beside_device(s, NULL, NULL);
    ha_paired_destroy(s->bench.memory_read);
    ha_pool_destroy(s->bench.pool);
    free(s);
}

void ha_beside_of(const struct ha_ceilings *ceilings, double reading[HA_BESIDE_READINGS])
{
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++) reading[i] = ceilings->of[kind[i].of].median;
}

void ha_beside_mean(const double before[HA_BESIDE_READINGS], const double after[HA_BESIDE_READINGS],
                    double beside[HA_BESIDES])
{
    double most = (double)NAN;
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++) {
        beside[i] = (before[i] + after[i]) / 2;
        most = fmax(most, fabs(after[i] - before[i]) / beside[i]); /* of what is no number nothing */
    }
    beside[HA_BESIDE_APART] = most;
}
