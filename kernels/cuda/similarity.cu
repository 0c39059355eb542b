/* Queries and the labels of a cache: a block for each KV head, a warp for one of its query heads after the other. All
 * three sums of a cosine are made in one order; the root of their product and the quotient are of binary64, where they
 * are exact if a query equals its label. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 128, WARPS = THREADS / HA_WARP };

struct similarity_args {
    size_t q_len, q_heads, group, dim; /* group: query heads of a KV head */
    bool harmonic;
    const float *importance, *threshold;
    struct ha_device_similarity_seq seq[HA_CUDA_BATCH];
};
struct similarity_shared {
    float least[WARPS], importance[WARPS], sum[WARPS]; /* sum: of importance / similarity */
    bool missed;
};

/* the smaller one, NaN if either is */
static __device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }

/* by a whole warp */
static __device__ __forceinline__ float cosine(const float *x, const float *y, size_t dim, unsigned lane)
{
    float xy = 0, xx = 0, yy = 0;
    for (size_t d = lane; d < dim; d += HA_WARP) {
        const float of_x = x[d], of_y = y[d];
        xy = fmaf(of_x, of_y, xy);
        xx = fmaf(of_x, of_x, xx);
        yy = fmaf(of_y, of_y, yy);
    }
    xy = ha_cuda_warp_sum(xy);
    xx = ha_cuda_warp_sum(xx);
    yy = ha_cuda_warp_sum(yy);
    return float(double(xy) / sqrt(double(xx) * double(yy)));
}

static __global__ void __launch_bounds__(THREADS) similarity_of_head(HA_ARGS(struct similarity_args) a)
{
    HA_SHARED(struct similarity_shared, s);
    const struct ha_device_similarity_seq &seq = a.seq[blockIdx.z];
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const size_t kv_head = blockIdx.x, heads = a.q_heads * a.dim, begin = kv_head * a.group * a.dim;
    float least = INFINITY, importance = 0, sum = 0;
    for (size_t g = warp; g < a.group; g += WARPS) {
        float of = INFINITY;
        for (size_t t = 0; t < a.q_len; t++)
            of = smaller(cosine(seq.q + t * heads + begin + g * a.dim, seq.label + begin + g * a.dim, a.dim, lane), of);
        least = smaller(of, least);
        if (!a.harmonic) continue;
        const float weight = a.importance[kv_head * a.group + g];
        importance += weight;
        sum += weight / of;
    }
    if (lane == 0) s.least[warp] = least, s.importance[warp] = importance, s.sum[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < WARPS; w++) {
            least = smaller(s.least[w], least);
            importance += s.importance[w];
            sum += s.sum[w];
        }
        const bool positive = least > 0;
        const float similarity = a.harmonic && positive ? importance / sum : least, threshold = a.threshold[kv_head];
        const bool hit = threshold < -1 || (similarity >= threshold && (positive || !a.harmonic));
        seq.similarity[kv_head] = similarity;
        seq.missed[kv_head] = !hit;
        s.missed = !hit;
    }
    __syncthreads();
    if (!s.missed) return;
    for (size_t i = threadIdx.x; i < a.group * a.dim; i += THREADS)
        seq.label[begin + i] = seq.q[(a.q_len - 1) * heads + begin + i];
}

size_t ha_cuda_similarity_check(struct ha_cuda_check *c, const struct ha_device_similarity *d)
{
    if (!ha_cuda_heads_fit(c, "query heads", d->q_heads, d->kv_heads)) return 0;
    if (d->q_heads == 0 || d->q_len == 0) return ha_cuda_refuse(c, d->q_heads ? "steps of no token" : "no query heads");
    const size_t f = sizeof(float), label = times(d->q_heads, d->head_dim * f), q = times(d->q_len, label),
                 heads = d->kv_heads * f;
    if (d->group == HA_SIMILAR_HARMONIC) ha_cuda_takes(c, "importance", d->importance, d->q_heads * f, d->q_heads * f);
    ha_cuda_takes(c, "threshold", d->threshold, heads, heads);
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_similarity_seq *seq = &d->seqs[b];
        ha_cuda_takes(c, "q", seq->q, q, q);
        ha_cuda_takes(c, "label", seq->label, label, label);
        ha_cuda_takes(c, "similarity", seq->similarity, heads, 0);
        ha_cuda_takes(c, "missed", seq->missed, heads, 0);
    }
    return d->batch;
}

cudaError_t ha_cuda_similarity(cudaStream_t stream, const struct ha_device_similarity *args)
{
    struct similarity_args a = {};
    a.q_len = args->q_len;
    a.q_heads = args->q_heads;
    a.group = args->q_heads / args->kv_heads;
    a.dim = args->head_dim;
    a.harmonic = args->group == HA_SIMILAR_HARMONIC;
    a.importance = args->importance;
    a.threshold = args->threshold;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1, [&](const struct ha_device_similarity_seq &) { return args->kv_heads; },
        [&](dim3 grid) { return ha_launch(similarity_of_head, grid, dim3(THREADS), stream, a); });
}

HA_CUDA_KERNELS(similarity, HA_KERNEL(similarity_of_head));
