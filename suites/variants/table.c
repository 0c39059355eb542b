#define _GNU_SOURCE /* asprintf */
#include "harness/base/pool.h"
#include "harness/report/row.h"
#include "suites/variants/claims.h"
#include "suites/variants/fill.h"
#include "suites/variants/findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 384 };

/* A row of the table. The table is sorted by group, family and place. */
struct listed {
    const struct ha_row *row;
    bool marked;    /* it was disturbed more than the others */
    size_t place;   /* in the run */
    char *workload; /* its own */
    size_t group;   /* place of the first row of this workload */
    size_t family;  /* place of the first row of this family */
};

/* ---- cells ------------------------------------------------------------------------------ */

static void number(char *out, const char *format, double x)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (isnan(x)) strcpy(out, "-");
    else snprintf(out, CELL, format, x);
#pragma GCC diagnostic pop
}

static void name(const struct ha_row *r, char *out)
{
    const char *slash = strrchr(r->fit, '/');
    int n = snprintf(out, CELL, "%s", r->variant);
    if (*r->fit)
        n += snprintf(out + n, CELL - (size_t)n, " fit%s=%.100s", strcmp(r->fit_text, "own") ? "" : "(own text)",
                      slash ? slash + 1 : r->fit);
    snprintf(out + n, CELL - (size_t)n, "%s%s%s", *r->params ? " " : "", r->params, r->graph > 0 ? " graph=1" : "");
}
static void verdict(const struct ha_row *r, char *out) { snprintf(out, CELL, "%s", ha_verdict_name(r->head.verdict)); }
static void error(const struct ha_row *r, char *out)
{
    number(out, "%.3g", r->head.verdict == HA_UNCHECKED ? (double)NAN : r->err_over_bound);
}
static void rel_l2(const struct ha_row *r, char *out) { number(out, "%.2e", r->rel_l2); }
static void head_max(const struct ha_row *r, char *out) { number(out, "%.2e", r->rel_l2_head_max); }
static void mass(const struct ha_row *r, char *out) { number(out, "%.4f", r->mass_mean); }
static void mass_min(const struct ha_row *r, char *out) { number(out, "%.4f", r->mass_min); }
static void recall(const struct ha_row *r, char *out) { number(out, "%.4f", r->recall); }
static void certificate(const struct ha_row *r, char *out) { number(out, "%.3f", r->cert_slack); }
static void bias(const struct ha_row *r, char *out) { number(out, "%+.2f", r->bias); }
static void rms(const struct ha_row *r, char *out) { number(out, "%.2f", r->rms); }
static void keys(const struct ha_row *r, char *out) { number(out, "%.1f", r->keys_mean); }
/* what the trace says where it took much longer or shorter than what was timed */
static bool perturbed(const struct ha_row *r) { return fabs(r->perturb) > 0.05; }
static void marked(const struct ha_row *r, const char *format, double x, char *out)
{
    number(out, format, x);
    if (perturbed(r) && !isnan(x)) strcat(out, "~");
}
/* the median, and half of its interval; of too few passes there is none */
static void step(const struct ha_row *r, char *out)
{
    const double half = 50 * (r->step_hi_ns - r->step_lo_ns) / r->step_ns;
    number(out, "%.4g", r->step_ns / 1e6);
    if (isnan(r->step_ns)) return;
    if (isnan(half)) strcat(out, " +- ? ");
    else snprintf(out + strlen(out), CELL - strlen(out), " +-%2.0f%%", half);
}
static void full(const struct ha_row *r, char *out) { number(out, "%.2f", r->vs_full); }
static void device_idle(const struct ha_row *r, char *out) { marked(r, "%.1f", 100 * r->ratios.gpu_idle, out); }
static void cpu_idle(const struct ha_row *r, char *out) { marked(r, "%.1f", 100 * r->ratios.cpu_idle, out); }
static void loss(const struct ha_row *r, char *out)
{
    if (isnan(r->followed.loss_change)) snprintf(out, CELL, "-");
    else snprintf(out, CELL, "%+.4f+-%.4f", r->followed.loss_change, r->followed.loss_change_se);
}
static void divergence(const struct ha_row *r, char *out) { number(out, "%.5f", r->followed.kl); }
static void top1(const struct ha_row *r, char *out) { number(out, "%.3f", r->followed.top1); }

/* IN_MODEL: where a model decodes */
enum { IN_CHECK = 1, IN_BENCH = 2, BOTH = 3, IN_MODEL = 4 };

