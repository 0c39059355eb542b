#include "harness/base/registry.h"
#include "harness/engine/point.h"
#include "harness/report/row.h"
#include "suites/kernels/suite.h"

#include <math.h>
#include <string.h>

enum { CELL = 40 };

static const struct ha_cpu_point *point(const struct ha_entry *e) { return e->point; }
static const struct ha_cpu_row *row(const struct ha_entry *e) { return e->row; }

/* ---- cells ------------------------------------------------------------------------------------------------------- */

/* at least three significant digits, and not 1e+02 */
static void number(char out[CELL], double x)
{
    snprintf(out, CELL, "%.*f", x < 0.0995 ? 4 : x < 0.995 ? 3 : x < 9.95 ? 2 : x < 99.5 ? 1 : 0, x);
}
static void share(char out[CELL], double x) { snprintf(out, CELL, "%.3f", x); }
static void fine_share(char out[CELL], double x) { snprintf(out, CELL, "%.4f", x); }
static void percent(char out[CELL], double x) { snprintf(out, CELL, "%.0f%%", 100 * x); }

static void verdict(const struct ha_entry *e, char out[CELL])
{
    snprintf(out, CELL, "%s", ha_verdict_shown(e->row ? row(e)->head.verdict : HA_NOT_RUN));
}
static void interval(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_row *r = row(e);
    const char *mark = *r->disturbed ? "~" : " ";
    if (!isnan(r->ratio.lo)) snprintf(out, CELL, "%.3f-%.3f%s", r->ratio.lo, r->ratio.hi, mark);
}
static void limit(const struct ha_entry *e, char out[CELL]) { snprintf(out, CELL, "%s", row(e)->limit); }
static void scale(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_row *r = row(e);
    if (!isnan(r->scale) && r->threads > 1) snprintf(out, CELL, "%.2f %s", r->scale, ha_cpu_ceiling_state(r));
}
static void samples(const struct ha_entry *e, char out[CELL])
{
    if (row(e)->head.samples > 0) snprintf(out, CELL, "%.0f+%.0f", row(e)->head.samples, row(e)->retried);
}
static void key_ns(const struct ha_entry *e, char out[CELL])
{
    const struct ha_cpu_point *p = point(e);
    const bool by_keys = p->kernel == HA_KERNEL_PACK || p->kernel == HA_KERNEL_APPEND_KEY
                         || p->kernel == HA_KERNEL_PQ_ENCODE;
    const double keys = (double)p->ctx * (double)p->batch * (double)p->kv_heads,
                 ns = row(e)->part_ns[HA_CPU_WHOLE].median;
    if (by_keys && !isnan(ns)) number(out, ns / keys);
}
static void whole(const struct ha_entry *e, char out[CELL])
{
    if (!isnan(row(e)->whole_over_beside.median)) number(out, row(e)->part_ns[HA_CPU_WHOLE].median / 1e3);
}

struct column {
    const char *name;
    void (*print)(char out[CELL], double x);
    size_t offset; /* of a double of the row */
    double unit;
    void (*cell)(const struct ha_entry *e, char out[CELL]); /* or this */
    const struct ha_key *key;                               /* or the value of this one */
};
#define AT(member) .offset = offsetof(struct ha_cpu_row, member)
static const struct column figures[] = {
    { "verdict", .cell = verdict },
    { "err/bound", fine_share, AT(err_over_bound), 1 },
    { "ms", number, AT(part_ns[HA_CPU_WHOLE].median), 1e6 },
    { "GB/s", number, AT(GBps), 1 },
    { "ratio", share, AT(ratio.median), 1 },
    { "interval ", .cell = interval },
    { "floor", share, AT(floor.median), 1 },
    { "limit", .cell = limit },
    { "ceiling", number, AT(ceiling_GBps), 1 },
    { "scale", .cell = scale },
    { "huge", percent, AT(huge_share), 1 },
    { "node", percent, AT(node_share), 1 },
    { "wake us", number, AT(wake_ns), 1e3 },
    { "samples", .cell = samples },
    { "ns/key", .cell = key_ns },
};
/* of what is timed in parts, or beside something: a table of its own */
static const struct column parts[] = {
    { "scores us", number, AT(part_ns[HA_CPU_SCORES].median), 1e3 },
    { "top-k us", number, AT(part_ns[HA_CPU_CHOICE].median), 1e3 },
    { "attend us", number, AT(part_ns[HA_CPU_CHOSEN].median), 1e3 },
    { "whole us", .cell = whole },
    { "beside us", number, AT(part_ns[HA_CPU_BESIDE].median), 1e3 },
    { "whole/beside", share, AT(whole_over_beside.median), 1 },
    { "top-k/whole", share, AT(choice_share.median), 1 },
};
enum { FIGURES = sizeof figures / sizeof *figures, PARTS = sizeof parts / sizeof *parts };

