#include "suites/kernels/work.h"

#include "harness/api/reference.h"
#include "harness/base/pq.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

/* pq_encode, pq_table, pq_score, topp: a task for each KV head. Beside the scores runs attention over the keys and
 * values that the codes stand for, so that one run has the share of its time that they take. */

enum { Q_STREAM = 1, BOOK_STREAM, CODE_STREAM, SCORE_STREAM, JUDGED = 1 << 14 };

struct codes {
    float *book, *q; /* [kv_heads][books][dims][centroids]; [units][group][head_dim] */
    char *codes;     /* [turns][units][code_bytes] */
    char *table;     /* [units][table_bytes] */
    size_t code_bytes, table_bytes, scratch_bytes;
    float *s, *o, *lse; /* [units][group][ctx], [units][group][head_dim], [units][group] */
    char *scratch;      /* [threads][scratch_bytes] */
};

static enum ha_dtype table_type(const struct ha_cpu_work *w) { return w->point.table ? HA_F16 : HA_F32; }

static struct ha_pq pq_of(const struct ha_cpu_work *w, size_t u)
{
    const struct codes *s = w->own;
    struct ha_pq pq = ha_pq_of(w->point.head_dim, w->point.dims, w->point.centroids, !w->point.shared, true);
    pq.centroid = s->book ? s->book + u % w->point.kv_heads * ha_pq_book_floats(&pq) : NULL;
    return pq;
}

static char *codes_of(const struct ha_cpu_work *w, size_t u)
{
    const struct codes *s = w->own;
    return s->codes + (w->turn % w->turns * w->units + u) * s->code_bytes;
}

static size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static enum ha_status make_books(struct ha_cpu_work *w, struct ha_why *why)
{
    struct codes *s = w->own;
    const struct ha_pq pq = pq_of(w, 0);
    const size_t n = w->point.kv_heads * ha_pq_book_floats(&pq);
    s->code_bytes = lines(ha_pq_code_bytes(&pq, w->point.ctx));
    s->table_bytes = lines(ha_pq_table_bytes(&pq, w->group, table_type(w)));
    s->book = ha_cpu_alloc(w, n * sizeof *s->book, why);
    if (!s->book) return HA_ERROR;
    ha_cpu_normals(w, BOOK_STREAM, n, false, s->book);
    return HA_OK;
}

/* ---- pq_encode --------------------------------------------------------------------------------------------------- */

static enum ha_status pq_encode_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct codes *s = w->own;
    HA_TRY(make_books(w, why));
    s->codes = ha_cpu_alloc(w, w->turns * w->units * s->code_bytes, why);
    const struct ha_pq pq = pq_of(w, 0);
    w->bytes = (double)(w->units * (w->point.ctx * w->point.head_dim * w->elem + s->code_bytes));
    w->flop = 3 * (double)(w->units * w->point.ctx * w->point.head_dim) * (double)pq.count;
    return s->codes ? HA_OK : HA_ERROR;
}

/* of `keys` keys from `first` on */
static struct ha_pq_encode encode_of(const struct ha_cpu_work *w, size_t u, size_t first, size_t keys)
{
    struct ha_rows rows = ha_cpu_rows(w, ha_cpu_unit(w, u), w->point.ctx);
    rows.k = (const char *)rows.k + first * rows.k_stride_bytes;
    rows.keys = keys;
    return (struct ha_pq_encode){
        .pq = pq_of(w, u), .rows = rows, .dtype = w->dtype, .codes = codes_of(w, u), .first = first
    };
}
static struct ha_pq_encode pq_encode_args(const struct ha_cpu_work *w, size_t u)
{
    return encode_of(w, u, 0, w->point.ctx);
}
HA_CPU_TASK(pq_encode)

struct one_key {
    const struct ha_cpu_work *work;
    size_t key;
};
static void encode_one(void *arg, size_t u, size_t worker)
{
    const struct one_key *one = arg;
    const struct ha_pq_encode args = encode_of(one->work, u, one->key, 1);
    (void)worker;
    one->work->kernels->pq_encode(&args);
}

