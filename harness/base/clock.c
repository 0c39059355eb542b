#include "harness/base/clock.h"

#include <time.h>

uint64_t ha_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
#include <cpuid.h>

static bool rate_is_one(void)
{
    static const unsigned power = 0x80000007, invariant_tsc = 1 << 8;
    static _Thread_local signed char is; /* the question may take 100 us in a virtual machine */
    unsigned a, b, c, d = 0;
    if (!is) is = __get_cpuid(power, &a, &b, &c, &d) && (d & invariant_tsc) ? 1 : -1;
    return is > 0;
}
uint64_t ha_ticks(void) { return rate_is_one() ? __builtin_ia32_rdtsc() : 0; }
#elif defined(__aarch64__)
uint64_t ha_ticks(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
uint64_t ha_ticks(void) { return 0; }
#endif

void ha_date_utc(char out[HA_DATE_UTC])
{
    const time_t now = time(NULL);
    struct tm utc;
    *out = 0;
    if (gmtime_r(&now, &utc)) strftime(out, HA_DATE_UTC, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
