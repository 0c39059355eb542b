#ifndef HA_MERGE_SUITE_H
#define HA_MERGE_SUITE_H

/* What the family lse_merge consists of: cases and known defects, as data. A case makes rows;
 * a row is one merge of M states. suites/merge stores the rows in the form, type, order and
 * layout of the day, hands them to a merge, and judges what comes back. */

#include "harness/api/merge.h"
#include "harness/api/reference.h"

/* One row in binary64, before it is stored. The caller presets o and lse to 0, sum to 1 and the
 * rest as said, and owns the arrays. Everything random follows from (seed, index): the same row in
 * every form and type. */
struct ha_merge_row {
    size_t states, dim; /* dim <= HA_REF_DIM_MAX */
    enum ha_form form;
    enum ha_dtype dtype;  /* that o will be stored in: its range is what the row must stay within */
    uint64_t seed, index; /* index of the row in its batch */
    double *o;            /* [states][dim]; NaN and inf are allowed */
    double *lse;          /* [states] natural; -inf: no keys; NaN is allowed */
    double *sum;          /* [states] for HA_FORM_MAX_SUM: max = lse - ln sum; >= 1 */
    /* where the states come from tokens: attention over all of them, computed from the tokens and not from the
     * states. The merge is then also judged against it, with the bound of rounding the states. */
    bool whole;                 /* preset false */
    double *whole_o, whole_lse; /* [dim] */
    /* where not all tokens were selected: full attention, and how far that may be from attention over the
     * selected ones (the certificate) in each component */
    bool full;                   /* preset false */
    double *full_o, *full_slack; /* [dim] */
};

typedef void ha_merge_fill(struct ha_merge_row *row);
/* Turns what is handed over wrong. handed starts as a copy of the row; other is the next row of the batch. */
typedef void ha_merge_plant(struct ha_merge_row *handed, const struct ha_merge_row *other);

enum ha_must {
    HA_MUST_BOUND,   /* every element within the bound; NaN where NaN is due; (0, -inf) where all is empty */
    HA_MUST_EXACT,   /* o exactly the binary64 result (which is representable); LSE within the bound */
    HA_MUST_COPY,    /* o and LSE bitwise those of the one state that has keys */
    HA_MUST_COMMUTE, /* bound; and rows 2i and 2i + 1, which hold the same states in another order, agree bitwise
                      * where the merge's traits say that it commutes */
    HA_MUST_FAIL,    /* an error is planted: the check must see it, and see nothing without it */
};
/* How the rows are put before the merge. */
enum ha_stage {
    HA_STAGE_PLAIN,
    HA_STAGE_HUGE,   /* rows so far apart that indices exceed 2^31 and 2^32 elements */
    HA_STAGE_STREAM, /* behind a producer that is late, and again from a graph with other inputs */
    HA_STAGE_FLAG,   /* one state comes from a CPU thread, announced by a flag: in order (bound), and with the
                      * flag before the data, over poisoned memory (must fail); and from a graph that resets it */
    HA_STAGE_SPLIT,  /* states that the device's own attention leaves on two streams, merged behind both, and again from
                      * a graph; nothing is filled in */
};
/* It needs a device; a function is the kernel of an embedded one. */
static inline bool ha_stage_streams(enum ha_stage stage) { return stage != HA_STAGE_PLAIN && stage != HA_STAGE_HUGE; }
enum ha_order { HA_ORDER_FLAT, HA_ORDER_CHAIN, HA_ORDER_TREE };
enum { HA_ORDER_COUNT = 3 };
enum ha_layout {
    HA_LAYOUT_PACKED,      /* rows one after the other, LSE [tokens][heads] */
    HA_LAYOUT_PADDED,      /* rows 1.5 dim apart, another padding in each state */
    HA_LAYOUT_HEADS_FIRST, /* LSE [heads][tokens] */
    HA_LAYOUT_WINDOW,      /* the first and the last token are masked: not merged, not touched */
};
enum { HA_LAYOUT_COUNT = 4, HA_ALIAS_COUNT = 3 };

struct ha_merge_case {
    unsigned number; /* 1 .. 47, as in docs/merging.md */
    const char *name;
    const char *why; /* one line: which mistake it is for */
    enum ha_must must;
    enum ha_stage stage;
    size_t states_min, states_max;                    /* 0, 0: any number */
    unsigned forms, dtypes, orders, aliases, layouts; /* bits; 0: all */
    bool plus_inf;                                    /* empty states are marked with L = +inf */
    enum ha_fp8 fp8;                                  /* the result has bytes of this type */
    bool may_reject;                                  /* an error from the merge is as good as the right answer */
    size_t rows;                                      /* at most, where one costs much; 0: any number */
    ha_merge_fill *fill;
    ha_merge_plant *plant; /* HA_MUST_FAIL */
};

/* A merge with one mistake that has been made in public. It takes every form, type and layout. */
struct ha_merge_defect {
    const char *name;
    const char *does;       /* what it does wrong, one line */
    const char *seen;       /* where: repository#issue, ...; "" where we know of none */
    const char *finder;     /* name of the case that is there to find it */
    unsigned forms, dtypes; /* bits: where the mistake can be made; 0: all */
    void (*merge)(const struct ha_merge *args);
};

enum { HA_MERGE_CASES = 50, HA_MERGE_DEFECTS = 51 };
extern const struct ha_merge_case ha_merge_cases[HA_MERGE_CASES];
extern const struct ha_merge_defect ha_merge_defects[HA_MERGE_DEFECTS];

/* Random rows: over partitions, score distributions and values, special ones included. row->states is what
 * ha_random_states says for that seed, the same for a whole batch. */
ha_merge_fill ha_random_fill;
size_t ha_random_states(uint64_t seed);

#endif
