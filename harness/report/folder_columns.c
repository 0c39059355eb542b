#include "harness/base/array.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What every suite's files begin with. */
enum head {
    SCHEMA_VERSION,
    RUN_ID,
    CASE_ID,
    PROCESS,
    SUITE,
    MODE,
    BUILD,
    FIGURE,
    VALUE,
    LO,
    HI,
    VERDICT,
    REASON,
    SAMPLES,
    P_VALUE,
    UNIT,
    BETTER
};
enum { CASES = 1, LINES = 2, SUMMARY = 4, FIGURES = 8, ALL = CASES | LINES | SUMMARY | FIGURES };

static const struct {
    const char *name;
    enum head head;
    unsigned files;
    const char *doc;
    bool number;
} heads[] = {
    { "schema_version", SCHEMA_VERSION, ALL, "of this file", true },
    { "run_id", RUN_ID, ALL, "when the run began (UTC) and its process; env.json has its command", false },
    { "case_id", CASE_ID, ALL, "what `habench run` and `habench check` take back", false },
    { "process", PROCESS, ALL, "which of the processes that ran this case, from 0 (--processes)", true },
    { "suite", SUITE, CASES | SUMMARY | FIGURES, "as named on the command line; else the suite that the id is of",
      false },
    { "mode", MODE, CASES, "run or check", false },
    { "build", BUILD, CASES, "of the program", false },
    { "figure", FIGURE, FIGURES, "the column of the suite's own file, which says what it is", false },
    { "value", VALUE, FIGURES, "", true },
    { "lo", LO, FIGURES, "the ends of its 95% interval; empty: it has none", true },
    { "hi", HI, FIGURES, "", true },
    { "verdict", VERDICT, CASES | SUMMARY,
      "pass, fail, waived, error, unchecked (never counted as passed), suspect: "
      "a pass with a warning",
      false },
    { "reason", REASON, CASES, "of anything but pass", false },
    { "samples", SAMPLES, CASES | SUMMARY | FIGURES, "behind the figures; empty: nothing was measured", true },
    { "p_value", P_VALUE, CASES,
      "how likely its errors are as independent roundings, times the cases of the run; below 1e-9 a "
      "pass is suspect; empty: not asked",
      true },
    { "unit", UNIT, FIGURES, "", false },
    { "better", BETTER, FIGURES, "less, more, neither", false },
    { "verdict", VERDICT, FIGURES, "of the case", false },
};
enum { HEADS = sizeof heads / sizeof *heads };

static unsigned kind_of(const struct ha_suite *suite, size_t file)
{
    return file == HA_FIGURES ? FIGURES : !file ? CASES : suite->summary >> file & 1u ? SUMMARY : LINES;
}

/* The class key is always a column, if not as a field of that name. */
static bool column_key(const struct ha_suite *suite, size_t key)
{
    const char *name = suite->key[key].name;
    if (suite->key[key].column) return true;
    if (!suite->class_key || strcmp(suite->class_key, name) != 0) return false;
    for (size_t i = 0; i < suite->fields; i++)
        if (!strcmp(suite->field[i].name, name)) return false;
    return true;
}

size_t ha_columns_find(const struct ha_columns *columns, const char *name)
{
    for (size_t i = 0; i < columns->count; i++)
        if (!strcmp(columns->at[i].name, name)) return i;
    return SIZE_MAX;
}

