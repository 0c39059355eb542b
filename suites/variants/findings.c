#include "suites/variants/findings.h"

#include "harness/base/stats.h"
#include "harness/report/row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what disturbed a row ---------------------------------------------------------------------------------------- */

static double load_of(const struct ha_row *r) { return r->load_share; }
static double steal_of(const struct ha_row *r) { return r->steal_share; }
static double slow_of(const struct ha_row *r) { return r->slow_share; }
static double no_share(const struct ha_row *r) { return (double)NAN; }

static const struct cause {
    const char *word;                        /* in the column `disturbed` */
    double (*share)(const struct ha_row *r); /* NaN: it has none, or it is not known */
    const char *before, *behind;             /* the share, in the line below the table */
} causes[] = {
    { "load", load_of, "other programs took ", " of the cores' time" },
    { "steal", steal_of, "the hypervisor took ", " of it" },
    { "throttled", no_share, "cores or the device were throttled", "" },
    { "shared", slow_of, "a core ran below 0.85 of its best speed in ", " of the looks" },
};
enum { CAUSES = sizeof causes / sizeof *causes };

static bool has(const struct ha_row *r, const struct cause *c) { return strstr(r->disturbed, c->word) != NULL; }

/* 0 to 1; of a row that has the cause without a share 1 */
static double amount(const struct ha_row *r, const struct cause *c)
{
    const double share = c->share(r);
    return isnan(share) ? has(r, c) : share;
}

void ha_findings_mark(const struct ha_row *const *row, size_t rows, bool *mark)
{
    double *x = calloc(rows + 1, sizeof *x);
    const double steps = rows > 1 ? (double)(rows - 1) : 1, quartile = floor(0.75 * steps) / steps;
    memset(mark, 0, rows * sizeof *mark);
    for (size_t c = 0; x && c < CAUSES; c++) {
        for (size_t i = 0; i < rows; i++) x[i] = amount(row[i], &causes[c]);
        const double usual = 2 * ha_quantile(x, rows, quartile);
        for (size_t i = 0; i < rows; i++) mark[i] = mark[i] || (has(row[i], &causes[c]) && x[i] > usual);
    }
    free(x);
}

void ha_findings_print_disturbed(FILE *out, const struct ha_row *const *row, size_t rows, const bool *mark)
{
    double *x = calloc(rows + 1, sizeof *x);
    size_t disturbed = 0, marked = 0;
    for (size_t i = 0; i < rows; i++) {
        disturbed += *row[i]->disturbed != 0;
        marked += mark[i];
    }
    if (disturbed) fprintf(out, "Timing is uncertain in %zu of %zu rows", disturbed, rows);
    const char *between = ": ";
    for (size_t c = 0; x && disturbed && c < CAUSES; c++) {
        size_t having = 0, known = 0;
        for (size_t i = 0; i < rows; i++) {
            if (!has(row[i], &causes[c])) continue;
            having++;
            const double share = causes[c].share(row[i]);
            if (!isnan(share)) x[known++] = share;
        }
        if (!having) continue;
        fprintf(out, "%s%s", between, causes[c].before);
        if (known) fprintf(out, "%.1f%%", 100 * ha_median(x, known));
        else if (*causes[c].behind) fputs("some", out);
        fprintf(out, "%s (%s, %zu row%s)", causes[c].behind, causes[c].word, having, having > 1 ? "s" : "");
        between = ", ";
    }
    if (disturbed) fputs(" (docs/measurement.md).", out);
    if (marked) fprintf(out, " ! marks %zu that %s disturbed more than the rest.", marked, marked > 1 ? "were" : "was");
    if (disturbed) putc('\n', out);
    free(x);
}

/* ---- the rows of a run ------------------------------------------------------------------------------------------- */

static const double near_most = 0.05, idle_least = 0.995;
enum { WORKLOADS_SAID = 4, NAMES_SAID = 6 };

static const struct ha_row *measured(const struct ha_results *r, size_t i)
{
    const struct ha_row *row = r->entry[i].row;
    return row && ha_passed(row->head.verdict) && !isnan(row->step_ns) ? row : NULL;
}

/* Full attention is what the others are held against; an arm's output is none. */
static bool is_candidate(const struct ha_row *row)
{
    return row && strcmp(row->family, "full") != 0 && !isnan(row->vs_full) && !isnan(row->rel_l2);
}

static void print_workload(FILE *out, const struct ha_row *r)
{
    fprintf(out, " on %s at ctx %s", r->dataset, r->ctx_len);
    if (r->batch > 1) fprintf(out, ", batch %.0f", r->batch);
    if (r->q_len > 1) fprintf(out, ", q_len %.0f", r->q_len);
}

/* ---- the fastest that is near full attention --------------------------------------------------------------------- */

/* Of the candidates of a workload, which text[] tells apart, from the first one on; NULL: none is near. */
static const struct ha_row *fastest_near(const struct ha_results *r, char *const *text, size_t first)
{
    const struct ha_row *fastest = NULL;
    for (size_t i = first; i < r->entries; i++) {
        if (!text[i] || strcmp(text[i], text[first]) != 0) continue;
        const struct ha_row *row = measured(r, i);
        if (row->rel_l2 <= near_most && (!fastest || row->vs_full < fastest->vs_full)) fastest = row;
    }
    return fastest;
}

static bool is_first(char *const *text, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (text[j] && !strcmp(text[j], text[i])) return false;
    return true;
}