static void key_cell(const struct ha_entry *e, const struct ha_key *key, char out[CELL])
{
    char value[HA_VALUE_MAX] = "-";
    if (ha_cpu_uses(e->point, (size_t)(key - ha_cpu_keys))) ha_point_value(e->point, key, value);
    snprintf(out, CELL, "%.39s", value);
}

static void cell(const struct column *c, const struct ha_entry *e, char out[CELL])
{
    double x = (double)NAN;
    *out = 0;
    if (c->key) key_cell(e, c->key, out);
    else if (c->cell && (e->row || c->cell == verdict)) c->cell(e, out);
    else if (c->print && e->row) memcpy(&x, (const char *)e->row + c->offset, sizeof x);
    if (!isnan(x)) c->print(out, x / c->unit);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

struct part {
    const struct ha_results *all;
    const struct ha_section *of;
};
enum { KEYS = HA_CPU_ALL_KEYS };

static const struct ha_entry *at(const struct part *s, size_t i) { return &s->all->entry[s->of->entry[i]]; }

static bool varies(const struct part *s, const struct ha_key *key)
{
    char first[CELL], other[CELL];
    for (size_t i = 0; i < s->of->count; i++) {
        key_cell(at(s, i), key, i ? other : first);
        if (i && strcmp(first, other) != 0) return true;
    }
    return false;
}

static void print_title(FILE *out, const struct part *s)
{
    const char *between = " ";
    fprintf(out, "\n[%s]", *s->of->name ? s->of->name : "points");
    for (size_t k = 0; k < KEYS; k++) {
        const struct ha_key *key = &ha_cpu_keys[k];
        char value[CELL], usual[HA_VALUE_MAX];
        key_cell(at(s, 0), key, value);
        const bool standard = !key->always && !strcmp(value, ha_key_standard(at(s, 0)->point, key, usual));
        if (standard || varies(s, key) || !ha_cpu_uses(at(s, 0)->point, k)) continue;
        fprintf(out, "%s%s=%s", between, key->name, value);
        between = ", ";
    }
    putc('\n', out);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* 0: a key that is the same in all rows, or a figure that no row has */
static size_t width_of(const struct part *s, const struct column *c)
{
    size_t most = 0;
    char text[CELL];
    for (size_t i = 0; i < s->of->count; i++) {
        cell(c, at(s, i), text);
        most = larger(most, strlen(text));
    }
    return (c->key ? varies(s, c->key) : most > 0) ? larger(most, strlen(c->name)) : 0;
}

/* Nothing where no row has any of these figures. */
static void print_columns(FILE *out, const struct part *s, const struct column *figure, size_t count)
{
    struct column column[KEYS + FIGURES];
    int width[KEYS + FIGURES]; /* negative: to the left */
    bool any = false;
    for (size_t c = 0; c < KEYS + count; c++) {
        column[c] = c < KEYS ? (struct column){ .name = ha_cpu_keys[c].name, .key = &ha_cpu_keys[c] }
                             : figure[c - KEYS];
        width[c] = (int)width_of(s, &column[c]) * (c < KEYS ? -1 : 1);
        any = any || width[c] > 0;
    }
    for (size_t line = 0; line <= s->of->count && any; line++) {
        for (size_t c = 0; c < KEYS + count; c++) {
            char text[CELL];
            if (!width[c]) continue;
            if (line) cell(&column[c], at(s, line - 1), text);
            fprintf(out, "%*s  ", width[c], line ? text : column[c].name);
        }
        putc('\n', out);
    }
}
_Static_assert((int)PARTS <= (int)FIGURES, "room of print_columns");

static void print_section(FILE *out, const struct part *s)
{
    bool parted = false;
    print_title(out, s);
    print_columns(out, s, figures, FIGURES);
    for (size_t i = 0; i < s->of->count; i++) {
        const struct ha_entry *e = at(s, i);
        parted = parted || (e->row && row(e)->head.samples > 0 && !isnan(row(e)->whole_over_beside.median));
    }
    if (!parted) return;
    putc('\n', out);
    print_columns(out, s, parts, PARTS);
}

/* ---- scaling ----------------------------------------------------------------------------------------------------- */

/* the same but for the axis */
static bool alike(const struct ha_entry *a, const struct ha_entry *b, size_t axis)
{
    char value[HA_VALUE_MAX];
    struct ha_cpu_point same = *point(a);
    struct ha_why why;
    ha_point_value(b->point, &ha_cpu_keys[axis], value);
    return ha_point_set(&same, &ha_cpu_keys[axis], value, &why) == HA_OK && !memcmp(&same, b->point, sizeof same);
}

static void print_line(FILE *out, const struct part *s, size_t first)
{
    const size_t axis = s->of->axis;
    char value[CELL];
    fprintf(out, "  %-9s", ha_cpu_keys[axis].name);
    for (size_t k = 0; k < KEYS; k++) {
        if (k == axis || !varies(s, &ha_cpu_keys[k])) continue;
        key_cell(at(s, first), &ha_cpu_keys[k], value);
        fprintf(out, " %-5s", value);
    }
    for (size_t i = first; i < s->of->count; i++) {
        const struct ha_entry *e = at(s, i);
        if (!alike(at(s, first), e, axis)) continue;
        key_cell(e, &ha_cpu_keys[axis], value);
        if (!e->row || isnan(row(e)->ratio.median)) fprintf(out, "  %7s -    ", value);
        else fprintf(out, "  %7s %.3f", value, row(e)->ratio.median);
    }
    putc('\n', out);
}

static void print_scaling(FILE *out, const struct ha_results *all)
{
    const char *title = "\nscaling: share of the read ceiling of the same threads\n";
    for (size_t i = 0; i < all->sections; i++) {
        const struct part s = { all, &all->section[i] };
        for (size_t j = 0; j < s.of->count && s.of->axis != SIZE_MAX; j++) {
            bool begun = false;
            for (size_t k = 0; k < j && !begun; k++) begun = alike(at(&s, k), at(&s, j), s.of->axis);
            if (begun) continue;
            fputs(title, out);
            title = "";
            print_line(out, &s, j);
        }
    }
}

void ha_cpu_print(FILE *out, const struct ha_results *all)
{
    size_t disturbed = 0, timed = 0;
    for (size_t i = 0; i < all->sections; i++)
        if (all->section[i].count) print_section(out, &(struct part){ all, &all->section[i] });
    for (size_t i = 0; i < all->entries; i++) {
        const struct ha_entry *e = &all->entry[i];
        timed += e->row && row(e)->head.samples > 0;
        disturbed += e->row && *row(e)->disturbed;
    }
    if (disturbed)
        fprintf(out,
                "\n~: the machine was disturbed; in %zu of %zu points too few samples kept their cores, and the "
                "others are in the figures.\n",
                disturbed, timed);
    if (all->measured) print_scaling(out, all);
}

/* ---- goals ------------------------------------------------------------------------------------------------------- */

enum {
    CTX_LEAST = 32768,
    Q_HEADS = 32,
    KV_HEADS = 8,
    DIM = 128,
    BUDGET = 5,
    VALUES = 15,
    BLOCK = 16,
    BITS = 256,
    DIMS = 4
};
enum {
    AVX512 = HA_CPU_AVX512 | HA_CPU_AVX512_YMM | HA_CPU_AVX512_VPOPCNTDQ | HA_CPU_AVX512_BF16 | HA_CPU_AMX,
    BF16 = HA_CPU_AVX512_BF16 | HA_CPU_AMX,
    COUNTS = HA_CPU_AVX512_VPOPCNTDQ | BF16
};
#define FIGURE(member) offsetof(struct ha_cpu_row, member)

/* Decoding, one query token over packed keys with 32/8 heads of 128, and by one thread scores of codes for as many, and
 * sums of 15% of V by a list for each KV head: the share of the read ceiling at least, with one thread or where the
 * threads' ceilings add up (harder), and where they do not (easier). Then scores by codebooks, the choice by weights,
 * and a step over 5% of the keys in blocks: figures at most. */
static const struct goal {
    const char *what;
    size_t figure; /* a struct ha_estimate of the row */
    double harder, easier;
    enum ha_cpu_kernel kernel;
    enum ha_dtype dtype;
    unsigned cpu_bits; /* the table that ran needs one of them; 0: any */
    size_t detail;     /* the key query; of codes and scores by codebooks, centroids, whose tables are of dtype */
    const char *absent;
} goals[] = {
    { "decode f32", FIGURE(ratio), 0.93, 0.97, HA_KERNEL_ATTEND, HA_F32, AVX512, 0, "not measured here with AVX-512" },
    { "decode bf16, query=kv", FIGURE(ratio), 0.88, 0.96, HA_KERNEL_ATTEND, HA_BF16, BF16, 0,
      "not measured here with AVX-512 BF16" },
    { "decode bf16, query=f32", FIGURE(ratio), 0.78, 0.95, HA_KERNEL_ATTEND, HA_BF16, BF16, 1,
      "not measured here with AVX-512 BF16" },
    { "decode f16", FIGURE(ratio), 0.70, 0.95, HA_KERNEL_ATTEND, HA_F16, AVX512, 0, "not measured here with AVX-512" },
    { "decode f32", FIGURE(ratio), 0.93, 0.93, HA_KERNEL_ATTEND, HA_F32, HA_CPU_AVX2, 0,
      "not measured here with AVX2 alone" },
    { "decode f16", FIGURE(ratio), 0.65, 0.65, HA_KERNEL_ATTEND, HA_F16, HA_CPU_AVX2, 0,
      "not measured here with AVX2 alone" },
    { "scores of codes, 256 bits", FIGURE(ratio), 0.70, 0.70, HA_KERNEL_HAMMING, HA_F16, COUNTS, 0,
      "not measured here with AVX-512 VPOPCNTDQ" },
    { "scores of codes, 256 bits", FIGURE(ratio), 0.40, 0.40, HA_KERNEL_HAMMING, HA_F16, HA_CPU_AVX2, 0,
      "not measured here with AVX2 alone" },
    { "sums of 15% of V, f16", FIGURE(ratio), 0.60, 0.60, HA_KERNEL_WEIGHTED_SUM, HA_F16, AVX512 | HA_CPU_AVX2, 0,
      "not measured here with one thread and heads=8/8" },
    { "scores by codebooks over dense attention, c=256", FIGURE(whole_over_beside), 0.50, 0.50, HA_KERNEL_PQ_SCORE,
      HA_F32, 0, 256, "not measured here with one thread" },
    { "scores by codebooks over dense attention, c=2048", FIGURE(whole_over_beside), 1.00, 1.00, HA_KERNEL_PQ_SCORE,
      HA_F16, 0, 2048, "not measured here with one thread and tables of f16" },
    { "codes of 16 keys over those of each alone, c=2048", FIGURE(whole_over_beside), 0.50, 0.50, HA_KERNEL_PQ_ENCODE,
      HA_F16, 0, 2048, "not measured here with one thread" },
    { "weights of 0.9 over scores by codebooks, c=256", FIGURE(whole_over_beside), 0.25, 0.25, HA_KERNEL_TOPP, HA_F16,
      0, 0, "not measured here with one thread" },
    { "sparse step over dense step", FIGURE(whole_over_beside), 0.10, 0.10, HA_KERNEL_SPARSE, HA_F16, 0, 0,
      "f16, ctx 32768, budget 5% was not measured here" },
    { "top-k over sparse step", FIGURE(choice_share), 0.06, 0.06, HA_KERNEL_SPARSE, HA_F16, 0, 0,
      "f16, ctx 32768, budget 5% was not measured here" },
};
enum { GOALS = sizeof goals / sizeof *goals };

/* what the table that ran needs of the CPU */
static unsigned bit_of(const char *isa)
{
    for (size_t i = 0; i < ha_kernels_count; i++)
        if (!strcmp(ha_kernels_all[i]->name, isa)) return ha_kernels_all[i]->cpu_bit;
    return 0;
}

/* is it what this goal is about? */
static bool meant(const struct goal *g, const struct ha_cpu_point *p)
{
    const bool one = p->threads == 1, all = p->ctx == CTX_LEAST;
    if (p->kernel == HA_KERNEL_PQ_ENCODE)
        return one && p->ctx == BLOCK && p->dtype == g->dtype && p->dims == DIMS && p->centroids == g->detail;
    if (p->ctx < CTX_LEAST) return false;
    switch (p->kernel) {
    case HA_KERNEL_ATTEND: return p->dtype == g->dtype && p->layout == HA_CPU_PACKED && p->query == g->detail;
    case HA_KERNEL_SPARSE: return p->dtype == g->dtype && p->budget == BUDGET;
    case HA_KERNEL_HAMMING: return one && all && p->bits == BITS;
    case HA_KERNEL_WEIGHTED_SUM: return one && all && p->dtype == g->dtype && p->budget == VALUES;
    case HA_KERNEL_PQ_SCORE:
        return one && p->dtype == HA_F16 && p->dims == DIMS && p->centroids == g->detail
               && p->table == (g->dtype == HA_F16);
    default: return one;
    }
}

/* was it measured for this goal? */
static bool fits(const struct goal *g, const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    const struct ha_cpu_row *r = e->row;
    if (!r || !ha_passed(r->head.verdict) || !(r->head.samples > 0) || p->kernel != g->kernel) return false;
    if (g->cpu_bits && !(bit_of(r->isa) & g->cpu_bits)) return false;
    const size_t q_heads = p->kernel == HA_KERNEL_WEIGHTED_SUM ? KV_HEADS : Q_HEADS;
    const bool heads = p->q_heads == q_heads && p->kv_heads == KV_HEADS && p->head_dim == DIM && p->batch == 1;
    return meant(g, p) && (heads || p->kernel == HA_KERNEL_SPARSE);
}

static void print_one(FILE *out, const struct goal *g, const struct ha_entry *e)
{
    const struct ha_cpu_point *p = e->point;
    const struct ha_cpu_row *r = e->row;
    const char *state = ha_cpu_ceiling_state(r);
    const double goal = strcmp(state, "easier") ? g->harder : g->easier;
    const bool least = g->figure == FIGURE(ratio);
    struct ha_estimate x;
    memcpy(&x, (const char *)r + g->figure, sizeof x);
    const char *word = (least ? x.median >= goal : x.median <= goal) ? "met" : "not met";
    fprintf(out, "  %-14s %.2f  measured %.3f (%.3f-%.3f)  %s, %s, ctx %zu", *r->disturbed ? "disturbed" : word, goal,
            x.median, x.lo, x.hi, g->what, r->isa, p->ctx);
    if (g->kernel == HA_KERNEL_SPARSE) fprintf(out, ", block %zu", p->block);
    fprintf(out, ", %.0f thread%s", r->threads, r->threads > 1 ? "s" : "");
    if (least && r->threads > 1) fprintf(out, ", %s", state);
    putc('\n', out);
}

bool ha_cpu_conclude(FILE *out, const struct ha_results *all, struct ha_why *why)
{
    size_t count[GOALS] = { 0 }, any = 0;
    for (size_t g = 0; g < GOALS; g++)
        for (size_t i = 0; i < all->entries; i++) count[g] += fits(&goals[g], &all->entry[i]);
    for (size_t g = 0; g < GOALS; g++) any += count[g];
    if (!all->measured || !any) return true;
    fprintf(out,
            "\ngoals: share of the read ceiling at least; a sparse step, its top-k, what codebooks need, and a choice "
            "by weights, at most\n");
    for (size_t g = 0; g < GOALS; g++) {
        if (!count[g])
            fprintf(out, "  %-14s %.2f  %s: %s\n", "not applicable", goals[g].harder, goals[g].what, goals[g].absent);
        for (size_t i = 0; i < all->entries; i++)
            if (fits(&goals[g], &all->entry[i])) print_one(out, &goals[g], &all->entry[i]);
    }
    return true;
}
