#include "suites/block_sparse/skew.h"

#include "harness/base/arena.h"
#include "harness/base/blas.h"
#include "harness/base/device_arena.h"
#include "harness/base/order.h"
#include "harness/base/pool.h"
#include "harness/base/why.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { STAGE = 1024 }; /* tokens */

size_t ha_skew_columns(size_t head_dim, double share)
{
    const size_t columns = (size_t)ceil(share * (double)head_dim);
    return ha_least(ha_most(columns, 1), head_dim);
}

static size_t observed(const struct ha_shape *s, size_t b) { return ha_least(s->observed, s->ctx[b]); }

/* The thin decomposition of [rows][head_dim], which column-major is [head_dim][rows]: its left vectors are the right
 * ones of the rows, and head_dim of them where there are no fewer rows. */
static int decompose(struct ha_skew_work *w, size_t dim, size_t rows, double *vectors, int lwork)
{
    const int m = (int)dim, n = (int)rows;
    int info = 0;
    ha_blas()->dgesdd("S", &m, &n, w->q, &m, w->singular, vectors, &m, w->vt, &m, w->work, &lwork, w->iwork, &info, 1);
    return info;
}

static enum ha_status make_work(const struct ha_skew *skew, struct ha_skew_work *w, struct ha_why *why)
{
    const size_t dim = skew->ctx->shape->head_dim;
    const struct {
        double **at;
        size_t count;
    } part[] = { { &w->q, skew->rows_max * dim },
                 { &w->singular, dim },
                 { &w->vt, skew->rows_max * dim },
                 { &w->work, (size_t)skew->lwork },
                 { &w->sum, dim } };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        *part[i].at = ha_alloc(skew->ctx->arena, part[i].count * sizeof(double), HA_TAG_SCRATCH, why);
        if (!*part[i].at) return HA_ERROR;
    }
    w->a = ha_alloc(skew->ctx->arena, dim * dim * sizeof *w->a, HA_TAG_SCRATCH, why);
    w->iwork = w->a ? ha_alloc(skew->ctx->arena, 8 * dim * sizeof *w->iwork, HA_TAG_SCRATCH, why) : NULL;
    return w->iwork ? HA_OK : HA_ERROR;
}

static size_t kept_bytes(const struct ha_skew *skew)
{
    const struct ha_shape *s = skew->ctx->shape;
    return s->kv_heads * skew->columns * s->head_dim * sizeof(float);
}

static enum ha_status make_layers(struct ha_skew *skew, struct ha_why *why)
{
    const struct ha_context *ctx = skew->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t numbers = s->kv_heads * ha_skew_numbers(s->head_dim, skew->columns) * sizeof(double);
    skew->layer = ha_alloc(ctx->arena, s->layers * sizeof *skew->layer, HA_TAG_SCRATCH, why);
    if (!skew->layer) return HA_ERROR;
    for (size_t i = 0; i < s->layers; i++) {
        struct ha_skew_layer *l = &skew->layer[i];
        const bool shares = i > 0 && !ctx->record_selection;
        l->a = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, kept_bytes(skew), HA_TAG_META, why);
        if (!l->a) return HA_ERROR;
        l->numbers = shares ? skew->layer->numbers : ha_alloc(ctx->arena, numbers, HA_TAG_SCRATCH, why);
        if (!l->numbers) return HA_ERROR;
    }
    skew->a = ha_device_alloc(ctx->device_arena, HA_MEM_PINNED, kept_bytes(skew), HA_TAG_SCRATCH, why);
    if (!skew->a) return HA_ERROR;
    skew->stage = ha_device_alloc(ctx->device_arena, HA_MEM_DEVICE, STAGE * ha_kv_token_bytes(s), HA_TAG_SCRATCH, why);
    return skew->stage ? HA_OK : HA_ERROR;
}

enum ha_status ha_skew_create(struct ha_skew *skew, const struct ha_context *ctx, size_t columns, struct ha_why *why)
{
    const struct ha_shape *s = ctx->shape;
    const size_t threads = ha_pool_threads(ctx->pool);
    size_t rows = 0;
    for (size_t b = 0; b < s->batch; b++) rows += observed(s, b) * ha_shape_group(s);
    *skew = (struct ha_skew){ .ctx = ctx, .columns = columns, .rows_max = ha_most(rows, s->head_dim), .lwork = 1 };
    if (rows) {
        double asked = 0;
        if (!ha_blas()->dgesdd) return ha_why(why, HA_WAIVED, "%s", ha_blas()->no_lapack);
        if (skew->rows_max * s->head_dim > INT_MAX)
            return ha_why(why, HA_ERROR, "%zu observed queries are beyond a LAPACK of 32-bit integers", rows);
        decompose(&(struct ha_skew_work){ .work = &asked }, s->head_dim, skew->rows_max, NULL, -1);
        skew->lwork = (int)asked;
    }
    skew->wrong = ha_alloc(ctx->arena, s->kv_heads * sizeof *skew->wrong, HA_TAG_SCRATCH, why);
    skew->work = skew->wrong ? ha_alloc(ctx->arena, threads * sizeof *skew->work, HA_TAG_SCRATCH, why) : NULL;
    if (!skew->work) return HA_ERROR;
    for (size_t i = 0; i < threads; i++) HA_TRY(make_work(skew, &skew->work[i], why));
    return make_layers(skew, why);
}

