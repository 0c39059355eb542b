#ifndef HA_MERGE_AXES_H
#define HA_MERGE_AXES_H

/* Which batches of a case, or of random rows, are meant. */

#include "suites/merge/batch.h"

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

#endif
