#include "suites/merge/point.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/report/row.h"
#include "suites/merge/attention.h"

#include <math.h>
#include <string.h>

/* ---- fields ------------------------------------------------------------------------------------------------------ */

#define IN(member) HA_IN(struct ha_merge_result, member)
#define BIN(i, name_, doc_)                                                               \
    {                                                                                     \
        name_, "", HA_FIELD_WHOLE, IN(bin[i]), 1, "merges whose worst err/bound is " doc_ \
    }

const struct ha_field ha_merge_field[HA_MERGE_FIELDS] = {
    { "subject", "", HA_FIELD_TEXT, IN(subject), 1, "what the one that merges calls itself" },
    { "err_over_bound", "", HA_FIELD_NUMBER, IN(ratio), 1, "the worst err/bound of any element; at most 1 is right",
      HA_LESS },
    { "planted_err_over_bound", "", HA_FIELD_NUMBER, IN(planted), 1,
      "of a case that plants an error: the least err/bound with it; above 1 it was seen" },
    { "merges", "", HA_FIELD_WHOLE, IN(merges), 1, "rows judged" },
    { "exact", "", HA_FIELD_WHOLE, IN(exact), 1, "those without any error" },
    { "refused", "", HA_FIELD_WHOLE, IN(refused), 1,
      "batches answered with an error, where that is as good as an answer" },
    BIN(0, "to_1_512", "above 0 and below 2^-9"),
    BIN(1, "to_1_256", "from 2^-9 to 2^-8"),
    BIN(2, "to_1_128", "from 2^-8 to 2^-7"),
    BIN(3, "to_1_64", "from 2^-7 to 2^-6"),
    BIN(4, "to_1_32", "from 2^-6 to 2^-5"),
    BIN(5, "to_1_16", "from 2^-5 to 2^-4"),
    BIN(6, "to_1_8", "from 2^-4 to 2^-3"),
    BIN(7, "to_1_4", "from 2^-3 to 2^-2"),
    BIN(8, "to_1_2", "from 2^-2 to 2^-1"),
    BIN(9, "to_1", "from 2^-1 to 1: half the bound would fail them"),
    { "found_by", "", HA_FIELD_TEXT, IN(found_by), 1, "of a known defect: the case that is there for it, or another" },
    { "found_also", "", HA_FIELD_WHOLE, IN(also), 1, "how many other cases found it" },
    { "showed", "", HA_FIELD_TEXT, IN(showed), 1, "what the defect showed, or what the replayed file holds" },
    { "sensitivity", "", HA_FIELD_NUMBER, IN(sense.o), 1,
      "least relative error of o that is seen, by what the merge claims: in the finest type of o the median row of the "
      "first batch, the worst of all forms; of attention the median over the shapes, of each its worst row; it was "
      "planted in each row, and seen",
      HA_NEITHER },
    { "sensitivity_lse", "", HA_FIELD_NUMBER, IN(sense.lse), 1, "the same of the sum of the weights, exp(LSE)",
      HA_NEITHER },
    { "sensitivity_times", "", HA_FIELD_NUMBER, IN(sense.times), 1,
      "the worse of both over that by claims like those of our merge, or attention, in the worst of the rows set "
      "beside; above 8 the case fails",
      HA_NEITHER },
    { "bias", "", HA_FIELD_NUMBER, IN(bias), 1,
      "mean error of the LSE over what independent roundings explain, in up to 32 rows that differ in their LSEs; of "
      "attention in the shape whose errors are the least likely",
      HA_NEITHER },
    { "rms", "", HA_FIELD_NUMBER, IN(rms), 1,
      "root mean square of what errors of them have beyond what may have one sign, over what independent roundings "
      "explain, of the LSE or o; up to 1 all is explained",
      HA_NEITHER },
    { "exp_eps", "", HA_FIELD_NUMBER, IN(exp_eps), 1,
      "largest relative error of its exp that was seen in merges of two states", HA_NEITHER },
    { "log_eps", "", HA_FIELD_NUMBER, IN(log_eps), 1, "the same of its log", HA_NEITHER },
    { "merged_again", "", HA_FIELD_WHOLE, IN(again), 1, "rows merged a second time, from the same states" },
    { "other_bits", "", HA_FIELD_WHOLE, IN(varied), 1,
      "batches of them that gave other bits, which is a failure unless the merge says that it varies" },
};

