/* Features of query heads: a block for each sequence, a warp for one head after the other. The largest norm of all
 * heads is known when all are through. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 512, WARPS = THREADS / HA_WARP };

struct features_args {
    size_t q_heads, group, dim; /* group: heads of a KV head */
    float scale;
    const float *mean, *inv;
    struct ha_device_features_seq seq[HA_CUDA_BATCH];
};
struct features_shared {
    float most[WARPS];
};

/* the larger one, NaN if either is */
static __device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }

static __device__ __forceinline__ bool no_keys(float lse) { return lse == -INFINITY; }

static __device__ __forceinline__ float standardised(const struct features_args &a, size_t feature, float x)
{
    const float limit = HA_FEATURE_LIMIT, inv = a.inv[feature];
    if (x != x) return x;
    x = inv == 0 ? 0 : (x - a.mean[feature]) * inv;
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* What one head's vectors say; all lanes have it. */
struct head_sums {
    float q_norm, anchor_norm, anchor, mean_k; /* the last two: products with q */
    float o_norm[2], joined_norm;              /* of each state, and of both together */
};
static __device__ __forceinline__ struct head_sums sums_of(const struct features_args &a,
                                                           const struct ha_device_features_seq &seq, size_t head,
                                                           unsigned lane)
{
    const float lse[2] = { seq.lse[0][head], seq.lse[1][head] }, top = lse[0] > lse[1] ? lse[0] : lse[1];
    const bool none[2] = { no_keys(lse[0]), no_keys(lse[1]) };
    const float p[2] = { none[0] ? 0 : ha_exp(lse[0] - top), none[1] ? 0 : ha_exp(lse[1] - top) };
    const float by[2] = { p[0] / (p[0] + p[1]), p[1] / (p[0] + p[1]) };
    float q2 = 0, anchor2 = 0, q_anchor = 0, q_mean = 0, o2[2] = {}, joined2 = 0;
    for (size_t d = lane; d < a.dim; d += HA_WARP) {
        const float q = seq.q[head * a.dim + d], anchor = seq.anchor[head * a.dim + d];
        float joined = 0;
        q2 = fmaf(q, q, q2);
        anchor2 = fmaf(anchor, anchor, anchor2);
        q_anchor = fmaf(q, anchor, q_anchor);
        q_mean = fmaf(q, seq.mean_k[head / a.group * a.dim + d], q_mean);
        for (unsigned i = 0; i < 2; i++) {
            if (none[i]) continue;
            const float o = seq.o[i][head * a.dim + d];
            o2[i] = fmaf(o, o, o2[i]);
            joined = fmaf(by[i], o, joined);
        }
        joined2 = fmaf(joined, joined, joined2);
    }
    struct head_sums s;
    s.q_norm = sqrtf(ha_cuda_warp_sum(q2));
    s.anchor_norm = sqrtf(ha_cuda_warp_sum(anchor2));
    s.anchor = ha_cuda_warp_sum(q_anchor);
    s.mean_k = ha_cuda_warp_sum(q_mean);
    s.o_norm[0] = sqrtf(ha_cuda_warp_sum(o2[0]));
    s.o_norm[1] = sqrtf(ha_cuda_warp_sum(o2[1]));
    s.joined_norm = sqrtf(ha_cuda_warp_sum(joined2));
    return s;
}

static __device__ __forceinline__ float feature_of(const struct features_args &a,
                                                   const struct ha_device_features_seq &seq, size_t head,
                                                   const struct head_sums &s, size_t feature)
{
    const float *known = seq.known + head * HA_FEATURES, score_mean = s.q_norm == 0 ? 0 : a.scale * s.mean_k / s.q_norm;
    switch (feature) {
    case HA_FEATURE_DEVICE_KEYS: return float(seq.device_keys);
    case HA_FEATURE_SCORE_MEAN: return score_mean;
    case HA_FEATURE_LSE_SINK: return seq.lse[0][head];
    case HA_FEATURE_LSE_HOST:
        return ha_log(known[HA_FEATURE_HOST_KEYS]) + s.q_norm * score_mean
               + 0.5f * s.q_norm * s.q_norm * known[HA_FEATURE_ANCHOR_SCORE_VARIANCE];
    case HA_FEATURE_LSE_LOCAL: return seq.lse[1][head];
    case HA_FEATURE_O_NORM_SINK: return s.o_norm[0];
    case HA_FEATURE_O_NORM_LOCAL: return s.o_norm[1];
    case HA_FEATURE_Q_NORM: return s.q_norm;
    case HA_FEATURE_Q_COSINE: return s.q_norm == 0 || s.anchor_norm == 0 ? 0 : s.anchor / (s.q_norm * s.anchor_norm);
    default: return known[feature];
    }
}

static __global__ void __launch_bounds__(THREADS) features_of_heads(HA_ARGS(struct features_args) a)
{
    HA_SHARED(struct features_shared, s);
    const struct ha_device_features_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    float most = 0;
    for (size_t head = warp; head < a.q_heads; head += WARPS) {
        const struct head_sums sums = sums_of(a, seq, head, lane);
        most = larger(sums.joined_norm, most);
        for (size_t i = lane; i < HA_FEATURES; i += HA_WARP)
            if (i != HA_FEATURE_O_NORM_MAX)
                seq.x[head * HA_FEATURES + i] = standardised(a, i, feature_of(a, seq, head, sums, i));
    }
    if (lane == 0) s.most[warp] = most;
    __syncthreads();
    most = s.most[0];
    for (unsigned w = 1; w < WARPS; w++) most = larger(s.most[w], most);
    for (size_t head = threadIdx.x; head < a.q_heads; head += THREADS)
        seq.x[head * HA_FEATURES + HA_FEATURE_O_NORM_MAX] = standardised(a, HA_FEATURE_O_NORM_MAX, most);
}

size_t ha_cuda_features_check(struct ha_cuda_check *c, const struct ha_device_features *f)
{
    const size_t one = HA_FEATURES * sizeof(float), all = times(f->q_heads, one), lse = f->q_heads * sizeof(float),
                 row = f->head_dim * sizeof(float), q = times(f->q_heads, row), mean_k = times(f->kv_heads, row);
    if (!ha_cuda_heads_fit(c, "query heads", f->q_heads, f->kv_heads)) return 0;
    ha_cuda_takes(c, "mean", f->mean, one, one);
    ha_cuda_takes(c, "inv", f->inv, one, one);
    for (size_t b = 0; b < f->batch; b++) {
        const struct ha_device_features_seq *seq = &f->seqs[b];
        ha_cuda_takes(c, "q", seq->q, q, q);
        ha_cuda_takes(c, "known", seq->known, all, all);
        ha_cuda_takes(c, "anchor", seq->anchor, q, q);
        ha_cuda_takes(c, "mean of K", seq->mean_k, mean_k, mean_k);
        for (size_t i = 0; i < 2; i++) {
            ha_cuda_takes(c, "o", seq->o[i], q, q);
            ha_cuda_takes(c, "lse", seq->lse[i], lse, lse);
        }
        ha_cuda_takes(c, "x", seq->x, all, 0);
    }
    return f->batch * f->q_heads;
}

cudaError_t ha_cuda_features(cudaStream_t stream, const struct ha_device_features *args)
{
    struct features_args a = {};
    a.q_heads = args->q_heads;
    a.group = args->q_heads / args->kv_heads;
    a.dim = args->head_dim;
    a.scale = args->scale;
    a.mean = args->mean;
    a.inv = args->inv;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1, [](const struct ha_device_features_seq &) { return size_t(1); },
        [&](dim3 grid) { return ha_launch(features_of_heads, grid, dim3(THREADS), stream, a); });
}

HA_CUDA_KERNELS(features, HA_KERNEL(features_of_heads));
