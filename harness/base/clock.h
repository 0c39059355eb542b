#ifndef HA_BASE_CLOCK_H
#define HA_BASE_CLOCK_H

#include "harness/api/base.h"

/* CLOCK_MONOTONIC_RAW, nanoseconds */
uint64_t ha_now_ns(void);

#endif
