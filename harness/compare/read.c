#include "harness/compare/record.h"

#include "harness/base/array.h"
#include "harness/base/csv.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/row.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

static enum ha_status no_memory(struct ha_why *why) { return ha_why(why, HA_ERROR, "out of memory"); }

/* ---- lines of a file --------------------------------------------------------------------------------------------- */

/* Columns that are looked for, by name: others are passed over. */
enum column { CASE_ID, PROCESS, SUITE, FIGURE, VALUE, UNIT, BETTER, VERDICT, REASON, DISTURBED, OUTPUTS, PLAN };
static const char *const column_name[] = { "case_id", "process", "suite",  "figure",    "value",   "unit",
                                           "better",  "verdict", "reason", "disturbed", "outputs", "plan" };
enum { COLUMNS = sizeof column_name / sizeof *column_name };

struct reading {
    struct ha_record *record;
    const char *file, *mode;
    size_t night, first; /* the number of this record's process 0 */
    size_t at[COLUMNS];  /* where the column stands; SIZE_MAX: nowhere */
    size_t columns;      /* 0: the header has not been read */
    char **name;         /* [columns] of schema 1, whose figures are columns of cases.csv */
    bool wide;
    struct ha_recorded_case *last; /* rows of a case stand together */
    struct ha_why *why;
};

static const char *field(const struct reading *r, char **fields, enum column c)
{
    return r->at[c] == SIZE_MAX ? "" : fields[r->at[c]];
}

static void note_line(const struct reading *r, size_t line, const char *what)
{
    char text[PATH_BYTES + 256];
    snprintf(text, sizeof text, "%s:%zu: %.200s: left out", r->file, line, what);
    ha_record_note(r->record, text);
}

static enum ha_status take_header(struct reading *r, char **fields, size_t count)
{
    for (size_t c = 0; c < COLUMNS; c++) r->at[c] = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        for (size_t c = 0; c < COLUMNS; c++)
            if (!strcmp(fields[i], column_name[c]) && r->at[c] == SIZE_MAX) r->at[c] = i;
    r->columns = count;
    if (!r->wide) return HA_OK;
    r->name = calloc(count, sizeof *r->name);
    for (size_t i = 0; r->name && i < count; i++)
        if (!(r->name[i] = strdup(fields[i]))) return no_memory(r->why);
    return r->name ? HA_OK : no_memory(r->why);
}

/* The case and the process of a row. HA_WAIVED: the row is left out. */
static enum ha_status take_case(struct reading *r, size_t line, char **fields, size_t count, size_t *process)
{
    const char *id = field(r, fields, CASE_ID), *text = field(r, fields, PROCESS);
    double number = 0;
    if (count != r->columns) note_line(r, line, "a torn line, which has not as many fields as the first");
    else if (!*id) note_line(r, line, "a row without a case");
    else if (!strcmp(id, HA_MACHINE_CASE))
        note_line(r, line, "a case of the name under which the machine itself stands");
    else if (*text
             && (!ha_csv_number_parse(text, &number) || !(number >= 0 && number < 1e6) || number != floor(number)))
        note_line(r, line, "'process' is no number of a process");
    else {
        if (!r->last || strcmp(r->last->id, id) != 0 || strcmp(r->last->mode, r->mode) != 0)
            r->last = ha_record_add_case(r->record, r->mode, id);
        if (!r->last) return no_memory(r->why);
        *process = r->first + (size_t)number;
        if (*process >= r->record->processes) r->record->processes = *process + 1;
        return HA_OK;
    }
    return HA_WAIVED;
}

