#include "harness/program/report_parts.h"

#include "harness/base/csv.h"
#include "harness/base/registry.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/compare.h"
#include "harness/report/row.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHANGES_MAX = 20, BAD_MAX = 10, TEXT_MAX = 300, LINE_MAX_BYTES = 1 << 20 };

/* Text that Markdown takes for text: no markup of its own, none of HTML, one line. */
static void put_text(FILE *out, const char *text)
{
    static const char special[] = "\\`*_{}[]()#+!|~<>&@";
    char *clean = strdup(text);
    if (!clean) return;
    ha_text_clean(clean);
    size_t n = strlen(clean);
    if (n > TEXT_MAX) n = TEXT_MAX;
    while (n < strlen(clean) && ((unsigned char)clean[n] & 0xC0) == 0x80) n--; /* no half of a character */
    for (size_t i = 0; i < n; i++) {
        if (clean[i] == '<') fputs("&lt;", out);
        else if (clean[i] == '>') fputs("&gt;", out);
        else if (clean[i] == '&') fputs("&amp;", out);
        else if (clean[i] == '@') fputs("&#64;", out); /* names nobody */
        else {
            if (strchr(special, clean[i])) putc('\\', out);
            putc(clean[i], out);
        }
    }
    if (clean[n]) fputs("...", out);
    free(clean);
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

/* ---- what compare said ---- */

/* Rows of a kind, in their order; of the changes those that stand on top. news: the paths of the new records. */
struct said {
    json_t *environment, *changes, *verdicts, *news;
};

static void take_line(struct said *s, const char *line)
{
    json_t *row = json_loads(line, 0, NULL);
    const char *kind = text_of(row, "row");
    if (!strcmp(kind, "environment")) json_array_append(s->environment, row);
    if (!strcmp(kind, "change") && !json_is_false(json_object_get(row, "loud"))) json_array_append(s->changes, row);
    if (!strcmp(kind, "verdict")) json_array_append(s->verdicts, row);
    if (!strcmp(kind, "record") && !strcmp(text_of(row, "side"), "new"))
        json_array_append(s->news, json_object_get(row, "path"));
    json_decref(row);
}

/* The new record that a change or verdict is of, where there are several. */
static void put_new(FILE *out, const struct said *s, const json_t *row, const char *behind)
{
    const json_int_t index = json_integer_value(json_object_get(row, "new"));
    const char *path = index > 0 ? json_string_value(json_array_get(s->news, (size_t)index - 1)) : NULL;
    if (json_array_size(s->news) < 2 || !path) return;
    put_text(out, path);
    fputs(behind, out);
}

static enum ha_exit exit_of(const json_t *row)
{
    return (enum ha_exit)json_integer_value(json_object_get(row, "exit"));
}

/* The verdict of all, from which the exit code of compare is. */
static const json_t *worst(const struct said *s)
{
    const json_t *worst = json_array_get(s->verdicts, 0);
    for (size_t i = 1; i < json_array_size(s->verdicts); i++) {
        const json_t *row = json_array_get(s->verdicts, i);
        if (ha_night_worse(exit_of(row), exit_of(worst)) != exit_of(worst)) worst = row;
    }
    return worst;
}

static void put_verdict(FILE *out, const struct said *s)
{
    size_t i;
    json_t *row;
    fputs("**habench: ", out);
    put_text(out, text_of(worst(s), "verdict"));
    fputs("**. ", out);
    put_text(out, text_of(worst(s), "line"));
    fputs("\n", out);
    if (json_array_size(s->verdicts) < 2) return;
    putc('\n', out);
    json_array_foreach(s->verdicts, i, row)
    {
        fputs("- ", out);
        put_new(out, s, row, ": ");
        put_text(out, text_of(row, "line"));
        putc('\n', out);
    }
}

/* Of a change; of a share, whose ratio is (1 + new) / (1 + base), in points. */
static void put_interval(FILE *out, const json_t *row)
{
    const json_t *lo = json_object_get(row, "lo"), *hi = json_object_get(row, "hi"),
                 *base = json_object_get(row, "base");
    if (!json_is_number(lo) || !json_is_number(hi)) return;
    const bool points = !*text_of(row, "unit") && json_is_number(base);
    const double scale = 100 * (points ? 1 + json_number_value(base) : 1);
    const char *const format = points ? "%+.1f to %+.1f points" : "%+.1f%% to %+.1f%%";
    fprintf(out, format, scale * (json_number_value(lo) - 1), scale * (json_number_value(hi) - 1));
}

static void put_change(FILE *out, const struct said *s, const json_t *row)
{
    fputs("| **", out);
    put_text(out, text_of(row, "change"));
    fputs("** | ", out);
    put_new(out, s, row, " ");
    put_text(out, *text_of(row, "line") ? text_of(row, "line") : text_of(row, "case_id"));
    fputs(" | ", out);
    put_interval(out, row);
    fputs(" | ", out);
    put_text(out, text_of(row, "by"));
    if (*text_of(row, "part")) fputs(", ", out);
    put_text(out, text_of(row, "part"));
    fputs(" |\n", out);
}

/* The words of changes that go first; all others come behind them as they came. */
static void put_changes(FILE *out, const struct said *s)
{
    static const char *const first[] = { "wrong",      "other bits", "slower", "worse",      "other result",
                                         "not judged", "gone",       "waived", "suspicious", "disturbed" };
    enum { FIRST = sizeof first / sizeof *first };
    const size_t count = json_array_size(s->changes);
    size_t shown = 0;
    if (!count) return;
    fputs("\n| change | what | interval | by |\n|---|---|---|---|\n", out);
    for (size_t turn = 0; turn <= FIRST; turn++)
        for (size_t i = 0; i < count; i++) {
            const json_t *row = json_array_get(s->changes, i);
            size_t k = 0;
            while (k < FIRST && strcmp(first[k], text_of(row, "change")) != 0) k++;
            if (k == turn && shown++ < CHANGES_MAX) put_change(out, s, row);
        }
    if (count > CHANGES_MAX) fprintf(out, "\nand %zu more changes\n", count - CHANGES_MAX);
}

static void put_environment(FILE *out, const struct said *s)
{
    size_t i;
    json_t *row;
    if (!json_array_size(s->environment)) return;
    fputs("\n| differs | base | new |\n|---|---|---|\n", out);
    json_array_foreach(s->environment, i, row)
    {
        static const char *const keys[] = { "name", "base", "new" };
        for (size_t k = 0; k < 3; k++) {
            fputs("| ", out);
            put_text(out, text_of(row, keys[k]));
            putc(' ', out);
        }
        fputs("|\n", out);
    }
}

static bool put_compared(FILE *out, FILE *rows)
{
    struct said s = { json_array(), json_array(), json_array(), json_array() };
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, rows) > 0) take_line(&s, line);
    free(line);
    const bool any = worst(&s);
    if (any) {
        put_verdict(out, &s);
        put_environment(out, &s);
        put_changes(out, &s);
    }
    json_decref(s.environment);
    json_decref(s.changes);
    json_decref(s.verdicts);
    json_decref(s.news);
    return any;
}

