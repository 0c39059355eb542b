#include "kernels/c/attend.h"
#include "kernels/c/ops.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

/* What a block needs besides its state. */
struct block {
    float *q;                     /* [rows][head_dim] */
    uint32_t *visible;            /* [rows] */
    struct ha_attend_state part;  /* of one piece */
    struct ha_attend_state whole; /* of all, where no part's memory is given */
    float *weights;               /* [rows][weights_stride]; not used with plan.direct */
    void *packed;
    size_t bytes;
};

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static struct block block_of(const struct ha_attend *a, const struct ha_attend_plan *p, char *scratch)
{
    struct block b = { 0 };
    /* never less for more keys, though a block may then have fewer rows, nor with weights than without */
    const size_t rows = ha_least(HA_CHUNK_ROWS, a->q_len * a->group), chunks = rows * (HA_CHUNK_KEYS + HA_ATTEND_PAD);
    const size_t kept = p->keep ? most(p->weights_stride, ha_least(HA_ATTEND_KEPT, rows * p->weights_stride)) : 0;
    b.q = ha_attend_carve(scratch, &b.bytes, rows * a->head_dim, sizeof *b.q);
    b.visible = ha_attend_carve(scratch, &b.bytes, rows, sizeof *b.visible);
    b.part = ha_attend_state(a, p, rows, scratch, &b.bytes);
    b.whole = ha_attend_state(a, p, rows, scratch, &b.bytes);
    b.weights = ha_attend_carve(scratch, &b.bytes, most(kept, chunks), sizeof(float));
    if (p->packed > 0) b.packed = ha_attend_carve(scratch, &b.bytes, 1, HA_PACKED_SCRATCH);
    return b;
}

size_t ha_c_attend_scratch_bytes(const struct ha_attend *a)
{
    const struct ha_attend_plan p = ha_attend_plan(a);
    return block_of(a, &p, NULL).bytes;
}

/* What each row of the block, which begins with row `first`, sees of a piece of the last run; the largest. */
static size_t see(const struct ha_attend *a, const struct ha_attend_piece *x, size_t first, size_t rows,
                  uint32_t *visible)
{
    size_t seen = 0;
    for (size_t r = 0; r < rows; r++) {
        const size_t later = a->q_len - 1 - (first + r) / a->group,
                     end = x->run->keys > later ? x->run->keys - later : 0;
        const size_t sees = end > x->at ? ha_least(end - x->at, x->keys) : 0;
        visible[r] = (uint32_t)sees;
        seen = most(seen, sees);
    }
    return seen;
}

static void attend_run(const struct ha_kernels *self, const struct ha_attend *a, const struct ha_attend_piece *x,
                       const struct block *b, size_t rows, const uint32_t *visible, float *weights,
                       size_t weights_stride, const struct ha_attend_state *to)
{
    struct ha_chunk c = {
        .q = b->q,
        .q_rows = rows,
        .q_stride = a->head_dim,
        .head_dim = a->head_dim,
        .rows = *x->run,
        .block = a->block,
        .dtype = a->dtype,
        .scale = a->scale,
        .visible = visible,
        .weights = weights,
        .weights_stride = weights_stride,
        .level = to->level,
        .sum = to->sum,
        .acc = to->acc,
    };
    c.rows.keys = x->keys;
    if (x->run->index) {
        const size_t block = a->block > 0 ? a->block : 1;
        c.rows.index += x->at / block;
        c.skip = x->at % block;
        /* Translated together, as in kernels/packed.h: 1.1 to 1.2 times as fast. */
        for (size_t i = 0; i < (c.skip + x->keys + block - 1) / block; i++) {
            const size_t row = c.rows.index[i] * block;
            __builtin_prefetch((const char *)x->run->k + row * x->run->k_stride_bytes, 0, 2);
            __builtin_prefetch((const char *)x->run->v + row * x->run->v_stride_bytes, 0, 2);
        }
    } else {
        c.rows.k = (const char *)x->run->k + x->at * x->run->k_stride_bytes;
        c.rows.v = (const char *)x->run->v + x->at * x->run->v_stride_bytes;
    }
    self->attend_chunk(&c);
}

static void attend_packed(const struct ha_kernels *self, const struct ha_attend *a, const struct ha_attend_piece *x,
                          const struct block *b, size_t rows, float *weights, size_t weights_stride,
                          const struct ha_attend_state *to)
{
    const enum ha_pattern pattern = a->packed.index           ? HA_PATTERN_LIST
                                    : rows <= HA_PATTERN_ROWS ? HA_PATTERN_LINEAR
                                                              : HA_PATTERN_PASSES;
    const struct ha_packed_chunk c = {
        .q = b->q,
        .q_rows = rows,
        .q_stride = a->head_dim,
        .head_dim = a->head_dim,
        .packed = a->packed,
        .first = x->at,
        .keys = x->keys,
        .scale = a->scale,
        .weights = a->weights ? weights : NULL,
        .weights_stride = weights_stride,
        .level = to->level,
        .sum = to->sum,
        .acc = to->acc,
        .reach = self->reach[a->dtype][pattern],
        .scratch = b->packed,
    };
    self->attend_packed[a->dtype](&c);
}

