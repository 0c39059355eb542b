/* Look-ups over several layers and sequences, against plain loops in binary64: who misses, how similar, and what is a
 * label then. */

#include "suites/similarity_cache/query_labels.h"
#include "suites/parts/test_instance.h"

#include "harness/base/rng.h"

#include <math.h>

enum { LAYERS = 2, BATCH = 2, KV_HEADS = 3, GROUP = 2, Q_HEADS = KV_HEADS * GROUP, DIM = 16, Q_MAX = 3 };
enum { LABELS = BATCH * Q_HEADS * DIM, HEADS = BATCH * KV_HEADS };

static const struct ha_rule nothing = { .seq_bytes = 0 };

static struct {
    struct ha_shape shape;
    struct ha_reuse reuse;
    float threshold[LAYERS * KV_HEADS], importance[LAYERS * Q_HEADS];
    bool persistent[LAYERS * KV_HEADS];
    struct ha_query_labels labels;
    float q[BATCH * Q_MAX * Q_HEADS * DIM], *device_q;
    uint32_t *missed;             /* mapped */
    double label[LAYERS][LABELS]; /* as they are to be */
} w;

static void begin(size_t q_len, enum ha_similar group)
{
    memset(&w, 0, sizeof w);
    w.shape = (struct ha_shape){ .layers = LAYERS,
                                 .batch = BATCH,
                                 .q_heads = Q_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .head_dim = DIM,
                                 .dtype = HA_F16,
                                 .q_len = q_len,
                                 .steps = 1 };
    open_context(&ha_device_host, &w.shape, &nothing);
    for (size_t i = 0; i < COUNT(w.threshold); i++) w.threshold[i] = 0.2f + 0.1f * (float)i;
    for (size_t i = 0; i < COUNT(w.importance); i++) w.importance[i] = 1 / (1 + (float)i);
    for (size_t h = 0; h < KV_HEADS; h++) w.persistent[h] = h == 1; /* of the first layer */
    w.reuse = (struct ha_reuse){ w.threshold, w.importance, w.persistent };
    ok(ha_query_labels_create(&w.labels, &mine.ctx, &w.reuse, group, &why));
    w.device_q = memory_of(HA_MEM_DEVICE, sizeof w.q);
    w.missed = memory_of(HA_MEM_MAPPED, HEADS * sizeof *w.missed);
}

static void clear(size_t layer)
{
    ok(ha_query_labels_clear(&w.labels, layer));
    memset(w.label[layer], 0, sizeof *w.label);
}

static double cosine(const float *q, const double *label)
{
    double product = 0, of_q = 0, of_label = 0;
    for (size_t d = 0; d < DIM; d++) {
        product += (double)q[d] * label[d];
        of_q += (double)q[d] * (double)q[d];
        of_label += label[d] * label[d];
    }
    return product / sqrt(of_q * of_label);
}

/* NaN: there is no label */
static double similarity(size_t layer, size_t b, size_t head, enum ha_similar group)
{
    double least = HUGE_VAL, weights = 0, weighted = 0;
    for (size_t m = head * GROUP; m < (head + 1) * GROUP; m++) {
        double of = HUGE_VAL;
        for (size_t t = 0; t < w.shape.q_len; t++) {
            const double x = cosine(w.q + ((b * w.shape.q_len + t) * Q_HEADS + m) * DIM,
                                    w.label[layer] + (b * Q_HEADS + m) * DIM);
            of = isnan(x) || x < of ? x : of;
        }
        const double weight = (double)w.importance[layer * Q_HEADS + m];
        weights += weight;
        weighted += weight / of;
        least = isnan(of) || of < least ? of : least;
    }
    return group == HA_SIMILAR_LEAST || !(least > 0) ? least : weights / weighted;
}

/* of the whole batch; how many hit */
static size_t look_up(size_t layer, enum ha_similar group)
{
    const size_t token = Q_HEADS * DIM, last = w.shape.q_len - 1;
    size_t hits = 0;
    move(w.device_q, w.q, BATCH * w.shape.q_len * token * sizeof *w.q, HA_H2D);
    for (size_t i = 0; i < HEADS; i++) w.missed[i] = 7;
    ok(ha_query_labels_look_up(&w.labels, layer, w.device_q, w.missed));
    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
    for (size_t i = 0; i < HEADS; i++) {
        const size_t b = i / KV_HEADS, h = i % KV_HEADS;
        const bool kept = w.persistent[layer * KV_HEADS + h];
        const double is = similarity(layer, b, h, group), said = (double)w.labels.layer[layer].similarity[i],
                     least = (double)w.threshold[layer * KV_HEADS + h];
        const bool hit = kept || (is >= least && (is > 0 || group == HA_SIMILAR_LEAST));
        if (w.missed[i] != !hit || (isnan(is) ? !isnan(said) : !(fabs(is - said) <= 1e-5)))
            fail_msg("layer %zu, sequence %zu, head %zu: %u, %g; similarity is %g, threshold %g", layer, b, h,
                     w.missed[i], said, is, least);
        hits += hit && !kept;
        for (size_t j = 0; j < GROUP * DIM && !hit; j++)
            w.label[layer][b * token + h * GROUP * DIM + j] =
                (double)w.q[(b * w.shape.q_len + last) * token + h * GROUP * DIM + j];
    }
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < LABELS; i++)
            if ((double)w.labels.layer[l].label[i] != w.label[l][i])
                fail_msg("layer %zu: number %zu of the labels is %g, not %g", l, i, (double)w.labels.layer[l].label[i],
                         w.label[l][i]);
    return hits;
}

