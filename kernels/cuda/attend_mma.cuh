#ifndef HA_KERNELS_CUDA_ATTEND_MMA_CUH
#define HA_KERNELS_CUDA_ATTEND_MMA_CUH

/* Attention on tensor cores, for K and V of 16 bits in rows of 16-byte pieces and two query rows or more.
 *
 * Numbers of 16 bits are exact in tf32; the binary32 numbers that meet them, queries and weights, are cut in two: of
 * the 16 rows of m16n8k8, 0-7 are the high parts of 8 query rows and 8-15 their low parts, added when a product is
 * done.
 *
 * Fragments lie in the ring as they are read. Lane 4 g + t reads 16 bytes at a time:
 *   K: of key g, dims 32 j + 8 t .. + 7. Product m of the four that consume them sums over k = t: dim 32 j + 8 t + 2 m,
 * and k = t + 4: the next one; the queries' fragments are put together likewise. V: of keys 2 t and 2 t + 1, dims 64 j
 * + 8 g .. + 7: component e of them is column g of n-tile e. Key 2 t is k = t and key 2 t + 1 is k = t + 4, which is
 * how the scores (c: row g, keys 2 t and 2 t + 1) lie already. */

#include "kernels/cuda/attend_ring.cuh"

namespace
{

enum { ROWS = 8 };

/* NV: head_dim / 64, rounded up. MANY: the warps of a block take tiles of their own and the same keys; else one tile
 * and every WARPS-th step. */
template <unsigned NV, bool MANY> struct shape {
    static constexpr unsigned WARPS = NV <= 2 ? 4 : 2;
    static constexpr unsigned KEYS = NV <= 2 ? 16 : 8, EIGHTS = KEYS / 8;
    static constexpr unsigned FOLD = 32 / KEYS; /* steps whose products are added up on the tensor cores */
    static constexpr unsigned TILES = MANY ? WARPS : 1;
    static constexpr unsigned STAGES = 2, PIECES = 2 * EIGHTS * NV;
    static constexpr unsigned BLOCKS = NV == 2 ? 2 : 4; /* of a multiprocessor, whose registers they share */
    typedef ha_cuda_steps<KEYS, STAGES> steps;
    typedef uint4 pieces[PIECES][32];
};

template <unsigned NV, bool MANY> struct shared {
    using S = shape<NV, MANY>;
    struct ha_cuda_seq seq;
    float2 q[S::TILES][2 * NV][4][32]; /* fragments before they are cut */
    float4 total[S::WARPS][NV][4][32]; /* of what has been folded: [f][4 g + t]: row g, dims 64 j + 16 t + 4 f .. + 3 */
    float2 state[S::WARPS][ROWS];
    struct ha_cuda_ring<S::PIECES, S::STAGES> ring[S::WARPS]; /* K: [e][j], V: [e][i][j] */
};

/* of a warp's tile; what has a row is of row g */
template <unsigned NV> struct warp {
    float acc[NV][8][4]; /* since the last fold, times 2^-m */
    float m, sum;        /* sum: of this lane's keys */
    float total_m, total_sum;
};

template <enum ha_dtype T> __device__ __forceinline__ float2 pair(uint32_t x)
{
    return T == HA_F16 ? ha_f16x2_to_f32(x) : ha_bf16x2_to_f32(x);
}

/* tiles that share what they read share it in the first-level cache: MANY */
template <bool MANY, unsigned NV, class S>
__device__ __forceinline__ void ask_k(typename S::pieces &to, const typename S::steps &steps, unsigned i, size_t head,
                                      unsigned dim)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const struct ha_cuda_rows rows = steps.k_rows(i, head);
    HA_UNROLL
    for (unsigned e = 0; e < S::EIGHTS; e++) {
        const bool real = rows.real(8 * e + g);
        const char *p = rows.row(8 * e + g) + 16 * t;
        HA_UNROLL
        for (unsigned j = 0; j < 2 * NV; j++)
            ha_copy16<MANY>(&to[2 * NV * e + j][lane], p + 64 * j, real && 32 * j + 8 * t < dim);
    }
}

