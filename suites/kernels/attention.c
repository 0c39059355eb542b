#include "suites/kernels/work.h"

#include "harness/api/reference.h"
#include "harness/base/clock.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

/* The attentions of a point, a unit for each KV head of each sequence, and their check. */

struct attention {
    struct ha_attend *unit; /* [units] */
    struct ha_rows *runs;   /* [units] */
    float *q, *o, *lse;     /* [units][q_len][group][head_dim], and without the last */
    char *fresh;            /* natural rows of the query tokens beside packed keys: [units]; or NULL */
    uint32_t *list;         /* [lists][units][chosen] blocks, ascending; or NULL: all keys */
    size_t lists;
    struct ha_attend_all all;
};

enum { Q_STREAM = 1, FRESH_STREAM, LIST_STREAM = 100, LISTS = 16 };

/* ---- data --------------------------------------------------------------------------------------------- */

static enum ha_status open_lists(struct attention *a, struct ha_cpu_work *w, size_t lists, struct ha_why *why)
{
    if (!lists) return HA_OK;
    a->lists = lists;
    a->list = ha_cpu_alloc(w, lists * w->units * w->chosen * sizeof *a->list, why);
    if (!a->list) return HA_ERROR;
    for (size_t i = 0; i < lists * w->units; i++)
        ha_cpu_draw(w->point.seed, LIST_STREAM + i, w->blocks, w->chosen, a->list + i * w->chosen);
    return HA_OK;
}

static enum ha_status open_rows(struct attention *a, struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    const size_t rows = w->units * p->q_len * w->group, fresh = w->units * p->q_len * 2 * p->head_dim;
    a->unit = ha_cpu_alloc(w, w->units * sizeof *a->unit, why);
    a->runs = ha_cpu_alloc(w, w->units * sizeof *a->runs, why);
    a->q = ha_cpu_alloc(w, rows * p->head_dim * sizeof *a->q, why);
    a->o = ha_cpu_alloc(w, rows * p->head_dim * sizeof *a->o, why);
    a->lse = ha_cpu_alloc(w, rows * sizeof *a->lse, why);
    if (!a->unit || !a->runs || !a->q || !a->o || !a->lse) return HA_ERROR;
    ha_cpu_normals(w, Q_STREAM, rows * p->head_dim, true, a->q);
    if (p->kernel != HA_KERNEL_APPEND || p->layout != HA_CPU_PACKED) return HA_OK;
    float *x = malloc(fresh * sizeof *x);
    a->fresh = ha_cpu_alloc(w, fresh * w->elem, why);
    if (!x || !a->fresh) {
        free(x);
        return ha_why(why, HA_ERROR, "out of memory");
    }
    ha_rng_normals(w->point.seed, FRESH_STREAM, 0, fresh, x);
    ha_store_row(a->fresh, fresh, w->dtype, x);
    free(x);
    return HA_OK;
}

static void set_unit(struct attention *a, const struct ha_cpu_work *w, size_t u)
{
    const struct ha_cpu_point *p = &w->point;
    const size_t rows = p->q_len * w->group;
    const bool appends = p->kernel == HA_KERNEL_APPEND, packed = p->layout == HA_CPU_PACKED;
    a->unit[u] = (struct ha_attend){
        .q = a->q + u * rows * p->head_dim,
        .q_len = p->q_len,
        .group = w->group,
        .head_dim = p->head_dim,
        .q_token_stride = w->group * p->head_dim,
        .q_head_stride = p->head_dim,
        .packed = { .keys = packed ? p->ctx : 0,
                    .unit = a->list ? p->block : 0,
                    .units = a->list && packed ? w->chosen : 0 },
        .runs = &a->runs[u],
        .runs_count = !packed || appends,
        .block = a->list && !packed ? p->block : 0,
        .dtype = w->dtype,
        .scale = w->scale,
        .causal = appends,
        .o = a->o + u * rows * p->head_dim,
        .lse = a->lse + u * rows,
        .lse_token_stride = w->group,
        .lse_head_stride = 1,
    };
    if (a->fresh) a->runs[u] = ha_cpu_rows(w, a->fresh + u * p->q_len * 2 * p->head_dim * w->elem, p->q_len);
}

