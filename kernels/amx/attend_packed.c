#include "kernels/amx/ops.h"

#if defined(HA_ISA_AMX)
#include "harness/base/numeric.h"
#include "kernels/amx/tile.h"
#include "kernels/avx512/simd.h"
#include "kernels/avx512_bf16/ops.h"

#include "kernels/attend_packed.inc"

/* Pairs of bfloat16, as K and V are packed, are what tiles multiply. A tile is up to 16 query rows by 16 keys or
 * columns. Up to 32 rows read a block together; where there are more, arithmetic is the limit, and two blocks take
 * turns: the sums of a panel are loaded and stored once for both. Levels, sums and the walk are those of
 * attend_packed.inc. With a few rows the keys are what takes the time, and avx512_bf16 reads them as fast.
 *
 * Queries that are no bfloat16 numbers are cut into three that are, 24 bits in all: nothing is rounded. */

enum { WIDE = 32, PARTS = 3 }; /* elements of a tile's row, keys of a block alike */
enum { BLOCKS = 2, KEYS_AT_ONCE = BLOCKS * HA_PACK_KEYS, ROWS_AT_ONCE = 2 * TILE_ROWS };
enum { PANEL = HA_PACK_COLS * HA_PACK_KEYS * 2 }; /* bytes, of V; so many has a tile's width of K */

/* What attend_packed.inc has its spare block for. */
struct spare {
    char block[HA_PACK_DIM_MAX * HA_PACK_KEYS * 2 * 2];
    char k_end[PANEL], v_end[PANEL]; /* what is behind the last whole tile of each, with zeros */
    float s[ROWS_AT_ONCE * KEYS_AT_ONCE];
    uint16_t w[ROWS_AT_ONCE * KEYS_AT_ONCE];
};
_Static_assert(sizeof(struct spare) <= sizeof((struct work *)0)->spare, "spare");

struct scratch {
    struct work work;
    uint16_t q[HA_CHUNK_ROWS * HA_PACK_DIM_MAX]; /* the third part of the queries; the others have the place of
                                                  * binary32 ones */
};
_Static_assert(sizeof(struct scratch) <= HA_PACKED_SCRATCH, "scratch");

struct blocks {
    struct ha_packed_tile tile[BLOCKS];
    size_t count;
};

struct amx {
    struct job job;
    struct spare *spare;
    size_t dim, rows, parts;      /* of the queries, with zeros up to multiples of 32 and, if more than 32, 16 */
    uint16_t *q[PARTS];           /* [rows][dim] */
    struct place half[BLOCKS][2]; /* both of V one after the other */
    size_t blocks;
    float scale;
    size_t most; /* blocks at once */
    enum ha_reach_kind fetch;
};

/* Truncated, so that none is infinite that was not. */
static void put_queries(struct amx *a)
{
    const struct ha_packed_chunk *c = a->job.c;
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __mmask16 rest = 0;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t d = 0; d < a->dim; d += LANES) {
            const size_t n = r < c->q_rows && d < c->head_dim ? ha_least(LANES, c->head_dim - d) : 0;
            vec x = v_load_part(n ? c->q + r * c->q_stride + d : c->q, n, 0);
            for (size_t p = 0; p < PARTS; p++) {
                const __m512i h = _mm512_and_si512(_mm512_castps_si512(x), high);
                _mm256_storeu_si256((__m256i_u *)(void *)(a->q[p] + r * a->dim + d),
                                    _mm512_cvtepi32_epi16(_mm512_srli_epi32(h, 16)));
                if (p > 0) rest |= _mm512_test_epi32_mask(h, _mm512_set1_epi32(0x7fff0000));
                x = v_sub(x, _mm512_castsi512_ps(h));
            }
        }
    a->parts = rest ? PARTS : 1;
}

/* all keys of one block */
static bool is_block(const struct ha_packed_tile *t)
{
    const struct ha_packed_half *h = t->half;
    return t->halves == 2 && h[0].block == h[1].block && h[0].first == 0 && h[1].first == HA_PACK_HALF
           && h[0].keys == HA_PACK_HALF && h[1].keys == HA_PACK_HALF;
}

