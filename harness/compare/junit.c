#include "harness/base/file.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/print.h"

#include <stdlib.h>
#include <string.h>

/* A change, and the new record that it is of. */
struct item {
    const struct ha_change *change;
    const struct ha_recorded_case *of;
    size_t record;
};

static void put(FILE *f, const char *s) { ha_text_xml(f, s, "'"); }

static int by_case(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->record != y->record) return x->record < y->record ? -1 : 1;
    const int order = strcmp(x->of->id, y->of->id);
    return order ? order : strcmp(x->of->mode, y->of->mode);
}

static void put_line(FILE *f, const struct ha_change *change)
{
    char *text = NULL;
    size_t size;
    FILE *line = open_memstream(&text, &size);
    if (!line) return;
    ha_change_line(line, change);
    fclose(line);
    put(f, text);
    free(text);
}

struct counts {
    size_t tests, failures, errors;
};

static enum ha_exit exit_of(const struct item *items, size_t count)
{
    enum ha_exit worst = HA_EXIT_OK;
    for (size_t i = 0; i < count; i++) worst = ha_night_worse(worst, ha_change_exit(items[i].change->kind));
    return worst;
}

/* To a CI server it is a failure where something is wrong or slower, an error where it cannot be said. */
static bool failed(enum ha_exit exit) { return exit == HA_EXIT_WRONG || exit == HA_EXIT_REGRESSION; }

static void put_lines(FILE *f, const struct item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!ha_change_loud(items[i].change)) continue;
        put_line(f, items[i].change);
        putc('\n', f);
    }
}

static void put_case(FILE *f, const struct ha_comparison *all, const struct item *items, size_t count, struct counts *c)
{
    const enum ha_exit worst = exit_of(items, count);
    const char *tag = failed(worst) ? "failure" : worst ? "error" : "system-out";
    c->tests++;
    c->failures += failed(worst);
    c->errors += worst && !failed(worst);
    fputs("    <testcase classname=\"", f);
    put(f, all[items->record].now->path);
    fprintf(f, ".%s\" name=\"", items->of->mode);
    put(f, items->of->id);
    fprintf(f, "\"><%s", tag);
    if (worst) fprintf(f, " message=\"%s\"", ha_night_word(worst));
    putc('>', f);
    put_lines(f, items, count);
    fprintf(f, "</%s></testcase>\n", tag);
}

static const char *word_of(const struct ha_comparison *all, size_t records, enum ha_exit exit)
{
    for (size_t r = 0; r < records; r++)
        if (ha_comparison_exit(&all[r]) == exit) return ha_comparison_word(&all[r]);
    return ha_night_word(exit);
}

/* What all came to: too few processes, or a night that did not run them all. */
static void put_verdict(FILE *f, const struct ha_comparison *all, size_t records, enum ha_exit exit, const char *said,
                        struct counts *c)
{
    const char *tag = failed(exit) ? "failure" : "error";
    c->tests++;
    c->failures += failed(exit);
    c->errors += !failed(exit);
    fprintf(f, "    <testcase classname=\"habench\" name=\"verdict\"><%s message=\"%s\">", tag,
            word_of(all, records, exit));
    if (said) put(f, said);
    for (size_t r = 0; r < records; r++) {
        char *text = NULL;
        size_t size;
        FILE *line = open_memstream(&text, &size);
        if (!line) continue;
        ha_verdict_line(line, &all[r]);
        fclose(line);
        put(f, text);
        putc('\n', f);
        free(text);
    }
    fprintf(f, "</%s></testcase>\n", tag);
}

static void put_all(FILE *f, const struct ha_comparison *all, size_t records, enum ha_exit exit, const char *said,
                    const struct item *items, size_t count)
{
    struct counts c = { 0 };
    char *cases = NULL;
    size_t size;
    FILE *body = open_memstream(&cases, &size);
    if (!body) return;
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i; end < count && !by_case(&items[i], &items[end]);) end++;
        put_case(body, all, items + i, end - i, &c);
    }
    if (exit != HA_EXIT_OK && (said || exit_of(items, count) != exit)) put_verdict(body, all, records, exit, said, &c);
    fclose(body);
    fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fprintf(f, "<testsuites name=\"habench compare\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n", c.tests,
            c.failures, c.errors);
    fprintf(f, "  <testsuite name=\"compare\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n", c.tests, c.failures,
            c.errors);
    fputs(cases, f);
    fputs("  </testsuite>\n</testsuites>\n", f);
    free(cases);
}

enum ha_status ha_compare_junit(const char *path, const struct ha_comparison *all, size_t records, enum ha_exit exit,
                                const char *said, struct ha_why *why)
{
    size_t count = 0, k = 0;
    struct ha_whole_file out;
    for (size_t r = 0; r < records; r++) count += all[r].count;
    struct item *items = malloc((count + 1) * sizeof *items);
    enum ha_status status = items ? ha_whole_file_named(&out, path, why) : ha_why(why, HA_ERROR, "out of memory");
    if (status == HA_OK) {
        for (size_t r = 0; r < records; r++)
            for (size_t i = 0; i < all[r].count; i++) {
                const struct ha_change *c = &all[r].change[i];
                items[k++] = (struct item){ c, c->now ? c->now : c->base, r };
            }
        qsort(items, count, sizeof *items, by_case);
        put_all(out.file, all, records, exit, said, items, count);
        status = ha_whole_file_close(&out, why);
    }
    free(items);
    return status;
}
