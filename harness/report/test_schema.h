#ifndef HA_REPORT_TEST_SCHEMA_H
#define HA_REPORT_TEST_SCHEMA_H

/* As much of JSON Schema as results/schema uses. */

#include "harness/base/test.h"

#include <jansson.h>

static inline bool test_schema_is_type(const json_t *j, const json_t *type)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array",  [JSON_STRING] = "string", [JSON_INTEGER] = "integer",
        [JSON_REAL] = "number",   [JSON_TRUE] = "boolean", [JSON_FALSE] = "boolean", [JSON_NULL] = "null",
    };
    if (!type) return true;
    if (json_is_string(type)) {
        const char *want = json_string_value(type), *is = names[json_typeof(j)];
        return !strcmp(want, is) || (!strcmp(want, "number") && !strcmp(is, "integer"));
    }
    size_t i;
    json_t *one;
    json_array_foreach(type, i, one) if (test_schema_is_type(j, one)) return true;
    return false;
}

static inline bool test_schema_is_one_of(const json_t *j, const json_t *values)
{
    size_t i;
    json_t *one;
    json_array_foreach(values, i, one) if (json_equal(j, one)) return true;
    return !values;
}

/* where: "" or the path so far, behind which the first violation is written. */
static inline bool test_schema_fits(const json_t *j, const json_t *schema, char where[256])
{
    const json_t *properties = json_object_get(schema, "properties"), *items = json_object_get(schema, "items"),
                 *more = json_object_get(schema, "additionalProperties"), *either = json_object_get(schema, "oneOf");
    const char *key;
    json_t *value;
    size_t i;
    const size_t used = strlen(where);
    /* the alternatives are rows of different names: what is said is of the one that has the row's */
    json_array_foreach(either, i, value)
    {
        where[used] = 0;
        if (test_schema_fits(j, value, where)) return true;
        if (strcmp(where + used, "/row has another value") != 0) return false;
    }
    if (either) return false;
    if (!test_schema_is_type(j, json_object_get(schema, "type"))) {
        strcat(where, " has another type");
        return false;
    }
    if (!test_schema_is_one_of(j, json_object_get(schema, "enum"))) {
        strcat(where, " has another value");
        return false;
    }
    void *at = json_object_iter((json_t *)(uintptr_t)j);
    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)j, at)) {
        key = json_object_iter_key(at);
        const json_t *of = json_object_get(properties, key);
        snprintf(where + used, 256 - used - 40, "/%.60s", key);
        if (!of && json_is_false(more)) {
            strcat(where, " is unknown");
            return false;
        }
        if (!of) of = more;
        if (of && !test_schema_fits(json_object_iter_value(at), of, where)) return false;
    }
    json_array_foreach(j, i, value)
    {
        snprintf(where + used, 256 - used - 40, "/%zu", i);
        if (items && !test_schema_fits(value, items, where)) return false;
    }
    where[used] = 0;
    json_array_foreach(json_object_get(schema, "required"), i, value)
    {
        if (json_is_object(j) && !json_object_get(j, json_string_value(value))) {
            sprintf(where + used, " lacks %.60s", json_string_value(value));
            return false;
        }
    }
    return true;
}

static inline json_t *test_schema_load(const char *name)
{
    json_error_t error;
    json_t *j = json_load_file(name, 0, &error);
    if (!j) fail_msg("%s: %s", name, error.text);
    return j;
}

/* Each line of a text; the first violation with the line's number. Returns how many lines there are. */
static inline size_t test_schema_lines(const char *text, const json_t *schema)
{
    size_t lines = 0;
    for (const char *line = text, *end; *line; line = end + 1) {
        char where[256] = "";
        end = strchr(line, '\n');
        if (!end) fail_msg("line %zu does not end", lines + 1);
        json_t *j = json_loadb(line, (size_t)(end - line), 0, NULL);
        lines++;
        if (!j) fail_msg("line %zu is no JSON", lines);
        if (!test_schema_fits(j, schema, where)) fail_msg("line %zu: %s", lines, where);
        json_decref(j);
    }
    return lines;
}

#endif
