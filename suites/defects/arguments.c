#include "suites/defects/arguments.h"

#include <math.h>
#include <string.h>

static const char *const types[] = { "f32", "f16", "bf16", NULL };
static const char *const two_types[] = { "f32", "f16", NULL };
static const char *const ways[] = { "up", "back", "within", NULL };
static const char *const forms[] = { "natural", "base2", "direct", "max_sum", NULL };
static const char *const digests[] = { "range", "mean", NULL };
static const char *const similar[] = { "least", "harmonic", NULL };

enum {
    OUTER = HA_ARGUMENT_OUTER,
    FIXED = HA_ARGUMENT_FIXED,
    OPTIONAL = HA_ARGUMENT_OPTIONAL,
    INDEX = HA_ARGUMENT_INDEX,
    ALIGNED = HA_ARGUMENT_ALIGNED,
    DEVICE = HA_ARGUMENT_DEVICE,
    EXACT = HA_ARGUMENT_EXACT
};

/* A member of struct T, or, with S_, of struct S, that of a sequence. Flags are 0 or those above. */
#define MEMBER(what, text, in, member, ...)                                                                         \
    {                                                                                                               \
        .name = text, .kind = HA_ARGUMENT_##what, .offset = offsetof(in, member), .bytes = sizeof((in *)0)->member, \
        __VA_ARGS__                                                                                                 \
    }
#define FROM(lo, hi, flag)            .least = lo, .most = hi, .step = 1, .flags = flag
#define NUMBERS(of, by, in, flag)     .element = HA_ELEMENT_##of, .type = by, .row = in, .flags = flag
#define SEQ                           .of_seq = true
#define COUNT(member, lo, hi, flag)   MEMBER(COUNT, #member, T, member, FROM(lo, hi, flag))
#define S_COUNT(member, lo, hi, flag) MEMBER(COUNT, #member, S, member, FROM(lo, hi, flag), SEQ)
#define BY(by, hi)                    .least = by, .most = hi, .step = by, .flags = FIXED
#define STEPS(member, by, hi)         MEMBER(COUNT, #member, T, member, BY(by, hi))
#define RATIO(text, member, by, hi)   MEMBER(RATIO, text, T, member, .divisor = offsetof(T, by), FROM(1, hi, 0))
#define WORD(member, words)           MEMBER(WORD, #member, T, member, .word = words)
#define STRIDE(member, as)            MEMBER(STRIDE, #member, T, member, .dense = as)
#define S_STRIDE(member, as)          MEMBER(STRIDE, #member, S, member, .dense = as, SEQ)
#define FLAG(member)                  MEMBER(FLAG, #member, T, member, .flags = 0)
#define REAL(member, none)            MEMBER(REAL, #member, T, member, .neutral = (double)(none))
#define S_REAL(member, none)          MEMBER(REAL, #member, S, member, .neutral = none, SEQ)
/* of: FLOATS, WORDS, BYTES; _OF: of the type that the member `by` says. in: the count of numbers of a row, or NULL */
#define IN(role, member, of, flag)           MEMBER(IN, role, T, member, NUMBERS(of, NULL, NULL, flag))
#define S_IN(role, member, of, flag)         MEMBER(IN, role, S, member, NUMBERS(of, NULL, NULL, flag), SEQ)
#define IN_OF(role, member, by, flag)        MEMBER(IN, role, T, member, NUMBERS(TYPED, by, NULL, flag))
#define S_IN_OF(role, member, by, flag)      MEMBER(IN, role, S, member, NUMBERS(TYPED, by, NULL, flag), SEQ)
#define OUT(role, member, in, of, flag)      MEMBER(OUT, role, T, member, NUMBERS(of, NULL, in, flag))
#define S_OUT(role, member, in, of, flag)    MEMBER(OUT, role, S, member, NUMBERS(of, NULL, in, flag), SEQ)
#define OUT_OF(role, member, in, by, flag)   MEMBER(OUT, role, T, member, NUMBERS(TYPED, by, in, flag))
#define S_OUT_OF(role, member, in, by, flag) MEMBER(OUT, role, S, member, NUMBERS(TYPED, by, in, flag), SEQ)

