#ifndef HA_KERNELS_CUDA_ATTEND_RING_CUH
#define HA_KERNELS_CUDA_ATTEND_RING_CUH

/* How keys and values come to a warp: by copies to shared memory that are asked for STAGES steps ahead, K and V of a
 * step each a group of its own, so that a warp waits for what it needs next and not for what is behind it. (Loads into
 * registers that cross a loop's end share one scoreboard: each step would wait for the values that it has just asked
 * for.) A lane reads only what it has asked for itself, and needs no barrier. */

#include "kernels/cuda/attend.cuh"

/* of a warp; PIECES: of 16 bytes, of a lane, of K and of V of a step */
template <unsigned PIECES, unsigned STAGES> struct ha_cuda_ring {
    uint4 k[STAGES][PIECES][32], v[STAGES][PIECES][32];
};

/* The steps of a warp one after another: at[0] is at work, at[STAGES] is asked for meanwhile into the place that at[0]
 * leaves, and at[STAGES + 1] is looked up. */
template <unsigned KEYS, unsigned STAGES> struct ha_cuda_steps {
    const struct ha_cuda_seq &seq;
    unsigned step, by, end; /* of the next to look up */
    unsigned seen;          /* keys that no row sees are not read */
    unsigned block, stage;
    struct ha_cuda_stretch at[STAGES + 2];
    unsigned long long ahead[STAGES + 2]; /* rows, a lane each, asked for before the loads that need them */
    bool there[STAGES + 2];

    __device__ __forceinline__ void look(unsigned i)
    {
        at[i] = ha_cuda_stretch_at(seq, step, KEYS);
        there[i] = step < end && at[i].run->first + at[i].first < seen;
        ahead[i] = there[i] ? ha_cuda_row_ahead<KEYS>(at[i], block) : 0;
        step += by;
    }
    __device__ __forceinline__ void next()
    {
        HA_UNROLL
        for (unsigned i = 0; i <= STAGES; i++) {
            at[i] = at[i + 1];
            ahead[i] = ahead[i + 1];
            there[i] = there[i + 1];
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    /* row of a key of at[i]; all lanes of the warp */
    __device__ __forceinline__ unsigned long long row(unsigned i, unsigned key) const
    {
        return at[i].run->index ? __shfl_sync(HA_ALL_LANES, ahead[i], int(key)) : at[i].first + key;
    }
    __device__ __forceinline__ bool real(unsigned i, unsigned key) const { return at[i].first + key < at[i].run->keys; }
};

#endif
