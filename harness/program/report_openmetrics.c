#include "harness/program/report_parts.h"

#include "harness/base/csv.h"
#include "harness/base/stats.h"
#include "harness/base/text.h"
#include "harness/base/why.h"
#include "harness/compare/sides.h"
#include "harness/report/row.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* OpenMetrics 1.0, of which the text format of Prometheus (0.0.4) reads all: no timestamps, one type, "# EOF" a comment
 * there. Metrics are gauges in base units, their names end in the unit. */

enum { NAME_BYTES = 96 };

/* How a unit of a figure is said there; ending: what the figure's own name has of it. */
static const struct {
    const char *unit, *ending, *name;
    double scale;
} units[] = {
    { "ns", "_ns", "seconds", 1e-9 },
    { "us", "_us", "seconds", 1e-6 },
    { "ms", "_ms", "seconds", 1e-3 },
    { "bytes", "_bytes", "bytes", 1 },
    { "GB/s", "_GBps", "bytes_per_second", 1e9 },
    { "10^9 bytes/s", "_GBps", "bytes_per_second", 1e9 },
    { "GFLOP/s", "_GFLOPps", "operations_per_second", 1e9 },
    { "tokens", "_tokens", "tokens", 1 },
    { "tokens/s", "_tokens_per_s", "tokens_per_second", 1 },
    { "", "", "ratio", 1 },
};
enum { UNITS = sizeof units / sizeof *units };

struct family {
    char name[NAME_BYTES];
    const char *unit; /* with which the name ends */
    double scale;
};

static char *end_of(char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n >= m && !strcmp(name + n - m, ending) ? name + n - m : NULL;
}

/* false: no unit that this table knows */
static bool family_of(const struct ha_recorded_figure *f, struct family *out)
{
    char stem[NAME_BYTES / 2];
    size_t u = 0;
    while (u < UNITS && strcmp(units[u].unit, f->unit) != 0) u++;
    if (u == UNITS) return false;
    snprintf(stem, sizeof stem, "_%s", f->name);
    char *ending = end_of(stem, units[u].ending);
    if (ending) *ending = 0;
    for (char *c = stem; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    out->unit = units[u].name;
    out->scale = units[u].scale;
    snprintf(out->name, sizeof out->name, "habench%s_%s", *stem ? stem : "_run", units[u].name);
    return true;
}

static void put_head(FILE *out, const char *name, const char *unit, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    if (*unit) fprintf(out, "# UNIT %s %s\n", name, unit);
}

/* The value of a label: \, " and line ends are escaped; the record's texts have no other control characters. */
static void put_label(FILE *out, const char *name, const char *value, bool first)
{
    fprintf(out, "%s%s=\"", first ? "{" : ",", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"') putc('\\', out);
        if (*value == '\n') fputs("\\n", out);
        else putc(*value, out);
    }
    putc('"', out);
}

/* ---- figures ---- */

/* The median of the processes of the night, in the base unit; NaN: the night has none. */
static double median_of(const struct ha_recorded_figure *f, size_t night, double scale)
{
    double *x = malloc((f->count + 1) * sizeof *x);
    size_t n = 0;
    for (size_t i = 0; x && i < f->count; i++)
        if (f->at[i].night == night) x[n++] = f->at[i].value;
    const double median = ha_median(x, x ? n : 0);
    free(x);
    return median * scale;
}

static bool is_told(const struct ha_recorded_figure *f) { return f->better == HA_LESS || f->better == HA_MORE; }

/* Every case's figure of that family: those of a name have one unit each. */
static void put_family(FILE *out, const struct ha_record *r, const struct family *like, size_t night)
{
    bool head = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_recorded_case *c = r->cases[i];
        for (size_t k = 0; k < c->figures; k++) {
            struct family family;
            if (!is_told(&c->figure[k]) || !family_of(&c->figure[k], &family) || strcmp(family.name, like->name) != 0)
                continue;
            const double value = median_of(&c->figure[k], night, family.scale);
            if (!isfinite(value)) continue;
            if (!head) {
                char help[64];
                snprintf(help, sizeof help, "%s: median of processes; docs/measurement.md", c->figure[k].name);
                put_head(out, like->name, like->unit, help);
                head = true;
            }
            fputs(like->name, out);
            put_label(out, "case", c->id, true);
            put_label(out, "mode", c->mode, false);
            fprintf(out, "} %.9g\n", value);
        }
    }
}

static enum ha_status put_figures(FILE *out, const struct ha_record *r, size_t night, struct ha_why *why)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < r->count; i++) most += r->cases[i]->figures;
    struct family *done = malloc((most + 1) * sizeof *done);
    if (!done) return ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->cases[i]->figures; k++) {
            size_t j = 0;
            if (!is_told(&r->cases[i]->figure[k]) || !family_of(&r->cases[i]->figure[k], &done[count])) continue;
            while (strcmp(done[j].name, done[count].name) != 0) j++;
            if (j == count) put_family(out, r, &done[count++], night);
        }
    free(done);
    return HA_OK;
}

/* ---- what the night is ---- */

static void put_information(FILE *out, const struct ha_night *n)
{
    const char *cpu = ha_night_fact(n, "cpu");
    put_head(out, "habench_build_info", "", "The program and the machine.");
    fputs("habench_build_info", out);
    put_label(out, "version", n->build, true);
    put_label(out, "cpu", cpu ? cpu : "", false);
    fputs("} 1\n", out);

    struct tm at = { 0 };
    if (!strptime(n->date, "%Y-%m-%dT%H:%M:%S", &at)) return;
    put_head(out, "habench_start_time_seconds", "seconds", "When it began, since 1970.");
    fprintf(out, "habench_start_time_seconds %lld\n", (long long)timegm(&at));
}

static void put_verdicts(FILE *out, const struct ha_night *n)
{
    put_head(out, "habench_cases", "", "Rows of cases by verdict.");
    for (int v = HA_PASS; v < HA_VERDICTS; v++) {
        fputs("habench_cases", out);
        put_label(out, "verdict", ha_verdict_name((enum ha_verdict)v), true);
        fprintf(out, "} %zu\n", n->verdicts[v]);
    }
}

/* Of a night: the exit code that is its verdict. */
static void put_exit(FILE *out, const char *folder)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/night.json", folder);
    json_t *night = n > 0 && (size_t)n < sizeof path ? json_load_file(path, 0, NULL) : NULL;
    const json_t *code = json_object_get(night, "exit");
    if (json_is_integer(code)) {
        put_head(out, "habench_exit_code", "", "0 nothing changed, 10 wrong, 30 slower, 20 not all ran, 40 not fit.");
        fprintf(out, "habench_exit_code %lld\n", (long long)json_integer_value(code));
    }
    json_decref(night);
}

enum ha_exit ha_report_openmetrics(const struct ha_options *o, FILE *out, struct ha_why *why)
{
    struct ha_record record;
    if (o->words_count != 1) {
        ha_why(why, HA_ERROR, "--format openmetrics takes one folder: its last night, in one file for node_exporter");
        return HA_EXIT_USAGE;
    }
    if (ha_record_read(&record, o->words[0], why) != HA_OK) {
        ha_record_free(&record);
        return HA_EXIT_USAGE;
    }
    const struct ha_night *last = &record.night[record.nights - 1];
    put_information(out, last);
    put_exit(out, last->path);
    put_verdicts(out, last);
    const enum ha_status status = put_figures(out, &record, record.nights - 1, why);
    fputs("# EOF\n", out);
    ha_record_free(&record);
    return status == HA_OK ? HA_EXIT_OK : HA_EXIT_ENVIRONMENT;
}
