#include "kernels/test_device.h"

#include "harness/base/seq_attend.h"

#include <math.h>

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

static size_t heads_of(const struct ha_test_device_problem *p) { return p->ask.kv_heads * p->ask.group; }

/* floats of q, and of o */
static size_t q_floats(const struct ha_test_device_problem *p)
{
    return (p->ask.q_len - 1) * ha_seq_token_stride(&p->args) + (heads_of(p) - 1) * ha_seq_head_stride(&p->args)
           + p->ask.dim;
}

void ha_test_device_query(const struct ha_test_device_problem *p, size_t b, uint64_t seed)
{
    const struct ha_test_device_ask *a = &p->ask;
    float *q = ha_test_own(p->seq[b].q);
    for (size_t r = 0; r < a->q_len * heads_of(p); r++)
        ha_test_query(q + r / heads_of(p) * ha_seq_token_stride(&p->args)
                          + r % heads_of(p) * ha_seq_head_stride(&p->args),
                      a->dim, a->rounded ? a->dtype : HA_F32, seed + 1000 * r);
}

/* A run of all heads, of so many keys from the first on: [keys][kv_heads][dim]. */
static struct ha_rows rows_of(struct ha_test_device_problem *p, const struct ha_test_kv *kv, size_t first, size_t keys)
{
    const size_t size = ha_dtype_bytes(p->ask.dtype), row = p->ask.dim * size, heads = p->ask.kv_heads,
                 stride = heads * row + p->ask.pad * size;
    char *at[2];
    for (size_t v = 0; v < 2; v++) {
        at[v] = keep(p, keys ? (keys - 1) * stride + heads * row : 0);
        for (size_t i = 0; i < keys * heads; i++)
            memcpy(at[v] + i / heads * stride + i % heads * row,
                   (const char *)(v ? kv[i % heads].rows.v : kv[i % heads].rows.k) + (first + i / heads) * row, row);
    }
    return (struct ha_rows){ .k = at[0], .v = at[1], .k_stride_bytes = stride, .v_stride_bytes = stride, .keys = keys };
}

static void make_seq(struct ha_test_device_problem *p, size_t b)
{
    const struct ha_test_device_ask *a = &p->ask;
    struct ha_device_seq *seq = &p->seq[b];
    struct ha_test_kv *kv = &p->kv[b * a->kv_heads];
    size_t keys = 0;
    for (size_t r = 0; r < a->runs; r++) keys += a->run[b][r];
    *seq = (struct ha_device_seq){ .q = keep(p, q_floats(p) * sizeof(float)),
                                   .o = keep(p, q_floats(p) * sizeof(float)),
                                   .lse = keep(p, a->q_len * heads_of(p) * sizeof(float)),
                                   .runs_count = a->runs,
                                   .k_head_bytes = a->dim * ha_dtype_bytes(a->dtype),
                                   .v_head_bytes = a->dim * ha_dtype_bytes(a->dtype) };
    ha_test_device_query(p, b, a->seed * 1000003 + b * 1009 + 50);
    for (size_t h = 0; h < a->kv_heads; h++)
        ha_test_kv_make(&kv[h], HA_TEST_DENSE, a->dim, keys, a->dtype, a->seed * 1000003 + b * 1009 + h);
    for (size_t r = 0, first = 0; r < a->runs; first += a->run[b][r++])
        seq->runs[r] = rows_of(p, kv, first, a->run[b][r]);
}

void ha_test_device_make(struct ha_test_device_problem *p, const struct ha_test_device_ask *ask,
                         const struct ha_test_memory *memory)
{
    *p = (struct ha_test_device_problem){ .ask = *ask,
                                          .memory = *memory,
                                          .seq = calloc(ask->batch + 1, sizeof *p->seq),
                                          .kv = calloc(ask->batch * ask->kv_heads + 1, sizeof *p->kv) };
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
                                         .seqs = p->seq };
    if (ask->q_gap) {
        p->args.q_token_stride = by_heads ? head : heads_of(p) * head;
        p->args.q_head_stride = by_heads ? ask->q_len * head : head;
    }
    if (!p->seq || !p->kv) abort();
    for (size_t b = 0; b < ask->batch; b++) make_seq(p, b);
    p->ask.run = NULL;
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

static void judge(const struct ha_test_device_problem *p, const struct ha_profile *profile, size_t b, size_t h)
{
    struct ha_rows rows[HA_RUNS_MAX];
    struct ha_attend a = ha_seq_attend(&p->args, &p->seq[b], h, rows);
    struct ha_answer want;
    struct ha_why why;
    a.runs_count = HA_RUNS_MAX;
    if (ha_answer_make(&want, &a, &p->kv[b * p->ask.kv_heads + h].rows, profile, 0, &why) != HA_OK) abort();
    const struct ha_answer_error e = ha_answer_judge(&want, &a);
    ha_answer_free(&want);
    if (!(e.ratio <= 1))
        fail_msg("%s: seq %zu head %zu: error/bound %g of row %zu element %zu", ha_dtype_name(p->ask.dtype), b, h,
                 e.ratio, e.row, e.at);
}

void ha_test_device_check(const struct ha_test_device_problem *p, const struct ha_profile *profile)
{
    const size_t head = p->ask.dim + p->ask.q_gap;
    for (size_t b = 0; b < p->ask.batch; b++) {
        for (size_t h = 0; h < p->ask.kv_heads; h++) judge(p, profile, b, h);
        for (size_t i = 0; p->ask.q_gap && i < q_floats(p); i++)
            assert_true(i % head < p->ask.dim || isnan(p->seq[b].o[i]));
    }
}