/* Each token's query is so much of the one before it. */
static void turn(uint64_t seed, size_t step)
{
    const size_t token = Q_HEADS * DIM, q_len = w.shape.q_len;
    const float keep = 1 - 0.2f * (float)(step % 5);
    for (size_t i = 0; i < BATCH * q_len * token; i++) {
        const size_t t = i / token % q_len, before = t > 0 ? i - token : i + (q_len - 1) * token;
        w.q[i] = (t > 0 ? 1 : keep) * w.q[before] + 0.3f * ha_rng_normal(seed, step, i);
    }
}

TEST(look_ups_are_as_plain_loops_have_them)
{
    for (int group = HA_SIMILAR_LEAST; group <= HA_SIMILAR_HARMONIC; group++)
        for (size_t q_len = 1; q_len <= Q_MAX; q_len += Q_MAX - 1) {
            size_t hits = 0;
            begin(q_len, (enum ha_similar)group);
            for (size_t l = 0; l < LAYERS; l++) clear(l);
            for (size_t step = 0; step < 60; step++) {
                turn(5, step);
                for (size_t l = 0; l < LAYERS; l++) hits += look_up(l, (enum ha_similar)group);
            }
            /* some do, some do not */
            if (hits < 50 || hits + 200 > 60 * LAYERS * HEADS) fail_msg("%zu hits", hits);
            close_instance();
        }
}

/* The same query is similar by 1, whatever it is, and so hits by the highest threshold; nothing does without a label.
 */
TEST(the_same_query_hits)
{
    for (int group = HA_SIMILAR_LEAST; group <= HA_SIMILAR_HARMONIC; group++) {
        begin(1, (enum ha_similar)group);
        for (size_t i = 0; i < COUNT(w.threshold); i++) w.threshold[i] = 1;
        memset(w.persistent, 0, sizeof w.persistent);
        ok(ha_query_labels_create(&w.labels, &mine.ctx, &w.reuse, (enum ha_similar)group, &why));
        for (size_t l = 0; l < LAYERS; l++) clear(l);
        for (size_t step = 0; step < 40; step++) {
            for (size_t i = 0; i < COUNT(w.q); i++) w.q[i] = ha_rng_normal(3, step, i) * ldexpf(1, (int)step - 20);
            move(w.device_q, w.q, sizeof w.q, HA_H2D);
            for (size_t again = 0; again < 2; again++)
                for (size_t l = 0; l < LAYERS; l++) {
                    ok(ha_query_labels_look_up(&w.labels, l, w.device_q, w.missed));
                    ok(mine.ctx.api->stream_sync(mine.ctx.stream));
                    for (size_t i = 0; i < HEADS; i++) {
                        assert_int_equal(w.missed[i], !again);
                        if (again) assert_true(w.labels.layer[l].similarity[i] == 1);
                    }
                }
        }
        clear(1);
        for (size_t l = 0; l < LAYERS; l++) {
            ok(ha_query_labels_look_up(&w.labels, l, w.device_q, w.missed));
            ok(mine.ctx.api->stream_sync(mine.ctx.stream));
            for (size_t i = 0; i < HEADS; i++) assert_int_equal(w.missed[i], l);
        }
        close_instance();
    }
}

/* A query that is equal but in length is as similar; one that points elsewhere is not, by whatever threshold. */
TEST(a_mean_of_what_is_not_positive_misses)
{
    begin(1, HA_SIMILAR_HARMONIC);
    for (size_t i = 0; i < COUNT(w.threshold); i++) w.threshold[i] = -1;
    memset(w.persistent, 0, sizeof w.persistent);
    ok(ha_query_labels_create(&w.labels, &mine.ctx, &w.reuse, HA_SIMILAR_HARMONIC, &why));
    for (size_t l = 0; l < LAYERS; l++) clear(l);
    for (size_t i = 0; i < COUNT(w.q); i++) w.q[i] = ha_rng_normal(3, 1, i);
    assert_int_equal(look_up(0, HA_SIMILAR_HARMONIC), 0);
    for (size_t i = 0; i < COUNT(w.q); i++) w.q[i] *= 3;
    assert_int_equal(look_up(0, HA_SIMILAR_HARMONIC), HEADS);
    for (size_t i = 0; i < DIM; i++) w.q[i] *= -1; /* the first query head of all */
    assert_int_equal(look_up(0, HA_SIMILAR_HARMONIC), HEADS - 1);
    close_instance();
}