template <bool MANY, unsigned NV, class S>
__device__ __forceinline__ void ask_v(typename S::pieces &to, const typename S::steps &steps, unsigned i, size_t head,
                                      unsigned dim)
{
    const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const struct ha_cuda_rows rows = steps.v_rows(i, head);
    HA_UNROLL
    for (unsigned e = 0; e < S::EIGHTS; e++) HA_UNROLL
    for (unsigned odd = 0; odd < 2; odd++) {
        const unsigned key = 8 * e + 2 * t + odd;
        const bool real = rows.real(key);
        const char *p = rows.row(key) + 16 * g;
        HA_UNROLL
        for (unsigned j = 0; j < NV; j++)
            ha_copy16<MANY>(&to[NV * (2 * e + odd) + j][lane], p + 128 * j, real && 64 * j + 8 * g < dim);
    }
}

/* What the high and the low parts of a row gave. A score that is infinite, because a key is, has no low part: 0 inf is
 * NaN. */
__device__ __forceinline__ float whole(float high, float low) { return fabsf(high) == INFINITY ? high : high + low; }

/* s[e]: of row g and keys 8 e + 2 t, 8 e + 2 t + 1, not yet scaled. 32 dims are added up on the tensor cores, two such
 * sums side by side, and the sums in binary32. */
template <enum ha_dtype T, unsigned NV, unsigned E>
__device__ __forceinline__ void score(const uint4 (&from)[2 * E * NV][32], const float2 (&q)[2 * NV][4][32],
                                      float (&s)[E][2])
{
    HA_UNROLL
    for (unsigned e = 0; e < E; e++) s[e][0] = s[e][1] = 0;
    HA_UNROLL
    for (unsigned j = 0; j < 2 * NV; j += 2) {
        float c[2][E][4] = {};
        uint4 k[2][E];
        HA_UNROLL
        for (unsigned i = 0; i < 2; i++) HA_UNROLL
        for (unsigned e = 0; e < E; e++) k[i][e] = from[2 * NV * e + j + i][threadIdx.x % 32];
        HA_UNROLL
        for (unsigned m = 0; m < 4; m++) HA_UNROLL
        for (unsigned i = 0; i < 2; i++) {
            const float2 x = q[j + i][m][threadIdx.x % 32];
            const float hi0 = ha_tf32_hi(x.x), hi1 = ha_tf32_hi(x.y);
            const float a[4] = { hi0, ha_tf32_hi(x.x - hi0), hi1, ha_tf32_hi(x.y - hi1) };
            HA_UNROLL
            for (unsigned e = 0; e < E; e++) {
                const uint32_t word[4] = { k[i][e].x, k[i][e].y, k[i][e].z, k[i][e].w };
                const float2 key = pair<T>(word[m]);
                const float b[2] = { key.x, key.y };
                ha_mma_tf32(c[i][e], a, b);
            }
        }
        HA_UNROLL
        for (unsigned i = 0; i < 2; i++) HA_UNROLL
        for (unsigned e = 0; e < E; e++) {
            s[e][0] += whole(c[i][e][0], c[i][e][2]);
            s[e][1] += whole(c[i][e][1], c[i][e][3]);
        }
    }
}

