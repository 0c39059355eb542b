#ifndef HA_MERGE_TASK_H
#define HA_MERGE_TASK_H

/* What there is to merge: a case, or random rows, in one shape. */

#include "suites/merge/batch.h"

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

#endif