#define TABLE(name, ...) static const struct ha_argument name[] = { __VA_ARGS__ };

#define BATCH    COUNT(batch, 1, 256, OUTER)
#define Q_LEN    COUNT(q_len, 1, 70, OUTER)
#define KV_HEADS COUNT(kv_heads, 1, 130, OUTER)
#define HEAD_DIM COUNT(head_dim, 1, 576, 0)
#define HEADS    COUNT(q_heads, 1, 300, FIXED), KV_HEADS, RATIO("group", q_heads, kv_heads, 70)
#define DTYPE    WORD(dtype, types)
#define SCALE    REAL(scale, NAN)

/* ---- moves ------------------------------------------------------------------------------------------------------- */

#define T struct ha_copy_call
TABLE(copy, COUNT(bytes, 1, 20000000, 0), WORD(dir, ways), IN("source", src, BYTES, 0),
      OUT("destination", dst, NULL, BYTES, 0))
#undef T
#define T struct ha_copy_2d_call
TABLE(copy_2d, COUNT(rows, 1, 70000, 0), COUNT(row_bytes, 1, 5000, 0), STRIDE(dst_stride, "row_bytes"),
      STRIDE(src_stride, "row_bytes"), WORD(dir, ways), IN("source", src, BYTES, 0),
      OUT("destination", dst, NULL, BYTES, 0))
#undef T
#define T struct ha_pieces_call
TABLE(copy_pieces, COUNT(pieces.count, 1, 1000, 0), WORD(dir, ways))
#undef T
#define T struct ha_device_move
TABLE(move, COUNT(rows, 1, 70000, OUTER), COUNT(row_bytes, 1, 5000, 0), STRIDE(dst_stride_bytes, "row_bytes"),
      STRIDE(src_stride_bytes, "row_bytes"), IN("source", src, BYTES, 0),
      IN("src_index", src_index, WORDS, OPTIONAL | INDEX), IN("dst_index", dst_index, WORDS, OPTIONAL | INDEX),
      OUT("destination", dst, "row_bytes", BYTES, 0))
#undef T
#define T struct ha_read_call
TABLE(read, COUNT(bytes, 4, 5000000, 0), IN("source", ptr, WORDS, 0), OUT("sum", sum, NULL, WORDS, DEVICE))
#undef T

/* ---- attention and what it is made of ---------------------------------------------------------------------------- */

#define T struct ha_device_attend
#define S struct ha_device_seq
TABLE(attend, BATCH, Q_LEN, HEADS, HEAD_DIM, DTYPE, SCALE, FLAG(causal), COUNT(block, 1, 130, FIXED),
      COUNT(lists, 0, 300, FIXED), STRIDE(q_token_stride, NULL), STRIDE(q_head_stride, NULL),
      S_COUNT(runs_count, 1, 4, 0), S_COUNT(runs[0].keys, 1, 3000, 0), S_STRIDE(k_head_bytes, NULL),
      S_STRIDE(v_head_bytes, NULL), S_STRIDE(runs[0].k_stride_bytes, NULL), S_STRIDE(runs[0].v_stride_bytes, NULL),
      S_STRIDE(weights_stride, NULL), S_IN("q", q, FLOATS, 0), S_IN_OF("K", runs[0].k, "dtype", 0),
      S_IN_OF("V", runs[0].v, "dtype", 0), S_IN("index", runs[0].index, WORDS, OPTIONAL | INDEX),
      S_IN("list_keys", list_keys, WORDS, OPTIONAL), S_OUT("o", o, "head_dim", FLOATS, 0),
      S_OUT("lse", lse, NULL, FLOATS, 0), S_OUT("weights", weights, NULL, FLOATS, OPTIONAL))
