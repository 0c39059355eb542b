#ifndef HA_DOCTOR_FILES_H
#define HA_DOCTOR_FILES_H

/* Files of the system, of which every kind of damage is "cannot be read": a number that is none, a list cut short,
 * bytes that do not print. Paths are formats; root stands before them. */

#include "harness/measure/disturbed.h"

#include <stdbool.h>
#include <stddef.h>

enum { HA_FILES_PATH = 1024, HA_FILES_LINE = 1024 };

/* The first line, without blanks around it. False: there is none, it is longer than size, empty, or does not print. */
bool ha_file_word(char *out, size_t size, const char *root, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* What follows the key, blanks and a ':' in the first line that begins with it. */
bool ha_file_field(char *out, size_t size, const char *key, const char *root, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The first line is a number, of at most 2^63. */
bool ha_file_number(double *out, const char *root, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The first line lists numbers, as "0-3,8"; an empty line lists none. Those of HA_CORES_MOST and above are damage. */
bool ha_file_list(bool out[HA_CORES_MOST], const char *root, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool ha_file_there(const char *root, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* a number and nothing behind it but, where it is not NULL, this */
bool ha_text_number(double *out, const char *text, const char *behind);
bool ha_list_parse(const char *text, bool out[HA_CORES_MOST]);
/* "0-3,8"; at most size */
void ha_list_text(char *out, size_t size, const bool in[HA_CORES_MOST]);
size_t ha_list_count(const bool in[HA_CORES_MOST]);

#endif
