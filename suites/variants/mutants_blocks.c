#include "suites/variants/planted.h"

#include <stdlib.h>
#include <string.h>

/* Of a list the first block, once more. */
static void double_block(struct ha_attend *a, struct ha_mutant_room *room)
{
    const size_t units = a->packed.units;
    if (!a->packed.index || units == 0 || units == sizeof room->index / sizeof *room->index) return;
    memcpy(room->index, a->packed.index, units * sizeof *room->index);
    room->index[units] = room->index[0];
    a->packed.index = room->index;
    a->packed.units++;
}

/* Beside a list of packed blocks, those that are not packed yet. */
static void drop_rows(struct ha_attend *a, struct ha_mutant_room *room)
{
    if (a->packed.index) a->runs_count = 0;
}

static void no_more_digests(const struct ha_digest *d)
{
    if (ha_planted_step() == 0) ha_planted_cpu()->digest(d);
}

static enum ha_status device_drops_run(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++)
        if (seqs[b].runs_count > 1) seqs[b].runs[0].keys = 0;
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

/* Blocks of keys lose their last one on the way down; queries, which are smaller here, arrive. */
static enum ha_status copy_short(struct ha_stream *stream, void *dst, const void *src, size_t bytes,
                                 enum ha_direction dir)
{
    enum { BLOCK_BYTES = 4096, TOKEN_BYTES = 256 };
    return ha_planted_device()->copy(stream, dst, src,
                                     bytes - (dir == HA_D2H && bytes == BLOCK_BYTES ? TOKEN_BYTES : 0), dir);
}

static enum ha_status first_row_chooses(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk t = *args;
    struct ha_device_topk_seq seqs[HA_BATCH_MAX];
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].stride *= args->rows;
    t.rows = 1;
    t.seqs = seqs;
    return ha_planted_device()->topk(stream, &t);
}

/* Of lists of two heads, and of rows that lie apart: each half of them takes what is the other's. */
static enum ha_status fetch_other_head(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                       enum ha_direction dir)
{
    const size_t half = pieces->count / 2;
    const void **src = malloc((pieces->count + 1) * sizeof *src);
    if (!src) abort();
    for (size_t i = 0; i < pieces->count; i++) src[i] = pieces->src[(i + half) % (2 * half)];
    const enum ha_status status = ha_planted_device()->copy_pieces(
        stream, &(struct ha_device_pieces){ pieces->dst, src, pieces->bytes, pieces->count }, dir);
    free(src);
    return status;
}

/* Of blocks of 8 rows: 8 rows further on. */
static enum ha_status fetch_next_block(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                       enum ha_direction dir)
{
    const void **src = malloc((pieces->count + 1) * sizeof *src);
    if (!src) abort();
    for (size_t i = 0; i < pieces->count; i++)
        src[i] = (const char *)pieces->src[i] + 8 * ((const char *)pieces->src[1] - (const char *)pieces->src[0]);
    const enum ha_status status = ha_planted_device()->copy_pieces(
        stream, &(struct ha_device_pieces){ pieces->dst, src, pieces->bytes, pieces->count }, dir);
    free(src);
    return status;
}

/* of the run between the chosen blocks and the new tokens */
static enum ha_status lose_tail_token(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seqs[HA_BATCH_MAX];
    struct ha_device_attend a = *args;
    memcpy(seqs, args->seqs, args->batch * sizeof *seqs);
    for (size_t b = 0; b < args->batch; b++) seqs[b].runs[1].keys -= seqs[b].runs_count > 2;
    a.seqs = seqs;
    return ha_planted_device()->attend(stream, &a);
}

#define QUEST   "quest:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=32,dense_layers=0"
#define FETCHES "gpu_only:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=0.2,fetch=pieces"
#define READS   "gpu_only:ctx=300,heads=4/2,head_dim=64,layers=1,steps=12,seed=5,block=8,budget=0.2,fetch=zero_copy"
#define TOPK    "topk:ctx=300,heads=4/2,head_dim=64,layers=1,steps=3,seed=5,k=16"
#define AHEAD   "topk:dataset=trace/english,ctx=1900,layers=3,steps=2,k=16,query=ahead"

/* 15 blocks of the context are in host memory, the last of them not packed; three more leave in the steps */
#define HYBRID                                                                                                  \
    "hybrid_fixed:ctx=300,heads=4/2,head_dim=64,layers=1,steps=40,seed=5,dtype=f16,sink=16,recent=32,block=16," \
    "budget=0.3"

