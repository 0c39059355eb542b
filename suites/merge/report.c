#include "suites/merge/report.h"

#include "harness/base/why.h"
#include "suites/merge/failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ----------------------------------------------------------------------------- */

enum ha_status ha_merge_results_add(struct ha_merge_results *r, const char *part, const char *item, const char *by,
                                    enum ha_status status, double ratio, const char *reason, struct ha_why *why)
{
    static const char *const word[] = { "pass", "fail", "waived", "error" };
    if (r->count == r->room) {
        const size_t room = r->room ? 2 * r->room : 256;
        struct ha_row *grown = realloc(r->row, room * sizeof *grown);
        if (!grown) return ha_why(why, HA_ERROR, "out of memory");
        r->row = grown;
        r->room = room;
    }
    struct ha_row *row = &r->row[r->count++];
    ha_row_clear(row);
    snprintf(row->suite, sizeof row->suite, "lse_merge");
    snprintf(row->family, sizeof row->family, "lse_merge");
    snprintf(row->variant, sizeof row->variant, "%s", part);
    const bool id = !strcmp(part, "case") || !strcmp(part, "random"); /* then it runs again */
    snprintf(row->case_id, sizeof row->case_id, id ? "lse_merge:case=%s,by=%s" : "%s by %s", item, by);
    snprintf(row->device, sizeof row->device, "%s", by);
    snprintf(row->verdict, sizeof row->verdict, "%s", word[status]);
    snprintf(row->reason, sizeof row->reason, "%s", status == HA_OK ? "" : reason);
    row->err_over_bound = ratio;
    r->totals.passed += status == HA_OK;
    r->totals.failed += status == HA_FAIL;
    r->totals.waived += status == HA_WAIVED;
    r->totals.errors += status == HA_ERROR;
    return HA_OK;
}

void ha_merge_results_free(struct ha_merge_results *r)
{
    free(r->row);
    *r = (struct ha_merge_results){ 0 };
}

/* ---- tables ------------------------------------------------------------------------------ */

static const char *grouped(uint64_t n, char out[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *p = out;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *p++ = ',';
        *p++ = digits[i];
    }
    *p = 0;
    return out;
}

/* The widest subject's name decides; a number needs 8. */
static int width_of(const struct ha_merge_view *v)
{
    size_t width = 8;
    for (size_t s = 0; s < v->sources; s++)
        if (strlen(v->source[s].name) > width) width = strlen(v->source[s].name);
    return (int)width;
}

static const char *cell_text(const struct ha_merge_cell *c, char out[32])
{
    switch (ha_merge_cell_status(c)) {
    case HA_OK: break;
    case HA_FAIL: return "FAIL";
    case HA_WAIVED: return "waived";
    case HA_ERROR: return "ERROR";
    }
    if (c->j.rows == 0) return c->refused ? "refuses" : "ok";
    if (c->j.exact == c->j.rows) return "exact";
    snprintf(out, 32, "%.3f", c->j.ratio);
    return out;
}

static uint64_t most_rows(const struct ha_merge_cell *cell, size_t sources)
{
    uint64_t most = 0;
    for (size_t s = 0; s < sources; s++) most = cell[s].j.rows > most ? cell[s].j.rows : most;
    return most;
}

static void print_cells(FILE *out, const struct ha_merge_view *v, size_t item)
{
    char text[32];
    for (size_t s = 0; s < v->sources; s++)
        fprintf(out, " %*s", width_of(v), cell_text(&v->cell[item * v->sources + s], text));
    fputc('\n', out);
}

static void print_head(FILE *out, const struct ha_merge_view *v, const char *left)
{
    fprintf(out, "%s", left);
    for (size_t s = 0; s < v->sources; s++) fprintf(out, " %*s", width_of(v), v->source[s].name);
    fputc('\n', out);
}

static bool asked(const struct ha_merge_view *v, size_t item)
{
    for (size_t s = 0; s < v->sources; s++)
        if (v->cell[item * v->sources + s].runs || v->cell[item * v->sources + s].waived) return true;
    return false;
}

void ha_merge_print_cases(FILE *out, const struct ha_merge_view *v)
{
    static const char *const must[] = { "bound", "exact", "copy", "commute", "must fail" };
    double least = HUGE_VAL;
    char n[32];
    print_head(out, v, " no case                    must          merges");
    for (size_t i = 0; i < v->suite->cases_count; i++) {
        const struct ha_merge_case *c = &v->suite->cases[i];
        if (!asked(v, i)) continue;
        fprintf(out, "%3u %-23s %-9s %10s", c->number, c->name, must[c->must],
                grouped(most_rows(v->cell + i * v->sources, v->sources), n));
        print_cells(out, v, i);
        for (size_t k = 0; k < v->sources; k++) least = fmin(least, v->cell[i * v->sources + k].worst_planted);
    }
    if (least < HUGE_VAL)
        fprintf(out, "must fail: above without its planted error; with it err/bound is at least %.3g\n", least);
}

