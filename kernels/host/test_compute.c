/* Operations of a device that compute: calls with zero rows, results that are worked out by hand, and refused calls.
 * The suite device has shapes, types and special numbers: `habench check device`. */

#include "kernels/host/test_blocks.h"

#include <math.h>

enum { FLOATS = sizeof(float) };

static float *floats(size_t n) { return block(n * FLOATS); }
static float *drawn(size_t n, uint64_t seed)
{
    float *x = floats(n);
    normals(x, n, HA_F32, seed);
    return x;
}

/* batches of no sequence, steps of no token */
DEVICE_TEST(of_nothing)
{
    const struct ha_pq pq = { floats(1), 1, 1, 1, 1, 1 };
    float *one = floats(HA_FEATURES);
    ok(api->digest(stream, &(struct ha_device_digest){ .kv_heads = 1, .head_dim = 8, .unit = 1 }));
    ok(api->digest_score(stream, &(struct ha_device_digest_score){ .q_len = 1, .q_heads = 1, .kv_heads = 1 }));
    ok(api->columns(stream, &(struct ha_device_columns){ .heads = 1, .kv_heads = 1, .head_dim = 1 }));
    ok(api->score(stream, &(struct ha_device_score){ .q_heads = 1, .kv_heads = 1, .head_dim = 1 }));
    ok(api->topk(stream, &(struct ha_device_topk){ .rows = 1 }));
    ok(api->split(stream, &(struct ha_device_split){ .lists = 0 }));
    ok(api->rotate(stream, &(struct ha_device_rotate){ .heads = 2, .head_dim = 8 }));
    ok(api->hash(stream,
                 &(struct ha_device_hash){ .kv_heads = 1, .group = 1, .head_dim = 1, .bits = 32, .a = drawn(32, 1) }));
    ok(api->hamming(stream, &(struct ha_device_hamming){ .kv_heads = 1, .rows = 1, .bits = 32 }));
    ok(api->similarity(stream, &(struct ha_device_similarity){
                                   .q_len = 1, .q_heads = 1, .kv_heads = 1, .head_dim = 1, .threshold = one }));
    ok(api->pq_encode(stream, &(struct ha_device_pq_encode){ .kv_heads = 1, .pq = pq }));
    ok(api->pq_table(stream, &(struct ha_device_pq_table){ .q_len = 1, .q_heads = 1, .kv_heads = 1, .pq = pq }));
    ok(api->pq_score(stream, &(struct ha_device_pq_score){ .kv_heads = 1, .rows = 1, .pq = pq }));
    ok(api->softmax(stream, &(struct ha_device_softmax){ .heads = 1, .q_len = 1 }));
    ok(api->topp(stream, &(struct ha_device_topp){ .rows = 1, .p = 1 }));
    ok(api->weighted_sum(stream, &(struct ha_device_weighted_sum){ .q_heads = 1, .kv_heads = 1, .q_len = 1 }));
    ok(api->features(
        stream, &(struct ha_device_features){ .q_heads = 1, .kv_heads = 1, .head_dim = 1, .mean = one, .inv = one }));
    ok(api->net(stream, &(struct ha_net){ .layers = 1, .width = { 1, 1 }, .w = drawn(2, 1) }));
    ok(api->stream_sync(stream));
    release_memory();
}

/* ---- by hand */

/* Nearest by hand: halfway between two the first, and NaN is nearest to nothing but a NaN. */
DEVICE_TEST(codes_of_groups_by_hand)
{
    static const float book[2][5] = { { 0, 2, 2, 8, NAN }, { 0, 0, 0, 1, 0 } },
                       key[6][2] = { { 1, 0 }, { 2, 0 }, { 7, 1 }, { 5, 0.5f }, { NAN, 0 }, { -3, -9 } };
    static const uint32_t want[6] = { 0, 1, 3, 1, 0, 0 };
    float *centroid = floats(10), *k = floats(12);
    unsigned char *codes = device_block(64);
    memcpy(centroid, book, sizeof book);
    memcpy(k, key, sizeof key);
    const struct ha_device_pq_encode_seq seq = { { k, NULL, 8, 0, NULL, 6 }, 8, codes, 64, 1 };
    ok(api->pq_encode(stream, &(struct ha_device_pq_encode){ 1, 1, { centroid, 1, 2, 5, 1, 3 }, HA_F32, &seq }));
    ok(api->stream_sync(stream));
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 3; j++)
            if ((codes[(3 * (i + 1) + j) / 8] >> (3 * (i + 1) + j) % 8 & 1) != (want[i] >> j & 1))
                fail_msg("key %zu, bit %zu", i, j);
    assert_int_equal(codes[0] & 7, 7);
    release_memory();
}

