#include "datasets/source.h"

#include "harness/base/rng.h"
#include "harness/base/why.h"

#include <math.h>

/* Inputs that turn slowly over tokens and layers, so that the next layer's query can be predicted and that what the
 * last token chose serves the next; keys in topics. Heads are streaming, retrieval, flat and sink in turn.
 *
 * x repeats PERIOD coordinates: SLOW numbers y, which are three parts, and noise that each token draws anew. In each
 * part y goes from one random vector to the next in a width of tokens, at constant length, and turns by 18 degrees a
 * layer (cosine 0.951; noise does not turn). Heads of a KV head share a matrix G [head_dim][model_dim]. W_Q of a head
 * is G with the columns of each part times the gain of the head's kind, plus a matrix of its own: a query is the sum of
 * the images G y of the parts times gains, and of noise that makes the cosine of neighbouring queries 0.93.
 *
 * A key is noise plus the images under the same G of the position part at its token, of its topic, and for the first
 * tokens of the sink part instead. A topic is one of 64 vectors of signs in place of the topic part, is drawn for
 * each layer and KV head, lasts for 16 to 112 tokens, and fades.
 *
 * x and W_Q are small integers times a power of two, so that W_Q x is exact in binary32 whatever the order of its sum:
 * |w| is at most 4 + 4 gain units; the |x| of a part sum up to 64.5 for each of its coordinates, noise is at most 314.
 * So PERIOD coordinates add up to less than 2^18, and 8192 of them to less than 2^24. */

enum { SINK, TOPIC, POSITION, PARTS, SLOW = 82, PERIOD = 128, KINDS = 4, SEGMENT = 128, RUN_MIN = 16, TURNS = 20 };
#define X_SIZE    64
#define X_UNIT    0x1p-6f
#define KEY_NOISE 0.2f
#define LEAST     0x1p-10f /* of the mean square of an image, else narrow shapes had keys out of all measure */
#define FADE      64.0f    /* tokens after which a topic is half as strong */

static const struct part {
    enum ha_purpose purpose;
    size_t first, count; /* of y; count is even */
    size_t width;        /* tokens from one random vector to the next */
    float score;         /* of a key with the image of the part in a query of gain 1 that has the same */
} PART[PARTS] = {
    [SINK] = { HA_FOR_SINK, 0, 16, SIZE_MAX, 4 },
    [TOPIC] = { HA_FOR_TOPIC, 16, 6, 128, 2 },
    [POSITION] = { HA_FOR_POSITION, 22, 60, 256, 3.4f },
};

/* W_Q is multiplied by size, too. */
static const struct kind {
    float gain[PARTS], size;
} KIND[KINDS] = {
    { { 2, 1, 3 }, 2 },      /* streaming */
    { { 1, 9, 0 }, 1 },      /* retrieval */
    { { 1, 9, 0 }, 0.125f }, /* flat */
    { { 5, 6, 0 }, 1 },      /* sink */
};

/* cos(18 i degrees); the sine is a quarter of the table before */
static const float COSINE[TURNS] = { 1,        0.9511f,  0.8090f,  0.5878f, 0.3090f,  0,        -0.3090f,
                                     -0.5878f, -0.8090f, -0.9511f, -1,      -0.9511f, -0.8090f, -0.5878f,
                                     -0.3090f, 0,        0.3090f,  0.5878f, 0.8090f,  0.9511f };

/* part p of y: [count], of length sqrt(count) */
static void part_at(const struct ha_source *src, size_t seq, size_t layer, size_t token, const struct part *p, float *y)
{
    uint64_t stream = ha_stream(p->purpose, seq, 0, 0);
    float ends[2 * SLOW], way = (float)(token % p->width) / (float)p->width, square = 0;
    ha_rng_normals(src->seed, stream, token / p->width * p->count, 2 * p->count, ends);
    for (size_t j = 0; j < p->count; j++) {
        y[j] = (1 - way) * ends[j] + way * ends[p->count + j];
        square += y[j] * y[j];
    }
    float size = square > 0 ? sqrtf((float)p->count / square) : 1;
    float c = size * COSINE[layer % TURNS], s = size * COSINE[(layer + TURNS - TURNS / 4) % TURNS];
    for (size_t j = 0; j < p->count; j += 2) {
        float a = y[j], b = y[j + 1];
        y[j] = c * a - s * b;
        y[j + 1] = s * a + c * b;
    }
}

/* ---- x and W_Q -------------------------------------------------------------------------- */

/* the images of the SLOW coordinates of y under G of a KV head: [SLOW][head_dim] */
static float *images(const struct ha_source *src, size_t layer, size_t kv_head)
{
    const struct ha_input_source *s = (const void *)src;
    return s->images + (layer * src->shape.kv_heads + kv_head) * SLOW * src->shape.head_dim;
}

static void integers(uint64_t seed, uint64_t stream, size_t row, size_t n, float *out)
{
    ha_rng_normals(seed, stream, row * n, n, out);
    for (size_t j = 0; j < n; j++) out[j] = (float)ha_whole(0.9f * out[j]);
}