/* A key of all heads after the other, as steps encode them: meanwhile other heads' books are read. */
static void each_alone(struct ha_cpu_work *w)
{
    for (size_t key = 0; key < w->point.ctx; key++) {
        struct one_key one = { w, key };
        ha_pool_run(w->pool, "alone", w->units, encode_one, &one);
    }
}

/* behind the last key a run changes nothing */
static void pq_encode_turn(struct ha_cpu_work *w)
{
    const struct codes *s = w->own;
    const struct ha_pq pq = pq_of(w, 0);
    const size_t whole = w->point.ctx / HA_PQ_KEYS * ha_pq_block_bytes(&pq);
    for (size_t u = 0; u < w->units; u++) memset(codes_of(w, u) + whole, 0, s->code_bytes - whole);
}

/* the first keys and the last */
static double pq_encode_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const size_t ctx = w->point.ctx, some = JUDGED / w->point.centroids + 1, keys = ctx < some ? ctx : some;
    const struct ha_pq_encode first = encode_of(w, u, 0, keys), last = encode_of(w, u, ctx - keys, keys);
    return fmax(ha_ref_judge_pq_encode(&first), ha_ref_judge_pq_encode(&last));
}

static void codes(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct codes *s = w->own;
    out[0] = (struct ha_cpu_result){ s->codes, w->units * s->code_bytes };
}

/* ---- pq_table ---------------------------------------------------------------------------------------------------- */

static enum ha_status make_tables(struct ha_cpu_work *w, struct ha_why *why)
{
    struct codes *s = w->own;
    const size_t n = w->units * w->group * w->point.head_dim;
    HA_TRY(make_books(w, why));
    s->q = ha_cpu_alloc(w, n * sizeof *s->q, why);
    s->table = ha_cpu_alloc(w, w->units * s->table_bytes, why);
    if (!s->q || !s->table) return HA_ERROR;
    ha_cpu_normals(w, Q_STREAM, n, false, s->q);
    return HA_OK;
}

static enum ha_status pq_table_open(struct ha_cpu_work *w, struct ha_why *why)
{
    HA_TRY(make_tables(w, why));
    const struct codes *s = w->own;
    const struct ha_pq pq = pq_of(w, 0);
    w->bytes = (double)(w->units * (ha_pq_book_floats(&pq) * sizeof(float) + s->table_bytes));
    w->flop = 2 * (double)(w->units * w->group * w->point.head_dim * pq.count);
    return HA_OK;
}

static struct ha_pq_table pq_table_args(const struct ha_cpu_work *w, size_t u)
{
    const struct codes *s = w->own;
    return (struct ha_pq_table){ .pq = pq_of(w, u),
                                 .q = s->q + u * w->group * w->point.head_dim,
                                 .q_len = 1,
                                 .group = w->group,
                                 .q_token_stride = w->group * w->point.head_dim,
                                 .q_head_stride = w->point.head_dim,
                                 .type = table_type(w),
                                 .table = s->table + u * s->table_bytes };
}
HA_CPU_TASK(pq_table)

static double pq_table_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const struct ha_pq_table args = pq_table_args(w, u);
    return ha_ref_judge_pq_table(&args, chances);
}

/* behind a table a run writes nothing */
static void pq_table_turn(struct ha_cpu_work *w)
{
    const struct codes *s = w->own;
    const struct ha_pq pq = pq_of(w, 0);
    const size_t bytes = ha_pq_table_bytes(&pq, w->group, table_type(w));
    for (size_t u = 0; u < w->units; u++) memset(s->table + u * s->table_bytes + bytes, 0, s->table_bytes - bytes);
}

static void tables(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct codes *s = w->own;
    out[0] = (struct ha_cpu_result){ s->table, w->units * s->table_bytes };
}

/* ---- pq_score ---------------------------------------------------------------------------------------------------- */

static struct ha_attend dense_args(const struct ha_cpu_work *w, size_t u, size_t worker)
{
    const struct codes *s = w->own;
    const size_t dim = w->point.head_dim, row = u * w->group;
    return (struct ha_attend){ .q = s->q + row * dim,
                               .q_len = 1,
                               .group = w->group,
                               .head_dim = dim,
                               .q_token_stride = w->group * dim,
                               .q_head_stride = dim,
                               .packed = { .blocks = ha_cpu_unit(w, u), .keys = w->point.ctx },
                               .dtype = w->dtype,
                               .scale = w->scale,
                               .o = s->o + row * dim,
                               .lse = s->lse + row,
                               .lse_token_stride = w->group,
                               .lse_head_stride = 1,
                               .scratch = s->scratch ? s->scratch + worker * s->scratch_bytes : NULL };
}

