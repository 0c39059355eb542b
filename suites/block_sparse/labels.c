#include "suites/block_sparse/labels.h"

#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <math.h>

#define MASS 0.95

HA_SHARED_WORDS(ha_criterion_word, [HA_CRITERION_CONTRIBUTION] = "contribution", [HA_CRITERION_OUTPUT] = "output",
                [HA_CRITERION_SCORE] = "score")

static enum ha_status make_work(const struct ha_labels *l, struct ha_arena *arena, struct ha_label_work *w,
                                struct ha_why *why)
{
    const size_t dim = l->shape->head_dim;
    w->score = ha_alloc(arena, l->host_max * sizeof *w->score, HA_TAG_SCRATCH, why);
    w->weight = w->score ? ha_alloc(arena, l->host_max * sizeof *w->weight, HA_TAG_SCRATCH, why) : NULL;
    w->heap = w->weight ? ha_alloc(arena, l->host_max * sizeof *w->heap, HA_TAG_SCRATCH, why) : NULL;
    w->left = w->heap ? ha_alloc(arena, dim * sizeof *w->left, HA_TAG_SCRATCH, why) : NULL;
    w->row = w->left ? ha_alloc(arena, dim * sizeof *w->row, HA_TAG_SCRATCH, why) : NULL;
    return w->row ? HA_OK : HA_ERROR;
}

enum ha_status ha_labels_create(struct ha_labels *l, struct ha_arena *arena, size_t host_max, size_t units_max,
                                struct ha_why *why)
{
    const size_t threads = ha_pool_threads(l->pool);
    l->host_max = host_max;
    l->units_max = units_max;
    l->o = ha_alloc(arena, units_max * l->shape->head_dim * sizeof *l->o, HA_TAG_SCRATCH, why);
    l->most = l->o ? ha_alloc(arena, units_max * sizeof *l->most, HA_TAG_SCRATCH, why) : NULL;
    l->work = l->most ? ha_alloc(arena, threads * sizeof *l->work, HA_TAG_SCRATCH, why) : NULL;
    if (!l->work) return HA_ERROR;
    for (size_t i = 0; i < threads; i++) HA_TRY(make_work(l, arena, &l->work[i], why));
    return HA_OK;
}

static double length(const double *x, size_t dim)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t d = 0; d < dim; d++) sum += x[d] * x[d];
    return sqrt(sum);
}

/* to[] += weight * (row - o), o: NULL is 0 */
static void add(double *restrict to, double weight, const float *restrict row, const double *restrict o, size_t dim)
{
#pragma omp simd
    for (size_t d = 0; d < dim; d++) to[d] += weight * ((double)row[d] - (o ? o[d] : 0));
}

static const float *value(const struct ha_labels *l, const struct ha_label_work *w, const struct ha_label_unit *unit,
                          size_t key)
{
    ha_load_row((const char *)unit->host.v + key * unit->host.v_stride_bytes, l->shape->head_dim, l->shape->dtype,
                w->row);
    return w->row;
}

/* w->score: of the host's keys; the largest of them */
static double score_keys(const struct ha_labels *l, const struct ha_label_work *w, const struct ha_label_unit *unit)
{
    double most = -HUGE_VAL;
    if (unit->host.keys == 0) return most;
    l->kernels->score(&(struct ha_score){ .q = unit->q,
                                          .head_dim = l->shape->head_dim,
                                          .rows = unit->host,
                                          .dtype = l->shape->dtype,
                                          .scale = l->shape->scale,
                                          .s = w->score });
    for (size_t i = 0; i < unit->host.keys; i++) most = fmax(most, (double)w->score[i]);
    return most;
}

/* ---- attention over all keys ------------------------------------------------------------------------------------- */

void ha_label_attend(const struct ha_labels *l, size_t worker, const struct ha_label_unit *unit, double *o,
                     struct ha_label *out)
{
    const struct ha_label_work *w = &l->work[worker];
    const size_t dim = l->shape->head_dim;
    const double level = score_keys(l, w, unit);
    double sum = 0, all = 0;
    for (size_t d = 0; d < dim; d++) o[d] = 0;
    for (size_t i = 0; i < unit->host.keys; i++) {
        const double weight = exp((double)w->score[i] - level);
        add(o, weight, value(l, w, unit, i), NULL, dim);
        sum += weight;
    }
    for (size_t d = 0; d < dim && unit->host.keys; d++) o[d] /= sum;
    out->host_lse = unit->host.keys ? level + log(sum) : -HUGE_VAL;
    out->host_norm = length(o, dim);

