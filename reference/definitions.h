#ifndef HA_REFERENCE_DEFINITIONS_H
#define HA_REFERENCE_DEFINITIONS_H

/* What the definitions share. */

#include "reference/rows.h"

#include "harness/api/reference.h"

/* how many ha_def_head.index can be */
static inline size_t ha_def_heads(const struct ha_shape *s) { return s->layers * s->batch * s->q_heads; }

/* HA_FAIL: `VARIANT layer 0 seq 0 head 3: ` and what is wrong */
enum ha_status ha_def_wrong(const struct ha_def_head *h, struct ha_why *why, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Attention weights as the definitions need them: a rule that compares weights can only be judged up to what binary32
 * makes of a weight. */
struct ha_ref_weight {
    double value, tol;
};

/* weight[j].value = the mean over h's queries of their softmax weight on key j, a query that sees no key adding 0;
 * |got - value| <= tol for any mean of weights computed in binary32 by who has the profile h->observer. The keys are
 * the tokens first + j, or where token is not NULL token[j], ascending; a query sees those that are not after its own.
 * HA_ERROR: no memory. */
enum ha_status ha_ref_observe(const struct ha_shape *shape, const struct ha_def_head *h, const uint32_t *token,
                              size_t first, size_t keys, struct ha_ref_weight *weight, struct ha_why *why);

/* ---- choices by scores: of keys, or of blocks of keys */

/* HA_FAIL unless all keys are in one part on the device, weighed by the step's query and themselves. */
enum ha_status ha_def_on_device(const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why);

/* What binary32 makes of a score is in [low, high]. */
struct ha_ref_score {
    double value, low, high;
};
/* scale * a.b, the sum in any order. a_off, b_off: [dim] how far off the terms themselves may be, or NULL. Nothing is
 * known of a sum that may overflow. */
struct ha_ref_score ha_ref_score_dot(const double *a, const double *a_off, const double *b, const double *b_off,
                                     size_t dim, double scale);

/* Who chooses: each query head, all query heads of a KV head by the largest of their scores, or each of them for
 * all, that is the union. */
enum ha_def_group { HA_DEF_HEAD, HA_DEF_MAX, HA_DEF_UNION };
struct ha_def_choice {
    const char *what; /* is chosen: "key" */
    enum ha_def_group group;
    size_t heads, count;        /* query heads of the KV head, candidates */
    struct ha_ref_score *score; /* [heads][count]; HA_DEF_MAX: [count] */
    bool *taken, *first;        /* [count] by the head that is judged, by the first one of its KV head */
    double *work;               /* [2 * count] */
};
/* To the candidates of the next KV head, whose scores are then the least there are. HA_ERROR: no memory. */
enum ha_status ha_def_choice_begin(struct ha_def_choice *c, size_t heads, size_t count, struct ha_why *why);
void ha_def_choice_end(struct ha_def_choice *c);
/* The candidate's score for query head `head` of the KV head is this one if it has been no larger so far. */
void ha_def_choice_score(struct ha_def_choice *c, size_t head, size_t candidate, struct ha_ref_score score);
/* HA_FAIL unless c->taken may be the `want` of largest score, all where there are no more: the order of two is only
 * judged where rounding cannot change it, so that of a tie either may be taken. Scores are not read where all are
 * taken. Query heads are judged in their order. */
enum ha_status ha_def_choice_judge(const struct ha_def_choice *c, const struct ha_def_head *h, size_t want,
                                   struct ha_why *why);
/* The same of HA_DEF_UNION, asked once for all query heads, h being the first one, of which number i chooses want[i], 0
 * none. */
enum ha_status ha_def_choice_judge_union(const struct ha_def_choice *c, const struct ha_def_head *h, const size_t *want,
                                         struct ha_why *why);
/* HA_FAIL unless c->taken may be those whose score is not below the largest less `within`, a difference of binary32;
 * and of these, where there are more, the `most` of largest score. Not for HA_DEF_UNION. */
enum ha_status ha_def_choice_judge_within(const struct ha_def_choice *c, const struct ha_def_head *h, double within,
                                          size_t most, struct ha_why *why);

/* ---- queries of a layer from the input of the one before */

/* The next layer's, and how far off binary32 may be: [q_len][q_heads][head_dim]. Begins zeroed. */
struct ha_def_predicted {
    double *q, *off;
};
/* Of all query heads, by the input and for the layer after that of h, which there are. HA_ERROR: no memory. */
enum ha_status ha_def_predict(struct ha_def_predicted *p, const struct ha_shape *shape, const struct ha_def_head *h,
                              struct ha_why *why);
void ha_def_predicted_end(struct ha_def_predicted *p);

/* ---- a basis that was learnt of observed queries, and which columns are kept of what it turns: InfiniGen */

struct ha_def_skew {
    float *q; /* [queries][head_dim], the observed ones of a KV head */
    size_t queries;
    double *learnt;    /* NULL, or what was found to be true: A, [head_dim][head_dim], then `columns` rows of it */
    double *sum, *off; /* [head_dim] magnitudes of queries and keys, turned; what binary32 may make of them */
    size_t seqs;       /* whose keys these have */
};
/* in prefill, of each head: its observed queries */
enum ha_status ha_def_skew_observe(struct ha_def_skew *s, const struct ha_shape *shape, const struct ha_def_head *h,
                                   struct ha_why *why);
/* In judge, of the first head of a KV head: HA_FAIL unless h->chosen->learnt may be what the rule learns, and is what
 * it was before. To be right, beside roundings of binary64, A is orthonormal, and the observed queries turned by it
 * have orthogonal columns, which are the right singular vectors and no others; and of the columns, by A rounded to
 * binary32, those are kept whose sums of magnitudes over observed queries and context keys may be the largest, known
 * with the last sequence. No observed query: A is the identity. */
enum ha_status ha_def_skew_judge(struct ha_def_skew *s, const struct ha_shape *shape, const struct ha_def_head *h,
                                 size_t columns, struct ha_why *why);
void ha_def_skew_end(struct ha_def_skew *s);

/* ---- choices that are seen in part */

enum ha_def_known { HA_DEF_OUT, HA_DEF_IN, HA_DEF_MAYBE };
/* The `want` candidates of largest score, all where there are no more, of which some are known to be IN and some to be
 * OUT. A candidate that is smaller for certain than one that is OUT is not IN. */
struct ha_def_partial {
    const struct ha_ref_score *score; /* [count] */
    size_t count, want, in, maybe;    /* of which so many are */
    size_t weakest, strongest;        /* that is IN, that is OUT; `count`: none is */
    double least, most;               /* the least that they may be: the former at most, the latter at least */
    double *low, *high;               /* [maybe] of those that may be, descending */
};
/* is: [count] enum ha_def_known. HA_ERROR: no memory. */
enum ha_status ha_def_partial_begin(struct ha_def_partial *p, const struct ha_ref_score *score, const uint8_t *is,
                                    size_t count, size_t want, struct ha_why *why);
void ha_def_partial_end(struct ha_def_partial *p);
/* Is there such a choice? And one in which a candidate that is MAYBE is IN, or is OUT? */
bool ha_def_partial_is(const struct ha_def_partial *p);
bool ha_def_partial_may(const struct ha_def_partial *p, size_t candidate, enum ha_def_known be);

/* What is known of a choice by its scores and by those that are known to be IN or OUT: `is` goes in and out. HA_ERROR:
 * no memory. */
enum ha_status ha_def_partial_learn(const struct ha_ref_score *score, uint8_t *is, size_t count, size_t want,
                                    struct ha_why *why);

/* ---- sums of numbers that lie between two others, where ties leave open which they are */

struct ha_def_tally {
    double least, most, of; /* begin as 0 */
};
void ha_def_tally_add(struct ha_def_tally *t, double least, double most, double of);
/* their quotients by `of`; nothing where that is 0 */
void ha_def_tally_say(const struct ha_def_tally *t, const char *name, size_t layer, ha_def_count *say, void *arg);
/* The cosine of two vectors, 0 where either is 0. a_off: [dim] how far off a may be */
void ha_def_tally_cosine(struct ha_def_tally *t, const double *a, const double *a_off, const float *b, size_t dim);
/* Of the `size` that are in a set those that were not before, both as enum ha_def_known. */
void ha_def_tally_new(struct ha_def_tally *t, const uint8_t *now, size_t count, const uint8_t *then, size_t then_count,
                      size_t size);

/* ---- blocks of keys, and their scores by digests */

/* The least k >= 1 with k / n >= share, a quotient of binary64, so that 0.07 of 100 are 7; 0 of none. */
static inline size_t ha_def_share(double share, size_t n)
{
    size_t k = n > 0;
    while (k < n && (double)k / (double)n < share) k++;
    return k;
}

/* Block b is the tokens first + b size and on, up to the next one's. */
struct ha_def_blocks {
    size_t first, size, count;
    bool mean; /* the digest: means, else ranges */
};
/* A block's least and largest of each dimension; of means, what binary32 may make of the mean. */
struct ha_def_digest {
    double least[HA_REF_DIM_MAX], most[HA_REF_DIM_MAX];
};
/* k: [tokens][head_dim] of the shape's type. Nothing is known of a mean whose sum may overflow in binary32. */
void ha_def_digest(const struct ha_shape *shape, const struct ha_def_blocks *blocks, const void *k, size_t block,
                   struct ha_def_digest *out);
/* Of a range the scaled sum over d of max(q_d least_d, q_d most_d), of a mean scaled q . mean. off: [head_dim] how far
 * off the query may be, or NULL. */
struct ha_ref_score ha_def_digest_score(const struct ha_shape *shape, const struct ha_def_blocks *blocks,
                                        const struct ha_def_digest *digest, const double *q, const double *off);
/* Of all blocks for all query heads of the KV head whose first one h is, by h's queries. */
void ha_def_choice_digests(struct ha_def_choice *c, const struct ha_shape *shape, const struct ha_def_blocks *blocks,
                           const struct ha_def_head *h);
/* c->taken: of the blocks those that are used, wherever they are. HA_FAIL: one is used in part. */
enum ha_status ha_def_choice_blocks(struct ha_def_choice *c, const struct ha_def_blocks *blocks,
                                    const struct ha_def_head *h, const uint8_t *mark, struct ha_why *why);

/* ---- tokens that stay on the device, and candidates in units of so many tokens between them: CLO, lists of blocks */

struct ha_def_window {
    size_t sink, recent, unit;
};
/* The units of the first n tokens: unit j is the tokens sink + j unit and on, all of them before the last `recent`
 * ones.
 */
size_t ha_def_window_units(const struct ha_def_window *w, size_t n);
/* HA_FAIL unless the sinks, the last `recent` tokens before the step and the step's own are used, and no token that is
 * neither one of these nor of a unit. */
enum ha_status ha_def_window_judge(const struct ha_def_window *w, const struct ha_def_head *h, const uint8_t *mark,
                                   struct ha_why *why);

/* ---- caches whose list the CPU keeps, by LRU or LFU: lists of blocks, PQCache */

struct ha_def_cached {
    size_t block, uses, last; /* last: the number of its last use */
};
/* Of a KV head of a sequence. Begins zeroed, which is empty. */
struct ha_def_cache {
    struct ha_def_cached *of; /* [count] */
    size_t count, uses;
    double hits, replaced; /* of the step */
};
/* What each KV head of a layer, batch and head has, and what came of it. Begins zeroed. */
struct ha_def_caches {
    struct ha_shape shape;
    bool lfu;
    struct ha_def_cache *cache; /* [layers][batch][kv_heads] */
    double (*counted)[3];       /* [layers] hits, misses, replaced */
};
/* HA_ERROR: no memory. */
enum ha_status ha_def_caches_create(struct ha_def_caches *c, const struct ha_shape *shape, bool lfu,
                                    struct ha_why *why);
void ha_def_caches_end(struct ha_def_caches *c);
/* The KV head of h, at its first query head, uses the chosen ones of `count` blocks; its cache has room for `slots`, no
 * fewer than these. At each of its query heads: HA_FAIL unless note `hits` says how many of them the cache had. Those
 * that it had not have come in, each in a free place or that of a victim, which none of the chosen is: note `replaced`
 * says how many victims there were. LRU: the victim is the block that has not been used for longest; of the blocks of
 * a step the one of smallest index counts as used first. LFU: the one that was used least often since it came in, of
 * equals the one that LRU would take. */
enum ha_status ha_def_caches_judge(struct ha_def_caches *c, const struct ha_def_head *h, const bool *chosen,
                                   size_t count, size_t slots, struct ha_why *why);
/* hits, misses, replaced of each layer */
void ha_def_caches_count(const struct ha_def_caches *c, ha_def_count *say, void *arg);

/* ---- codes of keys and of queries: HATA */

struct ha_def_code {
    uint32_t bit[HA_CODE_BITS_MAX / 32], open[HA_CODE_BITS_MAX / 32]; /* open: by rounding the bit may be the other */
    double least, most;                                               /* the norm, as binary32 may find it */
};
/* The squared norms of a's rows. a: [bits][dim]; square: [bits] */
void ha_def_code_squares(const float *a, size_t bits, size_t dim, double *square);
/* a, square: as above; x: [dim], off: [dim] how far off it may be, or NULL */
void ha_def_code(const float *a, const double *square, size_t bits, size_t dim, const double *x, const double *off,
                 struct ha_def_code *out);
/* The key's norm times bits - 2 h, h the bits in which the codes differ. */
struct ha_ref_score ha_def_code_score(const struct ha_def_code *q, const struct ha_def_code *k, size_t bits);

/* ---- how similar queries are, and which heads are hard to serve by keys of an earlier one: CLO */

/* The cosine, with a's and b's own errors: sums of binary32 in any order. NaN where one of them is 0 for certain,
 * anything where one of them may be, or its squares are no normal number. */
struct ha_ref_score ha_def_cosine(const double *a, const double *a_off, const double *b, const double *b_off,
                                  size_t dim);
/* Of the heads of a group: the least, or where all are positive the mean sum(s) / sum(s / x), weighted by importance.
 * NaN where one of them is. */
struct ha_ref_score ha_def_cosine_group(const struct ha_ref_score *x, const double *importance, size_t heads,
                                        bool harmonic);

struct ha_def_reuse_rule {
    double eta, p, eps, budget_bytes; /* 0 bytes: as many as are asked for */
    bool adaptive, hard;              /* hard: heads of layers behind the first may be persistent */
    bool least;                       /* similarity is the least of a group's, else their harmonic mean */
    double buffer_bytes, whole_bytes; /* of a KV head of all sequences: its buffers, all of its keys and values */
};
struct ha_def_reuse {
    size_t layers, q_heads, kv_heads;
    double *importance;   /* [layers][q_heads] */
    float *least, *most;  /* [layers][kv_heads] the threshold is one of these two */
    double *difficulty;   /* [layers][kv_heads], NULL: no head is hard */
    double prefetched[2]; /* heads of a layer that can be prefetched: at least, at most */
    double room[2];       /* heads behind the first layer that the budget has room for */
    uint8_t *persistent;  /* [layers][kv_heads] as enum ha_def_known, as it was reported */
};
/* HA_ERROR: no memory; a tensor of the fit that is not right; no room for the first layer. Begins zeroed. */
enum ha_status ha_def_reuse_create(struct ha_def_reuse *r, const struct ha_shape *shape,
                                   const struct ha_def_reuse_rule *rule, const struct ha_fit *fit, struct ha_why *why);
/* HA_FAIL unless the KV head of h, which is its first query head, may be persistent, or not. What is reported is
 * adopted, and judged as a whole when the last head has said it. */
enum ha_status ha_def_reuse_judge(struct ha_def_reuse *r, const struct ha_def_head *h, bool persistent,
                                  struct ha_why *why);
void ha_def_reuse_end(struct ha_def_reuse *r);

/* ---- keys that codes stand for: HCAttention, PQCache */

/* A key is cut into groups of `dims` dimensions, and of each the nearest of `count` centroids stands for it, by the sum
 * of squared differences. */
struct ha_def_book_rule {
    const char *variant;
    size_t dims, count;
    bool shared; /* all groups of a KV head have one book, else each its own */
    bool before; /* keys are coded as they are before they are turned by their position */
};
/* Of a KV head of a sequence: what stands for its first keys, and how far off it may be where that is not reported yet.
 */
struct ha_def_coded {
    float *k, *off; /* [count][head_dim] */
    bool *said;     /* [count] it was reported, and is adopted */
    double *least;  /* [count][groups] down to what distance a centroid may be the nearest */
    size_t count;
};
struct ha_def_book {
    struct ha_def_book_rule rule;
    struct ha_shape shape;
    size_t groups, books;
    float *centroid, *off;      /* [layers][kv_heads][books][dims][count]; off: how far off they may be */
    struct ha_def_coded *coded; /* [layers][batch][kv_heads] */
    double *square;             /* [count] of the group at hand */
    size_t *near;               /* of them, those that may be the nearest */
    bool sample;                /* centroids are taken from the prefill's keys */
};
/* From the fit's tensor `centroids`, if there is a fit. HA_ERROR: no memory, dims that do not divide head_dim, another
 * tensor. Begins zeroed. */
enum ha_status ha_def_book_create(struct ha_def_book *b, const struct ha_def_book_rule *rule,
                                  const struct ha_shape *shape, const struct ha_fit *fit, struct ha_why *why);
void ha_def_book_end(struct ha_def_book *b);
/* In prefill, of each head: without a fit, centroid j of a shared book is part floor(j N g / c) of all keys of all
 * contexts, sequence by sequence, key by key, of each its g groups in order; of group i's own book part i of key
 * floor(j N / c). Zeros where N is 0. */
enum ha_status ha_def_book_prefill(struct ha_def_book *b, const struct ha_def_head *h, struct ha_why *why);
/* In judge: codes the first `keys` keys of h's KV head, as far as they are not. HA_WAIVED: they are to be turned back,
 * and the dataset does not say how they were turned. */
enum ha_status ha_def_book_code(struct ha_def_book *b, const struct ha_def_head *h, size_t keys, struct ha_why *why);
/* HA_FAIL unless part->k, of keys that are coded, are what may stand for them, and the same as ever. */
enum ha_status ha_def_book_judge(struct ha_def_book *b, const struct ha_def_head *h, const struct ha_part *part,
                                 struct ha_why *why);
struct ha_def_coded *ha_def_book_coded(const struct ha_def_book *b, const struct ha_def_head *h);

#endif
