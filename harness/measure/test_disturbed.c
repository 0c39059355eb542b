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

#define NO (double)NAN
static const struct {
    /* more than when it is quiet: core seconds, of 8, and counts; wall_s: this instead of 4 */
    double busy_s, steal_s, own_s, lost, throttled, fastest_MHz, wall_s;
    size_t slow, looks;
    const char *device, *causes;
} judged[] = {
    { .device = "", .causes = "" },
    { .slow = 2, .looks = 20, .device = "none", .causes = "" },
    { .looks = 20, .device = "application clocks", .causes = "" },
    { .busy_s = 0.39, .looks = 20, .causes = "" }, /* of 8 core seconds, 5% are 0.4 */
    { .busy_s = 0.41, .looks = 20, .causes = "load" },
    { .busy_s = 0.41, .own_s = 0.1, .looks = 20, .causes = "" },                  /* that was our own, */
    { .busy_s = 0.41, .own_s = 0.1, .lost = 801, .looks = 20, .causes = "load" }, /* but they came often */
    /* threads of this process took cores from each other */
    { .busy_s = 0.41, .own_s = 0.34, .lost = 801, .looks = 20, .causes = "" },
    /* ticks of 10 ms say nothing on a short measurement: 5 core seconds of our own are there in any case */
    { .wall_s = 0.1, .busy_s = 0.02, .steal_s = 0.02, .looks = 20, .causes = "" },
    { .wall_s = 0.1, .busy_s = 0.04, .steal_s = 0.04, .looks = 20, .causes = "load, steal" },
    { .steal_s = 0.17, .looks = 20, .causes = "steal" },
    { .steal_s = 0.17, .throttled = 1, .looks = 20, .causes = "steal, throttled" },
    { .fastest_MHz = -400, .looks = 20, .causes = "" },
    { .fastest_MHz = -500, .looks = 20, .causes = "throttled" },
    { .looks = 20, .device = "application clocks, power cap", .causes = "throttled" },
    { .slow = 5, .looks = 20, .causes = "" },
    { .slow = 6, .looks = 20, .causes = "shared" },
    { .busy_s = 4,
      .steal_s = 4,
      .slow = 6,
      .looks = 20,
      .device = "power cap",
      .causes = "load, steal, throttled, shared" },
    { NO, NO, NO, NO, NO, NO, .looks = 20, .device = "", .causes = "" }, /* what cannot be read is no cause */
};

TEST(each_cause_has_its_name)
{
    for (size_t i = 0; i < COUNT(judged); i++) {
        char out[HA_DISTURBED_MAX];
        quiet(NULL);
        if (judged[i].wall_s > 0) after.wall_ns = before.wall_ns + judged[i].wall_s * 1e9;
        after.busy_ns += judged[i].busy_s * 1e9;
        after.steal_ns += judged[i].steal_s * 1e9;
        after.own_ns += judged[i].own_s * 1e9;
        after.lost_cores += judged[i].lost;
        after.throttled += judged[i].throttled;
        after.fastest_MHz += judged[i].fastest_MHz;
        if (isnan(judged[i].busy_s)) after.cores = NO;
        ha_disturbed_judge(&before, &after, judged[i].slow, judged[i].looks,
                           judged[i].device ? judged[i].device : "none", out);
        if (strcmp(out, judged[i].causes) != 0) fail_msg("%zu: '%s'", i, out);
    }
}

/* A host whose counters cannot be read, or were read for too short a time, is taken for a busy one. */
TEST_WITH(cores_are_our_own_or_not, quiet, NULL)
{
    const struct ha_core_counts alone = after;
    assert_true(ha_had_cores_alone(&before, &after));
    after.busy_ns += 0.41e9;
    assert_false(ha_had_cores_alone(&before, &after));
    after.own_ns += 0.1e9;
    assert_true(ha_had_cores_alone(&before, &after));
    after = alone, after.steal_ns += 0.17e9;
    assert_false(ha_had_cores_alone(&before, &after));
    after = alone, after.busy_ns = NO;
    assert_false(ha_had_cores_alone(&before, &after));
    after = before, after.wall_ns += 0.19e9;
    assert_false(ha_had_cores_alone(&before, &after));
    after.wall_ns += 0.02e9;
    assert_true(ha_had_cores_alone(&before, &after));
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
