#include "kernels/amx/ops.h"

#if defined(HA_ISA_AMX)
#include "harness/base/numeric.h"
#include "kernels/amx/tile.h"
#include "kernels/avx512/simd.h"
#include "kernels/streams.h"

#include "kernels/attend_packed.inc"

HA_KERNELS_DECLARE(avx512)

/* Pairs of bfloat16, as K and V are packed, are what tiles multiply. A tile is up to 16 query rows by 16 keys or
 * columns; up to 32 rows read keys together, those of one block, or with more than 16 rows of two. While tiles multiply
 * keys, the scores of those before become weights: what units of their own do goes on at the same time. Levels, sums
 * and the walk are those of attend_packed.inc.
 *
 * avx512 reads keys faster where up to HA_PATTERN_ROWS rows meet them.
 *
 * Queries that are no bfloat16 numbers are cut into three that are, 24 bits in all: nothing is rounded. */

enum { WIDE = 32, PARTS = 3, SIZE = 2 }; /* elements of a tile's row, keys of a block alike; bytes of an element */
enum { AT_ONCE = 2 * TILE_ROWS, BLOCKS = 2, STRIDE = BLOCKS * HA_PACK_KEYS }; /* query rows, blocks, keys */
/* Lines are asked for twice: into L1 soon before they are read, and in the step before into L2, a few now and then, so
 * that memory has something to do all the time. Tiles wait for 16 lines at once, and lines that memory has not given
 * yet leave no room for those that L2 has. Those of L2 are in several streams, each of which the hardware runs ahead
 * of. HA_REACH_STREAMS: once, by these streams, into L1. */

struct scratch {
    struct work work;
    uint16_t q[HA_CHUNK_ROWS * HA_PACK_DIM_MAX]; /* the third part of the queries; the others have the place of
                                                  * binary32 ones */
    char k_end[WIDE * HA_PACK_KEYS * SIZE], v_end[WIDE * HA_PACK_KEYS * SIZE]; /* what is behind the last whole tile of
                                                                                * each, with zeros */
    uint16_t w[2][AT_ONCE * STRIDE];
};
_Static_assert(sizeof(struct scratch) <= HA_PACKED_SCRATCH, "scratch");

/* Rows [first, first + rows) by the keys of some blocks. */
struct step {
    struct place half[BLOCKS][2];   /* V of both one after the other */
    size_t blocks, first, rows, at; /* at: keys before these */
    float *s;                       /* [AT_ONCE][STRIDE] */
    uint16_t *w;                    /* the same */
};

