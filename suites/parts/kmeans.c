#include "suites/parts/kmeans.h"

#include "harness/base/arena.h"
#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>
#include <string.h>

HA_SHARED_WORDS(ha_kmeans_word, [HA_KMEANS_MINIBATCH] = "minibatch", [HA_KMEANS_LLOYD] = "lloyd")

/* Sums of distances are kept of so many vectors, for draws. */
enum { CHUNK = 1024 };
/* scikit-learn's: batches that the start is made of; batches without a better mean after which it ends; vectors for
 * each centroid after which starved ones are looked for; of the vectors that the largest has had, the share below which
 * one is starved */
enum { START_BATCHES = 3, STALE_MAX = 10, LOOK_AFTER = 10 };
static const double starved_share = 0.01;
static const float number_max = 1e17f;

enum { OF_START, OF_BATCH, OF_SEED, STREAMS }; /* what is drawn for */

struct run {
    const struct ha_kmeans *k;
    size_t dims;
    const float *all; /* [all_n][dims] */
    size_t all_n;
    float *centroid; /* [dims][count] */
    uint64_t drawn[STREAMS];

    /* What is looked at: all vectors, or some. */
    const float *x; /* [n][dims] */
    size_t n;
    uint16_t *code;    /* [n] the nearest centroid */
    float *distance;   /* [n] squared, to it */
    double *chunk_sum; /* [chunks] of distances */

    double *sum, *seen; /* [count][dims], [count]: of the vectors of a centroid; so many, in all batches so far */
    float *some;        /* [part][dims] vectors that were drawn */
    float *column;      /* [dims][part] of the start: the same */
    float *kept;        /* [dims][count] the best centroids so far */
};