/* Scores become weights 2^(s - m), m and what was summed up before following the largest. */
template <unsigned NV, unsigned E> __device__ __forceinline__ void soften(struct warp<NV> &w, float (&s)[E][2])
{
    float top = s[0][0];
    HA_UNROLL
    for (unsigned e = 0; e < E; e++) top = fmaxf(top, fmaxf(s[e][0], s[e][1]));
    top = fmaxf(top, __shfl_xor_sync(HA_ALL_LANES, top, 1));
    top = fmaxf(top, __shfl_xor_sync(HA_ALL_LANES, top, 2));
    const float m = fmaxf(w.m, ha_cuda_ceil(top));
    if (__any_sync(HA_ALL_LANES, m != w.m)) {
        const float x = ha_cuda_shift(w.m, m);
        w.sum *= x;
        HA_UNROLL
        for (unsigned j = 0; j < NV; j++) HA_UNROLL
        for (unsigned e = 0; e < 8; e++) HA_UNROLL
        for (unsigned i = 0; i < 4; i++) w.acc[j][e][i] *= x;
        w.m = m;
    }
    const float reference = m == -INFINITY ? 0 : m;
    float sum = 0;
    HA_UNROLL
    for (unsigned e = 0; e < E; e++) {
        s[e][0] = ha_exp2(s[e][0] - reference);
        s[e][1] = ha_exp2(s[e][1] - reference);
        sum += s[e][0] + s[e][1];
    }
    w.sum += sum;
}

template <enum ha_dtype T, unsigned NV, unsigned E>
__device__ __forceinline__ void weigh(struct warp<NV> &w, const uint4 (&from)[2 * E * NV][32], const float (&p)[E][2])
{
    HA_UNROLL
    for (unsigned e = 0; e < E; e++) {
        const float hi0 = ha_tf32_hi(p[e][0]), hi1 = ha_tf32_hi(p[e][1]);
        const float a[4] = { hi0, ha_tf32_hi(p[e][0] - hi0), hi1, ha_tf32_hi(p[e][1] - hi1) };
        HA_UNROLL
        for (unsigned j = 0; j < NV; j++) {
            const uint4 even = from[NV * 2 * e + j][threadIdx.x % 32],
                        odd = from[NV * (2 * e + 1) + j][threadIdx.x % 32];
            const uint32_t x[4] = { even.x, even.y, even.z, even.w }, y[4] = { odd.x, odd.y, odd.z, odd.w };
            HA_UNROLL
            for (unsigned i = 0; i < 4; i++) {
                const float2 v0 = pair<T>(x[i]), v1 = pair<T>(y[i]);
                const float low[2] = { v0.x, v1.x }, high[2] = { v0.y, v1.y };
                ha_mma_tf32(w.acc[j][2 * i], a, low);
                ha_mma_tf32(w.acc[j][2 * i + 1], a, high);
            }
        }
    }
}

/* True if some V of the step is not finite. */
template <enum ha_dtype T, unsigned PIECES> __device__ __forceinline__ bool spoiled(const uint4 (&v)[PIECES][32])
{
    constexpr uint32_t ones = T == HA_F16 ? 0x7c00 : 0x7f80;
    bool found = false;
    HA_UNROLL
    for (unsigned i = 0; i < PIECES; i++) {
        const uint4 piece = v[i][threadIdx.x % 32];
        const uint32_t x[4] = { piece.x, piece.y, piece.z, piece.w };
        HA_UNROLL
        for (unsigned n = 0; n < 4; n++) found = found || (x[n] & ones) == ones || (x[n] >> 16 & ones) == ones;
    }
    return __any_sync(HA_ALL_LANES, found);
}

/* The same as weigh, a key at a time and only for the rows that see it: in a product of the whole tile, a V that is not
 * finite would spoil the others, too, as 0 times it is NaN. */
