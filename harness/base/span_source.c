#include "harness/base/span_source.h"

#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* as the environment asks for it, and as a device says it */
static const struct {
    const char *asked, *spans;
} sources[] = {
    [HA_SPANS_ANY] = { "", "" },
    [HA_SPANS_CUPTI] = { "cupti", "CUPTI" },
    [HA_SPANS_EVENTS] = { "events", "CUDA events" },
};

enum ha_status ha_span_source(enum ha_span_source *source, struct ha_why *why)
{
    const char *asked = getenv("HABENCH_TRACE");
    *source = HA_SPANS_ANY;
    for (size_t i = 0; asked && i < sizeof sources / sizeof *sources; i++) {
        if (strcmp(asked, sources[i].asked) != 0) continue;
        *source = (enum ha_span_source)i;
        asked = NULL;
    }
    return asked ? ha_why(why, HA_ERROR, "HABENCH_TRACE=%.40s: neither cupti nor events", asked) : HA_OK;
}

bool ha_span_source_warn(const char *device, const char *spans)
{
    enum ha_span_source asked;
    struct ha_why unused;
    if (ha_span_source(&asked, &unused) != HA_OK || !strncmp(spans, sources[asked].spans, strlen(sources[asked].spans)))
        return false;
    fprintf(stderr, "warning: HABENCH_TRACE is not for device %s: its spans are stamped by %s\n", device,
            *spans ? spans : "nobody");
    return true;
}