/* ---- lines of a table -------------------------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 64, WIDTH_LEAST = 8 };

static const struct ha_merge_point *point_at(const struct ha_results *r, size_t i) { return r->entry[i].point; }
static const struct ha_merge_result *row_at(const struct ha_results *r, size_t i) { return r->entry[i].row; }

/* the first of the part at i or behind it that has a row; entries: none */
static size_t next_of(const struct ha_results *r, size_t i, enum ha_merge_part part)
{
    while (i < r->entries && (!r->entry[i].row || ha_merge_part(point_at(r, i)) != part)) i++;
    return i;
}

/* Those who merged, from left to right. */
struct columns {
    const char *by[COLUMNS_MAX], *title[COLUMNS_MAX];
    size_t count;
    int width;
};

static size_t column_of(const struct columns *c, const char *by)
{
    size_t k = 0;
    while (k < c->count && strcmp(c->by[k], by) != 0) k++;
    return k;
}

static struct columns columns_of(const struct ha_results *r, enum ha_merge_part part)
{
    struct columns c = { .width = WIDTH_LEAST };
    for (size_t i = 0; (i = next_of(r, i, part)) < r->entries && c.count < COLUMNS_MAX; i++) {
        const char *by = point_at(r, i)->by, *title = row_at(r, i)->subject;
        if (column_of(&c, by) < c.count) continue;
        c.by[c.count] = by;
        c.title[c.count++] = *title ? title : by;
        const int width = (int)strlen(c.title[c.count - 1]);
        if (width > c.width) c.width = width;
    }
    return c;
}

static const char *cell_text(const struct ha_merge_result *row, char out[32])
{
    if (!ha_passed(row->head.verdict)) return ha_verdict_shown(row->head.verdict);
    if (!row->merges) return row->refused ? "refuses" : "ok";
    if (row->exact == row->merges) return "exact";
    snprintf(out, 32, "%.3f", row->ratio);
    return out;
}

/* one line of the table: points that differ in `by` alone */
static bool same_line(const struct ha_merge_point *p, const struct ha_merge_point *q)
{
    return p->item == q->item && p->problem == q->problem && p->kind == q->kind
           && !memcmp(&p->axes, &q->axes, sizeof p->axes);
}

/* The cells of the line of entry i, wherever they stand; most: rows judged. false: an entry before i has that line. */
static bool read_line(const struct ha_results *r, size_t i, enum ha_merge_part part, const struct columns *c,
                      const struct ha_merge_result *cell[COLUMNS_MAX], uint64_t *most)
{
    const struct ha_merge_point *p = point_at(r, i);
    for (size_t k = 0; k < c->count; k++) cell[k] = NULL;
    *most = 0;
    for (size_t j = 0; (j = next_of(r, j, part)) < r->entries; j++) {
        if (!same_line(p, point_at(r, j))) continue;
        if (j < i) return false;
        const size_t k = column_of(c, point_at(r, j)->by);
        if (k < c->count) cell[k] = row_at(r, j);
        if (row_at(r, j)->merges > *most) *most = row_at(r, j)->merges;
    }
    return true;
}