/* The next blocks, or what is less than one, or parts of two. */
static void next_blocks(struct ha_packed_walk *walk, struct ha_packed_tile *tile, size_t most, struct blocks *next)
{
    next->count = 0;
    while (tile->halves > 0 && next->count < most) {
        const bool whole = is_block(tile);
        if (!whole && next->count > 0) return;
        next->tile[next->count++] = *tile;
        *tile = ha_packed_next(walk);
        if (!whole) return;
    }
}

/* K is read where it is, V is copied. */
static void join_halves(struct amx *a, struct ha_packed_tile *tile)
{
    const size_t dim = a->job.c->head_dim, half_panel = PANEL / 2, size = ha_dtype_bytes(HA_BF16);
    char *v = a->spare->block + dim * HA_PACK_KEYS * size;
    for (size_t h = 0; h < 2; h++) {
        struct place *x = &a->half[0][h];
        if (h < tile->halves && tile->half[h].cut) ha_packed_whole(&tile->half[h], h, a->spare->block, dim, HA_BF16);
        *x = place_of(&a->job, &tile->half[h < tile->halves ? h : 0]);
        if (h >= tile->halves) x->keys = 0;
        for (size_t d = 0; d < dim; d += HA_PACK_COLS) {
            const size_t row = ha_packed_cols(dim, d) * 2 * size, bytes = row * HA_PACK_HALF / 2;
            const ptrdiff_t narrow = (ptrdiff_t)(x->first * (HA_PACK_COLS * size - row / 2));
            char *to = v + d * HA_PACK_KEYS * size + h * bytes;
            if (h >= tile->halves) memset(to, 0, bytes);
            else memmove(to, x->v + d * HA_PACK_KEYS * size - narrow, bytes);
        }
        x->v = v + h * half_panel;
    }
}

static void put_blocks(struct amx *a, struct blocks *now, const struct blocks *next)
{
    a->blocks = now->count;
    if (!is_block(&now->tile[0])) join_halves(a, &now->tile[0]);
    else
        for (size_t b = 0; b < now->count; b++)
            for (size_t h = 0; h < 2; h++) a->half[b][h] = place_of(&a->job, &now->tile[b].half[h]);
    for (size_t b = 0; a->job.c->packed.index && next->count > 0 && b < a->blocks; b++)
        for (size_t h = 0; h < 2; h++) {
            const struct ha_packed_tile *later = &next->tile[b < next->count ? b : 0];
            const struct place there = place_of(&a->job, &later->half[h < later->halves ? h : 0]);
            a->half[b][h].k_ahead = there.k;
            a->half[b][h].v_ahead = there.v;
        }
}

/* Pairs of lines that are read later. */
ALWAYS void fetch(const struct amx *a, const char *first, const char *second, size_t pairs)
{
    if (a->fetch == HA_REACH_NONE) return;
    for (size_t i = 0; i < pairs * ROW; i += ROW) {
        if (a->fetch == HA_REACH_L1) __builtin_prefetch(first + i, 0, 3);
        if (a->fetch == HA_REACH_L1) __builtin_prefetch(second + i, 0, 3);
        if (a->fetch != HA_REACH_L1) __builtin_prefetch(first + i, 0, 2);
        if (a->fetch != HA_REACH_L1) __builtin_prefetch(second + i, 0, 2);
    }
}

/* Tiles 6 and 7: elements from d on of a block's keys. */
ALWAYS void load_k(const struct amx *a, size_t b, size_t d)
{
    const size_t left = a->job.c->head_dim - d;
    const char *k[2] = { a->half[b][0].k + d / 2 * ROW, a->half[b][1].k + d / 2 * ROW };
    fetch(a, a->half[b][0].k_ahead + d / 2 * ROW, a->half[b][1].k_ahead + d / 2 * ROW, TILE_ROWS);
    if (left < WIDE) {
        char *end = a->spare->k_end;
        for (size_t h = 0; h < 2; h++)
            for (size_t i = 0; i < left / 2; i++) memcpy(end + i * ROW + h * LINE, k[h] + i * ROW, LINE);
        k[0] = end;
        k[1] = end + LINE;
    }
    amx_load(6, k[0], ROW);
    amx_load(7, k[1], ROW);
}

