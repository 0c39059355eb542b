#ifndef HA_ENGINE_TEST_DRIVE_H
#define HA_ENGINE_TEST_DRIVE_H

/* For tests that drive a suite again and again: what was driven last, and what is expected of it. */

#include "harness/base/stop.h"
#include "harness/base/test.h"
#include "harness/engine/drive.h"

static struct ha_why why;
static struct ha_driven driven;

/* a teardown */
static inline int driven_end(void **state)
{
    ha_stop = 0;
    ha_driven_free(&driven);
    return 0;
}

static inline const struct ha_entry *entry(size_t i) { return &driven.results.entry[i]; }
static inline double number(size_t i, const char *column) { return ha_driven_number(&driven, entry(i), column); }

static inline void counted(size_t passed, size_t failed, size_t waived, size_t errors)
{
    const size_t *v = driven.verdict;
    if (v[HA_PASS] != passed || v[HA_VERDICT_FAIL] != failed || v[HA_VERDICT_WAIVED] != waived
        || v[HA_VERDICT_ERROR] != errors)
        fail_msg("%zu passed, %zu failed, %zu waived, %zu errors", v[HA_PASS], v[HA_VERDICT_FAIL], v[HA_VERDICT_WAIVED],
                 v[HA_VERDICT_ERROR]);
}

static inline void says(const char *words) { assert_contains(driven.printed, words); }

#endif
