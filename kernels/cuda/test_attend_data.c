#include "kernels/cuda/test_attend_data.h"

#include "harness/base/numeric.h"
#include "kernels/cuda/emulation/simt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool only_counted;
static unsigned counted;

/* A launch runs at once. */
cudaError_t ha_emulated_launch(const char *name, void (*run)(const void *args), const void *args, size_t bytes,
                               dim3 grid, dim3 block, cudaStream_t stream)
{
    (void)bytes, (void)stream;
    if (only_counted) {
        if (strstr(name, "mma") || strstr(name, "fma")) counted = grid.x;
        return cudaSuccess;
    }
    ha_emulated_run(name, run, args, (unsigned[]){ grid.x, grid.y, grid.z }, (unsigned[]){ block.x, block.y, block.z });
    return cudaSuccess;
}

/* what the device's functions are measured to be, and more */
static const double EPS = 0x1p-22;

enum { PATH_FMA, PATH_MMA, PATHS };
static double worst[PATHS][HA_DTYPE_COUNT], worst_weight;
static size_t judged, judged_weights;

static void *keep(struct problem_run *run, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    run->buffer = realloc(run->buffer, (run->buffers + 1) * sizeof *run->buffer);
    if (!p || !run->buffer) abort();
    run->buffer[run->buffers++] = p;
    return memset(p, 0xFF, bytes ? bytes : 1);
}

enum { PICK_STREAM = 60 };

/* ---- where they lie */

static size_t stride_of(const struct problem *p, size_t odd)
{
    const size_t size = ha_dtype_bytes(p->dtype), row = p->dim * size;
    switch (p->layout) {
    case LAYOUT_HEADS: return row;
    case LAYOUT_TOKENS: return p->kv_heads * row;
    case LAYOUT_OFF_BY_EIGHT: return p->kv_heads * row + 8;
    default: return p->kv_heads * row + odd * size;
    }
}

struct pool {
    char *base;
    size_t rows, stride, head_bytes;
};

static struct pool pool_of(struct problem_run *run, const struct problem *p, size_t rows, size_t odd)
{
    const size_t size = ha_dtype_bytes(p->dtype), row = p->dim * size, stride = stride_of(p, odd);
    const size_t shift = p->layout == LAYOUT_OFF_BY_EIGHT ? 8 : p->layout == LAYOUT_ODD ? size : 0;
    const size_t within = p->layout == LAYOUT_HEADS ? row : p->kv_heads * row,
                 copies = p->layout == LAYOUT_HEADS ? p->kv_heads : 1;
    const size_t bytes = rows ? (copies * rows - 1) * stride + within : 0;
    struct pool pool = { .rows = rows,
                         .stride = stride,
                         .head_bytes = p->layout == LAYOUT_HEADS ? rows * stride : row };
    pool.base = (char *)keep(run, bytes + shift) + shift;
    return pool;
}

/* which pool rows the keys of a run are */
static uint32_t *pick(struct problem_run *run, const struct problem *p, size_t keys, size_t block, size_t *rows)
{
    const size_t count = (keys + block - 1) / block;
    uint32_t *index = keep(run, count * sizeof *index);
    ha_test_choose(index, count, 2 * count, true, p->seed, PICK_STREAM + run->buffers);
    *rows = 2 * count * block;
    return index;
}

static void place(struct problem_run *run, const struct problem *p, size_t b, size_t r, size_t first, size_t keys)
{
    const size_t block = p->block ? p->block : 1, row_bytes = p->dim * ha_dtype_bytes(p->dtype);
    struct ha_device_seq *seq = &run->seq[b];
    size_t rows = keys;
    const uint32_t *index = p->indexed >> r & 1 ? pick(run, p, keys, block, &rows) : NULL;
    /* the distance of heads is one for all runs of a sequence */
    if (p->layout == LAYOUT_HEADS) rows = 2 * (p->keys[b] + block);
    const struct pool k = pool_of(run, p, rows, 3), v = pool_of(run, p, rows + (p->layout == LAYOUT_HEADS), 17);
    seq->runs[r] = (struct ha_rows){
        .k = k.base, .v = v.base, .k_stride_bytes = k.stride, .v_stride_bytes = v.stride, .index = index, .keys = keys
    };
    seq->k_head_bytes = k.head_bytes;
    seq->v_head_bytes = v.head_bytes;
    for (size_t h = 0; h < p->kv_heads; h++) {
        const struct ha_rows *plain = &run->kv[b * p->kv_heads + h].rows;
        for (size_t i = 0; i < keys; i++) {
            const size_t row = index ? index[i / block] * block + i % block : i;
            memcpy(k.base + h * k.head_bytes + row * k.stride, (const char *)plain->k + (first + i) * row_bytes,
                   row_bytes);
            memcpy(v.base + h * v.head_bytes + row * v.stride, (const char *)plain->v + (first + i) * row_bytes,
                   row_bytes);
        }
    }
}

