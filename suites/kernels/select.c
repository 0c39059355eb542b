#include "suites/kernels/judge.h"
#include "suites/kernels/work.h"

#include "harness/base/numeric.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

/* score, digest, digest_score, topk, softmax: a task for each KV head. */

enum { Q_STREAM = 1, X_STREAM = 10, SETS = 16 };

struct select {
    float *q;        /* [units][group][head_dim] */
    float *x, *pure; /* scores: softmax works in place, on `pure` copied */
    size_t x_unit;   /* floats of a unit */
    float *lse;      /* [units][group] */
    char *digests;   /* [units][digest_bytes] */
    size_t digest_bytes, blocks, chosen, turn;
    uint32_t *list; /* [units][chosen] */
};

static const char *score_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    return (void)p, k->score ? NULL : "score";
}
static const char *digest_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    return (void)p, k->digest ? NULL : "digest";
}
static const char *topk_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    return (void)p, k->topk ? NULL : "topk";
}
static const char *softmax_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    return (void)p, k->softmax ? NULL : "softmax";
}
static const char *digest_score_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    return (void)p, k->digest && k->digest_score ? NULL : "digest and digest_score";
}

static size_t rows_bytes(const struct ha_cpu_work *w) { return 2 * w->point.ctx * w->point.head_dim * w->elem; }
static size_t no_bytes(const struct ha_cpu_work *w) { return (void)w, 0; }

static struct select *make(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct select *s = w->own = ha_cpu_alloc(w, sizeof *s, why);
    if (s) *s = (struct select){ .blocks = ha_cpu_blocks(p), .chosen = ha_cpu_chosen(p) };
    return s;
}

static enum ha_status make_queries(struct select *s, struct ha_cpu_work *w, struct ha_why *why)
{
    const size_t n = w->units * w->group * w->point.head_dim;
    s->q = ha_cpu_alloc(w, n * sizeof *s->q, why);
    if (!s->q) return HA_ERROR;
    ha_cpu_normals(w, Q_STREAM, n, true, s->q);
    return HA_OK;
}

/* [sets][units][floats] */
static enum ha_status make_numbers(struct select *s, struct ha_cpu_work *w, size_t sets, size_t floats, float **x,
                                   struct ha_why *why)
{
    const size_t n = sets * w->units * floats;
    s->x_unit = floats;
    *x = ha_cpu_alloc(w, n * sizeof **x, why);
    if (!*x) return HA_ERROR;
    ha_cpu_normals(w, X_STREAM, n, false, *x);
    return HA_OK;
}

static void turn(struct ha_cpu_work *w, size_t at)
{
    struct select *s = w->own;
    s->turn = at;
}

static double worst_of(struct ha_cpu_work *w, double (*judge)(const struct ha_cpu_work *w, size_t unit))
{
    const size_t heads = w->units < 2 ? w->units : 2;
    double worst = 0;
    for (size_t i = 0; i < heads; i++) worst = fmax(worst, judge(w, ha_cpu_sampled(w, i, heads)));
    return worst;
}

/* ---- score -------------------------------------------------------------------------------------------------- */

static enum ha_status score_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = make(w, why);
    if (!s) return HA_ERROR;
    HA_TRY(make_queries(s, w, why));
    w->bytes = (double)(w->units * w->point.ctx * w->point.head_dim * w->elem);
    w->flop = 2 * (double)(w->units * w->group * w->point.ctx * w->point.head_dim);
    return make_numbers(s, w, 1, w->group * w->point.ctx, &s->x, why);
}

static void score_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    const struct ha_rows rows = ha_cpu_rows(w, ha_cpu_unit(w, s->turn, u), w->point.ctx);
    (void)worker;
    for (size_t r = 0; r < w->group; r++)
        w->kernels->score(&(struct ha_score){ .q = s->q + (u * w->group + r) * w->point.head_dim,
                                              .head_dim = w->point.head_dim,
                                              .rows = rows,
                                              .dtype = w->dtype,
                                              .scale = w->scale,
                                              .s = s->x + u * s->x_unit + r * w->point.ctx });
}

static double score_judge(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    const struct ha_rows rows = ha_cpu_rows(w, ha_cpu_unit(w, 0, u), w->point.ctx);
    return ha_cpu_judge_score(s->q + u * w->group * w->point.head_dim, w->point.head_dim, &rows, w->dtype, w->scale,
                              s->x + u * s->x_unit);
}