template <enum ha_dtype T, unsigned NV, unsigned E>
__device__ __forceinline__ void weigh_apart(struct warp<NV> &w, const float (&p)[E][2],
                                            const struct ha_cuda_stretch &at, unsigned shown, size_t head,
                                            const struct ha_cuda_call &a)
{
    const unsigned lane = threadIdx.x % 32, t = lane % 4;
    HA_UNROLL
    for (unsigned e = 0; e < E; e++) HA_UNROLL
    for (unsigned i = 0; i < 2; i++)
        for (unsigned of = 0; of < 4; of++) {
            const unsigned key = 8 * e + 2 * of + i;
            const float x = __shfl_sync(HA_ALL_LANES, p[e][i], int(lane - t + of));
            if (key >= shown) continue;
            const char *row = at.run->v + head + ha_cuda_row(*at.run, at.first + key, a.block) * at.run->v_stride;
            const uint16_t *v = reinterpret_cast<const uint16_t *>(row);
            HA_UNROLL
            for (unsigned j = 0; j < NV; j++) HA_UNROLL
            for (unsigned n = 0; n < 8; n++) HA_UNROLL
            for (unsigned half = 0; half < 2; half++) {
                const unsigned d = 64 * j + 16 * t + 8 * half + n;
                if (d < a.dim) w.acc[j][n][half] = fmaf(x, pair<T>(__ldg(v + d)).x, w.acc[j][n][half]);
            }
        }
}

/* What the tensor cores added up goes to the totals, and they begin anew: their sums lose bits on the way, and all in
 * one direction, so that long ones are not left to them. */
template <unsigned NV> __device__ __forceinline__ void fold(struct warp<NV> &w, float4 (&total)[NV][4][32])
{
    const float x = ha_cuda_shift(w.total_m, w.m);
    HA_UNROLL
    for (unsigned j = 0; j < NV; j++) HA_UNROLL
    for (unsigned f = 0; f < 4; f++) {
        float4 &to = total[j][f][threadIdx.x % 32];
        float(&from)[8][4] = w.acc[j];
        const unsigned e = 4 * (f % 2), i = f / 2;
        to.x = fmaf(to.x, x, from[e][i] + from[e][i + 2]);
        to.y = fmaf(to.y, x, from[e + 1][i] + from[e + 1][i + 2]);
        to.z = fmaf(to.z, x, from[e + 2][i] + from[e + 2][i + 2]);
        to.w = fmaf(to.w, x, from[e + 3][i] + from[e + 3][i + 2]);
    }
    HA_UNROLL
    for (unsigned j = 0; j < NV; j++) HA_UNROLL
    for (unsigned e = 0; e < 8; e++) HA_UNROLL
    for (unsigned i = 0; i < 4; i++) w.acc[j][e][i] = 0;
    w.total_sum = fmaf(w.total_sum, x, w.sum);
    w.total_m = w.m;
    w.sum = 0;
}

template <unsigned NV>
__device__ __forceinline__ void load_q(float2 (&to)[2 * NV][4][32], const struct ha_cuda_call &a,
                                       const struct ha_cuda_seq &seq, unsigned unit, unsigned tile, unsigned thread,
                                       unsigned threads)
{
    for (unsigned i = thread; i < 2 * NV * 4 * 32; i += threads) {
        const unsigned lane = i % 32, m = i / 32 % 4, j = i / 128, row = tile * ROWS + lane / 4,
                       dim = 32 * j + 8 * (lane % 4) + 2 * m;
        const bool real = row < a.rows && dim < a.dim;
        const float *q = seq.q + (real ? ha_cuda_q_at(a, unit, row) + dim : 0);
        to[j][m][lane] = real ? make_float2(__ldg(q), __ldg(q + 1)) : make_float2(0, 0);
    }
}

/* the tile's result from `warps` totals and states */
template <unsigned NV>
__device__ __forceinline__ void finish(const struct ha_cuda_call &a, const struct ha_cuda_seq &seq,
                                       const struct ha_cuda_target &to, const float4 (*total)[NV][4][32],
                                       const float2 (*state)[ROWS], unsigned warps, unsigned thread, unsigned threads)
{
    for (unsigned i = thread; i < NV * 4 * 32; i += threads) {
        const unsigned lane = i % 32, f = i / 32 % 4, j = i / 128, g = lane / 4, dim = 64 * j + 16 * (lane % 4) + 4 * f;
        if (to.tile * ROWS + g >= a.rows || dim >= a.dim) continue;
        float m = -INFINITY, sum = 0;
        for (unsigned w = 0; w < warps; w++) m = fmaxf(m, state[w][g].x);
        float4 x = make_float4(0, 0, 0, 0);
        for (unsigned w = 0; w < warps; w++) {
            const float by = ha_cuda_shift(state[w][g].x, m);
            const float4 y = total[w][j][f][lane];
            sum = fmaf(state[w][g].y, by, sum);
            x = make_float4(fmaf(y.x, by, x.x), fmaf(y.y, by, x.y), fmaf(y.z, by, x.z), fmaf(y.w, by, x.w));
        }
        ha_cuda_put(a, seq, to, g, dim, m, sum, x);
    }
}