    double most = out->host_lse;
    for (size_t i = 0; i < 2; i++) most = fmax(most, (double)unit->lse[i]);
    const double host = most > -HUGE_VAL ? exp(out->host_lse - most) : 0;
    for (size_t d = 0; d < dim; d++) o[d] *= host;
    all = host;
    for (size_t i = 0; i < 2; i++) {
        if (unit->lse[i] == -HUGE_VALF) continue;
        const double mass = exp((double)unit->lse[i] - most);
        add(o, mass, unit->o[i], NULL, dim);
        all += mass;
    }
    for (size_t d = 0; d < dim && most > -HUGE_VAL; d++) o[d] /= all;
    out->o_norm = length(o, dim);
}

/* ---- the best blocks, one after the other ------------------------------------------------------------------------ */

static bool before(const float *score, uint32_t a, uint32_t b)
{
    return score[a] > score[b] || (!(score[a] < score[b]) && a < b);
}

static void sink(const float *score, uint32_t *heap, size_t count, size_t at)
{
    const uint32_t block = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && before(score, heap[child + 1], heap[child]);
        if (!before(score, heap[child], block)) break;
        heap[at] = heap[child];
    }
    heap[at] = block;
}

static void heap_make(const float *score, uint32_t *heap, size_t count)
{
    for (size_t i = 0; i < count; i++) heap[i] = (uint32_t)i;
    for (size_t i = count / 2; i-- > 0;) sink(score, heap, count, i);
}

/* the best of `count`, of which count - 1 are left */
static uint32_t heap_take(const float *score, uint32_t *heap, size_t count)
{
    const uint32_t best = heap[0];
    heap[0] = heap[count - 1];
    sink(score, heap, count - 1, 0);
    return best;
}

/* ---- the least budgets ------------------------------------------------------------------------------------------- */

/* Of the keys that are used: their mass, as exp(score - level), and the sum of mass times (v - o), which the length of
 * o(m) - o is of the mass. */
struct used {
    double mass, *left;
};
/* What is enough: the mass at least, or the error at most. */
struct enough {
    double mass, error;
};

static bool is_enough(const struct ha_labels *l, const struct used *u, const struct enough *e)
{
    if (l->criterion == HA_CRITERION_SCORE) return u->mass >= e->mass;
    return u->mass > 0 && length(u->left, l->shape->head_dim) <= e->error * u->mass;
}

/* The device's keys: their mass beside `level`, and whether they are enough, which does not hang on how much that is.
 */
static bool device_keys(const struct ha_labels *l, const struct ha_label_unit *unit, const double *o, double level,
                        const struct enough *e, struct used *u)
{
    const size_t dim = l->shape->head_dim;
    const double own = (double)fmaxf(unit->lse[0], unit->lse[1]);
    double sum = 0;
    u->mass = 0;
    for (size_t d = 0; d < dim; d++) u->left[d] = own > -HUGE_VAL ? 0 : -o[d];
    for (size_t i = 0; i < 2; i++) {
        if (unit->lse[i] == -HUGE_VALF) continue;
        const double mass = exp((double)unit->lse[i] - own);
        add(u->left, mass, unit->o[i], o, dim);
        sum += mass;
    }
    const double shift = exp(own - level);
    u->mass = sum * shift;
    const bool met = l->criterion == HA_CRITERION_SCORE ? u->mass >= e->mass
                                                        : length(u->left, dim) <= e->error * (sum > 0 ? sum : 1);
    for (size_t d = 0; d < dim; d++) u->left[d] = sum > 0 ? u->left[d] * shift : 0;
    return met;
}

/* w->score becomes that of the blocks */
static size_t score_blocks(const struct ha_labels *l, const struct ha_label_work *w, const struct ha_label_unit *unit,
                           size_t size)
{
    const size_t dim = l->shape->head_dim, blocks = unit->host.keys / ha_label_size(size);
    if (size == 0) score_keys(l, w, unit);
    else
        l->kernels->digest_score(&(struct ha_digest_score){ .q = unit->q,
                                                            .q_rows = 1,
                                                            .q_stride = dim,
                                                            .head_dim = dim,
                                                            .digests = unit->digest[size],
                                                            .blocks = blocks,
                                                            .dtype = l->shape->dtype,
                                                            .scale = l->shape->scale,
                                                            .s = w->score,
                                                            .s_stride = blocks });
    return blocks;
}

