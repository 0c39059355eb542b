#include "harness/base/why.h"
#include "harness/program/report_parts.h"
#include "harness/program/spawned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static enum ha_status compare(char *const *argv, FILE **rows, char note[512], struct ha_why *why)
{
    char last[HA_SPAWNED_LINE];
    int code;
    FILE *file = tmpfile();
    if (!file) return ha_why(why, HA_ERROR, "no temporary file: %s", strerror(errno));
    const enum ha_status status = ha_spawned_run(argv, fileno(file), &code, last, why);
    fseek(file, 0, SEEK_END);
    if (status == HA_OK && ftell(file) > 0) {
        rewind(file);
        *rows = file;
        return HA_OK;
    }
    fclose(file);
    const char *said = strncmp(last, "habench: ", 9) ? last : last + 9;
    if (*said) snprintf(note, 512, "%s", said);
    else snprintf(note, 512, "compare printed nothing, and exited with %d", code);
    return status;
}

enum ha_status ha_report_compare(const struct ha_options *o, FILE **rows, char note[512], struct ha_why *why)
{
    char self[] = "/proc/self/exe", command[] = "compare", format[] = "--format=json", end[] = "--", newest[PATH_BYTES];
    *rows = NULL;
    *note = 0;
    if (o->machines) {
        char fleet[] = "--fleet", against[] = "--against";
        char *argv[] = { self,
                         command,
                         format,
                         fleet,
                         (char *)(uintptr_t)o->machines,
                         o->against ? against : NULL,
                         (char *)(uintptr_t)o->against,
                         NULL };
        return compare(argv, rows, note, why);
    }
    const bool nights = o->words_count == 1 && ha_newest_night(o->words[0], newest);
    if (o->words_count == 1 && !nights) return HA_OK;
    char **argv = calloc(o->words_count + 7, sizeof *argv);
    if (!argv) return ha_why(why, HA_ERROR, "out of memory");
    size_t n = 0;
    argv[n++] = self;
    argv[n++] = command;
    argv[n++] = format;
    argv[n++] = end;
    for (size_t i = 0; i < o->words_count; i++) argv[n++] = o->words[i];
    if (nights) argv[n++] = newest;
    const enum ha_status status = compare(argv, rows, note, why);
    free(argv);
    return status;
}
