#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

/* Query tokens are taken in blocks, so that K and V are read once for many query rows while the
 * weights of a chunk still fit into the cache. Where the caller wants the weights of several query
 * tokens, those of all keys are kept until the block's maxima are known. */
enum { BLOCK_ROWS = 64, KEPT_WEIGHTS = 1 << 20, ALIGN = 64 };

/* Rows of weights start in different cache sets. */
enum { PAD = 16 };

struct plan {
    size_t tokens, rows;        /* of a block */
    size_t keys, chunks;        /* over all runs */
    bool keep, direct;          /* weights of all keys, in scratch or where the caller wants them */
    size_t weights_stride;
};

static size_t chunks_of(size_t keys) { return (keys + HA_CHUNK_KEYS - 1) / HA_CHUNK_KEYS; }

static struct plan plan_of(const struct ha_attend *a)
{
    struct plan p = { 0 };
    for (size_t i = 0; i < a->runs_count; i++) {
        p.keys += a->runs[i].keys;
        p.chunks += chunks_of(a->runs[i].keys);
    }
    p.direct = a->weights && a->q_len == 1;
    p.keep = a->weights && !p.direct;
    p.weights_stride = p.direct ? a->weights_stride : (p.keep ? p.keys : HA_CHUNK_KEYS) + PAD;
    size_t rows = BLOCK_ROWS;
    if (p.keep) rows = ha_least(rows, KEPT_WEIGHTS / p.weights_stride);
    p.tokens = rows < 2 * a->group ? 1 : ha_least(rows / a->group, a->q_len);
    p.rows = p.tokens * a->group;
    return p;
}

/* The block's part of the scratch; [rows] each unless said otherwise. */
struct block {
    float *q;                   /* [rows][head_dim] */
    float *max, *sum, *acc;     /* of all chunks so far; acc [rows][head_dim] */
    float *chunk_max, *chunk_sum, *chunk_acc;  /* chunk_max [chunks][rows] where weights are wanted, else [1][rows] */
    float *weights;             /* [rows][weights_stride]; not with plan.direct */
    uint32_t *visible;
    size_t bytes;
};