/* Blocks, the best first, until they are enough. They are as soon as all are used. */
static size_t least_blocks(const struct ha_labels *l, const struct ha_label_work *w, const struct ha_label_unit *unit,
                           size_t size, const double *o, const struct enough *e, struct used *u)
{
    const size_t blocks = score_blocks(l, w, unit, size), keys = ha_label_size(size);
    heap_make(w->score, w->heap, blocks);
    for (size_t m = 1; m < blocks; m++) {
        const size_t first = heap_take(w->score, w->heap, blocks - m + 1) * keys;
        for (size_t i = first; i < first + keys; i++) {
            add(u->left, w->weight[i], value(l, w, unit, i), o, l->shape->head_dim);
            u->mass += w->weight[i];
        }
        if (is_enough(l, u, e)) return m;
    }
    return blocks;
}

/* bgt0, k, r2 and streaming */
static void draw_line(struct ha_label *out)
{
    const double bgt0 = (double)out->budget[0];
    double products = 0, squares = 0, mean = 0, left = 0, all = 0;
    for (size_t i = 0; i < HA_LABEL_SIZES; i++) {
        const double x = log2((double)ha_label_size(i));
        products += x * ((double)out->budget[i] - bgt0);
        squares += x * x;
        mean += (double)out->budget[i] / HA_LABEL_SIZES;
    }
    const double k = products / squares;
    for (size_t i = 0; i < HA_LABEL_SIZES; i++) {
        const double y = (double)out->budget[i], off = y - bgt0 - k * log2((double)ha_label_size(i));
        left += off * off;
        all += (y - mean) * (y - mean);
    }
    bool same = true;
    for (size_t i = 1; i < HA_LABEL_SIZES; i++) same = same && out->budget[i] == out->budget[0];
    out->bgt0 = out->budget[0];
    out->k = (float)k;
    out->r2 = same ? NAN : (float)(1 - left / all);
    out->streaming = out->bgt0 == 0;
}

void ha_label_find(const struct ha_labels *l, size_t worker, const struct ha_label_unit *unit, const double *o,
                   double most, struct ha_label *out)
{
    const struct ha_label_work *w = &l->work[worker];
    const size_t keys = unit->host.keys;
    const double of = l->criterion == HA_CRITERION_OUTPUT ? out->o_norm : most;
    double level = score_keys(l, w, unit), all = 0;
    for (size_t i = 0; i < 2; i++) level = fmax(level, (double)unit->lse[i]);
    for (size_t i = 0; i < keys; i++) all += w->weight[i] = exp((double)w->score[i] - level);
    for (size_t i = 0; i < 2; i++) all += unit->lse[i] > -HUGE_VALF ? exp((double)unit->lse[i] - level) : 0;
    const struct enough enough = { .mass = MASS * all, .error = l->tau * of };
    for (size_t i = 0; i < HA_LABEL_SIZES; i++) {
        struct used used = { .left = w->left };
        size_t m = 0;
        if (keys && !device_keys(l, unit, o, level, &enough, &used)) m = least_blocks(l, w, unit, i, o, &enough, &used);
        out->budget[i] = keys ? (float)((double)m / (double)(keys / ha_label_size(i))) : 0;
    }
    draw_line(out);
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

struct run {
    const struct ha_labels *l;
    const struct ha_label_unit *unit;
    size_t heads;
    struct ha_label *out;
};

static void attend_task(void *arg, size_t i, size_t worker)
{
    const struct run *r = arg;
    ha_label_attend(r->l, worker, &r->unit[i], r->l->o + i * r->l->shape->head_dim, &r->out[i]);
}

static void find_task(void *arg, size_t i, size_t worker)
{
    const struct run *r = arg;
    ha_label_find(r->l, worker, &r->unit[i], r->l->o + i * r->l->shape->head_dim, r->l->most[i / r->heads], &r->out[i]);
}

void ha_labels_run(const struct ha_labels *l, const struct ha_label_unit *unit, size_t groups, size_t heads,
                   struct ha_label *out)
{
    struct run r = { l, unit, heads, out };
    ha_pool_run(l->pool, "labels", groups * heads, attend_task, &r);
    for (size_t g = 0; g < groups; g++) {
        l->most[g] = 0;
        for (size_t h = 0; h < heads; h++) l->most[g] = fmax(l->most[g], out[g * heads + h].o_norm);
    }
    ha_pool_run(l->pool, "labels", groups * heads, find_task, &r);
}