enum ha_status ha_columns_make(struct ha_columns *out, const struct ha_suite *suite, size_t file, struct ha_why *why)
{
    const size_t keys = suite ? suite->keys : 0, fields = suite ? ha_fields_all(suite) : 0;
    const unsigned kind = kind_of(suite, file);
    struct ha_columns c = { calloc(HEADS + keys + fields, sizeof *c.at), 0 };
    enum ha_status status = HA_OK;
    if (!c.at) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < HEADS; i++)
        if (heads[i].files & kind)
            c.at[c.count++] = (struct ha_column){ heads[i].name,      "",       heads[i].doc, heads[i].number,
                                                  (int)heads[i].head, SIZE_MAX, NULL };
    for (size_t i = 0; i < keys && (kind & (CASES | SUMMARY)); i++) {
        const struct ha_key *k = &suite->key[i];
        const bool number = k->kind == HA_KEY_NUMBER || k->kind == HA_KEY_REAL;
        if (column_key(suite, i)) c.at[c.count++] = (struct ha_column){ k->name, "", k->doc, number, -1, i, NULL };
    }
    for (size_t i = 0; i < fields && kind != FIGURES; i++) {
        const struct ha_field *f = ha_field_at(suite, i);
        if (f->files >> file & 1u)
            c.at[c.count++] = (struct ha_column){
                f->name, f->unit ? f->unit : "", f->doc, f->kind != HA_FIELD_TEXT, -1, SIZE_MAX, f
            };
    }
    for (size_t i = 0; i < c.count && status == HA_OK; i++)
        if (ha_columns_find(&c, c.at[i].name) != i)
            status = ha_why(why, HA_ERROR, "%s: two columns of the name %s", suite ? suite->file[file] : "figures.csv",
                            c.at[i].name);
    if (status == HA_OK) *out = c;
    else free(c.at);
    return status;
}

void ha_columns_free(struct ha_columns *columns)
{
    free(columns->at);
    *columns = (struct ha_columns){ 0 };
}

/* ---- a line ---------------------------------------------------------------------------------------------------- */

void ha_line_free(struct ha_line *line)
{
    free(line->text);
    free(line->begin);
    free(line->field);
    *line = (struct ha_line){ 0 };
}

/* Room for one more field of so many bytes; NULL: no memory. */
static char *room(struct ha_line *line, size_t bytes)
{
    size_t fields_room = line->fields_room; /* of both arrays */
    if (!ha_array_room(&line->text, &line->room, line->used + bytes + 1, 1)
        || !ha_array_room(&line->begin, &fields_room, line->fields + 1, sizeof *line->begin)
        || !ha_array_room(&line->field, &line->fields_room, line->fields + 1, sizeof *line->field))
        return NULL;
    line->begin[line->fields++] = line->used;
    return line->text + line->used;
}

static void add(struct ha_line *line, const char *text)
{
    const size_t bytes = strlen(text);
    char *at = room(line, bytes);
    if (!at) {
        line->no_memory = true;
        return;
    }
    memcpy(at, text, bytes + 1);
    ha_text_clean(at);
    line->used += bytes + 1;
}

static void add_number(struct ha_line *line, double x)
{
    char text[32];
    ha_csv_number(text, x);
    add(line, text);
}

static void add_field(struct ha_line *line, const struct ha_field *field, const void *row)
{
    const size_t most = field->kind == HA_FIELD_TEXT ? field->bytes : 32;
    char *at = room(line, most);
    if (at) line->used += ha_field_print(field, row, at, most + 1) + 1;
    else line->no_memory = true;
}

static void add_head(struct ha_line *line, const struct ha_folder *folder, enum head head,
                     const struct ha_folder_case *of, const void *row, const struct ha_field *figure)
{
    const struct ha_result *r = ha_result_in(row);
    switch (head) {
    case SCHEMA_VERSION: add_number(line, HA_FOLDER_SCHEMA); break;
    case RUN_ID: add(line, folder->run_id); break;
    case CASE_ID: add(line, of->id); break;
    case PROCESS: add_number(line, (double)of->process); break;
    case SUITE: add(line, *of->from ? of->from : of->suite->name); break;
    case MODE: add(line, folder->mode); break;
    case BUILD: add(line, folder->build); break;
    case FIGURE: add(line, figure->name); break;
    case VALUE: add_field(line, figure, row); break;
    case LO: add_number(line, ha_field_end(figure->lo, row)); break;
    case HI: add_number(line, ha_field_end(figure->hi, row)); break;
    case VERDICT: add(line, ha_verdict_name(r->verdict)); break;
    case REASON: add(line, r->reason); break;
    case SAMPLES: add_number(line, r->samples); break;
    case P_VALUE: add_number(line, r->p); break;
    case UNIT: add(line, (figure->unit ? figure->unit : "")); break;
    case BETTER: add(line, ha_better_name(figure->better)); break;
    }
}

