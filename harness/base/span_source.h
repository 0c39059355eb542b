#ifndef HA_BASE_SPAN_SOURCE_H
#define HA_BASE_SPAN_SOURCE_H

/* Where the spans of a device come from, as the environment's HABENCH_TRACE asks: `cupti` or `events`, or whichever is
 * to be had. A device that has one source only asks too, so that a wrong word is refused by every one of them. */

#include "harness/api/base.h"

enum ha_span_source { HA_SPANS_ANY, HA_SPANS_CUPTI, HA_SPANS_EVENTS };
enum ha_status ha_span_source(enum ha_span_source *source, struct ha_why *why);

#endif