struct learning {
    struct ha_skew *skew;
    const struct ha_prefill *in;
    double *numbers;
};

/* Rows whose turned columns are summed: the queries of a head of a sequence, or its keys. */
static struct ha_rows queries_of(const struct learning *l, size_t b, size_t q_head)
{
    const struct ha_shape *s = l->skew->ctx->shape;
    return (struct ha_rows){ .k = l->in->q[b] + q_head * s->head_dim,
                             .k_stride_bytes = s->q_heads * s->head_dim * sizeof(float),
                             .keys = observed(s, b) };
}
static struct ha_rows keys_of(const struct learning *l, size_t b, size_t head)
{
    const struct ha_shape *s = l->skew->ctx->shape;
    const size_t row = s->head_dim * ha_dtype_bytes(s->dtype);
    return (struct ha_rows){ .k = (const unsigned char *)l->in->k[b] + head * l->in->cap * row,
                             .k_stride_bytes = row,
                             .keys = s->ctx[b] };
}

/* NULL, or why not. The observed queries of a KV head, one sequence and one query head after the other. */
static const char *turn_of(const struct learning *l, struct ha_skew_work *w, size_t head, double *turn)
{
    const struct ha_shape *s = l->skew->ctx->shape;
    const size_t group = ha_shape_group(s), dim = s->head_dim;
    size_t rows = 0;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t g = 0; g < group; g++) {
            const struct ha_rows of = queries_of(l, b, head * group + g);
            for (size_t t = 0; t < of.keys; t++, rows++) {
                const float *q = (const float *)of.k + t * s->q_heads * dim;
                for (size_t d = 0; d < dim; d++) {
                    if (!isfinite(q[d])) return "an observed query is not finite";
                    w->q[rows * dim + d] = (double)q[d];
                }
            }
        }
    if (!rows) {
        for (size_t i = 0; i < dim * dim; i++) turn[i] = i / dim == i % dim;
        return NULL;
    }
    /* rows of zeros change no vector, and there is one for each dimension then */
    for (; rows < dim; rows++) memset(w->q + rows * dim, 0, dim * sizeof *w->q);
    return decompose(w, dim, rows, turn, l->skew->lwork) ? "LAPACK found no singular vectors of the observed queries"
                                                         : NULL;
}

/* the magnitudes of column `column` of rows, turned */
static double magnitude(const struct ha_kernels *kernels, const float *column, size_t dim, struct ha_rows rows,
                        enum ha_dtype dtype)
{
    enum { AT_ONCE = 512 };
    float turned[AT_ONCE];
    double sum = 0;
    for (size_t left = rows.keys; left; left -= rows.keys) {
        rows.keys = ha_least(left, AT_ONCE);
        kernels->score(
            &(struct ha_score){ .q = column, .head_dim = dim, .rows = rows, .dtype = dtype, .scale = 1, .s = turned });
        for (size_t i = 0; i < rows.keys; i++) sum += (double)fabsf(turned[i]);
        rows.k = (const unsigned char *)rows.k + rows.keys * rows.k_stride_bytes;
    }
    return sum;
}

/* One KV head. */
static void learn(void *arg, size_t task, size_t worker)
{
    const struct learning *l = arg;
    const struct ha_context *ctx = l->skew->ctx;
    const struct ha_shape *s = ctx->shape;
    const size_t dim = s->head_dim, group = ha_shape_group(s), columns = l->skew->columns;
    struct ha_skew_work *w = &l->skew->work[worker];
    double *turn = l->numbers + task * ha_skew_numbers(dim, columns), *kept = turn + dim * dim;
    const char **wrong = &l->skew->wrong[task];
    *wrong = turn_of(l, w, task, turn);
    if (*wrong) return;
    for (size_t i = 0; i < dim * dim; i++) w->a[i] = (float)turn[i];
    for (size_t c = 0; c < dim; c++) {
        const float *column = w->a + c * dim;
        w->sum[c] = 0;
        for (size_t b = 0; b < s->batch; b++) {
            for (size_t g = 0; g < group; g++)
                w->sum[c] += magnitude(ctx->kernels, column, dim, queries_of(l, b, task * group + g), HA_F32);
            w->sum[c] += magnitude(ctx->kernels, column, dim, keys_of(l, b, task), s->dtype);
        }
        if (!isfinite(w->sum[c])) *wrong = "a key of the context is not finite, or turned it is not";
    }
    for (size_t c = 0, n = 0; c < dim && !*wrong; c++) {
        size_t before = 0;
        for (size_t i = 0; i < dim; i++) before += w->sum[i] > w->sum[c] || (w->sum[i] == w->sum[c] && i < c);
        if (before >= columns) continue;
        memcpy(l->skew->a + (task * columns + n) * dim, w->a + c * dim, dim * sizeof *w->a);
        kept[n++] = (double)c;
    }
}

