/* The largest of a list, a thread block for each list: the k-th largest key by its digits, the highest first, and then
 * what is not below it, in order. Keys are integers in the order of the floats; nothing depends on which thread is
 * first. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

/* Short lists get small blocks. */
enum { SHORT = 2048, SHORT_THREADS = 128, LONG_THREADS = 1024, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

struct topk_args {
    size_t rows;
    struct ha_device_topk_seq seq[HA_CUDA_BATCH];
};
template <int THREADS> struct topk_shared {
    unsigned count[DIGITS], digit, left;
    unsigned above[THREADS / HA_WARP], equal[THREADS / HA_WARP]; /* in a warp's stretch of the list */
    uint32_t most[THREADS / HA_WARP];                            /* of the keys that a warp has seen */
};

/* the rows of a list */
struct list {
    const float *x;
    size_t rows, stride;
    unsigned n;
};

/* NaN is 0, -0 is +0 */
static __device__ __forceinline__ uint32_t key_of(float number)
{
    const float x = number + 0.0f;
    const uint32_t bits = __float_as_uint(x);
    return x == x ? bits >> 31 ? ~bits : bits | 0x80000000u : 0;
}

/* of several rows the largest */
static __device__ __forceinline__ uint32_t key_at(const struct list &l, unsigned i)
{
    uint32_t most = 0;
    for (size_t r = 0; r < l.rows; r++) most = max(most, key_of(l.x[r * l.stride + i]));
    return most;
}

/* The key of the largest number less `within`; where there is none, that of the least number. */
template <int THREADS>
static __device__ __forceinline__ uint32_t least_key(struct topk_shared<THREADS> &s, const struct list &l, float within)
{
    uint32_t most = 0;
    for (unsigned i = threadIdx.x; i < l.n; i += THREADS) most = max(most, key_at(l, i));
    for (int step = HA_WARP / 2; step; step /= 2) most = max(most, __shfl_xor_sync(HA_ALL_LANES, most, step));
    if (threadIdx.x % HA_WARP == 0) s.most[threadIdx.x / HA_WARP] = most;
    __syncthreads();
    for (unsigned w = 0; w < THREADS / HA_WARP; w++) most = max(most, s.most[w]);
    const uint32_t least = most ? key_of(__uint_as_float(most >> 31 ? most & 0x7fffffffu : ~most) - within) : 0;
    return max(least, 1u);
}

/* Counts the digits of those keys that begin as `found` does. Where many are alike, the first lane's is counted at
 * once. */
template <int THREADS>
static __device__ __forceinline__ void count_digits(struct topk_shared<THREADS> &s, const struct list &l,
                                                    uint32_t found, uint32_t mask, int shift)
{
    const unsigned lane = threadIdx.x % HA_WARP;
    for (unsigned i = threadIdx.x; i < DIGITS; i += THREADS) s.count[i] = 0;
    __syncthreads();
    for (unsigned base = threadIdx.x - lane; base < l.n; base += THREADS) {
        const uint32_t key = base + lane < l.n ? key_at(l, base + lane) : 0;
        const bool counts = base + lane < l.n && (key & mask) == found;
        const unsigned digit = key >> shift & (DIGITS - 1), common = __shfl_sync(HA_ALL_LANES, digit, 0),
                       alike = __ballot_sync(HA_ALL_LANES, counts && digit == common);
        if (lane == 0 && alike) atomicAdd(&s.count[common], unsigned(__popc(alike)));
        if (counts && digit != common) atomicAdd(&s.count[digit], 1u);
    }
    __syncthreads();
}

/* Which digit the left-th largest has, and how many of those that have it are still to be chosen. A whole warp: each
 * lane has a stretch of the digits, the highest first. */
template <int THREADS> static __device__ __forceinline__ void find_digit(struct topk_shared<THREADS> &s, unsigned left)
{
    enum { STRETCH = DIGITS / HA_WARP };
    const unsigned lane = threadIdx.x;
    unsigned digit = DIGITS - 1 - lane * STRETCH, own = 0;
    for (unsigned i = 0; i < STRETCH; i++) own += s.count[digit - i];
    unsigned up_to = own; /* this stretch */
    for (unsigned step = 1; step < HA_WARP; step *= 2) {
        const unsigned before = __shfl_sync(HA_ALL_LANES, up_to, int(lane >= step ? lane - step : lane));
        up_to += lane >= step ? before : 0;
    }
    unsigned rest = left - (up_to - own);
    if (up_to - own >= left || up_to < left) return;
    while (s.count[digit] < rest) rest -= s.count[digit--];
    s.digit = digit;
    s.left = rest;
}

template <int THREADS> static __global__ void __launch_bounds__(THREADS) topk_list(HA_ARGS(struct topk_args) a)
{
    HA_SHARED(struct topk_shared<THREADS>, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP, warps = THREADS / HA_WARP;
    const struct ha_device_topk_seq &seq = a.seq[blockIdx.z];
    const struct list l = { seq.x + blockIdx.x * a.rows * seq.stride, a.rows, seq.stride, unsigned(seq.n) };
    uint32_t *index = seq.index + blockIdx.x * seq.index_stride;
    const bool all = seq.k >= seq.n;
    if (seq.only && !seq.only[blockIdx.x]) return;
    if (all && !seq.keys) {
        for (unsigned i = threadIdx.x; i < l.n; i += THREADS) index[i] = seq.first + i;
        return;
    }
    if (seq.k == 0 || l.n == 0) {
        if (seq.keys && threadIdx.x == 0) seq.keys[blockIdx.x] = 0;
        return;
    }

    uint32_t found = 0, mask = 0;
    unsigned left = unsigned(all ? seq.n : seq.k); /* of those that begin as `found` does, so many are chosen */
    for (int shift = 32 - DIGIT_BITS; shift >= 0 && !all; shift -= DIGIT_BITS) {
        count_digits(s, l, found, mask, shift);
        if (warp == 0) find_digit(s, left);
        __syncthreads();
        found |= s.digit << shift;
        mask |= uint32_t(DIGITS - 1) << shift;
        left = s.left;
    }

    const uint32_t least = seq.keys ? least_key(s, l, seq.within) : 0;
    if (least > found) { /* all that are near enough are among the k largest */
        found = least - 1;
        left = 0;
    }

    /* a stretch of the list for each warp: first how many there are in it, then each at its place */
    const unsigned stretch = (l.n + THREADS - 1) / THREADS * HA_WARP, begin = min(warp * stretch, l.n),
                   end = min(begin + stretch, l.n);
    unsigned above = 0, equal = 0;
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const uint32_t key = base + lane < end ? key_at(l, base + lane) : 0;
        above += unsigned(__popc(__ballot_sync(HA_ALL_LANES, base + lane < end && key > found)));
        equal += unsigned(__popc(__ballot_sync(HA_ALL_LANES, base + lane < end && key == found)));
    }
    if (lane == 0) s.above[warp] = above, s.equal[warp] = equal;
    __syncthreads();
    if (seq.keys && threadIdx.x == 0) {
        above = equal = 0;
        for (unsigned w = 0; w < warps; w++) above += s.above[w], equal += s.equal[w];
        seq.keys[blockIdx.x] = (above + min(equal, left)) * max(unsigned(seq.keys_unit), 1u);
    }
    above = equal = 0;
    for (unsigned w = 0; w < warps && w < warp; w++) above += s.above[w], equal += s.equal[w];
    const unsigned before = (1u << lane) - 1;
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const uint32_t key = base + lane < end ? key_at(l, base + lane) : 0;
        const unsigned more = __ballot_sync(HA_ALL_LANES, base + lane < end && key > found),
                       same = __ballot_sync(HA_ALL_LANES, base + lane < end && key == found),
                       at = above + unsigned(__popc(more & before)), tie = equal + unsigned(__popc(same & before));
        if (more >> lane & 1 || (same >> lane & 1 && tie < left)) index[at + min(tie, left)] = seq.first + base + lane;
        above += unsigned(__popc(more));
        equal += unsigned(__popc(same));
    }
}

