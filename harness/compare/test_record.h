#ifndef HA_COMPARE_TEST_RECORD_H
#define HA_COMPARE_TEST_RECORD_H

/* Records without folders, for tests. */

#include "harness/base/test.h"
#include "harness/compare/compare.h"

#include <math.h>

static struct ha_why why;

static const struct ha_recorded_figure step = { .name = "step_ns", .unit = "ns", .better = HA_LESS },
                                       rate = { .name = "GBps", .unit = "GB/s", .better = HA_MORE };

static inline struct ha_recorded_case *add_case(struct ha_record *r, const char *mode, const char *id)
{
    struct ha_recorded_case *c = ha_record_add_case(r, mode, id);
    assert_non_null(c);
    return c;
}

/* A value, and a verdict of a case that has none in this night. */
static inline void add_value(struct ha_record *r, struct ha_recorded_case *c, const struct ha_recorded_figure *like,
                             size_t process, double value)
{
    const struct ha_observation at = { r->nights - 1, process, value };
    if (c->last_night != r->nights - 1) assert_int_equal(ha_record_add_verdict(r, c, "fake", HA_PASS, "", &why), HA_OK);
    assert_int_equal(ha_record_add_value(r, c, like, at, &why), HA_OK);
}

static inline void begin(struct ha_record *r, const char *name)
{
    assert_int_equal(ha_record_begin(r, name, &why), HA_OK);
}

static inline void begin_night(struct ha_record *r, const char *name)
{
    assert_int_equal(ha_record_add_night(r, name, &why), HA_OK);
}

#endif
