/* Attention without tensor cores: binary32 K and V, one query row, rows at any address. */

#include "kernels/cuda/attend_fma.cuh"

namespace
{

/* C: head_dim / 128, rounded up; R: query rows of a tile. A step's scores are taken PARTS times, N of them at once: the
 * score of row r and key k of a part is number r GROUP + k, and lane l has number l / COPIES. */
template <unsigned C, unsigned R> struct shape {
    static constexpr unsigned WARPS = 8;
    static constexpr unsigned KEYS = 8 / C;
    static constexpr unsigned GROUP = KEYS * R > 32 ? 32 / R : KEYS, PARTS = KEYS / GROUP;
    static constexpr unsigned N = GROUP * R, COPIES = 32 / N;
    static constexpr unsigned BLOCKS = R == 1 ? 2 : 1;
};

template <unsigned C, unsigned R> struct shared {
    using S = shape<C, R>;
    struct ha_cuda_seq seq;
    float4 total[S::WARPS][R][C][32];
    float2 state[S::WARPS][R];
};

template <enum ha_dtype T, unsigned C, unsigned R> struct warp {
    using S = shape<C, R>;
    typename stored<T>::type k[S::KEYS][C], v[S::KEYS][C];
    float4 q[R][C], acc[R][C];
    float m, sum; /* of this lane's row; sum: of this lane's keys */
};

template <enum ha_dtype T, unsigned C, unsigned KEYS>
__device__ __forceinline__ void load_step(typename stored<T>::type (&to)[KEYS][C], const struct ha_cuda_stretch &at,
                                          const char *base, size_t stride, unsigned long long ahead, unsigned dim,
                                          bool vectors)
{
    HA_UNROLL
    for (unsigned key = 0; key < KEYS; key++) {
        const unsigned long long row = at.run->index ? __shfl_sync(HA_ALL_LANES, ahead, int(key)) : at.first + key;
        load_row<T, C>(to[key], base + row * stride, at.first + key < at.run->keys, dim, vectors);
    }
}

template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void score(const struct warp<T, C, R> &w, float (&s)[shape<C, R>::PARTS])
{
    using S = shape<C, R>;
    HA_UNROLL
    for (unsigned part = 0; part < S::PARTS; part++) {
        float x[S::N];
        HA_UNROLL
        for (unsigned key = 0; key < S::GROUP; key++) {
            HA_UNROLL
            for (unsigned r = 0; r < R; r++) x[r * S::GROUP + key] = 0;
            HA_UNROLL
            for (unsigned c = 0; c < C; c++) {
                const float4 k = widen<T>(w.k[part * S::GROUP + key][c]);
                HA_UNROLL
                for (unsigned r = 0; r < R; r++) x[r * S::GROUP + key] = dot4(w.q[r][c], k, x[r * S::GROUP + key]);
            }
        }
        s[part] = lane_sums<S::N>(x);
    }
}

/* Scores become weights 2^(s - m), m and what was summed up before following the largest. */
template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void soften(struct warp<T, C, R> &w, float (&s)[shape<C, R>::PARTS])
{
    using S = shape<C, R>;
    float top = s[0];
    HA_UNROLL
    for (unsigned part = 1; part < S::PARTS; part++) top = fmaxf(top, s[part]);
    HA_UNROLL
    for (unsigned bit = S::COPIES; bit < S::COPIES * S::GROUP; bit *= 2)
        top = fmaxf(top, __shfl_xor_sync(HA_ALL_LANES, top, int(bit)));
    const float m = fmaxf(w.m, ha_cuda_ceil(top));
    if (__any_sync(HA_ALL_LANES, m != w.m)) {
        const float own = ha_cuda_shift(w.m, m);
        w.sum *= own;
        HA_UNROLL
        for (unsigned r = 0; r < R; r++) {
            const float x = __shfl_sync(HA_ALL_LANES, own, int(r * S::GROUP * S::COPIES));
            HA_UNROLL
            for (unsigned c = 0; c < C; c++)
                w.acc[r][c] = make_float4(w.acc[r][c].x * x, w.acc[r][c].y * x, w.acc[r][c].z * x, w.acc[r][c].w * x);
        }
        w.m = m;
    }
    const float reference = m == -INFINITY ? 0 : m;
    HA_UNROLL
    for (unsigned part = 0; part < S::PARTS; part++) {
        s[part] = ha_exp2(s[part] - reference);
        w.sum += s[part];
    }
}

/* a step's weighted V is added up by itself before it is added to the rest: shorter sums */
template <enum ha_dtype T, unsigned C, unsigned R>
__device__ __forceinline__ void weigh(struct warp<T, C, R> &w, const float (&p)[shape<C, R>::PARTS])
{
    using S = shape<C, R>;
    HA_UNROLL
    for (unsigned r = 0; r < R; r++) {
        float4 sum[C];
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) sum[c] = make_float4(0, 0, 0, 0);
        HA_UNROLL
        for (unsigned key = 0; key < S::KEYS; key++) {
            const unsigned lane = (r * S::GROUP + key % S::GROUP) * S::COPIES;
            const float x = __shfl_sync(HA_ALL_LANES, p[key / S::GROUP], int(lane));
            if (x == 0) continue; /* a key that the row does not see, and whose V may be NaN */
            HA_UNROLL
            for (unsigned c = 0; c < C; c++) {
                const float4 v = widen<T>(w.v[key][c]);
                sum[c] = make_float4(fmaf(x, v.x, sum[c].x), fmaf(x, v.y, sum[c].y), fmaf(x, v.z, sum[c].z),
                                     fmaf(x, v.w, sum[c].w));
            }
        }
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) {
            float4 &to = w.acc[r][c];
            to = make_float4(to.x + sum[c].x, to.y + sum[c].y, to.z + sum[c].z, to.w + sum[c].w);
        }
    }
}

