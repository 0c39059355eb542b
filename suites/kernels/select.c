#include "suites/kernels/work.h"

#include "harness/base/why.h"
#include "harness/api/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* score, digest, digest_score, hash, hamming, topk, softmax: a task for each KV head. */

enum { Q_STREAM = 1, X_STREAM = 10, SETS = 16, HELD_NUMBERS = 1 << 14 }; /* of softmax, against chance */

struct select {
    float *q;        /* [units][group][head_dim] */
    float *x, *pure; /* scores: softmax works in place, on `pure` copied */
    size_t x_unit;   /* floats of a unit */
    float *lse;      /* [units][group] */
    char *digests;   /* [units][digest_bytes] */
    size_t digest_bytes;
    float *a;              /* [kv_heads][bits][head_dim] */
    char *codes, *q_codes; /* [units][code_bytes]; [units][ha_code_bytes(group)] */
    uint32_t *list;        /* [units][chosen] */
};

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

#define JUDGE(name, ...)                                                                          \
    static double name##_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances) \
    {                                                                                             \
        const struct ha_##name args = name##_args(w, u);                                          \
        return ha_ref_judge_##name(__VA_ARGS__);                                                  \
    }

static size_t code_bytes(const struct ha_cpu_work *w, size_t rows) { return ha_code_bytes(rows, w->point.bits); }

static void scores(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct select *s = w->own;
    out[0] = (struct ha_cpu_result){ s->x, w->units * s->x_unit * sizeof *s->x };
}
static void digests(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct select *s = w->own;
    out[0] = (struct ha_cpu_result){ s->digests, w->units * s->digest_bytes };
}
static void codes(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct select *s = w->own;
    out[0] = (struct ha_cpu_result){ s->codes, w->units * code_bytes(w, w->point.ctx) };
}
static void lists(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct select *s = w->own;
    out[0] = (struct ha_cpu_result){ s->list, w->units * w->chosen * sizeof *s->list };
}
static void weights(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct select *s = w->own;
    scores(w, out);
    out[1] = (struct ha_cpu_result){ s->lse, w->units * w->group * sizeof *s->lse };
}

/* ---- score -------------------------------------------------------------------------------------------------- */

static enum ha_status score_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = w->own;
    HA_TRY(make_queries(s, w, why));
    w->bytes = (double)(w->units * w->point.ctx * w->point.head_dim * w->elem);
    w->flop = 2 * (double)(w->units * w->group * w->point.ctx * w->point.head_dim);
    return make_numbers(s, w, 1, w->group * w->point.ctx, &s->x, why);
}

/* of query head r */
static struct ha_score score_args(const struct ha_cpu_work *w, size_t u, size_t r)
{
    const struct select *s = w->own;
    return (struct ha_score){ .q = s->q + (u * w->group + r) * w->point.head_dim,
                              .head_dim = w->point.head_dim,
                              .rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx),
                              .dtype = w->dtype,
                              .scale = w->scale,
                              .s = s->x + u * s->x_unit + r * w->point.ctx };
}

static void score_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    for (size_t r = 0; r < w->group; r++) {
        const struct ha_score args = score_args(w, u, r);
        w->kernels->score(&args);
    }
}

static double score_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    double worst = 0;
    for (size_t r = 0; r < w->group; r++) {
        const struct ha_score args = score_args(w, u, r);
        worst = fmax(worst, ha_ref_judge_score(&args, &w->kernels->profile, chances));
    }
    return worst;
}

/* ---- digest ------------------------------------------------------------------------------------------------- */

static enum ha_status digest_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = w->own;
    s->digest_bytes = ha_digest_bytes(w->blocks, w->point.head_dim, w->dtype);
    s->digests = ha_cpu_alloc(w, w->units * s->digest_bytes, why);
    w->bytes = (double)(w->units * w->point.head_dim * w->elem * (w->point.ctx + 2 * w->blocks));
    return s->digests ? HA_OK : HA_ERROR;
}

static struct ha_digest digest_args(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return (struct ha_digest){ .digests = s->digests + u * s->digest_bytes,
                               .blocks = w->blocks,
                               .unit = w->point.block,
                               .rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx),
                               .head_dim = w->point.head_dim,
                               .dtype = w->dtype };
}

HA_CPU_TASK(digest)
JUDGE(digest, &args)

/* ---- digest_score --------------------------------------------------------------------------------------------- */

