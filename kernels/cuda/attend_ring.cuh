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

/* K or V of a step's keys. Each lane multiplies for one key, and tells the others. */
struct ha_cuda_rows {
    const char *base;
    unsigned long long offset; /* of key lane % KEYS of the step */
    unsigned keys;             /* of the step, that are there */

    /* all lanes of the warp */
    __device__ __forceinline__ const char *row(unsigned key) const
    {
        return base + __shfl_sync(HA_ALL_LANES, offset, int(key));
    }
    __device__ __forceinline__ bool real(unsigned key) const { return key < keys; }
};

/* The steps of a warp one after another: at[0] is at work, at[STAGES] is asked for meanwhile into the place that at[0]
 * leaves, and at[STAGES + 1] is looked up. */
template <unsigned KEYS, unsigned STAGES> struct ha_cuda_steps {
    const struct ha_cuda_seq &seq;
    unsigned step, by, end; /* of the next to look up */
    unsigned seen;          /* keys that no row sees are not read */
    unsigned block, stage;
    struct ha_cuda_stretch at[STAGES + 2];
    unsigned long long ahead[STAGES + 2]; /* row of key lane % KEYS, asked for before the copies that need it */
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
    __device__ __forceinline__ struct ha_cuda_rows k_rows(unsigned i, size_t head) const
    {
        const struct ha_cuda_run &run = *at[i].run;
        return ha_cuda_rows{ run.k + head, ahead[i] * run.k_stride, run.keys - at[i].first };
    }
    __device__ __forceinline__ struct ha_cuda_rows v_rows(unsigned i, size_t head) const
    {
        const struct ha_cuda_run &run = *at[i].run;
        return ha_cuda_rows{ run.v + head, ahead[i] * run.v_stride, run.keys - at[i].first };
    }
};

#endif