static void dense(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct ha_attend args = dense_args(w, u, worker);
    w->kernels->attend(w->kernels, &args);
}

static void draw_codes(void *arg, size_t task, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct codes *s = w->own;
    const uint64_t seed = w->point.seed ^ (uint64_t)task << 32;
    char *to = s->codes + task * s->code_bytes;
    for (size_t at = 0; at < s->code_bytes; at += sizeof seed) {
        const uint64_t bits = ha_rng_bits(seed, CODE_STREAM, at);
        memcpy(to + at, &bits, s->code_bytes - at < sizeof bits ? s->code_bytes - at : sizeof bits);
    }
}

/* Any bits are codes. */
static enum ha_status open_scores(struct ha_cpu_work *w, struct ha_why *why)
{
    struct codes *s = w->own;
    HA_TRY(make_tables(w, why));
    s->codes = ha_cpu_alloc(w, w->turns * w->units * s->code_bytes, why);
    s->s = ha_cpu_alloc(w, w->units * w->group * w->point.ctx * sizeof *s->s, why);
    if (!s->codes || !s->s) return HA_ERROR;
    ha_pool_run(w->pool, "codes", w->turns * w->units, draw_codes, w);
    ha_pool_run(w->pool, "tables", w->units, pq_table_task, w);
    w->bytes = (double)(w->units * s->code_bytes);
    return HA_OK;
}

static enum ha_status pq_score_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct codes *s = w->own;
    const size_t rows = w->units * w->group;
    HA_TRY(open_scores(w, why));
    s->o = ha_cpu_alloc(w, rows * w->point.head_dim * sizeof *s->o, why);
    s->lse = ha_cpu_alloc(w, rows * sizeof *s->lse, why);
    if (!s->o || !s->lse) return HA_ERROR;
    const struct ha_attend one = dense_args(w, 0, 0);
    s->scratch_bytes = lines(w->kernels->attend_scratch_bytes(&one));
    s->scratch = ha_cpu_alloc(w, w->threads * s->scratch_bytes, why);
    return s->scratch ? HA_OK : HA_ERROR;
}

static struct ha_pq_score pq_score_args(const struct ha_cpu_work *w, size_t u)
{
    const struct codes *s = w->own;
    return (struct ha_pq_score){ .pq = pq_of(w, u),
                                 .table = s->table + u * s->table_bytes,
                                 .type = table_type(w),
                                 .rows = w->group,
                                 .codes = codes_of(w, u),
                                 .keys = w->point.ctx,
                                 .scale = w->scale,
                                 .s = s->s + u * w->group * w->point.ctx,
                                 .s_stride = w->point.ctx };
}
HA_CPU_TASK(pq_score)

static double pq_score_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const struct ha_pq_score args = pq_score_args(w, u);
    return ha_ref_judge_pq_score(&args, chances);
}

static void scores(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct codes *s = w->own;
    out[0] = (struct ha_cpu_result){ s->s, w->units * w->group * w->point.ctx * sizeof *s->s };
}

/* ---- topp -------------------------------------------------------------------------------------------------------- */

/* Weights of scores that have a standard deviation of `spread`: a sixth of the keys then has `mass` of the weight.
 * Beside the choice run scores of as many keys by codes. */
static const double mass = 0.9;
static const float spread = 2.3f;

struct choice {
    struct codes codes;
    float *x, *pure, *w;   /* [units][group][ctx]: of all keys; what is copied there; of those chosen */
    uint32_t *list, *keys; /* [units][group][ctx], [units][group] */
};

