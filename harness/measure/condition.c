#include "harness/measure/condition.h"

#include "harness/base/clock.h"
#include "harness/base/why.h"
#include "harness/measure/ceilings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct ha_condition ha_condition_none(void)
{
    const double nan = (double)NAN;
    return (struct ha_condition){ .sm_clock_MHz = nan,
                                  .memory_clock_MHz = nan,
                                  .link_gen = nan,
                                  .link_width = nan,
                                  .temperature_C = nan,
                                  .power_W = nan,
                                  .energy_step_J = nan,
                                  .before_J = nan };
}

static bool has(const char *reasons, const char *reason, size_t length)
{
    for (const char *at = strstr(reasons, reason); at; at = strstr(at + 1, reason))
        if ((at == reasons || (at - reasons >= 2 && at[-2] == ',')) && (at[length] == ',' || !at[length])) return true;
    return false;
}

/* "none" stands as long as there is no reason; what finds no room is left out. */
static void add_reasons(char *all, size_t size, const char *more)
{
    static const char none[] = "none", comma[] = ", ";
    if (!*more) return;
    if (!*all) snprintf(all, size, "%s", none);
    for (const char *at = more, *end; *at; at = end + strspn(end, comma)) {
        char reason[sizeof((struct ha_condition *)0)->throttle];
        end = at + strcspn(at, ",");
        snprintf(reason, sizeof reason, "%.*s", (int)(end - at), at);
        if (!strcmp(reason, none) || has(all, reason, strlen(reason))) continue;
        if (!strcmp(all, none)) *all = 0;
        if (strlen(all) + strlen(comma) + strlen(reason) >= size) continue;
        if (*all) strcat(all, comma);
        strcat(all, reason);
    }
}

void ha_condition_begin(struct ha_condition *c, const struct ha_device_api *api, struct ha_device *device)
{
    c->before_ns = ha_now_ns();
    c->before_J = api->meters ? ha_meters_read(api, device, false).energy_J : (double)NAN;
}

void ha_condition_end(struct ha_condition *c, const struct ha_device_api *api, struct ha_device *device, size_t steps)
{
    if (!api->meters) return;
    const struct ha_device_meters m = ha_meters_read(api, device, false);

    c->readings++;
    c->sm_clock_MHz = fmin(c->sm_clock_MHz, m.sm_clock_MHz);
    c->memory_clock_MHz = fmin(c->memory_clock_MHz, m.memory_clock_MHz);
    c->link_gen = fmin(c->link_gen, m.link_gen);
    c->link_width = fmin(c->link_width, m.link_width);
    c->temperature_C = fmax(c->temperature_C, m.temperature_C);
    c->power_sum_W += m.power_W;
    c->power_W = c->power_sum_W / (double)c->readings;
    add_reasons(c->throttle, sizeof c->throttle, m.throttle);

    const double used_J = m.energy_J - c->before_J;
    if (!(used_J > 0)) c->still = true;
    c->elapsed_s += (double)(ha_now_ns() - c->before_ns) * 1e-9;
    c->energy_J += used_J;
    c->steps += steps;
    c->energy_step_J = c->still ? (double)NAN : c->energy_J / (double)c->steps;
}

enum ha_status ha_condition_agrees(const struct ha_condition *c, struct ha_why *why)
{
    /* a reading of the power is of a moment, or the mean of the second before it */
    static const double factor_most = 5;
    const double mean_W = c->energy_J / c->elapsed_s, factor = mean_W / c->power_W;
    if (!c->readings || c->still || !(c->power_W > 0) || !isfinite(mean_W)) return HA_OK;
    if (factor < factor_most && factor > 1 / factor_most) return HA_OK;
    return ha_why(why, HA_FAIL,
                  "the device's meters contradict each other: %.3g J in %.3g s are %.3g W, and its power was %.3g W",
                  c->energy_J, c->elapsed_s, mean_W, c->power_W);
}
