#include "datasets/source.h"
#include "harness/base/why.h"

#include <string.h>

/* Queries for caches that are labelled with queries, and that may be wrong about it. Keys and values are noise.
 *
 *   again       each head's query is the same at every token
 *   near        a fixed one and noise, so that two of them have a cosine of 0.8, give or take 1/sqrt(head_dim)
 *   jump        cosine 0.98, and every RUN tokens another direction
 *   one_token   as again, and the same for all sequences, whose keys differ in one token: of all but the first it is
 * like the query of the KV head's first query head, and holds nearly all the mass of that */

enum mode { AGAIN, NEAR, JUMP, ONE_TOKEN, MODES };
enum { RUN = 16 };
static const struct {
    const char *name;
    float fixed, noise; /* the sum of their squares is 9 */
} modes[MODES] = { [AGAIN] = { "again", 3, 0 },
                   [NEAR] = { "near", 2.6832816f, 1.3416408f },
                   [JUMP] = { "jump", 2.9698485f, 0.42426407f },
                   [ONE_TOKEN] = { "one_token", 3, 0 } };

struct again {
    struct ha_source base;
    enum mode mode;
};

static enum ha_status again_open(const struct ha_dataset *self, struct ha_source **src, struct ha_shape *shape,
                                 size_t total_tokens, uint64_t seed, const char *file, struct ha_why *why)
{
    size_t mode = 0;
    HA_TRY(ha_source_make(self, src, sizeof(struct again), shape, total_tokens, seed, file, why));
    while (strcmp(modes[mode].name, self->name) != 0) mode++;
    ((struct again *)*src)->mode = (enum mode)mode;
    return HA_OK;
}

static uint64_t directions(const struct again *a, size_t seq, size_t layer, size_t head)
{
    return ha_stream(HA_FOR_QUERY, a->mode == ONE_TOKEN ? 0 : seq, layer, head);
}

static void again_query(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t token, float *q)
{
    const struct again *a = (const struct again *)src;
    float noise[HA_HEAD_DIM_MAX];
    ha_noise_row(src, directions(a, seq, layer, head), a->mode == JUMP ? token / RUN : 0, q);
    ha_noise_row(src, ha_stream(HA_FOR_SIGN, seq, layer, head), token, noise);
    for (size_t j = 0; j < src->shape.head_dim; j++)
        q[j] = modes[a->mode].fixed * q[j] + modes[a->mode].noise * noise[j];
    ha_row_round(src, q);
}

static void again_kv(struct ha_source *src, size_t seq, size_t layer, size_t head, size_t first, size_t count, void *k,
                     void *v)
{
    const struct again *a = (const struct again *)src;
    const size_t other = src->total_tokens / 2, group = src->shape.q_heads / src->shape.kv_heads;
    float row[HA_HEAD_DIM_MAX];
    ha_noise_kv(src, a->mode == ONE_TOKEN ? 0 : seq, layer, head, first, count, k, v);
    if (a->mode != ONE_TOKEN || seq == 0 || other < first || other >= first + count) return;
    ha_noise_row(src, directions(a, seq, layer, head * group), 0, row);
    if (k) ha_row_store(src, k, other - first, row);
    ha_noise_row(src, ha_stream(HA_FOR_VALUE, seq, layer, head), other, row);
    if (v) ha_row_store(src, v, other - first, row);
}

#define DATASET(of, text)                                                                                            \
    const struct ha_dataset ha_dataset_##of = {                                                                      \
        .name = #of, .doc = text, .open = again_open, .close = ha_source_close, .kv = again_kv, .query = again_query \
    };
DATASET(again, "a head's query is the same at every token; keys are noise")
DATASET(near, "any two queries of a head have a cosine near 0.8; keys are noise")
DATASET(jump, "queries of cosine 0.98, and every 16 tokens another direction; keys are noise")
DATASET(one_token,
        "as again, the same for all sequences, whose keys differ in one token that holds nearly all the mass")
