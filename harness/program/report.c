#include "harness/program/report_parts.h"

#include "harness/base/file.h"
#include "harness/base/program.h"
#include "harness/base/why.h"
#include "harness/program/spawned.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, FIXED_ARGUMENTS = 14 };
#define SETUP \
    "`scripts/setup.sh --report` in the source tree installs it (installed elsewhere: `ninja install` behind it)"

/* ---- the page ---- */

/* The arguments of scripts/report.py; the page goes to `part`. */
static enum ha_exit write_page(const struct ha_options *o, char *part, FILE *rows, char *note, struct ha_why *why)
{
    char python[] = "python3", script[PATH_BYTES], library[PATH_BYTES], rows_path[64], last[HA_SPAWNED_LINE];
    char option_o[] = "-o", option_rows[] = "--rows", option_why[] = "--why", option_library[] = "--library",
         option_fleet[] = "--fleet", option_named[] = "--named", end[] = "--";
    int code;
    if (!ha_program_beside(script, PATH_BYTES, "scripts/report.py", "share/habench/scripts/report.py")) {
        ha_why(why, HA_ERROR, "scripts/report.py is not beside the program: `ninja install` puts it there");
        return HA_EXIT_ENVIRONMENT;
    }
    if (!ha_program_beside(library, PATH_BYTES, "build/report/vega.js", "lib/habench/report/vega.js")) {
        ha_why(why, HA_ERROR,
               "the page needs a plotting library, which is not here: " SETUP
               "; --format md and --format csv go without");
        return HA_EXIT_ENVIRONMENT;
    }
    *strrchr(library, '/') = 0;
    snprintf(rows_path, sizeof rows_path, "/proc/%d/fd/%d", (int)getpid(), rows ? fileno(rows) : -1);
    char **argv = calloc(o->words_count + FIXED_ARGUMENTS, sizeof *argv);
    if (!argv) {
        ha_why(why, HA_ERROR, "out of memory");
        return HA_EXIT_ENVIRONMENT;
    }
    char *const fixed[] = { python,
                            script,
                            option_o,
                            part,
                            option_library,
                            library,
                            rows ? option_rows : option_why,
                            rows ? rows_path : note };
    char *const of_fleet[] = { option_fleet, option_named, (char *)(uintptr_t)o->out_dir };
    size_t n = 0;
    for (; n < sizeof fixed / sizeof *fixed; n++) argv[n] = fixed[n];
    for (size_t i = 0; o->machines && i < sizeof of_fleet / sizeof *of_fleet; i++) argv[n++] = of_fleet[i];
    argv[n++] = end;
    if (o->machines) argv[n++] = (char *)(uintptr_t)o->machines;
    for (size_t i = 0; i < o->words_count; i++) argv[n++] = o->words[i];
    const enum ha_status status = ha_spawned_run(argv, -1, &code, last, why);
    free(argv);
    if (status != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (code == HA_SPAWNED_NOT_FOUND)
        ha_why(why, HA_ERROR, "the page is made by Python, and there is no python3 here: apt install python3");
    else if (code) ha_why(why, HA_ERROR, "%s", *last ? last : "scripts/report.py failed without a word");
    return code == HA_EXIT_OK || code == HA_EXIT_USAGE || code == HA_EXIT_INTERNAL ? (enum ha_exit)code
                                                                                   : HA_EXIT_ENVIRONMENT;
}

enum ha_status ha_report_are_records(const struct ha_options *o, struct ha_why *why)
{
    if (o->machines && access(o->machines, F_OK) != 0)
        return ha_why(why, HA_ERROR, "%s: there is no such folder", o->machines);
    for (size_t i = 0; i < o->words_count; i++) {
        struct ha_record_paths paths;
        const enum ha_status status = ha_record_paths_find(o->words[i], &paths, why);
        ha_record_paths_free(&paths);
        HA_TRY(status);
    }
    return HA_OK;
}

static enum ha_exit page(const struct ha_options *o, struct ha_why *why)
{
    char part[PATH_BYTES], path[PATH_BYTES], note[512];
    FILE *rows;
    if (ha_report_are_records(o, why) != HA_OK) return HA_EXIT_USAGE;
    if (ha_file_place(part, path, o->out_dir, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (ha_report_compare(o, &rows, note, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    enum ha_exit code = write_page(o, part, rows, note, why);
    if (rows) fclose(rows);
    if (code == HA_EXIT_OK && ha_file_take_name(part, path, why) != HA_OK) code = HA_EXIT_ENVIRONMENT;
    if (code != HA_EXIT_OK) ha_file_drop(part, path);
    return code;
}

/* ---- the other formats ---- */

static enum ha_exit text(const struct ha_options *o,
                         enum ha_exit (*put)(const struct ha_options *, FILE *, struct ha_why *), struct ha_why *why)
{
    struct ha_whole_file file;
    if (!o->out_dir) return put(o, stdout, why);
    if (ha_whole_file_named(&file, o->out_dir, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    const enum ha_exit code = put(o, file.file, why);
    if (code != HA_EXIT_OK && code != HA_EXIT_MISSING) {
        ha_whole_file_drop(&file);
        return code;
    }
    return ha_whole_file_close(&file, why) == HA_OK ? code : HA_EXIT_ENVIRONMENT;
}

enum ha_exit ha_command_report(const struct ha_options *o, struct ha_why *why)
{
    static const struct {
        const char *name;
        enum ha_exit (*put)(const struct ha_options *o, FILE *out, struct ha_why *why); /* NULL: the page */
    } formats[] = {
        { "html", NULL },
        { "md", ha_report_md },
        { "csv", ha_report_csv },
        { "json", ha_report_json },
        { "openmetrics", ha_report_openmetrics },
    };
    const char *format = o->report_format ? o->report_format : "html";
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(format, formats[i].name)) return formats[i].put ? text(o, formats[i].put, why) : page(o, why);
    ha_why(why, HA_ERROR, "--format: '%s' is neither html, md, csv, json nor openmetrics", format);
    return HA_EXIT_USAGE;
}
