#include "suites/kernels/attention.h"
#include "suites/kernels/judge.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

/* A step of block-sparse attention, a task for each KV head: scores of the digests for each query head of the group,
 * the largest of them for each block, the best blocks, attention over these. */

enum { PIECE_KEYS = 1024 };

struct sparse {
    struct ha_cpu_attention chosen, dense;
    char *digests; /* [turns][units][digest_bytes] */
    size_t digest_bytes, blocks;
    float *scores, *best; /* [units][group][blocks], [units][blocks] */
    char *scratch;        /* [threads][scratch_bytes] */
    size_t scratch_bytes, turn;
};

static const char *lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    if (!k->digest || !k->digest_score || !k->topk) return "digest, digest_score and topk";
    return k->unpack ? ha_cpu_attention_lacks(k, p) : "unpack";
}

static size_t kv_bytes(const struct ha_cpu_work *w)
{
    return (w->point.ctx + HA_PACK_KEYS - 1) / HA_PACK_KEYS * ha_packed_block_bytes(w->point.head_dim, w->dtype);
}

static char *digests_of(const struct ha_cpu_work *w, size_t turn, size_t unit)
{
    const struct sparse *s = w->own;
    return s->digests + (turn % w->turns * w->units + unit) * s->digest_bytes;
}

/* ---- data ----------------------------------------------------------------------------------------------- */

struct making {
    struct ha_cpu_work *work;
    char *rows; /* [threads][2][PIECE_KEYS] rows */
};

static void make_digests(void *arg, size_t task, size_t worker)
{
    const struct making *m = arg;
    const struct ha_cpu_work *w = m->work;
    const struct ha_cpu_point *p = &w->point;
    const size_t row = p->head_dim * w->elem;
    char *k = m->rows + worker * 2 * PIECE_KEYS * row, *v = k + PIECE_KEYS * row;
    for (size_t first = 0; first < p->ctx; first += PIECE_KEYS) {
        const size_t keys = p->ctx - first < PIECE_KEYS ? p->ctx - first : PIECE_KEYS;
        w->kernels->unpack(&(struct ha_unpack){ .blocks = w->kv + task * w->unit_bytes,
                                                .first = first,
                                                .keys = keys,
                                                .head_dim = p->head_dim,
                                                .dtype = w->dtype,
                                                .k = k,
                                                .v = v,
                                                .k_stride_bytes = row,
                                                .v_stride_bytes = row });
        w->kernels->digest(
            &(struct ha_digest){ .digests = digests_of(w, task / w->units, task % w->units),
                                 .first = first / p->block,
                                 .blocks = (keys + p->block - 1) / p->block,
                                 .unit = p->block,
                                 .rows = { .k = k, .v = v, .k_stride_bytes = row, .v_stride_bytes = row, .keys = keys },
                                 .head_dim = p->head_dim,
                                 .dtype = w->dtype });
    }
}

static enum ha_status open_scratch(struct sparse *s, struct ha_cpu_work *w, struct ha_why *why)
{
    const size_t most = w->kernels->attend_scratch_bytes(&s->chosen.unit[0]);
    s->scratch_bytes = (most + 63) / 64 * 64;
    s->scratch = ha_cpu_alloc(w, w->threads * s->scratch_bytes, why);
    return s->scratch ? HA_OK : HA_ERROR;
}

static enum ha_status open(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct sparse *s = w->own = ha_cpu_alloc(w, sizeof *s, why);
    if (!s) return HA_ERROR;
    *s = (struct sparse){ .blocks = ha_cpu_blocks(p),
                          .digest_bytes = ha_digest_bytes(ha_cpu_blocks(p), p->head_dim, w->dtype) };
    HA_TRY(ha_cpu_attention_open(&s->chosen, w, 1, why));
    HA_TRY(ha_cpu_attention_open(&s->dense, w, 0, why));
    s->digests = ha_cpu_alloc(w, w->turns * w->units * s->digest_bytes, why);
    s->scores = ha_cpu_alloc(w, w->units * w->group * s->blocks * sizeof *s->scores, why);
    s->best = ha_cpu_alloc(w, w->units * s->blocks * sizeof *s->best, why);
    struct making m = { w, ha_cpu_alloc(w, w->threads * 2 * PIECE_KEYS * p->head_dim * w->elem, why) };
    if (!s->digests || !s->scores || !s->best || !m.rows) return HA_ERROR;
    HA_TRY(open_scratch(s, w, why));
    ha_pool_run(w->pool, "digests", w->turns * w->units, make_digests, &m);
    const double keys = (double)(s->chosen.chosen * p->block < p->ctx ? s->chosen.chosen * p->block : p->ctx),
                 dim = (double)p->head_dim;
    w->bytes = (double)w->units * ((double)s->blocks + keys) * 2 * dim * (double)w->elem;
    w->flop = (double)(w->units * w->group) * 4 * dim * ((double)s->blocks + keys);
    return HA_OK;
}

static void turn(struct ha_cpu_work *w, size_t at)
{
    struct sparse *s = w->own;
    s->turn = at;
    ha_cpu_attention_turn(&s->chosen, w, at);
    ha_cpu_attention_turn(&s->dense, w, at);
}

/* ---- the step ---------------------------------------------------------------------------------------------- */

