/* The steps are those of kernels/c/merge.c, whose comments say why. An element of the result is computed from the
 * states in an order that depends on their number alone: neither strides, types of access nor the shape of the grid
 * change a bit of it. Products and sums are rounded apart, so that two states commute. */

#include "kernels/cuda/simt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/operand.h"

struct common {
    size_t tokens, heads, dim;
    enum ha_form form;
    bool plus_inf_is_empty;
    unsigned count;     /* of states */
    unsigned team_bits; /* merge_few: 2 to this power lanes share a row, at least FEW */
    struct ha_merge_state out;
};
template <int MOST> struct merge_args {
    struct common c;
    struct ha_merge_state state[MOST];
};

struct row {
    size_t t, h;
};

static __device__ __forceinline__ struct row row_at(const struct common &c, uint64_t n)
{
    return { n / c.heads, n % c.heads };
}

/* element d of the row of o */
template <enum ha_dtype T>
static __device__ __forceinline__ char *o_at(const struct ha_merge_state &s, struct row r, size_t d)
{
    return (char *)s.o + (r.t * s.o_token_stride + r.h * s.o_head_stride + d) * (T == HA_F32 ? 4 : 2);
}

static __device__ __forceinline__ size_t lse_at(const struct ha_merge_state &s, struct row r)
{
    return r.t * s.lse_token_stride + r.h * s.lse_head_stride;
}

/* the LSE, or the maximum: -inf of every state without keys, never +inf */
static __device__ __forceinline__ float level_of(const struct common &c, const struct ha_merge_state &s, struct row r)
{
    const float l = s.lse[lse_at(s, r)];
    return l != INFINITY ? l : c.plus_inf_is_empty ? -INFINITY : NAN;
}

static __device__ __forceinline__ float weight_of(const struct common &c, float below)
{
    return c.form == HA_FORM_BASE2 ? ha_exp2(below) : ha_exp(below);
}

/* of a state that has keys, relative to the largest level */
static __device__ __forceinline__ float weigh(const struct common &c, const struct ha_merge_state &s, struct row r,
                                              float below)
{
    const float w = weight_of(c, below);
    return c.form == HA_FORM_MAX_SUM ? w * s.sum[lse_at(s, r)] : w;
}

/* log 1 is not added: it would turn -0 into 0 */
static __device__ __forceinline__ float merged_level(const struct common &c, float max, float sum)
{
    if (c.form == HA_FORM_MAX_SUM || sum == 1) return max;
    return max + (c.form == HA_FORM_BASE2 ? ha_log2(sum) : ha_log(sum));
}

static __device__ __forceinline__ float share_of(const struct common &c, float level, float weight, float merged,
                                                 float sum)
{
    return c.form == HA_FORM_DIRECT ? weight_of(c, level - merged) : weight / sum;
}

static __device__ __forceinline__ void put_level(const struct common &c, struct row r, float level, float sum)
{
    const size_t at = lse_at(c.out, r);
    c.out.lse[at] = level;
    if (c.form == HA_FORM_MAX_SUM) c.out.sum[at] = sum;
}

/* ---- few states: a team of lanes for each row. A lane weighs a state, then computes some elements from all. */

enum { PAIR = 2, FEW = 8, SOME = 64, FEW_THREADS = 128 };

