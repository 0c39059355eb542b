#include "harness/base/json_line.h"

#include "harness/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *ha_json_text(const char *text)
{
    json_t *string = json_string(text);
    char *clean = string ? NULL : strdup(text);
    if (clean) string = json_string(ha_text_clean(clean));
    free(clean);
    return string;
}

void ha_json_set_text(json_t *row, const char *name, const char *text)
{
    json_object_set_new(row, name, text ? ha_json_text(text) : json_null());
}

void ha_json_set_count(json_t *row, const char *name, size_t count)
{
    json_object_set_new(row, name, json_integer((json_int_t)count));
}

void ha_json_set_number(json_t *row, const char *name, double x)
{
    if (isfinite(x)) json_object_set_new(row, name, json_real(x));
}

void ha_json_put_line(FILE *out, json_t *row)
{
    if (row && json_dumpf(row, out, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0) putc('\n', out);
    json_decref(row);
}
