#include "kernels/amx/ops.h"

#if defined(HA_ISA_AMX)
#include "harness/base/numeric.h"
#include "kernels/amx/tile.h"
#include "kernels/avx512/simd.h"
#include "kernels/avx512_bf16/ops.h"

/* weights as pairs of bfloat16 */
#define V_DOT
static inline vec v_dot(vec x, vec y, vec a) { return _mm512_dpbf16_ps(a, (__m512bh)x, (__m512bh)y); }
static inline void v_dot_store(char *to, vec x)
{
    _mm256_storeu_si256((__m256i_u *)(void *)to, (__m256i)_mm512_cvtneps_pbh(x));
}

#include "kernels/attend_packed.inc"

/* With 16 query rows a tile of the products is full: pairs of bfloat16, as K and V are packed, are what tiles multiply.
 * Scores, weights and the walk are those of attend_packed.inc. With fewer rows the keys are what takes the time, and
 * avx512_bf16 reads them as fast.
 *
 * Queries that are no bfloat16 numbers are cut into three that are, 24 bits in all: nothing is rounded. */

enum { WIDE = 32, PARTS = 3 }; /* elements of a tile's row, keys of a block alike */

static const struct amx_config config = {
    .palette = 1,
    .bytes = { TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES },
    .rows = { TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS },
};

struct scratch {
    struct work work;
    uint16_t q[HA_CHUNK_ROWS
               * HA_PACK_DIM_MAX]; /* the third part of the queries; the others have the place of binary32 ones */
};
_Static_assert(sizeof(struct scratch) <= HA_PACKED_SCRATCH, "scratch");

struct amx {
    struct job job;
    size_t dim, rows, parts; /* of the queries, with zeros up to multiples of 32 and 16 */
    uint16_t *q[PARTS];      /* [rows][dim] */
    const char *k, *v;       /* of the block */
    char *k_end, *v_end;     /* what is behind the last whole tile of each, with zeros */
};

