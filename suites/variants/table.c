#define _GNU_SOURCE /* asprintf */
#include "harness/base/pool.h"
#include "harness/report/row.h"
#include "suites/variants/claims.h"
#include "suites/variants/fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 384 };

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
static void step(const struct ha_row *r, char *out)
{
    number(out, "%.4g", r->step_ns / 1e6);
    if (*r->disturbed) strcat(out, "!");
}
static void spread(const struct ha_row *r, char *out)
{
    number(out, "%.1f", 50 * (r->step_hi_ns - r->step_lo_ns) / r->step_ns);
}
static void full(const struct ha_row *r, char *out) { number(out, "%.2f", r->vs_full); }
static void device_idle(const struct ha_row *r, char *out) { marked(r, "%.1f", 100 * r->ratios.gpu_idle, out); }
static void cpu_idle(const struct ha_row *r, char *out) { marked(r, "%.1f", 100 * r->ratios.cpu_idle, out); }
static void overlap(const struct ha_row *r, char *out) { marked(r, "%.1f", 100 * r->ratios.overlap, out); }
static void moved(const struct ha_row *r, char *out) { number(out, "%.4g", (r->h2d_bytes + r->d2h_bytes) / 1e6); }
static void rate(const struct ha_row *r, char *out) { marked(r, "%.2f", r->ratios.h2d_link_GBps, out); }
static void floor_ratio(const struct ha_row *r, char *out) { number(out, "%.2f", r->floor_ratio); }

enum { IN_CHECK = 1, IN_BENCH = 2, BOTH = 3 };

static const struct column {
    const char *title;
    int width; /* negative: to the left */
    unsigned where;
    void (*cell)(const struct ha_row *r, char *out);
} columns[] = {
    { "variant", -34, BOTH, name },        { "verdict", -9, BOTH, verdict },      { "err/bound", 9, BOTH, error },
    { "rel L2", 9, BOTH, rel_l2 },         { "head max", 9, IN_CHECK, head_max }, { "mass", 7, BOTH, mass },
    { "least", 7, IN_CHECK, mass_min },    { "recall", 7, IN_CHECK, recall },     { "cert", 6, IN_CHECK, certificate },
    { "bias", 6, IN_CHECK, bias },         { "rms", 5, IN_CHECK, rms },           { "keys", 9, IN_CHECK, keys },
    { "step ms", 9, IN_BENCH, step },      { "+-%", 5, IN_BENCH, spread },        { "x full", 7, IN_BENCH, full },
    { "idle%", 6, IN_BENCH, device_idle }, { "CPU id%", 7, IN_BENCH, cpu_idle },  { "ovl%", 6, IN_BENCH, overlap },
    { "MB/step", 9, IN_BENCH, moved },     { "up GB/s", 7, IN_BENCH, rate },      { "floor", 6, IN_BENCH, floor_ratio },
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

static void print_row(FILE *out, const struct ha_row *r, unsigned where)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        char cell[CELL];
        if (!(columns[i].where & where)) continue;
        if (r) columns[i].cell(r, cell);
        else snprintf(cell, sizeof cell, "%s", columns[i].title);
        int most = abs(columns[i].width);
        if ((int)strlen(cell) > most) strcpy(cell + most - 2, "..");
        fprintf(out, "%s%*s", i ? " " : "", columns[i].width, cell);
    }
    putc('\n', out);
}

/* The rows of one workload under its name, in the order in which the first of each came. */
static void print_groups(FILE *out, const struct ha_results *r, unsigned where)
{
    char **text = calloc(r->entries + 1, sizeof *text); /* of those that are not yet printed */
    for (size_t i = 0; text && i < r->entries; i++) text[i] = listed(r, i) ? ha_row_workload(listed(r, i)) : NULL;
    for (size_t i = 0; text && i < r->entries; i++) {
        if (!text[i]) continue;
        fprintf(out, "\n%.150s\n", text[i]);
        print_row(out, NULL, where);
        for (size_t j = i; j < r->entries; j++) {
            if (!text[j] || strcmp(text[i], text[j])) continue;
            print_row(out, listed(r, j), where);
            if (j > i) free(text[j]);
            if (j > i) text[j] = NULL;
        }
        free(text[i]);
        text[i] = NULL;
    }
    free(text);
}

/* Adds what is new of the words in `from`, which are joined by commas. */
static void join_words(char out[CELL], const char *from)
{
    char words[CELL], *save = NULL;
    snprintf(words, sizeof words, "%s", from);
    for (char *w = strtok_r(words, ", ", &save); w; w = strtok_r(NULL, ", ", &save))
        if (!strstr(out, w) && strlen(out) + strlen(w) + 3 < CELL) strcat(strcat(out, *out ? ", " : ""), w);
}

/* What ~ and ! in the table mean, where there are any. */
static void print_marks(FILE *out, const struct ha_results *r)
{
    size_t traces = 0, disturbed = 0, rows = 0;
    char causes[CELL] = "";
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_row *row = listed(r, i);
        if (!row) continue;
        rows++;
        traces += perturbed(row);
        disturbed += *row->disturbed != 0;
        join_words(causes, row->disturbed);
    }
    if (traces || disturbed) putc('\n', out);
    if (traces)
        fprintf(out,
                "~ %zu of %zu: idle, overlap and GB/s are of traced steps, which took over 5%% longer or shorter than "
                "others\n",
                traces, rows);
    if (disturbed)
        fprintf(out, "! %zu of %zu: the machine was not quiet while these were timed: %s (docs/measurement.md)\n",
                disturbed, rows, causes);
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
    print_groups(out, results, results->measured ? IN_BENCH : IN_CHECK);
    if (!results->measured) print_sensitivity(out, results);
    if (results->measured) print_marks(out, results);
    ha_claims_print(out, results);
}