bool ha_line_make(struct ha_line *line, const struct ha_folder *folder, const struct ha_columns *columns,
                  const struct ha_folder_case *of, const void *row, const struct ha_field *figure)
{
    line->used = line->fields = 0;
    line->no_memory = false;
    for (size_t i = 0; i < columns->count; i++) {
        const struct ha_column *c = &columns->at[i];
        if (c->field) add_field(line, c->field, row);
        else if (c->key != SIZE_MAX) add(line, of->key_value[c->key] ? of->key_value[c->key] : "");
        else add_head(line, folder, (enum head)c->head, of, row, figure);
    }
    for (size_t i = 0; i < line->fields && !line->no_memory; i++) line->field[i] = line->text + line->begin[i];
    return !line->no_memory;
}

/* ---- JSON lines ------------------------------------------------------------------------------------------------ */

/* Is this a number of JSON? Where a column is of numbers, words may stand for some, and JSON has no infinite number. */
static bool json_number(const char *text)
{
    const char *digits = text + (*text == '-');
    double x;
    return ha_csv_number_parse(text, &x) && isfinite(x) && *digits >= '0' && *digits <= '9'
           && !(*digits == '0' && digits[1] >= '0' && digits[1] <= '9');
}

static enum ha_status put_line(struct ha_line *line, const struct ha_folder *folder, FILE *out, const char *kind,
                               const struct ha_columns *columns, const struct ha_folder_case *of, const void *row,
                               const struct ha_field *figure, struct ha_why *why)
{
    if (!ha_line_make(line, folder, columns, of, row, figure)) return ha_why(why, HA_ERROR, "out of memory");
    fprintf(out, "{\"row\":\"%s\"", kind);
    for (size_t i = 0; i < line->fields; i++) {
        if (!*line->field[i]) continue;
        /* the lines themselves have a member "row" */
        fprintf(out, ",\"%s%s\":", strcmp(columns->at[i].name, "row") ? "" : "key_", columns->at[i].name);
        if (columns->at[i].number && json_number(line->field[i])) fputs(line->field[i], out);
        else ha_text_json(out, line->field[i]);
    }
    fputs("}\n", out);
    return HA_OK;
}

enum ha_status ha_folder_json(const struct ha_folder *folder, FILE *out, const struct ha_folder_case *of,
                              const void *row, struct ha_why *why)
{
    struct ha_line line = { 0 };
    const struct ha_folder_suite *suite = ha_folder_suite(folder, of->suite);
    if (!suite) return ha_why(why, HA_ERROR, "%s: no suite of this run", of->suite->name);
    enum ha_status status = put_line(&line, folder, out, "case", &suite->file[0].columns, of, row, NULL, why);
    for (size_t i = 0; i < ha_fields_all(of->suite) && status == HA_OK; i++) {
        const struct ha_field *field = ha_field_at(of->suite, i);
        if (ha_field_figure(field, row))
            status = put_line(&line, folder, out, "figure", &folder->figures.columns, of, row, field, why);
    }
    ha_line_free(&line);
    if (status == HA_OK && (fflush(out) != 0 || ferror(out)))
        status = ha_why(why, HA_ERROR, "the JSON lines cannot be written");
    return status;
}

/* ---- the list of columns --------------------------------------------------------------------------------------- */

static void print_columns(FILE *out, const char *file, const struct ha_columns *columns)
{
    for (size_t i = 0; i < columns->count; i++) {
        const struct ha_column *c = &columns->at[i];
        fprintf(out, "%-18s %-20s %-8s %-8s %s\n", file, c->name, c->unit,
                c->field ? ha_better_name(c->field->better) : "", c->doc);
    }
}

void ha_folder_print_fields(FILE *out, const struct ha_suite *const *suites, size_t suites_count)
{
    struct ha_columns columns;
    struct ha_why why;
    fprintf(out, "%-18s %-20s %-8s %-8s %s\n", "file", "column", "unit", "better", "meaning");
    for (size_t i = 0; i < suites_count; i++)
        for (size_t f = 0; f < HA_SUITE_FILES; f++)
            if (suites[i]->file[f] && ha_columns_make(&columns, suites[i], f, &why) == HA_OK) {
                print_columns(out, suites[i]->file[f], &columns);
                ha_columns_free(&columns);
            }
    if (ha_columns_make(&columns, NULL, HA_FIGURES, &why) == HA_OK) {
        print_columns(out, "figures.csv", &columns);
        ha_columns_free(&columns);
    }
}
