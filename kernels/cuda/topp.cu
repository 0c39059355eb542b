/* The fewest of a list whose weights reach a share, a thread block for each list: the least weight that is wanted by
 * its digits, the highest first, from the sums of the weights that begin so; and then what is not below it, in order.
 * Weights are integers, and so are their sums, which add up to less than 2^64, since those of a row are about 1:
 * nothing depends on which thread is first. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

#include <math.h>

typedef unsigned long long whole;

/* Short lists get small blocks. */
enum { SHORT = 2048, SHORT_THREADS = 128, LONG_THREADS = 1024, DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };

struct topp_args {
    size_t rows;
    whole share; /* rows p 2^HA_TOPP_BITS, rounded up */
    struct ha_device_topp_seq seq[HA_CUDA_BATCH];
};
template <int THREADS> struct topp_shared {
    whole sum[DIGITS], left;
    unsigned digit; /* DIGITS: all of them are not enough */
    whole most[THREADS / HA_WARP];
    unsigned above[THREADS / HA_WARP], equal[THREADS / HA_WARP]; /* in a warp's stretch of the list */
    bool none;
};

struct list {
    const float *x;
    size_t rows, stride;
    unsigned n;
};

/* floor(2^HA_TOPP_BITS x), of a positive number; what is below the normal numbers counts as nothing, which it is */
static __device__ __forceinline__ whole units(float x)
{
    const unsigned bits = __float_as_uint(x) & 0x7fffffffu;
    const int shift = int(bits >> 23) - 150 + HA_TOPP_BITS;
    const whole digits = bits >> 23 ? (bits & 0x7fffff) | 0x800000 : 0;
    return shift >= 0 ? digits << min(shift, 63) : digits >> min(-shift, 63); /* of a NaN anything */
}

static __device__ __forceinline__ whole weight_at(const struct list &l, unsigned i)
{
    whole sum = 0;
    for (size_t r = 0; r < l.rows; r++) sum += units(l.x[r * l.stride + i]);
    return sum;
}

/* The largest weight, the same in all threads; s.none where one is NaN. */
template <int THREADS>
static __device__ __forceinline__ whole largest(struct topp_shared<THREADS> &s, const struct list &l)
{
    whole most = 0;
    bool none = false;
    for (unsigned i = threadIdx.x; i < l.n; i += THREADS) {
        for (size_t r = 0; r < l.rows; r++) none |= !(l.x[r * l.stride + i] == l.x[r * l.stride + i]);
        most = max(most, weight_at(l, i));
    }
    for (int step = HA_WARP / 2; step; step /= 2) most = max(most, __shfl_xor_sync(HA_ALL_LANES, most, step));
    if (threadIdx.x % HA_WARP == 0) s.most[threadIdx.x / HA_WARP] = most;
    none = __syncthreads_count(none) > 0;
    if (threadIdx.x == 0) s.none = none;
    for (unsigned w = 0; w < THREADS / HA_WARP; w++) most = max(most, s.most[w]);
    __syncthreads();
    return most;
}

/* Adds up, by their next digit, the weights that begin as `found` does. The lanes that have the first one's digit add
 * up what they have before. */
template <int THREADS>
static __device__ __forceinline__ void add_digits(struct topp_shared<THREADS> &s, const struct list &l, whole found,
                                                  whole mask, int shift)
{
    const unsigned lane = threadIdx.x % HA_WARP;
    for (unsigned i = threadIdx.x; i < DIGITS; i += THREADS) s.sum[i] = 0;
    __syncthreads();
    for (unsigned base = threadIdx.x - lane; base < l.n; base += THREADS) {
        const whole w = base + lane < l.n ? weight_at(l, base + lane) : 0;
        const bool counts = base + lane < l.n && (w & mask) == found;
        const unsigned digit = unsigned(w >> shift) & (DIGITS - 1), common = __shfl_sync(HA_ALL_LANES, digit, 0);
        whole alike = counts && digit == common ? w : 0;
        for (int step = HA_WARP / 2; step; step /= 2) alike += __shfl_xor_sync(HA_ALL_LANES, alike, step);
        if (lane == 0 && alike) atomicAdd(&s.sum[common], alike);
        if (counts && digit != common && w) atomicAdd(&s.sum[digit], w);
    }
    __syncthreads();
}