/* A query equal to its label is similar by 1, whatever its length and the magnitude of its numbers. */
DEVICE_TEST(a_query_is_similar_to_itself)
{
    for (size_t i = 0; i < 64; i++) {
        enum { GROUP = 5 };
        const size_t dim = 1 + i * 3;
        float *q = drawn(GROUP * dim, i), *label = floats(GROUP * dim), *threshold = floats(1), *similar = floats(1),
              *importance = floats(GROUP);
        uint32_t *missed = block(sizeof *missed);
        for (size_t d = 0; d < GROUP * dim; d++) label[d] = q[d] = ldexpf(1 + fabsf(q[d]), (int)(i % 5) * 28 - 58);
        for (size_t h = 0; h < GROUP; h++) importance[h] = 0.1f + ha_rng_uniform(1, i, h);
        *threshold = 1;
        const struct ha_device_similarity_seq seq = { q, label, similar, missed };
        for (int of = HA_SIMILAR_LEAST; of <= HA_SIMILAR_HARMONIC; of++) {
            ok(api->similarity(stream, &(struct ha_device_similarity){ 1, 1, GROUP, 1, dim, (enum ha_similar)of,
                                                                       importance, threshold, &seq }));
            ok(api->stream_sync(stream));
            assert_true(*similar == 1);
            assert_int_equal(*missed, 0);
        }
        release_memory();
    }
}

/* Numbers that are worked out by hand: cosines 0.96 and 0.6 to the last token, 1 and 0.8 to the one before it. */
DEVICE_TEST(similarity_by_hand)
{
    static const float queries[2][4] = { { 4, 3, 3, 4 }, { 3, 4, 5, 0 } }, labels[4] = { 8, 6, 3, 4 };
    static const struct {
        enum ha_similar of;
        float weight[2], threshold, similarity;
        bool missed;
    } cases[] = {
        { HA_SIMILAR_LEAST, { 1, 1 }, 0.5f, 0.6f, false },
        { HA_SIMILAR_LEAST, { 1, 1 }, 0.7f, 0.6f, true },
        { HA_SIMILAR_HARMONIC, { 1, 1 }, 0.7f, 2 / (1 / 0.96f + 1 / 0.6f), false },
        { HA_SIMILAR_HARMONIC, { 3, 1 }, 0.8f, 4 / (3 / 0.96f + 1 / 0.6f), false },
        { HA_SIMILAR_HARMONIC, { 1, 3 }, 0.8f, 4 / (1 / 0.96f + 3 / 0.6f), true },
        { HA_SIMILAR_LEAST, { 1, 1 }, -1.5f, 0.6f, false },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        float *q = floats(8), *label = floats(4), *similar = floats(1), *importance = floats(2), *threshold = floats(1);
        uint32_t *missed = block(sizeof *missed);
        memcpy(q, queries, sizeof queries);
        memcpy(label, labels, sizeof labels);
        memcpy(importance, cases[i].weight, sizeof cases[i].weight);
        *threshold = cases[i].threshold;
        const struct ha_device_similarity_seq seq = { q, label, similar, missed };
        ok(api->similarity(stream,
                           &(struct ha_device_similarity){ 1, 2, 2, 1, 2, cases[i].of, importance, threshold, &seq }));
        ok(api->stream_sync(stream));
        if (!(fabsf(*similar - cases[i].similarity) < 1e-6f) || *missed != cases[i].missed)
            fail_msg("case %zu: %g, missed %u", i, (double)*similar, *missed);
        assert_memory_equal(label, cases[i].missed ? queries[1] : labels, sizeof labels);
        release_memory();
    }
}

