#include "suites/kernels/work.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* pack, append_key; merge. A task for each KV head; of append_key, for each thread. */

enum { STATES = 2, STATE_STREAM = 20 };

struct store {
    char *blocks; /* [units][blocks_bytes] */
    size_t blocks_bytes;
    void *o[STATES + 1];    /* [units][group][head_dim]: states, and what they make */
    float *lse[STATES + 1]; /* [units][group] */
};

/* ---- packing ---------------------------------------------------------------------------------------------- */

static enum ha_status pack_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct store *s = w->own;
    s->blocks_bytes = ha_cpu_packed_bytes(w);
    s->blocks = ha_cpu_alloc(w, w->units * s->blocks_bytes, why);
    w->bytes = 2 * (double)(w->units * ha_cpu_rows_bytes(w)); /* read and written */
    return s->blocks ? HA_OK : HA_ERROR;
}

static void pack_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct store *s = w->own;
    w->kernels->pack(&(struct ha_pack){ .blocks = s->blocks + u * s->blocks_bytes,
                                        .rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx),
                                        .head_dim = w->point.head_dim,
                                        .dtype = w->dtype });
}

/* As decoding appends: a key for every head, then the next. */
static void append_task(void *arg, size_t task, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct store *s = w->own;
    const size_t row = w->point.head_dim * w->elem;
    for (size_t i = 0; i < w->point.ctx; i++)
        for (size_t u = task; u < w->units; u += w->threads) {
            struct ha_rows rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx);
            rows.k = (const char *)rows.k + i * row;
            rows.v = (const char *)rows.v + i * row;
            rows.keys = 1;
            w->kernels->pack(&(struct ha_pack){ .blocks = s->blocks + u * s->blocks_bytes,
                                                .at = i,
                                                .rows = rows,
                                                .head_dim = w->point.head_dim,
                                                .dtype = w->dtype });
        }
}

static void append_run(struct ha_cpu_work *w) { ha_pool_run(w->pool, "append_key", w->threads, append_task, w); }

/* every number of a head where the contract says, and zeros behind its last key */
static bool same_head(const struct ha_cpu_work *w, size_t u)
{
    char k[HA_CPU_DIM_MOST * sizeof(float)], v[sizeof k];
    const struct store *s = w->own;
    const size_t row = w->point.head_dim * w->elem, end = s->blocks_bytes / (2 * row);
    const struct ha_rows rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx);
    bool same = true;
    for (size_t key = 0; key < end && same; key++) {
        ha_ref_unpack_row(s->blocks + u * s->blocks_bytes, w->dtype, w->point.head_dim, key, k, v);
        if (key < w->point.ctx)
            same = !memcmp(k, (const char *)rows.k + key * row, row)
                   && !memcmp(v, (const char *)rows.v + key * row, row);
        else
            for (size_t i = 0; i < row; i++) same = same && !k[i] && !v[i];
    }
    return same;
}

static enum ha_status pack_check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    *err_over_bound = (double)INFINITY;
    for (size_t i = ha_cpu_samples(w); i-- > 0;)
        if (!same_head(w, ha_cpu_sampled(w, i)))
            return ha_why(why, HA_FAIL, "the packed keys of KV head %zu are not the rows", ha_cpu_sampled(w, i));
    *err_over_bound = 0;
    return HA_OK;
}

static void packed(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct store *s = w->own;
    out[0] = (struct ha_cpu_result){ s->blocks, w->units * s->blocks_bytes };
}

/* ---- merge ---------------------------------------------------------------------------------------------------- */

static enum ha_status merge_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct store *s = w->own;
    const size_t rows = w->units * w->group, n = rows * w->point.head_dim;
    float *x = malloc(n * sizeof *x);
    enum ha_status status = x ? HA_OK : ha_why(why, HA_ERROR, "out of memory");
    for (size_t i = 0; i <= STATES && status == HA_OK; i++) {
        s->o[i] = ha_cpu_alloc(w, n * w->elem, why);
        s->lse[i] = ha_cpu_alloc(w, rows * sizeof *s->lse[i], why);
        if (!s->o[i] || !s->lse[i]) status = HA_ERROR;
        if (i == STATES || status != HA_OK) continue;
        ha_rng_normals(w->point.seed, STATE_STREAM + 2 * i, 0, n, x);
        ha_store_row(s->o[i], n, w->dtype, x);
        ha_rng_normals(w->point.seed, STATE_STREAM + 2 * i + 1, 0, rows, s->lse[i]);
    }
    free(x);
    w->bytes = (double)((STATES + 1) * (n * w->elem + rows * sizeof(float)));
    w->flop = (double)(STATES * 2 * n);
    return status;
}

