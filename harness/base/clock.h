#ifndef HA_BASE_CLOCK_H
#define HA_BASE_CLOCK_H

#include "harness/api/base.h"

/* CLOCK_MONOTONIC_RAW, nanoseconds */
uint64_t ha_now_ns(void);

/* A counter of the CPU that runs at one rate, read by an instruction, so that no other clock_gettime stands before it;
 * 0: this CPU has none. */
uint64_t ha_ticks(void);

/* Now, in UTC: "2026-11-27T04:00:00Z" */
enum { HA_DATE_UTC = 32 };
void ha_date_utc(char out[HA_DATE_UTC]);

#endif
