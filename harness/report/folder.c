#include "harness/base/array.h"
#include "harness/base/file.h"
#include "harness/base/own_files.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"
#include "harness/report/folder_take.h"
#include "harness/report/row.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void missing_free(const struct ha_folder_missing *m)
{
    ha_folder_entry_free(m->of);
    free(m->reason);
}

/* ---- suites ---------------------------------------------------------------------------------------------------- */

/* the value of the suite's class key, or "" */
static const char *class_of(const struct ha_folder_suite *suite, const struct ha_folder_case *of)
{
    const char *value = suite->class_key == SIZE_MAX ? NULL : of->key_value[suite->class_key];
    return value ? value : "";
}

static enum ha_status prepare_file(struct ha_folder *folder, struct ha_folder_file *file, const char *name,
                                   const struct ha_suite *suite, size_t which, struct ha_why *why)
{
    for (size_t i = 0; i < folder->suites; i++)
        for (size_t f = 0; f < HA_SUITE_FILES; f++)
            if (folder->suite[i].file[f].name && !strcmp(folder->suite[i].file[f].name, name))
                return ha_why(why, HA_ERROR, "%s: two files of this name", name);
    file->name = name;
    if (folder->path) HA_TRY(ha_file_path(file->path, folder->path, name, "", why));
    return ha_columns_make(&file->columns, suite, which, why);
}

static enum ha_status prepare(struct ha_folder *folder, const struct ha_folder_options *options, struct ha_why *why)
{
    folder->suite = calloc(options->suites_count + 1, sizeof *folder->suite);
    if (!folder->suite) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < options->suites_count; i++) {
        const struct ha_suite *suite = options->suites[i];
        struct ha_folder_suite *s = &folder->suite[folder->suites++];
        s->suite = suite;
        s->class_key = SIZE_MAX;
        for (size_t k = 0; k < suite->keys; k++)
            if (suite->class_key && !strcmp(suite->key[k].name, suite->class_key)) s->class_key = k;
        for (size_t f = 0; f < HA_SUITE_FILES; f++)
            if (suite->file[f]) HA_TRY(prepare_file(folder, &s->file[f], suite->file[f], suite, f, why));
    }
    return prepare_file(folder, &folder->figures, "figures.csv", NULL, HA_FIGURES, why);
}

/* ---- open ------------------------------------------------------------------------------------------------------ */