template <enum ha_dtype T, unsigned NV, bool MANY>
__global__ void __launch_bounds__(shape<NV, MANY>::WARPS * 32, shape<NV, MANY>::BLOCKS)
    attend_mma(HA_ARGS(struct ha_cuda_call) a)
{
    using S = shape<NV, MANY>;
    using block_shared = shared<NV, MANY>;
    HA_SHARED_DYNAMIC(block_shared, sh);
    unsigned within;
    const unsigned b = ha_cuda_find(a, &within);
    const unsigned unit = within % a.units;
    if (threadIdx.x == 0) {
        sh.seq = a.table ? a.table[b] : a.seq[b];
        if (a.head_lists) ha_cuda_own(a, sh.seq, unit, S::KEYS, MANY ? 1 : S::WARPS);
    }
    __syncthreads();

    const struct ha_cuda_seq &seq = sh.seq;
    const unsigned lane = threadIdx.x % 32, number = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const unsigned stack = within / a.units % a.stacks, split = within / a.units / a.stacks;
    const unsigned tile = MANY ? stack * S::WARPS + number : stack;
    const unsigned last = a.rows - 1, row = tile * ROWS;
    const unsigned seen = row <= last ? ha_cuda_visible(a, seq.keys, min(row + ROWS - 1, last)) : 0;
    const unsigned own = ha_cuda_visible(a, seq.keys, min(row + g, last));
    const size_t k_head = unit * seq.k_head_bytes, v_head = unit * seq.v_head_bytes;

    struct ha_cuda_ring<S::PIECES, S::STAGES> &ring = sh.ring[number];
    typename S::steps steps = { seq,
                                split * seq.split_steps + (MANY ? 0 : number),
                                MANY ? 1 : S::WARPS,
                                min(seq.steps, (split + 1) * seq.split_steps),
                                seen,
                                a.block,
                                0,
                                {},
                                {},
                                {} };
    HA_UNROLL
    for (unsigned i = 0; i <= S::STAGES; i++) steps.look(i);
    HA_UNROLL
    for (unsigned i = 0; i < S::STAGES; i++) {
        if (steps.there[i]) ask_k<MANY, NV, S>(ring.k[i], steps, i, k_head, a.dim);
        ha_copy_commit();
        if (steps.there[i]) ask_v<MANY, NV, S>(ring.v[i], steps, i, v_head, a.dim);
        ha_copy_commit();
    }

    if (MANY) {
        load_q<NV>(sh.q[number % S::TILES], a, seq, unit, tile, lane, 32);
        __syncwarp();
    } else {
        load_q<NV>(sh.q[0], a, seq, unit, tile, threadIdx.x, S::WARPS * 32);
        __syncthreads();
    }
    const float2(&q)[2 * NV][4][32] = sh.q[number % S::TILES];
    float4(&total)[NV][4][32] = sh.total[number];
    for (unsigned j = 0; j < NV; j++)
        for (unsigned f = 0; f < 4; f++) total[j][f][lane] = make_float4(0, 0, 0, 0);

    struct warp<NV> w;
    w.m = w.total_m = -INFINITY;
    w.sum = w.total_sum = 0;
    HA_UNROLL
    for (unsigned j = 0; j < NV; j++) HA_UNROLL
    for (unsigned e = 0; e < 8; e++) HA_UNROLL
    for (unsigned i = 0; i < 4; i++) w.acc[j][e][i] = 0;

    for (unsigned count = 1; steps.there[0]; count++) {
        typename S::pieces &k = ring.k[steps.stage], &v = ring.v[steps.stage];
        float s[S::EIGHTS][2];
        ha_copy_wait<2 * S::STAGES - 1>();
        score<T, NV>(k, q, s);
        if (steps.there[S::STAGES]) ask_k<MANY, NV, S>(k, steps, S::STAGES, k_head, a.dim);
        ha_copy_commit();
        steps.look(S::STAGES + 1);

        const unsigned shown = ha_cuda_shown(steps.at[0], own);
        HA_UNROLL
        for (unsigned e = 0; e < S::EIGHTS; e++) HA_UNROLL
        for (unsigned i = 0; i < 2; i++) s[e][i] = 8 * e + 2 * t + i < shown ? s[e][i] * a.scale : -INFINITY;
        soften(w, s);
        ha_copy_wait<2 * S::STAGES - 1>();
        if (__any_sync(HA_ALL_LANES, shown < S::KEYS) && spoiled<T>(v))
            weigh_apart<T>(w, s, steps.at[0], shown, v_head, a);
        else weigh<T>(w, v, s);
        if (steps.there[S::STAGES]) ask_v<MANY, NV, S>(v, steps, S::STAGES, v_head, a.dim);
        ha_copy_commit();
        if (count % S::FOLD == 0) fold(w, total);
        steps.next();
    }
    fold(w, total);
    w.total_sum += __shfl_xor_sync(HA_ALL_LANES, w.total_sum, 1);
    w.total_sum += __shfl_xor_sync(HA_ALL_LANES, w.total_sum, 2);
    if (t == 0) sh.state[number][g] = make_float2(w.total_m, w.total_sum);

    const struct ha_cuda_target to = { b, unit, split, tile, ROWS };
    if (MANY) {
        __syncwarp();
        finish<NV>(a, seq, to, &sh.total[number], &sh.state[number], 1, lane, 32);
    } else {
        __syncthreads();
        finish<NV>(a, seq, to, sh.total, sh.state, S::WARPS, threadIdx.x, S::WARPS * 32);
    }
}

