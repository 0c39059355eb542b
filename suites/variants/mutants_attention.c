#include "suites/variants/planted.h"

#include "harness/base/numeric.h"

#include <math.h>
#include <string.h>

static float *lse_at(const struct ha_attend *a, size_t token, size_t head)
{
    return a->lse + token * a->lse_token_stride + head * a->lse_head_stride;
}
static float *o_at(const struct ha_attend *a, size_t token, size_t head)
{
    return a->o + token * a->q_token_stride + head * a->q_head_stride;
}

static void each_lse(const struct ha_attend *a, float (*f)(float))
{
    for (size_t t = 0; t < a->q_len; t++)
        for (size_t h = 0; h < a->group; h++) *lse_at(a, t, h) = f(*lse_at(a, t, h));
}

static struct ha_rows without_first(struct ha_rows r)
{
    if (r.index) r.index++;
    else {
        r.k = (const char *)r.k + r.k_stride_bytes;
        r.v = (const char *)r.v + r.v_stride_bytes;
    }
    r.keys--;
    return r;
}

/* Of packed keys the last, or else the first row. */
static void drop_token(struct ha_attend *a, struct ha_mutant_room *room)
{
    size_t i = 0;
    if (a->packed.keys) {
        a->packed.keys--;
        return;
    }
    if (a->runs_count) memcpy(room->runs, a->runs, a->runs_count * sizeof *room->runs);
    while (i < a->runs_count && room->runs[i].keys == 0) i++;
    /* with causal set the last run ends in the query tokens, which stay */
    if (i < a->runs_count && room->runs[i].keys > (i + 1 == a->runs_count && a->causal ? a->q_len : 0))
        room->runs[i] = without_first(room->runs[i]);
    a->runs = room->runs;
}

/* The first key once more, as a run of its own: what two sides do that both own the boundary. */
static void double_token(struct ha_attend *a, struct ha_mutant_room *room)
{
    size_t i = 0, row = a->head_dim * ha_dtype_bytes(a->dtype);
    while (i < a->runs_count && a->runs[i].keys == 0) i++;
    if ((!a->packed.keys && i == a->runs_count) || a->runs_count == HA_RUNS_MAX || a->weights) return;
    room->runs[0] = (struct ha_rows){ .k = room->k, .v = room->v, .k_stride_bytes = row, .v_stride_bytes = row };
    if (a->packed.keys)
        ha_planted_cpu()->unpack(&(struct ha_unpack){ .blocks = a->packed.blocks,
                                                      .keys = 1,
                                                      .head_dim = a->head_dim,
                                                      .dtype = a->dtype,
                                                      .k = room->k,
                                                      .v = room->v,
                                                      .k_stride_bytes = row,
                                                      .v_stride_bytes = row });
    else room->runs[0] = a->runs[i];
    room->runs[0].keys = 1;
    if (a->runs_count) memcpy(room->runs + 1, a->runs, a->runs_count * sizeof *room->runs);
    a->runs = room->runs;
    a->runs_count++;
}

static void wrong_scale(struct ha_attend *a, struct ha_mutant_room *room) { a->scale *= 1.01f; }

/* the last head of the group is forgotten */
static void unwritten(struct ha_attend *a, struct ha_mutant_room *room) { a->group -= a->group > 1; }

static float to_base_2(float x) { return x * 1.44269504f; }
static float through_bf16(float x) { return ha_round(x, HA_BF16); }

static void base_2(const struct ha_attend *a) { each_lse(a, to_base_2); }
static void bf16_lse(const struct ha_attend *a) { each_lse(a, through_bf16); }

static void swap_heads(const struct ha_attend *a)
{
    for (size_t t = 0; t < a->q_len && a->group > 1; t++) {
        float lse = *lse_at(a, t, 0), *x = o_at(a, t, 0), *y = o_at(a, t, 1);
        *lse_at(a, t, 0) = *lse_at(a, t, 1);
        *lse_at(a, t, 1) = lse;
        for (size_t d = 0; d < a->head_dim; d++) {
            float o = x[d];
            x[d] = y[d];
            y[d] = o;
        }
    }
}

static void nan_output(const struct ha_attend *a) { *o_at(a, 0, 0) = NAN; }

static enum ha_status device_scale(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_attend a = *args;
    a.scale *= 1.01f;
    return ha_planted_device()->attend(stream, &a);
}

static enum ha_status device_drop_token(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].runs_count && seqs[b].runs[0].keys > args->q_len) seqs[b].runs[0] = without_first(seqs[b].runs[0]);
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

/* The state that is merged last: in a hybrid variant, the CPU's. */
static enum ha_status drop_state(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge m = *args;
    m.states_count -= args->states_count > 1;
    return ha_planted_device()->merge(stream, &m);
}

static enum ha_status double_state(struct ha_stream *stream, const struct ha_merge *args)
{
    struct ha_merge_state states[16];
    struct ha_merge m = *args;
    if (args->states_count && args->states_count < 16) {
        memcpy(states, args->states, args->states_count * sizeof *states);
        states[args->states_count] = args->states[0];
        m.states = states;
        m.states_count++;
    }
    return ha_planted_device()->merge(stream, &m);
}

/* Small and with two heads in a group, so that every defect has something to break. */
#define SHAPE "ctx=300,heads=4/2,head_dim=64,layers=2,steps=3,seed=5"

