#ifndef HA_REFERENCE_TEST_STATE_H
#define HA_REFERENCE_TEST_STATE_H

/* An ha_ref_state with its arrays, for tests. */

#include "harness/api/reference.h"

#include <stdlib.h>

static inline struct ha_ref_state ha_test_state(size_t dim)
{
    double *x = calloc(4 * dim, sizeof *x);
    if (!x) abort();
    return (struct ha_ref_state){ .o = x, .bound = x + dim, .v_min = x + 2 * dim, .v_max = x + 3 * dim, .dim = dim };
}

static inline void ha_test_state_free(struct ha_ref_state *s) { free(s->o); }

static inline struct ha_ref_state ha_test_attend(const float *q, size_t dim, float scale, const struct ha_rows *rows,
                                                 enum ha_dtype dtype, const struct ha_bound *b)
{
    struct ha_ref_state out = ha_test_state(dim);
    double *work = malloc((2 * rows->keys + 1) * sizeof *work);
    if (!work) abort();
    ha_ref_attend(q, dim, (double)scale, rows, dtype, b, work, &out);
    free(work);
    return out;
}

#endif