/* its keys are those of the work's turn */
static void attention_turn(struct attention *a, const struct ha_cpu_work *w)
{
    const struct ha_cpu_point *p = &w->point;
    for (size_t u = 0; u < w->units; u++) {
        const char *kv = ha_cpu_unit(w, u);
        const uint32_t *list = a->list ? a->list + (w->turn % a->lists * w->units + u) * w->chosen : NULL;
        if (p->layout == HA_CPU_PACKED) {
            a->unit[u].packed.blocks = kv;
            a->unit[u].packed.index = list;
            continue;
        }
        a->runs[u] = ha_cpu_rows(w, kv, p->ctx + (p->kernel == HA_KERNEL_APPEND ? p->q_len : 0));
        a->runs[u].index = list;
        const struct ha_packed listed = { .keys = p->ctx, .index = list, .unit = p->block, .units = w->chosen };
        if (list) a->runs[u].keys = ha_packed_listed(&listed);
    }
}

/* lists: 0, or how many lists of random blocks; their blocks may be set later */
static enum ha_status attention_open(struct attention *a, struct ha_cpu_work *w, size_t lists, struct ha_why *why)
{
    *a = (struct attention){ 0 };
    HA_TRY(open_lists(a, w, lists, why));
    HA_TRY(open_rows(a, w, why));
    for (size_t u = 0; u < w->units; u++) set_unit(a, w, u);
    attention_turn(a, w);
    void *work = ha_cpu_alloc(w, w->kernels->attend_all_bytes(&a->unit[0], w->units, w->threads), why);
    if (!work) return HA_ERROR;
    a->all = (struct ha_attend_all){
        .units = a->unit, .count = w->units, .pool = w->pool, .name = "attend", .work = work
    };
    return HA_OK;
}

static void attention_run(struct attention *a, const struct ha_cpu_work *w)
{
    w->kernels->attend_all(w->kernels, &a->all);
}

static void attention_results(const struct attention *a, const struct ha_cpu_work *w,
                              struct ha_cpu_result out[HA_CPU_RESULTS])
{
    const size_t rows = w->units * w->point.q_len * w->group;
    out[0] = (struct ha_cpu_result){ a->o, rows * w->point.head_dim * sizeof *a->o };
    out[1] = (struct ha_cpu_result){ a->lse, rows * sizeof *a->lse };
}

/* ---- check -------------------------------------------------------------------------------------------------- */

/* Rows of a unit; numbers of K that those are of which are held against chance, if more than two. */
enum { ROWS_MOST = 4, HELD_NUMBERS = 1 << 16 };

struct judged {
    const struct attention *attention;
    const struct ha_cpu_work *work;
    double ratio[HA_CPU_SAMPLES];
    struct ha_chances chances[HA_CPU_SAMPLES];
    bool broken; /* no memory */
};

static struct ha_profile profile_of(const struct ha_attend *a, const struct ha_kernels *k)
{
    if (a->packed.keys && a->runs_count) return ha_profile_attend(k, a->dtype);
    return a->packed.keys ? k->packed_profile[a->dtype] : k->profile;
}

static void judge_head(void *arg, size_t task, size_t worker)
{
    struct judged *j = arg;
    const struct ha_cpu_work *w = j->work;
    const struct ha_attend *a = &j->attention->unit[ha_cpu_sampled(w, task)];
    const size_t bytes = 2 * ha_ref_keys(a) * a->head_dim * w->elem;
    const struct ha_profile profile = profile_of(a, w->kernels);
    void *kv = malloc(bytes + 1);
    struct ha_answer want = { 0 };
    struct ha_why why;
    const struct ha_rows rows = kv ? ha_ref_plain_rows(a, kv) : (struct ha_rows){ .keys = 0 };
    const size_t held = HELD_NUMBERS / (rows.keys * a->head_dim + 1) + 2;
    if (!kv || ha_answer_make(&want, a, &rows, &profile, ROWS_MOST, &why) != HA_OK) j->broken = true;
    else {
        j->ratio[task] = ha_answer_judge(&want, a).ratio;
        if (ha_answer_hold(&want, a, &rows, held, &j->chances[task], NULL, &why) != HA_OK) j->broken = true;
    }
    ha_answer_free(&want);
    free(kv);
}