TABLE(attend_products, BATCH, Q_LEN, HEADS, HEAD_DIM, DTYPE, SCALE, FLAG(causal), S_COUNT(runs_count, 1, 4, 0),
      S_COUNT(runs[0].keys, 1, 300, 0), S_STRIDE(k_head_bytes, NULL), S_STRIDE(v_head_bytes, NULL),
      S_STRIDE(runs[0].k_stride_bytes, NULL), S_STRIDE(runs[0].v_stride_bytes, NULL), S_IN("q", q, FLOATS, EXACT),
      S_IN_OF("K", runs[0].k, "dtype", ALIGNED), S_IN_OF("V", runs[0].v, "dtype", ALIGNED),
      S_OUT("o", o, "head_dim", FLOATS, 0), S_OUT("lse", lse, NULL, FLOATS, 0))
#undef T
#undef S
#define T struct ha_merge
TABLE(merge, WORD(form, forms), DTYPE, FLAG(plus_inf_is_empty), COUNT(states_count, 1, 1000, 0),
      COUNT(tokens, 1, 300, OUTER), COUNT(heads, 1, 130, OUTER), COUNT(dim, 1, 300, 0),
      STRIDE(out.o_token_stride, NULL), STRIDE(out.o_head_stride, NULL), OUT_OF("o", out.o, "dim", "dtype", 0),
      OUT("lse", out.lse, NULL, FLOATS, 0))
#undef T
#define T struct ha_device_blend
TABLE(blend, COUNT(rows, 1, 3000, OUTER), COUNT(cols, 1, 5000, 0), STRIDE(y_stride, "cols"), STRIDE(x_stride, "cols"),
      REAL(a, 1), REAL(b, 1), IN("x", x, FLOATS, 0), OUT("y", y, "cols", FLOATS, 0))
#undef T
#define T struct ha_device_product
TABLE(product, COUNT(m, 1, 300, 0), COUNT(n, 1, 300, 0), COUNT(k, 1, 600, 0), DTYPE,
      IN_OF("x", x, "dtype", ALIGNED | DEVICE), IN_OF("w", w, "dtype", ALIGNED | DEVICE),
      OUT_OF("y", y, "n", "dtype", ALIGNED | DEVICE))
#undef T

/* ---- what selects keys ------------------------------------------------------------------------------------------- */

#define T struct ha_device_digest
#define S struct ha_device_digest_seq
TABLE(digest, BATCH, KV_HEADS, HEAD_DIM, DTYPE, COUNT(unit, 1, 130, 0), WORD(kind, digests),
      S_COUNT(first, 0, 100, OPTIONAL), S_COUNT(blocks, 1, 300, 0), S_COUNT(rows.keys, 1, 2000, 0),
      S_STRIDE(head_bytes, NULL), S_STRIDE(k_head_bytes, NULL), S_STRIDE(rows.k_stride_bytes, NULL),
      S_IN_OF("K", rows.k, "dtype", 0), S_IN("index", rows.index, WORDS, OPTIONAL | INDEX),
      S_OUT_OF("digests", digests, NULL, "dtype", ALIGNED | DEVICE))
#undef T
#undef S
#define T struct ha_device_digest_score
#define S struct ha_device_score_seq
TABLE(digest_score, BATCH, Q_LEN, HEADS, HEAD_DIM, DTYPE, SCALE, S_COUNT(blocks, 1, 2000, 0),
      S_STRIDE(head_bytes, NULL), S_STRIDE(s_stride, "blocks"), S_IN("q", q, FLOATS, 0),
      S_IN_OF("digests", digests, "dtype", ALIGNED), S_OUT("scores", s, "blocks", FLOATS, 0))
#undef T
#undef S
#define T struct ha_device_topk
#define S struct ha_device_topk_seq
TABLE(topk, BATCH, COUNT(lists, 1, 130, OUTER), COUNT(rows, 1, 70, OUTER), S_COUNT(n, 1, 80000, 0),
      S_COUNT(k, 1, 70000, 0), S_COUNT(first, 0, 100, OPTIONAL), S_COUNT(keys_unit, 1, 130, OPTIONAL),
      S_STRIDE(stride, "n"), S_STRIDE(index_stride, "k"), S_REAL(within, 0), S_IN("x", x, FLOATS, 0),
      S_IN("only", only, WORDS, OPTIONAL), S_OUT("index", index, NULL, WORDS, 0),
      S_OUT("keys", keys, NULL, WORDS, OPTIONAL))
