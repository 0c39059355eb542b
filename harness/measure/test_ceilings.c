/* Ceilings of the embedded device: what it lacks is not measured, what is slow is measured on less, and the meters are
 * read while it works. */

#include "harness/base/pool.h"
#include "harness/measure/ceilings.h"
#include "harness/measure/paired.h"
#include "harness/measure/test_host.h"

#include <math.h>
#include <sys/mman.h>
#include <time.h>

static struct ha_ceilings measure(const struct ha_device_api *api, const struct ha_kernels *k)
{
    struct ha_ceilings c;
    if (ha_ceilings_measure(&c, api, device, k, NULL, true, &why) != HA_OK) fail_msg("%s", why.text);
    return c;
}

static bool measured(const struct ha_reading *r)
{
    assert_int_equal(isnan(r->median), r->samples == 0);
    return r->samples && r->lo > 0 && r->lo <= r->median && r->median <= r->hi;
}

/* ---- a device that is busy for as long as its memory would take ------------------------------------ */

enum { SLOW_NS_A_BYTE = 40 }; /* 0.025 GB/s: 64 MB in 2.7 s */
static size_t reads, largest;
static int reading; /* atomic: enqueued and not done */
static bool busy_when_asked;

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) }, NULL);
}

static void done(void *arg) { __atomic_fetch_sub(&reading, 1, __ATOMIC_RELAXED); }

static enum ha_status slow_read(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum)
{
    assert_non_null(ptr);
    assert_non_null(sum);
    reads++;
    if (bytes > largest) largest = bytes;
    __atomic_fetch_add(&reading, 1, __ATOMIC_RELAXED);
    assert_int_equal(host->read(stream, ptr, bytes, sum), HA_OK);
    assert_int_equal(host->spin(stream, bytes * SLOW_NS_A_BYTE), HA_OK);
    return host->host_fn(stream, done, NULL);
}

static void meters(struct ha_device *dev, struct ha_device_meters *out)
{
    busy_when_asked = __atomic_load_n(&reading, __ATOMIC_RELAXED) > 0;
    out->sm_clock_MHz = 1755;
}

/* ---- kernels that sleep: of known speed, at most ---------------------------------------------------- */

enum { READ_GBPS = 20 };

static uint64_t sleepy_read(const void *p, size_t bytes)
{
    assert_non_null(p);
    sleep_ns(bytes / READ_GBPS);
    return 0;
}

static double sleepy_flops(size_t rounds)
{
    assert_true(rounds > 0);
    sleep_ns(500000);
    return 1.5e6; /* 3 GFLOP/s */
}

static size_t cores(void)
{
    struct ha_pool *pool;
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 0, &why), HA_OK);
    const size_t n = ha_pool_threads(pool);
    ha_pool_destroy(pool);
    return n;
}

/* not more than that; how much less is up to the machine */
static void assert_rate(const struct ha_reading *r, double most) { assert_true(measured(r) && r->hi <= 1.001 * most); }

static uintptr_t lowest, highest; /* addresses that were read */

