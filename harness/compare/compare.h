#ifndef HA_COMPARE_H
#define HA_COMPARE_H

/* What has changed between two records (record.h), and whether it was the code or the machine. One verdict, from which
 * tables, JSON lines, JUnit and the exit code are made (print.h). */

#include "harness/api/exit.h"
#include "harness/compare/bits.h"
#include "harness/compare/facts.h"
#include "harness/compare/record.h"
#include "harness/compare/shift.h"

/* What became of a case, or of a figure of it; the worse, the later. */
enum ha_change_kind {
    HA_CHANGE_SAME,           /* by an interval within 5% of nothing, or less than what counts */
    HA_CHANGE_UNCLEAR,        /* no change is proved, and none is ruled out */
    HA_CHANGE_ADDED,          /* the base has no such case */
    HA_CHANGE_PERHAPS_BETTER, /* the same as suspicious, the other way: no mistake, whether it is called or not */
    HA_CHANGE_BETTER,
    HA_CHANGE_DISTURBED,  /* something else used the cores in most of its processes, or of those of the base */
    HA_CHANGE_SUSPICIOUS, /* to be run in more processes before it is called */
    HA_CHANGE_WAIVED,     /* and was judged before */
    HA_CHANGE_GONE,
    HA_CHANGE_NOT_JUDGED,   /* an error */
    HA_CHANGE_OTHER_RESULT, /* a figure of the answer itself (results.h), which is not better */
    HA_CHANGE_WORSE,
    HA_CHANGE_OTHER_BITS, /* of outputs, from the same machine, build, plan and input */
    HA_CHANGE_WRONG,
};
enum { HA_CHANGES = HA_CHANGE_WRONG + 1 };

enum ha_cause { HA_CAUSE_NONE, HA_CAUSE_MACHINE, HA_CAUSE_CODE, HA_CAUSE_SOFTWARE, HA_CAUSE_BOTH, HA_CAUSE_UNDECIDED };

struct ha_change {
    enum ha_change_kind kind;
    const struct ha_recorded_case *base, *now; /* NULL: not there */
    const struct ha_recorded_figure *base_figure,
        *figure;               /* both NULL: it is about the case; figure alone: it is gone */
    struct ha_other_bits bits; /* of other bits */
    struct ha_result_change {
        double base, now; /* what it was, and the farthest from that */
        size_t outside;   /* in so many processes it is another one */
        bool exact;       /* it has to be the same to the digit */
    } result;             /* of a figure of the answer */
    bool folded;          /* it follows from another change of its case, which has its name in... */
    char follows[96];
    size_t lost, values; /* figures of the case that are gone, base_figure the first, which has so many values now */
    size_t cases;        /* of its suite without a row now, for which it stands; 0: for its own */
    double base_median, median;       /* of the processes, as in the record */
    double base_lo, base_hi, lo, hi;  /* 95% intervals of these medians */
    size_t base_processes, processes; /* of a figure: those that were not disturbed */
    size_t base_disturbed, disturbed; /* of its case */
    enum ha_verdict base_verdict;     /* of its last night that counts; HA_NOT_RUN: none */
    struct ha_shift shift;            /* above zero: worse */
    bool by_speeds;                   /* called for how many are at which of two speeds */
    enum ha_cause cause;
    const struct ha_part_of_machine *part; /* the one that moved, or NULL */
    struct ha_shift part_shift, rest;      /* of that part, and of the figure over it */
    const char *suspects;                  /* where no part is the cause: the facts that differ and may be; "" */
};

struct ha_environment_change {
    const char *name, *base, *now; /* NULL: not said there */
    enum ha_fact_kind kind;
    bool lost; /* hardware that the same machine had, and has no more: by itself a regression */
};

struct ha_comparison {
    const struct ha_record *base, *now;
    struct ha_change
        *change; /* [count] a line for each case that is not there twice or is not right, and for each figure */
    size_t count, room;
    struct ha_environment_change *environment; /* [environments] what is lost, then hardware, software, the rest */
    size_t environments, environments_room;
    char *no_figures;                /* the text of one of these */
    char *suspects;                  /* the names of the software that differs, and "build" */
    bool same_build, other_software; /* as far as both say */
    struct ha_record machine[2];     /* the case "machine" of either side, of readings that can be compared */
    size_t compared;                 /* figures */
    bool other_machine;              /* no figure is compared: side_by_side.h */
    const char *differs;             /* the fact by which it is another machine */
    size_t base_nights, left_out;    /* nights of the base that count; those of other machines */
    size_t itself;                   /* nights of the base that are new ones, and do not count */
    double nights;                   /* spread between nights, median over figures */
    bool assumed;                    /* it is not known from the base, which has one night */
    enum ha_exit besides; /* the caller's to set: what else it knows of the new record, which makes it no better */
};

/* A base without a night: nothing is known of before, and what is wrong or not judged is found. HA_FAIL: these cannot
 * be compared (devices of different kinds); why says so. */
enum ha_status ha_compare(struct ha_comparison *out, const struct ha_record *base, const struct ha_record *now,
                          struct ha_why *why);
void ha_comparison_free(struct ha_comparison *comparison);
/* The same case in one of the two records, of the other, where its device may have been asked for under another name;
 * NULL: there is none. */
const struct ha_recorded_case *ha_comparison_counterpart(const struct ha_comparison *comparison,
                                                         const struct ha_record *in, const struct ha_recorded_case *of);

/* How many changes of this kind; how many that stand on top. */
size_t ha_comparison_of(const struct ha_comparison *comparison, enum ha_change_kind kind);
size_t ha_comparison_loud(const struct ha_comparison *comparison);
/* How many facts say that the machine has lost something. */
size_t ha_comparison_lost(const struct ha_comparison *comparison);
/* The word for a change: "slower" of a time or rate, "worse" of others. */
const char *ha_change_word(const struct ha_change *change);
const char *ha_cause_word(enum ha_cause cause);
/* Does it stand on top? */
bool ha_change_loud(const struct ha_change *change);
enum ha_exit ha_change_exit(enum ha_change_kind kind);

/* The verdict of two things together: 10 wrong results, 30 slower beyond doubt, 20 not all ran, or what ran is not
 * enough to say, 40 the machine was not fit, 0 nothing changed; the first in this order. */
enum ha_exit ha_night_worse(enum ha_exit a, enum ha_exit b);
/* Was there a run, and so few processes, or figures, that no change of any would have been noticed? */
bool ha_comparison_blind(const struct ha_comparison *comparison);
/* The verdict of all. */
enum ha_exit ha_comparison_exit(const struct ha_comparison *comparison);
const char *ha_comparison_word(const struct ha_comparison *comparison);
const char *ha_night_word(enum ha_exit exit);

#endif
