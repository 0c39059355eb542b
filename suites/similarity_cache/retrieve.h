#ifndef HA_SIMILARITY_CACHE_RETRIEVE_H
#define HA_SIMILARITY_CACHE_RETRIEVE_H

/* The keys of largest score by an index of them on the device: codes (HATA), digests of blocks (Quest), or none, the
 * keys themselves (CLO, section 2.1, equations 1 and 2). What may be chosen are units of `unit` tokens, counted from
 * the first token that is no sink, which lie wholly before the last `recent` tokens; of a KV head's query heads and the
 * step's tokens the largest score counts. Everything is enqueued on the main stream, on which layers follow each other:
 * they share what lies in struct ha_retrieve. */

#include "suites/parts/digests.h"
#include "suites/parts/frame.h"

enum ha_retrieve_by { HA_RETRIEVE_HATA, HA_RETRIEVE_QUEST, HA_RETRIEVE_EXACT };
const char *ha_retrieve_word(size_t i);
enum { HA_RETRIEVE_BLOCK = 16 }; /* tokens of a unit, by digests; else 1 */

/* What hata's codes are made with: normal numbers, or what a fit has as `hash`, F32 [layers][kv_heads][bits][head_dim].
 */
enum ha_retrieve_hash { HA_HASH_RANDOM, HA_HASH_LEARNED };
const char *ha_retrieve_hash_word(size_t i);

/* Options `retrieve`, `bits` and `hash` of variants. */
#define HA_RETRIEVE_WAY                                                                                               \
    {                                                                                                                 \
        "retrieve", HA_RETRIEVE_HATA, .word = ha_retrieve_word,                                                       \
                                      .doc = "keys are chosen by codes, by digests of blocks of 16 or by all of them" \
    }
#define HA_RETRIEVE_BITS                                                                  \
    {                                                                                     \
        "bits", 256, 32, HA_CODE_BITS_MAX, "of a code", .whole = true, .power_of_2 = true \
    }
#define HA_RETRIEVE_HASH                                                                             \
    {                                                                                                \
        "hash", HA_HASH_RANDOM, .word = ha_retrieve_hash_word,                                       \
                                .doc = "what codes are made with: normal numbers, or what a fit has" \
    }

struct ha_retrieve_rule {
    enum ha_retrieve_by by;
    enum ha_retrieve_hash hash;
    size_t bits, sink, recent;
};

/* The index of one layer of one sequence. */
struct ha_retrieve_index {
    struct ha_rows
        rows; /* the caller's: K of KV head 0 from the first token on that is no sink, where kernels read it */
    size_t k_head_bytes; /* the caller's; neither is read by hata */
    size_t tokens;       /* that are in it */
    unsigned char *codes;
    size_t code_head_bytes;
    struct ha_digests digests;
};

struct ha_retrieve {
    const struct ha_context *ctx;
    struct ha_retrieve_rule rule;
    size_t unit, rows, units_max;          /* queries of a KV head; units of the longest sequence */
    float **a;                             /* [layers], device: [kv_heads][bits][head_dim] */
    unsigned char *q_code;                 /* device: [batch][kv_heads], a code of each query */
    size_t q_code_bytes;                   /* of a KV head */
    float *score;                          /* device: [batch][kv_heads][rows][units_max] */
    struct ha_device_hash_seq *hash;       /* [batch] */
    struct ha_device_hamming_seq *hamming; /* [batch] */
    struct ha_device_digest_seq *digest;
    struct ha_device_score_seq *by_digest;
    struct ha_device_rows_seq *by_row;
    struct ha_device_topk_seq *most; /* [batch * kv_heads] */
    size_t chosen;                   /* of them in use */
};

static inline size_t ha_retrieve_unit(enum ha_retrieve_by by)
{
    return by == HA_RETRIEVE_QUEST ? HA_RETRIEVE_BLOCK : 1;
}
/* units that may be chosen of so many tokens */
size_t ha_retrieve_units(const struct ha_retrieve *r, size_t tokens);
/* HA_WAIVED: the device lacks an operation, or the fit has no `hash`. */
enum ha_status ha_retrieve_create(struct ha_retrieve *r, const struct ha_context *ctx,
                                  const struct ha_retrieve_rule *rule, struct ha_why *why);
enum ha_status ha_retrieve_open(const struct ha_retrieve *r, size_t b, struct ha_retrieve_index *index,
                                struct ha_why *why);

/* As tokens come. Of every sequence first which: tokens [first, first + count), the next ones, whose K hata reads at k,
 * token-major in device memory; others read what the index names. Then, on a stream, the index of sequences [b, b +
 * batch). */
void ha_retrieve_add(struct ha_retrieve *r, size_t b, struct ha_retrieve_index *index, const void *k, size_t first,
                     size_t count);
enum ha_status ha_retrieve_encode(struct ha_retrieve *r, size_t layer, struct ha_stream *stream, size_t b,
                                  size_t batch);
/* to the index of a sequence of so many tokens */
void ha_retrieve_rewind(const struct ha_retrieve *r, struct ha_retrieve_index *index, size_t tokens);

/* Scores of the units of all sequences by the queries q of a step, where `tokens` tokens came before it. index: of the
 * first sequence, stride bytes from one to the next. only: NULL, or [batch][kv_heads], which hata heeds: whose scores
 * are wanted, read when the kernel runs. */
enum ha_status ha_retrieve_score(struct ha_retrieve *r, size_t layer, const float *q,
                                 const struct ha_retrieve_index *index, size_t stride, const size_t *tokens,
                                 const uint32_t *only);
/* By these scores the `count` best units of a KV head, all where there are no more, plus first each, rising; *keys:
 * how many keys they are. only: NULL, or one number in memory of the device: 0, nothing is done. Then run, of all that
 * was asked for. */
void ha_retrieve_ask(struct ha_retrieve *r, size_t b, size_t head, size_t tokens, size_t count, uint32_t first,
                     uint32_t *to, uint32_t *keys, const uint32_t *only);
enum ha_status ha_retrieve_run(struct ha_retrieve *r);

#endif
