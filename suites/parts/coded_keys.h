#ifndef HA_PARTS_CODED_KEYS_H
#define HA_PARTS_CODED_KEYS_H

/* The keys of all sequences of a layer on the device, as codes (product quantisation), as what stands for them
 * (turned_keys.h) or as they are, and the scores of queries by them (HCAttention, section 3.1). */

#include "suites/parts/codebooks.h"
#include "suites/parts/frame.h"
#include "suites/parts/turned_keys.h"

enum ha_coded_as { HA_KEYS_CODES, HA_KEYS_EXACT };
const char *ha_coded_word(size_t i);
#define HA_CODED_AS                                                                                      \
    {                                                                                                    \
        "keys", HA_KEYS_CODES, .word = ha_coded_word, .doc = "keys on the device: codes, or as they are" \
    }

/* One sequence of a layer. */
struct ha_coded_seq {
    unsigned char *codes; /* device: [kv_heads][head_bytes]; NULL: there are rows */
    size_t head_bytes;
    struct ha_head_rows rows; /* device: exact keys, or what stands for them */
};

/* For all layers, which follow each other. */
struct ha_coded {
    const struct ha_context *ctx;
    enum ha_coded_as as;
    enum ha_dtype table_type;
    struct ha_codebooks books;
    struct ha_turned turned;   /* with rotary = before */
    struct ha_head_rows stage; /* device: part of a prefill */
    unsigned char *table;      /* device: [batch][kv_heads][table_bytes] */
    size_t table_bytes;
    unsigned char *known;                   /* pinned: a head's keys, where selections are recorded */
    struct ha_device_pq_encode_seq *encode; /* [batch] each */
    struct ha_device_pq_table_seq *tables;
    struct ha_device_pq_score_seq *score;
    struct ha_device_rows_seq *rows;
};

/* query_rows: of a KV head, that are scored at a time; 0: nothing is scored. */
enum ha_status ha_coded_create(struct ha_coded *c, const struct ha_context *ctx, enum ha_coded_as as,
                               const struct ha_codebook_rule *rule, enum ha_dtype table_type, size_t query_rows,
                               struct ha_why *why);
enum ha_status ha_coded_open(const struct ha_coded *c, size_t b, struct ha_coded_seq *seq, struct ha_why *why);
/* All tokens of a sequence's context. A layer's first call makes its book, where no fit has one. */
enum ha_status ha_coded_prefill(struct ha_coded *c, size_t layer, size_t b, const struct ha_prefill *in,
                                struct ha_coded_seq *seq, struct ha_why *why);
/* Enqueues `count` tokens of device memory, token-major keys, as tokens `first` and on. */
enum ha_status ha_coded_put(struct ha_coded *c, struct ha_stream *stream, size_t layer, struct ha_coded_seq *seq,
                            const unsigned char *k, size_t first, size_t count);
/* Enqueues on the main stream what the scores of all query heads of a step need, once: tables of the codes. */
enum ha_status ha_coded_ask(struct ha_coded *c, const struct ha_step *step);
/* Scores of keys 0 to keys[b] - 1 by the step's queries: of query token t of head h to s + ((b * q_heads + h) * q_len +
 * t) * stride; of KV heads [first, first + heads), where keys are codes; else of all of them, in the first call. */
enum ha_status ha_coded_score(struct ha_coded *c, const struct ha_step *step, const struct ha_coded_seq *const *seqs,
                              const size_t *keys, size_t first, size_t heads, float *s, size_t stride);
/* Bytes on the device: of a layer's books; of a sequence's codes in a layer; of the tables, which are one for all
 * layers. 0: there are none. */
size_t ha_coded_book_bytes(const struct ha_coded *c);
size_t ha_coded_code_bytes(const struct ha_coded *c, const struct ha_coded_seq *seq);
size_t ha_coded_table_bytes(const struct ha_coded *c);
/* What scores claim. */
void ha_coded_claim(const struct ha_coded *c, struct ha_profile *profile);
/* Of a KV head the keys that stand for tokens 0 to count - 1, in host memory: [count][head_dim]. Waits for the device;
 * for reports. Refuses codes that are none (ha_list_refuse). */
enum ha_status ha_coded_read(const struct ha_coded *c, size_t layer, const struct ha_coded_seq *seq, size_t head,
                             size_t count, float *k, struct ha_why *why);

#endif
