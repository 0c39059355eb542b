#include "suites/link/report.h"

#include "harness/base/why.h"
#include "harness/report/junit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 11, CELL_WIDTH = 11 };
static const double steady_most = 0.05; /* half of the median's interval, of the median */

/* ---- the table --------------------------------------------------------------------------------- */

static bool listed(const struct ha_link_result *r) { return r->state != HA_LINK_NOT_RUN && r->state != HA_LINK_WAIVED; }
static bool timed(const struct ha_link_result *r) { return r->samples > 0; }

/* three significant digits, and not 1e+02 */
static void number(char out[16], double x) { snprintf(out, 16, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x); }

static void cell(const struct ha_link_result *r, char out[32])
{
    char rate[16];
    if (!r || r->state == HA_LINK_WAIVED || r->state == HA_LINK_NOT_RUN) {
        strcpy(out, "-  ");
        return;
    }
    if (!timed(r)) {
        snprintf(out, 32, "%s  ",
                 r->state == HA_LINK_FAILED  ? "FAIL"
                 : r->state == HA_LINK_ERROR ? "ERROR"
                                             : ha_link_state_name(r->state));
        return;
    }
    number(rate, r->GBps);
    const bool wide = !((r->hi - r->lo) / 2 <= steady_most * r->GBps);
    if (isnan(r->share)) snprintf(out, 32, "%s%s  ", rate, wide ? "~" : " ");
    else snprintf(out, 32, "%s%s%3.0f%%", rate, wide ? "~" : " ", 100 * r->share);
}

static const struct ha_link_result *at(const struct ha_link_results *r, const struct ha_link_method *m,
                                       size_t piece_bytes, bool scattered)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_link_point *p = &r->result[i].point;
        if (p->method == m && p->piece_bytes == piece_bytes && p->scattered == scattered) return &r->result[i];
    }
    return NULL;
}

static bool measured(const struct ha_link_results *r)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++) any = any || timed(&r->result[i]);
    return any;
}

static bool any(const struct ha_link_results *r, const struct ha_link_method *m, size_t piece_bytes, bool scattered)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_link_point *p = &r->result[i].point;
        if (listed(&r->result[i]) && (!m || p->method == m) && (!piece_bytes || p->piece_bytes == piece_bytes)
            && p->scattered == scattered)
            return true;
    }
    return false;
}

static void print_row(FILE *out, const struct ha_link_results *r, const struct ha_link_method *m, bool scattered)
{
    fprintf(out, "%-*s", NAME_WIDTH, m ? m->name : measured(r) ? "GB/s" : "verdict");
    for (size_t p = 0; p < HA_LINK_PIECES; p++) {
        char text[32], size[16];
        if (!any(r, NULL, ha_link_piece_sizes[p], scattered)) continue;
        ha_link_piece_print(ha_link_piece_sizes[p], size);
        if (m) cell(at(r, m, ha_link_piece_sizes[p], scattered), text);
        else snprintf(text, sizeof text, "%s%s  ", size, ha_link_piece_sizes[p] < 1024 ? " B" : "B");
        fprintf(out, "%*s", CELL_WIDTH, text);
    }
    putc('\n', out);
}

static void print_block(FILE *out, const struct ha_link_results *r, bool scattered)
{
    if (!any(r, NULL, 0, scattered)) return;
    fprintf(out, "\n%s\n",
            scattered ? "scattered: pieces in random order over the whole source"
                      : "contiguous: neighbouring pieces of the source, in order");
    print_row(out, r, NULL, scattered);
    for (size_t i = 0; i < ha_link_methods_count; i++) {
        const struct ha_link_method *m = &ha_link_methods[i];
        if (i && m->dir != m[-1].dir && any(r, m, 0, scattered)) putc('\n', out);
        if (any(r, m, 0, scattered)) print_row(out, r, m, scattered);
    }
}

static void print_wrong(FILE *out, const struct ha_link_results *r)
{
    for (size_t i = 0; i < r->count; i++) {
        char id[HA_LINK_ID_MAX];
        const struct ha_link_result *x = &r->result[i];
        if (x->state != HA_LINK_FAILED && x->state != HA_LINK_ERROR) continue;
        ha_link_id_print(&x->point, id);
        fprintf(out, "\n%s: %s\n    %s\n", ha_link_state_name(x->state), id, x->reason);
    }
}

static void print_waived(FILE *out, const struct ha_link_results *r)
{
    for (size_t i = 0; i < ha_link_methods_count; i++)
        for (size_t j = 0; j < r->count; j++) {
            const struct ha_link_result *x = &r->result[j];
            if (x->point.method != &ha_link_methods[i] || x->state != HA_LINK_WAIVED) continue;
            fprintf(out, "waived: %s: %s\n", x->point.method->name, x->reason);
            break;
        }
}

static void print_legend(FILE *out, const struct ha_link_results *r)
{
    putc('\n', out);
    for (size_t i = 0; i < ha_link_methods_count; i++)
        if (any(r, &ha_link_methods[i], 0, false) || any(r, &ha_link_methods[i], 0, true))
            fprintf(out, "%-*s %s\n", NAME_WIDTH, ha_link_methods[i].name, ha_link_methods[i].doc);
    print_waived(out, r);
    if (!measured(r)) return;
    fprintf(out, "\nMedians of moves whose bytes were compared; 1 GB = 10^9 bytes, pieces in powers of two; ~: known "
                 "to no better than 5%%.\n");
    if (isnan(r->ceiling[HA_H2D]) || isnan(r->ceiling[HA_D2H])) return;
    fprintf(out, "%s in this run: %.1f GB/s up, %.1f GB/s down.\n",
            r->link ? "%: of the link's ceiling, large pinned copies" : "Large pinned copies", r->ceiling[HA_H2D],
            r->ceiling[HA_D2H]);
}