static enum ha_status digest_score_open(struct ha_cpu_work *w, struct ha_why *why)
{
    HA_TRY(digest_open(w, why));
    struct select *s = w->own;
    ha_pool_run(w->pool, "digest", w->units, digest_task, w);
    HA_TRY(make_queries(s, w, why));
    w->bytes = (double)(w->units * w->blocks * 2 * w->point.head_dim * w->elem);
    w->flop = 4 * (double)(w->units * w->group * w->blocks * w->point.head_dim);
    return make_numbers(s, w, 1, w->group * w->blocks, &s->x, why);
}

static struct ha_digest_score digest_score_args(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return (struct ha_digest_score){ .q = s->q + u * w->group * w->point.head_dim,
                                     .q_rows = w->group,
                                     .q_stride = w->point.head_dim,
                                     .head_dim = w->point.head_dim,
                                     .digests = s->digests + u * s->digest_bytes,
                                     .blocks = w->blocks,
                                     .dtype = w->dtype,
                                     .scale = w->scale,
                                     .s = s->x + u * s->x_unit,
                                     .s_stride = w->blocks,
                                     .streams = ha_reads_in_streams(w->kernels, w->dtype) };
}

HA_CPU_TASK(digest_score)
JUDGE(digest_score, &args, chances)

/* ---- hash --------------------------------------------------------------------------------------------------- */

static enum ha_status hash_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = w->own;
    const size_t matrix = w->point.bits * w->point.head_dim, n = w->point.kv_heads * matrix,
                 bytes = w->units * code_bytes(w, w->point.ctx);
    s->a = ha_cpu_alloc(w, n * sizeof *s->a, why);
    s->codes = ha_cpu_alloc(w, bytes, why);
    if (!s->a || !s->codes) return HA_ERROR;
    ha_cpu_normals(w, X_STREAM, n, false, s->a);
    w->bytes = (double)(w->units * w->point.ctx * w->point.head_dim * w->elem) + (double)bytes;
    w->flop = 2 * (double)(w->units * w->point.ctx * matrix);
    return HA_OK;
}

/* behind the last row a run writes nothing */
static void hash_turn(struct ha_cpu_work *w)
{
    const struct select *s = w->own;
    const size_t bytes = code_bytes(w, w->point.ctx), block = code_bytes(w, HA_CODE_KEYS);
    for (size_t u = 0; u < w->units; u++) memset(s->codes + (u + 1) * bytes - block, 0, block);
}

/* of `rows` rows from `first` on */
static struct ha_hash hash_of(const struct ha_cpu_work *w, size_t u, size_t first, size_t rows)
{
    const struct select *s = w->own;
    struct ha_rows k = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx);
    k.k = (const char *)k.k + first * k.k_stride_bytes;
    k.keys = rows;
    return (struct ha_hash){ .a = s->a + u % w->point.kv_heads * w->point.bits * w->point.head_dim,
                             .bits = w->point.bits,
                             .rows = k,
                             .head_dim = w->point.head_dim,
                             .dtype = w->dtype,
                             .codes = s->codes + u * code_bytes(w, w->point.ctx),
                             .first = first };
}
static struct ha_hash hash_args(const struct ha_cpu_work *w, size_t u) { return hash_of(w, u, 0, w->point.ctx); }

HA_CPU_TASK(hash)

/* the first rows and the last */
static double hash_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    enum { ROWS = 1 << 10 };
    const size_t ctx = w->point.ctx, rows = ctx < ROWS ? ctx : ROWS;
    const struct ha_hash first = hash_of(w, u, 0, rows), last = hash_of(w, u, ctx - rows, rows);
    return fmax(ha_ref_judge_hash(&first), ha_ref_judge_hash(&last));
}

/* ---- hamming ------------------------------------------------------------------------------------------------ */

static size_t hamming_bytes(const struct ha_cpu_work *w) { return code_bytes(w, w->point.ctx); }

/* Any bits are codes, and those of normal numbers have norms that are numbers. */
static enum ha_status hamming_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = w->own;
    const size_t bytes = w->units * code_bytes(w, w->group);
    s->q_codes = ha_cpu_alloc(w, bytes, why);
    if (!s->q_codes) return HA_ERROR;
    ha_cpu_normals(w, Q_STREAM, bytes / sizeof(float), false, (float *)(void *)s->q_codes);
    w->bytes = (double)(w->units * w->unit_bytes);
    return make_numbers(s, w, 1, w->group * w->point.ctx, &s->x, why);
}