static void score_run(struct ha_cpu_work *w) { ha_pool_run(w->pool, "score", w->units, score_task, w); }
static enum ha_status score_check(struct ha_cpu_work *w, double *worst, struct ha_why *why)
{
    return (void)why, *worst = worst_of(w, score_judge), HA_OK;
}

/* ---- digest ------------------------------------------------------------------------------------------------- */

static enum ha_status digest_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = make(w, why);
    if (!s) return HA_ERROR;
    s->digest_bytes = ha_digest_bytes(s->blocks, w->point.head_dim, w->dtype);
    s->digests = ha_cpu_alloc(w, w->units * s->digest_bytes, why);
    w->bytes = (double)(w->units * w->point.head_dim * w->elem * (w->point.ctx + 2 * s->blocks));
    w->flop = 0;
    return s->digests ? HA_OK : HA_ERROR;
}

static void digest_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    (void)worker;
    w->kernels->digest(&(struct ha_digest){ .digests = s->digests + u * s->digest_bytes,
                                            .blocks = s->blocks,
                                            .unit = w->point.block,
                                            .rows = ha_cpu_rows(w, ha_cpu_unit(w, s->turn, u), w->point.ctx),
                                            .head_dim = w->point.head_dim,
                                            .dtype = w->dtype });
}

struct natural {
    const struct ha_cpu_work *work;
    const char *k;
};

static void natural_key(const void *arg, size_t i, float *row)
{
    const struct natural *n = arg;
    const size_t dim = n->work->point.head_dim;
    ha_load_row(n->k + i * dim * n->work->elem, dim, n->work->dtype, row);
}

static double digest_judge(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    const struct natural n = { w, ha_cpu_unit(w, 0, u) };
    return ha_cpu_judge_digest(w->point.ctx, w->point.head_dim, w->point.block, w->dtype, natural_key, &n,
                               s->digests + u * s->digest_bytes);
}

static void digest_run(struct ha_cpu_work *w) { ha_pool_run(w->pool, "digest", w->units, digest_task, w); }
static enum ha_status digest_check(struct ha_cpu_work *w, double *worst, struct ha_why *why)
{
    return (void)why, *worst = worst_of(w, digest_judge), HA_OK;
}

/* ---- digest_score --------------------------------------------------------------------------------------------- */

static enum ha_status digest_score_open(struct ha_cpu_work *w, struct ha_why *why)
{
    HA_TRY(digest_open(w, why));
    struct select *s = w->own;
    digest_run(w);
    HA_TRY(make_queries(s, w, why));
    w->bytes = (double)(w->units * s->blocks * 2 * w->point.head_dim * w->elem);
    w->flop = 4 * (double)(w->units * w->group * s->blocks * w->point.head_dim);
    return make_numbers(s, w, 1, w->group * s->blocks, &s->x, why);
}

static void digest_score_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    (void)worker;
    w->kernels->digest_score(&(struct ha_digest_score){ .q = s->q + u * w->group * w->point.head_dim,
                                                        .q_rows = w->group,
                                                        .q_stride = w->point.head_dim,
                                                        .head_dim = w->point.head_dim,
                                                        .digests = s->digests + u * s->digest_bytes,
                                                        .blocks = s->blocks,
                                                        .dtype = w->dtype,
                                                        .scale = w->scale,
                                                        .s = s->x + u * s->x_unit,
                                                        .s_stride = s->blocks });
}

static double digest_score_judge(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    double worst = 0;
    for (size_t r = 0; r < w->group; r++)
        worst = fmax(worst, ha_cpu_judge_digest_score(s->q + (u * w->group + r) * w->point.head_dim, w->point.head_dim,
                                                      s->digests + u * s->digest_bytes, s->blocks, w->dtype, w->scale,
                                                      s->x + u * s->x_unit + r * s->blocks));
    return worst;
}

static void digest_score_run(struct ha_cpu_work *w)
{
    ha_pool_run(w->pool, "digest_score", w->units, digest_score_task, w);
}
static enum ha_status digest_score_check(struct ha_cpu_work *w, double *worst, struct ha_why *why)
{
    return (void)why, *worst = worst_of(w, digest_score_judge), HA_OK;
}

