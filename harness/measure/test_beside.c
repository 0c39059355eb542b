/* Readings beside a case: of kernels that sleep, and of the embedded device; what cannot be read is left out. */

#include "harness/measure/beside.h"
#include "harness/measure/test_host.h"

#include "harness/base/clock.h"
#include "harness/base/stop.h"
#include "harness/base/why.h"

#include <math.h>
#include <signal.h>
#include <time.h>

enum { READ_GBPS = 20 };

static void sleep_ns(uint64_t ns) { nanosleep(&(struct timespec){ .tv_nsec = (long)ns }, NULL); }

static uint64_t sleepy_read(const void *p, size_t bytes)
{
    assert_non_null(p);
    sleep_ns(bytes / READ_GBPS);
    return 0;
}

static double sleepy_flops(size_t rounds)
{
    sleep_ns(500000);
    return 1.5e6; /* 3 GFLOP/s */
}

static const struct ha_kernels sleepy = { .read = sleepy_read, .flops = sleepy_flops };
static struct ha_paired_memory *memory;

static void read_with(const struct ha_device_api *api, struct ha_paired_memory *of, uint64_t deadline_ns,
                      double reading[HA_BESIDE_READINGS])
{
    struct ha_beside *b;
    if (ha_beside_create(&b, of, &sleepy, &why) != HA_OK) fail_msg("%s", why.text);
    ha_beside_device(b, api, api ? device : NULL);
    ha_beside_read(b, deadline_ns, reading);
    ha_beside_destroy(b);
}

/* bits: what is read */
static unsigned read_bits(const struct ha_device_api *api, struct ha_paired_memory *of, uint64_t deadline_ns)
{
    double reading[HA_BESIDE_READINGS];
    unsigned bits = 0;
    read_with(api, of, deadline_ns, reading);
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++)
        if (reading[i] > 0) bits |= 1u << i;
        else assert_true(isnan(reading[i]));
    return bits;
}

#define BIT(which) (1u << HA_BESIDE_##which)
enum {
    HOST = BIT(READ) | BIT(READ_1) | BIT(FLOPS),
    LINK = BIT(H2D) | BIT(D2H),
};

static int begin(void **state)
{
    if (ha_paired_memory_create(&memory, &why) != HA_OK) fail_msg("%s", why.text);
    return open_host(state);
}

static int end(void **state)
{
    ha_paired_memory_destroy(memory);
    return close_host(state);
}

TEST_WITH(readings_are_of_what_is_asked, begin, end)
{
    double r[HA_BESIDE_READINGS];
    read_with(host, memory, 0, r);
    /* naps last longer, never less */
    assert_true(r[HA_BESIDE_READ_1] > 0 && r[HA_BESIDE_READ_1] <= 1.001 * READ_GBPS);
    assert_true(r[HA_BESIDE_READ] > 0 && r[HA_BESIDE_READ] <= 1.001 * READ_GBPS * HA_POOL_THREADS_MAX);
    assert_true(r[HA_BESIDE_FLOPS] > 0 && r[HA_BESIDE_FLOPS] <= 3.003);
    assert_true(isnan(r[HA_BESIDE_DEVICE])); /* its memory is the host's */
    assert_int_equal(read_bits(host, memory, 0), HOST | LINK | BIT(LAUNCH));
}

static enum ha_status no_copy(struct ha_stream *stream, void *dst, const void *src, size_t bytes, enum ha_direction dir)
{
    return HA_ERROR;
}

static enum ha_status no_stream(struct ha_device *dev, const char *name, struct ha_stream **stream, struct ha_why *said)
{
    *stream = (struct ha_stream *)(void *)&memory; /* whatever a stranger leaves there */
    return ha_why(said, HA_ERROR, "no stream");
}

static void destroy_stream(struct ha_stream *stream)
{
    assert_ptr_not_equal(stream, &memory);
    host->stream_destroy(stream);
}

TEST_WITH(what_cannot_be_read_is_left_out, begin, end)
{
    struct ha_device_api api = *host;
    assert_int_equal(read_bits(NULL, memory, 0), HOST);
    assert_int_equal(read_bits(host, NULL, 0), BIT(FLOPS) | LINK | BIT(LAUNCH));
    api.copy = no_copy;
    assert_int_equal(read_bits(&api, memory, 0), HOST | BIT(LAUNCH));
    api = *host;
    api.blend = NULL;
    assert_int_equal(read_bits(&api, memory, 0), HOST | LINK);
    api = *host;
    api.stream_create = no_stream;
    api.stream_destroy = destroy_stream;
    assert_int_equal(read_bits(&api, memory, 0), HOST);
    static const char *const nothing[] = { "null", "emulated" };
    for (size_t i = 0; i < COUNT(nothing); i++) {
        api = *host;
        api.kind = nothing[i];
        assert_int_equal(read_bits(&api, memory, 0), HOST);
    }
}

TEST_WITH(a_stop_and_the_end_of_the_time_end_it, begin, end)
{
    assert_int_equal(read_bits(host, memory, ha_now_ns()), 0);
    assert_int_equal(read_bits(host, memory, ha_now_ns() + UINT64_C(3600000000000)), HOST | LINK | BIT(LAUNCH));
    ha_stop = SIGINT;
    assert_int_equal(read_bits(host, memory, 0), 0);
    ha_stop = 0;
}

TEST(what_a_case_keeps)
{
    const double nan = (double)NAN, before[] = { 10, 5, 100, nan, 8, nan, 20000 },
                 after[] = { 14, 5, 90, nan, nan, 700, 20000 };
    double b[HA_BESIDES];
    assert_int_equal(COUNT(before), HA_BESIDE_READINGS);
    ha_beside_mean(before, after, b);
    assert_true(b[HA_BESIDE_READ] == 12 && b[HA_BESIDE_READ_1] == 5 && b[HA_BESIDE_FLOPS] == 95);
    assert_true(b[HA_BESIDE_LAUNCH] == 20000);
    assert_true(isnan(b[HA_BESIDE_H2D]) && isnan(b[HA_BESIDE_D2H]) && isnan(b[HA_BESIDE_DEVICE]));
    assert_true(fabs(b[HA_BESIDE_APART] - 4.0 / 12) < 1e-15);
    ha_beside_mean(after, before, b);
    assert_true(fabs(b[HA_BESIDE_APART] - 4.0 / 12) < 1e-15); /* whichever way */
    const double none[HA_BESIDE_READINGS] = { nan, nan, nan, nan, nan, nan, nan };
    ha_beside_mean(none, none, b);
    for (size_t i = 0; i < HA_BESIDES; i++) assert_true(isnan(b[i]));
}

TEST(readings_from_ceilings)
{
    static const enum ha_ceiling of[] = { HA_CEIL_READ_ALL, HA_CEIL_READ_1,      HA_CEIL_FLOPS_1, HA_CEIL_H2D,
                                          HA_CEIL_D2H,      HA_CEIL_DEVICE_READ, HA_CEIL_LAUNCH };
    struct ha_ceilings c;
    double r[HA_BESIDE_READINGS];
    assert_int_equal(COUNT(of), HA_BESIDE_READINGS);
    for (size_t i = 0; i < HA_CEILINGS; i++) c.of[i].median = 100 + (double)i;
    ha_beside_of(&c, r);
    for (size_t i = 0; i < HA_BESIDE_READINGS; i++) assert_true(r[i] == 100 + (double)of[i]);
}
