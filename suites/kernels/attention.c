#include "suites/kernels/attention.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>

enum { Q_STREAM = 1, FRESH_STREAM, LIST_STREAM = 100, LISTS = 16 };

/* ---- data --------------------------------------------------------------------------------------------- */

/* k of n in ascending order, each set as likely as another */
static void choose(uint64_t seed, uint64_t stream, size_t n, size_t k, uint32_t *out)
{
    for (size_t i = 0, have = 0; have < k; i++)
        if (ha_rng_below(seed, stream, i, n - i) < k - have) out[have++] = (uint32_t)i;
}

static size_t listed_keys(const struct ha_cpu_point *p, const uint32_t *list, size_t chosen)
{
    const struct ha_packed listed = { .keys = p->ctx, .index = list, .unit = p->block, .units = chosen };
    return ha_packed_listed(&listed);
}

static enum ha_status open_lists(struct ha_cpu_attention *a, struct ha_cpu_work *w, size_t lists, struct ha_why *why)
{
    if (!lists) return HA_OK;
    a->lists = lists;
    a->list = ha_cpu_alloc(w, lists * w->units * w->chosen * sizeof *a->list, why);
    if (!a->list) return HA_ERROR;
    for (size_t i = 0; i < lists * w->units; i++)
        choose(w->point.seed, LIST_STREAM + i, w->blocks, w->chosen, a->list + i * w->chosen);
    return HA_OK;
}

static enum ha_status open_rows(struct ha_cpu_attention *a, struct ha_cpu_work *w, struct ha_why *why)
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

static void set_unit(struct ha_cpu_attention *a, const struct ha_cpu_work *w, size_t u)
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

enum ha_status ha_cpu_attention_open(struct ha_cpu_attention *a, struct ha_cpu_work *w, size_t lists,
                                     struct ha_why *why)
{
    *a = (struct ha_cpu_attention){ 0 };
    HA_TRY(open_lists(a, w, lists, why));
    HA_TRY(open_rows(a, w, why));
    for (size_t u = 0; u < w->units; u++) set_unit(a, w, u);
    ha_cpu_attention_turn(a, w);
    void *work = ha_cpu_alloc(w, w->kernels->attend_all_bytes(&a->unit[0], w->units, w->threads), why);
    if (!work) return HA_ERROR;
    a->all = (struct ha_attend_all){
        .units = a->unit, .count = w->units, .pool = w->pool, .name = "attend", .work = work
    };
    return HA_OK;
}

void ha_cpu_attention_turn(struct ha_cpu_attention *a, const struct ha_cpu_work *w)
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
        if (list) a->runs[u].keys = listed_keys(p, list, w->chosen);
    }
}

void ha_cpu_attention_run(struct ha_cpu_attention *a, const struct ha_cpu_work *w)
{
    w->kernels->attend_all(w->kernels, &a->all);
}

/* ---- check -------------------------------------------------------------------------------------------------- */

enum { ROWS_MOST = 4 };

struct judged {
    const struct ha_cpu_attention *attention;
    const struct ha_cpu_work *work;
    double ratio[HA_CPU_SAMPLES];
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
    (void)worker;
    const struct ha_rows rows = kv ? ha_ref_plain_rows(a, kv) : (struct ha_rows){ .keys = 0 };
    if (!kv || ha_answer_make(&want, a, &rows, &profile, ROWS_MOST, &why) != HA_OK) j->broken = true;
    else j->ratio[task] = ha_answer_judge(&want, a).ratio;
    ha_answer_free(&want);
    free(kv);
}

enum ha_status ha_cpu_attention_check(const struct ha_cpu_attention *a, const struct ha_cpu_work *w,
                                      double *err_over_bound, struct ha_why *why)
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
    for (size_t i = 0; i < ha_cpu_samples(w); i++)
        if (!(j.ratio[i] <= *err_over_bound)) *err_over_bound = j.ratio[i];
    return HA_OK;
}

/* ---- attend, append, blocks, gather: all through attend_all ------------------------------------------------- */

static size_t own_keys(const struct ha_cpu_point *p) { return p->kernel == HA_KERNEL_APPEND ? p->q_len : 0; }

static size_t kv_bytes(const struct ha_cpu_work *w)
{
    const struct ha_cpu_point *p = &w->point;
    return p->layout == HA_CPU_PACKED ? ha_cpu_packed_bytes(w) : 2 * (p->ctx + own_keys(p)) * p->head_dim * w->elem;
}

static enum ha_status open(struct ha_cpu_work *w, struct ha_why *why)
{
    const struct ha_cpu_point *p = &w->point;
    struct ha_cpu_attention *a = w->own;
    HA_TRY(
        ha_cpu_attention_open(a, w, p->kernel == HA_KERNEL_BLOCKS || p->kernel == HA_KERNEL_GATHER ? LISTS : 0, why));
    const size_t most = w->chosen * p->block, own = own_keys(p);
    const double keys = (double)((a->list && most < p->ctx ? most : p->ctx) + own),
                 row = (double)(p->head_dim * w->elem);
    w->bytes = 2 * keys * row * (double)w->units;
    /* of an append's own tokens, each query sees half */
    w->flop = 4 * (keys - (double)own / 2) * (double)(p->head_dim * p->q_len * p->q_heads * p->batch);
    return HA_OK;
}

static void turn(struct ha_cpu_work *w) { ha_cpu_attention_turn(w->own, w); }
static void run(struct ha_cpu_work *w) { ha_cpu_attention_run(w->own, w); }
static enum ha_status check(struct ha_cpu_work *w, double *err_over_bound, struct ha_why *why)
{
    return ha_cpu_attention_check(w->own, w, err_over_bound, why);
}

const struct ha_cpu_subject ha_cpu_subject_attend = {
    .unit_bytes = kv_bytes,
    .own_bytes = sizeof(struct ha_cpu_attention),
    .open = open,
    .turn = turn,
    .check = check,
    .part = { { .name = "attend", .run = run } },
};