template <unsigned C, unsigned R>
__device__ __forceinline__ void finish(const struct ha_cuda_call &a, const struct shared<C, R> &sh,
                                       const struct ha_cuda_target &to)
{
    using S = shape<C, R>;
    for (unsigned i = threadIdx.x; i < R * C * 32; i += S::WARPS * 32) {
        const unsigned lane = i % 32, c = i / 32 % C, r = i / 32 / C, dim = 4 * lane + 128 * c;
        if (to.tile * R + r >= a.rows || dim >= a.dim) continue;
        float m = -INFINITY, sum = 0;
        for (unsigned w = 0; w < S::WARPS; w++) m = fmaxf(m, sh.state[w][r].x);
        float4 x = make_float4(0, 0, 0, 0);
        for (unsigned w = 0; w < S::WARPS; w++) {
            const float by = ha_cuda_shift(sh.state[w][r].x, m);
            const float4 y = sh.total[w][r][c][lane];
            sum = fmaf(sh.state[w][r].y, by, sum);
            x = make_float4(fmaf(y.x, by, x.x), fmaf(y.y, by, x.y), fmaf(y.z, by, x.z), fmaf(y.w, by, x.w));
        }
        ha_cuda_put(a, sh.seq, to, r, dim, m, sum, x);
    }
}

