#include "suites/device/point.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"

#include <string.h>

#define HA_OP_LINE(name) &ha_op_##name,
const struct ha_op *const ha_ops[] = {
#include "suites/device/ops.def"
};
const size_t ha_ops_count = sizeof ha_ops / sizeof *ha_ops;

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const char *op_word(size_t i) { return i < ha_ops_count ? ha_ops[i]->name : NULL; }
static const char *place_word(size_t i) { return i <= HA_OP_PAGEABLE ? ha_op_place_name((enum ha_op_place)i) : NULL; }
HA_WORDS(cases_word, "listed", "one")
HA_WORDS(yes_word, "no", "yes")
HA_WORDS(index_word, [HA_OP_NO_INDEX] = "none", [HA_OP_DEVICE_INDEX] = "device", [HA_OP_MAPPED_INDEX] = "mapped")
HA_WORDS(pattern_word, [HA_OP_ASCENDING] = "ascending", [HA_OP_DESCENDING] = "descending",
         [HA_OP_SHUFFLED] = "shuffled", [HA_OP_REPEATS] = "repeats", [HA_OP_COMB] = "comb")
HA_WORDS(layout_word, [HA_OP_TOKENS] = "tokens", [HA_OP_HEADS] = "heads", [HA_OP_K_HEADS] = "k_heads",
         [HA_OP_V_HEADS] = "v_heads")
HA_WORDS(special_word, [HA_OP_NO_SPECIAL] = "none", [HA_OP_NAN_QUERY] = "nan_query", [HA_OP_NAN_KEY] = "nan_key",
         [HA_OP_NAN_VALUE] = "nan_value", [HA_OP_LOW_KEY] = "low_key", [HA_OP_HIGH_KEY] = "high_key",
         [HA_OP_INF_QUERY] = "inf_query", [HA_OP_INF_VALUE] = "inf_value", [HA_OP_MASKED] = "masked")

HA_WORDS(numbers_word, [HA_OP_BELL] = "bell", [HA_OP_CLOSE] = "close", [HA_OP_TINY] = "tiny", [HA_OP_WIDE] = "wide")
HA_WORDS(
    scores_word, [HA_OP_PLAIN] = "plain", [HA_OP_PEAKED] = "peaked", [HA_OP_EQUAL] = "equal", [HA_OP_RISING] = "rising",
    [HA_OP_FALLING] = "falling", [HA_OP_DOMINANT] = "dominant", [HA_OP_OFFSET] = "offset", [HA_OP_HUGE] = "huge",
    [HA_OP_CANCELLING] = "cancelling", [HA_OP_FINE] = "fine", [HA_OP_LIGHT] = "light", [HA_OP_STRETCHED] = "stretched")
HA_WORDS(digest_word, [HA_DIGEST_RANGE] = "range", [HA_DIGEST_MEAN] = "mean")
HA_WORDS(lists_word, [HA_OP_NO_LISTS] = "none", [HA_OP_KV_LISTS] = "kv_heads", [HA_OP_Q_LISTS] = "q_heads")
HA_WORDS(
    within_word, [HA_OP_ANY] = "any", [HA_OP_WITHIN_0] = "0", [HA_OP_WITHIN_1] = "1", [HA_OP_WITHIN_INFINITY] = "inf")
HA_WORDS(cached_word, [HA_OP_SOME_CACHED] = "some", [HA_OP_NONE_CACHED] = "none", [HA_OP_ALL_CACHED] = "all")
HA_WORDS(missing_word, [HA_OP_MISSING_BOTH] = "both", [HA_OP_MISSING_NONE] = "none", [HA_OP_MISSING_LIST] = "list",
         [HA_OP_MISSING_COUNT] = "count")
HA_WORDS(similar_word, [HA_SIMILAR_LEAST] = "least", [HA_SIMILAR_HARMONIC] = "harmonic")
HA_WORDS(w_type_word, [HA_F32] = "f32", [HA_F16] = "f16")
HA_WORDS(edge_word, [HA_OP_NO_EDGE] = "none", [HA_OP_AT_EDGE] = "at", [HA_OP_ABOVE_EDGE] = "above",
         [HA_OP_BELOW_EDGE] = "below")
