#include "harness/doctor/files.h"

#include "harness/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_OF(path, root, format)                                                                          \
    char path[HA_FILES_PATH];                                                                                \
    do {                                                                                                     \
        va_list args_;                                                                                       \
        const int n_ = snprintf(path, sizeof path, "%s", root);                                              \
        va_start(args_, format);                                                                             \
        if (n_ >= 0 && n_ < (int)sizeof path) vsnprintf(path + n_, sizeof path - (size_t)n_, format, args_); \
        va_end(args_);                                                                                       \
    } while (0)

static char *trim(char *text)
{
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) text[--n] = 0;
    return text + strspn(text, " \t");
}

static bool prints(const char *text)
{
    char blank[HA_FILES_LINE], clean[HA_FILES_LINE];
    snprintf(blank, sizeof blank, "%s", text);
    for (char *at = blank; *at; at++)
        if (*at == '\t') *at = ' ';
    snprintf(clean, sizeof clean, "%s", blank);
    return !strcmp(ha_text_clean(clean), blank);
}

/* The first line that begins with the key, whole and without what is around it. */
static bool line_of(const char *path, const char *key, char out[HA_FILES_LINE])
{
    char line[HA_FILES_LINE];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) found = !strncmp(line, key, strlen(key));
    fclose(f);
    if (!found || (strlen(line) == sizeof line - 1 && line[sizeof line - 2] != '\n')) return false;
    snprintf(out, HA_FILES_LINE, "%s", trim(line + strlen(key)));
    return prints(out);
}

static bool text_of(const char *path, const char *key, char *out, size_t size)
{
    char line[HA_FILES_LINE];
    if (!line_of(path, key, line)) return false;
    const char *value = line;
    if (*key && *value == ':') value += 1 + strspn(value + 1, " \t");
    return *value && (size_t)snprintf(out, size, "%s", value) < size;
}

bool ha_file_word(char *out, size_t size, const char *root, const char *format, ...)
{
    PATH_OF(path, root, format);
    return text_of(path, "", out, size);
}

bool ha_file_field(char *out, size_t size, const char *key, const char *root, const char *format, ...)
{
    PATH_OF(path, root, format);
    return text_of(path, key, out, size);
}

bool ha_text_number(double *out, const char *text, const char *behind)
{
    char *end;
    const double most = 0x1p63;
    /* nor "inf", "nan", a blank or "0x7f", all of which strtod takes */
    if (!isdigit((unsigned char)text[text[0] == '-']) || text[strspn(text, "-0")] == 'x') return false;
    const double x = strtod(text, &end);
    end += strspn(end, " \t");
    if (*end && !(behind && !strcmp(end, behind))) return false;
    if (!(fabs(x) <= most)) return false;
    *out = x;
    return true;
}

bool ha_file_number(double *out, const char *root, const char *format, ...)
{
    char text[64];
    PATH_OF(path, root, format);
    return text_of(path, "", text, sizeof text) && ha_text_number(out, text, NULL);
}

bool ha_list_parse(const char *text, bool out[HA_CORES_MOST])
{
    memset(out, 0, HA_CORES_MOST * sizeof *out);
    for (const char *at = text; *at;) {
        char *end;
        if (!isdigit((unsigned char)*at)) return false;
        const unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1])) return false;
            last = strtoul(end + 1, &end, 10);
        }
        if (last < first || last >= HA_CORES_MOST || (*end && *end != ',') || (*end == ',' && !end[1])) return false;
        for (unsigned long i = first; i <= last; i++) out[i] = true;
        at = *end ? end + 1 : end;
    }
    return true;
}

bool ha_file_list(bool out[HA_CORES_MOST], const char *root, const char *format, ...)
{
    char line[HA_FILES_LINE];
    PATH_OF(path, root, format);
    return line_of(path, "", line) && ha_list_parse(line, out);
}

bool ha_file_there(const char *root, const char *format, ...)
{
    PATH_OF(path, root, format);
    return access(path, F_OK) == 0;
}

void ha_list_text(char *out, size_t size, const bool in[HA_CORES_MOST])
{
    size_t n = 0;
    *out = 0;
    for (size_t i = 0, last; i < HA_CORES_MOST && n < size; i = last + 1) {
        last = i;
        if (!in[i]) continue;
        while (last + 1 < HA_CORES_MOST && in[last + 1]) last++;
        n += (size_t)(last > i ? snprintf(out + n, size - n, "%s%zu-%zu", n ? "," : "", i, last)
                               : snprintf(out + n, size - n, "%s%zu", n ? "," : "", i));
    }
}

size_t ha_list_count(const bool in[HA_CORES_MOST])
{
    size_t n = 0;
    for (size_t i = 0; i < HA_CORES_MOST; i++) n += in[i];
    return n;
}