/* numbers that are worked out by hand */
DEVICE_TEST(features_by_hand)
{
    static const float q[] = { 3, 4 }, anchor[] = { 4, 3 }, mean_k[] = { 1, 2 }, sink[] = { 5, 0 }, local[] = { 0, 12 },
                       lse = 1;
    float *in[8], *known = floats(HA_FEATURES), *mean = floats(HA_FEATURES), *inv = floats(HA_FEATURES);
    const float *const from[] = { q, anchor, mean_k, sink, local };
    for (size_t i = 0; i < COUNT(from); i++) memcpy(in[i] = floats(2), from[i], 2 * FLOATS);
    for (size_t i = 5; i < 7; i++) *(in[i] = floats(1)) = lse;
    for (size_t i = 0; i < HA_FEATURES; i++) known[i] = (float)i, mean[i] = 0, inv[i] = 1;
    known[HA_FEATURE_HOST_KEYS] = 1;
    known[HA_FEATURE_ANCHOR_SCORE_VARIANCE] = 0.5f;
    mean[HA_FEATURE_ANCHOR_O_NORM_MAX] = 39; /* 40 - 39 */
    inv[HA_FEATURE_V_NORM_MEAN] = 0;
    const struct ha_device_features_seq seq = {
        in[0], known, in[1], in[2], { in[3], in[4] }, { in[5], in[6] }, 7, in[7] = floats(HA_FEATURES)
    };
    ok(api->features(stream, &(struct ha_device_features){ 1, 1, 1, 2, 0.5f, mean, inv, &seq }));
    ok(api->stream_sync(stream));
    static const struct {
        enum ha_feature of;
        float is;
    } want[] = {
        { HA_FEATURE_V_NORM_MEAN, 0 },       { HA_FEATURE_HEAD, 1 },
        { HA_FEATURE_DEVICE_KEYS, 7 },       { HA_FEATURE_SCORE_MEAN, 1.1f },
        { HA_FEATURE_LSE_SINK, 1 },          { HA_FEATURE_LSE_HOST, 10 }, /* 11.75 */
        { HA_FEATURE_LSE_LOCAL, 1 },         { HA_FEATURE_O_NORM_SINK, 5 },
        { HA_FEATURE_O_NORM_LOCAL, 10 },     { HA_FEATURE_Q_NORM, 5 },
        { HA_FEATURE_Q_COSINE, 0.96f },      { HA_FEATURE_O_NORM_MAX, 6.5f },
        { HA_FEATURE_K_NORM_SINK, 4 },       { HA_FEATURE_V_NORM_KURTOSIS, 10 },
        { HA_FEATURE_ANCHOR_O_NORM_MAX, 1 },
    };
    for (size_t i = 0; i < COUNT(want); i++)
        if (!(fabsf(seq.x[want[i].of] - want[i].is) <= 1e-6f))
            fail_msg("%s: %g, not %g", ha_feature_name(want[i].of), (double)seq.x[want[i].of], (double)want[i].is);
    in[0][0] = in[0][1] = 0; /* a query of zeros has neither a mean score nor an angle */
    ok(api->features(stream, &(struct ha_device_features){ 1, 1, 1, 2, 0.5f, mean, inv, &seq }));
    ok(api->stream_sync(stream));
    assert_true(seq.x[HA_FEATURE_SCORE_MEAN] == 0 && seq.x[HA_FEATURE_Q_COSINE] == 0 && seq.x[HA_FEATURE_Q_NORM] == 0);
    release_memory();
}

/* ---- wrong use */

#define WRONG(name, words) WRONG_USE(name, words, device_begin, device_end, refused)
WRONG_CALL(digests_need_rows_in_a_block, "blocks of 0 rows",
           api->digest(stream, &(struct ha_device_digest){ .kv_heads = 1, .head_dim = 8 }))