/* Tiles 6 and 7: the panel from column d on of a block's values. */
ALWAYS void load_v(const struct amx *a, size_t b, size_t d)
{
    const size_t cols = ha_packed_cols(a->job.c->head_dim, d), row = cols * 2 * ha_dtype_bytes(HA_BF16);
    const char *v = a->half[b][0].v + d * HA_PACK_KEYS * ha_dtype_bytes(HA_BF16);
    for (size_t h = 0; h < 2; h++) {
        const char *later = a->half[b][h].v_ahead + d * HA_PACK_KEYS * ha_dtype_bytes(HA_BF16);
        fetch(a, later, later + LINE, TILE_ROWS / 2);
    }
    if (cols < HA_PACK_COLS) {
        char *end = a->spare->v_end;
        for (size_t i = 0; i < HA_PACK_HALF; i++) memcpy(end + i * ROW, v + i * row, row);
        v = end;
    }
    amx_load(6, v, ROW);
    amx_load(7, v + LINE, ROW);
}

/* s of up to 16 query rows from r on, of two blocks; or of up to 32, of one */
ALWAYS void block_scores(const struct amx *a, size_t r, size_t b, bool many, bool two)
{
    const size_t stride = a->dim * sizeof *a->q[0], bytes = KEYS_AT_ONCE * sizeof(float);
    float *s = a->spare->s + b * HA_PACK_KEYS, *more = many ? s + TILE_ROWS * KEYS_AT_ONCE : s + HA_PACK_KEYS;
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
    for (size_t d = 0; d < a->dim; d += WIDE) {
        load_k(a, b, d);
        for (size_t p = a->parts; p-- > 0;) {
            const uint16_t *q = a->q[p] + r * a->dim + d;
            amx_load(4, q, stride);
            amx_dot(0, 4, 6);
            amx_dot(1, 4, 7);
            if (!many) continue;
            amx_load(5, q + TILE_ROWS * a->dim, stride);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        }
        if (!two) continue;
        load_k(a, b + 1, d);
        for (size_t p = a->parts; p-- > 0;) {
            if (a->parts > 1) amx_load(4, a->q[p] + r * a->dim + d, stride);
            amx_dot(2, 4, 6);
            amx_dot(3, 4, 7);
        }
    }
    amx_store(0, s, bytes);
    amx_store(1, s + HA_PACK_HALF, bytes);
    if (!many && !two) return;
    amx_store(2, more, bytes);
    amx_store(3, more + HA_PACK_HALF, bytes);
}

ALWAYS void tiles_scores(const struct amx *a, size_t r, bool many)
{
    size_t b = 0;
    for (; !many && b + 2 <= a->blocks; b += 2) block_scores(a, r, b, false, true);
    for (; b < a->blocks; b++) block_scores(a, r, b, many, false);
}

/* A part of a query that is 0, or not a number, times an infinity: without the parts, then. */
static __attribute__((noinline)) void mend(const struct amx *a, size_t r, size_t j, float *s)
{
    const struct ha_packed_chunk *c = a->job.c;
    const char *k = a->half[j / HA_PACK_KEYS][j / HA_PACK_HALF % 2].k;
    *s = 0;
    for (size_t d = 0; d < c->head_dim; d += DOT_TERMS) {
        float part = 0;
        for (size_t i = d; i < ha_least(d + DOT_TERMS, c->head_dim); i++)
            part += c->q[r * c->q_stride + i] * ha_load(k, ha_packed_k(j % HA_PACK_HALF, i, HA_BF16), HA_BF16);
        *s += part;
    }
}

