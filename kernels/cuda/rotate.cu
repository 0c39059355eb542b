/* What a predicted query takes besides its product: bias, norm and rotary position, a warp for each head. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

enum { THREADS = 128 };

/* a number of a head before it is turned; by: one over the root mean square */
static __device__ __forceinline__ float number_at(const float *q, const float *bias, const float *norm, float by,
                                                  size_t d)
{
    float x = q[d];
    if (bias) x += bias[d];
    return norm ? x * by * norm[d] : x;
}

static __global__ void __launch_bounds__(THREADS) rotate_heads(const struct ha_device_rotate a)
{
    const unsigned lane = threadIdx.x % HA_WARP;
    const size_t row = (size_t)blockIdx.x * (THREADS / HA_WARP) + threadIdx.x / HA_WARP, dim = a.head_dim;
    if (row >= a.tokens * a.heads) return;
    float *q = a.q + row * dim, by = 1;
    const float *bias = a.bias ? a.bias + row % a.heads * dim : NULL;
    if (a.norm) {
        float squares = 0;
        for (size_t d = lane; d < dim; d += HA_WARP) {
            const float x = number_at(q, bias, NULL, 1, d);
            squares = fmaf(x, x, squares);
        }
        by = 1 / sqrtf(ha_cuda_warp_sum(squares) / (float)dim + a.norm_eps);
        __syncwarp(); /* all lanes have read */
    }
    const size_t turned = a.turn ? a.rotary : 0, pairs = turned / 2;
    for (size_t j = lane; j < pairs; j += HA_WARP) {
        const size_t i = a.adjacent ? 2 * j : j, k = a.adjacent ? i + 1 : i + pairs;
        const float *turn = a.turn + row / a.heads * turned + 2 * j;
        const float x = number_at(q, bias, a.norm, by, i), y = number_at(q, bias, a.norm, by, k);
        q[i] = x * turn[0] - y * turn[1];
        q[k] = y * turn[0] + x * turn[1];
    }
    for (size_t d = turned + lane; d < dim; d += HA_WARP) q[d] = number_at(q, bias, a.norm, by, d);
}

size_t ha_cuda_rotate_check(struct ha_cuda_check *c, const struct ha_device_rotate *r)
{
    const size_t f = sizeof(float), row = r->heads * r->head_dim * f, q = times(r->tokens, row),
                 turn = r->tokens * r->rotary * f;
    if (r->turn && (r->rotary > r->head_dim || r->rotary % 2))
        return ha_cuda_refuse(c, "%zu of %zu dimensions are turned in pairs", r->rotary, r->head_dim);
    ha_cuda_takes(c, "q", r->q, q, q);
    if (r->bias) ha_cuda_takes(c, "bias", r->bias, row, row);
    if (r->norm) ha_cuda_takes(c, "norm", r->norm, r->head_dim * f, r->head_dim * f);
    if (r->turn) ha_cuda_takes(c, "turn", r->turn, turn, turn);
    return q;
}

cudaError_t ha_cuda_rotate(cudaStream_t stream, const struct ha_device_rotate *args)
{
    const size_t rows = args->tokens * args->heads, blocks = (rows + THREADS / HA_WARP - 1) / (THREADS / HA_WARP);
    if (rows * args->head_dim == 0) return cudaSuccess;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    return ha_launch(rotate_heads, dim3((unsigned)blocks), dim3(THREADS), stream, *args);
}

HA_CUDA_KERNELS(rotate, HA_KERNEL(rotate_heads));
