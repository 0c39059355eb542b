/* Queries of a layer from the input of the one before it. */

#include "reference/definitions.h"

#include "harness/base/why.h"

#include <stdlib.h>

enum ha_status ha_def_predict(struct ha_def_predicted *p, const struct ha_shape *s, const struct ha_def_head *h,
                              struct ha_why *why)
{
    const size_t all = s->q_heads * s->head_dim;
    double *q = realloc(p->q, h->queries * all * sizeof *q);
    if (q) p->q = q;
    double *off = realloc(p->off, h->queries * all * sizeof *off);
    if (off) p->off = off;
    if (!q || !off) return ha_why(why, HA_ERROR, "%s: no memory for the queries of %zu tokens", h->variant, h->queries);
    for (size_t t = 0; t < h->queries; t++)
        ha_projection_query(&h->projection[h->layer + 1], s->q_heads, s->head_dim, s->model_dim,
                            h->x + t * s->model_dim, h->tokens - h->queries + t, q + t * all, off + t * all);
    return HA_OK;
}

void ha_def_predicted_end(struct ha_def_predicted *p)
{
    free(p->q);
    free(p->off);
}
