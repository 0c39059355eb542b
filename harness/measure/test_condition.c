/* The device's state over the passes of a benchmark, from meters that a test turns. */

#include "harness/measure/ceilings.h"
#include "harness/measure/condition.h"
#include "harness/base/test.h"

#include <math.h>

static struct ha_device_meters now;
static int reads;

static void read_now(struct ha_device *device, struct ha_device_meters *out)
{
    assert_false(out->want_link_GBps); /* it takes 40 ms */
    *out = now;
    reads++;
}

static const struct ha_device_api metered = { .meters = read_now }, without = { .meters = NULL };

static void turn(double clock, double temperature, double power, double energy, double gen, const char *throttle)
{
    now = (struct ha_device_meters){ .sm_clock_MHz = clock,
                                     .memory_clock_MHz = 2 * clock,
                                     .temperature_C = temperature,
                                     .power_W = power,
                                     .energy_J = energy,
                                     .link_gen = gen,
                                     .link_width = 4 * gen };
    snprintf(now.throttle, sizeof now.throttle, "%s", throttle);
}

/* one pass of ten steps, between two readings of the counter */
static void pass(struct ha_condition *c, double before_J, double after_J)
{
    now.energy_J = before_J;
    ha_condition_begin(c, &metered, NULL);
    now.energy_J = after_J;
    ha_condition_end(c, &metered, NULL, 10);
}

TEST(the_worst_of_all_readings_stands)
{
    struct ha_condition c = ha_condition_none();
    turn(1900, 50, 300, 0, 5, "none");
    pass(&c, 100, 130);
    assert_string_equal(c.throttle, "none");
    turn(1700, 65, 500, 0, 3, "power cap");
    pass(&c, 200, 250);
    turn(1800, 60, 400, 0, 5, "software thermal, power cap");
    pass(&c, 300, 340);
    assert_int_equal(c.readings, 3);
    assert_near(c.sm_clock_MHz, 1700, 1e-12);
    assert_near(c.memory_clock_MHz, 3400, 1e-12);
    assert_near(c.link_gen, 3, 1e-12);
    assert_near(c.link_width, 12, 1e-12);
    assert_near(c.temperature_C, 65, 1e-12);
    assert_near(c.power_W, 400, 1e-12);
    assert_near(c.energy_step_J, 4, 1e-12);
    assert_string_equal(c.throttle, "power cap, software thermal");
    turn(1800, 60, 400, 0, 5, "none");
    pass(&c, 400, 440);
    assert_string_equal(c.throttle, "power cap, software thermal"); /* it was held down, whatever came later */
}

TEST(energy_needs_a_counter_that_moves)
{
    struct ha_condition c = ha_condition_none();
    turn(1900, 50, 300, 0, 5, "none");
    pass(&c, 100, 130);
    pass(&c, 130, 130); /* too short to be seen */
    pass(&c, 130, 190);
    assert_true(isnan(c.energy_step_J));
    c = ha_condition_none();
    pass(&c, (double)NAN, (double)NAN);
    assert_true(isnan(c.energy_step_J));
    assert_near(c.power_W, 300, 1e-12);
}

TEST(without_meters_everything_is_empty)
{
    struct ha_condition c = ha_condition_none();
    struct ha_device_meters m = ha_meters_read(&without, NULL, true);
    ha_condition_begin(&c, &without, NULL);
    ha_condition_end(&c, &without, NULL, 10);
    assert_true(isnan(c.sm_clock_MHz) && isnan(c.memory_clock_MHz) && isnan(c.temperature_C) && isnan(c.power_W)
                && isnan(c.energy_step_J) && isnan(c.link_gen) && isnan(c.link_width));
    assert_string_equal(c.throttle, "");
    assert_true(isnan(m.sm_clock_MHz) && isnan(m.link_rx_GBps) && isnan(m.energy_J) && !*m.throttle && !*m.bus_id);
}

TEST(reasons_are_told_apart)
{
    struct ha_condition c = ha_condition_none();
    turn(1, 1, 1, 0, 1, "hardware thermal");
    pass(&c, 0, 1);
    turn(1, 1, 1, 0, 1, "thermal, hardware"); /* words that stand within others */
    pass(&c, 0, 1);
    assert_string_equal(c.throttle, "hardware thermal, thermal, hardware");
    for (int i = 0; i < 40; i++) { /* more than there is room for */
        char reason[32];
        snprintf(reason, sizeof reason, "reason %d", i);
        turn(1, 1, 1, 0, 1, reason);
        pass(&c, 0, 1);
    }
    assert_true(strlen(c.throttle) < sizeof c.throttle && strlen(c.throttle) > 80);
    assert_true(reads > 0);
}