static const struct column {
    const char *title;
    int width; /* negative: to the left */
    unsigned where;
    void (*cell)(const struct ha_row *r, char *out);
    const char *legend;
} columns[] = {
    { "variant", -34, BOTH, name, "and its options that differ from their defaults (habench list variants)" },
    { "verdict", -9, BOTH, verdict, "pass: every output that was checked is within its error bound" },
    { "err/bound", 9, BOTH, error, "the largest error of an output over its bound; above 1 fails" },
    { "rel L2", 9, BOTH, rel_l2, "distance of the output from full attention's, over the length of that: quality" },
    { "head max", 9, IN_CHECK, head_max, "the same of the head that is farthest off" },
    { "mass", 7, BOTH, mass, "share of full attention's softmax weight on the keys that were used: mean" },
    { "least", 7, IN_CHECK, mass_min, "the same: the least" },
    { "recall", 7, IN_CHECK, recall, "share of the keys with the largest scores among those used" },
    { "cert", 6, IN_CHECK, certificate, "deviation over its certificate, which the dropped weight gives: at most 1" },
    { "bias", 6, IN_CHECK, bias, "mean error of the LSE over what independent roundings make of it" },
    { "rms", 5, IN_CHECK, rms, "root mean square of the errors over the same: up to 1 is rounding" },
    { "loss change", 15, IN_MODEL, loss,
      "-log p of the next token less that with full attention: mean, standard error; nats" },
    { "KL", 8, IN_MODEL, divergence,
      "divergence of the next token's distribution from that with full attention: nats, mean" },
    { "top-1", 5, IN_MODEL, top1, "share of the tokens whose likeliest next token is that of full attention" },
    { "keys", 9, IN_CHECK, keys, "keys that a query head used: mean" },
    { "step ms", 15, IN_BENCH, step, "time of a step through all layers: median, and half its 95% interval" },
    { "x full", 7, IN_BENCH, full, "that over the step of full attention on the device (resident)" },
    { "GPU idle%", 9, IN_BENCH, device_idle, "share of a step in which the device neither computes nor copies" },
    { "CPU idle%", 9, IN_BENCH, cpu_idle, "share of a step in which the CPU side's threads do not compute" },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* ---- groups ------------------------------------------------------------------------------ */

char *ha_row_workload(const struct ha_row *r)
{
    const bool named = !*r->device_kind || !strcmp(r->device, r->device_kind); /* by its kind */
    const bool usual = !*r->team || !strcmp(r->team, ha_team_name(HA_TEAM_DEFAULT));
    char threads[40] = "", *text = NULL;
    if (r->threads > 0) /* a case that could not be made has none yet */
        snprintf(threads, sizeof threads, ", %.0f thread%s", r->threads, r->threads > 1 ? "s" : "");
    const int length = asprintf(
        &text,
        "ctx %s, batch %.0f, q_len %.0f, heads %.0f/%.0f x %.0f, %s, %.0f layer%s%s%s%s, %s seed %llu, device %s%s%s%s"
        "%s%s%s",
        r->ctx_len, r->batch, r->q_len, r->q_heads, r->kv_heads, r->head_dim, r->kv_dtype, r->layers,
        r->layers > 1 ? "s" : "", *r->model ? " of " : "", r->model,
        !strcmp(r->load, "layer") ? " with their products" : "", r->dataset, (unsigned long long)r->seed, r->device,
        named ? "" : " (", named ? "" : r->device_kind, named ? "" : ")", threads, usual ? "" : ", team ",
        usual ? "" : r->team);
    return length < 0 ? NULL : text;
}

/* a waived case measured nothing, and one whose process died left nothing: why stands under the tables */
static const struct ha_row *listed(const struct ha_results *r, size_t i)
{
    const struct ha_row *row = r->entry[i].row;
    return row && row->head.verdict != HA_VERDICT_WAIVED && *row->variant ? row : NULL;
}

/* row NULL: the titles. indent: of the first cell. */
static void print_row(FILE *out, const struct listed *of, int indent, unsigned where)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        char cell[CELL];
        if (!(columns[i].where & where)) continue;
        if (of) columns[i].cell(of->row, cell);
        else snprintf(cell, sizeof cell, "%s", columns[i].title);
        const int blanks = i ? 0 : indent, most = abs(columns[i].width) - blanks;
        if ((int)strlen(cell) > most) strcpy(cell + most - 2, "..");
        fprintf(out, "%s%*s%*s", i ? " " : "", blanks, "", columns[i].width < 0 ? -most : most, cell);
        if (columns[i].cell == step) putc(of && of->marked ? '!' : ' ', out);
    }
    putc('\n', out);
}

static void print_legend(FILE *out, unsigned where)
{
    putc('\n', out);
    for (size_t i = 0; i < COLUMNS; i++)
        if (columns[i].where & where) fprintf(out, "%-9s  %s\n", columns[i].title, columns[i].legend);
}