#undef T
#undef S
#define T struct ha_device_split
#define S struct ha_device_split_seq
TABLE(split, BATCH, COUNT(lists, 1, 130, OUTER), COUNT(tables, 1, 130, 0), S_COUNT(count, 1, 70000, 0),
      S_COUNT(here_unit, 1, 130, OPTIONAL), S_STRIDE(index_stride, "count"), S_STRIDE(slot_stride, "blocks"),
      S_STRIDE(out_stride, "count"), S_COUNT(blocks, 1, 70000, FIXED), S_IN("index", index, WORDS, INDEX),
      S_IN("slot", slot, WORDS, 0), S_OUT("here", here, NULL, WORDS, 0),
      S_OUT("here_count", here_count, NULL, WORDS, 0), S_OUT("missing", missing, NULL, WORDS, OPTIONAL),
      S_OUT("missing_count", missing_count, NULL, WORDS, OPTIONAL))
#undef T
#undef S
#define T struct ha_device_rotate
TABLE(rotate, COUNT(tokens, 1, 70, OUTER), COUNT(heads, 1, 130, OUTER), HEAD_DIM, STEPS(rotary, 2, 256), FLAG(adjacent),
      REAL(norm_eps, 0), IN("bias", bias, FLOATS, OPTIONAL), IN("norm", norm, FLOATS, OPTIONAL),
      IN("turn", turn, FLOATS, OPTIONAL), OUT("q", q, "head_dim", FLOATS, 0))
#undef T
#define T struct ha_device_columns
#define S struct ha_device_columns_seq
TABLE(columns, BATCH, COUNT(heads, 1, 300, FIXED), KV_HEADS, RATIO("group", heads, kv_heads, 70), HEAD_DIM,
      COUNT(columns, 1, 130, 0), WORD(x_type, types), WORD(y_type, types), IN("a", a, FLOATS, 0),
      S_COUNT(tokens, 1, 500, 0), S_STRIDE(y_token_stride, NULL), S_STRIDE(y_head_stride, "columns"),
      S_IN_OF("x", x, "x_type", 0), S_OUT_OF("y", y, "columns", "y_type", 0))
#undef T
#undef S
#define T struct ha_device_score
#define S struct ha_device_rows_seq
TABLE(score, BATCH, Q_LEN, HEADS, HEAD_DIM, DTYPE, SCALE, S_COUNT(rows.keys, 1, 3000, 0), S_STRIDE(k_head_bytes, NULL),
      S_STRIDE(rows.k_stride_bytes, NULL), S_STRIDE(s_stride, "rows.keys"), S_IN("q", q, FLOATS, DEVICE),
      S_IN_OF("K", rows.k, "dtype", 0), S_IN("index", rows.index, WORDS, OPTIONAL | INDEX),
      S_OUT("scores", s, "rows.keys", FLOATS, DEVICE))
#undef T
#undef S

/* ---- what predicts budgets --------------------------------------------------------------------------------------- */

#define T struct ha_device_features
#define S struct ha_device_features_seq
TABLE(features, BATCH, HEADS, HEAD_DIM, SCALE, IN("mean", mean, FLOATS, 0), IN("inv", inv, FLOATS, 0),
      S_COUNT(device_keys, 0, 3000, OPTIONAL), S_IN("q", q, FLOATS, 0), S_IN("known", known, FLOATS, 0),
      S_IN("anchor", anchor, FLOATS, 0), S_IN("mean of K", mean_k, FLOATS, 0), S_IN("o", o[0], FLOATS, 0),
      S_IN("lse", lse[0], FLOATS, 0), S_OUT("x", x, NULL, FLOATS, 0))
#undef T
#undef S
#define T struct ha_net
TABLE(net, COUNT(rows, 1, 300, OUTER), COUNT(layers, 1, 4, FIXED), COUNT(width[0], 1, 130, 0),
      COUNT(width[1], 1, 130, FIXED), IN("w", w, FLOATS, 0), IN("x", x, FLOATS, 0), OUT("y", y, NULL, FLOATS, 0))
