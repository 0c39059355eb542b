/* The judge of labels: what binary32 makes of a cosine in any order is right, other numbers are not; hits and misses
 * are open where a rounding decides them and nowhere else; labels change where a KV head misses. */

#include "harness/api/reference.h"
#include "harness/base/rng.h"
#include "harness/base/test.h"

#include <math.h>

enum { GROUP_MAX = 4, TOKENS_MAX = 2, DIM_MAX = 256 };

static struct {
    float q[TOKENS_MAX * GROUP_MAX * DIM_MAX], before[GROUP_MAX * DIM_MAX], label[GROUP_MAX * DIM_MAX];
    float importance[GROUP_MAX], threshold, similarity;
    uint32_t missed;
    struct ha_device_similarity_seq seq;
    struct ha_device_similarity args;
} w;

static void world(size_t q_len, size_t group, size_t dim, enum ha_similar of)
{
    memset(&w, 0, sizeof w);
    for (size_t h = 0; h < GROUP_MAX; h++) w.importance[h] = 1;
    w.seq = (struct ha_device_similarity_seq){ w.q, w.label, &w.similarity, &w.missed };
    w.args = (struct ha_device_similarity){ 1, q_len, group, 1, dim, of, w.importance, &w.threshold, &w.seq };
}

/* What the judge says of such an answer, whose labels are as they then must be. */
static double answered(float threshold, float similarity, bool missed)
{
    const size_t n = w.args.q_heads * w.args.head_dim;
    w.threshold = threshold;
    w.similarity = similarity;
    w.missed = missed;
    memcpy(w.label, missed ? w.q + (w.args.q_len - 1) * n : w.before, n * sizeof *w.label);
    return ha_ref_judge_similarity(&w.args, 0, 0, w.before);
}
static void right(float threshold, float similarity, bool missed)
{
    const double ratio = answered(threshold, similarity, missed);
    if (!(ratio <= 1))
        fail_msg("%.9g, threshold %.9g, missed %d: %g", (double)similarity, (double)threshold, missed, ratio);
}
static void wrong(float threshold, float similarity, bool missed)
{
    if (answered(threshold, similarity, missed) <= 1)
        fail_msg("%.9g, threshold %.9g, missed %d: right", (double)similarity, (double)threshold, missed);
}

TEST(a_query_that_is_its_label_has_similarity_1)
{
    for (int of = HA_SIMILAR_LEAST; of <= HA_SIMILAR_HARMONIC; of++) {
        world(2, 3, 50, (enum ha_similar)of);
        for (size_t i = 0; i < 150; i++) w.q[i] = w.q[150 + i] = w.before[i] = ha_rng_normal(1, 0, i);
        right(1, 1, false);
        wrong(1, 1, true);
        wrong(0, nextafterf(1, 0), false);
        wrong(0, nextafterf(1, 2), false);
        right(nextafterf(1, 2), 1, true);
        wrong(nextafterf(1, 2), 1, false);
    }
}

/* one of two query heads has 0.6, the other 0.96 at the last token and 1 before */
TEST(similarities_by_hand)
{
    static const float q[] = { 4, 3, 3, 4, 3, 4, 5, 0 }, label[] = { 8, 6, 3, 4 };
    const float mean = (float)(4 / (3 / 0.96 + 1 / 0.6));
    world(2, 2, 2, HA_SIMILAR_LEAST);
    memcpy(w.q, q, sizeof q);
    memcpy(w.before, label, sizeof label);
    right(0.5f, 0.6f, false);
    right(0.7f, 0.6f, true);
    wrong(0.5f, 0.6f, true);
    wrong(0.7f, 0.6f, false);
    right(0.6f, 0.6f, false); /* a rounding decides */
    right(0.6f, 0.6f, true);
    wrong(0.6f - 1e-5f, 0.6f, true);
    wrong(0.6f + 1e-5f, 0.6f, false);
    wrong(0.5f, 0.6f + 1e-5f, false);
    wrong(0.5f, 0.6f - 1e-5f, false);
    wrong(0.5f, NAN, false);
    right(-1.5f, 0.6f, false);
    wrong(-1.5f, 0.6f, true);
    w.args.group = HA_SIMILAR_HARMONIC;
    w.importance[0] = 3;
    right(0.8f, mean, false);
    wrong(0.8f, mean, true);
    right(mean, mean, true);
    right(mean, mean, false);
    wrong(mean + 1e-5f, mean, false);
    wrong(0.5f, 0.6f, false);
    wrong(0.5f, 0.87f, false); /* the arithmetic mean */
}

/* No product of an element with one of its label is anything but 0: nothing is rounded. */
TEST(across_is_0)
{
    for (int of = HA_SIMILAR_LEAST; of <= HA_SIMILAR_HARMONIC; of++) {
        world(1, 2, 4, (enum ha_similar)of);
        for (size_t i = 0; i < 8; i++) *(i % 2 ? &w.q[i] : &w.before[i]) = 1 + (float)i;
        (of == HA_SIMILAR_LEAST ? right : wrong)(0, 0, false); /* of a harmonic mean all are positive */
        (of == HA_SIMILAR_LEAST ? wrong : right)(0, 0, true);
        right(1e-9f, 0, true);
        wrong(1e-9f, 0, false);
        wrong(-1, 1e-9f, false);
    }
}

