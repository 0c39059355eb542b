#include "suites/variants/session.h"

#include "harness/base/arena.h"
#include "harness/base/numeric.h"
#include "harness/base/pool.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_TOKENS = 1024, LINE = 256 };

static size_t longest(const struct ha_shape *s)
{
    size_t most = 0;
    for (size_t b = 0; b < s->batch; b++)
        if (s->ctx[b] > most) most = s->ctx[b];
    return most;
}

size_t ha_workload_observed(const struct ha_workload *w, size_t b)
{
    return w->shape.observed < w->shape.ctx[b] ? w->shape.observed : w->shape.ctx[b];
}

static size_t row_bytes(const struct ha_workload *w) { return w->shape.head_dim * ha_dtype_bytes(w->shape.dtype); }

static enum ha_status open_source(struct ha_workload *w, const struct ha_case *c, struct ha_why *why)
{
    const char *file = NULL;
    const struct ha_shape *s = &w->shape;
    w->dataset = ha_case_dataset(c, &file);
    if (!w->dataset) return ha_why(why, HA_ERROR, "dataset '%s': there is none of this name", c->dataset);
    w->cap = longest(&c->shape) + c->shape.steps * c->shape.q_len;
    HA_TRY(w->dataset->open(w->dataset, &w->source, &w->shape, w->cap, c->seed, file, why));
    if (!s->layers || !s->batch || !s->kv_heads || !s->head_dim || !s->q_heads || s->q_heads % s->kv_heads || !s->q_len
        || !s->steps)
        return ha_why(why, HA_ERROR,
                      "dataset '%s' leaves the shape open (layers %zu, batch %zu, heads %zu/%zu, head_dim %zu)",
                      c->dataset, s->layers, s->batch, s->q_heads, s->kv_heads, s->head_dim);
    w->cap = longest(s) + s->steps * s->q_len;
    if (!s->model_dim || !w->dataset->input) return HA_OK;
    w->projection = calloc(s->layers, sizeof *w->projection);
    if (!w->projection) return ha_why(why, HA_ERROR, "no memory");
    for (size_t layer = 0; layer < s->layers; layer++) w->projection[layer] = w->dataset->projection(w->source, layer);
    return HA_OK;
}

enum ha_status ha_workload_open(struct ha_workload **workload, const struct ha_case *c, struct ha_why *why)
{
    struct ha_workload *w = *workload = calloc(1, sizeof *w);
    if (!w) return ha_why(why, HA_ERROR, "no memory");
    w->shape = w->asked = c->shape;
    w->seed = c->seed;
    snprintf(w->name, sizeof w->name, "%s", c->dataset);
    enum ha_status status = open_source(w, c, why);
    if (status == HA_OK) return HA_OK;
    ha_workload_close(w);
    *workload = NULL;
    return status;
}

bool ha_workload_serves(const struct ha_workload *w, const struct ha_case *c)
{
    return w->seed == c->seed && !strcmp(w->name, c->dataset) && !memcmp(&w->asked, &c->shape, sizeof w->asked);
}

void ha_workload_close(struct ha_workload *w)
{
    if (!w) return;
    ha_arena_destroy(w->arena);
    free(w->projection);
    if (w->source) w->dataset->close(w->source);
    free(w);
}

/* ---- K and V ------------------------------------------------------------------------- */

static size_t chunks(const struct ha_workload *w) { return (w->cap + CHUNK_TOKENS - 1) / CHUNK_TOKENS; }

static void fill_chunk(void *arg, size_t task, size_t worker)
{
    const struct ha_workload *w = arg;
    const struct ha_shape *s = &w->shape;
    size_t chunk = task % chunks(w), head = task / chunks(w) % s->kv_heads, i = task / chunks(w) / s->kv_heads;
    size_t seq = i % s->batch, layer = i / s->batch, first = chunk * CHUNK_TOKENS;
    size_t tokens = s->ctx[seq] + s->steps * s->q_len, count = tokens > first ? tokens - first : 0;
    size_t at = (head * w->cap + first) * row_bytes(w);
    if (count > CHUNK_TOKENS) count = CHUNK_TOKENS;
    if (count)
        w->dataset->kv(w->source, seq, layer, head, first, count, (unsigned char *)w->k[i] + at,
                       (unsigned char *)w->v[i] + at);
}

static void fill_queries(void *arg, size_t task, size_t worker)
{
    const struct ha_workload *w = arg;
    const struct ha_shape *s = &w->shape;
    size_t head = task % s->q_heads, i = task / s->q_heads, seq = i % s->batch, count = ha_workload_observed(w, seq);
    for (size_t t = 0; t < count; t++)
        w->dataset->query(w->source, seq, i / s->batch, head, s->ctx[seq] - count + t,
                          w->q[i] + (t * s->q_heads + head) * s->head_dim);
}