size_t ha_cuda_topk_check(struct ha_cuda_check *c, const struct ha_device_topk *t)
{
    const size_t f = sizeof(float), rows = t->lists * t->rows, words = times(t->lists, sizeof(uint32_t));
    if (t->rows == 0) return ha_cuda_refuse(c, "lists of no rows");
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topk_seq *seq = &t->seqs[b];
        const size_t chosen = seq->k < seq->n ? seq->k : seq->n;
        if (seq->n > INT32_MAX) return ha_cuda_refuse(c, "lists of %zu; the kernels take less than 2^31", seq->n);
        ha_cuda_takes(c, "x", seq->x, seq->n ? times(extent(rows, seq->stride, seq->n), f) : 0, rows * seq->n * f);
        ha_cuda_takes(c, "index", seq->index,
                      chosen ? times(extent(t->lists, seq->index_stride, chosen), sizeof *seq->index) : 0, 0);
        if (seq->keys) ha_cuda_takes(c, "keys", seq->keys, words, 0);
        if (seq->only) ha_cuda_takes(c, "only", seq->only, words, words);
        if (seq->keys && !(seq->within >= 0)) return ha_cuda_refuse(c, "within %g of the largest", double(seq->within));
    }
    return t->batch * t->lists;
}

cudaError_t ha_cuda_topk(cudaStream_t stream, const struct ha_device_topk *args)
{
    struct topk_args a = {};
    a.rows = args->rows;
    size_t longest = 0;
    for (size_t b = 0; b < args->batch; b++) longest = max(longest, args->seqs[b].n);
    if (longest > INT32_MAX) return cudaErrorInvalidValue;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1,
        [&](const struct ha_device_topk_seq &seq) { return seq.n || seq.keys ? args->lists : 0; },
        [&](dim3 grid) {
            return longest <= SHORT ? ha_launch(topk_list<SHORT_THREADS>, grid, dim3(SHORT_THREADS), stream, a)
                                    : ha_launch(topk_list<LONG_THREADS>, grid, dim3(LONG_THREADS), stream, a);
        });
}

HA_CUDA_KERNELS(topk, HA_KERNEL(topk_list<SHORT_THREADS>), HA_KERNEL(topk_list<LONG_THREADS>));
