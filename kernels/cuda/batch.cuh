#ifndef HA_KERNELS_CUDA_BATCH_H
#define HA_KERNELS_CUDA_BATCH_H

/* Kernels whose arguments hold their sequences: a batch of any size is as many launches as that takes. */

#include "kernels/cuda/simt.h"

enum { HA_CUDA_BATCH = 32 }; /* sequences of a launch */

/* Copies the sequences of one launch after the other to `to` and calls launch(grid): thread block (x, y, z) is the x-th
 * of head y of sequence z. blocks(sequence): so many has each of its heads. Nothing is launched for sequences that all
 * have none. */
template <class S, class Blocks, class Launch>
static inline cudaError_t ha_cuda_launch_batch(S (&to)[HA_CUDA_BATCH], const S *seqs, size_t batch, size_t heads,
                                               Blocks blocks, Launch launch)
{
    enum { HEADS_MAX = 65535 };
    if (heads > HEADS_MAX) return cudaErrorInvalidConfiguration;
    for (size_t at = 0; at < batch; at += HA_CUDA_BATCH) {
        const size_t count = min(batch - at, size_t(HA_CUDA_BATCH));
        size_t most = 0;
        for (size_t b = 0; b < count; b++) {
            to[b] = seqs[at + b];
            most = max(most, size_t(blocks(to[b])));
        }
        if (most * heads == 0) continue;
        if (most > INT32_MAX) return cudaErrorInvalidConfiguration;
        const cudaError_t error = launch(dim3(unsigned(most), unsigned(heads), unsigned(count)));
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

#endif