static void score(struct ha_cpu_work *w, size_t u)
{
    const struct sparse *s = w->own;
    float *scores = s->scores + u * w->group * s->blocks, *best = s->best + u * s->blocks;
    w->kernels->digest_score(&(struct ha_digest_score){ .q = s->chosen.unit[u].q,
                                                        .q_rows = w->group,
                                                        .q_stride = w->point.head_dim,
                                                        .head_dim = w->point.head_dim,
                                                        .digests = digests_of(w, s->turn, u),
                                                        .blocks = s->blocks,
                                                        .dtype = w->dtype,
                                                        .scale = w->scale,
                                                        .s = scores,
                                                        .s_stride = s->blocks });
    for (size_t b = 0; b < s->blocks; b++) best[b] = scores[b];
    for (size_t r = 1; r < w->group; r++)
        for (size_t b = 0; b < s->blocks; b++)
            best[b] = scores[r * s->blocks + b] > best[b] ? scores[r * s->blocks + b] : best[b];
}

static void choose(struct ha_cpu_work *w, size_t u)
{
    const struct sparse *s = w->own;
    w->kernels->topk(&(struct ha_topk){ .x = s->best + u * s->blocks,
                                        .n = s->blocks,
                                        .k = s->chosen.chosen,
                                        .index = s->chosen.list + u * s->chosen.chosen });
}

static void attend(struct ha_cpu_work *w, size_t u, size_t worker)
{
    const struct sparse *s = w->own;
    s->chosen.unit[u].scratch = s->scratch + worker * s->scratch_bytes;
    w->kernels->attend(w->kernels, &s->chosen.unit[u]);
}

static void whole_task(void *arg, size_t u, size_t worker)
{
    score(arg, u);
    choose(arg, u);
    attend(arg, u, worker);
}
static void score_task(void *arg, size_t u, size_t worker) { (void)worker, score(arg, u); }
static void choose_task(void *arg, size_t u, size_t worker) { (void)worker, choose(arg, u); }
static void attend_task(void *arg, size_t u, size_t worker) { attend(arg, u, worker); }

static void run_whole(struct ha_cpu_work *w) { ha_pool_run(w->pool, "sparse", w->units, whole_task, w); }
static void run_scores(struct ha_cpu_work *w) { ha_pool_run(w->pool, "digest_score", w->units, score_task, w); }
static void run_choice(struct ha_cpu_work *w) { ha_pool_run(w->pool, "topk", w->units, choose_task, w); }
static void run_chosen(struct ha_cpu_work *w) { ha_pool_run(w->pool, "attend", w->units, attend_task, w); }
static void run_dense(struct ha_cpu_work *w)
{
    struct sparse *s = w->own;
    ha_cpu_attention_run(&s->dense, w);
}

/* ---- check --------------------------------------------------------------------------------------------------- */

struct head {
    const struct ha_cpu_work *work;
    const void *blocks;
    void *row; /* [head_dim] of the type of K */
};

static void packed_key(const void *arg, size_t i, float *row)
{
    const struct head *h = arg;
    ha_ref_unpack_row(h->blocks, h->work->dtype, h->work->point.head_dim, i, h->row, NULL);
    ha_load_row(h->row, h->work->point.head_dim, h->work->dtype, row);
}

static double judge_choice(const struct ha_cpu_work *w, size_t u, void *row)
{
    const struct sparse *s = w->own;
    const struct head head = { w, ha_cpu_unit(w, 0, u), row };
    const size_t dim = w->point.head_dim;
    const float *scores = s->scores + u * w->group * s->blocks, *best = s->best + u * s->blocks;
    double worst = ha_cpu_judge_digest(w->point.ctx, dim, w->point.block, w->dtype, packed_key, &head,
                                       digests_of(w, 0, u));
    for (size_t r = 0; r < w->group; r++)
        worst = fmax(worst, ha_cpu_judge_digest_score(s->chosen.unit[u].q + r * dim, dim, digests_of(w, 0, u),
                                                      s->blocks, w->dtype, w->scale, scores + r * s->blocks));
    return fmax(worst, ha_cpu_judge_topk(best, s->blocks, s->chosen.chosen, s->chosen.list + u * s->chosen.chosen));
}

static enum ha_status check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    const struct sparse *s = w->own;
    const size_t heads = w->units < 2 ? w->units : 2;
    void *row = malloc(w->point.head_dim * w->elem);
    if (!row) return ha_why(why, HA_ERROR, "out of memory");
    double worst = 0;
    for (size_t i = 0; i < heads; i++) worst = fmax(worst, judge_choice(w, ha_cpu_sampled(w, i, heads), row));
    free(row);
    *err_over_bound = worst;
    if (!(worst <= 1))
        return ha_why(why, HA_FAIL, "digests, their scores or the choice of blocks: error over bound %.3g", worst);
    HA_TRY(ha_cpu_attention_check(&s->chosen, w, err_over_bound, why));
    *err_over_bound = fmax(*err_over_bound, worst);
    return HA_OK;
}

const struct ha_cpu_subject ha_cpu_subject_sparse = {
    HA_KERNEL_SPARSE,
    lacks,
    kv_bytes,
    open,
    turn,
    check,
    { [HA_CPU_WHOLE] = { run_whole, true },
      [HA_CPU_SCORES] = { run_scores, true },
      [HA_CPU_CHOICE] = { run_choice, false },
      [HA_CPU_CHOSEN] = { run_chosen, false },
      [HA_CPU_DENSE] = { run_dense, true } },
    1,
};