static void *carve(char *scratch, size_t *bytes, size_t count, size_t size)
{
    void *at = scratch ? scratch + *bytes : NULL;
    *bytes += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static struct block block_of(const struct ha_attend *a, const struct plan *p, char *scratch)
{
    struct block b = { 0 };
    const size_t all = p->rows * a->head_dim, f = sizeof(float);
    b.q = carve(scratch, &b.bytes, all, f);
    b.max = carve(scratch, &b.bytes, p->rows, f);
    b.sum = carve(scratch, &b.bytes, p->rows, f);
    b.acc = carve(scratch, &b.bytes, all, f);
    b.chunk_max = carve(scratch, &b.bytes, p->rows * (a->weights && p->chunks > 0 ? p->chunks : 1), f);
    b.chunk_sum = carve(scratch, &b.bytes, p->rows, f);
    b.chunk_acc = carve(scratch, &b.bytes, all, f);
    b.visible = carve(scratch, &b.bytes, p->rows, sizeof(uint32_t));
    b.weights = carve(scratch, &b.bytes, p->direct ? 0 : p->rows * p->weights_stride, f);
    return b;
}

size_t ha_c_attend_scratch_bytes(const struct ha_attend *a)
{
    const struct plan p = plan_of(a);
    return block_of(a, &p, NULL).bytes;
}

/* acc = acc * x + part * y */
static void blend(float *restrict acc, const float *restrict part, size_t n, float x, float y)
{
    for (size_t i = 0; i < n; i++) acc[i] = acc[i] * x + part[i] * y;
}

/* The side with the smaller level is scaled by a power of two, the other multiplied by 1. Nothing is scaled while all
 * that came before is empty, because -inf - -inf is NaN; a NaN level is not empty and makes all NaN. */
static void join(const struct block *b, size_t r, size_t dim, float max)
{
    float *acc = b->acc + r * dim, *part = b->chunk_acc + r * dim;
    if (b->max[r] == -INFINITY) {
        b->max[r] = max;
        b->sum[r] = b->chunk_sum[r];
        memcpy(acc, part, dim * sizeof *acc);
        return;
    }
    const float top = max <= b->max[r] ? b->max[r] : isnan(b->max[r]) ? b->max[r] : max;
    const float x = b->max[r] == top ? 1 : exp2f(b->max[r] - top), y = max == top ? 1 : exp2f(max - top);
    blend(acc, part, dim, x, y);
    b->sum[r] = b->sum[r] * x + b->chunk_sum[r] * y;
    b->max[r] = top;
}

/* What each row of the block sees of keys [first, first + keys) of the last run; the largest. */
static size_t see(const struct ha_attend *a, const struct block *b, size_t token, size_t tokens, size_t run_keys, size_t first,
                  size_t keys)
{
    size_t most = 0;
    for (size_t t = 0; t < tokens; t++) {
        const size_t later = a->q_len - 1 - (token + t), end = run_keys > later ? run_keys - later : 0;
        const size_t sees = end > first ? ha_least(end - first, keys) : 0;
        for (size_t g = 0; g < a->group; g++) b->visible[t * a->group + g] = (uint32_t)sees;
        most = sees > most ? sees : most;
    }
    return most;
}

static void attend_block(const struct ha_kernels *self, const struct ha_attend *a, const struct plan *p, const struct block *b,
                         size_t token, size_t tokens)
{
    const size_t rows = tokens * a->group, dim = a->head_dim;
    for (size_t r = 0; r < rows; r++) {
        const size_t t = token + r / a->group, g = r % a->group;
        memcpy(b->q + r * dim, a->q + t * a->q_token_stride + g * a->q_head_stride, dim * sizeof *b->q);
        b->max[r] = -INFINITY;
        b->sum[r] = 0;
    }
    memset(b->acc, 0, rows * dim * sizeof *b->acc);

    size_t base = 0, chunk = 0;
    for (size_t i = 0; i < a->runs_count; i++) {
        const struct ha_rows *run = &a->runs[i];
        const bool masked = a->causal && i + 1 == a->runs_count;
        for (size_t first = 0; first < run->keys; first += HA_CHUNK_KEYS, chunk++) {
            const size_t keys = ha_least(HA_CHUNK_KEYS, run->keys - first);
            float *max = b->chunk_max + (a->weights ? chunk * p->rows : 0);
            float *weights = p->direct ? a->weights : b->weights;
            struct ha_chunk c = {
                .q = b->q, .q_rows = rows, .q_stride = dim, .head_dim = dim,
                .rows = *run, .block = a->block, .dtype = a->dtype, .scale = a->scale,
                .visible = masked ? b->visible : NULL,
                .weights = weights + (a->weights ? base + first : 0), .weights_stride = p->weights_stride,
                .level = max, .sum = b->chunk_sum, .acc = b->chunk_acc,
            };
            c.rows.keys = keys;
            if (run->index) {
                c.rows.index = run->index + first;
            } else {
                c.rows.k = (const char *)run->k + first * run->k_stride_bytes;
                c.rows.v = (const char *)run->v + first * run->v_stride_bytes;
            }
            if (masked && see(a, b, token, tokens, run->keys, first, keys) == 0) {
                for (size_t r = 0; r < rows; r++) max[r] = -INFINITY;
                continue;
            }
            self->attend_chunk(&c);
            for (size_t r = 0; r < rows; r++) join(b, r, dim, max[r]);
        }
        base += run->keys;
    }
}

static void put_output(const struct ha_attend *a, const struct block *b, size_t token, size_t tokens)
{
    const size_t dim = a->head_dim;
    for (size_t r = 0; r < tokens * a->group; r++) {
        const size_t t = token + r / a->group, g = r % a->group;
        float *o = a->o + t * a->q_token_stride + g * a->q_head_stride;
        const float *acc = b->acc + r * dim;
        const bool none = b->max[r] == -INFINITY;
        for (size_t i = 0; i < dim; i++) o[i] = none ? 0 : acc[i] / b->sum[r];
        a->lse[t * a->lse_token_stride + g * a->lse_head_stride] = none ? -INFINITY : (float)((double)b->max[r] * 0x1.62e42fefa39efp-1 + log((double)b->sum[r]));
    }
}

/* a chunk's weights to softmax weights over all keys, divided by q_len, and added up over the tokens */
static void put_weights(const struct ha_attend *a, const struct plan *p, const struct block *b, size_t tokens)
{
    const float *from = p->direct ? a->weights : b->weights;
    for (size_t r = 0; r < tokens * a->group; r++) {
        float *to = a->weights + r % a->group * a->weights_stride;
        const float *w = from + r * p->weights_stride;
        size_t chunk = 0;
        for (size_t i = 0; i < a->runs_count; i++)
            for (size_t first = 0; first < a->runs[i].keys; first += HA_CHUNK_KEYS, chunk++) {
                const size_t keys = ha_least(HA_CHUNK_KEYS, a->runs[i].keys - first);
                const float max = b->chunk_max[chunk * p->rows + r];
                const float x = max == b->max[r] ? 1 : exp2f(max - b->max[r]), n = b->sum[r] * (float)a->q_len;
                for (size_t j = 0; max != -INFINITY && j < keys; j++) {
                    const float share = w[j] * x / n;
                    to[j] = p->direct ? share : to[j] + share;
                }
                to += keys;
                w += keys;
            }
    }
}

void ha_c_attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    const struct plan p = plan_of(a);
    const struct block b = block_of(a, &p, a->scratch);
    for (size_t g = 0; p.keep && g < a->group; g++) memset(a->weights + g * a->weights_stride, 0, p.keys * sizeof *a->weights);
    for (size_t token = 0; token < a->q_len; token += p.tokens) {
        const size_t tokens = ha_least(p.tokens, a->q_len - token);
        attend_block(self, a, &p, &b, token, tokens);
        put_output(a, &b, token, tokens);
        if (a->weights) put_weights(a, &p, &b, tokens);
    }
}
