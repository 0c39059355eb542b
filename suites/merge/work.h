#ifndef HA_MERGE_WORK_H
#define HA_MERGE_WORK_H

/* What there is to merge, a case or random rows in one shape, on subjects, on several threads. */

#include "harness/base/pool.h"
#include "harness/measure/eps.h"
#include "suites/merge/judge.h"
#include "suites/merge/subject.h"

#include <stdio.h>

/* ---- task.c */

/* Which batches of a case, or of random rows, are meant. */
#define HA_ROW_ANY UINT64_MAX
struct ha_merge_axes {
    uint64_t form, dtype, order, alias, layout; /* 0: any; else 1 + the value */
    uint64_t head_dim, states;                  /* 0: any */
    uint64_t tokens, heads;                     /* 0, 0: any */
    uint64_t seed; /* where all of the above are named there is one batch, and this is its seed; else each batch has one
                      of its own that follows from it */
    uint64_t row;  /* the only row of interest, or HA_ROW_ANY */
};

static inline bool ha_merge_axes_whole(const struct ha_merge_axes *a)
{
    return a->form && a->dtype && a->order && a->alias && a->layout && a->head_dim && a->states && a->tokens;
}
/* nothing is named; the seed does not count */
static inline bool ha_merge_axes_any(const struct ha_merge_axes *a)
{
    return !a->form && !a->dtype && !a->order && !a->alias && !a->layout && !a->head_dim && !a->states && !a->tokens
           && a->row == HA_ROW_ANY;
}

/* The forms that random rows are merged in, each in every type of o. */
struct ha_merge_kind {
    const char *name;
    enum ha_form form;
    enum ha_order order;
    bool in_place; /* out is the first or the last state, by turns */
};
extern const struct ha_merge_kind ha_merge_kinds[];
enum { HA_MERGE_KINDS = 6, HA_MERGE_RANDOM = HA_MERGE_KINDS * HA_DTYPE_COUNT };

/* Rows of several cases in one batch, as many of each. */
struct ha_merge_bundle {
    size_t count, item[HA_MERGE_CASES];
};

struct ha_merge_task {
    const struct ha_merge_bundle *bundle; /* the cases, one for each token; NULL: one case, or random */
    const struct ha_merge_case *c;        /* NULL: random */
    size_t item;                          /* index of the case, or of kind x type */
    struct ha_merge_shape shape;
    uint64_t seed;
    size_t row; /* the only one of interest, or SIZE_MAX */
};

struct ha_merge_tasks {
    struct ha_merge_task *task;
    size_t count, room;
};
/* A case in each form and type, with every number of states that it allows and the other axes by turns, as far as
 * `only` allows it; added to what is there. One whose stage is not plain has one task for each form and type. */
enum ha_status ha_merge_tasks_of_case(struct ha_merge_tasks *tasks, size_t item, const struct ha_merge_axes *only,
                                      struct ha_why *why);
void ha_merge_tasks_free(struct ha_merge_tasks *tasks);

/* Batch i of random rows of a kind and type (item: kind x type): 256 of them. */
struct ha_merge_task ha_merge_random_task(size_t item, const struct ha_merge_axes *only, uint64_t i);
/* whether the axes leave this kind and type in */
bool ha_merge_random_fits(size_t item, const struct ha_merge_axes *only);
/* the axes that name this task alone; r: the row, or SIZE_MAX */
struct ha_merge_axes ha_merge_axes_of(const struct ha_merge_task *task, size_t r);

/* All cases, or random rows, in as few tasks as there are shapes, flat and packed: for a subject each of whose runs is
 * a process of its own. */
struct ha_merge_bundles {
    const struct ha_merge_axes *only; /* of which form and type count */
    const bool *asked;                /* [cases], or [HA_MERGE_RANDOM] */
    size_t batches;                   /* of random rows, for each form and type; 0: cases */
    bool heads_first;                 /* LSE [heads][tokens] */
    struct ha_merge_bundle at_hand;   /* of the last task */
};
size_t ha_merge_bundles_count(const struct ha_merge_bundles *bundles);
/* Task i, valid until the next; one without tokens where there is nothing to ask. */
struct ha_merge_task ha_merge_bundle_task(void *bundles, size_t i);

/* ---- work.c */

/* How to open a subject; each thread opens one. */
struct ha_merge_source {
    char name[64];
    enum { HA_FROM_FUNCTION, HA_FROM_DEVICE, HA_FROM_PLUGIN, HA_FROM_EXEC } kind;
    void (*merge)(const struct ha_merge *);
    struct ha_merge_traits traits; /* of merge, and of what was asked for them */
    struct ha_merge_traits usual;  /* what they are set beside */
    struct ha_eps_seen exp, log;   /* its functions, as they were seen; NaN: not asked */
    enum ha_status looked;         /* HA_FAIL: it refused to be looked at; HA_ERROR: it died, or gave no answer */
    struct ha_why unseen;          /* of a look that was not HA_OK */
    struct ha_eps eps;             /* those of an open device, of its attention, too */
    const struct ha_device_api *api;
    struct ha_device *device;         /* open */
    const struct ha_kernels *kernels; /* which the merge is of, or NULL: they attend, too */
    const char *text;                 /* path or command */
    uint64_t limit_ns;                /* of a call of a stranger */
    uint64_t lost_ns;                 /* what its calls that ended in an error took, in all jobs so far */
};
enum ha_status ha_merge_source_open(const struct ha_merge_source *source, struct ha_subject *out, struct ha_why *why);
/* HA_ERROR once calls that ended in an error have taken so long in all that it is not asked any more. */
enum ha_status ha_merge_source_patience(const struct ha_merge_source *source, struct ha_why *why);