static void grouped(uint64_t n, char out[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *p = out;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *p++ = ',';
        *p++ = digits[i];
    }
    *p = 0;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void print_left(FILE *out, enum ha_merge_part part, const struct ha_merge_point *p, uint64_t merges)
{
    static const char *const must[] = { "bound", "exact", "copy", "commute", "must fail" };
    char n[32];
    grouped(merges, n);
    if (part == HA_PART_CASES) {
        const struct ha_merge_case *c = &ha_merge_cases[p->item];
        fprintf(out, "%3u %-23s %-9s %10s", c->number, c->name, must[c->must], n);
    } else if (part == HA_PART_ATTENTION) fprintf(out, "    %-18s %8s", ha_attention_cases[p->problem].name, n);
    else
        fprintf(out, "       %-10s %-4s %12s", ha_merge_kinds[p->kind].name,
                ha_dtype_name((enum ha_dtype)(p->axes.dtype - 1)), n);
}

/* false: there is nothing of this part */
static bool print_table(FILE *out, const struct ha_results *r, enum ha_merge_part part, const char *head)
{
    const struct columns c = columns_of(r, part);
    const struct ha_merge_result *cell[COLUMNS_MAX];
    uint64_t most;
    char text[32];
    if (!c.count) return false;
    fprintf(out, "\n%s", head);
    for (size_t k = 0; k < c.count; k++) fprintf(out, " %*s", c.width, c.title[k]);
    fputc('\n', out);
    for (size_t i = 0; (i = next_of(r, i, part)) < r->entries; i++) {
        if (!read_line(r, i, part, &c, cell, &most)) continue;
        print_left(out, part, point_at(r, i), most);
        for (size_t k = 0; k < c.count; k++) fprintf(out, " %*s", c.width, cell[k] ? cell_text(cell[k], text) : "");
        fputc('\n', out);
    }
    return true;
}

/* The case whose claims let the most pass beside what claims like our merge's do. */
static void print_sensitivity(FILE *out, const struct ha_results *r)
{
    const struct ha_entry *most = NULL;
    double worst = -1;
    for (size_t i = 0; i < r->entries; i++) {
        const struct ha_merge_result *row = row_at(r, i);
        if (row && row->sense.times > worst) worst = row->sense.times, most = &r->entry[i];
    }
    if (!most) return;
    const struct ha_merge_result *row = most->row;
    fprintf(out,
            "sensitivity: at worst %.3g times what claims like our merge's let pass (%.100s: errors above %.2g of o "
            "are seen in the median row)\n",
            worst, most->id, row->sense.o);
}

static void print_planted(FILE *out, const struct ha_results *r)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < r->entries; i++)
        if (row_at(r, i)) least = fmin(least, row_at(r, i)->planted); /* fmin takes no NaN where there is a number */
    if (least < HUGE_VAL)
        fprintf(out, "must fail: above without its planted error; with it err/bound is at least %.3g\n", least);
}

static void print_gallery(FILE *out, const struct ha_results *r)
{
    size_t i = next_of(r, 0, HA_PART_GALLERY);
    if (i == r->entries) return;
    fprintf(out, "\nknown defects            caught    found by                more  and what it showed\n");
    for (; i < r->entries; i = next_of(r, i + 1, HA_PART_GALLERY)) {
        const struct ha_merge_result *row = row_at(r, i);
        const char *caught = row->head.verdict == HA_PASS           ? "yes"
                             : row->head.verdict == HA_VERDICT_FAIL ? *row->found_by ? "elsewhere" : "NO"
                                                                    : ha_verdict_name(row->head.verdict);
        fprintf(out, "  %-22s %-9s", row->subject, caught);
        if (*row->found_by)
            fprintf(out, " %-23s %4llu  %.90s", row->found_by, (unsigned long long)row->also, row->showed);
        fputc('\n', out);
    }
}

