#include "kernels/test_device.h"

#include "harness/base/seq_attend.h"

#include <math.h>

enum { PICK_STREAM = 60, WEIGHTS_GAP = 3 };

static void *on_heap(void *self, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    return p ? memset(p, 0xFF, bytes ? bytes : 1) : NULL;
}
static void off_heap(void *self, void *ptr) { free(ptr); }
const struct ha_test_memory ha_test_heap = { NULL, on_heap, off_heap };

static void *keep(struct ha_test_device_problem *p, size_t bytes)
{
    void *at = p->memory.alloc(p->memory.self, bytes);
    p->buffer = realloc(p->buffer, (p->buffers + 1) * sizeof *p->buffer);
    if (!at || !p->buffer) abort();
    return p->buffer[p->buffers++] = at;
}

/* ---- where keys lie */

static size_t stride_of(const struct ha_test_device_ask *a, size_t odd)
{
    const size_t size = ha_dtype_bytes(a->dtype), row = a->dim * size;
    switch (a->layout) {
    case HA_TEST_HEADS: return row;
    case HA_TEST_TOKENS: return a->kv_heads * row + a->pad * size;
    case HA_TEST_OFF_BY_EIGHT: return a->kv_heads * row + 8;
    default: return a->kv_heads * row + odd * size;
    }
}

struct pool {
    char *base;
    size_t stride, head_bytes;
};

static struct pool pool_of(struct ha_test_device_problem *p, size_t rows, size_t odd)
{
    const struct ha_test_device_ask *a = &p->ask;
    const size_t size = ha_dtype_bytes(a->dtype), row = a->dim * size, stride = stride_of(a, odd);
    const size_t shift = a->layout == HA_TEST_OFF_BY_EIGHT ? 8 : a->layout == HA_TEST_ODD ? size : 0;
    const bool by_heads = a->layout == HA_TEST_HEADS;
    const size_t within = by_heads ? row : a->kv_heads * row, copies = by_heads ? a->kv_heads : 1;
    const size_t bytes = rows ? (copies * rows - 1) * stride + within : 0;
    return (struct pool){ .base = (char *)keep(p, bytes + shift) + shift,
                          .stride = stride,
                          .head_bytes = by_heads ? rows * stride : row };
}

/* which pool rows the keys of a run are */
static uint32_t *pick(struct ha_test_device_problem *p, size_t keys, size_t block, size_t *rows)
{
    const size_t count = (keys + block - 1) / block;
    uint32_t *index = keep(p, count * sizeof *index);
    ha_test_choose(index, count, 2 * count, true, p->ask.seed, PICK_STREAM + p->buffers);
    *rows = 2 * count * block;
    return index;
}

static void place(struct ha_test_device_problem *p, size_t b, size_t r, size_t first, size_t keys)
{
    const struct ha_test_device_ask *a = &p->ask;
    const size_t block = a->block ? a->block : 1, row_bytes = a->dim * ha_dtype_bytes(a->dtype);
    const bool by_heads = a->layout == HA_TEST_HEADS;
    struct ha_device_seq *seq = &p->seq[b];
    size_t rows = keys;
    const uint32_t *index = a->indexed >> r & 1 ? pick(p, keys, block, &rows) : NULL;
    if (by_heads) rows = 2 * (a->keys[b] + block); /* the distance of heads is one for all runs of a sequence */
    const struct pool k = pool_of(p, rows, 3), v = pool_of(p, rows + by_heads, 17);
    seq->runs[r] = (struct ha_rows){
        .k = k.base, .v = v.base, .k_stride_bytes = k.stride, .v_stride_bytes = v.stride, .index = index, .keys = keys
    };
    seq->k_head_bytes = k.head_bytes;
    seq->v_head_bytes = v.head_bytes;
    for (size_t h = 0; h < a->kv_heads; h++) {
        const struct ha_rows *plain = &p->kv[b * a->kv_heads + h].rows;
        for (size_t i = 0; i < keys; i++) {
            const size_t row = index ? index[i / block] * block + i % block : i;
            memcpy(k.base + h * k.head_bytes + row * k.stride, (const char *)plain->k + (first + i) * row_bytes,
                   row_bytes);
            memcpy(v.base + h * v.head_bytes + row * v.stride, (const char *)plain->v + (first + i) * row_bytes,
                   row_bytes);
        }
    }
}

/* keys of run r, of those that are left */
static size_t cut(const struct ha_test_device_ask *a, size_t b, size_t r, size_t left)
{
    const size_t last = a->causal ? a->q_len : a->keys[b] / 2; /* of the last run, at least */
    if (r + 1 == a->runs) return left;
    return a->empty_run && r == 0 ? 0 : (left - last) / (r + 2 == a->runs ? 1 : 3);
}

/* ---- the problem */

static size_t heads_of(const struct ha_test_device_problem *p) { return p->ask.kv_heads * p->ask.group; }
static size_t seed_of(const struct ha_test_device_ask *a, size_t b, size_t h)
{
    return a->seed * 1000003 + b * 1009 + h;
}

void ha_test_device_query(const struct ha_test_device_problem *p, size_t b, uint64_t seed)
{
    const struct ha_test_device_ask *a = &p->ask;
    float *q = ha_test_own(p->seq[b].q);
    for (size_t r = 0; r < a->q_len * heads_of(p); r++)
        ha_test_query(q + r * a->dim, a->family, a->dim, a->rounded ? a->dtype : HA_F32, seed + 1000 * r);
}

