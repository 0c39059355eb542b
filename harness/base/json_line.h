#ifndef HA_BASE_JSON_LINE_H
#define HA_BASE_JSON_LINE_H

/* JSON lines: a row is made member by member, and printed as one line. */

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

/* A string: a byte that is not UTF-8, which JSON cannot hold, is '?'. The caller's; NULL: no memory. */
json_t *ha_json_text(const char *text);
/* Members of a row. NULL is null. */
void ha_json_set_text(json_t *row, const char *name, const char *text);
void ha_json_set_count(json_t *row, const char *name, size_t count);
/* Left out where it is no number. */
void ha_json_set_number(json_t *row, const char *name, double x);
/* Prints the row, and frees it. */
void ha_json_put_line(FILE *out, json_t *row);

#endif