template <enum ha_dtype T, unsigned NV, bool MANY>
cudaError_t launch_mma(const struct ha_cuda_call *call, unsigned blocks, cudaStream_t stream)
{
    return ha_launch_dynamic(sizeof(struct shared<NV, MANY>), attend_mma<T, NV, MANY>, dim3(blocks),
                             dim3(shape<NV, MANY>::WARPS * 32), stream, *call);
}

/* the kernels of a type, and how each is used: NV = 1 .. 4, and not MANY before MANY */
#define HA_ATTEND_MMA(X, T)                                                                                      \
    X(T, 1, false), X(T, 1, true), X(T, 2, false), X(T, 2, true), X(T, 3, false), X(T, 3, true), X(T, 4, false), \
        X(T, 4, true)
#define HA_ATTEND_MMA_KERNEL(T, NV, MANY)                                                     \
    {                                                                                         \
        reinterpret_cast<const void *>(attend_mma<T, NV, MANY>), shape<NV, MANY>::WARPS * 32, \
            sizeof(struct shared<NV, MANY>), 0                                                \
    }
#define HA_ATTEND_MMA_PATH(T, NV, MANY)                                                            \
    {                                                                                              \
        ROWS, shape<NV, MANY>::TILES, MANY ? 1 : shape<NV, MANY>::WARPS, shape<NV, MANY>::KEYS, 0, \
            launch_mma<T, NV, MANY>                                                                \
    }

inline size_t number_mma(size_t dim, bool many) { return 2 * ((dim - 1) / 64) + many; }

} // namespace

#endif