WRONG_CALL(scores_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->digest_score(stream, &(struct ha_device_digest_score){ .q_len = 1, .q_heads = 3, .kv_heads = 2 }))
WRONG_CALL(rows_need_whole_groups, "3 heads are no multiple of 2 KV heads",
           api->score(stream, &(struct ha_device_score){ .q_len = 1, .q_heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(rows_need_elements, "rows of no elements",
           api->score(stream, &(struct ha_device_score){ .q_len = 1, .q_heads = 2, .kv_heads = 2 }))
WRONG_CALL(columns_need_whole_groups, "3 heads are no multiple of 2 KV heads",
           api->columns(stream, &(struct ha_device_columns){ .heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(lists_need_rows, "lists of no rows", api->topk(stream, &(struct ha_device_topk){ .lists = 1 }))
WRONG_CALL(a_distance_is_not_negative, "within -1 of the largest",
           api->topk(stream, &(struct ha_device_topk){
                                 1, 1, 1, &(struct ha_device_topk_seq){ .keys = device_block(4), .within = -1 } }))
WRONG_CALL(lists_need_a_table, "lists of no table", api->split(stream, &(struct ha_device_split){ .lists = 1 }))
WRONG_CALL(rows_hold_their_lists, "rows of 3 for lists of 4",
           api->split(stream, &(struct ha_device_split){ 1, 2, 1,
                                                         &(struct ha_device_split_seq){ .index = device_block(32),
                                                                                        .count = 4,
                                                                                        .index_stride = 4,
                                                                                        .slot = device_block(4),
                                                                                        .blocks = 1,
                                                                                        .here = device_block(32),
                                                                                        .here_count = device_block(8),
                                                                                        .out_stride = 3 } }))
WRONG_CALL(pairs_are_of_two, "3 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 3, .turn = device_block(64) }))
WRONG_CALL(more_is_turned_than_there_is, "10 of 8 dimensions are turned in pairs",
           api->rotate(stream, &(struct ha_device_rotate){ .head_dim = 8, .rotary = 10, .turn = device_block(64) }))

WRONG_CALL(codes_are_whole_words, "codes of 48 bits, not 32, 64, ... or 256",
           api->hash(stream, &(struct ha_device_hash){ .bits = 48 }))
WRONG_CALL(codes_have_bits, "codes of 0 bits", api->hash(stream, &(struct ha_device_hash){ .bits = 0 }))
WRONG_CALL(scored_codes_are_not_long, "codes of 288 bits",
           api->hamming(stream, &(struct ha_device_hamming){ .bits = 288 }))
WRONG_CALL(labels_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->similarity(stream, &(struct ha_device_similarity){ .q_len = 1, .q_heads = 3, .kv_heads = 2 }))
WRONG_CALL(labels_need_a_step, "steps of no token",
           api->similarity(stream, &(struct ha_device_similarity){ .q_heads = 2, .kv_heads = 2 }))

WRONG_CALL(groups_are_asked_for, "0 groups of 1 dimensions",
           api->pq_encode(stream, &(struct ha_device_pq_encode){ .pq = { NULL, 0, 1, 1, 1, 1 } }))
WRONG_CALL(books_are_one_or_all, "2 books for 3 groups",
           api->pq_table(stream,
                         &(struct ha_device_pq_table){ .q_heads = 1, .kv_heads = 1, .pq = { NULL, 3, 1, 1, 2, 1 } }))
WRONG_CALL(centroids_fit_codes, "5 centroids in codes of 2 bits",
           api->pq_score(stream, &(struct ha_device_pq_score){ .pq = { NULL, 1, 1, 5, 1, 2 } }))
WRONG_CALL(codes_are_not_long, "in codes of 17 bits",
           api->pq_encode(stream, &(struct ha_device_pq_encode){ .pq = { NULL, 1, 1, 5, 1, 17 } }))
WRONG_CALL(tables_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->pq_table(stream,
                         &(struct ha_device_pq_table){ .q_heads = 3, .kv_heads = 2, .pq = { NULL, 1, 1, 1, 1, 1 } }))
WRONG_CALL(a_share_is_at_most_1, "p of 1.5", api->topp(stream, &(struct ha_device_topp){ .rows = 1, .p = 1.5 }))
WRONG_CALL(a_share_is_above_0, "p of 0,", api->topp(stream, &(struct ha_device_topp){ .rows = 1, .p = 0 }))
WRONG_CALL(a_list_has_rows, "0 rows of a list", api->topp(stream, &(struct ha_device_topp){ .p = 1 }))
WRONG_CALL(sums_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->weighted_sum(stream, &(struct ha_device_weighted_sum){ .q_heads = 3, .kv_heads = 2 }))

WRONG_CALL(features_need_whole_groups, "3 query heads are no multiple of 2 KV heads",
           api->features(stream, &(struct ha_device_features){ .q_heads = 3, .kv_heads = 2, .head_dim = 1 }))
WRONG_CALL(nets_have_layers, "1 to 4 layers of 1 to 1024 numbers", api->net(stream, &(struct ha_net){ .rows = 1 }))
WRONG_CALL(nets_have_few_layers, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 5, .width = { 1, 1, 1, 1, 1 } }))
WRONG_CALL(nets_are_not_wide, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 1, .width = { 1025, 1 } }))
WRONG_CALL(layers_have_numbers, "1 to 4 layers of 1 to 1024 numbers",
           api->net(stream, &(struct ha_net){ .rows = 1, .layers = 2, .width = { 1, 0, 1 } }))