static void make_seq(struct ha_test_device_problem *p, size_t b)
{
    struct ha_test_device_ask *a = &p->ask;
    const size_t heads = heads_of(p), rows = a->q_len * heads;
    struct ha_device_seq *seq = &p->seq[b];
    for (size_t r = 0; a->run && r < a->runs; r++) a->keys[b] += a->run[b][r];
    const size_t keys = a->keys[b];
    *seq = (struct ha_device_seq){ .q = keep(p, rows * a->dim * sizeof(float)),
                                   .o = keep(p, rows * a->dim * sizeof(float)),
                                   .lse = keep(p, rows * sizeof(float)),
                                   .runs_count = a->runs };
    if (a->weights) {
        seq->weights_stride = keys + WEIGHTS_GAP;
        seq->weights = keep(p, (heads * seq->weights_stride - WEIGHTS_GAP) * sizeof(float));
    }
    ha_test_device_query(p, b, seed_of(a, b, 50));
    for (size_t h = 0; h < a->kv_heads; h++)
        ha_test_kv_make(&p->kv[b * a->kv_heads + h], HA_TEST_DENSE, a->family, a->dim, keys, a->dtype,
                        seed_of(a, b, h));
    for (size_t r = 0, first = 0; r < a->runs; first += seq->runs[r++].keys)
        place(p, b, r, first, a->run ? a->run[b][r] : cut(a, b, r, keys - first));
}

void ha_test_device_make(struct ha_test_device_problem *p, const struct ha_test_device_ask *ask,
                         const struct ha_test_memory *memory)
{
    *p = (struct ha_test_device_problem){ .ask = *ask,
                                          .memory = *memory,
                                          .seq = calloc(ask->batch + 1, sizeof *p->seq),
                                          .kv = calloc(ask->batch * ask->kv_heads + 1, sizeof *p->kv) };
    if (!p->seq || !p->kv) abort();
    for (size_t b = 0; b < ask->batch; b++) make_seq(p, b);
    p->ask.run = NULL;
    p->args = (struct ha_device_attend){ .batch = ask->batch,
                                         .q_len = ask->q_len,
                                         .q_heads = heads_of(p),
                                         .kv_heads = ask->kv_heads,
                                         .head_dim = ask->dim,
                                         .dtype = ask->dtype,
                                         .scale = 1 / sqrtf((float)ask->dim),
                                         .causal = ask->causal,
                                         .seqs = p->seq,
                                         .block = ask->block };
}

void ha_test_device_free(struct ha_test_device_problem *p)
{
    for (size_t i = 0; i < p->buffers; i++) p->memory.free(p->memory.self, p->buffer[i]);
    for (size_t i = 0; i < p->ask.batch * p->ask.kv_heads; i++) {
        ha_guard_free(ha_test_own(p->kv[i].rows.k));
        ha_guard_free(ha_test_own(p->kv[i].rows.v));
    }
    free(p->buffer);
    free(p->seq);
    free(p->kv);
}

void ha_test_device_poison(const struct ha_test_device_problem *p)
{
    const size_t heads = heads_of(p), rows = p->ask.q_len * heads;
    for (size_t b = 0; b < p->ask.batch; b++) {
        const struct ha_device_seq *seq = &p->seq[b];
        memset(seq->o, 0xFF, rows * p->ask.dim * sizeof *seq->o);
        memset(seq->lse, 0xFF, rows * sizeof *seq->lse);
        if (seq->weights)
            memset(seq->weights, 0xFF, (heads * seq->weights_stride - WEIGHTS_GAP) * sizeof *seq->weights);
    }
}

struct ha_test_device_error ha_test_device_judge(const struct ha_test_device_problem *p,
                                                 const struct ha_profile *profile, size_t runs, size_t b, size_t h)
{
    const struct ha_test_device_ask *ask = &p->ask;
    struct ha_rows rows[HA_RUNS_MAX];
    struct ha_attend a = ha_seq_attend(&p->args, &p->seq[b], h, rows);
    a.runs_count = runs;
    struct ha_test_device_error e = { .weight.ratio = 0 };
    struct ha_answer want;
    struct ha_why why;
    if (ha_answer_make(&want, &a, &p->kv[b * ask->kv_heads + h].rows, profile, 0, &why) != HA_OK) abort();
    e.output = ha_answer_judge(&want, &a);
    e.outputs = want.rows;
    if (ask->weights) {
        e.weight = ha_answer_judge_weights(&want, &a);
        e.weights = ask->group * want.keys;
    }
    ha_answer_free(&want);
    return e;
}

void ha_test_device_check(const struct ha_test_device_problem *p, const struct ha_profile *profile)
{
    for (size_t b = 0; b < p->ask.batch; b++) {
        const struct ha_device_seq *seq = &p->seq[b];
        for (size_t h = 0; h < p->ask.kv_heads; h++) {
            const struct ha_test_device_error e = ha_test_device_judge(p, profile, HA_RUNS_MAX, b, h);
            if (!(e.output.ratio <= 1 && e.weight.ratio <= 1))
                fail_msg("%s: seq %zu KV head %zu: error/bound %g of row %zu element %zu, %g of a weight",
                         ha_dtype_name(p->ask.dtype), b, h, e.output.ratio, e.output.row, e.output.at, e.weight.ratio);
        }
        for (size_t i = 0; seq->weights && i < (heads_of(p) - 1) * WEIGHTS_GAP; i++)
            assert_true(isnan(seq->weights[(i / WEIGHTS_GAP + 1) * seq->weights_stride - 1 - i % WEIGHTS_GAP]));
    }
}