static enum ha_status make_room(struct ha_workload *w, struct ha_why *why)
{
    const struct ha_shape *s = &w->shape;
    size_t n = s->layers * s->batch, bytes = s->kv_heads * w->cap * row_bytes(w);
    w->k = ha_alloc(w->arena, n * sizeof *w->k, HA_TAG_META, why);
    w->v = ha_alloc(w->arena, n * sizeof *w->v, HA_TAG_META, why);
    w->q = ha_alloc(w->arena, n * sizeof *w->q, HA_TAG_META, why);
    if (!w->k || !w->v || !w->q) return HA_ERROR;
    for (size_t i = 0; i < n; i++) {
        w->k[i] = ha_alloc(w->arena, bytes, HA_TAG_KV, why);
        w->v[i] = ha_alloc(w->arena, bytes, HA_TAG_KV, why);
        w->q[i] = ha_alloc(w->arena, ha_workload_observed(w, i % s->batch) * s->q_heads * s->head_dim * sizeof(float),
                           HA_TAG_KV, why);
        if (!w->k[i] || !w->v[i] || !w->q[i]) return HA_ERROR;
    }
    return HA_OK;
}

enum ha_status ha_workload_fill(struct ha_workload *w, struct ha_pool *pool, struct ha_why *why)
{
    const struct ha_shape *s = &w->shape;
    size_t n = s->layers * s->batch;
    if (w->arena) return HA_OK;
    if (w->dataset->prepare) HA_TRY(w->dataset->prepare(w->source, why));
    HA_TRY(ha_arena_create(&w->arena, false, why));
    const enum ha_status status = make_room(w, why);
    if (status != HA_OK) {
        ha_arena_destroy(w->arena);
        w->arena = NULL;
        return status;
    }
    ha_pool_run(pool, "generate", n * s->kv_heads * chunks(w), fill_chunk, w);
    ha_pool_run(pool, "queries", n * s->q_heads, fill_queries, w);
    return HA_OK;
}

size_t ha_workload_tokens(const struct ha_workload *w, size_t b, size_t step)
{
    return w->shape.ctx[b] + step * w->shape.q_len;
}

struct ha_prefill ha_workload_prefill(const struct ha_workload *w, size_t layer)
{
    size_t first = layer * w->shape.batch;
    return (struct ha_prefill){ .k = (const void *const *)(w->k + first),
                                .v = (const void *const *)(w->v + first),
                                .cap = w->cap,
                                .q = (const float *const *)(w->q + first) };
}

/* ---- the turns of a workload ------------------------------------------------------------------------------------- */

enum part { QUERY, KEY, VALUE, PARTS };

/* q and x of a token have one, whatever the layer: what is projected from x stays what it was beside q. */
static float factor(const struct ha_workload *w, enum part part, size_t b, size_t token)
{
    return w->turn ? 1 - ha_rng_uniform(w->turn, b * PARTS + part, token) / 32 : 1;
}

static void scale_rows(const struct ha_workload *w, enum part part, size_t b, size_t first, size_t count, void *rows)
{
    const struct ha_shape *s = &w->shape;
    for (size_t t = 0; t < count; t++)
        for (size_t i = t * s->head_dim; i < (t + 1) * s->head_dim; i++)
            ha_store(rows, i, s->dtype, ha_load(rows, i, s->dtype) * factor(w, part, b, first + t));
}

static void turn_head(void *arg, size_t task, size_t worker)
{
    const struct ha_workload *w = arg;
    const struct ha_shape *s = &w->shape;
    const size_t head = task % s->kv_heads, i = task / s->kv_heads, b = i % s->batch, first = s->ctx[b],
                 count = s->steps * s->q_len, at = (head * w->cap + first) * row_bytes(w);
    unsigned char *k = (unsigned char *)w->k[i] + at, *v = (unsigned char *)w->v[i] + at;
    w->dataset->kv(w->source, b, i / s->batch, head, first, count, k, v);
    if (!w->turn) return;
    scale_rows(w, KEY, b, first, count, k);
    scale_rows(w, VALUE, b, first, count, v);
}

void ha_workload_turn(struct ha_workload *w, uint64_t turn, struct ha_pool *pool)
{
    if (w->turn == turn) return;
    w->turn = turn;
    ha_pool_run(pool, "inputs", w->shape.layers * w->shape.batch * w->shape.kv_heads, turn_head, w);
}

