#include "kernels/c/ops.h"

#include "harness/base/numeric.h"
#include "kernels/packed.h"

#include <math.h>

/* A tile converted to binary32: keys as columns of K, as rows of V. What is no key is not looked at. */
struct tile {
    size_t first[2], end[2]; /* of each half, among the 32 */
    float k[HA_PACK_DIM_MAX][HA_PACK_KEYS], v[HA_PACK_KEYS][HA_PACK_DIM_MAX];
};

static void tile_load(struct tile *tile, const struct ha_packed_tile *from, size_t dim, enum ha_dtype t)
{
    for (size_t h = 0; h < 2; h++) {
        const struct ha_packed_half *half = &from->half[h];
        tile->first[h] = h * HA_PACK_HALF;
        tile->end[h] = tile->first[h] + (h < from->halves ? half->keys : 0);
        for (size_t j = tile->first[h]; j < tile->first[h] + HA_PACK_HALF; j++) {
            const size_t key = half->first + (j - tile->first[h]);
            for (size_t d = 0; d < dim; d++) {
                tile->k[d][j] = j < tile->end[h] ? ha_load(half->block, ha_packed_k(key, d, t), t) : 0;
                tile->v[j][d] = j < tile->end[h] ? ha_load(half->block, ha_packed_v(dim, key, d, t), t) : 0;
            }
        }
    }
}

/* partial sums over 32 elements start at 0 */
static void scores(const struct tile *tile, const float *q, size_t dim, float *s)
{
    for (size_t j = 0; j < HA_PACK_KEYS; j++) s[j] = 0;
    for (size_t d = 0; d < dim; d += 32) {
        float part[HA_PACK_KEYS] = { 0 };
        for (size_t i = d; i < ha_least(d + 32, dim); i++)
            for (size_t j = 0; j < HA_PACK_KEYS; j++) part[j] += q[i] * tile->k[i][j];
        for (size_t j = 0; j < HA_PACK_KEYS; j++) s[j] += part[j];
    }
}

/* The row's level after these scores, and what its sums are scaled by. */
static float raise(const struct tile *tile, const float *s, float *level)
{
    float m = -INFINITY;
    bool nan = false;
    for (size_t h = 0; h < 2; h++)
        for (size_t j = tile->first[h]; j < tile->end[h]; j++) {
            m = s[j] > m ? s[j] : m;
            nan |= isnan(s[j]);
        }
    if (nan && m == -INFINITY) m = 0;
    if (m <= *level + 8) return 1;
    const float before = *level;
    *level = rintf(m);
    return exp2f(before - *level);
}

static void scale(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++) x[i] *= by;
}

/* one row over one tile; returns the keys */
static size_t attend_tile(const struct ha_packed_chunk *c, const struct tile *tile, size_t r, const float *q, size_t at)
{
    float s[HA_PACK_KEYS], part[HA_PACK_DIM_MAX] = { 0 }, sum = 0, *acc = c->acc + r * c->head_dim;
    float *weights = c->weights ? c->weights + r * c->weights_stride : NULL;
    scores(tile, q, c->head_dim, s);
    const float by = raise(tile, s, &c->level[r]), level = c->level[r] == -INFINITY ? 0 : c->level[r];
    if (by != 1) {
        c->sum[r] *= by;
        scale(acc, c->head_dim, by);
        if (weights) scale(weights, at, by);
    }
    const size_t before = at;
    for (size_t h = 0; h < 2; h++)
        for (size_t j = tile->first[h]; j < tile->end[h]; j++) {
            const float w = exp2f(s[j] - level);
            sum += w;
            for (size_t d = 0; d < c->head_dim; d++) part[d] += w * tile->v[j][d];
            if (weights) weights[at] = w;
            at++;
        }
    c->sum[r] += sum;
    for (size_t d = 0; d < c->head_dim; d++) acc[d] += part[d];
    return at - before;
}

static void attend_packed(const struct ha_packed_chunk *c, enum ha_dtype t)
{
    const size_t dim = c->head_dim;
    float *q = c->scratch;
    struct tile *tile = (void *)(q + HA_CHUNK_ROWS * HA_PACK_DIM_MAX); /* too large for a thread's stack */
    _Static_assert(HA_CHUNK_ROWS * HA_PACK_DIM_MAX * sizeof *q + sizeof *tile <= HA_PACKED_SCRATCH, "room for both");
    for (size_t r = 0; r < c->q_rows; r++) {
        for (size_t d = 0; d < dim; d++) q[r * dim + d] = ha_query_log2(c->q[r * c->q_stride + d], c->scale);
        c->level[r] = -INFINITY;
        c->sum[r] = 0;
    }
    memset(c->acc, 0, c->q_rows * dim * sizeof *c->acc);

    struct ha_packed_walk walk = ha_packed_start(&c->packed, c->first, c->keys, dim, t);
    size_t at = 0, keys = 0;
    for (struct ha_packed_tile next; (next = ha_packed_next(&walk)).halves > 0; at += keys) {
        tile_load(tile, &next, dim, t);
        for (size_t r = 0; r < c->q_rows; r++) keys = attend_tile(c, tile, r, q + r * dim, at);
    }

    /* of keys whose scores are all -inf, nothing */
    for (size_t r = 0; r < c->q_rows; r++)
        if (c->level[r] == -INFINITY) memset(c->acc + r * dim, 0, dim * sizeof *c->acc);
}

void ha_c_attend_packed_f32(const struct ha_packed_chunk *c) { attend_packed(c, HA_F32); }
void ha_c_attend_packed_f16(const struct ha_packed_chunk *c) { attend_packed(c, HA_F16); }
void ha_c_attend_packed_bf16(const struct ha_packed_chunk *c) { attend_packed(c, HA_BF16); }
