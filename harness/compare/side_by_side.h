#ifndef HA_COMPARE_SIDE_BY_SIDE_H
#define HA_COMPARE_SIDE_BY_SIDE_H

/* Machines side by side: which is faster at the same cases, by how much, and which part of the machine accounts for it.
 * The first machine is the base of the comparisons, the others are what is compared with it; in tables they are A, B,
 * C. A ratio is a speed over a speed, as its logarithm: above zero the second machine is faster. */

#include "harness/compare/compare.h"

#include <stdio.h>

/* lo, hi: the 95% interval; NaN: not known */
struct ha_speed_ratio {
    double size, lo, hi;
};

enum ha_speed_word {
    HA_SPEED_FASTER,
    HA_SPEED_EVEN, /* 1 is in the interval */
    HA_SPEED_SLOWER,
    HA_SPEED_FEW,       /* so few processes have no interval */
    HA_SPEED_WRONG,     /* on either machine the result is not right: its time counts for nothing */
    HA_SPEED_DISTURBED, /* on either, something else used the cores in most processes */
    HA_SPEED_NO_TIME,
    HA_SPEED_WORDS
};

enum { HA_PARTS = 7 }; /* of a machine, as in ha_parts_of_machine */

/* A case on one machine, beside the first. */
struct ha_side_case {
    const struct ha_recorded_case *of;
    const struct ha_recorded_figure *time; /* step_ns, or the first time or rate that all machines have; NULL: none */
    double median;
    size_t processes;
    struct ha_speed_ratio ratio;
    enum ha_speed_word word;
    const char *by;        /* a part, "kernels", "unclear", "not read"; "": it is not asked */
    double part[HA_PARTS]; /* ratios; NaN: not read on both */
};

struct ha_side_machine {
    char name[24];    /* A, B, C */
    const char *path; /* of its record */
    const struct ha_record *record;
    bool *counts;         /* [nights] of this machine */
    size_t nights;        /* that count */
    double spread, price; /* between nights; an hour, NaN: not given */
    bool assumed;         /* the spread: one night does not say */
};

struct ha_side_by_side {
    const struct ha_comparison *all;
    struct ha_side_machine *machine; /* [machines] */
    struct ha_side_case *cell;       /* [rows][machines] of cases that all machines have */
    size_t machines, rows;
};

/* A geometric mean over cases. Its interval is Student's t of cases, which says how sure the mean of such cases is, and
 * the spread of nights, which moves all of them. */
struct ha_speed_mean {
    struct ha_speed_ratio ratio;
    size_t cases, word[HA_SPEED_WORDS]; /* cases that count; of these and the others, what each is */
};

/* all: [count] comparisons with one base, which have nights. To be freed, also after a failure. HA_ERROR: no memory. */
enum ha_status ha_side_by_side(struct ha_side_by_side *out, const struct ha_comparison *all, size_t count,
                               struct ha_why *why);
void ha_side_by_side_free(struct ha_side_by_side *s);

/* "A=2.1/h,B=3/h": a machine goes by its letter, its path, or the last name of it. HA_ERROR: it cannot be read. */
enum ha_status ha_side_by_side_price(struct ha_side_by_side *s, const char *text, struct ha_why *why);

/* The speed of machine b over that of a, over the rows that every machine has right and with a time. head: what stands
 * before the ':' of an id, to take rows of it alone; NULL: all. */
struct ha_speed_mean ha_side_by_side_mean(const struct ha_side_by_side *s, size_t a, size_t b, const char *head);
/* place[]: [machines] 1 is the fastest; two whose interval has 1 in it share a place. order: the fastest first. */
void ha_side_by_side_rank(const struct ha_side_by_side *s, size_t *order, size_t *place);
/* Of the first machine and b: 10 a result on either is wrong; 20 a case is missing on one, was waived on one alone, or
 * not judged; 0. */
enum ha_exit ha_side_by_side_exit(const struct ha_side_by_side *s, size_t b);

/* The median of a figure of a cell; NaN: it has none. */
double ha_side_figure(const struct ha_side_by_side *s, size_t machine, const struct ha_recorded_case *of,
                      const char *figure);
bool ha_side_case_right(const struct ha_recorded_case *of);
/* clock, memory1 (one thread), memory, device (its memory), h2d, d2h, launch */
const char *ha_part_word(size_t part);

/* limit_ns: of a step, for the longest contexts below it; 0: they are not asked for. */
void ha_side_by_side_print_table(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns);
void ha_side_by_side_print_json(FILE *out, const struct ha_side_by_side *s, uint64_t limit_ns);

#endif
