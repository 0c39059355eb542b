#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/walk.cuh"

struct move_args {
    struct ha_device_move move;
    struct ha_cuda_walk walk;
};

template <class T> static __device__ __forceinline__ T load(const char *p) { return ha_at<const T>(p); }
template <> __device__ __forceinline__ uint4 load<uint4>(const char *p) { return ha_load16(p); }

template <class T, int DEPTH>
static __global__ void __launch_bounds__(HA_WALK_THREADS) move_rows(const struct move_args a)
{
    const struct ha_device_move &m = a.move;
    uint64_t at;
    struct ha_cuda_step step = ha_cuda_walk_begin(&a.walk, DEPTH, &at);
    const uint64_t left = at < a.walk.pieces ? a.walk.pieces - at : 0; /* so many pieces from this thread's first on */
    uint64_t from[DEPTH], to[DEPTH];
    T piece[DEPTH];
    /* all indices, then all rows, then the stores: nothing is waited for before everything has been asked for */
    for (int i = 0; i < DEPTH; i++) {
        const bool live = (uint64_t)i * HA_WALK_THREADS < left;
        from[i] = live && m.src_index ? m.src_index[step.row] : step.row;
        to[i] = live && m.dst_index ? m.dst_index[step.row] : step.row;
        from[i] = from[i] * m.src_stride_bytes + step.piece * sizeof(T);
        to[i] = to[i] * m.dst_stride_bytes + step.piece * sizeof(T);
        ha_cuda_walk_next(&a.walk, &step);
    }
    for (int i = 0; i < DEPTH; i++)
        if ((uint64_t)i * HA_WALK_THREADS < left) piece[i] = load<T>((const char *)m.src + from[i]);
    for (int i = 0; i < DEPTH; i++)
        if ((uint64_t)i * HA_WALK_THREADS < left) ha_at<T>((char *)m.dst + to[i]) = piece[i];
}

template <class T>
static cudaError_t move(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_move *m)
{
    const struct move_args a = { *m, ha_cuda_walk_over(m->rows, m->row_bytes / sizeof(T)) };
    const bool deep = ha_cuda_walk_is_deep(&a.walk, multiprocessors);
    const uint64_t blocks = ha_cuda_walk_blocks(&a.walk, deep ? HA_WALK_DEPTH : 1);
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    const dim3 grid((unsigned)blocks);
    return deep ? ha_launch(move_rows<T, HA_WALK_DEPTH>, grid, dim3(HA_WALK_THREADS), stream, a)
                : ha_launch(move_rows<T, 1>, grid, dim3(HA_WALK_THREADS), stream, a);
}

cudaError_t ha_cuda_move(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_move *args)
{
    if (args->rows == 0 || args->row_bytes == 0) return cudaSuccess;
    uint64_t all = (uint64_t)(uintptr_t)args->dst | (uint64_t)(uintptr_t)args->src | args->row_bytes;
    if (args->rows > 1 || args->dst_index) all |= args->dst_stride_bytes;
    if (args->rows > 1 || args->src_index) all |= args->src_stride_bytes;
    return all % 16 == 0  ? move<uint4>(multiprocessors, stream, args)
           : all % 8 == 0 ? move<uint2>(multiprocessors, stream, args)
           : all % 4 == 0 ? move<uint32_t>(multiprocessors, stream, args)
           : all % 2 == 0 ? move<uint16_t>(multiprocessors, stream, args)
                          : move<uint8_t>(multiprocessors, stream, args);
}

#define OF(T) HA_KERNEL(move_rows<T, 1>), HA_KERNEL(move_rows<T, HA_WALK_DEPTH>)
HA_CUDA_KERNELS(move, OF(uint4), OF(uint2), OF(uint32_t), OF(uint16_t), OF(uint8_t));