template <int MOST, enum ha_dtype T, bool WIDE>
static __global__ void __launch_bounds__(FEW_THREADS) merge_few(HA_ARGS(struct merge_args<MOST>) a)
{
    typedef struct ha_cuda_piece<T, WIDE> piece;
    const struct common &c = a.c;
    const unsigned team = 1u << c.team_bits, lane = threadIdx.x % HA_WARP, member = lane & (team - 1),
                   first = lane - member;
    const uint64_t n = ((uint64_t)blockIdx.x * FEW_THREADS + threadIdx.x) >> c.team_bits;
    const bool live = n < (uint64_t)c.tokens * c.heads;
    const struct row r = row_at(c, n);

    float level = -INFINITY;
    if (live && member < c.count) level = level_of(c, a.state[member], r);
    const uint32_t having = __ballot_sync(HA_ALL_LANES, level != -INFINITY) >> first & ((1u << MOST) - 1);
    int rank = ha_cuda_rank(level);
    for (unsigned step = team / 2; step; step /= 2) rank = max(rank, __shfl_xor_sync(HA_ALL_LANES, rank, (int)step));
    const float top = ha_cuda_ranked(rank);
    const float weight = level != -INFINITY ? weigh(c, a.state[member], r, level - top) : 0;
    float sum = 0;
    for (unsigned i = 0; i < MOST; i++) sum += __shfl_sync(HA_ALL_LANES, weight, (int)(first + i));
    const float merged = merged_level(c, top, sum), mine = share_of(c, level, weight, merged, sum);
    float share[MOST];
    for (unsigned i = 0; i < MOST; i++) share[i] = __shfl_sync(HA_ALL_LANES, mine, (int)(first + i));
    __syncwarp(); /* the levels have been read: the result may take the place of one */
    if (!live) return;

    for (size_t d = (size_t)member * piece::ELEMENTS; d < c.dim; d += (size_t)team * piece::ELEMENTS) {
        piece x[MOST], sole;
        float acc[piece::ELEMENTS];
        bool alone = false; /* then the state is copied, NaN included */
        for (unsigned i = 0; i < MOST; i++)
            if (having >> i & 1) x[i].load(o_at<T>(a.state[i], r, d));
        for (int k = 0; k < piece::ELEMENTS; k++) acc[k] = having ? -0.0f : 0;
        for (unsigned i = 0; i < MOST; i++) {
            if (!(having >> i & 1)) continue;
            alone = having == 1u << i && share[i] == 1;
            sole = x[i];
            for (int k = 0; k < piece::ELEMENTS; k++) acc[k] += share[i] * x[i].get(k);
        }
        if (!alone) sole.set(acc);
        sole.store(o_at<T>(c.out, r, d));
    }
    if (member == 0) put_level(c, r, merged, sum);
}

/* ---- many states: a block for each row. A thread weighs some states; then each warp adds up every eighth of them. */

enum { MANY_THREADS = 256, MANY_WARPS = MANY_THREADS / HA_WARP, MANY_DEPTH = 4, ELEMENTS_MAX = 8 };
static_assert(MANY_WARPS * MANY_DEPTH == HA_WARP, "a warp's turn never leaves a word of `having`");

template <int MOST> struct many {
    float share[MOST];
    uint32_t having[MOST / HA_WARP]; /* a bit for each state */
    unsigned sole;                   /* the state that has keys, where that is one alone */
    int rank[MANY_WARPS];
    float sum[MANY_WARPS];
    float part[MANY_WARPS][ELEMENTS_MAX][HA_WARP];
};

