#ifndef HA_COMPARE_FLEET_H
#define HA_COMPARE_FLEET_H

/* A fleet: records of many machines that ran the same, and which of them stand out. A folder holds for each machine its
 * record, MACHINE/, and what its rank said, MACHINE.rank.json; `expected` lists who has to be there (docs/fleet.md).
 * One verdict, from which the table, JSON lines, JUnit and the exit code are made (fleet_print.h). */

#include "harness/api/exit.h"
#include "harness/compare/fleet_spread.h"
#include "harness/compare/record.h"

/* The later, the more it stands for a machine that is several of these. */
enum ha_fleet_state {
    HA_FLEET_FITS,
    HA_FLEET_TOO_FEW, /* machines of its kind: nothing is judged */
    HA_FLEET_DISTURBED,
    HA_FLEET_MISSING, /* cases, or all of them */
    HA_FLEET_NEVER_ANSWERED,
    HA_FLEET_DID_NOT_END,
    HA_FLEET_DIED,
    HA_FLEET_STANDS_OUT,
    HA_FLEET_DISAGREES,
    HA_FLEET_WRONG,
};
enum { HA_FLEET_STATES = HA_FLEET_WRONG + 1 };

/* A figure of a case; all machines share the numbers of figures. */
struct ha_fleet_figure {
    const char *case_id, *mode, *suite, *name, *unit;
    enum ha_better better;
    bool speed;                            /* a time or a rate; found by ha_fleet_figure, as the part is */
    const struct ha_part_of_machine *part; /* of which it is a reading, or NULL */
};

/* What a machine has of a figure, as logarithms in which more is worse (sides.h). */
struct ha_fleet_value {
    uint32_t figure, processes; /* that were not disturbed */
    double x, best;             /* the median of its processes, and the best of them */
};

/* The digest of all outputs of a case; `of` numbers cases and plans of kernels. */
struct ha_fleet_digest {
    uint32_t of;
    bool mixed; /* its own processes disagree */
    uint64_t digest;
};

/* A sum of several figures of a machine: a part of it by all readings of that part; all times and rates; those of one
 * suite. */
struct ha_fleet_track {
    const struct ha_part_of_machine *part; /* or NULL */
    const char *suite;                     /* NULL: all */
    size_t columns;
    struct ha_spread at; /* of the median over the figures of how far they are from theirs */
    double least;        /* the distance that would have been noticed; infinity: none */
    double *x;           /* [machines of the group], NaN: not known */
};

/* A figure of a group. */
struct ha_fleet_column {
    uint32_t figure;
    size_t machines; /* that have a value */
    struct ha_spread at, best;
    double quantile[7]; /* 1, 5, 25, 50, 75, 95, 99%, of logarithms */
    double least;
};

struct ha_fleet_machine {
    const char *name, *host;
    enum ha_fleet_state state;
    const char *said; /* why it is not there, or what is wrong; "" */
    bool expected, ranked, record;
    const char **fact; /* [facts]; "": not said */
    size_t facts;      /* of the fleet's, the first */
    const char *date, *build;
    struct ha_fleet_value *value; /* [values], by figure ascending */
    size_t values;
    struct ha_fleet_digest *digest; /* [digests] */
    size_t digests;
    uint32_t *cases; /* [cases_count] numbers of those that have a row, ascending */
    size_t cases_count, disturbed, failed, errors;
    /* as judged */
    size_t group, place;              /* in it; group SIZE_MAX: in none */
    size_t alike;                     /* machines of the same number have the same facts of their kind */
    double suspicion;                 /* -log10 of the smallest chance, times how many were looked at */
    size_t figures, disagrees, lacks; /* that stand out; cases whose outputs are others than those of most; not there */
    const struct ha_fleet_track *track;   /* by which it stands out most */
    double by, sigmas;                    /* how far, of that track or else of the figure */
    const struct ha_fleet_column *column; /* NULL: no figure stands out by itself */
    double threshold;                     /* chances of its figures up to this are called */
};

struct ha_fleet_group {
    size_t *machine; /* [count] */
    size_t count;
    char name[200], kinds[200]; /* kinds: how it differs from another group of the same facts; "" */
    bool judged;
    struct ha_fleet_column *column; /* [columns] */
    size_t columns, *column_of;     /* [figures of the fleet], SIZE_MAX: none */
    struct ha_fleet_track *track;   /* [tracks] */
    size_t tracks;
};

