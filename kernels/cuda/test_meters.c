/* What NVML says, in our units; what it does not say is NaN or an empty text. */

#include "harness/base/test_beside.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fake_nvml.h"

#include <math.h>

static const char bus_id[] = "0000:1B:00.0";

static struct fake_nvml *use(const char *name)
{
    struct fake_nvml *fake = beside_symbol(name, FAKE_NVML_SYMBOL);
    setenv("HABENCH_NVML", beside(name), 1);
    *fake = (struct fake_nvml){ 0 };
    return fake;
}

enum { METERS = 13 };

static void values_of(const struct ha_device_meters *r, double value[METERS])
{
    const double all[METERS] = { r->sm_clock_MHz,  r->sm_clock_max_MHz, r->memory_clock_MHz, r->memory_clock_max_MHz,
                                 r->temperature_C, r->power_W,          r->energy_J,         r->link_gen,
                                 r->link_gen_max,  r->link_width,       r->link_width_max,   r->link_rx_GBps,
                                 r->link_tx_GBps };
    memcpy(value, all, sizeof all);
}

TEST(everything_that_can_be_read)
{
    static const double want[METERS] = { 1755, 1980, 3201, 3202, 61, 412.5, 5000000123.456, 4, 5, 8, 16, 52, 1.25 };
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    struct ha_device_meters r = { .want_link_GBps = true };
    double got[METERS];
    assert_non_null(m);
    assert_int_equal(fake->users, 1);
    ha_cuda_meters_read(m, &r);
    values_of(&r, got);
    for (size_t i = 0; i < METERS; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-9 * want[i])) fail_msg("meter %zu: %.12g, not %.12g", i, got[i], want[i]);
    assert_string_equal(r.throttle, "none");
    assert_string_equal(r.bus_id, bus_id);
    ha_cuda_meters_close(m);
    assert_int_equal(fake->users, 0);
}

/* Reading them takes 40 ms: only where that was asked for. */
TEST(link_counters_are_left_alone)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    struct ha_device_meters r = { .want_link_GBps = false };
    ha_cuda_meters_read(m, &r);
    assert_int_equal(fake->link_reads, 0);
    assert_true(isnan(r.link_rx_GBps) && isnan(r.link_tx_GBps));
    assert_true(r.sm_clock_MHz > 0);
    ha_cuda_meters_close(m);
}

TEST(throttling_has_reasons)
{
    static const struct {
        unsigned long long bits;
        const char *text;
    } of[] = {
        { 0x1, "none" },
        { 0x5, "power cap" },
        { 0x4c, "power cap, hardware slowdown, hardware thermal" },
        { 0x20, "software thermal" },
        { 0x1080, "power brake, reasons 0x1000" },
        { 0x112, "application clocks, sync boost, display clocks" },
    };
    static const char *const library[] = { "fake_nvml.so", "fake_nvml_older.so" };
    for (size_t l = 0; l < 2; l++) {
        struct fake_nvml *fake = use(library[l]);
        struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
        for (size_t i = 0; i < COUNT(of); i++) {
            struct ha_device_meters r = { .want_link_GBps = false };
            fake->reasons = of[i].bits;
            ha_cuda_meters_read(m, &r);
            assert_string_equal(r.throttle, of[i].text);
            assert_int_equal(isnan(r.energy_J), l == 1);
        }
        struct ha_device_meters all = { .want_link_GBps = false };
        fake->reasons = ~0ull;
        ha_cuda_meters_read(m, &all);
        assert_true(strlen(all.throttle) < sizeof all.throttle);
        ha_cuda_meters_close(m);
    }
}

/* Four reads after the work has ended the device idles: what falls then has been read. */
TEST(what_falls_first_is_read_first)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    struct ha_device_meters r = { .want_link_GBps = false };
    fake->idle_after = 4;
    fake->reasons = 0x4;
    ha_cuda_meters_read(m, &r);
    assert_int_equal(fake->reads, 4);
    assert_true(r.sm_clock_MHz > 1754 && r.memory_clock_MHz > 3200 && r.link_gen > 3);
    assert_string_equal(r.throttle, "power cap");
    ha_cuda_meters_read(m, &r); /* and what is read of an idle one says so */
    assert_true(r.sm_clock_MHz < 346 && r.memory_clock_MHz < 346 && r.link_gen < 2);
    assert_string_equal(r.throttle, "none");
    ha_cuda_meters_close(m);
}

static void assert_nothing(const struct ha_device_meters *r)
{
    double value[METERS];
    values_of(r, value);
    for (size_t i = 0; i < METERS; i++) assert_true(isnan(value[i]));
    assert_string_equal(r->throttle, "");
}

/* not supported, no permission, no such function, lost, unknown */
static const int statuses[] = { 3, 4, 13, 15, 999 };

TEST(what_is_not_readable_is_empty)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    struct ha_device_meters r = { .want_link_GBps = true };
    for (size_t i = 0; i < COUNT(statuses); i++) {
        fake->fails = statuses[i];
        ha_cuda_meters_read(m, &r);
        assert_nothing(&r);
        assert_string_equal(r.bus_id, bus_id);
    }
    ha_cuda_meters_close(m);
    memset(&r, 0, sizeof r);
    ha_cuda_meters_read(NULL, &r);
    assert_nothing(&r);
    assert_string_equal(r.bus_id, "");
}

