#include "harness/report/junit.h"

#include "harness/base/why.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put(FILE *f, const char *s)
{
    for (; *s; s++) switch (*s) {
        case '&': fputs("&amp;", f); break;
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '"': fputs("&quot;", f); break;
        default: putc((unsigned char)*s < 0x20 ? ' ' : *s, f); /* XML 1.0 has no other control characters */
        }
}

static void put_case(FILE *f, const struct ha_row *r, const char *class, double seconds)
{
    fprintf(f, "    <testcase classname=\"%s\" name=\"", class);
    put(f, r->case_id);
    fprintf(f, "\" time=\"%.9f\"", seconds);
}

static void put_correctness(FILE *f, const struct ha_row *r)
{
    static const struct {
        const char *verdict, *tag;
    } outcome[] = { { "fail", "failure" }, { "error", "error" }, { "waived", "skipped" } };

    put_case(f, r, "correctness", 0);
    for (size_t i = 0; i < sizeof outcome / sizeof *outcome; i++)
        if (!strcmp(r->verdict, outcome[i].verdict)) {
            fprintf(f, "><%s message=\"", outcome[i].tag);
            put(f, r->reason);
            fprintf(f, "\"/></testcase>\n");
            return;
        }
    fputs("/>\n", f);
}

static void put_timing(FILE *f, const struct ha_row *r)
{
    put_case(f, r, "timing", isnan(r->step_ns) ? 0 : r->step_ns / 1e9);
    fputs(isnan(r->step_ns) ? "><skipped message=\"not measured\"/></testcase>\n" : "/>\n", f);
}

static bool same(const struct ha_row *a, const struct ha_row *b)
{
    return !strcmp(a->suite, b->suite) && !strcmp(a->variant, b->variant);
}

static void put_suite(FILE *f, const struct ha_row *rows, size_t count, size_t first, bool bench)
{
    size_t tests = 0, failures = 0, errors = 0, skipped = 0;

    for (size_t i = first; i < count; i++) {
        if (!same(&rows[first], &rows[i])) continue;
        tests += bench ? 2 : 1;
        failures += !strcmp(rows[i].verdict, "fail");
        errors += !strcmp(rows[i].verdict, "error");
        skipped += (size_t)!strcmp(rows[i].verdict, "waived") + (bench && isnan(rows[i].step_ns));
    }
    fputs("  <testsuite name=\"", f);
    put(f, rows[first].suite);
    putc('.', f);
    put(f, rows[first].variant);
    fprintf(f, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n", tests, failures, errors, skipped);
    for (size_t i = first; i < count; i++) {
        if (!same(&rows[first], &rows[i])) continue;
        put_correctness(f, &rows[i]);
        if (bench) put_timing(f, &rows[i]);
    }
    fputs("  </testsuite>\n", f);
}

enum ha_status ha_junit_write(const char *folder, const struct ha_row *rows, size_t count, bool bench,
                              struct ha_why *why)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/junit.xml", folder) >= (int)sizeof path)
        return ha_why(why, HA_ERROR, "%.200s: the path is too long", folder);
    FILE *f = fopen(path, "we");
    if (!f) return ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(errno));
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"habench\">\n", f);
    for (size_t i = 0; i < count; i++) {
        size_t before = 0;
        while (before < i && !same(&rows[before], &rows[i])) before++;
        if (before == i) put_suite(f, rows, count, i, bench);
    }
    fputs("</testsuites>\n", f);
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) return ha_why(why, HA_ERROR, "%s: cannot write: %s", path, strerror(errno));
    return HA_OK;
}
