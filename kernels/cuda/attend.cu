/* Attention from the host's side: which kernel, how the keys are split, what goes where. */

#include "kernels/cuda/attend.cuh"

#include "harness/base/seq_attend.h"

namespace
{

constexpr float LOG2_E = 0x1.715476p+0f;

constexpr size_t SEQS_MAX = HA_CUDA_SEQS_MAX;

/* partials of as many blocks as run at once, so many times over */
constexpr size_t ROUNDS_MAX = 8;

/* What a block takes besides its keys, and each split in the joining kernel, in steps' time: guesses that a measurement
 * may correct. */
constexpr uint64_t BLOCK_COST = 4, SPLITS_PER_STEP = 32;

bool multiples(const struct ha_device_attend *a, size_t first, size_t count, size_t of)
{
    uintptr_t bits = 0;
    for (size_t b = first; b < first + count; b++) {
        const struct ha_device_seq &seq = a->seqs[b];
        if (a->kv_heads > 1) bits |= seq.k_head_bytes | seq.v_head_bytes;
        for (size_t r = 0; r < seq.runs_count; r++) {
            const struct ha_rows &run = seq.runs[r];
            if (run.keys == 0) continue;
            bits |= reinterpret_cast<uintptr_t>(run.k) | reinterpret_cast<uintptr_t>(run.v) | run.k_stride_bytes
                    | run.v_stride_bytes;
        }
    }
    return bits % of == 0;
}

struct ha_cuda_path path_for(const struct ha_device_attend *a, size_t first, size_t count)
{
    const size_t rows = a->q_len * (a->q_heads / ha_seq_units(a));
    const bool vectors = multiples(a, first, count, 16);
    if (a->dtype == HA_F32 || rows == 1 || !vectors) return ha_cuda_path_fma(a->dtype, a->head_dim, rows, vectors);
    return a->dtype == HA_F16 ? ha_cuda_path_mma_f16(a->head_dim, rows > 16)
                              : ha_cuda_path_mma_bf16(a->head_dim, rows > 16);
}

size_t up(size_t n, size_t of) { return (n + of - 1) / of; }

size_t at_once(unsigned multiprocessors, const struct ha_cuda_path *path)
{
    return size_t(multiprocessors) * path->blocks_per_multiprocessor;
}

/* ---- the workspace: its parts one after another */

struct parts {
    size_t table, whole, state, partial, bytes; /* offsets, and all of it */
};

struct parts parts_of(unsigned multiprocessors, const struct ha_device_attend *a, const struct ha_cuda_path *path)
{
    const size_t batch = min(a->batch, SEQS_MAX);
    const size_t partials = ROUNDS_MAX * at_once(multiprocessors, path) * path->tiles;
    struct parts p = {};
    const auto take = [&p](size_t bytes) {
        const size_t at = p.bytes;
        p.bytes += up(bytes, 256) * 256;
        return at;
    };
    bool weights = false;
    for (size_t b = 0; b < a->batch; b++) weights = weights || a->seqs[b].weights;
    p.table = take(batch > HA_CUDA_SEQS_INLINE ? batch * sizeof(struct ha_cuda_seq) : 0);
    p.whole = take(weights ? batch * a->q_len * a->q_heads * sizeof(float2) : 0);
    p.state = take(partials * path->rows * sizeof(float2));
    p.partial = take(partials * path->rows * a->head_dim * sizeof(float));
    return p;
}

/* ---- splits */

/* blocks of all sequences when a split has so many steps, how many of them leave partials, and the steps of all */
struct blocks {
    uint64_t all, partial, steps;
};

struct blocks blocks_at(const struct ha_cuda_call *call, const struct ha_cuda_seq *seq, uint64_t split_steps)
{
    struct blocks n = {};
    const uint64_t each = uint64_t(call->stacks) * call->units;
    for (unsigned b = 0; b < call->batch; b++) {
        const uint64_t splits = seq[b].steps > split_steps ? up(seq[b].steps, split_steps) : 1;
        n.all += splits * each;
        if (splits > 1) n.partial += splits * each;
        n.steps += seq[b].steps * each;
    }
    return n;
}

/* Steps of a split. Tried are cuts of the longest sequence into more and more splits; the time of each is the lesser of
 * two estimates: every block as long as the longest, in rounds; or all blocks dealt out evenly, and the longest at the
 * end. */
uint64_t split_steps_for(const struct ha_cuda_call *call, const struct ha_cuda_seq *seq,
                         const struct ha_cuda_path *path, uint64_t slots)
{
    uint64_t longest = 1, best = 0, best_cost = UINT64_MAX;
    for (unsigned b = 0; b < call->batch; b++) longest = max(longest, uint64_t(seq[b].steps));
    for (uint64_t splits = 1; splits <= HA_CUDA_SPLITS_MAX; splits += 1 + splits / 8) {
        const uint64_t steps = up(up(longest, splits), path->warps) * path->warps;
        if (steps == best) continue;
        const struct blocks n = blocks_at(call, seq, steps);
        if (n.partial > ROUNDS_MAX * slots) break;
        const uint64_t rounds = up(n.all, slots) * (steps + BLOCK_COST);
        const uint64_t even = (n.steps + n.all * BLOCK_COST) / slots + steps + BLOCK_COST;
        const uint64_t cost = SPLITS_PER_STEP * min(rounds, even) + up(longest, steps);
        if (cost < best_cost) best = steps, best_cost = cost;
    }
    return best;
}

/* forced: 0, or splits of each sequence, as far as the partials fit; those of short sequences may stay empty */
uint64_t split(struct ha_cuda_call *call, struct ha_cuda_seq *seq, const struct ha_cuda_path *path, uint64_t slots,
               uint64_t forced)
{
    const uint64_t each = uint64_t(call->stacks) * call->units;
    const uint64_t most = min(uint64_t(HA_CUDA_SPLITS_MAX),
                              max(uint64_t(1), ROUNDS_MAX * slots / (each * call->batch)));
    const uint64_t steps = forced ? 0 : split_steps_for(call, seq, path, slots);
    uint64_t blocks = 0, partials = 0;
    for (unsigned b = 0; b < call->batch; b++) {
        const uint64_t splits = forced ? min(forced, most) : seq[b].steps > steps ? up(seq[b].steps, steps) : 1;
        seq[b].splits = unsigned(splits);
        seq[b].split_steps = unsigned(forced ? up(up(seq[b].steps, splits), path->warps) * path->warps : steps);
        seq[b].partial = unsigned(partials);
        call->first_block[b] = unsigned(blocks);
        blocks += splits * each;
        if (splits > 1) partials += splits * call->tiles * call->units;
    }
    return blocks;
}

/* ---- arguments */

/* the keys of a sequence must leave room for the steps behind the last one */
constexpr size_t KEYS_MAX = size_t(1) << 31;

bool sequence(struct ha_cuda_seq *to, const struct ha_device_seq *from, bool lists, unsigned step_keys)
{
    *to = ha_cuda_seq{};
    to->q = from->q;
    to->o = from->o;
    to->lse = from->lse;
    to->weights = from->weights;
    to->weights_stride = from->weights_stride;
    to->k_head_bytes = from->k_head_bytes;
    to->v_head_bytes = from->v_head_bytes;
    to->listed = lists && from->runs_count && from->runs[0].keys;
    to->list_stride = from->list_stride;
    to->list_keys = from->list_keys;
    size_t keys = 0;
    for (size_t r = 0; r < from->runs_count; r++) {
        const struct ha_rows &run = from->runs[r];
        if (run.keys == 0) continue;
        if (run.keys >= KEYS_MAX - keys) return false;
        to->run[to->runs++] = { static_cast<const char *>(run.k),
                                static_cast<const char *>(run.v),
                                run.index,
                                run.k_stride_bytes,
                                run.v_stride_bytes,
                                unsigned(run.keys),
                                unsigned(keys) };
        to->steps += unsigned(up(run.keys, step_keys));
        keys += run.keys;
    }
    to->keys = unsigned(keys);
    return true;
}

struct table {
    struct ha_cuda_seq *to;
    struct ha_cuda_seq seq[HA_CUDA_SEQS_MAX];
};

__global__ void attend_table(HA_ARGS(struct table) a) { a.to[threadIdx.x] = a.seq[threadIdx.x]; }

cudaError_t attend_some(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_attend *a, size_t first,
                        size_t count, char *workspace, unsigned forced)
{
    const struct ha_cuda_path path = path_for(a, first, count);
    const struct parts parts = parts_of(multiprocessors, a, &path);
    struct ha_cuda_call call = {};
    call.batch = unsigned(count);
    call.q_len = unsigned(a->q_len);
    call.units = unsigned(ha_seq_units(a));
    call.group = unsigned(a->q_heads) / call.units;
    call.head_lists = unsigned(a->lists / a->kv_heads);
    call.token_stride = ha_seq_token_stride(a);
    call.head_stride = ha_seq_head_stride(a);
    call.dim = unsigned(a->head_dim);
    call.block = unsigned(a->block ? a->block : 1);
    call.rows = call.q_len * call.group;
    call.tiles = unsigned(up(call.rows, path.rows));
    call.stacks = unsigned(up(call.tiles, path.tiles));
    call.causal = a->causal;
    call.vectors = multiples(a, first, count, 16);
    call.scale = a->scale * LOG2_E;
    call.partial = reinterpret_cast<float *>(workspace + parts.partial);
    call.state = reinterpret_cast<float2 *>(workspace + parts.state);

    struct table table;
    unsigned longest = 0;
    bool weights = false, several = false;
    for (size_t b = 0; b < count; b++) {
        if (!sequence(&table.seq[b], &a->seqs[first + b], a->lists, path.keys)) return cudaErrorInvalidValue;
        longest = max(longest, table.seq[b].keys);
        weights = weights || table.seq[b].weights;
    }
    if (weights) call.whole = reinterpret_cast<float2 *>(workspace + parts.whole);
    const uint64_t blocks = split(&call, table.seq, &path, at_once(multiprocessors, &path), forced);
    if (blocks >= KEYS_MAX) return cudaErrorInvalidConfiguration;
    for (size_t b = 0; b < count; b++) several = several || table.seq[b].splits > 1;

    cudaError_t error = cudaSuccess;
    if (count > HA_CUDA_SEQS_INLINE) {
        table.to = reinterpret_cast<struct ha_cuda_seq *>(workspace + parts.table);
        call.table = table.to;
        error = ha_launch(attend_table, dim3(1), dim3(unsigned(count)), stream, table);
    } else
        for (size_t b = 0; b < count; b++) call.seq[b] = table.seq[b];
    if (error == cudaSuccess) error = path.launch(&call, unsigned(blocks), stream);
    if (error == cudaSuccess && several) error = ha_cuda_attend_combine(&call, path.rows, stream);
    if (error == cudaSuccess && weights && longest) error = ha_cuda_attend_weights(&call, a->dtype, longest, stream);
    return error;
}

bool fits(const struct ha_device_attend *a)
{
    const size_t limit = KEYS_MAX;
    return a->kv_heads && a->q_heads % a->kv_heads == 0
           && (!a->lists || a->lists == a->kv_heads || a->lists == a->q_heads) && a->head_dim && a->head_dim % 8 == 0
           && a->head_dim <= HA_CUDA_DIM_MAX && ha_seq_units(a) < 65536 && a->q_len < limit && a->q_heads < limit
           && a->q_len * a->q_heads < limit && a->block < limit;
}

} // namespace

size_t ha_cuda_attend_workspace(unsigned multiprocessors, const struct ha_device_attend *args)
{
    if (!fits(args)) return 0;
    size_t most = 0;
    for (size_t first = 0; first < args->batch; first += HA_CUDA_SEQS_MAX) {
        const size_t left = args->batch - first;
        const struct ha_cuda_path path = path_for(args, first, min(left, SEQS_MAX));
        most = max(most, parts_of(multiprocessors, args, &path).bytes);
    }
    return most;
}

cudaError_t ha_cuda_attend(unsigned multiprocessors, cudaStream_t stream, const struct ha_device_attend *args,
                           void *workspace, unsigned splits)
{
    if (!fits(args)) return cudaErrorInvalidValue;
    if (args->q_len * args->q_heads == 0) return cudaSuccess;
    for (size_t first = 0; first < args->batch; first += HA_CUDA_SEQS_MAX) {
        const size_t left = args->batch - first;
        const cudaError_t error = attend_some(multiprocessors, stream, args, first, min(left, SEQS_MAX),
                                              static_cast<char *>(workspace), splits);
        if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
}

HA_CUDA_KERNELS(attend, HA_KERNEL(attend_table));