/* the row's level, from all states; share and having of each */
template <int MOST>
static __device__ __forceinline__ float weigh_many(const struct merge_args<MOST> &a, struct many<MOST> &s, struct row r,
                                                   unsigned *used, float *sum)
{
    enum { EACH = (MOST + MANY_THREADS - 1) / MANY_THREADS };
    const struct common &c = a.c;
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    float level[EACH], weight[EACH], total = 0;
    int rank = ha_cuda_rank(-INFINITY);
    *used = 0;
    for (unsigned k = 0; k < EACH; k++) {
        const unsigned i = threadIdx.x + k * MANY_THREADS;
        level[k] = i < c.count ? level_of(c, a.state[i], r) : -INFINITY;
        rank = max(rank, ha_cuda_rank(level[k]));
        const uint32_t having = __ballot_sync(HA_ALL_LANES, level[k] != -INFINITY);
        if (lane == 0 && i < MOST) s.having[i / HA_WARP] = having;
        *used += (unsigned)__syncthreads_count(level[k] != -INFINITY);
    }
    rank = ha_cuda_warp_max(rank);
    if (lane == 0) s.rank[warp] = rank;
    __syncthreads();
    for (int i = 0; i < MANY_WARPS; i++) rank = max(rank, s.rank[i]);
    const float top = ha_cuda_ranked(rank);
    for (unsigned k = 0; k < EACH; k++) {
        weight[k] = level[k] != -INFINITY ? weigh(c, a.state[threadIdx.x + k * MANY_THREADS], r, level[k] - top) : 0;
        total += weight[k];
    }
    total = ha_cuda_warp_sum(total);
    if (lane == 0) s.sum[warp] = total;
    __syncthreads();
    *sum = 0;
    for (int i = 0; i < MANY_WARPS; i++) *sum += s.sum[i];
    const float merged = merged_level(c, top, *sum);
    for (unsigned k = 0; k < EACH; k++) {
        const unsigned i = threadIdx.x + k * MANY_THREADS;
        if (i < MOST) s.share[i] = share_of(c, level[k], weight[k], merged, *sum);
        if (*used == 1 && level[k] != -INFINITY) s.sole = i;
    }
    __syncthreads();
    return merged;
}

/* this warp's states, times their shares: the lane's elements, from d on */
template <int MOST, enum ha_dtype T, bool WIDE>
static __device__ __forceinline__ void add_many(const struct merge_args<MOST> &a, const struct many<MOST> &s,
                                                struct row r, size_t d, float *acc)
{
    typedef struct ha_cuda_piece<T, WIDE> piece;
    for (unsigned i = threadIdx.x / HA_WARP; i < a.c.count; i += MANY_WARPS * MANY_DEPTH) {
        piece x[MANY_DEPTH];
        bool live[MANY_DEPTH];
        for (unsigned u = 0; u < MANY_DEPTH; u++) {
            const unsigned at = i + u * MANY_WARPS;
            live[u] = s.having[at / HA_WARP] >> at % HA_WARP & 1;
            if (live[u]) x[u].load(o_at<T>(a.state[at], r, d));
        }
        for (unsigned u = 0; u < MANY_DEPTH; u++) {
            if (!live[u]) continue;
            const float share = s.share[i + u * MANY_WARPS];
            for (int k = 0; k < piece::ELEMENTS; k++) acc[k] += share * x[u].get(k);
        }
    }
}