template <enum ha_dtype T, unsigned C, unsigned R>
__global__ void __launch_bounds__(shape<C, R>::WARPS * 32, shape<C, R>::BLOCKS)
    ha_attend_fma(HA_ARGS(struct ha_cuda_call) a)
{
    using S = shape<C, R>;
    using block_shared = shared<C, R>;
    HA_SHARED(block_shared, sh);
    unsigned within;
    const unsigned b = ha_cuda_find(a, &within);
    const unsigned unit = within % a.units;
    if (threadIdx.x == 0) {
        sh.seq = a.table ? a.table[b] : a.seq[b];
        if (a.head_lists) ha_cuda_own(a, sh.seq, unit, S::KEYS, S::WARPS);
    }
    __syncthreads();

    const struct ha_cuda_seq &seq = sh.seq;
    const unsigned lane = threadIdx.x % 32, number = threadIdx.x / 32;
    const unsigned tile = within / a.units % a.stacks, split = within / a.units / a.stacks;
    const unsigned last = a.rows - 1, row = tile * R;
    struct warp<T, C, R> w;
    w.m = -INFINITY;
    w.sum = 0;
    HA_UNROLL
    for (unsigned r = 0; r < R; r++) {
        load_query<C>(w.q[r], seq.q + ha_cuda_q_at(a, unit, min(row + r, last)), row + r <= last, a.dim);
        HA_UNROLL
        for (unsigned c = 0; c < C; c++) w.acc[r][c] = make_float4(0, 0, 0, 0);
    }

    /* as in attend_mma.cuh */
    const unsigned seen = ha_cuda_visible(a, seq.keys, min(row + R - 1, last));
    const unsigned mine = lane / S::COPIES / S::GROUP, key = lane / S::COPIES % S::GROUP;
    const unsigned own = ha_cuda_visible(a, seq.keys, min(row + mine, last));
    const size_t k_head = unit * seq.k_head_bytes, v_head = unit * seq.v_head_bytes;
    const unsigned end = min(seq.steps, (split + 1) * seq.split_steps);

    unsigned step = split * seq.split_steps + number;
    struct ha_cuda_stretch at = ha_cuda_stretch_at(seq, step, S::KEYS), next = at;
    bool more = step < end && at.run->first + at.first < seen;
    unsigned long long ahead = 0;
    if (more) {
        ahead = ha_cuda_row_ahead<S::KEYS>(at, a.block);
        load_step<T, C>(w.k, at, at.run->k + k_head, at.run->k_stride, ahead, a.dim, a.vectors);
        load_step<T, C>(w.v, at, at.run->v + v_head, at.run->v_stride, ahead, a.dim, a.vectors);
        step += S::WARPS;
        next = ha_cuda_stretch_at(seq, step, S::KEYS);
        if (step < end) ahead = ha_cuda_row_ahead<S::KEYS>(next, a.block);
    }
    while (more) {
        const bool go_on = step < end && next.run->first + next.first < seen;
        float s[S::PARTS];
        score(w, s);
        if (go_on) load_step<T, C>(w.k, next, next.run->k + k_head, next.run->k_stride, ahead, a.dim, a.vectors);
        step += S::WARPS;
        const struct ha_cuda_stretch after = ha_cuda_stretch_at(seq, step, S::KEYS);
        const unsigned long long ahead_after = step < end ? ha_cuda_row_ahead<S::KEYS>(after, a.block) : 0;

        const unsigned shown = ha_cuda_shown(at, own);
        HA_UNROLL
        for (unsigned part = 0; part < S::PARTS; part++)
            s[part] = part * S::GROUP + key < shown ? s[part] * a.scale : -INFINITY;
        soften(w, s);
        weigh(w, s);
        if (go_on) load_step<T, C>(w.v, next, next.run->v + v_head, next.run->v_stride, ahead, a.dim, a.vectors);
        at = next;
        next = after;
        ahead = ahead_after;
        more = go_on;
    }

    HA_UNROLL
    for (unsigned bit = S::COPIES; bit < S::COPIES * S::GROUP; bit *= 2)
        w.sum += __shfl_xor_sync(HA_ALL_LANES, w.sum, int(bit));
    if (lane % (S::COPIES * S::GROUP) == 0) sh.state[number][mine] = make_float2(w.m, w.sum);
    HA_UNROLL
    for (unsigned r = 0; r < R; r++) HA_UNROLL
    for (unsigned c = 0; c < C; c++) sh.total[number][r][c][lane] = w.acc[r][c];
    __syncthreads();
    finish<C, R>(a, sh, ha_cuda_target{ b, unit, split, tile, R });
}

template <enum ha_dtype T, unsigned C, unsigned R>
cudaError_t launch(const struct ha_cuda_call *call, unsigned blocks, cudaStream_t stream)
{
    return ha_launch(ha_attend_fma<T, C, R>, dim3(blocks), dim3(shape<C, R>::WARPS * 32), stream, *call);
}

/* the kernels of a type: C and R */
#define SHAPES(X, T) X(T, 1, 1), X(T, 1, 2), X(T, 1, 4), X(T, 1, 8), X(T, 2, 1), X(T, 2, 2), X(T, 2, 4)
#define KERNEL(T, C, R)                                                                       \
    {                                                                                         \
        reinterpret_cast<const void *>(ha_attend_fma<T, C, R>), shape<C, R>::WARPS * 32, 0, 0 \
    }
#define PATH(T, C, R)                                                   \
    {                                                                   \
        R, 1, shape<C, R>::WARPS, shape<C, R>::KEYS, 0, launch<T, C, R> \
    }
#define OF_EACH(X) SHAPES(X, HA_F32), SHAPES(X, HA_F16), SHAPES(X, HA_BF16)

const struct ha_cuda_path paths[] = { OF_EACH(PATH) };

} // namespace

HA_CUDA_KERNELS(attend_fma, OF_EACH(KERNEL));

struct ha_cuda_path ha_cuda_path_fma(enum ha_dtype dtype, size_t dim, size_t rows)
{
    const size_t few = rows <= 2 ? rows - 1 : rows <= 4 || dim > 128 ? 2 : 3;
    return ha_cuda_path_at(paths, &ha_cuda_kernels_attend_fma, 7 * size_t(dtype) + (dim > 128 ? 4 : 0) + few);
}