static enum ha_status take_value(struct reading *r, size_t line, size_t process, const char *name, const char *unit,
                                 const char *better, double value)
{
    struct ha_recorded_figure like = { .name = name, .unit = unit, .better = HA_NEITHER };
    struct ha_why why;
    for (enum ha_better b = HA_NEITHER; b <= HA_MORE; b++)
        if (!strcmp(better, ha_better_name(b))) like.better = b;
    const struct ha_observation at = { r->night, process, value };
    const enum ha_status status = ha_record_add_value(r->record, r->last, &like, at, &why);
    if (status == HA_FAIL) note_line(r, line, why.text);
    return status == HA_FAIL ? HA_OK : status == HA_OK ? HA_OK : no_memory(r->why);
}

/* A line of figures.csv */
static enum ha_status figure_row(void *arg, size_t line, char **fields, size_t count)
{
    struct reading *r = arg;
    double value;
    size_t process = 0;
    if (!r->columns) {
        HA_TRY(take_header(r, fields, count));
        if (r->at[CASE_ID] != SIZE_MAX && r->at[FIGURE] != SIZE_MAX && r->at[VALUE] != SIZE_MAX) return HA_OK;
        return ha_why(r->why, HA_ERROR, "%s: no columns case_id, figure and value in its first line", r->file);
    }
    const enum ha_status status = take_case(r, line, fields, count, &process);
    if (status != HA_OK) return status == HA_WAIVED ? HA_OK : status;
    const char *text = field(r, fields, VALUE), *name = field(r, fields, FIGURE);
    if (!*name || !ha_csv_number_parse(text, &value) || isnan(value))
        note_line(r, line, *name ? "a value that is no number" : "a row without a figure");
    else if (isfinite(value)) /* an infinite one is nothing to compare */
        return take_value(r, line, process, name, field(r, fields, UNIT), field(r, fields, BETTER), value);
    return HA_OK;
}

/* Figures of schema 1, which had no figures.csv: columns of cases.csv. */
static const struct {
    const char *name, *unit, *better;
} wide[] = {
    { "step_ns", "ns", "less" },         { "gpu_kernel_idle", "", "less" },
    { "gpu_idle", "", "less" },          { "cpu_idle", "", "less" },
    { "overlap", "", "more" },           { "floor_ratio", "", "more" },
    { "err_over_bound", "", "neither" }, { "rel_l2", "", "neither" },
    { "mass_min", "", "neither" },       { "h2d_link_GBps", "10^9 bytes/s", "more" },
    { "vs_full", "", "less" },
};

static enum ha_status wide_row(struct reading *r, size_t line, char **fields, size_t process)
{
    for (size_t i = 0; i < r->columns; i++)
        for (size_t w = 0; w < sizeof wide / sizeof *wide; w++) {
            double value;
            if (strcmp(r->name[i], wide[w].name) != 0 || !ha_csv_number_parse(fields[i], &value) || !isfinite(value))
                continue;
            HA_TRY(take_value(r, line, process, wide[w].name, wide[w].unit, wide[w].better, value));
        }
    return HA_OK;
}

/* Causes of column `disturbed` (harness/measure/disturbed.h) that come from beside the machine. That it is throttled is
 * the machine's own: a night is there to see it. "yes" is how older builds said it of kernels. */
static bool by_others(const char *causes)
{
    static const char *const cause[] = { "load", "steal", "shared", "yes" };
    for (size_t i = 0; i < sizeof cause / sizeof *cause; i++)
        if (strstr(causes, cause[i])) return true;
    return false;
}