template <int MOST, enum ha_dtype T, bool WIDE>
static __global__ void __launch_bounds__(MANY_THREADS) merge_many(HA_ARGS(struct merge_args<MOST>) a)
{
    typedef struct ha_cuda_piece<T, false> element;
    enum { ELEMENTS = ha_cuda_piece<T, WIDE>::ELEMENTS, CHUNK = ELEMENTS * HA_WARP };
    HA_SHARED(struct many<MOST>, s);
    const struct common &c = a.c;
    const unsigned lane = threadIdx.x % HA_WARP, warp = threadIdx.x / HA_WARP;
    const struct row r = row_at(c, blockIdx.x);
    unsigned used;
    float sum;
    const float merged = weigh_many<MOST>(a, s, r, &used, &sum);
    const bool alone = used == 1 && s.share[s.sole] == 1; /* then the state is copied, NaN included */
    for (size_t d = threadIdx.x; alone && d < c.dim; d += MANY_THREADS) {
        element x;
        x.load(o_at<T>(a.state[s.sole], r, d));
        x.store(o_at<T>(c.out, r, d));
    }
    for (size_t d = 0; !alone && d < c.dim; d += CHUNK) {
        float acc[ELEMENTS];
        for (int k = 0; k < ELEMENTS; k++) acc[k] = used ? -0.0f : 0;
        if (d + lane * ELEMENTS < c.dim) add_many<MOST, T, WIDE>(a, s, r, d + lane * ELEMENTS, acc);
        for (int k = 0; k < ELEMENTS; k++) s.part[warp][k][lane] = acc[k];
        __syncthreads();
        if (threadIdx.x < CHUNK && d + threadIdx.x < c.dim) {
            const unsigned k = threadIdx.x % ELEMENTS, from = threadIdx.x / ELEMENTS;
            float x = s.part[0][k][from];
            for (int i = 1; i < MANY_WARPS; i++) x += s.part[i][k][from];
            element e;
            e.set(&x);
            e.store(o_at<T>(c.out, r, d + threadIdx.x));
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) put_level(c, r, merged, sum);
}

/* ---- launches */

/* whether every row of o can be reached 16 bytes at a time */
static bool is_aligned(const struct ha_merge *m, const struct ha_merge_state *s)
{
    size_t strides = 0;
    if (m->tokens > 1) strides |= s->o_token_stride;
    if (m->heads > 1) strides |= s->o_head_stride;
    return ((uintptr_t)s->o | strides * ha_dtype_bytes(m->dtype)) % 16 == 0;
}

static bool is_wide(const struct ha_merge *m)
{
    bool wide = m->dim * ha_dtype_bytes(m->dtype) % 16 == 0 && is_aligned(m, &m->out);
    for (size_t i = 0; i < m->states_count && wide; i++) wide = is_aligned(m, &m->states[i]);
    return wide;
}

template <int MOST> static void fill(struct merge_args<MOST> *a, const struct ha_merge *m)
{
    a->c = { m->tokens, m->heads, m->dim, m->form, m->plus_inf_is_empty, (unsigned)m->states_count, 0, m->out };
    for (size_t i = 0; i < m->states_count; i++) a->state[i] = m->states[i];
    for (size_t i = m->states_count; i < MOST; i++) a->state[i] = {};
}

static unsigned team_bits(size_t pieces)
{
    unsigned bits = 3;
    static_assert(FEW == 1 << 3, "a lane for each state");
    while (1 << bits < HA_WARP && (size_t)1 << bits < pieces) bits++;
    return bits;
}

template <int MOST, enum ha_dtype T, bool WIDE>
static cudaError_t launch_few(cudaStream_t stream, const struct ha_merge *m)
{
    struct merge_args<MOST> a;
    fill(&a, m);
    a.c.team_bits = team_bits(m->dim / ha_cuda_piece<T, WIDE>::ELEMENTS);
    const uint64_t rows = FEW_THREADS >> a.c.team_bits, blocks = ((uint64_t)m->tokens * m->heads + rows - 1) / rows;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    return ha_launch(merge_few<MOST, T, WIDE>, dim3((unsigned)blocks), dim3(FEW_THREADS), stream, a);
}

template <int MOST, enum ha_dtype T, bool WIDE>
static cudaError_t launch_many(cudaStream_t stream, const struct ha_merge *m)
{
    struct merge_args<MOST> a;
    fill(&a, m);
    const uint64_t blocks = (uint64_t)m->tokens * m->heads;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    return ha_launch(merge_many<MOST, T, WIDE>, dim3((unsigned)blocks), dim3(MANY_THREADS), stream, a);
}

template <enum ha_dtype T, bool WIDE> static cudaError_t launch(cudaStream_t stream, const struct ha_merge *m)
{
    return m->states_count <= PAIR   ? launch_few<PAIR, T, WIDE>(stream, m)
           : m->states_count <= FEW  ? launch_few<FEW, T, WIDE>(stream, m)
           : m->states_count <= SOME ? launch_many<SOME, T, WIDE>(stream, m)
                                     : launch_many<HA_CUDA_STATES_MAX, T, WIDE>(stream, m);
}

template <enum ha_dtype T> static cudaError_t launch(cudaStream_t stream, const struct ha_merge *m)
{
    return is_wide(m) ? launch<T, true>(stream, m) : launch<T, false>(stream, m);
}

cudaError_t ha_cuda_merge(cudaStream_t stream, const struct ha_merge *args)
{
    if (args->states_count > HA_CUDA_STATES_MAX) return cudaErrorInvalidValue;
    if (args->tokens == 0 || args->heads == 0) return cudaSuccess;
    return args->dtype == HA_F32   ? launch<HA_F32>(stream, args)
           : args->dtype == HA_F16 ? launch<HA_F16>(stream, args)
                                   : launch<HA_BF16>(stream, args);
}

/* One state, or where the result goes: read is then false. */
static void takes_state(struct ha_cuda_check *c, const struct ha_merge *m, const struct ha_merge_state *s, bool read)
{
    static const char *const role[2][3] = { { "o", "lse", "sum" },
                                            { "o of a state", "lse of a state", "sum of a state" } };
    const size_t rows = m->tokens * m->heads, element = ha_dtype_bytes(m->dtype), f = sizeof(float),
                 o = times(extent(m->tokens, s->o_token_stride, extent(m->heads, s->o_head_stride, m->dim)), element),
                 lse = times(extent(m->tokens, s->lse_token_stride, extent(m->heads, s->lse_head_stride, 1)), f);
    ha_cuda_takes(c, role[read][0], s->o, rows && m->dim ? o : 0, read ? rows * m->dim * element : 0);
    ha_cuda_takes(c, role[read][1], s->lse, rows ? lse : 0, read ? rows * f : 0);
    if (m->form == HA_FORM_MAX_SUM) ha_cuda_takes(c, role[read][2], s->sum, rows ? lse : 0, read ? rows * f : 0);
}

size_t ha_cuda_merge_check(struct ha_cuda_check *c, const struct ha_merge *m)
{
    if (m->states_count > HA_CUDA_STATES_MAX)
        return ha_cuda_refuse(c, "%zu states, at most %d", m->states_count, HA_CUDA_STATES_MAX);
    unsigned form, dtype; /* C++ may not read as an enum what is none of its values */
    memcpy(&form, &m->form, sizeof form);
    memcpy(&dtype, &m->dtype, sizeof dtype);
    if (form >= HA_FORM_COUNT || dtype >= HA_DTYPE_COUNT)
        return ha_cuda_refuse(c, "the kernels do not merge form %u of type %u", form, dtype);
    if (m->fp8) return ha_cuda_refuse(c, "the kernels do not make fp8 of type %d", int(m->fp8));
    for (size_t i = 0; i < m->states_count; i++) takes_state(c, m, &m->states[i], true);
    takes_state(c, m, &m->out, false);
    return m->tokens * m->heads;
}

struct ha_merge_traits ha_cuda_merge_traits(void)
{
    struct ha_merge_traits t = {};
    t.forms = (1u << HA_FORM_COUNT) - 1;
    t.dtypes = (1u << HA_DTYPE_COUNT) - 1;
    t.aliases = 1u << HA_ALIAS_NONE | 1u << HA_ALIAS_FIRST | 1u << HA_ALIAS_LAST;
    t.states_max = HA_CUDA_STATES_MAX;
    t.lse_order = HA_LSE_ANY;
    t.o_strides = true;
    t.plus_inf = true;
    t.commutes = true;
    return t;
}

#define OF(T, WIDE)                                                                                                \
    HA_KERNEL(merge_few<PAIR, T, WIDE>), HA_KERNEL(merge_few<FEW, T, WIDE>), HA_KERNEL(merge_many<SOME, T, WIDE>), \
        HA_KERNEL(merge_many<HA_CUDA_STATES_MAX, T, WIDE>)
HA_CUDA_KERNELS(merge, OF(HA_F32, false), OF(HA_F32, true), OF(HA_F16, false), OF(HA_F16, true), OF(HA_BF16, false),
                OF(HA_BF16, true));