static void cut(struct problem_run *run, const struct problem *p, size_t b)
{
    const size_t last = p->causal ? p->q_len : p->keys[b] / 2; /* of the last run, at least */
    size_t left = p->keys[b], first = 0;
    run->seq[b].runs_count = p->runs;
    for (size_t r = 0; r < p->runs; r++) {
        const size_t keys = r + 1 == p->runs         ? left
                            : p->empty_run && r == 0 ? 0
                                                     : (left - last) / (r + 2 == p->runs ? 1 : 3);
        place(run, p, b, r, first, keys);
        first += keys;
        left -= keys;
    }
}

static uint64_t seed_of(const struct problem *p, size_t b, size_t h) { return p->seed * 1000003 + b * 1009 + h; }

void problem_make(struct problem_run *run, const struct problem *p)
{
    const size_t heads = p->kv_heads * p->group;
    *run = (struct problem_run){ .seq = calloc(p->batch, sizeof *run->seq),
                                 .kv = calloc(p->batch * p->kv_heads, sizeof *run->kv),
                                 .kvs = p->batch * p->kv_heads };
    if (!run->seq || !run->kv) abort();
    for (size_t b = 0; b < p->batch; b++) {
        struct ha_device_seq *seq = &run->seq[b];
        float *q = keep(run, p->q_len * heads * p->dim * sizeof *q);
        for (size_t t = 0; t < p->q_len; t++)
            for (size_t h = 0; h < heads; h++)
                ha_test_query(q + (t * heads + h) * p->dim, p->family, p->dim, HA_F32, seed_of(p, b, h + 100 * t + 50));
        seq->q = q;
        seq->o = keep(run, p->q_len * heads * p->dim * sizeof *seq->o);
        seq->lse = keep(run, p->q_len * heads * sizeof *seq->lse);
        seq->weights_stride = p->keys[b] + 3;
        seq->weights = p->weights ? keep(run, (heads * seq->weights_stride - 3) * sizeof *seq->weights) : NULL;
        for (size_t h = 0; h < p->kv_heads; h++)
            ha_test_kv_make(&run->kv[b * p->kv_heads + h], HA_TEST_DENSE, p->family, p->dim, p->keys[b], p->dtype,
                            seed_of(p, b, h));
        cut(run, p, b);
    }
}

void problem_free(struct problem_run *run)
{
    for (size_t i = 0; i < run->buffers; i++) free(run->buffer[i]);
    free(run->buffer);
    free(run->seq);
    for (size_t i = 0; i < run->kvs; i++) ha_test_kv_free(&run->kv[i]);
    free(run->kv);
}

/* ---- the kernels */

static float scale_of(const struct problem *p) { return 1 / sqrtf((float)p->dim); }

void problem_attend(const struct problem_run *run, const struct problem *p, unsigned splits)
{
    const size_t heads = p->kv_heads * p->group;
    const struct ha_cuda_gpu gpu = { .multiprocessors = p->multiprocessors ? p->multiprocessors : 132,
                                     .compute_major = 9 };
    const struct ha_device_attend args = {
        .batch = p->batch,
        .q_len = p->q_len,
        .q_heads = heads,
        .kv_heads = p->kv_heads,
        .head_dim = p->dim,
        .dtype = p->dtype,
        .scale = scale_of(p),
        .causal = p->causal,
        .seqs = run->seq,
        .block = p->block,
    };
    for (size_t b = 0; b < p->batch; b++) {
        const struct ha_device_seq *seq = &run->seq[b];
        memset(seq->o, 0xFF, p->q_len * heads * p->dim * sizeof *seq->o);
        memset(seq->lse, 0xFF, p->q_len * heads * sizeof *seq->lse);
        if (seq->weights) memset(seq->weights, 0xFF, (heads * seq->weights_stride - 3) * sizeof *seq->weights);
    }
    const size_t bytes = ha_cuda_attend_workspace(&gpu, &args);
    void *workspace = aligned_alloc(256, bytes + (bytes ? 0 : 256));
    assert_non_null(workspace);
    memset(workspace, 0xFF, bytes);
    assert_int_equal(ha_cuda_attend(&gpu, NULL, &args, workspace, splits), cudaSuccess);
    free(workspace);
}