void ha_merge_print_random(FILE *out, const struct ha_merge_view *v)
{
    char n[32];
    print_head(out, v, "random form       o          merges");
    for (size_t i = 0; i < HA_MERGE_KINDS * HA_DTYPE_COUNT; i++) {
        if (!asked(v, i)) continue;
        fprintf(out, "       %-10s %-4s %12s", ha_merge_kinds[i / HA_DTYPE_COUNT].name,
                ha_dtype_name((enum ha_dtype)(i % HA_DTYPE_COUNT)),
                grouped(most_rows(v->cell + i * v->sources, v->sources), n));
        print_cells(out, v, i);
    }
}

void ha_merge_print_spread(FILE *out, const struct ha_merge_view *v)
{
    /* the bins below 2^-9, then each by itself */
    enum { SHOWN = 9 };
    fprintf(out, "err/bound of a merge: share of all random ones, in per cent\n%-18s %7s", "       form", "0");
    fprintf(out, " %7s", "< 2^-9");
    for (int i = SHOWN; i > 0; i--) {
        char head[16];
        snprintf(head, sizeof head, "< %s%d", i > 1 ? "1/" : "", 1 << (i - 1));
        fprintf(out, " %7s", i == 1 ? "<= 1" : head);
    }
    fputc('\n', out);
    for (size_t k = 0; k < HA_MERGE_KINDS; k++) {
        struct ha_judgement sum = { 0 };
        for (size_t i = k * HA_DTYPE_COUNT * v->sources; i < (k + 1) * HA_DTYPE_COUNT * v->sources; i++)
            ha_judgement_join(&sum, &v->cell[i].j);
        if (!sum.rows) continue;
        const double all = (double)sum.rows / 100;
        uint64_t low = 0;
        for (size_t i = 0; i < HA_RATIO_BINS - SHOWN; i++) low += sum.bin[i];
        fprintf(out, "       %-11s %7.3f %7.3f", ha_merge_kinds[k].name, (double)sum.exact / all, (double)low / all);
        for (size_t i = HA_RATIO_BINS - SHOWN; i < HA_RATIO_BINS; i++) fprintf(out, " %7.3f", (double)sum.bin[i] / all);
        fputc('\n', out);
    }
}

size_t ha_merge_gallery_count(const struct ha_merge_view *v, size_t defect, bool *by_finder)
{
    size_t seen = 0;
    *by_finder = false;
    for (size_t i = 0; i < v->suite->cases_count; i++) {
        if (ha_merge_cell_status(&v->cell[i * v->sources + defect]) != HA_FAIL) continue;
        seen++;
        *by_finder |= !strcmp(v->suite->cases[i].name, v->suite->defects[defect].finder);
    }
    return seen;
}

void ha_merge_print_gallery(FILE *out, const struct ha_merge_view *v)
{
    fprintf(out, "known defects            caught   found by                more  and what it showed\n");
    for (size_t d = 0; d < v->suite->defects_count; d++) {
        bool by_finder;
        const size_t seen = ha_merge_gallery_count(v, d, &by_finder);
        size_t show = SIZE_MAX;
        for (size_t i = 0; i < v->suite->cases_count; i++) {
            if (ha_merge_cell_status(&v->cell[i * v->sources + d]) != HA_FAIL) continue;
            const bool finder = !strcmp(v->suite->cases[i].name, v->suite->defects[d].finder);
            if (finder || show == SIZE_MAX) show = i;
            if (finder) break;
        }
        const char *verdict = by_finder ? "yes" : seen ? "elsewhere" : "NO";
        fprintf(out, "  %-22s %-9s", v->suite->defects[d].name, verdict);
        if (show != SIZE_MAX) {
            const struct ha_merge_cell *c = &v->cell[show * v->sources + d];
            char said[512];
            ha_judgement_say(&c->bad, c->task.shape.dim, said, sizeof said);
            fprintf(out, " %-23s %4zu  %.90s", v->suite->cases[show].name, seen - 1,
                    c->bad.against ? said : c->why.text);
        }
        fputc('\n', out);
    }
}
