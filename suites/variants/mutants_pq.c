/* Planted in pqcache and hcattention: in codes, tables and scores, in what is chosen, and in what crosses the link. */

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

/* Scores that the softmax gets are not scaled. */
static enum ha_status unscaled(struct ha_stream *stream, const struct ha_device_pq_score *args)
{
    struct ha_device_pq_score all = *args;
    all.scale = 1;
    return ha_planted_device()->pq_score(stream, &all);
}

/* Keys of another head's book are meant by codes of this one. */
static enum ha_status table_of_first_book(struct ha_stream *stream, const struct ha_device_pq_table *args)
{
    struct ha_device_pq_table_seq seq[2];
    struct ha_device_pq_table one = *args;
    if (args->batch != 1) return ha_planted_device()->pq_table(stream, args);
    const size_t group = args->q_heads / args->kv_heads, dim = args->pq.groups * args->pq.dims;
    one.batch = one.kv_heads = 1;
    one.q_heads = group;
    one.seqs = seq;
    for (size_t h = 0; h < args->kv_heads; h++) {
        seq[0] = args->seqs[0];
        seq[0].q += h * group * dim;
        seq[0].table = (char *)seq[0].table + h * seq[0].table_head_bytes;
        HA_TRY(ha_planted_device()->pq_table(stream, &one));
    }
    return HA_OK;
}

/* Fewer keys than reach tau, or more. */
static enum ha_status reach(struct ha_stream *stream, const struct ha_device_topp *args, double times)
{
    struct ha_device_topp all = *args;
    all.p *= times;
    return ha_planted_device()->topp(stream, &all);
}
static enum ha_status too_few(struct ha_stream *stream, const struct ha_device_topp *args)
{
    return reach(stream, args, 0.97);
}
static enum ha_status too_many(struct ha_stream *stream, const struct ha_device_topp *args)
{
    return reach(stream, args, 1.03);
}

/* Weights come down one place further than the ids that they are of. */
static enum ha_status weights_one_off(struct ha_stream *stream, const struct ha_device_pieces *pieces,
                                      enum ha_direction dir)
{
    enum { PIECES_MAX = 64, WEIGHT = 4 };
    const void *src[PIECES_MAX];
    if (dir != HA_D2H || pieces->count > PIECES_MAX) return ha_planted_device()->copy_pieces(stream, pieces, dir);
    for (size_t i = 0; i < pieces->count; i++) src[i] = (const char *)pieces->src[i] + i % 2 * WEIGHT;
    return ha_planted_device()->copy_pieces(
        stream, &(struct ha_device_pieces){ pieces->dst, src, pieces->bytes, pieces->count }, dir);
}

/* What stands for a key of the context is turned to the position of the next one. */
static enum ha_status turned_one_on(struct ha_stream *stream, const struct ha_device_rotate *args)
{
    struct ha_device_rotate all = *args;
    if (args->tokens > 1) all.turn += args->rotary;
    return ha_planted_device()->rotate(stream, &all);
}

/* The anchor block is left out: of what the device attends over the last run alone. */
static enum ha_status no_anchor(struct ha_stream *stream, const struct ha_device_attend *args)
{
    struct ha_device_seq seq = args->seqs[0];
    struct ha_device_attend one = *args;
    if (args->batch != 1 || seq.runs_count < 2) return ha_planted_device()->attend(stream, args);
    seq.runs[0] = seq.runs[--seq.runs_count];
    one.seqs = &seq;
    return ha_planted_device()->attend(stream, &one);
}

/* Of all keys but the last each group has the code of the next one, and the last group that of the next key's first. */
static enum ha_status encode_group_off(struct ha_stream *stream, const struct ha_device_pq_encode *args)
{
    struct ha_device_pq_encode_seq seq = args->seqs[0];
    struct ha_device_pq_encode off = *args;
    HA_TRY(ha_planted_device()->pq_encode(stream, args));
    if (args->batch != 1 || seq.rows.keys < 2) return HA_OK;
    off.seqs = &seq;
    seq.rows.keys--;
    seq.rows.k = (const char *)seq.rows.k + args->pq.dims * ha_dtype_bytes(args->dtype);
    return ha_planted_device()->pq_encode(stream, &off);
}

/* Books of layers lie one behind the other: the second layer's tables are made of the first one's. */
static const float *book_before;
static void forget_book(void) { book_before = NULL; }
static enum ha_status table_of_first_layer(struct ha_stream *stream, const struct ha_device_pq_table *args)
{
    struct ha_device_pq_table all = *args;
    const size_t floats = args->kv_heads * args->pq.books * args->pq.dims * args->pq.count;
    if (book_before && args->pq.centroid == book_before + floats) all.pq.centroid = book_before;
    book_before = args->pq.centroid;
    return ha_planted_device()->pq_table(stream, &all);
}

