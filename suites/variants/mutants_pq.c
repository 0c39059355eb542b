/* Planted in pqcache: in its codes, in how many are chosen, and in its cache. */

#include "suites/variants/planted.h"

#include "harness/base/why.h"

/* Tokens that come in steps have no code of theirs: they have what was there. */
static enum ha_status encode_once(struct ha_stream *stream, const struct ha_device_pq_encode *args)
{
    return ha_planted_step() > 0 ? HA_OK : ha_planted_device()->pq_encode(stream, args);
}

/* Codes of a token are those of the one before it. */
static enum ha_status encode_one_off(struct ha_stream *stream, const struct ha_device_pq_encode *args)
{
    struct ha_device_pq_encode_seq seq = args->seqs[0];
    struct ha_device_pq_encode off = *args;
    off.seqs = &seq;
    if (args->batch != 1 || seq.first || !seq.rows.keys) return ha_planted_device()->pq_encode(stream, args);
    seq.first = 1;
    seq.rows.keys--;
    HA_TRY(ha_planted_device()->pq_encode(stream, &off));
    seq.first = 0;
    seq.rows.keys = 1;
    return ha_planted_device()->pq_encode(stream, &off);
}

/* Tables are of the queries of the first step. */
static enum ha_status table_once(struct ha_stream *stream, const struct ha_device_pq_table *args)
{
    return ha_planted_step() > 1 ? HA_OK : ha_planted_device()->pq_table(stream, args);
}

/* Every KV head looks its scores up in the first one's tables. */
static enum ha_status table_of_first(struct ha_stream *stream, const struct ha_device_pq_score *args)
{
    struct ha_device_pq_score_seq seq = args->seqs[0];
    struct ha_device_pq_score first = *args;
    first.seqs = &seq;
    if (args->batch != 1) return ha_planted_device()->pq_score(stream, args);
    seq.table_head_bytes = 0;
    return ha_planted_device()->pq_score(stream, &first);
}

/* The first query of a KV head alone chooses. */
static enum ha_status first_query_chooses(struct ha_stream *stream, const struct ha_device_topk *args)
{
    struct ha_device_topk_seq seq = args->seqs[0];
    struct ha_device_topk first = *args;
    if (args->batch != 1) return ha_planted_device()->topk(stream, args);
    first.seqs = &seq;
    first.rows = first.lists = 1;
    for (size_t i = 0; i < args->lists; i++) {
        seq.x = args->seqs[0].x + i * args->rows * seq.stride;
        seq.index = args->seqs[0].index + i * seq.index_stride;
        HA_TRY(ha_planted_device()->topk(stream, &first));
    }
    return HA_OK;
}

/* of 200 tokens 20 are recent, and 20 of the others chosen */
#define PQ                                                                                           \
    "pqcache:dataset=iid,ctx=200,heads=4/2,head_dim=16,layers=2,seed=5,dtype=bf16,c=256,budget=0.2," \
    "capacity=1.5,steps="

static const struct ha_mutant table[] = {
    { "codes_of_prefill_alone", "tokens that come in steps have no code of theirs", PQ "40", .shown = "question 2",
      .device_pq_encode = encode_once },
    { "codes_one_off", "a token has the code of the one before it", PQ "12", .shown = "question 2",
      .device_pq_encode = encode_one_off },
    { "table_of_first_step", "scores are looked up in tables of an earlier query", PQ "12", .shown = "question 2",
      .device_pq_table = table_once },
    { "table_of_first_head", "scores of every head are looked up in the tables of the first", PQ "12",
      .shown = "question 2", .device_pq_score = table_of_first },
    { "coded_first_query", "the first head of a group chooses for all of them", PQ "12", .shown = "question 2",
      .device_topk = first_query_chooses },
    { "tokens_of_step_before", "the missing tokens of later steps do not arrive", PQ "12", .shown = "question 1",
      .copy_pieces = ha_planted_fetch_once },
    { "token_policy_of_other", "tokens are replaced by LFU where it should be LRU", PQ "12,policy=lru",
      .shown = "note hits", .one_more = "policy" },
};
const struct ha_mutants ha_mutants_pq = { table, sizeof table / sizeof *table };
