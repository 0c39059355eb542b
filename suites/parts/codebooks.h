#ifndef HA_PARTS_CODEBOOKS_H
#define HA_PARTS_CODEBOOKS_H

/* Books of product quantisation (HCAttention, section 3.1): of each layer and KV head one for all groups of dimensions,
 * or one for each group. From a fit, tensor `centroids` F32 [layers][kv_heads][books][dims][count]; without one a
 * sample book: vectors taken evenly from the keys of the prefill itself. With X the list of keys of the KV head, N of
 * them, of sequence 0's context, then sequence 1's, and so on: separate, centroid j of a group is that part of key
 * floor(j N / count); shared, it is part floor(j N g / count) of the list of all parts, key by key, of each its g
 * groups in order. N = 0: zeros. */

#include "suites/parts/kv.h"

enum ha_books { HA_BOOKS_SHARED, HA_BOOKS_SEPARATE };
const char *ha_books_word(size_t i);

/* Keys are coded as they are, or as they are before the rotary position turns them. */
enum ha_rotary { HA_ROTARY_AFTER, HA_ROTARY_BEFORE };
const char *ha_rotary_word(size_t i);

/* Options of variants. */
#define HA_CODEBOOK_DIMS(most)                                                          \
    {                                                                                   \
        "dims", most, 1, 128, "dimensions of a group, for each of which a code stands", \
            .power_of_2 = true, .draw = "1 2 4 8", .fitted = true                       \
    }
#define HA_CODEBOOK_COUNT(of)                                                                                      \
    {                                                                                                              \
        "c", of, 2, 1 << 16, "centroids of a book", .power_of_2 = true, .draw = "2 16 64 256 1024", .fitted = true \
    }
#define HA_CODEBOOK_BOOKS                                                                                           \
    {                                                                                                               \
        "books", HA_BOOKS_SHARED, .word = ha_books_word, .doc = "a book for all groups of a head, or one for each", \
                                  .fitted = true                                                                    \
    }
#define HA_CODEBOOK_ROTARY                                                                              \
    {                                                                                                   \
        "rotary", HA_ROTARY_AFTER, .word = ha_rotary_word,                                              \
                                   .doc = "keys are coded after they are turned by their position, or " \
                                          "before",                                                     \
                                   .draw = "after", /* no generator turns its keys */                   \
            .fitted = true                                                                              \
    }
#define HA_CODEBOOK_PACK                                                                           \
    {                                                                                              \
        "pack", 0, 0, 1, "1: codes take as many bits as they need, not whole bytes", .whole = true \
    }

struct ha_codebook_rule {
    size_t dims, count;
    enum ha_books books;
    enum ha_rotary rotary;
    bool pack;
};

/* For all layers. */
struct ha_codebooks {
    const struct ha_context *ctx;
    struct ha_codebook_rule rule;
    struct ha_pq pq;   /* of layer 0 on the device */
    const float *host; /* [layers][kv_heads][books][dims][count], the fit's or its own */
    float *sample;     /* the same, or NULL: of a fit */
    float *key;        /* [2][head_dim], where there is a sample */
    size_t layer_floats;
};

/* What keys of a shape are cut into, without centroids. HA_ERROR with words: dims does not divide head_dim. */
enum ha_status ha_codebooks_pq(const struct ha_codebook_rule *rule, const struct ha_shape *shape, struct ha_pq *pq,
                               struct ha_why *why);
/* HA_WAIVED: rotary = before, and nothing says how a layer's keys were turned. */
enum ha_status ha_codebooks_turned(const struct ha_codebook_rule *rule, const struct ha_projection *projection,
                                   size_t layers, struct ha_why *why);
/* A key of a prefill as it is coded. key: [2][head_dim], of which the second row is scratch. */
void ha_codebooks_key(const struct ha_codebook_rule *rule, const struct ha_projection *projection, size_t layer,
                      const struct ha_shape *shape, const struct ha_prefill *in, size_t b, size_t head, size_t token,
                      float *key);
/* HA_ERROR with words, where dims does not divide head_dim; HA_WAIVED as above; whatever is wrong with a fit. */
enum ha_status ha_codebooks_create(struct ha_codebooks *b, const struct ha_context *ctx,
                                   const struct ha_codebook_rule *rule, struct ha_why *why);
/* Makes a layer's books and brings them to the device. */
enum ha_status ha_codebooks_prefill(struct ha_codebooks *b, size_t layer, const struct ha_prefill *in,
                                    struct ha_why *why);
/* of KV head 0 of a layer, in device memory; of any, in host memory */
struct ha_pq ha_codebooks_there(const struct ha_codebooks *b, size_t layer);
struct ha_pq ha_codebooks_here(const struct ha_codebooks *b, size_t layer, size_t head);
/* The centroids of codes, joined: [count][head_dim]. Codes and centroids are in host memory. Refuses codes that are
 * none (ha_list_refuse). */
enum ha_status ha_codebooks_join(const struct ha_context *ctx, const struct ha_pq *pq, const unsigned char *codes,
                                 size_t count, float *k, struct ha_why *why);

#endif