/* A line of a file that has a row for each case: one with verdicts and reasons. */
static enum ha_status case_row(void *arg, size_t line, char **fields, size_t count)
{
    struct reading *r = arg;
    size_t process = 0;
    if (!r->columns) {
        HA_TRY(take_header(r, fields, count));
        const bool cases = r->at[CASE_ID] != SIZE_MAX && r->at[VERDICT] != SIZE_MAX && r->at[REASON] != SIZE_MAX;
        return cases ? HA_OK : HA_WAIVED;
    }
    const enum ha_status status = take_case(r, line, fields, count, &process);
    if (status != HA_OK) return status == HA_WAIVED ? HA_OK : status;
    const enum ha_verdict v = ha_verdict_of(field(r, fields, VERDICT));
    if (v == HA_NOT_RUN) {
        note_line(r, line, "a verdict that is none");
        return HA_OK;
    }
    HA_TRY(ha_record_add_verdict(r->record, r->last, field(r, fields, SUITE), v, field(r, fields, REASON), r->why));
    if (by_others(field(r, fields, DISTURBED))) HA_TRY(ha_record_add_disturbed(r->record, r->last, process, r->why));
    const char *digest = field(r, fields, OUTPUTS);
    if (*digest) HA_TRY(ha_record_add_outputs(r->record, r->last, process, digest, field(r, fields, PLAN), r->why));
    return r->wide ? wide_row(r, line, fields, process) : HA_OK;
}

/* A file that does not end as it should keeps what came before. HA_WAIVED: it is none of these files. */
static enum ha_status read_file(struct reading *r, const char *path,
                                enum ha_status (*row)(void *, size_t, char **, size_t))
{
    struct ha_why said = { "" };
    r->file = path;
    r->columns = 0;
    r->last = NULL;
    enum ha_status status = ha_csv_read(path, row, r, &said);
    if (status == HA_OK && !r->columns && row == figure_row) status = ha_why(r->why, HA_ERROR, "%s: it is empty", path);
    else if (status == HA_ERROR && said.text[0]) {
        char text[PATH_BYTES + 256];
        snprintf(text, sizeof text, "%.4200s; what follows is left out", said.text);
        ha_record_note(r->record, text);
        status = HA_OK;
    }
    for (size_t i = 0; r->name && i < r->columns; i++) free(r->name[i]);
    free(r->name);
    r->name = NULL;
    return status;
}

/* ---- env.json ------------------------------------------------------------------------------------------------- */

/* A scalar as text; "": it is none. */
static void scalar(const json_t *v, const char *name, char out[256])
{
    out[0] = 0;
    if (json_is_string(v)) snprintf(out, 256, "%s", json_string_value(v));
    else if (json_is_number(v) && strstr(name, "memory_bytes"))
        snprintf(out, 256, "%.3g GiB", json_number_value(v) / 0x1p30);
    else if (json_is_integer(v)) snprintf(out, 256, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v)) snprintf(out, 256, "%.6g", json_real_value(v));
    else if (json_is_boolean(v)) snprintf(out, 256, "%s", json_is_true(v) ? "yes" : "no");
}

static bool listed(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name)) list++;
    return *list;
}

/* The scalars of an object, but those that are no fact of where it ran. */
static enum ha_status add_facts(struct ha_record *r, json_t *of, const char *prefix, struct ha_why *why)
{
    static const char *const not [] = { "schema_version", "mode",    "options", "build",           "version",
                                        "date_utc",       "command", "spans",   "compute_threads", NULL };
    const char *name;
    json_t *value;
    json_object_foreach(of, name, value)
    {
        char text[256], full[320];
        scalar(value, name, text);
        if (!*text || listed(name, not )) continue;
        snprintf(full, sizeof full, "%s%.60s", prefix, name);
        HA_TRY(ha_record_add_fact(r, full, text, why));
    }
    return HA_OK;
}

/* The limits of a device, of its meters: its clock and its power at the moment are no facts of a machine. */
static enum ha_status add_limits(struct ha_record *r, const json_t *meters, const char *prefix, struct ha_why *why)
{
    static const char *const limit[] = { "sm_clock_max_MHz", "memory_clock_max_MHz", "link_gen_max", "link_width",
                                         "link_width_max" };
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        char text[256], full[320];
        scalar(json_object_get(meters, limit[i]), limit[i], text);
        snprintf(full, sizeof full, "%s%s", prefix, limit[i]);
        if (*text) HA_TRY(ha_record_add_fact(r, full, text, why));
    }
    return HA_OK;
}

static void take_text(const json_t *of, const char *name, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(of, name));
    if (text && !*out) snprintf(out, size, "%s", text);
    ha_text_clean(out);
}

