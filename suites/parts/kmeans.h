#ifndef HA_PARTS_KMEANS_H
#define HA_PARTS_KMEANS_H

/* k-means: centroids from which the sum of squared distances of vectors to their nearest one, the objective, is small.
 * It starts with k-means++ (Arthur and Vassilvitskii, SODA 2007), over all vectors or a random part of them, and goes
 * on by Lloyd's iterations or by mini-batches (Sculley, WWW 2010), which stop and seed starved centroids anew as
 * scikit-learn's MiniBatchKMeans does. */

#include "harness/api/kernels.h"

struct ha_arena;

enum ha_kmeans_way { HA_KMEANS_MINIBATCH, HA_KMEANS_LLOYD };
const char *ha_kmeans_word(size_t i);

enum { HA_KMEANS_BATCH = 10000 };

struct ha_kmeans {
    enum ha_kmeans_way way;
    size_t count;          /* of centroids, 1 to 65536 */
    size_t iterations;     /* at most so many passes over the vectors, or over as many drawn ones; 0: the start alone */
    size_t batch;          /* vectors of a mini-batch */
    uint64_t seed, stream; /* of what is drawn; streams 3 * stream to 3 * stream + 2 */
    const struct ha_kernels *kernels;
    struct ha_arena *arena; /* of what it needs, and gives back */
};

struct ha_kmeans_result {
    double objective; /* of all vectors */
    size_t steps;     /* Lloyd's iterations, or mini-batches */
};

/* x: [n][dims]; centroid: [dims][count], as struct ha_pq has a book. The same seed gives the same bits. The objective
 * never rises from one of Lloyd's iterations to the next; they end where it does not fall. After mini-batches it is not
 * above that of the start, which is kept where they have made nothing better of it. Where there are no more vectors
 * than centroids, the centroids are the vectors, over and over. HA_ERROR with words: no vectors, or a number in them
 * that is not finite or is beyond 1e17, whose square would be too large. */
enum ha_status ha_kmeans(const struct ha_kmeans *k, const float *x, size_t n, size_t dims, float *centroid,
                         struct ha_kmeans_result *result, struct ha_why *why);

#endif