static struct ha_hamming hamming_args(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return (struct ha_hamming){ .q = s->q_codes + u * code_bytes(w, w->group),
                                .q_rows = w->group,
                                .bits = w->point.bits,
                                .codes = ha_cpu_unit(w, u),
                                .keys = w->point.ctx,
                                .s = s->x + u * s->x_unit,
                                .s_stride = w->point.ctx,
                                .streams = ha_reads_in_streams(w->kernels, HA_F32) };
}

HA_CPU_TASK(hamming)
JUDGE(hamming, &args)

/* ---- topk -------------------------------------------------------------------------------------------------------- */

static enum ha_status topk_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct select *s = w->own;
    s->list = ha_cpu_alloc(w, w->units * w->chosen * sizeof *s->list, why);
    w->bytes = (double)(w->units * (w->blocks * sizeof(float) + w->chosen * sizeof *s->list));
    return s->list ? make_numbers(s, w, SETS, w->blocks, &s->x, why) : HA_ERROR;
}

static struct ha_topk topk_args(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return (struct ha_topk){ .x = s->x + (w->turn % SETS * w->units + u) * s->x_unit,
                             .n = w->blocks,
                             .k = w->chosen,
                             .index = s->list + u * w->chosen };
}

HA_CPU_TASK(topk)
JUDGE(topk, &args)

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

static enum ha_status softmax_open(struct ha_cpu_work *w, struct ha_why *why)
{
    const size_t n = w->units * w->group * w->point.ctx;
    struct select *s = w->own;
    s->lse = ha_cpu_alloc(w, w->units * w->group * sizeof *s->lse, why);
    s->x = ha_cpu_alloc(w, n * sizeof *s->x, why);
    w->bytes = 2 * (double)(n * sizeof *s->x);
    return s->lse && s->x ? make_numbers(s, w, 1, w->group * w->point.ctx, &s->pure, why) : HA_ERROR;
}

/* each worker its own rows, as who computes the scores would have left them */
static void softmax_copy(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct select *s = w->own;
    memcpy(s->x + u * s->x_unit, s->pure + u * s->x_unit, s->x_unit * sizeof *s->x);
}
static void softmax_turn(struct ha_cpu_work *w) { ha_pool_run(w->pool, "copy", w->units, softmax_copy, w); }

static struct ha_softmax softmax_args(const struct ha_cpu_work *w, size_t u)
{
    const struct select *s = w->own;
    return (struct ha_softmax){ .x = s->x + u * s->x_unit,
                                .rows = w->group,
                                .n = w->point.ctx,
                                .stride = w->point.ctx,
                                .lse = s->lse + u * w->group };
}

HA_CPU_TASK(softmax)

static double softmax_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const struct select *s = w->own;
    const struct ha_softmax args = softmax_args(w, u);
    const float *x = s->pure + u * s->x_unit;
    const double exp_eps = w->kernels->traits.exp_eps;
    float *work = malloc(2 * args.n * sizeof *work);
    if (!work) return HUGE_VAL;
    ha_ref_hold_softmax(&args, x, exp_eps, HELD_NUMBERS / args.n + 1, work, chances);
    free(work);
    return ha_ref_judge_softmax(&args, x, exp_eps);
}

/* ---- subjects ---------------------------------------------------------------------------------------------------- */

#define SUBJECT(name_, results_)                                                                           \
    .own_bytes = sizeof(struct select), .open = name_##_open, .judge = name_##_judge, .results = results_, \
    .part = { { .name = #name_, .task = name_##_task } }
const struct ha_cpu_subject ha_cpu_subject_score = { SUBJECT(score, scores), .unit_bytes = ha_cpu_rows_bytes };
const struct ha_cpu_subject ha_cpu_subject_digest = { SUBJECT(digest, digests), .unit_bytes = ha_cpu_rows_bytes };
const struct ha_cpu_subject ha_cpu_subject_digest_score = { SUBJECT(digest_score, scores),
                                                            .unit_bytes = ha_cpu_rows_bytes };
const struct ha_cpu_subject ha_cpu_subject_hash = { SUBJECT(hash, codes), .unit_bytes = ha_cpu_rows_bytes,
                                                    .turn = hash_turn };
const struct ha_cpu_subject ha_cpu_subject_hamming = { SUBJECT(hamming, scores), .unit_bytes = hamming_bytes };
const struct ha_cpu_subject ha_cpu_subject_topk = { SUBJECT(topk, lists), .repeats = SETS };
const struct ha_cpu_subject ha_cpu_subject_softmax = { SUBJECT(softmax, weights), .turn = softmax_turn };