#undef T

/* ---- codes ------------------------------------------------------------------------------------------------------- */

#define T struct ha_device_hash
#define S struct ha_device_hash_seq
TABLE(hash, BATCH, KV_HEADS, COUNT(group, 1, 70, 0), HEAD_DIM, STEPS(bits, 32, 256), DTYPE, IN("a", a, FLOATS, 0),
      S_COUNT(tokens, 1, 500, 0), S_COUNT(first, 0, 100, OPTIONAL), S_STRIDE(token_stride, NULL),
      S_STRIDE(code_head_bytes, NULL), S_IN_OF("x", x, "dtype", 0), S_OUT("codes", codes, NULL, WORDS, ALIGNED))
#undef T
#undef S
#define T struct ha_device_hamming
#define S struct ha_device_hamming_seq
TABLE(hamming, BATCH, KV_HEADS, COUNT(rows, 1, 70, OUTER), STEPS(bits, 32, 256), S_COUNT(keys, 1, 70000, 0),
      S_STRIDE(q_head_bytes, NULL), S_STRIDE(code_head_bytes, NULL), S_STRIDE(s_stride, "keys"),
      S_IN("q", q, WORDS, ALIGNED), S_IN("codes", codes, WORDS, ALIGNED), S_IN("only", only, WORDS, OPTIONAL),
      S_OUT("scores", s, "keys", FLOATS, 0))
#undef T
#undef S
#define T struct ha_device_similarity
#define S struct ha_device_similarity_seq
TABLE(similarity, BATCH, Q_LEN, HEADS, HEAD_DIM, MEMBER(WORD, "similar", T, group, .word = similar),
      IN("importance", importance, FLOATS, 0), IN("threshold", threshold, FLOATS, 0), S_IN("q", q, FLOATS, 0),
      S_OUT("label", label, "head_dim", FLOATS, 0), S_OUT("similarity", similarity, NULL, FLOATS, 0),
      S_OUT("missed", missed, NULL, WORDS, 0))
#undef T
#undef S

#define PQ \
    COUNT(pq.groups, 1, 70, 0), COUNT(pq.dims, 1, 16, 0), COUNT(pq.count, 1, 300, 0), COUNT(pq.books, 1, 70, FIXED)
#define T struct ha_device_pq_encode
#define S struct ha_device_pq_encode_seq
TABLE(pq_encode, BATCH, KV_HEADS, PQ, COUNT(pq.bits, 1, 16, FIXED), DTYPE, IN("centroids", pq.centroid, FLOATS, 0),
      S_COUNT(rows.keys, 1, 600, 0), S_COUNT(first, 0, 100, OPTIONAL), S_STRIDE(k_head_bytes, NULL),
      S_STRIDE(rows.k_stride_bytes, NULL), S_STRIDE(code_head_bytes, NULL), S_IN_OF("K", rows.k, "dtype", 0),
      S_IN("index", rows.index, WORDS, OPTIONAL | INDEX), S_OUT("codes", codes, NULL, BYTES, ALIGNED))
#undef T
#undef S
#define T struct ha_device_pq_table
#define S struct ha_device_pq_table_seq
TABLE(pq_table, BATCH, Q_LEN, HEADS, PQ, WORD(type, two_types), IN("centroids", pq.centroid, FLOATS, 0),
      S_STRIDE(table_head_bytes, NULL), S_IN("q", q, FLOATS, 0), S_OUT_OF("table", table, NULL, "type", ALIGNED))