struct amx {
    struct job job;
    struct scratch *scratch;
    size_t dim, rows, parts; /* of the queries, with zeros up to multiples of 32 and, if more than 32, 16 */
    uint16_t *q[PARTS];      /* [rows][dim] */
    struct ha_packed_walk walk;
    struct ha_packed_tile next;
    char *spare; /* a block, and another one beside it: each serves every other time */
    size_t most; /* blocks of a step */
    /* what the next step reads of a stream; how many lines that is, how many of them were asked for, and how many more
     * are with each pair of tiles and each row of weights */
    const char *later;
    size_t lines, asked, with_tile, with_row;
    bool streams; /* nothing else is asked for */
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

/* K is read where it is, V is copied. */
static void join_halves(const struct amx *a, struct place half[2], struct ha_packed_tile *tile)
{
    const size_t dim = a->job.c->head_dim;
    char *v = a->spare + dim * HA_PACK_KEYS * SIZE;
    for (size_t h = 0; h < 2; h++) {
        const bool there = h < tile->halves;
        if (there && tile->half[h].cut) ha_packed_whole(&tile->half[h], h, a->spare, dim, HA_BF16);
        half[h] = place_of(&a->job, &tile->half[there ? h : 0]);
        if (!there) half[h].keys = 0;
        for (size_t d = 0; d < dim; d += HA_PACK_COLS) {
            const size_t pair = ha_packed_cols(dim, d) * 2 * SIZE, bytes = pair * HA_PACK_HALF / 2;
            const char *from = half[h].v + d * HA_PACK_KEYS * SIZE - half[h].first / 2 * (ROW - pair);
            char *to = v + d * HA_PACK_KEYS * SIZE + h * bytes;
            if (there) memmove(to, from, bytes);
            else memset(to, 0, bytes);
        }
    }
    half[0].v = v;
}

static void put_keys(const struct amx *a, struct place half[2], struct ha_packed_tile *tile)
{
    const struct ha_packed_tile *next = &a->next;
    if (is_block(tile))
        for (size_t h = 0; h < 2; h++) half[h] = place_of(&a->job, &tile->half[h]);
    else join_halves(a, half, tile);
    for (size_t h = 0; a->job.c->packed.index && next->halves > 0 && h < 2; h++) {
        const struct place later = place_of(&a->job, &next->half[h < next->halves ? h : 0]);
        half[h].k_ahead = later.k;
        half[h].v_ahead = later.v;
    }
}

/* Whole blocks, or one that is not. */
static void take(struct amx *a, struct step *x)
{
    const struct ha_packed_chunk *c = a->job.c;
    struct ha_packed_tile tile;
    char *spare = a->scratch->work.spare;
    a->spare = a->spare == spare ? spare + ha_packed_block_bytes(HA_PACK_DIM_MAX, HA_BF16) : spare;
    x->blocks = 0;
    do {
        tile = a->next;
        a->next = ha_packed_next(&a->walk);
        put_keys(a, x->half[x->blocks++], &tile);
    } while (x->blocks < a->most && is_block(&tile) && is_block(&a->next));
    a->asked = a->lines = 0;
    a->streams = c->reach.kind == HA_REACH_STREAMS && (!c->packed.index || is_block(&a->next));
    if (c->reach.kind == HA_REACH_NONE || (c->packed.index && !a->streams)) return;
    a->later = c->packed.index ? a->next.half[0].block
                               : x->half[0][0].k + x->blocks * ha_packed_block_bytes(c->head_dim, HA_BF16);
    a->lines = x->blocks * 2 * c->head_dim;
}

/* Pairs of lines that are read soon. */
ALWAYS void fetch(const struct amx *a, const char *first, const char *second, size_t pairs)
{
    const struct ha_packed_chunk *c = a->job.c;
    if (a->streams) return;
    if (c->reach.kind == HA_REACH_L1 || c->reach.kind == HA_REACH_STREAMS)
        for (size_t i = 0; i < pairs * ROW; i += ROW) {
            __builtin_prefetch(first + i, 0, 3);
            __builtin_prefetch(second + i, 0, 3);
        }
    else if (c->reach.kind != HA_REACH_NONE && c->packed.index)
        for (size_t i = 0; i < pairs * ROW; i += ROW) {
            __builtin_prefetch(first + i, 0, 2);
            __builtin_prefetch(second + i, 0, 2);
        }
}

/* So many lines of the next step. */
ALWAYS void fetch_later(struct amx *a, size_t lines)
{
    const size_t end = ha_least(a->asked + lines, a->lines);
    for (size_t i = a->asked; i < end; i++) {
        const char *at = ha_line_in_streams(a->later, a->lines * LINE, i);
        if (a->streams) __builtin_prefetch(at, 0, 3);
        else __builtin_prefetch(at, 0, 2);
    }
    a->asked = end;
}

/* Tiles 6 and 7: elements from d on of a block's keys. */
ALWAYS void load_k(struct amx *a, const struct place half[2], bool first, size_t d)
{
    const size_t left = a->job.c->head_dim - d, at = d / 2 * ROW;
    const char *k[2] = { half[0].k + at, half[1].k + at };
    if (first) fetch(a, half[0].k_ahead + at, half[1].k_ahead + at, TILE_ROWS);
    fetch_later(a, a->with_tile);
    if (left < WIDE) {
        char *end = a->scratch->k_end;
        for (size_t h = 0; h < 2; h++)
            for (size_t i = 0; i < left / 2; i++) memcpy(end + i * ROW + h * LINE, k[h] + i * ROW, LINE);
        k[0] = end;
        k[1] = end + LINE;
    }
    amx_load(6, k[0], ROW);
    amx_load(7, k[1], ROW);
}

/* Tiles 6 and 7: the panel from column d on of a block's values. */
ALWAYS void load_v(struct amx *a, const struct place half[2], bool first, size_t d)
{
    const size_t pair = ha_packed_cols(a->job.c->head_dim, d) * 2 * SIZE, at = d * HA_PACK_KEYS * SIZE;
    const char *v = half[0].v + at;
    for (size_t h = 0; first && h < 2; h++) fetch(a, half[h].v_ahead + at, half[h].v_ahead + at + LINE, TILE_ROWS / 2);
    fetch_later(a, a->with_tile);
    if (pair < ROW) {
        char *end = a->scratch->v_end;
        for (size_t i = 0; i < HA_PACK_HALF; i++) memcpy(end + i * ROW, v + i * pair, pair);
        v = end;
    }
    amx_load(6, v, ROW);
    amx_load(7, v + LINE, ROW);
}

/* A part of a query that is 0, or not a number, times an infinity: without the parts, then. */
static __attribute__((noinline)) void mend(const struct amx *a, const struct step *x, size_t r, size_t j)
{
    const struct ha_packed_chunk *c = a->job.c;
    const float *q = c->q + (x->first + r) * c->q_stride;
    const char *k = x->half[j / HA_PACK_KEYS][j / HA_PACK_HALF % 2].k;
    float sum = 0;
    for (size_t d = 0; d < c->head_dim; d += DOT_TERMS) {
        float part = 0;
        for (size_t i = d; i < ha_least(d + DOT_TERMS, c->head_dim); i++)
            part += q[i] * ha_load(k, ha_packed_k(j % HA_PACK_HALF, i, HA_BF16), HA_BF16);
        sum += part;
    }
    x->s[r * STRIDE + j] = sum;
}

static void mend_rows(const struct amx *a, const struct step *x)
{
    for (size_t r = 0; r < x->rows; r++)
        for (size_t i = 0; i < x->blocks * HA_PACK_KEYS; i += LANES) {
            const float *s = x->s + r * STRIDE;
            if (!v_has_nan(v_load(s + i))) continue;
            for (size_t j = i; j < i + LANES; j++)
                if (s[j] != s[j]) mend(a, x, r, j);
        }
}

/* What a block does not have weighs nothing; it is alone then. */
static bool is_cut(const struct step *x) { return x->half[0][0].keys + x->half[0][1].keys < HA_PACK_KEYS; }

static __attribute__((noinline)) void cut(const struct amx *a, const struct step *x)
{
    for (size_t r = 0; r < x->rows; r++)
        for (size_t i = 0; i < HA_PACK_KEYS; i++) {
            float *s = x->s + r * STRIDE + i;
            *s = i % HA_PACK_HALF < x->half[0][i / HA_PACK_HALF].keys ? *s * a->job.scale : -INFINITY;
        }
}

ALWAYS vec largest(const float *s, size_t keys, vec scale)
{
    vec m = v_mul(scale, v_load(s));
    for (size_t i = LANES; i < keys; i += LANES) m = v_max(m, v_mul(scale, v_load(s + i)));
    return m;
}

static __attribute__((noinline)) void raise_some(const struct amx *a, const struct step *x, size_t r, size_t end,
                                                 vec scale)
{
    for (; r < end; r++) {
        const vec m = largest(x->s + r * STRIDE, x->blocks * HA_PACK_KEYS, scale);
        if (v_above(m, v_set(a->job.work->limit[x->first + r]))) raise(&a->job, x->first + r, m);
    }
}

/* Levels for the scores of a step. */
static void raise_levels(struct amx *a, const struct step *x)
{
    a->job.at = x->at;
    if (a->parts > 1) mend_rows(a, x);
    if (is_cut(x)) cut(a, x);
    const vec scale = v_set(is_cut(x) ? 1 : a->job.scale);
    for (size_t r = 0, end; r < x->rows; r = end) {
        unsigned above = 0;
        end = ha_least(r + ROWS, x->rows);
        for (size_t i = r; i < end; i++)
            above |= v_above(largest(x->s + i * STRIDE, x->blocks * HA_PACK_KEYS, scale),
                             v_set(a->job.work->limit[x->first + i]));
        if (above) raise_some(a, x, r, end, scale);
    }
}

/* Scores of some rows to weights. */
ALWAYS void soften_some(struct amx *a, const struct step *x, size_t from, size_t to)
{
    const struct ha_packed_chunk *c = a->job.c;
    const vec scale = v_set(is_cut(x) ? 1 : a->job.scale);
    for (size_t r = from; r < to; r++) {
        const vec base = v_set(a->job.work->base[x->first + r]);
        float *total = a->job.work->sum + (x->first + r) * LANES;
        vec sum = v_load(total);
        fetch_later(a, a->with_row);
        for (size_t b = 0; b < x->blocks; b++) {
            const size_t at = r * STRIDE + b * HA_PACK_KEYS;
            const vec w[VECS] = { v_exp2(v_sub(v_mul(scale, v_load(x->s + at)), base)),
                                  v_exp2(v_sub(v_mul(scale, v_load(x->s + at + LANES)), base)) };
            _mm512_storeu_si512(x->w + at, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
            if (c->weights) {
                memcpy(a->job.half, x->half[b], sizeof x->half[b]);
                a->job.at = x->at + b * HA_PACK_KEYS;
                put_weights(&a->job, x->first + r, w);
            }
            sum = v_add(sum, v_add(w[0], w[1]));
        }
        v_store(total, sum);
    }
}

ALWAYS void zero_scores(void)
{
    amx_zero(0);
    amx_zero(1);
    amx_zero(2);
    amx_zero(3);
}

/* The scores of x, tile by tile, while those of y become weights; either may be NULL. */
static void scores_and_weights(struct amx *a, const struct step *x, const struct step *y)
{
    const size_t stride = a->dim * SIZE, bytes = STRIDE * sizeof(float), steps = a->dim / WIDE * (x ? x->blocks : 1);
    const bool many = x && a->rows - x->first > TILE_ROWS;
    if (y) raise_levels(a, y);
    for (size_t i = 0, d = 0, b = 0; i < steps; i++) {
        if (d == 0) zero_scores();
        if (x) load_k(a, x->half[b], x->first == 0, d);
        for (size_t p = a->parts; x && p-- > 0;) {
            const uint16_t *q = a->q[p] + x->first * a->dim + d;
            amx_load(4, q, stride);
            amx_dot(0, 4, 6);
            amx_dot(1, 4, 7);
            if (!many) continue;
            amx_load(5, q + TILE_ROWS * a->dim, stride);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        }
        if (y) soften_some(a, y, y->rows * i / steps, y->rows * (i + 1) / steps);
        d += WIDE;
        if (!x || d < a->dim) continue;
        float *s = x->s + b * HA_PACK_KEYS;
        amx_store(0, s, bytes);
        amx_store(1, s + HA_PACK_HALF, bytes);
        d = 0;
        b++;
        if (!many) continue;
        amx_store(2, s + TILE_ROWS * STRIDE, bytes);
        amx_store(3, s + TILE_ROWS * STRIDE + HA_PACK_HALF, bytes);
    }
}

/* a panel of the sums of up to 32 query rows; or two, of up to 16 */
ALWAYS void panel_sums(struct amx *a, const struct step *x, size_t d, bool many, bool two)
{
    const size_t bytes = ACC_STRIDE * sizeof(float), stride = STRIDE * sizeof *x->w;
    float *acc = a->job.work->acc + x->first * ACC_STRIDE + d, *more = many ? acc + TILE_ROWS * ACC_STRIDE : acc + WIDE;
    amx_load(0, acc, bytes);
    amx_load(1, acc + WIDE / 2, bytes);
    if (many || two) {
        amx_load(2, more, bytes);
        amx_load(3, more + WIDE / 2, bytes);
    }
    for (size_t b = 0; b < x->blocks; b++) {
        const uint16_t *w = x->w + b * HA_PACK_KEYS;
        amx_load(4, w, stride);
        load_v(a, x->half[b], x->first == 0, d);
        amx_dot(0, 4, 6);
        amx_dot(1, 4, 7);
        if (many) {
            amx_load(5, w + TILE_ROWS * STRIDE, stride);
            amx_dot(2, 5, 6);
            amx_dot(3, 5, 7);
        } else if (two) {
            load_v(a, x->half[b], x->first == 0, d + WIDE);
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

static void sums(struct amx *a, const struct step *x)
{
    const bool many = a->rows - x->first > TILE_ROWS;
    size_t d = 0;
    for (; !many && d + WIDE < a->dim; d += 2 * WIDE) panel_sums(a, x, d, false, true);
    for (; d < a->dim; d += WIDE) panel_sums(a, x, d, many, false);
}

static void start(struct amx *a)
{
    const struct ha_packed_chunk *c = a->job.c;
    struct scratch *scratch = a->scratch;
    a->q[0] = (uint16_t *)(void *)scratch->work.q;
    a->q[1] = a->q[0] + HA_CHUNK_ROWS * HA_PACK_DIM_MAX;
    a->q[2] = scratch->q;
    memset(scratch->k_end, 0, sizeof scratch->k_end);
    memset(scratch->v_end, 0, sizeof scratch->v_end);
    no_sums(&a->job, a->rows);
    put_queries(a);
    const size_t lines = 2 * c->head_dim, groups = (a->rows + AT_ONCE - 1) / AT_ONCE;
    a->with_tile = lines / 2 / (2 * a->dim / WIDE * groups) + 1;
    a->with_row = a->most * lines / 2 / c->q_rows + 1;

    struct amx_config config = amx_whole();
    const size_t most = ha_least(a->rows, AT_ONCE), second = most > TILE_ROWS ? most - TILE_ROWS : most;
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)ha_least(most, TILE_ROWS);
    config.rows[2] = config.rows[3] = config.rows[5] = (uint8_t)second;
    amx_configure(&config);
}

void HA_AMX(attend_packed_bf16)(const struct ha_packed_chunk *c)
{
    if (c->q_rows <= HA_PATTERN_ROWS) {
        ha_avx512_attend_packed_bf16(c);
        return;
    }
    struct scratch *scratch = c->scratch;
    struct amx a = {
        .job = { .c = c,
                 .work = &scratch->work,
                 .t = HA_BF16,
                 .scale = ha_scale_log2(c->scale),
                 .ahead = c->reach.bytes },
        .scratch = scratch,
        .most = c->packed.index || c->q_rows <= TILE_ROWS ? 1 : BLOCKS,
        .dim = (c->head_dim + WIDE - 1) / WIDE * WIDE,
        .rows = c->q_rows <= AT_ONCE ? c->q_rows : (c->q_rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS,
    };
    start(&a);
    struct step step[2], *before = NULL;
    for (size_t i = 0; i < 2; i++)
        step[i] = (struct step){ .s = i ? scratch->work.w : scratch->work.s, .w = scratch->w[i] };
    a.walk = ha_packed_start(&c->packed, c->first, c->keys, c->head_dim, HA_BF16);
    a.next = ha_packed_next(&a.walk);
    for (size_t at = 0, steps = 0; a.next.halves > 0;) {
        for (size_t r = 0; r < a.rows; r += AT_ONCE) {
            struct step *now = &step[steps++ % 2];
            if (r == 0) take(&a, now);
            else memcpy(now->half, before->half, sizeof now->half), now->blocks = before->blocks;
            now->first = r;
            now->rows = ha_least(AT_ONCE, c->q_rows - r);
            now->at = at;
            scores_and_weights(&a, now, before);
            if (before) sums(&a, before);
            before = now;
        }
        at += (before->blocks - 1) * HA_PACK_KEYS + before->half[0][0].keys + before->half[0][1].keys;
    }
    if (before) {
        scores_and_weights(&a, NULL, before);
        sums(&a, before);
    }
    amx_release();
    put_sums(&a.job);
}
#endif
