#include "harness/base/file.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/report/folder_parts.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A case of the report: one of the folder's, or one that was not run. */
struct item {
    const struct ha_folder_entry *of;
    const char *reason;
    enum ha_verdict verdict;
    size_t group; /* the first item of its test suite */
    double seconds;
    bool timed; /* it has a test case for its timing */
    bool measured;
};

/* Texts of the folder are clean. */
static void put(FILE *f, const char *s) { ha_text_xml(f, s, "'"); }

static void put_name(FILE *f, const struct item *i, const char *class)
{
    fprintf(f, "    <testcase classname=\"%s\" name=\"", class);
    put(f, i->of->id);
    if (i->of->process) fprintf(f, " (process %zu)", i->of->process);
    putc('"', f);
}

bool ha_folder_asks_command(const struct ha_suite *suite, const char *id)
{
    for (size_t k = 0; k < suite->keys; k++) {
        const struct ha_key *key = &suite->key[k];
        char word[64];
        if (!key->options || !strstr(key->options, " exec ")) continue;
        const size_t n = (size_t)snprintf(word, sizeof word, "%.50s=exec", key->name);
        for (const char *at = id; (at = strstr(at + 1, word));)
            if (strchr(":,", at[-1]) && (!at[n] || at[n] == ',')) return true;
    }
    return false;
}

/* one word of a shell */
static void put_word(FILE *f, const char *word)
{
    putc('\'', f);
    ha_text_xml(f, word, "'\\''");
    putc('\'', f);
}

/* A pass with a warning, which readers of JUnit count as a pass. */
static void put_suspect(FILE *f, const struct item *i)
{
    fputs("><properties><property name=\"suspect\" value=\"", f);
    put(f, i->reason);
    fputs("\"/></properties><system-out>SUSPECT: ", f);
    put(f, i->reason);
    fputs("</system-out></testcase>\n", f);
}

static void put_correctness(FILE *f, const struct ha_folder *folder, const struct item *i)
{
    static const char *const tag[HA_VERDICTS] = {
        [HA_NOT_RUN] = "skipped",        [HA_VERDICT_FAIL] = "failure", [HA_VERDICT_ERROR] = "error",
        [HA_VERDICT_WAIVED] = "skipped", [HA_UNCHECKED] = "skipped",
    };
    const char *t = tag[i->verdict];
    put_name(f, i, "correctness");
    if (i->of->seconds > 0) fprintf(f, " time=\"%.6f\"", i->of->seconds);
    if (i->verdict == HA_SUSPECT) {
        put_suspect(f, i);
        return;
    }
    if (!t) {
        fputs("/>\n", f);
        return;
    }
    fprintf(f, "><%s message=\"", t);
    if (strcmp(t, "skipped") == 0) fprintf(f, "%s: ", ha_verdict_name(i->verdict));
    put(f, i->reason);
    fputs("\"", f);
    if (strcmp(t, "skipped")) {
        fputs(">habench check ", f);
        put_word(f, i->of->id);
        if (folder->exec && ha_folder_asks_command(i->of->suite, i->of->id)) {
            fputs(" --exec ", f);
            put_word(f, folder->exec);
        }
        fprintf(f, "</%s></testcase>\n", t);
    } else fputs("/></testcase>\n", f);
}

static void put_timing(FILE *f, const struct item *i)
{
    put_name(f, i, "timing");
    if (!isnan(i->seconds)) fprintf(f, " time=\"%.9f\"", i->seconds);
    fputs(i->measured ? "/>\n" : "><skipped message=\"not measured\"/></testcase>\n", f);
}

struct counts {
    size_t tests, failures, errors, skipped;
};