#undef T
#undef S
#define T struct ha_device_pq_score
#define S struct ha_device_pq_score_seq
TABLE(pq_score, BATCH, KV_HEADS, COUNT(rows, 1, 70, OUTER), COUNT(pq.groups, 1, 70, 0), COUNT(pq.count, 1, 300, FIXED),
      COUNT(pq.bits, 1, 16, FIXED), WORD(type, two_types), REAL(scale, 1), S_COUNT(keys, 1, 9000, 0),
      S_STRIDE(table_head_bytes, NULL), S_STRIDE(code_head_bytes, NULL), S_STRIDE(s_stride, "keys"),
      S_IN_OF("table", table, "type", ALIGNED), S_IN("codes", codes, BYTES, ALIGNED | INDEX),
      S_OUT("scores", s, "keys", FLOATS, 0))
#undef T
#undef S

/* ---- weights ----------------------------------------------------------------------------------------------------- */

#define T struct ha_device_softmax
#define S struct ha_device_softmax_seq
TABLE(softmax, BATCH, Q_LEN, COUNT(heads, 1, 300, OUTER), S_COUNT(n, 1, 100000, 0), S_STRIDE(stride, "n"),
      S_STRIDE(lse_stride, "heads"), S_OUT("x", x, "n", FLOATS, 0), S_OUT("lse", lse, "heads", FLOATS, OPTIONAL))
#undef T
#undef S
#define T struct ha_device_topp
#define S struct ha_device_topp_seq
TABLE(topp, BATCH, COUNT(lists, 1, 130, OUTER), COUNT(rows, 1, 70, OUTER), REAL(p, 1), WORD(w_type, two_types),
      S_COUNT(n, 1, 100000, 0), S_STRIDE(stride, "n"), S_STRIDE(index_stride, "n"), S_STRIDE(w_stride, "n"),
      S_IN("x", x, FLOATS, 0), S_OUT("keys", keys, NULL, WORDS, 0), S_OUT("index", index, "n", WORDS, 0),
      S_OUT_OF("weights", w, "n", "w_type", 0))
#undef T
#undef S
#define T struct ha_device_weighted_sum
#define S struct ha_device_weighted_sum_seq
TABLE(weighted_sum, BATCH, Q_LEN, HEADS, HEAD_DIM, DTYPE, WORD(w_type, two_types), S_STRIDE(v_stride_bytes, NULL),
      S_STRIDE(v_head_bytes, NULL), S_STRIDE(index_stride, NULL), S_STRIDE(w_stride, NULL), S_IN_OF("V", v, "dtype", 0),
      S_IN("keys", keys, WORDS, INDEX), S_IN("index", index, WORDS, INDEX), S_IN_OF("weights", w, "w_type", 0),
      S_OUT("o", o, "head_dim", FLOATS, 0))
#undef T
#undef S

/* ---- what has no outputs ----------------------------------------------------------------------------------------- */

#define T struct ha_flag_call
TABLE(flag_write, COUNT(value, 0, 4000000000, 0))
TABLE(flag_wait, COUNT(value, 0, 2147483647, 0))
#undef T

#define OF(list) .argument = list, .arguments = sizeof list / sizeof *list
#define BARE(entry, type, list)                                                      \
    {                                                                                \
        .name = #entry, .row = #entry, OF(list), .bytes = sizeof(type), .bare = true \
    }
#define NONE(entry, of, type)                                           \
    {                                                                   \
        .name = #entry, .row = #of, .bytes = sizeof(type), .bare = true \
    }
#define ONE(entry, type, again)                                                            \
    {                                                                                      \
        .name = #entry, .row = #entry, OF(entry), .bytes = sizeof(type), .in_place = again \
    }
#define MANY(entry, type, seq, again)                                                                  \
    {                                                                                                  \
        .name = #entry, .row = #entry, OF(entry), .bytes = sizeof(type), .seqs = offsetof(type, seqs), \
        .batch = offsetof(type, batch), .seq_bytes = sizeof(seq), .in_place = again                    \
    }

