/* Rows through a net: a block has a few of them, whose numbers stay in shared memory from the first layer to the last.
 * A thread has an output, and where outputs are few, a part of the inputs; a warp reads weights side by side. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 1024, ROWS = 4 };
static_assert(int(HA_NET_WIDTH_MAX) <= int(THREADS), "a thread for each output");

struct net_shared {
    float x[2][ROWS][HA_NET_WIDTH_MAX]; /* of this layer, and of the next */
    float part[ROWS][THREADS];
};

static __global__ void __launch_bounds__(THREADS) net_of_rows(HA_ARGS(struct ha_net) a)
{
    HA_SHARED(struct net_shared, s);
    const unsigned thread = threadIdx.x;
    const size_t first = size_t(blockIdx.x) * ROWS, here = min(size_t(ROWS), a.rows - first);
    for (size_t i = thread; i < ROWS * a.width[0]; i += THREADS) {
        const size_t r = i / a.width[0], at = i % a.width[0];
        s.x[0][r][at] = r < here ? a.x[(first + r) * a.width[0] + at] : 0;
    }
    __syncthreads();
    const float *w = a.w;
    for (unsigned l = 0; l < a.layers; l++) {
        const unsigned in = unsigned(a.width[l]), out = unsigned(a.width[l + 1]),
                       lanes = (out + HA_WARP - 1) / HA_WARP * HA_WARP, parts = THREADS / lanes,
                       share = (in + parts - 1) / parts, part = thread / lanes, j = thread % lanes;
        const float(&x)[ROWS][HA_NET_WIDTH_MAX] = s.x[l % 2];
        float sum[ROWS] = {};
        if (part < parts && j < out)
            for (unsigned i = part * share; i < min(in, (part + 1) * share); i++) {
                const float by = w[i * out + j];
                for (unsigned r = 0; r < ROWS; r++) sum[r] = fmaf(x[r][i], by, sum[r]);
            }
        for (unsigned r = 0; r < ROWS; r++) s.part[r][thread] = sum[r];
        __syncthreads();
        const bool last = l + 1 == a.layers;
        for (unsigned i = thread; i < ROWS * out; i += THREADS) {
            const unsigned r = i / out, at = i % out;
            float y = w[in * out + at];
            for (unsigned p = 0; p < parts; p++) y += s.part[r][p * lanes + at];
            if (!last) s.x[(l + 1) % 2][r][at] = y < 0 ? 0 : y;
            else if (r < here) a.y[(first + r) * out + at] = y;
        }
        __syncthreads();
        w += (in + 1) * out;
    }
}

size_t ha_cuda_net_check(struct ha_cuda_check *c, const struct ha_net *n)
{
    if (!ha_net_fits(n))
        return ha_cuda_refuse(c, "1 to %d layers of 1 to %d numbers", HA_NET_LAYERS_MAX, HA_NET_WIDTH_MAX);
    const size_t w = ha_net_weights(n) * sizeof(float), x = times(n->rows, n->width[0] * sizeof(float)),
                 y = times(n->rows, n->width[n->layers] * sizeof(float));
    ha_cuda_takes(c, "w", n->w, w, w);
    ha_cuda_takes(c, "x", n->x, x, x);
    ha_cuda_takes(c, "y", n->y, y, 0);
    return n->rows;
}

cudaError_t ha_cuda_net(cudaStream_t stream, const struct ha_net *args)
{
    const size_t blocks = (args->rows + ROWS - 1) / ROWS;
    if (blocks == 0) return cudaSuccess;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    return ha_launch(net_of_rows, dim3(unsigned(blocks)), dim3(THREADS), stream, *args);
}

HA_CUDA_KERNELS(net, HA_KERNEL(net_of_rows));