static struct counts folder_junit_count(const struct item *items, size_t n, size_t group)
{
    struct counts c = { 0 };
    for (size_t i = 0; i < n; i++) {
        const struct item *x = &items[i];
        if (group != SIZE_MAX && x->group != group) continue;
        c.tests += 1u + x->timed;
        c.failures += x->verdict == HA_VERDICT_FAIL;
        c.errors += x->verdict == HA_VERDICT_ERROR;
        c.skipped += x->verdict == HA_NOT_RUN || x->verdict == HA_VERDICT_WAIVED || x->verdict == HA_UNCHECKED;
        c.skipped += x->timed && !x->measured;
    }
    return c;
}

static void put_counts(FILE *f, struct counts c)
{
    fprintf(f, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n", c.tests, c.failures, c.errors,
            c.skipped);
}

static struct item item_of(const struct ha_folder *folder, const struct ha_folder_entry *e)
{
    const struct ha_result *r = ha_result_in(e->row);
    struct item i = { .of = e, .reason = r->reason, .verdict = r->verdict, .seconds = (double)NAN };
    i.timed = !strcmp(folder->mode, "run") && e->suite->measure;
    for (size_t k = 0; k < e->suite->fields && i.timed && isnan(i.seconds); k++) {
        const struct ha_field *f = &e->suite->field[k];
        if (!f->unit || strcmp(f->unit, "ns") || f->better == HA_NO_FIGURE) continue;
        i.seconds = ha_field_value(f, e->row) / 1e9;
        break;
    }
    i.measured = !isnan(i.seconds) || !isnan(r->samples);
    return i;
}

static bool same_group(const struct item *a, const struct item *b)
{
    return !strcmp(a->of->from, b->of->from) && !strcmp(a->of->class_value, b->of->class_value);
}

/* By the first item of each; groups[]: those first items. */
static size_t find_groups(struct item *items, size_t n, size_t *groups)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        size_t g = 0;
        while (g < found && !same_group(&items[groups[g]], &items[i])) g++;
        if (g == found) groups[found++] = i;
        items[i].group = groups[g];
    }
    return found;
}

static void put_suite(FILE *f, const struct ha_folder *folder, const struct item *items, size_t n, size_t group)
{
    const struct ha_folder_entry *e = items[group].of;
    fputs("  <testsuite name=\"", f);
    put(f, e->from);
    if (*e->class_value) putc('.', f);
    put(f, e->class_value);
    putc('"', f);
    put_counts(f, folder_junit_count(items, n, group));
    for (size_t i = group; i < n; i++) {
        if (items[i].group != group) continue;
        put_correctness(f, folder, &items[i]);
        if (items[i].timed) put_timing(f, &items[i]);
    }
    fputs("  </testsuite>\n", f);
}

enum ha_status ha_folder_junit(const struct ha_folder *folder, struct ha_why *why)
{
    const size_t n = folder->entries + folder->missings;
    struct item *items = calloc(n + 1, sizeof *items);
    size_t *groups = calloc(n + 1, sizeof *groups);
    struct ha_whole_file out;
    enum ha_status status = items && groups ? ha_whole_file_open(&out, folder->path, "junit.xml", why)
                                            : ha_why(why, HA_ERROR, "%s/junit.xml: out of memory", folder->path);
    if (status == HA_OK) {
        for (size_t i = 0; i < folder->entries; i++) items[i] = item_of(folder, folder->entry[i]);
        for (size_t i = 0; i < folder->missings; i++)
            items[folder->entries + i] = (struct item){ .of = folder->missing[i].of,
                                                        .reason = folder->missing[i].reason,
                                                        .verdict = HA_NOT_RUN,
                                                        .seconds = (double)NAN };
        const size_t found = find_groups(items, n, groups);
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"habench\"", out.file);
        put_counts(out.file, folder_junit_count(items, n, SIZE_MAX));
        for (size_t g = 0; g < found; g++) put_suite(out.file, folder, items, n, groups[g]);
        fputs("</testsuites>\n", out.file);
        status = ha_whole_file_close(&out, why);
    }
    free(items);
    free(groups);
    return status;
}