void ha_link_print_results(FILE *out, const struct ha_link_results *r)
{
    print_block(out, r, false);
    print_block(out, r, true);
    print_legend(out, r);
    print_wrong(out, r);
}

void ha_link_print_claims(FILE *out, const struct ha_link_results *r)
{
    struct ha_link_figure figure[400];
    struct ha_link_figures f = { .figure = figure, .cores = r->cores, .link = r->link };
    for (size_t i = 0; i < r->count && i < 400; i++) {
        const struct ha_link_result *x = &r->result[i];
        if (x->state != HA_LINK_MEASURED) continue;
        figure[f.count++] = (struct ha_link_figure){ x->point.method, x->point.piece_bytes, x->point.scattered, x->GBps,
                                                     x->share };
    }
    for (size_t i = 0; i < ha_link_claims_count; i++) {
        const struct ha_link_claim *c = &ha_link_claims[i];
        char figures[512];
        const enum ha_link_verdict verdict = c->judge(&f, figures);
        fprintf(out, "\nclaim: \"%s\" (%s)\n  %s: %s\n", c->text, c->source, ha_link_verdict_name(verdict), figures);
        if (verdict != HA_LINK_NOT_APPLICABLE) fprintf(out, "  (%s)\n", c->rule);
    }
}

struct ha_totals ha_link_totals(const struct ha_link_results *r)
{
    struct ha_totals t = { 0 };
    for (size_t i = 0; i < r->count; i++) {
        const enum ha_link_state s = r->result[i].state;
        t.passed += s == HA_LINK_CHECKED || s == HA_LINK_MEASURED || s == HA_LINK_UNCHECKED;
        t.failed += s == HA_LINK_FAILED;
        t.errors += s == HA_LINK_ERROR;
        t.waived += s == HA_LINK_WAIVED;
    }
    return t;
}

/* ---- files ---------------------------------------------------------------------------------------- */

static const char *const columns[] = {
    "schema_version", "method",       "direction",   "layout",         "piece_bytes",  "threads",
    "device",         "device_kind",  "device_name", "verdict",        "reason",       "pieces",
    "moved_bytes",    "source_bytes", "seed",        "verified_bytes", "samples",      "GBps",
    "GBps_lo",        "GBps_hi",      "GBps_least",  "GBps_most",      "ceiling_GBps", "link_share",
};
enum { COLUMNS = sizeof columns / sizeof *columns, NUMBERS = 15 };

enum ha_status ha_link_csv_header(struct ha_csv *csv, struct ha_why *why)
{
    return ha_csv_row(csv, columns, COLUMNS, why);
}

enum ha_status ha_link_csv_row(struct ha_csv *csv, const struct ha_link_results *all, const struct ha_link_result *r,
                               const struct ha_link_origin *from, struct ha_why *why)
{
    const struct ha_link_method *m = r->point.method;
    const double none = (double)NAN;
    const bool t = timed(r);
    const double x[NUMBERS] = {
        (double)r->point.piece_bytes,
        m->threads == HA_LINK_ALL ? (double)all->cores
        : m->threads              ? (double)m->threads
                                  : none,
        (double)r->pieces,
        (double)r->moved_bytes,
        (double)from->source_bytes,
        (double)from->seed,
        r->verified_bytes ? (double)r->verified_bytes : none,
        t ? (double)r->samples : none,
        t ? r->GBps : none,
        t ? r->lo : none,
        t ? r->hi : none,
        t ? r->least : none,
        t ? r->most : none,
        all->ceiling[m->dir],
        t ? r->share : none,
    };
    char text[NUMBERS][32];
    for (size_t i = 0; i < NUMBERS; i++) ha_csv_number(text[i], x[i]);
    const char *const row[COLUMNS] = {
        "1",
        m->name,
        m->dir == HA_H2D ? "h2d" : "d2h",
        r->point.scattered ? "scattered" : "contiguous",
        text[0],
        text[1],
        from->api->name,
        from->api->kind,
        from->info.name,
        ha_link_state_name(r->state),
        r->reason,
        text[2],
        text[3],
        text[4],
        text[5],
        text[6],
        text[7],
        text[8],
        text[9],
        text[10],
        text[11],
        text[12],
        text[13],
        text[14],
    };
    return ha_csv_row(csv, row, COLUMNS, why);
}

enum ha_status ha_link_junit(const char *folder, const struct ha_link_results *r, struct ha_why *why)
{
    struct ha_row *rows = calloc(r->count + 1, sizeof *rows);
    size_t count = 0;
    if (!rows) return ha_why(why, HA_ERROR, "link: out of memory");
    for (size_t i = 0; i < r->count; i++) {
        const struct ha_link_result *x = &r->result[i];
        struct ha_row *row = &rows[count];
        if (x->state == HA_LINK_NOT_RUN) continue;
        ha_row_clear(row);
        ha_link_id_print(&x->point, row->case_id);
        strcpy(row->suite, "link");
        strcpy(row->variant, x->point.method->name);
        strcpy(row->verdict, x->state == HA_LINK_UNCHECKED ? "waived" : ha_link_state_name(x->state));
        strcpy(row->reason, x->state == HA_LINK_UNCHECKED ? "a device that moves nothing" : x->reason);
        count++;
    }
    const enum ha_status status = ha_junit_write(folder, rows, count, false, why);
    free(rows);
    return status;
}