static enum ha_exit go_on(struct ha_folder *folder, struct ha_why *why)
{
    char path[4096];
    if (ha_file_path(path, folder->path, "env.json", "", why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    if (access(path, F_OK) != 0) {
        ha_why(why, HA_ERROR, "-o %s: it has no env.json, so it is not the folder of a run; give another name",
               folder->path);
        return HA_EXIT_USAGE;
    }
    struct ha_why differs;
    enum ha_status status = ha_env_file_resume(folder->env, path, &differs);
    if (status != HA_OK) {
        ha_why(why, HA_ERROR, "-o %s: cannot go on there: %s", folder->path, differs.text);
        return status == HA_FAIL ? HA_EXIT_USAGE : HA_EXIT_ENVIRONMENT;
    }
    status = ha_folder_resume(folder, why);
    if (status == HA_OK) status = ha_folder_trace_resume(folder, why);
    return status == HA_OK ? HA_EXIT_OK : status == HA_FAIL ? HA_EXIT_USAGE : HA_EXIT_ENVIRONMENT;
}

/* Before the files of suites are named, which are in it. */
static enum ha_exit take(struct ha_folder *folder, const struct ha_folder_options *options, struct ha_why *why)
{
    const enum ha_take how = options->resume ? HA_TAKE_RUN : options->next ? HA_TAKE_NEXT : HA_TAKE_NEW;
    struct ha_taken taken;
    if (!options->path) return HA_EXIT_OK;
    const enum ha_exit code = ha_folder_take(&taken, options->path, how, why);
    if (code != HA_EXIT_OK) return code;
    folder->fd = taken.fd;
    folder->found.nothing = taken.nothing;
    folder->path = strdup(taken.path);
    return folder->path ? HA_EXIT_OK : (ha_why(why, HA_ERROR, "out of memory"), HA_EXIT_ENVIRONMENT);
}

static enum ha_exit open_folder(struct ha_folder *folder, const struct ha_folder_options *options, struct ha_why *why)
{
    const struct ha_env_run run = { options->run_id,  options->mode,       options->build,      options->options,
                                    options->command, options->suite_file, options->suite_files };
    struct ha_env env;
    enum ha_exit code;
    if (options->env) env = *options->env;
    else ha_env_read(&env);
    folder->env = ha_env_file_create(&env, &run);
    if (!folder->env) return ha_why(why, HA_ERROR, "out of memory"), HA_EXIT_ENVIRONMENT;
    code = folder->found.nothing ? HA_EXIT_OK : go_on(folder, why);
    if (code == HA_EXIT_OK && ha_env_file_write(folder->env, folder->path, why) != HA_OK) code = HA_EXIT_ENVIRONMENT;
    return code;
}

static void destroy(struct ha_folder *folder)
{
    for (size_t i = 0; i < folder->suites; i++)
        for (size_t f = 0; f < HA_SUITE_FILES; f++) ha_columns_free(&folder->suite[i].file[f].columns);
    ha_columns_free(&folder->figures.columns);
    for (size_t i = 0; i < folder->entries; i++) ha_folder_drop(folder, folder->entry[i]);
    for (size_t i = 0; i < folder->missings; i++) missing_free(&folder->missing[i]);
    if (folder->fd >= 0) ha_own_file_close(folder->fd);
    ha_env_file_destroy(folder->env);
    ha_line_free(&folder->line);
    free(folder->entry);
    free(folder->missing);
    free(folder->suite);
    free(folder->trace.last_id);
    free(folder->exec);
    free(folder->path);
    free(folder);
}

enum ha_exit ha_folder_open(struct ha_folder **out, const struct ha_folder_options *options, struct ha_why *why)
{
    struct ha_folder *folder = calloc(1, sizeof *folder);
    *out = NULL;
    if (!folder) return ha_why(why, HA_ERROR, "out of memory"), HA_EXIT_ENVIRONMENT;
    folder->fd = folder->trace.fd = -1;
    folder->mode = options->mode;
    folder->build = options->build;
    folder->run_id = options->run_id;
    folder->exec = options->exec ? ha_folder_text(options->exec) : NULL;
    enum ha_exit code = take(folder, options, why);
    if (code == HA_EXIT_OK && prepare(folder, options, why) != HA_OK) code = HA_EXIT_INTERNAL;
    if (code == HA_EXIT_OK && folder->path) code = open_folder(folder, options, why);
    if (code == HA_EXIT_OK) *out = folder;
    else destroy(folder);
    return code;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* The file is made, with the names of its columns, when its first line comes. */
static enum ha_status begin_file(struct ha_folder_file *file, struct ha_why *why)
{
    if (file->csv) return HA_OK;
    HA_TRY(ha_csv_open(&file->csv, file->path, !file->there, why));
    if (file->there) return HA_OK;
    const char **name = calloc(file->columns.count, sizeof *name);
    if (!name) return ha_why(why, HA_ERROR, "%s: out of memory", file->path);
    for (size_t i = 0; i < file->columns.count; i++) name[i] = file->columns.at[i].name;
    const enum ha_status status = ha_csv_row(file->csv, name, file->columns.count, why);
    free(name);
    return status;
}

static enum ha_status write_line(struct ha_folder *folder, struct ha_folder_file *file, const struct ha_folder_case *of,
                                 const void *row, const struct ha_field *figure, struct ha_why *why)
{
    enum ha_status status = begin_file(file, why);
    if (status == HA_OK && !ha_line_make(&folder->line, folder, &file->columns, of, row, figure))
        status = ha_why(why, HA_ERROR, "%s: out of memory", file->path);
    if (status == HA_OK) status = ha_csv_row(file->csv, folder->line.field, folder->line.fields, why);
    return status == HA_OK ? HA_OK : ha_folder_fail(folder, why);
}

enum ha_status ha_folder_line(struct ha_folder *folder, const struct ha_folder_case *of, size_t file, const void *row,
                              struct ha_why *why)
{
    struct ha_folder_suite *suite = ha_folder_suite(folder, of->suite);
    HA_TRY(ha_folder_failed(folder, why));
    if (!suite || file == 0 || file >= HA_SUITE_FILES || !suite->file[file].name)
        return ha_why(why, HA_ERROR, "%s: the suite has no file %zu for lines", of->suite->name, file);
    return folder->path ? write_line(folder, &suite->file[file], of, row, NULL, why) : HA_OK;
}

static enum ha_status write_case(struct ha_folder *folder, struct ha_folder_suite *suite,
                                 const struct ha_folder_case *of, const void *row, struct ha_why *why)
{
    for (size_t i = 0; i < ha_fields_all(suite->suite); i++) {
        const struct ha_field *field = ha_field_at(suite->suite, i);
        if (ha_field_figure(field, row)) HA_TRY(write_line(folder, &folder->figures, of, row, field, why));
    }
    for (size_t f = 1; f < HA_SUITE_FILES; f++)
        if (suite->file[f].name && (suite->suite->summary >> f & 1u))
            HA_TRY(write_line(folder, &suite->file[f], of, row, NULL, why));
    return write_line(folder, &suite->file[0], of, row, NULL, why);
}

enum ha_status ha_folder_row(struct ha_folder *folder, const struct ha_folder_case *of, const void *row,
                             struct ha_why *why)
{
    struct ha_folder_suite *suite = ha_folder_suite(folder, of->suite);
    HA_TRY(ha_folder_failed(folder, why));
    if (!suite) return ha_why(why, HA_ERROR, "%s: no suite of this run", of->suite->name);
    if (strlen(of->id) >= HA_ID_MAX) return ha_why(why, HA_ERROR, "%.80s...: the id is too long", of->id);
    if (ha_folder_find(folder, of->id, of->process)) return ha_why(why, HA_ERROR, "%s: it has its row already", of->id);
    struct ha_folder_entry *entry = ha_folder_entry_make(of, class_of(suite, of), row, false);
    if (!entry) return ha_why(why, HA_ERROR, "out of memory for the rows");
    enum ha_status status = ha_folder_is_removed(folder) ? ha_folder_fail(folder, why)
                            : folder->path               ? write_case(folder, suite, of, row, why)
                                                         : HA_OK;
    if (status == HA_OK && (status = ha_folder_add(folder, entry, why)) == HA_OK) return HA_OK;
    ha_folder_entry_free(entry);
    return status;
}

enum ha_status ha_folder_device(struct ha_folder *folder, const struct ha_env_device *device, struct ha_why *why)
{
    HA_TRY(ha_folder_failed(folder, why));
    if (!folder->path) return HA_OK;
    enum ha_status status = ha_env_file_device(folder->env, device, why);
    if (status == HA_OK) status = ha_env_file_write(folder->env, folder->path, why);
    return status == HA_OK ? HA_OK : ha_folder_fail(folder, why);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

enum ha_status ha_folder_not_run(struct ha_folder *folder, const struct ha_folder_case *of, const char *reason,
                                 struct ha_why *why)
{
    const struct ha_folder_suite *suite = ha_folder_suite(folder, of->suite);
    if (!suite) return ha_why(why, HA_ERROR, "%s: no suite of this run", of->suite->name);
    const struct ha_folder_missing m = { ha_folder_entry_make(of, class_of(suite, of), NULL, false),
                                         ha_folder_text(reason) };
    if (m.of && m.reason
        && ha_array_room(&folder->missing, &folder->missings_room, folder->missings + 1, sizeof *folder->missing)) {
        folder->missing[folder->missings++] = m;
        return HA_OK;
    }
    missing_free(&m);
    return ha_why(why, HA_ERROR, "out of memory for the cases not run");
}

static void folder_count(struct ha_folder_totals *t, const struct ha_folder_entry *e)
{
    size_t *const of[HA_VERDICTS] = {
        [HA_NOT_RUN] = &t->not_run,       [HA_PASS] = &t->passed,          [HA_VERDICT_FAIL] = &t->failed,
        [HA_VERDICT_WAIVED] = &t->waived, [HA_VERDICT_ERROR] = &t->errors, [HA_UNCHECKED] = &t->unchecked,
        [HA_SUSPECT] = &t->passed,
    };
    ++*of[ha_result_in(e->row)->verdict];
}

struct ha_folder_totals ha_folder_totals(const struct ha_folder *folder)
{
    struct ha_folder_totals t = folder->forgotten;
    t.not_run += folder->missings;
    for (size_t i = 0; i < folder->entries; i++) folder_count(&t, folder->entry[i]);
    return t;
}

static bool is_news(const struct ha_folder *folder, size_t entries, const struct ha_folder_entry *e)
{
    const struct ha_result *r = ha_result_in(e->row);
    if (r->verdict == HA_PASS) return false;
    if (r->verdict != HA_VERDICT_WAIVED && r->verdict != HA_UNCHECKED) return true;
    for (size_t i = 0; i < entries; i++) {
        const struct ha_result *x = ha_result_in(folder->entry[i]->row);
        if (folder->entry[i]->suite == e->suite && x->verdict == r->verdict && !strcmp(x->reason, r->reason))
            return false;
    }
    return true;
}

void ha_folder_forget(struct ha_folder *folder)
{
    size_t kept = 0;
    for (size_t i = 0; i < folder->entries && !folder->path; i++) {
        struct ha_folder_entry *e = folder->entry[i];
        if (is_news(folder, kept, e)) {
            folder->entry[kept++] = e;
            continue;
        }
        folder_count(&folder->forgotten, e);
        ha_folder_drop(folder, e);
    }
    if (!folder->path) folder->entries = kept;
}

static void close_file(struct ha_folder *folder, struct ha_folder_file *file)
{
    struct ha_why why;
    if (file->csv && ha_csv_close(file->csv, &why) != HA_OK) ha_folder_fail(folder, &why);
    file->csv = NULL;
}

void ha_folder_end(struct ha_folder *folder) { folder->ended = true; }

/* Every case of the run has its row: env.json says so, so that the next run of this name has a folder of its own. */
static void say_complete(struct ha_folder *folder)
{
    struct ha_why why;
    if (!folder->path || !folder->ended || folder->missings || folder->status != HA_OK) return;
    ha_env_file_complete(folder->env);
    if (ha_env_file_write(folder->env, folder->path, &why) != HA_OK) ha_folder_fail(folder, &why);
}

enum ha_status ha_folder_close(struct ha_folder *folder, struct ha_why *why)
{
    struct ha_why reason;
    if (!folder) return HA_OK;
    close_file(folder, &folder->figures);
    for (size_t i = 0; i < folder->suites; i++)
        for (size_t f = 0; f < HA_SUITE_FILES; f++) close_file(folder, &folder->suite[i].file[f]);
    ha_folder_trace_close(folder);
    if (folder->path && folder->status == HA_OK && ha_folder_junit(folder, &reason) != HA_OK)
        ha_folder_fail(folder, &reason);
    say_complete(folder);
    const enum ha_status status = ha_folder_failed(folder, why);
    destroy(folder);
    return status;
}