/* A line for each workload, and in it one for each family, where it has several. */
static void print_groups(FILE *out, const struct listed *rows, size_t count, unsigned where)
{
    bool several = false;
    putc('\n', out);
    print_row(out, NULL, 0, where);
    for (size_t i = 0, end = 0; i < count; i++) {
        const bool begins = i == end;
        if (begins) {
            while (end < count && rows[end].group == rows[i].group) end++;
            several = rows[end - 1].family != rows[i].family;
            fprintf(out, "%s%.150s\n", i ? "\n" : "", rows[i].workload);
        }
        if (several && (begins || rows[i].family != rows[i - 1].family)) fprintf(out, "%s\n", rows[i].row->family);
        print_row(out, &rows[i], several ? 2 : 0, where);
    }
}

static int by_number(size_t a, size_t b) { return (a > b) - (a < b); }

static int by_workload(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    const int texts = strcmp(x->workload, y->workload);
    return texts ? texts : by_number(x->place, y->place);
}

static int by_group(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    const int groups = by_number(x->group, y->group), families = by_number(x->family, y->family);
    return groups ? groups : families ? families : by_number(x->place, y->place);
}

static void sort(struct listed *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        while (strcmp(rows[first].row->family, rows[i].row->family) != 0) first++;
        rows[i].family = first;
    }
    qsort(rows, count, sizeof *rows, by_workload);
    for (size_t i = 0; i < count; i++)
        rows[i].group = i && !strcmp(rows[i].workload, rows[i - 1].workload) ? rows[i - 1].group : rows[i].place;
    qsort(rows, count, sizeof *rows, by_group);
}

/* The rows that are listed, sorted, on the heap; NULL: there are none, or no memory. */
static struct listed *list(const struct ha_results *r, size_t *count)
{
    struct listed *rows = calloc(r->entries + 1, sizeof *rows);
    const struct ha_row **row = calloc(r->entries + 1, sizeof *row);
    bool *mark = calloc(r->entries + 1, sizeof *mark), whole = rows && row && mark;
    *count = 0;
    for (size_t i = 0; whole && i < r->entries; i++) {
        const struct ha_row *of = listed(r, i);
        if (!of) continue;
        row[*count] = of;
        rows[*count] = (struct listed){ .row = of, .place = *count, .workload = ha_row_workload(of) };
        whole = rows[(*count)++].workload != NULL;
    }
    if (whole && r->measured) ha_findings_mark(row, *count, mark);
    for (size_t i = 0; i < *count; i++) rows[i].marked = mark[i];
    if (whole) sort(rows, *count);
    free(row);
    free(mark);
    if (whole && *count) return rows;
    for (size_t i = 0; i < *count; i++) free(rows[i].workload);
    free(rows);
    return NULL;
}

/* What is true of the rows' times as a whole. */
static void print_uncertain(FILE *out, const struct listed *rows, size_t count)
{
    const struct ha_row **row = calloc(count, sizeof *row);
    bool *mark = calloc(count, sizeof *mark);
    size_t traces = 0;
    for (size_t i = 0; row && mark && i < count; i++) {
        row[i] = rows[i].row;
        mark[i] = rows[i].marked;
        traces += perturbed(rows[i].row);
    }
    if (count) putc('\n', out);
    if (traces)
        fprintf(out, "~ %zu of %zu: idle%% is of traced steps, which took over 5%% longer or shorter than others\n",
                traces, count);
    if (row && mark) ha_findings_print_disturbed(out, row, count, mark);
    free(row);
    free(mark);
}

/* The case in which the largest error of o would pass, and that in which of the LSE. */
static void print_sensitivity(FILE *out, const struct ha_results *r)
{
    const struct ha_entry *o = NULL, *lse = NULL;
    double most_o = -1, most_lse = -1;
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_row *row = listed(r, i);
        if (row && row->sensitivity > most_o) most_o = row->sensitivity, o = &r->entry[i];
        if (row && row->sensitivity_lse > most_lse) most_lse = row->sensitivity_lse, lse = &r->entry[i];
    }
    if (!o || !lse) return;
    fprintf(out, "\nsensitivity, at worst: errors above %.2g of o are seen (%s), above %.2g of exp(LSE) (%s)\n", most_o,
            o->id, most_lse, lse->id);
}

void ha_table_print(FILE *out, const struct ha_results *results)
{
    unsigned where = results->measured ? IN_BENCH : IN_CHECK;
    size_t count;
    struct listed *rows = list(results, &count);
    for (size_t i = 0; rows && i < count; i++)
        if (!isnan(rows[i].row->followed.loss)) where |= IN_MODEL;
    if (rows) {
        print_groups(out, rows, count, where);
        print_legend(out, where);
    }
    if (rows && results->measured) print_uncertain(out, rows, count);
    for (size_t i = 0; rows && i < count; i++) free(rows[i].workload);
    free(rows);
    if (results->measured) {
        putc('\n', out);
        ha_findings_print(out, results);
    } else print_sensitivity(out, results);
    ha_claims_print(out, results);
}
