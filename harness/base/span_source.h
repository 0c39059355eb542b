#ifndef HA_BASE_SPAN_SOURCE_H
#define HA_BASE_SPAN_SOURCE_H

/* Where the spans of a device come from, as the environment's HABENCH_TRACE asks: `cupti` or `events`, or whichever is
 * to be had. */

#include "harness/api/base.h"

enum ha_span_source { HA_SPANS_ANY, HA_SPANS_CUPTI, HA_SPANS_EVENTS };
/* HA_ERROR: another word */
enum ha_status ha_span_source(enum ha_span_source *source, struct ha_why *why);
/* Where the spans of a device are stamped by another source than is asked for, says so on stderr and returns true. */
bool ha_span_source_warn(const char *device, const char *spans);

#endif