static uint16_t high_half(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

/* Truncated, so that none is infinite that was not. */
static void put_queries(struct amx *a)
{
    const struct ha_packed_chunk *c = a->job.c;
    uint32_t rest = 0;
    for (size_t p = 0; p < PARTS; p++) memset(a->q[p], 0, a->rows * a->dim * sizeof *a->q[p]);
    for (size_t r = 0; r < c->q_rows; r++)
        for (size_t d = 0; d < c->head_dim; d++) {
            float x = c->q[r * c->q_stride + d];
            for (size_t p = 0; p < PARTS; p++) {
                const uint16_t h = high_half(x);
                a->q[p][r * a->dim + d] = h;
                rest |= p > 0 ? h & 0x7fffu : 0;
                x -= ha_f32_from_bf16(h);
            }
        }
    a->parts = rest ? PARTS : 1;
}

/* A tile in one block, or made so. */
static void put_block(struct amx *a, struct ha_packed_tile *tile)
{
    const struct ha_packed *p = &a->job.c->packed;
    struct ha_packed_half *half = tile->half;
    char *spare = a->job.work->spare;
    const size_t dim = a->job.c->head_dim, size = ha_dtype_bytes(HA_BF16);
    const bool two = tile->halves == 2 && half[0].block == half[1].block && half[0].first == 0
                     && half[1].first == HA_PACK_HALF;
    /* the second half of the store's last block is zeros */
    const size_t last = (p->keys - 1) / HA_PACK_KEYS * ha_packed_block_bytes(dim, HA_BF16);
    const bool ends = p->keys % HA_PACK_KEYS > 0 && p->keys % HA_PACK_KEYS <= HA_PACK_HALF;
    const bool one = tile->halves == 1 && half[0].first == 0 && half[0].block == (const char *)p->blocks + last && ends;
    if (tile->halves == 1) half[1] = (struct ha_packed_half){ .block = half[0].block };
    const bool whole = (two && !half[0].cut && !half[1].cut) || (one && !half[0].cut);
    for (size_t h = 0; h < 2 && !whole; h++) ha_packed_whole(&half[h], h, spare, dim, HA_BF16);
    for (size_t h = 0; h < 2; h++) a->job.half[h].keys = half[h].keys;

    a->k = half[0].block;
    a->v = a->k + dim * HA_PACK_KEYS * size;
    memcpy(a->k_end, a->k + dim / WIDE * WIDE * HA_PACK_KEYS * size, dim % WIDE * HA_PACK_KEYS * size);
    const size_t panels = dim / HA_PACK_COLS * HA_PACK_COLS, row = (dim - panels) * 2 * size;
    for (size_t i = 0; i < HA_PACK_HALF; i++)
        memcpy(a->v_end + i * 2 * LINE, a->v + panels * HA_PACK_KEYS * size + i * row, row);
}

/* s of 16 or 32 query rows from r on: tiles 0 to 3 are [rows / 16][keys / 16] */
ALWAYS void tiles_scores(const struct amx *a, size_t r, bool both)
{
    amx_zero(0);
    amx_zero(1);
    if (both) {
        amx_zero(2);
        amx_zero(3);
    }
    const size_t stride = a->dim * sizeof *a->q[0];
    for (size_t d = 0; d < a->dim; d += WIDE) {
        const char *k = d + WIDE <= a->job.c->head_dim ? a->k + d / 2 * 2 * LINE : a->k_end;
        amx_load(6, k, 2 * LINE);
        amx_load(7, k + LINE, 2 * LINE);
        for (size_t p = a->parts; p-- > 0;) {
            const uint16_t *q = a->q[p] + r * a->dim + d;
            amx_load(4, q, stride);
            amx_dot(0, 4, 6);
            amx_dot(1, 4, 7);
            if (!both) continue;
            amx_load(5, q + TILE_ROWS * a->dim, stride);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        }
    }
    float *s = a->job.work->s + r * HA_PACK_KEYS;
    const size_t bytes = HA_PACK_KEYS * sizeof *s;
    amx_store(0, s, bytes);
    amx_store(1, s + HA_PACK_HALF, bytes);
    if (!both) return;
    amx_store(2, s + TILE_ROWS * HA_PACK_KEYS, bytes);
    amx_store(3, s + TILE_ROWS * HA_PACK_KEYS + HA_PACK_HALF, bytes);
}

/* A part of a query that is 0, or not a number, times an infinity: without the parts, then. */
static void mend(const struct amx *a, size_t r)
{
    const struct ha_packed_chunk *c = a->job.c;
    float *s = a->job.work->s + r * HA_PACK_KEYS;
    for (size_t j = 0; j < HA_PACK_KEYS; j++) {
        if (s[j] == s[j]) continue;
        s[j] = 0;
        for (size_t d = 0; d < c->head_dim; d += DOT_TERMS) {
            float part = 0;
            for (size_t i = d; i < ha_least(d + DOT_TERMS, c->head_dim); i++)
                part += c->q[r * c->q_stride + i] * ha_load(a->k, ha_packed_k(j, i, HA_BF16), HA_BF16);
            s[j] += part;
        }
    }
}

/* a panel of the sums, of 16 or 32 query rows; the weights are in tiles 4 and 5 */
ALWAYS void tiles_panel(const struct amx *a, size_t r, size_t d, bool both)
{
    const size_t bytes = ACC_STRIDE * sizeof(float), panel = HA_PACK_COLS * HA_PACK_KEYS * ha_dtype_bytes(HA_BF16);
    float *acc = a->job.work->acc + r * ACC_STRIDE + d, *more = acc + TILE_ROWS * ACC_STRIDE;
    const char *v = d + HA_PACK_COLS <= a->job.c->head_dim ? a->v + d / HA_PACK_COLS * panel : a->v_end;
    amx_load(6, v, 2 * LINE);
    amx_load(7, v + LINE, 2 * LINE);
    amx_load(0, acc, bytes);
    amx_load(1, acc + WIDE / 2, bytes);
    amx_dot(0, 4, 6);
    amx_dot(1, 4, 7);
    amx_store(0, acc, bytes);
    amx_store(1, acc + WIDE / 2, bytes);
    if (!both) return;
    amx_load(2, more, bytes);
    amx_dot(2, 5, 6);
    amx_store(2, more, bytes);
    amx_load(3, more + WIDE / 2, bytes);
    amx_dot(3, 5, 7);
    amx_store(3, more + WIDE / 2, bytes);
}

ALWAYS void tiles_weigh(const struct amx *a, size_t r, bool both)
{
    const float *w = a->job.work->w + r * HA_PACK_KEYS;
    const size_t bytes = HA_PACK_KEYS * sizeof *w, dim = a->job.c->head_dim;
    amx_load(4, w, bytes);
    if (both) amx_load(5, w + TILE_ROWS * HA_PACK_KEYS, bytes);
    for (size_t d = 0; d < dim; d += HA_PACK_COLS) tiles_panel(a, r, d, both);
}

#define FOR_ROWS(pass, a)                                   \
    for (size_t r = 0; r < (a)->rows; r += 2 * TILE_ROWS) { \
        if ((a)->rows - r > TILE_ROWS) pass(a, r, true);    \
        else pass(a, r, false);                             \
    }

static void start(struct amx *a)
{
    const struct ha_packed_chunk *c = a->job.c;
    struct scratch *scratch = c->scratch;
    struct work *work = a->job.work;
    char *behind = work->spare + ha_packed_block_bytes(c->head_dim, HA_BF16);
    const size_t k_bytes = WIDE * HA_PACK_KEYS * ha_dtype_bytes(HA_BF16), v_bytes = HA_PACK_HALF * 2 * LINE;
    a->q[0] = (uint16_t *)(void *)work->q;
    a->q[1] = a->q[0] + HA_CHUNK_ROWS * HA_PACK_DIM_MAX;
    a->q[2] = scratch->q;
    a->k_end = behind;
    a->v_end = behind + k_bytes;
    memset(behind, 0, k_bytes + v_bytes);
    memset(work->w, 0, a->rows * HA_PACK_KEYS * sizeof *work->w);
    no_sums(&a->job, a->rows);
    put_queries(a);
}

void HA_AMX(attend_packed_bf16)(const struct ha_packed_chunk *c)
{
    if (c->q_rows < TILE_ROWS) {
        ha_avx512_bf16_attend_packed_bf16(c);
        return;
    }
    struct amx a = {
        .job = { .c = c, .work = c->scratch, .t = HA_BF16 },
        .dim = (c->head_dim + WIDE - 1) / WIDE * WIDE,
        .rows = (c->q_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS,
    };
    start(&a);
    amx_configure(&config);
    struct ha_packed_walk walk = ha_packed_start(&c->packed, c->first, c->keys, c->head_dim, HA_BF16);
    for (struct ha_packed_tile tile; (tile = ha_packed_next(&walk)).halves > 0;) {
        put_block(&a, &tile);
        FOR_ROWS(tiles_scores, &a)
        for (size_t r = 0; a.parts > 1 && r < c->q_rows; r++) mend(&a, r);
        soften(&a.job, ha_scale_log2(c->scale), DOT, DOT, false);
        FOR_ROWS(tiles_weigh, &a)
        a.job.at += a.job.half[0].keys + a.job.half[1].keys;
    }
    amx_release();
    put_sums(&a.job);
}
#endif