TEST(labels_change_on_a_miss_alone)
{
    enum { N = 6 }; /* of a token */
    world(2, 2, 3, HA_SIMILAR_LEAST);
    for (size_t i = 0; i < 2 * N; i++) w.q[i] = ha_rng_normal(2, 0, i);
    for (size_t i = 0; i < N; i++) w.before[i] = w.q[i] + w.q[N + i];
    float least = 1;
    for (size_t r = 0; r < 4; r++) {
        const float *q = w.q + r * 3, *label = w.before + r % 2 * 3;
        float sum[3] = { 0 };
        for (size_t d = 0; d < 3; d++) sum[0] += q[d] * label[d], sum[1] += q[d] * q[d], sum[2] += label[d] * label[d];
        least = fminf(least, sum[0] / sqrtf(sum[1] * sum[2]));
    }
    for (int missed = 0; missed < 2; missed++) {
        right(missed ? 2 : -1, least, missed);
        for (size_t i = 0; i < N; i++) {
            const float is = w.label[i];
            w.label[i] = missed ? w.before[i] : w.q[N + i];
            assert_true(isinf(ha_ref_judge_similarity(&w.args, 0, 0, w.before)));
            w.label[i] = w.q[i]; /* of the first token */
            assert_true(isinf(ha_ref_judge_similarity(&w.args, 0, 0, w.before)));
            w.label[i] = is;
        }
    }
    w.missed = 2; /* is neither */
    assert_true(isinf(ha_ref_judge_similarity(&w.args, 0, 0, w.before)));
}

TEST(what_is_no_number_misses)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    for (int of = HA_SIMILAR_LEAST; of <= HA_SIMILAR_HARMONIC; of++)
        for (size_t i = 0; i < 6; i++) {
            world(1, 2, 2, (enum ha_similar)of);
            for (size_t d = 0; d < 4; d++) w.q[d] = w.before[d] = 1 + (float)d;
            if (i < 3) w.q[2] = odd[i];
            else if (i == 3) w.before[3] = NAN;
            else if (i == 4) w.before[2] = w.before[3] = 0;
            else w.q[0] = w.q[1] = 0;
            right(0.5f, NAN, true);
            wrong(0.5f, NAN, false);
            wrong(0.5f, 1, false);
            wrong(0.5f, 0, true);
            wrong(-1, NAN, false);
            right(-2, NAN, false); /* which always hits */
            wrong(-2, NAN, true);
        }
    world(1, 1, 1, HA_SIMILAR_LEAST);
    w.q[0] = w.before[0] = 1;
    right(NAN, 1, true); /* nothing is at least that */
    wrong(NAN, 1, false);
}

TEST(a_harmonic_mean_is_of_positive_numbers)
{
    world(1, 2, 2, HA_SIMILAR_HARMONIC);
    static const float label[] = { 3, 4, 1, 0 }, q[] = { 3, 4, -3, 4 };
    memcpy(w.q, q, sizeof q);
    memcpy(w.before, label, sizeof label);
    right(-1, -0.6f, true);
    wrong(-1, -0.6f, false); /* however low the threshold */
    right(-2, -0.6f, false);
    wrong(-1, 2 / (1 - 1 / 0.6f), true);
    w.args.group = HA_SIMILAR_LEAST;
    right(-1, -0.6f, false);
    /* a sum of 2^24 - 2^24 + 1 may be 0, or 1 */
    w.args.group = HA_SIMILAR_HARMONIC;
    w.args.head_dim = 3;
    const float long_label[] = { 1, 1, 1, 0x1p12f, 0x1p12f, 1 }, long_q[] = { 1, 1, 1, 0x1p12f, -0x1p12f, 1 };
    memcpy(w.q, long_q, sizeof long_q);
    memcpy(w.before, long_label, sizeof long_label);
    const float is = 1 / (0x1p25f + 1), mean = 2 / (1 + 1 / is);
    right(0, 0, true);
    right(0, mean, false);
    right(0, -is, true);
    wrong(0, -is, false);
    wrong(0, mean, true);
    wrong(0.1f, mean, false);
}

/* Squares that leave the normal numbers: of such rows nothing is known, but that a label changes where it says so. */
TEST(sums_beyond_binary32_are_open)
{
    world(1, 1, 2, HA_SIMILAR_LEAST);
    for (int side = 0; side < 2; side++) {
        w.q[0] = w.before[0] = side ? 0x1p70f : 0x1p-70f;
        w.q[1] = -w.q[0];
        w.before[1] = w.q[0];
        right(0.5f, NAN, true);
        right(0.5f, 1, false);
        right(0.5f, 0, true);
        wrong(-2, 0, true);
    }
    w.q[0] = w.q[1] = w.before[0] = w.before[1] = 0x1p-60f; /* small, and normal */
    right(1, 1, false);
    wrong(1, 1, true);
    wrong(0.5f, NAN, true);
}