static void mend_rows(const struct amx *a, size_t first, size_t rows)
{
    for (size_t r = 0; r < rows; r++) {
        float *s = a->spare->s + r * KEYS_AT_ONCE;
        for (size_t i = 0; i < a->blocks * HA_PACK_KEYS; i += LANES) {
            if (!v_has_nan(v_load(s + i))) continue;
            for (size_t j = i; j < i + LANES; j++)
                if (s[j] != s[j]) mend(a, first + r, j, s + j);
        }
    }
}

/* What a block does not have weighs nothing. */
static __attribute__((noinline)) void cut(const struct amx *a, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < HA_PACK_KEYS; i++) {
            float *s = a->spare->s + r * KEYS_AT_ONCE + i;
            *s = i % HA_PACK_HALF < a->half[0][i / HA_PACK_HALF].keys ? *s * a->scale : -INFINITY;
        }
}

ALWAYS vec largest(const float *s, size_t count, vec scale)
{
    vec m = v_mul(scale, v_load(s));
    for (size_t i = 1; i < count; i++) m = v_max(m, v_mul(scale, v_load(s + i * LANES)));
    return m;
}

/* What one block gives, of its keys that there are. */
static __attribute__((noinline)) void give_weights(const struct amx *a, size_t b, float *to, vec x, vec y)
{
    float w[HA_PACK_KEYS];
    const struct place *half = a->half[b];
    to += a->job.at + b * HA_PACK_KEYS;
    v_store(w, x);
    v_store(w + HA_PACK_HALF, y);
    memcpy(to, w, half[0].keys * sizeof *w);
    memcpy(to + half[0].keys, w + HA_PACK_HALF, half[1].keys * sizeof *w);
}

/* Scores of the rows from `first` on to weights. */
static void soften_blocks(const struct amx *a, size_t first, size_t rows)
{
    const struct ha_packed_chunk *c = a->job.c;
    const struct work *work = a->job.work;
    const bool whole = a->half[0][0].keys + a->half[0][1].keys == HA_PACK_KEYS;
    const vec scale = v_set(whole ? a->scale : 1);
    if (!whole) cut(a, rows);
    for (size_t r = 0; r < rows; r++) {
        const vec m = largest(a->spare->s + r * KEYS_AT_ONCE, 2 * a->blocks, scale);
        if (v_above(m, v_set(work->limit[first + r]))) raise(&a->job, first + r, m);
    }
    for (size_t r = 0; r < rows; r++) {
        const float *s = a->spare->s + r * KEYS_AT_ONCE;
        uint16_t *to = a->spare->w + r * KEYS_AT_ONCE;
        float *total = a->job.work->sum + (first + r) * LANES;
        const vec base = v_set(work->base[first + r]);
        vec sum = v_load(total);
        for (size_t b = 0; b < a->blocks; b++, s += HA_PACK_KEYS, to += HA_PACK_KEYS) {
            const vec x = v_exp2(v_sub(v_mul(scale, v_load(s)), base)),
                      y = v_exp2(v_sub(v_mul(scale, v_load(s + LANES)), base));
            _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(y, x));
            if (c->weights) give_weights(a, b, c->weights + (first + r) * c->weights_stride, x, y);
            sum = v_add(sum, v_add(x, y));
        }
        v_store(total, sum);
    }
}

/* a panel of the sums of up to 16 query rows from r on, or two; or one of up to 32 */
ALWAYS void panel_sums(const struct amx *a, size_t r, size_t d, bool many, bool two)
{
    const size_t bytes = ACC_STRIDE * sizeof(float), stride = KEYS_AT_ONCE * sizeof *a->spare->w;
    float *acc = a->job.work->acc + r * ACC_STRIDE + d, *more = many ? acc + TILE_ROWS * ACC_STRIDE : acc + WIDE;
    amx_load(0, acc, bytes);
    amx_load(1, acc + WIDE / 2, bytes);
    if (many || two) {
        amx_load(2, more, bytes);
        amx_load(3, more + WIDE / 2, bytes);
    }
    for (size_t b = 0; b < a->blocks; b++) {
        const uint16_t *w = a->spare->w + b * HA_PACK_KEYS;
        amx_load(4, w, stride);
        load_v(a, b, d);
        amx_dot(0, 4, 6);
        amx_dot(1, 4, 7);
        if (many) {
            amx_load(5, w + TILE_ROWS * KEYS_AT_ONCE, stride);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        }
        if (two) {
            load_v(a, b, d + WIDE);
            amx_dot(2, 4, 6);
            amx_dot(3, 4, 7);
        }
    }
    amx_store(0, acc, bytes);
    amx_store(1, acc + WIDE / 2, bytes);
    if (!many && !two) return;
    amx_store(2, more, bytes);
    amx_store(3, more + WIDE / 2, bytes);
}

