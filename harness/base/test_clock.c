#include "harness/base/clock.h"
#include "harness/base/test.h"

#include <stdlib.h>
#include <time.h>

TEST(never_goes_back_and_is_fine)
{
    uint64_t first = ha_now_ns(), last = first, steps = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = ha_now_ns();
        assert_true(now >= last);
        steps += now != last;
        last = now;
    }
    assert_true(steps > 100);
}

static uint64_t raw_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

TEST(is_the_raw_monotonic_clock)
{
    uint64_t before = raw_ns(), now = ha_now_ns(), after = raw_ns();
    assert_true(now >= before && now <= after);
}

TEST(a_date_is_of_now_and_in_utc)
{
    char date[HA_DATE_UTC];
    struct tm said = { 0 };
    setenv("TZ", "EST5", 1);
    tzset();
    const time_t before = time(NULL);
    ha_date_utc(date);
    const time_t after = time(NULL);
    const char *end = strptime(date, "%Y-%m-%dT%H:%M:%SZ", &said);
    assert_true(end && !*end);
    assert_in_range(timegm(&said), before, after);
    unsetenv("TZ");
}
