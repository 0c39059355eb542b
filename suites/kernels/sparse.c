#include "suites/kernels/attention.h"

#include "harness/api/reference.h"
#include "harness/base/why.h"

#include <math.h>

/* A step of block-sparse attention, a task for each KV head: scores of the digests for each query head of the group,
 * the largest of them for each block, the best blocks, attention over these. */

enum { PIECE_KEYS = 1024 };

struct sparse {
    struct ha_cpu_attention chosen, dense;
    char *digests; /* [turns][units][digest_bytes] */
    size_t digest_bytes;
    float *scores, *best; /* [units][group][blocks], [units][blocks] */
    char *rows;           /* [threads][2][PIECE_KEYS] rows of K and V, of which digests are made */
    char *scratch;        /* [threads][scratch_bytes] */
    size_t scratch_bytes;
};

static char *digests_of(const struct ha_cpu_work *w, size_t unit)
{
    const struct sparse *s = w->own;
    return s->digests + (w->turn % w->turns * w->units + unit) * s->digest_bytes;
}

/* ---- data ----------------------------------------------------------------------------------------------- */

/* of the keys [first, first + PIECE_KEYS) of a unit of a turn, as far as there are any, whose rows are at k */
static struct ha_digest piece(const struct ha_cpu_work *w, size_t task, size_t first, const char *k)
{
    const struct sparse *s = w->own;
    const struct ha_cpu_point *p = &w->point;
    const size_t keys = p->ctx - first < PIECE_KEYS ? p->ctx - first : PIECE_KEYS;
    return (struct ha_digest){ .digests = s->digests + task * s->digest_bytes,
                               .first = first / p->block,
                               .blocks = (keys + p->block - 1) / p->block,
                               .unit = p->block,
                               .rows = { .k = k, .k_stride_bytes = p->head_dim * w->elem, .keys = keys },
                               .head_dim = p->head_dim,
                               .dtype = w->dtype };
}

static void make_digests(void *arg, size_t task, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct sparse *s = w->own;
    const size_t row = w->point.head_dim * w->elem;
    char *k = s->rows + worker * 2 * PIECE_KEYS * row;
    for (size_t first = 0; first < w->point.ctx; first += PIECE_KEYS) {
        const struct ha_digest args = piece(w, task, first, k);
        w->kernels->unpack(&(struct ha_unpack){ .blocks = w->kv + task * w->unit_bytes,
                                                .first = first,
                                                .keys = args.rows.keys,
                                                .head_dim = args.head_dim,
                                                .dtype = args.dtype,
                                                .k = k,
                                                .v = k + PIECE_KEYS * row,
                                                .k_stride_bytes = row,
                                                .v_stride_bytes = row });
        w->kernels->digest(&args);
    }
}

static enum ha_status open(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct sparse *s = w->own;
    s->digest_bytes = ha_digest_bytes(w->blocks, p->head_dim, w->dtype);
    HA_TRY(ha_cpu_attention_open(&s->chosen, w, 1, why));
    HA_TRY(ha_cpu_attention_open(&s->dense, w, 0, why));
    s->digests = ha_cpu_alloc(w, w->turns * w->units * s->digest_bytes, why);
    s->scores = ha_cpu_alloc(w, w->units * w->group * w->blocks * sizeof *s->scores, why);
    s->best = ha_cpu_alloc(w, w->units * w->blocks * sizeof *s->best, why);
    s->rows = ha_cpu_alloc(w, w->threads * 2 * PIECE_KEYS * p->head_dim * w->elem, why);
    s->scratch_bytes = (w->kernels->attend_scratch_bytes(&s->chosen.unit[0]) + 63) / 64 * 64;
    s->scratch = ha_cpu_alloc(w, w->threads * s->scratch_bytes, why);
    if (!s->digests || !s->scores || !s->best || !s->rows || !s->scratch) return HA_ERROR;
    ha_pool_run(w->pool, "digests", w->turns * w->units, make_digests, w);
    const double keys = (double)(w->chosen * p->block < p->ctx ? w->chosen * p->block : p->ctx),
                 dim = (double)p->head_dim;
    w->bytes = (double)w->units * ((double)w->blocks + keys) * 2 * dim * (double)w->elem;
    w->flop = (double)(w->units * w->group) * 4 * dim * ((double)w->blocks + keys);
    return HA_OK;
}