/* ---- what records say of themselves ---- */

struct counted {
    size_t count[HA_VERDICTS], bad;
    int verdict, id, reason; /* columns of the file at hand; -1: it has none */
    bool headed;
    FILE *list; /* of the cases that are not right */
};

static int column(char **fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(fields[i], name)) return (int)i;
    return -1;
}

static enum ha_status count_row(void *arg, size_t line, char **fields, size_t count)
{
    struct counted *c = arg;
    if (!c->headed) {
        c->headed = true;
        c->verdict = column(fields, count, "verdict");
        c->id = column(fields, count, "case_id");
        c->reason = column(fields, count, "reason");
        return HA_OK;
    }
    if (c->verdict < 0 || (size_t)c->verdict >= count) return HA_OK;
    const enum ha_verdict v = ha_verdict_of(fields[c->verdict]);
    c->count[v]++;
    if ((v != HA_VERDICT_FAIL && v != HA_VERDICT_ERROR) || c->bad++ >= BAD_MAX) return HA_OK;
    fprintf(c->list, "| **%s** | ", ha_verdict_name(v));
    if (c->id >= 0 && (size_t)c->id < count) put_text(c->list, fields[c->id]);
    fputs(" | ", c->list);
    if (c->reason >= 0 && (size_t)c->reason < count) put_text(c->list, fields[c->reason]);
    fputs(" |\n", c->list);
    return HA_OK;
}

