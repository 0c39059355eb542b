#ifndef HA_BASE_FLAG_H
#define HA_BASE_FLAG_H

/* Flags in mapped memory that a host thread reads and writes: what is behind a flag is known to the history of this
 * process, too (harness/base/order.h). */

#include "harness/base/order.h"

/* Whether the flag is at least that: flags grow, and what is compared is less than 2^31 apart. Once it is, the caller
 * is behind what was before the write. */
static inline bool ha_flag_is(const uint32_t *flag, uint32_t at_least)
{
    if ((int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - at_least) < 0) return false;
    ha_order_thread_await(flag, at_least);
    return true;
}

static inline void ha_flag_set(uint32_t *flag, uint32_t value)
{
    ha_order_thread_signal(flag, value);
    __atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

#endif
