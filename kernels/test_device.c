#include "kernels/test_device.h"

#include "harness/base/seq_attend.h"

#include <math.h>

enum { PICK_STREAM = 60, WEIGHTS_GAP = 3, LIST_GAP = 2 };

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

/* Which pool rows the keys of a run are: of each of so many lists, which have none in common. */
static uint32_t *pick(struct ha_test_device_problem *p, size_t keys, size_t block, size_t lists, size_t stride,
                      size_t *rows)
{
    const size_t count = (keys + block - 1) / block, all = lists * count;
    uint32_t *index = keep(p, ((lists - 1) * stride + count) * sizeof *index),
             *chosen = malloc((all + 1) * sizeof *chosen);
    if (!chosen) abort();
    ha_test_choose(chosen, all, 2 * all, all > 0, p->ask.seed, PICK_STREAM + p->buffers);
    for (size_t i = 0; i < lists; i++) memcpy(index + i * stride, chosen + i * count, count * sizeof *index);
    free(chosen);
    *rows = 2 * all * block;
    return index;
}

/* keys of run 0 that a unit has, of so many; the list of unit 0 is one of each kind in turn */
static size_t listed(const struct ha_test_device_ask *a, size_t b, size_t unit, size_t keys)
{
    if (!a->list_keys) return keys;
    const size_t kind[] = { 0, keys / 2, keys - (keys > 0), keys };
    return kind[(a->seed + b + unit) % 4];
}

static size_t units_of(const struct ha_test_device_problem *p) { return ha_seq_units(&p->args); }