#define CPU    "cpu:" SHAPE
#define DEVICE "resident:" SHAPE
#define SPLIT  "hgca:" SHAPE ",blk_size=16,blk_num=4"
/* nothing is evicted of the context, with three blocks or four; then some steps evict */
#define EVICT "hgca:ctx=40,heads=4/2,head_dim=64,layers=1,steps=40,seed=5,blk_size=16,blk_num=4"

#define OFFLOAD   "offload:ctx=300,heads=4/2,head_dim=64,layers=1,steps=3,seed=5"
#define OFFLOAD_2 "offload:" SHAPE
/* of a single layer of offload (two buffers), in the order in which they are made */
enum { STORED = 1 << 0, LOADED = 1 << 1 | 1 << 3 };
/* of two layers: there the wait for the store comes too early to stand for it */
enum { USED_2 = 1 << 3 | 1 << 5 };

static const struct ha_mutant table[] = {
    { "dropped_token", "the CPU side leaves out a key", CPU, .ask = drop_token },
    { "doubled_token", "the CPU side counts its first key twice", CPU, .ask = double_token },
    { "wrong_scale", "the CPU side scales its scores by 1% too much", CPU, .ask = wrong_scale },
    { "base_2_lse", "the CPU side gives its LSE to base 2", CPU, .answer = base_2 },
    { "bf16_lse", "the CPU side's LSE went through bf16", CPU, .answer = bf16_lse },
    { "swapped_heads", "two heads of a group are swapped", CPU, .answer = swap_heads },
    { "nan_output", "one element is NaN", CPU, .answer = nan_output },
    { "stale_output", "the CPU side's output of the first step is used again", CPU, .ask = ha_planted_stale },
    { "unwritten_head", "the CPU side forgets the last head of a group", CPU, .ask = unwritten },
    { "short_packing", "packing leaves out the last of the keys", CPU, .pack = ha_planted_pack_short },
    { "device_wrong_scale", "the device scales its scores by 1% too much", DEVICE, .device_attend = device_scale },
    { "device_dropped_token", "the device leaves out the first key", DEVICE, .device_attend = device_drop_token },
    { "split_dropped_token", "one side of a split leaves out a key", SPLIT, .ask = drop_token },
    { "split_base_2_lse", "a base-2 LSE goes into the merge", SPLIT, .answer = base_2 },
    { "split_bf16_lse", "an LSE in bf16 goes into the merge", SPLIT, .answer = bf16_lse },
    { "stale_partial", "the merge reads the CPU partial of the first step", SPLIT, .ask = ha_planted_stale },
    { "dropped_state", "the merge leaves out the last state", SPLIT, .merge = drop_state },
    { "doubled_state", "the merge counts the first state twice", SPLIT, .merge = double_state },
    { "eviction_count", "a block too many is evicted", EVICT, .one_less = "blk_num", .shown = "question 2" },
    HA_MOVES("load_over_attention", "a layer is loaded into a buffer that attention still reads", OFFLOAD_2,
             "vllm-project/vllm#47282", .unwaited = USED_2),
    HA_MOVES("attention_before_load", "attention reads a buffer before the layer has arrived", OFFLOAD, "",
             .unwaited = LOADED),
    HA_MOVES("load_before_store", "a layer is loaded before its newest tokens have reached the store", OFFLOAD, "",
             .unwaited = STORED),
    HA_MOVES("store_before_attention", "what leaves the ring is stored before the kernels that write it are done",
             EVICT, "vllm-project/vllm#45704", .unwaited = HA_ATTENDED),
    HA_MOVES("append_over_store", "new tokens and weights are written over what is still being stored", EVICT, "",
             .unwaited = HA_SETTLED),
    HA_MOVES("host_before_query", "the CPU side reads the queries before they have come down", EVICT,
             "ikawrakow/ik_llama.cpp#2083", .unsynced = HA_ARRIVED),
    HA_MOVES("host_waits_once", "the CPU side waits in the first step alone, as if later ones were no later", EVICT,
             "ikawrakow/ik_llama.cpp#2083", .unsynced = HA_ARRIVED, .from_step = 1),
    HA_MOVES("select_before_store", "the background selects among tokens that have not arrived", EVICT, "",
             .unsynced = HA_SETTLED),
    HA_MOVES("half_a_layer", "the event of a load is recorded before the copy of V", OFFLOAD, "",
             .records_early = LOADED),
    HA_MOVES("record_on_main", "the end of a store is recorded on the stream that computes", EVICT, "",
             .records_on_main = HA_SETTLED),
    HA_MOVES("wait_on_main", "the stream that computes waits in place of the one that loads", OFFLOAD_2, "",
             .waits_on_main = USED_2),
    HA_MOVES("one_place_twice", "two blocks are offloaded to one place, and neither waits for the other", EVICT,
             "NVIDIA/TensorRT-LLM#9056", .offloads_twice = true),
    HA_MOVES("staging_reused", "a pinned buffer is filled again while a copy still reads it", EVICT,
             "NVIDIA/TensorRT-LLM#15546", .reuses_staging = true),
    { "wrong_layer_loaded", "the prefetch takes another layer", OFFLOAD_2, .shown = "question 1",
      .seen = "huggingface/transformers#46748", .movement = &(const struct ha_movement){ .loads_other_layer = true } },
    { "wrong_layer_stored", "new tokens are stored to another layer", OFFLOAD_2, .shown = "question 1", .seen = "",
      .movement = &(const struct ha_movement){ .stores_other_layer = true } },
};
const struct ha_mutants ha_mutants_attention = { table, sizeof table / sizeof *table };