/* of topk, behind the two of its fetches */
enum { FETCHED = 1 << 2 | 1 << 3, CAME = 1 << 4 };
/* of gpu_only */
enum { DOWN = 1 << 0 };

static const struct ha_mutant table[] = {
    { "first_list", "every head reads the list of the first one", QUEST, .shown = "question 1",
      .device_attend = ha_planted_first_list },
    { "digest_not_renewed", "blocks that fill in steps have no digest of theirs", QUEST, .shown = "question 2",
      .device_digest = ha_planted_digest_once },
    { "lists_of_step_before", "the device reads the blocks that an earlier step chose", QUEST, .shown = "question 2",
      .device_topk = ha_planted_choose_once },
    { "first_row_chooses", "the first head of a group chooses for all of them", QUEST ",group=max",
      .shown = "question 2", .device_topk = first_row_chooses },
    { "keys_of_step_before", "the keys of an earlier step are attended over", TOPK, .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    { "sink_left_out", "the device leaves out the first tokens", HYBRID, .shown = "question 1",
      .device_attend = device_drops_run },
    { "sink_too_short", "the last token of the sink is the host's", HYBRID, .one_less = "sink", .shown = "question 2" },
    { "left_too_early", "a block leaves while one of its tokens is recent", HYBRID, .one_less = "recent",
      .shown = "question 2" },
    { "two_owners", "the device counts a key that it has twice", HYBRID, .shown = "question 1",
      .device_attend = ha_planted_counts_twice },
    { "lost_in_leaving", "the last token of a block does not arrive in host memory", HYBRID, .shown = "question 2",
      .copy = copy_short },
    { "short_blocks", "packing leaves out the last token of what it packs", HYBRID, .shown = "question 1",
      .pack = ha_planted_pack_short },
    { "doubled_block", "the first block of a list is attended over twice", HYBRID, .shown = "question 1",
      .ask = double_block },
    { "unpacked_left_out", "a block that is chosen and not packed yet is left out", HYBRID, .shown = "question 1",
      .ask = drop_rows },
    { "blocks_without_digest", "blocks that leave in steps get no digest", HYBRID, .shown = "question 2",
      .digest = no_more_digests },
    { "blocks_one_off", "the blocks before those of largest score are read", HYBRID, .shown = "question 2",
      .topk = ha_planted_topk_one_off },
    { "blocks_of_first_step", "the CPU reads the blocks that the first step chose", HYBRID ",group=max",
      .shown = "question 2", .topk = ha_planted_topk_once },
    { "digest_left_out", "blocks that leave the device have no digest of theirs", READS, .shown = "question 2",
      .device_digest = ha_planted_digest_once },
    { "list_of_step_before", "the blocks that an earlier step chose are read in host memory", READS,
      .shown = "question 2", .device_topk = ha_planted_choose_once },
    { "tail_token_lost", "the newest token of the block that is not whole is left out", READS, .shown = "question 1",
      .device_attend = lose_tail_token },
    { "blocks_of_step_before", "the blocks that an earlier step fetched are attended over", FETCHES,
      .shown = "question 1", .copy_pieces = ha_planted_fetch_once },
    { "block_of_other_head", "the blocks of another head are fetched", FETCHES, .shown = "question 1",
      .copy_pieces = fetch_other_head },
    { "block_behind", "the block behind each chosen one is fetched", FETCHES, .shown = "question 1",
      .copy_pieces = fetch_next_block },
    { "unrotated_query", "a predicted query has no rotary position", AHEAD, .shown = "question 2",
      .device_rotate = ha_planted_unrotated },
    { "query_of_other_layer", "a query is predicted by another layer's projection", AHEAD, .shown = "question 2",
      .device_product = ha_planted_other_projection },
    HA_MOVES("choice_before_query", "keys are chosen by queries that have not come down", TOPK, "", .unsynced = CAME),
    HA_MOVES("blocks_before_query", "blocks are chosen by queries that have not come down", HYBRID, "",
             .unsynced = HA_ARRIVED),
    HA_MOVES("digest_before_block", "a block is packed and gets its digest before it has arrived", HYBRID, "",
             .unsynced = HA_SETTLED),
    HA_MOVES("fetch_before_list", "blocks are fetched by a list that has not come down", FETCHES, "", .unsynced = DOWN,
             .from_step = 1),
    HA_MOVES("attention_before_fetch", "attention reads keys before they have arrived", TOPK, "", .unwaited = FETCHED),
};
const struct ha_mutants ha_mutants_blocks = { table, sizeof table / sizeof *table };
