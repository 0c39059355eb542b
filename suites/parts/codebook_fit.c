#include "suites/parts/codebook_fit.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <string.h>

/* A book to learn. */
struct task {
    double error, squares, variance; /* of its vectors */
    enum ha_status status;
    struct ha_why why;
};

struct learner {
    const struct ha_fit_input *in;
    const struct ha_codebook_learning *how;
    struct ha_pq pq;    /* without centroids */
    size_t keys, width; /* of a KV head, of all sequences; dimensions of a key that a book is for */
    struct task *task;  /* [layers][kv_heads][books] */
    float *centroids, *quant_error, *explained; /* as they are put */
};

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* The keys of a KV head, as far as a book is for them. key: [2][head_dim], as ha_codebooks_key wants it. */
static void load(const struct learner *l, size_t layer, size_t head, size_t book, float *key, float *x)
{
    const struct ha_shape *s = l->in->shape;
    const struct ha_prefill *from = &l->in->layer[layer];
    for (size_t b = 0; b < s->batch; b++)
        for (size_t token = 0; token < s->ctx[b]; token++, x += l->width) {
            ha_codebooks_key(&l->how->rule, l->in->projection, layer, s, from, b, head, token, key);
            memcpy(x, key + book * l->width, l->width * sizeof *x);
        }
}

/* Squares of all numbers, and of what they are away from the mean of their dimension. */
static void spread(const struct learner *l, const float *x, struct task *task)
{
    for (size_t d = 0; d < l->width; d++) {
        double sum = 0;
        for (size_t i = 0; i < l->keys; i++) sum += (double)x[i * l->width + d];
        const double mean = sum / (double)l->keys;
        for (size_t i = 0; i < l->keys; i++) {
            const double value = (double)x[i * l->width + d];
            task->squares += value * value;
            task->variance += (value - mean) * (value - mean);
        }
    }
}

/* ---- books ------------------------------------------------------------------------------------------------------- */

static enum ha_status learn(const struct learner *l, size_t i, struct task *task, float *x, struct ha_why *why)
{
    const size_t head = i / l->pq.books, kv_heads = l->in->shape->kv_heads;
    const struct ha_kmeans k = { .way = l->how->kmeans,
                                 .count = l->pq.count,
                                 .iterations = l->how->iterations,
                                 .batch = HA_KMEANS_BATCH,
                                 .seed = l->in->seed,
                                 .stream = i,
                                 .kernels = l->in->kernels,
                                 .arena = l->in->arena };
    struct ha_kmeans_result result;
    load(l, head / kv_heads, head % kv_heads, i % l->pq.books, x + l->keys * l->width, x);
    HA_TRY(ha_kmeans(&k, x, l->keys * (l->width / l->pq.dims), l->pq.dims, l->centroids + i * l->pq.dims * l->pq.count,
                     &result, why));
    task->error = result.objective;
    spread(l, x, task);
    return HA_OK;
}

static void learn_task(void *arg, size_t i, size_t worker)
{
    const struct learner *l = arg;
    struct task *task = &l->task[i];
    const size_t floats = l->keys * l->width + 2 * l->in->shape->head_dim;
    float *x = ha_alloc(l->in->arena, floats * sizeof *x, HA_TAG_SCRATCH, &task->why);
    *task = (struct task){ .status = HA_ERROR, .why = task->why };
    if (x) task->status = learn(l, i, task, x, &task->why);
    ha_free(l->in->arena, x);
}

/* Of all books of a KV head. */
static enum ha_status join(const struct learner *l, size_t head, struct ha_why *why)
{
    struct task all = { 0 };
    for (size_t book = 0; book < l->pq.books; book++) {
        const struct task *task = &l->task[head * l->pq.books + book];
        const size_t kv_heads = l->in->shape->kv_heads;
        if (task->status != HA_OK)
            return ha_why(why, task->status, "layer %zu, KV head %zu, book %zu: %.300s", head / kv_heads,
                          head % kv_heads, book, task->why.text);
        all.error += task->error;
        all.squares += task->squares;
        all.variance += task->variance;
    }
    l->quant_error[head] = all.squares > 0 ? (float)(all.error / all.squares) : 0;
    l->explained[head] = all.variance > 0 ? (float)(1 - all.error / all.variance) : 1;
    return HA_OK;
}

static enum ha_status refuse(const struct learner *l, struct ha_why *why)
{
    const struct ha_shape *s = l->in->shape;
    const size_t each = l->pq.books == 1 ? l->pq.groups : 1,
                 wanted = (HA_CODEBOOK_VECTORS_LEAST * l->pq.count + each - 1) / each;
    if (l->keys < wanted)
        return ha_why(why, HA_ERROR,
                      "c=%zu takes %zu keys at least, %d vectors for each centroid, and there are %zu: raise ctx, give "
                      "more texts (batch) or lower c",
                      l->pq.count, wanted, HA_CODEBOOK_VECTORS_LEAST, l->keys);
    return ha_codebooks_turned(&l->how->rule, l->in->projection, s->layers, why);
}

static enum ha_status make_rooms(struct learner *l, struct ha_why *why)
{
    struct ha_arena *arena = l->in->arena;
    const size_t heads = l->in->shape->layers * l->in->shape->kv_heads, floats = heads * ha_pq_book_floats(&l->pq);
    l->task = ha_alloc(arena, heads * l->pq.books * sizeof *l->task, HA_TAG_SCRATCH, why);
    l->centroids = l->task ? ha_alloc(arena, floats * sizeof *l->centroids, HA_TAG_SCRATCH, why) : NULL;
    l->quant_error = l->centroids ? ha_alloc(arena, heads * sizeof *l->quant_error, HA_TAG_SCRATCH, why) : NULL;
    l->explained = l->quant_error ? ha_alloc(arena, heads * sizeof *l->explained, HA_TAG_SCRATCH, why) : NULL;
    return l->explained ? HA_OK : HA_ERROR;
}

enum ha_status ha_codebook_fit(const struct ha_fit_input *in, struct ha_fit_writer *out,
                               const struct ha_codebook_learning *learning, struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    const size_t heads = s->layers * s->kv_heads;
    struct learner l = { .in = in, .how = learning };
    for (size_t b = 0; b < s->batch; b++) l.keys += s->ctx[b];
    HA_TRY(ha_codebooks_pq(&learning->rule, s, &l.pq, why));
    l.width = l.pq.books == 1 ? s->head_dim : l.pq.dims;
    HA_TRY(refuse(&l, why));
    HA_TRY(make_rooms(&l, why));
    ha_pool_run(in->pool, "books", heads * l.pq.books, learn_task, &l);
    for (size_t head = 0; head < heads; head++) HA_TRY(join(&l, head, why));
    const struct ha_tensor learnt[] = {
        { "centroids",
          HA_T_F32,
          5,
          { s->layers, s->kv_heads, l.pq.books, l.pq.dims, l.pq.count },
          .data = l.centroids },
        { "quant_error", HA_T_F32, 2, { s->layers, s->kv_heads }, .data = l.quant_error },
        { "explained", HA_T_F32, 2, { s->layers, s->kv_heads }, .data = l.explained },
    };
    for (size_t i = 0; i < sizeof learnt / sizeof *learnt; i++) HA_TRY(ha_fit_put(out, &learnt[i], why));
    return HA_OK;
}