HA_WORDS(q_layout_word, [HA_OP_Q_TOKENS] = "tokens", [HA_OP_Q_HEADS] = "heads", [HA_OP_Q_FUSED] = "fused",
         [HA_OP_Q_FUSED_HEADS] = "fused_heads")

#define AT(member) .offset = offsetof(struct ha_op_point, member)
#define WORD(name, standard, words, doc)                                           \
    {                                                                              \
#name, standard, doc, HA_KEY_WORD, AT(of.name), .word = words, .draw = "*" \
    }
#define NUMBER(name, least, most, doc, draws)                                                    \
    {                                                                                            \
#name, #least, doc, HA_KEY_NUMBER, AT(of.name), .min = least, .max = most, .draw = draws \
    }
#define MOST_BYTES 4294967296
#define MOST       16777216

/* The smallest value of each key of a case is its default. */
const struct ha_key ha_op_keys[HA_OP_KEYS] = {
    { "op", "*", "the operation: `habench list operations`", HA_KEY_WORD, AT(op), .word = op_word, .always = true,
      .column = true, .draw = "*" },
    { "cases", "listed", "those that are listed, or one, which the keys below describe", HA_KEY_WORD, AT(one),
      .word = cases_word, .draw = "one" },
    { "bytes", "67108864",
      "of the largest copy of those that are listed; K of attention is of at most four times that; below 1048576 there "
      "are fewer cases",
      HA_KEY_NUMBER, AT(bytes), .min = 4096, .max = MOST_BYTES, .column = true },
    { "repeat", "3000000", "rows that are computed again over the same input, of an operation that is repeated",
      HA_KEY_NUMBER, AT(repeat), .min = 1, .max = (uint64_t)1 << 50 },
    { "device", "host", "a name, or the path of a plugin", HA_KEY_NAME, AT(device),
      .max = sizeof((struct ha_op_point *)0)->device, .device = true, .column = true },
    { "isa", "best", "instruction set of the kernels that the device may compute with", HA_KEY_WORD, AT(isa),
      .word = ha_isa_word, .column = true },
    { "seed", "1", "of bytes, and of sizes and places that no key says", HA_KEY_NUMBER, AT(seed), .max = UINT64_MAX,
      .column = true, .draw = "1..1000000:1" },
    WORD(dst, "device", place_word, "memory that is written"),
    WORD(src, "device", place_word, "memory that is read"),
    NUMBER(size, 0, MOST_BYTES, "bytes of the copy, or of each; of a block", "0..67108864"),
    NUMBER(dst_at, 0, 65536, "bytes from an aligned address to what is written", "0 0..64 0..4096"),
    NUMBER(src_at, 0, 65536, "bytes from an aligned address to what is read", "0 0..64 0..4096"),
    NUMBER(times, 1, 4096, "how often: rounds, launches, steps of a mixture", "1..4 1..4 1..64"),
    NUMBER(streams, 1, 8, "streams of a mixture", "1..8"),
    NUMBER(value, 1, UINT32_MAX, "of a flag", "1..4294967295"),
    NUMBER(pieces, 0, 4096, "copies of one call; blocks at a time", "0..64 0..4096"),
    NUMBER(rows, 0, MOST, "of a copy, a move, a blend, a merge", "0..64 0..64 0..4096 0..2097152"),
    NUMBER(width, 0, MOST, "of a row: bytes; of blend: numbers", "0..64 0..4096 0..131072"),
    NUMBER(dst_gap, 0, MOST, "between two rows that are written, as width; of a merge: numbers", "0 0..64 0..4096"),
    NUMBER(src_gap, 0, MOST, "between two rows that are read, as width; of a merge: numbers", "0 0..64 0..4096"),
    WORD(dst_index, "none", index_word, "where the index of the rows lies that are written"),
    WORD(src_index, "none", index_word, "where the index of the rows lies that are read"),
    WORD(pattern, "ascending", pattern_word,
         "of an index, or of the numbers of a list, of which repeats has few, and comb some far above the others, or "
         "below, at equal distances"),
    NUMBER(spread, 1, 65536, "slots for each row that an index chooses", "1 1 1..8 1..65536"),
    WORD(dtype, "f32", ha_dtype_word, "of K and V, of the matrices, of o"),
    NUMBER(m, 1, 65536, "rows of x and y", "1..64 1..4096"),
    NUMBER(n, 1, 65536, "rows of w, columns of y; columns that rows are made into; outputs of a net", "1..64 1..4096"),
    NUMBER(k, 1, 65536, "columns of x and w; inputs of a net", "1..64 1..8192"),
    NUMBER(states, 1, 4096, "that are merged", "1..8 1..4096"),
    NUMBER(batch, 1, HA_OP_BATCH, "sequences, of different lengths, of which that in the middle has all keys",
           "1 1..1025"),
    NUMBER(q_len, 1, 4096, "query tokens", "1 1 1..300"),
    NUMBER(kv_heads, 1, 1024, "KV heads; lists", "1 1..8 1..128"),
    NUMBER(group, 1, 1024, "query heads of a KV head; rows that share a list", "1..16:1"),
    { "head_dim", "8", "numbers of a key", HA_KEY_NUMBER, AT(of.head_dim), .min = 1, .max = 1024,
      .draw = "8..256:8 8..256:8 8..576:8" },
    NUMBER(keys, 1, MOST,
           "of the longest sequence: keys, digests that are scored, numbers of a list, rows that columns or codes are "
           "made of",
           "1..512 1..512 1..131072"),
    NUMBER(runs, 1, HA_RUNS_MAX, "pieces that the keys lie in", "1..4"),
    NUMBER(block, 1, 4096, "rows that a number of an index names, or that a digest is of; unit of a count",
           "1 16 32 64 128 1..256"),
    WORD(layout, "tokens", layout_word,
         "K and V lie token by token, both head by head, or one of them; so do o and the LSE of a merge"),
    NUMBER(pad, 0, 65536, "bytes between two rows of K, of whole numbers", "0 0..256"),
    NUMBER(v_pad, 0, 65536, "bytes between two rows of V", "0 0..256"),
    NUMBER(v_at, 0, 65536, "bytes from an aligned address to V; src_at: to K; dst_at: to o, LSE and weights",
           "0 0..64"),
    NUMBER(q_at, 0, 65536, "bytes from an aligned address to the queries and the index; to what rotates a query",
           "0 0..64"),
    WORD(lists, "none", lists_word, "each KV head, or each query head, has a list of the keys of its own"),
    WORD(list_keys, "no", yes_word, "memory says how many keys each list has: all, none, half, one"),
    WORD(q_layout, "tokens", q_layout_word,
         "queries and o lie token by token, or head by head; fused: the gap is behind each token, or head, and not "
         "between "
         "rows"),
    NUMBER(q_gap, 0, 65536, "numbers between two rows of queries and of o", "0 0..64"),
    WORD(causal, "no", yes_word, "query tokens do not see those after them"),
    WORD(weights, "no", yes_word, "the weights of all keys are asked for"),
    WORD(empty, "no", yes_word,
         "the last sequence has no keys; of features its heads have none in one segment or in both"),
    WORD(special, "none", special_word,
         "a NaN in a query, key, value (x and w of a product, x of a blend); a key of infinite scores, below 0 or "
         "above; an infinity in a query, a value; scores of -inf alone"),
    WORD(numbers, "bell", numbers_word,
         "of a list, of rows: bell-shaped; so close together that their last bits tell them apart; subnormal; of every "
         "magnitude"),
    WORD(scores, "plain", scores_word,
         "of bell-shaped numbers; a few far above the others; equal, as are all of V; rising; falling; one above all; "
         "around 1000; around 100000; small differences of large products; decided by the last bits of queries; with "
         "subnormal numbers in V; of small keys and large queries"),
    { "scale", "1", "of the scores, times the root of head_dim; of the numbers of matrices, of a blend", HA_KEY_REAL,
      AT(of.scale), .least = 0x1p-10, .most = 0x1p10, .draw = "1 1 0.25 3 0.0625" },
    { "a", "1", "y = a y + b x", HA_KEY_REAL, AT(of.a), .least = -1e6, .most = 1e6,
      .draw = "0 1 -1 0.5 0.3 -2.75 1000" },
    { "b", "1", "y = a y + b x", HA_KEY_REAL, AT(of.b), .least = -1e6, .most = 1e6,
      .draw = "0 1 -1 0.5 0.7 3.25 0.001" },
    NUMBER(us, 0, 1000000, "microseconds of a spin", "0..65536"),
    NUMBER(first, 0, 65536, "digests or codes before those that are made; what is added to the indices of the largest",
           "0 0..70 0..1000"),
    WORD(digest, "range", digest_word, "of a block of keys: minima and maxima, or means"),
    NUMBER(chosen, 0, MOST, "how many of a list are the largest", "0..64 0..4096 0..131072"),
    WORD(bias, "no", yes_word, "of queries that are rotated"),
    WORD(norm, "no", yes_word, "of each head of them"),
    NUMBER(rotary, 0, 1024, "dimensions of a head that are turned", "0 0..256:2"),
    WORD(adjacent, "no", yes_word, "pairs that are turned are neighbours"),
    { "eps", "0", "added to the mean square of a head", HA_KEY_REAL, AT(of.eps), .least = 0, .most = 16,
      .draw = "0 1e-06 0.5" },
    WORD(within, "any", within_word, "how far below the largest of a list what is chosen may be; any: it is not asked"),
    WORD(cached, "some", cached_word, "of the blocks of a list, those that the cache has"),
    WORD(missing, "both", missing_word, "what is asked of the others: the list, how many, both, none"),
    WORD(y_type, "f32", ha_dtype_word, "of the columns that rows are made into"),
    NUMBER(layers, 1, HA_NET_LAYERS_MAX, "of a net", "1..4"),
    NUMBER(hidden, 1, HA_NET_WIDTH_MAX, "outputs of each layer of a net but the last", "1..64 1..1024"),
    NUMBER(bits, 32, HA_CODE_BITS_MAX, "of a code", "32..256:32"),
    WORD(only, "no", yes_word, "of some lists or heads nothing is asked, which memory says"),
    WORD(similar, "least", similar_word, "what a KV head's similarity is of its query heads'"),
    NUMBER(groups, 1, 1024, "of a key's dimensions, of each of which it has a code", "1..64"),
    NUMBER(dims, 1, 1024, "dimensions of such a group", "1 2 4 8 1..16"),
    NUMBER(centroids, 1, 65536, "of a group", "1..16 16 64 256 1..600"),
    NUMBER(code_bits, 1, HA_PQ_BITS_MAX, "of the code of a group", "8 16 1..16"),
    WORD(separate, "no", yes_word, "groups have centroids of their own"),
    WORD(w_type, "f32", w_type_word, "of weights, of the products of a query and the centroids"),
    { "p", "1", "the share of the weights that what is chosen reaches", HA_KEY_REAL, AT(of.p), .least = 0x1p-60,
      .most = 1, .draw = "1 0.9 0.5 0.99 0.001 1e-09" },
    WORD(edge, "none", edge_word,
         "p is the sum of the largest of one list, exactly, or half a unit of its integers above that, below"),
};
enum { BYTES = 2, REPEAT, CASE = 7 }; /* the keys of one case stand behind the others */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "keys are of uint64_t");

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; p && (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

bool ha_op_uses(const void *point, size_t key)
{
    const struct ha_op_point *p = point;
    if (key == BYTES || key == REPEAT) return !p->one;
    return key < CASE || key >= HA_OP_KEYS || (p->one && has_word(ha_ops[p->op]->keys, ha_op_keys[key].name));
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

/* of the layers of a net, where it has several */
static double weights_of(const struct ha_op_case *c)
{
    return c->layers == 1 ? 0 : (double)(c->hidden * (c->k + (c->layers - 2) * c->hidden + c->n));
}

/* Bytes of all blocks of a case, and the products that judging it takes: what a case does not use is at its least. */
static double bytes_of(const struct ha_op_point *p)
{
    const struct ha_op_case *c = &p->of;
    /* an index names blocks of twice as many rows, of which the last of each run is not full */
    const bool blocks = ha_ops[p->op] == &ha_op_attend_index || ha_ops[p->op] == &ha_op_attend_lists;
    const size_t room = blocks ? 2 * (c->keys + c->runs * c->block) : c->keys;
    const double row = (double)(2 * c->width + c->dst_gap + c->src_gap + 8), slots = (double)(c->rows * c->spread);
    const size_t lists = (c->lists ? c->kv_heads : 1) * (c->lists == HA_OP_Q_LISTS ? c->group : 1);
    return 3 * (double)(c->size + c->size * c->pieces / 2) + slots * row * 4
           + (double)(c->states * c->rows * c->kv_heads) * (double)((c->head_dim + c->src_gap) * 4)
           + 4 * ((double)(c->m * c->k + c->n * c->k + c->m * c->n) + weights_of(c))
           + (double)(c->batch * c->keys * c->group) * (double)(c->kv_heads * (c->n - 1) * 8)
           + (double)(c->batch * room * lists) * (double)(c->kv_heads * (c->head_dim * 8 + c->pad + c->v_pad))
           + (double)(c->batch * c->kv_heads * c->groups)
                 * ((double)(c->centroids * (c->dims * 4 + c->q_len * c->group * 16))
                    + 12 * (double)(c->keys * c->dims))
           + (double)(c->batch * c->q_len * c->group * c->kv_heads)
                 * (double)(8 * (c->head_dim + c->q_gap) + (c->weights ? c->keys : 0));
}

static double products_of(const struct ha_op_case *c)
{
    return (double)(c->m * c->n) * (double)c->k + (double)c->m * weights_of(c)
           + (double)(c->states * c->rows * c->kv_heads) * (double)c->head_dim
           + (double)(c->batch * c->q_len * c->kv_heads * c->group) * (double)(c->head_dim * c->keys)
           + (double)(c->batch * c->kv_heads * c->group) * (double)(c->head_dim * c->keys * (c->n - 1))
           + (double)(c->batch * c->kv_heads * c->groups)
                 * (double)(c->centroids * c->dims * c->q_len * c->group + 4 * c->keys * c->q_len * c->group)
           + (double)(c->batch * c->kv_heads < 300 ? c->batch * c->kv_heads : 3 * (c->batch + c->kv_heads)) * 1000;
}

enum ha_status ha_op_settle(void *point, struct ha_why *why)
{
    static const double most = 8e9;
    struct ha_op_point *p = point;
    for (size_t i = BYTES; i < HA_OP_KEYS; i++)
        if (!ha_op_uses(p, i)) HA_TRY(ha_point_set(p, &ha_op_keys[i], ha_op_keys[i].value, why));
    const char *no = !p->one                ? NULL
                     : !ha_ops[p->op]->keys ? "there is nothing to choose"
                     : ha_ops[p->op]->unfit ? ha_ops[p->op]->unfit(&p->of)
                                            : NULL;
    if (no) return ha_why(why, HA_WAIVED, "%s: %s", ha_ops[p->op]->name, no);
    if (!(bytes_of(p) <= most))
        return ha_why(why, HA_WAIVED, "%s: such a case takes %.0f GB", ha_ops[p->op]->name, bytes_of(p) * 1e-9);
    return HA_OK;
}

/* Seconds, more or less: what is written and compared, what is computed in binary64, and how long streams are held up.
 */
double ha_op_cost(const void *point)
{
    const struct ha_op_point *p = point;
    const struct ha_op_case *c = &p->of;
    const double held = ha_ops[p->op]->held_ms * 1e-3 + (double)c->us * 1e-6,
                 codes = ha_ops[p->op] == &ha_op_hash
                             ? (double)(c->batch * c->kv_heads * c->group) * (double)(c->head_dim * c->keys * c->bits)
                         : ha_ops[p->op] == &ha_op_pq_encode ? 4 * (double)(c->batch * c->kv_heads * c->groups)
                                                                   * (double)(c->dims * c->keys * c->centroids)
                                                             : 0;
    return (double)c->times * (held + (double)c->size * 8e-9) + bytes_of(p) * 2e-9 + (products_of(c) + codes) * 4e-9;
}