/* It goes by its driver, under whatever name it was asked for: that name is a fact of it. */
static enum ha_status add_device(struct reading *r, json_t *device)
{
    char prefix[256];
    const char *driver = json_string_value(json_object_get(device, "driver"));
    snprintf(prefix, sizeof prefix, "device %.200s: ", driver ? driver : "");
    HA_TRY(add_facts(r->record, device, prefix, r->why));
    return add_limits(r->record, json_object_get(device, "meters"), prefix, r->why);
}

static enum ha_status read_env(struct reading *r, const char *path, json_t *env)
{
    struct ha_night *n = &r->record->night[r->night];
    const char *mode = json_string_value(json_object_get(env, "mode"));
    json_t *devices = json_object_get(env, "devices"), *device = json_object_get(env, "device");
    const json_int_t schema = json_integer_value(json_object_get(env, "schema_version"));
    if (schema < 1 || schema > 2)
        return ha_why(r->why, HA_ERROR, "%s: schema_version %lld; this program reads 1 and 2", path, (long long)schema);
    r->wide = schema == 1;
    r->mode = ha_record_keep(r->record, mode ? mode : "run");
    take_text(json_array_get(json_object_get(env, "runs"), 0), "date_utc", n->date, sizeof n->date);
    take_text(env, "date_utc", n->date, sizeof n->date);
    take_text(env, "build", n->build, sizeof n->build);
    take_text(env, "version", n->build, sizeof n->build);
    HA_TRY(r->mode ? add_facts(r->record, env, "", r->why) : no_memory(r->why));
    HA_TRY(add_facts(r->record, json_object_get(env, "identity"), "identity: ", r->why));
    if (device) HA_TRY(add_device(r, device));
    for (size_t i = 0; i < json_array_size(devices); i++) HA_TRY(add_device(r, json_array_get(devices, i)));
    return HA_OK;
}

/* ---- folders --------------------------------------------------------------------------------------------------- */

static bool has(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    struct stat about;
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path && stat(path, &about) == 0
           && S_ISREG(about.st_mode);
}

static int csv_file(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 4 && !strcmp(e->d_name + n - 4, ".csv") && strcmp(e->d_name, "figures.csv") != 0;
}
static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

/* Each name of the folder, in order; a status that is not HA_OK ends it. */
static enum ha_status each(const char *folder, int (*which)(const struct dirent *), struct ha_why *why,
                           enum ha_status (*take)(void *arg, const char *path, const char *name), void *arg)
{
    struct dirent **found;
    const int count = scandir(folder, &found, which, alphasort);
    enum ha_status status = count < 0 ? ha_why(why, HA_ERROR, "%s: cannot be read", folder) : HA_OK;
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        if (status == HA_OK && (size_t)snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name) < sizeof path)
            status = take(arg, path, found[i]->d_name);
        free(found[i]);
    }
    if (count >= 0) free(found);
    return status;
}

static enum ha_status read_cases(void *arg, const char *path, const char *name)
{
    struct stat about;
    /* a pipe would be waited for, and a device never end */
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode)) return HA_OK;
    const enum ha_status status = read_file(arg, path, case_row);
    return status == HA_WAIVED ? HA_OK : status;
}