static enum ha_status topp_open(struct ha_cpu_work *w, struct ha_why *why)
{
    struct choice *s = w->own;
    const size_t rows = w->units * w->group, ctx = w->point.ctx;
    HA_TRY(open_scores(w, why));
    s->x = ha_cpu_alloc(w, rows * ctx * sizeof *s->x, why);
    s->pure = ha_cpu_alloc(w, rows * ctx * sizeof *s->pure, why);
    s->w = ha_cpu_alloc(w, rows * ctx * sizeof *s->w, why);
    s->list = ha_cpu_alloc(w, rows * ctx * sizeof *s->list, why);
    s->keys = ha_cpu_alloc(w, rows * sizeof *s->keys, why);
    if (!s->x || !s->pure || !s->w || !s->list || !s->keys) return HA_ERROR;
    ha_cpu_normals(w, SCORE_STREAM, rows * ctx, false, s->pure);
    for (size_t r = 0; r < rows; r++) {
        float *x = s->pure + r * ctx, sum = 0;
        for (size_t i = 0; i < ctx; i++) sum += x[i] = expf(spread * x[i]);
        for (size_t i = 0; i < ctx; i++) x[i] /= sum;
    }
    w->bytes = (double)(rows * ctx * sizeof *s->x);
    return HA_OK;
}

/* each worker its own rows, as who computes the weights would have left them */
static void topp_copy(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    const struct choice *s = w->own;
    const size_t n = w->group * w->point.ctx;
    memcpy(s->x + u * n, s->pure + u * n, n * sizeof *s->x);
}
static void topp_turn(struct ha_cpu_work *w) { ha_pool_run(w->pool, "copy", w->units, topp_copy, w); }

/* of query head r of all */
static struct ha_topp topp_args(const struct ha_cpu_work *w, size_t r)
{
    const struct choice *s = w->own;
    const size_t ctx = w->point.ctx;
    return (struct ha_topp){ .x = s->x + r * ctx,
                             .rows = 1,
                             .n = ctx,
                             .stride = ctx,
                             .p = mass,
                             .index = s->list + r * ctx,
                             .w = s->w + r * ctx,
                             .w_type = HA_F32,
                             .w_stride = ctx,
                             .keys = s->keys + r };
}

static void topp_task(void *arg, size_t u, size_t worker)
{
    const struct ha_cpu_work *w = arg;
    for (size_t r = u * w->group; r < (u + 1) * w->group; r++) {
        const struct ha_topp args = topp_args(w, r);
        w->kernels->topp(&args);
    }
}

static double topp_judge(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    double worst = 0;
    for (size_t r = u * w->group; r < (u + 1) * w->group; r++) {
        const struct ha_topp args = topp_args(w, r);
        worst = fmax(worst, ha_ref_judge_topp(&args));
    }
    return worst;
}

/* how many of each row, and which of the first */
static void topp_results(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const struct choice *s = w->own;
    out[0] = (struct ha_cpu_result){ s->keys, w->units * w->group * sizeof *s->keys };
    out[1] = (struct ha_cpu_result){ s->list, *s->keys * sizeof *s->list };
}

/* ---- subjects ---------------------------------------------------------------------------------------------------- */

#define SUBJECT(name_, own_, results_)                                                                   \
    .own_bytes = sizeof(struct own_), .open = name_##_open, .judge = name_##_judge, .results = results_, \
    .part[HA_CPU_WHOLE] = { .name = #name_, .task = name_##_task }
const struct ha_cpu_subject ha_cpu_subject_pq_encode = {
    SUBJECT(pq_encode, codes, codes), .unit_bytes = ha_cpu_rows_bytes, .turn = pq_encode_turn,
    .part[HA_CPU_BESIDE] = { .name = "alone", .run = each_alone, .cold = true }
};
const struct ha_cpu_subject ha_cpu_subject_pq_table = { SUBJECT(pq_table, codes, tables), .turn = pq_table_turn };
const struct ha_cpu_subject ha_cpu_subject_pq_score = {
    SUBJECT(pq_score, codes, scores), .unit_bytes = ha_cpu_packed_bytes,
    .part[HA_CPU_BESIDE] = { .name = "dense", .task = dense, .cold = true }
};
const struct ha_cpu_subject ha_cpu_subject_topp = { SUBJECT(topp, choice, topp_results), .turn = topp_turn,
                                                    .part[HA_CPU_BESIDE] = {
                                                        .name = "scores", .task = pq_score_task, .cold = true } };
