#include "suites/variants/planted.h"

#include "harness/base/why.h"

#include <stdlib.h>
#include <string.h>

/* the blocks before those of largest score */
static enum ha_status device_topk_one_off(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk t = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].n > seqs[b].k) seqs[b].x++, seqs[b].n--;
    t.seqs = seqs;
    return ha_planted_device()->topk(stream, &t);
}

/* What is resident is known to the device as it was after the prefill. */
static enum ha_status upload_once(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                  enum ha_direction dir)
{
    return dir == HA_H2D && ha_planted_step() > 0 ? HA_OK : ha_planted_device()->copy(stream, dst, src, bytes, dir);
}

/* Of each list all blocks are missing, those that are there as well. */
struct all_missing {
    struct ha_device_split args;
    struct ha_device_split_seq seqs[HA_BATCH_MAX];
};

static void miss_all(void *arg)
{
    struct all_missing *a = arg;
    for (size_t i = 0; i < a->args.batch * a->args.lists; i++) {
        const struct ha_device_split_seq *seq = &a->seqs[i / a->args.lists];
        const size_t list = i % a->args.lists;
        if (!seq->missing || !seq->count) continue;
        memcpy(seq->missing + list * seq->out_stride, seq->index + list * seq->index_stride,
               seq->count * sizeof *seq->missing);
        seq->missing_count[list] = (uint32_t)seq->count;
    }
    free(a);
}

static enum ha_status split_to_both(struct ha_stream *stream, const struct ha_device_split *args)
{
    HA_TRY(ha_planted_device()->split(stream, args));
    struct all_missing *a = malloc(sizeof *a);
    if (!a) abort();
    a->args = *args;
    memcpy(a->seqs, args->seqs, args->batch * sizeof *a->seqs);
    return ha_planted_device()->host_fn(stream, miss_all, a);
}

/* of 42 blocks 4 are chosen, and as many resident; a recall every second step, waited for so that each run is the same
 */
#define SCOUT                                                                                                 \
    "scout:dataset=walk,ctx=330,heads=4/2,head_dim=64,layers=3,steps=12,seed=5,dtype=bf16,block=8,budget=32," \
    "interval=2,recall=wait"
#define SCOUT_TRACE "scout:dataset=trace/english,ctx=1900,layers=3,steps=2,block=16,budget=64"
/* Events as they are made: of the recalls of three layers, behind those of their fetches; what a recall and the CPU
 * have to wait for. */
enum { RECALLED = 1 << 4 | 1 << 6 | 1 << 8, WANTED = 1 << 9, FORESEEN = 1 << 13 };

static const struct ha_mutant table[] = {
    { "residency_of_prefill", "the device takes the blocks to be resident that were after the prefill", SCOUT,
      .copy = upload_once },
    { "new_blocks_without_digest", "blocks that fill in steps have no digest of theirs", SCOUT, .shown = "question 2",
      .device_digest = ha_planted_digest_once },
    { "recall_a_step_early", "a recall is issued a step before it is due", SCOUT, .shown = "question 2",
      .one_less = "interval" },
    { "precompute_unrotated", "the CPU begins by a query without its rotary position", SCOUT_TRACE,
      .shown = "question 2", .device_rotate = ha_planted_unrotated },
    { "precompute_unnormed", "the CPU begins by an input without the norm of the next layer", SCOUT,
      .shown = "question 2", .device_product = ha_planted_unnormed },
    { "precompute_of_other_layer", "the CPU begins by another layer's projection", SCOUT, .shown = "question 2",
      .device_product = ha_planted_other_projection },
    { "choice_one_off", "the blocks before those of largest score are chosen", SCOUT, .shown = "question 2",
      .device_topk = device_topk_one_off },
    { "budget_one_less", "a block less than the budget has is chosen", SCOUT, .shown = "question 2",
      .one_less = "budget" },
    { "state_of_step_before", "what the CPU made in the step before is merged", SCOUT, .shown = "question 1",
      .ask = ha_planted_stale },
    { "resident_and_missing", "blocks that the device has are sent to the CPU, too", SCOUT, .shown = "listed twice",
      .device_split = split_to_both },
    { "recalled_once", "the blocks of later recalls do not arrive", SCOUT, .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    HA_MOVES("recall_over_attention", "blocks are recalled into slots that attention still reads", SCOUT, "",
             .unwaited = RECALLED),
    HA_MOVES("precompute_before_choice", "the CPU begins before it is known with which blocks", SCOUT, "",
             .unsynced = FORESEEN, .from_step = 1),
    HA_MOVES("recall_before_choice", "blocks are recalled before it is known which", SCOUT, "", .unsynced = WANTED,
             .from_step = 1),
};
const struct ha_mutants ha_mutants_scout = { table, sizeof table / sizeof *table };