static size_t chunks(size_t n) { return (n + CHUNK - 1) / CHUNK; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t most(size_t a, size_t b) { return a > b ? a : b; }

static double total(const struct run *r)
{
    double sum = 0;
    for (size_t i = 0; i < chunks(r->n); i++) sum += r->chunk_sum[i];
    return sum;
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static uint64_t stream(const struct run *r, int of) { return STREAMS * r->k->stream + (uint64_t)of; }

/* a vector of those looked at, as likely as it is far from its centroid (squared); any, where none is */
static size_t draw_far(struct run *r, int of)
{
    const uint64_t bits = ha_rng_bits(r->k->seed, stream(r, of), r->drawn[of]++);
    const double sum = total(r), uniform = (double)(bits >> 11) * 0x1p-53;
    if (!(sum > 0)) return least((size_t)(uniform * (double)r->n), r->n - 1);
    double left = uniform * sum;
    size_t chunk = 0, found = 0;
    while (chunk + 1 < chunks(r->n) && left >= r->chunk_sum[chunk]) left -= r->chunk_sum[chunk++];
    for (size_t i = chunk * CHUNK; i < least((chunk + 1) * CHUNK, r->n); i++) {
        if (!(r->distance[i] > 0)) continue;
        found = i;
        left -= (double)r->distance[i];
        if (left < 0) break;
    }
    return found;
}

/* Looks at n of all vectors, each of them any; at all where there are no more. */
static void look_at(struct run *r, size_t n)
{
    r->n = least(n, r->all_n);
    r->x = r->all;
    if (r->n == r->all_n) return;
    for (size_t i = 0; i < r->n; i++) {
        const uint64_t from = ha_rng_below(r->k->seed, stream(r, OF_BATCH), r->drawn[OF_BATCH]++, r->all_n);
        memcpy(r->some + i * r->dims, r->all + from * r->dims, r->dims * sizeof *r->some);
    }
    r->x = r->some;
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

/* Distances to the nearest centroid, after a new one. */
static void near_chunk(struct run *r, size_t chunk, const float *newest)
{
    const size_t first = chunk * CHUNK, n = least(CHUNK, r->n - first);
    float square[CHUNK] = { 0 };
    double sum = 0;
    for (size_t d = 0; d < r->dims; d++) {
        const float *x = r->column + d * r->n + first, c = newest[d];
        for (size_t i = 0; i < n; i++) square[i] += (x[i] - c) * (x[i] - c);
    }
    for (size_t i = 0; i < n; i++) {
        float *distance = &r->distance[first + i];
        *distance = square[i] < *distance ? square[i] : *distance;
        sum += (double)*distance;
    }
    r->chunk_sum[chunk] = sum;
}

static void put(struct run *r, size_t j, const float *vector)
{
    for (size_t d = 0; d < r->dims; d++) r->centroid[d * r->k->count + j] = vector[d];
}

static size_t start_vectors(const struct run *r) { return START_BATCHES * most(r->k->batch, r->k->count); }

static void start(struct run *r)
{
    look_at(r, start_vectors(r));
    for (size_t i = 0; i < chunks(r->n); i++) r->chunk_sum[i] = 0;
    for (size_t i = 0; i < r->n; i++) {
        r->distance[i] = INFINITY;
        for (size_t d = 0; d < r->dims; d++) r->column[d * r->n + i] = r->x[i * r->dims + d];
    }
    for (size_t j = 0; j < r->k->count; j++) {
        const float *newest = r->x + draw_far(r, OF_START) * r->dims;
        put(r, j, newest);
        for (size_t i = 0; i < chunks(r->n); i++) near_chunk(r, i, newest);
    }
}

/* ---- assignment and means ---------------------------------------------------------------------------------------- */

static void assign_chunk(struct run *r, size_t chunk)
{
    const size_t first = chunk * CHUNK, keys = least(CHUNK, r->n - first), count = r->k->count;
    const struct ha_pq pq = { r->centroid, .groups = 1, .dims = r->dims, .count = count, .books = 1, .bits = 16 };
    double sum = 0;
    /* codes of one group and 16 bits are an array of numbers */
    r->k->kernels->pq_encode(&(struct ha_pq_encode){
        .pq = pq,
        .rows = { .k = r->x + first * r->dims, .k_stride_bytes = r->dims * sizeof(float), .keys = keys },
        .dtype = HA_F32,
        .codes = r->code + first });
    for (size_t i = first; i < first + keys; i++) {
        double square = 0;
        for (size_t d = 0; d < r->dims; d++) {
            const double by = (double)r->x[i * r->dims + d] - (double)r->centroid[d * count + r->code[i]];
            square += by * by;
        }
        r->distance[i] = (float)square;
        sum += square;
    }
    r->chunk_sum[chunk] = sum;
}

/* The sum of the distances. */
static double assign(struct run *r)
{
    for (size_t i = 0; i < chunks(r->n); i++) assign_chunk(r, i);
    return total(r);
}

/* Centroids to the means of all vectors that they have seen, those looked at with them. */
static void move(struct run *r)
{
    const size_t count = r->k->count, dims = r->dims;
    for (size_t j = 0; j < count; j++)
        for (size_t d = 0; d < dims; d++) r->sum[j * dims + d] = (double)r->centroid[d * count + j] * r->seen[j];
    for (size_t i = 0; i < r->n; i++) {
        const size_t j = r->code[i];
        r->seen[j]++;
        for (size_t d = 0; d < dims; d++) r->sum[j * dims + d] += (double)r->x[i * dims + d];
    }
    for (size_t j = 0; j < count; j++)
        for (size_t d = 0; d < dims && r->seen[j] > 0; d++)
            r->centroid[d * count + j] = (float)(r->sum[j * dims + d] / r->seen[j]);
}

static void seed(struct run *r, size_t j) { put(r, j, r->x + draw_far(r, OF_SEED) * r->dims); }

/* ---- Lloyd's iterations and mini-batches ------------------------------------------------------------------------- */

static void keep(struct run *r) { memcpy(r->kept, r->centroid, r->k->count * r->dims * sizeof *r->kept); }

/* The centroids as they are now if their objective is less, else those kept. */
static bool accept(struct run *r, double now, struct ha_kmeans_result *result)
{
    const bool better = now < result->objective;
    if (better) result->objective = now;
    else memcpy(r->centroid, r->kept, r->k->count * r->dims * sizeof *r->kept);
    return better;
}

static void lloyd(struct run *r, struct ha_kmeans_result *result)
{
    const size_t count = r->k->count;
    look_at(r, r->all_n);
    result->objective = assign(r);
    while (result->steps < r->k->iterations && result->objective > 0) {
        keep(r);
        for (size_t j = 0; j < count; j++) r->seen[j] = 0;
        move(r);
        for (size_t j = 0; j < count; j++)
            if (!(r->seen[j] > 0)) seed(r, j);
        result->steps++;
        if (!accept(r, assign(r), result)) return;
    }
}

/* Centroids that have had too few vectors become vectors of the batch, half of the batch at most. */
static void seed_starved(struct run *r, size_t *since)
{
    const size_t count = r->k->count;
    double largest = 0, smallest = HUGE_VAL, fewest = HUGE_VAL;
    for (size_t j = 0; j < count; j++) {
        largest = fmax(largest, r->seen[j]);
        fewest = fmin(fewest, r->seen[j]);
    }
    *since += r->n;
    if (fewest > 0 && *since < LOOK_AFTER * count) return;
    *since = 0;
    for (size_t j = 0; j < count; j++)
        if (r->seen[j] >= starved_share * largest) smallest = fmin(smallest, r->seen[j]);
    for (size_t j = 0, left = r->n / 2; j < count && left > 0; j++) {
        if (r->seen[j] >= starved_share * largest) continue;
        seed(r, j);
        r->seen[j] = smallest;
        left--;
    }
}

/* The mean distance of a batch, smoothed over as many batches as there are in half of all vectors. */
struct settling {
    double mean, best;
    size_t stale;
};

static bool settled(struct settling *s, double mean, double weight)
{
    s->mean = s->mean < HUGE_VAL ? s->mean * (1 - weight) + mean * weight : mean;
    const bool better = s->mean < s->best;
    s->stale = better ? 0 : s->stale + 1;
    s->best = better ? s->mean : s->best;
    return s->stale >= STALE_MAX;
}

static void minibatch(struct run *r, struct ha_kmeans_result *result)
{
    const size_t batch = least(r->k->batch, r->all_n), steps = r->k->iterations * ((r->all_n + batch - 1) / batch);
    const double weight = fmin(1, 2 * (double)batch / ((double)r->all_n + 1));
    struct settling settling = { HUGE_VAL, HUGE_VAL, 0 };
    look_at(r, r->all_n);
    result->objective = assign(r);
    keep(r);
    for (size_t since = 0; result->steps < steps; result->steps++) {
        look_at(r, batch);
        const double mean = assign(r) / (double)r->n;
        move(r);
        seed_starved(r, &since);
        /* the first mean is that of the start */
        if (result->steps > 0 && settled(&settling, mean, weight)) break;
    }
    look_at(r, r->all_n);
    accept(r, assign(r), result);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static enum ha_status look_for_wrong(const float *x, size_t n, size_t dims, struct ha_why *why)
{
    if (n == 0) return ha_why(why, HA_ERROR, "k-means: there are no vectors");
    for (size_t i = 0; i < n * dims; i++)
        if (!(fabsf(x[i]) <= number_max))
            return ha_why(why, HA_ERROR, "k-means: vector %zu has %g in dimension %zu, and up to %g is wanted",
                          i / dims, (double)x[i], i % dims, (double)number_max);
    return HA_OK;
}

static enum ha_status run(struct run *r, struct ha_kmeans_result *result, struct ha_why *why)
{
    const struct ha_kmeans *k = r->k;
    const size_t part = most(start_vectors(r), k->batch), book = k->count * r->dims, n = r->all_n;
    const struct {
        void *at; /* of a pointer */
        size_t bytes;
    } room[] = {
        { &r->code, (n + HA_PQ_KEYS) * sizeof *r->code },
        { &r->distance, n * sizeof *r->distance },
        { &r->chunk_sum, chunks(n) * sizeof *r->chunk_sum },
        { &r->sum, book * sizeof *r->sum },
        { &r->seen, k->count * sizeof *r->seen },
        { &r->some, least(part, n) * r->dims * sizeof *r->some },
        { &r->column, least(part, n) * r->dims * sizeof *r->column },
        { &r->kept, book * sizeof *r->kept },
    };
    void *given[sizeof room / sizeof *room] = { NULL };
    size_t rooms = 0;
    while (rooms < sizeof room / sizeof *room) {
        given[rooms] = ha_alloc(k->arena, room[rooms].bytes, HA_TAG_SCRATCH, why);
        if (!given[rooms]) break;
        memcpy(room[rooms].at, &given[rooms], sizeof given[rooms]);
        rooms++;
    }
    const bool enough = rooms == sizeof room / sizeof *room;
    if (enough) {
        for (size_t j = 0; j < k->count; j++) r->seen[j] = 0;
        start(r);
        if (k->way == HA_KMEANS_LLOYD) lloyd(r, result);
        else minibatch(r, result);
    }
    while (rooms > 0) ha_free(k->arena, given[--rooms]);
    return enough ? HA_OK : HA_ERROR;
}

enum ha_status ha_kmeans(const struct ha_kmeans *k, const float *x, size_t n, size_t dims, float *centroid,
                         struct ha_kmeans_result *result, struct ha_why *why)
{
    struct run r = { .k = k, .dims = dims, .all = x, .all_n = n, .centroid = centroid };
    *result = (struct ha_kmeans_result){ 0 };
    HA_TRY(look_for_wrong(x, n, dims, why));
    if (n > k->count) return run(&r, result, why);
    for (size_t j = 0; j < k->count; j++) put(&r, j, x + j % n * dims);
    return HA_OK;
}
