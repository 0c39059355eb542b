/* What counts as disturbed, from counters that are given: nothing here looks at the machine or at a clock. */

#define _GNU_SOURCE /* sched_getaffinity */
#include "harness/measure/disturbed.h"
#include "harness/base/test_folder.h"

#include <math.h>
#include <sched.h>
#include <sys/stat.h>

/* Four seconds on two cores, of which this process used five core seconds. */
static const struct ha_core_counts before = { .wall_ns = 1e9,
                                              .cores = 2,
                                              .busy_ns = 100e9,
                                              .steal_ns = 7e9,
                                              .own_ns = 20e9,
                                              .lost_cores = 50,
                                              .throttled = 3,
                                              .fastest_MHz = 3000 };
static struct ha_core_counts after;

static int quiet(void **state)
{
    after = before;
    after.wall_ns += 4e9;
    after.busy_ns += 5e9;
    after.own_ns += 5e9;
    return 0;
}

static const char *judged(size_t slow, size_t looks, const char *device)
{
    static char out[HA_DISTURBED_MAX];
    ha_disturbed_judge(&before, &after, slow, looks, device, out);
    return out;
}

TEST_WITH(nothing_is_nothing, quiet, NULL)
{
    assert_string_equal(judged(0, 0, ""), "");
    assert_string_equal(judged(2, 20, "none"), "");
    assert_string_equal(judged(0, 20, "application clocks"), "");
}

TEST_WITH(others_are_load, quiet, NULL)
{
    after.busy_ns += 0.39e9; /* of 8 core seconds, 5% are 0.4 */
    assert_string_equal(judged(0, 20, "none"), "");
    after.busy_ns += 0.02e9;
    assert_string_equal(judged(0, 20, "none"), "load");
    after.own_ns += 0.1e9; /* that was our own */
    assert_string_equal(judged(0, 20, "none"), "");
    after.lost_cores += 801; /* but they came often */
    assert_string_equal(judged(0, 20, "none"), "load");
    after.own_ns += 0.24e9; /* threads of this process took cores from each other */
    assert_string_equal(judged(0, 20, "none"), "");
}

/* Ticks of 10 ms say nothing on a short measurement. */
TEST_WITH(a_tick_is_no_load, quiet, NULL)
{
    after.wall_ns = before.wall_ns + 0.1e9;
    after.busy_ns += 0.02e9;
    after.steal_ns += 0.02e9;
    assert_string_equal(judged(0, 20, "none"), "");
    after.busy_ns += 0.02e9;
    after.steal_ns += 0.02e9;
    assert_string_equal(judged(0, 20, "none"), "load, steal");
}

TEST_WITH(each_cause_has_its_name, quiet, NULL)
{
    after.steal_ns += 0.17e9;
    assert_string_equal(judged(0, 20, "none"), "steal");
    after.throttled += 1;
    assert_string_equal(judged(0, 20, "none"), "steal, throttled");
    quiet(NULL);
    after.fastest_MHz = 2600;
    assert_string_equal(judged(0, 20, "none"), "");
    after.fastest_MHz = 2500;
    assert_string_equal(judged(0, 20, "none"), "throttled");
    quiet(NULL);
    assert_string_equal(judged(0, 20, "application clocks, power cap"), "throttled");
    assert_string_equal(judged(5, 20, "none"), "");
    assert_string_equal(judged(6, 20, "none"), "shared");
    after.busy_ns += 4e9;
    after.steal_ns += 4e9;
    assert_string_equal(judged(6, 20, "power cap"), "load, steal, throttled, shared");
}

TEST_WITH(what_cannot_be_read_is_no_cause, quiet, NULL)
{
    const double nan = (double)NAN;
    after = (struct ha_core_counts){ 5e9, nan, nan, nan, nan, nan, nan, nan };
    assert_string_equal(judged(0, 20, ""), "");
}

TEST_WITH(shares_are_the_same_in_numbers, quiet, NULL)
{
    after.busy_ns += 0.8e9; /* of 8 core seconds */
    after.steal_ns += 0.4e9;
    struct ha_disturbed_shares s = ha_disturbed_shares(&before, &after, 6, 20);
    assert_near(s.load, 0.1, 1e-12);
    assert_near(s.steal, 0.05, 1e-12);
    assert_near(s.slow, 0.3, 1e-12);
    after.own_ns += 0.9e9; /* ticks are coarse: this process alone had more than all */
    assert_near(ha_disturbed_shares(&before, &after, 0, 20).load, 0, 0);
    after.steal_ns = after.busy_ns = (double)NAN;
    s = ha_disturbed_shares(&before, &after, 0, 0);
    assert_true(isnan(s.load) && isnan(s.steal) && isnan(s.slow));
}

/* ---- where the counters come from ----------------------------------------------------------- */

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s", test_path(path));
    for (char *at = strchr(full + strlen(test_folder) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(full, 0700);
        *at = '/';
    }
    test_write(path, text, strlen(text));
}

TEST_WITH(counters_are_those_of_own_cores, test_folder_make, test_folder_remove)
{
    struct ha_core_counts c;
    static const char *const damaged[] = { "", "nan\n", "0x7f\n", "-1\n", "2600 MHz\n", "99999999999999999999\n" };
    cpu_set_t mine;
    char text[1024], path[128];
    int core = 0;
    const double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
    ha_core_counts_read(test_folder, &c); /* no file */
    assert_true(isnan(c.busy_ns) && isnan(c.throttled) && isnan(c.fastest_MHz));
    assert_true(c.own_ns > 0 && c.lost_cores >= 0);

    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    while (!CPU_ISSET((size_t)core, &mine)) core++;
    /* the sum, one core of ours, one that no machine gives us */
    snprintf(text, sizeof text,
             "cpu  9999 9999 9999 9999 9999 9999 9999 9999 0 0\ncpu%d 100 20 30 5000 600 7 8 9 0 0\n"
             "cpu%d 1 1 1 1 1 1 1 1 0 0\nintr 12 0 0\nctxt 5\n",
             core, CPU_SETSIZE - 1);
    put("proc/stat", text);
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/thermal_throttle/core_throttle_count", core);
    put(path, "4\n");
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", core);
    put(path, "2600000\n");
    ha_core_counts_read(test_folder, &c);
    bool other[HA_CORES_MOST] = { false };
    struct ha_core_counts others;
    other[CPU_SETSIZE - 1] = true;
    ha_core_counts_of(test_folder, other, &others);
    assert_near(others.busy_ns, 5 * tick_ns, 1);
    assert_near(others.steal_ns, tick_ns, 1);
    assert_true(isnan(others.own_ns) && isnan(others.fastest_MHz));

    assert_near(c.cores, 1, 0);
    assert_near(c.busy_ns, 165 * tick_ns, 1); /* without waiting and idling */
    assert_near(c.steal_ns, 9 * tick_ns, 1);
    assert_near(c.throttled, 4, 0);
    assert_near(c.fastest_MHz, 2600, 1e-9);
    for (size_t i = 0; i < COUNT(damaged); i++) {
        put(path, damaged[i]);
        ha_core_counts_read(test_folder, &c);
        assert_true(isnan(c.fastest_MHz));
    }
}