/* The digit down to which the sums reach `left`, and what is left for those that have it. A whole warp: each lane has a
 * stretch of the digits, the highest first. */
template <int THREADS> static __device__ __forceinline__ void find_digit(struct topp_shared<THREADS> &s, whole left)
{
    enum { STRETCH = DIGITS / HA_WARP };
    const unsigned lane = threadIdx.x;
    unsigned digit = DIGITS - 1 - lane * STRETCH;
    whole own = 0;
    for (unsigned i = 0; i < STRETCH; i++) own += s.sum[digit - i];
    whole up_to = own; /* this stretch */
    for (unsigned step = 1; step < HA_WARP; step *= 2) {
        const whole before = __shfl_sync(HA_ALL_LANES, up_to, int(lane >= step ? lane - step : lane));
        up_to += lane >= step ? before : 0;
    }
    if (lane == HA_WARP - 1 && up_to < left) s.digit = DIGITS;
    whole rest = left - (up_to - own);
    if (up_to - own >= left || up_to < left) return;
    while (s.sum[digit] < rest) rest -= s.sum[digit--];
    s.digit = digit;
    s.left = rest;
}

/* One block of a multiprocessor is enough of many threads: for two there would be too few registers. */
template <int THREADS, enum ha_dtype W>
static __global__ void __launch_bounds__(THREADS, 1) topp_list(HA_ARGS(struct topp_args) a)
{
    HA_SHARED(struct topp_shared<THREADS>, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP, warps = THREADS / HA_WARP;
    const struct ha_device_topp_seq &seq = a.seq[blockIdx.z];
    const size_t bytes = W == HA_F32 ? 4 : 2;
    const struct list l = { seq.x + blockIdx.x * a.rows * seq.stride, a.rows, seq.stride, unsigned(seq.n) };
    uint32_t *index = seq.index + blockIdx.x * seq.index_stride;
    char *to = (char *)seq.w + blockIdx.x * a.rows * seq.w_stride * bytes;

    const whole most = largest(s, l);
    if (s.none || l.n == 0) {
        if (threadIdx.x == 0) seq.keys[blockIdx.x] = 0;
        return;
    }
    whole found = 0, mask = 0, left = a.share;
    int shift = 64 - DIGIT_BITS;
    for (; shift > 0 && !(most >> shift); shift -= DIGIT_BITS) mask |= whole(DIGITS - 1) << shift;
    bool all = false;
    for (; shift >= 0 && !all; shift -= DIGIT_BITS) {
        add_digits(s, l, found, mask, shift);
        if (warp == 0) find_digit(s, left);
        __syncthreads();
        all = s.digit == DIGITS;
        if (all) break;
        found |= whole(s.digit) << shift;
        mask |= whole(DIGITS - 1) << shift;
        left = s.left;
    }
    /* of those that are as large as that, so many */
    const unsigned ties = all || !found ? l.n : unsigned(min((left + found - 1) / found, whole(l.n)));

    /* a stretch of the list for each warp: first how many there are in it, then each at its place */
    const unsigned stretch = (l.n + THREADS - 1) / THREADS * HA_WARP, begin = min(warp * stretch, l.n),
                   end = min(begin + stretch, l.n);
    unsigned above = 0, equal = 0;
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const whole w = base + lane < end ? weight_at(l, base + lane) : 0;
        above += unsigned(__popc(__ballot_sync(HA_ALL_LANES, base + lane < end && (all || w > found))));
        equal += unsigned(__popc(__ballot_sync(HA_ALL_LANES, base + lane < end && !all && w == found)));
    }
    if (lane == 0) s.above[warp] = above, s.equal[warp] = equal;
    __syncthreads();
    if (threadIdx.x == 0) {
        above = equal = 0;
        for (unsigned w = 0; w < warps; w++) above += s.above[w], equal += s.equal[w];
        seq.keys[blockIdx.x] = above + min(equal, ties);
    }
    above = equal = 0;
    for (unsigned w = 0; w < warps && w < warp; w++) above += s.above[w], equal += s.equal[w];
    const unsigned before = (1u << lane) - 1;
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const bool in = base + lane < end;
        const whole w = in ? weight_at(l, base + lane) : 0;
        const unsigned more = __ballot_sync(HA_ALL_LANES, in && (all || w > found)),
                       same = __ballot_sync(HA_ALL_LANES, in && !all && w == found),
                       tie = equal + unsigned(__popc(same & before)),
                       at = above + unsigned(__popc(more & before)) + min(tie, ties);
        if (more >> lane & 1 || (same >> lane & 1 && tie < ties)) {
            index[at] = base + lane;
            for (size_t r = 0; r < a.rows; r++) {
                struct ha_cuda_piece<W, false> e;
                e.set(&l.x[r * l.stride + base + lane]);
                e.store(to + (r * seq.w_stride + at) * bytes);
            }
        }
        above += unsigned(__popc(more));
        equal += unsigned(__popc(same));
    }
}

