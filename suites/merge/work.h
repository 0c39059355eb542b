#ifndef HA_MERGE_WORK_H
#define HA_MERGE_WORK_H

/* Tasks on subjects, on several threads. */

#include "harness/base/pool.h"
#include "suites/merge/judge.h"
#include "suites/merge/subject.h"
#include "suites/merge/task.h"

#include <stdio.h>

/* How to open a subject; each thread opens one. */
struct ha_merge_source {
    char name[64];
    enum { HA_FROM_FUNCTION, HA_FROM_DEVICE, HA_FROM_PLUGIN, HA_FROM_EXEC } kind;
    void (*merge)(const struct ha_merge *);
    struct ha_merge_traits traits; /* of merge, and of what was asked for them */
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

/* What is known of one item (a case, or a kind of random rows) on one subject. */
struct ha_merge_cell {
    struct ha_judgement j;
    size_t runs, waived, refused, errors;
    size_t first_bad;          /* index of the first task that failed or could not be judged; SIZE_MAX: none */
    struct ha_merge_task task; /* that one */
    struct ha_judgement bad;   /* its judgement */
    struct ha_why why;         /* of it, or of the first waiver */
    double worst_planted;      /* HA_MUST_FAIL: the least of the ratios that planted errors gave; infinity before any */
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

/* What a person needs of a cell that failed: the element, the smallest row that still fails, and a file of it. Runs the
 * cell's task again with that subject. id: of that task and row. dir: where the replay file goes; NULL: it is not
 * written. */
void ha_merge_failure_print(FILE *out, const struct ha_merge_source *source, const struct ha_merge_cell *cell,
                            const char *id, const char *dir);
/* The smallest row that still fails: fewer states, fewer components, plainer numbers. Changes *row (states, dim, and
 * the arrays in place, [states][dim] packed anew) as long as fails(arg, row) holds, asking at most `budget` times;
 * returns how often it asked. The row given must fail. `whole` and `full` are switched off; a row that does not fail
 * without them is left as it is. */
size_t ha_merge_shrink(struct ha_merge_row *row, bool (*fails)(void *arg, const struct ha_merge_row *row), void *arg,
                       size_t budget);

#endif
