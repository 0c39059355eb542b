#include "harness/base/span_source.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

enum ha_status ha_span_source(enum ha_span_source *source, struct ha_why *why)
{
    const char *asked = getenv("HABENCH_TRACE");
    *source = HA_SPANS_ANY;
    if (!asked || !*asked) return HA_OK;
    if (!strcmp(asked, "cupti")) *source = HA_SPANS_CUPTI;
    else if (!strcmp(asked, "events")) *source = HA_SPANS_EVENTS;
    else return ha_why(why, HA_ERROR, "HABENCH_TRACE=%.40s: neither cupti nor events", asked);
    return HA_OK;
}
