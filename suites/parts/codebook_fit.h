#ifndef HA_PARTS_CODEBOOK_FIT_H
#define HA_PARTS_CODEBOOK_FIT_H

/* Books that are learnt offline, by k-means over the keys of texts (HCAttention, sections 3.1 and 4.1): what a hook fit
 * hands over, and ha_codebooks_create reads. */

#include "suites/parts/codebooks.h"
#include "suites/parts/kmeans.h"

/* Options of variants. */
#define HA_CODEBOOK_KMEANS                                                             \
    {                                                                                  \
        "kmeans", HA_KMEANS_MINIBATCH, .word = ha_kmeans_word,                         \
                                       .doc = "how a fit learns books: by batches of " \
                                              "10,000 vectors, or Lloyd's iterations", \
                                       .fitted = true                                  \
    }
#define HA_CODEBOOK_ITERATIONS                                                                           \
    {                                                                                                    \
        "iterations", 200, 0, 100000, "passes over the vectors that a fit makes at most", .whole = true, \
                                                                                          .fitted = true \
    }

/* Vectors that are wanted for each centroid. With as many as centroids every one would be its own, and what a book of
 * few says of its own keys (quant_error, explained) is too good for others. */
enum { HA_CODEBOOK_VECTORS_LEAST = 16 };

struct ha_codebook_learning {
    struct ha_codebook_rule rule;
    enum ha_kmeans_way kmeans;
    size_t iterations;
};

/* Tensors, F32, over the keys of all sequences' contexts:
 *   centroids    [layers][kv_heads][books][dims][count]
 *   quant_error  [layers][kv_heads]  mean squared error of the keys by their nearest centroids over their mean square
 *   explained    [layers][kv_heads]  1 less that error over the keys' variance, that of each dimension about its mean;
 *                                    1 where all keys are equal
 * rotary=before: of keys that are turned back by their positions. HA_WAIVED: then, where the input does not say how
 * keys were turned. HA_ERROR with words: dims does not divide head_dim, there are fewer vectors of a book than
 * HA_CODEBOOK_VECTORS_LEAST for each centroid, or a key is not finite. */
enum ha_status ha_codebook_fit(const struct ha_fit_input *in, struct ha_fit_writer *out,
                               const struct ha_codebook_learning *learning, struct ha_why *why);

#endif
