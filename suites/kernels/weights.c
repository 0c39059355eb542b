#include "suites/kernels/work.h"

#include "harness/api/reference.h"
#include "harness/base/rng.h"

/* weighted_sum: a list of rows of V for each KV head, which all its query heads share. */

enum { WEIGHT_STREAM = 31, LIST_STREAM = 200 };

struct sums {
    uint32_t *list; /* [units][chosen] */
    float *w, *o;   /* [units][group][chosen], [units][group][head_dim] */
    size_t chosen;
};

static size_t values_bytes(const struct ha_cpu_work *w) { return ha_cpu_rows_bytes(w) / 2; }

static enum ha_status open_sums(struct ha_cpu_work *w, struct ha_why *why)
{
    struct sums *s = w->own;
    const size_t rows = w->units * w->group, dim = w->point.head_dim;
    s->chosen = (w->point.ctx * w->point.budget + 99) / 100;
    s->list = ha_cpu_alloc(w, w->units * s->chosen * sizeof *s->list, why);
    s->w = ha_cpu_alloc(w, rows * s->chosen * sizeof *s->w, why);
    s->o = ha_cpu_alloc(w, rows * dim * sizeof *s->o, why);
    if (!s->list || !s->w || !s->o) return HA_ERROR;
    for (size_t u = 0; u < w->units; u++)
        ha_cpu_draw(w->point.seed, LIST_STREAM + u, w->point.ctx, s->chosen, s->list + u * s->chosen);
    for (size_t i = 0; i < rows * s->chosen; i++)
        s->w[i] = ha_rng_uniform(w->point.seed, WEIGHT_STREAM, i) / (float)s->chosen;
    w->bytes = (double)(w->units * s->chosen * dim * w->elem);
    w->flop = 2 * (double)(rows * s->chosen * dim);
    return HA_OK;
}

static struct ha_weighted_sum sums_of(const struct ha_cpu_work *w, size_t u)
{
    const struct sums *s = w->own;
    const size_t dim = w->point.head_dim;
    return (struct ha_weighted_sum){ .rows = { .v = ha_cpu_unit(w, u),
                                               .v_stride_bytes = dim * w->elem,
                                               .keys = s->chosen,
                                               .index = s->list + u * s->chosen },
                                     .head_dim = dim,
                                     .dtype = w->dtype,
                                     .w = s->w + u * w->group * s->chosen,
                                     .w_type = HA_F32,
                                     .q_rows = w->group,
                                     .w_stride = s->chosen,
                                     .o = s->o + u * w->group * dim,
                                     .o_stride = dim };
}

static void task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct ha_weighted_sum args = sums_of(w, u);
    w->kernels->weighted_sum(&args);
}

static double weights_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const struct ha_weighted_sum args = sums_of(w, u);
    return ha_ref_judge_weighted_sum(&args, chances);
}

static void results(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct sums *s = w->own;
    out[0] = (struct ha_cpu_result){ s->o, w->units * w->group * w->point.head_dim * sizeof *s->o };
}

const struct ha_cpu_subject ha_cpu_subject_weighted_sum = { .own_bytes = sizeof(struct sums),
                                                            .unit_bytes = values_bytes,
                                                            .open = open_sums,
                                                            .judge = weights_judge,
                                                            .results = results,
                                                            .part[HA_CPU_WHOLE] = { .name = "weighted_sum",
                                                                                    .task = task } };