static uint64_t noted_read(const void *p, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)p, end = begin + bytes;
    uintptr_t was = __atomic_load_n(&lowest, __ATOMIC_RELAXED);
    while (begin < was && !__atomic_compare_exchange_n(&lowest, &was, begin, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    was = __atomic_load_n(&highest, __ATOMIC_RELAXED);
    while (end > was && !__atomic_compare_exchange_n(&highest, &was, end, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return 0;
}

TEST_WITH(memory_that_is_given_is_what_is_read, open_host, close_host)
{
    struct ha_kernels k = kernels;
    struct ha_paired_memory *memory;
    struct ha_paired *paired;
    struct ha_pool *pool;
    struct ha_ceilings c;
    k.read = noted_read;
    k.read_streams = NULL;
    lowest = UINTPTR_MAX, highest = 0;
    assert_int_equal(ha_pool_create(&pool, HA_TEAM_DEFAULT, 0, &why), HA_OK);
    const enum ha_status made = ha_paired_memory_create(&memory, &why);
    if (made == HA_WAIVED) skip();
    assert_int_equal(made, HA_OK);
    assert_int_equal(ha_paired_create_on(&paired, pool, &k, memory, &why), HA_OK);
    for (int i = 0; i < 100; i++) ha_paired_read_all(paired); /* every part of it */
    const uintptr_t begin = lowest, end = highest;
    lowest = UINTPTR_MAX, highest = 0;
    assert_int_equal(ha_ceilings_measure(&c, host, device, &k, memory, true, &why), HA_OK);
    assert_true(begin <= lowest && lowest < highest && highest <= end);
    assert_true(measured(&c.of[HA_CEIL_READ_1]) && measured(&c.of[HA_CEIL_READ_ALL]));
    ha_paired_destroy(paired);
    ha_paired_memory_destroy(memory);
    ha_pool_destroy(pool);
}

TEST_WITH(slow_and_poor, open_host, close_host)
{
    struct ha_device_api api = *host;
    struct ha_kernels k = kernels;
    const double n = (double)cores();
    api.move = NULL;
    api.blend = NULL;
    api.flag_wait = NULL;
    api.read = slow_read;
    api.meters = meters;
    k.read = sleepy_read;
    k.read_streams = NULL;
    k.flops = sleepy_flops;
    const struct ha_ceilings c = measure(&api, &k);
    assert_rate(&c.of[HA_CEIL_READ_1], READ_GBPS);
    assert_rate(&c.of[HA_CEIL_READ_ALL], n * READ_GBPS);
    assert_rate(&c.of[HA_CEIL_FLOPS_1], 3);
    assert_rate(&c.of[HA_CEIL_FLOPS_ALL], n * 3);
    static const enum ha_ceiling without[] = { HA_CEIL_KERNEL_H2D, HA_CEIL_KERNEL_D2H, HA_CEIL_KERNEL_BOTH,
                                               HA_CEIL_LAUNCH,     HA_CEIL_ENQUEUE,    HA_CEIL_FLAG };
    for (size_t i = 0; i < COUNT(without); i++) assert_int_equal(c.of[without[i]].samples, 0);
    assert_true(measured(&c.of[HA_CEIL_H2D]) && measured(&c.of[HA_CEIL_D2D]) && measured(&c.of[HA_CEIL_SYNC]));
    const struct ha_reading *read = &c.of[HA_CEIL_DEVICE_READ];
    assert_true(measured(read));
    /* it may last longer, never less */
    assert_true(read->hi <= 1.0 / SLOW_NS_A_BYTE * 1.001 && read->hi > 0.5 / SLOW_NS_A_BYTE);
    assert_true(largest < 8u << 20);
    assert_true(busy_when_asked);
    assert_true(c.meters.sm_clock_MHz > 1754 && isnan(c.meters.power_W));
}

/* ---- a device of its own memory, which nobody touches ---------------------------------------------- */

static size_t free_bytes;
static void real_info(struct ha_device *dev, struct ha_device_info *info)
{
    host->info(dev, info);
    info->compute_threads = 0;
    info->memory_free_bytes = free_bytes;
}
static enum ha_status far_alloc(struct ha_device *dev, enum ha_memory kind, size_t bytes, void **ptr,
                                struct ha_why *because)
{
    if (kind != HA_MEM_DEVICE) return host->mem_alloc(dev, kind, bytes, ptr, because);
    *ptr = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *ptr == MAP_FAILED ? HA_ERROR : HA_OK;
}
static void far_free(struct ha_device *dev, enum ha_memory kind, void *ptr)
{
    if (kind != HA_MEM_DEVICE) host->mem_free(dev, kind, ptr);
}
static enum ha_status no_copy(struct ha_stream *s, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return HA_OK;
}
static enum ha_status no_read(struct ha_stream *stream, const void *ptr, size_t bytes, uint32_t *sum)
{
    if (bytes > largest) largest = bytes;
    return HA_OK;
}
static enum ha_status no_sync(struct ha_stream *stream) { return HA_OK; }
static size_t one_fact(struct ha_device *dev, struct ha_device_fact *fact, size_t room)
{
    fact[0] = (struct ha_device_fact){ "l2_bytes", "52428800" };
    return 1;
}

static struct ha_ceilings measure_untouched(const struct ha_device_api *api)
{
    struct ha_ceilings c;
    assert_int_equal(ha_ceilings_measure(&c, api, device, &kernels, NULL, true, &why), HA_FAIL);
    assert_contains(why.text, "has not arrived");
    return c;
}

/* Beyond any cache, where there is so much memory, however short the probe is. */
TEST_WITH(much_of_a_real_devices_memory_is_read, open_host, close_host)
{
    struct ha_device_api api = *host;
    const size_t gib = (size_t)1 << 30;
    api.kind = "cuda";
    api.info = real_info;
    api.mem_alloc = far_alloc;
    api.mem_free = far_free;
    api.copy = no_copy;
    api.stream_sync = no_sync;
    api.flag_wait = NULL;
    api.read = no_read;
    api.move = NULL;
    api.blend = NULL;
    api.facts = one_fact;
    largest = 0;
    free_bytes = 64 * gib;
    assert_true(measure_untouched(&api).device_cache_bytes == 52428800);
    assert_int_equal(largest, ha_measure_share(2 * gib));
    largest = 0;
    free_bytes = ha_measure_share(4 * gib);
    api.facts = NULL;
    assert_true(measure_untouched(&api).device_cache_bytes == 0);
    assert_int_equal(largest, ha_measure_share(gib));
}

/* A device that comes late to the first of what is enqueued, as where a launch takes its time. */
enum { LATE_NS = 2000000 };
static bool idle;
static void be_late(void *arg) { sleep_ns(LATE_NS); }
static void come_late(struct ha_stream *stream)
{
    if (idle) assert_int_equal(host->host_fn(stream, be_late, NULL), HA_OK);
    idle = false;
}
static enum ha_status late_write(struct ha_stream *stream, uint32_t *flag, uint32_t value)
{
    come_late(stream);
    return host->flag_write(stream, flag, value);
}
static enum ha_status late_wait(struct ha_stream *stream, const uint32_t *flag, uint32_t at_least)
{
    come_late(stream);
    return host->flag_wait(stream, flag, at_least);
}
static enum ha_status idle_sync(struct ha_stream *stream)
{
    idle = true;
    return host->stream_sync(stream);
}

TEST_WITH(a_launch_is_no_part_of_the_round_trip, open_host, close_host)
{
    struct ha_device_api api = *host;
    api.flag_write = late_write;
    api.flag_wait = late_wait;
    api.stream_sync = idle_sync;
    const struct ha_ceilings c = measure(&api, &kernels);
    assert_true(measured(&c.of[HA_CEIL_FLAG]));
    assert_true(c.of[HA_CEIL_FLAG].lo < LATE_NS / 2);
}

TEST_WITH(all_that_the_device_offers, open_host, close_host)
{
    const struct ha_ceilings c = measure(host, &kernels);
    for (int i = 0; i < HA_CEILINGS; i++)
        if ((i != HA_CEIL_CORES || cores() > 1) && !measured(&c.of[i]))
            fail_msg("%s: not measured", ha_ceiling_name((enum ha_ceiling)i));
    /* after a pause nobody is awake; before it, somebody now and then */
    if (cores() > 1) assert_true(c.of[HA_CEIL_POOL].lo < c.of[HA_CEIL_POOL_IDLE].lo);
    assert_true(isnan(c.meters.sm_clock_MHz) && !*c.meters.throttle);
}

/* What moves nothing has no bandwidth, however quickly it says that it is done. */
TEST_WITH(a_device_that_moves_nothing, open_host, close_host)
{
    struct ha_device_api api = *host;
    api.kind = "null";
    const struct ha_ceilings c = measure(&api, &kernels);
    for (int i = HA_CEIL_H2D; i <= HA_CEIL_D2D; i++) assert_int_equal(measured(&c.of[i]), false);
    assert_true(measured(&c.of[HA_CEIL_READ_1]) && measured(&c.of[HA_CEIL_LAUNCH]));
}