static struct ha_merge_state state_of(const struct ha_cpu_work *w, size_t i, size_t u)
{
    const struct store *s = w->own;
    const size_t dim = w->point.head_dim;
    return (struct ha_merge_state){ .o = (char *)s->o[i] + u * w->group * dim * w->elem,
                                    .lse = s->lse[i] + u * w->group,
                                    .o_token_stride = w->group * dim,
                                    .o_head_stride = dim,
                                    .lse_token_stride = w->group,
                                    .lse_head_stride = 1 };
}

static void merge_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct ha_merge_state states[STATES] = { state_of(w, 0, u), state_of(w, 1, u) };
    w->kernels->merge(&(struct ha_merge){ .form = HA_FORM_NATURAL,
                                          .dtype = w->dtype,
                                          .states = states,
                                          .states_count = STATES,
                                          .tokens = 1,
                                          .heads = w->group,
                                          .dim = w->point.head_dim,
                                          .out = state_of(w, STATES, u) });
}

static double merge_judge(const struct ha_cpu_work *w, size_t row)
{
    const struct store *s = w->own;
    const size_t dim = w->point.head_dim, at = row * dim;
    const struct ha_merge_bound bound = ha_bound_merge(&w->kernels->traits, HA_FORM_NATURAL, w->dtype);
    double o[STATES + 1][HA_CPU_DIM_MOST], exact[HA_CPU_DIM_MOST] = { 0 }, bounds[HA_CPU_DIM_MOST];
    float out[HA_CPU_DIM_MOST];
    struct ha_ref_state states[STATES], want = { .o = o[STATES], .bound = bounds, .dim = dim };
    for (size_t i = 0; i < STATES; i++) {
        for (size_t d = 0; d < dim; d++) o[i][d] = (double)ha_load(s->o[i], at + d, w->dtype);
        states[i] = (struct ha_ref_state){ .o = o[i], .bound = exact, .lse = (double)s->lse[i][row], .dim = dim };
    }
    for (size_t d = 0; d < dim; d++) out[d] = ha_load(s->o[STATES], at + d, w->dtype);
    ha_ref_merge(states, STATES, &bound, &want);
    return ha_ref_ratio(out, s->lse[STATES][row], &want, NULL);
}

static enum ha_status merge_check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    *err_over_bound = 0;
    for (size_t row = 0; row < w->units * w->group; row++) *err_over_bound = fmax(*err_over_bound, merge_judge(w, row));
    return HA_OK;
}

static void merged(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct store *s = w->own;
    const size_t rows = w->units * w->group;
    out[0] = (struct ha_cpu_result){ s->o[STATES], rows * w->point.head_dim * w->elem };
    out[1] = (struct ha_cpu_result){ s->lse[STATES], rows * sizeof(float) };
}

/* ---- subjects ---------------------------------------------------------------------------------------------------- */

#define SUBJECT(name_, results_) \
    .own_bytes = sizeof(struct store), .open = name_##_open, .check = name_##_check, .results = results_
const struct ha_cpu_subject ha_cpu_subject_pack = { SUBJECT(pack, packed), .unit_bytes = ha_cpu_rows_bytes,
                                                    .part = { { .name = "pack", .task = pack_task } } };
const struct ha_cpu_subject ha_cpu_subject_append_key = { SUBJECT(pack, packed), .unit_bytes = ha_cpu_rows_bytes,
                                                          .part = { { .name = "append_key", .run = append_run } } };
const struct ha_cpu_subject ha_cpu_subject_merge = { SUBJECT(merge, merged),
                                                     .part = { { .name = "merge", .task = merge_task } },
                                                     .repeats = 16 };
