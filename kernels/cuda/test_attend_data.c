#include "kernels/cuda/test_attend_data.h"

#include "harness/base/numeric.h"
#include "harness/base/rng.h"
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

/* ---- values */

enum stream { Q, K, V, PICK };

static void query(const struct problem *p, float *q, uint64_t seed)
{
    ha_rng_normals(seed, Q, 0, p->dim, q);
    for (size_t d = 0; d < p->dim; d++) switch (p->family) {
        case FAMILY_PEAKED: q[d] *= 12; break;
        case FAMILY_TIES: q[d] = 0.7f; break;
        case FAMILY_INCREASING:
        case FAMILY_DECREASING:
        case FAMILY_DOMINANT: q[d] = 1 + 0.1f * q[d]; break;
        case FAMILY_OFFSET: q[d] = 100 + q[d]; break;
        case FAMILY_HUGE: q[d] *= 1e4f; break;
        case FAMILY_CANCELLING: q[d] = 50 + 0.01f * q[d]; break;
        case FAMILY_FINE: q[d] = d % 2 ? -1024 + 0.2f * q[d] : 1024 + 0.2f * q[d]; break;
        default: break;
        }
}

static void key(const struct problem *p, size_t keys, size_t i, uint64_t seed, float *k, float *v)
{
    ha_rng_normals(seed, K, i * p->dim, p->dim, k);
    ha_rng_normals(seed, V, i * p->dim, p->dim, v);
    const float root = sqrtf((float)p->dim), rise = (40 * (float)i / (float)keys - 20) / root;
    for (size_t d = 0; d < p->dim; d++) switch (p->family) {
        case FAMILY_TIES: k[d] = 1.1f, v[d] = 0.1f; break;
        case FAMILY_INCREASING: k[d] = rise + 0.1f * k[d]; break;
        case FAMILY_DECREASING: k[d] = -rise + 0.1f * k[d]; break;
        case FAMILY_DOMINANT: k[d] = i == keys / 2 ? 40 / root : 0.1f * k[d]; break;
        case FAMILY_OFFSET: k[d] = 10 / root + 0.001f * k[d]; break;
        case FAMILY_CANCELLING: k[d] = (d % 2 ? -3 : 3) + 0.01f * k[d]; break;
        case FAMILY_SMALL: v[d] *= p->dtype == HA_F16 ? 1e-6f : 1e-37f; break;
        case FAMILY_FINE: k[d] = d % 2 ? 1 : 1 + (d == 0 ? 0.05f * k[d] : 0); break;
        default: break;
        }
    if (p->family == FAMILY_FINE) /* each pair alike, so that only the queries' differences are seen */
        for (size_t d = 0; d + 1 < p->dim; d += 2)
            k[d] = k[d + 1] = ha_rng_uniform(seed, K, i * p->dim + d) < 0.5f ? 1 : 0.5f;
}

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
    const size_t count = (keys + block - 1) / block, pool = 2 * count;
    uint32_t *index = keep(run, count * sizeof *index), *all = malloc((pool + 1) * sizeof *all);
    if (!all) abort();
    for (size_t i = 0; i < pool; i++) all[i] = (uint32_t)i;
    for (size_t i = 0; i < count; i++) {
        const size_t j = i == count / 2 ? pool - 1
                                        : i + ha_rng_below(p->seed, PICK, i + run->buffers * 100000, pool - 1 - i);
        const uint32_t take = all[j];
        all[j] = all[i];
        all[i] = index[i] = take;
    }
    free(all);
    *rows = pool * block;
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
        const struct ha_rows *plain = &run->plain[b * p->kv_heads + h];
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
    const size_t heads = p->kv_heads * p->group, row_bytes = p->dim * ha_dtype_bytes(p->dtype);
    *run = (struct problem_run){ .seq = calloc(p->batch, sizeof *run->seq),
                                 .plain = calloc(p->batch * p->kv_heads, sizeof *run->plain) };
    float *x = malloc(2 * p->dim * sizeof *x);
    if (!run->seq || !run->plain || !x) abort();
    for (size_t b = 0; b < p->batch; b++) {
        struct ha_device_seq *seq = &run->seq[b];
        float *q = keep(run, p->q_len * heads * p->dim * sizeof *q);
        for (size_t t = 0; t < p->q_len; t++)
            for (size_t h = 0; h < heads; h++) query(p, q + (t * heads + h) * p->dim, seed_of(p, b, h + 100 * t + 50));
        seq->q = q;
        seq->o = keep(run, p->q_len * heads * p->dim * sizeof *seq->o);
        seq->lse = keep(run, p->q_len * heads * sizeof *seq->lse);
        seq->weights_stride = p->keys[b] + 3;
        seq->weights = p->weights ? keep(run, (heads * seq->weights_stride - 3) * sizeof *seq->weights) : NULL;
        for (size_t h = 0; h < p->kv_heads; h++) {
            char *k = keep(run, p->keys[b] * row_bytes), *v = keep(run, p->keys[b] * row_bytes);
            for (size_t i = 0; i < p->keys[b]; i++) {
                key(p, p->keys[b], i, seed_of(p, b, h), x, x + p->dim);
                ha_store_row(k + i * row_bytes, p->dim, p->dtype, x);
                ha_store_row(v + i * row_bytes, p->dim, p->dtype, x + p->dim);
            }
            run->plain[b * p->kv_heads + h] = (struct ha_rows){
                .k = k, .v = v, .k_stride_bytes = row_bytes, .v_stride_bytes = row_bytes, .keys = p->keys[b]
            };
        }
        cut(run, p, b);
    }
    free(x);
}

