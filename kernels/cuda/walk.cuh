#ifndef HA_KERNELS_CUDA_WALK_H
#define HA_KERNELS_CUDA_WALK_H

/* Rows of equal length cut into pieces, dealt out to the threads of a grid: a block takes a stretch of threads * DEPTH
 * pieces that follow each other, its threads take turns, and a thread has DEPTH pieces in flight at once. */

#include "kernels/cuda/simt.h"

enum { HA_WALK_THREADS = 256, HA_WALK_DEPTH = 8 };

struct ha_cuda_walk {
    uint64_t pieces, in_row;         /* all of them; of one row */
    uint64_t step_rows, step_pieces; /* from a thread's piece to its next one */
};

struct ha_cuda_step {
    uint64_t row, piece;
};

static inline struct ha_cuda_walk ha_cuda_walk_over(uint64_t rows, uint64_t in_row)
{
    struct ha_cuda_walk w = { rows * in_row, in_row, 0, 0 };
    if (in_row) w.step_rows = HA_WALK_THREADS / in_row, w.step_pieces = HA_WALK_THREADS % in_row;
    return w;
}

/* Little work is spread over as many blocks as there is room for, at one piece a thread. */
static inline bool ha_cuda_walk_is_deep(const struct ha_cuda_walk *w, unsigned multiprocessors)
{
    enum { RESIDENT = 8 }; /* blocks of a multiprocessor that holds 2048 threads */
    return w->pieces > (uint64_t)multiprocessors * RESIDENT * HA_WALK_THREADS;
}

static inline uint64_t ha_cuda_walk_blocks(const struct ha_cuda_walk *w, unsigned depth)
{
    const uint64_t stretch = (uint64_t)HA_WALK_THREADS * depth;
    return (w->pieces + stretch - 1) / stretch;
}

/* the thread's first piece; its index among all is *at */
__device__ __forceinline__ struct ha_cuda_step ha_cuda_walk_begin(const struct ha_cuda_walk *w, unsigned depth,
                                                                  uint64_t *at)
{
    *at = (uint64_t)blockIdx.x * HA_WALK_THREADS * depth + threadIdx.x;
    return { *at / w->in_row, *at % w->in_row };
}

__device__ __forceinline__ void ha_cuda_walk_next(const struct ha_cuda_walk *w, struct ha_cuda_step *step)
{
    step->row += w->step_rows;
    step->piece += w->step_pieces;
    if (step->piece < w->in_row) return;
    step->piece -= w->in_row;
    step->row++;
}

#endif
