#ifndef HA_BASE_CLOCK_H
#define HA_BASE_CLOCK_H

#include "harness/api/base.h"

/* CLOCK_MONOTONIC_RAW, nanoseconds */
uint64_t ha_now_ns(void);

/* Now, in UTC: "2026-11-27T04:00:00Z" */
enum { HA_DATE_UTC = 32 };
void ha_date_utc(char out[HA_DATE_UTC]);

#endif