/* One thread sums up the 4 heads of a layer, then those of the other one, whose values are those of the first. */
static struct {
    const void *v[4];
    size_t calls;
} sums;
static void forget_sums(void) { sums.calls = 0; }
static void values_of_first(const struct ha_weighted_sum *args)
{
    struct ha_weighted_sum other = *args;
    const size_t call = sums.calls++ % 8;
    if (call < 4) sums.v[call] = args->rows.v;
    else other.rows.v = sums.v[call - 4];
    ha_planted_cpu()->weighted_sum(&other);
}

/* 192 of 200 tokens are coded; each byte is a code */
#define HC                                                                                                   \
    "hcattention:dataset=iid,ctx=200,heads=4/2,head_dim=16,layers=2,seed=5,dtype=f32,c=256,fresh=8,tau=0.6," \
    "steps="

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
    { "keys_of_prefill_alone", "tokens that come in steps have no code of theirs", HC "20", .shown = "question 2",
      .device_pq_encode = encode_once },
    { "keys_one_off", "a key has the code of the one before it", HC "3", .shown = "question 2",
      .device_pq_encode = encode_one_off },
    { "keys_group_off", "each group of a key has the code of the next group", HC "3", .shown = "question 2",
      .device_pq_encode = encode_group_off },
    { "turned_one_on", "what stands for a key is turned to the position of the next token",
      "hcattention:dataset=trace/english,ctx=1808,steps=1,c=16,rotary=before", .shown = "question 2",
      .device_rotate = turned_one_on },
    { "weights_of_first_step", "weights are those of an earlier query", HC "3", .shown = "question 1",
      .device_pq_table = table_once },
    { "weights_of_first_head", "scores of every head are looked up in the tables of the first", HC "3,overlap=0",
      .shown = "question 1", .device_pq_score = table_of_first },
    { "book_of_first_head", "tables of every head are made of the first one's book", HC "3", .shown = "question 1",
      .device_pq_table = table_of_first_book },
    { "book_of_first_layer", "tables of the second layer are made of the first one's books", HC "3",
      .shown = "question 1", .device_pq_table = table_of_first_layer, .forget = forget_book },
    { "values_of_first_layer", "values of the second layer are those of the first", HC "3,threads=1,overlap=0",
      .shown = "question 1", .weighted_sum = values_of_first, .forget = forget_sums },
    { "fresh_twice", "the last fresh token counts twice", HC "3", .shown = "question 1",
      .device_attend = ha_planted_counts_twice },
    { "softmax_unscaled", "the softmax is of scores that are not scaled", HC "3", .shown = "question 1",
      .device_pq_score = unscaled },
    { "tau_not_reached", "the chosen weights do not add up to tau", HC "3", .shown = "question 2",
      .device_topp = too_few },
    { "tau_exceeded", "more keys are chosen than tau takes", HC "3", .shown = "question 2", .device_topp = too_many },
    { "weights_of_next_id", "weights are not those of the ids beside them", HC "3", .shown = "question 1",
      .copy_pieces = weights_one_off },
    { "renorm_of_other", "weights are made to add up to 1 where they should not", HC "3", .shown = "question 2",
      .one_more = "renorm" },
    { "anchor_missing", "a block of a prefill does not attend over the anchor block", HC "3,q_len=4,prefill=anchor",
      .shown = "question 1", .device_attend = no_anchor },
    { "anchor_shorter", "the anchor block lacks its last token", HC "3,q_len=4,prefill=anchor", .shown = "question 2",
      .one_less = "anchor" },
    { "prefill_of_other", "a block of a prefill attends over all before it", HC "3,q_len=4,prefill=anchor",
      .shown = "question 2", .one_less = "prefill" },
    { "prefix_of_codes", "keys are codes where they should be exact", HC "3,keys=exact", .shown = "question 2",
      .one_less = "keys" },
    { "kept_counted_more", "the share of keys that is kept is counted 1% too large in the last layer", HC "3",
      .shown = "kept_share", .wrong_count = "kept_share" },
    { "v_host_counted_more", "the bytes of values in host memory are counted 1% too many in the last layer", HC "3",
      .shown = "v_host_bytes", .wrong_count = "v_host_bytes" },
    { "no_code_bytes", "the bytes of the last layer's codes are not counted", HC "3", .shown = "code_bytes",
      .no_count = "code_bytes" },
};
const struct ha_mutants ha_mutants_pq = { table, sizeof table / sizeof *table };
