#include "suites/parts/listed.h"

#include "harness/base/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum ha_status ha_list_refuse(const struct ha_context *ctx, struct ha_why *why, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!strcmp(ctx->api->kind, "null"))
        return ha_why(why, HA_WAIVED, "a device of the kind null makes no lists to go by: %s", text);
    return ha_why(why, HA_ERROR, "%s", text);
}

enum ha_status ha_list_check(const struct ha_context *ctx, const char *what, const uint32_t *entry, size_t count,
                             size_t most, size_t end, struct ha_why *why)
{
    if (count > most)
        return ha_list_refuse(ctx, why, "%s: a list of %zu, of which there are at most %zu", what, count, most);
    for (size_t i = 0; i < count; i++)
        if (entry[i] >= end)
            return ha_list_refuse(ctx, why, "%s: entry %zu of a list is %u, of %zu", what, i, (unsigned)entry[i], end);
    return HA_OK;
}