ALWAYS void tiles_sums(const struct amx *a, size_t r, bool many)
{
    size_t d = 0;
    for (; !many && d + WIDE < a->dim; d += 2 * WIDE) panel_sums(a, r, d, false, true);
    for (; d < a->dim; d += WIDE) panel_sums(a, r, d, many, false);
}

/* rows of the queries from r on, over the present blocks */
ALWAYS void attend_blocks(const struct amx *a, size_t r, bool many)
{
    const size_t rows = ha_least(ROWS_AT_ONCE, a->job.c->q_rows - r);
    tiles_scores(a, r, many);
    if (a->parts > 1) mend_rows(a, r, rows);
    soften_blocks(a, r, rows);
    tiles_sums(a, r, many);
}

static void start(struct amx *a)
{
    const struct ha_packed_chunk *c = a->job.c;
    struct scratch *scratch = c->scratch;
    a->q[0] = (uint16_t *)(void *)scratch->work.q;
    a->q[1] = a->q[0] + HA_CHUNK_ROWS * HA_PACK_DIM_MAX;
    a->q[2] = scratch->q;
    a->spare = (struct spare *)(void *)scratch->work.spare;
    memset(a->spare->k_end, 0, sizeof a->spare->k_end);
    memset(a->spare->v_end, 0, sizeof a->spare->v_end);
    no_sums(&a->job, a->rows);
    put_queries(a);

    struct amx_config config = amx_whole();
    const size_t most = ha_least(a->rows, ROWS_AT_ONCE), second = most > TILE_ROWS ? most - TILE_ROWS : TILE_ROWS;
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)ha_least(most, TILE_ROWS);
    config.rows[2] = config.rows[3] = most > TILE_ROWS ? (uint8_t)second : config.rows[0];
    config.rows[5] = (uint8_t)second;
    amx_configure(&config);
}

void HA_AMX(attend_packed_bf16)(const struct ha_packed_chunk *c)
{
    if (c->q_rows <= HA_PATTERN_ROWS) {
        ha_avx512_bf16_attend_packed_bf16(c);
        return;
    }
    struct amx a = {
        .job = { .c = c, .work = c->scratch, .t = HA_BF16, .ahead = c->reach.bytes },
        .most = c->q_rows > ROWS_AT_ONCE ? BLOCKS : 1,
        .dim = (c->head_dim + WIDE - 1) / WIDE * WIDE,
        .rows = c->q_rows <= ROWS_AT_ONCE ? c->q_rows : (c->q_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS,
        .scale = ha_scale_log2(c->scale),
    };
    start(&a);
    struct ha_packed_walk walk = ha_packed_start(&c->packed, c->first, c->keys, c->head_dim, HA_BF16);
    struct ha_packed_tile tile = ha_packed_next(&walk);
    struct blocks now, next;
    for (next_blocks(&walk, &tile, a.most, &next); next.count > 0;) {
        now = next;
        next_blocks(&walk, &tile, a.most, &next);
        put_blocks(&a, &now, &next);
        a.fetch = c->reach.kind;
        for (size_t r = 0; r < a.rows; r += ROWS_AT_ONCE, a.fetch = HA_REACH_NONE) {
            if (a.rows - r > TILE_ROWS) attend_blocks(&a, r, true);
            else attend_blocks(&a, r, false);
        }
        for (size_t b = 0; b < a.blocks; b++) a.job.at += a.half[b][0].keys + a.half[b][1].keys;
    }
    amx_release();
    put_sums(&a.job);
}
#endif
