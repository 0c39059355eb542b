#include "harness/base/clock.h"

#include <time.h>

uint64_t ha_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void ha_date_utc(char out[HA_DATE_UTC])
{
    const time_t now = time(NULL);
    struct tm utc;
    *out = 0;
    if (gmtime_r(&now, &utc)) strftime(out, HA_DATE_UTC, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