TEST(none_here)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    assert_null(ha_cuda_meters_open("0000:2C:00.0")); /* another GPU than the device */
    assert_int_equal(fake->users, 0);
    fake->init_fails = true;
    assert_null(ha_cuda_meters_open(bus_id));
    setenv("HABENCH_NVML", "/nowhere/libnvidia-ml.so.1", 1);
    assert_null(ha_cuda_meters_open(bus_id));
    setenv("HABENCH_NVML", beside("fake_cupti.so"), 1); /* a library, but not this one */
    assert_null(ha_cuda_meters_open(bus_id));
    setenv("HABENCH_NVML", "off", 1);
    assert_null(ha_cuda_meters_open(bus_id));
#ifdef HA_CUDA_EMULATED
    unsetenv("HABENCH_NVML");
    assert_null(ha_cuda_meters_open(bus_id));
#endif
    ha_cuda_meters_close(NULL);
}

/* ---- facts ---- */

static char *facts_of(struct ha_cuda_meters *m, size_t room)
{
    static char text[4096];
    struct ha_device_fact fact[HA_DEVICE_FACTS_MOST];
    struct ha_cuda_facts list = { fact, room, 0 };
    size_t n = 0;
    *text = 0;
    ha_cuda_meters_facts(m, &list);
    assert_true(list.count <= room);
    for (size_t i = 0; i < list.count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s=%s\n", fact[i].name, fact[i].value);
    return text;
}

TEST(facts_are_said)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    fake->ecc = fake->rows_failed = 1;
    fake->ecc_errors[0] = 12;
    fake->ecc_errors[1] = 3;
    fake->power_limit_mW = 350500;
    fake->busy_percent = 97;
    fake->processes = 3;
    assert_string_equal(facts_of(m, HA_DEVICE_FACTS_MOST),
                        "busy_percent=97\ndriver=575.57.08\necc=on\necc_pending=off\necc_corrected=12\n"
                        "ecc_uncorrected=3\nrows_pending=no\nrows_failed=yes\npersistence=off\nmig=off\n"
                        "power_limit_W=350.5\npower_default_W=700\nlink_gen_device=6\nprocess=4000 0\n"
                        "process=4001 ?\nprocess=4002 2147483648\n");
    fake->processes = 0;
    fake->ecc = 0;
    fake->ecc_pending = fake->rows_pending = fake->persistence = 1;
    fake->rows_failed = 0;
    assert_contains(facts_of(m, HA_DEVICE_FACTS_MOST), "ecc=off\necc_pending=on\n");
    assert_contains(facts_of(m, HA_DEVICE_FACTS_MOST), "rows_pending=yes\nrows_failed=no\npersistence=on\n");
    assert_null(strstr(facts_of(m, HA_DEVICE_FACTS_MOST), "process"));
    assert_string_equal(facts_of(m, 2), "busy_percent=97\ndriver=575.57.08\n"); /* no more than there is room for */
    ha_cuda_meters_close(m);
}

/* A driver that does not say who is there is not one where nobody is. */
TEST(facts_that_cannot_be_read_are_none)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    fake->processes = 1000; /* more than is asked for */
    assert_contains(facts_of(m, HA_DEVICE_FACTS_MOST), "link_gen_device=6\nprocess=?\n");
    for (size_t i = 0; i < COUNT(statuses); i++) {
        fake->fails = statuses[i];
        assert_string_equal(facts_of(m, HA_DEVICE_FACTS_MOST), "process=?\n");
    }
    ha_cuda_meters_close(m);
    assert_string_equal(facts_of(NULL, HA_DEVICE_FACTS_MOST), "");
}

/* In parts: of the whole device the driver does not say how busy it is, nor to everybody who is on it. */
TEST(facts_of_a_device_in_parts)
{
    struct fake_nvml *fake = use("fake_nvml.so");
    struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
    fake->mig = fake->limited = 1;
    assert_null(strstr(facts_of(m, HA_DEVICE_FACTS_MOST), "busy_percent"));
    assert_contains(facts_of(m, HA_DEVICE_FACTS_MOST), "mig=on\n");
    assert_contains(facts_of(m, HA_DEVICE_FACTS_MOST), "process=?\n");
    ha_cuda_meters_close(m);
}

TEST(processes_of_every_driver)
{
    static const char *const library[] = { "fake_nvml.so", "fake_nvml_older.so" };
    static const size_t bytes[] = { 16, 24, 32 };
    for (size_t i = 0; i < COUNT(library) * COUNT(bytes); i++) {
        struct fake_nvml *fake = use(library[i % COUNT(library)]);
        struct ha_cuda_meters *m = ha_cuda_meters_open(bus_id);
        fake->process_bytes = bytes[i / COUNT(library)];
        for (fake->processes = 0; fake->processes < 40; fake->processes++) {
            char want[2048] = "", bytes_of[32];
            for (unsigned p = 0; p < fake->processes; p++) {
                snprintf(bytes_of, sizeof bytes_of, "%llu", (unsigned long long)p << 30);
                snprintf(want + strlen(want), sizeof want - strlen(want), "process=%u %s\n", 4000 + p,
                         p == 1 ? "?" : bytes_of);
            }
            const char *got = strstr(facts_of(m, HA_DEVICE_FACTS_MOST), "process=");
            assert_string_equal(got ? got : "", want);
        }
        ha_cuda_meters_close(m);
    }
}