static void place(struct ha_test_device_problem *p, size_t b, size_t r, size_t first, size_t keys)
{
    const struct ha_test_device_ask *a = &p->ask;
    const size_t block = a->block ? a->block : 1, row_bytes = a->dim * ha_dtype_bytes(a->dtype);
    const bool by_heads = a->layout == HA_TEST_HEADS, lists = a->lists && r == 0;
    struct ha_device_seq *seq = &p->seq[b];
    const size_t units = units_of(p), of_head = units / a->kv_heads;
    if (lists) seq->list_stride = (keys + block - 1) / block + LIST_GAP;
    size_t rows = keys;
    const uint32_t *index = lists || a->indexed >> r & 1
                                ? pick(p, keys, block, lists ? units : 1, seq->list_stride, &rows)
                                : NULL;
    /* the distance of heads is one for all runs of a sequence */
    if (by_heads) rows = 2 * (a->lists ? units : 1) * (a->keys[b] + block);
    const struct pool k = pool_of(p, rows, 3), v = pool_of(p, rows + by_heads, 17);
    seq->runs[r] = (struct ha_rows){
        .k = k.base, .v = v.base, .k_stride_bytes = k.stride, .v_stride_bytes = v.stride, .index = index, .keys = keys
    };
    seq->k_head_bytes = k.head_bytes;
    seq->v_head_bytes = v.head_bytes;
    for (size_t u = 0; u < units; u += lists ? 1 : of_head) { /* units of a head have later runs in common */
        const size_t h = u / of_head, has = listed(a, b, u, seq->runs[0].keys), own = lists ? has : keys,
                     at = first - (r ? seq->runs[0].keys - has : 0);
        const struct ha_rows *plain = &p->kv[b * units + u].rows;
        const uint32_t *list = index ? index + (lists ? u * seq->list_stride : 0) : NULL;
        for (size_t i = 0; i < own; i++) {
            const size_t row = list ? list[i / block] * block + i % block : i;
            memcpy(k.base + h * k.head_bytes + row * k.stride, (const char *)plain->k + (at + i) * row_bytes,
                   row_bytes);
            memcpy(v.base + h * v.head_bytes + row * v.stride, (const char *)plain->v + (at + i) * row_bytes,
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

/* floats of q, and of o */
static size_t q_floats(const struct ha_test_device_problem *p)
{
    return (p->ask.q_len - 1) * ha_seq_token_stride(&p->args) + (heads_of(p) - 1) * ha_seq_head_stride(&p->args)
           + p->ask.dim;
}
static size_t seed_of(const struct ha_test_device_ask *a, size_t b, size_t h)
{
    return a->seed * 1000003 + b * 1009 + h;
}

void ha_test_device_query(const struct ha_test_device_problem *p, size_t b, uint64_t seed)
{
    const struct ha_test_device_ask *a = &p->ask;
    float *q = ha_test_own(p->seq[b].q);
    for (size_t r = 0; r < a->q_len * heads_of(p); r++)
        ha_test_query(q + r / heads_of(p) * ha_seq_token_stride(&p->args)
                          + r % heads_of(p) * ha_seq_head_stride(&p->args),
                      a->family, a->dim, a->rounded ? a->dtype : HA_F32, seed + 1000 * r);
}

static void make_seq(struct ha_test_device_problem *p, size_t b)
{
    struct ha_test_device_ask *a = &p->ask;
    const size_t heads = heads_of(p), rows = a->q_len * heads;
    const size_t units = units_of(p), row_bytes = a->dim * ha_dtype_bytes(a->dtype);
    struct ha_device_seq *seq = &p->seq[b];
    for (size_t r = 0; a->run && r < a->runs; r++) a->keys[b] += a->run[b][r];
    const size_t keys = a->keys[b];
    *seq = (struct ha_device_seq){ .q = keep(p, q_floats(p) * sizeof(float)),
                                   .o = keep(p, q_floats(p) * sizeof(float)),
                                   .lse = keep(p, rows * sizeof(float)),
                                   .runs_count = a->runs };
    if (a->weights) {
        seq->weights_stride = keys + WEIGHTS_GAP;
        seq->weights = keep(p, (heads * seq->weights_stride - WEIGHTS_GAP) * sizeof(float));
    }
    ha_test_device_query(p, b, seed_of(a, b, 50));
    const size_t of_lists = a->run ? a->run[b][0] : cut(a, b, 0, keys);
    for (size_t u = 0; u < units; u++) {
        struct ha_test_kv *kv = &p->kv[b * units + u], *first = kv - u % (units / a->kv_heads);
        const size_t has = a->lists ? listed(a, b, u, of_lists) : 0, after = a->lists ? keys - of_lists : 0;
        ha_test_kv_make(kv, HA_TEST_DENSE, a->family, a->dim, a->lists ? has + after : keys, a->dtype,
                        seed_of(a, b, u));
        if (kv == first || after == 0) continue;
        memcpy((char *)ha_test_own(kv->rows.k) + has * row_bytes,
               (const char *)first->rows.k + (first->keys - after) * row_bytes, after * row_bytes);
        memcpy((char *)ha_test_own(kv->rows.v) + has * row_bytes,
               (const char *)first->rows.v + (first->keys - after) * row_bytes, after * row_bytes);
    }
    if (a->list_keys) {
        uint32_t *of = keep(p, units * sizeof *of);
        for (size_t u = 0; u < units; u++) of[u] = (uint32_t)listed(a, b, u, of_lists);
        seq->list_keys = of;
    }
    for (size_t r = 0, first = 0; r < a->runs; first += seq->runs[r++].keys)
        place(p, b, r, first, a->run ? a->run[b][r] : cut(a, b, r, keys - first));
}

void ha_test_device_make(struct ha_test_device_problem *p, const struct ha_test_device_ask *ask,
                         const struct ha_test_memory *memory)
{
    *p = (struct ha_test_device_problem){ .ask = *ask,
                                          .memory = *memory,
                                          .seq = calloc(ask->batch + 1, sizeof *p->seq) };
    const size_t head = ask->dim + ask->q_gap;
    const bool by_heads = ask->q_gap % 2;
    p->args = (struct ha_device_attend){ .batch = ask->batch,
                                         .q_len = ask->q_len,
                                         .q_heads = heads_of(p),
                                         .kv_heads = ask->kv_heads,
                                         .head_dim = ask->dim,
                                         .dtype = ask->dtype,
                                         .scale = 1 / sqrtf((float)ask->dim),
                                         .causal = ask->causal,
                                         .seqs = p->seq,
                                         .block = ask->block,
                                         .lists = ask->lists };
    if (ask->q_gap) {
        p->args.q_token_stride = by_heads ? head : heads_of(p) * head;
        p->args.q_head_stride = by_heads ? ask->q_len * head : head;
    }
    p->kv = calloc(ask->batch * units_of(p) + 1, sizeof *p->kv);
    if (!p->seq || !p->kv) abort();
    for (size_t b = 0; b < ask->batch; b++) make_seq(p, b);
    p->ask.run = NULL;
}

void ha_test_device_free(struct ha_test_device_problem *p)
{
    for (size_t i = 0; i < p->buffers; i++) p->memory.free(p->memory.self, p->buffer[i]);
    for (size_t i = 0; i < p->ask.batch * units_of(p); i++) {
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
        memset(seq->o, 0xFF, q_floats(p) * sizeof *seq->o);
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
    if (ha_answer_make(&want, &a, &p->kv[b * units_of(p) + h].rows, profile, 0, &why) != HA_OK) abort();
    e.output = ha_answer_judge(&want, &a);
    e.outputs = want.rows;
    if (ask->weights) {
        e.weight = ha_answer_judge_weights(&want, &a);
        e.weights = a.group * want.keys;
    }
    ha_answer_free(&want);
    return e;
}

void ha_test_device_check(const struct ha_test_device_problem *p, const struct ha_profile *profile)
{
    for (size_t b = 0; b < p->ask.batch; b++) {
        const struct ha_device_seq *seq = &p->seq[b];
        for (size_t h = 0; h < units_of(p); h++) {
            const struct ha_test_device_error e = ha_test_device_judge(p, profile, HA_RUNS_MAX, b, h);
            if (!(e.output.ratio <= 1 && e.weight.ratio <= 1))
                fail_msg("%s: seq %zu unit %zu: error/bound %g of row %zu element %zu, %g of a weight",
                         ha_dtype_name(p->ask.dtype), b, h, e.output.ratio, e.output.row, e.output.at, e.weight.ratio);
        }
        for (size_t i = 0; seq->weights && i < (heads_of(p) - 1) * WEIGHTS_GAP; i++)
            assert_true(isnan(seq->weights[(i / WEIGHTS_GAP + 1) * seq->weights_stride - 1 - i % WEIGHTS_GAP]));
        const size_t head = p->ask.dim + p->ask.q_gap;
        for (size_t i = 0; p->ask.q_gap && i < q_floats(p); i++) assert_true(i % head < p->ask.dim || isnan(seq->o[i]));
    }
}