template <enum ha_dtype W>
static cudaError_t topp_launch(cudaStream_t stream, const struct ha_device_topp *args, size_t longest)
{
    struct topp_args a = {};
    a.rows = args->rows;
    a.share = whole(ceil(double(args->rows) * args->p * double(1ull << HA_TOPP_BITS)));
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1, [&](const struct ha_device_topp_seq &) { return args->lists; },
        [&](dim3 grid) {
            return longest <= SHORT ? ha_launch(topp_list<SHORT_THREADS, W>, grid, dim3(SHORT_THREADS), stream, a)
                                    : ha_launch(topp_list<LONG_THREADS, W>, grid, dim3(LONG_THREADS), stream, a);
        });
}

size_t ha_cuda_topp_check(struct ha_cuda_check *c, const struct ha_device_topp *t)
{
    if (!(t->p > 0 && t->p <= 1) || t->rows < 1 || t->rows > HA_TOPP_ROWS_MAX)
        return ha_cuda_refuse(c, "p of %g, %zu rows of a list, not above 0 to 1, 1 to %d", t->p, t->rows,
                              HA_TOPP_ROWS_MAX);
    if (!ha_cuda_half_fits(c, t->w_type)) return 0;
    const size_t rows = times(t->lists, t->rows), f = sizeof(float), w = ha_dtype_bytes(t->w_type);
    for (size_t b = 0; b < t->batch; b++) {
        const struct ha_device_topp_seq *seq = &t->seqs[b];
        const size_t n = seq->n;
        if (seq->index_stride < n || seq->w_stride < n)
            return ha_cuda_refuse(c, "lists of %zu, %zu apart, with weights %zu apart", n, seq->index_stride,
                                  seq->w_stride);
        ha_cuda_takes(c, "weights", seq->x, n ? times(extent(rows, seq->stride, n), f) : 0, rows * n * f);
        ha_cuda_takes(c, "keys", seq->keys, t->lists * sizeof *seq->keys, 0);
        ha_cuda_takes(c, "index", seq->index, n ? times(extent(t->lists, seq->index_stride, n), f) : 0, 0);
        ha_cuda_takes(c, "chosen weights", seq->w, n ? times(extent(rows, seq->w_stride, n), w) : 0, 0);
    }
    return t->batch * t->lists;
}

cudaError_t ha_cuda_topp(cudaStream_t stream, const struct ha_device_topp *args)
{
    size_t longest = 0;
    for (size_t b = 0; b < args->batch; b++) longest = max(longest, args->seqs[b].n);
    if (longest > INT32_MAX) return cudaErrorInvalidValue;
    return args->w_type == HA_F32 ? topp_launch<HA_F32>(stream, args, longest)
                                  : topp_launch<HA_F16>(stream, args, longest);
}

#define OF(W) HA_KERNEL(topp_list<SHORT_THREADS, W>), HA_KERNEL(topp_list<LONG_THREADS, W>)
HA_CUDA_KERNELS(topp, OF(HA_F32), OF(HA_F16));