/* ---- topk -------------------------------------------------------------------------------------------------------- */

static enum ha_status topk_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = make(w, why);
    if (!s) return HA_ERROR;
    s->list = ha_cpu_alloc(w, w->units * s->chosen * sizeof *s->list, why);
    w->bytes = (double)(w->units * (s->blocks * sizeof(float) + s->chosen * sizeof *s->list));
    w->flop = 0;
    return s->list ? make_numbers(s, w, SETS, s->blocks, &s->x, why) : HA_ERROR;
}

static void topk_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    (void)worker;
    w->kernels->topk(&(struct ha_topk){ .x = s->x + (s->turn % SETS * w->units + u) * s->x_unit,
                                        .n = s->blocks,
                                        .k = s->chosen,
                                        .index = s->list + u * s->chosen });
}

static double topk_judge(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return ha_cpu_judge_topk(s->x + u * s->x_unit, s->blocks, s->chosen, s->list + u * s->chosen);
}

static void topk_run(struct ha_cpu_work *w) { ha_pool_run(w->pool, "topk", w->units, topk_task, w); }
static enum ha_status topk_check(struct ha_cpu_work *w, double *worst, struct ha_why *why)
{
    return (void)why, *worst = worst_of(w, topk_judge), HA_OK;
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static enum ha_status softmax_open(struct ha_cpu_work *w, struct ha_why *why)
{
    const size_t n = w->units * w->group * w->point.ctx;
    struct select *s = make(w, why);
    if (!s) return HA_ERROR;
    s->lse = ha_cpu_alloc(w, w->units * w->group * sizeof *s->lse, why);
    s->x = ha_cpu_alloc(w, n * sizeof *s->x, why);
    w->bytes = 2 * (double)(n * sizeof *s->x);
    w->flop = 0;
    return s->lse && s->x ? make_numbers(s, w, 1, w->group * w->point.ctx, &s->pure, why) : HA_ERROR;
}

/* each worker its own rows, as who computes the scores would have left them */
static void softmax_copy(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    (void)worker;
    memcpy(s->x + u * s->x_unit, s->pure + u * s->x_unit, s->x_unit * sizeof *s->x);
}
static void softmax_turn(struct ha_cpu_work *w, size_t at)
{
    (void)at;
    ha_pool_run(w->pool, "copy", w->units, softmax_copy, w);
}

static void softmax_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    (void)worker;
    w->kernels->softmax(&(struct ha_softmax){ .x = s->x + u * s->x_unit,
                                              .rows = w->group,
                                              .n = w->point.ctx,
                                              .stride = w->point.ctx,
                                              .lse = s->lse + u * w->group });
}

static double softmax_judge(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    double worst = 0;
    for (size_t r = 0; r < w->group; r++) {
        const size_t at = u * s->x_unit + r * w->point.ctx;
        worst = fmax(worst, ha_cpu_judge_softmax(s->pure + at, w->point.ctx, &w->kernels->profile, s->x + at,
                                                 s->lse[u * w->group + r]));
    }
    return worst;
}

static void softmax_run(struct ha_cpu_work *w) { ha_pool_run(w->pool, "softmax", w->units, softmax_task, w); }
static enum ha_status softmax_check(struct ha_cpu_work *w, double *worst, struct ha_why *why)
{
    return (void)why, *worst = worst_of(w, softmax_judge), HA_OK;
}

const struct ha_cpu_subject ha_cpu_subjects_select[5] = {
    { HA_KERNEL_SCORE, score_lacks, rows_bytes, score_open, turn, score_check, { { score_run, false } }, 1 },
    { HA_KERNEL_DIGEST, digest_lacks, rows_bytes, digest_open, turn, digest_check, { { digest_run, false } }, 1 },
    { HA_KERNEL_DIGEST_SCORE,
      digest_score_lacks,
      rows_bytes,
      digest_score_open,
      turn,
      digest_score_check,
      { { digest_score_run, false } },
      1 },
    { HA_KERNEL_TOPK, topk_lacks, no_bytes, topk_open, turn, topk_check, { { topk_run, false } }, SETS },
    { HA_KERNEL_SOFTMAX,
      softmax_lacks,
      no_bytes,
      softmax_open,
      softmax_turn,
      softmax_check,
      { { softmax_run, false } },
      1 },
};