/* Looks at exp and log (source->exp, log) through two states of its merge, and sets source->usual. The functions of a
 * subject that cannot be asked, refuses or dies are not known; its cases are judged all the same, and source->looked
 * says what they are not to pass over. */
void ha_merge_source_look(struct ha_merge_source *source, struct ha_subject *subject);
/* HA_ERROR: it died, or gave no answer, when it was looked at. */
enum ha_status ha_merge_source_survived(const struct ha_merge_source *source, struct ha_why *why);
/* HA_FAIL: its functions are further off than it says, or it refused to be looked at. */
enum ha_status ha_merge_source_holds(const struct ha_merge_source *source, struct ha_why *why);

/* What is known of one item (a case, or a kind of random rows) on one subject. */
struct ha_merge_cell {
    struct ha_judgement j;
    size_t runs, waived, refused, errors;
    size_t first_bad;              /* index of the first task that failed or could not be judged; SIZE_MAX: none */
    struct ha_merge_task task;     /* that one */
    struct ha_judgement bad;       /* its judgement */
    struct ha_why why;             /* of it, or of the first waiver */
    unsigned sensed;               /* a bit for each form and type: the traits were asked about */
    unsigned sense_type;           /* enum ha_dtype of o that sense.o and sense.lse are of: the finest */
    struct ha_merge_sense sense;   /* what the traits let pass, at most */
    struct ha_merge_sample sample; /* rows held against chance */
    uint64_t again, varied;        /* rows that were merged a second time; batches that gave other bits then */
    double worst_planted; /* HA_MUST_FAIL: the least of the ratios that planted errors gave; infinity before any */
};
enum ha_status ha_merge_cell_status(const struct ha_merge_cell *cell);
/* What run `index` came to. refused: the merge gave an error, which some cases allow. */
void ha_merge_cell_enter(struct ha_merge_cell *cell, size_t index, const struct ha_merge_task *task,
                         enum ha_status status, bool refused, const struct ha_judgement *j, const struct ha_why *why);

struct ha_merge_job {
    struct ha_merge_source *const *source; /* [sources] */
    size_t sources, items;
    bool stop_at_first; /* an item that failed on a subject is not run there again */
    bool (*skip)(void *arg, const struct ha_merge_task *task, size_t source); /* NULL: nothing is skipped */
    struct ha_merge_cell *cell;                                               /* [items][sources] */
    void (*progress)(void *arg, size_t done, size_t of);
    void *arg;
    uint64_t deadline_ns; /* no task begins after it; 0: none */
    size_t *done;         /* NULL, or where to say how many were run: the first so many */
};
void ha_merge_cells_clear(struct ha_merge_cell *cell, size_t count);
/* Runs task(arg, i) for i < count on the threads of the pool (NULL: on this one), adding to job->cell. A task without
 * rows is passed over. HA_ERROR: no subject could be opened, or there is no memory; `ha_stop` and the deadline end it
 * early. */
enum ha_status ha_merge_job_run(const struct ha_merge_job *job, size_t count,
                                struct ha_merge_task (*task)(void *arg, size_t i), void *arg, struct ha_pool *pool,
                                struct ha_why *why);

/* ---- again.c */

struct ha_merge_again {
    size_t row;          /* the first one with other bits; SIZE_MAX: none */
    struct ha_why where; /* what was there, what is */
};
/* Merges a batch that was merged just now a second time, from the same states: the results are those of the second
 * time. HA_FAIL: it refused, or wrote elsewhere. */
enum ha_status ha_merge_run_again(struct ha_subject *subject, struct ha_batch *batch, struct ha_merge_again *again,
                                  struct ha_why *why);

/* ---- failure.c, shrink.c */

/* What a person needs of a cell that failed: the element, the smallest row that still fails, and a file of it. Runs the
 * cell's task again with that subject. id: of that task and row. dir: where the replay file goes; NULL: into
 * lse_merge.failures, which is made then. */
void ha_merge_failure_print(FILE *out, const struct ha_merge_source *source, const struct ha_merge_cell *cell,
                            const char *id, const char *dir);
/* The smallest row that still fails: fewer states, fewer components, plainer numbers. Changes *row (states, dim, and
 * the arrays in place, [states][dim] packed anew) as long as fails(arg, row) holds, asking at most `budget` times;
 * returns how often it asked. The row given must fail. `whole` and `full` are switched off; a row that does not fail
 * without them is left as it is. */
size_t ha_merge_shrink(struct ha_merge_row *row, bool (*fails)(void *arg, const struct ha_merge_row *row), void *arg,
                       size_t budget);

#endif