/* What most machines of a group have as the outputs of a case, where not all agree. */
struct ha_fleet_disagreement {
    size_t group;
    uint32_t of;
    uint64_t most;
    bool known;           /* there are three or more, and more than half of them agree */
    size_t agree, others; /* machines */
};

struct ha_fleet {
    const char *path;
    struct ha_fleet_machine *machine; /* [count], by name */
    size_t count, room;
    struct ha_fleet_figure **figure; /* [figures] */
    size_t figures, figures_room;
    const char **fact; /* [facts] names */
    bool *fact_of_kind;
    size_t facts, facts_room, kinds_room;
    struct ha_fleet_case {
        const char *mode, *id, *plan;
    } * of; /* [ofs] cases, and cases with plans: of digests */
    size_t ofs, ofs_room;
    size_t expected, never_began;
    char *notes; /* lines: what was left out */
    /* as judged */
    struct ha_fleet_group *group; /* [groups] */
    size_t groups, groups_room;
    struct ha_fleet_disagreement *disagreement; /* [disagreements] */
    size_t disagreements, disagreements_room;
    size_t cells, sums; /* values that were judged, and machines' tracks */
    double named_p;     /* up to this chance a single figure names a machine */
    /* inside */
    void *names; /* of all texts, figures and cases (tsearch) */
};

/* Facts are of machines of one kind, apart from this: digests of outputs are compared within a group, too. */
#define HA_FLEET_ALPHA 0.005 /* chance by which a fleet in which nothing is wrong names a machine */
/* A single figure names a machine where it has so many processes, the best of which is as far out. */
enum { HA_FLEET_PROCESSES = 5 };

/* HA_ERROR: there is no such folder, or no machine in it. Damage of a machine is said, and is no error. To be freed
 * after a failure, too. */
enum ha_status ha_fleet_read(struct ha_fleet *fleet, const char *path, struct ha_why *why);
/* Groups, what stands out of them, outputs that disagree; then what all came to. HA_ERROR: no memory */
enum ha_status ha_fleet_judge(struct ha_fleet *fleet, struct ha_why *why);
void ha_fleet_free(struct ha_fleet *fleet);

/* ---- how a fleet is made ----------------------------------------------------------------------------------------- */

enum ha_status ha_fleet_begin(struct ha_fleet *fleet, const char *path, struct ha_why *why);
/* The number of a figure or of a fact, and a text that lives as long as the fleet; SIZE_MAX, NULL: no memory. Not at
 * once by several threads. */
size_t ha_fleet_figure(struct ha_fleet *fleet, const struct ha_fleet_figure *like);
/* SIZE_MAX: there is none */
size_t ha_fleet_find(const struct ha_fleet *fleet, const struct ha_fleet_figure *like);
size_t ha_fleet_fact(struct ha_fleet *fleet, const char *name, bool of_kind);
size_t ha_fleet_case(struct ha_fleet *fleet, const char *mode, const char *id, const char *plan);
const char *ha_fleet_keep(struct ha_fleet *fleet, const char *text);
/* The machine of that name, a new one where there is none; NULL: no memory. Moves the others. */
struct ha_fleet_machine *ha_fleet_machine(struct ha_fleet *fleet, const char *name);
/* What is in a record, of this machine. */
enum ha_status ha_fleet_take(struct ha_fleet *fleet, struct ha_fleet_machine *machine, const struct ha_record *record,
                             struct ha_why *why);
void ha_fleet_note(struct ha_fleet *fleet, const char *line);

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

const char *ha_fleet_state_word(enum ha_fleet_state state);
/* Behind how many machines it is said of: "1 stands out", "2 stand out" */
const char *ha_fleet_state_of(enum ha_fleet_state state, size_t machines);
enum ha_exit ha_fleet_state_exit(enum ha_fleet_state state);
/* The first of 10, 30, 20, 40, 0 that applies. */
enum ha_exit ha_fleet_exit(const struct ha_fleet *fleet);
const char *ha_fleet_word(const struct ha_fleet *fleet);
/* The value that has such a logarithm. */
double ha_fleet_value_of(const struct ha_fleet_figure *figure, double x);
/* A value of a machine beside its group: how far it is above the middle, in sd, and its chance. */
struct ha_fleet_cell {
    const struct ha_fleet_column *column;
    double by, sigmas, p;
    bool called;
};
struct ha_fleet_cell ha_fleet_cell(const struct ha_fleet *fleet, const struct ha_fleet_machine *machine, size_t value);
/* [count] numbers of machines, the most suspicious first, the caller's; NULL: no memory */
size_t *ha_fleet_order(const struct ha_fleet *fleet);

#endif
