#include "suites/parts/codebook_fit.h"

#include "harness/base/arena.h"
#include "harness/base/fit.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rotate.h"
#include "harness/base/why.h"

struct learner {
    const struct ha_fit_input *in;
    const struct ha_codebook_learning *how;
    struct ha_pq pq; /* without centroids */
    size_t layer, head, keys;
    float *key;                                 /* [keys][head_dim] of a KV head, as they are coded */
    float *part;                                /* [keys][dims] of a group, where it has a book of its own */
    float *turn;                                /* [batch][head_dim] a token's row of the table of turns */
    float *centroids, *quant_error, *explained; /* as they are put */
};

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void turn_back(const struct ha_projection *p, const float *turn, float *key)
{
    const size_t pairs = p->rotary / 2, apart = p->adjacent ? 1 : pairs, step = p->adjacent ? 2 : 1;
    const float square = p->rope_scale * p->rope_scale;
    for (size_t j = 0; j < pairs; j++, turn += 2) {
        float *a = key + j * step, *b = a + apart;
        const float x = *a, y = *b;
        *a = (x * turn[0] + y * turn[1]) / square;
        *b = (y * turn[0] - x * turn[1]) / square;
    }
}

static void load_sequence(void *arg, size_t b, size_t worker)
{
    const struct learner *l = arg;
    const struct ha_shape *s = l->in->shape;
    const struct ha_prefill *from = &l->in->layer[l->layer];
    float *to = l->key, *turn = l->turn + b * s->head_dim;
    for (size_t i = 0; i < b; i++) to += s->ctx[i] * s->head_dim;
    const unsigned char *k = (const unsigned char *)from->k[b]
                             + l->head * from->cap * s->head_dim * ha_dtype_bytes(s->dtype);
    ha_load_row(k, s->ctx[b] * s->head_dim, s->dtype, to);
    if (l->how->rotary == HA_ROTARY_AFTER) return;
    for (size_t token = 0; token < s->ctx[b]; token++) {
        ha_rotate_turn(&l->in->projection[l->layer], token, turn);
        turn_back(&l->in->projection[l->layer], turn, to + token * s->head_dim);
    }
}

/* ---- a KV head --------------------------------------------------------------------------------------------------- */

/* Squares of all keys, and of what they are away from the mean. */
static void spread(const struct learner *l, double *squares, double *variance)
{
    const size_t dim = l->in->shape->head_dim;
    *squares = *variance = 0;
    for (size_t d = 0; d < dim; d++) {
        double sum = 0;
        for (size_t i = 0; i < l->keys; i++) sum += (double)l->key[i * dim + d];
        const double mean = sum / (double)l->keys;
        for (size_t i = 0; i < l->keys; i++) {
            const double x = (double)l->key[i * dim + d];
            *squares += x * x;
            *variance += (x - mean) * (x - mean);
        }
    }
}

static enum ha_status learn_head(struct learner *l, struct ha_why *why)
{
    const struct ha_shape *s = l->in->shape;
    const struct ha_pq *pq = &l->pq;
    const size_t at = l->layer * s->kv_heads + l->head;
    struct ha_kmeans k = { .way = l->how->kmeans,
                           .count = pq->count,
                           .iterations = l->how->iterations,
                           .batch = HA_KMEANS_BATCH,
                           .seed = l->in->seed,
                           .kernels = l->in->kernels,
                           .pool = l->in->pool,
                           .arena = l->in->arena };
    double error = 0, squares, variance;
    ha_pool_run(l->in->pool, "keys", s->batch, load_sequence, l);
    for (size_t book = 0; book < pq->books; book++) {
        struct ha_kmeans_result result;
        const bool own = pq->books > 1; /* else the keys' parts lie one behind the other */
        for (size_t i = 0; i < l->keys && own; i++)
            for (size_t d = 0; d < pq->dims; d++)
                l->part[i * pq->dims + d] = l->key[i * s->head_dim + book * pq->dims + d];
        k.stream = at * pq->books + book;
        HA_TRY(ha_kmeans(&k, own ? l->part : l->key, own ? l->keys : l->keys * pq->groups, pq->dims,
                         l->centroids + k.stream * pq->dims * pq->count, &result, why));
        error += result.objective;
    }
    spread(l, &squares, &variance);
    l->quant_error[at] = squares > 0 ? (float)(error / squares) : 0;
    l->explained[at] = variance > 0 ? (float)(1 - error / variance) : 1;
    return HA_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

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
    for (size_t i = 0; i < s->layers && l->how->rotary == HA_ROTARY_BEFORE; i++)
        if (!l->in->projection || !l->in->projection[i].inv_freq)
            return ha_why(why, HA_WAIVED, "rotary=before needs a dataset that says how its keys were turned");
    return HA_OK;
}

static enum ha_status make_rooms(struct learner *l, struct ha_why *why)
{
    const struct ha_shape *s = l->in->shape;
    const size_t heads = s->layers * s->kv_heads;
    const struct {
        float **at;
        size_t floats;
    } room[] = {
        { &l->key, l->keys * s->head_dim },   { &l->part, l->pq.books > 1 ? l->keys * l->pq.dims : 0 },
        { &l->turn, s->batch * s->head_dim }, { &l->centroids, heads * ha_pq_book_floats(&l->pq) },
        { &l->quant_error, heads },           { &l->explained, heads },
    };
    for (size_t i = 0; i < sizeof room / sizeof *room; i++)
        if (!(*room[i].at = ha_alloc(l->in->arena, room[i].floats * sizeof(float), HA_TAG_SCRATCH, why)))
            return HA_ERROR;
    return HA_OK;
}

enum ha_status ha_codebook_fit(const struct ha_fit_input *in, struct ha_fit_writer *out,
                               const struct ha_codebook_learning *learning, struct ha_why *why)
{
    const struct ha_shape *s = in->shape;
    struct learner l = { .in = in, .how = learning };
    for (size_t b = 0; b < s->batch; b++) l.keys += s->ctx[b];
    HA_TRY(ha_codebooks_pq(&learning->rule, s, &l.pq, why));
    HA_TRY(refuse(&l, why));
    HA_TRY(make_rooms(&l, why));
    for (l.layer = 0; l.layer < s->layers; l.layer++)
        for (l.head = 0; l.head < s->kv_heads; l.head++) {
            const enum ha_status status = learn_head(&l, why);
            if (status != HA_OK) return ha_why_prefix(why, status, "layer %zu, KV head %zu", l.layer, l.head);
        }
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