/* The rows of each suite's file; one line for each that cannot be read to its end. */
static void count_record(struct counted *c, const char *record)
{
    char path[4096];
    struct ha_why why;
    for (size_t i = 0; i < ha_suites_count; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", record, ha_suites_all[i]->file[0]);
        if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0) continue;
        c->headed = false;
        if (ha_csv_read(path, count_row, c, &why) == HA_OK) continue;
        fputs("| **damaged** | ", c->list);
        put_text(c->list, why.text);
        fputs(" | |\n", c->list);
        c->bad++;
    }
}

/* What a night or a day came to, where that is not right, whatever its rows are: the caller's to free. NULL: it is, or
 * the folder is of neither. */
static char *said_by_night(const char *folder)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/night.json", folder);
    json_t *night = n > 0 && (size_t)n < sizeof path ? json_load_file(path, 0, NULL) : NULL;
    const json_t *exit = json_object_get(night, "exit");
    const char *word = !night                     ? NULL
                       : !exit                    ? "not ended"
                       : json_integer_value(exit) ? text_of(night, "verdict")
                                                  : NULL;
    char *own = word ? strdup(word) : NULL;
    json_decref(night);
    return own;
}

static void put_own(FILE *out, const struct ha_options *o)
{
    char *list = NULL, *said = NULL;
    size_t bytes = 0, total = 0;
    struct ha_why why;
    struct counted c = { .list = open_memstream(&list, &bytes) };
    if (!c.list) return;
    for (size_t i = 0; i < o->words_count; i++) {
        struct ha_record_paths paths;
        char newest[4096];
        const char *folder = ha_newest_night(o->words[i], newest) ? newest : o->words[i];
        if (ha_record_paths_find(folder, &paths, &why) == HA_OK)
            for (size_t k = 0; k < paths.count; k++) count_record(&c, paths.path[k]);
        ha_record_paths_free(&paths);
        if (!said) said = said_by_night(folder);
    }
    fclose(c.list);
    for (int v = HA_PASS; v < HA_VERDICTS; v++) total += c.count[v];
    fputs("**habench: ", out);
    put_text(out, c.count[HA_VERDICT_FAIL]    ? "wrong"
                  : c.count[HA_VERDICT_ERROR] ? "not judged"
                  : c.bad                     ? "damaged"
                  : said                      ? said
                  : c.count[HA_SUSPECT]       ? "suspect"
                  : !total                    ? "no cases"
                  : !c.count[HA_PASS]         ? "nothing passed"
                                              : "right");
    fprintf(out, "**. %zu cases:", total);
    for (int v = HA_PASS; v < HA_VERDICTS; v++)
        if (c.count[v]) fprintf(out, " %zu %s", c.count[v], ha_verdict_name((enum ha_verdict)v));
    putc('\n', out);
    if (c.bad) fprintf(out, "\n| verdict | case | reason |\n|---|---|---|\n%s", list);
    if (c.bad > BAD_MAX) fprintf(out, "\nand %zu more\n", c.bad - BAD_MAX);
    free(list);
    free(said);
}

enum ha_exit ha_report_md(const struct ha_options *o, FILE *out, struct ha_why *why)
{
    FILE *rows;
    char note[512];
    for (size_t i = 0; i < o->words_count; i++) {
        struct ha_record_paths paths;
        const enum ha_status found = ha_record_paths_find(o->words[i], &paths, why);
        ha_record_paths_free(&paths);
        if (found != HA_OK) return HA_EXIT_USAGE;
    }
    if (ha_report_compare(o, &rows, note, why) != HA_OK) return HA_EXIT_ENVIRONMENT;
    const bool compared = rows && put_compared(out, rows);
    if (rows) fclose(rows);
    if (compared) return HA_EXIT_OK;
    put_own(out, o);
    if (*note) {
        fputs("\nNothing is compared: ", out);
        put_text(out, note);
        putc('\n', out);
    }
    return HA_EXIT_OK;
}