static void print_fastest_of(FILE *out, const struct ha_results *r, char *const *text)
{
    size_t workloads = 0, said = 0, near = 0, faster = 0;
    for (size_t i = 0; i < r->entries; i++) {
        if (!text[i] || !is_first(text, i)) continue;
        workloads++;
        const struct ha_row *row = fastest_near(r, text, i);
        near += row != NULL;
        faster += row && row->vs_full < 1;
    }
    if (!workloads) return;
    if (!near) {
        fputs("No variant stays within 5% of full attention's output (rel L2 up to 0.05).\n", out);
        return;
    }
    fputs("Within 5% of full attention's output (rel L2 up to 0.05) the fastest is", out);
    for (size_t i = 0; i < r->entries && said < WORKLOADS_SAID; i++) {
        if (!text[i] || !is_first(text, i)) continue;
        const struct ha_row *row = fastest_near(r, text, i);
        fprintf(out, "%s %s", said++ ? ";" : "", row ? row->variant : "none");
        if (row && *row->params) fprintf(out, " %s", row->params);
        print_workload(out, measured(r, i));
        if (row) fprintf(out, ", at %.2f x full", row->vs_full);
    }
    if (workloads > said) fprintf(out, "; and so on for %zu more workloads", workloads - said);
    fputs(faster ? ".\n" : "; full attention itself is faster.\n", out);
}

static void print_fastest(FILE *out, const struct ha_results *r)
{
    char **text = calloc(r->entries + 1, sizeof *text); /* of a candidate its workload */
    for (size_t i = 0; text && i < r->entries; i++)
        if (is_candidate(measured(r, i))) text[i] = ha_row_workload(measured(r, i));
    if (text) print_fastest_of(out, r, text);
    for (size_t i = 0; text && i < r->entries; i++) free(text[i]);
    free(text);
}

/* ---- the CPU side ------------------------------------------------------------------------------------------------ */

static void widen(double range[2], double x)
{
    range[0] = fmin(range[0], x); /* fmin drops a NaN */
    range[1] = fmax(range[1], x);
}

static void print_cpu_side(FILE *out, const struct ha_results *r)
{
    double busy[2] = { (double)NAN, (double)NAN }, time[2] = { (double)NAN, (double)NAN },
           alone[2] = { (double)NAN, (double)NAN };
    size_t rows = 0, busy_rows = 0;
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_row *row = measured(r, i);
        if (!row || isnan(row->ratios.cpu_idle)) continue;
        rows++;
        if (!strcmp(row->variant, "cpu")) widen(alone, row->vs_full);
        if (row->ratios.cpu_idle >= idle_least) continue;
        busy_rows++;
        widen(busy, 100 * (1 - row->ratios.cpu_idle));
        widen(time, (1 - row->ratios.cpu_idle) * row->threads * row->step_ns / 1e6);
    }
    if (!rows) return;
    if (!busy_rows) fputs("The CPU side works in none of the rows", out);
    else
        fprintf(out,
                "The CPU side works in %zu of %zu rows: its threads are busy for %.1f to %.1f%% of a step and take "
                "%.3g to %.3g ms of CPU time for it",
                busy_rows, rows, busy[0], busy[1], time[0], time[1]);
    if (!isnan(alone[0]))
        fprintf(out, "; all attention on the CPU (`cpu`) takes %.2f to %.2f of full attention's time on the device",
                alone[0], alone[1]);
    fputs(".\n", out);
}

/* ---- what was waived --------------------------------------------------------------------------------------------- */

static const struct ha_row *waived(const struct ha_results *r, size_t i)
{
    const struct ha_row *row = r->entry[i].row;
    return row && row->head.verdict == HA_VERDICT_WAIVED ? row : NULL;
}

static bool reason_is_new(const struct ha_results *r, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (waived(r, j) && !strcmp(waived(r, j)->head.reason, waived(r, i)->head.reason)) return false;
    return true;
}

/* The variants that were waived for the reason of entry i, each once. */
static void print_waived_for(FILE *out, const struct ha_results *r, size_t i)
{
    const char *name[NAMES_SAID];
    size_t names = 0, more = 0;
    for (size_t j = i; j < r->entries; j++) {
        const struct ha_row *row = waived(r, j);
        if (!row || strcmp(row->head.reason, waived(r, i)->head.reason) != 0) continue;
        size_t k = 0;
        while (k < names && strcmp(name[k], row->variant) != 0) k++;
        if (k < names) continue;
        if (names < NAMES_SAID) name[names++] = row->variant;
        else more++;
    }
    for (size_t k = 0; k < names; k++) fprintf(out, "%s%s", k ? ", " : "", name[k]);
    if (more) fputs(" and others", out);
    fprintf(out, " (%s)", waived(r, i)->head.reason);
}

static void print_waived(FILE *out, const struct ha_results *r)
{
    size_t cases = 0, rows = 0;
    for (size_t i = 0; i < r->entries; i++) {
        rows += r->entry[i].row != NULL;
        cases += waived(r, i) != NULL;
    }
    if (!cases) {
        if (rows) fputs("Nothing was waived.\n", out);
        return;
    }
    if (cases == rows) fprintf(out, "Everything was waived, %zu case%s", rows, rows > 1 ? "s" : "");
    else fprintf(out, "Waived, as it cannot run here: %zu of %zu cases", cases, rows);
    const char *between = ": ";
    for (size_t i = 0; i < r->entries; i++) {
        if (!waived(r, i) || !reason_is_new(r, i)) continue;
        fputs(between, out);
        print_waived_for(out, r, i);
        between = "; ";
    }
    fputs(".\n", out);
}

void ha_findings_print(FILE *out, const struct ha_results *results)
{
    print_fastest(out, results);
    print_cpu_side(out, results);
    print_waived(out, results);
}
