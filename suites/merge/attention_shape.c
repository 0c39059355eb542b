/* Problems whose shape is said whole: a pairwise covering list of them, or one by its keys. */

#include "harness/base/cover.h"
#include "harness/base/why.h"
#include "suites/merge/attention_parts.h"

#include <math.h>
#include <stdlib.h>

/* In the order of struct ha_attention_shape, the cheapest first; in place of query heads those of a group. Classes, and
 * not tiles of our kernels. Contexts of no key and of one have cases of their own: there every head has the same
 * result, and what is wrong in a group would not show where two values meet in such a shape alone. */
#define AXIS(...)                                                                                                 \
    {                                                                                                             \
        .value = (const size_t[]){ __VA_ARGS__ }, .count = sizeof(const size_t[]){ __VA_ARGS__ } / sizeof(size_t) \
    }
static const struct {
    const size_t *value;
    size_t count;
} axes[] = {
    AXIS(HA_F16, HA_F32, HA_BF16),
    AXIS(8, 24, 40, 64, 72, 80, 96, 128, 160, 192, 256, 576),
    AXIS(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), /* group */
    AXIS(1, 2, 3, 8),
    AXIS(1, 2, 3, 17, 65, 256),                                              /* batch */
    AXIS(1, 2, 3, 8, 17, 33),                                                /* q_len */
    AXIS(2, 7, 8, 17, 31, 64, 129, 255, 512, 1023, 2049, 4100, 8191, 40000), /* ctx */
    AXIS(1, 2, 3, 4),                                                        /* runs */
    AXIS(0, 1),
    AXIS(0, 1),
    AXIS(0, 1),
    AXIS(0, 1),
    AXIS(0, 1),
    AXIS(0, 1),
};
enum { AXES = sizeof axes / sizeof *axes, GROUP = 2, KV_HEADS };
union shape {
    struct ha_attention_shape shape;
    size_t value[AXES];
};
_Static_assert(sizeof(struct ha_attention_shape) == AXES * sizeof(size_t), "an axis for each member");

double ha_attention_cost(const struct ha_attention_shape *s)
{
    static const double most = 1e9;
    const double keys = (double)(s->ctx + (s->causal ? s->q_len : 0)),
                 rows = (double)(s->batch * s->q_len * s->q_heads);
    return ((keys + 8) * rows + 8 * keys * (double)(s->batch * s->kv_heads)) * (double)s->dim / most;
}

static union shape shape_of(const size_t *row)
{
    union shape s;
    for (size_t i = 0; i < AXES; i++) s.value[i] = axes[i].value[row[i]];
    s.value[GROUP] *= s.value[KV_HEADS];
    return s;
}

static double cost_of(void *arg, const size_t *row)
{
    const union shape s = shape_of(row);
    return ha_attention_cost(&s.shape);
}

enum ha_status ha_attention_pairs(struct ha_attention_shape **out, size_t *count, struct ha_why *why)
{
    size_t values[AXES], *rows;
    const struct ha_cover cover = { .axes = AXES, .values = values, .cost = cost_of, .most = 0.004, .fixed = 0.0005 };
    for (size_t i = 0; i < AXES; i++) values[i] = axes[i].count;
    if (ha_cover_make(&cover, &rows, count) != HA_OK) return ha_why(why, HA_ERROR, "no memory");
    *out = malloc(*count * sizeof **out);
    for (size_t i = 0; *out && i < *count; i++) (*out)[i] = shape_of(rows + i * AXES).shape;
    free(rows);
    return *out ? HA_OK : ha_why(why, HA_ERROR, "no memory");
}

void ha_problem_shape(struct ha_problem *p, const struct ha_attention_shape *s)
{
    p->dtype = (enum ha_dtype)s->dtype;
    p->head_dim = s->dim;
    p->scale = 1 / sqrtf((float)s->dim);
    p->kv_heads = s->kv_heads;
    p->group = s->q_heads / s->kv_heads;
    p->batch = s->batch;
    p->q_len = s->q_len;
    p->causal = s->causal;
    p->weights = s->weights;
    p->padded = s->padded;
    p->indexed = s->indexed;
    p->shifted = s->shifted;
    ha_problem_cut(p, s->ctx + (s->causal ? s->q_len : 0), s->runs, s->causal ? s->q_len : 0);
    if (!s->ragged || s->batch == 1) return;
    /* the query tokens stay; where there is no mask the last sequence has no key of the first run */
    const size_t room = p->run[0] - (s->causal && s->runs == 1 ? s->q_len : 0);
    p->skip = room / (s->batch - 1) + !s->causal;
}