/* W_Q of all query heads of a KV head, and their images */
static void weights(struct ha_source *src, size_t layer, size_t kv_head)
{
    const struct ha_input_source *s = (const void *)src;
    size_t d = src->shape.head_dim, n = src->shape.model_dim, group = ha_shape_group(&src->shape);
    float g[HA_MODEL_DIM_MAX], *image = images(src, layer, kv_head), unit = ha_wq_unit(n) / 4;
    float gain[KINDS][PERIOD] = { 0 };
    for (size_t i = 0; i < KINDS; i++)
        for (size_t p = 0; p < PARTS; p++)
            for (size_t j = 0; j < PART[p].count; j++) gain[i][PART[p].first + j] = KIND[i].gain[p];
    for (size_t i = 0; i < d; i++) {
        integers(src->seed, ha_stream(HA_FOR_WQ, 0, layer, kv_head), i, n, g);
        for (size_t j = 0; j < n; j++)
            if (j % PERIOD < SLOW) image[j % PERIOD * d + i] += g[j] * unit;
        for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            float *w = s->wq + layer * s->wq_floats + (head * d + i) * n;
            integers(src->seed, ha_stream(HA_FOR_OWN_WQ, 0, layer, head), i, n, w);
            for (size_t j = 0; j < n; j++)
                w[j] = (w[j] + gain[head % KINDS][j % PERIOD] * g[j]) * (KIND[head % KINDS].size * unit);
        }
    }
}

static enum ha_status walk_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    HA_TRY(ha_input_source_open(self, src, SLOW, shape, total_tokens, seed, file, why));
    for (size_t layer = 0; layer < shape->layers; layer++)
        for (size_t head = 0; head < shape->kv_heads; head++) weights(*src, layer, head);
    return HA_OK;
}

static void walk_input(struct ha_source *src, size_t seq, size_t layer, size_t token, float *x)
{
    size_t n = src->shape.model_dim;
    float y[SLOW];
    for (const struct part *p = PART; p < PART + PARTS; p++) part_at(src, seq, layer, token, p, y + p->first);
    ha_rng_normals(src->seed, ha_stream(HA_FOR_INPUT, seq, 0, 0), token * n, n, x);
    for (size_t j = 0; j < n; j++) x[j] = (float)ha_whole(X_SIZE * (j % PERIOD < SLOW ? y[j % PERIOD] : x[j])) * X_UNIT;
}

static void walk_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    float x[HA_MODEL_DIM_MAX];
    walk_input(src, seq, layer, token, x);
    ha_input_source_query(src, layer, head, x, q);
}

/* ---- keys ------------------------------------------------------------------------------- */

/* row += the image of part p of y, as long as gives a query of gain 1 that is this image `share` of the part's score */
static void add(const struct ha_source *src, size_t layer, size_t head, const struct part *p, float share,
                const float *y, float *row)
{
    size_t d = src->shape.head_dim;
    const float *image = images(src, layer, head) + p->first * d;
    float sum[HA_HEAD_DIM_MAX] = { 0 }, square = 0;
    for (size_t j = 0; j < p->count; j++, image += d)
        for (size_t i = 0; i < d; i++) sum[i] += y[j] * image[i];
    for (size_t i = 0; i < d; i++) square += sum[i] * sum[i];
    if (square < LEAST * (float)d) square = LEAST * (float)d;
    float gain = share * p->score * sqrtf((float)d) / square;
    for (size_t i = 0; i < d; i++) row[i] += gain * sum[i];
}

/* Each SEGMENT has two runs of one topic each. The run of a token, and how many tokens of it are before that one. */
static size_t run_of(const struct ha_source *src, size_t seq, size_t token, size_t *before)
{
    size_t segment = token / SEGMENT, at = token % SEGMENT;
    size_t cut = RUN_MIN
                 + ha_rng_below(src->seed, ha_stream(HA_FOR_CUT, seq, 0, 0), segment, SEGMENT - 2 * RUN_MIN + 1);
    *before = at < cut ? at : at - cut;
    return 2 * segment + (at >= cut);
}

static void walk_keys(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k)
{
    size_t d = src->shape.head_dim;
    float row[HA_HEAD_DIM_MAX], y[SLOW];
    for (size_t token = first; token < first + count; token++) {
        ha_noise_row(src, ha_stream(HA_FOR_KEY, seq, layer, head), token, row);
        for (size_t i = 0; i < d; i++) row[i] *= KEY_NOISE;
        part_at(src, seq, layer, token, &PART[POSITION], y);
        add(src, layer, head, &PART[POSITION], 1, y, row);
        if (token < HA_SINKS) {
            part_at(src, seq, layer, token, &PART[SINK], y);
            add(src, layer, head, &PART[SINK], 1, y, row);
        } else {
            size_t before, run = run_of(src, seq, token, &before);
            uint64_t signs = ha_rng_bits(src->seed, ha_stream(HA_FOR_SIGN, seq, layer, head), run);
            for (size_t j = 0; j < PART[TOPIC].count; j++) y[j] = signs >> j & 1 ? 1 : -1;
            add(src, layer, head, &PART[TOPIC], FADE / (FADE + (float)before), y, row);
        }
        ha_row_store(src, k, token - first, row);
    }
}

static void walk_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                    void *v)
{
    if (k) walk_keys(src, seq, layer, head, first, count, k);
    if (v) ha_sinks_values(src, seq, layer, head, first, count, v);
}

const struct ha_dataset ha_dataset_walk = {
    .name = "walk",
    .doc = "x turns slowly over tokens and layers, q = W_Q x, keys in topics; heads streaming, retrieval, flat, sink",
    .open = walk_open,
    .close = ha_source_close,
    .kv = walk_kv,
    .query = walk_query,
    .input = walk_input,
    .projection = ha_input_source_projection,
};