/* A folder with env.json, which belongs to a night. */
static enum ha_status read_record(struct ha_record *record, size_t night, const char *folder, struct ha_why *why)
{
    char path[PATH_BYTES];
    json_error_t error;
    struct reading r = { .record = record, .night = night, .first = record->processes, .why = why };
    if ((size_t)snprintf(path, sizeof path, "%s/env.json", folder) >= sizeof path)
        return ha_why(why, HA_ERROR, "%.200s...: the path is too long", folder);
    json_t *env = json_load_file(path, 0, &error);
    if (!env || !json_is_object(env)) {
        json_decref(env);
        return ha_why(why, HA_ERROR, "%s:%d: not the env.json of a run: %s", path, env ? 1 : error.line,
                      env ? "no object" : error.text);
    }
    enum ha_status status = read_env(&r, path, env);
    json_decref(env);
    if (status != HA_OK) return status;
    HA_TRY(each(folder, csv_file, why, read_cases, &r));
    if (r.wide) return HA_OK;
    snprintf(path, sizeof path, "%.4000s/figures.csv", folder);
    if (has(folder, "figures.csv")) return read_file(&r, path, figure_row);
    strcat(path, ": there is no such file, and so no times");
    if (!strcmp(r.mode, "run") && record->processes > r.first) ha_record_note(record, path); /* it has rows */
    return HA_OK;
}

struct search {
    struct ha_record *record;
    struct ha_why *why;
};

static enum ha_status read_part(void *arg, const char *path, const char *name)
{
    struct search *s = arg;
    return has(path, "env.json") ? read_record(s->record, s->record->nights - 1, path, s->why) : HA_OK;
}

static enum ha_status read_night(struct search *s, const char *path)
{
    HA_TRY(ha_record_add_night(s->record, path, s->why));
    if (has(path, "night.json")) return each(path, visible, s->why, read_part, s);
    return read_record(s->record, s->record->nights - 1, path, s->why);
}

/* Folders that are nights, and when they were. */
struct dated {
    char *path, date[40];
};
struct list {
    struct dated *at;
    size_t count, room;
    struct ha_why *why;
};

static enum ha_status list_night(void *arg, const char *path, const char *name)
{
    struct list *l = arg;
    char file[PATH_BYTES + 16];
    const bool night = has(path, "night.json");
    if (!night && !has(path, "env.json")) return HA_OK;
    if (!ha_array_room(&l->at, &l->room, l->count + 1, sizeof *l->at)) return no_memory(l->why);
    struct dated *d = &l->at[l->count];
    *d = (struct dated){ .path = strdup(path) };
    if (!d->path) return no_memory(l->why);
    l->count++;
    snprintf(file, sizeof file, "%s/%s", path, night ? "night.json" : "env.json");
    json_t *said = json_load_file(file, 0, NULL);
    take_text(json_array_get(json_object_get(said, "runs"), 0), "date_utc", d->date, sizeof d->date);
    take_text(said, "date_utc", d->date, sizeof d->date);
    json_decref(said);
    return HA_OK;
}

static int by_date(const void *a, const void *b)
{
    const struct dated *x = a, *y = b;
    const int order = strcmp(x->date, y->date);
    return order ? order : strcmp(x->path, y->path);
}

static enum ha_status read_nights(struct search *s, const char *path)
{
    struct list list = { .why = s->why };
    enum ha_status status = list_night(&list, path, path);
    if (status == HA_OK && !list.count) status = each(path, visible, s->why, list_night, &list);
    if (list.count) qsort(list.at, list.count, sizeof *list.at, by_date);
    for (size_t i = 0; i < list.count; i++) {
        if (status == HA_OK) status = read_night(s, list.at[i].path);
        free(list.at[i].path);
    }
    free(list.at);
    return status;
}

enum ha_status ha_record_read(struct ha_record *record, const char *path, struct ha_why *why)
{
    struct search s = { record, why };
    struct stat about;
    HA_TRY(ha_record_begin(record, path, why));
    if (stat(path, &about) != 0) return ha_why(why, HA_ERROR, "%s: there is no such folder", path);
    if (!S_ISDIR(about.st_mode)) return ha_why(why, HA_ERROR, "%s: not a folder; name that of -o", path);
    HA_TRY(read_nights(&s, path));
    if (!record->nights) return ha_why(why, HA_ERROR, "%s: no run and no night in it: neither has an env.json", path);
    if (!record->count) return ha_why(why, HA_ERROR, "%s: no case in it has a row", path);
    return ha_record_end(record, why);
}