/* ---- the inputs of a step ----------------------------------------------------------------- */

static size_t place(size_t *at, size_t bytes)
{
    size_t here = *at;
    *at = (here + bytes + LINE - 1) / LINE * LINE;
    return here;
}

struct ha_io ha_workload_io(const struct ha_workload *w)
{
    const struct ha_shape *s = &w->shape;
    size_t rows = s->batch * s->q_len;
    struct ha_io io = { .has_x = w->projection != NULL };
    io.q = place(&io.in_bytes, rows * s->q_heads * s->head_dim * sizeof(float));
    io.k = place(&io.in_bytes, rows * s->kv_heads * row_bytes(w));
    io.v = place(&io.in_bytes, rows * s->kv_heads * row_bytes(w));
    io.x = place(&io.in_bytes, io.has_x ? rows * s->model_dim * sizeof(float) : 0);
    io.o = place(&io.out_bytes, rows * s->q_heads * s->head_dim * sizeof(float));
    io.lse = place(&io.out_bytes, rows * s->q_heads * sizeof(float));
    return io;
}

struct inputs {
    const struct ha_workload *w;
    const struct ha_io *io;
    size_t step;
    unsigned char *blocks;
};

/* Queries are exact in the type of K and V. */
static void scale(const struct ha_workload *w, float by, float *x, size_t n)
{
    float exact;
    for (size_t i = 0; i < n && by < 1; i++) {
        ha_store(&exact, 0, w->shape.dtype, x[i] * by);
        x[i] = ha_load(&exact, 0, w->shape.dtype);
    }
}

static void inputs_task(void *arg, size_t layer, size_t worker)
{
    const struct inputs *in = arg;
    const struct ha_workload *w = in->w;
    const struct ha_io *io = in->io;
    const struct ha_shape *s = &w->shape;
    size_t row = row_bytes(w);
    unsigned char *block = in->blocks + layer * io->in_bytes;
    float *q = (float *)(void *)(block + io->q), *x = (float *)(void *)(block + io->x);
    for (size_t b = 0; b < s->batch; b++)
        for (size_t t = 0; t < s->q_len; t++) {
            size_t token = ha_workload_tokens(w, b, in->step) + t, at = b * s->q_len + t;
            const unsigned char *k = w->k[layer * s->batch + b], *v = w->v[layer * s->batch + b];
            for (size_t h = 0; h < s->q_heads; h++)
                w->dataset->query(w->source, b, layer, h, token, q + (at * s->q_heads + h) * s->head_dim);
            scale(w, factor(w, QUERY, b, token), q + at * s->q_heads * s->head_dim, s->q_heads * s->head_dim);
            for (size_t h = 0; h < s->kv_heads; h++) {
                memcpy(block + io->k + (at * s->kv_heads + h) * row, k + (h * w->cap + token) * row, row);
                memcpy(block + io->v + (at * s->kv_heads + h) * row, v + (h * w->cap + token) * row, row);
            }
            if (!io->has_x) continue;
            w->dataset->input(w->source, b, layer, token, x + at * s->model_dim);
            scale(w, factor(w, QUERY, b, token), x + at * s->model_dim, s->model_dim);
        }
}

/* K and V that a step appends to a layer, from the dataset, where they were not known before. */
static void take_new(const struct ha_workload *w, size_t step, size_t layer)
{
    const struct ha_shape *s = &w->shape;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->kv_heads; h++) {
            const size_t token = ha_workload_tokens(w, b, step), at = (h * w->cap + token) * row_bytes(w);
            w->dataset->kv(w->source, b, layer, h, token, s->q_len, (unsigned char *)w->k[layer * s->batch + b] + at,
                           (unsigned char *)w->v[layer * s->batch + b] + at);
        }
}

void ha_workload_layer(const struct ha_workload *w, size_t step, size_t layer, const struct ha_io *io,
                       unsigned char *blocks)
{
    take_new(w, step, layer);
    inputs_task(&(struct inputs){ w, io, step, blocks }, layer, 0);
}

void ha_workload_follow(const struct ha_workload *w, size_t step, size_t layer, const float *o)
{
    const struct ha_shape *s = &w->shape;
    for (size_t b = 0; b < s->batch; b++)
        w->dataset->follow(w->source, b, layer, step, o + b * s->q_len * s->q_heads * s->head_dim);
}

void ha_workload_step(const struct ha_workload *w, size_t step, struct ha_pool *pool, const struct ha_io *io,
                      unsigned char *blocks)
{
    ha_pool_run(pool, "inputs", w->shape.layers, inputs_task, &(struct inputs){ w, io, step, blocks });
}
