#include "harness/measure/ceilings.h"
#include "harness/report/row.h"
#include "suites/link/suite.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_WIDTH = 11, CELL_WIDTH = 11 };
static const double steady_most = 0.05; /* half of the median's interval, of the median */

static const struct ha_link_point *point(const struct ha_entry *e) { return e->point; }
static const struct ha_link_row *row(const struct ha_entry *e) { return e->row; }
static const struct ha_link_method *method(const struct ha_entry *e) { return &ha_link_methods[point(e)->method]; }

/* What a table is of: the entries with the device, instruction set and seed of `head`. */
struct part {
    const struct ha_results *all;
    const struct ha_link_point *head;
};

static bool in_part(const struct part *part, const struct ha_entry *e)
{
    const struct ha_link_point *a = part->head, *b = point(e);
    return a->isa == b->isa && a->seed == b->seed && !strcmp(a->device, b->device);
}

/* the next part behind *at; false: there is none */
static bool next_part(const struct ha_results *all, size_t *at, struct part *part)
{
    for (; *at < all->entries; ++*at) {
        size_t before = 0;
        *part = (struct part){ all, point(&all->entry[*at]) };
        while (!in_part(part, &all->entry[before])) before++;
        if (before == (*at)++) return true;
        --*at;
    }
    return false;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static bool listed(const struct ha_entry *e)
{
    return e->row && row(e)->head.verdict != HA_NOT_RUN && row(e)->head.verdict != HA_VERDICT_WAIVED;
}
static bool timed(const struct ha_entry *e) { return e->row && row(e)->head.samples > 0; }

enum { ANY = -1 };
/* an entry that is in the table, of this method, piece and layout; or NULL */
static const struct ha_entry *at(const struct part *part, int m, int piece, size_t scattered)
{
    for (size_t i = 0; i < part->all->entries; i++) {
        const struct ha_entry *e = &part->all->entry[i];
        const struct ha_link_point *p = point(e);
        if (in_part(part, e) && listed(e) && (m == ANY || p->method == (size_t)m)
            && (piece == ANY || p->piece == (size_t)piece) && p->scattered == scattered)
            return e;
    }
    return NULL;
}

static bool measured(const struct part *part)
{
    bool any = false;
    for (size_t i = 0; i < part->all->entries; i++)
        any = any || (in_part(part, &part->all->entry[i]) && timed(&part->all->entry[i]));
    return any;
}

/* three significant digits, and not 1e+02 */
static void number(char out[16], double x) { snprintf(out, 16, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x); }

static void cell(const struct ha_entry *e, char out[32])
{
    char rate[16];
    if (!e) strcpy(out, "-  ");
    else if (!timed(e)) snprintf(out, 32, "%s  ", ha_verdict_shown(row(e)->head.verdict));
    else {
        const struct ha_link_row *r = row(e);
        const bool wide = !((r->hi - r->lo) / 2 <= steady_most * r->GBps);
        number(rate, r->GBps);
        if (isnan(r->share)) snprintf(out, 32, "%s%s  ", rate, wide ? "~" : " ");
        else snprintf(out, 32, "%s%s%3.0f%%", rate, wide ? "~" : " ", 100 * r->share);
    }
}

/* m: of the method, or ANY for the line above all */
static void print_line(FILE *out, const struct part *part, int m, size_t scattered)
{
    fprintf(out, "%-*s", NAME_WIDTH, m != ANY ? ha_link_methods[m].name : measured(part) ? "GB/s" : "verdict");
    for (int p = 0; p < HA_LINK_PIECES; p++) {
        char text[32];
        if (!at(part, ANY, p, scattered)) continue;
        if (m != ANY) cell(at(part, m, p, scattered), text);
        else snprintf(text, sizeof text, "%s%sB  ", ha_link_piece_name((size_t)p), ha_link_pieces[p] < 1024 ? " " : "");
        fprintf(out, "%*s", CELL_WIDTH, text);
    }
    putc('\n', out);
}

static void print_block(FILE *out, const struct part *part, size_t scattered)
{
    if (!at(part, ANY, ANY, scattered)) return;
    fprintf(out, "\n%s\n",
            scattered ? "scattered: pieces in random order over the whole source"
                      : "contiguous: neighbouring pieces of the source, in order");
    print_line(out, part, ANY, scattered);
    for (int m = 0; m < (int)ha_link_methods_count; m++) {
        if (!at(part, m, ANY, scattered)) continue;
        if (m && ha_link_methods[m].dir != ha_link_methods[m - 1].dir) putc('\n', out);
        print_line(out, part, m, scattered);
    }
}

static void print_legend(FILE *out, const struct part *part)
{
    double ceiling[2] = { (double)NAN, (double)NAN };
    bool link = false;
    putc('\n', out);
    for (int m = 0; m < (int)ha_link_methods_count; m++)
        if (at(part, m, ANY, 0) || at(part, m, ANY, 1))
            fprintf(out, "%-*s %s\n", NAME_WIDTH, ha_link_methods[m].name, ha_link_methods[m].doc);
    if (!measured(part)) return;
    fprintf(out, "\nMedians of moves whose bytes were compared; 1 GB = 10^9 bytes, pieces in powers of two; ~: known "
                 "to no better than 5%%.\n");
    for (size_t i = 0; i < part->all->entries; i++) {
        const struct ha_entry *e = &part->all->entry[i];
        if (!in_part(part, e) || !timed(e)) continue;
        ceiling[method(e)->dir] = row(e)->ceiling_GBps;
        link = ha_has_link(row(e)->device_kind);
    }
    const char *what = link ? "%: of the link's ceiling, large pinned copies" : "Large pinned copies";
    if (!isnan(ceiling[HA_H2D]) && !isnan(ceiling[HA_D2H]))
        fprintf(out, "%s in this run: %.1f GB/s up, %.1f GB/s down.\n", what, ceiling[HA_H2D], ceiling[HA_D2H]);
    else if (!isnan(ceiling[HA_H2D])) fprintf(out, "%s in this run: %.1f GB/s up.\n", what, ceiling[HA_H2D]);
    else if (!isnan(ceiling[HA_D2H])) fprintf(out, "%s in this run: %.1f GB/s down.\n", what, ceiling[HA_D2H]);
}

static void print_part(FILE *out, const struct part *part)
{
    const struct ha_entry *e = at(part, ANY, ANY, 0);
    if (!e) e = at(part, ANY, ANY, 1);
    if (!e) return;
    const struct ha_link_row *r = row(e);
    fprintf(out, "\nlink: device %s (%s), seed %" PRIu64, point(e)->device, r->device_kind, point(e)->seed);
    if (!isnan(r->source_bytes))
        fprintf(out, ", source %.0f MB in each kind of memory, %.0f core%s", r->source_bytes / (1 << 20), r->cores,
                r->cores > 1 ? "s" : "");
    putc('\n', out);
    if (*r->device_kind && !ha_has_link(r->device_kind))
        fputs(strcmp(r->device_kind, "null") ? "There is no link here: what is called the device's memory is this "
                                               "host's, and GB/s say how this host copies, not how a bus does.\n"
                                             : "There is no link here: the device moves nothing.\n",
              out);
    print_block(out, part, 0);
    print_block(out, part, 1);
    print_legend(out, part);
}

void ha_link_print(FILE *out, const struct ha_results *results)
{
    struct part part;
    for (size_t at = 0; next_part(results, &at, &part);) print_part(out, &part);
}

/* ---- claims ------------------------------------------------------------------------------------------------------ */

static void print_claims(FILE *out, const struct part *part, struct ha_link_figure *figure)
{
    struct ha_link_figures f = { .figure = figure };
    for (size_t i = 0; i < part->all->entries; i++) {
        const struct ha_entry *e = &part->all->entry[i];
        if (!in_part(part, e) || !timed(e) || !ha_passed(row(e)->head.verdict)) continue;
        const struct ha_link_row *r = row(e);
        f.cores = (size_t)r->cores;
        f.link = ha_has_link(r->device_kind);
        figure[f.count++] = (struct ha_link_figure){ method(e), ha_link_pieces[point(e)->piece], point(e)->scattered,
                                                     r->GBps, r->share };
    }
    for (size_t i = 0; i < ha_link_claims_count; i++) {
        const struct ha_link_claim *c = &ha_link_claims[i];
        char figures[512];
        const enum ha_link_verdict verdict = c->judge(&f, figures);
        fprintf(out, "\nclaim: \"%s\" (%s)\n  %s: %s\n", c->text, c->source, ha_link_verdict_name(verdict), figures);
        if (verdict != HA_LINK_NOT_APPLICABLE) fprintf(out, "  (%s)\n", c->rule);
    }
}

bool ha_link_conclude(FILE *out, const struct ha_results *results, struct ha_why *why)
{
    struct part part;
    struct ha_link_figure *figure = results->measured ? calloc(results->entries + 1, sizeof *figure) : NULL;
    for (size_t at = 0; figure && next_part(results, &at, &part);) print_claims(out, &part, figure);
    free(figure);
    return true;
}