/* last: does another run over its outputs change them? */
const struct ha_operation ha_operations[] = {
    ONE(copy, struct ha_copy_call, false),
    ONE(copy_2d, struct ha_copy_2d_call, false),
    BARE(copy_pieces, struct ha_pieces_call, copy_pieces),
    ONE(move, struct ha_device_move, false),
    ONE(read, struct ha_read_call, true),
    MANY(attend, struct ha_device_attend, struct ha_device_seq, false),
    MANY(attend_products, struct ha_device_attend, struct ha_device_seq, false),
    ONE(merge, struct ha_merge, false),
    ONE(blend, struct ha_device_blend, true),
    ONE(product, struct ha_device_product, false),
    MANY(digest, struct ha_device_digest, struct ha_device_digest_seq, false),
    MANY(digest_score, struct ha_device_digest_score, struct ha_device_score_seq, false),
    MANY(topk, struct ha_device_topk, struct ha_device_topk_seq, false),
    MANY(split, struct ha_device_split, struct ha_device_split_seq, false),
    ONE(rotate, struct ha_device_rotate, true),
    MANY(columns, struct ha_device_columns, struct ha_device_columns_seq, false),
    MANY(score, struct ha_device_score, struct ha_device_rows_seq, false),
    MANY(features, struct ha_device_features, struct ha_device_features_seq, false),
    ONE(net, struct ha_net, false),
    MANY(hash, struct ha_device_hash, struct ha_device_hash_seq, false),
    MANY(hamming, struct ha_device_hamming, struct ha_device_hamming_seq, false),
    MANY(similarity, struct ha_device_similarity, struct ha_device_similarity_seq, true),
    MANY(pq_encode, struct ha_device_pq_encode, struct ha_device_pq_encode_seq, false),
    MANY(pq_table, struct ha_device_pq_table, struct ha_device_pq_table_seq, false),
    MANY(pq_score, struct ha_device_pq_score, struct ha_device_pq_score_seq, false),
    MANY(softmax, struct ha_device_softmax, struct ha_device_softmax_seq, true),
    MANY(topp, struct ha_device_topp, struct ha_device_topp_seq, false),
    MANY(weighted_sum, struct ha_device_weighted_sum, struct ha_device_weighted_sum_seq, false),
    BARE(flag_write, struct ha_flag_call, flag_write),
    BARE(flag_wait, struct ha_flag_call, flag_wait),
    NONE(host_fn, host_fn, struct ha_host_call),
    NONE(event_record, event_record, struct ha_handle_call),
    NONE(stream_wait, stream_wait, struct ha_handle_call),
    NONE(event_sync, event_sync, struct ha_handle_call),
    NONE(stream_sync, stream_sync, struct ha_handle_call),
    NONE(graph_launch, graph, struct ha_handle_call),
    NONE(spin, spin, struct ha_spin_call),
};
const size_t ha_operations_count = sizeof ha_operations / sizeof *ha_operations;

const struct ha_argument *ha_argument_of(const struct ha_operation *op, const char *name)
{
    for (size_t i = 0; i < op->arguments; i++)
        if (!strcmp(op->argument[i].name, name)) return &op->argument[i];
    return NULL;
}

static size_t number(const char *at, size_t bytes)
{
    size_t large = 0;
    uint32_t word = 0;
    if (bytes == sizeof large) memcpy(&large, at, sizeof large);
    else memcpy(&word, at, bytes < sizeof word ? bytes : sizeof word);
    return bytes == sizeof large ? large : word;
}

size_t ha_argument_value(const struct ha_argument *a, const void *args, const void *seq)
{
    const char *const from = a->of_seq ? seq : args;
    const size_t value = number(from + a->offset, a->bytes);
    if (a->kind != HA_ARGUMENT_RATIO) return value;
    const size_t by = number(from + a->divisor, sizeof by);
    return by ? value / by : 0;
}

size_t ha_argument_element(const struct ha_operation *op, const struct ha_argument *a, const void *args,
                           enum ha_dtype *type)
{
    *type = (enum ha_dtype)HA_DTYPE_COUNT;
    if (a->element == HA_ELEMENT_BYTES) return 1;
    if (a->element == HA_ELEMENT_WORDS) return 4;
    *type = HA_F32;
    if (a->element == HA_ELEMENT_TYPED)
        *type = (enum ha_dtype)ha_argument_value(ha_argument_of(op, a->type), args, NULL);
    return ha_dtype_bytes(*type);
}
