/* What a cache has of a list of blocks, and the rest, each in the order of the list: a thread block for each list, a
 * stretch of it for each warp. First how many of a stretch are there, then each at its place; nothing depends on which
 * thread is first. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 256, WARPS = THREADS / HA_WARP };

struct split_args {
    size_t lists, tables;
    struct ha_device_split_seq seq[HA_CUDA_BATCH];
};
struct split_shared {
    unsigned there[WARPS];
};

static __global__ void __launch_bounds__(THREADS) split_list(HA_ARGS(struct split_args) a)
{
    HA_SHARED(struct split_shared, s);
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const struct ha_device_split_seq &seq = a.seq[blockIdx.z];
    const size_t list = blockIdx.x;
    const uint32_t *index = seq.index + list * seq.index_stride,
                   *slot = seq.slot + list * a.tables / a.lists * seq.slot_stride;
    uint32_t *here = seq.here + list * seq.out_stride,
             *missing = seq.missing ? seq.missing + list * seq.out_stride : nullptr;
    const unsigned count = unsigned(seq.count), stretch = (count + THREADS - 1) / THREADS * HA_WARP,
                   begin = min(warp * stretch, count), end = min(begin + stretch, count);
    unsigned there = 0;
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const uint32_t at = base + lane < end ? slot[index[base + lane]] : HA_SLOT_NONE;
        there += unsigned(__popc(__ballot_sync(HA_ALL_LANES, at != HA_SLOT_NONE)));
    }
    if (lane == 0) s.there[warp] = there;
    __syncthreads();
    unsigned all = there = 0; /* those before the stretch */
    for (unsigned w = 0; w < WARPS; w++) {
        there += w < warp ? s.there[w] : 0;
        all += s.there[w];
    }
    if (threadIdx.x == 0) {
        seq.here_count[list] = all * max(unsigned(seq.here_unit), 1u);
        if (seq.missing_count) seq.missing_count[list] = count - all;
    }
    for (unsigned base = begin; base < end; base += HA_WARP) {
        const unsigned i = base + lane;
        const uint32_t block = i < end ? index[i] : 0, at = i < end ? slot[block] : HA_SLOT_NONE;
        const unsigned is = __ballot_sync(HA_ALL_LANES, at != HA_SLOT_NONE),
                       to = there + unsigned(__popc(is & ((1u << lane) - 1)));
        if (at != HA_SLOT_NONE) here[to] = at;
        else if (i < end && missing) missing[i - to] = block;
        there += unsigned(__popc(is));
    }
}

size_t ha_cuda_split_check(struct ha_cuda_check *c, const struct ha_device_split *d)
{
    const size_t w = sizeof(uint32_t), counts = times(d->lists, w);
    if (d->lists && d->tables == 0) return ha_cuda_refuse(c, "lists of no table");
    for (size_t b = 0; b < d->batch; b++) {
        const struct ha_device_split_seq *seq = &d->seqs[b];
        const size_t listed = d->lists * seq->count * w,
                     index = listed ? times(extent(d->lists, seq->index_stride, seq->count), w) : 0,
                     slot = listed ? times(extent(d->tables, seq->slot_stride, seq->blocks), w) : 0,
                     out = listed ? times(extent(d->lists, seq->out_stride, seq->count), w) : 0;
        if (seq->count > INT32_MAX)
            return ha_cuda_refuse(c, "lists of %zu; the kernel takes less than 2^31", seq->count);
        if (seq->out_stride < seq->count && d->lists > 1)
            return ha_cuda_refuse(c, "rows of %zu for lists of %zu", seq->out_stride, seq->count);
        ha_cuda_takes(c, "index", seq->index, index, listed);
        ha_cuda_takes(c, "slot", seq->slot, slot, listed);
        ha_cuda_takes(c, "here", seq->here, out, 0);
        ha_cuda_takes(c, "here_count", seq->here_count, counts, 0);
        if (seq->missing) ha_cuda_takes(c, "missing", seq->missing, out, 0);
        if (seq->missing_count) ha_cuda_takes(c, "missing_count", seq->missing_count, counts, 0);
    }
    return d->batch * d->lists;
}

cudaError_t ha_cuda_split(cudaStream_t stream, const struct ha_device_split *args)
{
    struct split_args a = {};
    a.lists = args->lists;
    a.tables = args->tables;
    for (size_t b = 0; b < args->batch; b++)
        if (args->seqs[b].count > INT32_MAX) return cudaErrorInvalidValue;
    return ha_cuda_launch_batch(
        a.seq, args->seqs, args->batch, 1, [&](const struct ha_device_split_seq &) { return args->lists; },
        [&](dim3 grid) { return ha_launch(split_list, grid, dim3(THREADS), stream, a); });
}

HA_CUDA_KERNELS(split, HA_KERNEL(split_list));