/* Some rows of some units against the reference, and every number finite. */
static enum ha_status attention_check(const struct attention *a, struct ha_cpu_work *w, double *err_over_bound,
                                      struct ha_why *why)
{
    const size_t rows = w->units * w->point.q_len * w->group;
    struct judged j = { .attention = a, .work = w };
    for (size_t i = 0; i < rows; i++) {
        bool finite = isfinite(a->lse[i]);
        for (size_t d = 0; d < w->point.head_dim; d++) finite = finite && isfinite(a->o[i * w->point.head_dim + d]);
        if (!finite)
            return ha_why(why, HA_FAIL, "row %zu of KV head %zu is not finite", i % (rows / w->units),
                          i / (rows / w->units));
    }
    ha_pool_run(w->pool, "check", ha_cpu_samples(w), judge_head, &j);
    if (j.broken) return ha_why(why, HA_ERROR, "out of memory for the reference");
    *err_over_bound = 0;
    for (size_t i = 0; i < ha_cpu_samples(w); i++) {
        if (!(j.ratio[i] <= *err_over_bound)) *err_over_bound = j.ratio[i];
        if (i) ha_chances_join(&j.chances[0], &j.chances[i]);
    }
    ha_suspect_add(&w->suspect, &j.chances[0], "%s", "attention");
    return HA_OK;
}

/* ---- attend, append, blocks, gather: all through attend_all ------------------------------------------------- */

static size_t own_keys(const struct ha_cpu_point *p) { return p->kernel == HA_KERNEL_APPEND ? p->q_len : 0; }

static size_t kv_bytes(const struct ha_cpu_work *w)
{
    const struct ha_cpu_point *p = &w->point;
    return p->layout == HA_CPU_PACKED ? ha_cpu_packed_bytes(w) : 2 * (p->ctx + own_keys(p)) * p->head_dim * w->elem;
}

static enum ha_status attend_open(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct attention *a = w->own;
    HA_TRY(attention_open(a, w, p->kernel == HA_KERNEL_BLOCKS || p->kernel == HA_KERNEL_GATHER ? LISTS : 0, why));
    const size_t most = w->chosen * p->block, own = own_keys(p);
    const double keys = (double)((a->list && most < p->ctx ? most : p->ctx) + own),
                 row = (double)(p->head_dim * w->elem);
    w->bytes = 2 * keys * row * (double)w->units;
    /* of an append's own tokens, each query sees half */
    w->flop = 4 * (keys - (double)own / 2) * (double)(p->head_dim * p->q_len * p->q_heads * p->batch);
    return HA_OK;
}

static void attend_turn(struct ha_cpu_work *w) { attention_turn(w->own, w); }
static void attend_run(struct ha_cpu_work *w) { attention_run(w->own, w); }
static enum ha_status attend_check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    return attention_check(w->own, w, err_over_bound, why);
}

static void attend_results(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    attention_results(w->own, w, out);
}

/* ---- in cache ---------------------------------------------------------------------------------------------------- */

struct cached {
    const struct ha_cpu_work *work;
    struct ha_attend unit; /* the first one, cut; each worker has its own results and scratch */
    size_t runs, bytes;
    char *memory; /* [threads][bytes] */
};

static void attend_cached(void *arg, size_t task, size_t worker)
{
    const struct cached *c = arg;
    struct ha_attend a = c->unit;
    const size_t rows = a.q_len * a.group;
    a.o = (float *)(void *)(c->memory + worker * c->bytes);
    a.lse = a.o + rows * a.head_dim;
    a.scratch = a.lse + (rows + 15) / 16 * 16;
    for (size_t i = 0; i < c->runs; i++) c->work->kernels->attend(c->work->kernels, &a);
}

static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* The first keys of its list, whole blocks, and the query tokens' own. */
static void cut_keys(struct ha_attend *a, struct ha_rows *first, size_t keys, size_t own)
{
    const size_t block = a->packed.index ? a->packed.unit : a->block ? a->block : HA_PACK_KEYS;
    keys = keys > block ? keys / block * block : block;
    if (a->packed.index) a->packed.units = lesser(a->packed.units, keys / block);
    else if (a->packed.keys) a->packed.keys = lesser(a->packed.keys, keys);
    else {
        *first = a->runs[0];
        first->keys = lesser(first->keys, keys + own);
        a->runs = first;
    }
}