static void turn(struct ha_cpu_work *w)
{
    struct sparse *s = w->own;
    ha_cpu_attention_turn(&s->chosen, w);
    ha_cpu_attention_turn(&s->dense, w);
}

/* ---- the step ---------------------------------------------------------------------------------------------- */

static struct ha_digest_score score_args(const struct ha_cpu_work *w, size_t u)
{
    const struct sparse *s = w->own;
    return (struct ha_digest_score){ .q = s->chosen.unit[u].q,
                                     .q_rows = w->group,
                                     .q_stride = w->point.head_dim,
                                     .head_dim = w->point.head_dim,
                                     .digests = digests_of(w, u),
                                     .blocks = w->blocks,
                                     .dtype = w->dtype,
                                     .scale = w->scale,
                                     .s = s->scores + u * w->group * w->blocks,
                                     .s_stride = w->blocks };
}

static struct ha_topk choice_args(const struct ha_cpu_work *w, size_t u)
{
    const struct sparse *s = w->own;
    return (struct ha_topk){
        .x = s->best + u * w->blocks, .n = w->blocks, .k = w->chosen, .index = s->chosen.list + u * w->chosen
    };
}

static void score(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct sparse *s = w->own;
    const struct ha_digest_score args = score_args(w, u);
    float *best = s->best + u * w->blocks;
    (void)worker;
    w->kernels->digest_score(&args);
    for (size_t b = 0; b < w->blocks; b++) best[b] = args.s[b];
    for (size_t r = 1; r < w->group; r++)
        for (size_t b = 0; b < w->blocks; b++)
            best[b] = args.s[r * w->blocks + b] > best[b] ? args.s[r * w->blocks + b] : best[b];
}

static void choose(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct ha_topk args = choice_args(w, u);
    (void)worker;
    w->kernels->topk(&args);
}

static void attend(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct sparse *s = w->own;
    s->chosen.unit[u].scratch = s->scratch + worker * s->scratch_bytes;
    w->kernels->attend(w->kernels, &s->chosen.unit[u]);
}

static void whole(void *arg, size_t u, size_t worker)
{
    score(arg, u, worker);
    choose(arg, u, worker);
    attend(arg, u, worker);
}

static void run_dense(struct ha_cpu_work *w)
{
    struct sparse *s = w->own;
    ha_cpu_attention_run(&s->dense, w);
}

/* ---- check --------------------------------------------------------------------------------------------------- */

/* of turn 0 */
static double judge_choice(const struct ha_cpu_work *w, size_t u)
{
    const struct sparse *s = w->own;
    const struct ha_digest_score scores = score_args(w, u);
    const struct ha_topk choice = choice_args(w, u);
    double worst = fmax(ha_ref_judge_digest_score(&scores), ha_ref_judge_topk(&choice));
    for (size_t first = 0; first < w->point.ctx; first += PIECE_KEYS) {
        const struct ha_digest digests = piece(w, u, first, s->rows);
        for (size_t i = 0; i < digests.rows.keys; i++)
            ha_ref_unpack_row(ha_cpu_unit(w, u), w->dtype, digests.head_dim, first + i,
                              s->rows + i * digests.rows.k_stride_bytes, NULL);
        worst = fmax(worst, ha_ref_judge_digest(&digests));
    }
    return worst;
}

static enum ha_status check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    const struct sparse *s = w->own;
    const double worst = ha_cpu_worst(w, judge_choice);
    *err_over_bound = worst;
    if (!(worst <= 1))
        return ha_why(why, HA_FAIL, "digests, their scores or the choice of blocks: error over bound %.3g", worst);
    HA_TRY(ha_cpu_attention_check(&s->chosen, w, err_over_bound, why));
    *err_over_bound = fmax(*err_over_bound, worst);
    return HA_OK;
}

const struct ha_cpu_subject ha_cpu_subject_sparse = {
    .unit_bytes = ha_cpu_packed_bytes,
    .own_bytes = sizeof(struct sparse),
    .open = open,
    .turn = turn,
    .check = check,
    .part = { [HA_CPU_WHOLE] = { .name = "sparse", .task = whole, .cold = true },
              [HA_CPU_SCORES] = { .name = "digest_score", .task = score, .cold = true },
              [HA_CPU_CHOICE] = { .name = "topk", .task = choose },
              [HA_CPU_CHOSEN] = { .name = "attend", .task = attend },
              [HA_CPU_DENSE] = { .name = "dense", .run = run_dense, .cold = true } },
};