void problem_free(struct problem_run *run)
{
    for (size_t i = 0; i < run->buffers; i++) free(run->buffer[i]);
    free(run->buffer);
    free(run->seq);
    free(run->plain);
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

static void wrong(const struct problem *p, const char *what, size_t b, size_t row, size_t column, double ratio)
{
    printf("%s %s d=%zu kv_heads=%zu group=%zu q_len=%zu batch=%zu keys=%zu runs=%zu block=%zu indexed=%u causal=%d "
           "layout=%d family=%d "
           "splits=%u seed=%lu: %s of sequence %zu, row %zu, %zu: ratio %g\n",
           path_of(p) == PATH_MMA ? "mma" : "fma", ha_dtype_name(p->dtype), p->dim, p->kv_heads, p->group, p->q_len,
           p->batch, p->keys[b], p->runs, p->block, p->indexed, p->causal, (int)p->layout, (int)p->family, p->splits,
           (unsigned long)p->seed, what, b, row, column, ratio);
    fail();
}

static struct ha_bound bound_of(const struct problem *p, size_t visible)
{
    struct ha_profile profile = ha_cuda_attend_profile(p->dtype);
    profile.exp_eps = profile.log_eps = EPS;
    return ha_bound_attend(&profile, p->dim, visible, p->runs);
}

static size_t visible(const struct problem *p, size_t b, size_t token)
{
    const size_t hidden = p->causal ? p->q_len - 1 - token : 0;
    return p->keys[b] > hidden ? p->keys[b] - hidden : 0;
}

/* One query head's weights: each the mean of exact ones over the tokens, and all together one for each token that sees
 * a key. A score is within (h_dot + kappa) u scale sum |q k|, and a weight as if every score were off by the most. */
static void judge_weights(const struct problem_run *run, const struct problem *p, size_t b, size_t head)
{
    const size_t heads = p->kv_heads * p->group, keys = p->keys[b];
    const struct ha_device_seq *seq = &run->seq[b];
    const struct ha_rows *rows = &run->plain[b * p->kv_heads + head / p->group];
    const float *got = seq->weights + head * seq->weights_stride;
    double *mean = calloc(2 * keys + 1, sizeof *mean), *one = mean + keys, most = 0, seeing = 0, sum = 0, kk = 0;
    float k[256];
    assert_non_null(mean);
    for (size_t i = 0; i < keys; i++) {
        double square = 0;
        ha_load_row((const char *)rows->k + i * rows->k_stride_bytes, p->dim, p->dtype, k);
        for (size_t d = 0; d < p->dim; d++) square += (double)k[d] * (double)k[d];
        kk = fmax(kk, square);
    }
    for (size_t t = 0; t < p->q_len; t++) {
        const float *q = seq->q + (t * heads + head) * p->dim;
        struct ha_rows seen = *rows;
        double square = 0;
        seen.keys = visible(p, b, t);
        seeing += seen.keys > 0;
        ha_ref_weights(q, p->dim, (double)scale_of(p), &seen, p->dtype, one);
        for (size_t i = 0; i < seen.keys; i++) mean[i] += one[i] / (double)p->q_len;
        for (size_t d = 0; d < p->dim; d++) square += (double)q[d] * (double)q[d];
        most = fmax(most, (double)scale_of(p) * sqrt(square * kk));
    }
    const struct ha_bound bound = bound_of(p, keys);
    const double u = 0x1p-24, score = (bound.h_dot + bound.kappa_s + 2 * bound.kappa_t) * u * most + bound.exp_eps;
    const double eps = expm1(2 * score + (bound.h_sum + (double)p->q_len + 6) * u);
    for (size_t i = 0; i < keys; i++) {
        const double ratio = fabs((double)got[i] - mean[i]) / (mean[i] * eps + 0x1p-126);
        if (!(ratio <= 1)) wrong(p, "weight", b, head, i, ratio);
        worst_weight = fmax(worst_weight, ratio);
        judged_weights++;
        sum += (double)got[i];
    }
    const double all = seeing / (double)p->q_len;
    if (eps < 1 && !(fabs(sum - all) <= all * eps))
        wrong(p, "sum of the weights", b, head, 0, fabs(sum - all) / (all * eps));
    free(mean);
}

static void judge_head(const struct problem_run *run, const struct problem *p, size_t b, size_t h)
{
    const size_t heads = p->kv_heads * p->group, rows = p->q_len * p->group, keys = p->keys[b];
    const struct ha_device_seq *seq = &run->seq[b];
    struct ha_ref_query *ask = calloc(rows, sizeof *ask);
    struct ha_ref_state *state = calloc(rows, sizeof *state);
    struct ha_bound *bound = calloc(rows, sizeof *bound);
    double *space = calloc(rows * 4 * p->dim, sizeof *space),
           *work = malloc((rows < 32 ? rows : 32) * (2 * keys + p->dim) * sizeof *work);
    if (!ask || !state || !bound || !space || !work) abort();
    for (size_t r = 0; r < rows; r++) {
        const size_t t = r / p->group, at = t * heads + h * p->group + r % p->group;
        double *x = space + r * 4 * p->dim;
        bound[r] = bound_of(p, visible(p, b, t));
        state[r] = (struct ha_ref_state){
            .o = x, .bound = x + p->dim, .v_min = x + 2 * p->dim, .v_max = x + 3 * p->dim, .dim = p->dim
        };
        ask[r] = (struct ha_ref_query){
            .q = seq->q + at * p->dim, .visible = visible(p, b, t), .bound = &bound[r], .out = &state[r]
        };
    }
    ha_ref_attend_group(ask, rows, p->dim, (double)scale_of(p), &run->plain[b * p->kv_heads + h], p->dtype, work);
    for (size_t r = 0; r < rows; r++) {
        const size_t at = r / p->group * heads + h * p->group + r % p->group;
        size_t column;
        const double ratio = ha_ref_ratio(seq->o + at * p->dim, seq->lse[at], &state[r], &column);
        if (!(ratio <= 1)) wrong(p, "output", b, at, column, ratio);
        worst[path_of(p)][p->dtype] = fmax(worst[path_of(p)][p->dtype], ratio);
        judged++;
    }
    free(ask), free(state), free(bound), free(space), free(work);
}

void problem_judge(const struct problem_run *run, const struct problem *p)
{
    for (size_t b = 0; b < p->batch; b++) {
        for (size_t h = 0; h < p->kv_heads; h++) judge_head(run, p, b, h);
        for (size_t h = 0; p->weights && h < p->kv_heads * p->group; h++) judge_weights(run, p, b, h);
    }
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
