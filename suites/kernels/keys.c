#include "suites/kernels/work.h"

#include "harness/base/registry.h"
#include "harness/base/why.h"
#include "harness/engine/point.h"

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define KEY(k) (1u << HA_CPU_##k)
enum {
    ALL = KEY(KERNEL) | KEY(ISA) | KEY(BATCH) | KEY(HEADS) | KEY(THREADS),
    ROWS = ALL | KEY(DTYPE) | KEY(CTX) | KEY(DIM),
    CODES = KEY(DIMS) | KEY(CENTROIDS) | KEY(BOOKS),
};

static const struct {
    const char *name;
    const struct ha_cpu_subject *subject;
    unsigned keys;
} kernels[HA_CPU_KERNELS] = {
    [HA_KERNEL_ATTEND] = { "attend", &ha_cpu_subject_attend, ROWS | KEY(LAYOUT) | KEY(QUERY) },
    [HA_KERNEL_APPEND] = { "append", &ha_cpu_subject_attend, ROWS | KEY(LAYOUT) | KEY(QUERY) | KEY(Q_LEN) },
    [HA_KERNEL_SPARSE] = { "sparse", &ha_cpu_subject_sparse, ROWS | KEY(QUERY) | KEY(BUDGET) | KEY(BLOCK) },
    [HA_KERNEL_BLOCKS] = { "blocks", &ha_cpu_subject_attend, ROWS | KEY(QUERY) | KEY(BUDGET) | KEY(BLOCK) },
    [HA_KERNEL_GATHER] = { "gather", &ha_cpu_subject_attend, ROWS | KEY(QUERY) | KEY(BUDGET) | KEY(BLOCK) },
    [HA_KERNEL_PACK] = { "pack", &ha_cpu_subject_pack, ROWS },
    [HA_KERNEL_APPEND_KEY] = { "append_key", &ha_cpu_subject_append_key, ROWS },
    [HA_KERNEL_SCORE] = { "score", &ha_cpu_subject_score, ROWS | KEY(QUERY) },
    [HA_KERNEL_DIGEST] = { "digest", &ha_cpu_subject_digest, ROWS | KEY(BLOCK) },
    [HA_KERNEL_DIGEST_SCORE] = { "digest_score", &ha_cpu_subject_digest_score, ROWS | KEY(QUERY) | KEY(BLOCK) },
    [HA_KERNEL_HASH] = { "hash", &ha_cpu_subject_hash, ROWS | KEY(BITS) },
    [HA_KERNEL_HAMMING] = { "hamming", &ha_cpu_subject_hamming, ALL | KEY(CTX) | KEY(BITS) },
    [HA_KERNEL_PQ_ENCODE] = { "pq_encode", &ha_cpu_subject_pq_encode, ROWS | CODES },
    [HA_KERNEL_PQ_TABLE] = { "pq_table", &ha_cpu_subject_pq_table, ALL | KEY(DIM) | CODES | KEY(TABLE) },
    [HA_KERNEL_PQ_SCORE] = { "pq_score", &ha_cpu_subject_pq_score, ROWS | CODES | KEY(TABLE) },
    [HA_KERNEL_TOPK] = { "topk", &ha_cpu_subject_topk, ALL | KEY(CTX) | KEY(BUDGET) | KEY(BLOCK) },
    [HA_KERNEL_SOFTMAX] = { "softmax", &ha_cpu_subject_softmax, ALL | KEY(CTX) },
    [HA_KERNEL_TOPP] = { "topp", &ha_cpu_subject_topp, ALL | KEY(CTX) },
    [HA_KERNEL_WEIGHTED_SUM] = { "weighted_sum", &ha_cpu_subject_weighted_sum, ROWS | KEY(BUDGET) },
    [HA_KERNEL_MERGE] = { "merge", &ha_cpu_subject_merge, ALL | KEY(DTYPE) | KEY(DIM) },
};

/* attention by what reads its keys; the others are called as the kernel is */
const char *ha_cpu_runs(const struct ha_cpu_point *p)
{
    if (kernels[p->kernel].subject == &ha_cpu_subject_attend || p->kernel == HA_KERNEL_SPARSE)
        return p->layout == HA_CPU_PACKED ? "attend_packed" : "attend_chunk";
    return p->kernel == HA_KERNEL_APPEND_KEY ? "pack" : kernels[p->kernel].name;
}

const struct ha_cpu_subject *ha_cpu_subject_of(const struct ha_cpu_point *p) { return kernels[p->kernel].subject; }

bool ha_cpu_uses(const void *point, size_t key)
{
    const struct ha_cpu_point *p = point;
    return key >= HA_CPU_KEYS || (kernels[p->kernel].keys >> key & 1u);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const char *kernel_word(size_t i) { return i < HA_CPU_KERNELS ? kernels[i].name : NULL; }
static const char *layout_word(size_t i)
{
    return i == HA_CPU_PACKED ? "packed" : i == HA_CPU_NATURAL ? "natural" : NULL;
}
HA_WORDS(query_word, "kv", "f32")
HA_WORDS(books_word, "separate", "shared")
HA_WORDS(table_word, "f32", "f16")
_Static_assert(HA_TEAM_DEFAULT == HA_TEAM_OPENMP, "the default of team");
static const char *all_word(size_t i) { return i == 0 ? "all" : NULL; }

/* clang-format off */
#define WORD(name, standard, member, words, doc, draws) \
    { name, standard, doc, HA_KEY_WORD, offsetof(struct ha_cpu_point, member), .word = words, .always = true, \
      .column = true, .draw = draws }
#define NUMBER(name, standard, member, least, most, doc, draws) \
    { name, standard, doc, HA_KEY_NUMBER, offsetof(struct ha_cpu_point, member), least, most, .always = true, \
      .column = true, .draw = draws }
const struct ha_key ha_cpu_keys[HA_CPU_ALL_KEYS] = {
    [HA_CPU_KERNEL] = WORD("kernel", "attend", kernel, kernel_word, "what runs; docs/kernels.md", "*"),
    [HA_CPU_LAYOUT] = WORD("layout", "packed", layout, layout_word, "of the keys and values", "*"),
    [HA_CPU_ISA] = WORD("isa", "best", isa, ha_isa_word, "instruction set: best is the best of this CPU",
        "best best *"),
    [HA_CPU_DTYPE] = WORD("dtype", "f16", dtype, ha_dtype_word, "of the keys and values", "*"),
    [HA_CPU_QUERY] = WORD("query", "kv", query, query_word, "query vectors that are exact in dtype, or any of "
        "binary32", "*"),
    [HA_CPU_CTX] = NUMBER("ctx", "32768", ctx, 1, 1 << 24, "keys of each sequence", "1..131072"),
    [HA_CPU_BATCH] = NUMBER("batch", "1", batch, 1, 4096, "sequences", "1 1..256"),
    [HA_CPU_HEADS] = { "heads", "32/8", "query heads and KV heads", HA_KEY_PAIR, offsetof(struct ha_cpu_point, q_heads),
                       1, 1024, .always = true, .column = true, .draw = "1..16:1/1..8 1..16:1/1 1..8/1..128" },
    [HA_CPU_DIM] = NUMBER("head_dim", "128", head_dim, 1, HA_CPU_DIM_MOST, "numbers of a key",
        "8..256:8 8..576:8 1..576"),
    [HA_CPU_Q_LEN] = NUMBER("q_len", "16", q_len, 1, 4096, "query tokens of an append", "1..300"),
    [HA_CPU_THREADS] = { "threads", "all", "all: as many as the process has cores", HA_KEY_NUMBER,
                         offsetof(struct ha_cpu_point, threads), 1, 1024, .word = all_word, .always = true,
                         .column = true, .draw = "all 1..8" },
    [HA_CPU_BUDGET] = NUMBER("budget", "5", budget, 1, 100, "percent of the keys that are chosen", "1..100"),
    [HA_CPU_BLOCK] = NUMBER("block", "32", block, 16, 128, "keys of a block", "16 32 64 128"),
    [HA_CPU_BITS] = NUMBER("bits", "256", bits, 32, HA_CODE_BITS_MAX, "of a code", "32..256:32"),
    [HA_CPU_DIMS] = NUMBER("dims", "4", dims, 1, 256, "numbers of a key that a code stands for", "1 2 4 8"),
    [HA_CPU_CENTROIDS] = NUMBER("centroids", "256", centroids, 2, 1 << HA_PQ_BITS_MAX, "that codes are of",
        "2 16 64 256 2048"),
    [HA_CPU_BOOKS] = WORD("books", "separate", shared, books_word, "of centroids: one for each group of numbers, or "
        "one", "*"),
    [HA_CPU_TABLE] = WORD("table", "f32", table, table_word, "what products with centroids are stored as", "*"),
    [HA_CPU_TEAM] = { "team", "openmp", "whose threads they are", HA_KEY_WORD, offsetof(struct ha_cpu_point, team),
                      .word = ha_team_name, .column = true, .draw = "*" },
    [HA_CPU_SEED] = { "seed", "1", "of the data", HA_KEY_NUMBER, offsetof(struct ha_cpu_point, seed), 0, UINT64_MAX,
                      .column = true, .draw = "1..1000000:1" },
};
/* clang-format on */
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "keys are of uint64_t");
_Static_assert(offsetof(struct ha_cpu_point, kv_heads) == offsetof(struct ha_cpu_point, q_heads) + sizeof(size_t),
               "heads are a pair");

/* ---- points ------------------------------------------------------------------------------------------------------ */

static bool packs(const struct ha_cpu_point *p)
{
    const bool has_layout = ha_cpu_uses(p, HA_CPU_LAYOUT);
    return has_layout ? p->layout == HA_CPU_PACKED
                      : p->kernel == HA_KERNEL_SPARSE || p->kernel == HA_KERNEL_BLOCKS || p->kernel == HA_KERNEL_PACK
                            || p->kernel == HA_KERNEL_APPEND_KEY || p->kernel == HA_KERNEL_PQ_SCORE;
}

enum ha_status ha_cpu_settle(void *point, struct ha_why *why)
{
    struct ha_cpu_point *p = point;
    for (size_t k = 0; k < HA_CPU_KEYS; k++)
        if (!ha_cpu_uses(p, k)) HA_TRY(ha_point_set(p, &ha_cpu_keys[k], ha_cpu_keys[k].value, why));
    if (!ha_cpu_uses(p, HA_CPU_Q_LEN)) p->q_len = 1;
    if (!ha_cpu_uses(p, HA_CPU_LAYOUT)) p->layout = packs(p) ? HA_CPU_PACKED : HA_CPU_NATURAL;
    if (p->dtype == HA_F32) p->query = 0;
    if (p->q_heads % p->kv_heads)
        return ha_why(why, HA_ERROR, "heads=%zu/%zu: a KV head has no whole number of query heads", p->q_heads,
                      p->kv_heads);
    if (packs(p) && !ha_packs(p->head_dim))
        return ha_why(why, HA_ERROR, "head_dim=%zu: packed keys have a multiple of 8, at most %d; say layout=natural",
                      p->head_dim, HA_PACK_DIM_MAX);
    if (p->block & (p->block - 1)) return ha_why(why, HA_ERROR, "block=%zu: it is one of 16 32 64 128", p->block);
    if (ha_cpu_uses(p, HA_CPU_DIMS) && p->head_dim % p->dims)
        return ha_why(why, HA_ERROR, "dims=%zu does not divide head_dim=%zu", p->dims, p->head_dim);
    if (p->centroids & (p->centroids - 1))
        return ha_why(why, HA_ERROR, "centroids=%zu: not a power of 2", p->centroids);
    if (p->bits % 32) return ha_why(why, HA_ERROR, "bits=%zu: not a multiple of 32", p->bits);
    return HA_OK;
}

double ha_cpu_cost(const void *point)
{
    static const double most = 1e9; /* products, or bytes */
    const struct ha_cpu_point *p = point;
    const size_t ctx = ha_cpu_uses(p, HA_CPU_CTX) ? p->ctx : 1, dim = ha_cpu_uses(p, HA_CPU_DIM) ? p->head_dim : 1;
    const size_t rows = p->kernel == HA_KERNEL_HASH        ? p->kv_heads * p->bits
                        : p->kernel == HA_KERNEL_PQ_ENCODE ? p->kv_heads * p->centroids
                        : p->kernel == HA_KERNEL_PQ_TABLE  ? p->q_heads * p->centroids
                                                           : p->q_heads * p->q_len;
    return (double)(ctx * p->batch * dim) * (double)(rows + 8 * p->kv_heads) / most;
}

void ha_cpu_shrink(void *point)
{
    enum { CTX = 777, BATCH = 2, Q_LEN = 9 };
    struct ha_cpu_point *p = point;
    if (ha_cpu_uses(p, HA_CPU_CTX) && p->ctx > CTX) p->ctx = CTX;
    if (p->batch > BATCH) p->batch = BATCH;
    if (p->q_len > Q_LEN) p->q_len = Q_LEN;
}
