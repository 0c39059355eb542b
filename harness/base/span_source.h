#ifndef HA_BASE_SPAN_SOURCE_H
#define HA_BASE_SPAN_SOURCE_H

/* Where the spans of a device come from, as the environment's HABENCH_TRACE asks: `cupti` or `events`, or whichever is
 * to be had. */

#include "harness/api/base.h"

enum ha_span_source { HA_SPANS_ANY, HA_SPANS_CUPTI, HA_SPANS_EVENTS };
/* HA_ERROR: another word */
enum ha_status ha_span_source(enum ha_span_source *source, struct ha_why *why);
/* false: the spans of a device are stamped by this, and another source is asked for */
bool ha_span_source_heeded(const char *spans);

#endif
