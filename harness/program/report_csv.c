#include "harness/program/report_parts.h"

#include "harness/base/csv.h"
#include "harness/base/json_line.h"
#include "harness/base/text.h"
#include "harness/base/why.h"

#include <csv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The columns of figures.csv, as they are written; a file is read by their names, one that it lacks is empty. */
static const char *const columns[] = { "schema_version", "run_id", "case_id", "process", "suite",
                                       "figure",         "value",  "lo",      "hi",      "samples",
                                       "unit",           "better", "verdict" };
enum { COLUMNS = sizeof columns / sizeof *columns, NONE = -1 };

struct joined {
    FILE *out;
    bool json;                   /* a line of JSON for each row */
    const char *folder, *record; /* as the command line names it; the record's path below it */
    int at[COLUMNS];             /* of the file at hand: where each column stands, or NONE */
    size_t width, rows, cut;     /* its columns; whole rows; rows that have another number of fields */
};

static void put_field(FILE *out, const char *text, bool first)
{
    if (!first) putc(',', out);
    if (*text) csv_fwrite(out, text, strlen(text));
}

static bool is_one_of(const char *column, const char *const *names)
{
    while (*names && strcmp(column, *names) != 0) names++;
    return *names;
}

static void put_json(const struct joined *j, char **fields)
{
    static const char *const count[] = { "process", "samples", NULL }, *const number[] = { "value", "lo", "hi", NULL };
    json_t *row = json_object();
    ha_json_set_text(row, "row", "figure");
    ha_json_set_text(row, "folder", j->folder);
    ha_json_set_text(row, "record", j->record);
    for (int c = 1; c < COLUMNS; c++) {
        double value = (double)NAN;
        const char *const text = j->at[c] == NONE ? "" : fields[j->at[c]];
        const bool is = ha_csv_number_parse(text, &value);
        if (is_one_of(columns[c], number)) ha_json_set_number(row, columns[c], value);
        else if (!is_one_of(columns[c], count)) ha_json_set_text(row, columns[c], text);
        else if (is) ha_json_set_count(row, columns[c], (size_t)value);
    }
    ha_json_put_line(j->out, row);
}

static enum ha_status take_row(void *arg, size_t line, char **fields, size_t count)
{
    struct joined *j = arg;
    if (!j->width) {
        j->width = count;
        for (int c = 0; c < COLUMNS; c++) {
            j->at[c] = NONE;
            for (size_t i = 0; i < count; i++)
                if (!strcmp(fields[i], columns[c])) j->at[c] = (int)i;
        }
        return HA_OK;
    }
    if (count != j->width) {
        j->cut++;
        return HA_OK;
    }
    j->rows++;
    if (j->json) {
        put_json(j, fields);
        return ferror(j->out) ? HA_FAIL : HA_OK;
    }
    put_field(j->out, j->folder, true);
    put_field(j->out, j->record, false);
    for (int c = 0; c < COLUMNS; c++) put_field(j->out, j->at[c] == NONE ? "" : fields[j->at[c]], false);
    putc('\n', j->out);
    return ferror(j->out) ? HA_FAIL : HA_OK;
}

/* false: some of it is not there */
static bool join(struct joined *j, const char *record, struct ha_why *why)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/figures.csv", record);
    if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0) return true; /* of a probe, of a check of old */
    const size_t length = strlen(j->folder);
    j->record = record + length + (record[length] == '/');
    j->width = j->rows = j->cut = 0;
    const enum ha_status status = ha_csv_read(path, take_row, j, why);
    if (status == HA_FAIL) return true; /* what is written goes nowhere: who opened it sees that */
    if (status == HA_OK && j->width && j->at[2] == NONE)
        ha_why(why, HA_ERROR, "%s: has no column case_id: it is no file of figures", path);
    else if (status == HA_OK && j->cut)
        ha_why(why, HA_ERROR, "%s: %zu rows that are cut off are left out", path, j->cut);
    else if (status == HA_OK) return true;
    fputs("habench: ", stderr);
    ha_text_print(stderr, why->text);
    fputc('\n', stderr);
    return false;
}

static enum ha_exit join_all(struct joined *j, const struct ha_options *o, struct ha_why *why)
{
    bool whole = true;
    for (size_t i = 0; i < o->words_count; i++) {
        struct ha_record_paths paths;
        j->folder = o->words[i];
        ha_record_paths_find(j->folder, &paths, why);
        for (size_t k = 0; k < paths.count && !ferror(j->out); k++) whole &= join(j, paths.path[k], why);
        ha_record_paths_free(&paths);
    }
    if (whole) return HA_EXIT_OK;
    ha_why(why, HA_ERROR, "not all figures could be read (above); the rest is written");
    return HA_EXIT_MISSING;
}

enum ha_exit ha_report_csv(const struct ha_options *o, FILE *out, struct ha_why *why)
{
    struct joined j = { .out = out };
    if (ha_report_are_records(o, why) != HA_OK) return HA_EXIT_USAGE;
    put_field(out, "folder", true);
    put_field(out, "record", false);
    for (int c = 0; c < COLUMNS; c++) put_field(out, columns[c], false);
    putc('\n', out);
    return join_all(&j, o, why);
}

/* What compare says of the folders, and then each figure. */
enum ha_exit ha_report_json(const struct ha_options *o, FILE *out, struct ha_why *why)
{
    struct joined j = { .out = out, .json = true };
    char note[512], text[4096];
    FILE *rows;
    if (ha_report_are_records(o, why) != HA_OK) return HA_EXIT_USAGE;
    if (ha_report_compare(o, &rows, note, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    for (size_t n; rows && (n = fread(text, 1, sizeof text, rows)) > 0;) fwrite(text, 1, n, out);
    if (rows) fclose(rows);
    return join_all(&j, o, why);
}