/* The state of `rows` rows from `row` on over keys [first, end). */
static void attend_block(const struct ha_kernels *self, const struct ha_attend *a, const struct ha_attend_plan *p,
                         const struct block *b, size_t row, size_t rows, size_t first, size_t end,
                         const struct ha_attend_state *s)
{
    const size_t dim = a->head_dim;
    for (size_t r = 0; r < rows; r++) {
        const size_t t = (row + r) / a->group, g = (row + r) % a->group;
        memcpy(b->q + r * dim, a->q + t * a->q_token_stride + g * a->q_head_stride, dim * sizeof *b->q);
    }
    size_t pieces = 0;
    bool any = false;
    for (struct ha_attend_piece x = { .first = first }; ha_attend_next(a, p, end, &x); pieces++) {
        const struct ha_attend_state *to = any ? &b->part : s;
        const bool masked = a->causal && x.run == a->runs + a->runs_count - 1;
        float *weights = p->direct ? a->weights + row * a->weights_stride + x.first
                                   : b->weights + (p->keep ? x.first : 0);
        float *level = s->pieces ? s->pieces + pieces * s->rows : NULL;
        if (masked && see(a, &x, row, rows, b->visible) == 0) {
            for (size_t r = 0; level && r < rows; r++) level[r] = -INFINITY;
            continue;
        }
        if (x.run) attend_run(self, a, &x, b, rows, masked ? b->visible : NULL, weights, p->weights_stride, to);
        else attend_packed(self, a, &x, b, rows, weights, p->weights_stride, to);
        if (level) memcpy(level, to->level, rows * sizeof *level);
        for (size_t r = 0; any && r < rows; r++) ha_attend_blend(s, to, r, dim);
        any = true;
    }
    for (size_t r = 0; !any && r < rows; r++) {
        s->level[r] = -INFINITY;
        s->sum[r] = 0;
        memset(s->acc + r * dim, 0, dim * sizeof *s->acc);
    }
}

/* Where weights are averaged over query tokens, all keys are in this part: what its blocks weigh is final. */
static void average(const struct ha_attend *a, const struct ha_attend_plan *p, const struct block *b, size_t row,
                    size_t rows, const struct ha_attend_state *s)
{
    for (size_t r = 0; r < rows; r++)
        ha_attend_share(a, p, 0, p->keys, s, r, s->level[r], s->sum[r] * (float)a->q_len,
                        b->weights + r * p->weights_stride, a->weights + (row + r) % a->group * a->weights_stride);
}

static void attend_keys(const struct ha_kernels *self, const struct ha_attend *a, size_t first, size_t end, void *state,
                        void *scratch)
{
    const struct ha_attend_plan p = ha_attend_plan(a);
    const struct block b = block_of(a, &p, scratch);
    const size_t all = a->q_len * a->group;
    size_t bytes = 0;
    const struct ha_attend_state part = state ? ha_attend_state(a, &p, all, state, &bytes) : b.whole;
    for (size_t g = 0; p.keep && g < a->group; g++)
        memset(a->weights + g * a->weights_stride, 0, p.keys * sizeof *a->weights);
    for (size_t row = 0; row < all; row += p.rows) {
        const size_t rows = ha_least(p.rows, all - row);
        const struct ha_attend_state s = state ? ha_attend_state_from(a, &part, row) : part;
        attend_block(self, a, &p, &b, row, rows, first, ha_least(end, p.keys), &s);
        if (p.keep) average(a, &p, &b, row, rows, &s);
        if (state) continue;
        ha_attend_finish(a, &s, row, rows);
        for (size_t r = 0; p.direct && r < rows; r++) {
            float *w = a->weights + (row + r) * a->weights_stride;
            ha_attend_share(a, &p, 0, p.keys, &s, r, s.level[r], s.sum[r], w, w);
        }
    }
}

void ha_c_attend(const struct ha_kernels *self, const struct ha_attend *a)
{
    attend_keys(self, a, 0, SIZE_MAX, NULL, a->scratch);
}

void ha_c_attend_part(const struct ha_kernels *self, const struct ha_attend_part *p)
{
    attend_keys(self, p->attend, p->first, p->first + p->keys, p->state, p->scratch);
}