unsigned problem_blocks(const struct ha_cuda_gpu *gpu, const struct ha_device_attend *args)
{
    char workspace[1];
    only_counted = true;
    assert_int_equal(ha_cuda_attend(gpu, NULL, args, workspace, 0), cudaSuccess);
    only_counted = false;
    return counted;
}

/* ---- the answers */

static int path_of(const struct problem *p)
{
    const bool aligned = p->layout == LAYOUT_HEADS || p->layout == LAYOUT_TOKENS;
    return p->dtype != HA_F32 && aligned && p->q_len * p->group > 1 ? PATH_MMA : PATH_FMA;
}

static void judge_error(const struct problem *p, const char *what, size_t b, size_t head,
                        const struct ha_answer_error *e, double *most)
{
    *most = fmax(*most, e->ratio);
    if (e->ratio <= 1) return;
    printf("%s %s d=%zu kv_heads=%zu group=%zu q_len=%zu batch=%zu keys=%zu runs=%zu block=%zu indexed=%u causal=%d "
           "layout=%d family=%d "
           "splits=%u seed=%lu: %s of sequence %zu, KV head %zu, row %zu, %zu: ratio %g\n",
           path_of(p) == PATH_MMA ? "mma" : "fma", ha_dtype_name(p->dtype), p->dim, p->kv_heads, p->group, p->q_len,
           p->batch, p->keys[b], p->runs, p->block, p->indexed, p->causal, (int)p->layout, (int)p->family, p->splits,
           (unsigned long)p->seed, what, b, head, e->row, e->at, e->ratio);
    fail();
}

static void judge_head(const struct problem_run *run, const struct problem *p, size_t b, size_t h)
{
    const size_t heads = p->kv_heads * p->group, first = h * p->group;
    const struct ha_device_seq *seq = &run->seq[b];
    const struct ha_attend a = {
        .q = seq->q + first * p->dim,
        .q_len = p->q_len,
        .group = p->group,
        .head_dim = p->dim,
        .q_token_stride = heads * p->dim,
        .q_head_stride = p->dim,
        .runs_count = p->runs,
        .dtype = p->dtype,
        .scale = scale_of(p),
        .causal = p->causal,
        .o = seq->o + first * p->dim,
        .lse = seq->lse + first,
        .lse_token_stride = heads,
        .lse_head_stride = 1,
        .weights = p->weights ? seq->weights + first * seq->weights_stride : NULL,
        .weights_stride = seq->weights_stride,
    };
    struct ha_profile profile = ha_cuda_attend_profile(p->dtype);
    struct ha_answer want;
    struct ha_why why;
    profile.exp_eps = profile.log_eps = EPS;
    assert_int_equal(ha_answer_make(&want, &a, &run->kv[b * p->kv_heads + h].rows, &profile, 0, &why), HA_OK);
    const struct ha_answer_error e = ha_answer_judge(&want, &a);
    judge_error(p, "output", b, h, &e, &worst[path_of(p)][p->dtype]);
    judged += want.rows;
    if (p->weights) {
        const struct ha_answer_error w = ha_answer_judge_weights(&want, &a);
        judge_error(p, "weight", b, h, &w, &worst_weight);
        judged_weights += p->group * want.keys;
    }
    ha_answer_free(&want);
}

void problem_judge(const struct problem_run *run, const struct problem *p)
{
    for (size_t b = 0; b < p->batch; b++)
        for (size_t h = 0; h < p->kv_heads; h++) judge_head(run, p, b, h);
}

void problem_check(const struct problem *p)
{
    struct problem_run run;
    problem_make(&run, p);
    problem_attend(&run, p, p->splits);
    problem_judge(&run, p);
    problem_free(&run);
}

void problem_report(void)
{
    static const char *const name[PATHS] = { "fma", "mma" };
    for (int path = 0; path < PATHS; path++)
        printf("%s: worst error / bound: f32 %.3f, f16 %.3f, bf16 %.3f\n", name[path], worst[path][HA_F32],
               worst[path][HA_F16], worst[path][HA_BF16]);
    printf("%zu outputs; %zu weights, worst / bound: %.3f\n", judged, judged_weights, worst_weight);
}