static double attend_in_cache(struct ha_cpu_work *w, size_t bytes, size_t runs, double *ns)
{
    const struct attention *attention = w->own;
    const struct ha_cpu_point *p = &w->point;
    struct cached c = { .work = w, .unit = attention->unit[0], .runs = runs };
    struct ha_rows first;
    struct ha_why why;
    const size_t rows = (p->q_len * w->group + 15) / 16 * 16, row = 2 * p->head_dim * w->elem;
    cut_keys(&c.unit, &first, bytes / row, own_keys(p));
    c.bytes = (rows * (p->head_dim + 1) * sizeof(float) + w->kernels->attend_scratch_bytes(&c.unit) + 63) / 64 * 64;
    c.memory = ha_cpu_alloc(w, w->threads * c.bytes, &why);
    if (!c.memory) return 0;
    const uint64_t begin = ha_now_ns();
    ha_pool_each(w->pool, "in cache", attend_cached, &c);
    *ns = (double)(ha_now_ns() - begin);
    ha_free(w->arena, c.memory);
    return (double)(w->threads * runs * ha_ref_keys(&c.unit) * row);
}

const struct ha_cpu_subject ha_cpu_subject_attend = {
    .unit_bytes = kv_bytes,
    .own_bytes = sizeof(struct attention),
    .open = attend_open,
    .turn = attend_turn,
    .check = attend_check,
    .results = attend_results,
    .in_cache = attend_in_cache,
    .part = { [HA_CPU_WHOLE] = { .name = "attend", .run = attend_run },
              [HA_CPU_BESIDE] = { .name = "constants", .constants = true } },
};

/* ---- a step of block-sparse attention ---------------------------------------------------------------------------- */

/* A step of block-sparse attention, a task for each KV head: scores of the digests for each query head of the group,
 * the largest of them for each block, the best blocks, attention over these. */

enum { PIECE_KEYS = 1024 };

struct sparse {
    struct attention chosen, dense;
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

static enum ha_status sparse_open(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct sparse *s = w->own;
    s->digest_bytes = ha_digest_bytes(w->blocks, p->head_dim, w->dtype);
    HA_TRY(attention_open(&s->chosen, w, 1, why));
    HA_TRY(attention_open(&s->dense, w, 0, why));
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

static void sparse_turn(struct ha_cpu_work *w)
{
    struct sparse *s = w->own;
    attention_turn(&s->chosen, w);
    attention_turn(&s->dense, w);
}

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
                                     .s_stride = w->blocks,
                                     .streams = ha_reads_in_streams(w->kernels, w->dtype) };
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
    attention_run(&s->dense, w);
}

/* of turn 0 */
static double judge_choice(const struct ha_cpu_work *w, size_t u, struct ha_chances *chances)
{
    const struct sparse *s = w->own;
    const struct ha_digest_score scores = score_args(w, u);
    const struct ha_topk choice = choice_args(w, u);
    double worst = fmax(ha_ref_judge_digest_score(&scores, chances), ha_ref_judge_topk(&choice));
    for (size_t first = 0; first < w->point.ctx; first += PIECE_KEYS) {
        const struct ha_digest digests = piece(w, u, first, s->rows);
        for (size_t i = 0; i < digests.rows.keys; i++)
            ha_ref_unpack_row(ha_cpu_unit(w, u), w->dtype, digests.head_dim, first + i,
                              s->rows + i * digests.rows.k_stride_bytes, NULL);
        worst = fmax(worst, ha_ref_judge_digest(&digests));
    }
    return worst;
}

static enum ha_status sparse_check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    const struct sparse *s = w->own;
    const double worst = ha_cpu_worst(w, judge_choice, "scores of digests");
    *err_over_bound = worst;
    if (!(worst <= 1))
        return ha_why(why, HA_FAIL, "digests, their scores or the choice of blocks: error over bound %.3g", worst);
    HA_TRY(attention_check(&s->chosen, w, err_over_bound, why));
    *err_over_bound = fmax(*err_over_bound, worst);
    return HA_OK;
}

static void sparse_results(const struct ha_cpu_work *w, struct ha_cpu_result out[HA_CPU_RESULTS])
{
    attention_results(&((const struct sparse *)w->own)->chosen, w, out);
}

const struct ha_cpu_subject ha_cpu_subject_sparse = {
    .unit_bytes = ha_cpu_packed_bytes,
    .own_bytes = sizeof(struct sparse),
    .open = sparse_open,
    .turn = sparse_turn,
    .check = sparse_check,
    .results = sparse_results,
    .part = { [HA_CPU_WHOLE] = { .name = "sparse", .task = whole, .cold = true },
              [HA_CPU_SCORES] = { .name = "digest_score", .task = score, .cold = true },
              [HA_CPU_CHOICE] = { .name = "topk", .task = choose },
              [HA_CPU_CHOSEN] = { .name = "attend", .task = attend },
              [HA_CPU_BESIDE] = { .name = "dense", .run = run_dense, .cold = true } },
};