enum ha_status ha_skew_learn(struct ha_skew *skew, size_t layer, const struct ha_prefill *in, struct ha_why *why)
{
    const struct ha_context *ctx = skew->ctx;
    const struct ha_skew_layer *l = &skew->layer[layer];
    HA_TRY(ctx->api->stream_sync(ctx->stream)); /* the layer before has left skew->a */
    ha_pool_run(ctx->pool, "skew", ctx->shape->kv_heads, learn, &(struct learning){ skew, in, l->numbers });
    for (size_t h = 0; h < ctx->shape->kv_heads; h++)
        if (skew->wrong[h])
            return ha_why(why, HA_ERROR, "%s layer %zu KV head %zu: %s", ctx->variant->name, layer, h, skew->wrong[h]);
    ha_order_thread_access("skew", "A", HA_WRITE, skew->a, 1, 0, kept_bytes(skew));
    return ctx->api->copy(ctx->stream, l->a, skew->a, kept_bytes(skew), HA_H2D);
}

/* ---- what is turned by it, and cut */

size_t ha_skew_keys_head_bytes(const struct ha_skew *skew)
{
    return skew->columns * ha_dtype_bytes(skew->ctx->shape->dtype);
}

static size_t token_bytes(const struct ha_skew *skew)
{
    return skew->ctx->shape->kv_heads * ha_skew_keys_head_bytes(skew);
}

enum ha_status ha_skew_keys_create(const struct ha_skew *skew, size_t cap, unsigned char **partial, struct ha_why *why)
{
    *partial = ha_device_alloc(skew->ctx->device_arena, HA_MEM_DEVICE, cap * token_bytes(skew), HA_TAG_META, why);
    return *partial ? HA_OK : HA_ERROR;
}

struct ha_rows ha_skew_keys(const struct ha_skew *skew, const unsigned char *partial, size_t tokens)
{
    return (struct ha_rows){ .k = partial, .k_stride_bytes = token_bytes(skew), .keys = tokens };
}

struct ha_device_columns_seq ha_skew_keys_from(const struct ha_skew *skew, const void *keys, size_t count,
                                               unsigned char *partial, size_t first)
{
    return (struct ha_device_columns_seq){ .x = keys,
                                           .y = partial + first * token_bytes(skew),
                                           .tokens = count,
                                           .y_token_stride = skew->ctx->shape->kv_heads * skew->columns,
                                           .y_head_stride = skew->columns };
}

struct ha_device_columns_seq ha_skew_queries_from(const struct ha_skew *skew, const float *q, size_t count, float *to)
{
    return (struct ha_device_columns_seq){ .x = q,
                                           .y = to,
                                           .tokens = count,
                                           .y_token_stride = skew->ctx->shape->q_heads * skew->columns,
                                           .y_head_stride = skew->columns };
}

enum ha_status ha_skew_cut(const struct ha_skew *skew, size_t layer, struct ha_stream *stream, size_t heads,
                           enum ha_dtype type, const struct ha_device_columns_seq *seqs, size_t batch)
{
    const struct ha_shape *s = skew->ctx->shape;
    return skew->ctx->api->columns(stream, &(struct ha_device_columns){ .batch = batch,
                                                                        .heads = heads,
                                                                        .kv_heads = s->kv_heads,
                                                                        .head_dim = s->head_dim,
                                                                        .columns = skew->columns,
                                                                        .x_type = type,
                                                                        .y_type = type,
                                                                        .a = skew->layer[layer].a,
                                                                        .seqs = seqs });
}

enum ha_status ha_skew_keys_load(struct ha_skew *skew, size_t layer, const struct ha_kv *store, size_t tokens,
                                 unsigned char *partial)
{
    const struct ha_context *ctx = skew->ctx;
    const struct ha_shape *s = ctx->shape;
    for (size_t first = 0, count; first < tokens; first += count) {
        count = ha_least(tokens - first, STAGE);
        HA_TRY(ctx->api->copy(ctx->stream, skew->stage, store->k + first * ha_kv_token_bytes(s),
                              count * ha_kv_token_bytes(s), HA_H2D));
        const struct ha_device_columns_seq some = ha_skew_keys_from(skew, skew->stage, count, partial, first);
        HA_TRY(ha_skew_cut(skew, layer, ctx->stream, s->kv_heads, s->dtype, &some, 1));
    }
    return HA_OK;
}