/* how the rows' worst err/bound are distributed, for each kind */
static void print_spread(FILE *out, const struct ha_results *r)
{
    const char *head =
        "err/bound of a merge: share of all random ones, in per cent\n"
        "       form              0  < 2^-9 < 1/256 < 1/128  < 1/64  < 1/32  < 1/16   < 1/8   < 1/4   < 1/2    <= 1\n";
    for (size_t k = 0; k < HA_MERGE_KINDS; k++) {
        uint64_t merges = 0, exact = 0, bin[HA_MERGE_BINS] = { 0 };
        for (size_t i = 0; (i = next_of(r, i, HA_PART_RANDOM)) < r->entries; i++) {
            if (point_at(r, i)->kind != k) continue;
            merges += row_at(r, i)->merges;
            exact += row_at(r, i)->exact;
            for (size_t b = 0; b < HA_MERGE_BINS; b++) bin[b] += row_at(r, i)->bin[b];
        }
        if (!merges) continue;
        fputs(head, out);
        head = "";
        const double all = (double)merges / 100;
        fprintf(out, "       %-11s %7.3f", ha_merge_kinds[k].name, (double)exact / all);
        for (size_t b = 0; b < HA_MERGE_BINS; b++) fprintf(out, " %7.3f", (double)bin[b] / all);
        fputc('\n', out);
    }
}

static void print_replays(FILE *out, const struct ha_results *r)
{
    for (size_t i = 0; (i = next_of(r, i, HA_PART_REPLAY)) < r->entries; i++) {
        const struct ha_merge_result *row = row_at(r, i);
        fprintf(out, "\n%s: %s\n%s: %llu merges, %llu exact, worst err/bound %.3g\n", point_at(r, i)->replay,
                row->showed, ha_verdict_name(row->head.verdict), (unsigned long long)row->merges,
                (unsigned long long)row->exact, row->ratio);
    }
}

/* The first ones of each process say more than their reason. */
static void print_failures(FILE *out, const struct ha_results *r)
{
    for (size_t i = 0; i < r->entries; i++)
        if (row_at(r, i) && row_at(r, i)->failure[0]) fprintf(out, "\n%s", row_at(r, i)->failure);
}

void ha_merge_print(FILE *out, const struct ha_results *r)
{
    fprintf(out,
            "lse_merge: is a merge of attention states exact?\nnumbers: the worst err/bound over all elements; 1 is "
            "the derived bound (docs/merging.md)\n");
    if (print_table(out, r, HA_PART_CASES, " no case                    must          merges")) print_planted(out, r);
    print_gallery(out, r);
    print_table(out, r, HA_PART_ATTENTION, "attention's own LSE        rows");
    if (print_table(out, r, HA_PART_RANDOM, "random form       o          merges")) print_spread(out, r);
    print_sensitivity(out, r);
    print_replays(out, r);
    print_failures(out, r);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

bool ha_merge_conclude(FILE *out, const struct ha_results *r, struct ha_why *why)
{
    bool made[HA_MERGE_KINDS][HA_DTYPE_COUNT] = { { false } };
    uint64_t merges = 0, half = 0;
    double worst = 0;
    size_t kinds = 0;
    for (size_t i = 0; (i = next_of(r, i, HA_PART_RANDOM)) < r->entries; i++) {
        const struct ha_merge_point *p = point_at(r, i);
        const struct ha_merge_result *row = row_at(r, i);
        struct ha_merge_axes a = p->axes;
        bool *here = &made[p->kind][a.dtype - 1];
        a.dtype = 0; /* which every point of random merges names */
        if (!ha_passed(row->head.verdict) || !ha_merge_is_ours(p->by) || !ha_merge_axes_any(&a)) continue;
        kinds += !*here;
        *here = true;
        merges += row->merges;
        half += row->bin[HA_MERGE_BINS - 1];
        worst = fmax(worst, row->ratio);
    }
    if (kinds < HA_MERGE_RANDOM) return true;
    fprintf(out, "half the bound would fail %llu of these %llu merges (worst err/bound %.3f)\n",
            (unsigned long long)half, (unsigned long long)merges, worst);
    if (!half) ha_why(why, HA_FAIL, "no merge came above half of its bound: is it too loose?");
    return half > 0;
}
