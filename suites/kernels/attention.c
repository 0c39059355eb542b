#include "suites/kernels/attention.h"

#include "harness/api/reference.h"
#include "harness/base/numeric.h"
#include "harness/base/rng.h"
#include "harness/base/try.h"
#include "harness/base/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q_STREAM = 1, FRESH_STREAM, LIST_STREAM = 100 };

const char *ha_cpu_attention_lacks(const struct ha_kernels *k, const struct ha_cpu_point *p)
{
    if (!k->attend_all || !k->attend_all_bytes) return "attend_all";
    if (p->layout == HA_CPU_PACKED && !k->attend_packed[p->dtype]) return "attend_packed of this type";
    return k->attend && k->attend_chunk ? NULL : "attend";
}

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
    const struct ha_cpu_point *p = &w->point;
    if (!lists) return HA_OK;
    a->lists = lists;
    a->chosen = ha_cpu_chosen(p);
    a->list = ha_cpu_alloc(w, lists * w->units * a->chosen * sizeof *a->list, why);
    if (!a->list) return HA_ERROR;
    for (size_t i = 0; i < lists * w->units; i++)
        choose(w->seed, LIST_STREAM + i, ha_cpu_blocks(p), a->chosen, a->list + i * a->chosen);
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
    ha_rng_normals(w->seed, FRESH_STREAM, 0, fresh, x);
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
                    .units = a->list && packed ? a->chosen : 0 },
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
    ha_cpu_attention_turn(a, w, 0);
    void *work = ha_cpu_alloc(w, w->kernels->attend_all_bytes(&a->unit[0], w->units, w->threads), why);
    if (!work) return HA_ERROR;
    a->all = (struct ha_attend_all){
        .units = a->unit, .count = w->units, .pool = w->pool, .name = "attend", .work = work
    };
    return HA_OK;
}

void ha_cpu_attention_turn(struct ha_cpu_attention *a, const struct ha_cpu_work *w, size_t turn)
{
    const struct ha_cpu_point *p = &w->point;
    for (size_t u = 0; u < w->units; u++) {
        const char *kv = ha_cpu_unit(w, turn, u);
        const uint32_t *list = a->list ? a->list + (turn % a->lists * w->units + u) * a->chosen : NULL;
        if (p->layout == HA_CPU_PACKED) {
            a->unit[u].packed.blocks = kv;
            a->unit[u].packed.index = list;
            continue;
        }
        a->runs[u] = ha_cpu_rows(w, kv, p->ctx + (p->kernel == HA_KERNEL_APPEND ? p->q_len : 0));
        a->runs[u].index = list;
        if (list) a->runs[u].keys = listed_keys(p, list, a->chosen);
    }
}

void ha_cpu_attention_run(struct ha_cpu_attention *a, const struct ha_cpu_work *w)
{
    w->kernels->attend_all(w->kernels, &a->all);
}

/* ---- check -------------------------------------------------------------------------------------------------- */

enum { HEADS_MOST = 2, ROWS_MOST = 4 };

struct judged {
    const struct ha_cpu_attention *attention;
    const struct ha_cpu_work *work;
    size_t heads;
    double ratio[HEADS_MOST];
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
    const struct ha_attend *a = &j->attention->unit[ha_cpu_sampled(w, task, j->heads)];
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
    struct judged j = { .attention = a, .work = w, .heads = w->units < HEADS_MOST ? w->units : HEADS_MOST };
    for (size_t i = 0; i < rows; i++) {
        bool finite = isfinite(a->lse[i]);
        for (size_t d = 0; d < w->point.head_dim; d++) finite = finite && isfinite(a->o[i * w->point.head_dim + d]);
        if (!finite)
            return ha_why(why, HA_FAIL, "row %zu of KV head %zu is not finite", i % (rows / w->units),
                          i / (rows / w->units));
    }
    ha_pool_run(w->pool, "check", j.heads, judge_head, &j);
    if (j.broken) return ha_why(why, HA_ERROR, "out of memory for the reference");
    *err_over_bound = 0;
    for (size_t i = 0; i < j.heads; i++)
        if (!(j.ratio[i] <= *err_over_bound)) *err_over_bound = j.ratio[i];
    return HA_OK;
}
